//! Requests and transfers: the data to move, and the owner of the memory meanwhile.
//!
//! A caller creates a [`Request`]. When the queue accepts it, it becomes a [`Transfer`], which travels by value:
//! caller -> queue -> backend -> queue. It holds the memory leases and the open file all the way, so the kernel never
//! accesses memory that another owner could free.
//!
//! Invariants:  [REQ-1] `done` never exceeds the requested bytes
//! Failure:     a transfer leaves a backend only through `Sink::finished`, once per start.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, RawFd};

use crate::answer::Recipient;
use crate::file::{File, RunningSync};
use crate::kind::Kind;
use crate::memory::Lease;
use crate::op::Op;

/// One read, write or sync, with the memory it needs.
///
/// The leases are filled or written in order, as one contiguous range of the file. They are returned in the
/// [`Completed`](crate::Completed) of the request.
#[derive(Debug)]
pub struct Request {
    pub(crate) op: Op,
    pub(crate) file: File,
    pub(crate) offset: u64,
    pub(crate) leases: Vec<Lease>,
    pub(crate) atomic: bool,
}

impl Request {
    /// Reads from byte `offset` of `file` until every lease is full.
    pub fn read(file: &File, offset: u64, leases: Vec<Lease>) -> Request {
        Request { op: Op::Read, file: file.clone(), offset, leases, atomic: false }
    }

    /// Writes the bytes of every lease to `file` from byte `offset` on.
    pub fn write(file: &File, offset: u64, leases: Vec<Lease>) -> Request {
        Request { op: Op::Write, file: file.clone(), offset, leases, atomic: false }
    }

    /// Syncs the data of those writes to `file` that complete before this request is submitted.
    pub fn sync_data(file: &File) -> Request {
        Request {
            op: Op::SyncData,
            file: file.clone(),
            offset: 0,
            leases: Vec::new(),
            atomic: false,
        }
    }

    /// Syncs data and metadata of `file`.
    pub fn sync_all(file: &File) -> Request {
        Request {
            op: Op::SyncAll,
            file: file.clone(),
            offset: 0,
            leases: Vec::new(),
            atomic: false,
        }
    }

    /// Makes a write atomic: it survives a power cut entirely or not at all. The file must [support
    /// it](File::atomic_write). The request must have one lease, of a supported length, at an offset that is a
    /// multiple of that length. Anything else ends in [`Error::Unsupported`](crate::Error::Unsupported), and nothing
    /// is written. Has no effect on reads and syncs.
    #[must_use]
    pub fn atomic(mut self) -> Request {
        self.atomic = true;
        self
    }

    /// Bytes to move.
    pub fn len(&self) -> u64 {
        self.leases.iter().map(|lease| lease.len() as u64).sum()
    }

    /// True when there is nothing to move.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A request in flight, as backends see it.
#[derive(Debug)]
pub struct Transfer {
    pub(crate) id: u64,
    pub(crate) op: Op,
    pub(crate) file: File,
    pub(crate) offset: u64,
    pub(crate) leases: Vec<Lease>,
    /// Total requested bytes.
    pub(crate) len: u64,
    /// Bytes moved by earlier attempts.
    pub(crate) done: u64,
    /// Maximum number of bytes to move in this attempt; only wrapping backends set it.
    pub(crate) limit: Option<u64>,
    /// All in one piece or not at all.
    pub(crate) atomic: bool,
    /// Attempts in a row that moved nothing.
    pub(crate) idle_attempts: u32,
    /// The backend that could not submit it to the kernel: it did not run.
    pub(crate) refused_by: Option<Kind>,
    /// Set for a sync that the kernel runs asynchronously.
    pub(crate) sync: Option<RunningSync>,
    pub(crate) recipient: Recipient,
}

impl Transfer {
    /// A number unique within one queue, the same for every attempt.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The operation.
    pub fn op(&self) -> Op {
        self.op
    }

    /// True for a write that the kernel must execute in one piece or refuse (RWF_ATOMIC).
    pub fn is_atomic(&self) -> bool {
        self.atomic && self.op == Op::Write
    }

