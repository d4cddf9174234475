//! Failed writes: the page stays, dirty, and is written once writes succeed again.

use std::thread;

use forebay::{Error, FileOptions, StrategyKind};
use forebay_io::{Op, OsError};

use crate::disk::Fault;
use crate::site::{
    PAGE, Site, create, is_dirty, is_io, numbered, on_disk, read, reopened, wait_until, write,
};

#[test]
fn a_page_that_could_not_be_written_stays_dirty_in_its_frame() {
    let site = Site::new();
    let (pool, disk) = site.rigged(8);
    let file = numbered(&pool, "table", 4, 0);
    write(&file, 2, 99);
    disk.fail(Op::Write, OsError::ENOSPC);
    for _ in 0..3 {
        let error = file.flush_file().unwrap_err();
        assert!(is_io(&error, OsError::ENOSPC), "{error}");
        assert!(matches!(error, Error::Io(forebay_io::Error::NoSpace { .. })), "{error}");
        assert!(is_dirty(&pool, 2) && file.is_resident(2), "[OUT-2]");
        assert_eq!((read(&file, 2), on_disk(&file, 2)), (99, 2), "[OUT-2]");
    }
    disk.heal();
    assert_eq!(file.flush_file().unwrap(), 1);
    assert_eq!((on_disk(&file, 2), pool.stats().frames_dirty), (99, 0));
}

#[test]
fn while_the_disk_is_full_clean_pages_make_room() {
    let site = Site::new();
    let (pool, disk) = site.rigged(8);
    let file = numbered(&pool, "table", 40, 0);
    (0..4).for_each(|block| write(&file, block, 1000 + u64::from(block)));
    disk.fail(Op::Write, OsError::ENOSPC);
    for block in 4..40 {
        assert_eq!(read(&file, block), u64::from(block));
    }
    assert!((0..4).all(|block| file.is_resident(block) && is_dirty(&pool, block)), "[OUT-2]");
    disk.heal();
    let file = reopened(&pool, file);
    (0..4).for_each(|block| assert_eq!(read(&file, block), 1000 + u64::from(block)));
}

#[test]
fn a_full_disk_shows_when_no_clean_page_is_left_and_nothing_is_lost() {
    let site = Site::new();
    let (pool, disk) = site.rigged(8);
    let file = numbered(&pool, "table", 40, 0);
    (0..8).for_each(|block| write(&file, block, 1000 + u64::from(block)));
    disk.fail(Op::Write, OsError::ENOSPC);
    for kind in StrategyKind::ALL {
        let error = file.read_with(20, &pool.strategy(kind)).unwrap_err();
        assert!(is_io(&error, OsError::ENOSPC), "[VIC-2] {error}");
        let error = file.init_with(20, &pool.strategy(kind)).unwrap_err();
        assert!(is_io(&error, OsError::ENOSPC), "[VIC-2] {error}");
    }
    assert_eq!((pool.stats().frames_dirty, pool.stats().frames_free), (8, 0), "[OUT-2]");
    (0..8).for_each(|block| assert_eq!(read(&file, block), 1000 + u64::from(block)));
    disk.heal();
    assert_eq!(read(&file, 20), 20);
    let file = reopened(&pool, file);
    (0..8).for_each(|block| assert_eq!(read(&file, block), 1000 + u64::from(block)));
}

#[test]
fn one_bad_run_does_not_keep_the_others_from_the_disk() {
    let site = Site::new();
    let (pool, disk) = site.rigged(32);
    let file = pool.open_file("table", &create()).unwrap();
    file.extend(30).unwrap();
    (0..30).step_by(3).for_each(|block| write(&file, block, 7));
    disk.rule(|it| match it.op() == Op::Write && it.position() == 9 * PAGE as u64 {
        true => Fault::Fail(OsError::EIO),
        false => Fault::None,
    });
    assert!(is_io(&file.flush_file().unwrap_err(), OsError::EIO));
    let dirty: Vec<u32> = (0..30).filter(|block| is_dirty(&pool, *block)).collect();
    assert_eq!(dirty, [9], "[OUT-2]");
    assert!((0..30).step_by(3).filter(|block| *block != 9).all(|block| on_disk(&file, block) == 7));
}

