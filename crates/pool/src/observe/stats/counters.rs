//! Counters: the live side of the statistics, one set in each pool.
//!
//! A hit in memory costs some 20 ns in all, so counting it may cost about one. Each thread has a unique number
//! ([`thread_number`]) and the pool has one slot, a cache line, per number: the owner adds to it with a relaxed load
//! and a relaxed store. There is no lock, no locked instruction, and no line that another core writes. Threads beyond
//! the slots share one more slot, with `fetch_add`. All other events happen next to a system call, where an ordinary
//! `fetch_add` is lost in the noise.
//!
//! Size: 17 KiB for slots and counts and 5 KiB for each kind of wait, 52 KiB a pool.
//!
//! Invariants:  [STAT-2] no count is lost: when the counting threads are done, a snapshot has all
//!              [STAT-3] no number of a snapshot is smaller than in an earlier one
//! Concurrency: any thread. Only the thread that has a slot's number stores to the slot, so load
//!              and store lose nothing; the handover of a number orders one owner's stores before
//!              the next owner's loads. A snapshot takes numbers one after another while others
//!              count: each is right, but two of them may be from slightly different moments.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::snapshot::{FileStats, PoolStats, Stats, StrategyStats};
use super::thread_number;
use super::waits::{LiveWaits, Wait, WaitTimes};
use crate::strategy_kind::StrategyKind;

/// Threads that count without a locked instruction; the others share one slot.
const SLOTS: usize = 256;

/// What is counted for each strategy, besides hits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// The page was being read by another thread, and this thread waited for that read.
    HitInFlight,
    /// A read from disk was started for the page.
    Miss,
    /// A page was initialised without reading it.
    Init,
    /// A page was evicted from its frame.
    Eviction,
    /// A ring reused one of its frames.
    RingReuse,
    /// A ring could not reuse its frame: pinned, hot, or its log not flushed.
    RingRefused,
    /// A thread that needed a frame had to write the dirty victim itself.
    VictimWrite,
    /// Bytes read from files.
    BytesRead,
    /// Bytes written to files.
    BytesWritten,
    /// Read requests.
    Reads,
    /// Write requests.
    Writes,
    /// Read requests that failed.
    ReadErrors,
    /// Write requests that failed.
    WriteErrors,
    /// Pages whose checksum did not match, or that their codec rejected.
    CorruptPages,
    /// A page was requested from disk before any thread needed it.
    Prefetch,
    /// A page read ahead was needed before its read had ended.
    PrefetchLate,
    /// Another thread was already reading a page to be prefetched.
    PrefetchJoined,
    /// An unrequested page was read, between two others.
    GapPage,
    /// Look-ahead backed off: there was no clean frame for it.
    BackedOff,
}

impl Event {
    const COUNT: usize = Event::BackedOff as usize + 1;
}

/// What is counted for the pool as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PoolEvent {
    /// Pages that the cleaner wrote.
    CleanerPages,
    /// Rounds of the cleaner that found something to write.
    CleanerRounds,
    /// Times the cleaner was woken because clean frames ran short.
    CleanerWakes,
    /// Checkpoints that succeeded.
    Checkpoints,
    /// Pages that checkpoints wrote.
    CheckpointPages,
    /// Syncs.
    Syncs,
    /// Syncs that failed.
    SyncErrors,
    /// Log flushes that failed.
    LogErrors,
    /// Changes without an LSN, in a pool that has a log.
    UnloggedChanges,
    /// Optimistic reads that detected a change and were repeated.
    OptimisticRetries,
    /// Pages dropped or truncated while pinned.
    Doomed,
}

impl PoolEvent {
    const COUNT: usize = PoolEvent::Doomed as usize + 1;
}

/// Counts per strategy, then the optimistic reads; the rest fills the cache line.
#[derive(Default)]
#[repr(align(64))]
struct CounterSlot([AtomicU64; 8]);

const OPTIMISTIC: usize = StrategyKind::COUNT;

impl CounterSlot {
    /// Adds 1; only for the one thread that has this slot ([STAT-1]).
    #[inline]
    fn add_owned(&self, index: usize) {
        let count = self.0[index].load(Ordering::Relaxed);
        self.0[index].store(count.wrapping_add(1), Ordering::Relaxed);
    }

    /// Adds 1, concurrently with other threads.
    fn add_shared(&self, index: usize) {
        self.0[index].fetch_add(1, Ordering::Relaxed);
    }
}

/// Counts of one strategy, on separate cache lines.
#[derive(Default)]
#[repr(align(64))]
struct Events([AtomicU64; Event::COUNT]);

