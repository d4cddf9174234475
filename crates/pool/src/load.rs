//! From a block to a page: the hit, the wait for somebody else's read, and the miss.
//!
//! A hit is a lookup and one compare-and-swap. A miss takes a frame, lists it in the page table as
//! loading, reads, checks, and makes it resident. Whoever asks for a page that is loading pins the
//! frame and sleeps on that read instead of issuing another.
//!
//! Invariants:  [LOD-1] of one page at most one read is under way (its entry is listed once)
//!              [LOD-2] a read that fails, or whose thread panics, leaves no page behind; its error
//!              reaches everyone who waited, and after a panic they read for themselves
//!              [LOD-3] while a page is listed as loading, its loader waits for nothing but its read
//! Concurrency: no latch is held across a read but that of the frame being filled, which nobody can
//!              have: READING bars the way.
//! Failure:     the error of a read is that of each caller who asked while it was under way; whoever
//!              asks later tries anew.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use forebay_io::{File, Op, Request};

use crate::ahead::Private;
use crate::core::Core;
use crate::error::Error;
use crate::file::FileCore;
use crate::frame::word::{AHEAD, Mode, ORPHAN, Obstacle, Touch, VALID};
use crate::frame::{Frame, FrameIndex, Loaded, Loading, NO_FRAME};
use crate::guard::Optimistic;
use crate::replacement::AccessStrategy;
use crate::stats::{Event, PoolEvent, Wait};
use crate::strategy_kind::StrategyKind;
use crate::sync::{Ordering, fence, spin_loop, yield_now};
use crate::table::Entry;
use crate::tablespace::Space;
use crate::tag::Block;

/// What to do about a page that is not in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Absent {
    /// Read it.
    Read,
    /// Make it, all zero.
    Zero,
}

/// On whose behalf a page is looked up or read, and how.
#[derive(Clone, Copy)]
pub(crate) struct How<'a> {
    pub(crate) strategy: &'a AccessStrategy,
    /// Descriptors of the reader's own, which the kernel keeps apart from everyone else's.
    pub(crate) through: Option<&'a Private>,
    /// Where to say how long a read took, if one was needed.
    pub(crate) took: Option<&'a Cell<Duration>>,
    /// Whether a miss that looks like one of a sequence has what follows read as well.
    pub(crate) detect: bool,
}

impl<'a> How<'a> {
    /// A plain read or write.
    pub(crate) fn plain(strategy: &'a AccessStrategy, detect: bool) -> How<'a> {
        How { strategy, through: None, took: None, detect }
    }

    fn place(&self, file: &FileCore, block: Block) -> Result<(File, u64), Error> {
        match self.through {
            Some(private) => private.place(file, block),
            None => file.place(block),
        }
    }
}

/// How often a page is counted as used once it has come in.
const USAGE_LOADED: u64 = 1;

/// Looks at an entry that leads to a frame without its page before letting others run.
const SPINS_BEFORE_YIELD: u32 = 32;

impl Core {
    /// The page `block` of `file`, pinned and latched in `mode`, if it is in memory and nothing is
    /// in the way.
    #[inline(always)]
    pub(crate) fn hit(
        &self,
        file: &FileCore,
        block: Block,
        mode: Mode,
        strategy: &AccessStrategy,
    ) -> Option<(&Frame, FrameIndex)> {
        let frame = file.table.lookup(block);
        let it = self.frames.enter(frame, file.tag(block), mode, touch(strategy))?;
        self.counters.hit(strategy.kind());
        Some((it, frame))
    }

    /// The page `block` of `file`, pinned and latched in `mode`.
    pub(crate) fn enter(
        self: &Arc<Self>,
        file: &Arc<FileCore>,
        block: Block,
        mode: Mode,
        how: How<'_>,
    ) -> Result<FrameIndex, Error> {
        match self.hit(file, block, mode, how.strategy) {
            Some((_, frame)) => Ok(frame),
            None => self.enter_slowly(file, block, mode, how, Absent::Read),
        }
    }