    /// The file to operate on.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The descriptor for the kernel to work on; it stays open while the transfer exists.
    pub fn descriptor_number(&self) -> RawFd {
        match &self.sync {
            Some(sync) => sync.descriptor.as_raw_fd(),
            None => self.file.descriptor_number(),
        }
    }

    /// Byte offset at which this attempt starts.
    pub fn position(&self) -> u64 {
        self.offset + self.done
    }

    /// Bytes this attempt should move.
    pub fn remaining(&self) -> u64 {
        let rest = self.len - self.done;
        self.limit.map_or(rest, |limit| rest.min(limit))
    }

    /// Makes this attempt move at most `bytes`: a deliberate short transfer, for fault injection.
    ///
    /// On a direct file `bytes` must respect the file's alignment, or the attempt fails as it would in the kernel. A
    /// limit of 0 counts as 1. Atomic writes ignore the limit.
    pub fn limit(&mut self, bytes: u64) {
        if self.is_atomic() {
            return;
        }
        self.limit = Some(bytes.max(1));
    }

    /// The memory of this attempt as (lease, first byte, bytes), in order; never an empty piece.
    fn pieces(&self) -> impl Iterator<Item = (usize, usize, usize)> + '_ {
        let (mut skip, mut rest) = (self.done, self.remaining());
        self.leases.iter().enumerate().filter_map(move |(index, lease)| {
            let (start, take) = piece(&mut skip, &mut rest, lease.len());
            (take > 0).then_some((index, start, take))
        })
    }

    /// The addresses and lengths of this attempt's memory, at most `most` of them.
    ///
    /// The pointers stay valid for as long as this transfer owns its leases.
    pub fn segments(&self, most: usize) -> impl Iterator<Item = (*mut u8, usize)> + '_ {
        self.pieces()
            .take(most)
            .map(|(index, start, take)| (self.leases[index].as_ptr().wrapping_add(start), take))
    }

    /// This attempt's memory as slices to read into.
    pub fn slices_mut(&mut self) -> Vec<IoSliceMut<'_>> {
        let mut slices: Vec<_> = self.leases.iter().map(|_| IoSliceMut::new(&mut [])).collect();
        let (_, count) = self.slices_mut_into(&mut slices);
        slices.truncate(count);
        slices
    }

    /// As [`Transfer::slices_mut`], but at most as many as fit in `into`. Returns the file and the number of slices.
    pub(crate) fn slices_mut_into<'a>(
        &'a mut self,
        into: &mut [IoSliceMut<'a>],
    ) -> (&'a File, usize) {
        let (mut skip, mut rest) = (self.done, self.remaining());
        let pieces = self.leases.iter_mut().filter_map(|lease| {
            let (start, take) = piece(&mut skip, &mut rest, lease.len());
            (take > 0).then(|| IoSliceMut::new(&mut lease[start..start + take]))
        });
        let filled = into.iter_mut().zip(pieces).map(|(slice, piece)| *slice = piece);
        (&self.file, filled.count())
    }

    /// This attempt's memory as slices to write from.
    pub fn slices(&self) -> Vec<IoSlice<'_>> {
        self.pieces()
            .map(|(index, start, take)| IoSlice::new(&self.leases[index][start..start + take]))
            .collect()
    }

    /// As [`Transfer::slices`], but at most as many as fit in `into`. Returns the number of slices.
    pub(crate) fn slices_into<'a>(&'a self, into: &mut [IoSlice<'a>]) -> usize {
        let pieces = self.pieces();
        let filled = into.iter_mut().zip(pieces).map(|(slice, (index, start, take))| {
            *slice = IoSlice::new(&self.leases[index][start..start + take]);
        });
        filled.count()
    }

    /// Accounts for `moved` bytes of this attempt; panics if that is more than requested.
    pub(crate) fn advance(&mut self, moved: u64) {
        self.done += moved;
        assert!(self.done <= self.len, "[REQ-1] {} of {} bytes moved", self.done, self.len);
    }
}

