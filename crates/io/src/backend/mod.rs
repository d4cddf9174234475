//! Backends: how transfers are executed, and the contract that all backends obey.
//!
//! A backend moves bytes between a file and leased memory; [`Io`](crate::Io) does everything else (limits, short
//! transfers, retries, errors, waiting) for all of them. The following holds for every backend and both cache modes,
//! and `tests/conformance` checks each clause on each of them.
//!
//! # The contract, as seen through [`Io`](crate::Io)
//!
//! **Alignment.** A buffered file has no requirement. On a direct file the offset, the length of each lease and the
//! address of each lease are multiples of the values that [`File::alignment`](crate::File::alignment) returns; a
//! request that breaks this ends in [`Error::Misaligned`](crate::Error::Misaligned) and nothing is transferred.
//!
//! **Ordering.** Requests in flight are not ordered, regardless of their order of submission. Two overlapping writes in
//! flight leave the bytes of either, perhaps mixed at the granularity of a sector. A request that is submitted after
//! the completion of another was observed sees its effect.
//!
//! **Short transfers.** A completed request moved all requested bytes. The system may move fewer bytes in one call; the
//! rest is then requested again, up to the end of the file, which is [`Error::PastEnd`](crate::Error::PastEnd) and says
//! how many bytes are valid. Interrupted, temporarily refused and cancelled attempts (EINTR, EAGAIN, ECANCELED) are
//! repeated, a bounded number of times.
//!
//! **Durability.** A completed write is visible to every later read through a file of the same
//! mode; it is durable only after a sync that was *submitted after* the write completed. A failed
//! sync latches its file: later writes and syncs fail with
//! [`Error::Failed`](crate::Error::Failed), because Linux drops the dirty pages of a failed
//! writeback and would report success the second time.
//!
//! **Atomic writes.** A [`Request::atomic`](crate::Request::atomic) write goes to the kernel in one piece. The kernel
//! executes it entirely or refuses it, and it is never continued. If the file is not proven to support such writes, it
//! ends in [`Error::Unsupported`](crate::Error::Unsupported) before it starts.
//!
//! **Cancellation.** Not supported. Dropping a ticket gives up the answer, not the transfer: it runs to its end, and
//! only then are its leases given back. A dropped write is still executed.
//!
//! **Back-pressure.** A backend holds at most `capacity` transfers. Submitting more blocks the submitter, which
//! meanwhile collects finished requests; no request is refused or lost.
//!
//! **Progress.** Transfers are in flight when `submit` returns, except on `sync`, which executes them when a thread
//! waits for them. Completions may stay undetected, and their leases in use, until some thread waits, polls, drains, or
//! submits to a full queue; no thread polls on its own, so an idle queue uses no processor time. Only `threads`
//! completes requests without this. Syncs of one file that overlap in the kernel (uring, aio) are answered when all of
//! them have ended, so two queues that sync one file at the same time must both be driven.
//!
//! **Closing.** Dropping the last handle waits for every transfer in flight.

#[cfg(all(test, target_os = "linux", not(forebay_portable)))]
mod atomic_tests;
mod blocking;
mod ladder;
mod sync;
mod threads;

#[cfg(all(target_os = "linux", not(forebay_portable)))]
mod aio;
#[cfg(all(target_os = "linux", not(forebay_portable)))]
mod in_flight;
#[cfg(all(target_os = "linux", not(forebay_portable)))]
mod uring;

use std::fmt;

pub use blocking::attempt;
pub(crate) use ladder::open;
pub use ladder::{Report, open_raw};

pub use crate::kind::{Kind, Refusal, UnknownKind};
pub use crate::request::Transfer;

use crate::os_error::OsError;

/// Receives finished transfers from a backend.
pub trait Sink: Send + Sync {
    /// Receives a finished attempt: `result` is the bytes it moved, or the system's error.
    ///
    /// Called once for each attempt, from any thread, and never while the kernel may still access the transfer's
    /// memory. The backend executes a returned [`Next::Again`] before anything else.
    fn finished(&self, transfer: Transfer, result: Result<u64, OsError>) -> Next;
}

/// What a backend does after [`Sink::finished`].
#[derive(Debug)]
#[must_use]
pub enum Next {
    /// Nothing; the request has been answered.
    Done,
    /// Start this attempt of the same request.
    Again(Transfer),
}

/// What a thread that calls [`Backend::drive`] waits for.
pub struct Want<'a> {
    /// The transfer that it waits for; `None` if any progress is enough.
    pub id: Option<u64>,
    /// Whether the awaited condition is true. Only completions change it.
    pub satisfied: &'a dyn Fn() -> bool,
    /// True to sleep until a transfer finishes, false to collect only finished transfers.
    pub block: bool,
}

impl fmt::Debug for Want<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Want").field("id", &self.id).field("block", &self.block).finish()
    }
}

/// Result of [`Backend::drive`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Driven {
    /// A transfer was handed to the sink, or nothing is left to wait for.
    Progress,
    /// Nothing has finished, and the caller did not request to sleep.
    Nothing,
    /// Another thread is driving. The caller may sleep: it is woken by its own completion or when the other thread
    /// leaves.
    OtherDrives,
    /// Threads of the backend deliver completions; no caller needs to drive.
    SelfDriven,
}

/// Executes one attempt at a transfer, blocking, as [`attempt`] does.
pub type Attempt = fn(&mut Transfer) -> Result<u64, OsError>;

/// Executes transfers. See the [module](self) for the contract.
///
/// An implementation receives at most [`capacity`](Backend::capacity) transfers at a time, already checked for
/// alignment, closing and latched files. Only syncs have no bytes.
pub trait Backend: Send + Sync + fmt::Debug {
    /// The kind of this backend.
    fn kind(&self) -> Kind;

    /// Maximum number of transfers that it holds at once.
    fn capacity(&self) -> usize;

    /// Takes all of `transfers`, leaving it empty, and starts them.
    ///
    /// Cannot fail: a transfer that could not be started is handed to the sink with the error.
    /// Does not wait for any of them.
    fn start(&self, transfers: &mut Vec<Transfer>);

    /// Hands finished transfers to the sink, as `want` requires.
    ///
    /// Must not block once `want.satisfied` is true, even if another thread made it true after the call began.
    fn drive(&self, want: &Want<'_>) -> Driven;

    /// The function with which a waiting thread executes an attempt itself, bypassing [`start`](Backend::start) and
    /// [`drive`](Backend::drive). Default: `None`, not supported.
    fn attempt(&self) -> Option<Attempt> {
        None
    }

    /// Problems that a user should know about, such as threads that could not be started; one sentence each. Empty if
    /// there are none.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}