    /// As [`Core::enter`], after a first look that did not succeed.
    #[cold]
    #[inline(never)]
    pub(crate) fn enter_slowly(
        self: &Arc<Self>,
        file: &Arc<FileCore>,
        block: Block,
        mode: Mode,
        how: How<'_>,
        absent: Absent,
    ) -> Result<FrameIndex, Error> {
        let strategy = how.strategy;
        let tag = file.tag(block);
        let mut looks = 0;
        loop {
            file.check(block)?;
            let frame = file.table.lookup(block);
            if frame == NO_FRAME {
                match self.bring_in(file, block, mode, how, absent)? {
                    Some(frame) => return Ok(frame),
                    None => continue, // Another thread was first.
                }
            }
            if self.frames.enter(frame, tag, mode, touch(strategy)).is_some() {
                self.counters.hit(strategy.kind());
                return Ok(frame);
            }
            let obstacle = self.frames.obstacle(frame, tag);
            let pinned =
                obstacle != Obstacle::NotHere && self.frames.pin(frame, tag, touch(strategy));
            if !pinned {
                // The entry leads to a frame that has just lost the page, and is about to go.
                looks += 1;
                if looks % SPINS_BEFORE_YIELD == 0 {
                    yield_now();
                } else {
                    spin_loop();
                }
                continue;
            }
            // Not what the obstacle was: since then the page may have left the frame and be on its
            // way in again. A page that is here stays, now that it is pinned.
            if !self.frames.get(frame).word().has(VALID) {
                match self.wait_loaded(file, frame, strategy.kind()) {
                    Loaded::Here => {}
                    // Who wants no bytes does not mind that they could not be read.
                    Loaded::Failed(_) if absent == Absent::Zero => {
                        self.frames.unpin(frame);
                        continue;
                    }
                    Loaded::Failed(error) => {
                        self.frames.unpin(frame);
                        return Err(error);
                    }
                    Loaded::LookAgain => {
                        self.frames.unpin(frame);
                        continue;
                    }
                }
            } else {
                self.counters.hit(strategy.kind());
            }
            self.latch_pinned(frame, mode);
            return match self.check_here(file, frame) {
                Ok(()) => Ok(frame),
                Err(error) => {
                    self.leave(frame, mode);
                    Err(error)
                }
            };
        }
    }

    fn wait_loaded(&self, file: &FileCore, frame: FrameIndex, kind: StrategyKind) -> Loaded {
        self.counters.count(kind, Event::HitInFlight);
        self.waiting(Wait::InFlightRead, || self.wait_read(&file.space, frame));
        self.frames.loaded(frame)
    }

    /// Waits until the page that is on its way into the pinned `frame`, of a file in `space`, is
    /// there, driving the queue that carries it.
    pub(crate) fn wait_read(&self, space: &Space, frame: FrameIndex) {
        match self.frames.get(frame).word().carrier() {
            0 => self.frames.wait_loaded(frame),
            carrier => {
                self.frames.wait_carried(frame, |done| space.carrier(carrier).wait_until(done));
            }
        }
    }

    /// Latches a pinned frame; the time is booked if there was anything to wait for.
    pub(crate) fn latch_pinned(&self, frame: FrameIndex, mode: Mode) {
        if !self.frames.try_latch(frame, mode) {
            self.waiting(Wait::Latch, || self.frames.latch(frame, mode));
        }
    }

    /// An error if the page in a frame that the caller holds was discarded.
    pub(crate) fn check_here(&self, file: &FileCore, frame: FrameIndex) -> Result<(), Error> {
        let gone = self.frames.get(frame).word().has(ORPHAN);
        if gone { Err(file.page_gone()) } else { Ok(()) }
    }

    pub(crate) fn leave(&self, frame: FrameIndex, mode: Mode) {
        match mode {
            Mode::Pin => self.frames.unpin(frame),
            Mode::Shared => self.frames.leave_shared(frame),
            Mode::Exclusive => self.frames.leave_exclusive(frame),
        }
    }

    /// Loads a page that nobody has. `None` when another thread's load was listed first.
    fn bring_in(
        self: &Arc<Self>,
        file: &Arc<FileCore>,
        block: Block,
        mode: Mode,
        how: How<'_>,
        absent: Absent,
    ) -> Result<Option<FrameIndex>, Error> {
        let strategy = how.strategy;
        let (owned, slot) = self.allocate(strategy)?;
        if how.detect && absent == Absent::Read {
            // Before this thread waits for its own page, so that both are read at once; and before that
            // page is listed, as this may wait for the log ([LOD-3]).
            self.follow(file, block, strategy);
        }
        let (entry, tag) = (file.table.entry(block), file.tag(block));
        let Some(loading) = owned.load(tag, 0, |frame| entry.list(frame)) else {
            return Ok(None);
        };
        let mut listed = Listed { entry, loading: Some(loading) };
        let loading = listed.loading.as_mut().expect("it was put there just now");
        let frame = loading.frame();
        // Listed first, looked second: see `file::resize`.
        fence(Ordering::SeqCst);
        let Some(checked) = file.check_now(block) else {
            // Being closed: with the page out of the way, wait for what comes of that ([RSZ-2]).
            return Ok(None);
        };
        let filled = checked.and_then(|()| match absent {
            Absent::Read => self.read(file, block, loading, how),
            Absent::Zero => {
                self.memory.bytes_mut(loading).fill(0);
                self.counters.count(strategy.kind(), Event::Init);
                Ok(())
            }
        });
        match filled {
            Ok(()) => {
                listed.finish(mode);
                if let Some(slot) = slot {
                    strategy.fill_slot(slot, frame, tag);
                }
                Ok(Some(frame))
            }
            Err(error) => {
                listed.fail(error.clone());
                Err(error)
            }
        }
    }

