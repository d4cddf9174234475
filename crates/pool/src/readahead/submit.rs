//! From runs of blocks to reads under way: frames found, pages mapped as loading, requests submitted.
//!
//! Look-ahead takes what is free. It finds frames in its ring, on the free list, or under clean pages
//! that nobody holds; except for the pages of its own ring, it writes nothing out for that. When there is
//! none, the rest of the batch stays undone (it *backs off*), and a thread that wants such a page reads it
//! by itself.
//!
//! Invariants:  [SUB-1] of one page at most one read is under way: what is mapped already is read through
//!              like any gap   [SUB-2] every page mapped here is part of a request that is submitted
//! Concurrency: others may wait for a page from the moment it is mapped, so between that and the submission of
//!              its read nobody else's code is called and no frame is waited for: those of the whole
//!              batch are found first. What is waited for is room in a full queue, which the thread that waits
//!              drives, and with queue 0 the batch's earlier reads.

use std::sync::Arc;
use std::time::Duration;

use forebay_io::{Arena, Booked, File, Io, Kind, Lease, Request, Then};
use forebay_lookahead::{Limits, Run, coalesce};

use super::complete::{PendingRead, Piece, Told, Watch};
use super::private::Private;
use crate::cache::Disk as _;
use crate::cache::frame::{FrameIndex, NO_FRAME, Owned};
use crate::cache::replacement::{AccessStrategy, RingSlot};
use crate::core::Core;
use crate::error::Error;
use crate::observe::stats::{Event, Wait};
use crate::observe::trace::{Action, Trace, TraceEvent, Why};
use crate::store::file::FileCore;
use crate::tag::Block;

/// Memory for pages that are read through and thrown away, in one pool, in bytes.
const GAP_BYTES: usize = 1 << 20;

/// On whose behalf pages are read ahead, and how.
pub(crate) struct Ahead<'a> {
    pub(crate) core: &'a Arc<Core>,
    pub(crate) file: &'a Arc<FileCore>,
    pub(crate) strategy: &'a AccessStrategy,
    /// Descriptors of the reader's own.
    pub(crate) through: Option<&'a Private>,
    /// The queue to use; 0: this thread reads, and has read when it returns.
    pub(crate) queue: u8,
    pub(crate) watch: Option<&'a Arc<Watch>>,
    /// Where decisions are recorded, and the stream's number there.
    pub(crate) trace: Option<(&'a Trace, u32)>,
    /// Why this is read, as far as the trace is concerned; `None`: as the runs themselves say.
    pub(crate) why: Option<Why>,
    /// Whether room in a full queue is waited for; else it counts as a lack of frames.
    pub(crate) waits: bool,
    /// No stream has these pages pinned: each counts in the budget until it is here.
    pub(crate) prefetched: bool,
}

/// What became of a batch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Submitted {
    pub(crate) requests: u32,
    /// Pages on their way into frames.
    pub(crate) pages: u32,
    /// Pages read though nobody wanted them, whether they are kept or not.
    pub(crate) gaps: u32,
    /// True when there was no frame for the rest.
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

/// One request in the making.
#[derive(Default)]
struct Draft {
    first: Block,
    pieces: Vec<Piece>,
    leases: Vec<Lease>,
    /// Pages in it that somebody wants.
    wanted: usize,
    /// Pieces up to the last page: what follows are gaps so far.
    used: usize,
}

type Prepared = (Request, PendingRead);

/// Frames for a batch, found before anything is mapped.
struct Supply<'a> {
    frames: Vec<(Owned<'a>, Option<RingSlot>)>,
    /// Wanted pages that have not been given one yet.
    wanted: usize,
}

impl<'a> Supply<'a> {
    fn for_wanted(&mut self) -> Option<(Owned<'a>, Option<RingSlot>)> {
        self.wanted = self.wanted.saturating_sub(1);
        self.frames.pop()
    }

