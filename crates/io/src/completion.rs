//! The far end of a request: what came of it, and who is told.
//!
//! Every attempt of every transfer, on every backend, comes back through [`Completions::finished`].
//! This is the one place that knows short transfers, the end of a file and errors worth
//! repeating, so no backend has to.
//!
//! Told is a thread that waits with a ticket, or one that carries its request out by itself and has the answer
//! as it returns, or nobody: then the answer goes to a continuation, which runs on whichever thread noticed
//! the end. That is for work that no one thread waits for, such as pages read ahead.
//!
//! Invariants:  [CMP-1] a request is answered exactly once   [CMP-2] in flight <= capacity
//!              [CMP-3] a request counts as in flight until its continuation has returned
//! Concurrency: any thread may finish; one thread waits for an answer.
//! Failure:     an error belongs to its request alone, except a failed sync, which latches the file.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread;

use crate::answer::{Completed, CountSyncs, Recipient, SyncAnswer};
use crate::backend::{Attempt, Next, Sink};
use crate::error::Error;
use crate::kind::Refusal;
use crate::op::Op;
use crate::os_error::OsError;
use crate::properties::CacheMode;
use crate::request::Transfer;
use crate::waiters::Waiters;

/// Attempts in a row that may move nothing before a request is given up.
///
/// Interrupts and cancellations come singly; this many in a row is a broken system, and a request
/// that never ends would be worse than one that fails.
const IDLE_ATTEMPTS_MAX: u32 = 256;

/// After this many, the thread lets others run before the next attempt.
const IDLE_ATTEMPTS_BEFORE_YIELD: u32 = 4;

/// The sink of every backend.
#[derive(Debug)]
pub(crate) struct Completions {
    /// Itself, for answers that come later than the end of the attempt.
    me: Weak<Completions>,
    capacity: usize,
    in_flight: AtomicUsize,
    /// Threads that wait for room.
    pub(crate) room: Waiters,
    /// Threads that wait for everything to end. Apart from `room`, or a wake that one place is
    /// free could go to a thread that has no use for it.
    pub(crate) drained: Waiters,
    /// Threads inside `Shared::wait_until`, one of which has to drive the backend.
    pub(crate) sleepers: Waiters,
    pub(crate) counters: Counters,
}

/// What the queue has done so far.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) requests: AtomicU64,
    pub(crate) bytes_read: AtomicU64,
    pub(crate) bytes_written: AtomicU64,
    pub(crate) syncs: AtomicU64,
    pub(crate) continued: AtomicU64,
    pub(crate) repeated: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) held_back: AtomicU64,
}

impl Completions {
    pub(crate) fn new(capacity: usize) -> Arc<Completions> {
        Arc::new_cyclic(|me| Completions {
            me: Weak::clone(me),
            capacity,
            in_flight: AtomicUsize::new(0),
            room: Waiters::default(),
            drained: Waiters::default(),
            sleepers: Waiters::default(),
            counters: Counters::default(),
        })
    }

