//! The queue: the central half of every backend.
//!
//! Requests come in here, are checked, wait for room, become transfers and go to the backend;
//! threads that wait for an answer take turns at driving the backend. How waiting works: whoever
//! waits registers as a sleeper, then drives. On io_uring and AIO one thread at a time blocks in
//! the kernel and hands out what arrives; the others sleep until their own answer comes, or until
//! the driving thread has its answer and leaves, when it wakes a sleeper to take its place.
//!
//! Invariants:  [IO-1] accepted requests are answered, also when the queue is closed or dropped
//!              [IO-2] a submitter that is held back drives, so a full queue always drains
//! Concurrency: all methods from any thread; no lock of this module is held while a backend works.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use crate::backend::{Backend, Driven, Kind, Refusal, Report, Sink, Want};
use crate::completion::{Completed, Desk, Recipient, Then, TicketState};
use crate::error::{Error, Part};
use crate::file::{CacheMode, RunningSync};
use crate::memory::Mapping;
use crate::request::{Op, Request, Transfer};
use crate::ticket::Ticket;

/// Which backend to open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Prefer {
    /// The best that works here: uring, then aio (direct only), then threads.
    #[default]
    Auto,
    /// This one or an error.
    Only(Kind),
}

/// How to open an [`Io`].
#[derive(Debug, Clone)]
pub struct IoOptions {
    /// Which backend. Default: [`Prefer::Auto`].
    pub prefer: Prefer,
    /// What the files will be; decides whether `aio` can serve. Default: buffered.
    pub cache: CacheMode,
    /// Most requests in flight, 1 to 32,768. Default: 256.
    pub queue_depth: usize,
    /// Most threads of the `threads` backend, 1 to 1,024. Default: 64.
    pub workers: usize,
    /// Memory to register with the kernel where the backend can (uring), so that it need not be
    /// looked up for each request. What comes of it is in [`Report::notes`].
    pub register: Option<Arc<Mapping>>,
    /// Whether `sync` tells the kernel by WILLNEED what is submitted together with other reads or
    /// while others wait. Off where every request is waited for at once. Default: on.
    pub advise: bool,
}

impl Default for IoOptions {
    fn default() -> IoOptions {
        IoOptions {
            prefer: Prefer::Auto,
            cache: CacheMode::Buffered,
            queue_depth: 256,
            workers: 64,
            register: None,
            advise: true,
        }
    }
}

impl IoOptions {
    pub(crate) fn check(&self) -> Result<(), Error> {
        let within = |setting, value: usize, most: usize, expected| {
            let value_ok = (1..=most).contains(&value);
            let error = Error::Setting { setting, value: value as u64, expected };
            if value_ok { Ok(()) } else { Err(error) }
        };
        within("queue depth", self.queue_depth, 32_768, "it should be between 1 and 32768")?;
        within("number of workers", self.workers, 1024, "it should be between 1 and 1024")
    }
}

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
#[derive(Clone)]
pub struct Io {
    pub(crate) shared: Arc<Shared>,
}

impl Io {
    /// Opens the backend asked for, or with [`Prefer::Auto`] the best that works.
    ///
    /// # Errors
    /// [`Error::Setting`] for settings out of range, [`Error::Unavailable`] when the one backend
    /// asked for does not work here. `Auto` falls back and says so in [`Io::report`].
    pub fn open(options: &IoOptions) -> Result<Io, Error> {
        options.check()?;
        let desk = Desk::new(options.queue_depth);
        let (backend, report) = crate::backend::open(options, Arc::clone(&desk) as Arc<dyn Sink>)?;
        Ok(Io::assemble(backend, desk, report))
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
        let desk = Desk::new(queue_depth);
        let backend = make(Arc::clone(&desk) as Arc<dyn Sink>)?;
        if queue_depth == 0 || backend.capacity() < queue_depth {
            return Err(Error::Setting {
                setting: "queue depth",
                value: queue_depth as u64,
                expected: "it should be at least 1 and at most the backend's capacity",
            });
        }
        let report = Report::custom(backend.kind());
        Ok(Io::assemble(backend, desk, report))
    }

    fn assemble(backend: Box<dyn Backend>, desk: Arc<Desk>, report: Report) -> Io {
        let shared = Shared {
            backend,
            desk,
            report,
            closed: AtomicBool::new(false),
            next_id: AtomicU64::new(0),
        };
        Io { shared: Arc::new(shared) }
    }

    /// True when `other` is a handle to the same queue.
    pub fn is_same(&self, other: &Io) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Which backend this is.
    pub fn kind(&self) -> Kind {
        self.shared.backend.kind()
    }