    /// For a page that nobody wants yet: only what the wanted ones leave.
    fn for_gap(&mut self) -> Option<(Owned<'a>, Option<RingSlot>)> {
        if self.frames.len() > self.wanted { self.frames.pop() } else { None }
    }
}

impl Ahead<'_> {
    /// Reads `runs`, of whose blocks those in `wanted` (ascending) go into frames. `all_mapped` is called
    /// once all pages are mapped and before anything is submitted, with the time: it must not ask anybody for that.
    pub(crate) fn submit(
        &self,
        runs: &[Run],
        wanted: &[Block],
        all_mapped: impl FnOnce(Duration),
    ) -> Submitted {
        let mut supply = self.supply(runs);
        let now = self.core.clock.now();
        let booked = !self.waits && self.queue > 0;
        let room = booked.then(|| self.file.space.queue(self.queue).book(runs.len()));
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
                // Kept if there is room: what was not wanted yet may be soon.
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
        all_mapped(now);
        self.submit_prepared(prepared, room);
        all
    }

    /// Reads `block`, which somebody waits for, into a frame, by a place in the queue. Gives the frame, pinned for the
    /// caller; `None` when another has it, or it is gone: look again.
    pub(crate) fn fetch(
        &self,
        block: Block,
        frame: (Owned<'_>, Option<RingSlot>),
        place: Booked<'_>,
        told: Told,
    ) -> Result<Option<FrameIndex>, Error> {
        let (core, file, kind) = (self.core, self.file, self.strategy.kind());
        let ((owned, slot), now) = (frame, core.clock.now());
        let Some(mut mapped) = core.cache.map(file, block, owned, self.queue) else {
            return Ok(None);
        };
        if !matches!(file.check_now(block), Some(Ok(()))) {
            return Ok(None);
        }
        let (segment, offset) = self.place(block)?;
        let frame = mapped.loading().frame();
        if let Some(slot) = slot {
            self.strategy.fill_slot(slot, frame, file.tag(block));
        }
        let lease = core.memory.lend(mapped.loading());
        core.cache.frames.pin_again(frame);
        file.counts.count(&core.counters, kind, Event::Miss);
        file.counts.count(&core.counters, kind, Event::Reads);
        let pending = self.pending(vec![Piece::Page(block, mapped.detach())], now, told);
        let request = Request::read(&segment, offset, vec![lease]);
        self.submit_prepared(vec![(request, pending)], Some(place));
        Ok(Some(frame))
    }

    fn pending(&self, pieces: Vec<Piece>, submitted_at: Duration, told: Told) -> PendingRead {
        PendingRead {
            core: Arc::clone(self.core),
            file: Arc::clone(self.file),
            pieces,
            kind: self.strategy.kind(),
            submitted_at,
            watch: self.watch.cloned(),
            told,
            prefetched: self.prefetched,
        }
    }

    /// The segment that holds `block`, and the byte offset there.
    fn place(&self, block: Block) -> Result<(File, u64), Error> {
        match self.through {
            Some(private) => private.place(self.file, block),
            None => self.file.place(block),
        }
    }

    /// Frames for as many pages of `runs` as there are. Here the replacement policy, the log and the
    /// clock of others are called; they may wait, and may panic.
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

    /// Reads nothing of it after all.
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

    /// A page was not submitted after all.
    fn not_prefetched(&self) {
        if self.prefetched {
            self.core.budget.end_prefetch(1);
        }
    }

    fn submit_prepared(&self, prepared: Vec<Prepared>, room: Option<Booked<'_>>) {
        if self.queue > 0 {
            let submit = |(request, pending): Prepared| {
                let then: Then = Box::new(move |done| pending.complete(done));
                (request, then)
            };
            let requests: Vec<_> = prepared.into_iter().map(submit).collect();
            let io = self.file.space.queue(self.queue);
            match room {
                Some(room) => room.submit_all_then(requests),
                None => io.submit_all_then(requests),
            }
            if io.kind() == Kind::Uring {
                // What the page cache had has ended within the submission: nobody is to wait for it.
                io.poll();
            }
            self.file.space.driver(self.queue).submitted(io);
            return;
        }
        let mut unread = Unread { io: &self.file.space.sync_io, prepared: prepared.into_iter() };
        while !unread.prepared.as_slice().is_empty() {
            let read = self.core.waiting(Wait::Read, || unread.next());
            read.into_iter().for_each(|(pending, bytes)| pending.note(bytes));
        }
    }

    fn record(&self, now: Duration, first: Block, blocks: u32, gaps: u32) {
        let Some((trace, stream)) = self.trace else { return };
        let why = self.why.unwrap_or(match (blocks, gaps) {
            (1, _) => Why::Single,
            (_, 0) => Why::Merged,
            _ => Why::Gap,
        });
        let (at, file) = (now, self.file.id);
        trace.record(TraceEvent { at, stream, file, first, blocks, action: Action::Request, why });
    }
}

