//! The log hook: no page is written to disk before the log that describes its changes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use forebay::{
    BufferPool, Error, Lsn, PageMut, PagedFile, ReadaheadStrategy, StrategyKind, Tablespace, Wal,
};
use forebay_io::Op;

use crate::disk::Disk;
use crate::site::{PAGE, Site, create, fill, on_disk, read, reopened};

/// A log that becomes durable as far as requested, and may refuse or panic.
#[derive(Debug, Default)]
struct Log {
    panics: AtomicBool,
    /// If not 0, a flush from this LSN on blocks until it is reset to 0.
    stands: AtomicU64,
    waiting: AtomicBool,
    flushed: AtomicU64,
    /// The end of the newest record that a test has appended.
    end: AtomicU64,
    refuses: AtomicBool,
    flushes: AtomicU64,
    /// Pages that were written before their log.
    early: Mutex<Vec<Lsn>>,
}

impl Wal for Log {
    fn flush_to(&self, lsn: Lsn) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        self.flushes.fetch_add(1, Ordering::SeqCst);
        assert!(!self.panics.load(Ordering::SeqCst), "the log panics, as the test wants it");
        let stands = || (1..=lsn.0).contains(&self.stands.load(Ordering::SeqCst));
        while stands() {
            self.waiting.store(true, Ordering::SeqCst);
            std::thread::yield_now();
        }
        if self.refuses.load(Ordering::SeqCst) {
            return Err("the log's disk has failed".into());
        }
        self.flushed.fetch_max(lsn.0, Ordering::SeqCst);
        Ok(())
    }

    fn position(&self) -> Lsn {
        assert!(!self.panics.load(Ordering::SeqCst), "the log panics, as the test wants it");
        Lsn(self.end.load(Ordering::SeqCst))
    }

    fn flushed(&self) -> Lsn {
        Lsn(self.flushed.load(Ordering::SeqCst))
    }
}

/// A pool with a log, over a disk that checks each page written: the page repeats its LSN.
fn logged(site: &Site, frames: u64, cleaner: bool) -> (BufferPool, Arc<Disk>, Arc<Log>) {
    let log = Arc::new(Log::default());
    let durable = Arc::clone(&log);
    let (io, disk) = Disk::watched(move |it| {
        let bytes: Vec<u8> = match it.op() {
            Op::Write => it.slices().iter().flat_map(|slice| slice.to_vec()).collect(),
            _ => Vec::new(),
        };
        for page in bytes.chunks(PAGE) {
            let lsn = Lsn(crate::site::number_in(page));
            if lsn > durable.flushed() {
                durable.early.lock().unwrap().push(lsn);
            }
        }
    });
    let main = Tablespace::new("main", site.path("main")).io(io);
    let builder =
        Site::bare(frames).readahead(ReadaheadStrategy::Os).cleaner(cleaner).tablespace(main);
    (builder.wal(Arc::clone(&log) as Arc<dyn Wal>).build().unwrap(), disk, log)
}

fn change(file: &PagedFile, block: u32, lsn: u64) -> Result<(), Error> {
    let mut page = file.write(block)?;
    fill(&mut page, lsn);
    page.mark_dirty(Lsn(lsn));
    Ok(())
}

/// A scan's next frames hold pages whose log is not flushed; look-ahead for a missed block uses them.
#[test]
fn no_thread_waits_for_a_log_flush_that_anothers_look_ahead_needs() {
    let site = Site::new();
    let log = Arc::new(Log::default());
    let builder = site.builder(64).cleaner(false).wal(Arc::clone(&log) as Arc<dyn Wal>);
    let pool = builder.build().unwrap();
    let file = reopened(&pool, crate::site::numbered(&pool, "table", 200, 1000));
    let scan = pool.strategy(StrategyKind::Maintenance);
    let ring = scan.ring_frames().unwrap() as u64;
    for lsn in 1..=ring {
        let mut page = file.init_with(100 + (lsn * lsn) as u32, &scan).unwrap();
        fill(&mut page, lsn);
        page.mark_dirty(Lsn(lsn));
    }
    // Blocks 10 and 11 take two frames of the ring, and the third is for the blocks read ahead.
    log.stands.store(3, Ordering::SeqCst);
    std::thread::scope(|scope| {
        let scanner = scope.spawn(|| {
            [10, 11].map(|block| crate::site::number_in(&file.read_with(block, &scan).unwrap()))
        });
        crate::site::wait_until("the log", || log.waiting.load(Ordering::SeqCst));
        assert_eq!(read(&file, 11), 1011, "[LOD-3]");
        assert!(!scanner.is_finished());
        log.stands.store(0, Ordering::SeqCst);
        assert_eq!(scanner.join().unwrap(), [1010, 1011]);
    });
}

