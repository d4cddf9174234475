//! A stream's memory: runs to be read later, and the usefulness of gaps.

use forebay_lookahead::Run;

/// Number of gap pages over which a stream averages their usefulness.
const GAP_MEMORY: u32 = 1024;

/// Assumed before a stream has seen any gap: half of this many gap pages were needed later.
const GAP_PRIOR: u32 = 32;

/// However useful gaps have been, they cost at least this much of a request for them, in percent.
const GAP_LOST_MIN: u32 = 10;

/// A run to be read when the reader reaches it.
#[derive(Debug, Clone, Copy)]
pub(super) struct DeferredRun {
    pub(super) run: Run,
    /// The kernel received a hint for it.
    pub(super) hinted: bool,
}

/// The usefulness of one stream's gaps.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    pub(super) read: u32,
    pub(super) used: u32,
}

impl Gaps {
    pub(super) fn read(&mut self, blocks: u32) {
        self.read += blocks;
        if self.read > GAP_MEMORY {
            self.read /= 2;
            self.used /= 2;
        }
    }

    /// The percentage of gap pages that were not needed later; 50 before anything is known.
    pub(super) fn lost_percent(&self) -> u32 {
        let (read, used) = (self.read + GAP_PRIOR, self.used + GAP_PRIOR / 2);
        (100 - (100 * used.min(read) / read)).max(GAP_LOST_MIN)
    }
}
