//! Checkpoints with disks and logs that fail: typed errors, dirty pages kept, the redo point unchanged.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use forebay::{CheckpointOptions, CheckpointReport, Clock, Error, ErrorKind, Tablespace};
use forebay_io::{Op, OsError};

use super::rig::Rig;
use crate::disk::{Disk, Fault};
use crate::site::{PAGE, Site, create, is_io, on_disk, read, wait_until, write};

/// The error of the only tablespace that failed, which must be `name`, and what was completed nevertheless.
#[track_caller]
fn only_failure(
    result: Result<CheckpointReport, Error>,
    name: &str,
) -> (Error, Arc<CheckpointReport>) {
    let error = result.unwrap_err();
    let Error::Checkpoint { mut failed, report } = error else {
        panic!("{error}");
    };
    assert_eq!(failed.len(), 1, "{failed:?}");
    let (failed, error) = failed.remove(0);
    assert_eq!(&*failed, name);
    (error, report)
}

#[test]
fn a_bad_disk_under_one_tablespace_does_not_keep_the_other_from_its_end() {
    let site = Site::new();
    let rig = Rig::new(&site, 64, 16);
    (0..2).for_each(|file| drop(rig.change_all(file, 0..16)));
    rig.disks[0].fail(Op::Write, OsError::EIO);
    let (error, report) = only_failure(rig.checkpoint(), "first");
    assert!(is_io(&error, OsError::EIO), "{error}");
    assert_eq!(rig.dirty_blocks(0), (0..16).collect::<Vec<_>>(), "[OUT-2]");
    assert_eq!(rig.dirty_blocks(1), []);
    (0..16).for_each(|block| assert_eq!(on_disk(&rig.files[1], block), read(&rig.files[1], block)));
    assert!(rig.disks[1].count(Op::SyncData) > 0, "the other tablespace is synced");
    assert_eq!((report.tablespaces[1].pages, report.tablespaces[0].pages), (16, 0));
    assert_eq!(rig.log.redo_points(), [], "[CKP-1]");

    rig.disks[0].heal();
    let report = rig.checkpoint().unwrap();
    assert_eq!(rig.log.redo_points(), [report.redo]);
    (0..16).for_each(|block| assert_eq!(on_disk(&rig.files[0], block), read(&rig.files[0], block)));
}

#[test]
fn a_disk_that_fills_up_in_the_middle_loses_nothing_and_can_be_tried_again() {
    let site = Site::new();
    let rig = Rig::new(&site, 64, 40);
    let redo = rig.checkpoint().unwrap().redo;
    // Far from each other, so that each is a separate request.
    let blocks: Vec<u32> = (0..40).step_by(4).collect();
    let lsns: Vec<u64> = blocks.iter().map(|block| rig.change(0, *block).0).collect();
    let mut room = 4;
    rig.disks[0].rule(move |it| {
        if it.op() != Op::Write {
            return Fault::None;
        }
        room -= 1;
        if room < 0 { Fault::Fail(OsError::ENOSPC) } else { Fault::None }
    });
    let (error, report) = only_failure(rig.checkpoint(), "first");
    assert!(is_io(&error, OsError::ENOSPC), "{error}");
    assert!(matches!(error, Error::Io(forebay_io::Error::NoSpace { .. })), "{error}");
    assert_eq!((report.pages, rig.dirty_blocks(0).len()), (4, 6), "[OUT-2]");
    for (block, lsn) in blocks.iter().zip(&lsns) {
        let dirty = rig.dirty_blocks(0).contains(block);
        assert_eq!(on_disk(&rig.files[0], *block) == *lsn, !dirty, "[CKW-2] block {block}");
        assert_eq!(read(&rig.files[0], *block), *lsn);
    }
    assert_eq!(rig.log.redo_points(), [redo], "[CKP-1]");

    rig.disks[0].heal();
    let report = rig.checkpoint().unwrap();
    assert_eq!((report.pages, rig.dirty_blocks(0).len()), (6, 0));
    assert_eq!(rig.log.redo_points(), [redo, report.redo]);
    let on_disk: Vec<u64> = blocks.iter().map(|block| on_disk(&rig.files[0], *block)).collect();
    assert_eq!(on_disk, lsns);
}

