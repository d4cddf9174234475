//! Snapshots: everything a pool has counted, copied at one moment.
//!
//! The counts are listed once, in the two tables below; structs, differences, sums, metrics and the terminal's table
//! are all generated from them, so none of them can omit one, and a count has one name everywhere.
//!
//! Concurrency: plain values.
//! Failure:     a difference to a snapshot that is not an earlier one has zeros, never a wrap.

use super::waits::{Wait, WaitTimes};
use crate::strategy_kind::StrategyKind;

/// A count as tables and metrics show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Named {
    /// The field's name; a metric's without prefix and suffix.
    pub(super) name: &'static str,
    /// What it counts, as a sentence.
    pub(super) about: &'static str,
    pub(super) value: u64,
}

/// Creates a struct of counts from its table of names and meanings.
macro_rules! counts {
    ($(#[$attribute:meta])* $Name:ident { $($field:ident: $about:literal,)* }) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct $Name {
            $(#[doc = $about] pub $field: u64,)*
        }

        impl $Name {
            fn combine(&self, other: &$Name, with: fn(u64, u64) -> u64) -> $Name {
                $Name { $($field: with(self.$field, other.$field),)* }
            }

            /// Every count, in the table's order.
            pub(super) fn named(&self) -> Vec<Named> {
                vec![$(Named {
                    name: stringify!($field),
                    about: $about,
                    value: self.$field,
                },)*]
            }
        }
    };
}

counts! {
    /// The counts of one access strategy, or of all of them together.
    StrategyStats {
        hits: "Requested pages that were in memory.",
        hits_in_flight: "Requested pages that another thread was reading.",
        misses: "Requested pages that had to be read from disk.",
        inits: "Pages made without reading them.",
        evictions: "Pages thrown out of their frames to make room.",
        ring_reuses: "Times a ring reused one of its frames.",
        ring_refusals: "Times a ring could not reuse its frame: pinned, hot, or its log not flushed.",
        victim_writes: "Dirty pages that a thread in need of a frame had to write itself.",
        reads: "Read requests.",
        read_bytes: "Bytes read from files.",
        writes: "Write requests.",
        written_bytes: "Bytes written to files.",
        read_errors: "Read requests that failed.",
        write_errors: "Write requests that failed.",
        corrupt_pages: "Pages whose checksum did not match their bytes, or that their codec refused.",
        prefetches: "Pages read ahead of their use.",
        prefetches_late: "Pages read ahead that were wanted before they were there.",
        prefetches_joined: "Pages to be prefetched that another thread was reading already.",
        gap_pages: "Pages read without a request, between two requested ones.",
        backed_off: "Times that look-ahead backed off for want of a clean frame.",
    }
}

counts! {
    /// The counts that belong to no access strategy.
    PoolStats {
        optimistic_reads: "Pages read in memory without a pin.",
        optimistic_retries: "Reads without a pin that met a change and were done again.",
        cleaner_pages: "Pages written by the cleaner.",
        cleaner_rounds: "Rounds of the cleaner.",
        cleaner_wakes: "Times the cleaner was woken because clean frames ran short.",
        checkpoints: "Checkpoints that ended well.",
        checkpoint_pages: "Pages written by checkpoints.",
        syncs: "Syncs.",
        sync_errors: "Syncs that failed.",
        log_errors: "Log flushes that failed, each keeping pages from being written.",
        unlogged_changes: "Changes without an LSN in a pool that has a log.",
        doomed_pages: "Pages dropped or truncated away while pinned.",
        prefetches_useful: "Pages read ahead and used afterwards.",
        prefetches_wasted: "Pages read ahead that left their frames unused.",
    }
}

counts! {
    /// The counts of one file since it was opened, and how much of it is in memory.
    ///
    /// Hits are counted only for the pool, by strategy ([`Stats`]): counting them by file would need another store, or
    /// a cache line per file and thread.
    FileStats {
        pages_resident: "Pages in memory now.",
        pages_dirty: "Pages in memory now that have changes not yet written.",
        misses: "Requested pages that had to be read from disk.",
        hits_in_flight: "Requested pages that another thread was reading.",
        inits: "Pages made without reading them.",
        reads: "Read requests.",
        read_bytes: "Bytes read.",
        writes: "Write requests.",
        written_bytes: "Bytes written.",
        read_errors: "Read requests that failed.",
        write_errors: "Write requests that failed.",
        corrupt_pages: "Pages whose checksum did not match their bytes.",
        prefetches: "Pages read ahead of their use.",
        prefetches_late: "Pages read ahead that were wanted before they were there.",
        prefetches_joined: "Pages to be prefetched that another thread was reading already.",
        prefetches_wasted: "Pages read ahead that were evicted unused.",
        gap_pages: "Pages read without a request, between two requested ones.",
    }
}

impl FileStats {
    /// Returns the counts since `earlier` was taken from the same file. Pages in memory are those of `self`; a count
    /// that was larger in `earlier` becomes 0.
    #[must_use]
    pub fn since(&self, earlier: &FileStats) -> FileStats {
        FileStats {
            pages_resident: self.pages_resident,
            pages_dirty: self.pages_dirty,
            ..self.combine(earlier, u64::saturating_sub)
        }
    }
}

impl StrategyStats {
    /// Requested pages, whether they were in memory or not.
    pub fn asked(&self) -> u64 {
        self.found().saturating_add(self.misses)
    }

    /// Share of the requested pages that needed no read of their own, from 0 to 1; `None` when no page was requested.
    pub fn hit_ratio(&self) -> Option<f64> {
        share(self.found(), self.asked())
    }

    /// Returns true when this strategy was not used.
    pub fn is_empty(&self) -> bool {
        *self == StrategyStats::default()
    }

    fn found(&self) -> u64 {
        self.hits.saturating_add(self.hits_in_flight)
    }
}

/// The counts of a pool since it was created, or between two moments.
///
/// Counts only grow while a pool lives; [`Stats::since`] gives those of an interval. The numbers
/// of frames are as they were when the snapshot was taken.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Stats {
    /// Frames in all.
    pub frames: u64,
    /// Frames that hold no page.
    pub frames_free: u64,
    /// Frames whose page is pinned.
    pub frames_pinned: u64,
    /// Frames whose page has changes not yet written.
    pub frames_dirty: u64,
    /// Size of a page, in bytes.
    pub page_bytes: u64,
    /// The counts of each strategy, at its [`StrategyKind::index`].
    pub strategies: [StrategyStats; StrategyKind::COUNT],
    /// The counts that belong to no strategy.
    pub pool: PoolStats,
    /// Times waited, at the wait's place in [`Wait::ALL`].
    pub(super) waits: [WaitTimes; Wait::COUNT],
}

