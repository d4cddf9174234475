//! The `threads` backend: a pool of threads that block instead of the caller.
//!
//! The fallback that works everywhere: containers that forbid io_uring, buffered files on old kernels, systems other
//! than Linux. Threads are started on demand, up to a limit, and sleep on a condition variable while idle.
//!
//! Invariants:  [THR-1] a worker takes every queued transfer, also while the pool closes
//! Concurrency: one lock for the queue, held for a push or a pop; none across I/O.
//! Failure:     a thread that cannot be started is reported once; if none can be started, opening fails.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use super::{Backend, Driven, Kind, Next, Sink, Want, blocking};
use crate::os_error::OsError;
use crate::request::Transfer;

pub(super) struct ThreadsBackend {
    pool: Arc<Pool>,
    capacity: usize,
}

struct Pool {
    state: Mutex<State>,
    work: Condvar,
    sink: Arc<dyn Sink>,
    workers_max: usize,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Transfer>,
    /// Workers that hold no transfer: sleeping, woken but not running yet, or just started.
    idle: usize,
    workers: Vec<JoinHandle<()>>,
    closing: bool,
    /// Why the last attempt to start a thread failed; the next submission tries again.
    stunted: Option<OsError>,
}

impl ThreadsBackend {
    /// Creates a pool that grows to `workers_max` threads, one of which is started now.
    pub(super) fn new(
        capacity: usize,
        workers_max: usize,
        sink: Arc<dyn Sink>,
    ) -> Result<ThreadsBackend, OsError> {
        let pool = Arc::new(Pool {
            state: Mutex::new(State::default()),
            work: Condvar::new(),
            sink,
            workers_max,
        });
        pool.grow(&mut pool.state())?;
        Ok(ThreadsBackend { pool, capacity })
    }
}

impl Pool {
    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing under the lock can panic in the middle of a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn grow(self: &Arc<Self>, state: &mut State) -> Result<(), OsError> {
        let pool = Arc::clone(self);
        let name = format!("forebay-io-{}", state.workers.len());
        let worker = thread::Builder::new().name(name).spawn(move || pool.work())?;
        state.workers.push(worker);
        state.idle += 1;
        Ok(())
    }

    /// The loop of a worker, which starts idle: takes transfers until the pool closes and is empty.
    fn work(&self) {
        let mut state = self.state();
        loop {
            while state.queue.is_empty() && !state.closing {
                state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            state.idle -= 1;
            if state.queue.is_empty() {
                return;
            }
            while let Some(transfer) = state.queue.pop_front() {
                drop(state);
                self.execute(transfer);
                state = self.state();
            }
            state.idle += 1;
        }
    }

    fn execute(&self, mut transfer: Transfer) {
        loop {
            let result = blocking::attempt(&mut transfer);
            match self.sink.finished(transfer, result) {
                Next::Done => return,
                Next::Again(rest) => transfer = rest,
            }
        }
    }
}

impl Backend for ThreadsBackend {
    fn kind(&self) -> Kind {
        Kind::Threads
    }

    fn capacity(&self) -> usize {
        self.capacity
    }

    fn start(&self, transfers: &mut Vec<Transfer>) {
        let mut state = self.pool.state();
        let new = transfers.len();
        state.queue.extend(transfers.drain(..));
        // Workers that were woken but do not run yet count as idle, and their transfers are still queued: the
        // difference is exactly the work that no worker will take.
        let sleepers = state.idle;
        let unattended = state.queue.len().saturating_sub(sleepers);
        let room = self.pool.workers_max - state.workers.len();
        for _ in 0..unattended.min(room) {
            let grown = self.pool.grow(&mut state);
            let before = std::mem::replace(&mut state.stunted, grown.err());
            let Some(error) = state.stunted else { continue };
            if before.is_none() {
                tracing::warn!(%error, workers = state.workers.len(), "no more I/O threads");
            }
            break;
        }
        drop(state);
        for _ in 0..new.min(sleepers) {
            self.pool.work.notify_one();
        }
    }

    fn drive(&self, want: &Want<'_>) -> Driven {
        if want.block { Driven::SelfDriven } else { Driven::Nothing }
    }

    fn notes(&self) -> Vec<String> {
        let state = self.pool.state();
        let note = |error: OsError| {
            let (have, most) = (state.workers.len(), self.pool.workers_max);
            format!("only {have} of {most} I/O threads could be started ({error}); raise ulimit -u")
        };
        state.stunted.map(note).into_iter().collect()
    }
}

impl Drop for ThreadsBackend {
    fn drop(&mut self) {
        let workers = {
            let mut state = self.pool.state();
            state.closing = true;
            std::mem::take(&mut state.workers)
        };
        self.pool.work.notify_all();
        for worker in workers {
            if worker.join().is_err() {
                tracing::error!("an I/O thread panicked");
            }
        }
        let left = self.pool.state().queue.len();
        assert_eq!(left, 0, "[THR-1] {left} transfers were never taken");
    }
}

impl std::fmt::Debug for ThreadsBackend {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.pool.state();
        out.debug_struct("ThreadsBackend")
            .field("workers", &state.workers.len())
            .field("queued", &state.queue.len())
            .finish()
    }
}
