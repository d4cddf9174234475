//! Counters and traces: each prefetched page ends as useful or wasted, and has a reason for its read.

use std::thread;

use forebay::{Order, ReadaheadStrategy, Stats, StreamOptions};

use forebay_io::Kind;

use super::{KINDS, Stage, ahead, all_gaps, assert_says, assert_settled, stage, stage_at};
use crate::decisions::{Decision, decisions};
use crate::site::{PAGE, Site, reopened, wait_until};

/// The counts of the stage since `before`.
fn since(stage: &Stage, before: &Stats) -> Stats {
    stage.pool.stats().since(before)
}

fn take_all(stage: &Stage, blocks: impl IntoIterator<Item = u32>, options: &StreamOptions) -> u64 {
    let mut stream = stage.file.stream_with(blocks, options);
    let count = stream.by_ref().map(|row| drop(row.unwrap())).count();
    assert_eq!(stream.stats().delivered, count as u64);
    stream.stats().gap_blocks
}

#[test]
fn every_page_read_ahead_and_taken_is_useful_and_missed_once() {
    let site = Site::new();
    for kind in KINDS {
        let Some(stage) = stage(&site, kind, 256, 200) else { continue };
        let before = stage.pool.stats();
        take_all(&stage, (0..200).rev(), &ahead());
        let (done, page) = (since(&stage, &before), PAGE as u64);
        let all = done.total();
        assert!(all.prefetches > 100, "{kind}: {} read ahead", all.prefetches);
        assert_eq!(done.pool.prefetches_useful, all.prefetches, "{kind}");
        assert_eq!(done.pool.prefetches_wasted, 0, "{kind}");
        assert_eq!((all.misses, all.hits + all.hits_in_flight), (200, 0), "{kind}");
        assert_eq!(all.read_bytes, 200 * page, "{kind}");
        assert_eq!(all.reads, stage.dam.reads().len() as u64, "{kind}");
        // The first window is merged; how far ahead the stream is after that depends on timing.
        assert!(all.reads < 200, "{kind}: {} reads", all.reads);
        let before = stage.pool.stats();
        take_all(&stage, 0..200, &ahead());
        let all = since(&stage, &before).total();
        assert_eq!((all.hits, all.misses, all.reads, all.prefetches), (200, 0, 0, 0), "{kind}");
        assert_settled(&stage);
    }
}

#[test]
fn a_block_named_twice_is_missed_once_and_found_once() {
    let site = Site::new();
    for kind in KINDS {
        let Some(stage) = stage(&site, kind, 256, 200) else { continue };
        let before = stage.pool.stats();
        take_all(&stage, [10, 10, 50, 10, 50, 90], &ahead());
        let done = since(&stage, &before);
        let all = done.total();
        assert_eq!((all.misses, all.hits + all.hits_in_flight), (3, 3), "{kind}");
        assert_eq!((done.pool.prefetches_useful, all.prefetches), (3, 3), "{kind}");
        assert_settled(&stage);
    }
}

#[test]
fn pages_read_ahead_for_no_reader_are_wasted_when_they_go() {
    let site = Site::new();
    for kind in KINDS {
        let Some(mut stage) = stage(&site, kind, 256, 200) else { continue };
        for cut in [false, true] {
            let before = stage.pool.stats();
            let scattered = (0..8).map(|place| place * 20);
            let mut stream = stage.file.stream_with(scattered, &ahead());
            assert_says(&stream.next().unwrap().unwrap(), 0);
            drop(stream);
            stage.dam.io().drain();
            let done = since(&stage, &before);
            assert_eq!(done.total().prefetches, 8, "{kind}");
            let outcomes = (done.pool.prefetches_useful, done.pool.prefetches_wasted);
            assert_eq!(outcomes, (1, 0), "{kind}: not known yet");
            // One of them is used by another reader.
            drop(stage.file.pin(40).unwrap());
            if cut {
                stage.file.truncate(1).unwrap();
            } else {
                stage.file = reopened(&stage.pool, stage.file);
            }
            let done = since(&stage, &before);
            let outcomes = (done.pool.prefetches_useful, done.pool.prefetches_wasted);
            assert_eq!(outcomes, (2, 6), "{kind}: cut {cut}");
        }
        assert_settled(&stage);
    }
}

