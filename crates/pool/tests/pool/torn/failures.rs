//! Disks that fail while pages are being protected: pages stay dirty, and torn pages can be repaired.

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::sync::Arc;

use forebay::{Error, FileOptions};
use forebay_io::{Op, OsError};

use super::{DOUBLE_WRITE, double, position, reopen, rigged, tear};
use crate::disk::{Disk, Fault};
use crate::site::{PAGE, Site, is_dirty, is_io, numbered, on_disk, read, skip, write};

/// Fails every `op` on the double-write file.
fn fail_copies(disk: &Disk, op: Op, error: OsError) {
    disk.rule(move |it| match it.op() == op && it.file().path().ends_with(DOUBLE_WRITE) {
        true => Fault::Fail(error),
        false => Fault::None,
    });
}

/// Fails every in-place write of these blocks.
fn fail_in_place(disk: &Arc<Disk>, error: OsError, fails: impl Fn(u64) -> bool + Send + 'static) {
    disk.rule(move |it| {
        let in_place = it.op() == Op::Write && !it.file().path().ends_with(DOUBLE_WRITE);
        match in_place && fails(it.position() / PAGE as u64) {
            true => Fault::Fail(error),
            false => Fault::None,
        }
    });
}

#[test]
fn a_copy_that_cannot_be_written_leaves_the_pages_dirty_and_their_file_alone() {
    let site = Site::new();
    let (pool, disk, _) = rigged(&site, 64);
    let file = numbered(&pool, "table", 100, 0);
    for error in [OsError::ENOSPC, OsError::EIO] {
        // One group, and several.
        for blocks in [1, 60] {
            (0..blocks).for_each(|block| write(&file, block, 500));
            fail_copies(&disk, Op::Write, error);
            let failed = file.flush_file().unwrap_err();
            assert!(is_io(&failed, error) && failed.to_string().contains(DOUBLE_WRITE), "{failed}");
            assert!((0..blocks).all(|block| is_dirty(&pool, block)), "[OUT-2]");
            disk.heal();
            assert_eq!(file.flush_file().unwrap(), u64::from(blocks));
            assert!((0..blocks).all(|block| on_disk(&file, block) == 500));
            (0..blocks).for_each(|block| write(&file, block, u64::from(block)));
            file.flush_file().unwrap();
        }
    }
    // No group was kept back for them: the ring wraps around.
    for round in 0..200 {
        write(&file, round % 100, 7);
        file.flush_file().unwrap();
    }
}

#[test]
fn a_short_write_of_copies_is_continued() {
    let site = Site::new();
    let (pool, disk, unsynced) = rigged(&site, 64);
    let file = numbered(&pool, "table", 30, 0);
    file.sync().unwrap();
    disk.rule(|_| Fault::Short(5000));
    (0..30).for_each(|block| write(&file, block, 900));
    file.flush_file().unwrap();
    disk.heal();
    unsynced.crash(&site.path("main"), &site.path("crashed"), || 0b1001_0001);
    let pool = reopen(&site.path("crashed"));
    let file = pool.open_file("table", &FileOptions::new()).unwrap();
    assert!((0..30).all(|block| read(&file, block) == 900));
}

#[test]
fn copies_that_cannot_be_synced_fail_the_tablespace_before_a_page_is_written() {
    let site = Site::new();
    let (pool, disk, _) = rigged(&site, 64);
    let file = numbered(&pool, "table", 4, 0);
    write(&file, 1, 500);
    fail_copies(&disk, Op::SyncData, OsError::EIO);
    let error = file.flush_file().unwrap_err();
    assert!(matches!(error, Error::Failed { .. }), "{error}");
    disk.heal();
    let error = file.flush_file().unwrap_err();
    assert!(matches!(error, Error::Failed { .. }), "[TBS-1] {error}");
    assert!(is_dirty(&pool, 1), "[OUT-2]");
    assert_eq!((read(&file, 1), on_disk(&file, 1)), (500, 1), "[DBW-1]");
}

