//! Tests of the reasons: the largest first, and advice only with cause.

use super::*;
use crate::observe::stats::{Counters, Event, PoolEvent};

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn waited(waits: &[(Wait, u64)]) -> Counters {
    let counters = Counters::new();
    waits.iter().for_each(|&(wait, time_ms)| counters.waited(wait, ms(time_ms)));
    counters
}

/// The text after "What to change:".
fn advice(stats: &Stats) -> Vec<String> {
    stats
        .explain()
        .lines()
        .skip_while(|line| *line != "What to change:")
        .skip(1)
        .map(str::to_owned)
        .collect()
}

#[test]
fn without_waits_it_says_so_and_nothing_else() {
    let text = Stats::default().explain();
    assert_eq!(text, "No thread waited for the pool; the time went elsewhere.\n");
}

#[test]
fn waits_come_largest_first_with_share_count_and_times() {
    let stats = waited(&[(Wait::Sync, 20), (Wait::Read, 30), (Wait::Read, 40), (Wait::Latch, 10)]);
    let text = stats.snapshot().explain();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "Threads waited 100.0ms in all.");
    assert!(
        lines[1]
            .starts_with("- 70% for pages to be read from disk: 70.0ms in 2 waits, half within 3")
    );
    assert!(lines[1].contains("99% within 4") && lines[1].contains("the longest 4"), "{text}");
    assert!(lines[2].starts_with("- 20% for syncs: 20.0ms in 1 wait,"), "{text}");
    assert!(lines[3].starts_with("- 10% for latches"), "{text}");
    assert!(!text.contains("a frame to come free"), "{text}");
}

#[test]
fn each_wait_that_took_the_time_brings_its_own_advice() {
    let expected = [
        (Wait::Read, "Read ahead"),
        (Wait::InFlightRead, "the same pages at the same time"),
        (Wait::Write, "Spread checkpoints"),
        (Wait::Latch, "optimistically"),
        (Wait::Frame, "Hold fewer pages"),
        (Wait::Log, "Flush the log"),
        (Wait::Sync, "Request fewer"),
    ];
    for (wait, phrase) in expected {
        let advice = advice(&waited(&[(wait, 100)]).snapshot());
        assert_eq!(advice.len(), 1, "{wait}: {advice:?}");
        assert!(advice[0].contains(phrase), "{wait}: {advice:?}");
    }
}

#[test]
fn a_wait_of_little_weight_brings_no_advice() {
    let advice = advice(&waited(&[(Wait::Sync, 95), (Wait::Latch, 5)]).snapshot());
    assert_eq!(advice.len(), 1, "{advice:?}");
    assert!(advice[0].contains("sync"));
}

#[test]
fn few_hits_suggest_memory() {
    let counters = waited(&[(Wait::Read, 100)]);
    (0..43).for_each(|_| counters.hit(StrategyKind::Normal));
    counters.add(StrategyKind::Normal, Event::Miss, 57);
    let advice = advice(&counters.snapshot());
    assert!(
        advice[0].contains("Only 43% of the requested pages") && advice[0].contains("pool larger")
    );
    assert_eq!(advice.len(), 1);
}

#[test]
fn dirty_victims_point_at_the_cleaner_even_when_no_thread_waited_long() {
    let counters = waited(&[(Wait::Sync, 100)]);
    counters.add(StrategyKind::BulkWrite, Event::Eviction, 1000);
    counters.add(StrategyKind::BulkWrite, Event::VictimWrite, 9);
    assert!(!counters.snapshot().explain().contains("cleaner"));
    counters.add(StrategyKind::BulkWrite, Event::VictimWrite, 241);
    let text = counters.snapshot().explain();
    assert!(text.contains("The cleaner is behind"), "{text}");
    assert!(text.contains("250 dirty pages themselves, 25% of what was evicted"), "{text}");
}

#[test]
fn a_ring_that_cannot_turn_is_named() {
    let counters = Counters::new();
    counters.add(StrategyKind::Maintenance, Event::RingReuse, 60);
    counters.add(StrategyKind::Maintenance, Event::RingRefused, 40);
    counters.add(StrategyKind::BulkRead, Event::RingReuse, 99);
    counters.add(StrategyKind::BulkRead, Event::RingRefused, 1);
    let advice = advice(&counters.snapshot());
    assert_eq!(advice.len(), 1);
    assert!(advice[0].contains("maintenance ring") && advice[0].contains("40 of 100 times"));
}

#[test]
fn failed_optimistic_reads_are_reported() {
    let counters = Counters::new();
    (0..75).for_each(|_| counters.optimistic());
    counters.add_pool(PoolEvent::OptimisticRetries, 25);
    let advice = advice(&counters.snapshot());
    assert!(advice[0].contains("25% of the optimistic reads"), "{advice:?}");
}

#[test]
fn pinned_frames_are_reported_with_their_number() {
    let counters = waited(&[(Wait::Frame, 50)]);
    let stats = Stats { frames: 64, frames_pinned: 63, ..counters.snapshot() };
    assert!(advice(&stats)[0].contains("63 of 64 are pinned now"));
}

#[test]
fn a_moment_of_waiting_calls_for_no_advice() {
    let counters = waited(&[(Wait::Frame, 2)]);
    assert!(advice(&counters.snapshot()).is_empty());
}

#[test]
fn what_went_wrong_comes_first() {
    let counters = waited(&[(Wait::Read, 5)]);
    counters.count(StrategyKind::Normal, Event::CorruptPages);
    counters.count_pool(PoolEvent::SyncErrors);
    counters.add_pool(PoolEvent::UnloggedChanges, 2);
    let text = counters.snapshot().explain();
    assert!(text.starts_with("Something went wrong:\n- 1 corrupt page. Restore"), "{text}");
    assert!(text.contains("- 1 failed sync. ") && text.contains("- 2 unlogged changes. "));
}

#[test]
fn a_percentage_does_not_round_to_nothing_or_to_everything() {
    let shown = [0.0, 0.001, 0.5, 0.999, 1.0].map(percent);
    assert_eq!(shown, ["0%", "less than 1%", "50%", "more than 99%", "100%"]);
}
