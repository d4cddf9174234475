//! The `aio` backend: Linux native AIO, for direct files where io_uring is forbidden.
//!
//! Containers that forbid io_uring nearly always allow `io_submit`. It is asynchronous for direct transfers only (the
//! kernel would execute a buffered one inside the submission). Even then the submission may block where the filesystem
//! must first allocate or look up blocks; this is a limit of the kernel, and another reason to prefer `uring`.
//!
//! Invariants:  [AIO-1] an iocb handed to the kernel has its transfer in `in_flight`
//! Concurrency: any thread submits; one thread at a time waits in the kernel (`reap`).
//! Failure:     a transfer that the kernel refuses is answered with its error at once.
//! Source:      io_setup(2), io_submit(2), io_getevents(2), linux/aio_abi.h for the layout.
#![expect(unsafe_code, reason = "the kernel's own system calls, which no crate wraps")]

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::Duration;

use super::in_flight::InFlight;
use super::{Backend, Driven, Kind, Next, Refusal, Sink, Want};
use crate::op::Op;
use crate::os_error::OsError;
use crate::request::Transfer;

/// Maximum number of completions taken from the kernel in one call.
const REAP_BATCH: usize = 64;

/// Longest sleep in the kernel, in nanoseconds. A submission that fails, or that must first make room in the kernel,
/// answers requests outside of `reap`; a thread that sleeps in the kernel must then check again on its own. Anything
/// else wakes it at once.
const SLEEP_NS_MAX: libc::c_long = 100_000_000;

/// Pause before the next check when the kernel cannot be queried any more.
const PAUSE: Duration = Duration::from_millis(1);

const IOCB_CMD_FSYNC: u16 = 2;
const IOCB_CMD_FDSYNC: u16 = 3;
const IOCB_CMD_PREADV: u16 = 7;
const IOCB_CMD_PWRITEV: u16 = 8;

/// `struct iocb` of linux/aio_abi.h.
#[repr(C)]
#[derive(Debug, Default)]
struct Iocb {
    data: u64,
    #[cfg(target_endian = "little")]
    key: u32,
    rw_flags: i32,
    #[cfg(target_endian = "big")]
    key: u32,
    opcode: u16,
    priority: i16,
    descriptor: u32,
    buffer: u64,
    count: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    eventfd: u32,
}

/// `struct io_event` of linux/aio_abi.h.
#[repr(C)]
#[derive(Debug, Default, Clone, Copy)]
struct IoEvent {
    data: u64,
    iocb: u64,
    result: i64,
    result2: i64,
}

pub(super) struct AioBackend {
    context: Context,
    capacity: usize,
    reap: Mutex<()>,
    in_flight: Mutex<InFlight>,
    sink: Arc<dyn Sink>,
}

impl AioBackend {
    pub(super) fn open(capacity: usize, sink: Arc<dyn Sink>) -> Result<AioBackend, Refusal> {
        let context =
            Context::new(capacity).map_err(|error| Refusal::os(Kind::Aio, "io_setup", error))?;
        Ok(AioBackend {
            context,
            capacity,
            reap: Mutex::new(()),
            in_flight: Mutex::new(InFlight::new(capacity)),
            sink,
        })
    }

    fn push(&self, transfers: impl Iterator<Item = Transfer>) {
        let mut iocbs: Vec<Iocb> = Vec::new();
        {
            let mut in_flight = lock(&self.in_flight);
            for transfer in transfers {
                let index = in_flight.insert(transfer);
                iocbs.push(control_block(&in_flight, index));
            }
        }
        let mut start = 0;
        while start < iocbs.len() {
            match self.context.submit(&mut iocbs[start..]) {
                Ok(taken) => start += taken,
                Err(OsError::EINTR | OsError::EAGAIN) => {
                    // The kernel is short of request structures; completions free them. Collected without `reap`: this
                    // thread will not stay to hand it over.
                    self.reap_available(0);
                    thread::yield_now();
                }
                Err(error) => {
                    // The error is for the first block of the slice; the kernel has not examined the others.
                    let mut transfer = lock(&self.in_flight).remove(iocbs[start].data as u32);
                    transfer.refused_by = Some(Kind::Aio);
                    start += 1;
                    if let Next::Again(rest) = self.sink.finished(transfer, Err(error)) {
                        self.push(std::iter::once(rest));
                    }
                }
            }
        }
    }