#[test]
fn a_reader_that_comes_first_is_late_and_one_that_finds_anothers_read_has_joined() {
    let site = Site::new();
    for kind in KINDS {
        let Some(stage) = stage(&site, kind, 256, 200) else { continue };
        let before = stage.pool.stats();
        stage.dam.keep_back(|_| true);
        let blocks = || (0..8).map(|place| place * 20);
        let (waits, joined, events) = thread::scope(|scope| {
            let read_all = || {
                let mut stream = stage.file.stream_with(blocks(), &ahead());
                for (row, block) in stream.by_ref().zip(blocks()) {
                    assert_says(&row.unwrap(), block);
                }
                (stream.stats().waits, stream.stats().joined)
            };
            let read = move || decisions(read_all);
            let first = scope.spawn(read);
            wait_until("the first stream's reads", || stage.dam.waiting() == 8);
            let second = scope.spawn(read);
            let total = || since(&stage, &before).total();
            wait_until("the second stream to join them all", || total().prefetches_joined == 8);
            wait_until("both streams to wait", || total().prefetches_late == 2);
            stage.dam.open();
            let (first, events) = first.join().unwrap();
            let (second, others) = second.join().unwrap();
            assert_eq!((first.1, second.1), (0, 8), "{kind}");
            assert!(first.0 >= 1 && second.0 >= 1, "{kind}: {first:?} {second:?}");
            (first.0 + second.0, first.1 + second.1, [events, others].concat())
        });
        let done = since(&stage, &before);
        let all = done.total();
        assert_eq!((all.prefetches, all.prefetches_joined), (8, joined), "{kind}");
        assert_eq!(all.prefetches_late, waits, "{kind}");
        assert_eq!((done.pool.prefetches_useful, done.pool.prefetches_wasted), (8, 0), "{kind}");
        assert_eq!(with(&events, "Request", "Joined").len(), 8, "{kind}");
        assert_eq!(with(&events, "Request", "Single").len(), 8, "{kind}");
        assert_eq!(with(&events, "Deliver", "Late").len() as u64, waits, "{kind}");
        assert_settled(&stage);
    }
}

#[test]
fn pages_read_through_are_counted_and_bounded() {
    let site = Site::new();
    for kind in KINDS {
        let gaps = |space: forebay::Tablespace| space.costs(all_gaps());
        let Some(stage) = stage_at(&site, kind, 256, 640, gaps) else { continue };
        let before = stage.pool.stats();
        let wanted: Vec<u32> = (0..640).filter(|block| block % 6 != 3).collect();
        let named = wanted.len() as u64;
        let of_stream = take_all(&stage, wanted, &ahead());
        let all = since(&stage, &before).total();
        assert!(of_stream > 0, "{kind}: {of_stream} pages read through");
        assert_eq!(all.gap_pages, of_stream, "{kind}");
        assert!(
            all.gap_pages * 100 <= named * 50,
            "{kind}: {} read through for {named} wanted",
            all.gap_pages
        );
        let read = stage.dam.blocks_read(PAGE).len() as u64;
        assert_eq!(all.read_bytes, read * PAGE as u64, "{kind}");
        // A page that was evicted before its turn is read twice.
        let twice = stage.pool.stats().pool.prefetches_wasted;
        let asked = named + all.gap_pages;
        assert!((asked..=asked + twice).contains(&read), "{kind}: {read}, {asked}, {twice}");
        // The pages that are in memory now are correct.
        for block in 0..640 {
            assert_says(&stage.file.read(block).unwrap(), block);
        }
        assert_settled(&stage);
    }
}

#[test]
fn a_changed_page_in_a_gap_stays_as_it_was_changed() {
    let site = Site::new();
    for kind in KINDS {
        let gaps = |space: forebay::Tablespace| space.costs(all_gaps());
        let Some(stage) = stage_at(&site, kind, 256, 64, gaps) else { continue };
        for block in [3, 9, 15] {
            crate::site::write(&stage.file, block, 77);
        }
        stage.dam.forget();
        let wanted: Vec<u32> = (0..20).filter(|block| ![3, 9, 15].contains(block)).collect();
        take_all(&stage, wanted.clone(), &ahead());
        // Pages after a gap are in the right frames, or they would have to be read again.
        let mut read = stage.dam.blocks_read(PAGE);
        read.retain(|block| ![3, 9, 15].contains(block));
        assert!(read.iter().copied().eq(wanted.iter().map(|&block| u64::from(block))), "{kind}");
        for block in [3, 9, 15] {
            assert_eq!(
                crate::site::read(&stage.file, block),
                77,
                "{kind}: what was on disk is back"
            );
        }
        assert_settled(&stage);
    }
}

