//! Tests of the counters: nothing is lost, whichever thread counts and whenever.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Barrier};
use std::thread;

use super::*;

/// `threads` threads, alive all at once, each count `each` hits and optimistic reads.
fn count_at_once(counters: &Arc<Counters>, threads: u64, each: u64) {
    let barrier = Arc::new(Barrier::new(threads as usize));
    let threads: Vec<_> = (0..threads)
        .map(|index| {
            let (counters, barrier) = (Arc::clone(counters), Arc::clone(&barrier));
            thread::spawn(move || {
                let kind = StrategyKind::ALL[index as usize % StrategyKind::COUNT];
                counters.hit(kind);
                barrier.wait();
                for _ in 1..each {
                    counters.hit(kind);
                }
                (0..each).for_each(|_| counters.optimistic());
                barrier.wait();
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

fn hits(counters: &Counters) -> u64 {
    counters.snapshot().total().hits
}

// [STAT-2]
#[test]
fn many_threads_lose_no_count() {
    let counters = Arc::new(Counters::new());
    count_at_once(&counters, 16, 20_000);
    let stats = counters.snapshot();
    for kind in StrategyKind::ALL {
        assert_eq!(stats.strategy(kind).hits, 4 * 20_000, "{kind}");
    }
    assert_eq!(stats.pool.optimistic_reads, 16 * 20_000);
}

// [STAT-2]
#[test]
fn more_threads_than_slots_lose_no_count() {
    for slots in [0, 1, 3] {
        let counters = Arc::new(Counters::with_slots(slots));
        count_at_once(&counters, 12, 10_000);
        assert_eq!(hits(&counters), 12 * 10_000, "{slots} slots");
        let shared = counters.shared.0[OPTIMISTIC].load(Ordering::Relaxed);
        assert!(shared >= (12 - slots as u64) * 10_000, "{slots} slots, {shared} shared");
    }
}

// [STAT-2]
#[test]
fn a_thread_that_inherits_a_number_goes_on_counting_where_the_last_one_stopped() {
    let counters = Arc::new(Counters::with_slots(64));
    for _ in 0..300 {
        let counters = Arc::clone(&counters);
        thread::spawn(move || (0..10).for_each(|_| counters.hit(StrategyKind::Normal)))
            .join()
            .unwrap();
    }
    assert_eq!(hits(&counters), 3000);
    assert!(counters.slots.iter().any(|slot| slot.0[0].load(Ordering::Relaxed) > 10));
}

// [STAT-2]
#[test]
fn threads_that_come_and_go_while_others_count_lose_no_count() {
    let counters = Arc::new(Counters::with_slots(4));
    let counting: Vec<_> = (0..8)
        .map(|_| {
            let counters = Arc::clone(&counters);
            thread::spawn(move || {
                for _ in 0..20 {
                    let counters = Arc::clone(&counters);
                    let inner =
                        move || (0..500).for_each(|_| counters.hit(StrategyKind::Maintenance));
                    thread::spawn(inner).join().unwrap();
                }
            })
        })
        .collect();
    counting.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(hits(&counters), 8 * 20 * 500);
}

#[test]
fn a_thread_that_is_ending_still_counts_without_touching_a_slot() {
    struct Last(Arc<Counters>);
    impl Drop for Last {
        fn drop(&mut self) {
            self.0.hit(StrategyKind::Normal);
        }
    }
    thread_local!(static LAST: std::cell::OnceCell<Last> = const { std::cell::OnceCell::new() });
    let counters = Arc::new(Counters::new());
    let for_thread = Arc::clone(&counters);
    // What is accessed first is destroyed last, so this counts after the number was returned.
    let ended = thread::spawn(move || {
        LAST.with(|last| last.get_or_init(|| Last(Arc::clone(&for_thread))).0.optimistic());
        for_thread.hit(StrategyKind::Normal);
    });
    ended.join().unwrap();
    assert_eq!(hits(&counters), 2);
    assert_eq!(counters.shared.0[0].load(Ordering::Relaxed), 1);
}

#[test]
fn one_thread_counts_in_two_pools_separately() {
    let (one, other) = (Counters::new(), Counters::new());
    one.hit(StrategyKind::Normal);
    other.hit(StrategyKind::Normal);
    other.hit(StrategyKind::BulkWrite);
    assert_eq!((hits(&one), hits(&other)), (1, 2));
}

// [STAT-3]
#[test]
fn no_number_goes_down_while_threads_count() {
    let counters = Arc::new(Counters::with_slots(1));
    let done = Arc::new(AtomicBool::new(false));
    let counting: Vec<_> = (0..3)
        .map(|_| {
            let (counters, done) = (Arc::clone(&counters), Arc::clone(&done));
            thread::spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    counters.hit(StrategyKind::Normal);
                    counters.count(StrategyKind::Normal, Event::Miss);
                    counters.waited(Wait::Read, Duration::from_micros(3));
                }
            })
        })
        .collect();
    let mut earlier = counters.snapshot();
    for _ in 0..500 {
        let later = counters.snapshot();
        let pairs = later.total().named().into_iter().zip(earlier.total().named());
        for (new, old) in pairs {
            assert!(new.value >= old.value, "[STAT-3] {}", new.name);
        }
        assert!(later.wait(Wait::Read).count() >= earlier.wait(Wait::Read).count(), "[STAT-3]");
        earlier = later;
    }
    done.store(true, Ordering::Relaxed);
    counting.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn every_event_has_a_separate_count() {
    let counters = Counters::new();
    let events = [
        Event::HitInFlight,
        Event::Miss,
        Event::Init,
        Event::Eviction,
        Event::RingReuse,
        Event::RingRefused,
        Event::VictimWrite,
        Event::Reads,
        Event::BytesRead,
        Event::Writes,
        Event::BytesWritten,
        Event::ReadErrors,
        Event::WriteErrors,
        Event::CorruptPages,
        Event::Prefetch,
        Event::PrefetchLate,
        Event::PrefetchJoined,
        Event::GapPage,
        Event::BackedOff,
    ];
    assert_eq!(events.len(), Event::COUNT);
    for (event, n) in events.into_iter().zip(1..) {
        counters.add(StrategyKind::BulkRead, event, n);
    }
    let stats = counters.snapshot();
    let named = stats.strategy(StrategyKind::BulkRead).named();
    // The events above are in the order of the fields, which start with the hits.
    let values: Vec<u64> = named.iter().map(|count| count.value).collect();
    assert_eq!(named[8].name, "reads");
    assert_eq!(values, (0..=19).collect::<Vec<u64>>());
    assert!(stats.strategy(StrategyKind::Normal).is_empty());
}

#[test]
fn every_event_of_the_pool_has_a_separate_count() {
    let counters = Counters::new();
    let events = [
        PoolEvent::OptimisticRetries,
        PoolEvent::CleanerPages,
        PoolEvent::CleanerRounds,
        PoolEvent::CleanerWakes,
        PoolEvent::Checkpoints,
        PoolEvent::CheckpointPages,
        PoolEvent::Syncs,
        PoolEvent::SyncErrors,
        PoolEvent::LogErrors,
        PoolEvent::UnloggedChanges,
        PoolEvent::Doomed,
    ];
    assert_eq!(events.len(), PoolEvent::COUNT);
    for (event, n) in events.into_iter().zip(1..) {
        (0..n).for_each(|_| counters.count_pool(event));
    }
    let named = counters.snapshot().pool.named();
    let values: Vec<u64> = named.iter().map(|count| count.value).collect();
    // Only the frames know the outcome of pages read ahead, and they are not queried here.
    assert_eq!(values[..12], (0..=11).collect::<Vec<u64>>());
    assert_eq!(values[12..], [0, 0]);
    assert_eq!(named[11].name, "doomed_pages");
}

#[test]
fn what_every_hit_reads_shares_no_cache_line_with_what_others_write() {
    assert_eq!((size_of::<CounterSlot>(), align_of::<CounterSlot>()), (64, 64));
    let counters = Counters::new();
    let line = |address: usize| address / 64;
    let start = std::ptr::from_ref(&counters.slots) as usize;
    let written = [
        (std::ptr::from_ref(&counters.shared) as usize, size_of::<CounterSlot>()),
        (std::ptr::from_ref(&counters.events) as usize, size_of_val(&counters.events)),
        (std::ptr::from_ref(&counters.pool) as usize, size_of::<PoolEvents>()),
    ];
    for (from, len) in written {
        assert!(line(start) < line(from) || line(start) > line(from + len - 1));
    }
}

#[test]
fn counters_take_about_52_kib() {
    let bytes = Counters::new().memory_bytes();
    assert!((48 << 10..56 << 10).contains(&bytes), "{bytes} bytes");
}
