//! The state word: everything about a frame that must change in one step.
//!
//! | bits | | |
//! |---|---|---|
//! | 0..3 | usage | how often the page was requested recently, 0 to 5 |
//! | 3..23 | pins | holds that keep the page in its frame |
//! | 23..43 | shared | threads that hold the latch shared |
//! | 43 | EXCLUSIVE | one thread holds the latch exclusively, or owns the frame completely |
//! | 44 | EXCLUSIVE_WAITS | a thread waits for it exclusively: no new thread gets it shared |
//! | 45 | VALID | the frame holds the page that its tag names |
//! | 46 | DIRTY | the page is newer than on disk |
//! | 47 | READING | the page is being read |
//! | 48 | WRITING | a copy of the page is being written |
//! | 49 | AHEAD | the page was read ahead and has not been requested since |
//! | 50 | CHECKPOINT | the checkpoint in progress has yet to copy and write the page |
//! | 51 | QUEUED | while READING: the tablespace's queue carries the read, not the loading thread |
//! | 62 | SLEEPERS | a thread sleeps on this frame and must be woken |
//! | 63 | ORPHAN | the page table no longer points here; the last unpin frees the frame |
//!
//! The order keeps a hit short: the fields it adds to lie in the lower half, the usage where the same instruction adds
//! a comparison's carry, and the fields that a release checks at the top.
//!
//! An unused frame is `OWNED`: latched exclusively, not pinned, not valid. No lookup can pin it, and the clock sweep
//! cannot claim it. This module is the arithmetic; `frame::Frame` applies it atomically.
//!
//! Invariants:  [WRD-1] exclusive excludes shared   [WRD-2] a count never overflows into its neighbour
//!              [WRD-3] without VALID there is EXCLUSIVE or ORPHAN
//! Rejected:    a separate latch as in PostgreSQL: a hit would need two atomic changes instead of one.

/// Most pins or shared holders of one frame at a time. The top bit of each count is never set: it blocks like a flag,
/// so that a hit checks for both with one comparison.
const COUNT_MAX: u64 = (1 << 19) - 1;
/// The usage count of the hottest pages. Source: PostgreSQL, BM_MAX_USAGE_COUNT.
pub(crate) const USAGE_MAX: u64 = 5;

const USAGE: u64 = 7;
/// One use.
const USE: u64 = 1;
const PIN_SHIFT: u32 = 3;
pub(crate) const PIN: u64 = 1 << PIN_SHIFT;
const PINS: u64 = ((1 << 20) - 1) << PIN_SHIFT;
const SHARED_SHIFT: u32 = 23;
pub(crate) const SHARED: u64 = 1 << SHARED_SHIFT;
const SHAREDS: u64 = ((1 << 20) - 1) << SHARED_SHIFT;
/// More holders than are allowed.
const FULL: u64 = (COUNT_MAX + 1) * (PIN + SHARED);
pub(crate) const EXCLUSIVE: u64 = 1 << 43;
pub(crate) const EXCLUSIVE_WAITS: u64 = 1 << 44;
pub(crate) const VALID: u64 = 1 << 45;
pub(crate) const DIRTY: u64 = 1 << 46;
pub(crate) const READING: u64 = 1 << 47;
pub(crate) const WRITING: u64 = 1 << 48;
pub(crate) const AHEAD: u64 = 1 << 49;
pub(crate) const CHECKPOINT: u64 = 1 << 50;
pub(crate) const QUEUED: u64 = 1 << 51;
pub(crate) const SLEEPERS: u64 = 1 << 62;
pub(crate) const ORPHAN: u64 = 1 << 63;

/// The word of an unused frame.
pub(crate) const OWNED: Word = Word(EXCLUSIVE);

/// A frame's index in the pool, from 0.
pub(crate) type FrameIndex = u32;

/// No frame has this number.
pub(crate) const NO_FRAME: FrameIndex = FrameIndex::MAX;

