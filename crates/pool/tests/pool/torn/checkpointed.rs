//! Checkpoints protect their writes like all others, and share the syncs that this needs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use forebay::{CheckpointOptions, Error, FileOptions};
use forebay_io::{Op, OsError};

use super::{DOUBLE_WRITE, assert_copies_come_first, double, reopen, rigged};
use crate::disk::Fault;
use crate::site::{Ends, Site, create, is_dirty, numbered, read, write};

#[test]
fn a_crash_at_any_moment_of_a_checkpoint_leaves_every_page_whole() {
    for moment in (1..120).step_by(7) {
        let site = Site::new();
        let (pool, disk, unsynced) = rigged(&site, 128);
        let files = ["one", "two"].map(|name| numbered(&pool, name, 90, 0));
        files.iter().for_each(|file| file.sync().unwrap());
        // Runs of all lengths, so that some groups hold one run and some runs take several groups.
        let due = |block: u32| block % 7 < 3 || block > 70;
        for file in &files {
            (0..90).filter(|it| due(*it)).for_each(|it| write(file, it, 500 + u64::from(it)));
        }
        let (main, crashed) = (site.path("main"), site.path("crashed"));
        let (torn, mut random) = (Arc::clone(&unsynced), fastrand::Rng::with_seed(moment));
        let mut seen = 0;
        let target = crashed.clone();
        disk.rule(move |_| {
            seen += 1;
            if seen == moment {
                torn.crash(&main, &target, || random.u8(..));
            }
            Fault::None
        });
        pool.checkpoint(CheckpointOptions::now()).unwrap();
        disk.heal();
        assert_eq!(unsynced.count(), 0);
        if !crashed.exists() {
            assert!(moment > 30, "it has written nearly nothing");
            continue;
        }
        let pool = reopen(&crashed);
        for name in ["one", "two"] {
            let file = pool.open_file(name, &FileOptions::new()).unwrap();
            for block in 0..90 {
                let number = read(&file, block);
                let allowed = [u64::from(block), 500 + u64::from(block)];
                assert!(
                    allowed[..1 + usize::from(due(block))].contains(&number),
                    "[DBW-1] {number}"
                );
            }
        }
    }
}

#[test]
fn the_runs_of_a_checkpoint_share_the_syncs_of_their_copies() {
    let site = Site::new();
    let (pool, disk, _) = rigged(&site, 512);
    let file = numbered(&pool, "table", 400, 0);
    file.sync().unwrap();
    (0..400).step_by(2).for_each(|block| write(&file, block, 9));
    let before = disk.seen().len();
    let report = pool.checkpoint(CheckpointOptions::now()).unwrap();
    assert_eq!((report.pages, report.requests), (200, 200));
    let seen = disk.seen();
    let of_copies = seen[before..].iter().filter(|it| it.path.ends_with(DOUBLE_WRITE));
    let syncs = of_copies.filter(|it| it.op == Op::SyncData).count();
    assert!((1..=20).contains(&syncs), "{syncs} syncs for 200 runs");
    assert_copies_come_first(&seen);
}

#[test]
fn copies_that_cannot_be_written_fail_the_checkpoint_and_the_next_one_succeeds() {
    let site = Site::new();
    let (pool, disk, _) = rigged(&site, 128);
    let file = numbered(&pool, "table", 60, 0);
    (0..60).step_by(2).for_each(|block| write(&file, block, 77));
    let mut copies = 0;
    disk.rule(move |it| {
        let copy = it.op() == Op::Write && it.file().path().ends_with(DOUBLE_WRITE);
        copies += u32::from(copy);
        if copy && copies > 5 { Fault::Fail(OsError::ENOSPC) } else { Fault::None }
    });
    let error = pool.checkpoint(CheckpointOptions::now()).unwrap_err();
    assert!(matches!(error, Error::Checkpoint { .. }), "{error}");
    assert!((0..60).any(|block| is_dirty(&pool, block)), "[OUT-2]");
    disk.heal();
    pool.checkpoint(CheckpointOptions::now()).unwrap();
    assert!(!(0..60).any(|block| is_dirty(&pool, block)));
    pool.close().unwrap();
}

#[test]
fn checkpoints_during_evictions_and_flushes_get_through_a_small_ring() {
    let site = Site::new();
    let pool = double(site.builder(48)).frame_wait(std::time::Duration::from_secs(20));
    let pool = pool.build().unwrap();
    let files = ["a", "b"].map(|name| {
        let file = pool.open_file(name, &create()).unwrap();
        file.extend(200).unwrap();
        file
    });
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let ends = Ends(&done);
        for thread in 0..3 {
            let (files, done) = (&files, &done);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(thread);
                while !done.load(Ordering::SeqCst) {
                    let file = &files[random.usize(..2)];
                    write(file, random.u32(..200), random.u64(..));
                    if random.u8(..) == 0 {
                        file.flush_file().unwrap();
                    }
                }
            });
        }
        for _ in 0..12 {
            pool.checkpoint(CheckpointOptions::now()).unwrap();
        }
        drop(ends);
    });
    files.iter().for_each(|file| (0..200).for_each(|block| _ = read(file, block)));
    pool.close().unwrap();
}
