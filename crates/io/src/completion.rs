//! Completion: collects the result of each request and delivers it to its recipient.
//!
//! Every attempt of every transfer, on every backend, comes back through [`Completions::finished`].
//! This is the only place that handles short transfers, the end of a file and retryable errors, so the backends need
//! not.
//!
//! A result is delivered in one of three ways: to a thread that waits with a ticket; as the return value, when a
//! thread executes its own request; or to a continuation, which runs on the thread that noticed the end.
//! Continuations are for work that no single thread waits for, such as prefetched pages.
//!
//! Invariants:  [CMP-1] a request is answered exactly once   [CMP-2] in flight <= capacity
//!              [CMP-3] a request counts as in flight until its continuation has returned
//! Concurrency: any thread may finish a request; one thread waits for each answer.
//! Failure:     an error affects only its request, except a failed sync, which latches the file.

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

/// Consecutive attempts that may move nothing before a request fails.
///
/// Interrupts and cancellations are isolated events; this many in a row mean a broken system, and a request that
/// never ends is worse than one that fails.
const IDLE_ATTEMPTS_MAX: u32 = 256;

/// After this many, the thread yields before the next attempt.
const IDLE_ATTEMPTS_BEFORE_YIELD: u32 = 4;

/// The sink of every backend.
#[derive(Debug)]
pub(crate) struct Completions {
    /// This object, for answers that are delivered later than the end of the attempt.
    me: Weak<Completions>,
    capacity: usize,
    in_flight: AtomicUsize,
    /// Threads that wait for room.
    pub(crate) room: Waiters,
    /// Threads that wait for all requests to end. Separate from `room`: otherwise the wake-up for one free slot could
    /// go to a thread that cannot use it.
    pub(crate) drained: Waiters,
    /// Threads inside `Shared::wait_until`, one of which must drive the backend.
    pub(crate) sleepers: Waiters,
    pub(crate) counters: Counters,
}

/// The counters of a queue.
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

    /// Reserves a slot for one transfer, if one is free.
    pub(crate) fn try_acquire_place(&self) -> bool {
        let entered = self.in_flight.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |count| {
            (count < self.capacity).then_some(count + 1)
        });
        entered.is_ok()
    }

    /// Releases a slot.
    pub(crate) fn release_place(&self) {
        let before = self.in_flight.fetch_sub(1, Ordering::SeqCst);
        assert!((1..=self.capacity).contains(&before), "[CMP-2] {before} of {}", self.capacity);
        self.room.wake_one();
        if before == 1 {
            self.drained.wake_all();
        }
    }

    /// True when [`Completions::try_acquire_place`] would succeed.
    pub(crate) fn has_room(&self) -> bool {
        self.in_flight() < self.capacity
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::SeqCst)
    }

    /// Ends a request: decides whether a sync may report success, and delivers the answer.
    fn end(&self, mut transfer: Transfer, result: Result<(), Error>) {
        match transfer.sync.take() {
            Some(sync) => {
                let queue = self.me.upgrade().expect("a transfer's queue outlives its backend");
                let Transfer { file, recipient, .. } = transfer;
                file.end_sync(&sync, result, SyncAnswer { queue, recipient });
            }
            None => {
                let (recipient, completed) = self.conclude(transfer, result);
                // Before the request counts as ended ([CMP-3]): a thread that drains may rely on the leases being
                // back if their ticket was dropped, and on the continuations having run.
                recipient.deliver(completed);
                self.release_place();
            }
        }
    }

    /// Executes a transfer on the waiting thread, until it ends.
    pub(crate) fn execute(&self, mut transfer: Transfer, attempt: Attempt) -> Completed {
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

    /// Counts the result of a request, releases its file and returns the recipient and the answer.
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
        // The file first: a thread that the answer wakes may rely on the descriptor being released.
        drop(file);
        (recipient, Completed { leases, result })
    }

    pub(crate) fn count_failure(&self, result: &Result<(), Error>) {
        if result.is_err() {
            self.counters.failed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Decides how to proceed after an attempt.
    fn settle(&self, mut transfer: Transfer, result: Result<u64, OsError>) -> Settled {
        transfer.limit = None;
        match result {
            Ok(bytes) if transfer.op.moves_data() => self.moved(transfer, bytes),
            Ok(_) => Settled::Ended(transfer, Ok(())),
            Err(reason) if reason.passes() => self.repeat(transfer, reason),
            Err(reason) => failed(transfer, reason),
        }
    }

    /// Retries the rest of a transfer after an attempt that moved nothing.
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

    /// Accounts for the bytes of an attempt and continues with the rest, if any.
    fn moved(&self, mut transfer: Transfer, bytes: u64) -> Settled {
        transfer.advance(bytes);
        if transfer.done == transfer.len {
            return Settled::Ended(transfer, Ok(()));
        }
        if bytes == 0 {
            return match transfer.op {
                Op::Read => past_end(transfer),
                // A write that moves nothing without an error: retry, but not forever.
                _ => self.repeat(transfer, OsError::EIO),
            };
        }
        if transfer.is_atomic() {
            // A second attempt would be a separate write. The kernel guarantees that this does not happen.
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
        recipient.deliver(Completed { leases: Vec::new(), result });
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

/// How to proceed after an attempt.
enum Settled {
    Again(Transfer),
    Ended(Transfer, Result<(), Error>),
}

fn failed(transfer: Transfer, reason: OsError) -> Settled {
    if let (Some(backend), false) = (transfer.refused_by, transfer.op.moves_data()) {
        // The sync did not run, so it is not a failed sync: nothing is lost, and the next sync reports correctly.
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
