//! Which reads are late (the 95th percentile of the latest ones), and how many may be sent a second time.
//!
//! Invariants:  [LAT-1] hedges are at most one in twenty of the reads, and ten at the beginning

use std::time::Duration;

/// Number of remembered reads.
const KEPT: usize = 256;
/// Minimum number of reads for a percentile.
const LEAST: usize = 32;
/// The percentile is recomputed after this many reads.
const EVERY: usize = 16;
/// Hedges that may be saved up.
const SAVED_MAX: u32 = 10;
/// The cost of a hedge, in reads.
const PRICE: u32 = 20;

#[derive(Debug, Default)]
pub(crate) struct Latencies {
    kept: Vec<Duration>,
    next: usize,
    since: usize,
    late: Option<Duration>,
    saved: u32,
}

impl Latencies {
    /// Records the duration of a read.
    pub(crate) fn add(&mut self, took: Duration) {
        if self.kept.len() < KEPT {
            self.kept.push(took);
        } else {
            self.kept[self.next] = took;
        }
        self.next = (self.next + 1) % KEPT;
        self.since += 1;
        self.saved = (self.saved + 1).min(SAVED_MAX * PRICE);
        if self.kept.len() >= LEAST && (self.late.is_none() || self.since >= EVERY) {
            self.since = 0;
            let mut sorted = self.kept.clone();
            sorted.sort_unstable();
            self.late = Some(sorted[sorted.len() * 95 / 100]);
        }
    }

    /// The time after which a read is late, if that is known.
    pub(crate) fn late(&self) -> Option<Duration> {
        self.late
    }

    /// Whether another read may be sent a second time ([LAT-1]).
    pub(crate) fn take_hedge(&mut self) -> bool {
        let may = self.saved >= PRICE;
        if may {
            self.saved -= PRICE;
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_is_later_than_95_of_100() {
        let mut latencies = Latencies::default();
        for at in 0..LEAST as u64 - 1 {
            latencies.add(Duration::from_millis(at));
        }
        assert_eq!(latencies.late(), None);
        for at in 0..1000 {
            latencies.add(Duration::from_millis(at % 100));
        }
        let late = latencies.late().unwrap().as_millis();
        assert!((93..=97).contains(&late), "{late}");
    }

    #[test]
    fn lat_1_one_read_in_twenty_is_hedged() {
        let mut latencies = Latencies::default();
        let mut hedges = 0;
        for _ in 0..2000 {
            latencies.add(Duration::from_millis(1));
            hedges += u32::from(latencies.take_hedge());
        }
        assert_eq!(hedges, 100, "[LAT-1]");
    }
}
