//! Costs: what a request and a byte take on this device when it is kept busy.
//!
//! Whether to read through a gap is a question of cost: another request, or the bytes between. The profile gives both
//! costs; what streams observe while they wait for the device corrects them. Worked example: 7.4 us for a request and
//! 807 us for a MiB make a block of 8 KiB cost 6.3 us, so that a gap of one block is cheaper than a request and a gap
//! of two is not.
//!
//! The model is busy = request x n + byte x bytes. Each observation is divided by the time the given costs predict for
//! it, so that all count alike; then it is a straight line over the share that requests have in the prediction, from
//! the factor of the byte cost (share 0) to the factor of the request cost (share 1). The line is fitted by least
//! squares with forgetting. A small constant weight holds its slope towards 0: requests that are all alike show the
//! height of the line at one share only, and then both costs move by the same factor.
//!
//! Invariants:  [CST-1] both costs are within 1/32 to 32 times the given ones: beyond, no decision changes any more, as
//!              no gap is worth reading through or every gap up to 32 blocks is
//!              [CST-2] an observation counts as at most twice, and at least half, what was expected
//!              [CST-3] observations that are all alike leave the ratio of the costs as it was given
//! Concurrency: one owner.
//! Failure:     none; an impossible observation (no requests, no bytes, no time) is ignored.
//! Source:      textbook ridge regression with exponential forgetting; scaling and limits are ours.

use std::time::Duration;

/// The longest gap that is ever worth reading through, in blocks, and the bound of [CST-1].
const GAP_BLOCKS_MAX: u32 = 32;
/// Maximum factor by which a cost may differ from the given one.
const FACTOR_MAX: f64 = GAP_BLOCKS_MAX as f64;
/// Maximum factor by which an observation may differ from what was expected.
const SURPRISE_MAX: f64 = 2.0;
/// The weight of an observation after one more.
const KEEP: f64 = 63.0 / 64.0;
/// How many observations the given costs are worth at first.
const PRIOR_WEIGHT: f64 = 16.0;
/// How strongly the slope is held towards 0, in squared shares.
const SLOPE_WEIGHT: f64 = 1.0 / 16.0;
/// Given costs are limited to at least 1 ns, and to at most this.
const COST_MAX: Duration = Duration::from_secs(10);

const MEBIBYTE: f64 = (1 << 20) as f64;

/// Costs of a device that is kept busy.
///
/// The default is an SSD behind virtio, as in cloud machines: 73,000 random reads of 8 KiB a second with 64 requests in
/// flight, and 1.3 GB a second sequentially.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceCosts {
    /// Time for one more request, without its bytes.
    pub request: Duration,
    /// Time for one more MiB in the same request.
    pub mebibyte: Duration,
    /// Number of requests in flight beyond which the device gets no faster.
    pub useful_depth: u32,
}

impl Default for DeviceCosts {
    fn default() -> DeviceCosts {
        // 1 MiB / 1.3 GB/s = 807 us; 1 s / 73,000 = 13.7 us, less 6.3 us for the 8 KiB.
        DeviceCosts {
            request: Duration::from_nanos(7_400),
            mebibyte: Duration::from_micros(807),
            useful_depth: 64,
        }
    }
}

/// The current costs: the given ones, corrected by observations.
#[derive(Debug, Clone)]
pub struct Costs {
    given: DeviceCosts,
    request_factor: f64,
    byte_factor: f64,
    line: Line,
}

/// Sums of observations with forgetting (x: share of requests, y: time over predicted time).
#[derive(Debug, Clone, Default)]
struct Line {
    prior: f64,
    n: f64,
    x: f64,
    y: f64,
    xx: f64,
    xy: f64,
}

impl Costs {
    /// Starts from the `given` costs.
    pub fn new(given: DeviceCosts) -> Costs {
        let sane = |cost: Duration| cost.clamp(Duration::from_nanos(1), COST_MAX);
        let (request, mebibyte) = (sane(given.request), sane(given.mebibyte));
        let line = Line { prior: PRIOR_WEIGHT, ..Line::default() };
        let given = DeviceCosts { request, mebibyte, ..given };
        Costs { given, request_factor: 1.0, byte_factor: 1.0, line }
    }

