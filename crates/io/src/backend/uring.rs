//! The `uring` backend: io_uring, shared by all threads.
//!
//! Submitting fills entries under one lock and enters the kernel once for a whole batch. Reaping happens under another
//! lock, which is also held while its owner sleeps in the kernel; a thread that finds it taken sleeps on its own
//! ticket. Reaped completions are delivered after that lock is released: a continuation may be slow, for example when
//! it computes checksums, and other threads reap and deliver meanwhile. No kernel thread polls (SQPOLL would use a
//! processor while idle). Submissions come from any thread, which rules out IORING_SETUP_SINGLE_ISSUER and the deferred
//! task work that needs it; cooperative task work is ruled out as well, because a completion could then wait until its
//! submitter next enters the kernel.
//!
//! Invariants:  [URG-1] the submission queue is accessed, and submitted, only under `submit`; the completion queue is
//!              accessed only under `reap`
//!              [URG-2] an entry in the submission queue has its transfer in `in_flight`: any later submission may run
//!              it, even one after a failed submission
//!              [URG-3] a thread that has delivered completions wakes the thread that sleeps in the kernel at that
//!              time: the completion that thread waits for may have been among them
//! Lock order:  reap, then submit, then in_flight.
//! Failure:     if entering is forbidden later (a seccomp filter loaded after opening), transfers that the kernel never
//!              took are answered with that error and nothing is submitted again; transfers that it did take are still
//!              reaped. (Filters on only some of the threads are not supported.)
//! Source:      io_uring(7), io_uring_enter(2), io_uring_register(2).
#![expect(unsafe_code, reason = "the kernel reads and writes leased memory behind our back")]

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::Duration;

use io_uring::{IoUring, Probe, opcode, squeue, types};

use super::in_flight::InFlight;
use super::{Backend, Driven, Kind, Next, Refusal, Sink, Want};
use crate::memory::Mapping;
use crate::op::Op;
use crate::os_error::OsError;
use crate::request::Transfer;

/// Completions that one thread takes and delivers before it checks its own condition. Small, so that other threads can
/// take the following completions.
const REAP_BATCH: usize = 8;

/// Used instead of a slot number: not a transfer, but an entry that wakes the thread that sleeps in the kernel.
const WAKE: u32 = u32::MAX;

/// Largest buffer that the kernel registers as one, in bytes.
const REGISTERED_BYTES_MAX: usize = 1 << 30;

/// Flags of io_uring_enter(2): wait for completions, and take a [`WaitArgument`].
const IORING_ENTER_GETEVENTS: u32 = 1 << 0;
const IORING_ENTER_EXT_ARG: u32 = 1 << 3;

/// The error of a wait that timed out.
const TIMED_OUT: OsError = OsError::from_raw(libc::ETIME);

/// Longest sleep in the kernel. Some requests end without waking a thread in the kernel: a sync that is held back for
/// another queue's sync, and requests that are answered for a thread that may not enter any more. A thread that sleeps
/// there must then check again on its own. Anything else wakes it at once.
const SLEEP_MAX: Duration = Duration::from_millis(100);

/// `struct io_uring_getevents_arg`.
#[repr(C)]
#[derive(Default)]
struct WaitArgument {
    signal_mask: u64,
    signal_mask_bytes: u32,
    padding: u32,
    timespec: u64,
}

/// Pause before the next check when the kernel accepts nothing, or waiting in it is forbidden.
const PAUSE: Duration = Duration::from_millis(1);

pub(super) struct UringBackend {
    uring: IoUring,
    capacity: usize,
    /// Queued slots, or [`WAKE`], that the kernel has not consumed yet as far as is known, oldest first.
    submit: Mutex<VecDeque<u32>>,
    reap: Mutex<()>,
    /// The thread that holds `reap` sleeps in the kernel, or is about to check whether it must.
    is_sleeping: AtomicBool,
    in_flight: Mutex<InFlight>,
    registered: Option<Registered>,
    /// The number of the error with which entering the kernel failed permanently, or 0. Set under `submit`; from then
    /// on the submission queue is not accessed.
    broken: AtomicI32,
    sink: Arc<dyn Sink>,
}

/// The addresses of memory that the kernel keeps pinned for this uring.
struct Registered {
    addresses: Range<usize>,
    /// Kept alive so that the addresses always refer to this memory.
    _memory: Arc<Mapping>,
}

