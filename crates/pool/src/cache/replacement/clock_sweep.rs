//! Clock sweep: a hand goes round the frames and takes the first page not used since its last pass.
//!
//! Each pass decrements the usage, so a page used n times survives n passes. There is no ordered list, so a hit locks
//! nothing.
//!
//! Invariants:  [CLK-1] n steps examine each of n frames once
//! Source:      Corbató, "A paging experiment with the Multics system" (1968), with the usage
//!              counts of PostgreSQL's buffer/freelist.c.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::cache::frame::FrameIndex;

/// What to do with an unpinned page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is evicted.
    Take,
    /// It stays this time, and its usage is decremented.
    Spare,
}

#[derive(Debug, Default)]
pub(crate) struct ClockSweep {
    /// Steps so far; the hand is at this, modulo the number of frames.
    steps: AtomicU64,
}

impl ClockSweep {
    /// The next frame to examine among `frames` frames, of which there is at least one.
    pub(crate) fn advance(&self, frames: usize) -> FrameIndex {
        (self.steps.fetch_add(1, Ordering::Relaxed) % frames as u64) as FrameIndex
    }

    /// The frame that the next call of [`advance`](ClockSweep::advance) will return, for the cleaner to work ahead of
    /// it.
    pub(crate) fn position(&self, frames: usize) -> FrameIndex {
        (self.steps.load(Ordering::Relaxed) % frames as u64) as FrameIndex
    }

    /// Decides on an unpinned page that was used `usage` times recently (0 to 5).
    pub(crate) fn judge(&self, usage: u8) -> Verdict {
        if usage == 0 { Verdict::Take } else { Verdict::Spare }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clk_1_a_round_looks_at_each_frame_once() {
        let clock = ClockSweep::default();
        let mut seen: Vec<u32> = (0..5).map(|_| clock.advance(5)).collect();
        assert_eq!(clock.position(5), 0);
        seen.sort_unstable();
        assert_eq!(seen, [0, 1, 2, 3, 4]);
    }
}
