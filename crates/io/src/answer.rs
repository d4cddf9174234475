//! The result of a request, and its recipient.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};

use crate::error::Error;
use crate::memory::Lease;

/// A finished request: its memory, and whether it succeeded.
#[derive(Debug)]
pub struct Completed {
    /// The leases of the request, in their order.
    pub leases: Vec<Lease>,
    /// Whether all bytes were transferred.
    pub result: Result<(), Error>,
}

impl Completed {
    /// Returns the leases, or the error (the leases are then dropped).
    ///
    /// # Errors
    /// The error that the request ended with.
    pub fn into_result(self) -> Result<Vec<Lease>, Error> {
        self.result.map(|()| self.leases)
    }
}

/// Continuation of a request that has ended, see [`Io::submit_all_then`](crate::Io::submit_all_then).
pub type Then = Box<dyn FnOnce(Completed) + Send>;

/// Receives the result of a request.
pub(crate) enum Recipient {
    /// The holder of the ticket.
    Ticket(Arc<TicketState>),
    /// No thread waits; this continuation is called instead.
    Then(Then),
}

impl Recipient {
    pub(crate) fn deliver(self, completed: Completed) {
        match self {
            // If the ticket has been dropped, this gives the leases back.
            Recipient::Ticket(state) => state.complete(completed),
            Recipient::Then(then) => then(completed),
        }
    }
}

impl std::fmt::Debug for Recipient {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Recipient::Ticket(_) => "Ticket",
            Recipient::Then(_) => "Then",
        })
    }
}

/// A sync whose answer is delayed until it is known whether it may report success: its recipient, and the queue that
/// counts it.
pub(crate) struct SyncAnswer {
    pub(crate) queue: Arc<dyn CountSyncs>,
    pub(crate) recipient: Recipient,
}

/// The queue that a sync was submitted to.
pub(crate) trait CountSyncs: Send + Sync {
    /// Delivers the result of a sync, then counts the sync as ended.
    fn answer_sync(&self, recipient: Recipient, result: Result<(), Error>);
}

impl SyncAnswer {
    pub(crate) fn deliver(self, result: Result<(), Error>) {
        self.queue.answer_sync(self.recipient, result);
    }
}

/// State shared by a ticket and its transfer.
#[derive(Debug, Default)]
pub(crate) struct TicketState {
    done: AtomicBool,
    answer: Mutex<Answer>,
}

#[derive(Debug, Default)]
struct Answer {
    completed: Option<Completed>,
    /// The thread that sleeps on this ticket.
    waiter: Option<Thread>,
}

impl TicketState {
    pub(crate) fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }

    /// Stores the answer and wakes the waiter.
    pub(crate) fn complete(&self, completed: Completed) {
        let mut answer = self.answer();
        let answered_before = self.done.swap(true, Ordering::AcqRel);
        assert!(!answered_before, "[CMP-1] a request was answered twice");
        answer.completed = Some(completed);
        let waiter = answer.waiter.take();
        drop(answer);
        if let Some(waiter) = waiter {
            waiter.unpark();
        }
    }

    /// From now on, the calling thread is woken when the answer is available.
    pub(crate) fn expect_answer(&self) {
        self.answer().waiter = Some(thread::current());
    }

    /// Takes the answer of a request that [is done](Self::is_done). It can be taken only once.
    pub(crate) fn take(&self) -> Completed {
        let completed = self.answer().completed.take();
        completed.expect("[CMP-1] a done request has its answer, and only its owner takes it")
    }

    fn answer(&self) -> MutexGuard<'_, Answer> {
        // The only panic under the lock is [CMP-1], which stores nothing.
        self.answer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
