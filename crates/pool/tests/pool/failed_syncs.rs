//! Failed syncs: the tablespace refuses writes from then on, with the reason; reading continues.

use std::sync::Arc;

use forebay::{BufferPool, Error, FileOptions, PagedFile, Tablespace};
use forebay_io::{Op, OsError};

use crate::disk::Disk;
use crate::site::{Site, create, numbered, on_disk, read, write};

struct Two {
    pool: BufferPool,
    disk: Arc<Disk>,
    bad: PagedFile,
    sibling: PagedFile,
    good: PagedFile,
}

/// A tablespace whose syncs fail from now on, with two files, and another one without faults.
fn two_tablespaces(site: &Site) -> Two {
    let (io, disk) = Disk::open();
    let pool = Site::bare(16)
        .cleaner(false)
        .tablespace(Tablespace::new("bad", site.path("bad")).io(io))
        .tablespace(Tablespace::new("good", site.path("good")))
        .build()
        .unwrap();
    let bad = numbered(&pool, "table", 30, 0);
    let sibling = numbered(&pool, "sibling", 4, 0);
    let good = pool.open_file("table", &create().tablespace("good")).unwrap();
    good.extend(4).unwrap();
    disk.fail(Op::SyncData, OsError::EIO);
    Two { pool, disk, bad, sibling, good }
}

#[track_caller]
fn is_failed(error: &Error) {
    let Error::Failed { tablespace, first } = error else {
        panic!("[TBS-1] {error}");
    };
    assert_eq!(&**tablespace, "bad", "[TBS-1]");
    assert!(matches!(&**first, forebay_io::Error::Io { source: OsError::EIO, .. }), "{first}");
}

#[test]
fn after_a_failed_sync_nothing_in_the_tablespace_is_written_or_synced() {
    let site = Site::new();
    let Two { pool, disk, bad, sibling, good } = two_tablespaces(&site);
    write(&bad, 1, 100);
    bad.flush_file().unwrap();
    is_failed(&bad.sync().unwrap_err());
    // The disk works again, but is not trusted any more.
    disk.heal();
    let written = || disk.seen().iter().filter(|seen| seen.op != Op::Read).count();
    let before = written();
    for file in [&bad, &sibling] {
        is_failed(&file.sync().unwrap_err());
        is_failed(&file.extend(1).unwrap_err());
        is_failed(&file.append().unwrap_err());
        is_failed(&file.truncate(2).unwrap_err());
        write(file, 0, 77);
        is_failed(&file.flush_file().unwrap_err());
        is_failed(&file.clone().close().unwrap_err());
        assert_eq!((read(file, 0), on_disk(file, 0)), (77, 0), "[TBS-1]");
    }
    is_failed(&pool.flush_and_sync().unwrap_err());
    assert_eq!(written(), before, "[TBS-1]");

    write(&good, 0, 5);
    good.flush_file().unwrap();
    good.sync().unwrap();
    good.extend(1).unwrap();
    assert_eq!(on_disk(&good, 0), 5);
}

#[test]
fn reading_goes_on_in_a_failed_tablespace() {
    let site = Site::new();
    let Two { pool, disk, bad, sibling, good: _good } = two_tablespaces(&site);
    is_failed(&sibling.sync().unwrap_err());
    for block in 0..30 {
        assert_eq!(read(&bad, block), u64::from(block));
    }
    // Dirty pages stay; the error occurs when they fill the pool.
    let writes = disk.count(Op::Write);
    let (mut kept, mut refused) = (Vec::new(), 0);
    for block in 0..30 {
        match bad.write(block) {
            Ok(mut page) => {
                crate::site::set(&mut page, 500);
                kept.push(block);
            }
            Err(error) => {
                is_failed(&error);
                refused += 1;
            }
        }
    }
    assert_eq!((kept.len(), refused), (16, 14), "[TBS-1]");
    assert!(kept.iter().all(|block| read(&bad, *block) == 500));
    assert_eq!(disk.count(Op::Write), writes, "[TBS-1]");
    // A file that cannot be written can still be dropped.
    bad.drop_file().unwrap();
    assert_eq!(pool.stats().frames_free, 16);
    assert_eq!(read(&sibling, 3), 3);
}

#[test]
fn a_failed_tablespace_lets_its_pool_be_closed_and_reopened() {
    let site = Site::new();
    let two = two_tablespaces(&site);
    write(&two.good, 0, 5);
    is_failed(&two.pool.close().unwrap_err());
    drop((two.pool, two.bad, two.sibling, two.good));
    let pool = Site::bare(8)
        .tablespace(Tablespace::new("bad", site.path("bad")))
        .tablespace(Tablespace::new("good", site.path("good")))
        .build()
        .unwrap();
    let bad = pool.open_file("table", &FileOptions::new()).unwrap();
    assert_eq!((bad.blocks(), read(&bad, 29)), (30, 29));
    let good = pool.open_file("table", &FileOptions::new().tablespace("good")).unwrap();
    assert_eq!(read(&good, 0), 5);
    bad.sync().unwrap();
    good.sync().unwrap();
}

#[test]
fn a_sync_that_fails_for_lack_of_space_is_a_failed_sync() {
    let site = Site::new();
    let Two { disk, bad, .. } = two_tablespaces(&site);
    disk.fail(Op::SyncData, OsError::ENOSPC);
    let Error::Failed { first, .. } = bad.sync().unwrap_err() else {
        panic!("[TBS-1]");
    };
    let first = first.to_string();
    let Error::Failed { first: again, .. } = bad.extend(1).unwrap_err() else {
        panic!("[TBS-1]");
    };
    assert_eq!(again.to_string(), first, "the first failure is the one that is reported");
}
