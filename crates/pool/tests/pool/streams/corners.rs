//! Corner cases of streams: scans that dirty their pages, slow blocks, other queues, policies that panic.

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use forebay::{
    Lsn, Order, PageRef, PagedFile, ReadStream, ReadaheadStrategy, StrategyKind, StreamOptions,
    TryUpgrade,
};
use forebay_io::Kind;

use super::{FIRST, ahead, assert_says, at, stage};
use crate::site::{PAGE, Site, create, number_in, numbered, reopened};

fn hot_pages_evicted(streamed: bool, cleaner: bool, kind: StrategyKind) -> (usize, usize) {
    let site = Site::new();
    let pool = Site::bare(512)
        .directory(site.path("main"))
        .cleaner(cleaner)
        .readahead(if streamed { ReadaheadStrategy::Async } else { ReadaheadStrategy::Os })
        .build()
        .unwrap();
    let hot = numbered(&pool, "hot", 300, 0);
    let big = reopened(&pool, numbered(&pool, "big", 1280, FIRST));
    pool.flush_and_sync().unwrap();
    for _ in 0..5 {
        (0..300).for_each(|block| drop(hot.read(block).unwrap()));
    }
    let strategy = pool.strategy_with_ring(kind, (64 * PAGE) as u64).unwrap();
    if streamed {
        let options = StreamOptions::new().access(kind).readahead(ReadaheadStrategy::Async);
        for row in big.scan_with(0..1280, &options) {
            let row = row.unwrap();
            let TryUpgrade::Exclusive(mut page) = row.page.try_upgrade().unwrap() else { panic!() };
            page.mark_dirty(Lsn::NONE);
        }
    } else {
        for block in 0..1280 {
            big.write_with(block, &strategy).unwrap().mark_dirty(Lsn::NONE);
        }
    }
    let evicted = (0..300).filter(|&block| !hot.is_resident(block)).count();
    let stay = (0..1280).filter(|&block| big.is_resident(block)).count();
    (evicted, stay)
}

#[test]
fn a_stream_that_dirties_keeps_to_its_ring() {
    for kind in [StrategyKind::Maintenance, StrategyKind::BulkWrite, StrategyKind::BulkRead] {
        for cleaner in [true, false] {
            let (evicted, stay) = hot_pages_evicted(true, cleaner, kind);
            assert!(evicted <= 72 && stay <= 72, "{kind}, cleaner {cleaner}: {evicted} {stay}");
            let (evicted, stay) = hot_pages_evicted(false, cleaner, kind);
            assert!(
                evicted <= 72 && stay <= 72,
                "plain {kind}, cleaner {cleaner}: {evicted} {stay}"
            );
        }
    }
}

/// As an executor node has them.
struct Node {
    stream: ReadStream<'static, std::vec::IntoIter<u32>, PagedFile>,
    page: Option<PageRef<'static, PagedFile>>,
}

#[test]
fn a_stream_that_owns_its_file_and_its_pages_outlive_all_handles() {
    let site = Site::new();
    let (pool, disk) = site.rigged(512);
    let file = reopened(&pool, numbered(&pool, "table", 300, FIRST));
    let dropped = Arc::downgrade(&disk);
    drop(disk);
    for (strategy, order) in [
        (ReadaheadStrategy::Async, Order::InOrder),
        (ReadaheadStrategy::Async, Order::Any),
        (ReadaheadStrategy::Prefetch, Order::InOrder),
        (ReadaheadStrategy::Os, Order::InOrder),
    ] {
        let options = StreamOptions::new().readahead(strategy).order(order);
        // Every other block, so that some are read through gaps; from memory after the first round.
        let blocks: Vec<u32> = (0..300).step_by(2).collect();
        let stream = file.clone().into_stream(blocks, &options);
        let mut node = Node { stream, page: None };
        for _ in 0..100 {
            let row = node.stream.next().unwrap().unwrap();
            assert_eq!(number_in(&row), FIRST + u64::from(row.page.block()));
            node.page = Some(row.page);
        }
        // Its blocks ahead are pinned as it is dropped.
        let Node { stream, page } = node;
        drop(stream);
        assert!(page.is_some_and(|page| number_in(&page) >= FIRST));
        assert!(pool.view().iter().all(|frame| frame.pins == 0), "{strategy} {order:?}");
    }
    let mut stream = file.into_stream(vec![7, 9], &StreamOptions::new());
    drop(pool);
    let page = stream.next().unwrap().unwrap();
    drop(stream);
    assert!(dropped.upgrade().is_some(), "the page keeps the pool");
    drop(page);
    assert!(dropped.upgrade().is_none(), "nothing is left behind");
}

#[test]
fn in_any_order_a_slow_block_does_not_keep_the_others_back() {
    let site = Site::new();
    let Some(stage) = stage(&site, Kind::Uring, 256, 640) else { return };
    let options = StreamOptions::new().readahead(ReadaheadStrategy::Async).order(Order::Any);
    stage.dam.keep_back(|it| it.position() == at(20));
    let mut stream = stage.file.stream_with([60, 20, 80, 40, 100], &options);
    let (sender, received) = mpsc::channel();
    let got = thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..4 {
                let row = stream.next().unwrap().unwrap();
                sender.send(row.page.block()).unwrap();
            }
        });
        let mut got = Vec::new();
        while let Ok(block) = received.recv_timeout(Duration::from_secs(60)) {
            got.push(block);
            if got.len() == 4 {
                break;
            }
        }
        stage.dam.open();
        got
    });
    assert_eq!(got.len(), 4, "given while 20 is kept back: {got:?}");
}