    /// Which backend was taken, and why the better ones were not.
    pub fn report(&self) -> &Report {
        &self.shared.report
    }

    /// What a user should know of this queue now: the notes of its report, and what the backend
    /// has met with since, such as threads that could not be started.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = self.shared.report.notes.clone();
        notes.extend(self.shared.backend.notes());
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

    /// As [`Io::submit_all`], for requests that no thread waits for: when one has ended, for good or
    /// ill, its [`Then`] is called with what came of it.
    ///
    /// That happens on any thread that drives the queue, waits, submits or looks, perhaps before this
    /// returns and perhaps in the middle of somebody else's wait. So a `Then` is short, does not panic,
    /// and neither submits to a queue nor waits for anything. Nobody drives for the sake of these
    /// requests (but on `threads`): whoever is interested calls [`Io::wait_until`].
    pub fn submit_all_then(&self, requests: Vec<(Request, Then)>) {
        let mut batch = Vec::with_capacity(requests.len());
        for (request, then) in requests {
            self.shared.accept(request, Recipient::Then(then), &mut batch);
        }
        self.shared.start(&mut batch);
    }

    /// Waits, driving the queue, until `satisfied`.
    ///
    /// That is for conditions which the [`Then`] of some request makes true. Whoever makes it true, a
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
        self.shared.desk.capacity()
    }

    /// Waits until no request is in flight.
    pub fn drain(&self) {
        self.shared.drain();
    }

    /// Refuses further requests with [`Error::Closed`], those of threads that wait for room
    /// included, and waits for those in flight. Nothing is read or written after it returns.
    pub fn close(&self) {
        self.shared.closed.store(true, Ordering::SeqCst);
        self.shared.desk.room.wake_all();
        self.shared.drain();
    }

    /// Requests in flight now.
    pub fn in_flight(&self) -> usize {
        self.shared.desk.in_flight()
    }

    /// What this queue has done so far.
    pub fn stats(&self) -> IoStats {
        let counters = &self.shared.desk.counters;
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

impl fmt::Debug for Io {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Io")
            .field("backend", &self.shared.backend)
            .field("in_flight", &self.in_flight())
            .finish()
    }
}

/// What the handles and tickets of one queue share.
pub(crate) struct Shared {
    backend: Box<dyn Backend>,
    desk: Arc<Desk>,
    report: Report,
    closed: AtomicBool,
    next_id: AtomicU64,
}

impl Shared {
    /// Makes a ticket for a request and accepts it.
    fn accept_ticketed(self: &Arc<Self>, request: Request, batch: &mut Vec<Transfer>) -> Ticket {
        let state = Arc::new(TicketState::default());
        let id = self.accept(request, Recipient::Ticket(Arc::clone(&state)), batch);
        Ticket::new(Arc::clone(self), id, state)
    }

    /// Adds a transfer to `batch` unless the request can be answered at once. Gives its number.
    pub(crate) fn accept(
        &self,
        request: Request,
        recipient: Recipient,
        batch: &mut Vec<Transfer>,
    ) -> u64 {
        let counters = &self.desk.counters;
        counters.requests.fetch_add(1, Ordering::Relaxed);
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let len = request.len();
        let admitted = self.admit(&request, len, batch);
        let Request { op, file, offset, leases, atomic } = request;
        match admitted {
            Ok(Admitted::InFlight(sync)) => batch.push(Transfer {
                id,
                op,
                file,
                offset,
                leases,
                len,
                done: 0,
                limit: None,
                atomic,
                idle_attempts: 0,
                sync,
                recipient,
            }),
            Ok(Admitted::NothingToDo) => recipient.tell(Completed { leases, result: Ok(()) }),
            Err(error) => {
                counters.failed.fetch_add(1, Ordering::Relaxed);
                recipient.tell(Completed { leases, result: Err(error) });
            }
        }
        id
    }

    /// Checks a request and books a place for it.
    fn admit(
        &self,
        request: &Request,
        len: u64,
        batch: &mut Vec<Transfer>,
    ) -> Result<Admitted, Error> {
        self.check_open()?;
        self.check_served(request)?;
        check(request, len)?;
        if len == 0 && request.op.moves_data() {
            return Ok(Admitted::NothingToDo);
        }
        self.enter(batch);
        // Again, now that the place is booked: a closing thread has either seen this place taken
        // and waits for it, or has closed the queue before this look.
        let sync = self.check_open().and_then(|()| {
            let by_kernel = matches!(self.backend.kind(), Kind::Uring | Kind::Aio);
            let syncs = !request.op.moves_data();
            (syncs && by_kernel).then(|| request.file.begin_sync()).transpose()
        });
        if sync.is_err() {
            self.desk.leave();
        }
        sync.map(Admitted::InFlight)
    }

