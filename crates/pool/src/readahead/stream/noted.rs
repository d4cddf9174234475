//! What a stream remembers: runs to be read later, and what became of gaps.

use forebay_lookahead::Run;

/// Gap pages that a stream's memory of what became of them goes back.
const GAP_MEMORY: u32 = 1024;

/// What is taken for known before a stream has seen any: half of so many gap pages were wanted later.
const GAP_PRIOR: u32 = 32;

/// However useful gaps have been, they cost that much of what a request of them would, in percent.
const GAP_LOST_MIN: u32 = 10;

/// A run to be read when the reader comes to it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Noted {
    pub(super) run: Run,
    /// The kernel was told of it.
    pub(super) told: bool,
}

/// What became of the gaps of one stream.
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

    /// Of a hundred pages read in gaps, how many were not wanted later; 50 before anything is known.
    pub(super) fn lost_percent(&self) -> u32 {
        let (read, used) = (self.read + GAP_PRIOR, self.used + GAP_PRIOR / 2);
        (100 - (100 * used.min(read) / read)).max(GAP_LOST_MIN)
    }
}
