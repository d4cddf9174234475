//! Clock sweep: a hand goes round the frames and takes the first page not used since it last came.
//!
//! Each pass takes one use away, so a page used n times survives n passes. No list to keep in order
//! means nothing to lock on a hit.
//!
//! Invariants:  [CLK-1] n steps look at each of n frames once
//! Source:      Corbató, "A paging experiment with the Multics system" (1968), with the usage
//!              counts of PostgreSQL's buffer/freelist.c.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{Replacement, Verdict};

/// The default policy.
#[derive(Debug)]
pub struct ClockSweep {
    frames: u64,
    /// Steps so far; the hand is at this, modulo `frames`.
    steps: AtomicU64,
}

impl ClockSweep {
    /// For a pool of `frames` frames.
    ///
    /// # Panics
    /// There are none.
    pub fn new(frames: u32) -> ClockSweep {
        assert!(frames > 0, "a clock needs a frame to point at");
        ClockSweep { frames: u64::from(frames), steps: AtomicU64::new(0) }
    }
}

impl Replacement for ClockSweep {
    fn advance(&self) -> u32 {
        (self.steps.fetch_add(1, Ordering::Relaxed) % self.frames) as u32
    }

    fn position(&self) -> u32 {
        (self.steps.load(Ordering::Relaxed) % self.frames) as u32
    }

    fn judge(&self, usage: u8) -> Verdict {
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
