//! The queue: the part that all backends share.
//!
//! A request is checked here, waits for room, becomes a transfer and goes to the backend. Threads that wait for an
//! answer take turns driving the backend: a waiting thread registers as a sleeper, then drives. On io_uring and AIO
//! one thread at a time blocks in the kernel and delivers what arrives. The others sleep until their own answer
//! arrives, or until the driving thread has its answer and leaves; it then wakes a sleeper, which drives next.
//!
//! Invariants:  [IO-1] accepted requests are answered, even when the queue is closed or dropped
//!              [IO-2] a submitter that is held back drives, so a full queue always drains
//! Concurrency: all methods from any thread; no lock of this module is held while a backend works.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::answer::{Completed, Recipient, Then, TicketState};
use crate::backend::{Backend, Report, Sink};
use crate::completion::Completions;
use crate::error::Error;
use crate::kind::Kind;
use crate::options::IoOptions;
use crate::request::{Request, Transfer};
use crate::shared::Shared;
use crate::ticket::Ticket;

/// Counters of a queue since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct IoStats {
    /// Requests answered or in flight.
    pub requests: u64,
    /// Bytes read, including those of requests that failed later.
    pub bytes_read: u64,
    /// Bytes written, including those of requests that failed later.
    pub bytes_written: u64,
    /// Syncs, including failed ones.
    pub syncs: u64,
    /// Attempts made because an earlier one was short.
    pub continued: u64,
    /// Attempts made because an earlier one moved nothing (EINTR, EAGAIN, ECANCELED).
    pub repeated: u64,
    /// Requests that ended in an error.
    pub failed: u64,
    /// Submissions that had to wait for room.
    pub held_back: u64,
}

/// A queue of I/O requests over one backend. Cheap to clone; dropping the last clone drains it.
///
/// It belongs to the process that opened it. In a child of `fork` every request ends in [`Error::Forked`], waiting
/// returns at once, and dropping it does nothing.
#[derive(Clone)]
pub struct Io {
    pub(crate) shared: Arc<Shared>,
}

impl Io {
    /// Opens the requested backend, or with [`Prefer::Auto`](crate::Prefer::Auto) the best one that works.
    ///
    /// # Errors
    /// [`Error::Setting`] for settings out of range, [`Error::Unavailable`] when the one requested backend does not
    /// work here. `Auto` falls back and records it in [`Io::report`].
    pub fn open(options: &IoOptions) -> Result<Io, Error> {
        options.check()?;
        let completions = Completions::new(options.queue_depth);
        let (backend, report) =
            crate::backend::open(options, Arc::clone(&completions) as Arc<dyn Sink>)?;
        Ok(Io::assemble(backend, completions, report))
    }

    /// Creates a queue of `queue_depth` requests over a custom backend, such as a simulated disk or one that injects
    /// faults into another.
    ///
    /// `make` receives the sink for finished transfers.
    ///
    /// # Errors
    /// The error of `make`, and [`Error::Setting`] when the backend's capacity is less than `queue_depth`.
    pub fn over(
        queue_depth: usize,
        make: impl FnOnce(Arc<dyn Sink>) -> Result<Box<dyn Backend>, Error>,
    ) -> Result<Io, Error> {
        let completions = Completions::new(queue_depth);
        let backend = make(Arc::clone(&completions) as Arc<dyn Sink>)?;
        if queue_depth == 0 || backend.capacity() < queue_depth {
            return Err(Error::Setting {
                setting: "queue depth",
                value: queue_depth as u64,
                expected: "it should be at least 1 and at most the backend's capacity",
            });
        }
        let report = Report::custom(backend.kind());
        Ok(Io::assemble(backend, completions, report))
    }

    fn assemble(backend: Box<dyn Backend>, completions: Arc<Completions>, report: Report) -> Io {
        Io { shared: Arc::new(Shared::new(backend, completions, report)) }
    }

    /// True when `other` is a handle to the same queue.
    pub fn is_same(&self, other: &Io) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// The backend in use.
    pub fn kind(&self) -> Kind {
        self.shared.backend().kind()
    }

    /// The backend in use, and why the better ones are not.
    pub fn report(&self) -> &Report {
        &self.shared.report
    }

