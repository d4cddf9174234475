//! Finding a frame for a page: the ring, the free list, the clock sweep.
//!
//! A thread that misses a page should neither search long nor write. So the sweep skips dirty victims for a while in
//! favour of a clean one, and notifies the cleaner of them; only when no clean page is near does it write one itself.
//!
//! When every frame is pinned it waits for a configured time and then returns an error. It never waits for a latch: the
//! caller may hold latches that others wait for.
//!
//! Invariants:  [VIC-1] a page leaves its frame only clean, unpinned and without I/O (`word::claimed`)
//!              [VIC-2] a search ends: with a frame or with an error
//! Failure:     a victim that cannot be written stays; the search goes on among the clean pages and
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

/// Victims examined after a dirty one before that is written.
const CLEAN_SEARCH_FRAMES: usize = 32;

/// Frames examined for a page that is read ahead, before look-ahead backs off: a pool with that many consecutive frames
/// in use or dirty should not spend time on it. One round of most pools, so that pages which were all used once do not
/// look like hot ones.
const AHEAD_SEARCH_FRAMES: usize = 1 << 16;

/// Consecutive sweeps without a victim, before other threads may run: enough for the hottest page to lose its usage
/// count, if it is not used meanwhile.
const ROUNDS_MAX: u32 = 8;

/// Pauses between sweeps while every frame is in use.
const PAUSE_MIN: Duration = Duration::from_micros(50);
const PAUSE_MAX: Duration = Duration::from_millis(5);

/// The reasons why dirty victims could not be written so far, in one search.
#[derive(Default)]
struct Unwritable {
    first: Option<Error>,
    /// Tablespaces where that happened: the rest of the search skips victims there.
    tablespaces: Vec<usize>,
}

/// The result of one sweep.
enum Swept<'a> {
    Found(Owned<'a>),
    /// Nothing, but a frame may be free by now: search again at once.
    Again,
    /// Every frame is pinned or busy.
    AllBusy,
}

impl Cache {
    /// Returns a frame for a page of `strategy`, with the ring slot to record it in.
    ///
    /// # Errors
    /// [`Error::NoFreeFrame`] after the configured wait; the reason why the last victim could not be written, when only
    /// dirty ones are left.
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

    /// As [`Cache::allocate`], for a page that no thread waits for yet: writes only pages of the strategy's own ring,
    /// and does not wait for a frame. `None` when there is no clean unpinned page near the hand.
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
                // Still being loaded, or not used yet: with another frame the ring would have one more than its limit.
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
            // The cleaner can produce some, for the next time.
            None if dirty => disk.short_of_frames(true),
            None => {}
        }
        found
    }

    /// Reuses a frame of a ring, writing its page first if that is allowed.
    fn reuse<D: Disk>(
        &self,
        disk: &D,
        frame: FrameIndex,
        tag: PageTag,
        kind: StrategyKind,
    ) -> Option<Owned<'_>> {
        // Not if the pool has shrunk, or the strategy was created by a larger one.
        let it = self.frames.find(frame).filter(|_| (frame as usize) < self.frames.usable())?;
        let word = it.word();
        if !it.holds(tag) || word.pins() > 0 || word.usage() > 1 {
            return None;
        }
        if word.has(DIRTY) {
            // Reading in bulk must not wait for the log; the other strategies made the page dirty themselves, so they
            // flush it.
            if kind == StrategyKind::BulkRead && !disk.is_logged(it.lsn()) {
                return None;
            }
            // The error does not concern this page's caller: the frame is skipped, with its page dirty.
            if !disk.write_page(tag, frame, kind).unwrap_or(false) {
                return None;
            }
        }
        let owned = self.frames.claim_page(frame, tag, 1)?;
        unmap(disk, tag, frame, word.has(AHEAD));
        Some(owned)
    }

    /// Takes a frame from its page, if that is clean, not pinned and not used more often than `usage_most`.
    pub(super) fn claim<D: Disk>(
        &self,
        disk: &D,
        frame: FrameIndex,
        usage_most: u64,
    ) -> Option<Owned<'_>> {
        // A use of it in between would increase its usage count.
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
        self.search_with_waits(disk, kind, failed)
    }

    /// As [`Cache::search`], after an unsuccessful first sweep.
    #[cold]
    fn search_with_waits<D: Disk>(
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
            // Pages that were read ahead hold their frames until a thread processes their completion.
            disk.pause(pause.min(self.frame_wait - waited));
            slept = true;
            pause = (pause * 2).min(PAUSE_MAX);
        };
        if slept {
            disk.counters().waited(Wait::Frame, disk.now().saturating_sub(start));
        }
        found
    }

    /// Puts up to `most` frames on the free list, for callers that can neither wait nor write. Returns the number of
    /// frames, or the reason why dirty pages could not be written if that is why there are none.
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

    /// The error for a thread or task that has waited for a frame in vain for `waited`.
    pub(crate) fn no_free_frame(&self, waited: Duration) -> Error {
        let (capacity, pinned) = (self.frames.usable(), self.frames_in_use());
        Error::NoFreeFrame { pinned, capacity, waited }
    }

    /// Frames that cannot be victims now: pinned, or with I/O in progress.
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
                // Another thread may have requested the page meanwhile; then it stays.
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

/// Makes the page table no longer point to `frame` for `tag`. `unused`: the page was read ahead, and never requested.
fn unmap<D: Disk>(disk: &D, tag: PageTag, frame: FrameIndex, unused: bool) {
    // A thread that closes a file waits until its page table is empty.
    let file = disk.file(tag.file).expect("[TAB-4] a page of an unknown file");
    if unused {
        file.counts.wasted();
    }
    if file.table.entry(tag.block).unmap(frame) {
        disk.tables_are_idle();
    }
}
