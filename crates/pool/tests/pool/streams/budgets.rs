//! The resources that a stream takes: pins, frames, requests; and that others get their share.

use std::thread;

use forebay::{BufferPool, Lsn, Order, ReadaheadStrategy, StrategyKind, StreamOptions};
use forebay_io::{Kind, Op, OsError};

use super::{FIRST, KINDS, ahead, assert_says, assert_settled, stage};
use crate::decisions::{Decision, decisions};
use crate::disk::Fault;
use crate::site::{PAGE, Site, numbered, reopened};

fn pins(pool: &BufferPool) -> u64 {
    pool.view().iter().map(|frame| frame.pins).sum()
}

#[test]
fn many_paused_streams_pin_at_most_a_quarter_of_the_pool() {
    let site = Site::new();
    for kind in KINDS {
        let Some(stage) = stage(&site, kind, 64, 2000) else { continue };
        let mut streams = Vec::new();
        for number in 0..24_u32 {
            let start = number * 80;
            let mut stream = stage.file.stream_with(start..start + 80, &ahead());
            for block in start..start + 3 {
                assert_says(&stream.next().unwrap().unwrap(), block);
            }
            stream.pause();
            streams.push((stream, start + 3));
            assert!(pins(&stage.pool) <= 16, "[RS-1] [BUD-1] {kind}: {} pins", pins(&stage.pool));
        }
        assert!(pins(&stage.pool) >= 8, "{kind}: nothing was looked at ahead");
        for block in (0..2000).rev().step_by(3) {
            assert_says(&stage.file.read(block).unwrap(), block);
        }
        for (stream, next) in &mut streams {
            stream.resume();
            for row in stream {
                assert_says(&row.unwrap(), *next);
                *next += 1;
            }
            assert_eq!(*next % 80, 0, "[RS-2] {kind}: all were given");
        }
        drop(streams);
        assert_settled(&stage);
    }
}

#[test]
fn eight_streams_and_plain_readers_share_a_tiny_pool() {
    for (kind, frames) in [(Kind::Sync, 12), (Kind::Uring, 16), (Kind::Threads, 32)] {
        let site = Site::new();
        let Some(stage) = stage(&site, kind, frames, 200) else { continue };
        let file = &stage.file;
        thread::scope(|scope| {
            for seed in 0..8 {
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(seed);
                    let blocks: Vec<u32> = (0..300).map(|_| random.u32(..200)).collect();
                    let order = if seed % 2 == 0 { Order::InOrder } else { Order::Any };
                    let stream = file.stream_with(blocks, &ahead().order(order));
                    let rows = stream.map(|row| {
                        let row = row.unwrap();
                        assert_says(&row, row.page.block());
                    });
                    assert_eq!(rows.count(), 300, "[RS-2]");
                });
            }
            let mut random = fastrand::Rng::with_seed(99);
            for _ in 0..300 {
                let block = random.u32(..200);
                assert_says(&file.read(block).unwrap(), block);
            }
        });
        assert_settled(&stage);
    }
}

#[test]
fn a_bulk_read_ahead_keeps_to_its_ring() {
    let site = Site::new();
    for readahead in [ReadaheadStrategy::Async, ReadaheadStrategy::Adaptive, ReadaheadStrategy::Os]
    {
        let pool = Site::bare(512).directory(site.path(readahead.name())).build().unwrap();
        let hot = numbered(&pool, "hot", 300, 0);
        let big = reopened(&pool, numbered(&pool, "big", 5120, FIRST));
        for _ in 0..5 {
            (0..300).for_each(|block| drop(hot.read(block).unwrap()));
        }
        let before = pool.stats();
        let options = StreamOptions::new().access(StrategyKind::BulkRead).readahead(readahead);
        for (row, block) in big.scan_with(0..5120, &options).zip(0..) {
            assert_says(&row.unwrap(), block);
        }
        // An eighth of the pool, and a few that were in use when they would have been reused.
        let most = 512 / 8 + 8;
        let resident = (0..5120).filter(|&block| big.is_resident(block)).count();
        assert!(resident <= most, "[RNG-1] {readahead}: {resident} pages of a scan stay");
        let evicted = (0..300).filter(|&block| !hot.is_resident(block)).count();
        assert!(evicted <= most, "[RNG-1] {readahead}: {evicted} hot pages");
        let normal = *pool.stats().since(&before).strategy(StrategyKind::Normal);
        assert_eq!((normal.prefetches, normal.reads), (0, 0), "{readahead}");
        pool.close().unwrap();
    }
}

