//! From runs of blocks to reads in progress: frames are found, pages mapped as loading, requests submitted.
//!
//! Look-ahead only uses available frames. It finds them in its ring, on the free list, or under clean pages that are
//! not pinned; it writes only pages of its ring for that. When there is none, the rest of the batch is skipped (it
//! *backs off*), and a thread that needs such a page reads it on its own.
//!
//! Invariants:  [SUB-1] at most one read of a page is in progress: a page that is mapped already is read through
//!              like any gap   [SUB-2] every page mapped here is part of a request that is submitted
//! Concurrency: others may wait for a page from the moment it is mapped, so between that and the submission of its read
//!              no foreign code is called and no frame is waited for: the frames of the whole batch are found first.
//!              The only waits are for room in a full queue, which the waiting thread drives, and without the queue for the
//!              batch's earlier reads.

use std::sync::Arc;
use std::time::Duration;

use forebay_io::{Arena, Booked, File, Io, Kind, Lease, Request, Then};
use forebay_lookahead::{Limits, Run, coalesce};

use super::complete::{Notify, PendingRead, Piece, Watch};
use crate::cache::Disk as _;
use crate::cache::frame::{FrameIndex, NO_FRAME, Owned};
use crate::cache::replacement::{AccessStrategy, RingSlot};
use crate::core::Core;
use crate::error::Error;
use crate::observe::stats::{Event, Wait};
use crate::readahead::trace::{self, Action, Why};
use crate::store::Private;
use crate::store::file::FileCore;
use crate::tag::Block;

/// Memory for pages that are read through and discarded, in one pool, in bytes.
const GAP_BYTES: usize = 1 << 20;

/// The caller of a read-ahead, and its parameters.
pub(crate) struct Ahead<'a> {
    pub(crate) core: &'a Arc<Core>,
    pub(crate) file: &'a Arc<FileCore>,
    pub(crate) strategy: &'a AccessStrategy,
    /// The reader's private descriptors.
    pub(crate) through: Option<&'a Private>,
    /// The tablespace's queue reads; otherwise this thread, which has finished when it returns.
    pub(crate) queued: bool,
    pub(crate) watch: Option<&'a Arc<Watch>>,
    /// The stream's number in the trace; `None` if its decisions are not recorded.
    pub(crate) traced: Option<u32>,
    /// The reason for the read, for the trace; `None`: as the runs themselves say.
    pub(crate) why: Option<Why>,
    /// True to wait for room in a full queue; otherwise it counts as a lack of frames.
    pub(crate) waits: bool,
    /// No stream has these pages pinned: each counts in the budget until it is resident.
    pub(crate) prefetched: bool,
}

/// The outcome of a batch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Submitted {
    pub(crate) requests: u32,
    /// Pages that are being read into frames.
    pub(crate) pages: u32,
    /// Pages read that were not needed, whether they are kept or not.
    pub(crate) gaps: u32,
    /// True if there was no frame for the rest.
    pub(crate) backed_off: bool,
}

impl Submitted {
    fn add(&mut self, run: Submitted) {
        self.requests += run.requests;
        self.pages += run.pages;
        self.gaps += run.gaps;
        self.backed_off |= run.backed_off;
    }
}

/// A request under construction.
#[derive(Default)]
struct Draft {
    first: Block,
    pieces: Vec<Piece>,
    leases: Vec<Lease>,
    /// Needed pages in it.
    wanted: usize,
    /// Pieces up to the last needed page: the following ones are gaps so far.
    used: usize,
}

type Prepared = (Request, PendingRead);

/// Frames for a batch, found before anything is mapped.
struct Supply<'a> {
    frames: Vec<(Owned<'a>, Option<RingSlot>)>,
    /// Needed pages that have no frame yet.
    wanted: usize,
}

impl<'a> Supply<'a> {
    fn for_wanted(&mut self) -> Option<(Owned<'a>, Option<RingSlot>)> {
        self.wanted = self.wanted.saturating_sub(1);
        self.frames.pop()
    }

