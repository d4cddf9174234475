//! Optimistic reads: look without holding, and notice when what was seen has changed.
//!
//! The inner nodes of an index are read by everyone and changed by hardly anyone. A latch on them,
//! even a shared one, is a write to one cache line by every thread. An optimistic reader writes
//! nothing: it notes the frame's version, copies the bytes it needs, and looks at the version again.
//!
//! Invariants:  [OPT-1] bytes are handed out only after the version has proved them unchanged, but for
//!              single words to those who validate several at once
//! Source:      LeanStore and vmcache (Leis et al., 2018 and 2023) for the use in a buffer manager.

use std::fmt;
use std::ops::Range;

use crate::cache::Look;
use crate::cache::file::CachedFile;
use crate::core::Core;
use crate::observe::stats::PoolEvent;
use crate::tag::Block;

/// A look at a page that holds nothing: no pin, no latch.
///
/// All that is read through one of these comes from one state of the page. When that has passed,
/// every read says so, and the caller begins again with a new look.
#[derive(Clone, Copy)]
pub struct Optimistic<'p> {
    core: &'p Core,
    look: Look<'p>,
    block: Block,
}

impl<'p> Optimistic<'p> {
    /// A look at the page `block`, if it is in memory, not being changed and not cold.
    #[inline(always)]
    pub(crate) fn now(
        core: &'p Core,
        file: &'p CachedFile,
        block: Block,
    ) -> Option<Optimistic<'p>> {
        let look = core.cache.look(file, block)?;
        core.counters.optimistic();
        Some(Optimistic { core, look, block })
    }

    /// As [`Optimistic::now`], cold or not.
    pub(crate) fn now_or_cold(
        core: &'p Core,
        file: &'p CachedFile,
        block: Block,
    ) -> Option<Optimistic<'p>> {
        let look = core.cache.look_and_count(file, block)?;
        core.counters.optimistic();
        Some(Optimistic { core, look, block })
    }

    /// Returns the page's position in its file.
    pub fn block(&self) -> Block {
        self.block
    }

    /// Copies `into.len()` bytes from byte `offset` of the page. False when the page has changed,
    /// or left its frame, since the look began: `into` then holds nothing of use.
    ///
    /// # Panics
    /// The range passes the end of the page.
    #[inline]
    #[must_use = "what was read means nothing if the page has changed"]
    pub fn read(&self, offset: usize, into: &mut [u8]) -> bool {
        // Looked at before as well: a caller whose `into` is that very page, latched exclusively, has
        // moved the version by that, and nothing is copied onto itself.
        if !self.still_valid() {
            self.disturbed(into);
            return false;
        }
        self.read_at_once(offset, into)
    }

    /// As [`Optimistic::read`], of a look that has just begun.
    #[inline(always)]
    pub(crate) fn read_at_once(&self, offset: usize, into: &mut [u8]) -> bool {
        self.core.memory.copy_out(self.look.frame, offset, into);
        let whole = self.still_valid();
        if !whole {
            self.disturbed(into);
        }
        whole
    }

    /// The word at byte `offset` of the page, little endian, *whatever it is by now*: it means something only
    /// if [`Optimistic::still_valid`] says so afterwards. For a search in place, whose loads are many and
    /// are validated together. `None` where it would pass the end of the page, so that an offset that
    /// came from such a load may be used. Fastest at a multiple of eight.
    #[inline(always)]
    pub fn load(&self, offset: usize) -> Option<u64> {
        const BYTES: usize = size_of::<u64>();
        if offset > self.core.page_bytes() - BYTES {
            return None;
        }
        let mut word = [0; BYTES];
        self.core.memory.copy_out(self.look.frame, offset, &mut word);
        Some(u64::from_le_bytes(word))
    }

    /// Has the processor fetch `bytes` of the page into its cache, and returns at once: for a search in which each load
    /// says where the next one goes, so that the processor cannot know by itself. A hint: what is past the end of the
    /// page is left out, and processors other than x86-64 are not asked.
    #[inline(always)]
    pub fn fetch_lines(&self, bytes: Range<usize>) {
        self.core.memory.fetch_lines(self.look.frame, bytes);
    }

    #[cold]
    #[inline(never)]
    fn disturbed(&self, into: &mut [u8]) {
        // [OPT-1] Even a caller that does not look is not given a torn page.
        into.fill(0);
        self.core.counters.count_pool(PoolEvent::OptimisticRetries);
    }

    /// True while everything read so far is still what the page says.
    #[inline]
    pub fn still_valid(&self) -> bool {
        self.look.still_valid()
    }
}

impl fmt::Debug for Optimistic<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Optimistic(block {})", self.block)
    }
}