/// Counts of the pool, on separate cache lines.
#[derive(Default)]
#[repr(align(64))]
struct PoolEvents([AtomicU64; PoolEvent::COUNT]);

/// All counts and times of a pool.
pub(crate) struct Counters {
    /// Only these two pointers are on its cache line, because every hit reads it.
    slots: Box<[CounterSlot]>,
    waits: Box<LiveWaits>,
    /// For threads whose number has no slot.
    shared: CounterSlot,
    events: [Events; StrategyKind::COUNT],
    pool: PoolEvents,
}

impl Counters {
    /// All zero.
    pub(crate) fn new() -> Counters {
        Counters::with_slots(SLOTS)
    }

    fn with_slots(slots: usize) -> Counters {
        Counters {
            slots: (0..slots).map(|_| CounterSlot::default()).collect(),
            waits: Box::default(),
            shared: CounterSlot::default(),
            events: Default::default(),
            pool: PoolEvents::default(),
        }
    }

    /// Counts a page found in memory, ready to use.
    #[inline]
    pub(crate) fn hit(&self, strategy: StrategyKind) {
        self.add_one(strategy.index());
    }

    /// Counts an optimistic read that succeeded.
    #[inline]
    pub(crate) fn optimistic(&self) {
        self.add_one(OPTIMISTIC);
    }

    #[inline]
    fn add_one(&self, index: usize) {
        match self.slots.get(thread_number::get()) {
            Some(slot) => slot.add_owned(index),
            None => self.add_one_slowly(index),
        }
    }

    /// For a thread's first count in the process, and for threads beyond the slots.
    #[cold]
    fn add_one_slowly(&self, index: usize) {
        match self.slots.get(thread_number::get_or_take()) {
            Some(slot) => slot.add_owned(index),
            None => self.shared.add_shared(index),
        }
    }

    /// Counts an event.
    pub(crate) fn count(&self, strategy: StrategyKind, event: Event) {
        self.add(strategy, event, 1);
    }

    /// Counts an event `n` times, or `n` bytes.
    pub(crate) fn add(&self, strategy: StrategyKind, event: Event, n: u64) {
        self.events[strategy.index()].0[event as usize].fetch_add(n, Ordering::Relaxed);
    }

    /// Counts an event of the pool.
    pub(crate) fn count_pool(&self, event: PoolEvent) {
        self.add_pool(event, 1);
    }

    /// Counts an event of the pool `n` times.
    pub(crate) fn add_pool(&self, event: PoolEvent, n: u64) {
        self.pool.0[event as usize].fetch_add(n, Ordering::Relaxed);
    }

    /// Records that a thread was blocked for `time`. Takes a lock, so call it only for threads that were really
    /// blocked.
    pub(crate) fn waited(&self, wait: Wait, time: Duration) {
        self.waits.record(wait, time);
    }

    /// Runs `work`, which blocks for `wait`, and records its time.
    pub(crate) fn waiting<T>(
        &self,
        wait: Wait,
        now: impl Fn() -> Duration,
        work: impl FnOnce() -> T,
    ) -> T {
        let start = now();
        let result = work();
        self.waited(wait, now().saturating_sub(start));
        result
    }

    /// How often threads have been blocked for `wait` so far, and for how long in all.
    pub(crate) fn waited_so_far(&self, wait: Wait) -> (u64, Duration) {
        self.waits.so_far(wait)
    }

    /// Pages so far that were being read before they were needed, or were needed during the read: all for which
    /// [`Wait::InFlightRead`] may be waited.
    pub(crate) fn pages_ahead(&self) -> u64 {
        let ahead = [Event::Prefetch, Event::PrefetchJoined, Event::HitInFlight];
        let of = |event: Event| move |it: &Events| it.0[event as usize].load(Ordering::Relaxed);
        ahead.into_iter().map(|event| self.events.iter().map(of(event)).sum::<u64>()).sum()
    }

    /// Copies the times of `wait` to `to`, which has held such a copy before: this allocates nothing.
    pub(crate) fn copy_waits(&self, wait: Wait, to: &mut WaitTimes) {
        self.waits.copy(wait, to);
    }