#[test]
fn after_a_failed_sync_no_checkpoint_claims_success() {
    let site = Site::new();
    let rig = Rig::new(&site, 64, 16);
    (0..2).for_each(|file| drop(rig.change_all(file, 0..8)));
    rig.disks[0].fail(Op::SyncData, OsError::EIO);
    let (error, _) = only_failure(rig.checkpoint(), "first");
    assert!(
        matches!(&error, Error::Failed { tablespace, .. } if &**tablespace == "first"),
        "{error}"
    );
    assert_eq!(rig.dirty_blocks(1), []);
    assert!(rig.disks[1].count(Op::SyncData) > 0, "the other tablespace is synced");

    // The disk works again, but is not trusted any more.
    rig.disks[0].heal();
    let changed = || rig.disks[0].seen().iter().filter(|seen| seen.op != Op::Read).count();
    let before = changed();
    rig.change(0, 3);
    rig.change(1, 3);
    for _ in 0..2 {
        let (error, _) = only_failure(rig.checkpoint(), "first");
        assert!(matches!(error, Error::Failed { .. }), "[TBS-1] {error}");
    }
    assert_eq!(changed(), before, "[TBS-1]");
    assert_eq!((rig.dirty_blocks(0), rig.dirty_blocks(1)), (vec![3], vec![]));
    assert_eq!(rig.log.redo_points(), [], "[CKP-1]");
}

#[test]
fn a_failed_sync_of_a_file_that_others_wrote_counts() {
    let site = Site::new();
    let rig = Rig::new(&site, 64, 16);
    rig.change(0, 1);
    rig.files[0].flush_file().unwrap();
    // Nothing is dirty any more, but nothing is durable yet.
    rig.disks[0].fail(Op::SyncData, OsError::EIO);
    let (error, _) = only_failure(rig.checkpoint(), "first");
    assert!(matches!(error, Error::Failed { .. }), "[CKS-1] {error}");
    assert_eq!(rig.log.redo_points(), [], "[CKP-1]");
}

#[test]
fn short_transfers_are_continued() {
    let site = Site::new();
    let rig = Rig::new(&site, 64, 16);
    let lsns = rig.change_all(0, 0..16);
    rig.disks[0].rule(|it| match it.op() {
        Op::Write => Fault::Short(PAGE as u64 + 512),
        _ => Fault::None,
    });
    let report = rig.checkpoint().unwrap();
    assert_eq!(report.pages, 16);
    let on_disk: Vec<u64> = (0..16).map(|block| on_disk(&rig.files[0], block)).collect();
    assert_eq!(on_disk, lsns);
}

#[test]
fn a_log_that_cannot_be_flushed_keeps_its_pages_from_the_disk() {
    let site = Site::new();
    let rig = Rig::new(&site, 64, 16);
    rig.change_all(0, 0..8);
    rig.log.refuses.store(true, Ordering::SeqCst);
    let before = rig.disks[0].count(Op::Write);
    let (error, _) = only_failure(rig.checkpoint(), "first");
    assert!(matches!(error, Error::Log { .. }), "{error}");
    assert_eq!(rig.disks[0].count(Op::Write), before, "[OUT-1]");
    assert_eq!(rig.dirty_blocks(0).len(), 8, "[OUT-2]");
    assert_eq!(rig.log.redo_points(), [], "[CKP-1]");

    rig.log.refuses.store(false, Ordering::SeqCst);
    let report = rig.checkpoint().unwrap();
    assert_eq!((report.pages, rig.log.redo_points()), (8, vec![report.redo]));
}

#[test]
fn a_log_that_panics_ends_its_checkpoint_and_no_other() {
    let site = Site::new();
    let rig = Rig::new(&site, 64, 16);
    let lsns = rig.change_all(0, 0..8);
    rig.log.panics.store(true, Ordering::SeqCst);
    rig.checkpoint().unwrap_err();
    assert_eq!(rig.dirty_blocks(0).len(), 8, "[OUT-2]");
    assert_eq!(rig.log.redo_points(), [], "[CKP-1]");

    rig.log.panics.store(false, Ordering::SeqCst);
    let report = rig.checkpoint().unwrap();
    assert_eq!((report.pages, rig.log.redo_points()), (8, vec![report.redo]));
    let on_disk: Vec<u64> = (0..8).map(|block| on_disk(&rig.files[0], block)).collect();
    assert_eq!(on_disk, lsns);
    rig.pool.close().unwrap();
}

