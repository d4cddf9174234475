//! Transfers in the kernel, by slot number.
//!
//! The kernel returns a number with each completion. Here the number finds the transfer. Its leases and descriptor stay
//! in place until then, together with the I/O vectors that point into them (if the kernel defers a submission, it reads
//! those vectors later).
//!
//! Invariants:  [INF-1] a slot is filled from before its submission until after its completion
#![expect(unsafe_code, reason = "vectors point into leases that it keeps with them")]

use crate::request::Transfer;

/// Maximum number of memory segments that the kernel takes in one request (UIO_MAXIOV).
pub(super) const SEGMENTS_MAX: usize = 1024;

/// Segments of a usual request. A slot has room for this many from the start, so that an open queue allocates no more
/// memory for them.
const SEGMENTS_USUAL: usize = 16;

/// A table of transfers with a free list.
#[derive(Debug)]
pub(super) struct InFlight {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

#[derive(Debug, Default)]
struct Slot {
    transfer: Option<Transfer>,
    /// Reused by each transfer in the slot, so that it is allocated once.
    vectors: Vectors,
}

/// I/O vectors into the leases of the transfer in the same slot.
#[derive(Debug)]
struct Vectors(Vec<libc::iovec>);

impl Default for Vectors {
    fn default() -> Vectors {
        Vectors(Vec::with_capacity(SEGMENTS_USUAL))
    }
}

// SAFETY: only the kernel uses the pointers in field 0, while the transfer in the same slot owns the memory that they
// point to; no Rust code dereferences them.
unsafe impl Send for Vectors {}

impl InFlight {
    pub(super) fn new(capacity: usize) -> InFlight {
        let capacity = u32::try_from(capacity).expect("queue depth was checked to be small");
        InFlight {
            slots: (0..capacity).map(|_| Slot::default()).collect(),
            free: (0..capacity).rev().collect(),
        }
    }

    /// Puts a transfer into a free slot and fills its vectors.
    pub(super) fn insert(&mut self, transfer: Transfer) -> u32 {
        let index =
            self.free.pop().expect("[INF-1] the queue lets in no more than there are slots");
        let slot = &mut self.slots[index as usize];
        slot.vectors.0.clear();
        slot.vectors.0.extend(
            transfer
                .segments(SEGMENTS_MAX)
                .map(|(start, len)| libc::iovec { iov_base: start.cast(), iov_len: len }),
        );
        let earlier = slot.transfer.replace(transfer);
        assert!(earlier.is_none(), "[INF-1] slot {index} was free and filled");
        index
    }

    /// The transfer and the vectors of a filled slot. The vectors do not move until the slot is emptied.
    pub(super) fn get(&self, index: u32) -> (&Transfer, &[libc::iovec]) {
        let slot = &self.slots[index as usize];
        let transfer = slot.transfer.as_ref().expect("[INF-1] a submitted slot is filled");
        (transfer, &slot.vectors.0)
    }

    /// Removes the transfer of a completion.
    pub(super) fn remove(&mut self, index: u32) -> Transfer {
        let slot = &mut self.slots[index as usize];
        let transfer = slot.transfer.take().expect("[INF-1] a completion belongs to a filled slot");
        self.free.push(index);
        transfer
    }

    /// True when no transfer is in the kernel.
    pub(super) fn is_empty(&self) -> bool {
        self.free.len() == self.slots.len()
    }
}
