//! Clock sweep: a hand goes round the frames and takes the first page not used since it last came.
//!
//! Each pass takes one use away, so a page used n times survives n passes. No list to keep in order
//! means nothing to lock on a hit.
//!
//! Invariants:  [CLK-1] n steps look at each of n frames once
//! Source:      Corbató, "A paging experiment with the Multics system" (1968), with the usage
//!              counts of PostgreSQL's buffer/freelist.c.

use std::sync::atomic::{AtomicU64, Ordering};

/// What to do with a page that nobody holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It goes.
    Take,
    /// It stays this time, and counts as used once less.
    Spare,
}

#[derive(Debug)]
pub(crate) struct ClockSweep {
    frames: u64,
    /// Steps so far; the hand is at this, modulo `frames`.
    steps: AtomicU64,
}

impl ClockSweep {
    /// For a pool of `frames` frames, of which there is one at least.
    pub(crate) fn new(frames: u32) -> ClockSweep {
        assert!(frames > 0, "a clock needs a frame to point at");
        ClockSweep { frames: u64::from(frames), steps: AtomicU64::new(0) }
    }

    /// The frame to look at next, from 0 to the pool's frames.
    pub(crate) fn advance(&self) -> u32 {
        (self.steps.fetch_add(1, Ordering::Relaxed) % self.frames) as u32
    }

    /// Where the next call of [`advance`](ClockSweep::advance) will look, for the cleaner to work ahead of it.
    pub(crate) fn position(&self) -> u32 {
        (self.steps.load(Ordering::Relaxed) % self.frames) as u32
    }

    /// Whether a page goes that nobody holds and that was used `usage` times lately (0 to 5).
    pub(crate) fn judge(&self, usage: u8) -> Verdict {
        if usage == 0 { Verdict::Take } else { Verdict::Spare }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clk_1_a_round_looks_at_each_frame_once() {
        let clock = ClockSweep::new(5);
        let mut seen: Vec<u32> = (0..5).map(|_| clock.advance()).collect();
        assert_eq!(clock.position(), 0);
        seen.sort_unstable();
        assert_eq!(seen, [0, 1, 2, 3, 4]);
    }
}
