//! Lists of blocks that are read at once: the right pages, a separate error for each, few requests, few pins, no hang.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use forebay::{Error, Order, ReadaheadStrategy, StreamOptions};
use forebay_io::{Kind, Op, OsError};

use super::faults::{covers, damage};
use super::{KINDS, assert_says, assert_settled, at, is_past_end, stage};
use crate::disk::Fault;
use crate::site::{Ends, SHORT, Site, is_io, numbered, reopened};

fn any() -> StreamOptions {
    StreamOptions::new().order(Order::Any)
}

/// The blocks below `below`, in shuffled order.
fn shuffled(seed: u64, below: u32) -> Vec<u32> {
    let mut blocks: Vec<u32> = (0..below).collect();
    fastrand::Rng::with_seed(seed).shuffle(&mut blocks);
    blocks
}

#[test]
fn a_shuffled_list_is_requested_in_few_requests_and_given_in_its_order() {
    let site = Site::new();
    for kind in KINDS {
        let Some(stage) = stage(&site, kind, 512, 300) else { continue };
        let mut blocks = shuffled(1, 64);
        blocks.extend([200, 7, 7, 299, 200]);
        let mut many = stage.file.read_many(&blocks);
        for &block in &blocks {
            let page = many.next().unwrap().unwrap();
            assert_eq!(page.page.block(), block, "[RS-2] {kind}");
            assert_says(&page, block);
        }
        assert!(many.next().is_none());
        let stats = many.stats();
        drop(many);
        // 64 adjacent blocks, 32 to a request, and two single blocks: the first miss requests all of them.
        assert_eq!(stage.dam.reads().len(), 2 + 2, "[RM-2] {kind}");
        assert_eq!((stats.requests, stats.asked, stats.delivered), (4, 66, 69), "{kind}");
        // Now they are resident, and neither a request nor a window is made.
        stage.dam.forget();
        let mut many = stage.file.read_many(&blocks);
        assert_eq!(many.by_ref().filter(Result::is_ok).count(), blocks.len());
        assert_eq!((many.stats().hits, many.stats().requests), (69, 0), "{kind}");
        assert_eq!(stage.dam.reads(), []);
        drop(many);
        assert_settled(&stage);
    }
}

#[test]
fn rm_2_a_miss_after_many_hits_requests_all_that_follows() {
    let site = Site::new();
    let Some(stage) = stage(&site, Kind::Uring, 4096, 2000) else { return };
    let resident: Vec<u32> = (0..1000).collect();
    assert_eq!(stage.file.read_many(&resident).filter(Result::is_ok).count(), 1000);
    stage.dam.forget();
    stage.dam.keep_back(|it| it.position() >= at(1200));
    let blocks: Vec<u32> = (0..2000).collect();
    let mut many = stage.file.read_many(&blocks);
    // The miss requests a few; each page after it requests another batch, as 32 requests do not keep the queue busy.
    assert_eq!(many.by_ref().take(1100).filter(Result::is_ok).count(), 1100);
    let requests = stage.dam.reads().len() + stage.dam.waiting();
    // 32 blocks to a request, except for the last one of a batch.
    assert!((32..40).contains(&requests), "[RM-2] {requests} requests for 1,000 blocks");
    drop(many);
    stage.dam.open();
    assert_settled(&stage);
}

#[test]
fn in_any_order_pages_in_memory_are_given_while_the_others_are_on_their_way() {
    let site = Site::new();
    for kind in [Kind::Uring, Kind::Threads] {
        let Some(stage) = stage(&site, kind, 256, 100) else { continue };
        let resident = [11, 44, 50, 99];
        resident.iter().for_each(|&block| assert_says(&stage.file.read(block).unwrap(), block));
        stage.dam.keep_back(|_| true);
        let blocks = [90, 11, 3, 50, 70, 44, 11, 99];
        let mut many = stage.file.read_many_with(&blocks, &any());
        let mut first: Vec<u32> =
            many.by_ref().take(5).map(|page| page.unwrap().page.block()).collect();
        first.sort_unstable();
        assert_eq!(first, [11, 11, 44, 50, 99], "{kind}: with 3, 70 and 90 kept back");
        assert_eq!(stage.dam.waiting(), 3);
        stage.dam.open();
        let mut rest: Vec<u32> = many.map(|page| page.unwrap().page.block()).collect();
        rest.sort_unstable();
        assert_eq!(rest, [3, 70, 90], "{kind}");
        assert_settled(&stage);
    }
}