impl UringBackend {
    pub(super) fn open(capacity: usize, sink: Arc<dyn Sink>) -> Result<UringBackend, Refusal> {
        // One more, for the entry that wakes a thread in the kernel.
        let entries = u32::try_from(capacity + 1).unwrap_or(u32::MAX);
        let refused = |step| move |error: io::Error| Refusal::os(Kind::Uring, step, error.into());
        let uring: IoUring = IoUring::builder()
            .setup_clamp()
            .dontfork()
            .build(entries)
            .map_err(refused("io_uring_setup"))?;
        let mut probe = Probe::new();
        uring.submitter().register_probe(&mut probe).map_err(refused("io_uring_register"))?;
        let needed = [
            (opcode::Read::CODE, "IORING_OP_READ"),
            (opcode::Write::CODE, "IORING_OP_WRITE"),
            (opcode::Readv::CODE, "IORING_OP_READV"),
            (opcode::Writev::CODE, "IORING_OP_WRITEV"),
            (opcode::Fsync::CODE, "IORING_OP_FSYNC"),
        ];
        for (code, name) in needed {
            if !probe.is_supported(code) {
                return Err(Refusal::os(Kind::Uring, name, OsError::EOPNOTSUPP));
            }
        }
        let features = [
            // Without it a full completion queue loses completions, and with them memory.
            (uring.params().is_feature_nodrop(), "IORING_FEAT_NODROP"),
            // Without it a sleep cannot be bounded.
            (uring.params().is_feature_ext_arg(), "IORING_FEAT_EXT_ARG"),
        ];
        if let Some((_, missing)) = features.into_iter().find(|(present, _)| !present) {
            return Err(Refusal::os(Kind::Uring, missing, OsError::EOPNOTSUPP));
        }
        Ok(UringBackend {
            uring,
            capacity,
            submit: Mutex::new(VecDeque::with_capacity(capacity)),
            reap: Mutex::new(()),
            is_sleeping: AtomicBool::new(false),
            in_flight: Mutex::new(InFlight::new(capacity)),
            registered: None,
            broken: AtomicI32::new(0),
            sink,
        })
    }

    /// Registers `memory`, so that requests on it skip pinning its pages each time.
    pub(super) fn register(&mut self, memory: &Arc<Mapping>) -> Result<(), OsError> {
        let addresses = memory.addresses();
        let vectors: Vec<libc::iovec> = addresses
            .clone()
            .step_by(REGISTERED_BYTES_MAX)
            .map(|start| libc::iovec {
                iov_base: std::ptr::with_exposed_provenance_mut(start),
                iov_len: (addresses.end - start).min(REGISTERED_BYTES_MAX),
            })
            .collect();
        // SAFETY: the addresses are those of a live mapping, which `Registered` keeps alive as long as the ring; the
        // kernel writes there only for transfers that lease those bytes.
        unsafe { self.uring.submitter().register_buffers(&vectors)? };
        self.registered = Some(Registered { addresses, _memory: Arc::clone(memory) });
        Ok(())
    }

    /// The index of the registered buffer that contains all of `start..start + len`.
    fn registered_index(&self, start: usize, len: usize) -> Option<u16> {
        let addresses = &self.registered.as_ref()?.addresses;
        let end = start.checked_add(len)?;
        if start < addresses.start || end > addresses.end {
            return None;
        }
        let first = (start - addresses.start) / REGISTERED_BYTES_MAX;
        let last = (end - 1 - addresses.start) / REGISTERED_BYTES_MAX;
        if first == last { u16::try_from(first).ok() } else { None }
    }

    fn entry(&self, in_flight: &InFlight, index: u32) -> squeue::Entry {
        let (transfer, vectors) = in_flight.get(index);
        let file = types::Fd(transfer.descriptor_number());
        let position = transfer.position();
        let flags = if transfer.is_atomic() { libc::RWF_ATOMIC } else { 0 };
        let entry = match (transfer.op(), vectors) {
            (Op::SyncData, _) => {
                opcode::Fsync::new(file).flags(types::FsyncFlags::DATASYNC).build()
            }
            (Op::SyncAll, _) => opcode::Fsync::new(file).build(),
            (op, [one]) => {
                let start = one.iov_base.cast::<u8>();
                let len = u32::try_from(one.iov_len).unwrap_or(u32::MAX);
                match (op, self.registered_index(start as usize, len as usize)) {
                    (Op::Read, Some(buffer)) => {
                        opcode::ReadFixed::new(file, start, len, buffer).offset(position).build()
                    }
                    (Op::Read, None) => {
                        opcode::Read::new(file, start, len).offset(position).build()
                    }
                    (_, Some(buffer)) => {
                        let write = opcode::WriteFixed::new(file, start, len, buffer);
                        write.offset(position).rw_flags(flags).build()
                    }
                    (_, None) => {
                        let write = opcode::Write::new(file, start, len);
                        write.offset(position).rw_flags(flags).build()
                    }
                }
            }
            (op, many) => {
                let count = many.len() as u32; // at most SEGMENTS_MAX
                if op == Op::Read {
                    opcode::Readv::new(file, many.as_ptr(), count).offset(position).build()
                } else {
                    let write = opcode::Writev::new(file, many.as_ptr(), count);
                    write.offset(position).rw_flags(flags).build()
                }
            }
        };
        entry.user_data(u64::from(index))
    }

