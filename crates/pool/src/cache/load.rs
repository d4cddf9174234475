//! From a block to a page: the hit, the wait for another thread's read, the miss, and the page that is read ahead.
//!
//! A hit is a lookup and one compare-and-swap. A miss takes a frame, maps the page to it as loading, reads, checks, and
//! makes it resident. A thread that requests a page that is loading pins the frame and sleeps on that read instead of
//! issuing another.
//!
//! Invariants:  [LOD-1] at most one read of a page is in progress (its entry is mapped once)
//!              [LOD-2] a read that fails, or whose thread panics, leaves no page behind; its error reaches every
//!              waiter, and after a panic the waiters read on their own
//!              [LOD-3] while a page is mapped as loading, its loader waits only for its read
//! Concurrency: no latch is held across a read except that of the frame being filled, which no thread can take: READING
//!              blocks it.
//! Failure:     the error of a read goes to each caller that requested the page during the read; a later caller tries
//!              again. The failure of a read-ahead is not reported: a thread that waited looks again.

use super::file::CachedFile;
use super::frame::word::{Mode, ORPHAN, Obstacle, QUEUED, Touch, VALID};
use super::frame::{Detached, FrameIndex, Hold, Loaded, Loading, NO_FRAME, Owned, Seen};
use super::replacement::{AccessStrategy, RingSlot};
use super::table::{Entry, Place};
use super::{Cache, Disk};
use crate::error::Error;
use crate::observe::stats::{Event, Wait};
use crate::strategy_kind::StrategyKind;
use crate::sync::{Ordering, fence, spin_loop, yield_now};
use crate::tag::Block;

/// What to do with a page that is not in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Absent {
    /// Read it.
    Read,
    /// Create it, all zero.
    Zero,
}

/// The parameters of a page request, and its origin.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a, R> {
    pub(crate) mode: Mode,
    pub(crate) strategy: &'a AccessStrategy,
    pub(crate) absent: Absent,
    pub(crate) reader: R,
}

/// The usage count of a page that has just been loaded.
const USAGE_LOADED: u64 = 1;

/// Spins on an entry that points to a frame without its page before yielding.
const SPINS_BEFORE_YIELD: u32 = 32;

