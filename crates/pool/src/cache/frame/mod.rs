//! Frames: slots for pages, and their state.
//!
//! A frame's life: *owned* by the free list or by a thread that is about to fill it; *loading*, when the page table
//! already points to it and other threads wait; *resident*; and back to owned, when the clock sweep claims it or its
//! page is discarded. Every step is one change of the state word (`word`).
//!
//! The version counts exclusive holds: it is odd while one lasts. An optimistic reader, which holds nothing, uses it to
//! detect that the page changed during its read. Its top bit, COLD, says that the page's next use must be counted, so
//! that such a reader need not load the word.
//!
//! Invariants:  [FRM-1] a pinned frame keeps its page   [FRM-2] the version is odd exactly while
//!              a thread may change the bytes   [FRM-3] a frame is freed once
//!              [FRM-4] a page newer than on disk is not taken from its frame
//!              [FRM-5] a page that is not used, or was read ahead, is COLD from that moment on
//! Concurrency: any thread; threads sleep in the parking lot, holding pins, while a latch or I/O blocks them.

mod extent;
mod free;
mod life;
mod memory;
mod parking;
#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests;
pub(crate) mod word;

pub(crate) use extent::Shrinking;
pub(crate) use life::{Copied, Detached, Discarded, Loaded, Loading};
pub(crate) use memory::FrameMemory;
pub(crate) use parking::TaskPlace;
pub(crate) use word::{FrameIndex, NO_FRAME};

use std::collections::HashMap;
use std::task::{Poll, Waker};

use crate::error::Error;
use crate::sync::{AtomicU64, Mutex, Ordering, fence, spin_loop};
use crate::tag::{FileId, Lsn, PageTag};
use parking::ParkingLot;
use word::{
    AHEAD, EXCLUSIVE, EXCLUSIVE_WAITS, Mode, ORPHAN, Obstacle, PIN, READING, SHARED, SLEEPERS,
    Touch, WRITING, Word,
};

/// The tag of a frame that holds nothing. No file has this number.
const NO_TAG: u64 = PageTag { file: FileId(u32::MAX), block: u32::MAX }.to_bits();

/// Spins on a latch before sleeping: most are held for less time than a sleep takes.
const SPINS: u32 = if cfg!(loom) { 0 } else { 64 };

/// In a version: a thread may be changing the bytes.
const CHANGING: u64 = 1;
/// In a version: the page's word may say that it is unused, or that it was read ahead ([FRM-5]).
const COLD: u64 = 1 << 63;

/// The state of one frame; `memory::Descriptors` says where it is stored.
#[derive(Clone, Copy)]
pub(crate) struct Frame<'a> {
    word: &'a AtomicU64,
    version: &'a AtomicU64,
    tag: &'a AtomicU64,
    /// The newest change of the page since it was read into the frame.
    lsn: &'a AtomicU64,
}

/// A frame that is held, to release it without looking up its word again.
#[derive(Clone, Copy)]
pub(crate) struct Hold<'a> {
    pub(crate) frame: FrameIndex,
    word: &'a AtomicU64,
}

impl<'a> Hold<'a> {
    /// As [`Frames::release_shared`]; `frames` is only evaluated if a waiter must be woken.
    #[inline]
    pub(crate) fn release_shared(self, frames: impl FnOnce() -> &'a Frames) {
        self.release_bits(PIN + SHARED, frames);
    }

    #[inline]
    fn release_bits(self, held: u64, frames: impl FnOnce() -> &'a Frames) {
        let old = Word(self.word.fetch_sub(held, Ordering::AcqRel));
        debug_assert!(old.pins() > 0, "[FRM-1] more unpins than pins: {old:?}");
        if old.0 & (SLEEPERS | ORPHAN) != 0 {
            frames().released_with_others_left(self.frame, old, held);
        }
    }
}

/// A state of a frame's bytes, for a reader that holds nothing.
#[derive(Clone, Copy)]
pub(crate) struct Seen<'a> {
    version: &'a AtomicU64,
    seen: u64,
}