#[test]
fn a_list_longer_than_the_pool_goes_on_in_windows_and_pins_a_quarter_of_it() {
    let site = Site::new();
    for (kind, frames) in [(Kind::Uring, 32), (Kind::Threads, 24), (Kind::Sync, 8)] {
        let Some(stage) = stage(&site, kind, frames, 600) else { continue };
        let mut blocks = shuffled(2, 600);
        blocks.extend_from_within(..200);
        for order in [Order::InOrder, Order::Any] {
            let mut most = 0;
            let mut sum = 0;
            let options = StreamOptions::new().order(order);
            for page in stage.file.read_many_with(&blocks, &options) {
                let page = page.unwrap();
                assert_says(&page, page.page.block());
                sum += u64::from(page.page.block());
                let pins: u64 = stage.pool.view().iter().map(|frame| frame.pins).sum();
                most = most.max(pins);
            }
            assert_eq!(sum, blocks.iter().map(|&block| u64::from(block)).sum(), "{kind}");
            // And the caller's own pin.
            assert!((2..=frames / 4 + 1).contains(&most), "[RS-1] {kind}: {most} of {frames}");
        }
        assert_settled(&stage);
    }
}

#[test]
fn who_collects_more_pages_than_there_are_frames_gets_errors_for_the_rest() {
    let site = Site::new();
    let pool = site.builder(16).frame_wait(SHORT).build().unwrap();
    let file = reopened(&pool, numbered(&pool, "table", 40, super::FIRST));
    let blocks = shuffled(3, 40);
    let pages: Vec<_> = file.read_many(&blocks[..12]).collect();
    assert!(pages.iter().all(Result::is_ok));
    drop(pages);
    let mut many = file.read_many(&blocks);
    let mut pages = Vec::new();
    let failed = loop {
        match many.next().unwrap() {
            Ok(page) => pages.push(page),
            Err(failed) => break failed,
        }
    };
    assert!(matches!(failed.error, Error::NoFreeFrame { capacity: 16, .. }), "{failed}");
    assert_eq!(failed.block, blocks[pages.len()]);
    drop(pages);
    // Once they are released, the iterator continues with the next block.
    assert!(many.next().unwrap().is_ok());
    drop(many);
    pool.close().unwrap();
}

#[test]
fn a_bad_page_in_the_middle_is_its_own_error_and_the_rest_goes_on() {
    for kind in KINDS {
        for order in [Order::InOrder, Order::Any] {
            let site = Site::new();
            let Some(stage) = stage(&site, kind, 256, 100) else { continue };
            damage(&stage, 20);
            stage
                .dam
                .rule(|it| if covers(it, 9) { Fault::Fail(OsError::EIO) } else { Fault::None });
            let blocks = [8, 9, 10, 100, 20, 21, 9, 4_000_000];
            let options = StreamOptions::new().order(order);
            let mut failed = Vec::new();
            let mut given = Vec::new();
            for page in stage.file.read_many_with(&blocks, &options) {
                match page {
                    Ok(page) => {
                        assert_says(&page, page.page.block());
                        given.push(page.page.block());
                    }
                    Err(error) => failed.push((error.block, error.error)),
                }
            }
            given.sort_unstable();
            failed.sort_by_key(|it| it.0);
            assert_eq!(given, [8, 10, 21], "{kind}");
            let [(9, first), (9, second), (20, corrupt), (100, past), (4_000_000, far)] =
                &failed[..]
            else {
                panic!("{kind}: {failed:?}");
            };
            assert!(is_io(first, OsError::EIO) && is_io(second, OsError::EIO));
            assert!(matches!(corrupt, Error::Corrupt { block: 20, .. }));
            assert!(is_past_end(past) && is_past_end(far));
            stage.dam.rule(|_| Fault::None);
            assert_settled(&stage);
        }
    }
}