/// Returns the part of the next lease that an attempt covers: its first byte and its length. `skip` bytes of this and
/// the following leases are done, and `rest` bytes remain to be moved.
fn piece(skip: &mut u64, rest: &mut u64, len: usize) -> (usize, usize) {
    let start = (*skip).min(len as u64);
    *skip -= start;
    let take = (len as u64 - start).min(*rest);
    *rest -= take;
    (start as usize, take as usize)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::file::OpenOptions;
    use crate::memory::Arena;
    use proptest::prelude::*;

    const SLOT_BYTES: usize = 64;

    fn transfer(lens: &[usize]) -> Transfer {
        let arena = Arena::new(lens.len(), SLOT_BYTES).unwrap();
        let mut leases = arena.take_many(lens.len()).unwrap();
        for (lease, &len) in leases.iter_mut().zip(lens) {
            lease.truncate(len);
        }
        // Any file works: nothing is moved here.
        let options = OpenOptions::new().read_only(true);
        let file = File::open(std::path::Path::new("/dev/null"), &options).unwrap();
        let len = lens.iter().sum::<usize>() as u64;
        Transfer {
            id: 0,
            op: Op::Read,
            file,
            offset: 0,
            leases,
            len,
            done: 0,
            limit: None,
            atomic: false,
            idle_attempts: 0,
            refused_by: None,
            sync: None,
            recipient: Recipient::Ticket(Arc::default()),
        }
    }

    proptest! {
        /// An attempt covers exactly the bytes from `done` on, up to its limit, in order.
        #[test]
        fn an_attempt_names_each_byte_that_is_left_once(
            lens in prop::collection::vec(0_usize..=SLOT_BYTES, 1..8),
            done in any::<prop::sample::Index>(),
            limit in prop::option::of(1_u64..200),
        ) {
            let mut transfer = transfer(&lens);
            transfer.done = done.index(transfer.len as usize + 1) as u64;
            if let Some(limit) = limit {
                transfer.limit(limit);
            }
            let all: Vec<usize> = transfer
                .leases
                .iter()
                .flat_map(|lease| (0..lease.len()).map(|at| lease.as_ptr() as usize + at))
                .collect();
            let start = transfer.done as usize;
            let expected = &all[start..start + transfer.remaining() as usize];

            let segments: Vec<_> = transfer.segments(usize::MAX).collect();
            prop_assert!(segments.iter().all(|&(_, len)| len > 0));
            let named: Vec<usize> = segments
                .iter()
                .flat_map(|&(start, len)| (0..len).map(move |at| start as usize + at))
                .collect();
            prop_assert_eq!(&named, expected);

            let by_slices: Vec<(usize, usize)> =
                transfer.slices().iter().map(|s| (s.as_ptr() as usize, s.len())).collect();
            let mut some = [IoSlice::new(&[]); 3];
            let count = transfer.slices_into(&mut some);
            let some: Vec<(usize, usize)> =
                some[..count].iter().map(|s| (s.as_ptr() as usize, s.len())).collect();
            prop_assert_eq!(&some[..], &by_slices[..by_slices.len().min(3)]);
            let mut some_mut = [(); 3].map(|()| IoSliceMut::new(&mut []));
            let (_, count) = transfer.slices_mut_into(&mut some_mut);
            let some_mut: Vec<(usize, usize)> =
                some_mut[..count].iter().map(|s| (s.as_ptr() as usize, s.len())).collect();
            prop_assert_eq!(some_mut, some);
            let by_slices_mut: Vec<(usize, usize)> =
                transfer.slices_mut().iter().map(|s| (s.as_ptr() as usize, s.len())).collect();
            let by_segments: Vec<(usize, usize)> =
                segments.iter().map(|&(start, len)| (start as usize, len)).collect();
            prop_assert_eq!(&by_slices, &by_segments);
            prop_assert_eq!(&by_slices_mut, &by_segments);
        }
    }

    #[test]
    #[should_panic(expected = "[REQ-1]")]
    fn req_1_more_bytes_than_requested_are_a_bug() {
        transfer(&[10]).advance(11);
    }
}