impl Seen<'_> {
    /// False while a thread may be changing the bytes, and for a page that is cold.
    #[inline]
    pub(crate) fn is_usual(self) -> bool {
        self.seen & (CHANGING | COLD) == 0
    }

    /// The state, ignoring COLD; `None` while a thread may be changing the bytes.
    pub(crate) fn settled(self) -> Option<Self> {
        (self.seen & CHANGING == 0).then_some(Seen { seen: self.seen & !COLD, ..self })
    }

    /// True if all reads of the bytes before an acquiring fence, or load, before this call saw this state.
    #[inline]
    pub(crate) fn is_still(self) -> bool {
        let now = self.version.load(Ordering::Relaxed);
        now == self.seen || self.has_cooled(now)
    }

    #[cold]
    #[inline(never)]
    fn has_cooled(self, now: u64) -> bool {
        now == self.seen | COLD
    }
}

/// A word, as the first guess of a compare-and-swap.
#[inline]
fn guess(word: &AtomicU64) -> u64 {
    if cfg!(loom) {
        // Loom remembers only the last access, so a load here would hide an earlier access by another thread from it,
        // and with that the interleavings of the two.
        return word.fetch_or(0, Ordering::Relaxed);
    }
    word.load(Ordering::Relaxed)
}

impl<'a> Frame<'a> {
    #[inline]
    pub(crate) fn word(self) -> Word {
        Word(self.word.load(Ordering::Acquire))
    }

    /// The page in this frame; `None` while there is none. The answer stays true only under a pin.
    #[inline]
    pub(crate) fn tag(self) -> Option<PageTag> {
        let bits = self.tag.load(Ordering::Relaxed);
        (bits != NO_TAG).then(|| PageTag::from_bits(bits))
    }

    #[inline]
    pub(crate) fn holds(self, tag: PageTag) -> bool {
        self.tag.load(Ordering::Relaxed) == tag.to_bits()
    }

    #[inline]
    pub(crate) fn version(self) -> u64 {
        self.version.load(Ordering::Acquire) & !COLD
    }

    #[cfg(test)]
    pub(crate) fn is_cold(self) -> bool {
        self.version.load(Ordering::Acquire) & COLD != 0
    }

    pub(crate) fn lsn(self) -> Lsn {
        Lsn(self.lsn.load(Ordering::Acquire))
    }

    /// Applies `change` to the word until the exchange succeeds or `change` refuses; returns the old word.
    #[inline]
    fn change(self, change: impl Fn(Word) -> Option<Word>) -> Result<Word, Word> {
        let mut now = guess(self.word);
        loop {
            let Some(next) = change(Word(now)) else {
                return Err(Word(now));
            };
            match self.word.compare_exchange_weak(
                now,
                next.checked().0,
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => {
                    if next.is_cold() && !Word(now).is_cold() {
                        self.cool();
                    }
                    return Ok(Word(now));
                }
                Err(changed) => now = changed,
            }
        }
    }

    /// [FRM-5]. Called after the word was changed, while `Frames::touch` clears the bit before it changes the word: the
    /// later of the two changes of the word decides. A superfluous bit costs one read of the word; a thread that has
    /// the frame exclusively may overwrite it (`next_version`), and has counted a use.
    #[cold]
    fn cool(self) {
        self.version.fetch_or(COLD, Ordering::AcqRel);
    }

    /// From here on optimistic readers fail. The caller has the frame exclusively.
    fn begin_change(self) {
        let version = self.next_version(Ordering::Relaxed);
        assert!(version.is_multiple_of(2), "[FRM-2] two exclusive holders of one frame");
        fence(Ordering::Release);
    }

    /// The bytes are consistent again; the caller still has the frame exclusively.
    fn end_change(self) {
        let version = self.next_version(Ordering::Release);
        assert!(!version.is_multiple_of(2), "[FRM-2] the end of a change that never began");
    }

