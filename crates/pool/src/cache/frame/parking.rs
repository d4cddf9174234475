//! The parking lot: where threads sleep, and tasks wait, until the state of a frame changes.
//!
//! There are many frames and few sleepers, so a frame has no separate queue, only the bit SLEEPERS in its word. The
//! queues are kept here, in a few stripes chosen by frame number. A stripe is searched linearly: with 64 other waiters
//! in it, that costs a sleep and its wakeup 0.2 us, with 256 others 0.5 us, compared with the microseconds of the
//! system calls.
//!
//! A task stays on the list until it is woken or unregisters. A task that was woken may never be polled again, so the
//! bits that it announced in the word are cleared when it is woken.
//!
//! Invariants:  [PRK-1] no wakeup is lost: SLEEPERS is set only in a word that still blocks, and the thread or task is
//!              on the list before the stripe is unlocked; a thread that changes such a word sees the bit, locks the
//!              stripe, and wakes all waiters on the list
//!              [PRK-2] the word contains a task's announcement only while the task is on the list
//! Concurrency: a stripe's lock is held for a few instructions, never across a sleep, and no waker is
//!              called, cloned or dropped under it.
//! Source:      the idea of the lot is WebKit's (Pizlo, "Locking in WebKit", 2016).

use std::task::{Poll, Waker};

use super::word::{FrameIndex, SLEEPERS, Word};
use crate::sync::{AtomicU64, Mutex, Ordering, Thread, current, lock, park, wake_task};

/// Sleepers are few; this keeps unrelated frames from contending.
const STRIPES: usize = if cfg!(loom) { 1 } else { 64 };

pub(crate) struct ParkingLot {
    stripes: Box<[Mutex<Stripe>]>,
}

#[derive(Default)]
struct Stripe {
    sleepers: Vec<Sleeper>,
    /// Numbers assigned to tasks so far.
    numbered: u64,
}

struct Sleeper {
    frame: FrameIndex,
    who: Who,
}

enum Who {
    Thread(Thread),
    Task {
        number: u64,
        waker: Waker,
        /// The bits that it has set in the word.
        announced: u64,
    },
}

/// A task's place on the list of waiters for one frame, if it is on the list.
#[derive(Debug, Default)]
pub(crate) struct TaskPlace(Option<u64>);

impl TaskPlace {
    /// True if the task was registered to wait, and has not been polled since.
    pub(crate) fn is_taken(&self) -> bool {
        self.0.is_some()
    }
}

impl Sleeper {
    fn is_task(&self, frame: FrameIndex, wanted: u64) -> bool {
        let this = matches!(self.who, Who::Task { number, .. } if number == wanted);
        self.frame == frame && this
    }

    fn announced(&self) -> u64 {
        match self.who {
            Who::Thread(_) => 0,
            Who::Task { announced, .. } => announced,
        }
    }
}

impl Stripe {
    fn find(&self, frame: FrameIndex, number: u64) -> Option<usize> {
        self.sleepers.iter().position(|sleeper| sleeper.is_task(frame, number))
    }
}

impl ParkingLot {
    pub(crate) fn new() -> ParkingLot {
        ParkingLot { stripes: (0..STRIPES).map(|_| Mutex::default()).collect() }
    }

    fn stripe(&self, frame: FrameIndex) -> &Mutex<Stripe> {
        &self.stripes[frame as usize % STRIPES]
    }

    /// Sleeps until another thread wakes the sleepers of `frame`, unless `barred` says that `word` no longer blocks.
    /// May return early: the caller checks again.
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

    /// As [`ParkingLot::sleep`], with `rest` instead of sleep: it returns when this thread is unparked, or spuriously.
    pub(crate) fn rest(
        &self,
        frame: FrameIndex,
        word: &AtomicU64,
        announce: u64,
        barred: impl Fn(Word) -> bool,
        rest: impl FnOnce(),
    ) {
        {
            let mut stripe = lock(self.stripe(frame));
            if !mark(word, announce, barred) {
                return;
            }
            // [PRK-1]: wakers take this lock, so none can look at the list before this.
            stripe.sleepers.push(Sleeper { frame, who: Who::Thread(current()) });
        }
        rest();
        let me = current().id();
        let this = |it: &Sleeper| matches!(&it.who, Who::Thread(thread) if thread.id() == me);
        lock(self.stripe(frame)).sleepers.retain(|it| !(it.frame == frame && this(it)));
    }

