//! The queue of checkpoint requests: where checkpoints are requested, monitored and waited for.
//!
//! One checkpoint runs at a time. A request during a checkpoint is for the next one: its redo point must be later than
//! the request. All requests made before that one begins share it, and the most urgent of them determines its speed; a
//! request for an immediate checkpoint also speeds up the one in progress, because that runs first.
//!
//! Invariants:  [DSK-1] every request is answered: with a checkpoint that began after the request, or with an error
//! Concurrency: any thread; the lock is never held across I/O.
//! Source:      PostgreSQL's RequestCheckpoint for which requests share a checkpoint.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use forebay_io::Owner;

use crate::clock::Clock;
use crate::core::checkpoint::CheckpointOptions;
use crate::error::Error;
use crate::observe::checkpoint_report::{CheckpointReport, Phase, Progress, Trigger};
use crate::tag::Lsn;

type Answer = Result<CheckpointReport, Error>;

/// A requested checkpoint.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) options: CheckpointOptions,
    pub(crate) trigger: Trigger,
    outcome: Arc<Outcome>,
}

/// Its eventual result.
#[derive(Debug, Default)]
struct Outcome {
    answer: Mutex<Option<Answer>>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    asked: Option<Ask>,
    running: Option<Arc<Outcome>>,
    last: Option<Answer>,
    /// The log has grown by the configured amount since the last checkpoint.
    log_is_due: bool,
    stopped: bool,
}

/// The shared state of a pool's checkpoints.
#[derive(Debug)]
pub(crate) struct RequestQueue {
    state: Mutex<State>,
    changed: Condvar,
    hurried: AtomicBool,
    /// A checkpoint is due once the log reaches this position.
    log_due: AtomicU64,
    log_seen: AtomicU64,
    /// Where recovery begins, as far as this pool knows.
    redo: AtomicU64,
    phase: AtomicU8,
    pages: AtomicU64,
    pages_done: AtomicU64,
    files_synced: AtomicU64,
    /// By the pool's clock, in nanoseconds.
    started: AtomicU64,
    clock: Arc<dyn Clock>,
    owner: Owner,
}

/// The reason why the checkpoint thread was woken.
pub(crate) enum Call {
    Asked(Ask),
    /// An automatic trigger.
    Due(Trigger),
    Stop,
}