    /// Everything counted so far. Values that only the pool knows (frames, page size) stay 0.
    pub(crate) fn snapshot(&self) -> Stats {
        let strategies = StrategyKind::ALL.map(|kind| {
            let event =
                |event: Event| self.events[kind.index()].0[event as usize].load(Ordering::Relaxed);
            StrategyStats {
                hits: self.sum(kind.index()),
                hits_in_flight: event(Event::HitInFlight),
                misses: event(Event::Miss),
                inits: event(Event::Init),
                evictions: event(Event::Eviction),
                ring_reuses: event(Event::RingReuse),
                ring_refusals: event(Event::RingRefused),
                victim_writes: event(Event::VictimWrite),
                reads: event(Event::Reads),
                read_bytes: event(Event::BytesRead),
                writes: event(Event::Writes),
                written_bytes: event(Event::BytesWritten),
                read_errors: event(Event::ReadErrors),
                write_errors: event(Event::WriteErrors),
                corrupt_pages: event(Event::CorruptPages),
                prefetches: event(Event::Prefetch),
                prefetches_late: event(Event::PrefetchLate),
                prefetches_joined: event(Event::PrefetchJoined),
                gap_pages: event(Event::GapPage),
                backed_off: event(Event::BackedOff),
            }
        });
        let event = |event: PoolEvent| self.pool.0[event as usize].load(Ordering::Relaxed);
        let pool = PoolStats {
            optimistic_reads: self.sum(OPTIMISTIC),
            optimistic_retries: event(PoolEvent::OptimisticRetries),
            cleaner_pages: event(PoolEvent::CleanerPages),
            cleaner_rounds: event(PoolEvent::CleanerRounds),
            cleaner_wakes: event(PoolEvent::CleanerWakes),
            checkpoints: event(PoolEvent::Checkpoints),
            checkpoint_pages: event(PoolEvent::CheckpointPages),
            syncs: event(PoolEvent::Syncs),
            sync_errors: event(PoolEvent::SyncErrors),
            log_errors: event(PoolEvent::LogErrors),
            unlogged_changes: event(PoolEvent::UnloggedChanges),
            doomed_pages: event(PoolEvent::Doomed),
            // Only the frames have this count.
            prefetches_useful: 0,
            prefetches_wasted: 0,
        };
        Stats { strategies, pool, waits: self.waits.snapshot(), ..Stats::default() }
    }

    fn sum(&self, index: usize) -> u64 {
        let slots = self.slots.iter().chain([&self.shared]);
        slots.map(|slot| slot.0[index].load(Ordering::Relaxed)).fold(0, u64::wrapping_add)
    }

    /// Memory in use, this struct included, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of_val(self) + size_of_val(&*self.slots) + self.waits.memory_bytes()
    }
}

/// The counts of one file, on separate cache lines, because hits read the adjacent data.
#[derive(Default)]
#[repr(align(64))]
pub(crate) struct FileCounts {
    events: [AtomicU64; Event::COUNT],
    wasted: AtomicU64,
}

impl FileCounts {
    /// Counts an event, for the pool as well.
    pub(crate) fn count(&self, pool: &Counters, strategy: StrategyKind, event: Event) {
        self.add(pool, strategy, event, 1);
    }

    /// Counts an event `n` times, or `n` bytes, for the pool as well.
    pub(crate) fn add(&self, pool: &Counters, strategy: StrategyKind, event: Event, n: u64) {
        pool.add(strategy, event, n);
        self.events[event as usize].fetch_add(n, Ordering::Relaxed);
    }

    /// Counts a page that was read ahead and evicted before it was requested.
    pub(crate) fn wasted(&self) {
        self.wasted.fetch_add(1, Ordering::Relaxed);
    }

    /// Everything counted so far; only the frames know which pages are in memory.
    pub(crate) fn snapshot(&self) -> FileStats {
        let event = |event: Event| self.events[event as usize].load(Ordering::Relaxed);
        FileStats {
            pages_resident: 0,
            pages_dirty: 0,
            misses: event(Event::Miss),
            hits_in_flight: event(Event::HitInFlight),
            inits: event(Event::Init),
            reads: event(Event::Reads),
            read_bytes: event(Event::BytesRead),
            writes: event(Event::Writes),
            written_bytes: event(Event::BytesWritten),
            read_errors: event(Event::ReadErrors),
            write_errors: event(Event::WriteErrors),
            corrupt_pages: event(Event::CorruptPages),
            prefetches: event(Event::Prefetch),
            prefetches_late: event(Event::PrefetchLate),
            prefetches_joined: event(Event::PrefetchJoined),
            prefetches_wasted: self.wasted.load(Ordering::Relaxed),
            gap_pages: event(Event::GapPage),
        }
    }
}

impl Default for Counters {
    fn default() -> Counters {
        Counters::new()
    }
}

impl fmt::Debug for Counters {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Counters").field("slots", &self.slots.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