    /// Increments the version and returns the old one. Only one thread does that at a time.
    fn next_version(self, ordering: Ordering) -> u64 {
        if cfg!(loom) {
            // See `guess`.
            return self.version.fetch_add(1, ordering);
        }
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version + 1, ordering);
        version
    }
}

/// All frames of a pool.
pub(crate) struct Frames {
    /// Sized for the largest number of frames.
    frames: memory::Descriptors,
    extent: extent::Extent,
    parking: ParkingLot,
    free: free::FreeList,
    /// The reason why the page of an orphan could not be loaded, for the threads that waited for it.
    failures: Mutex<HashMap<FrameIndex, Error>>,
    ahead: Outcomes,
}

/// The outcomes of pages that were read ahead.
#[derive(Default)]
struct Outcomes {
    used: std::sync::atomic::AtomicU64,
    wasted: std::sync::atomic::AtomicU64,
}

impl Outcomes {
    #[cold]
    fn used(&self) {
        self.used.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }

    #[cold]
    fn wasted(&self) {
        self.wasted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}

/// A frame that this thread alone may use; it holds no page. Returns to the free list unless it is filled.
#[must_use]
pub(crate) struct Owned<'a> {
    frames: &'a Frames,
    frame: FrameIndex,
}

impl Frames {
    /// `count` frames, all free, for a pool that never has more.
    #[cfg(test)]
    pub(crate) fn new(count: usize) -> Result<Frames, Error> {
        Frames::with_room(count, count)
    }

    /// `count` frames, all free, that can grow to `most`.
    ///
    /// # Errors
    /// [`Error::Io`] when there is no memory for them.
    pub(crate) fn with_room(count: usize, most: usize) -> Result<Frames, Error> {
        let frames = Frames {
            frames: memory::Descriptors::new(most)?,
            extent: extent::Extent::none(),
            parking: ParkingLot::new(),
            free: free::FreeList::empty(),
            failures: Mutex::new(HashMap::new()),
            ahead: Outcomes::default(),
        };
        frames.grow(count);
        Ok(frames)
    }

    /// Counts of pages read ahead that were used afterwards, and of those evicted unused.
    pub(crate) fn ahead_outcomes(&self) -> (u64, u64) {
        let get =
            |count: &std::sync::atomic::AtomicU64| count.load(std::sync::atomic::Ordering::Relaxed);
        (get(&self.ahead.used), get(&self.ahead.wasted))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (FrameIndex, Frame<'_>)> {
        (0..self.len() as FrameIndex).map(|frame| (frame, self.get(frame)))
    }

    #[inline]
    pub(crate) fn get(&self, frame: FrameIndex) -> Frame<'_> {
        self.find(frame).expect("[FRM-1] a page is in a frame of this pool")
    }