/// A write that fails may tear the page; its copy must survive any number of other copies.
#[test]
fn a_page_torn_by_a_failed_write_can_be_repaired_long_after() {
    let site = Site::new();
    let (pool, disk, _) = rigged(&site, 64);
    let [file, other] = ["table", "other"].map(|name| numbered(&pool, name, 100, 0));
    pool.flush_and_sync().unwrap();
    let before = fs::read(file.path()).unwrap();
    write(&file, 3, 500);
    fail_in_place(&disk, OsError::EIO, |block| block == 3);
    assert!(is_io(&file.flush_file().unwrap_err(), OsError::EIO));
    for round in 0..300 {
        write(&other, 10 + round % 80, 600);
        other.flush_file().unwrap();
        if round % 50 == 0 {
            pool.flush_and_sync().unwrap_err();
            file.sync().unwrap();
        }
    }
    file.sync().unwrap();
    let crashed = site.path("crashed");
    super::copy(&site.path("main"), &crashed);
    let mut torn = before[3 * PAGE..4 * PAGE].to_vec();
    torn[512..1024].fill(0xee);
    tear(&crashed.join("table"), 3 * PAGE as u64, &torn, 0xff);
    let remains = reopen(&crashed);
    let remains = remains.open_file("table", &FileOptions::new()).unwrap();
    assert_eq!(read(&remains, 3), 500, "[DWR-1]");
    // On the repaired disk, it needs no copy any more.
    disk.heal();
    file.flush_file().unwrap();
    assert_eq!(on_disk(&file, 3), 500);
    pool.close().unwrap();
}

#[test]
fn when_failed_writes_hold_all_copies_that_is_reported_and_repairing_the_disk_helps() {
    let site = Site::new();
    let (pool, disk, _) = rigged(&site, 128);
    let file = numbered(&pool, "table", 100, 0);
    file.sync().unwrap();
    fail_in_place(&disk, OsError::ENOSPC, |_| true);
    let mut refused = 0;
    for block in 0..80 {
        write(&file, block, 500);
        // A separate batch for each page: a flush of the file would write the others along with it.
        match pool.close() {
            Err(Error::Unprotected { pages, .. }) => {
                assert!(pages >= 32, "{pages}");
                refused += 1;
            }
            Err(error) => assert!(is_io(&error, OsError::ENOSPC), "{error}"),
            Ok(_) => panic!("nothing can be written"),
        }
    }
    disk.heal();
    assert_eq!(file.flush_file().unwrap(), 80, "refused {refused} times before");
    assert!((0..80).all(|block| on_disk(&file, block) == 500));
    pool.close().unwrap();
}

#[test]
fn a_file_that_cannot_be_synced_to_make_room_fails_the_tablespace() {
    let site = Site::new();
    let (pool, disk, _) = rigged(&site, 8);
    let file = numbered(&pool, "table", 100, 0);
    file.sync().unwrap();
    disk.rule(|it| match it.op() == Op::SyncData && it.file().path().ends_with("table") {
        true => Fault::Fail(OsError::EIO),
        false => Fault::None,
    });
    let failed = (0..100).find_map(|block| write_and_flush(&file, block).err());
    assert!(matches!(failed, Some(Error::Failed { .. })), "[DWR-1] {failed:?}");
}

fn write_and_flush(file: &forebay::PagedFile, block: u32) -> Result<u64, Error> {
    crate::site::try_write(file, block, 9)?;
    file.flush_file()
}

#[test]
fn a_sector_that_cannot_be_read_is_rewritten() {
    let site = Site::new();
    let (pool, _disk, _) = rigged(&site, 64);
    let file = numbered(&pool, "table", 4, 10);
    super::copy(&site.path("main"), &site.path("crashed"));
    drop(file);
    let (io, disk) = Disk::open();
    let mut bad = true;
    disk.rule(move |it| {
        let here = it.file().path().ends_with("table") && it.position() == 2 * PAGE as u64;
        bad &= !(here && it.op() == Op::Write);
        if bad && here { Fault::Fail(OsError::EIO) } else { Fault::None }
    });
    let main = forebay::Tablespace::new("main", site.path("crashed")).io(io);
    let pool = double(Site::bare(64)).tablespace(main).build().unwrap();
    assert!(super::repaired(&pool).is_some(), "{:?}", pool.notes());
    assert_eq!(read(&pool.open_file("table", &FileOptions::new()).unwrap(), 2), 12);
}

#[test]
fn an_opening_that_fails_half_way_can_be_tried_again() {
    let site = Site::new();
    let (pool, _disk, unsynced) = rigged(&site, 64);
    let file = numbered(&pool, "table", 8, 10);
    file.sync().unwrap();
    (0..8).for_each(|block| write(&file, block, 99));
    file.flush_file().unwrap();
    let crashed = site.path("crashed");
    unsynced.crash(&site.path("main"), &crashed, || 0b0000_0110);
    for op in [Op::Write, Op::SyncData] {
        let (io, disk) = Disk::open();
        let mut seen = 0;
        disk.rule(move |it| {
            seen += u32::from(it.op() == op);
            let third = it.op() == op && (seen == 3 || op == Op::SyncData);
            if third { Fault::Fail(OsError::EIO) } else { Fault::None }
        });
        let main = forebay::Tablespace::new("main", &crashed).io(io);
        let error = double(Site::bare(64)).tablespace(main).build().unwrap_err();
        assert!(is_io(&error, OsError::EIO), "{error}");
    }
    let pool = reopen(&crashed);
    let file = pool.open_file("table", &FileOptions::new()).unwrap();
    assert!((0..8).all(|block| read(&file, block) == 99));
}