impl RequestQueue {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> RequestQueue {
        RequestQueue {
            state: Mutex::default(),
            changed: Condvar::new(),
            hurried: AtomicBool::new(false),
            log_due: AtomicU64::new(u64::MAX),
            log_seen: AtomicU64::new(0),
            redo: AtomicU64::new(0),
            phase: AtomicU8::new(0),
            pages: AtomicU64::new(0),
            pages_done: AtomicU64::new(0),
            files_synced: AtomicU64::new(0),
            started: AtomicU64::new(0),
            clock,
            owner: Owner::this(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change leaves the state consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests a checkpoint; returns a handle to wait for it.
    pub(crate) fn ask(
        self: &Arc<Self>,
        options: CheckpointOptions,
        trigger: Trigger,
    ) -> Result<Checkpoint, Error> {
        let mut state = self.state();
        if state.stopped {
            return Err(Error::Closed);
        }
        let now = options.over.is_none();
        let outcome = match &mut state.asked {
            Some(ask) => {
                ask.options.over = match (ask.options.over, options.over) {
                    (Some(a), Some(b)) => Some(a.min(b)),
                    _ => None,
                };
                Arc::clone(&ask.outcome)
            }
            None => {
                let outcome = Arc::default();
                state.asked = Some(Ask { options, trigger, outcome: Arc::clone(&outcome) });
                outcome
            }
        };
        if now && state.running.is_some() {
            self.hurried.store(true, Ordering::SeqCst);
        }
        drop(state);
        self.changed.notify_all();
        Ok(Checkpoint { checkpoints: Arc::clone(self), outcome })
    }

    /// The log has a record at `lsn`.
    #[inline]
    pub(crate) fn log_reached(&self, lsn: Lsn) {
        if lsn.0 >= self.log_due.load(Ordering::Relaxed) {
            self.log_is_due(lsn);
        }
    }

    #[cold]
    fn log_is_due(&self, lsn: Lsn) {
        self.log_due.store(u64::MAX, Ordering::Relaxed);
        self.log_seen.fetch_max(lsn.0, Ordering::Relaxed);
        self.state().log_is_due = true;
        self.changed.notify_all();
    }

    /// The newest record that made a checkpoint due.
    pub(crate) fn log_seen(&self) -> Lsn {
        Lsn(self.log_seen.load(Ordering::Relaxed))
    }

    /// A checkpoint is due once the log reaches this position, and not before.
    pub(crate) fn set_log_due(&self, lsn: Lsn) {
        self.state().log_is_due = false;
        self.log_due.store(lsn.0, Ordering::Relaxed);
    }

    /// Sleeps until there is work; at most until `due`, by the pool's clock, when an interval ends.
    pub(crate) fn wait(&self, due: Option<Duration>) -> Call {
        let mut state = self.state();
        loop {
            if state.stopped {
                return Call::Stop;
            }
            if let Some(ask) = state.asked.take() {
                state.log_is_due = false;
                state.running = Some(Arc::clone(&ask.outcome));
                self.hurried.store(false, Ordering::SeqCst);
                return Call::Asked(ask);
            }
            let rest = due.map(|due| due.saturating_sub(self.clock.now()));
            let by_log = std::mem::take(&mut state.log_is_due);
            if by_log || rest == Some(Duration::ZERO) {
                state.running = Some(Arc::default());
                self.hurried.store(false, Ordering::SeqCst);
                return Call::Due(if by_log { Trigger::Log } else { Trigger::Time });
            }
            state = match rest {
                Some(rest) => {
                    let woken = self.changed.wait_timeout(state, rest);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Rests until `until`, by the pool's clock, unless it is hurried or stopped.
    pub(crate) fn rest(&self, until: Duration) {
        let mut state = self.state();
        while !state.stopped && !self.is_hurried() {
            let rest = until.saturating_sub(self.clock.now());
            if rest.is_zero() {
                return;
            }
            let woken = self.changed.wait_timeout(state, rest);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// A checkpoint begins; nothing is known about it yet.
    pub(crate) fn begin(&self, started: Duration) {
        let nanos = u64::try_from(started.as_nanos()).unwrap_or(u64::MAX);
        self.started.store(nanos, Ordering::Relaxed);
        self.pages.store(0, Ordering::Relaxed);
        self.pages_done.store(0, Ordering::Relaxed);
        self.files_synced.store(0, Ordering::Relaxed);
        self.set_phase(Phase::Scanning);
    }

    pub(crate) fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Relaxed);
    }

    pub(crate) fn found(&self, pages: u64) {
        self.pages.store(pages, Ordering::Relaxed);
    }

    /// Records the number of pages that have been processed.
    pub(crate) fn settled(&self, pages: u64) {
        self.pages_done.fetch_add(pages, Ordering::Relaxed);
    }

    pub(crate) fn pages_done(&self) -> u64 {
        self.pages_done.load(Ordering::Relaxed)
    }

    pub(crate) fn synced_one(&self) {
        self.files_synced.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn files_synced(&self) -> u64 {
        self.files_synced.load(Ordering::Relaxed)
    }

    pub(crate) fn is_hurried(&self) -> bool {
        self.hurried.load(Ordering::SeqCst)
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.state().stopped
    }

    pub(crate) fn redo(&self) -> Lsn {
        Lsn(self.redo.load(Ordering::SeqCst))
    }

    pub(crate) fn set_redo(&self, redo: Lsn) {
        self.redo.store(redo.0, Ordering::SeqCst);
    }

    /// The checkpoint in progress, started by `ask` or by a trigger, has ended.
    pub(crate) fn end(&self, ask: Option<Ask>, answer: Answer) {
        self.set_phase(Phase::Waiting);
        let mut state = self.state();
        state.running = None;
        state.last = Some(answer.clone());
        drop(state);
        if let Some(ask) = ask {
            ask.outcome.deliver(answer);
        }
    }

    /// The triggered checkpoint is not worthwhile.
    pub(crate) fn skip(&self) {
        self.state().running = None;
    }

    /// No more checkpoints: a thread that waits for one gets an error.
    pub(crate) fn stop(&self) {
        let mut state = self.state();
        state.stopped = true;
        let asked = state.asked.take();
        drop(state);
        self.changed.notify_all();
        if let Some(ask) = asked {
            ask.outcome.deliver(Err(Error::Closed));
        }
    }

    /// No more checkpoints, because the thread that performs them has ended: also threads that wait for the one in
    /// progress get an error.
    pub(crate) fn end_all(&self) {
        self.stop();
        if let Some(running) = self.state().running.take() {
            let mut answer = running.answer.lock().unwrap_or_else(PoisonError::into_inner);
            answer.get_or_insert(Err(Error::Closed));
            drop(answer);
            running.ended.notify_all();
        }
    }

    /// The result of the last one.
    pub(crate) fn last(&self) -> Option<Answer> {
        self.state().last.clone()
    }

    /// The progress of the one that runs.
    fn progress(&self) -> Option<Progress> {
        let phase = [Phase::Waiting, Phase::Scanning, Phase::Writing, Phase::Syncing]
            .into_iter()
            .find(|phase| *phase as u8 == self.phase.load(Ordering::Relaxed))?;
        if phase == Phase::Waiting {
            return None;
        }
        let started = Duration::from_nanos(self.started.load(Ordering::Relaxed));
        let pages = self.pages.load(Ordering::Relaxed);
        Some(Progress {
            phase,
            pages,
            pages_done: self.pages_done().min(pages),
            files_synced: self.files_synced(),
            elapsed: self.clock.now().saturating_sub(started),
        })
    }

    fn hurry(&self, outcome: &Arc<Outcome>) {
        let mut state = self.state();
        let is_it = |it: &Arc<Outcome>| Arc::ptr_eq(it, outcome);
        let asked = state.asked.as_mut().filter(|ask| is_it(&ask.outcome));
        let waits = asked.map(|ask| ask.options.over = None).is_some();
        // If it waits, the one in progress runs before it.
        if state.running.as_ref().is_some_and(|running| waits || is_it(running)) {
            self.hurried.store(true, Ordering::SeqCst);
        }
        drop(state);
        self.changed.notify_all();
    }
}

impl Outcome {
    fn deliver(&self, answer: Answer) {
        let mut place = self.answer.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(place.is_none(), "[DSK-1] a checkpoint was answered twice");
        *place = Some(answer);
        drop(place);
        self.ended.notify_all();
    }
}

/// The progress of a checkpoint that has not begun.
const AT_FIRST: Progress = Progress {
    phase: Phase::Waiting,
    pages: 0,
    pages_done: 0,
    files_synced: 0,
    elapsed: Duration::ZERO,
};

/// A requested checkpoint. Dropping this handle does not cancel it.
pub struct Checkpoint {
    checkpoints: Arc<RequestQueue>,
    outcome: Arc<Outcome>,
}

impl Checkpoint {
    /// Waits for its end.
    ///
    /// # Errors
    /// As [`BufferPool::checkpoint`](crate::BufferPool::checkpoint).
    pub fn wait(&self) -> Result<CheckpointReport, Error> {
        if !self.checkpoints.owner.is_this() {
            return Err(Error::Forked);
        }
        let answer = self.outcome.answer.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = self.outcome.ended.wait_while(answer, |answer| answer.is_none());
        let answer = ended.unwrap_or_else(PoisonError::into_inner);
        answer.clone().unwrap_or(Err(Error::Closed))
    }

    /// Returns its result, if it has ended.
    pub fn result(&self) -> Option<Result<CheckpointReport, Error>> {
        self.outcome.answer.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Makes it as fast as the disks allow from now on, whatever its interval.
    pub fn hurry(&self) {
        self.checkpoints.hurry(&self.outcome);
    }

    /// Returns its progress; `None` when it has ended.
    pub fn progress(&self) -> Option<Progress> {
        let state = self.checkpoints.state();
        if state.running.as_ref().is_some_and(|running| Arc::ptr_eq(running, &self.outcome)) {
            drop(state);
            return Some(self.checkpoints.progress().unwrap_or(AT_FIRST));
        }
        let waiting = state.asked.as_ref();
        let waits = waiting.is_some_and(|ask| Arc::ptr_eq(&ask.outcome, &self.outcome));
        waits.then_some(AT_FIRST)
    }
}

impl fmt::Debug for Checkpoint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Checkpoint").field("progress", &self.progress()).finish_non_exhaustive()
    }
}
