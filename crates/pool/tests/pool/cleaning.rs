//! The cleaner: clean victims are available before they are needed, and nothing is written when the pool is idle.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use forebay::Tablespace;
use forebay_io::{Op, OsError};

use crate::disk::Disk;
use crate::site::{Site, numbered, read, reopened, wait_until, write};

#[test]
fn the_cleaner_writes_ahead_of_those_who_need_frames() {
    let site = Site::new();
    let victim_writes = |cleaner| {
        let pool = site.builder(256).cleaner(cleaner).build().unwrap();
        let file = numbered(&pool, &format!("table {cleaner}"), 1024, 0);
        let mut random = fastrand::Rng::with_seed(9);
        let before = pool.stats();
        for turn in 0..6000 {
            write(&file, random.u32(..1024), turn);
            // A thread that changes pages also does other work.
            if turn % 16 == 0 {
                thread::sleep(Duration::from_micros(200));
            }
        }
        let done = pool.stats().since(&before);
        assert!(cleaner || done.pool.cleaner_pages == 0);
        file.drop_file().unwrap();
        done.total().victim_writes
    };
    let without = victim_writes(false);
    assert!(without > 1000, "{without}");
    // If a busy machine keeps the cleaner from running, it saves nothing in that round.
    wait_until("a round in which the cleaner writes most", || victim_writes(true) * 4 < without);
}

#[test]
fn an_idle_pool_lets_the_cleaner_sleep() {
    let site = Site::new();
    let pool = site.pool(64);
    let file = numbered(&pool, "table", 256, 0);
    for turn in 0..2000 {
        write(&file, turn % 256, 1);
    }
    // Writes in progress complete first.
    assert!(pool.stats().pool.cleaner_wakes > 0);
    wait_until("the cleaner to sleep", || {
        let wakes = pool.stats().pool.cleaner_wakes;
        thread::sleep(Duration::from_millis(200));
        pool.stats().pool.cleaner_wakes == wakes
    });
}

#[test]
fn the_cleaner_waits_for_no_latch() {
    let site = Site::new();
    let pool = site.pool(64);
    let file = numbered(&pool, "table", 512, 0);
    // Half of the pool is latched, and dirty; the cleaner has to skip it.
    let mut held: Vec<_> = (0..32).map(|block| file.write(block).unwrap()).collect();
    held.iter_mut().for_each(|page| crate::site::set(page, 3));
    let mut turn = 0;
    // The watchdog ends the test if the cleaner waits for a latch. [CLN-1]
    while turn < 3000 || pool.stats().pool.cleaner_pages == 0 {
        write(&file, 32 + turn % 480, 5);
        if turn % 16 == 0 {
            thread::sleep(Duration::from_micros(100));
        }
        turn += 1;
    }
    drop(held);
    let file = reopened(&pool, file);
    assert!((0..32).all(|block| read(&file, block) == 3));
}

#[test]
fn a_cleaner_that_cannot_write_loses_nothing_and_goes_on_later() {
    let site = Site::new();
    let (io, disk) = Disk::open();
    let main = Tablespace::new("main", site.path("main")).io(io);
    let pool = Site::bare(32).tablespace(main).build().unwrap();
    let file = numbered(&pool, "table", 128, 0);
    disk.fail(Op::Write, OsError::ENOSPC);
    let mut changed = Vec::new();
    for block in 0..128 {
        if crate::site::try_write(&file, block, 1000 + u64::from(block)).is_ok() {
            changed.push(block);
        }
    }
    assert!(changed.len() >= 16);
    // The cleaner may still be trying, and a page is not dirty while its copy is being written.
    wait_until("every change to be dirty again ([OUT-2])", || {
        pool.stats().frames_dirty == changed.len() as u64
    });
    disk.heal();
    let cleaned = pool.stats().pool.cleaner_pages;
    let turn = AtomicU32::new(0);
    wait_until("the cleaner to write again", || {
        let block = turn.fetch_add(1, Ordering::Relaxed) % 128;
        write(&file, block, 1000 + u64::from(block));
        pool.stats().pool.cleaner_pages > cleaned
    });
    let file = reopened(&pool, file);
    assert!(changed.iter().all(|block| read(&file, *block) == 1000 + u64::from(*block)));
}
