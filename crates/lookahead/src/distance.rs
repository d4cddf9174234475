//! Look-ahead distance: how many blocks a stream is ahead of its consumer.
//!
//! If it is too short, the consumer waits; if it is too long, pins, memory and requests are wasted on blocks that the
//! consumer never reaches. The right distance follows from two times: a block that takes `latency` to arrive must be
//! requested `latency / interval` blocks before its turn, if the consumer takes `interval` for each. Worked example: 1
//! ms and 20 us make 50 blocks; with a margin of 2 the aim is 100. From 1 the distance gets there in seven waits, by
//! doubling, and after 127 blocks at least.
//!
//! Only waits make it longer, so a stream over resident pages or for a slow consumer stays short. The aim only limits
//! how far the distance of a stream that never waits may shrink. Jumping to the aim at once was rejected: a latency
//! measured at a short distance says nothing about a long one.
//!
//! Invariants:  [DST-1] 1 <= distance <= most
//!              [DST-2] it doubles at most once in as many blocks as the new distance: only then has the last growth
//!              shown its effect
//!              [DST-3] it grows only on waits of 2 us and more
//!              [DST-4] blocks that are ready in time shrink it to the aim at most, by 1 each, and only after a whole
//!              distance of them without a wait
//!              [DST-5] fewer than 65 hits in a row change nothing
//! Concurrency: one owner.
//! Failure:     none; no clock is read, all times are arguments.
//! Source:      PostgreSQL 19's read stream for growth on real waits only; Seastar for the quarter that may be wasted;
//!              the aim is Little's law.

use std::time::Duration;

/// A shorter wait does not count: finding a block that is already present takes about as long.
const WAIT_MIN: Duration = Duration::from_micros(2);
/// The aim is this many times the bare need.
const MARGIN: f64 = 2.0;
/// A new latency has a weight of one part in this many; there are fewer requests than blocks.
const LATENCY_PARTS: f64 = 8.0;
/// A new interval has a weight of one part in this many.
const INTERVAL_PARTS: f64 = 32.0;
/// Number of hits in a row that leave the distance as it is, so that one cached run does not end a deep look-ahead.
const HITS_FREE: u32 = 64;
/// Number of hits in a row after which the distance shrinks by a fraction of itself rather than by 1.
const HITS_SLOW: u32 = 128;
/// That fraction: one part in this many.
const HITS_PART: u32 = 16;
/// Number of hits in a row that bring any distance down to 1: by a sixteenth each from 2^32 on, and then by 1.
const HITS_TO_ONE: u32 = 512;
/// One requested block in this many may be wasted.
const WASTE_PART: u32 = 4;
/// Fewer requested blocks than this say nothing about waste.
const WASTE_EVIDENCE: u32 = 8;
/// Once this many blocks were requested, all counts are halved.
const WASTE_MEMORY: u32 = 256;

/// The look-ahead distance of one stream.
#[derive(Debug, Clone)]
pub struct Distance {
    blocks: u32,
    most: u32,
    /// Blocks that the consumer still has to take before the distance may double again.
    growth_after: u32,
    /// Prefetched blocks in a row that were ready.
    ready_in_a_row: u32,
    hits_in_a_row: u32,
    /// Prefetched blocks that were used recently, and those that were not.
    used: u32,
    wasted: u32,
    latency_ns: Option<f64>,
    interval_ns: Option<f64>,
}

impl Distance {
    /// Begins `start` blocks ahead (at least 1), and never exceeds `most`.
    pub fn new(start: u32, most: u32) -> Distance {
        assert!(start >= 1 && most >= 1, "[DST-1] start {start} and most {most} are at least 1");
        Distance {
            blocks: start.min(most),
            most,
            growth_after: 0,
            ready_in_a_row: 0,
            hits_in_a_row: 0,
            used: 0,
            wasted: 0,
            latency_ns: None,
            interval_ns: None,
        }
    }

