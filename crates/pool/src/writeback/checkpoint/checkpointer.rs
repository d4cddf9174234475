//! The checkpointer: the thread that performs checkpoints, from the redo point to the last sync.
//!
//! 1. The redo point: the current position of the log. Every change logged before it must be in the files when the
//!    checkpoint ends; recovery then begins there.
//! 2. A scan of all frames. Pages that are dirty, being written, or latched exclusively are recorded: a holder of the
//!    latch may have logged a change before the redo point that it has not marked yet.
//! 3. The recorded pages are written, in the elevator's order and at the pacer's pace ([`super::writer`]).
//! 4. Every file changed since its last sync is synced ([`super::syncs`]).
//! 5. The log is notified ([`Wal::checkpointed`](crate::Wal::checkpointed)).
//!
//! Pages that become dirty after step 2 are left to the next checkpoint.
//!
//! Invariants:  [CKP-1] a change logged up to the redo point is on disk and synced before the log is notified
//!              [CKP-2] from the redo point to the end of the last write nothing is allocated
//! Failure:     if anything could not be written or synced the redo point stays where it was; the rest is written and
//!              synced anyway.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::elevator::Order;
use super::pacer::Plan;
use super::pacing::{Pacing, Reads};
use super::pages::SortBuffer;
use super::syncs::{SyncTimes, Syncs};
use super::tablespace_state::TablespaceState;
use super::writer::Writer;
use crate::core::Core;
use crate::core::checkpoint::CheckpointOptions;
use crate::core::checkpoint::{Ask, Call, RequestQueue};
use crate::error::Error;
use crate::observe::checkpoint_report::{CheckpointReport, Phase, TablespaceReport, Trigger};
use crate::observe::stats::{PoolEvent, Wait, WaitTimes};
use crate::store::file::FileCore;
use crate::tag::Lsn;
use crate::wal::Wal;

/// Write requests in progress in each tablespace, unless a checkpoint specifies a number. As many as a fast disk can
/// use; a slow one has them in its queue, so that it can sort them.
const DEPTH: usize = 32;

/// The maximum for a checkpoint's own setting.
const DEPTH_MAX: usize = 256;

/// The longest spread of a checkpoint begun by the growth of the log, where no interval is configured.
/// Source: PostgreSQL's checkpoint_timeout.
const INTERVAL: Duration = Duration::from_secs(300);

/// When checkpoints start automatically, and their pace.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Triggers {
    /// Time from the start of one to that of the next.
    pub(crate) every: Option<Duration>,
    /// Bytes of log from the redo point of one to that of the next.
    pub(crate) log_bytes: Option<u64>,
    /// The share of that time, or log, in which a paced one writes its pages.
    pub(crate) target: f64,
}

/// The thread, stopped when dropped.
#[derive(Debug)]
pub(crate) struct Checkpointer {
    checkpoints: Arc<RequestQueue>,
    thread: Option<JoinHandle<()>>,
}

impl Checkpointer {
    pub(crate) fn start(core: &Arc<Core>, triggers: Triggers) -> Result<Checkpointer, Error> {
        // Memory for a checkpoint is allocated now, not when it is needed.
        let buffer = SortBuffer::new(core.cache.frames.most(), core.spaces.len());
        let shared = Arc::clone(core);
        let run = move || Checkpoints::new(&shared, buffer, triggers).run();
        let thread = thread::Builder::new().name("forebay-checkpoint".to_owned()).spawn(run);
        let thread = thread.map_err(|error| Error::Setting {
            setting: "the checkpoint thread",
            value: "not started".to_owned(),
            expected: format!("the system refused it ({error}); raise the limit on threads"),
        })?;
        Ok(Checkpointer { checkpoints: Arc::clone(&core.checkpoints), thread: Some(thread) })
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.checkpoints.stop();
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the checkpoint thread panicked");
        }
    }
}

impl Drop for Checkpoints<'_> {
    fn drop(&mut self) {
        // Also after a panic of a log or a clock: callers get an error from now on ([DSK-1]).
        self.checkpoints.end_all();
    }
}

/// The checkpoints of a pool, executed one after the other.
struct Checkpoints<'c> {
    core: &'c Core,
    checkpoints: Arc<RequestQueue>,
    triggers: Triggers,
    buffer: SortBuffer,
    writer: Writer<'c>,
    order: Order,
    /// Start time of the last one, by the pool's clock; `None` while automatic checkpoints wait for the first requested
    /// one: until then the engine recovers.
    began: Option<Duration>,
    /// True once a checkpoint has succeeded.
    redo_is_known: bool,
    /// The newest log position from which a checkpoint started.
    newest: Lsn,
    /// The foreground's waits at the end of the last one.
    reads: Reads,
    read_times: WaitTimes,
    /// The same, to compute a difference.
    scratch: [WaitTimes; 2],
}