#[test]
fn a_scan_of_much_of_the_pool_is_a_bulk_read_by_default() {
    let site = Site::new();
    let Some(stage) = stage(&site, Kind::Sync, 64, 200) else { return };
    let before = stage.pool.stats();
    let asked = |kind| stage.pool.stats().since(&before).strategy(kind).asked();
    assert_eq!(stage.file.scan(0..200).count(), 200);
    assert_eq!((asked(StrategyKind::BulkRead), asked(StrategyKind::Normal)), (200, 0));
    assert_eq!(stage.file.scan(100..116).count(), 16);
    assert_eq!((asked(StrategyKind::BulkRead), asked(StrategyKind::Normal)), (200, 16));
    assert_settled(&stage);
}

#[test]
fn look_ahead_stands_down_while_everything_is_dirty_and_writes_nothing_out_for_itself() {
    let site = Site::new();
    for kind in KINDS {
        let Some(stage) = stage(&site, kind, 32, 200) else { continue };
        let other = numbered(&stage.pool, "other", 32, 5000);
        for block in 0..32 {
            other.write(block).unwrap().mark_dirty(Lsn::NONE);
        }
        assert_eq!(stage.pool.stats().frames_dirty, 32);
        let before = stage.pool.stats();
        let mut stream = stage.file.stream_with((0..20).map(|it| it * 10), &ahead());
        assert_says(&stream.next().unwrap().unwrap(), 0);
        let since = stage.pool.stats().since(&before);
        assert!(stream.stats().backed_off > 0 && since.total().backed_off > 0, "{kind}");
        assert_eq!(since.total().writes, 1, "{kind}: for the page that was wanted now");
        for (row, place) in stream.by_ref().zip(1..) {
            assert_says(&row.unwrap(), place * 10);
        }
        assert_eq!(stream.stats().delivered, 20, "[RS-2] {kind}");
        drop(stream);
        assert_settled(&stage);
    }
}

#[test]
fn a_stream_goes_on_where_all_but_one_frame_is_pinned() {
    let site = Site::new();
    for kind in KINDS {
        let Some(stage) = stage(&site, kind, 32, 640) else { continue };
        let other = numbered(&stage.pool, "other", 31, 5000);
        let held: Vec<_> = (0..31).map(|block| other.pin(block).unwrap()).collect();
        let idle = 32 - stage.pool.stats().frames_pinned;
        assert_eq!(idle, 1, "{kind}");
        // The later blocks are requested first, as they are sorted.
        for blocks in [[160, 150, 140, 130, 120, 110], [10, 20, 30, 40, 50, 60]] {
            let mut stream = stage.file.stream_with(blocks, &ahead());
            for block in blocks {
                let row = stream.next().unwrap();
                assert_says(&row.unwrap_or_else(|error| panic!("{kind}: {error}")), block);
            }
        }
        drop(held);
        assert_settled(&stage);
    }
}

#[test]
fn a_stream_among_writes_that_fail_still_gives_what_it_can() {
    let site = Site::new();
    let Some(stage) = stage(&site, Kind::Threads, 32, 200) else { return };
    let other = numbered(&stage.pool, "other", 24, 5000);
    for block in 0..24 {
        other.write(block).unwrap().mark_dirty(Lsn::NONE);
    }
    stage.dam.rule(|it| match it.op() {
        Op::Write => Fault::Fail(OsError::ENOSPC),
        _ => Fault::None,
    });
    for (row, block) in stage.file.stream_with(0..200, &ahead()).zip(0..) {
        assert_says(&row.unwrap(), block);
    }
    stage.dam.rule(|_| Fault::None);
    assert_settled(&stage);
}

