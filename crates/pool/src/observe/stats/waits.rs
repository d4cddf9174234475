//! Waits: how long threads were blocked, and why.
//!
//! One histogram per kind of wait, in nanoseconds, to one significant digit: a time read from it is at most 1/16 too
//! long. Two digits would take seven times the memory without practical use. Threads write only the histogram's cells,
//! as atomics, so that threads which wait at the same time do not contend here; a snapshot builds a histogram from
//! them.
//!
//! Invariants:  [STAT-4] buckets are cumulative: each holds those before it, the last everything
//! Concurrency: any thread; without locks. Count and sum of a copy may be from slightly different moments.
//! Failure:     a time of more than an hour counts as about an hour, except in the sum.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::names::names;

/// The reason for a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Wait {
    /// The thread's own read.
    Read,
    /// A read that another thread started.
    InFlightRead,
    /// A write.
    Write,
    /// A latch that another thread held.
    Latch,
    /// A free frame.
    Frame,
    /// A flush of the log as far as a page needs.
    Log,
    /// A sync.
    Sync,
}

names!(Wait:
    Read "read", InFlightRead "in_flight_read", Write "write", Latch "latch", Frame "frame",
    Log "log", Sync "sync"
);

impl Wait {
    /// How many kinds there are.
    pub(crate) const COUNT: usize = 7;

    /// Position in [`Wait::ALL`].
    pub(super) const fn index(self) -> usize {
        self as usize
    }
}

/// Times longer than this are not distinguished.
const LONGEST: Duration = Duration::from_secs(3600);

/// Significant digits of a time.
const DIGITS: u8 = 1;

/// Ends of buckets, as powers of two in nanoseconds: from about 1 us to about 17 s.
const BUCKET_POWERS: std::ops::RangeInclusive<u32> = 10..=34;

/// The times that threads waited for one reason.
#[derive(Debug, Clone, PartialEq)]
pub struct WaitTimes {
    times_ns: Histogram<u64>,
    /// Kept separately from the histogram, which stores times only approximately.
    sum_ns: u64,
}

impl WaitTimes {
    /// Returns how many times a thread waited.
    pub fn count(&self) -> u64 {
        self.times_ns.len()
    }

    /// Returns the time waited, of all threads together.
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.sum_ns)
    }

    /// Returns the time that half of the waits did not exceed; zero when there were none.
    pub fn p50(&self) -> Duration {
        self.quantile(0.5)
    }

    /// Returns the time that all but a hundredth of the waits did not exceed; zero when there were none.
    pub fn p99(&self) -> Duration {
        self.quantile(0.99)
    }

    /// Returns the longest wait; zero when there were none.
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.times_ns.max())
    }

    /// Returns the time that `share` (from 0 to 1) of the waits did not exceed, at most 1/16 too long.
    pub fn quantile(&self, share: f64) -> Duration {
        Duration::from_nanos(self.times_ns.value_at_quantile(share))
    }

    /// Pairs of a time and the number of waits that were no longer, in ascending order. Waits longer than the last are
    /// in [`count`](WaitTimes::count) only.
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> {
        BUCKET_POWERS.map(|power| {
            // The histogram's own cells end below powers of two, so this count is exact.
            let end_ns = (1_u64 << power) - 1;
            (Duration::from_nanos(end_ns), self.times_ns.count_between(0, end_ns))
        })
    }

    /// Sets `self` to the difference of `later` and `earlier`, an earlier copy of the same times.
    pub(crate) fn set_difference(&mut self, later: &WaitTimes, earlier: &WaitTimes) {
        let of_same_kind = "times of waits are all kept alike";
        self.times_ns.set_to(&later.times_ns).expect(of_same_kind);
        self.times_ns.subtract(&earlier.times_ns).expect(of_same_kind);
        self.sum_ns = later.sum_ns.saturating_sub(earlier.sum_ns);
    }

    /// The waits after `earlier`, an earlier copy of the same times. For a later copy, or one of another pool, nothing
    /// is left.
    pub(super) fn since(&self, earlier: &WaitTimes) -> WaitTimes {
        let mut times_ns = self.times_ns.clone();
        match times_ns.subtract(&earlier.times_ns) {
            Ok(()) => WaitTimes { times_ns, sum_ns: self.sum_ns.saturating_sub(earlier.sum_ns) },
            Err(_) => WaitTimes::default(),
        }
    }
}

impl Default for WaitTimes {
    fn default() -> WaitTimes {
        let longest_ns = LONGEST.as_nanos() as u64;
        let times_ns = Histogram::new_with_max(longest_ns, DIGITS)
            .expect("an hour in nanoseconds, to one digit, is within what a histogram takes");
        WaitTimes { times_ns, sum_ns: 0 }
    }
}

/// The times of all kinds of wait, while they are recorded.
#[derive(Debug, Default)]
pub(super) struct LiveWaits([LiveTimes; Wait::COUNT]);

/// The times of one kind, while they are recorded.
#[derive(Debug)]
struct LiveTimes {
    /// The count of each cell, in the order of the times.
    cells: Box<[AtomicU64]>,
    sum_ns: AtomicU64,
}

/// Cells from one power of two to the next.
const CELLS: usize = 16;

/// The cell that counts `time_ns`: below `2 * CELLS` one for each value, then `CELLS` for each power of two, as in a
/// [`Histogram`] of one digit.
fn cell(time_ns: u64) -> usize {
    let power = (time_ns | CELLS as u64).ilog2() - CELLS.ilog2();
    power as usize * CELLS + (time_ns >> power) as usize
}