    /// The current look-ahead in blocks: 1 to `most`.
    pub fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Sets another maximum, at least 1 block: shares of pins and rings change.
    pub fn set_most(&mut self, most: u32) {
        assert!(most >= 1, "[DST-1] a stream may be ahead by a block at least");
        self.most = most;
        self.set(self.blocks);
    }

    /// Records that the consumer waited for a block that had been prefetched.
    pub fn waited(&mut self, wait: Duration) {
        if wait < WAIT_MIN {
            return self.ready();
        }
        self.hits_in_a_row = 0;
        self.ready_in_a_row = 0;
        self.use_one();
        if self.growth_after == 0 {
            self.set(self.blocks.saturating_mul(2));
            self.growth_after = self.blocks;
        } else {
            self.growth_after -= 1;
        }
    }

    /// Records that a prefetched block was ready.
    pub fn ready(&mut self) {
        self.hits_in_a_row = 0;
        self.use_one();
        self.growth_after = self.growth_after.saturating_sub(1);
        self.ready_in_a_row = self.ready_in_a_row.saturating_add(1);
        if self.ready_in_a_row > self.blocks && self.aim().is_some_and(|aim| aim < self.blocks) {
            self.set(self.blocks - 1);
        }
    }

    /// Records that `hits` blocks in a row were resident without having been requested.
    pub fn hits(&mut self, hits: u32) {
        // After this many hits the distance is 1, whatever it was before.
        for _ in 0..hits.min(HITS_TO_ONE) {
            self.hit();
        }
    }

    /// Records that a block was resident without having been requested.
    fn hit(&mut self) {
        self.growth_after = self.growth_after.saturating_sub(1);
        self.hits_in_a_row = self.hits_in_a_row.saturating_add(1);
        if self.hits_in_a_row > HITS_SLOW {
            self.set(self.blocks - (self.blocks / HITS_PART).max(1));
        } else if self.hits_in_a_row > HITS_FREE {
            self.set(self.blocks - 1);
        }
    }

    /// Records that `blocks` prefetched blocks were never used.
    pub fn wasted(&mut self, blocks: u32) {
        self.wasted = self.wasted.saturating_add(blocks);
        let asked = self.used.saturating_add(self.wasted);
        if asked >= WASTE_EVIDENCE && self.wasted > asked / WASTE_PART {
            self.set(self.blocks / 2);
            // The shorter distance is judged by its own waste.
            (self.used, self.wasted) = (0, 0);
            self.growth_after = self.blocks;
        }
        self.forget_old_waste();
    }

    /// Halves the distance: there was no room for the next requests.
    pub fn halve(&mut self) {
        self.set(self.blocks / 2);
        self.growth_after = self.blocks.saturating_mul(4);
    }

    /// Records the time from the submission of a request to its completion.
    pub fn latency(&mut self, latency: Duration) {
        smooth(&mut self.latency_ns, latency, LATENCY_PARTS);
    }

    /// Records the time that the consumer itself spent between two blocks, without waits.
    pub fn interval(&mut self, interval: Duration) {
        smooth(&mut self.interval_ns, interval, INTERVAL_PARTS);
    }

    /// How many blocks ahead would be enough, with a margin; `None` until both times are known.
    fn aim(&self) -> Option<u32> {
        let need = self.latency_ns? / self.interval_ns?.max(1.0);
        Some(((need * MARGIN).ceil() as u32).max(1)) // a cast keeps it within u32
    }

    fn set(&mut self, blocks: u32) {
        self.blocks = blocks.clamp(1, self.most);
    }

    fn use_one(&mut self) {
        self.used += 1;
        self.forget_old_waste();
    }

    fn forget_old_waste(&mut self) {
        while self.used.saturating_add(self.wasted) >= WASTE_MEMORY {
            self.used /= 2;
            self.wasted /= 2;
        }
    }
}

/// Moves a smoothed time towards `new` by one part in `parts`; the first value counts in full.
fn smooth(smoothed: &mut Option<f64>, new: Duration, parts: f64) {
    let new = new.as_nanos() as f64;
    *smoothed = Some(smoothed.map_or(new, |old| old + (new - old) / parts));
}

#[cfg(test)]
mod tests;