#[test]
fn no_page_reaches_the_disk_before_its_log() {
    let site = Site::new();
    for cleaner in [false, true] {
        let (pool, disk, log) = logged(&site, 12, cleaner);
        let file = pool.open_file(&format!("table {cleaner}"), &create()).unwrap();
        file.extend(60).unwrap();
        let mut random = fastrand::Rng::with_seed(4);
        for lsn in 1..2000 {
            change(&file, random.u32(..60), lsn).unwrap();
            match random.u32(..200) {
                0 => drop(file.flush_file().unwrap()),
                1 => drop(pool.flush_and_sync().unwrap()),
                _ => {}
            }
        }
        file.flush_file().unwrap();
        assert_eq!(*log.early.lock().unwrap(), [], "[OUT-1]");
        assert!(disk.count(Op::Write) > 100);
        assert!(log.flushes.load(Ordering::SeqCst) > 10, "[OUT-1]");
        assert_eq!(pool.stats().pool.unlogged_changes, 0);
    }
}

#[test]
fn while_the_log_refuses_pages_stay_dirty_and_clean_ones_make_room() {
    let site = Site::new();
    let (pool, disk, log) = logged(&site, 8, false);
    let file = pool.open_file("table", &create()).unwrap();
    file.extend(30).unwrap();
    log.refuses.store(true, Ordering::SeqCst);
    (0..4).for_each(|block| change(&file, block, 10 + u64::from(block)).unwrap());
    let Error::Log { lsn, source } = file.flush_file().unwrap_err() else {
        panic!("[OUT-1]");
    };
    assert!(lsn >= Lsn(11) && source.to_string().contains("has failed"), "{lsn}: {source}");
    (4..30).for_each(|block| assert_eq!(read(&file, block), 0));
    assert!((0..4).all(|block| file.is_resident(block)), "[OUT-2]");
    assert_eq!((pool.stats().frames_dirty, disk.count(Op::Write)), (4, 0), "[OUT-1]");
    let mut refusals = 0;
    for block in 4..12 {
        refusals +=
            u32::from(change(&file, block, 50).is_err_and(|e| matches!(e, Error::Log { .. })));
    }
    assert_eq!(refusals, 4, "[VIC-2] eight pages fit, and four do not");
    log.refuses.store(false, Ordering::SeqCst);
    assert_eq!(file.flush_file().unwrap(), 8);
    (0..4).for_each(|block| assert_eq!(on_disk(&file, block), 10 + u64::from(block)));
    assert_eq!(pool.view().iter().map(|frame| frame.lsn).max(), Some(Lsn::NONE));
}

#[test]
fn a_write_that_failed_for_the_log_needs_the_same_log_again() {
    let site = Site::new();
    let (pool, disk, log) = logged(&site, 8, false);
    let file = pool.open_file("table", &create()).unwrap();
    file.extend(2).unwrap();
    change(&file, 1, 40).unwrap();
    log.refuses.store(true, Ordering::SeqCst);
    file.flush_file().unwrap_err();
    let lsn = pool.view().iter().find(|frame| frame.block == 1).map(|frame| frame.lsn);
    assert_eq!(lsn, Some(Lsn(40)), "[OUT-1]");
    log.refuses.store(false, Ordering::SeqCst);
    // An older change does not lower the LSN that the page requires.
    change_marked(&file, 1, 39, 20);
    disk.fail(Op::Write, forebay_io::OsError::ENOSPC);
    file.flush_file().unwrap_err();
    disk.heal();
    file.flush_file().unwrap();
    assert_eq!(log.flushed(), Lsn(40), "[OUT-1]");
}

fn change_marked(file: &PagedFile, block: u32, number: u64, lsn: u64) {
    let mut page = file.write(block).unwrap();
    fill(&mut page, number);
    page.mark_dirty(Lsn(lsn));
}

#[test]
fn a_bulk_read_gives_up_frames_whose_log_is_not_flushed_and_the_others_flush() {
    let site = Site::new();
    for kind in [StrategyKind::BulkRead, StrategyKind::BulkWrite, StrategyKind::Maintenance] {
        let (pool, disk, log) = logged(&site, 64, false);
        let name = format!("table {kind}");
        let file = pool.open_file(&name, &create()).unwrap();
        file.extend(60).unwrap();
        let scan = pool.strategy(kind);
        let ring = scan.ring_frames().unwrap() as u32;
        for block in 0..ring {
            let mut page = file.write_with(block, &scan).unwrap();
            fill(&mut page, 9);
            page.mark_dirty(Lsn(9));
        }
        (ring..2 * ring).for_each(|block| drop(file.read_with(block, &scan).unwrap()));
        let stats = pool.stats();
        let stats = stats.strategy(kind);
        if kind == StrategyKind::BulkRead {
            assert_eq!(stats.ring_refusals, u64::from(ring), "{kind}");
            assert_eq!((log.flushed(), disk.count(Op::Write)), (Lsn::NONE, 0), "{kind}");
            assert!((0..ring).all(|block| file.is_resident(block)), "given up, not lost");
        } else {
            assert_eq!((stats.ring_reuses, log.flushed()), (u64::from(ring), Lsn(9)), "{kind}");
            assert_eq!(disk.count(Op::Write), ring as usize, "{kind}");
        }
        // Once the log is flushed, bulk reads write and reuse frames as well.
        log.flush_to(Lsn(9)).unwrap();
        for block in 0..ring {
            let mut page = file.write_with(2 * ring + block, &scan).unwrap();
            fill(&mut page, 8);
            page.mark_dirty(Lsn(8));
        }
        let reuses = pool.stats().strategy(kind).ring_reuses;
        (0..ring).for_each(|block| drop(file.read_with(3 * ring + block, &scan).unwrap()));
        assert_eq!(pool.stats().strategy(kind).ring_reuses - reuses, u64::from(ring), "{kind}");
        assert_eq!(read(&reopened(&pool, file), 2 * ring), 8);
    }
}

