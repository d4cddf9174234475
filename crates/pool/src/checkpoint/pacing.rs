//! The pacer at work: what it wants to know, gathered; what it says, obeyed.

use std::time::Duration;

use super::desk::Desk;
use super::pacer::{Latency, Observed, Pacer, Plan, Verdict};
use crate::core::Core;
use crate::stats::Wait;
use crate::tag::Lsn;

/// What a writer is to do.
pub(super) enum Step {
    /// Send at most so many pages.
    Go(usize),
    /// Send nothing, and rest when nothing is under way any more.
    RestWhenEmpty,
    /// There was a rest. Look again.
    Rested,
}

/// The pace of one checkpoint.
pub(super) struct Pacing<'a> {
    core: &'a Core,
    desk: &'a Desk,
    /// `None`: as fast as the disks take it.
    pacer: Option<Pacer>,
    redo: Lsn,
    reads: Reads,
    pages_under_way: u32,
}

/// Reads of the foreground, as counted so far.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Reads {
    pub(super) count: u64,
    pub(super) sum: Duration,
}

impl Reads {
    pub(super) fn now(core: &Core) -> Reads {
        let (count, sum) = core.counters.waited_so_far(Wait::Read);
        Reads { count, sum }
    }

    /// What those since `earlier` took; `None` if there were none.
    pub(super) fn since(self, earlier: Reads) -> Option<Latency> {
        let reads = self.count.saturating_sub(earlier.count);
        let sum = self.sum.saturating_sub(earlier.sum);
        let mean = u32::try_from(reads).ok().and_then(|reads| sum.checked_div(reads))?;
        Some(Latency { reads, mean })
    }
}

impl<'a> Pacing<'a> {
    /// `plan`: what to keep to; `usual`: what the foreground's reads took before.
    pub(super) fn new(
        core: &'a Core,
        desk: &'a Desk,
        plan: Option<Plan>,
        usual: Option<Latency>,
        redo: Lsn,
    ) -> Pacing<'a> {
        let mut pacer = plan.map(Pacer::new);
        if let (Some(pacer), Some(usual)) = (&mut pacer, usual) {
            pacer.baseline(usual.mean);
        }
        Pacing { core, desk, pacer, redo, reads: Reads::now(core), pages_under_way: 0 }
    }

    /// So many pages are under way.
    pub(super) fn under_way(&mut self, pages: usize) {
        self.pages_under_way = u32::try_from(pages).unwrap_or(u32::MAX);
    }

    /// What to do now; rests if that is to rest and nothing is under way.
    pub(super) fn step(&mut self) -> Step {
        let Some(pacer) = &mut self.pacer else { return Step::Go(usize::MAX) };
        let now = self.core.clock.now();
        if self.desk.is_hurried() {
            pacer.hurry(now);
        }
        let reads = Reads::now(self.core);
        let foreground = reads.since(self.reads);
        self.reads = reads;
        let position = self.core.wal.as_ref().map_or(Lsn::NONE, |wal| wal.position());
        let verdict = pacer.step(&Observed {
            now,
            pages_done: self.desk.pages_done(),
            log_bytes: position.0.saturating_sub(self.redo.0),
            foreground,
            in_flight: self.pages_under_way,
        });
        match verdict {
            Verdict::Go { pages_max } => Step::Go(pages_max as usize),
            Verdict::Rest { .. } if self.pages_under_way > 0 => Step::RestWhenEmpty,
            Verdict::Rest { until } => {
                self.desk.rest(until);
                Step::Rested
            }
        }
    }

    /// By how much the plan was missed so far.
    pub(super) fn slip(&self) -> Duration {
        self.pacer.as_ref().map_or(Duration::ZERO, Pacer::slip)
    }

    /// By how much writes were put off for the foreground's sake.
    pub(super) fn yielded(&self) -> Duration {
        self.pacer.as_ref().map_or(Duration::ZERO, Pacer::yielded)
    }

    pub(super) fn is_paced(&self) -> bool {
        self.pacer.is_some() && !self.desk.is_hurried()
    }
}