impl Cache {
    /// Returns the page `block` of `file`, pinned and latched in `mode`, if it is in memory and nothing is in the way.
    #[inline(always)]
    pub(crate) fn hit(
        &self,
        file: &CachedFile,
        block: Block,
        mode: Mode,
        strategy: &AccessStrategy,
    ) -> Option<Hold<'_>> {
        let entry = file.table.find(block);
        let frame = entry.frame();
        let mapped = || entry.frame() == frame;
        match self.frames.acquire_mapped(frame, mode, touch(strategy), mapped) {
            Some(held) => Some(held),
            None => self.hit_otherwise(file, block, frame, mode, strategy),
        }
    }

    /// As [`Cache::hit`], when something was in the way, another thread was first, or the page was read ahead.
    #[cold]
    #[inline(never)]
    fn hit_otherwise(
        &self,
        file: &CachedFile,
        block: Block,
        frame: FrameIndex,
        mode: Mode,
        strategy: &AccessStrategy,
    ) -> Option<Hold<'_>> {
        self.frames.acquire(frame, file.tag(block), mode, touch(strategy))
    }

    /// Returns the page `block` of `file`, pinned and latched as requested.
    pub(crate) fn acquire<'a, D: Disk>(
        &self,
        disk: &D,
        file: &D::File,
        block: Block,
        asked: Asked<'a, D::Reader<'a>>,
    ) -> Result<FrameIndex, Error> {
        match self.hit(file, block, asked.mode, asked.strategy) {
            Some(held) => {
                disk.counters().hit(asked.strategy.kind());
                Ok(held.frame)
            }
            None => self.acquire_slowly(disk, file, block, asked),
        }
    }

    /// As [`Cache::acquire`], after an unsuccessful first attempt.
    #[cold]
    #[inline(never)]
    pub(crate) fn acquire_slowly<'a, D: Disk>(
        &self,
        disk: &D,
        file: &D::File,
        block: Block,
        asked: Asked<'a, D::Reader<'a>>,
    ) -> Result<FrameIndex, Error> {
        let Asked { mode, strategy, absent, .. } = asked;
        let tag = file.tag(block);
        let mut looks = 0;
        loop {
            file.check(block)?;
            let frame = file.table.lookup(block);
            if frame == NO_FRAME {
                match self.bring_in(disk, file, block, asked)? {
                    Some(frame) => return Ok(frame),
                    None => continue, // Another thread was first.
                }
            }
            if self.frames.acquire(frame, tag, mode, touch(strategy)).is_some() {
                disk.counters().hit(strategy.kind());
                return Ok(frame);
            }
            let obstacle = self.frames.obstacle(frame, tag);
            let pinned =
                obstacle != Obstacle::NotHere && self.frames.pin(frame, tag, touch(strategy));
            if !pinned {
                // The entry points to a frame that has just lost the page, and is about to be removed.
                looks += 1;
                if looks % SPINS_BEFORE_YIELD == 0 {
                    yield_now();
                } else {
                    spin_loop();
                }
                continue;
            }
            // The obstacle has changed: since then the page may have left the frame and be loading again. A page that
            // is resident stays, now that it is pinned.
            if self.frames.get(frame).word().has(VALID) {
                disk.counters().hit(strategy.kind());
            } else {
                file.counts.count(disk.counters(), strategy.kind(), Event::HitInFlight);
                disk.waiting(Wait::InFlightRead, || self.wait_read(disk, file, frame));
                let loaded = self.frames.loaded(frame);
                if !matches!(loaded, Loaded::Here) {
                    self.frames.unpin(frame);
                }
                match loaded {
                    Loaded::Here => {}
                    // A caller that needs no bytes ignores a failed read.
                    Loaded::Failed(error) if absent == Absent::Read => return Err(error),
                    Loaded::Failed(_) | Loaded::LookAgain => continue,
                }
            }
            self.latch_pinned(disk, frame, mode);
            return match self.check_here(file, frame) {
                Ok(()) => Ok(frame),
                Err(error) => {
                    self.frames.release(frame, mode);
                    if error.is_refreshed() {
                        continue;
                    }
                    Err(error)
                }
            };
        }
    }

    /// Waits until the page of `file` that is being loaded into the pinned `frame` is resident, or its load has failed,
    /// driving the queue that carries it.
    pub(crate) fn wait_read<D: Disk>(&self, disk: &D, file: &D::File, frame: FrameIndex) {
        if self.frames.get(frame).word().has(QUEUED) {
            self.frames.wait_queued(frame, |done| disk.drive(file, done));
        } else {
            self.frames.wait_loaded(frame);
        }
    }

    /// Latches a pinned frame; records the time if it had to wait.
    pub(crate) fn latch_pinned<D: Disk>(&self, disk: &D, frame: FrameIndex, mode: Mode) {
        if !self.frames.try_latch(frame, mode) {
            disk.waiting(Wait::Latch, || self.frames.latch(frame, mode));
        }
    }

    /// An error if the page in a frame that the caller holds was discarded.
    pub(crate) fn check_here(&self, file: &CachedFile, frame: FrameIndex) -> Result<(), Error> {
        let invalidated = self.frames.get(frame).word().has(ORPHAN);
        if invalidated { Err(file.page_invalidated()) } else { Ok(()) }
    }

    /// Loads a page that is not mapped. `None` when another thread's load was mapped first.
    fn bring_in<'a, D: Disk>(
        &self,
        disk: &D,
        file: &D::File,
        block: Block,
        asked: Asked<'a, D::Reader<'a>>,
    ) -> Result<Option<FrameIndex>, Error> {
        let Asked { mode, strategy, absent, reader } = asked;
        let (owned, slot) = self.allocate(disk, strategy)?;
        if absent == Absent::Read {
            // Before this thread waits for its own page, so that both are read at once; and before that page is mapped,
            // as this may wait for the log ([LOD-3]).
            disk.missed(file, block, strategy, reader);
        }
        let Some(mut mapped) = self.map(file, block, owned, false) else {
            return Ok(None);
        };
        let Some(checked) = file.check_now(block) else {
            // Being closed: with the page removed, wait for the result of the close ([RSZ-2]).
            return Ok(None);
        };
        // A thread that waits for this load may have come after the file has grown; it looks again.
        checked?;
        let loading = mapped.loading();
        let frame = loading.frame();
        let filled = match absent {
            Absent::Read => disk.read(file, block, loading, strategy.kind(), reader),
            Absent::Zero => {
                disk.zero(loading);
                file.counts.count(disk.counters(), strategy.kind(), Event::Init);
                Ok(())
            }
        };
        match filled {
            Ok(()) => {
                mapped.finish(mode);
                if let Some(slot) = slot {
                    strategy.fill_slot(slot, frame, file.tag(block));
                }
                Ok(Some(frame))
            }
            Err(error) => {
                mapped.fail(error.clone());
                Err(error)
            }
        }
    }

    /// Creates the page of `block`, which is new in the file, all zero, in the frame that was allocated for it: pinned
    /// and latched exclusively. Returns `None` if a thread has it mapped that requested it before it was truncated, and
    /// has not noticed that yet. Called by the thread that has the right to resize the file.
    pub(crate) fn append<D: Disk>(
        &self,
        disk: &D,
        file: &D::File,
        block: Block,
        (owned, slot): (Owned<'_>, Option<RingSlot>),
        strategy: &AccessStrategy,
    ) -> Option<FrameIndex> {
        let mut mapped = self.map(file, block, owned, false)?;
        let frame = mapped.loading().frame();
        disk.zero(mapped.loading());
        file.counts.count(disk.counters(), strategy.kind(), Event::Init);
        // A thread that sees the block from here on finds its page mapped ([RSZ-3]).
        file.set_blocks(u64::from(block) + 1);
        mapped.finish(Mode::Exclusive);
        if let Some(slot) = slot {
            strategy.fill_slot(slot, frame, file.tag(block));
        }
        Some(frame)
    }

    /// Maps the page `block` as loading into `owned`, by the queue if `queued`, otherwise by this thread. `None` when
    /// it is mapped already. The caller then checks whether the block still exists.
    pub(crate) fn map<'a>(
        &self,
        file: &'a CachedFile,
        block: Block,
        owned: Owned<'a>,
        queued: bool,
    ) -> Option<MappedLoad<'a>> {
        let entry = file.table.entry(block);
        let loading = owned.load(file.tag(block), queued, |frame| entry.map(frame))?;
        // Mapped first, checked second: see `file`.
        fence(Ordering::SeqCst);
        Some(MappedLoad { entry, loading: Some(loading) })
    }

    /// Resumes the load of `block` that was passed through a queue.
    pub(crate) fn resume<'a>(
        &'a self,
        file: &'a CachedFile,
        block: Block,
        load: Detached,
    ) -> MappedLoad<'a> {
        let loading = Some(self.frames.resume(load));
        MappedLoad { entry: file.table.entry(block), loading }
    }

    /// Returns the page `block` if it is in memory, not being changed and not cold: for a reader that holds nothing.
    /// [`VersionedFrame::still_valid`] says whether it was this page at all.
    #[inline(always)]
    pub(crate) fn optimistic<'a>(
        &'a self,
        file: &'a CachedFile,
        block: Block,
    ) -> Option<VersionedFrame<'a>> {
        let entry = file.table.find(block);
        let frame = entry.frame();
        let seen = self.frames.see(frame)?;
        seen.is_usual().then_some(VersionedFrame { entry, frame, seen })
    }

    /// As [`Cache::optimistic`], also for a page whose next use must be counted: this is one.
    pub(crate) fn optimistic_and_count<'a>(
        &'a self,
        file: &'a CachedFile,
        block: Block,
    ) -> Option<VersionedFrame<'a>> {
        let entry = file.table.find(block);
        let frame = entry.frame();
        let seen = self.frames.see(frame)?.settled()?;
        // At worst, another page's usage is counted too high.
        self.frames.touch(frame);
        Some(VersionedFrame { entry, frame, seen })
    }
}

