//! What a checkpoint writes and skips, in how many requests, and what its report says.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use forebay::{CheckpointOptions, Elevator, Lsn, Wal};
use forebay_io::Op;

use crate::site::{PAGE, Site, create, fill, on_disk, read, wait_until, write};

#[test]
fn what_is_dirty_is_on_disk_afterwards_and_the_next_checkpoint_finds_nothing() {
    let site = Site::new();
    let pool = site.pool(64);
    let file = pool.open_file("t", &create()).unwrap();
    file.extend(40).unwrap();
    (0..40).for_each(|block| write(&file, block, 100 + u64::from(block)));
    let report = pool.checkpoint(CheckpointOptions::now()).unwrap();
    assert_eq!((report.pages, report.pages_by_others, report.files_synced), (40, 0, 1), "{report}");
    assert_eq!(report.bytes, 40 * PAGE as u64);
    // 128 KiB at a time, but at most half of the write buffers.
    assert!((2..=5).contains(&report.requests), "{report}");
    (0..40).for_each(|block| assert_eq!(on_disk(&file, block), 100 + u64::from(block)));
    assert_eq!(pool.stats().frames_dirty, 0);

    let report = pool.checkpoint(CheckpointOptions::now()).unwrap();
    assert_eq!((report.pages, report.requests, report.files_synced), (0, 0, 0), "{report}");
    write(&file, 3, 7);
    let report = pool.checkpoint(CheckpointOptions::now()).unwrap();
    assert_eq!((report.pages, report.files_synced), (1, 1), "{report}");
    assert_eq!(on_disk(&file, 3), 7);
}

#[test]
fn a_file_that_another_thread_has_written_is_synced_once() {
    let site = Site::new();
    let (pool, disk) = site.rigged(64);
    let file = pool.open_file("t", &create()).unwrap();
    file.extend(8).unwrap();
    (0..8).for_each(|block| write(&file, block, 1));
    file.flush_file().unwrap();
    assert_eq!(disk.count(Op::SyncData), 0);
    let report = pool.checkpoint(CheckpointOptions::now()).unwrap();
    assert_eq!((report.pages, report.files_synced), (0, 1), "{report}");
    assert_eq!(disk.count(Op::SyncData), 1);
    file.extend(1).unwrap();
    let report = pool.checkpoint(CheckpointOptions::now()).unwrap();
    assert_eq!(report.files_synced, 1, "a file that was made longer: {report}");
}

#[test]
fn elevators_write_in_their_order_and_without_combining_page_by_page() {
    let site = Site::new();
    let (pool, disk) = site.rigged(64);
    let file = pool.open_file("t", &create()).unwrap();
    file.extend(20).unwrap();
    let scattered = [7, 3, 12, 4, 0, 5, 19];
    let order = |options: CheckpointOptions| {
        let before = disk.seen().len();
        scattered.iter().for_each(|&block| write(&file, block, 9));
        pool.checkpoint(options).unwrap();
        let seen = disk.seen();
        let writes = seen[before..].iter().filter(|seen| seen.op == Op::Write);
        writes.map(|seen| (seen.position / PAGE as u64, seen.len / PAGE as u64)).collect::<Vec<_>>()
    };
    let one_by_one = || CheckpointOptions::now().combine(false).depth(1);
    let expected: Vec<_> = scattered.iter().map(|&block| (u64::from(block), 1)).collect();
    assert_eq!(order(one_by_one().elevator(Elevator::Arrival)), expected);
    let mut sorted = expected.clone();
    sorted.sort_unstable();
    assert_eq!(order(one_by_one().elevator(Elevator::Sorted)), sorted);
    assert_eq!(order(one_by_one()), sorted, "balanced, of one tablespace");
    let combined = [(0, 1), (3, 3), (7, 1), (12, 1), (19, 1)];
    assert_eq!(order(CheckpointOptions::now().depth(1)), combined);
}

/// A log that is only a number.
#[derive(Debug, Default)]
struct Counter {
    newest: AtomicU64,
    flushed: AtomicU64,
    redo: Mutex<Vec<u64>>,
    refuses: AtomicBool,
    refused: AtomicU64,
}

impl Counter {
    fn append(&self) -> Lsn {
        Lsn(self.newest.fetch_add(10, Ordering::SeqCst) + 10)
    }
}

impl Wal for Counter {
    fn flush_to(&self, lsn: Lsn) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        if self.refuses.load(Ordering::SeqCst) {
            self.refused.fetch_add(1, Ordering::SeqCst);
            return Err("the log's disk has failed".into());
        }
        self.flushed.fetch_max(lsn.0, Ordering::SeqCst);
        Ok(())
    }

    fn flushed(&self) -> Lsn {
        Lsn(self.flushed.load(Ordering::SeqCst))
    }

    fn position(&self) -> Lsn {
        Lsn(self.newest.load(Ordering::SeqCst))
    }

    fn checkpointed(&self, redo: Lsn) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        self.redo.lock().unwrap().push(redo.0);
        Ok(())
    }
}