    /// The frame of that number; `None` for [`NO_FRAME`].
    #[inline]
    pub(crate) fn find(&self, frame: FrameIndex) -> Option<Frame<'_>> {
        self.frames.get(frame)
    }

    /// The frame of that number, which the caller holds.
    #[inline]
    pub(crate) fn held(&self, frame: FrameIndex) -> Hold<'_> {
        Hold { frame, word: self.get(frame).word }
    }

    /// The state of the bytes in `frame`; `None` for [`NO_FRAME`].
    #[inline]
    pub(crate) fn see(&self, frame: FrameIndex) -> Option<Seen<'_>> {
        let version = self.frames.version(frame)?;
        Some(Seen { version, seen: version.load(Ordering::Acquire) })
    }

    /// Pins the page that an entry of the page table points to `frame` for, with the latch in `mode`, in one atomic
    /// step; `mapped` says whether the entry is still current. Returns `None` when something is in the way, or there is
    /// no such frame; nothing is held then, and [`Frames::acquire`] may succeed.
    ///
    /// This is the whole of a hit, so rare cases are handled elsewhere.
    #[inline(always)]
    pub(crate) fn acquire_mapped(
        &self,
        frame: FrameIndex,
        mode: Mode,
        touch: Touch,
        mapped: impl FnOnce() -> bool,
    ) -> Option<Hold<'_>> {
        let word = self.frames.word(frame)?;
        let now = guess(word);
        let next = Word(now).acquired_again(mode, touch)?;
        word.compare_exchange(now, next.0, Ordering::Acquire, Ordering::Relaxed).ok()?;
        // The frame keeps its page only from the pin on ([FRM-1]). If the frame had been given to another page since
        // the entry was read, the word, which says that the new page has been loaded, would also make the entry's
        // change by the previous thread visible ([TAB-4]).
        if !mapped() {
            self.back_out(frame, PIN + latch_held(mode), Word(now), touch);
            return None;
        }
        if mode == Mode::Exclusive {
            self.get(frame).begin_change();
        }
        Some(Hold { frame, word })
    }

    /// Pins the page `tag` in `frame`, with the latch in `mode`, in one atomic step. Returns `None` when something is
    /// in the way, or there is no such frame; nothing is held then.
    pub(crate) fn acquire(
        &self,
        frame: FrameIndex,
        tag: PageTag,
        mode: Mode,
        touch: Touch,
    ) -> Option<Hold<'_>> {
        let it = self.find(frame)?;
        let old = it.change(|word| word.acquired(mode, touch)).ok()?;
        if !it.holds(tag) {
            self.back_out(frame, PIN + latch_held(mode), old, touch);
            return None;
        }
        if old.has(AHEAD) {
            self.ahead.used();
        }
        if mode == Mode::Exclusive {
            it.begin_change();
        }
        Some(Hold { frame, word: it.word })
    }

    /// Hands a pinned page to its reader: latches it shared and counts the use, in one step. False when something is in
    /// the way.
    #[must_use]
    pub(crate) fn deliver(&self, frame: FrameIndex, touch: Touch) -> bool {
        let delivered = self.get(frame).change(|word| word.delivered(touch));
        if delivered.is_ok_and(|old| old.has(AHEAD)) {
            self.ahead.used();
        }
        delivered.is_ok()
    }

    /// Releases a page that a stale entry pointed to. Its word was `old` before, and it was not used: the changes to
    /// the word are undone first, while the page is held.
    #[cold]
    #[inline(never)]
    fn back_out(&self, frame: FrameIndex, held: u64, old: Word, touch: Touch) {
        // Cannot fail.
        let _ = self.get(frame).change(|word| Some(word.unused(old, touch)));
        self.release_bits(frame, held);
    }

    /// The current obstacle to [`Frames::acquire`].
    pub(crate) fn obstacle(&self, frame: FrameIndex, tag: PageTag) -> Obstacle {
        let it = self.get(frame);
        if it.holds(tag) { it.word().obstacle() } else { Obstacle::NotHere }
    }

    /// Pins the page `tag` in `frame` even while it is being loaded or is latched.
    #[must_use]
    pub(crate) fn pin(&self, frame: FrameIndex, tag: PageTag, touch: Touch) -> bool {
        let it = self.get(frame);
        let Ok(old) = it.change(|word| word.pinned(touch)) else {
            return false;
        };
        let here = it.holds(tag);
        if !here {
            self.back_out(frame, PIN, old, touch);
        } else if touch != Touch::Not && old.has(AHEAD) {
            self.ahead.used();
        }
        here
    }

    /// Adds a pin for a caller that already has one.
    pub(crate) fn pin_again(&self, frame: FrameIndex) {
        let old = self.get(frame).change(|word| Some(word.pinned_again()));
        debug_assert!(old.is_ok_and(|old| old.pins() > 0), "[FRM-1] a pin next to none");
    }

    /// Takes the latch of a pinned frame if that is possible at once.
    #[must_use]
    pub(crate) fn try_latch(&self, frame: FrameIndex, mode: Mode) -> bool {
        let it = self.get(frame);
        let granted = it.change(|word| word.latched(mode)).is_ok();
        if granted && mode == Mode::Exclusive {
            it.begin_change();
        }
        granted
    }

    /// Takes the shared latch of a pinned frame unless a thread has it exclusively, ahead of waiting threads.
    #[must_use]
    pub(crate) fn try_latch_passing(&self, frame: FrameIndex) -> bool {
        self.get(frame).change(Word::latched_passing).is_ok()
    }

    /// Sleeps while the pinned frame is latched exclusively.
    pub(crate) fn wait_readable(&self, frame: FrameIndex) {
        self.wait(frame, 0, |word| word.has(EXCLUSIVE));
    }

    /// Takes the latch of a pinned frame, sleeping while it is held in a conflicting way.
    pub(crate) fn latch(&self, frame: FrameIndex, mode: Mode) {
        if mode == Mode::Shared {
            return self.latch_shared(frame);
        }
        let announce = if mode == Mode::Exclusive { EXCLUSIVE_WAITS } else { 0 };
        self.wait(frame, announce, |word| word.latched(mode).is_none());
        while !self.try_latch(frame, mode) {
            self.wait(frame, announce, |word| word.latched(mode).is_none());
        }
    }

    /// The shared latch, with sleep. A thread that waits for the exclusive latch goes first, once: a reader that let
    /// all of them go first might wait forever.
    fn latch_shared(&self, frame: FrameIndex) {
        let it = self.get(frame);
        for _ in 0..SPINS {
            if self.try_latch(frame, Mode::Shared) {
                return;
            }
            spin_loop();
        }
        self.parking.sleep(frame, it.word, 0, |word| word.latched(Mode::Shared).is_none());
        while !self.try_latch_passing(frame) {
            self.wait_readable(frame);
        }
    }

    /// Waits until the pinned frame's page has been loaded, or the load has failed.
    pub(crate) fn wait_loaded(&self, frame: FrameIndex) {
        self.wait(frame, 0, |word| word.has(READING));
    }

    /// As [`Frames::wait_loaded`], for a read that a queue carries: `drive` drives that queue until the given condition
    /// is met.
    pub(crate) fn wait_queued(&self, frame: FrameIndex, drive: impl Fn(&dyn Fn() -> bool)) {
        let it = self.get(frame);
        while it.word().has(READING) {
            self.rest_while_reading(frame, || drive(&|| !it.word().has(READING)));
        }
    }

    /// Calls `rest` once if the page of the pinned frame is being loaded, registered on the list of threads that are
    /// woken when the load ends: a queue with its own threads wakes no others.
    pub(crate) fn rest_while_reading(&self, frame: FrameIndex, rest: impl FnOnce()) {
        let word = self.get(frame).word;
        self.parking.rest(frame, word, 0, |word| word.has(READING), rest);
    }

    /// As [`Frames::wait_loaded`], for a task, which keeps its `place` on the list between calls.
    pub(crate) fn poll_loaded(
        &self,
        frame: FrameIndex,
        place: &mut TaskPlace,
        waker: &Waker,
    ) -> Poll<()> {
        let barred = |word: Word| word.has(READING);
        self.parking.poll(frame, self.get(frame).word, 0, barred, place, waker)
    }

    /// As [`Frames::latch`], for a task. `passing`: ahead of threads that wait exclusively, for a reader that has
    /// waited once.
    pub(crate) fn poll_latch(
        &self,
        frame: FrameIndex,
        mode: Mode,
        passing: bool,
        place: &mut TaskPlace,
        waker: &Waker,
    ) -> Poll<()> {
        let word = self.get(frame).word;
        let passing = passing && mode == Mode::Shared;
        let announce = if mode == Mode::Exclusive { EXCLUSIVE_WAITS } else { 0 };
        let barred = |word: Word| match passing {
            true => word.has(EXCLUSIVE),
            false => word.latched(mode).is_none(),
        };
        loop {
            let granted = match passing {
                true => self.try_latch_passing(frame),
                false => self.try_latch(frame, mode),
            };
            if granted {
                self.parking.forget(frame, word, place);
                return Poll::Ready(());
            }
            if self.parking.poll(frame, word, announce, barred, place, waker).is_pending() {
                return Poll::Pending;
            }
        }
    }

    /// Unregisters a task that no longer waits for the frame. The task still has it pinned.
    pub(crate) fn forget_task(&self, frame: FrameIndex, place: &mut TaskPlace) {
        self.parking.forget(frame, self.get(frame).word, place);
    }

    /// Waits until no copy of the pinned frame's page is being written.
    pub(crate) fn wait_written(&self, frame: FrameIndex) {
        self.wait(frame, 0, |word| word.has(WRITING));
    }

    fn wait(&self, frame: FrameIndex, announce: u64, barred: impl Fn(Word) -> bool) {
        let it = self.get(frame);
        for _ in 0..SPINS {
            if !barred(it.word()) {
                return;
            }
            spin_loop();
        }
        while barred(it.word()) {
            self.parking.sleep(frame, it.word, announce, &barred);
        }
    }

    /// Releases `held`: a pin, with or without a latch. The last release of an orphan frees it.
    #[inline]
    fn release_bits(&self, frame: FrameIndex, held: u64) {
        self.held(frame).release_bits(held, || self);
    }

    #[cold]
    #[inline(never)]
    fn released_with_others_left(&self, frame: FrameIndex, old: Word, held: u64) {
        if old.wakes_after(held) {
            self.parking.wake(frame, self.get(frame).word);
        }
        if old.has(ORPHAN) && old.pins() == 1 {
            self.free_orphan(frame);
        }
    }

    #[inline]
    pub(crate) fn unpin(&self, frame: FrameIndex) {
        self.release_bits(frame, PIN);
    }

    /// Releases a pin and the shared latch.
    pub(crate) fn release_shared(&self, frame: FrameIndex) {
        self.held(frame).release_shared(|| self);
    }

    /// Releases a pin and the exclusive latch.
    #[inline]
    pub(crate) fn release_exclusive(&self, frame: FrameIndex) {
        self.get(frame).end_change();
        self.release_bits(frame, PIN + EXCLUSIVE);
    }

    /// Releases a pin and the latch in `mode`.
    pub(crate) fn release(&self, frame: FrameIndex, mode: Mode) {
        match mode {
            Mode::Pin => self.unpin(frame),
            Mode::Shared => self.release_shared(frame),
            Mode::Exclusive => self.release_exclusive(frame),
        }
    }

    /// Releases the shared latch and keeps the pin.
    pub(crate) fn unlatch_shared(&self, frame: FrameIndex) {
        let it = self.get(frame);
        let old = Word(it.word.fetch_sub(SHARED, Ordering::AcqRel));
        if old.wakes_after(SHARED) {
            self.parking.wake(frame, it.word);
        }
    }

    /// Turns the shared latch into an exclusive one, if no other thread has it.
    #[must_use]
    pub(crate) fn try_upgrade(&self, frame: FrameIndex) -> bool {
        let it = self.get(frame);
        let upgraded = it.change(Word::upgraded).is_ok();
        if upgraded {
            it.begin_change();
        }
        upgraded
    }

    /// Turns the exclusive latch into a shared one; no other thread changes the page in between.
    pub(crate) fn downgrade(&self, frame: FrameIndex) {
        let it = self.get(frame);
        it.end_change();
        let old = it.change(|word| Some(word.downgraded())).unwrap_or_else(|old| old);
        if old.has(SLEEPERS) {
            self.parking.wake(frame, it.word);
        }
    }
}

fn latch_held(mode: Mode) -> u64 {
    match mode {
        Mode::Pin => 0,
        Mode::Shared => SHARED,
        Mode::Exclusive => EXCLUSIVE,
    }
}
