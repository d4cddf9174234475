//! Finding a frame for a page: the ring, the free list, the sweep.
//!
//! A thread that faults should neither search long nor write. So the sweep passes dirty victims by
//! for a while in favour of a clean one, and tells the cleaner that they are there; only when
//! there is no clean one near does it write one itself.
//!
//! When every frame is pinned it waits for a stated time and then says so. It never waits for a
//! latch: the caller may hold latches that others wait for.
//!
//! Invariants:  [VIC-1] a page leaves its frame only clean, unpinned and without I/O (`word::claimed`)
//!              [VIC-2] a search ends: with a frame or with an error
//! Failure:     a victim that cannot be written stays; another one is sought among the clean pages and
//!              those of other tablespaces, and the error is the caller's only if there is none.
//! Rejected:    waking a thread that waits for a frame at each unpin: every hit would pay for it.

use std::time::Duration;

use super::frame::word::{AHEAD, DIRTY, ORPHAN, READING, VALID, WRITING, Word};
use super::frame::{FrameIndex, Owned};
use super::replacement::{AccessStrategy, RingSlot, Verdict};
use super::{Cache, Disk};
use crate::error::Error;
use crate::observe::stats::{Event, Wait};
use crate::strategy_kind::StrategyKind;
use crate::tag::PageTag;

/// Victims looked at beyond a dirty one before that is written.
const CLEAN_SEARCH_FRAMES: usize = 32;

/// Frames looked at for a page that is read ahead, before look-ahead backs off: a pool in which that
/// many in a row are in use or dirty has better things to do. One round of most pools, so that pages
/// which were all used once do not look like hot ones.
const AHEAD_SEARCH_FRAMES: usize = 1 << 16;

/// Sweeps in a row that spared everyone, before others are let run: enough for the hottest page to
/// cool, if it were left alone.
const ROUNDS_MAX: u32 = 8;

/// Pauses between sweeps while every frame is in use.
const PAUSE_MIN: Duration = Duration::from_micros(50);
const PAUSE_MAX: Duration = Duration::from_millis(5);

/// What has kept dirty victims from being written so far, in one search.
#[derive(Default)]
struct Unwritable {
    first: Option<Error>,
    /// Tablespaces where that happened: victims there are left alone for the rest of the search.
    tablespaces: Vec<usize>,
}

/// What one sweep came to.
enum Swept<'a> {
    Found(Owned<'a>),
    /// Nothing, but something may be free by now: look again at once.
    Again,
    /// Every frame is pinned or busy.
    AllBusy,
}

impl Cache {
    /// A frame for a page of `strategy`'s, with the ring's place to note it in.
    ///
    /// # Errors
    /// [`Error::NoFreeFrame`] after the stated wait; what kept the last victim from being
    /// written, when only dirty ones are left.
    pub(crate) fn allocate<D: Disk>(
        &self,
        disk: &D,
        strategy: &AccessStrategy,
    ) -> Result<(Owned<'_>, Option<RingSlot>), Error> {
        let slot = strategy.next_slot();
        if let Some((frame, tag)) = slot.and_then(|slot| slot.last) {
            if let Some(owned) = self.reuse(disk, frame, tag, strategy.kind()) {
                disk.counters().count(strategy.kind(), Event::RingReuse);
                return Ok((owned, slot));
            }
            disk.counters().count(strategy.kind(), Event::RingRefused);
        }
        Ok((self.search(disk, strategy.kind())?, slot))
    }

    /// As [`Cache::allocate`], for a page that nobody waits for yet: writes nothing out but the pages of
    /// the strategy's own ring, and does not wait for a frame. `None` when there is no clean one near
    /// the hand that nobody uses.
    pub(crate) fn allocate_clean<D: Disk>(
        &self,
        disk: &D,
        strategy: &AccessStrategy,
    ) -> Option<(Owned<'_>, Option<RingSlot>)> {
        let slot = strategy.next_slot();
        if let Some((frame, tag)) = slot.and_then(|slot| slot.last) {
            if let Some(owned) = self.reuse(disk, frame, tag, strategy.kind()) {
                disk.counters().count(strategy.kind(), Event::RingReuse);
                return Some((owned, slot));
            }
            let it = self.frames.find(frame).filter(|it| it.holds(tag));
            if let (Some(slot), Some(it)) = (slot, it)
                && (it.word().pins() > 0 && it.word().usage() <= 1)
            {
                // Still on its way in, or not taken yet: another frame beside it would be one more than
                // the ring may have.
                strategy.fill_slot(slot, frame, tag);
                return None;
            }
            disk.counters().count(strategy.kind(), Event::RingRefused);
        }
        if let Some(owned) = self.frames.take_free() {
            return Some((owned, slot));
        }
        disk.short_of_frames(false);
        let owned = self.sweep_clean(disk, strategy.kind())?;
        Some((owned, slot))
    }