/// The same blocks in opposite orders, with hardly any frames: each thread waits for blocks that the other has
/// requested.
#[test]
fn rm_1_readers_in_opposite_orders_end() {
    for (kind, frames) in [(Kind::Uring, 8), (Kind::Threads, 8), (Kind::Sync, 8), (Kind::Uring, 24)]
    {
        let site = Site::new();
        let Some(stage) = stage(&site, kind, frames, 60) else { continue };
        let up: Vec<u32> = (0..60).collect();
        let down: Vec<u32> = (0..60).rev().collect();
        thread::scope(|scope| {
            for reader in 0..4 {
                let (file, blocks) = (&stage.file, if reader % 2 == 0 { &up } else { &down });
                let order = if reader < 2 { Order::InOrder } else { Order::Any };
                scope.spawn(move || {
                    for round in 0..15 {
                        let options = StreamOptions::new().order(order);
                        let mut given = 0;
                        let mut kept = None;
                        for page in file.read_many_with(blocks, &options) {
                            let page = page.unwrap();
                            assert_says(&page, page.page.block());
                            given += 1;
                            // Some continue with a page held, some stop half way.
                            if given % 7 == 0 {
                                kept = Some(page);
                            }
                            if round % 5 == 4 && given == 30 {
                                break;
                            }
                        }
                        drop(kept);
                        assert!(given == 60 || round % 5 == 4, "[RM-1] [RS-2]");
                    }
                });
            }
        });
        assert_settled(&stage);
    }
}

#[test]
fn others_evict_truncate_and_close_meanwhile() {
    for kind in KINDS {
        let site = Site::new();
        let Some(stage) = stage(&site, kind, 48, 120) else { continue };
        let ended = AtomicBool::new(false);
        thread::scope(|scope| {
            let (file, pool, ended) = (&stage.file, &stage.pool, &ended);
            for seed in 0..2 {
                scope.spawn(move || {
                    let blocks = shuffled(seed, 120);
                    while !ended.load(Ordering::SeqCst) {
                        for page in file.read_many_with(&blocks, &any()) {
                            match page {
                                Ok(page) => {
                                    let number = crate::site::number_in(&page);
                                    let block = page.page.block();
                                    let said = super::FIRST + u64::from(block);
                                    // Zero after the file was truncated there and extended again.
                                    assert!(number == said || (number == 0 && block >= 60));
                                }
                                Err(failed) => assert!(
                                    matches!(
                                        failed.error,
                                        Error::PastEnd { .. } | Error::Invalidated { .. }
                                    ),
                                    "{failed}"
                                ),
                            }
                        }
                        file.prefetch(&blocks);
                    }
                });
            }
            let _ends = Ends(ended);
            let mut random = fastrand::Rng::with_seed(9);
            for round in 0..32 {
                for _ in 0..20 {
                    if let Err(error) = file.evict(random.u32(..120)) {
                        assert!(is_past_end(&error), "{error}");
                    }
                }
                file.truncate(60).unwrap();
                file.extend(60).unwrap();
                if round % 8 == 7 {
                    // Refused while a page is in use; another file of the pool can be closed anyway.
                    let other = numbered(pool, "other", 4, 1);
                    let blocks = [3, 2, 1, 0];
                    assert_eq!(other.read_many(&blocks).filter(Result::is_ok).count(), 4);
                    other.prefetch(&blocks);
                    other.close().unwrap();
                    assert_eq!(other.prefetch(&blocks), 0);
                    let failed = other.read_many(&blocks).next().unwrap().unwrap_err();
                    assert!(matches!(failed.error, Error::Invalidated { .. }));
                }
            }
            match file.close() {
                Ok(()) | Err(Error::Busy { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        });
        assert_settled(&stage);
    }
}

#[test]
fn what_the_handle_says_of_readahead_does_not_matter_and_the_options_do() {
    let site = Site::new();
    let Some(stage) = stage(&site, Kind::Uring, 256, 64) else { return };
    let plain = stage.file.with_readahead(ReadaheadStrategy::Os);
    let blocks: Vec<u32> = (0..32).collect();
    assert_eq!(plain.read_many(&blocks).count(), 32);
    assert_eq!(stage.dam.reads().len(), 1);
    stage.dam.forget();
    let blocks: Vec<u32> = (32..64).collect();
    let one_by_one = StreamOptions::new().readahead(ReadaheadStrategy::Os);
    assert_eq!(plain.read_many_with(&blocks, &one_by_one).count(), 32);
    // These are read by the thread that wants them, without the tablespace's queue.
    assert_eq!(stage.dam.reads().iter().filter(|it| it.op == Op::Read && it.len > 4096).count(), 0);
    assert_settled(&stage);
}
