//! One attempt, executed by the calling thread: shared by `sync` and `threads`.

use std::io::{IoSlice, IoSliceMut};

use rustix::io::{preadv, pwritev};

use crate::op::Op;
use crate::os_error::OsError;
use crate::request::Transfer;
use crate::sys;

/// Maximum number of memory segments moved in one call; the next attempt moves the rest. On the stack: a page miss must
/// not cost a memory allocation too.
const SLICES_MAX: usize = 256;

/// Executes the rest of `transfer` in one system call, blocking; returns the bytes moved.
///
/// One call may move fewer bytes than requested, for the reasons that `preadv(2)` lists or because there are more
/// leases than it takes at once. For backends that block the thread that drives them, such as a simulated disk.
///
/// # Errors
/// The system's error; the backend passes it to its [`Sink`](super::Sink).
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