#[test]
fn the_redo_point_is_where_the_log_was_and_the_log_receives_it() {
    let site = Site::new();
    let log = Arc::new(Counter::default());
    let pool = site.builder(64).wal(Arc::clone(&log) as Arc<dyn Wal>).build().unwrap();
    let file = pool.open_file("t", &create()).unwrap();
    file.extend(4).unwrap();
    for block in 0..4 {
        let mut page = file.write(block).unwrap();
        fill(&mut page, 5);
        page.mark_dirty(log.append());
    }
    let report = pool.checkpoint(CheckpointOptions::now()).unwrap();
    assert_eq!((report.redo, report.log_bytes), (Lsn(40), 0), "nothing is known of before");
    assert_eq!(log.flushed(), Lsn(40), "the log first");
    assert_eq!(*log.redo.lock().unwrap(), [40]);
    assert_eq!(read(&file, 3), 5);
}

#[test]
fn a_change_that_is_logged_and_not_marked_yet_is_waited_for() {
    let site = Site::new();
    let log = Arc::new(Counter::default());
    let pool = site.builder(64).wal(Arc::clone(&log) as Arc<dyn Wal>).build().unwrap();
    let file = pool.open_file("t", &create()).unwrap();
    file.extend(1).unwrap();
    let mut page = file.write(0).unwrap();
    fill(&mut page, 5);
    let lsn = log.append();
    // The redo point is after this record, and the page is not yet marked dirty.
    let checkpoint = pool.start_checkpoint(CheckpointOptions::now()).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert!(checkpoint.result().is_none(), "[CKP-1] the page is not written");
    page.mark_dirty(lsn);
    drop(page);
    let report = checkpoint.wait().unwrap();
    assert_eq!((report.pages, report.redo), (1, lsn), "[CKP-1] {report}");
    assert_eq!(on_disk(&file, 0), 5, "[CKP-1]");
}

#[test]
fn checkpoints_that_begin_automatically_wait_for_the_first_request() {
    let site = Site::new();
    let log = Arc::new(Counter::default());
    let builder = site.builder(64).wal(Arc::clone(&log) as Arc<dyn Wal>);
    let every = std::time::Duration::from_millis(20);
    let pool = builder.checkpoint_every(every).checkpoint_log(100).build().unwrap();
    let file = pool.open_file("t", &create()).unwrap();
    file.extend(1).unwrap();
    let change = || {
        let mut page = file.write(0).unwrap();
        fill(&mut page, 5);
        page.mark_dirty(log.append());
    };
    // As in the recovery of an engine.
    (0..50).for_each(|_| change());
    std::thread::sleep(5 * every);
    assert!(pool.last_checkpoint().is_none(), "{:?}", pool.last_checkpoint());
    pool.checkpoint(CheckpointOptions::now()).unwrap();
    let first = log.redo.lock().unwrap().len();
    change();
    wait_until("a checkpoint by time", || log.redo.lock().unwrap().len() > first);
}

#[test]
fn a_log_that_cannot_be_flushed_is_not_tried_again_at_every_change() {
    let site = Site::new();
    let log = Arc::new(Counter::default());
    let builder = site.builder(64).wal(Arc::clone(&log) as Arc<dyn Wal>);
    let pool = builder.checkpoint_log(1000).build().unwrap();
    let file = pool.open_file("t", &create()).unwrap();
    file.extend(1).unwrap();
    let change = || {
        let mut page = file.write(0).unwrap();
        fill(&mut page, 5);
        page.mark_dirty(log.append());
    };
    change();
    pool.checkpoint(CheckpointOptions::now()).unwrap();
    log.refuses.store(true, Ordering::SeqCst);
    // Ten bytes of log each. The log sets the pace of a checkpoint, so the log grows until one has failed.
    let mut changes = 0;
    while changes < 250 || !matches!(pool.last_checkpoint(), Some(Err(_))) {
        change();
        changes += 1;
        std::thread::sleep(std::time::Duration::from_micros(200));
    }
    let refused = log.refused.load(Ordering::SeqCst);
    let due = changes / 100 + 1;
    assert!((1..=due).contains(&refused), "tried {refused} times for {changes} changes");
    log.refuses.store(false, Ordering::SeqCst);
    let redo = pool.checkpoint(CheckpointOptions::now()).unwrap().redo;
    assert_eq!(redo, Lsn(10 * (changes + 1)));
}