#[test]
fn what_could_be_written_is_synced_although_another_page_could_not() {
    let site = Site::new();
    let (pool, disk) = site.rigged(32);
    let good = numbered(&pool, "good", 2, 0);
    let bad = numbered(&pool, "bad", 4, 0);
    write(&good, 0, 5);
    write(&bad, 0, 5);
    write(&bad, 2, 5);
    disk.rule(|it| match it.op() == Op::Write && it.file().path().ends_with("bad") {
        true if it.position() == 0 => Fault::Fail(OsError::ENOSPC),
        _ => Fault::None,
    });
    assert!(is_io(&pool.flush_and_sync().unwrap_err(), OsError::ENOSPC));
    let seen = disk.seen();
    let synced =
        |name| seen.iter().any(|seen| seen.op == Op::SyncData && seen.path.ends_with(name));
    assert!(synced("good") && synced("bad"), "both have pages that were written");
}

#[test]
fn a_file_that_cannot_be_written_stays_open() {
    let site = Site::new();
    let (pool, disk) = site.rigged(8);
    let file = numbered(&pool, "table", 4, 0);
    write(&file, 2, 99);
    disk.fail(Op::Write, OsError::ENOSPC);
    assert!(is_io(&file.clone().close().unwrap_err(), OsError::ENOSPC));
    assert_eq!(read(&file, 2), 99);
    disk.heal();
    assert_eq!(read(&reopened(&pool, file), 2), 99);
}

#[test]
fn a_pool_that_could_not_be_closed_tries_again_when_it_is_dropped() {
    let site = Site::new();
    let (pool, disk) = site.rigged(8);
    let file = numbered(&pool, "table", 4, 0);
    write(&file, 2, 99);
    disk.fail(Op::Write, OsError::ENOSPC);
    assert!(is_io(&pool.close().unwrap_err(), OsError::ENOSPC));
    disk.heal();
    drop((file, pool));
    let pool = site.pool(8);
    assert_eq!(read(&pool.open_file("table", &FileOptions::new()).unwrap(), 2), 99);
}

#[test]
fn a_page_changed_while_its_copy_is_written_is_dirty_again_and_the_newer_one_stays() {
    let site = Site::new();
    let (pool, disk) = site.rigged(8);
    let file = numbered(&pool, "table", 4, 0);
    write(&file, 1, 100);
    let gate = disk.hold(Op::Write);
    let writes = disk.count(Op::Write);
    thread::scope(|scope| {
        let flush = scope.spawn(|| file.flush_file());
        gate.wait_for(1);
        assert!(!is_dirty(&pool, 1));
        write(&file, 1, 200);
        assert!(is_dirty(&pool, 1));
        // A second writer of the same page waits for the first.
        let second = scope.spawn(|| file.flush_file());
        wait_until("the second one to have the page pinned", || {
            pool.view().iter().any(|frame| frame.block == 1 && frame.pins == 2)
        });
        assert_eq!(disk.count(Op::Write) - writes, 1, "[OUT-3]");
        gate.open();
        flush.join().unwrap().unwrap();
        second.join().unwrap().unwrap();
    });
    assert_eq!(disk.count(Op::Write) - writes, 2, "[OUT-3]");
    assert_eq!((on_disk(&file, 1), pool.stats().frames_dirty), (200, 0), "[OUT-3]");
}

#[test]
fn a_page_changed_while_its_copy_fails_to_be_written_is_written_later() {
    let site = Site::new();
    let (pool, disk) = site.rigged(8);
    let file = numbered(&pool, "table", 4, 0);
    write(&file, 1, 100);
    write(&file, 3, 100);
    let gate = disk.hold(Op::Write);
    disk.fail(Op::Write, OsError::ENOSPC);
    thread::scope(|scope| {
        let flush = scope.spawn(|| file.flush_file());
        gate.wait_for(1);
        write(&file, 1, 200);
        gate.open();
        assert!(flush.join().unwrap().is_err());
    });
    assert!(is_dirty(&pool, 1) && is_dirty(&pool, 3), "[OUT-2]");
    disk.heal();
    assert_eq!(file.flush_file().unwrap(), 2);
    assert_eq!((on_disk(&file, 1), on_disk(&file, 3)), (200, 100), "[OUT-2]");
}
