//! One attempt, carried out by the calling thread: what `sync` and `threads` have in common.

use rustix::io::{preadv, pwritev};

use crate::error::OsError;
use crate::request::{Op, Transfer};

/// Does what is left of `transfer` in one system call, blocking; returns the bytes moved.
///
/// One call may move less than asked, for the reasons `preadv(2)` lists or because there are more
/// leases than it takes at once. For backends that block the thread that drives them, such as a
/// simulated disk.
///
/// # Errors
/// What the system says; for the backend to hand to its [`Sink`](super::Sink).
pub fn attempt(transfer: &mut Transfer) -> Result<u64, OsError> {
    let file = transfer.file().clone();
    let position = transfer.position();
    let moved = match transfer.op() {
        Op::Read => preadv(file.descriptor(), &mut transfer.slices_mut(), position)?,
        Op::Write => pwritev(file.descriptor(), &transfer.slices(), position)?,
        op @ (Op::SyncData | Op::SyncAll) => file.sync_attempt(op).map(|()| 0)?,
    };
    Ok(moved as u64)
}