/// The shortest time that is counted in `cell`, in nanoseconds.
fn shortest_ns(cell: usize) -> u64 {
    let power = (cell / CELLS).saturating_sub(1);
    ((cell - power * CELLS) as u64) << power
}

impl Default for LiveTimes {
    fn default() -> LiveTimes {
        let cells = (0..=cell(LONGEST.as_nanos() as u64)).map(|_| AtomicU64::new(0)).collect();
        LiveTimes { cells, sum_ns: AtomicU64::new(0) }
    }
}

impl LiveTimes {
    fn record(&self, time: Duration) {
        let time_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let cell = cell(time_ns).min(self.cells.len() - 1);
        self.cells[cell].fetch_add(1, Ordering::Relaxed);
        self.sum_ns.fetch_add(time_ns, Ordering::Relaxed);
    }

    fn sum_ns(&self) -> u64 {
        self.sum_ns.load(Ordering::Relaxed)
    }

    fn copy(&self, to: &mut WaitTimes) {
        to.times_ns.reset();
        for (cell, count) in self.cells.iter().enumerate() {
            let count = count.load(Ordering::Relaxed);
            if count > 0 {
                to.times_ns.saturating_record_n(shortest_ns(cell), count);
            }
        }
        to.sum_ns = self.sum_ns();
    }
}

impl LiveWaits {
    pub(super) fn record(&self, wait: Wait, time: Duration) {
        self.0[wait.index()].record(time);
    }

    pub(super) fn so_far(&self, wait: Wait) -> (u64, Duration) {
        let times = &self.0[wait.index()];
        let count = times.cells.iter().map(|count| count.load(Ordering::Relaxed)).sum();
        (count, Duration::from_nanos(times.sum_ns()))
    }

    pub(super) fn copy(&self, wait: Wait, to: &mut WaitTimes) {
        self.0[wait.index()].copy(to);
    }

    pub(super) fn snapshot(&self) -> [WaitTimes; Wait::COUNT] {
        Wait::ALL.map(|wait| {
            let mut times = WaitTimes::default();
            self.copy(wait, &mut times);
            times
        })
    }

    /// Memory in use, this struct included, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        let cells: usize = self.0.iter().map(|times| size_of_val(&*times.cells)).sum();
        size_of::<LiveWaits>() + cells
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live(waits: &[Duration]) -> LiveTimes {
        let live = LiveTimes::default();
        waits.iter().for_each(|&wait| live.record(wait));
        live
    }

    fn times(waits: &[Duration]) -> WaitTimes {
        let mut times = WaitTimes::default();
        live(waits).copy(&mut times);
        times
    }

    fn us(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    #[test]
    fn every_kind_stands_at_its_index() {
        for (index, wait) in Wait::ALL.into_iter().enumerate() {
            assert_eq!(wait.index(), index);
        }
    }

    #[test]
    fn cells_are_those_of_the_histogram() {
        let histogram = WaitTimes::default().times_ns;
        for time_ns in (0..70).chain((6..41).flat_map(|power| {
            let edge = 1 << power;
            [edge - 1, edge, edge + 1, edge + edge / 3]
        })) {
            assert_eq!(shortest_ns(cell(time_ns)), histogram.lowest_equivalent(time_ns));
        }
    }

    #[test]
    fn a_time_is_kept_to_a_sixteenth_and_the_sum_exactly() {
        for exact in [us(1), us(3), us(77), us(1234), us(999_999), us(60_000_000)] {
            let times = times(&[exact]);
            for shown in [times.p50(), times.p99(), times.max()] {
                assert!(shown >= exact && shown <= exact + exact / 16, "{exact:?} as {shown:?}");
            }
            assert_eq!(times.sum(), exact);
        }
    }

    #[test]
    fn quantiles_distinguish_the_usual_wait_from_the_rare_one() {
        let mut waits = vec![us(100); 98];
        waits.extend([us(50_000); 2]);
        let times = times(&waits);
        assert!(times.p50() < us(110));
        assert!(times.p99() > us(49_000));
        assert_eq!(times.count(), 100);
    }

    #[test]
    fn a_wait_of_a_day_counts_as_an_hour_or_so_but_for_the_sum() {
        let day = Duration::from_secs(24 * 3600);
        let times = times(&[day]);
        assert_eq!(times.count(), 1);
        assert!(times.max() >= LONGEST && times.max() < LONGEST * 2);
        assert_eq!(times.sum(), day);
        assert_eq!(times.buckets().last().unwrap().1, 0);
    }

    // [STAT-4]
    #[test]
    fn a_bucket_holds_what_was_no_longer_than_its_end() {
        let edges: Vec<Duration> = WaitTimes::default().buckets().map(|(end, _)| end).collect();
        let mut waits = vec![Duration::ZERO, Duration::from_secs(100)];
        for &edge in &edges {
            waits.extend([edge, edge + Duration::from_nanos(1), edge / 3]);
        }
        for (end, count) in times(&waits).buckets() {
            let within = waits.iter().filter(|&&wait| wait <= end).count() as u64;
            assert_eq!(count, within, "{end:?}");
        }
    }

    #[test]
    fn a_difference_is_what_was_recorded_between() {
        let (before, between) = ([us(5), us(900), us(20)], [us(5), us(40)]);
        let earlier = times(&before);
        let later = times(&[&before[..], &between].concat());
        assert_eq!(later.since(&earlier), times(&between));
        assert_eq!(later.since(&later), WaitTimes::default());
        assert_eq!(later.since(&WaitTimes::default()), later);
    }

    #[test]
    fn a_difference_to_something_later_is_empty() {
        assert_eq!(times(&[us(5)]).since(&times(&[us(5), us(7)])), WaitTimes::default());
    }
}
