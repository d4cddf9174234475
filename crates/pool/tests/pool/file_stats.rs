//! Statistics of one file: the sum of the counts over all files equals the pool's counts.

use forebay::{
    BufferPool, CheckpointOptions, FileStats, PagedFile, ReadaheadStrategy, StrategyKind,
    StreamOptions,
};
use forebay_io::{Op, OsError};

use crate::site::{Site, numbered, reopened, write};

/// The pool's counts by strategy, summed over files.
#[track_caller]
fn assert_adds_up(pool: &BufferPool, files: &[&PagedFile]) {
    let (stats, all) = (pool.stats(), files.iter().map(|file| file.stats()).collect::<Vec<_>>());
    let total = stats.total();
    let sum = |field: fn(&FileStats) -> u64| all.iter().map(field).sum::<u64>();
    let resident = pool.view().iter().filter(|frame| !frame.reading).count() as u64;
    assert_eq!(sum(|it| it.pages_resident), resident);
    assert_eq!(sum(|it| it.pages_dirty), stats.frames_dirty);
    assert_eq!(sum(|it| it.misses), total.misses);
    assert_eq!(sum(|it| it.hits_in_flight), total.hits_in_flight);
    assert_eq!(sum(|it| it.inits), total.inits);
    assert_eq!(sum(|it| it.reads), total.reads);
    assert_eq!(sum(|it| it.read_bytes), total.read_bytes);
    assert_eq!(sum(|it| it.writes), total.writes);
    assert_eq!(sum(|it| it.written_bytes), total.written_bytes);
    assert_eq!(sum(|it| it.read_errors), total.read_errors);
    assert_eq!(sum(|it| it.write_errors), total.write_errors);
    assert_eq!(sum(|it| it.corrupt_pages), total.corrupt_pages);
    assert_eq!(sum(|it| it.prefetches), total.prefetches);
    assert_eq!(sum(|it| it.prefetches_late), total.prefetches_late);
    assert_eq!(sum(|it| it.prefetches_joined), total.prefetches_joined);
    assert_eq!(sum(|it| it.prefetches_wasted), stats.pool.prefetches_wasted);
    assert_eq!(sum(|it| it.gap_pages), total.gap_pages);
}

#[test]
fn what_each_file_did_adds_up_to_what_the_pool_did() {
    let site = Site::new();
    let (pool, disk) = site.rigged(64);
    let (rows, index) = (numbered(&pool, "rows", 400, 0), numbered(&pool, "index", 100, 0));
    assert_adds_up(&pool, &[&rows, &index]);

    // Plain reads, in two rounds, the first of which misses; changes; writes to free frames.
    (0..40).chain(0..40).for_each(|block| drop(rows.read(block).unwrap()));
    (0..20).for_each(|block| write(&index, block, 9));
    index.flush_file().unwrap();
    (20..60).for_each(|block| write(&index, block, 9));
    pool.checkpoint(CheckpointOptions::now()).unwrap();
    (60..70).for_each(|block| write(&index, block, 9));
    assert_adds_up(&pool, &[&rows, &index]);
    let stats = index.stats();
    assert_eq!((stats.pages_dirty > 0, stats.written_bytes > 0), (true, true));

    // Reads ahead, with gaps, and abandoned half way.
    let options = StreamOptions::new().readahead(ReadaheadStrategy::Async);
    let wanted = (0..400).filter(|block| block % 5 != 3);
    for page in rows.stream_with(wanted, &options).take(200) {
        page.unwrap();
    }
    index.scan(0..100).take(3).for_each(drop);
    assert_adds_up(&pool, &[&rows, &index]);
    assert!(rows.stats().prefetches > 0 && rows.stats().gap_pages > 0);

    // Failures.
    let absent = (0..400).find(|&block| !rows.is_resident(block)).unwrap();
    disk.fail(Op::Read, OsError::EIO);
    rows.read(absent).unwrap_err();
    disk.heal();
    write(&rows, 1, 1);
    disk.fail(Op::Write, OsError::EIO);
    rows.flush_file().unwrap_err();
    disk.heal();
    assert_eq!((rows.stats().read_errors, rows.stats().write_errors), (1, 1));
    assert_adds_up(&pool, &[&rows, &index]);
}

#[test]
fn a_file_reports_its_reads_and_pages() {
    let site = Site::new();
    let (pool, _disk) = site.rigged(64);
    let (one, other) = (numbered(&pool, "one", 40, 0), numbered(&pool, "other", 40, 0));
    let (one, other) = (reopened(&pool, one), reopened(&pool, other));
    assert_eq!(one.stats(), FileStats::default(), "counts begin when a file is opened");
    (0..10).for_each(|block| drop(one.read(block).unwrap()));
    let before = one.stats();
    assert_eq!((before.pages_resident, before.misses), (10, 10));
    write(&one, 12, 3);
    let after = one.stats().since(&before);
    assert_eq!((after.pages_resident, after.pages_dirty, after.misses), (11, 1, 1));
    assert_eq!(
        after.to_string(),
        "pages resident       11\npages dirty           1\nmisses                1\n\
         reads                 1\nread bytes      4.0 KiB"
    );
    assert_eq!(other.stats().pages_resident, 0);
    assert_eq!(before.since(&one.stats()).misses, 0, "the wrong way round");

    // Pages that are read ahead and evicted before use.
    let scan = StreamOptions::new()
        .readahead(ReadaheadStrategy::Async)
        .access(StrategyKind::Normal)
        .distance(16);
    let mut stream = other.stream_with(0..40, &scan);
    drop(stream.next().unwrap().unwrap());
    drop(stream);
    let asked = other.stats();
    assert!(asked.prefetches > 4, "{asked:?}");
    assert_eq!(asked.prefetches_wasted, 0);
    let third = numbered(&pool, "third", 200, 0);
    let stats = other.stats();
    assert_eq!(stats.pages_resident, 0, "{stats:?}");
    assert_eq!(stats.prefetches_wasted, stats.prefetches - 1, "{stats:?}");
    assert_eq!(third.stats().prefetches_wasted, 0);
}
