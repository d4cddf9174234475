//! Checkpoints concurrent with all other activity in a pool.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use forebay::{Checkpoint, CheckpointOptions, Error, Lsn, PagedFile, Phase};
use forebay_io::{Op, OsError};

use super::log::Log;
use super::rig::{NAMES, Rig, change};
use crate::site::{Ends, PAGE, Site, create, fill, on_disk, read, wait_until};

/// Long enough that none of these tests reaches its end.
const LONG: Duration = Duration::from_secs(3600);

impl Rig {
    /// Starts a checkpoint and waits until it has collected the pages to write.
    fn begun(&self, options: CheckpointOptions) -> Checkpoint {
        let checkpoint = self.pool.start_checkpoint(options).unwrap();
        self.wait_begun(&checkpoint);
        checkpoint
    }

    fn wait_begun(&self, checkpoint: &Checkpoint) {
        let writes = |phase| matches!(phase, Phase::Writing | Phase::Syncing);
        wait_until("a checkpoint to look at all frames", || {
            checkpoint.progress().is_some_and(|it| writes(it.phase))
                || checkpoint.result().is_some()
        });
        assert!(checkpoint.result().is_none(), "it has something to wait for");
    }
}

#[test]
fn a_change_made_during_an_older_write_of_its_page_is_on_disk_at_the_end() {
    let site = Site::new();
    let rig = Rig::new(&site, 32, 8);
    rig.change(0, 3);
    let gate = rig.disks[0].hold(Op::Write);
    thread::scope(|scope| {
        let flush = scope.spawn(|| rig.files[0].flush_file());
        gate.wait_for(1);
        // The copy that is being written does not contain this change.
        let lsn = rig.change(0, 3);
        let checkpoint = rig.begun(CheckpointOptions::now());
        gate.open();
        let report = checkpoint.wait().unwrap();
        assert!(report.redo >= lsn);
        assert_eq!(on_disk(&rig.files[0], 3), lsn.0, "[CKP-1]");
        flush.join().unwrap().unwrap();
    });
}

#[test]
fn a_change_logged_and_not_marked_yet_is_waited_for() {
    let site = Site::new();
    let rig = Rig::new(&site, 32, 8);
    let other = rig.change(0, 6);
    let mut page = rig.files[0].write(3).unwrap();
    let lsn = rig.log.append();
    // From here until the page is marked, only the latch shows that there is a change.
    let checkpoint = rig.begun(CheckpointOptions::now());
    wait_until("the other page to be written", || on_disk(&rig.files[0], 6) == other.0);
    thread::sleep(Duration::from_millis(20));
    assert!(checkpoint.result().is_none(), "[CKP-1]");
    fill(&mut page, lsn.0);
    page.mark_dirty(lsn);
    drop(page);
    assert!(checkpoint.wait().unwrap().redo >= lsn);
    assert_eq!(on_disk(&rig.files[0], 3), lsn.0, "[CKP-1]");
}

#[test]
fn a_change_logged_during_an_older_write_and_not_marked_yet_is_waited_for() {
    let site = Site::new();
    let rig = Rig::new(&site, 32, 8);
    rig.change(0, 3);
    let gate = rig.disks[0].hold(Op::Write);
    thread::scope(|scope| {
        let flush = scope.spawn(|| rig.files[0].flush_file());
        gate.wait_for(1);
        let mut page = rig.files[0].write(3).unwrap();
        let lsn = rig.log.append();
        let checkpoint = rig.begun(CheckpointOptions::now());
        gate.open();
        flush.join().unwrap().unwrap();
        thread::sleep(Duration::from_millis(20));
        assert!(checkpoint.result().is_none(), "[CKP-1]");
        fill(&mut page, lsn.0);
        page.mark_dirty(lsn);
        drop(page);
        assert!(checkpoint.wait().unwrap().redo >= lsn);
        assert_eq!(on_disk(&rig.files[0], 3), lsn.0, "[CKP-1]");
    });
}