    /// Queues transfers and enters the kernel once for all of them.
    fn push(&self, transfers: impl Iterator<Item = Transfer>) {
        let mut queued = lock(&self.submit);
        if let Some(error) = self.broken() {
            drop(queued);
            transfers.for_each(|transfer| self.refuse(transfer, error));
            return;
        }
        {
            let mut in_flight = lock(&self.in_flight);
            // SAFETY: [URG-1] `submit` is locked, and this queue is dropped before it is unlocked.
            let mut queue = unsafe { self.uring.submission_shared() };
            for transfer in transfers {
                let index = in_flight.insert(transfer);
                let entry = self.entry(&in_flight, index);
                // SAFETY: [URG-2] the descriptor, the memory and the vectors that the entry names belong to the
                // transfer in slot `index`, which stays there until completion.
                let pushed = unsafe { queue.push(&entry) };
                // The uring has at least `capacity` entries, and every entry that the kernel has not consumed is one of
                // the transfers in flight.
                pushed.expect("[CMP-2] the submission queue has room for every transfer");
                queued.push_back(index);
            }
        }
        self.submit_queued(queued);
    }

    /// Enters the kernel to submit the queued entries; returns true when none is left.
    ///
    /// The only place that submits, and always under `submit`: entries that [`Self::give_up`] withdraws can therefore
    /// not be on their way to the kernel through another thread. After a transient refusal, entries stay queued for the
    /// next thread that calls this.
    fn submit_queued(&self, mut queued: MutexGuard<'_, VecDeque<u32>>) -> bool {
        if queued.is_empty() {
            return true;
        }
        let submitted = self.uring.submitter().submit().map_err(OsError::from);
        {
            // SAFETY: [URG-1] `submit` is locked, and this queue is dropped before it is unlocked.
            let queue = unsafe { self.uring.submission_shared() };
            forget_consumed(&mut queued, &queue);
        }
        match submitted {
            Ok(_) | Err(OsError::EINTR | OsError::EAGAIN | OsError::EBUSY) => queued.is_empty(),
            Err(error) => {
                self.give_up(error, queued);
                true
            }
        }
    }

    /// Sleeps in the kernel until there is a completion, or for [`SLEEP_MAX`].
    fn sleep(&self) {
        if self.broken().is_none() {
            let patience = types::Timespec::from(SLEEP_MAX);
            let argument =
                WaitArgument { timespec: &raw const patience as u64, ..Default::default() };
            let flags = IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG;
            // SAFETY: nothing is submitted; the argument has the kernel's layout, and it and the timespec that it
            // points to outlive the call.
            let slept = unsafe { self.uring.submitter().enter(0, 1, flags, Some(&argument)) };
            match slept.map_err(OsError::from) {
                Err(error) if !error.passes() && error != OsError::EBUSY && error != TIMED_OUT => {
                    // Forbidden now. Completions still arrive in shared memory.
                    tracing::debug!(%error, "cannot wait in io_uring");
                }
                _ => return,
            }
        }
        thread::sleep(PAUSE);
    }

    /// Called when the kernel will not be entered again: answers every transfer that it never took.
    fn give_up(&self, error: OsError, mut queued: MutexGuard<'_, VecDeque<u32>>) {
        self.broken.store(error.raw(), Ordering::SeqCst);
        let mut in_flight = lock(&self.in_flight);
        let orphans = queued.drain(..).filter(|&index| index != WAKE);
        let orphans: Vec<_> = orphans.map(|index| in_flight.remove(index)).collect();
        drop((in_flight, queued));
        tracing::error!(%error, orphans = orphans.len(), "io_uring can no longer be entered");
        orphans.into_iter().for_each(|transfer| self.refuse(transfer, error));
    }

    fn broken(&self) -> Option<OsError> {
        let raw = self.broken.load(Ordering::SeqCst);
        (raw != 0).then(|| OsError::from_raw(raw))
    }

    /// Answers a transfer that the kernel will never see.
    fn refuse(&self, mut transfer: Transfer, error: OsError) {
        transfer.refused_by = Some(Kind::Uring);
        // An answer that requests another attempt gets the same error until it is final.
        let mut next = self.sink.finished(transfer, Err(error));
        while let Next::Again(transfer) = next {
            next = self.sink.finished(transfer, Err(error));
        }
    }

