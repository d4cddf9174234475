//! Requests of a checkpoint in progress: runs of pages and syncs, on one queue or several.
//!
//! One thread handles all of them and continues when any has ended. Tablespaces share one queue unless they were given
//! separate queues ([`Tablespace::io`](crate::Tablespace::io)); a thread can sleep on one queue only, so with several
//! it polls each in turn and rests briefly in between.
//!
//! Invariants:  [FLT-1] a request has ended before its copies are dropped: two writes of one page are never in progress
//!              at once
//!              [CKP-2] nothing is allocated here while a checkpoint runs: lists are reused

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use forebay_io::{Batch, Completed, File, Io, Lease, Request};

use crate::core::Core;
use crate::store::PageCopy;
use crate::store::file::FileCore;

/// Pause between two polls of several queues.
const REST_MIN: Duration = Duration::from_micros(20);
const REST_MAX: Duration = Duration::from_millis(1);

/// Pages that are written in one request.
pub(super) struct Run<'c> {
    pub(super) tablespace: usize,
    pub(super) copies: Vec<PageCopy<'c>>,
    pub(super) on_disk: File,
    /// In the file, in bytes.
    pub(super) offset: u64,
    /// The pages can be repaired if the write is torn.
    pub(super) is_protected: bool,
}

/// A request in progress, in one place of a queue.
pub(super) enum UnderWay<'c> {
    Write(Run<'c>),
    Sync { tablespace: usize },
}

struct Queue<'c> {
    /// Dropped first, and waits for requests in progress ([FLT-1]).
    batch: Batch,
    places: Vec<Option<UnderWay<'c>>>,
}

pub(super) struct InFlight<'c> {
    queues: Vec<Queue<'c>>,
    /// The queue of each tablespace.
    queue_of: Vec<usize>,
    spare_copies: Vec<Vec<PageCopy<'c>>>,
    spare_leases: Vec<Vec<Lease>>,
    /// Requests staged or in progress, for each tablespace.
    requests: Vec<usize>,
}

impl<'c> InFlight<'c> {
    /// For the tablespaces of `core`, with at most `depth` requests each.
    pub(super) fn new(core: &'c Core, depth: usize) -> InFlight<'c> {
        let tablespaces = core.spaces.len();
        let shared = core.checkpoint_queue.as_ref();
        let (mut ios, mut queue_of): (Vec<&Io>, Vec<usize>) = (Vec::new(), Vec::new());
        for space in &core.spaces {
            let io = shared.unwrap_or(&space.queue);
            let known = ios.iter().position(|it| it.is_same(io));
            queue_of.push(known.unwrap_or(ios.len()));
            if known.is_none() {
                ios.push(io);
            }
        }
        let queues = ios.iter().map(|io| {
            let places = (depth * tablespaces).min(io.queue_depth());
            Queue { batch: io.batch(places), places: (0..places).map(|_| None).collect() }
        });
        let runs = depth * tablespaces;
        let room = core.combine_pages;
        InFlight {
            queues: queues.collect(),
            queue_of,
            spare_copies: (0..runs).map(|_| Vec::with_capacity(room)).collect(),
            spare_leases: (0..runs).map(|_| Vec::with_capacity(room)).collect(),
            requests: vec![0; tablespaces],
        }
    }

    /// Requests of the tablespace that have not ended.
    pub(super) fn requests(&self, tablespace: usize) -> usize {
        self.requests[tablespace]
    }

    /// True if there is room for another request of the tablespace in addition to `staged` others.
    pub(super) fn has_room(&self, tablespace: usize, staged: usize) -> bool {
        self.queues[self.queue_of[tablespace]].batch.room() > staged
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queues.iter().all(|queue| queue.batch.is_empty())
    }

    /// An empty list of copies.
    pub(super) fn copies(&mut self) -> Vec<PageCopy<'c>> {
        self.spare_copies.pop().unwrap_or_default()
    }

    /// Takes a list of copies back, and drops its contents.
    pub(super) fn give_back(&mut self, mut copies: Vec<PageCopy<'c>>) {
        copies.clear();
        self.spare_copies.push(copies);
    }

    pub(super) fn stage_write(&mut self, mut run: Run<'c>) {
        let mut leases = self.spare_leases.pop().unwrap_or_default();
        leases.extend(run.copies.iter_mut().map(PageCopy::lend));
        let request = Request::write(&run.on_disk, run.offset, leases);
        let request = run.copies[0].file().space.torn.in_place(request);
        self.stage(run.tablespace, request, UnderWay::Write(run));
    }

    pub(super) fn stage_sync(&mut self, tablespace: usize, on_disk: &File) {
        self.stage(tablespace, Request::sync_data(on_disk), UnderWay::Sync { tablespace });
    }

    fn stage(&mut self, tablespace: usize, request: Request, under_way: UnderWay<'c>) {
        let queue = &mut self.queues[self.queue_of[tablespace]];
        let place = queue.batch.stage(request);
        queue.places[place] = Some(under_way);
        self.requests[tablespace] += 1;
    }

    pub(super) fn start(&mut self) {
        self.queues.iter_mut().for_each(|queue| queue.batch.start());
    }

    /// Returns a request that has ended, with its result. The copies of a write are settled.
    pub(super) fn take_ended(&mut self) -> Option<(UnderWay<'c>, Result<(), forebay_io::Error>)> {
        let (queue, (place, done)) = self
            .queues
            .iter_mut()
            .enumerate()
            .find_map(|(number, queue)| Some((number, queue.batch.take_ended()?)))?;
        let Completed { mut leases, result } = done;
        let mut ended = self.queues[queue].places[place].take().expect("[FLT-1] a place is in use");
        let tablespace = match &mut ended {
            UnderWay::Write(run) => {
                for (copy, lease) in run.copies.iter_mut().zip(leases.drain(..)) {
                    copy.settle(lease, result.is_ok());
                }
                self.spare_leases.push(leases);
                run.tablespace
            }
            UnderWay::Sync { tablespace } => *tablespace,
        };
        self.requests[tablespace] -= 1;
        Some((ended, result))
    }

    /// Waits until one has ended.
    pub(super) fn wait(&self) {
        let mut busy = self.queues.iter().filter(|queue| !queue.batch.is_empty());
        let (Some(first), None) = (busy.next(), busy.next()) else {
            return self.wait_for_several();
        };
        first.batch.wait();
    }

    fn wait_for_several(&self) {
        let mut rest = REST_MIN;
        while !self.is_empty() && !self.queues.iter().any(|queue| queue.batch.has_ended()) {
            self.queues.iter().for_each(|queue| queue.batch.poll());
            if self.queues.iter().any(|queue| queue.batch.has_ended()) {
                return;
            }
            thread::park_timeout(rest);
            rest = (rest * 2).min(REST_MAX);
        }
    }
}

/// A file that is being synced.
#[derive(Debug)]
pub(super) struct Syncing {
    pub(super) file: Arc<FileCore>,
    /// The changes that this sync makes durable.
    pub(super) changes: u64,
    /// Its sync is in progress; otherwise its queue had no room yet.
    pub(super) submitted: bool,
    pub(super) started: Duration,
}