#[test]
fn a_file_that_was_made_longer_before_the_record_of_it_is_synced_by_a_checkpoint_after_that() {
    let site = Site::new();
    let rig = Rig::new(&site, 32, 8);
    rig.change(0, 3);
    let gate = rig.disks[0].hold(Op::Write);
    let earlier = rig.begun(CheckpointOptions::now());
    gate.wait_for(1);
    // During a checkpoint, which may or may not sync it.
    rig.files[0].extend(4).unwrap();
    let lsn = rig.log.append();
    let syncs = rig.disks[0].count(Op::SyncData);
    gate.open();
    assert!(earlier.wait().unwrap().redo < lsn);
    assert!(rig.disks[0].count(Op::SyncData) > syncs, "[CKS-1] with what it has written");

    // No page is dirty: only the length has changed.
    rig.files[0].extend(4).unwrap();
    let lsn = rig.log.append();
    let syncs = rig.disks[0].count(Op::SyncData);
    let report = rig.checkpoint().unwrap();
    assert!(report.redo >= lsn, "the record is not read again");
    assert_eq!((report.pages, rig.disks[0].count(Op::SyncData)), (0, syncs + 1), "[CKP-1]");
}

#[test]
fn a_record_of_an_extension_that_comes_later_is_not_covered_by_the_checkpoint_in_between() {
    // The reason why the documentation of `PagedFile::extend` requires the other order.
    let site = Site::new();
    let rig = Rig::new(&site, 32, 8);
    let lsn = rig.log.append();
    let report = rig.checkpoint().unwrap();
    let syncs = rig.disks[0].count(Op::SyncData);
    rig.files[0].extend(4).unwrap();
    assert!(report.redo >= lsn, "the record is not read again");
    assert_eq!(rig.disks[0].count(Op::SyncData), syncs, "and the extension is not durable");
}

#[test]
fn a_page_latched_and_not_changed_is_no_reason_to_write_it() {
    let site = Site::new();
    let rig = Rig::new(&site, 32, 8);
    let before = rig.disks[0].count(Op::Write);
    let page = rig.files[0].write(3).unwrap();
    let checkpoint = rig.begun(CheckpointOptions::now());
    drop(page);
    assert_eq!(checkpoint.wait().unwrap().pages, 0);
    assert_eq!(rig.disks[0].count(Op::Write), before);
}

#[test]
fn what_others_write_meanwhile_is_not_written_again() {
    let site = Site::new();
    let rig = Rig::new(&site, 64, 40);
    rig.change_all(0, 0..40);
    let checkpoint = rig.begun(CheckpointOptions::spread(LONG));
    rig.files[0].flush_file().unwrap();
    checkpoint.hurry();
    let report = checkpoint.wait().unwrap();
    assert_eq!((report.pages + report.pages_by_others, report.pages_invalidated), (40, 0));
    assert!(report.pages_by_others > 30, "{report}");
}

#[test]
fn what_others_try_to_write_meanwhile_and_cannot_is_still_due() {
    let site = Site::new();
    let rig = Rig::new(&site, 64, 40);
    let lsns = rig.change_all(0, 0..40);
    let checkpoint = rig.begun(CheckpointOptions::spread(LONG));
    rig.disks[0].fail(Op::Write, OsError::ENOSPC);
    rig.files[0].flush_file().unwrap_err();
    rig.disks[0].heal();
    checkpoint.hurry();
    let report = checkpoint.wait().unwrap();
    assert_eq!((report.pages, report.pages_by_others), (40, 0), "[CKW-2]");
    let found: Vec<u64> = (0..40).map(|block| on_disk(&rig.files[0], block)).collect();
    assert_eq!(found, lsns, "[CKP-1]");
}

#[test]
fn what_is_dirtied_later_is_not_its_business() {
    let site = Site::new();
    let rig = Rig::new(&site, 64, 40);
    rig.change_all(0, 0..20);
    let checkpoint = rig.begun(CheckpointOptions::spread(LONG));
    let later = rig.change_all(0, 20..40);
    checkpoint.hurry();
    let report = checkpoint.wait().unwrap();
    assert_eq!(report.pages, 20);
    assert!(report.redo.0 < later[0]);
    assert_eq!(rig.dirty_blocks(0), (20..40).collect::<Vec<_>>());
}