    /// Part of a round of the hand, for clean pages only.
    fn sweep_clean<D: Disk>(&self, disk: &D, kind: StrategyKind) -> Option<Owned<'_>> {
        let mut dirty = false;
        let frames = self.frames.usable();
        let steps = frames.min(AHEAD_SEARCH_FRAMES);
        let found = (0..steps).find_map(|_| {
            let frame = self.replacement.advance(frames);
            let word = self.frames.get(frame).word();
            if word.pins() > 0 || word.has(READING | WRITING | ORPHAN) || !word.has(VALID) {
                return None;
            }
            if self.replacement.judge(word.usage() as u8) == Verdict::Spare {
                self.frames.age(frame);
                return None;
            }
            dirty |= word.has(DIRTY);
            self.claim(disk, frame, word.usage())
        });
        match found {
            Some(_) => disk.counters().count(kind, Event::Eviction),
            // The cleaner can make some, for the next time.
            None if dirty => disk.short_of_frames(true),
            None => {}
        }
        found
    }

    /// Takes a frame of a ring again, writing its page first if that may be done.
    fn reuse<D: Disk>(
        &self,
        disk: &D,
        frame: FrameIndex,
        tag: PageTag,
        kind: StrategyKind,
    ) -> Option<Owned<'_>> {
        // Not if the pool has got smaller, or the strategy was made by a larger one.
        let it = self.frames.find(frame).filter(|_| (frame as usize) < self.frames.usable())?;
        let word = it.word();
        if !it.holds(tag) || word.pins() > 0 || word.usage() > 1 {
            return None;
        }
        if word.has(DIRTY) {
            // Reading in bulk must not wait for the log; the others made the page dirty
            // themselves, and it is theirs to flush.
            if kind == StrategyKind::BulkRead && !disk.is_logged(it.lsn()) {
                return None;
            }
            // An error is not this page's caller's: the frame is left, with its page dirty.
            if !disk.write_page(tag, frame, kind).unwrap_or(false) {
                return None;
            }
        }
        let owned = self.frames.claim_page(frame, tag, 1)?;
        unmap(disk, tag, frame, word.has(AHEAD));
        Some(owned)
    }

    /// Takes a frame from its page, if that is clean, unheld and not used more often than `usage_most`.
    pub(super) fn claim<D: Disk>(
        &self,
        disk: &D,
        frame: FrameIndex,
        usage_most: u64,
    ) -> Option<Owned<'_>> {
        // A use of it in between would make it one that is used more often.
        let unused = self.frames.get(frame).word().has(AHEAD);
        let (owned, tag) = self.frames.claim(frame, usage_most)?;
        unmap(disk, tag, frame, unused);
        Some(owned)
    }

    fn search<D: Disk>(&self, disk: &D, kind: StrategyKind) -> Result<Owned<'_>, Error> {
        if let Some(owned) = self.frames.take_free() {
            return Ok(owned);
        }
        disk.short_of_frames(false);
        let mut failed = Unwritable::default();
        match self.sweep(disk, kind, &mut failed) {
            Swept::Found(owned) => return Ok(owned),
            Swept::Again | Swept::AllBusy => {}
        }
        self.search_patiently(disk, kind, failed)
    }

    /// As [`Cache::search`], after a first sweep without success.
    #[cold]
    fn search_patiently<D: Disk>(
        &self,
        disk: &D,
        kind: StrategyKind,
        mut failed: Unwritable,
    ) -> Result<Owned<'_>, Error> {
        let start = disk.now();
        let (mut pause, mut slept, mut rounds) = (PAUSE_MIN, false, 0);
        let found = loop {
            if let Some(owned) = self.frames.take_free() {
                break Ok(owned);
            }
            match self.sweep(disk, kind, &mut failed) {
                Swept::Found(owned) => break Ok(owned),
                Swept::Again if rounds < ROUNDS_MAX => {
                    rounds += 1;
                    continue;
                }
                Swept::Again | Swept::AllBusy => {}
            }
            if let Some(error) = failed.first.take() {
                break Err(error);
            }
            let waited = disk.now().saturating_sub(start);
            if waited >= self.frame_wait {
                break Err(self.no_free_frame(waited));
            }
            // Pages that were read ahead hold their frames until somebody takes them in.
            disk.pause(pause.min(self.frame_wait - waited));
            slept = true;
            pause = (pause * 2).min(PAUSE_MAX);
        };
        if slept {
            disk.counters().waited(Wait::Frame, disk.now().saturating_sub(start));
        }
        found
    }

    /// Puts up to `most` frames on the free list, for those who can neither wait nor write. Gives how many, and what kept
    /// dirty pages from being written if there are none for that.
    pub(crate) fn free_frames<D: Disk>(&self, disk: &D, most: usize) -> Result<usize, Error> {
        let (mut failed, mut freed, mut rounds) = (Unwritable::default(), 0, 0);
        while freed < most && rounds < ROUNDS_MAX {
            match self.sweep(disk, StrategyKind::Normal, &mut failed) {
                Swept::Found(owned) => {
                    drop(owned);
                    freed += 1;
                }
                Swept::Again => rounds += 1,
                Swept::AllBusy => break,
            }
        }
        match failed.first {
            Some(error) if freed == 0 => Err(error),
            _ => Ok(freed),
        }
    }

    /// What a thread or task is told that has waited for a frame in vain for so long.
    pub(crate) fn no_free_frame(&self, waited: Duration) -> Error {
        let (capacity, pinned) = (self.frames.usable(), self.frames_in_use());
        Error::NoFreeFrame { pinned, capacity, waited }
    }

    /// Frames that could not be victims now: pinned, or with I/O under way.
    fn frames_in_use(&self) -> usize {
        let in_use = |word: Word| word.pins() > 0 || word.has(READING | WRITING | ORPHAN);
        self.frames
            .iter()
            .take(self.frames.usable())
            .filter(|(_, frame)| in_use(frame.word()))
            .count()
    }

    /// One round of the hand.
    fn sweep<D: Disk>(&self, disk: &D, kind: StrategyKind, failed: &mut Unwritable) -> Swept<'_> {
        let mut dirty: Option<FrameIndex> = None;
        let mut patience = CLEAN_SEARCH_FRAMES;
        let mut spared = false;
        let frames = self.frames.usable();
        for _ in 0..frames {
            let frame = self.replacement.advance(frames);
            let word = self.frames.get(frame).word();
            let busy = word.pins() > 0 || word.has(READING | WRITING | ORPHAN) || !word.has(VALID);
            if !busy {
                if self.replacement.judge(word.usage() as u8) == Verdict::Spare {
                    self.frames.age(frame);
                    spared = true;
                } else if !word.has(DIRTY) {
                    if let Some(owned) = self.claim(disk, frame, word.usage()) {
                        disk.counters().count(kind, Event::Eviction);
                        return Swept::Found(owned);
                    }
                    spared = true;
                } else if self.may_be_writable(disk, frame, failed) {
                    dirty.get_or_insert(frame);
                }
            }
            if let Some(victim) = dirty {
                patience -= 1;
                if patience == 0 {
                    return self.take_dirty(disk, victim, kind, failed);
                }
            }
        }
        match dirty {
            Some(victim) => self.take_dirty(disk, victim, kind, failed),
            None if spared => Swept::Again,
            None => Swept::AllBusy,
        }
    }

    /// The tablespace of the page in `frame`, if there is one.
    fn tablespace_of<D: Disk>(&self, disk: &D, frame: FrameIndex) -> Option<usize> {
        let file = disk.file(self.frames.get(frame).tag()?.file)?;
        Some(disk.tablespace(&file))
    }

    fn may_be_writable<D: Disk>(&self, disk: &D, frame: FrameIndex, failed: &Unwritable) -> bool {
        failed.tablespaces.is_empty()
            || self.tablespace_of(disk, frame).is_some_and(|it| !failed.tablespaces.contains(&it))
    }

    fn take_dirty<D: Disk>(
        &self,
        disk: &D,
        frame: FrameIndex,
        kind: StrategyKind,
        failed: &mut Unwritable,
    ) -> Swept<'_> {
        disk.short_of_frames(true);
        let tablespace = self.tablespace_of(disk, frame);
        let tag = self.frames.get(frame).tag();
        match tag.map_or(Ok(false), |tag| disk.write_page(tag, frame, kind)) {
            Ok(true) => {
                disk.counters().count(kind, Event::VictimWrite);
                // Somebody may have come to want the page meanwhile; then it stays.
                match self.claim(disk, frame, 0) {
                    Some(owned) => {
                        disk.counters().count(kind, Event::Eviction);
                        Swept::Found(owned)
                    }
                    None => Swept::Again,
                }
            }
            Ok(false) => Swept::Again,
            Err(error) => {
                failed.first.get_or_insert(error);
                failed.tablespaces.extend(tablespace);
                Swept::Again
            }
        }
    }
}

/// The page table no longer leads to `frame` for `tag`. `unused`: the page was read ahead, and never asked for.
fn unmap<D: Disk>(disk: &D, tag: PageTag, frame: FrameIndex, unused: bool) {
    // A thread that closes a file waits until its page table is empty.
    let file = disk.file(tag.file).expect("[TAB-4] a page of a file that nobody knows");
    if unused {
        file.counts.wasted();
    }
    if file.table.entry(tag.block).unmap(frame) {
        disk.tables_are_idle();
    }
}
