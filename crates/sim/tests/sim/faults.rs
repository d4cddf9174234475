//! Faults: each has its documented effect, and the journal records it.

use std::time::{Duration, Instant};

use forebay_io::{Error, OpenOptions, OsError, Request};
use forebay_sim::{Fault, Faults, Operation, What};

use crate::rig::{Rig, SECTOR, sectors};

/// Faults of operations of one kind.
fn on(what: What, fault: Fault) -> impl FnMut(&Operation<'_>) -> Fault + Send + 'static {
    move |operation| if operation.what == what { fault } else { Fault::None }
}

#[test]
fn a_failed_sync_drops_what_was_dirty_and_the_next_one_proves_nothing() {
    let rig = Rig::new();
    let file = rig.file("f");
    rig.write(&file, 0, &sectors(b"old"));
    file.sync_data().unwrap();
    rig.write(&file, SECTOR as u64, &sectors(b"NEWER"));
    assert_eq!(rig.read(&file, 0, 3 * SECTOR), sectors(b"oNE"));
    rig.disk.rule(on(What::Sync, Fault::Fail(OsError::EIO)));
    assert!(matches!(file.sync_data(), Err(Error::Io { source: OsError::EIO, .. })));
    rig.disk.heal();

    // Reads see the old bytes, in a file of the new size.
    assert_eq!(rig.read(&file, 0, 6 * SECTOR), sectors(b"old\0\0\0"));
    assert!(matches!(file.sync_data(), Err(Error::Failed { .. })), "the latch");

    // Without the latch of the process, as after a restart, a second sync succeeds.
    drop(file);
    let file = rig.open("f");
    file.sync_data().unwrap();
    for image in rig.crashes() {
        assert_eq!(image.file("f").unwrap(), sectors(b"old\0\0\0"));
    }
}

#[test]
fn a_failed_sync_through_the_queue_latches_the_file_and_drops_once() {
    let rig = Rig::new();
    let file = rig.file("f");
    rig.write(&file, 0, &sectors(b"x"));
    rig.disk.rule(on(What::Sync, Fault::Fail(OsError::EIO)));
    let at = rig.disk.position();
    let syncs: Vec<_> = (0..3).map(|_| rig.io.submit(Request::sync_data(&file))).collect();
    for sync in syncs {
        assert!(sync.wait().result.unwrap_err().is_failed_sync());
    }
    assert_eq!(rig.disk.position(), at + 1, "the latch comes before the disk");
    assert_eq!(rig.read(&file, 0, SECTOR), sectors(b"\0"));
}

#[test]
fn what_is_written_after_a_failed_sync_began_is_not_dropped() {
    let rig = Rig::new();
    let file = rig.file("f");
    rig.write(&file, 0, &sectors(b"a"));
    rig.disk.rule(on(What::Sync, Fault::Fail(OsError::EIO)));
    file.sync_data().unwrap_err();
    rig.disk.heal();
    drop(file);
    let file = rig.open("f");
    rig.write(&file, SECTOR as u64, &sectors(b"b"));
    file.sync_data().unwrap();
    assert!(rig.crashes().iter().all(|image| image.file("f").unwrap() == sectors(b"\0b")));
}

#[test]
fn an_interrupted_sync_is_repeated_and_drops_nothing() {
    let rig = Rig::new();
    let file = rig.file("f");
    rig.write(&file, 0, &sectors(b"x"));
    let mut left = 3;
    rig.disk.rule(move |operation| match operation.what {
        What::Sync if left > 0 => {
            left -= 1;
            Fault::Fail(OsError::EINTR)
        }
        _ => Fault::None,
    });
    file.sync_data().unwrap();
    assert!(rig.crashes().iter().all(|image| image.file("f").unwrap() == sectors(b"x")));
}

#[test]
fn a_full_disk_refuses_and_changes_nothing() {
    let rig = Rig::new();
    let file = rig.file("f");
    let at = rig.disk.position();
    rig.disk.rule(|_| Fault::Fail(OsError::ENOSPC));
    assert!(matches!(rig.try_write(&file, 0, b"x"), Err(Error::NoSpace { .. })));
    assert!(matches!(file.set_len(10), Err(Error::NoSpace { .. })));
    let create = OpenOptions::new().create(true);
    assert!(matches!(rig.volume.open(&rig.path("g"), &create), Err(Error::Open { .. })));
    rig.volume.make_directory(&rig.path("d")).unwrap_err();
    rig.volume.rename(&rig.path("f"), &rig.path("g")).unwrap_err();
    rig.volume.remove(&rig.path("f")).unwrap_err();
    rig.volume.sync_directory(rig.disk.directory()).unwrap_err();
    assert_eq!((file.len().unwrap(), rig.disk.position()), (0, at));
    assert!(rig.path("f").exists() && !rig.path("g").exists() && !rig.path("d").exists());
}

#[test]
fn short_transfers_are_continued_and_recorded_piece_by_piece() {
    let rig = Rig::new();
    let file = rig.file("f");
    let at = rig.disk.position();
    rig.disk.rule(|_| Fault::Short(700));
    rig.write(&file, 0, &sectors(b"abc"));
    assert_eq!(rig.disk.position(), at + 3);
    assert_eq!(rig.read(&file, 0, 3 * SECTOR), sectors(b"abc"));
    let journal = rig.disk.journal();
    let lens = (0..100).map(|seed| journal.crash(at + 1, seed).file("f").unwrap().len());
    assert_eq!(lens.max(), Some(700), "a power cut between the pieces");
}

#[test]
fn stale_misdirected_and_lost_transfers_report_success() {
    let rig = Rig::new();
    let file = rig.file("f");
    rig.write(&file, 0, &sectors(b"ab"));
    rig.write(&file, 0, &sectors(b"A"));
    rig.disk.rule(on(What::Read, Fault::Stale));
    assert_eq!(rig.read(&file, 0, SECTOR), sectors(b"a"));
    assert_eq!(rig.read(&file, SECTOR as u64, SECTOR), sectors(b"\0"));
    rig.disk.rule(on(What::Read, Fault::Misdirected));
    assert_eq!(rig.read(&file, 0, SECTOR), sectors(b"b"));
    assert_eq!(rig.read(&file, SECTOR as u64, SECTOR), sectors(b"A"));
    rig.disk.rule(on(What::Write, Fault::Lost));
    rig.write(&file, 0, &sectors(b"x"));
    rig.disk.heal();
    file.sync_data().unwrap();
    assert_eq!(rig.read(&file, 0, 2 * SECTOR), sectors(b"Ab"));
    assert!(rig.crashes().iter().all(|image| image.file("f").unwrap() == sectors(b"Ab")));
}

#[test]
fn delays_take_time_and_change_nothing() {
    let rig = Rig::new();
    let file = rig.file("f");
    let delay = Duration::from_millis(20);
    rig.disk.rule(on(What::Write, Fault::Delay(delay)));
    let start = Instant::now();
    rig.write(&file, 0, &sectors(b"x"));
    assert!(start.elapsed() >= delay);
    assert_eq!(rig.read(&file, 0, SECTOR), sectors(b"x"));
}

#[test]
fn dice_fall_as_often_as_they_should_and_the_same_for_the_same_seed() {
    let faults = Faults {
        write_errors: 100,
        full: 50,
        short: 200,
        interrupted: 100,
        sync_errors: 500,
        ..Faults::default()
    };
    let run = |seed| {
        let rig = Rig::new();
        let file = rig.file("f");
        rig.disk.rule(faults.rule(seed));
        let mut results = Vec::new();
        for round in 0..400_u64 {
            let result = rig.try_write(&file, round % 7 * 512, &sectors(b"ab"));
            results.push(result.map_err(|error| error.os_error().unwrap()));
        }
        results.push(file.sync_data().map_err(|error| error.os_error().unwrap()));
        (results, rig.disk.position())
    };
    let (results, position) = run(1);
    assert_eq!((results.clone(), position), run(1));
    assert_ne!(results, run(2).0);
    let count = |error| results.iter().filter(|result| **result == Err(error)).count();
    assert!((20..120).contains(&count(OsError::EIO)), "{}", count(OsError::EIO));
    assert!((5..80).contains(&count(OsError::ENOSPC)), "{}", count(OsError::ENOSPC));
    assert_eq!(count(OsError::EINTR), 0, "what passes is repeated below");
}