#[test]
fn who_asks_is_answered_even_when_the_log_cannot_say_where_it_is() {
    let site = Site::new();
    let rig = Rig::new(&site, 64, 16);
    let lsns = rig.change_all(0, 0..8);
    rig.log.is_lost.store(true, Ordering::SeqCst);
    for _ in 0..2 {
        let checkpoint = rig.pool.start_checkpoint(CheckpointOptions::now()).unwrap();
        wait_until("an answer", || checkpoint.result().is_some());
        assert!(matches!(checkpoint.wait(), Err(Error::CheckpointPanicked)), "[DSK-1]");
    }
    rig.log.is_lost.store(false, Ordering::SeqCst);
    let report = rig.checkpoint().unwrap();
    assert_eq!((report.pages, rig.log.redo_points()), (8, vec![report.redo]));
    let on_disk: Vec<u64> = (0..8).map(|block| on_disk(&rig.files[0], block)).collect();
    assert_eq!(on_disk, lsns);
}

#[test]
fn a_redo_point_that_the_log_cannot_note_does_not_count() {
    let site = Site::new();
    let rig = Rig::new(&site, 64, 16);
    let first = rig.checkpoint().unwrap().redo;
    let lsn = rig.change(0, 1);
    rig.log.forgets.store(true, Ordering::SeqCst);
    let error = rig.checkpoint().unwrap_err();
    assert!(matches!(error, Error::Log { .. }), "{error}");
    rig.log.forgets.store(false, Ordering::SeqCst);
    let report = rig.checkpoint().unwrap();
    assert_eq!((report.redo, report.log_bytes), (lsn, lsn.0 - first.0), "[CKP-1]");
    assert_eq!(rig.log.redo_points(), [first, lsn]);
}

#[test]
fn a_log_that_goes_back_is_no_place_to_recover_from() {
    let site = Site::new();
    let rig = Rig::new(&site, 64, 16);
    rig.change_all(0, 0..4);
    let redo = rig.checkpoint().unwrap().redo;
    rig.log.go_back();
    for _ in 0..2 {
        let error = rig.checkpoint().unwrap_err();
        let Error::LogWentBack { from, to } = error else { panic!("{error}") };
        assert_eq!((from, to < from), (redo, true));
    }
    assert_eq!(rig.log.redo_points(), [redo]);
    // The log is trusted again from its earlier position.
    assert_eq!(rig.change(0, 1), redo);
    assert_eq!(rig.checkpoint().unwrap().redo, redo);
}

#[test]
fn the_largest_number_is_no_place_to_recover_from() {
    let site = Site::new();
    let rig = Rig::new(&site, 64, 16);
    rig.change_all(0, 0..4);
    rig.log.position_unknown.store(true, Ordering::SeqCst);
    let error = rig.checkpoint().unwrap_err();
    assert!(matches!(error, Error::Setting { .. }) && error.kind() == ErrorKind::Usage, "{error}");
    rig.log.position_unknown.store(false, Ordering::SeqCst);
    let redo = rig.checkpoint().unwrap().redo;
    assert_eq!(rig.log.redo_points(), [redo]);
}

/// A clock that is set back by an hour during the test.
#[derive(Debug)]
struct WallClock(Instant, AtomicBool);

impl Clock for WallClock {
    fn now(&self) -> Duration {
        let hour = Duration::from_secs(3600);
        self.0.elapsed() + if self.1.load(Ordering::SeqCst) { Duration::ZERO } else { hour }
    }
}

#[test]
fn a_clock_set_back_delays_no_checkpoint() {
    let site = Site::new();
    let clock = Arc::new(WallClock(Instant::now(), AtomicBool::new(false)));
    let (io, disk) = Disk::open();
    let main = Tablespace::new("main", site.path("main")).io(io);
    let builder = Site::bare(64).cleaner(false).tablespace(main);
    let pool = builder.clock(Arc::clone(&clock) as Arc<dyn Clock>).build().unwrap();
    let file = pool.open_file("t", &create()).unwrap();
    file.extend(40).unwrap();
    (0..40).for_each(|block| write(&file, block, 7));
    let gate = disk.hold(Op::Write);
    let checkpoint =
        pool.start_checkpoint(CheckpointOptions::spread(Duration::from_millis(200))).unwrap();
    gate.wait_for(1);
    clock.1.store(true, Ordering::SeqCst);
    gate.open();
    assert_eq!(checkpoint.wait().unwrap().pages, 40);
}