/// Requests that this thread carries out, one after the other. A panic of somebody's clock between two of them leaves
/// none of their pages loading: what is left is read anyway ([SUB-2]).
struct Unread<'a> {
    io: &'a Io,
    prepared: std::vec::IntoIter<Prepared>,
}

impl Iterator for Unread<'_> {
    type Item = (PendingRead, u64);

    fn next(&mut self) -> Option<Self::Item> {
        let (request, mut pending) = self.prepared.next()?;
        let bytes = pending.take_in(self.io.carry_out(request));
        Some((pending, bytes))
    }
}

impl Drop for Unread<'_> {
    fn drop(&mut self) {
        self.for_each(drop);
    }
}

/// Requests of one batch in the making. Between here and the submission no foreign code runs.
struct Making<'a> {
    ahead: &'a Ahead<'a>,
    now: Duration,
    /// Requests that there is room for.
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
        let queue = self.ahead.queue;
        if self.ahead.prefetched && !core.budget.begin_prefetch() {
            return self.read_through(block, submitted);
        }
        let Some(mut mapped) = core.cache.map(file, block, owned, queue) else {
            // [SUB-1]: somebody else has it, or is reading it.
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

    /// Adds a page that is thrown away, if anything is in the draft yet; without memory for it the draft
    /// ends here.
    fn read_through(&mut self, block: Block, submitted: &mut Submitted) {
        if self.draft.pieces.is_empty() {
            return;
        }
        match self.ahead.core.gap_lease() {
            Some(lease) => self.draft.push(block, Piece::Gap, lease),
            None => self.close(submitted),
        }
    }

    /// Makes a request of the draft, without the gaps at its end.
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
        let Ok((file, offset)) = ahead.place(draft.first) else {
            // The segment has gone meanwhile.
            return ahead.abandon(draft, submitted);
        };
        let gaps = (draft.used - draft.wanted.min(draft.used)) as u32;
        submitted.gaps += gaps;
        submitted.requests += 1;
        ahead.file.counts.count(&ahead.core.counters, ahead.strategy.kind(), Event::Reads);
        ahead.record(self.now, draft.first, draft.used as u32, gaps);
        let pending = ahead.pending(draft.pieces, self.now, Told::Nobody);
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

/// The requests for those of `wanted` (ascending, each once) that are not in memory; the others are taken out.
pub(crate) fn requests(
    file: &FileCore,
    wanted: &mut Vec<Block>,
    limits: Limits,
    runs: &mut Vec<Run>,
) {
    let blocks = file.blocks();
    wanted.retain(|&block| block < blocks && file.table.lookup(block) == NO_FRAME);
    runs.clear();
    let room = |block| u32::try_from(file.run_length_max(block)).unwrap_or(u32::MAX);
    coalesce(wanted, limits, room, runs);
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
