//! One attempt, carried out by the calling thread: what `sync` and `threads` have in common.

use std::io::IoSlice;

use rustix::io::{preadv, pwritev};

use crate::op::Op;
use crate::os_error::OsError;
use crate::request::Transfer;
use crate::sys;

/// Most pieces of memory written in one call; what is beyond them goes in the next attempt.
const SLICES_MAX: usize = 256;

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
        Op::Write => {
            // On the stack: whoever writes a checkpoint does not want memory to be asked for.
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let count = transfer.slices_into(&mut slices);
            match transfer.is_atomic() && file.is_direct_by_kernel() {
                true => sys::write_atomic(file.descriptor(), &slices[..count], position)?,
                false => pwritev(file.descriptor(), &slices[..count], position)?,
            }
        }
        op @ (Op::SyncData | Op::SyncAll) => file.sync_attempt(op).map(|()| 0)?,
    };
    Ok(moved as u64)
}