/// The events with this action and reason.
fn with<'e>(events: &'e [Decision], action: &str, why: &str) -> Vec<&'e Decision> {
    events.iter().filter(|event| event.action == action && event.why == why).collect()
}

#[test]
fn a_trace_says_what_was_requested_and_why() {
    let site = Site::new();
    let Some(stage) = stage(&site, Kind::Sync, 256, 200) else { return };
    drop(stage.file.with_readahead(ReadaheadStrategy::Os).read(70).unwrap());
    // Known at once: a run, a single block, a resident block.
    let (_, events) = decisions(|| take_all(&stage, [5, 4, 6, 120, 70], &ahead()));
    let (stream, file) = (events[0].stream, u64::from(stage.file.id().get()));
    assert!(stream > 0 && events.iter().all(|it| it.stream == stream && it.file == file));
    let places = |found: Vec<&Decision>| -> Vec<(u32, u32)> {
        found.into_iter().map(|event| (event.first, event.blocks)).collect()
    };
    assert_eq!(places(with(&events, "Request", "Merged")), [(4, 3)]);
    assert_eq!(places(with(&events, "Request", "Single")), [(120, 1)]);
    assert_eq!(places(with(&events, "Request", "Hit")), [(70, 1)]);
    let given: Vec<u32> =
        events.iter().filter(|event| event.action == "Deliver").map(|event| event.first).collect();
    assert_eq!(given, [5, 4, 6, 120, 70], "[RS-2] as they were given");
    // All are resident now; and another stream has another number.
    let (_, events) = decisions(|| take_all(&stage, [4, 5], &ahead()));
    assert!(events.iter().all(|event| event.stream != stream));
    assert_eq!(with(&events, "Deliver", "Hit").len(), 2);
    assert_eq!(events.len(), 2);
    assert_settled(&stage);
}

#[test]
fn hints_are_traced_merged_and_counted_as_requests() {
    let site = Site::new();
    let Some(stage) = stage(&site, Kind::Sync, 256, 200) else { return };
    let options = StreamOptions::new().readahead(ReadaheadStrategy::Prefetch);
    let ((), events) = decisions(|| {
        let mut stream = stage.file.stream_with([5, 4, 6, 120, 7], &options);
        assert_eq!(stream.by_ref().count(), 5);
        assert_eq!((stream.stats().requests, stream.stats().asked), (2, 5));
    });
    let hints: Vec<(u32, u32)> = events
        .iter()
        .filter(|event| event.action == "Hint")
        .map(|event| (event.first, event.blocks))
        .collect();
    assert_eq!(hints, [(4, 4), (120, 1)]);
    assert_eq!(stage.dam.blocks_read(PAGE), [4, 5, 6, 7, 120], "each alone, once");
    assert_settled(&stage);
}

#[test]
fn what_a_stream_says_of_itself_adds_up_over_every_strategy() {
    let site = Site::new();
    for readahead in ReadaheadStrategy::ALL {
        for order in [Order::InOrder, Order::Any] {
            let site_of_pool = Site::new();
            let Some(stage) = stage(&site_of_pool, Kind::Sync, 64, 300) else { return };
            (0..40).for_each(|block| drop(stage.file.read(block * 5).unwrap()));
            let before = stage.pool.stats();
            let mut random = fastrand::Rng::with_seed(6);
            let blocks: Vec<u32> = (0..500).map(|_| random.u32(..310)).collect();
            let past_end = blocks.iter().filter(|block| **block >= 300).count() as u64;
            let options = StreamOptions::new().readahead(readahead).order(order);
            let mut stream = stage.file.stream_with(blocks, &options);
            stream.by_ref().for_each(drop);
            let stats = stream.stats();
            drop(stream);
            let all = since(&stage, &before).total();
            let what = format!("{readahead} {order:?}");
            assert_eq!((stats.delivered, stats.errors), (500, past_end), "{what}");
            assert_eq!(all.hits + all.hits_in_flight + all.misses, 500 - past_end, "{what}");
            if readahead == ReadaheadStrategy::Async {
                assert_eq!(all.prefetches_late, stats.waits, "{what}");
            }
            assert_settled(&stage);
        }
    }
    drop(site);
}