/// A frame and its version at the time, for a reader that holds nothing.
#[derive(Clone, Copy)]
pub(crate) struct VersionedFrame<'a> {
    entry: &'a Entry,
    pub(crate) frame: FrameIndex,
    seen: Seen<'a>,
}

impl VersionedFrame<'_> {
    /// True when all reads of the page's bytes before this call saw the recorded state, and the page has not been
    /// discarded since.
    #[inline]
    pub(crate) fn still_valid(&self) -> bool {
        fence(Ordering::Acquire);
        // The entry first. Had the frame been another page's when it was seen, the entry would be empty by now
        // ([TAB-4]), or the page would have returned to this frame; that moves the version, as does discarding the
        // page.
        self.entry.frame() == self.frame && self.seen.is_still()
    }
}

/// A mapped page that is being loaded. If it is dropped before its load has ended, for example by a panic, it is
/// removed from the page table, and waiting threads look again ([LOD-2]).
#[must_use]
pub(crate) struct MappedLoad<'a> {
    entry: Place<'a>,
    loading: Option<Loading<'a>>,
}

impl<'a> MappedLoad<'a> {
    /// The load, for filling its frame.
    pub(crate) fn loading(&mut self) -> &mut Loading<'a> {
        self.loading.as_mut().expect("[LOD-1] a load ends once")
    }

    /// Passes the load through the queue that it was mapped for; it returns by [`Cache::resume`].
    pub(crate) fn detach(mut self) -> Detached {
        self.take().detach()
    }

    /// The page is resident, for the loader, which keeps it in `mode`.
    fn finish(mut self, mode: Mode) {
        self.take().finish(mode, USAGE_LOADED);
    }

    /// The page is resident, read ahead.
    pub(crate) fn complete(mut self) {
        self.take().complete(false);
    }

    /// The read of a page that a task waits for has ended, successfully or not.
    pub(crate) fn complete_demanded(mut self, read: Result<(), Error>) {
        match read {
            Ok(()) => self.take().complete(true),
            Err(error) => self.fail(error),
        }
    }

    /// The load failed: all waiters receive `error`.
    fn fail(mut self, error: Error) {
        let loading = self.take();
        self.entry.unmap(loading.frame());
        loading.fail(error);
    }

    fn take(&mut self) -> Loading<'a> {
        self.loading.take().expect("[LOD-1] a load ends once")
    }
}

impl Drop for MappedLoad<'_> {
    fn drop(&mut self) {
        if let Some(loading) = self.loading.take() {
            self.entry.unmap(loading.frame());
            loading.abandon();
        }
    }
}

#[inline]
pub(crate) fn touch(strategy: &AccessStrategy) -> Touch {
    if strategy.kind() == StrategyKind::Normal { Touch::Count } else { Touch::Once }
}
