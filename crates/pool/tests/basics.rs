//! A pool as its users see it: pages come back, dirty ones reach the disk, frames come free.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::time::Duration;

use forebay::{BufferPool, Checksum, Error, FileOptions, Lsn, StrategyKind};

fn pool(directory: &std::path::Path, frames: u64) -> BufferPool {
    BufferPool::builder()
        .frames(frames)
        .page_size("4 KiB")
        .directory(directory)
        .checksum(Checksum::Crc32c { offset: 0 })
        .frame_wait(Duration::from_millis(50))
        .build()
        .unwrap()
}

#[test]
fn pages_survive_eviction_closing_and_reopening() {
    let directory = tempfile::tempdir().unwrap();
    let create = FileOptions::new().create(true);
    {
        let pool = pool(directory.path(), 8);
        let file = pool.open_file("table", &create).unwrap();
        assert_eq!(file.extend(100).unwrap(), 0..100);
        for block in 0..100 {
            let mut page = file.write(block).unwrap();
            page[8..12].copy_from_slice(&block.to_le_bytes());
            page.mark_dirty(Lsn::NONE);
        }
        for block in 0..100 {
            assert_eq!(file.read(block).unwrap()[8..12], block.to_le_bytes());
            let mut bytes = [0; 4];
            file.copy(block, 8, &mut bytes).unwrap();
            assert_eq!(bytes, block.to_le_bytes());
        }
        pool.close().unwrap();
    }
    let pool = pool(directory.path(), 8);
    let file = pool.open_file("table", &FileOptions::new()).unwrap();
    assert_eq!(file.blocks(), 100);
    for block in (0..100).rev() {
        assert_eq!(file.read(block).unwrap()[8..12], block.to_le_bytes());
    }
    println!("{}", pool.stats());
    println!("{}", pool.stats().explain());
}

#[test]
fn all_frames_pinned_is_an_error_after_the_stated_wait() {
    let directory = tempfile::tempdir().unwrap();
    let pool = pool(directory.path(), 8);
    let file = pool.open_file("table", &FileOptions::new().create(true)).unwrap();
    file.extend(9).unwrap();
    let pins: Vec<_> = (0..8).map(|block| file.pin(block).unwrap()).collect();
    let error = file.read(8).unwrap_err();
    assert!(matches!(error, Error::NoFreeFrame { pinned: 8, capacity: 8, .. }), "{error}");
    assert_eq!(pool.view().iter().filter(|frame| frame.pins == 1).count(), 8);
    drop(pins);
    assert!(file.read(8).is_ok());
}

#[test]
fn a_dropped_file_is_gone_for_whoever_asks_and_stays_for_whoever_has_it() {
    let directory = tempfile::tempdir().unwrap();
    let pool = pool(directory.path(), 8);
    let file = pool.open_file("table", &FileOptions::new().create(true)).unwrap();
    file.extend(4).unwrap();
    let mut page = file.write(2).unwrap();
    page[9] = 7;
    let pin = page.into_pin();
    file.drop_file().unwrap();
    assert!(matches!(file.read(2), Err(Error::Gone { .. })));
    assert!(matches!(pin.latch_shared(), Err(Error::Gone { .. })));
    drop(pin);
    assert_eq!(pool.stats().frames_free, 8);
    let again = pool.open_file("table", &FileOptions::new().create_new(true)).unwrap();
    assert_eq!(again.blocks(), 0);
}

#[test]
fn a_bulk_read_takes_no_more_than_its_ring() {
    let directory = tempfile::tempdir().unwrap();
    let pool = pool(directory.path(), 64);
    let hot = pool.open_file("hot", &FileOptions::new().create(true)).unwrap();
    let big = pool.open_file("big", &FileOptions::new().create(true)).unwrap();
    hot.extend(48).unwrap();
    big.extend(640).unwrap();
    for _ in 0..3 {
        (0..48).for_each(|block| drop(hot.read(block).unwrap()));
    }
    let scan = pool.strategy(StrategyKind::BulkRead);
    let before = pool.stats();
    (0..640).for_each(|block| drop(big.read_with(block, &scan).unwrap()));
    let evicted = (0..48).filter(|&block| !hot.is_resident(block)).count();
    assert!(evicted <= scan.ring_frames().unwrap(), "{evicted}");
    println!("{}", pool.stats().since(&before));
}