    /// Takes completions out of the queue and, after releasing `reap`, hands them to the sink. Returns the number of
    /// completions, and `reap` if there were none.
    fn reap_some<'a>(&'a self, reap: MutexGuard<'a, ()>) -> (usize, Option<MutexGuard<'a, ()>>) {
        let mut batch = [(0_u32, 0_i32); REAP_BATCH];
        let mut count = 0;
        {
            // SAFETY: [URG-1] `reap` is held, and this queue is dropped before it is released.
            let queue = unsafe { self.uring.completion_shared() };
            for (place, entry) in batch.iter_mut().zip(queue) {
                // Only slot numbers of 32 bits are ever stored.
                *place = (entry.user_data() as u32, entry.result());
                count += 1;
            }
        }
        if count == 0 {
            return (0, Some(reap));
        }
        drop(reap);
        let mut again = Vec::new();
        for &(index, result) in batch[..count].iter().filter(|it| it.0 != WAKE) {
            let transfer = lock(&self.in_flight).remove(index);
            let result = u64::try_from(result).map_err(|_| OsError::from_raw(-result));
            if let Next::Again(rest) = self.sink.finished(transfer, result) {
                again.push(rest);
            }
        }
        if !again.is_empty() {
            self.push(again.into_iter());
        }
        if self.is_sleeping.swap(false, Ordering::SeqCst) {
            self.wake(); // [URG-3]
        }
        (count, None)
    }

    /// Wakes the thread that sleeps in the kernel, by a completion. If the kernel accepts nothing now, that thread
    /// checks again on its own, after [`SLEEP_MAX`].
    fn wake(&self) {
        let mut queued = lock(&self.submit);
        if self.broken().is_none() && queued.is_empty() {
            let entry = opcode::Nop::new().build().user_data(u64::from(WAKE));
            // SAFETY: [URG-1] `submit` is locked, and this queue is dropped before it is unlocked.
            let mut queue = unsafe { self.uring.submission_shared() };
            // The entry may stay there for a while, and every transfer still must find room.
            let has_room = queue.capacity() > self.capacity;
            // SAFETY: the entry names no memory and no descriptor.
            if has_room && unsafe { queue.push(&entry) }.is_ok() {
                queued.push_back(WAKE);
            }
        }
        self.submit_queued(queued);
    }
}

impl Backend for UringBackend {
    fn kind(&self) -> Kind {
        Kind::Uring
    }

    fn capacity(&self) -> usize {
        self.capacity
    }

    fn start(&self, transfers: &mut Vec<Transfer>) {
        self.push(transfers.drain(..));
    }

    fn drive(&self, want: &Want<'_>) -> Driven {
        let mut progress = Driven::Nothing;
        loop {
            let reap = match self.reap.try_lock() {
                Ok(reap) => reap,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) if want.block => return Driven::OtherDrives,
                Err(TryLockError::WouldBlock) => return progress,
            };
            let (count, reap) = self.reap_some(reap);
            let Some(_reap) = reap else {
                progress = Driven::Progress;
                if want.block || count < REAP_BATCH {
                    return progress;
                }
                continue;
            };
            if !want.block {
                self.submit_queued(lock(&self.submit));
                return progress;
            }
            // Set before the check: a thread that makes the condition true afterwards sees the flag, and no other
            // thread reaps while this one holds `reap`. So the condition cannot become true unnoticed while this thread
            // is about to sleep.
            self.is_sleeping.swap(true, Ordering::SeqCst);
            if (want.satisfied)() {
                self.is_sleeping.store(false, Ordering::SeqCst);
                return Driven::Progress;
            }
            if self.submit_queued(lock(&self.submit)) {
                self.sleep();
            } else {
                // The kernel is short of resources. Do not sleep for entries that it has not accepted.
                thread::sleep(PAUSE);
            }
            self.is_sleeping.store(false, Ordering::SeqCst);
        }
    }
}

impl std::fmt::Debug for UringBackend {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("UringBackend")
            .field("capacity", &self.capacity)
            .field("registered", &self.registered.is_some())
            .finish_non_exhaustive()
    }
}

impl Drop for UringBackend {
    fn drop(&mut self) {
        let mut in_flight = lock(&self.in_flight);
        if !in_flight.is_empty() {
            // A caller that dropped this with transfers in flight has broken the contract. The kernel may still write
            // to their memory, so it is never given back.
            std::mem::forget(std::mem::replace(&mut *in_flight, InFlight::new(0)));
            drop(in_flight);
            panic!("[URG-2] the uring backend was dropped with transfers in it");
        }
    }
}

/// Removes from `queued` the entries that the kernel has consumed: it takes entries in order.
fn forget_consumed(queued: &mut VecDeque<u32>, queue: &squeue::SubmissionQueue<'_>) {
    let consumed = queued.len().checked_sub(queue.len());
    let consumed = consumed.expect("[URG-1] every entry in the queue was put there under `submit`");
    queued.drain(..consumed);
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic under these locks is a broken invariant; a thread that continues finds the same one.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