/// The access that a caller requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Only kept in its frame.
    Pin,
    /// Pinned, and its contents must not change.
    Shared,
    /// Pinned, for changing its contents.
    Exclusive,
}

/// Whether a request for a page counts towards keeping it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Touch {
    /// Counts as a use.
    Count,
    /// Does not count: housekeeping.
    Not,
    /// A scan's use: the page counts as used at most once, or a scan that reads a page row by row would make it hot.
    Once,
}

/// The obstacle to a pin or latch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// The frame holds no page, or is about to lose it: look up the page table again.
    NotHere,
    /// The page is being read.
    Reading,
    /// The latch is held in a conflicting way.
    Latched,
}

/// A snapshot of a frame's state.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Word(pub(crate) u64);

impl Word {
    #[inline]
    pub(crate) fn has(self, flag: u64) -> bool {
        self.0 & flag != 0
    }

    #[inline]
    pub(crate) fn pins(self) -> u64 {
        (self.0 & PINS) >> PIN_SHIFT
    }

    /// Pins without the one that the queue has while it carries the read of the page.
    pub(crate) fn holders(self) -> u64 {
        self.pins() - u64::from(self.has(QUEUED))
    }

    pub(crate) fn shared(self) -> u64 {
        (self.0 & SHAREDS) >> SHARED_SHIFT
    }

    #[inline]
    pub(crate) fn usage(self) -> u64 {
        self.0 & USAGE
    }

    /// True for a page whose next use must be counted.
    #[inline]
    pub(crate) fn is_cold(self) -> bool {
        self.has(VALID) && (self.usage() == 0 || self.has(AHEAD))
    }

    /// The word of a frame whose page is being read, by the queue or by the loading thread.
    pub(crate) fn loading(queued: bool) -> Word {
        Word(EXCLUSIVE | READING | PIN | if queued { QUEUED } else { 0 })
    }

    /// The word after a load ends, successfully or not.
    pub(crate) fn loaded(self) -> Word {
        Word(self.0 & !(READING | EXCLUSIVE | QUEUED))
    }

    /// True when the latch is free.
    #[inline]
    pub(crate) fn is_unlatched(self) -> bool {
        self.0 & (SHAREDS | EXCLUSIVE) == 0
    }

    /// The increment for a use: nothing once the count is at its maximum.
    #[inline]
    fn used(self, touch: Touch) -> u64 {
        let most = match touch {
            Touch::Count => USAGE_MAX,
            Touch::Once => 1,
            Touch::Not => 0,
        };
        u64::from(self.usage() < most) * USE
    }

    /// Undoes the use that [`Word::acquired`] or [`Word::pinned`] counted, when the page's word was `old`.
    pub(crate) fn unused(self, old: Word, touch: Touch) -> Word {
        let used = old.used(touch).min(self.usage());
        Word((self.0 - used) | (old.0 & AHEAD))
    }

    /// One more pin, with the latch in `mode`, of a page found in the page table. `None` when something is in the way.
    #[inline]
    pub(crate) fn acquired(self, mode: Mode, touch: Touch) -> Option<Word> {
        Word(self.0 & !AHEAD).acquired_again(mode, touch)
    }

    /// As [`Word::acquired`], and also `None` for a page that was read ahead: for the fast path, which checks all
    /// obstacles with one comparison.
    #[inline]
    pub(crate) fn acquired_again(self, mode: Mode, touch: Touch) -> Option<Word> {
        let (bars, latch) = match mode {
            Mode::Pin => (0, 0),
            Mode::Shared => (EXCLUSIVE | EXCLUSIVE_WAITS, SHARED),
            Mode::Exclusive => (EXCLUSIVE | SHAREDS, EXCLUSIVE),
        };
        // A thread that takes a latch need not check VALID ([WRD-3]), and only checks for zeroes.
        let here = mode != Mode::Pin || self.has(VALID);
        let free = here && self.0 & (ORPHAN | AHEAD | FULL | bars) == 0;
        free.then(|| Word(self.0 + PIN + latch + self.used(touch)))
    }