#[test]
fn an_invalid_double_write_file_is_reported_and_left_alone() {
    let site = Site::new();
    double(site.builder(64)).build().unwrap().close().unwrap();
    let path = site.path("main").join(DOUBLE_WRITE);
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(b"9", 7).unwrap();
    for pool in [double(site.builder(64)), site.builder(64)] {
        let error = pool.build().unwrap_err();
        assert!(matches!(&error, Error::DoubleWrite { file } if **file == path), "{error}");
    }
    // In contrast, a file that was never completed is created again.
    file.set_len(100).unwrap();
    file.write_all_at(&[0; 100], 0).unwrap();
    double(site.builder(64)).build().unwrap();
}

/// Earlier versions wrote them. Without the segments' size, a page would be looked for in the wrong file.
#[test]
fn copies_of_a_file_in_segments_are_refused() {
    let site = Site::new();
    let (pool, _disk, unsynced) = rigged(&site, 64);
    let file = numbered(&pool, "table", 8, 10);
    file.sync().unwrap();
    (0..8).for_each(|block| write(&file, block, 99));
    file.flush_file().unwrap();
    let crashed = site.path("crashed");
    unsynced.crash(&site.path("main"), &crashed, || 0b0000_0110);
    let path = crashed.join(DOUBLE_WRITE);
    let copies = fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let mut marked = 0;
    for group in 0..64 {
        let mut header = [0; 4096];
        let at = 4096 + group * (copies.metadata().unwrap().len() - 4096) / 64;
        copies.read_exact_at(&mut header, at).unwrap();
        if header.starts_with(b"FbDbGrp") {
            header[40..48].copy_from_slice(&(1_u64 << 30).to_le_bytes());
            let sum = crc32c::crc32c(&header[12..]);
            header[8..12].copy_from_slice(&sum.to_le_bytes());
            copies.write_all_at(&header, at).unwrap();
            marked += 1;
        }
    }
    assert!(marked > 0);
    let error = double(Site::bare(64)).tablespace(forebay::Tablespace::new("main", &crashed));
    let error = error.build().unwrap_err();
    assert!(matches!(&error, Error::DoubleWrite { file } if **file == path), "{error}");
}

#[test]
fn a_directory_that_cannot_be_written_is_reported_at_opening() {
    let site = Site::new();
    drop(site.pool(64));
    let path = site.path("main").join(DOUBLE_WRITE);
    std::os::unix::fs::symlink(site.path("nowhere/at all"), &path).unwrap();
    let error = double(site.builder(64)).build().unwrap_err();
    assert!(error.to_string().contains(DOUBLE_WRITE), "{error}");
    assert!(matches!(error, Error::Io(forebay_io::Error::Open { .. })), "{error}");
    fs::remove_file(&path).unwrap();

    fs::set_permissions(site.path("main"), fs::Permissions::from_mode(0o555)).unwrap();
    let built = double(site.builder(64)).build();
    fs::set_permissions(site.path("main"), fs::Permissions::from_mode(0o755)).unwrap();
    match built {
        Ok(_) => skip("a_directory_that_cannot_be_written", "root may write everywhere"),
        Err(error) => {
            assert!(matches!(error, Error::Io(forebay_io::Error::Open { .. })), "{error}");
            assert!(error.to_string().contains(DOUBLE_WRITE), "{error}");
        }
    }
}

#[test]
fn a_file_that_is_closed_leaves_no_copy_behind() {
    let site = Site::new();
    let (pool, _disk, _) = rigged(&site, 64);
    for round in 0..100 {
        let name = format!("table {round}");
        let file = numbered(&pool, &name, 2, 0);
        let (path, _) = position(&file, 0);
        match round % 3 {
            0 => file.close().unwrap(),
            1 => file.drop_file().unwrap(),
            _ => file.truncate(0).unwrap(),
        }
        assert_eq!(path.exists(), round % 3 != 1);
    }
    pool.close().unwrap();
}