    /// Books a place for one transfer, if there is one.
    pub(crate) fn try_acquire_place(&self) -> bool {
        let entered = self.in_flight.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |count| {
            (count < self.capacity).then_some(count + 1)
        });
        entered.is_ok()
    }

    /// Gives a place back.
    pub(crate) fn release_place(&self) {
        let before = self.in_flight.fetch_sub(1, Ordering::SeqCst);
        assert!((1..=self.capacity).contains(&before), "[CMP-2] {before} of {}", self.capacity);
        self.room.wake_one();
        if before == 1 {
            self.drained.wake_all();
        }
    }

    /// True when [`Completions::try_acquire_place`] would find a place.
    pub(crate) fn has_room(&self) -> bool {
        self.in_flight() < self.capacity
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::SeqCst)
    }

    /// Ends a request: settles what a sync may claim, and answers.
    fn end(&self, mut transfer: Transfer, result: Result<(), Error>) {
        match transfer.sync.take() {
            Some(sync) => {
                let queue = self.me.upgrade().expect("a transfer's queue outlives its backend");
                let Transfer { file, recipient, .. } = transfer;
                file.end_sync(&sync, result, SyncAnswer { queue, recipient });
            }
            None => {
                let (recipient, completed) = self.conclude(transfer, result);
                // Before the request counts as ended ([CMP-3]): a thread that drains may count on the
                // leases being back where nobody holds the ticket any more, and on continuations having run.
                recipient.tell(completed);
                self.release_place();
            }
        }
    }

    /// Carries out a transfer that this thread waits for by itself, to its end.
    pub(crate) fn carry_out(&self, mut transfer: Transfer, attempt: Attempt) -> Completed {
        let (transfer, result) = loop {
            let result = attempt(&mut transfer);
            match self.settle(transfer, result) {
                Settled::Again(rest) => transfer = rest,
                Settled::Ended(transfer, result) => break (transfer, result),
            }
        };
        let (_, completed) = self.conclude(transfer, result);
        self.release_place();
        completed
    }

    /// Counts what came of a request, lets go of its file and says who is to be told of what.
    fn conclude(
        &self,
        transfer: Transfer,
        mut result: Result<(), Error>,
    ) -> (Recipient, Completed) {
        let counter = match transfer.op {
            Op::Read => &self.counters.bytes_read,
            Op::Write => &self.counters.bytes_written,
            Op::SyncData | Op::SyncAll => &self.counters.syncs,
        };
        let amount = if transfer.op.moves_data() { transfer.done } else { 1 };
        counter.fetch_add(amount, Ordering::Relaxed);
        if !transfer.op.moves_data() {
            result = result.map_err(|error| transfer.file.sync_failed(error));
        }
        self.count_failure(&result);
        let Transfer { leases, recipient, file, .. } = transfer;
        // The file first: a thread that is woken by the answer may count on the descriptor being let go.
        drop(file);
        (recipient, Completed { leases, result })
    }

    pub(crate) fn count_failure(&self, result: &Result<(), Error>) {
        if result.is_err() {
            self.counters.failed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What an attempt comes to.
    fn settle(&self, mut transfer: Transfer, result: Result<u64, OsError>) -> Settled {
        transfer.limit = None;
        match result {
            Ok(bytes) if transfer.op.moves_data() => self.moved(transfer, bytes),
            Ok(_) => Settled::Ended(transfer, Ok(())),
            Err(reason) if reason.passes() => self.repeat(transfer, reason),
            Err(reason) => failed(transfer, reason),
        }
    }

    /// Tries the rest of a transfer again after an attempt that moved nothing.
    fn repeat(&self, mut transfer: Transfer, reason: OsError) -> Settled {
        transfer.idle_attempts += 1;
        if transfer.idle_attempts > IDLE_ATTEMPTS_MAX {
            return failed(transfer, reason);
        }
        if transfer.idle_attempts > IDLE_ATTEMPTS_BEFORE_YIELD {
            thread::yield_now();
        }
        self.counters.repeated.fetch_add(1, Ordering::Relaxed);
        Settled::Again(transfer)
    }

    /// Books the bytes of an attempt and goes on with the rest, if there is one.
    fn moved(&self, mut transfer: Transfer, bytes: u64) -> Settled {
        transfer.advance(bytes);
        if transfer.done == transfer.len {
            return Settled::Ended(transfer, Ok(()));
        }
        if bytes == 0 {
            return match transfer.op {
                Op::Read => past_end(transfer),
                // A write of something that moves nothing and says nothing: try, but not forever.
                _ => self.repeat(transfer, OsError::EIO),
            };
        }
        if transfer.is_atomic() {
            // The rest of it would be another write. The kernel promises that this does not happen.
            return failed(transfer, OsError::EIO);
        }
        let unit = match transfer.file.cache_mode() {
            CacheMode::Direct => u64::from(transfer.file.alignment().offset),
            CacheMode::Buffered => 1,
        };
        let odd = transfer.done % unit;
        if odd != 0 {
            // A direct transfer stops inside a sector only where the file does.
            let end = transfer.offset + transfer.done;
            if transfer.op == Op::Read && transfer.file.len().is_ok_and(|len| len <= end) {
                return past_end(transfer);
            }
            transfer.done -= odd;
            if bytes <= odd {
                return self.repeat(transfer, OsError::EIO);
            }
        }
        transfer.idle_attempts = 0;
        self.counters.continued.fetch_add(1, Ordering::Relaxed);
        Settled::Again(transfer)
    }
}

impl CountSyncs for Completions {
    fn answer_sync(&self, recipient: Recipient, result: Result<(), Error>) {
        self.counters.syncs.fetch_add(1, Ordering::Relaxed);
        self.count_failure(&result);
        recipient.tell(Completed { leases: Vec::new(), result });
        self.release_place();
    }
}

impl Sink for Completions {
    fn finished(&self, transfer: Transfer, result: Result<u64, OsError>) -> Next {
        match self.settle(transfer, result) {
            Settled::Again(rest) => Next::Again(rest),
            Settled::Ended(transfer, result) => {
                self.end(transfer, result);
                Next::Done
            }
        }
    }
}

/// What an attempt came to.
enum Settled {
    Again(Transfer),
    Ended(Transfer, Result<(), Error>),
}

fn failed(transfer: Transfer, reason: OsError) -> Settled {
    if let (Some(backend), false) = (transfer.refused_by, transfer.op.moves_data()) {
        // It did not run, so it is no failed sync: nothing is lost, and the next one tells the truth.
        let why = Refusal::os(backend, "submitting a sync", reason);
        return Settled::Ended(transfer, Err(Error::Unavailable { backend, why }));
    }
    let error = transfer.file.refusal(transfer.op.into(), transfer.offset, transfer.len, reason);
    Settled::Ended(transfer, Err(error))
}

fn past_end(transfer: Transfer) -> Settled {
    let error = Error::PastEnd {
        file: transfer.file.path_shared(),
        offset: transfer.offset,
        len: transfer.len,
        got: transfer.done,
    };
    Settled::Ended(transfer, Err(error))
}
