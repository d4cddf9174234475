//! One attempt, carried out by the calling thread: what `sync` and `threads` have in common.

use std::io::{IoSlice, IoSliceMut};

use rustix::io::{preadv, pwritev};

use crate::op::Op;
use crate::os_error::OsError;
use crate::request::Transfer;
use crate::sys;

/// Most pieces of memory moved in one call; what is beyond them goes in the next attempt. On the stack: a page
/// that is missing is not to cost a request for memory too.
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
    let position = transfer.position();
    let moved = match transfer.op() {
        Op::Read => {
            let mut slices = std::array::from_fn::<_, SLICES_MAX, _>(|_| IoSliceMut::new(&mut []));
            let (file, count) = transfer.slices_mut_into(&mut slices);
            preadv(file.descriptor(), &mut slices[..count], position)?
        }
        Op::Write => {
            let file = transfer.file();
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let count = transfer.slices_into(&mut slices);
            match transfer.is_atomic() && file.is_direct_by_kernel() {
                true => sys::write_atomic(file.descriptor(), &slices[..count], position)?,
                false => pwritev(file.descriptor(), &slices[..count], position)?,
            }
        }
        op @ (Op::SyncData | Op::SyncAll) => transfer.file().sync_attempt(op).map(|()| 0)?,
    };
    Ok(moved as u64)
}
