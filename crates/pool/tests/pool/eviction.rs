//! Frames are found while any can be freed, and refused in time when none can.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use forebay::{Error, StrategyKind};
use forebay_io::Op;

use crate::site::{SHORT, Site, create, numbered, on_disk, read, reopened, write};

#[test]
fn all_frames_pinned_is_an_error_after_the_stated_wait() {
    let site = Site::new();
    let pool = site.builder(8).frame_wait(SHORT).build().unwrap();
    let file = numbered(&pool, "table", 9, 0);
    let pins: Vec<_> = (0..8).map(|block| file.pin(block).unwrap()).collect();
    for kind in StrategyKind::ALL {
        let error = file.read_with(8, &pool.strategy(kind)).unwrap_err();
        let Error::NoFreeFrame { pinned, capacity, waited } = error else {
            panic!("[VIC-2] {error}");
        };
        assert_eq!((pinned, capacity), (8, 8), "[VIC-2]");
        assert!(waited >= SHORT, "{waited:?}");
    }
    assert_eq!(pool.view().iter().filter(|frame| frame.pins == 1).count(), 8);
    // Resident pages need no frame.
    assert_eq!(read(&file, 3), 3);
    drop(pins);
    assert_eq!(read(&file, 8), 8);
}

#[test]
fn a_pin_released_during_the_wait_is_found() {
    let site = Site::new();
    // The watchdog ends the test if the read does not notice the release of the pin.
    let pool = site.builder(8).frame_wait(Duration::from_secs(3600)).build().unwrap();
    let file = numbered(&pool, "table", 9, 0);
    for dirty in [false, true] {
        let mut pins: Vec<_> = (0..8).map(|block| file.pin(block).unwrap()).collect();
        if dirty {
            crate::site::set(&mut pins[5].latch_exclusive().unwrap(), 55);
        }
        thread::scope(|scope| {
            let reader = scope.spawn(|| read(&file, 8));
            thread::sleep(Duration::from_millis(30));
            assert!(!reader.is_finished());
            drop(pins.remove(5));
            assert_eq!(reader.join().unwrap(), 8, "[VIC-2]");
        });
        assert!(!file.is_resident(5), "the only page that could go");
    }
    assert_eq!(read(&file, 5), 55, "[VIC-1]");
}

#[test]
fn what_is_pinned_latched_or_in_use_stays_and_what_is_dirty_is_written_first() {
    let site = Site::new();
    let (pool, disk) = site.rigged(8);
    let file = numbered(&pool, "table", 60, 0);
    let file = reopened(&pool, file);
    let pin = file.pin(0).unwrap();
    let page = file.read(1).unwrap();
    let mut changing = file.write(2).unwrap();
    crate::site::set(&mut changing, 200);
    write(&file, 3, 300);
    for _ in 0..3 {
        (10..60).for_each(|block| assert_eq!(read(&file, block), u64::from(block)));
    }
    assert!((0..3).all(|block| file.is_resident(block)), "[VIC-1]");
    assert!(!file.is_resident(3), "[VIC-1]");
    assert_eq!((on_disk(&file, 2), on_disk(&file, 3)), (2, 300), "[VIC-1]");
    let written = disk.seen().into_iter().rev().find(|seen| seen.op == Op::Write).unwrap();
    assert_eq!(written.position, 3 * 4096);
    drop((pin, page, changing));
    assert_eq!((read(&file, 2), read(&file, 3)), (200, 300));
}

#[test]
fn a_dirty_victim_that_is_wanted_again_during_its_write_is_kept() {
    let site = Site::new();
    let (pool, disk) = site.rigged(8);
    let file = numbered(&pool, "table", 20, 0);
    (0..8).for_each(|block| write(&file, block, 100 + u64::from(block)));
    let gate = disk.hold(Op::Write);
    thread::scope(|scope| {
        let faulting = scope.spawn(|| read(&file, 15));
        gate.wait_for(1);
        let victim = pool.view().into_iter().find(|frame| frame.writing).unwrap();
        let pin = file.pin(victim.block).unwrap();
        crate::site::set(&mut pin.latch_exclusive().unwrap(), 500);
        gate.open();
        assert_eq!(faulting.join().unwrap(), 15);
        assert!(file.is_resident(victim.block), "[VIC-1]");
        assert_eq!(crate::site::number_in(&pin.latch_shared().unwrap()), 500, "[VIC-1]");
        assert_eq!(on_disk(&file, victim.block), 100 + u64::from(victim.block), "[OUT-3]");
        drop(pin);
        let block = victim.block;
        for other in (0..8).filter(|other| *other != block) {
            assert_eq!(read(&file, other), 100 + u64::from(other));
        }
        assert_eq!(read(&file, block), 500);
    });
    let file = reopened(&pool, file);
    assert_eq!((0..8).filter(|block| read(&file, *block) == 500).count(), 1, "[OUT-3]");
}

#[test]
fn a_page_used_often_outlives_pages_used_once() {
    let site = Site::new();
    let (pool, _disk) = site.rigged(32);
    let file = numbered(&pool, "table", 200, 0);
    for block in (10..200).cycle().take(1000) {
        read(&file, 3);
        read(&file, block);
    }
    let before = pool.stats();
    read(&file, 3);
    assert_eq!(pool.stats().since(&before).total().misses, 0);
}

#[test]
fn threads_that_need_more_frames_than_there_are_get_a_page_or_a_typed_error() {
    let site = Site::new();
    let pool = site.builder(8).frame_wait(Duration::from_millis(5)).build().unwrap();
    let file = numbered(&pool, "table", 64, 0);
    let refused = AtomicBool::new(false);
    thread::scope(|scope| {
        for seed in 0..6 {
            let (file, refused) = (&file, &refused);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                for _ in 0..60 {
                    let mut pins = Vec::new();
                    for _ in 0..random.usize(1..4) {
                        match file.pin(random.u32(..64)) {
                            Ok(pin) => pins.push(pin),
                            Err(Error::NoFreeFrame { capacity: 8, .. }) => {
                                refused.store(true, Ordering::Relaxed);
                                break;
                            }
                            Err(error) => panic!("[VIC-2] {error}"),
                        }
                    }
                    for pin in &pins {
                        let page = pin.latch_shared().unwrap();
                        assert_eq!(crate::site::number_in(&page), u64::from(pin.block()));
                    }
                }
            });
        }
    });
    assert_eq!(pool.stats().frames_pinned, 0);
}

#[test]
fn once_the_pool_is_full_each_new_page_evicts_one_and_every_frame_is_used() {
    let site = Site::new();
    let (pool, _disk) = site.rigged(8);
    let file = pool.open_file("table", &create()).unwrap();
    file.extend(100).unwrap();
    for block in 0..100 {
        drop(file.read(block).unwrap());
        let stats = pool.stats();
        assert_eq!(stats.frames_free as usize + pool.view().len(), 8, "[CLK-1]");
    }
    assert_eq!(pool.stats().total().evictions, 92, "[CLK-1]");
}
