//! From a block to a page: the hit, the wait for somebody else's read, and the miss.
//!
//! A hit is a lookup and one compare-and-swap. A miss takes a frame, lists it in the page table as
//! loading, reads, checks, and makes it resident. Whoever asks for a page that is loading pins the
//! frame and sleeps on that read instead of issuing another.
//!
//! Invariants:  [LOD-1] of one page at most one read is under way (its entry is listed once)
//!              [LOD-2] a failed read leaves no page behind, and its error reaches everyone who waited
//! Concurrency: no latch is held across a read but that of the frame being filled, which nobody can
//!              have: READING bars the way.
//! Failure:     the error of a read is that of each caller who asked while it was under way; whoever
//!              asks later tries anew.

use std::sync::Arc;

use forebay_io::{Op, Request};

use crate::core::Core;
use crate::error::Error;
use crate::file::FileCore;
use crate::frame::word::{Mode, ORPHAN, Obstacle, Touch, VALID};
use crate::frame::{Frame, FrameIndex, Loaded, Loading, NO_FRAME};
use crate::guard::Optimistic;
use crate::replacement::AccessStrategy;
use crate::stats::{Event, PoolEvent, Wait};
use crate::strategy_kind::StrategyKind;
use crate::sync::{Ordering, fence, spin_loop, yield_now};
use crate::tag::Block;

/// What to do about a page that is not in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Absent {
    /// Read it.
    Read,
    /// Make it, all zero.
    Zero,
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
        &self,
        file: &FileCore,
        block: Block,
        mode: Mode,
        strategy: &AccessStrategy,
    ) -> Result<FrameIndex, Error> {
        match self.hit(file, block, mode, strategy) {
            Some((_, frame)) => Ok(frame),
            None => self.enter_slowly(file, block, mode, strategy, Absent::Read),
        }
    }

    /// As [`Core::enter`], after a first look that did not succeed.
    #[cold]
    #[inline(never)]
    pub(crate) fn enter_slowly(
        &self,
        file: &FileCore,
        block: Block,
        mode: Mode,
        strategy: &AccessStrategy,
        absent: Absent,
    ) -> Result<FrameIndex, Error> {
        let tag = file.tag(block);
        let mut looks = 0;
        loop {
            file.check(block)?;
            let frame = file.table.lookup(block);
            if frame == NO_FRAME {
                match self.bring_in(file, block, mode, strategy, absent)? {
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
                match self.wait_loaded(frame, strategy.kind()) {
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

    fn wait_loaded(&self, frame: FrameIndex, kind: StrategyKind) -> Loaded {
        self.counters.count(kind, Event::HitInFlight);
        self.waiting(Wait::InFlightRead, || self.frames.wait_loaded(frame));
        self.frames.loaded(frame)
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
        &self,
        file: &FileCore,
        block: Block,
        mode: Mode,
        strategy: &AccessStrategy,
        absent: Absent,
    ) -> Result<Option<FrameIndex>, Error> {
        let (owned, slot) = self.allocate(strategy)?;
        let (entry, tag) = (file.table.entry(block), file.tag(block));
        let Some(mut loading) = owned.load(tag, |frame| entry.list(frame)) else {
            return Ok(None);
        };
        let frame = loading.frame();
        // Listed first, looked second: see `file::resize`.
        fence(Ordering::SeqCst);
        let filled = file.check(block).and_then(|()| match absent {
            Absent::Read => self.read(file, block, &mut loading, strategy.kind()),
            Absent::Zero => {
                self.memory.bytes_mut(&mut loading).fill(0);
                self.counters.count(strategy.kind(), Event::Init);
                Ok(())
            }
        });
        match filled {
            Ok(()) => {
                loading.finish(mode, USAGE_LOADED);
                if let Some(slot) = slot {
                    strategy.fill_slot(slot, frame, tag);
                }
                Ok(Some(frame))
            }
            Err(error) => {
                entry.unlist(frame);
                loading.fail(error.clone());
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
        kind: StrategyKind,
    ) -> Result<(), Error> {
        let (segment, offset) = file.place(block)?;
        let lease = self.memory.lend(loading);
        self.counters.count(kind, Event::Miss);
        self.counters.count(kind, Event::Reads);
        let request = Request::read(&segment, offset, vec![lease]);
        let done = self.waiting(Wait::Read, || file.space.lone.submit(request).wait());
        for lease in done.leases {
            self.memory.take_back(loading, lease);
        }
        if let Err(error) = done.result {
            self.counters.count(kind, Event::ReadErrors);
            return Err(file.space.failure(Op::Read, error));
        }
        self.counters.add(kind, Event::BytesRead, self.page_bytes() as u64);
        self.verify(file, block, self.memory.bytes_mut(loading), kind)
    }

    fn verify(
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
        if it.word().usage() == 0 {
            self.frames.touch(frame);
        }
        self.counters.optimistic();
        Some(Optimistic::at(self, frame, block, version))
    }

    /// As [`Core::look`], after waiting for whoever changes the page, or reading it in.
    #[cold]
    #[inline(never)]
    pub(crate) fn look_slowly<'p>(
        &'p self,
        file: &FileCore,
        block: Block,
    ) -> Result<Optimistic<'p>, Error> {
        loop {
            let strategy = &AccessStrategy::NORMAL;
            let frame = self.enter(file, block, Mode::Shared, strategy)?;
            let look = self.look(file, block);
            self.frames.leave_shared(frame);
            if let Some(look) = look {
                return Ok(look);
            }
            self.counters.count_pool(PoolEvent::OptimisticRetries);
        }
    }
}

#[inline]
fn touch(strategy: &AccessStrategy) -> Touch {
    if strategy.kind() == StrategyKind::Normal { Touch::Count } else { Touch::Once }
}
