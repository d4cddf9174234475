//! State shared by the handles and tickets of one queue: checks and accepts requests, and lets threads wait and
//! drive.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use crate::answer::{Completed, Recipient};
use crate::backend::{Attempt, Backend, Driven, Report, Want};
use crate::completion::Completions;
use crate::error::{Error, Part};
use crate::file::RunningSync;
use crate::kind::{Kind, Refusal};
use crate::op::Op;
use crate::owner::Owner;
use crate::properties::CacheMode;
use crate::request::{Request, Transfer};

/// State shared by the handles and tickets of one queue.
pub(crate) struct Shared {
    /// `None` only while being dropped.
    backend: Option<Box<dyn Backend>>,
    owner: Owner,
    pub(crate) completions: Arc<Completions>,
    pub(crate) report: Report,
    pub(crate) closed: AtomicBool,
    pub(crate) next_id: AtomicU64,
}

impl Shared {
    pub(crate) fn new(
        backend: Box<dyn Backend>,
        completions: Arc<Completions>,
        report: Report,
    ) -> Shared {
        Shared {
            backend: Some(backend),
            owner: Owner::this(),
            completions,
            report,
            closed: AtomicBool::new(false),
            next_id: AtomicU64::new(0),
        }
    }

    pub(crate) fn backend(&self) -> &dyn Backend {
        &**self.backend.as_ref().expect("taken only while being dropped")
    }

    /// Whether this process is a child of the one that opened the queue: the queue must not be used then.
    pub(crate) fn is_inherited(&self) -> bool {
        !self.owner.is_this()
    }

    /// Adds a transfer to `batch` unless the request can be answered at once. Returns its number. Uses one of the
    /// `booked` slots, if the request needs a slot and one is left.
    pub(crate) fn accept(
        &self,
        request: Request,
        recipient: Recipient,
        batch: &mut Vec<Transfer>,
        booked: &mut usize,
    ) -> u64 {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        match self.begin(id, request, recipient, batch, booked) {
            Ok(transfer) => batch.push(transfer),
            Err((recipient, completed)) => recipient.deliver(completed),
        }
        id
    }

    /// Executes a request on this thread, attempt by attempt.
    pub(crate) fn execute(&self, request: Request, attempt: Attempt) -> Completed {
        // No recipient: the answer is returned.
        let recipient = Recipient::Then(Box::new(drop));
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        match self.begin(id, request, recipient, &mut Vec::new(), &mut 0) {
            Ok(transfer) => self.completions.execute(transfer, attempt),
            Err((_, completed)) => completed,
        }
    }

    /// Turns a request into a transfer, unless it is answered at once: then returns the recipient and the answer.
    fn begin(
        &self,
        id: u64,
        request: Request,
        recipient: Recipient,
        batch: &mut Vec<Transfer>,
        booked: &mut usize,
    ) -> Result<Transfer, (Recipient, Completed)> {
        self.completions.counters.requests.fetch_add(1, Ordering::Relaxed);
        let len = request.len();
        let admitted = self.admit(&request, len, batch, booked);
        let Request { op, file, offset, leases, atomic } = request;
        let result = match admitted {
            Ok(Admitted::InFlight(sync)) => {
                return Ok(Transfer {
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
                    refused_by: None,
                    sync,
                    recipient,
                });
            }
            Ok(Admitted::NothingToDo) => Ok(()),
            Err(error) => Err(error),
        };
        self.completions.count_failure(&result);
        Err((recipient, Completed { leases, result }))
    }

