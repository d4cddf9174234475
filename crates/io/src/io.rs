//! The queue: the central half of every backend.
//!
//! Requests come in here, are checked, wait for room, become transfers and go to the backend;
//! threads that wait for an answer take turns at driving the backend. How waiting works: a thread that
//! waits registers as a sleeper, then drives. On io_uring and AIO one thread at a time blocks in
//! the kernel and hands out what arrives; the others sleep until their own answer comes, or until
//! the driving thread has its answer and leaves, when it wakes a sleeper to take its place.
//!
//! Invariants:  [IO-1] accepted requests are answered, also when the queue is closed or dropped
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

/// What a queue has done since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct IoStats {
    /// Requests answered or in flight.
    pub requests: u64,
    /// Bytes read, also by requests that failed later on.
    pub bytes_read: u64,
    /// Bytes written, also by requests that failed later on.
    pub bytes_written: u64,
    /// Syncs, also failed ones.
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

/// A queue of I/O requests over one backend. Cheap to clone; the last one to go drains.
///
/// It belongs to the process that opened it. In a child of `fork` every request ends in [`Error::Forked`], nothing is
/// waited for, and dropping it does nothing.
#[derive(Clone)]
pub struct Io {
    pub(crate) shared: Arc<Shared>,
}

impl Io {
    /// Opens the backend asked for, or with [`Prefer::Auto`](crate::Prefer::Auto) the best that works.
    ///
    /// # Errors
    /// [`Error::Setting`] for settings out of range, [`Error::Unavailable`] when the one backend
    /// asked for does not work here. `Auto` falls back and says so in [`Io::report`].
    pub fn open(options: &IoOptions) -> Result<Io, Error> {
        options.check()?;
        let completions = Completions::new(options.queue_depth);
        let (backend, report) =
            crate::backend::open(options, Arc::clone(&completions) as Arc<dyn Sink>)?;
        Ok(Io::assemble(backend, completions, report))
    }

    /// A queue of `queue_depth` requests over a backend of the caller's own making, such as a
    /// simulated disk or one that injects faults into another.
    ///
    /// `make` is given the sink to hand finished transfers to.
    ///
    /// # Errors
    /// Whatever `make` fails with, and [`Error::Setting`] when the backend's capacity is less
    /// than `queue_depth`.
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

    /// Which backend this is.
    pub fn kind(&self) -> Kind {
        self.shared.backend().kind()
    }

    /// Which backend was taken, and why the better ones were not.
    pub fn report(&self) -> &Report {
        &self.shared.report
    }

    /// What a user should know of this queue now: the better backends that the system refused, the notes of its
    /// report, and what the backend has met with since, such as threads that could not be started.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = self.shared.report.for_users();
        notes.extend(self.shared.backend().notes());
        notes
    }

    /// Starts one request. Blocks, driving the queue, while that is full.
    ///
    /// Every error comes through the ticket, also those found before anything was started.
    pub fn submit(&self, request: Request) -> Ticket {
        let mut batch = Vec::with_capacity(1);
        let ticket = self.shared.accept_ticketed(request, &mut batch);
        self.shared.start(&mut batch);
        ticket
    }

    /// Carries out one request and waits for it: on `sync` by one system call of the calling thread, with no
    /// other request in its way and no memory asked for, else as [`Io::submit`] and [`Ticket::wait`].
    ///
    /// The list of leases that comes back is the request's own.
    pub fn carry_out(&self, request: Request) -> Completed {
        match self.shared.backend().attempt() {
            Some(attempt) => self.shared.carry_out(request, attempt),
            None => self.submit(request).wait(),
        }
    }

    /// Starts many requests with as few system calls as the backend can, in one go as far as the
    /// queue has room. The tickets are in the order of the requests.
    pub fn submit_all(&self, requests: impl IntoIterator<Item = Request>) -> Vec<Ticket> {
        // All of them first: the caller's iterator may panic, or use this queue itself, and must
        // not find places booked for transfers that nobody has started.
        let requests: Vec<Request> = requests.into_iter().collect();
        let mut batch = Vec::with_capacity(requests.len());
        let accept = |request| self.shared.accept_ticketed(request, &mut batch);
        let tickets = requests.into_iter().map(accept).collect();
        self.shared.start(&mut batch);
        tickets
    }

    /// As [`Io::submit_all`], for requests that no thread waits for: when one has ended, successfully
    /// or not, its [`Then`] is called with what came of it.
    ///
    /// That happens on any thread that drives the queue, waits, submits or looks, perhaps before this
    /// returns and perhaps in the middle of somebody else's wait. So a `Then` is short, does not panic,
    /// and neither submits to a queue nor waits for anything. Nobody drives for the sake of these
    /// requests (but on `threads`): a caller that is interested calls [`Io::wait_until`].
    pub fn submit_all_then(&self, requests: Vec<(Request, Then)>) {
        self.book(0).submit_all_then(requests);
    }

    /// Books up to `most` places for requests to be submitted, as many as are free now; never waits.
    pub fn book(&self, most: usize) -> Booked<'_> {
        let places = (0..most).take_while(|_| self.shared.completions.try_acquire_place()).count();
        Booked { io: &self.shared, places }
    }

    /// Waits, driving the queue, until `satisfied`.
    ///
    /// That is for conditions which the [`Then`] of some request makes true. The thread that makes it true, a
    /// [`Then`] or another, unparks the threads that wait: this knows nothing of what it waits for, and
    /// only one of them drives.
    pub fn wait_until(&self, satisfied: &dyn Fn() -> bool) {
        self.shared.wait_until(None, satisfied);
    }

    /// Hands out what has finished already, without sleeping. On `sync` that carries one request out.
    pub fn poll(&self) {
        self.shared.poll(None);
    }

    /// Most requests in flight.
    pub fn queue_depth(&self) -> usize {
        self.shared.completions.capacity()
    }

    /// Waits until no request is in flight.
    pub fn drain(&self) {
        self.shared.drain();
    }

    /// Refuses further requests with [`Error::Closed`], those of threads that wait for room
    /// included, and waits for those in flight. Nothing is read or written after it returns.
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

    /// What this queue has done so far.
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

/// Places in a queue, for requests whose submission is not to wait for room. Those left are given back with it.
pub struct Booked<'q> {
    io: &'q Shared,
    places: usize,
}

impl Booked<'_> {
    /// How many places there are.
    pub fn len(&self) -> usize {
        self.places
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.places == 0
    }

    /// As [`Io::submit_all_then`]; does not wait for room as long as there are no more requests than places.
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
    /// Makes a ticket for a request and accepts it.
    fn accept_ticketed(self: &Arc<Self>, request: Request, batch: &mut Vec<Transfer>) -> Ticket {
        let state = Arc::new(TicketState::default());
        let id = self.accept(request, Recipient::Ticket(Arc::clone(&state)), batch, &mut 0);
        Ticket::new(Arc::clone(self), id, state)
    }
}
