//! Trial: finds out which of two modes of reading costs the reader less, by running both.
//!
//! No property of a file or a device that can be queried says whether the kernel's own readahead, WILLNEED hints or a
//! queue of reads is the fastest mode through the page cache: that depends on how the kernel makes pages, on the
//! processor and on the device, and the order differs from one machine to the next (docs/adr/0009-read-streams.md).
//! What can be measured is the time that the reader spends on reading: on making requests, on waiting, and on copying.
//!
//! Worked example: 1,024 blocks are read in the first mode, and the last of them cost 4.0 us each. Blocks requested in
//! the second mode are measured once all blocks requested before them have been returned: 256 at 3.1 us. The second
//! mode continues, and after 2,048 blocks the first has another turn, which ends after 64 blocks if these already cost
//! more than 256 in the other mode; then after 4,096, and so on. A reader that clearly waits for the device tries the
//! second mode after 128 blocks.
//!
//! Invariants:  [TRL-1] a block counts for the mode in which it was requested   [TRL-2] the costlier mode is measured
//!              in a part of the blocks that gets smaller   [TRL-3] a trial that costs more than the whole trial of the
//!              other mode did ends there
//! Concurrency: one owner.
//! Failure:     none; no clock is read, all times are arguments.
//! Source:      the explore-then-commit bandit, with doubling times between explorations.

use std::time::Duration;

/// Number of blocks that suffices to measure the cost of a mode.
const BLOCKS: u32 = 256;

/// Blocks before the first trial of the other mode: it takes some hundred until the blocks that the first mode has
/// requested have been returned, and as many again if the other mode loses.
const FIRST: u32 = 1024;

/// The same where the reader clearly waits for the device, so that there is much to gain.
const FIRST_WAITING: u32 = 128;

/// Blocks after which the costlier mode has another turn.
const PATIENCE: u32 = 2048;
const PATIENCE_MAX: u32 = 1 << 20;

/// The other mode wins only if it costs less than this percentage of the current one: even the same mode varies that
/// much from one measurement to the next.
const CLEARLY_PERCENT: u32 = 95;

/// One of two modes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The default mode, used unless the other is known to be cheaper.
    First,
    /// The other mode.
    Second,
}

impl Side {
    fn other(self) -> Side {
        match self {
            Side::First => Side::Second,
            Side::Second => Side::First,
        }
    }
}

/// The trial of two modes of reading, by one reader.
#[derive(Debug, Clone)]
pub struct Trial {
    now: Side,
    /// The cost per block of the other mode when it was last measured; `None` before that, and permanently where there
    /// is no choice.
    other: Option<Duration>,
    /// True while `now` still has to prove cheaper than `other`.
    challenges: bool,
    /// Blocks not yet returned that were requested in the other mode.
    settling: u32,
    /// What has been measured of `now`.
    blocks: u32,
    spent: Duration,
    /// Blocks until the other mode has its turn; `None`: never.
    left: Option<u32>,
    patience: u32,
    /// A block of the first mode that costs more than this has waited for the device.
    waiting: Option<Duration>,
}

impl Trial {
    /// Begins with the mode that won elsewhere, or with the first. `waiting`: if a block costs more than this in the
    /// first mode, the other is tried early; `None` for a mode that needs time to reach its speed.
    pub fn new(winner: Option<Side>, waiting: Option<Duration>) -> Trial {
        Trial {
            // A stream that begins with a winner has already completed the first trial.
            waiting: waiting.filter(|_| winner.is_none()),
            now: winner.unwrap_or(Side::First),
            other: None,
            challenges: false,
            settling: 0,
            blocks: 0,
            spent: Duration::ZERO,
            left: Some(if winner.is_some() { PATIENCE } else { FIRST }),
            patience: PATIENCE,
        }
    }

    /// No trial: `side` is the only mode.
    pub fn only(side: Side) -> Trial {
        Trial { left: None, ..Trial::new(Some(side), None) }
    }

    /// The mode to use for the next requests.
    pub fn side(&self) -> Side {
        self.now
    }

    /// Whether the mode has not proved itself yet, so that a caller that measures a part of its reads measures all.
    pub fn is_undecided(&self) -> bool {
        self.challenges
    }

    /// Records that reading the last `blocks` cost the reader `spent`; `known` more have been requested and not yet
    /// returned. Returns the winner when it has been found or confirmed.
    pub fn spent(&mut self, blocks: u32, spent: Duration, known: u32) -> Option<Side> {
        let left = self.left?;
        if self.settling > 0 {
            self.settling = self.settling.saturating_sub(blocks); // [TRL-1]
            return None;
        }
        self.blocks += blocks;
        self.spent += spent;
        self.left = Some(left.saturating_sub(blocks));
        if let Some(other) = self.other.filter(|_| self.challenges) {
            if self.spent > other * BLOCKS && self.blocks < BLOCKS {
                return Some(self.lost(known)); // [TRL-3]
            }
            if self.blocks < BLOCKS {
                return None;
            }
            if self.cost() * 100 > other * CLEARLY_PERCENT {
                return Some(self.lost(known));
            }
            self.challenges = false;
            (self.left, self.patience) = (Some(PATIENCE), PATIENCE);
            return Some(self.now);
        }
        let waits = self.other.is_none()
            && self.blocks >= FIRST_WAITING
            && self.waiting.is_some_and(|most| self.cost() > most);
        if waits || (self.left == Some(0) && self.blocks >= BLOCKS) {
            self.turn(known);
            self.challenges = true;
        } else if self.blocks >= 2 * BLOCKS {
            // Old measurements count less.
            self.blocks /= 2;
            self.spent /= 2;
        }
        None
    }

