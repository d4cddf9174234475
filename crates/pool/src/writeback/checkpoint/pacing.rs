//! Connects the pacer to the pool: gathers its input, and applies its decisions.

use std::time::Duration;

use super::pacer::{Latency, Observed, Pacer, Plan, Verdict, Waits};
use crate::core::Core;
use crate::core::checkpoint::RequestQueue;
use crate::observe::stats::{Counters, Wait};
use crate::tag::Lsn;

/// A writer's next step.
pub(super) enum Step {
    /// Send at most this many pages.
    Go(usize),
    /// Send nothing, and rest when no request is in progress any more.
    RestWhenEmpty,
    /// There was a rest. Check again.
    Rested,
}

/// The pace of one checkpoint.
pub(super) struct Pacing<'a> {
    core: &'a Core,
    checkpoints: &'a RequestQueue,
    /// `None`: as fast as the disks allow.
    pacer: Option<Pacer>,
    redo: Lsn,
    reads: Reads,
    pages_under_way: u32,
}

/// The foreground's waits, as counted so far.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Reads {
    own: Waited,
    ahead: Waited,
}

#[derive(Debug, Clone, Copy, Default)]
struct Waited {
    /// Reads, or pages.
    count: u64,
    sum: Duration,
}

impl Reads {
    pub(super) fn now(core: &Core) -> Reads {
        Reads::counted(&core.counters)
    }

    fn counted(counters: &Counters) -> Reads {
        let (count, sum) = counters.waited_so_far(Wait::Read);
        let (_, sum_ahead) = counters.waited_so_far(Wait::InFlightRead);
        let ahead = Waited { count: counters.pages_ahead(), sum: sum_ahead };
        Reads { own: Waited { count, sum }, ahead }
    }

    /// Returns the waits from the moment of `self` up to `now`, and advances `self` to `now`. A wait for which no page
    /// was counted yet is reported together with the next page.
    pub(super) fn advance(&mut self, now: Reads) -> Waits {
        Waits { own: self.own.advance(now.own), ahead: self.ahead.advance(now.ahead) }
    }
}

impl Waited {
    fn advance(&mut self, now: Waited) -> Option<Latency> {
        let reads = now.count.saturating_sub(self.count);
        let sum = now.sum.saturating_sub(self.sum);
        let mean_ns = sum.as_nanos().checked_div(reads.into())?;
        *self = now;
        Some(Latency { reads, mean: Duration::from_nanos(mean_ns as u64) })
    }
}

impl<'a> Pacing<'a> {
    /// `plan`: the plan to follow; `usual`: the foreground's waits before.
    pub(super) fn new(
        core: &'a Core,
        checkpoints: &'a RequestQueue,
        plan: Option<Plan>,
        usual: Waits,
        redo: Lsn,
    ) -> Pacing<'a> {
        let mut pacer = plan.map(Pacer::new);
        if let Some(pacer) = &mut pacer {
            pacer.baseline(usual);
        }
        Pacing { core, checkpoints, pacer, redo, reads: Reads::now(core), pages_under_way: 0 }
    }

    /// Records that this many pages are in progress.
    pub(super) fn under_way(&mut self, pages: usize) {
        self.pages_under_way = u32::try_from(pages).unwrap_or(u32::MAX);
    }

    /// The next step; rests if that is to rest and no request is in progress.
    pub(super) fn step(&mut self) -> Step {
        let Some(pacer) = &mut self.pacer else { return Step::Go(usize::MAX) };
        let now = self.core.clock.now();
        if self.checkpoints.is_hurried() {
            pacer.hurry(now);
        }
        let foreground = self.reads.advance(Reads::now(self.core));
        let position = self.core.wal.as_ref().map_or(Lsn::NONE, |wal| wal.position());
        let verdict = pacer.step(&Observed {
            now,
            pages_done: self.checkpoints.pages_done(),
            log_bytes: position.0.saturating_sub(self.redo.0),
            foreground,
            in_flight: self.pages_under_way,
        });
        match verdict {
            Verdict::Go { pages_max } => Step::Go(pages_max as usize),
            Verdict::Rest { .. } if self.pages_under_way > 0 => Step::RestWhenEmpty,
            Verdict::Rest { until } => {
                self.checkpoints.rest(until);
                Step::Rested
            }
        }
    }

    /// The largest delay behind the plan so far.
    pub(super) fn lag(&self) -> Duration {
        self.pacer.as_ref().map_or(Duration::ZERO, Pacer::lag)
    }

    /// The largest deferral of writes for the foreground's sake.
    pub(super) fn yielded(&self) -> Duration {
        self.pacer.as_ref().map_or(Duration::ZERO, Pacer::yielded)
    }

    pub(super) fn is_paced(&self) -> bool {
        self.pacer.is_some() && !self.checkpoints.is_hurried()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::stats::Event;
    use crate::strategy_kind::StrategyKind;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn parts(latency: Option<Latency>) -> Option<(u64, Duration)> {
        latency.map(|Latency { reads, mean }| (reads, mean))
    }

    #[test]
    fn waits_for_pages_read_ahead_are_counted_by_page_and_separately_from_reads() {
        let counters = Counters::new();
        let mut reads = Reads::counted(&counters);
        counters.waited(Wait::Read, ms(4));
        counters.waited(Wait::Read, ms(6));
        counters.add(StrategyKind::BulkRead, Event::Prefetch, 8);
        counters.count(StrategyKind::BulkRead, Event::PrefetchJoined);
        counters.count(StrategyKind::Normal, Event::HitInFlight);
        counters.waited(Wait::InFlightRead, ms(30));
        counters.waited(Wait::InFlightRead, ms(20));
        let waits = reads.advance(Reads::counted(&counters));
        assert_eq!((parts(waits.own), parts(waits.ahead)), (Some((2, ms(5))), Some((10, ms(5)))));
        // A long wait for the last of them, and then the next.
        counters.waited(Wait::InFlightRead, ms(12));
        let waits = reads.advance(Reads::counted(&counters));
        assert_eq!((parts(waits.own), parts(waits.ahead)), (None, None));
        counters.add(StrategyKind::BulkRead, Event::Prefetch, 2);
        let waits = reads.advance(Reads::counted(&counters));
        assert_eq!(parts(waits.ahead), Some((2, ms(6))));
    }
}