    /// Records that the busy device took `busy` for `requests` requests of `bytes` bytes in total.
    pub fn observe(&mut self, requests: u32, bytes: u64, busy: Duration) {
        if requests == 0 || bytes == 0 || busy.is_zero() {
            return;
        }
        let for_requests = f64::from(requests) * self.given.request.as_secs_f64();
        let for_bytes = bytes as f64 / MEBIBYTE * self.given.mebibyte.as_secs_f64();
        let predicted = for_requests + for_bytes;
        let share = for_requests / predicted;

        let expected = share * self.request_factor + (1.0 - share) * self.byte_factor;
        let seen = busy.as_secs_f64() / predicted;
        let seen = seen.clamp(expected / SURPRISE_MAX, expected * SURPRISE_MAX);
        self.line.add(share, seen);
        (self.request_factor, self.byte_factor) = self.line.ends();
    }

    /// The current costs.
    pub fn now(&self) -> DeviceCosts {
        DeviceCosts {
            request: self.given.request.mul_f64(self.request_factor),
            mebibyte: self.given.mebibyte.mul_f64(self.byte_factor),
            useful_depth: self.given.useful_depth,
        }
    }

    /// The longest gap, in blocks of `page_bytes`, whose bytes cost less than another request.
    pub fn gap_blocks(&self, page_bytes: u32) -> u32 {
        let request = self.given.request.as_secs_f64() * self.request_factor;
        let mebibyte = self.given.mebibyte.as_secs_f64() * self.byte_factor;
        let block = f64::from(page_bytes) / MEBIBYTE * mebibyte;
        // The largest whole number below the quotient; a cast keeps it within u32.
        let gap = ((request / block).ceil() - 1.0) as u32;
        gap.min(GAP_BLOCKS_MAX)
    }
}

impl Line {
    fn add(&mut self, x: f64, y: f64) {
        for sum in [&mut self.n, &mut self.x, &mut self.y, &mut self.xx, &mut self.xy] {
            *sum *= KEEP;
        }
        self.prior *= KEEP;
        self.n += 1.0;
        self.x += x;
        self.y += y;
        self.xx += x * x;
        self.xy += x * y;
    }