    /// Handed to a reader that has the page pinned: latched shared, and counted as requested. `None` as for
    /// [`Word::acquired`].
    #[inline]
    pub(crate) fn delivered(self, touch: Touch) -> Option<Word> {
        let bars = VALID | ORPHAN | EXCLUSIVE | EXCLUSIVE_WAITS | (FULL & SHAREDS);
        let free = self.0 & bars == VALID;
        free.then(|| Word((self.0 & !AHEAD) + SHARED + self.used(touch)))
    }

    /// The reason why [`Word::acquired`] failed.
    pub(crate) fn obstacle(self) -> Obstacle {
        self.check_room();
        if self.has(ORPHAN) {
            Obstacle::NotHere
        } else if self.has(READING) {
            Obstacle::Reading
        } else if self.has(VALID) {
            Obstacle::Latched
        } else {
            Obstacle::NotHere
        }
    }

    /// One more pin of a page that is resident or being read, whatever its latch.
    pub(crate) fn pinned(self, touch: Touch) -> Option<Word> {
        self.check_room();
        let here = self.0 & (VALID | READING) != 0 && !self.has(ORPHAN);
        // Housekeeping does not count as a use of the page.
        let asked = if touch == Touch::Not { 0 } else { AHEAD };
        here.then(|| Word((self.0 & !asked) + PIN + self.used(touch)))
    }

    /// One more pin in addition to an existing one.
    pub(crate) fn pinned_again(self) -> Word {
        self.check_room();
        Word(self.0 + PIN)
    }

    /// The latch, taken by a thread that has a pin. `None` while it is held in a conflicting way.
    pub(crate) fn latched(self, mode: Mode) -> Option<Word> {
        let (bars, latch) = match mode {
            Mode::Pin => return Some(self),
            Mode::Shared => (EXCLUSIVE | EXCLUSIVE_WAITS, SHARED),
            Mode::Exclusive => (EXCLUSIVE | SHAREDS, EXCLUSIVE),
        };
        self.check_room();
        let granted = self.0 & bars == 0;
        // A thread that still waits for it exclusively is woken with the others and sets the bit again.
        let cleared = if mode == Mode::Exclusive { EXCLUSIVE_WAITS } else { 0 };
        granted.then_some(Word((self.0 & !cleared) + latch))
    }

    /// The shared latch for a short time, ahead of threads that wait for it exclusively: a thread that flushes may
    /// already hold the page shared, and would deadlock with a thread that waits for it exclusively.
    pub(crate) fn latched_passing(self) -> Option<Word> {
        self.check_room();
        (!self.has(EXCLUSIVE)).then_some(Word(self.0 + SHARED))
    }

    /// Shared turned into exclusive, by the only shared holder.
    pub(crate) fn upgraded(self) -> Option<Word> {
        (self.shared() == 1).then_some(Word(self.0 - SHARED + EXCLUSIVE))
    }

    /// Exclusive turned into shared.
    pub(crate) fn downgraded(self) -> Word {
        assert!(self.has(EXCLUSIVE), "[WRD-1] downgrade of a latch that is not held: {self:?}");
        Word(self.0 - EXCLUSIVE + SHARED)
    }

    /// Taken from its page, to be used for another one. Only for a clean page that is not pinned and was used at most
    /// `usage_most` times recently.
    pub(crate) fn claimed(self, usage_most: u64) -> Option<Word> {
        let free = self.0 & !(USAGE | EXCLUSIVE_WAITS | AHEAD | CHECKPOINT) == VALID;
        (free && self.usage() <= usage_most).then_some(OWNED)
    }

    /// No longer its file's page: a thread that has it pinned keeps it, and it is never written. Not while it is being
    /// read or written.
    pub(crate) fn orphaned(self) -> Option<Word> {
        let settled = self.has(VALID) && !self.has(READING | WRITING | ORPHAN);
        settled.then_some(Word((self.0 | ORPHAN) & !(DIRTY | CHECKPOINT)))
    }