    /// Reads a page into its frame and checks it.
    fn read(
        &self,
        file: &FileCore,
        block: Block,
        loading: &mut Loading<'_>,
        how: How<'_>,
    ) -> Result<(), Error> {
        let kind = how.strategy.kind();
        let (segment, offset) = how.place(file, block)?;
        self.counters.count(kind, Event::Miss);
        self.counters.count(kind, Event::Reads);
        let start = self.clock.now();
        let lease = self.memory.lend(loading);
        let done = file.space.lone.submit(Request::read(&segment, offset, vec![lease])).wait();
        for lease in done.leases {
            self.memory.take_back(loading, lease);
        }
        let took = self.clock.now().saturating_sub(start);
        self.counters.waited(Wait::Read, took);
        if let Some(cell) = how.took {
            cell.set(took);
        }
        if let Err(error) = done.result {
            self.counters.count(kind, Event::ReadErrors);
            return Err(file.space.failure(Op::Read, error));
        }
        self.counters.add(kind, Event::BytesRead, self.page_bytes() as u64);
        self.verify(file, block, self.memory.bytes_mut(loading), kind)
    }

    /// Checks the bytes of `block` of `file` as they came from disk.
    pub(crate) fn verify(
        &self,
        file: &FileCore,
        block: Block,
        page: &[u8],
        kind: StrategyKind,
    ) -> Result<(), Error> {
        file.checksum.verify(page, block, file.zero_pages).map_err(|mismatch| {
            self.counters.count(kind, Event::CorruptPages);
            Error::Corrupt {
                file: Arc::clone(&file.path),
                block,
                expected: mismatch.expected,
                found: mismatch.found,
                all_zeroes: mismatch.all_zeroes,
            }
        })
    }

    /// A look at the page `block` that holds nothing, if it is in memory and not being changed.
    #[inline(always)]
    pub(crate) fn look<'p>(&'p self, file: &FileCore, block: Block) -> Option<Optimistic<'p>> {
        let frame = file.table.lookup(block);
        let it = self.frames.find(frame)?;
        let version = it.version();
        // An even version from before the tag was seen: the tag is that of the bytes which the
        // version stands for.
        if !version.is_multiple_of(2) || !it.holds(file.tag(block)) {
            return None;
        }
        if it.word().usage() == 0 || it.word().has(AHEAD) {
            self.frames.touch(frame);
        }
        self.counters.optimistic();
        Some(Optimistic::at(self, frame, block, version))
    }

    /// As [`Core::look`], after waiting for whoever changes the page, or reading it in.
    #[cold]
    #[inline(never)]
    pub(crate) fn look_slowly<'p>(
        self: &'p Arc<Self>,
        file: &Arc<FileCore>,
        block: Block,
        detect: bool,
    ) -> Result<Optimistic<'p>, Error> {
        loop {
            let how = How::plain(&AccessStrategy::NORMAL, detect);
            let frame = self.enter(file, block, Mode::Shared, how)?;
            let look = self.look(file, block);
            self.frames.leave_shared(frame);
            if let Some(look) = look {
                return Ok(look);
            }
            self.counters.count_pool(PoolEvent::OptimisticRetries);
        }
    }
}

/// A page that this thread brings in, listed. Taken out of the page table again should the thread panic
/// before the load has ended ([LOD-2]).
struct Listed<'a> {
    entry: &'a Entry,
    loading: Option<Loading<'a>>,
}

impl Listed<'_> {
    fn finish(mut self, mode: Mode) {
        if let Some(loading) = self.loading.take() {
            loading.finish(mode, USAGE_LOADED);
        }
    }

    fn fail(mut self, error: Error) {
        if let Some(loading) = self.loading.take() {
            self.entry.unlist(loading.frame());
            loading.fail(error);
        }
    }
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        if let Some(loading) = self.loading.take() {
            self.entry.unlist(loading.frame());
            loading.abandon();
        }
    }
}

#[inline]
pub(crate) fn touch(strategy: &AccessStrategy) -> Touch {
    if strategy.kind() == StrategyKind::Normal { Touch::Count } else { Touch::Once }
}
