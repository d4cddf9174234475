//! Pages obtained without waiting or not at all, and pages evicted on request.

use std::thread;

use forebay::{Error, FileOptions};
use forebay_io::{Op, OsError};

use crate::site::{Site, is_dirty, is_io, number_in, numbered, on_disk, read, reopened, write};

#[test]
fn what_is_not_in_memory_is_not_read_in() {
    let site = Site::new();
    let (pool, disk) = site.rigged(8);
    let file = numbered(&pool, "table", 3, 10);
    let file = reopened(&pool, file);
    let reads = disk.count(Op::Read);
    for block in 0..3 {
        assert!(file.try_read(block).unwrap().is_none());
        assert!(file.try_write(block).unwrap().is_none());
        assert!(file.read_if_resident(block).unwrap().is_none());
    }
    assert_eq!(disk.count(Op::Read), reads);
    assert_eq!(read(&file, 1), 11);
    assert_eq!(number_in(&file.try_read(1).unwrap().unwrap()), 11);
    assert_eq!(number_in(&file.read_if_resident(1).unwrap().unwrap()), 11);
    crate::site::set(&mut file.try_write(1).unwrap().unwrap(), 99);
    assert_eq!(read(&file, 1), 99);
    assert!(file.try_read(0).unwrap().is_none(), "its neighbour is still not there");
}

#[test]
fn a_latch_in_the_way_is_not_waited_for_but_by_whom_it_is_said_to_be() {
    let site = Site::new();
    let (pool, _disk) = site.rigged(8);
    let file = numbered(&pool, "table", 1, 10);
    let reader = file.read(0).unwrap();
    assert!(file.try_write(0).unwrap().is_none());
    assert!(file.try_read(0).unwrap().is_some());
    drop(reader);
    let mut writer = file.write(0).unwrap();
    assert!(file.try_read(0).unwrap().is_none());
    assert!(file.try_write(0).unwrap().is_none());
    thread::scope(|scope| {
        let waits = scope.spawn(|| number_in(&file.read_if_resident(0).unwrap().unwrap()));
        crate::site::wait_until("the reader", || pool.view()[0].pins == 2);
        crate::site::set(&mut writer, 7);
        drop(writer);
        assert_eq!(waits.join().unwrap(), 7);
    });
    assert_eq!(pool.stats().frames_pinned, 0);
}

#[test]
fn what_is_not_there_at_all_is_an_error() {
    let site = Site::new();
    let pool = site.pool(8);
    let file = numbered(&pool, "table", 1, 10);
    assert!(matches!(file.try_read(1), Err(Error::PastEnd { block: 1, .. })));
    assert!(matches!(file.try_write(1), Err(Error::PastEnd { .. })));
    assert!(matches!(file.read_if_resident(1), Err(Error::PastEnd { .. })));
    assert!(matches!(file.evict(1), Err(Error::PastEnd { .. })));
    file.flush_file().unwrap();
    file.close().unwrap();
    let file = pool.open_file("table", &FileOptions::new().read_only(true)).unwrap();
    assert_eq!(number_in(&file.read(0).unwrap()), 10);
    assert!(matches!(file.try_write(0), Err(Error::ReadOnly { .. })));
}

#[test]
fn an_evicted_page_is_written_first_and_stays_while_a_thread_has_it() {
    let site = Site::new();
    let (pool, disk) = site.rigged(8);
    let file = numbered(&pool, "table", 2, 10);
    write(&file, 0, 77);
    assert!(is_dirty(&pool, 0));
    let pin = file.pin(0).unwrap();
    assert!(!file.evict(0).unwrap());
    assert_eq!(number_in(&pin.latch_shared().unwrap()), 77, "[FRM-1]");
    drop(pin);
    write(&file, 0, 78);
    disk.fail(Op::Write, OsError::EIO);
    assert!(is_io(&file.evict(0).unwrap_err(), OsError::EIO));
    assert!(is_dirty(&pool, 0), "[OUT-2]");
    disk.heal();
    assert!(file.evict(0).unwrap());
    assert!(!file.is_resident(0) && file.is_resident(1));
    assert_eq!(on_disk(&file, 0), 78, "[VIC-1]");
    assert!(!file.evict(0).unwrap(), "it is not there any more");
    assert_eq!(read(&file, 0), 78);
}