    /// True while the page on disk may be older: the page is dirty, or its write is in progress.
    pub(crate) fn is_unsaved(self) -> bool {
        self.has(DIRTY | WRITING)
    }

    /// Marked to be written by a checkpoint that begins now. A thread that has the page exclusively may have logged a
    /// change that is not marked yet, so such a page counts as dirty. `None` for a page that is clean.
    pub(crate) fn due(self) -> Option<Word> {
        let here = self.has(VALID) && !self.has(ORPHAN);
        (here && self.has(DIRTY | WRITING | EXCLUSIVE)).then_some(Word(self.0 | CHECKPOINT))
    }

    /// The word with its usage decremented.
    pub(crate) fn aged(self) -> Word {
        Word(if self.usage() > 0 { self.0 - USE } else { self.0 })
    }

    /// The word with its usage set.
    pub(crate) fn with_usage(self, usage: u64) -> Word {
        Word(self.0 & !USAGE | usage.min(USAGE_MAX))
    }

    /// True when releasing this much (the hold before the release) requires a wakeup.
    #[inline]
    pub(crate) fn wakes_after(self, released: u64) -> bool {
        self.has(SLEEPERS) && Word(self.0 - released).is_unlatched()
    }

    fn check_room(self) {
        assert!(!self.has(FULL), "[WRD-2] more than {COUNT_MAX} holders of one page");
    }

    /// This word, if it keeps [WRD-1] and [WRD-3].
    #[inline]
    pub(crate) fn checked(self) -> Word {
        let both = self.has(EXCLUSIVE) && self.shared() > 0;
        debug_assert!(!both, "[WRD-1] latched shared and exclusively: {self:?}");
        debug_assert!(self.has(VALID | EXCLUSIVE | ORPHAN), "[WRD-3] no page, and open: {self:?}");
        self
    }
}