#[test]
fn pages_that_go_with_their_file_are_not_missed() {
    let site = Site::new();
    let rig = Rig::new(&site, 128, 40);
    (0..2).for_each(|file| drop(rig.change_all(file, 0..40)));
    let checkpoint = rig.begun(CheckpointOptions::spread(LONG));
    rig.files[0].drop_file().unwrap();
    rig.files[1].truncate(10).unwrap();
    checkpoint.hurry();
    let report = checkpoint.wait().unwrap();
    assert_eq!(report.pages + report.pages_invalidated, 80, "{report}");
    assert!(report.pages_invalidated > 60, "{report}");
    assert_eq!(rig.log.redo_points(), [report.redo]);
    (0..10).for_each(|block| assert_eq!(on_disk(&rig.files[1], block), read(&rig.files[1], block)));
    assert_eq!(rig.files[1].path().metadata().unwrap().len(), 10 * PAGE as u64);
}

#[test]
fn who_asks_while_one_is_under_way_shares_the_next() {
    let site = Site::new();
    let rig = Rig::new(&site, 64, 40);
    rig.change_all(0, 0..40);
    let first = rig.begun(CheckpointOptions::spread(LONG));
    let lsn = rig.change(1, 0);
    let joined =
        [(); 2].map(|()| rig.pool.start_checkpoint(CheckpointOptions::spread(LONG)).unwrap());
    assert!(joined.iter().all(|it| it.progress().is_some_and(|it| it.phase == Phase::Waiting)));
    first.hurry();
    let before = first.wait().unwrap().redo;
    assert!(before < lsn);
    joined[0].hurry();
    let redo = joined.map(|checkpoint| checkpoint.wait().unwrap().redo);
    assert!(redo[0] >= lsn && redo[0] == redo[1], "[DSK-1] {redo:?}");
    assert_eq!(rig.log.redo_points(), [before, redo[0]], "[DSK-1]");
}

#[test]
fn who_wants_one_now_hurries_the_one_under_way() {
    let site = Site::new();
    let rig = Rig::new(&site, 64, 40);
    rig.change_all(0, 0..40);
    let slow = rig.begun(CheckpointOptions::spread(LONG));
    let lsn = rig.change(1, 0);
    // The watchdog ends the test if it takes as long as the other checkpoint would.
    let now = rig.checkpoint().unwrap();
    let slow = slow.wait().unwrap();
    assert!(slow.redo < lsn && now.redo >= lsn);
    assert_eq!(on_disk(&rig.files[1], 0), lsn.0);
}

#[test]
fn a_pool_that_goes_breaks_its_checkpoint_off_and_loses_nothing() {
    for close in [true, false] {
        let site = Site::new();
        let path = if close { "closed" } else { "dropped" };
        let rig = Rig::new(&site, 64, 40);
        let lsns = rig.change_all(0, 0..40);
        let checkpoint = rig.begun(CheckpointOptions::spread(LONG));
        let Rig { pool, log, files, .. } = rig;
        if close {
            pool.close().unwrap();
        }
        let file = files[0].path().to_owned();
        drop((pool, files));
        assert!(matches!(checkpoint.wait(), Err(Error::Closed)), "[DSK-1] {path}");
        assert_eq!(log.redo_points(), [], "[CKP-1] {path}");
        let bytes = std::fs::read(&file).unwrap();
        let found: Vec<u64> = bytes.chunks(PAGE).map(crate::site::number_in).collect();
        assert_eq!(found, lsns, "{path}");
    }
}

/// For each page, the changes that were logged, oldest first.
type Logged = Arc<Mutex<BTreeMap<(usize, u32), Vec<Lsn>>>>;

/// Pages whose version on disk is older than the log up to `redo`.
fn behind(paths: &[PathBuf; 2], logged: &Logged, redo: Lsn) -> Vec<String> {
    let files = paths.each_ref().map(|path| File::open(path).unwrap());
    let logged = logged.lock().unwrap();
    let mut behind = Vec::new();
    for ((file, block), lsns) in &*logged {
        let Some(needed) = lsns.iter().filter(|lsn| **lsn <= redo).max() else { continue };
        let mut bytes = [0; 8];
        // Not the whole page: it may be being written.
        files[*file].read_exact_at(&mut bytes, u64::from(*block) * PAGE as u64 + 8).unwrap();
        let found = Lsn(u64::from_le_bytes(bytes));
        if found < *needed {
            behind
                .push(format!("{} {block}: {found} on disk, {needed} before {redo}", NAMES[*file]));
        }
    }
    behind
}