    /// For a page that is not needed yet: only frames that the needed pages leave.
    fn for_gap(&mut self) -> Option<(Owned<'a>, Option<RingSlot>)> {
        if self.frames.len() > self.wanted { self.frames.pop() } else { None }
    }
}

impl Ahead<'_> {
    /// Reads `runs`; their blocks in `wanted` (ascending) go into frames. `all_mapped` is called once all
    /// pages are mapped and before anything is submitted: it must not read the clock itself.
    pub(crate) fn submit(
        &self,
        runs: &[Run],
        wanted: &[Block],
        all_mapped: impl FnOnce(),
    ) -> Submitted {
        let mut supply = self.supply(runs);
        let now = self.core.clock.now();
        let booked = !self.waits && self.queued;
        let room = booked.then(|| self.file.space.queue.book(runs.len()));
        let most = room.as_ref().map_or(usize::MAX, Booked::len);
        let mut all = Submitted::default();
        let mut prepared = Vec::with_capacity(runs.len());
        let mut wanted = wanted.iter().copied().peekable();
        for run in runs {
            let mut making = Making { ahead: self, now, most, draft: Draft::default(), prepared };
            let mut submitted = Submitted::default();
            for step in 0..run.blocks {
                let block = run.first + step;
                if wanted.next_if_eq(&block).is_some() {
                    let Some(frame) = supply.for_wanted() else {
                        submitted.backed_off = true;
                        break;
                    };
                    making.take_in(block, frame, &mut submitted);
                    making.draft.wanted += 1;
                    continue;
                }
                // Kept if there is room: an unneeded page may be needed soon.
                let absent = self.file.table.lookup(block) == NO_FRAME;
                match absent.then(|| supply.for_gap()).flatten() {
                    Some(frame) => making.take_in(block, frame, &mut submitted),
                    None => making.read_through(block, &mut submitted),
                }
            }
            making.close(&mut submitted);
            prepared = making.prepared;
            all.add(submitted);
            if all.backed_off {
                self.core.counters.count(self.strategy.kind(), Event::BackedOff);
                break;
            }
        }
        let (counts, kind) = (&self.file.counts, self.strategy.kind());
        counts.add(&self.core.counters, kind, Event::GapPage, u64::from(all.gaps));
        all_mapped();
        self.submit_prepared(prepared, room);
        all
    }

    /// Reads `block`, which a task waits for, into a frame, using a place in the queue. Returns the frame, pinned for
    /// the caller; `None` when another caller has it, or it no longer exists: look it up again.
    pub(crate) fn fetch(
        &self,
        block: Block,
        frame: (Owned<'_>, Option<RingSlot>),
        place: Booked<'_>,
        notify: Notify,
    ) -> Result<Option<FrameIndex>, Error> {
        let (core, file, kind) = (self.core, self.file, self.strategy.kind());
        let ((owned, slot), now) = (frame, core.clock.now());
        let Some(mut mapped) = core.cache.map(file, block, owned, self.queued) else {
            return Ok(None);
        };
        if !matches!(file.check_now(block), Some(Ok(()))) {
            return Ok(None);
        }
        let (on_disk, offset) = self.place(block);
        let frame = mapped.loading().frame();
        if let Some(slot) = slot {
            self.strategy.fill_slot(slot, frame, file.tag(block));
        }
        let lease = core.memory.lend(mapped.loading());
        core.cache.frames.pin_again(frame);
        file.counts.count(&core.counters, kind, Event::Miss);
        file.counts.count(&core.counters, kind, Event::Reads);
        let pending = self.pending(vec![Piece::Page(block, mapped.detach())], now, notify);
        let request = Request::read(&on_disk, offset, vec![lease]);
        self.submit_prepared(vec![(request, pending)], Some(place));
        Ok(Some(frame))
    }

    fn pending(&self, pieces: Vec<Piece>, submitted_at: Duration, notify: Notify) -> PendingRead {
        PendingRead {
            core: Arc::clone(self.core),
            file: Arc::clone(self.file),
            pieces,
            kind: self.strategy.kind(),
            submitted_at,
            watch: self.watch.cloned(),
            notify,
            prefetched: self.prefetched,
        }
    }

    /// The file on disk, and the block's position in it, in bytes.
    fn place(&self, block: Block) -> (File, u64) {
        match self.through {
            Some(private) => private.place(self.file, block),
            None => self.file.place(block),
        }
    }

    /// Finds frames for as many pages of `runs` as possible. This calls foreign code (replacement policy, log, clock),
    /// which may wait, and may panic.
    fn supply(&self, runs: &[Run]) -> Supply<'_> {
        let wanted: usize = runs.iter().map(|run| run.wanted as usize).sum();
        let blocks: usize = runs.iter().map(|run| run.blocks as usize).sum();
        let found =
            (0..blocks).map_while(|_| self.core.cache.allocate_clean(&**self.core, self.strategy));
        let mut frames: Vec<_> = found.collect();
        // The ring's order is that of the blocks.
        frames.reverse();
        Supply { frames, wanted }
    }

    /// Drops the draft without reading any of it.
    fn abandon(&self, draft: Draft, submitted: &mut Submitted) {
        for (piece, lease) in draft.pieces.into_iter().zip(draft.leases) {
            if let Piece::Page(block, load) = piece {
                let mut mapped = self.core.cache.resume(self.file, block, load);
                self.core.memory.take_back(mapped.loading(), lease);
                submitted.pages -= 1;
                self.not_prefetched();
            }
        }
    }

    /// Undoes the count of a page that was not submitted.
    fn not_prefetched(&self) {
        if self.prefetched {
            self.core.budget.end_prefetch(1);
        }
    }

    fn submit_prepared(&self, prepared: Vec<Prepared>, room: Option<Booked<'_>>) {
        if self.queued {
            let submit = |(request, pending): Prepared| {
                let then: Then = Box::new(move |done| pending.complete(done));
                (request, then)
            };
            let requests: Vec<_> = prepared.into_iter().map(submit).collect();
            let io = &self.file.space.queue;
            match room {
                Some(room) => room.submit_all_then(requests),
                None => io.submit_all_then(requests),
            }
            if io.kind() == Kind::Uring {
                // Reads from the page cache have ended within the submission: no thread need wait for them.
                io.poll();
            }
            self.file.space.driver.submitted(io);
            return;
        }
        let mut unread = Unread { io: &self.file.space.sync_io, prepared: prepared.into_iter() };
        while !unread.prepared.as_slice().is_empty() {
            let read = self.core.waiting(Wait::Read, || unread.next());
            read.into_iter().for_each(|(pending, bytes)| pending.note(bytes));
        }
    }

    fn record(&self, first: Block, blocks: u32, gaps: u32) {
        let why = self.why.unwrap_or(match (blocks, gaps) {
            (1, _) => Why::Single,
            (_, 0) => Why::Merged,
            _ => Why::Gap,
        });
        trace::record(self.traced, self.file.id, (first, blocks), Action::Request, why);
    }
}

