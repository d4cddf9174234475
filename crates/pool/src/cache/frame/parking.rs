//! The parking lot: where threads sleep until something about a frame changes.
//!
//! Frames are many and sleepers few, so a frame has no queue of its own, only the bit SLEEPERS in
//! its word. The queues are kept here, in a few stripes chosen by frame number. A stripe is searched from
//! end to end: with 64 others in it a sleep and its wake cost 0.2 us of that, with 256 others 0.5 us, beside
//! the microseconds of the system calls.
//!
//! Invariants:  [PRK-1] no wake is lost: a thread sets SLEEPERS only in a word that still bars its way,
//!              and is on the list before it lets go of the stripe; whoever changes such a word
//!              sees the bit, takes the stripe, and wakes everyone on the list
//! Concurrency: a stripe's lock is held for a few instructions, never across a sleep.
//! Source:      the idea of the lot is WebKit's (Pizlo, "Locking in WebKit", 2016).

use super::word::{FrameIndex, SLEEPERS, Word};
use crate::sync::{AtomicU64, Mutex, Ordering, Thread, current, lock, park};

/// Sleepers are few; this keeps unrelated frames out of each other's way.
const STRIPES: usize = if cfg!(loom) { 1 } else { 64 };

pub(crate) struct ParkingLot {
    stripes: Box<[Mutex<Vec<Sleeper>>]>,
}

struct Sleeper {
    frame: FrameIndex,
    thread: Thread,
}

impl ParkingLot {
    pub(crate) fn new() -> ParkingLot {
        ParkingLot { stripes: (0..STRIPES).map(|_| Mutex::new(Vec::new())).collect() }
    }

    fn stripe(&self, frame: FrameIndex) -> &Mutex<Vec<Sleeper>> {
        &self.stripes[frame as usize % STRIPES]
    }

    /// Sleeps until somebody wakes the sleepers of `frame`, unless `barred` says that `word` no
    /// longer bars the way. May return early: the caller looks again.
    ///
    /// `announce` is set in the word together with SLEEPERS.
    pub(crate) fn sleep(
        &self,
        frame: FrameIndex,
        word: &AtomicU64,
        announce: u64,
        barred: impl Fn(Word) -> bool,
    ) {
        self.rest(frame, word, announce, barred, park);
    }

    /// As [`ParkingLot::sleep`], with `rest` instead of sleep: it returns when this thread is
    /// unparked, or for reasons of its own.
    pub(crate) fn rest(
        &self,
        frame: FrameIndex,
        word: &AtomicU64,
        announce: u64,
        barred: impl Fn(Word) -> bool,
        rest: impl FnOnce(),
    ) {
        {
            let mut sleepers = lock(self.stripe(frame));
            let bits = SLEEPERS | announce;
            let mut now = word.load(Ordering::Acquire);
            loop {
                if !barred(Word(now)) {
                    return;
                }
                if now & bits == bits {
                    break;
                }
                let set = now | bits;
                match word.compare_exchange(now, set, Ordering::AcqRel, Ordering::Acquire) {
                    Ok(_) => break,
                    Err(changed) => now = changed,
                }
            }
            // [PRK-1]: wakers take this lock, so none can look at the list before this.
            sleepers.push(Sleeper { frame, thread: current() });
        }
        rest();
        let me = current().id();
        let mut sleepers = lock(self.stripe(frame));
        sleepers.retain(|sleeper| !(sleeper.frame == frame && sleeper.thread.id() == me));
    }

    /// Wakes everyone who sleeps on `frame`.
    pub(crate) fn wake(&self, frame: FrameIndex, word: &AtomicU64) {
        let mut sleepers = lock(self.stripe(frame));
        word.fetch_and(!SLEEPERS, Ordering::AcqRel);
        sleepers.retain(|sleeper| {
            let woken = sleeper.frame == frame;
            if woken {
                sleeper.thread.unpark();
            }
            !woken
        });
    }
}

impl std::fmt::Debug for ParkingLot {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("ParkingLot").finish_non_exhaustive()
    }
}