impl std::fmt::Debug for Word {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} pins, {} shared, usage {}", self.pins(), self.shared(), self.usage())?;
        let flags = [
            (EXCLUSIVE, "EXCLUSIVE"),
            (EXCLUSIVE_WAITS, "EXCLUSIVE_WAITS"),
            (SLEEPERS, "SLEEPERS"),
            (VALID, "VALID"),
            (DIRTY, "DIRTY"),
            (READING, "READING"),
            (WRITING, "WRITING"),
            (ORPHAN, "ORPHAN"),
            (AHEAD, "AHEAD"),
            (CHECKPOINT, "CHECKPOINT"),
        ];
        flags.iter().filter(|(flag, _)| self.has(*flag)).try_for_each(|(_, name)| {
            out.write_str(", ")?;
            out.write_str(name)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESIDENT: Word = Word(VALID);

    #[test]
    fn one_step_pins_latches_and_counts_the_use() {
        let word = RESIDENT.acquired(Mode::Shared, Touch::Count).unwrap();
        assert_eq!((word.pins(), word.shared(), word.usage()), (1, 1, 1));
        let word = word.acquired(Mode::Shared, Touch::Count).unwrap();
        assert_eq!((word.pins(), word.shared(), word.usage()), (2, 2, 2));
        assert_eq!(word.acquired(Mode::Exclusive, Touch::Count), None);
        assert_eq!(word.obstacle(), Obstacle::Latched);
        assert!(word.acquired(Mode::Pin, Touch::Count).is_some());
    }

    #[test]
    fn wrd_1_exclusive_excludes_everyone_else() {
        let word = RESIDENT.acquired(Mode::Exclusive, Touch::Count).unwrap();
        for mode in [Mode::Shared, Mode::Exclusive] {
            assert_eq!(word.acquired(mode, Touch::Count), None);
            assert_eq!(word.latched(mode), None);
        }
        assert_eq!(word.checked(), word);
        assert_eq!(word.downgraded().shared(), 1);
    }

    /// A hit with a latch relies on it.
    #[test]
    fn wrd_3_a_frame_without_its_page_gives_no_latch_and_no_pin() {
        let failed = Word(Word::loading(true).loaded().0 | ORPHAN);
        for word in [OWNED, Word::loading(false), Word::loading(true), failed] {
            assert!(!word.has(VALID));
            assert_eq!(word.checked(), word);
            for mode in [Mode::Pin, Mode::Shared, Mode::Exclusive] {
                assert_eq!(word.acquired(mode, Touch::Count), None, "[WRD-3] {word:?}");
            }
        }
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "[WRD-3]")]
    fn wrd_3_a_word_that_bars_no_thread_from_no_page_is_a_bug() {
        let _ = Word(PIN).checked();
    }

    #[test]
    fn a_waiting_writer_keeps_new_readers_out() {
        let word = Word(VALID | PIN | SHARED | EXCLUSIVE_WAITS);
        assert_eq!(word.acquired(Mode::Shared, Touch::Count), None);
        assert_eq!(word.obstacle(), Obstacle::Latched);
        assert_eq!(word.latched(Mode::Shared), None);
        let free = Word(word.0 - SHARED);
        assert!(!free.latched(Mode::Exclusive).unwrap().has(EXCLUSIVE_WAITS));
    }

    #[test]
    fn only_a_clean_idle_page_can_be_claimed() {
        assert_eq!(RESIDENT.claimed(0), Some(OWNED));
        for bar in [PIN, DIRTY, READING, WRITING, ORPHAN, PIN + SHARED, EXCLUSIVE, SLEEPERS] {
            assert_eq!(Word(VALID | bar).claimed(USAGE_MAX), None, "{:?}", Word(VALID | bar));
        }
        assert_eq!(OWNED.claimed(USAGE_MAX), None);
        assert_eq!(RESIDENT.with_usage(2).claimed(1), None);
        assert_eq!(RESIDENT.with_usage(2).claimed(2), Some(OWNED));
    }

    #[test]
    fn an_orphan_is_clean_and_comes_of_a_settled_page() {
        assert_eq!(Word(VALID | DIRTY | PIN).orphaned(), Some(Word(VALID | ORPHAN | PIN)));
        for bar in [READING, WRITING, ORPHAN] {
            assert_eq!(Word(VALID | PIN | bar).orphaned(), None);
        }
    }

    #[test]
    fn use_counts_to_its_limit_and_ages_to_zero() {
        let mut word = RESIDENT;
        for _ in 0..10 {
            word = word.acquired(Mode::Pin, Touch::Count).unwrap();
        }
        assert_eq!(word.usage(), USAGE_MAX);
        for _ in 0..10 {
            word = word.aged();
        }
        assert_eq!((word.usage(), word.pins()), (0, 10));
        for _ in 0..3 {
            word = word.acquired(Mode::Pin, Touch::Once).unwrap();
        }
        assert_eq!(word.usage(), 1);
    }

    #[test]
    #[should_panic(expected = "[WRD-2]")]
    fn wrd_2_too_many_pins_are_refused_before_they_overflow() {
        let full = Word(VALID + (COUNT_MAX + 1) * PIN);
        assert_eq!(full.acquired(Mode::Pin, Touch::Count), None);
        full.obstacle();
    }

    #[test]
    fn a_page_on_its_way_in_can_be_pinned_and_not_latched() {
        let word = Word(READING | EXCLUSIVE | PIN);
        assert_eq!(word.acquired(Mode::Shared, Touch::Count), None);
        assert_eq!(word.obstacle(), Obstacle::Reading);
        assert_eq!(word.pinned(Touch::Once).unwrap().pins(), 2);
        assert_eq!(OWNED.pinned(Touch::Once), None);
        assert_eq!(Word(VALID | ORPHAN | PIN).pinned(Touch::Once), None);
    }
}
