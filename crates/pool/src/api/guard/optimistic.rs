//! Optimistic reads: read without holding anything, and detect changes of what was read.
//!
//! The inner nodes of an index are read by all threads and rarely changed. A latch on them, even a shared one, is a
//! write to one cache line by every thread. An optimistic reader writes nothing: it records the frame's version, copies
//! the bytes it needs, and compares the version again.
//!
//! Invariants:  [OPT-1] bytes are returned only after the version has proved them unchanged, except for single loads to
//!              callers that validate several at once
//! Source:      LeanStore and vmcache (Leis et al., 2018 and 2023) for the use in a buffer manager.

use std::fmt;
use std::ops::Range;

use crate::cache::VersionedFrame;
use crate::cache::file::CachedFile;
use crate::core::Core;
use crate::observe::stats::PoolEvent;
use crate::tag::Block;

/// An optimistic guard of a page: it holds nothing, no pin and no latch.
///
/// All reads through one guard see one state of the page. When that state is over, every read fails, and the caller
/// starts again with a new guard.
#[derive(Clone, Copy)]
pub struct Optimistic<'p> {
    core: &'p Core,
    seen: VersionedFrame<'p>,
    block: Block,
}

impl<'p> Optimistic<'p> {
    /// A guard of the page `block`, if it is in memory, not being changed and not cold.
    #[inline(always)]
    pub(crate) fn now(
        core: &'p Core,
        file: &'p CachedFile,
        block: Block,
    ) -> Option<Optimistic<'p>> {
        let seen = core.cache.optimistic(file, block)?;
        core.counters.optimistic();
        Some(Optimistic { core, seen, block })
    }

    /// As [`Optimistic::now`], cold or not.
    pub(crate) fn now_or_cold(
        core: &'p Core,
        file: &'p CachedFile,
        block: Block,
    ) -> Option<Optimistic<'p>> {
        let seen = core.cache.optimistic_and_count(file, block)?;
        core.counters.optimistic();
        Some(Optimistic { core, seen, block })
    }

    /// Returns the page's position in its file.
    pub fn block(&self) -> Block {
        self.block
    }

    /// Copies `into.len()` bytes from byte `offset` of the page. False when the page has changed, or left its frame,
    /// since the guard began: the contents of `into` are then useless.
    ///
    /// # Panics
    /// The range extends past the end of the page.
    #[inline]
    #[must_use = "what was read means nothing if the page has changed"]
    pub fn read(&self, offset: usize, into: &mut [u8]) -> bool {
        // Validated before as well: a caller whose `into` is that very page, latched exclusively, has thereby moved the
        // version, and nothing is copied onto itself.
        if !self.still_valid() {
            self.disturbed(into);
            return false;
        }
        self.read_at_once(offset, into)
    }

    /// As [`Optimistic::read`], for a guard that has just begun.
    #[inline(always)]
    pub(crate) fn read_at_once(&self, offset: usize, into: &mut [u8]) -> bool {
        self.core.memory.copy_out(self.seen.frame, offset, into);
        let whole = self.still_valid();
        if !whole {
            self.disturbed(into);
        }
        whole
    }

    /// Returns the result of `read` on the page, from one state of it, that of the guard's beginning to the end of
    /// `read`. Returns `None` when the page has changed, or left its frame: `read` may then have seen arbitrary bytes.
    /// It should load what it needs ([`Optimistic::load`]), trust no offset or count that it has loaded, and have no
    /// side effects.
    #[inline(always)]
    pub fn inspect<R>(&self, read: impl FnOnce(&Optimistic<'p>) -> R) -> Option<R> {
        let read = read(self);
        if !self.still_valid() {
            self.disturbed(&mut []);
            return None;
        }
        Some(read)
    }

    /// Returns the `N` bytes at byte `offset` of the page, at most 4096, *in their current state*: they are only
    /// meaningful if [`Optimistic::inspect`], inside which this should be called, or [`Optimistic::still_valid`]
    /// confirms them afterwards. Returns `None` where they would extend past the end of the page, so an offset from
    /// such a load may be used. `u16::from_le_bytes(page.load(6)?)` is a number; eight bytes at a multiple of eight are
    /// fastest.
    #[inline(always)]
    pub fn load<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        const { assert!(N <= 4096, "more than the smallest page has") };
        if offset > self.core.page_bytes() - N {
            return None;
        }
        let mut bytes = [0; N];
        self.core.memory.copy_out(self.seen.frame, offset, &mut bytes);
        Some(bytes)
    }

    /// Prefetches `bytes` of the page into the processor's cache, and returns at once: for a search in which each load
    /// determines the next one, so that the processor cannot predict it. A hint: the part past the end of the page is
    /// ignored, as is the call on processors other than x86-64.
    #[inline(always)]
    pub fn fetch_lines(&self, bytes: Range<usize>) {
        self.core.memory.fetch_lines(self.seen.frame, bytes);
    }

    #[cold]
    #[inline(never)]
    fn disturbed(&self, into: &mut [u8]) {
        // [OPT-1] Even a caller that does not check never gets a torn page.
        into.fill(0);
        self.core.counters.count_pool(PoolEvent::OptimisticRetries);
    }

    /// True while everything read so far is still the content of the page.
    #[inline]
    pub fn still_valid(&self) -> bool {
        self.seen.still_valid()
    }
}

impl fmt::Debug for Optimistic<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Optimistic(block {})", self.block)
    }
}