/// Requests that this thread executes, one after the other. If a foreign clock panics between two of them, none of
/// their pages stays loading: the rest is read anyway ([SUB-2]).
struct Unread<'a> {
    io: &'a Io,
    prepared: std::vec::IntoIter<Prepared>,
}

impl Iterator for Unread<'_> {
    type Item = (PendingRead, u64);

    fn next(&mut self) -> Option<Self::Item> {
        let (request, mut pending) = self.prepared.next()?;
        let bytes = pending.take_in(self.io.execute(request));
        Some((pending, bytes))
    }
}

impl Drop for Unread<'_> {
    fn drop(&mut self) {
        self.for_each(drop);
    }
}

/// The requests of one batch under construction. Between here and the submission no foreign code runs.
struct Making<'a> {
    ahead: &'a Ahead<'a>,
    now: Duration,
    /// The number of requests that fit.
    most: usize,
    draft: Draft,
    prepared: Vec<Prepared>,
}

impl Making<'_> {
    /// Adds a page that goes into `frame`.
    fn take_in(
        &mut self,
        block: Block,
        frame: (Owned<'_>, Option<RingSlot>),
        submitted: &mut Submitted,
    ) {
        let (core, file) = (self.ahead.core, self.ahead.file);
        let (owned, slot) = frame;
        if self.ahead.prefetched && !core.budget.begin_prefetch() {
            return self.read_through(block, submitted);
        }
        let Some(mut mapped) = core.cache.map(file, block, owned, self.ahead.queued) else {
            // [SUB-1]: another thread has it, or is reading it.
            self.ahead.not_prefetched();
            return self.read_through(block, submitted);
        };
        if !matches!(file.check_now(block), Some(Ok(()))) {
            drop(mapped);
            self.ahead.not_prefetched();
            return self.read_through(block, submitted);
        }
        if let Some(slot) = slot {
            self.ahead.strategy.fill_slot(slot, mapped.loading().frame(), file.tag(block));
        }
        let lease = core.memory.lend(mapped.loading());
        self.draft.push(block, Piece::Page(block, mapped.detach()), lease);
        submitted.pages += 1;
        file.counts.count(&core.counters, self.ahead.strategy.kind(), Event::Prefetch);
    }

    /// Adds a page that is discarded, if the draft is not empty; without memory for it the draft ends here.
    fn read_through(&mut self, block: Block, submitted: &mut Submitted) {
        if self.draft.pieces.is_empty() {
            return;
        }
        match self.ahead.core.gap_lease() {
            Some(lease) => self.draft.push(block, Piece::Gap, lease),
            None => self.close(submitted),
        }
    }

    /// Turns the draft into a request, without the gaps at its end.
    fn close(&mut self, submitted: &mut Submitted) {
        let mut draft = std::mem::take(&mut self.draft);
        draft.pieces.truncate(draft.used);
        draft.leases.truncate(draft.used);
        if draft.used == 0 {
            return;
        }
        let ahead = self.ahead;
        if self.prepared.len() >= self.most {
            submitted.backed_off = true;
            return ahead.abandon(draft, submitted);
        }
        let (file, offset) = ahead.place(draft.first);
        let gaps = (draft.used - draft.wanted.min(draft.used)) as u32;
        submitted.gaps += gaps;
        submitted.requests += 1;
        ahead.file.counts.count(&ahead.core.counters, ahead.strategy.kind(), Event::Reads);
        ahead.record(draft.first, draft.used as u32, gaps);
        let pending = ahead.pending(draft.pieces, self.now, Notify::None);
        self.prepared.push((Request::read(&file, offset, draft.leases), pending));
    }
}

impl Draft {
    fn push(&mut self, block: Block, piece: Piece, lease: Lease) {
        if self.pieces.is_empty() {
            self.first = block;
        }
        let page = matches!(piece, Piece::Page(..));
        self.pieces.push(piece);
        self.leases.push(lease);
        if page {
            self.used = self.pieces.len();
        }
    }
}

/// The requests for those of `wanted` (ascending, each once) that are not in memory; the others are removed from it.
pub(crate) fn requests(
    file: &FileCore,
    wanted: &mut Vec<Block>,
    limits: Limits,
    runs: &mut Vec<Run>,
) {
    let blocks = file.blocks();
    wanted.retain(|&block| block < blocks && file.table.lookup(block) == NO_FRAME);
    runs.clear();
    coalesce(wanted, limits, runs);
}

impl Core {
    fn gap_lease(&self) -> Option<Lease> {
        let make = || {
            let pages = (GAP_BYTES / self.page_bytes()).max(1);
            let made = Arena::new(pages, self.page_bytes());
            made.inspect_err(|error| tracing::warn!(%error, "no memory to read gaps through")).ok()
        };
        self.gaps.get_or_init(make).as_ref()?.take()
    }
}