    fn cost(&self) -> Duration {
        self.spent / self.blocks.max(1)
    }

    fn lost(&mut self, known: u32) -> Side {
        self.turn(known);
        self.challenges = false;
        self.left = Some(self.patience);
        self.patience = self.patience.saturating_mul(2).min(PATIENCE_MAX); // [TRL-2]
        self.now
    }

    /// Switches to the other mode.
    fn turn(&mut self, known: u32) {
        self.other = Some(self.cost());
        self.now = self.now.other();
        self.settling = known;
        (self.blocks, self.spent) = (0, Duration::ZERO);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: u32 = 64;

    /// Reads `blocks` in batches of 32, where `cost` gives the cost in ns for the mode. Returns the number of blocks
    /// requested in each mode.
    fn read(trial: &mut Trial, blocks: u32, cost: impl Fn(Side) -> u64) -> [u32; 2] {
        let mut asked = [0; 2];
        // Blocks in flight were requested in the mode that was current then.
        let mut window = std::collections::VecDeque::from(vec![trial.side(); WINDOW as usize / 32]);
        for _ in 0..blocks / 32 {
            let side = window.pop_front().unwrap();
            trial.spent(32, Duration::from_nanos(32 * cost(side)), WINDOW - 32);
            window.push_back(trial.side());
            asked[trial.side() as usize] += 32;
        }
        asked
    }

    #[test]
    fn the_cheaper_mode_is_found_whichever_it_is() {
        for (first, second) in [(4000, 3000), (3000, 4000), (100_000, 3000), (3000, 100_000)] {
            let mut trial = Trial::new(None, None);
            let cost = |side| if side == Side::First { first } else { second };
            assert!(!trial.is_undecided());
            let asked = read(&mut trial, 8192, cost);
            let dearer = if first < second { asked[1] } else { asked[0] };
            assert!(dearer <= 8192 / 5, "{first} against {second}: {asked:?}");
            let asked = read(&mut trial, 1 << 20, cost);
            let dearer = if first < second { asked[1] } else { asked[0] };
            assert!(dearer <= (1 << 20) / 200, "[TRL-2] {first} against {second}: {asked:?}");
        }
    }

    #[test]
    fn what_the_other_mode_prefetched_is_not_counted() {
        let mut trial = Trial::new(None, None);
        // The first mode is slow, and so are all blocks that it has requested when the second takes over.
        read(&mut trial, FIRST, |_| 100_000);
        assert_eq!(trial.side(), Side::Second);
        trial.spent(WINDOW, Duration::from_secs(1), WINDOW);
        assert_eq!(trial.side(), Side::Second, "[TRL-1]");
        assert_eq!(read(&mut trial, BLOCKS, |_| 1000)[0], 0, "[TRL-1]");
    }

    #[test]
    fn a_trial_of_a_much_dearer_way_is_cut_short() {
        let mut trial = Trial::new(None, None);
        read(&mut trial, FIRST, |_| 1000);
        assert_eq!(trial.side(), Side::Second);
        trial.spent(WINDOW, Duration::ZERO, 0);
        let winner = trial.spent(32, Duration::from_nanos(u64::from(BLOCKS) * 1000 + 1), WINDOW);
        assert_eq!((winner, trial.side()), (Some(Side::First), Side::First), "[TRL-3]");
    }

    #[test]
    fn who_waits_tries_the_other_way_early() {
        let waiting = Some(Duration::from_nanos(5000));
        let cost = |side| if side == Side::First { 15_000 } else { 4000 };
        let asked = read(&mut Trial::new(None, waiting), 1024, cost);
        assert!(asked[0] <= FIRST_WAITING + 32, "{asked:?}");
        let asked = read(&mut Trial::new(None, None), 1024, cost);
        assert_eq!(asked[1], 32, "at the very end");
        let asked = read(&mut Trial::new(None, waiting), 992, |_| 4000);
        assert_eq!(asked[1], 0, "who does not wait has time");
        let asked = read(&mut Trial::new(Some(Side::Second), waiting), 992, |_| 15_000);
        assert_eq!(asked[0], 0, "who begins with the winner has done so");
    }

    #[test]
    fn who_is_not_clearly_cheaper_does_not_win() {
        let mut trial = Trial::new(None, None);
        read(&mut trial, 8192, |side| if side == Side::First { 1000 } else { 980 });
        assert_eq!(trial.side(), Side::First);
    }

    #[test]
    fn a_way_that_gets_cheaper_is_found_in_the_end() {
        let mut trial = Trial::new(None, None);
        read(&mut trial, 8192, |side| if side == Side::First { 1000 } else { 2000 });
        assert_eq!(trial.side(), Side::First);
        read(&mut trial, 32_768, |side| if side == Side::First { 3000 } else { 2000 });
        assert_eq!(trial.side(), Side::Second);
    }

    #[test]
    fn who_knows_the_winner_begins_with_it_and_who_has_no_choice_has_none() {
        let mut trial = Trial::new(Some(Side::Second), None);
        assert_eq!(read(&mut trial, PATIENCE - 32, |_| 1000), [0, PATIENCE - 32]);
        let mut only = Trial::only(Side::First);
        assert_eq!(read(&mut only, 1 << 16, |_| 1000)[1], 0);
    }
}