    /// Hands completions to the sink, sleeping for at most [`SLEEP_NS_MAX`] until there are `least`. Returns the number
    /// of completions.
    fn reap_available(&self, least: usize) -> usize {
        let mut events = [IoEvent::default(); REAP_BATCH];
        let count = self.context.events(least, &mut events).unwrap_or_else(|error| {
            if error != OsError::EINTR {
                // Cannot happen for our own context, unless a filter forbids it.
                tracing::debug!(%error, "io_getevents");
                thread::sleep(PAUSE);
            }
            0
        });
        let mut again = Vec::new();
        for event in &events[..count] {
            let transfer = lock(&self.in_flight).remove(event.data as u32);
            let result = u64::try_from(event.result)
                .map_err(|_| OsError::from_raw(i32::try_from(-event.result).unwrap_or(libc::EIO)));
            if let Next::Again(rest) = self.sink.finished(transfer, result) {
                again.push(rest);
            }
        }
        if !again.is_empty() {
            self.push(again.into_iter());
        }
        count
    }
}

impl Backend for AioBackend {
    fn kind(&self) -> Kind {
        Kind::Aio
    }

    fn capacity(&self) -> usize {
        self.capacity
    }

    fn start(&self, transfers: &mut Vec<Transfer>) {
        self.push(transfers.drain(..));
    }

    fn drive(&self, want: &Want<'_>) -> Driven {
        let _reap = match self.reap.try_lock() {
            Ok(reap) => reap,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                return if want.block { Driven::OtherDrives } else { Driven::Nothing };
            }
        };
        if want.block && (want.satisfied)() {
            return Driven::Progress;
        }
        match self.reap_available(usize::from(want.block)) {
            0 if !want.block => Driven::Nothing,
            _ => Driven::Progress,
        }
    }
}

impl std::fmt::Debug for AioBackend {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("AioBackend").field("capacity", &self.capacity).finish_non_exhaustive()
    }
}

impl Drop for AioBackend {
    fn drop(&mut self) {
        assert!(lock(&self.in_flight).is_empty(), "[AIO-1] closed with transfers in the kernel");
    }
}

fn control_block(in_flight: &InFlight, index: u32) -> Iocb {
    let (transfer, vectors) = in_flight.get(index);
    let opcode = match transfer.op() {
        Op::Read => IOCB_CMD_PREADV,
        Op::Write => IOCB_CMD_PWRITEV,
        Op::SyncData => IOCB_CMD_FDSYNC,
        Op::SyncAll => IOCB_CMD_FSYNC,
    };
    let moves_data = transfer.op().moves_data();
    Iocb {
        data: u64::from(index),
        rw_flags: if transfer.is_atomic() { libc::RWF_ATOMIC } else { 0 },
        opcode,
        descriptor: transfer.descriptor_number().cast_unsigned(),
        buffer: if moves_data { vectors.as_ptr() as u64 } else { 0 },
        count: vectors.len() as u64,
        // The queue has checked that the end of the transfer fits in an i64.
        offset: transfer.position().cast_signed(),
        ..Iocb::default()
    }
}

/// A kernel AIO context, destroyed when dropped.
struct Context(libc::c_ulong);

impl Context {
    fn new(capacity: usize) -> Result<Context, OsError> {
        let mut context: libc::c_ulong = 0;
        // SAFETY: io_setup writes one context handle to the given address.
        let done = unsafe { libc::syscall(libc::SYS_io_setup, capacity, &raw mut context) };
        answer(done).map(|_| Context(context))
    }

    /// Submits control blocks in order; returns the number of accepted blocks, at least one.
    fn submit(&self, iocbs: &mut [Iocb]) -> Result<usize, OsError> {
        let mut pointers: Vec<*mut Iocb> = iocbs.iter_mut().map(|iocb| &raw mut *iocb).collect();
        // SAFETY: [AIO-1] every block names a descriptor, vectors and memory that the transfer in its slot owns until
        // its completion is reaped; the kernel copies the blocks and vectors before the call returns.
        let taken = unsafe {
            libc::syscall(libc::SYS_io_submit, self.0, pointers.len(), pointers.as_mut_ptr())
        };
        match answer(taken)? {
            0 => Err(OsError::EAGAIN),
            taken => Ok(taken),
        }
    }

    fn events(&self, least: usize, events: &mut [IoEvent]) -> Result<usize, OsError> {
        let mut patience = libc::timespec { tv_sec: 0, tv_nsec: SLEEP_NS_MAX };
        // SAFETY: the kernel writes at most `events.len()` events to the slice.
        let count = unsafe {
            libc::syscall(
                libc::SYS_io_getevents,
                self.0,
                least,
                events.len(),
                events.as_mut_ptr(),
                &raw mut patience,
            )
        };
        answer(count)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the handle was created by io_setup and is destroyed once; the kernel first waits for all requests in
        // the context.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.0) };
    }
}

fn answer(result: libc::c_long) -> Result<usize, OsError> {
    usize::try_from(result).map_err(|_| std::io::Error::last_os_error().into())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic under these locks is a broken invariant; a thread that continues finds the same one.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
