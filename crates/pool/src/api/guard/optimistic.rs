//! Optimistic reads: read without holding, and notice when what was seen has changed.
//!
//! The inner nodes of an index are read by everyone and changed by hardly anyone. A latch on them,
//! even a shared one, is a write to one cache line by every thread. An optimistic reader writes
//! nothing: it notes the frame's version, copies the bytes it needs, and compares the version again.
//!
//! Invariants:  [OPT-1] bytes are handed out only after the version has proved them unchanged, except for
//!              single loads to those who validate several at once
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
/// All that is read through one of these comes from one state of the page. When that has passed,
/// every read says so, and the caller begins again with a new guard.
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

    /// Copies `into.len()` bytes from byte `offset` of the page. False when the page has changed,
    /// or left its frame, since the guard began: `into` then holds nothing of use.
    ///
    /// # Panics
    /// The range passes the end of the page.
    #[inline]
    #[must_use = "what was read means nothing if the page has changed"]
    pub fn read(&self, offset: usize, into: &mut [u8]) -> bool {
        // Validated before as well: a caller whose `into` is that very page, latched exclusively, has
        // moved the version by that, and nothing is copied onto itself.
        if !self.still_valid() {
            self.disturbed(into);
            return false;
        }
        self.read_at_once(offset, into)
    }

    /// As [`Optimistic::read`], of a guard that has just begun.
    #[inline(always)]
    pub(crate) fn read_at_once(&self, offset: usize, into: &mut [u8]) -> bool {
        self.core.memory.copy_out(self.seen.frame, offset, into);
        let whole = self.still_valid();
        if !whole {
            self.disturbed(into);
        }
        whole
    }

    /// Returns what `read` makes of the page: of one state of it, from the guard's beginning to the end of `read`.
    /// `None` when the page has changed, or left its frame: what `read` has seen may then be anything. It should load
    /// what it needs ([`Optimistic::load`]), trust no offset or count that it has loaded, and change nothing outside.
    #[inline(always)]
    pub fn inspect<R>(&self, read: impl FnOnce(&Optimistic<'p>) -> R) -> Option<R> {
        let read = read(self);
        if !self.still_valid() {
            self.disturbed(&mut []);
            return None;
        }
        Some(read)
    }

    /// Returns the `N` bytes at byte `offset` of the page, at most 4096, *whatever they are by now*:
    /// they mean something only if [`Optimistic::inspect`], in which this is to be used, or
    /// [`Optimistic::still_valid`] says so afterwards. `None` where they would pass the end of the page, so that
    /// an offset that came from such a load may be used. `u16::from_le_bytes(page.load(6)?)` is a number; eight
    /// bytes at a multiple of eight are fastest.
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

    /// Has the processor fetch `bytes` of the page into its cache, and returns at once: for a search in which each load
    /// says where the next one goes, so that the processor cannot know by itself. A hint: what is past the end of the
    /// page is left out, and processors other than x86-64 are not asked.
    #[inline(always)]
    pub fn fetch_lines(&self, bytes: Range<usize>) {
        self.core.memory.fetch_lines(self.seen.frame, bytes);
    }

    #[cold]
    #[inline(never)]
    fn disturbed(&self, into: &mut [u8]) {
        // [OPT-1] Even a caller that does not check is not given a torn page.
        into.fill(0);
        self.core.counters.count_pool(PoolEvent::OptimisticRetries);
    }

    /// True while everything read so far is still what the page says.
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