fn writes(file: (usize, &PagedFile), log: &Log, logged: &Logged, seed: u64, over: &AtomicBool) {
    let (number, file) = file;
    let mut random = fastrand::Rng::with_seed(seed);
    while !over.load(Ordering::SeqCst) {
        let block = random.u32(0..file.blocks());
        let mut page = file.write(block).unwrap();
        let lsn = {
            let mut logged = logged.lock().unwrap();
            let lsn = log.append();
            logged.entry((number, block)).or_default().push(lsn);
            lsn
        };
        if random.u32(0..10) == 0 {
            thread::sleep(Duration::from_micros(random.u64(0..1000)));
        }
        fill(&mut page, lsn.0);
        page.mark_dirty(lsn);
        if random.u32(0..50) == 0 {
            drop(page);
            file.flush_file().unwrap();
        }
    }
}

#[test]
fn when_the_log_receives_a_redo_point_every_change_before_it_is_on_disk() {
    let site = Site::new();
    let (logged, late) = (Logged::default(), Arc::new(Mutex::new(Vec::new())));
    let paths = NAMES.map(|name| site.path(name).join("table"));
    let log = Log::watched({
        let (logged, late) = (Arc::clone(&logged), Arc::clone(&late));
        move |redo| late.lock().unwrap().extend(behind(&paths, &logged, redo))
    });
    // Too small for both files, so that pages are evicted as well.
    let rig = Rig::with_log(&site, 24, 30, log);
    let over = AtomicBool::new(false);
    let checkpoints = 60;
    thread::scope(|scope| {
        let _ends = Ends(&over);
        for seed in 0..4 {
            let (rig, logged, over) = (&rig, &logged, &over);
            let file = seed as usize % 2;
            scope.spawn(move || writes((file, &rig.files[file]), &rig.log, logged, seed, over));
        }
        (0..checkpoints).for_each(|_| drop(rig.checkpoint().unwrap()));
    });
    let late = late.lock().unwrap();
    assert!(late.is_empty(), "[CKP-1] {} pages, such as {}", late.len(), late[0]);
    assert_eq!(rig.log.redo_points().len(), checkpoints);
}

#[test]
fn files_that_come_and_go_meanwhile_are_no_trouble() {
    let site = Site::new();
    let rig = Rig::new(&site, 96, 4);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _ends = Ends(&over);
        for name in NAMES {
            let (rig, over) = (&rig, &over);
            scope.spawn(move || {
                let options = create().tablespace(name);
                while !over.load(Ordering::SeqCst) {
                    let files: Vec<PagedFile> = (0..4)
                        .map(|file| {
                            rig.pool.open_file(&format!("passing {file}"), &options).unwrap()
                        })
                        .collect();
                    for file in &files {
                        file.extend(8).unwrap();
                        for block in 0..8 {
                            change(file, &rig.log, block);
                        }
                    }
                    files.iter().rev().for_each(|file| file.drop_file().unwrap());
                }
            });
        }
        for checkpoint in 0..40 {
            let file = &rig.files[checkpoint % 2];
            rig.change_all(checkpoint % 2, 0..4);
            rig.checkpoint().unwrap();
            let found: Vec<u64> = (0..4).map(|block| on_disk(file, block)).collect();
            let expected: Vec<u64> = (0..4).map(|block| read(file, block)).collect();
            assert_eq!(found, expected, "[CKP-1]");
        }
    });
}

#[test]
fn pages_may_be_cut_away_while_others_mark_them_dirty() {
    let site = Site::new();
    let rig = Rig::new(&site, 96, 8);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _ends = Ends(&over);
        for seed in 0..3 {
            let (rig, over) = (&rig, &over);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                while !over.load(Ordering::SeqCst) {
                    match rig.files[0].write(random.u32(0..8)) {
                        Ok(mut page) => page.mark_dirty(rig.log.append()),
                        Err(Error::PastEnd { .. } | Error::Invalidated { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
        for _ in 0..2000 {
            rig.files[0].truncate(0).unwrap();
            rig.files[0].extend(8).unwrap();
        }
    });
    rig.checkpoint().unwrap();
    assert_eq!(rig.dirty_blocks(0), []);
}