/// Number of blocks for which the kernel received a hint, according to the events of a trace.
pub(super) fn hinted(events: &[Decision]) -> u32 {
    let hints = events.iter().filter(|event| event.action == "Hint");
    hints.map(|event| event.blocks).sum()
}

#[test]
fn ten_expected_rows_prefetch_sixteen_blocks_at_most() {
    let site = Site::new();
    let scattered: Vec<u32> = (0..200).map(|place| place * 7 % 1000).collect();
    let dense: Vec<u32> = (0..200).collect();
    for kind in KINDS {
        let Some(mut stage) = stage(&site, kind, 256, 1000) else { continue };
        for readahead in ReadaheadStrategy::ALL {
            for (blocks, order) in [
                (&scattered, Order::InOrder),
                (&dense, Order::InOrder),
                (&scattered, Order::Any),
                (&dense, Order::Any),
            ] {
                stage.file = reopened(&stage.pool, stage.file);
                stage.dam.forget();
                let options =
                    StreamOptions::new().readahead(readahead).order(order).expected_rows(10);
                let ((), events) = decisions(|| {
                    let mut stream = stage.file.stream_with(blocks.clone(), &options);
                    for _ in 0..10 {
                        let row = stream.next().unwrap().unwrap();
                        assert_says(&row, row.page.block());
                    }
                });
                stage.dam.io().drain();
                let (read, hinted_blocks) = (stage.dam.blocks_read(PAGE).len(), hinted(&events));
                let what = format!("{kind} {readahead} {order:?}");
                assert!((10..=16).contains(&read), "{what}: {read} blocks read for 10 rows");
                assert!(
                    hinted_blocks <= 16,
                    "{what}: the kernel got hints for {hinted_blocks} blocks for 10 rows"
                );
            }
        }
        assert_settled(&stage);
    }
}

#[test]
fn more_rows_than_were_expected_are_given_all_the_same() {
    let site = Site::new();
    for kind in KINDS {
        let Some(stage) = stage(&site, kind, 256, 640) else { continue };
        for rows in [0, 1, 10, 300] {
            let stream = stage.file.stream_with(0..640, &ahead().expected_rows(rows));
            let mut next = 0;
            for row in stream {
                assert_says(&row.unwrap(), next);
                next += 1;
            }
            assert_eq!(next, 640, "[RS-2] {kind}: {rows} rows expected");
        }
        assert_settled(&stage);
    }
}

#[test]
fn a_distance_bounds_what_is_under_way() {
    let site = Site::new();
    for kind in KINDS {
        let Some(stage) = stage(&site, kind, 256, 640) else { continue };
        for distance in [1, 2, 5, 30] {
            let options = ahead().distance(distance);
            let mut stream = stage.file.stream_with(0..200, &options);
            for taken in 1..=60 {
                assert_says(&stream.next().unwrap().unwrap(), taken - 1);
                let ahead = pins(&stage.pool);
                assert!(ahead < u64::from(distance).max(2), "[RS-1] {kind}: {ahead} of {distance}");
            }
        }
        assert_settled(&stage);
    }
}

#[test]
fn a_stream_that_has_given_its_pages_out_leaves_the_budget_to_others() {
    let site = Site::new();
    for kind in KINDS {
        let Some(stage) = stage(&site, kind, 64, 640) else { continue };
        let mut spent = stage.file.stream_with(0..100, &ahead());
        assert_eq!(spent.by_ref().filter(Result::is_ok).count(), 100);
        let mut other = stage.file.stream_with((0..8).map(|it| 300 + it * 20), &ahead());
        assert_says(&other.next().unwrap().unwrap(), 300);
        // The first window is eight blocks, and so is half of the budget.
        assert_eq!(pins(&stage.pool), 7, "[BUD-1] {kind}");
        drop((spent, other));
        assert_settled(&stage);
    }
}
