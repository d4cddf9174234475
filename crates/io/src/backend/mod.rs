//! Backends: how a transfer is carried out, and the contract they all keep.
//!
//! A backend moves bytes between a file and leased memory; everything else (limits, continuing,
//! retrying, errors, waiting) is done once, centrally, by [`Io`](crate::Io). What follows holds
//! for every backend and both cache modes, and `tests/conformance` runs each clause over each of
//! them.
//!
//! # The contract, as seen through [`Io`](crate::Io)
//!
//! **Alignment.** On a buffered file anything goes. On a direct file the offset, the length of
//! each lease and the address of each lease are multiples of what
//! [`File::alignment`](crate::File::alignment) says; a request that breaks this ends in
//! [`Error::Misaligned`](crate::Error::Misaligned) and nothing is moved.
//!
//! **Ordering.** There is none between requests in flight, whatever their order of submission.
//! Two writes in flight that overlap leave either's bytes, perhaps mixed at the granularity of a
//! sector. A request submitted after the completion of another was observed sees its effect.
//!
//! **Short transfers.** A completed request moved every byte it asked for. The system may move
//! less in one go; the rest is then asked for again, up to the end of the file, which is
//! [`Error::PastEnd`](crate::Error::PastEnd) and says how many bytes are valid. Interrupted,
//! refused-for-now and cancelled attempts (EINTR, EAGAIN, ECANCELED) are repeated, a bounded
//! number of times.
//!
//! **Durability.** A completed write is visible to every later read through a file of the same
//! mode; it is durable only after a sync that was *submitted after* the write completed. A failed
//! sync latches its file: later writes and syncs fail with
//! [`Error::Failed`](crate::Error::Failed), because Linux drops the dirty pages of a failed
//! writeback and would report success the second time.
//!
//! **Atomic writes.** A [`Request::atomic`](crate::Request::atomic) write goes to the kernel in one piece, which
//! carries it out whole or refuses it, and is never continued. Where it is not proven that the file has such
//! writes it ends in [`Error::Unsupported`](crate::Error::Unsupported) before anything is started.
//!
//! **Cancellation.** There is none. Dropping a ticket gives up the answer, not the transfer: it
//! runs to its end, and only then are its leases given back. A dropped write is carried out.
//!
//! **Back-pressure.** A backend holds at most `capacity` transfers. Submitting more blocks the
//! submitter, who meanwhile reaps what has finished; nothing is refused and nothing is lost.
//!
//! **Progress.** Transfers are under way when `submit` returns, except on `sync`, which carries
//! them out when they are waited for. Completions may stay unnoticed, and their leases out, until
//! some thread waits, looks, drains, or submits to a full queue; no thread polls, so an idle queue
//! uses no processor time. `threads` alone completes with nobody looking. Syncs of one file that
//! overlap in the kernel (uring, aio) are answered when all of them have ended, so two queues that
//! sync one file at the same time must both be driven.
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

/// Where a backend hands in what it has finished.
pub trait Sink: Send + Sync {
    /// Takes one attempt back: `result` is the bytes it moved, or the system's error.
    ///
    /// Called once for each attempt, from any thread, and never while the kernel may still touch
    /// the transfer's memory. The answer [`Next::Again`] is carried out before anything else.
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

/// What a thread that calls [`Backend::drive`] is after.
pub struct Want<'a> {
    /// The transfer it waits for; `None` when any progress will do.
    pub id: Option<u64>,
    /// Whether what it waits for has happened. Completions change it, nothing else does.
    pub satisfied: &'a dyn Fn() -> bool,
    /// True to sleep until something finishes, false to take only what has finished already.
    pub block: bool,
}

impl fmt::Debug for Want<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Want").field("id", &self.id).field("block", &self.block).finish()
    }
}

/// What came of [`Backend::drive`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Driven {
    /// Something was handed to the sink, or nothing is left to wait for.
    Progress,
    /// Nothing has finished, and the caller did not want to sleep.
    Nothing,
    /// Another calling thread is at it. The caller may sleep: it is woken by its own completion
    /// or when the other one leaves.
    OtherDrives,
    /// Threads of the backend's own deliver completions; nobody needs to drive.
    SelfDriven,
}

/// Carries out one attempt at a transfer, blocking, as [`attempt`] does.
pub type Attempt = fn(&mut Transfer) -> Result<u64, OsError>;

/// One way of carrying out transfers. See the [module](self) for the contract.
///
/// Implementors get at most [`capacity`](Backend::capacity) transfers at a time, already checked
/// for alignment, closing and latched files, none of them empty of bytes except syncs.
pub trait Backend: Send + Sync + fmt::Debug {
    /// Which one this is.
    fn kind(&self) -> Kind;

    /// Most transfers it holds at once.
    fn capacity(&self) -> usize;

    /// Takes all of `transfers`, leaving it empty, and starts them.
    ///
    /// Cannot fail: a transfer that could not be started is handed to the sink with the error.
    /// Does not wait for any of them.
    fn start(&self, transfers: &mut Vec<Transfer>);

    /// Hands finished transfers to the sink, as the caller wants it.
    ///
    /// Must not block once `want.satisfied` is true, also when that became so on another thread
    /// after the call began.
    fn drive(&self, want: &Want<'_>) -> Driven;

    /// How a thread that waits for a transfer carries out an attempt at it by itself, past
    /// [`start`](Backend::start) and [`drive`](Backend::drive), where it may. Default: `None`, it may not.
    fn attempt(&self) -> Option<Attempt> {
        None
    }

    /// What a user should know of how it is doing, such as threads that could not be started; a
    /// sentence each. Empty when all is well.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}