    /// Notes for users about this queue: the better backends that the system refused, the notes of its report, and
    /// problems that the backend has met since, such as threads that could not be started.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = self.shared.report.for_users();
        notes.extend(self.shared.backend().notes());
        notes
    }

    /// Starts one request. While the queue is full, blocks and drives it.
    ///
    /// All errors are returned through the ticket, including those found before the request is started.
    pub fn submit(&self, request: Request) -> Ticket {
        let mut batch = Vec::with_capacity(1);
        let ticket = self.shared.accept_ticketed(request, &mut batch);
        self.shared.start(&mut batch);
        ticket
    }

    /// Executes one request and waits for it. On `sync` this is one system call of the calling thread: no other
    /// request delays it and it allocates no memory. On other backends it is [`Io::submit`] and [`Ticket::wait`].
    ///
    /// The returned list of leases is the request's.
    pub fn execute(&self, request: Request) -> Completed {
        match self.shared.backend().attempt() {
            Some(attempt) => self.shared.execute(request, attempt),
            None => self.submit(request).wait(),
        }
    }

    /// Starts many requests with as few system calls as the backend can, all at once if the queue has room. The
    /// tickets are in the order of the requests.
    pub fn submit_all(&self, requests: impl IntoIterator<Item = Request>) -> Vec<Ticket> {
        // Collect first: the caller's iterator may panic, or use this queue, and must not run while slots are
        // reserved for transfers that are not started.
        let requests: Vec<Request> = requests.into_iter().collect();
        let mut batch = Vec::with_capacity(requests.len());
        let accept = |request| self.shared.accept_ticketed(request, &mut batch);
        let tickets = requests.into_iter().map(accept).collect();
        self.shared.start(&mut batch);
        tickets
    }

    /// As [`Io::submit_all`], for requests that no thread waits for: when one has ended, successfully or not, its
    /// [`Then`] is called with the result.
    ///
    /// It is called on any thread that drives the queue, waits, submits or polls, perhaps before this method returns
    /// and perhaps during another thread's wait. So a `Then` must be short, must not panic, and must neither submit
    /// to a queue nor wait. No thread drives the queue for these requests (except on `threads`): an interested caller
    /// calls [`Io::wait_until`].
    pub fn submit_all_then(&self, requests: Vec<(Request, Then)>) {
        self.book(0).submit_all_then(requests);
    }

    /// Reserves up to `most` slots for later requests, as many as are free now; never waits.
    pub fn book(&self, most: usize) -> Booked<'_> {
        let places = (0..most).take_while(|_| self.shared.completions.try_acquire_place()).count();
        Booked { io: &self.shared, places }
    }

    /// Waits, driving the queue, until `satisfied` returns true.
    ///
    /// This is for conditions that the [`Then`] of some request makes true. The thread that makes the condition true,
    /// in a [`Then`] or elsewhere, must unpark the waiting threads: the queue does not know the condition, and only
    /// one of the threads drives.
    pub fn wait_until(&self, satisfied: &dyn Fn() -> bool) {
        self.shared.wait_until(None, satisfied);
    }

    /// Delivers the results of finished requests, without sleeping. On `sync` this executes one request.
    pub fn poll(&self) {
        self.shared.poll(None);
    }

    /// Maximum number of requests in flight.
    pub fn queue_depth(&self) -> usize {
        self.shared.completions.capacity()
    }

    /// Waits until no request is in flight.
    pub fn drain(&self) {
        self.shared.drain();
    }

    /// Refuses further requests with [`Error::Closed`], including those of threads that wait for room, and waits for
    /// those in flight. Nothing is read or written after it returns.
    pub fn close(&self) {
        if self.shared.is_inherited() {
            return;
        }
        self.shared.closed.store(true, Ordering::SeqCst);
        self.shared.completions.room.wake_all();
        self.shared.drain();
    }

    /// Requests in flight now.
    pub fn in_flight(&self) -> usize {
        self.shared.completions.in_flight()
    }

    /// The counters of this queue.
    pub fn stats(&self) -> IoStats {
        let counters = &self.shared.completions.counters;
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        IoStats {
            requests: get(&counters.requests),
            bytes_read: get(&counters.bytes_read),
            bytes_written: get(&counters.bytes_written),
            syncs: get(&counters.syncs),
            continued: get(&counters.continued),
            repeated: get(&counters.repeated),
            failed: get(&counters.failed),
            held_back: get(&counters.held_back),
        }
    }
}

/// Reserved slots in a queue, for requests that must not wait for room. Dropping this releases the unused ones.
pub struct Booked<'q> {
    io: &'q Shared,
    places: usize,
}

impl Booked<'_> {
    /// Number of reserved slots.
    pub fn len(&self) -> usize {
        self.places
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.places == 0
    }

    /// As [`Io::submit_all_then`]; does not wait for room unless there are more requests than reserved slots.
    pub fn submit_all_then(mut self, requests: Vec<(Request, Then)>) {
        let mut batch = Vec::with_capacity(requests.len());
        for (request, then) in requests {
            self.io.accept(request, Recipient::Then(then), &mut batch, &mut self.places);
        }
        self.io.start(&mut batch);
    }
}

impl Drop for Booked<'_> {
    fn drop(&mut self) {
        (0..self.places).for_each(|_| self.io.completions.release_place());
    }
}

impl fmt::Debug for Booked<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Booked").field("places", &self.places).finish()
    }
}

impl fmt::Debug for Io {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Io")
            .field("backend", self.shared.backend())
            .field("in_flight", &self.in_flight())
            .finish()
    }
}

impl Shared {
    /// Creates a ticket for a request and accepts the request.
    fn accept_ticketed(self: &Arc<Self>, request: Request, batch: &mut Vec<Transfer>) -> Ticket {
        let state = Arc::new(TicketState::default());
        let id = self.accept(request, Recipient::Ticket(Arc::clone(&state)), batch, &mut 0);
        Ticket::new(Arc::clone(self), id, state)
    }
}
