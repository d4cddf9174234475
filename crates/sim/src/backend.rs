//! The queue of a disk: requests executed one by one, in an order chosen by the seed.
//!
//! No request is executed before a thread waits. Then any request in the queue may be next, not only the awaited one.
//! So writes take effect in any order that the contract allows. A sync may *begin* some time before it is executed; it
//! does not cover writes in between.
//!
//! Concurrency: each waiting thread executes requests; the lock guards only the list.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fastrand::Rng;
use forebay_io::backend::{Backend, Driven, Next, Sink, Transfer, Want};
use forebay_io::{Error, Io};
use forebay_io::{Kind, Op};

use crate::disk::Disk;
use crate::journal::Position;

pub(crate) struct Queue {
    disk: Arc<Disk>,
    sink: Arc<dyn Sink>,
    capacity: usize,
    reorder: bool,
    waiting: Mutex<Waiting>,
}

struct Waiting {
    rng: Rng,
    /// Oldest first.
    transfers: Vec<Waiter>,
}

struct Waiter {
    transfer: Transfer,
    /// For a sync that has begun: its start.
    since: Option<Position>,
}

impl Disk {
    /// A queue of `queue_depth` requests, for bytes. There may be several queues.
    ///
    /// # Errors
    /// [`Error::Setting`] for a depth of 0.
    pub fn io(self: &Arc<Self>, queue_depth: usize) -> Result<Io, Error> {
        let disk = Arc::clone(self);
        let (seed, reorder) = (self.options.seed, self.options.reorder);
        Io::over(queue_depth, |sink| {
            Ok(Box::new(Queue::new(disk, sink, queue_depth, seed, reorder)))
        })
    }
}

impl Queue {
    pub(crate) fn new(
        disk: Arc<Disk>,
        sink: Arc<dyn Sink>,
        capacity: usize,
        seed: u64,
        reorder: bool,
    ) -> Queue {
        let waiting = Waiting { rng: Rng::with_seed(seed), transfers: Vec::new() };
        Queue { disk, sink, capacity, reorder, waiting: Mutex::new(waiting) }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        // Each change is a single push or removal, so a poisoned list is still whole.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the next transfer to execute.
    fn next(&self, waiting: &mut Waiting, want: &Want<'_>) -> Option<Waiter> {
        let Waiting { rng, transfers } = waiting;
        if !self.reorder {
            let wanted = match want.id {
                Some(id) => transfers.iter().position(|it| it.transfer.id() == id)?,
                None => 0,
            };
            return (wanted < transfers.len()).then(|| transfers.remove(wanted));
        }
        while !transfers.is_empty() {
            let index = rng.usize(0..transfers.len());
            let it = &mut transfers[index];
            let syncs = matches!(it.transfer.op(), Op::SyncData | Op::SyncAll);
            if syncs && it.since.is_none() {
                it.since = Some(self.disk.position());
                if rng.bool() {
                    continue;
                }
            }
            return Some(transfers.remove(index));
        }
        None
    }
}

impl Backend for Queue {
    /// Like `sync`, it leaves all work to the waiting threads.
    fn kind(&self) -> Kind {
        Kind::Sync
    }

    fn capacity(&self) -> usize {
        self.capacity
    }

    fn start(&self, transfers: &mut Vec<Transfer>) {
        let started = transfers.drain(..).map(|transfer| Waiter { transfer, since: None });
        self.waiting().transfers.extend(started);
    }

    fn drive(&self, want: &Want<'_>) -> Driven {
        let mut waiting = self.waiting();
        if want.block && (want.satisfied)() {
            return Driven::Progress;
        }
        let Some(Waiter { mut transfer, since }) = self.next(&mut waiting, want) else {
            return Driven::OtherDrives;
        };
        drop(waiting);
        loop {
            let result = self.disk.attempt(&mut transfer, since);
            match self.sink.finished(transfer, result) {
                Next::Done => return Driven::Progress,
                Next::Again(rest) => transfer = rest,
            }
        }
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Queue").field("waiting", &self.waiting().transfers.len()).finish()
    }
}