impl Stats {
    /// Memory for pages, in bytes: what [`BufferPool::set_memory`](crate::BufferPool::set_memory) changes.
    pub fn memory_bytes(&self) -> u64 {
        self.frames * self.page_bytes
    }

    /// Returns the counts of one strategy.
    pub fn strategy(&self, kind: StrategyKind) -> &StrategyStats {
        &self.strategies[kind.index()]
    }

    /// Returns how long threads waited for one reason.
    pub fn wait(&self, wait: Wait) -> &WaitTimes {
        &self.waits[wait.index()]
    }

    /// Returns the counts since `earlier` was taken from the same pool. Numbers of frames are those of `self`; a count
    /// that was larger in `earlier` becomes 0.
    #[must_use]
    pub fn since(&self, earlier: &Stats) -> Stats {
        Stats {
            strategies: StrategyKind::ALL.map(|kind| {
                self.strategy(kind).combine(earlier.strategy(kind), u64::saturating_sub)
            }),
            pool: self.pool.combine(&earlier.pool, u64::saturating_sub),
            waits: Wait::ALL.map(|wait| self.wait(wait).since(earlier.wait(wait))),
            ..*self
        }
    }

    /// Returns the counts of all strategies together.
    pub fn total(&self) -> StrategyStats {
        self.strategies.iter().fold(StrategyStats::default(), |total, strategy| {
            total.combine(strategy, u64::saturating_add)
        })
    }

