//! The budget: how many pages all look-ahead together may keep pinned.
//!
//! A stream pins its requested pages until it returns them, so that they are not evicted before they are used. Without
//! a limit, a few streams with deep look-ahead would leave no frame for others. So there is a pool-wide budget, and
//! each stream has a share of it. A page that was prefetched outside any stream holds its frame only until it is
//! resident, and counts until then.
//!
//! Invariants:  [BUD-1] all shares, and the pages being prefetched, together never exceed the budget
//!              [BUD-2] a stream that requests more holds at most the budget divided by the number of streams
//! Concurrency: any thread; three atomic counts.
//! Source:      PostgreSQL's LimitAdditionalPins for the idea of a share per stream.

use std::sync::atomic::{AtomicU32, Ordering};

/// Look-ahead may have one frame in this many. Source: leaves most of a small pool to its users; a pool of 128 MiB
/// still has 4096 pages for look-ahead, more than can be requested from a disk at once.
const POOL_SHARE: usize = 4;

/// Pins that look-ahead may hold in one pool.
#[derive(Debug)]
pub(crate) struct Budget {
    most: AtomicU32,
    /// Frames held now, by streams or by prefetches.
    pins: AtomicU32,
    /// Of these, frames of pages being read that no stream has pinned.
    prefetching: AtomicU32,
    streams: AtomicU32,
}

/// One stream's part of the budget. Returns everything when dropped.
#[derive(Debug)]
pub(crate) struct Share<C: AsRef<Budget>> {
    budget: C,
    held: u32,
}

impl Budget {
    /// For a pool with `frames` frames.
    pub(crate) fn new(frames: usize) -> Budget {
        let none = || AtomicU32::new(0);
        let budget = Budget { most: none(), pins: none(), prefetching: none(), streams: none() };
        budget.set_frames(frames);
        budget
    }

    /// The pool has `frames` frames from now on. A stream that holds more than that allows takes no more, and keeps the
    /// ones that it has.
    pub(crate) fn set_frames(&self, frames: usize) {
        let most = u32::try_from(frames / POOL_SHARE).unwrap_or(u32::MAX).max(1);
        self.most.store(most, Ordering::Relaxed);
    }

    /// Pins that any one stream can ever get.
    pub(crate) fn most(&self) -> u32 {
        self.most.load(Ordering::Relaxed)
    }

    /// Frames that are still available; another thread may take them.
    pub(crate) fn room(&self) -> u32 {
        self.most().saturating_sub(self.pins.load(Ordering::Relaxed))
    }

    /// Pages being read that no stream has pinned.
    pub(crate) fn prefetching(&self) -> u32 {
        self.prefetching.load(Ordering::Relaxed)
    }

    /// Counts one more page to be prefetched, if there is room for it.
    #[must_use]
    pub(crate) fn begin_prefetch(&self) -> bool {
        let taken = self.take();
        self.prefetching.fetch_add(u32::from(taken), Ordering::Relaxed);
        taken
    }

    /// The given number of prefetched pages are resident, or their reads have failed.
    pub(crate) fn end_prefetch(&self, pages: u32) {
        self.prefetching.fetch_sub(pages, Ordering::Relaxed);
        self.pins.fetch_sub(pages, Ordering::Relaxed);
    }

    fn take(&self) -> bool {
        let one_more = |pins| (pins < self.most()).then_some(pins + 1);
        self.pins.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
    }
}

impl<C: AsRef<Budget>> Share<C> {
    /// A share for another stream, empty so far.
    pub(crate) fn new(budget: C) -> Share<C> {
        budget.as_ref().streams.fetch_add(1, Ordering::Relaxed);
        Share { budget, held: 0 }
    }

    /// Pins that this stream may hold now: less when there are more streams.
    pub(crate) fn most(&self) -> u32 {
        let budget = self.budget.as_ref();
        (budget.most() / budget.streams.load(Ordering::Relaxed).max(1)).max(1)
    }

    /// Takes one more pin, if there is one left for this stream.
    #[must_use]
    pub(crate) fn take(&mut self) -> bool {
        let (mine, budget) = (self.most(), self.budget.as_ref());
        if self.held >= mine {
            return false;
        }
        let taken = budget.take();
        self.held += u32::from(taken);
        taken
    }

    /// Returns one pin.
    pub(crate) fn give_back(&mut self) {
        assert!(self.held > 0, "[BUD-1] a pin is given back that was never taken");
        self.held -= 1;
        self.budget.as_ref().pins.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<C: AsRef<Budget>> Drop for Share<C> {
    fn drop(&mut self) {
        let budget = self.budget.as_ref();
        budget.pins.fetch_sub(self.held, Ordering::Relaxed);
        budget.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl AsRef<Budget> for Budget {
        fn as_ref(&self) -> &Budget {
            self
        }
    }

    fn fill<C: AsRef<Budget>>(share: &mut Share<C>) -> u32 {
        (0..).take_while(|_| share.take()).count() as u32
    }

    #[test]
    fn bud_1_all_together_hold_at_most_the_budget() {
        let budget = Budget::new(400);
        let mut first = Share::new(&budget);
        assert_eq!(fill(&mut first), 100, "[BUD-1] a quarter of the pool, for one alone");
        let mut second = Share::new(&budget);
        assert_eq!(fill(&mut second), 0, "[BUD-1] there is nothing left");
        (0..60).for_each(|_| first.give_back());
        assert_eq!(fill(&mut second), 50, "[BUD-2] half of it, for one of two");
        assert_eq!(fill(&mut first), 10, "[BUD-2]");
        drop(second);
        assert_eq!(fill(&mut first), 50);
        drop(first);
        assert_eq!(fill(&mut Share::new(&budget)), 100, "[BUD-1] everything was given back");
    }

    #[test]
    fn bud_1_what_is_prefetched_counts_until_it_is_there() {
        let budget = Budget::new(40);
        let mut stream = Share::new(&budget);
        assert!(stream.take() && stream.take());
        assert_eq!((0..20).filter(|_| budget.begin_prefetch()).count(), 8, "[BUD-1]");
        assert_eq!((budget.room(), budget.prefetching()), (0, 8));
        assert!(!stream.take(), "[BUD-1]");
        budget.end_prefetch(3);
        assert_eq!((budget.room(), budget.prefetching()), (3, 5));
        drop(stream);
        budget.end_prefetch(5);
        assert_eq!((budget.room(), budget.prefetching()), (10, 0));
    }

    #[test]
    fn bud_1_in_a_pool_that_has_got_smaller_what_is_held_stays_and_nothing_is_added() {
        let budget = Budget::new(400);
        let mut stream = Share::new(&budget);
        assert_eq!(fill(&mut stream), 100);
        budget.set_frames(40);
        assert!(!stream.take() && !budget.begin_prefetch() && budget.room() == 0, "[BUD-1]");
        (0..91).for_each(|_| stream.give_back());
        assert_eq!((budget.room(), fill(&mut stream)), (1, 1), "[BUD-1]");
        budget.set_frames(800);
        assert_eq!(fill(&mut stream), 190, "[BUD-1]");
    }

    #[test]
    fn the_smallest_pool_still_looks_one_page_ahead() {
        let budget = Budget::new(2);
        assert_eq!(fill(&mut Share::new(&budget)), 1);
    }
}