    fn check_open(&self) -> Result<(), Error> {
        if self.closed.load(Ordering::SeqCst) { Err(Error::Closed) } else { Ok(()) }
    }

    /// Refuses files of a cache mode that the backend does not serve.
    fn check_served(&self, request: &Request) -> Result<(), Error> {
        let backend = self.backend.kind();
        if backend.serves(request.file.cache_mode()) {
            return Ok(());
        }
        Err(Error::Unavailable { backend, why: Refusal::buffered(backend) })
    }

    /// Books a place, first starting what the caller has booked but not started: waiting for room
    /// while holding places that nobody works on would be a deadlock.
    fn enter(&self, batch: &mut Vec<Transfer>) {
        if self.desk.try_enter() {
            return;
        }
        self.start(batch);
        self.desk.counters.held_back.fetch_add(1, Ordering::Relaxed);
        let _registered = self.desk.room.register();
        while !self.desk.try_enter() {
            self.wait_until(None, &|| self.desk.has_room());
        }
    }

    pub(crate) fn start(&self, batch: &mut Vec<Transfer>) {
        if batch.is_empty() {
            return;
        }
        self.backend.start(batch);
        if self.backend.kind() == Kind::Sync {
            // What `sync` was given runs when somebody drives. Threads that came before it was
            // there, and found nothing to carry out, sleep.
            self.desk.room.wake_one();
            self.desk.drained.wake_one();
            self.desk.sleepers.wake_one();
        }
    }

    /// Sleeps or drives until `satisfied`, see the module's documentation.
    pub(crate) fn wait_until(&self, id: Option<u64>, satisfied: &dyn Fn() -> bool) {
        if satisfied() {
            return;
        }
        let registered = self.desk.sleepers.register();
        let mut self_driven = false;
        while !satisfied() {
            match self.backend.drive(&Want { id, satisfied, block: true }) {
                Driven::Progress => {}
                Driven::SelfDriven => {
                    self_driven = true;
                    thread::park();
                }
                Driven::OtherDrives | Driven::Nothing => thread::park(),
            }
        }
        drop(registered);
        if !self_driven {
            // This thread may have been the one that drives, or have been woken to become it.
            self.desk.sleepers.wake_one();
        }
    }

    /// Hands out what has finished already, without sleeping.
    pub(crate) fn poll(&self, id: Option<u64>) {
        self.backend.drive(&Want { id, satisfied: &|| false, block: false });
        // Whoever tried to drive meanwhile was told that another thread does, and went to sleep.
        self.desk.sleepers.wake_one();
    }

    fn drain(&self) {
        let _registered = self.desk.drained.register();
        self.wait_until(None, &|| self.desk.in_flight() == 0);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.drain();
        assert_eq!(self.desk.in_flight(), 0, "[IO-1] requests were left unanswered");
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Shared").field("backend", &self.backend).finish_non_exhaustive()
    }
}

/// A request that has passed the checks.
enum Admitted {
    /// It has a place in the queue; a sync that the kernel runs is noted at its file.
    InFlight(Option<RunningSync>),
    /// There are no bytes to move.
    NothingToDo,
}

/// What can be known to be wrong before the system is asked.
fn check(request: &Request, len: u64) -> Result<(), Error> {
    let file = &request.file;
    if request.op != Op::Read {
        file.check_writable(request.op)?;
    }
    let end = request.offset.checked_add(len).filter(|&end| i64::try_from(end).is_ok());
    if end.is_none() {
        return Err(Error::TooLarge {
            file: file.path_shared(),
            end: request.offset.saturating_add(len),
        });
    }
    if request.atomic && request.op == Op::Write {
        file.check_atomic(request.offset, len, request.leases.len())?;
    }
    if file.cache_mode() == CacheMode::Buffered {
        return Ok(());
    }
    let alignment = file.alignment();
    let aligned = |what, value: u64, required: u32| {
        if value.is_multiple_of(u64::from(required)) {
            return Ok(());
        }
        let required = u64::from(required);
        Err(Error::Misaligned { file: file.path_shared(), what, value, required })
    };
    aligned(Part::Offset, request.offset, alignment.offset)?;
    request.leases.iter().try_for_each(|lease| {
        aligned(Part::Length, lease.len() as u64, alignment.offset)?;
        aligned(Part::Memory, lease.as_ptr() as u64, alignment.memory)
    })
}