    /// Share of the requested pages that needed no read of their own, from 0 to 1. A page read without a pin counts as
    /// found. `None` when no page was requested.
    pub fn hit_ratio(&self) -> Option<f64> {
        let (total, optimistic) = (self.total(), self.pool.optimistic_reads);
        share(total.found().saturating_add(optimistic), total.asked().saturating_add(optimistic))
    }
}

/// `part` of `whole`, from 0 to 1; `None` when `whole` is zero.
pub(super) fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    use crate::observe::stats::{Counters, Event, PoolEvent};

    #[test]
    fn a_ratio_of_nothing_is_none() {
        assert_eq!(Stats::default().hit_ratio(), None);
        assert_eq!(StrategyStats::default().hit_ratio(), None);
    }

    #[test]
    fn a_page_that_another_thread_reads_counts_as_found_and_a_new_page_not_at_all() {
        let stats = StrategyStats {
            hits: 5,
            hits_in_flight: 1,
            misses: 2,
            inits: 90,
            ..Default::default()
        };
        assert_eq!(stats.hit_ratio(), Some(0.75));
    }

    #[test]
    fn reads_without_a_pin_count_as_found() {
        let counters = Counters::new();
        counters.optimistic();
        counters.optimistic();
        counters.hit(StrategyKind::Normal);
        counters.count(StrategyKind::Maintenance, Event::Miss);
        assert_eq!(counters.snapshot().hit_ratio(), Some(0.75));
    }

    #[test]
    fn the_total_adds_up_every_count_of_every_strategy() {
        let mut stats = Stats::default();
        for (kind, n) in StrategyKind::ALL.into_iter().zip([1, 10, 100, 1000]) {
            let one = StrategyStats::default();
            stats.strategies[kind.index()] =
                one.combine(&one, [|_, _| 1, |_, _| 10, |_, _| 100, |_, _| 1000][kind.index()]);
            assert!(stats.strategy(kind).named().iter().all(|count| count.value == n));
        }
        assert!(stats.total().named().iter().all(|count| count.value == 1111));
    }

    #[test]
    fn a_difference_has_the_events_between_and_the_later_frames() {
        let counters = Counters::new();
        let count = |times: u64| {
            (0..times).for_each(|_| counters.hit(StrategyKind::BulkRead));
            counters.add(StrategyKind::Normal, Event::BytesRead, times * 8192);
            counters.add_pool(PoolEvent::CleanerPages, times);
            counters.waited(Wait::Latch, Duration::from_micros(times));
        };
        count(3);
        let earlier = Stats { frames: 9, frames_free: 9, ..counters.snapshot() };
        count(4);
        let later = Stats { frames: 9, frames_free: 2, ..counters.snapshot() };
        let between = later.since(&earlier);
        assert_eq!(between.strategy(StrategyKind::BulkRead).hits, 4);
        assert_eq!(between.total().read_bytes, 4 * 8192);
        assert_eq!(between.pool.cleaner_pages, 4);
        assert_eq!(between.wait(Wait::Latch).count(), 1);
        assert_eq!(between.wait(Wait::Latch).sum(), Duration::from_micros(4));
        assert_eq!((between.frames, between.frames_free), (9, 2));
        assert_eq!(later.since(&Stats::default()), later);
    }

    #[test]
    fn a_difference_taken_the_wrong_way_round_is_zero() {
        let counters = Counters::new();
        let earlier = counters.snapshot();
        counters.hit(StrategyKind::Normal);
        counters.count_pool(PoolEvent::Syncs);
        counters.waited(Wait::Sync, Duration::from_millis(1));
        assert_eq!(earlier.since(&counters.snapshot()), Stats::default());
    }
}