    /// The line at 1 and at 0: the factors of the request cost and of the byte cost.
    fn ends(&self) -> (f64, f64) {
        let x = self.x / self.n;
        // The prior is 1 at every x, and so does not tilt the line.
        let y = (self.y + self.prior) / (self.n + self.prior);
        // Rounding may give a value slightly below 0 where all observations are alike.
        let spread = (self.xx - self.x * x).max(0.0);
        let slope = (self.xy - self.x * self.y / self.n) / (spread + SLOPE_WEIGHT);

        let sane = |factor: f64| factor.clamp(1.0 / FACTOR_MAX, FACTOR_MAX);
        let (request, byte) = (y + slope * (1.0 - x), y - slope * x);
        // Where one end is at its limit, the other one explains the mean as far as it can.
        let (bound_request, bound_byte) = (sane(request), sane(byte));
        if bound_byte != byte && x > 0.0 {
            (sane((y - bound_byte * (1.0 - x)) / x), bound_byte)
        } else if bound_request != request && x < 1.0 {
            (bound_request, sane((y - bound_request * x) / (1.0 - x)))
        } else {
            (bound_request, bound_byte)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A disk that follows the model: microseconds for a request and for a MiB.
    #[derive(Clone, Copy)]
    struct Disk(f64, f64);

    impl Disk {
        fn busy(self, requests: u32, bytes: u64) -> Duration {
            let micros = f64::from(requests) * self.0 + bytes as f64 / MEBIBYTE * self.1;
            Duration::from_secs_f64(micros / 1e6)
        }
    }

    /// The costs after `rounds` windows of requests of 1 to 16 blocks of 8 KiB, with 10 % of noise.
    fn learned(disk: Disk, rounds: u32) -> Costs {
        let mut costs = Costs::new(DeviceCosts::default());
        let mut random = 7_u32;
        for round in 0..rounds {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let bytes = 8 * 8192 * u64::from([1_u32, 4, 16, 2][round as usize % 4]);
            let noise = 0.9 + 0.2 * f64::from(random >> 8) / f64::from(1 << 24);
            costs.observe(8, bytes, disk.busy(8, bytes).mul_f64(noise));
        }
        costs
    }

    fn near(found: Duration, micros: f64, percent: f64) -> bool {
        (found.as_secs_f64() * 1e6 / micros - 1.0).abs() <= percent / 100.0
    }

    #[test]
    fn the_default_is_the_disk_that_it_names() {
        let costs = DeviceCosts::default();
        let random = costs.request + costs.mebibyte / 128;
        assert!(near(random, 1e6 / 73_000.0, 1.0), "{random:?}");
        assert!(near(costs.mebibyte, MEBIBYTE / 1300.0, 1.0));
    }

    #[test]
    fn a_gap_pays_while_it_costs_less_than_a_request() {
        let costs = Costs::new(DeviceCosts::default());
        assert_eq!([4096, 8192, 65_536].map(|page| costs.gap_blocks(page)), [2, 1, 0]);
        let exact = DeviceCosts {
            request: Duration::from_micros(20),
            mebibyte: Duration::from_micros(1280),
            useful_depth: 1,
        };
        assert_eq!(Costs::new(exact).gap_blocks(8192), 1, "two blocks cost as much as a request");
        let seeking = DeviceCosts { request: Duration::from_millis(8), ..exact };
        assert_eq!(Costs::new(seeking).gap_blocks(8192), GAP_BLOCKS_MAX);
    }

    #[test]
    fn mixed_sizes_teach_both_costs_of_another_disk() {
        for disk in [Disk(7.4, 807.0), Disk(80.0, 400.0), Disk(20.0, 3000.0), Disk(100.0, 5000.0)] {
            let costs = learned(disk, 600).now();
            assert!(near(costs.request, disk.0, 20.0), "{} us, found {costs:?}", disk.0);
            assert!(near(costs.mebibyte, disk.1, 20.0), "{} us, found {costs:?}", disk.1);
        }
    }

    #[test]
    fn one_outlier_moves_the_costs_little() {
        let disk = Disk(30.0, 807.0);
        let mut costs = learned(disk, 600);
        let before = costs.now();
        costs.observe(8, 8 * 8192, disk.busy(8, 8 * 8192) * 10);
        let after = costs.now();
        assert!(near(after.request, before.request.as_secs_f64() * 1e6, 8.0), "[CST-2] {after:?}");
        assert!(near(after.mebibyte, before.mebibyte.as_secs_f64() * 1e6, 8.0), "[CST-2]");

        let mut fresh = Costs::new(DeviceCosts::default());
        fresh.observe(1, 8192, Duration::from_secs(60));
        assert!(near(fresh.now().request, 7.4, 10.0), "[CST-2] {fresh:?}");
    }

    #[test]
    fn requests_all_alike_scale_both_costs() {
        for bytes in [8192, 1 << 20] {
            let mut costs = Costs::new(DeviceCosts::default());
            let disk = Disk(3.0 * 7.4, 3.0 * 807.0);
            for _ in 0..600 {
                costs.observe(1, bytes, disk.busy(1, bytes));
                let ratio = costs.request_factor / costs.byte_factor;
                assert!((ratio - 1.0).abs() < 1e-6, "[CST-3] {costs:?}");
            }
            assert!(near(costs.now().request, 22.2, 2.0), "{costs:?}");
            assert_eq!(costs.gap_blocks(8192), 1, "[CST-3]");
        }
    }

    #[test]
    fn what_cannot_be_is_not_counted() {
        let mut costs = Costs::new(DeviceCosts::default());
        costs.observe(0, 8192, Duration::from_secs(1));
        costs.observe(1, 0, Duration::from_secs(1));
        costs.observe(1, 8192, Duration::ZERO);
        assert_eq!(costs.now(), DeviceCosts::default());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 16 } else { 500 }))]

        #[test]
        fn costs_stay_within_their_bounds(
            request in any::<u64>(),
            mebibyte in any::<u64>(),
            seen in proptest::collection::vec((any::<u32>(), any::<u64>(), any::<u64>()), 0..80),
        ) {
            let (request, mebibyte) = (Duration::from_nanos(request), Duration::from_nanos(mebibyte));
            let mut costs = Costs::new(DeviceCosts { request, mebibyte, useful_depth: 1 });
            for (requests, bytes, busy) in seen {
                // Shifts make small and large numbers equally likely.
                let (requests, bytes) = (requests >> (busy % 32), bytes >> (busy % 61));
                costs.observe(requests, bytes, Duration::from_nanos(busy >> (busy % 59)));
                for factor in [costs.request_factor, costs.byte_factor] {
                    let within = (1.0 / FACTOR_MAX..=FACTOR_MAX).contains(&factor);
                    prop_assert!(within, "[CST-1] {:?}", costs);
                }
                prop_assert!(costs.gap_blocks(8192) <= GAP_BLOCKS_MAX);
                let _ = costs.now(); // panics if a cost is not a valid duration
            }
        }
    }
}
