//! The `sync` backend: the waiting thread does the work; the kernel receives advice early.
//!
//! Asynchronous reads by advice: starting a buffered read only sends WILLNEED, so the kernel reads while the caller
//! continues; the `preadv` at wait time then finds the bytes in the page cache. Hints of one batch are sorted and
//! merged first, because page-by-page WILLNEED makes page-by-page device requests (document 004 of the sources:
//! "fadvise interferes with readahead"). A read that is alone in the queue is not hinted: the thread that submitted it
//! will wait for it next, and a hint would only be a second system call.
//!
//! Direct files bypass the page cache, so hints do not help their reads.
//!
//! Concurrency: each waiting thread executes its own transfer; the lock guards only the queue.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Attempt, Backend, Driven, Kind, Next, Sink, Want, blocking};
use crate::file::File;
use crate::op::Op;
use crate::properties::{Advice, CacheMode};
use crate::request::Transfer;

/// Number of transfers that the queue has memory for at the start.
const ROOM: usize = 256;

pub(super) struct SyncBackend {
    capacity: usize,
    /// Whether reads are hinted.
    advise: bool,
    waiting: Mutex<VecDeque<Transfer>>,
    sink: Arc<dyn Sink>,
}

impl SyncBackend {
    pub(super) fn new(capacity: usize, advise: bool, sink: Arc<dyn Sink>) -> SyncBackend {
        let waiting = Mutex::new(VecDeque::with_capacity(capacity.min(ROOM)));
        SyncBackend { capacity, advise, waiting, sink }
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<Transfer>> {
        // Each change is a single push or removal, so a poisoned queue is still whole.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Backend for SyncBackend {
    fn kind(&self) -> Kind {
        Kind::Sync
    }

    fn capacity(&self) -> usize {
        self.capacity
    }

    fn attempt(&self) -> Option<Attempt> {
        Some(blocking::attempt)
    }

    fn start(&self, transfers: &mut Vec<Transfer>) {
        let mut waiting = self.waiting();
        let single = waiting.is_empty() && transfers.len() == 1;
        let hints = if single || !self.advise { Vec::new() } else { hints(transfers) };
        waiting.extend(transfers.drain(..));
        drop(waiting);
        for hint in hints {
            // Refused advice costs speed, never correctness.
            let refused = hint.file.advise(hint.offset..hint.offset + hint.len, Advice::WillNeed);
            if let Err(error) = refused {
                tracing::debug!(%error, "WILLNEED refused");
            }
        }
    }

    fn drive(&self, want: &Want<'_>) -> Driven {
        let mut waiting = self.waiting();
        if want.block && (want.satisfied)() {
            return Driven::Progress;
        }
        let place = match want.id {
            Some(id) => waiting.iter().position(|transfer| transfer.id() == id),
            None => (!waiting.is_empty()).then_some(0),
        };
        let Some(mut transfer) = place.and_then(|place| waiting.remove(place)) else {
            return Driven::OtherDrives;
        };
        drop(waiting);
        loop {
            let result = blocking::attempt(&mut transfer);
            match self.sink.finished(transfer, result) {
                Next::Done => return Driven::Progress,
                Next::Again(rest) => transfer = rest,
            }
        }
    }
}

impl std::fmt::Debug for SyncBackend {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("SyncBackend").field("waiting", &self.waiting().len()).finish()
    }
}

/// A range of bytes to announce to the kernel.
#[derive(Debug, Clone)]
struct Hint {
    file: File,
    offset: u64,
    len: u64,
}

/// The buffered reads among `transfers` as sorted ranges, with adjacent ones merged.
fn hints(transfers: &[Transfer]) -> Vec<Hint> {
    let wants_hint = |transfer: &&Transfer| {
        transfer.op() == Op::Read && transfer.file().cache_mode() == CacheMode::Buffered
    };
    let mut reads: Vec<Hint> = transfers
        .iter()
        .filter(wants_hint)
        .map(|transfer| Hint {
            file: transfer.file().clone(),
            offset: transfer.position(),
            len: transfer.remaining(),
        })
        .collect();
    reads.sort_by_key(|hint| (hint.file.descriptor_number(), hint.offset));
    let mut runs: Vec<Hint> = Vec::new();
    for read in reads {
        match runs.last_mut() {
            Some(run)
                if run.file.descriptor_number() == read.file.descriptor_number()
                    && read.offset <= run.offset + run.len =>
            {
                run.len = run.len.max(read.offset + read.len - run.offset);
            }
            _ => runs.push(read),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::Recipient;
    use crate::file::OpenOptions;
    use crate::memory::Arena;

    fn read(file: &File, offset: u64, len: usize) -> Transfer {
        let mut lease = Arena::new(1, 65_536).unwrap().take().unwrap();
        lease.truncate(len);
        Transfer {
            id: 0,
            op: Op::Read,
            file: file.clone(),
            offset,
            leases: vec![lease],
            len: len as u64,
            done: 0,
            limit: None,
            atomic: false,
            idle_attempts: 0,
            refused_by: None,
            sync: None,
            recipient: Recipient::Ticket(Arc::default()),
        }
    }

    #[test]
    fn neighbours_of_one_batch_become_one_hint_whatever_their_order() {
        let directory = tempfile::tempdir().unwrap();
        let file =
            File::open(&directory.path().join("f"), &OpenOptions::new().create(true)).unwrap();
        let blocks = [1, 3, 2, 6, 4, 9];
        let transfers: Vec<_> =
            blocks.iter().map(|block| read(&file, block * 8192, 8192)).collect();
        let runs: Vec<_> = hints(&transfers)
            .into_iter()
            .map(|hint| (hint.offset / 8192, hint.len / 8192))
            .collect();
        assert_eq!(runs, [(1, 4), (6, 1), (9, 1)]);
    }

    #[test]
    fn overlapping_and_contained_reads_merge_without_shrinking() {
        let directory = tempfile::tempdir().unwrap();
        let file =
            File::open(&directory.path().join("f"), &OpenOptions::new().create(true)).unwrap();
        let transfers =
            [read(&file, 0, 32_768), read(&file, 8192, 8192), read(&file, 30_000, 8192)];
        let runs: Vec<_> =
            hints(&transfers).into_iter().map(|hint| (hint.offset, hint.len)).collect();
        assert_eq!(runs, [(0, 38_192)]);
    }
}