    /// As [`ParkingLot::sleep`], for a task: ready when `word` does not block it. Otherwise `waker` is woken when that
    /// may have changed, unless the task gives up its `place` before ([`ParkingLot::forget`]).
    pub(crate) fn poll(
        &self,
        frame: FrameIndex,
        word: &AtomicU64,
        announce: u64,
        barred: impl Fn(Word) -> bool,
        place: &mut TaskPlace,
        waker: &Waker,
    ) -> Poll<()> {
        if place.0.is_none() && !barred(Word(word.load(Ordering::Acquire))) {
            return Poll::Ready(());
        }
        let waker = waker.clone();
        let mut stripe = lock(self.stripe(frame));
        let listed = place.0.and_then(|number| stripe.find(frame, number));
        if !mark(word, announce, barred) {
            let removed = listed.map(|at| stripe.sleepers.swap_remove(at));
            drop(stripe);
            *place = TaskPlace(None);
            drop((removed, waker));
            return Poll::Ready(());
        }
        if let Some(Sleeper { who: Who::Task { waker: known, announced, .. }, .. }) =
            listed.map(|at| &mut stripe.sleepers[at])
        {
            *announced |= announce;
            let before = std::mem::replace(known, waker);
            drop(stripe);
            drop(before);
            return Poll::Pending;
        }
        stripe.numbered += 1;
        let number = stripe.numbered;
        // [PRK-1], as for threads.
        let who = Who::Task { number, waker, announced: announce };
        stripe.sleepers.push(Sleeper { frame, who });
        *place = TaskPlace(Some(number));
        Poll::Pending
    }

    /// Unregisters a task. Its announcement may have kept others waiting: they check again ([PRK-2]).
    pub(crate) fn forget(&self, frame: FrameIndex, word: &AtomicU64, place: &mut TaskPlace) {
        let Some(number) = place.0.take() else { return };
        let removed = {
            let mut stripe = lock(self.stripe(frame));
            let listed = stripe.find(frame, number);
            listed.map(|at| stripe.sleepers.swap_remove(at))
        };
        let announced = removed.map_or(0, |removed| removed.announced());
        if announced != 0 {
            self.wake_and_clear(frame, word, announced);
        }
    }

    /// Wakes all waiters for `frame`.
    pub(crate) fn wake(&self, frame: FrameIndex, word: &AtomicU64) {
        self.wake_and_clear(frame, word, 0);
    }

    fn wake_and_clear(&self, frame: FrameIndex, word: &AtomicU64, clear: u64) {
        let mut tasks = Vec::new();
        {
            let mut stripe = lock(self.stripe(frame));
            let of_frame = stripe.sleepers.iter().filter(|sleeper| sleeper.frame == frame);
            let clear = of_frame.fold(clear | SLEEPERS, |bits, it| bits | it.announced());
            word.fetch_and(!clear, Ordering::AcqRel);
            let mut at = 0;
            while let Some(sleeper) = stripe.sleepers.get(at) {
                if sleeper.frame != frame {
                    at += 1;
                    continue;
                }
                match stripe.sleepers.swap_remove(at).who {
                    Who::Thread(thread) => thread.unpark(),
                    Who::Task { waker, .. } => tasks.push(waker),
                }
            }
        }
        tasks.into_iter().for_each(wake_task);
    }
}

/// Sets SLEEPERS and `announce` in a `word` that blocks. False if it does not.
fn mark(word: &AtomicU64, announce: u64, barred: impl Fn(Word) -> bool) -> bool {
    let bits = SLEEPERS | announce;
    let mut now = word.load(Ordering::Acquire);
    loop {
        if !barred(Word(now)) {
            return false;
        }
        if now & bits == bits {
            return true;
        }
        match word.compare_exchange(now, now | bits, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return true,
            Err(changed) => now = changed,
        }
    }
}

impl std::fmt::Debug for ParkingLot {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("ParkingLot").finish_non_exhaustive()
    }
}