impl<'c> Checkpoints<'c> {
    fn new(core: &'c Core, buffer: SortBuffer, triggers: Triggers) -> Checkpoints<'c> {
        Checkpoints {
            core,
            checkpoints: Arc::clone(&core.checkpoints),
            triggers,
            buffer,
            writer: Writer::new(core, DEPTH_MAX),
            order: Order::new(core.spaces.len()),
            began: None,
            redo_is_known: false,
            newest: Lsn::NONE,
            reads: Reads::now(core),
            read_times: WaitTimes::default(),
            scratch: Default::default(),
        }
    }

    fn run(mut self) {
        if self.core.wal.is_none() {
            // Nothing has to be recovered, so the first interval starts now.
            self.began = Some(self.core.clock.now());
        }
        loop {
            let due = self.triggers.every.and_then(|every| self.began?.checked_add(every));
            let (ask, trigger) = match self.checkpoints.wait(due) {
                Call::Stop => return,
                Call::Asked(ask) => (Some(ask), None),
                Call::Due(trigger) => (None, Some(trigger)),
            };
            let position = self.position();
            self.began = Some(self.core.clock.now());
            self.expect_log(position);
            if trigger.is_some() && !self.is_worth_it(position) {
                self.checkpoints.skip();
            } else {
                self.one(ask, trigger);
            }
        }
    }

    /// The current position of the log. If it panics, the position at the start of the last checkpoint: the next
    /// checkpoint detects and reports the panic.
    fn position(&self) -> Lsn {
        let position = |wal: &Arc<dyn Wal>| {
            let asked = std::panic::catch_unwind(AssertUnwindSafe(|| wal.position()));
            asked.unwrap_or_else(|_| self.checkpoints.redo())
        };
        self.core.wal.as_ref().map_or(Lsn::NONE, position)
    }

    /// Sets the log position at which the next checkpoint is due, based on `position`, where this one begins: also if
    /// this one fails, as the next may fail again.
    fn expect_log(&self, position: Lsn) {
        if let (Some(bytes), true) = (self.triggers.log_bytes, self.core.wal.is_some()) {
            // A log that reports only its durable position may be behind the LSNs that pages were marked with.
            let from = position.max(self.checkpoints.log_seen());
            self.checkpoints.set_log_due(Lsn(from.0.saturating_add(bytes)));
        }
    }

    /// A checkpoint is useless if nothing has happened since the last one.
    fn is_worth_it(&self, position: Lsn) -> bool {
        let unsynced = |file: &FileCore| !file.is_read_only() && file.unsynced().is_some();
        // Also if it went back: that must be reported.
        position != self.checkpoints.redo()
            || self.core.cache.frames.iter().any(|(_, frame)| frame.word().is_unsaved())
            || self.core.files.next_after(None, unsynced).is_some()
    }

    /// Performs one checkpoint, and answers its requesters.
    fn one(&mut self, ask: Option<Ask>, trigger: Option<Trigger>) {
        let options = match &ask {
            Some(ask) => ask.options,
            None => CheckpointOptions::spread(self.triggers.every.unwrap_or(INTERVAL)),
        };
        let requested = ask.as_ref().map(|ask| ask.trigger);
        let trigger = trigger.or(requested).unwrap_or(Trigger::Request);
        // A user's log may panic. That must not end all checkpoints.
        let execute = AssertUnwindSafe(|| self.execute(&options, trigger));
        let executed = std::panic::catch_unwind(execute);
        let answer = executed.unwrap_or_else(|_| {
            tracing::error!("a panic in a checkpoint");
            self.writer = Writer::new(self.core, DEPTH_MAX);
            Err(Error::CheckpointPanicked)
        });
        match &answer {
            Ok(report) => tracing::info!("{report}"),
            Err(error) => tracing::error!(%error, "a checkpoint failed"),
        }
        self.checkpoints.end(ask, answer);
    }

    fn execute(
        &mut self,
        options: &CheckpointOptions,
        trigger: Trigger,
    ) -> Result<CheckpointReport, Error> {
        let core = self.core;
        let spaces = || core.spaces.iter();
        let mut report = CheckpointReport::new(trigger, Vec::with_capacity(core.spaces.len()));
        self.writer.tablespaces.clear();
        self.writer
            .tablespaces
            .extend(spaces().map(|space| {
                TablespaceState::new(TablespaceReport::new(&space.name), space.cache)
            }));
        let usual = self.reads.advance(Reads::now(core));
        report.read_p99_before = self.reads_p99();

        // From here on nothing is allocated ([CKP-2]).
        let started = core.clock.now();
        self.checkpoints.begin(started);
        let redo = core.wal.as_ref().map_or(Lsn::NONE, |wal| wal.position());
        if redo < self.newest {
            return Err(Error::LogWentBack { from: self.newest, to: redo });
        }
        if redo == Lsn(u64::MAX) {
            return Err(Error::Setting {
                setting: "the position of the log",
                value: u64::MAX.to_string(),
                expected: "it becomes the redo point, after which recovery would find nothing; return the newest record"
                    .to_owned(),
            });
        }
        self.newest = redo;
        core.redo.begin();
        self.scan();
        self.checkpoints.found(self.buffer.len() as u64);
        self.checkpoints.set_phase(Phase::Writing);
        let log_before = self.checkpoints.redo();
        let plan = options.over.map(|over| Plan {
            pages: self.buffer.len() as u64,
            over: self.share_of(over),
            log_budget: self.log_budget(),
            started,
        });
        let depth = options.depth.unwrap_or(DEPTH).min(DEPTH_MAX);
        self.writer.begin(started, depth, options.combine);
        let mut pacing = Pacing::new(core, &self.checkpoints, plan, usual, redo);
        self.order.elevator = options.elevator;
        self.writer.write(&mut self.buffer, &mut self.order, &mut pacing, &self.checkpoints)?;
        report.write = core.clock.now().saturating_sub(started);
        (report.lag, report.yielded) = (pacing.lag(), pacing.yielded());

        self.checkpoints.set_phase(Phase::Syncing);
        let due =
            options.over.filter(|_| pacing.is_paced()).map(|over| started.saturating_add(over));
        let times = self.sync(started, due);
        let ended = core.clock.now();
        if let Some(due) = due {
            report.lag = report.lag.max(ended.saturating_sub(due));
        }

        report.total = ended.saturating_sub(started);
        report.sync = report.total.saturating_sub(report.write);
        report.redo = redo;
        // Before the first checkpoint the start of recovery is unknown.
        let known = self.redo_is_known;
        report.log_bytes = if known { redo.0.saturating_sub(log_before.0) } else { 0 };
        report.elevator = options.elevator.name();
        report.interval = options.over;
        report.files_synced = u64::from(times.files);
        report.sync_longest = times.longest;
        report.sync_average = times.sum.checked_div(times.files).unwrap_or_default();
        report.pages_by_others = self.writer.pages_by_others;
        report.pages_invalidated = self.writer.pages_invalidated;
        for tablespace in &self.writer.tablespaces {
            report.pages += tablespace.report.pages;
            report.requests += tablespace.report.requests;
            report.bytes += tablespace.report.bytes;
        }
        self.core.counters.add_pool(PoolEvent::CheckpointPages, report.pages);
        let mut failed = Vec::new();
        for tablespace in self.writer.tablespaces.drain(..) {
            failed
                .extend(tablespace.error.map(|error| (Arc::clone(&tablespace.report.name), error)));
            report.tablespaces.push(tablespace.report);
        }
        report.read_p99_during = self.reads_p99();
        self.reads = Reads::now(core);
        let settled = self.settle(report, failed);
        self.redo_is_known |= settled.is_ok();
        settled
    }

    /// Records every page that must be written.
    fn scan(&mut self) {
        self.buffer.clear();
        for (frame, _) in self.core.cache.frames.iter() {
            if let Some(tag) = self.core.cache.frames.mark_due(frame) {
                self.buffer.push(tag);
            }
        }
    }

    /// The part of an interval in which pages must be written.
    fn share_of(&self, over: Duration) -> Duration {
        Duration::try_from_secs_f64(over.as_secs_f64() * self.triggers.target).unwrap_or(over)
    }

    /// The amount of log until all pages must be written.
    fn log_budget(&self) -> Option<u64> {
        self.triggers.log_bytes.map(|bytes| (bytes as f64 * self.triggers.target) as u64)
    }

    fn sync(&mut self, started: Duration, due: Option<Duration>) -> SyncTimes {
        let mut syncs = Syncs {
            core: self.core,
            in_flight: &mut self.writer.in_flight,
            tablespaces: &mut self.writer.tablespaces,
            started,
            due,
            times: SyncTimes::default(),
        };
        syncs.run(&self.checkpoints);
        syncs.times
    }

    /// Moves the redo point, if everything succeeded.
    fn settle(
        &self,
        report: CheckpointReport,
        failed: Vec<(Arc<str>, Error)>,
    ) -> Result<CheckpointReport, Error> {
        if !failed.is_empty() {
            return Err(Error::Checkpoint { failed, report: Arc::new(report) });
        }
        if let Some(wal) = &self.core.wal {
            let kept = wal.checkpointed(report.redo);
            kept.map_err(|source| Error::Log { lsn: report.redo, source: source.into() })?;
        }
        self.core.counters.count_pool(PoolEvent::Checkpoints);
        self.checkpoints.set_redo(report.redo);
        Ok(report)
    }

    /// The 99th percentile of read times since the last call.
    fn reads_p99(&mut self) -> Option<Duration> {
        let [now, between] = &mut self.scratch;
        self.core.counters.copy_waits(Wait::Read, now);
        between.set_difference(now, &self.read_times);
        std::mem::swap(&mut self.read_times, now);
        (between.count() > 0).then(|| between.p99())
    }
}