#[test]
fn the_page_cache_teaches_nothing_of_the_device() {
    let site = Site::new();
    let pool =
        Site::chosen().frames(512).page_size(8192).directory(site.path("main")).build().unwrap();
    let file = pool.open_file("t", &create()).unwrap();
    file.extend(20_000).unwrap();
    for block in 0..20_000 {
        file.init(block).unwrap().mark_dirty(Lsn::NONE);
    }
    file.flush_file().unwrap();
    let before = pool.device_costs();
    for _ in 0..5 {
        assert_eq!(file.scan(0..20_000).filter(Result::is_ok).count(), 20_000);
    }
    let after = pool.device_costs();
    assert_eq!(before, after);
}

#[test]
fn every_page_read_ahead_and_taken_is_a_miss() {
    let site = Site::new();
    for readahead in [ReadaheadStrategy::Async, ReadaheadStrategy::Prefetch] {
        let Some(stage) = stage(&site, Kind::Sync, 256, 640) else { return };
        let before = stage.pool.stats();
        let options = StreamOptions::new().readahead(readahead);
        assert_eq!(stage.file.scan_with(0..64, &options).count(), 64);
        let total = stage.pool.stats().since(&before).total();
        assert_eq!((total.hits, total.misses), (0, 64), "{readahead}");
        stage.pool.close().unwrap();
        std::fs::remove_dir_all(site.path("main sync")).unwrap();
    }
}

#[test]
fn a_block_that_is_there_again_is_given() {
    let site = Site::new();
    let Some(stage) = stage(&site, Kind::Sync, 256, 64) else { return };
    let mut stream = stage.file.stream_with(0..8, &ahead());
    assert_says(&stream.next().unwrap().unwrap(), 0);
    stage.file.truncate(0).unwrap();
    stage.file.extend(64).unwrap();
    let errors: Vec<_> = stream.by_ref().filter_map(Result::err).map(|e| e.to_string()).collect();
    assert!(errors.is_empty(), "{errors:#?}");
}

#[test]
fn gaps_in_any_order_keep_to_the_ring() {
    let site = Site::new();
    for shuffled in [false, true] {
        let main = forebay::Tablespace::new("main", site.path(&format!("m{shuffled}")))
            .costs(super::all_gaps());
        let pool = Site::bare(512).tablespace(main).build().unwrap();
        let hot = numbered(&pool, "hot", 300, 0);
        let big = reopened(&pool, numbered(&pool, "big", 5120, FIRST));
        for _ in 0..5 {
            (0..300).for_each(|block| drop(hot.read(block).unwrap()));
        }
        let before = pool.stats();
        let mut blocks: Vec<u32> = (0..5120).step_by(2).collect();
        if shuffled {
            let mut random = fastrand::Rng::with_seed(7);
            for chunk in blocks.chunks_mut(256) {
                random.shuffle(chunk);
            }
        }
        let options =
            StreamOptions::new().access(StrategyKind::BulkRead).readahead(ReadaheadStrategy::Async);
        for row in big.stream_with(blocks, &options) {
            drop(row.unwrap());
        }
        let evicted = (0..300).filter(|&block| !hot.is_resident(block)).count();
        let stay = (0..5120).filter(|&block| big.is_resident(block)).count();
        assert!(evicted <= 72 && stay <= 72, "shuffled {shuffled}: {evicted} {stay}");
        assert!(pool.stats().since(&before).total().gap_pages > 0);
    }
}

#[test]
fn a_limit_reads_no_more_than_it_said_from_the_disk() {
    if !super::cold::can_chill("a_limit_reads_no_more_than_it_said_from_the_disk") {
        return;
    }
    let site = Site::new();
    for (scan, rows) in [(true, 10), (false, 10), (true, 64), (false, 64)] {
        let pool = Site::chosen()
            .frames(512)
            .page_size(8192)
            .directory(site.path("main"))
            .build()
            .unwrap();
        let name = format!("t{scan}{rows}");
        let file = pool.open_file(&name, &create()).unwrap();
        file.extend(4000).unwrap();
        for block in 0..4000 {
            file.init(block).unwrap().mark_dirty(Lsn::NONE);
        }
        file.flush_file().unwrap();
        file.sync().unwrap();
        let path = file.path().to_owned();
        file.close().unwrap();
        let raw = forebay_io::File::open(&path, &forebay_io::OpenOptions::new()).unwrap();
        raw.advise(0..4000 * 8192, forebay_io::Advice::DontNeed).unwrap();
        let file = pool.open_file(&name, &forebay::FileOptions::new()).unwrap();
        let options = StreamOptions::new().expected_rows(rows);
        let n = if scan {
            file.scan_with(1000..4000, &options).take(rows as usize).filter(Result::is_ok).count()
        } else {
            file.stream_with(1000..4000, &options).take(rows as usize).filter(Result::is_ok).count()
        };
        assert_eq!(n as u64, rows);
        let resident = raw.residency(0..4000 * 8192).unwrap();
        let blocks = resident.pages_resident * resident.page_bytes / 8192;
        assert!(blocks <= rows * 8 / 5, "scan {scan}: {blocks} blocks for {rows} rows");
        pool.close().unwrap();
    }
}

#[test]
fn streams_may_be_sent() {
    fn send<T: Send>(_: &T) {}
    let site = Site::new();
    let pool = site.pool(64);
    let file = numbered(&pool, "t", 4, 0);
    send(&file.scan(0..4));
}