    /// Checks a request and reserves a slot for it.
    fn admit(
        &self,
        request: &Request,
        len: u64,
        batch: &mut Vec<Transfer>,
        booked: &mut usize,
    ) -> Result<Admitted, Error> {
        if self.is_inherited() {
            return Err(Error::Forked);
        }
        self.check_open()?;
        self.check_served(request)?;
        check(request, len)?;
        if len == 0 && request.op.moves_data() {
            return Ok(Admitted::NothingToDo);
        }
        match booked.checked_sub(1) {
            Some(left) => *booked = left,
            None => self.acquire_place(batch),
        }
        // Check again, now that the slot is reserved: a closing thread has either seen this slot in use and waits for
        // it, or has closed the queue before this check.
        let sync = self.check_open().and_then(|()| {
            let by_kernel = matches!(self.backend().kind(), Kind::Uring | Kind::Aio);
            let syncs = !request.op.moves_data();
            (syncs && by_kernel).then(|| request.file.begin_sync()).transpose()
        });
        if sync.is_err() {
            self.completions.release_place();
        }
        sync.map(Admitted::InFlight)
    }

    pub(crate) fn check_open(&self) -> Result<(), Error> {
        if self.closed.load(Ordering::SeqCst) { Err(Error::Closed) } else { Ok(()) }
    }

    /// Refuses files of a cache mode that the backend does not serve.
    pub(crate) fn check_served(&self, request: &Request) -> Result<(), Error> {
        let backend = self.backend().kind();
        if backend.serves(request.file.cache_mode()) {
            return Ok(());
        }
        Err(Error::Unavailable { backend, why: Refusal::buffered(backend) })
    }

    /// Reserves a slot. First starts the transfers that the caller has accepted but not started: waiting for room
    /// while holding slots that no thread works on would deadlock.
    pub(crate) fn acquire_place(&self, batch: &mut Vec<Transfer>) {
        if self.completions.try_acquire_place() {
            return;
        }
        self.start(batch);
        self.completions.counters.held_back.fetch_add(1, Ordering::Relaxed);
        let _registered = self.completions.room.register();
        while !self.completions.try_acquire_place() {
            self.wait_until(None, &|| self.completions.has_room());
        }
    }

    pub(crate) fn start(&self, batch: &mut Vec<Transfer>) {
        if batch.is_empty() {
            return;
        }
        self.backend().start(batch);
        if self.backend().kind() == Kind::Sync {
            // The requests of `sync` run when a thread drives. Threads that drove before these requests were added
            // found nothing to execute, and sleep.
            self.completions.room.wake_one();
            self.completions.drained.wake_one();
            self.completions.sleepers.wake_one();
        }
    }

    /// Sleeps or drives until `satisfied` returns true, see the module's documentation. Returns at once in a child
    /// process.
    pub(crate) fn wait_until(&self, id: Option<u64>, satisfied: &dyn Fn() -> bool) {
        if satisfied() || self.is_inherited() {
            return;
        }
        let registered = self.completions.sleepers.register();
        let mut self_driven = false;
        while !satisfied() {
            match self.backend().drive(&Want { id, satisfied, block: true }) {
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
            // This thread may have been the driver, or may have been woken to become the driver.
            self.completions.sleepers.wake_one();
        }
    }

    /// Delivers the results of finished requests, without sleeping.
    pub(crate) fn poll(&self, id: Option<u64>) {
        if self.is_inherited() {
            return;
        }
        self.backend().drive(&Want { id, satisfied: &|| false, block: false });
        // A thread that tried to drive meanwhile found that another thread was driving, and went to sleep.
        self.completions.sleepers.wake_one();
    }

    pub(crate) fn drain(&self) {
        if self.is_inherited() {
            return;
        }
        let _registered = self.completions.drained.register();
        self.wait_until(None, &|| self.completions.in_flight() == 0);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if self.is_inherited() {
            // The threads, rings and requests belong to the parent.
            return std::mem::forget(self.backend.take());
        }
        self.drain();
        assert_eq!(self.completions.in_flight(), 0, "[IO-1] requests were left unanswered");
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Shared").field("backend", self.backend()).finish_non_exhaustive()
    }
}

/// A request that has passed the checks.
enum Admitted {
    /// It has a slot in the queue; a sync that the kernel runs is registered with its file.
    InFlight(Option<RunningSync>),
    /// There are no bytes to move.
    NothingToDo,
}

/// Finds errors that need no system call.
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