/// For each way in which a guard that was changed and not marked may end.
#[test]
fn grd_2_a_page_that_was_not_marked_waits_for_the_end_of_the_log_and_is_counted() {
    let site = Site::new();
    let (pool, disk, log) = logged(&site, 8, false);
    let file = pool.open_file("table", &create()).unwrap();
    file.extend(2).unwrap();
    // A change is logged first; the page contains its LSN.
    let changed = |mut page: PageMut<'static, PagedFile>| {
        fill(&mut page, log.end.fetch_add(10, Ordering::SeqCst) + 10);
        page
    };
    type Way<'a> = &'a dyn Fn(PageMut<'static, PagedFile>);
    let unwound = |page: PageMut<'static, PagedFile>| {
        let unwinds = std::panic::AssertUnwindSafe(move || {
            let _page = page;
            panic!("as the test wants it");
        });
        std::panic::catch_unwind(unwinds).unwrap_err();
    };
    let ways: [Way<'_>; 4] =
        [&drop, &|page| drop(page.downgrade()), &|page| drop(page.into_pin()), &unwound];
    for (way, count) in ways.into_iter().zip(1..) {
        way(changed(file.write(0).unwrap().into_owned()));
        assert_eq!(pool.stats().pool.unlogged_changes, count);
        assert_eq!(file.flush_file().unwrap(), 1);
        assert_eq!((log.flushed(), disk.count(Op::Write)), (Lsn(count * 10), count as usize));
    }
    // Pages that were created without a read, including ones to which nothing is written.
    way_of_new_pages(&file, &log);
    assert_eq!((file.flush_file().unwrap(), log.flushed()), (2, Lsn(60)));
    assert_eq!(pool.stats().pool.unlogged_changes, 6);
    assert_eq!(*log.early.lock().unwrap(), [], "[GRD-2]");
}

fn way_of_new_pages(file: &PagedFile, log: &Log) {
    log.end.store(50, Ordering::SeqCst);
    drop(file.init(1).unwrap());
    log.end.store(60, Ordering::SeqCst);
    drop(file.append().unwrap());
}

#[test]
fn grd_2_while_the_log_does_not_say_where_it_ends_a_page_that_was_not_marked_stays() {
    let site = Site::new();
    let (pool, disk, log) = logged(&site, 8, false);
    let file = pool.open_file("table", &create()).unwrap();
    file.extend(1).unwrap();
    log.panics.store(true, Ordering::SeqCst);
    fill(&mut file.write(0).unwrap(), 9);
    log.panics.store(false, Ordering::SeqCst);
    log.refuses.store(true, Ordering::SeqCst);
    let error = file.flush_file().unwrap_err();
    assert!(matches!(error, Error::Log { lsn: Lsn(u64::MAX), .. }), "[GRD-2] {error}");
    assert_eq!((read(&file, 0), disk.count(Op::Write)), (9, 0));
    log.refuses.store(false, Ordering::SeqCst);
    assert_eq!(file.flush_file().unwrap(), 1);
}

#[test]
fn a_log_that_panics_leaves_the_page_dirty_and_in_nobodys_way() {
    let site = Site::new();
    let (pool, _disk, log) = logged(&site, 12, false);
    let file = pool.open_file("table", &create()).unwrap();
    file.extend(1).unwrap();
    change(&file, 0, 7).unwrap();
    log.panics.store(true, Ordering::SeqCst);
    let flush = std::panic::AssertUnwindSafe(|| file.flush_file());
    assert!(std::panic::catch_unwind(flush).is_err());
    assert_eq!(pool.stats().frames_dirty, 1, "[OUT-2]");
    assert_eq!(pool.stats().frames_pinned, 0);
    log.panics.store(false, Ordering::SeqCst);
    assert_eq!(file.flush_file().unwrap(), 1);
    file.truncate(0).unwrap();
}
