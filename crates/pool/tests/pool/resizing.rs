//! Files that grow, shrink and are dropped while other threads use them: typed errors, and no old page reappears.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use forebay::{Error, Fate, FileOptions};
use forebay_io::{Op, OsError};

use crate::site::{
    Ends, PAGE, SHORT, Site, create, is_dirty, number_in, numbered, on_disk, read, reopened, set,
    try_write, wait_until, write,
};

fn is_invalidated(error: &Error) -> bool {
    matches!(error, Error::Invalidated { .. } | Error::PastEnd { .. })
}

#[test]
fn a_dropped_file_cannot_be_opened_and_stays_for_its_handles() {
    let site = Site::new();
    let pool = site.pool(8);
    let file = numbered(&pool, "table", 4, 0);
    let pin = file.write(2).unwrap().into_pin();
    let page = file.read(1).unwrap();
    file.drop_file().unwrap();
    let invalidated =
        |error: &Error| matches!(error, Error::Invalidated { how: Fate::Dropped, .. });
    let errors = [
        file.read(2).err(),
        file.read(90).err(),
        pin.latch_shared().err(),
        pin.latch_exclusive().err(),
        file.extend(1).err(),
        file.truncate(0).err(),
        file.flush_file().err(),
        file.sync().err(),
        file.optimistic(0).err(),
        file.drop_file().err(),
        file.clone().close().err(),
    ];
    for error in &errors {
        assert!(error.as_ref().is_some_and(invalidated), "{error:?}");
    }
    assert_eq!(number_in(&page), 1);
    assert_eq!(pool.stats().pool.doomed_pages, 2);
    drop((pin, page));
    assert_eq!(pool.stats().frames_free, 8);
    let again = pool.open_file("table", &FileOptions::new().create_new(true)).unwrap();
    assert_eq!(again.blocks(), 0);
}

#[test]
fn truncated_pages_leave_memory_and_are_never_written() {
    let site = Site::new();
    let (pool, disk) = site.rigged(16);
    let file = numbered(&pool, "table", 8, 0);
    (0..8).for_each(|block| write(&file, block, 100));
    let pin = file.pin(6).unwrap();
    file.truncate(3).unwrap();
    assert!((3..8).all(|block| !file.is_resident(block)), "[RSZ-1]");
    assert_eq!(pool.stats().frames_dirty, 3, "[RSZ-1]");
    assert!(matches!(file.read(3), Err(Error::PastEnd { block: 3, blocks: 3, .. })));
    assert!(matches!(pin.latch_shared(), Err(Error::Invalidated { how: Fate::Truncated, .. })));
    let writes = disk.seen().len();
    file.flush_file().unwrap();
    let written: u64 = disk.seen()[writes..].iter().map(|seen| seen.len).sum();
    assert_eq!(written, 3 * PAGE as u64, "[RSZ-1]");
    assert_eq!(std::fs::metadata(file.path()).unwrap().len(), 3 * PAGE as u64, "[RSZ-1]");
    // The old pin does not pin the new page.
    file.extend(5).unwrap();
    assert!((3..8).all(|block| read(&file, block) == 0), "[RSZ-1]");
    assert!(pin.latch_exclusive().is_err());
    assert_eq!(pool.view().iter().filter(|frame| frame.orphan).count(), 1);
    drop(pin);
    assert_eq!(pool.view().iter().filter(|frame| frame.orphan).count(), 0);
    let file = reopened(&pool, file);
    assert!((0..8).all(|block| read(&file, block) == if block < 3 { 100 } else { 0 }));
}

#[test]
fn a_change_made_to_a_truncated_page_by_who_has_it_goes_nowhere() {
    let site = Site::new();
    let (pool, _disk) = site.rigged(16);
    let file = numbered(&pool, "table", 4, 0);
    let mut page = file.write(3).unwrap();
    file.truncate(1).unwrap();
    file.extend(3).unwrap();
    set(&mut page, 66);
    drop(page);
    assert!(!is_dirty(&pool, 3), "[RSZ-1]");
    assert_eq!((read(&file, 3), read(&reopened(&pool, file.clone()), 3)), (0, 0), "[RSZ-1]");
}

#[test]
fn a_truncation_waits_for_the_reads_and_writes_of_the_pages_it_discards() {
    let site = Site::new();
    let (pool, disk) = site.rigged(16);
    let mut file = numbered(&pool, "table", 4, 0);
    for op in [Op::Read, Op::Write] {
        (0..4).for_each(|block| write(&file, block, 9));
        if op == Op::Read {
            file = reopened(&pool, file);
        }
        let gate = disk.hold(op);
        thread::scope(|scope| {
            let io = scope.spawn(|| match op {
                Op::Read => file.read(3).map(drop),
                _ => file.flush_file().map(drop),
            });
            gate.wait_for(1);
            let truncation = scope.spawn(|| file.truncate(1));
            wait_until("the file to be shorter", || file.blocks() == 1);
            thread::sleep(Duration::from_millis(20));
            assert!(!truncation.is_finished());
            gate.open();
            truncation.join().unwrap().unwrap();
            let io = io.join().unwrap();
            assert!(io.as_ref().err().is_none_or(is_invalidated), "{io:?}");
        });
        assert_eq!(file.extend(3).unwrap(), 1..4);
        assert!(
            (1..4).all(|block| read(&file, block) == 0 && on_disk(&file, block) == 0),
            "[RSZ-1]"
        );
        disk.hold(op).open();
    }
}

#[test]
fn pages_do_not_come_back_when_a_file_is_cut_and_extended_under_load() {
    let site = Site::new();
    // On a busy machine a thread, including the cleaner's, may be suspended for a long time while it holds a page.
    let pool = site.builder(16).frame_wait(Duration::from_secs(30)).build().unwrap();
    let file = numbered(&pool, "table", 32, 0);
    // Pages with numbers below this were cut away before; it is set after the cut.
    let floor = AtomicU64::new(1);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for seed in 0..4 {
            let (file, floor, done) = (&file, &floor, &done);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                while !done.load(Ordering::SeqCst) {
                    let (block, least) = (random.u32(8..32), floor.load(Ordering::SeqCst));
                    if random.bool() {
                        let written = file.write(block).map(|mut page| {
                            // The page that is latched now is not older than this.
                            let number = floor.load(Ordering::SeqCst);
                            set(&mut page, number);
                        });
                        assert!(written.as_ref().err().is_none_or(is_invalidated), "{written:?}");
                        continue;
                    }
                    match file.read(block) {
                        Ok(page) => {
                            let number = number_in(&page);
                            let back = number != 0 && number < least && least > 1;
                            assert!(!back, "[RSZ-1] {number} is back after {least}");
                        }
                        Err(error) => assert!(is_invalidated(&error), "{error}"),
                    }
                }
            });
        }
        scope.spawn(|| {
            let _ends = Ends(&done);
            for turn in 0..150 {
                file.truncate(8).unwrap();
                // Writers from before wrote at most `turn` + 1.
                floor.store(turn + 2, Ordering::SeqCst);
                file.extend(24).unwrap();
                thread::yield_now();
            }
        });
    });
    wait_until("the cleaner", || pool.stats().frames_pinned == 0);
    assert!((0..8).all(|block| read(&file, block) == u64::from(block)));
    let file = reopened(&pool, file);
    assert!((8..32).all(|block| [0, 151].contains(&read(&file, block))), "[RSZ-1]");
}

#[test]
fn a_file_that_is_dropped_and_recreated_under_load_gives_typed_errors_only() {
    let site = Site::new();
    let pool = site.pool(16);
    let done = AtomicBool::new(false);
    let (round, swept) = (AtomicU64::new(1), AtomicU64::new(0));
    thread::scope(|scope| {
        for seed in 0..4 {
            let (pool, done, round, swept) = (&pool, &done, &round, &swept);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                while !done.load(Ordering::SeqCst) {
                    let least = swept.load(Ordering::SeqCst);
                    let Ok(file) = pool.open_file("table", &FileOptions::new()) else {
                        continue;
                    };
                    for _ in 0..20 {
                        let block = random.u32(..24);
                        let asked = if random.bool() {
                            try_write(&file, block, round.load(Ordering::SeqCst))
                        } else {
                            file.read(block).map(|page| {
                                let number = number_in(&page);
                                assert!(number == 0 || number >= least, "{number} after {least}");
                            })
                        };
                        assert!(asked.as_ref().err().is_none_or(is_invalidated), "{asked:?}");
                    }
                }
            });
        }
        scope.spawn(|| {
            let _ends = Ends(&done);
            for turn in 2..80 {
                let file = pool.open_file("table", &FileOptions::new().create_new(true)).unwrap();
                file.extend(24).unwrap();
                thread::yield_now();
                round.store(turn, Ordering::SeqCst);
                file.drop_file().unwrap();
                // Pages that exist from now on were written in this round or later; writers may have read the number of
                // the previous round.
                swept.store(turn - 1, Ordering::SeqCst);
            }
        });
    });
    assert_eq!((pool.stats().frames_free, pool.view().len()), (16, 0), "[RSZ-1]");
}

#[test]
fn opening_a_file_that_is_being_dropped_gives_a_new_one_or_none() {
    let site = Site::new();
    let pool = site.pool(16);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let _ends = Ends(&done);
            for _ in 0..400 {
                if let Ok(file) = pool.open_file("table", &create()) {
                    drop(file.extend(1));
                    drop(file.drop_file());
                }
            }
        });
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                let Ok(file) = pool.open_file("table", &create()) else {
                    continue;
                };
                let there = file.path().exists();
                let open = !matches!(file.read(1000), Err(Error::Invalidated { .. }));
                assert!(there || !open, "an open file that is not in its directory any more");
            }
        });
    });
}

#[test]
fn a_file_with_pages_in_use_is_busy_and_can_be_closed_later() {
    let site = Site::new();
    let (pool, _disk) = site.rigged_with(8, SHORT);
    let file = numbered(&pool, "table", 6, 0);
    let (pin, page) = (file.pin(1).unwrap(), file.read(4).unwrap());
    let Error::Busy { file: path, pages } = file.clone().close().unwrap_err() else {
        panic!("busy");
    };
    assert_eq!((&*path, pages), (file.path(), 2));
    // The file is open and usable.
    assert_eq!((read(&file, 0), number_in(&page)), (0, 4));
    write(&file, 1, 7);
    assert_eq!(number_in(&pin.latch_shared().unwrap()), 7);
    drop((pin, page));
    file.clone().close().unwrap();
    assert!(matches!(file.read(0), Err(Error::Invalidated { how: Fate::Closed, .. })));
    assert!(matches!(file.close(), Err(Error::Invalidated { how: Fate::Closed, .. })));
    let file = pool.open_file("table", &FileOptions::new()).unwrap();
    assert_eq!(read(&file, 1), 7);
}

#[test]
fn no_caller_is_notified_that_a_file_is_closed_by_a_close_that_fails() {
    let site = Site::new();
    let (pool, disk) = site.rigged(16);
    let file = numbered(&pool, "table", 4, 0);
    let sync = disk.hold(Op::SyncData);
    thread::scope(|scope| {
        let close = scope.spawn(|| file.close());
        sync.wait_for(1);
        // Written during that sync, so the close runs another one, with every page already evicted.
        write(&file, 1, 1);
        file.flush_file().unwrap();
        let last_sync = disk.hold(Op::SyncData);
        sync.open();
        last_sync.wait_for(1);
        let asked = [
            scope.spawn(|| file.read(1).map(drop)),
            scope.spawn(|| file.init(2).map(drop)),
            scope.spawn(|| file.flush_file().map(drop)),
            scope.spawn(|| pool.open_file("table", &FileOptions::new()).map(drop)),
        ];
        thread::sleep(Duration::from_millis(20));
        disk.fail(Op::SyncData, OsError::EIO);
        last_sync.open();
        assert!(matches!(close.join().unwrap(), Err(Error::Failed { .. })));
        for asked in asked {
            let answer = asked.join().unwrap();
            // The error of the failed sync is allowed.
            assert!(!answer.as_ref().is_err_and(is_invalidated), "[RSZ-2] {answer:?}");
        }
    });
    assert_eq!(read(&file, 1), 1);
}

#[test]
fn readers_during_a_close_that_finds_pages_in_use_go_on_reading() {
    let site = Site::new();
    let pool = site.builder(16).frame_wait(SHORT).build().unwrap();
    let file = numbered(&pool, "table", 8, 0);
    let (done, refused) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for seed in 0..3 {
            let (file, done, refused) = (&file, &done, &refused);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                let mut read = || -> Result<(), Error> {
                    // Longer than a close waits; and the second page is requested while the first is held, so that the
                    // close and this thread wait for each other.
                    let hold = Duration::from_millis(if seed == 0 { 70 } else { 0 });
                    let first = file.read(random.u32(0..8))?;
                    let second = file.read(random.u32(0..8))?;
                    thread::sleep(hold);
                    drop((first, second));
                    Ok(())
                };
                while !done.load(Ordering::SeqCst) {
                    if let Err(error) = read() {
                        assert!(is_invalidated(&error), "{error}");
                        refused.fetch_add(1, Ordering::SeqCst);
                        return;
                    }
                }
            });
        }
        let _ends = Ends(&done);
        for _ in 0..20 {
            match file.close() {
                Ok(()) => break,
                Err(Error::Busy { .. }) => assert_eq!(refused.load(Ordering::SeqCst), 0, "[RSZ-2]"),
                Err(error) => panic!("{error}"),
            }
        }
    });
}

#[test]
fn a_file_that_no_caller_uses_can_be_closed_while_the_pool_is_busy() {
    let site = Site::new();
    let pool = site.pool(32);
    let busy = numbered(&pool, "busy", 200, 0);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for seed in 0..3 {
            let (busy, done) = (&busy, &done);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                while !done.load(Ordering::SeqCst) {
                    write(busy, random.u32(..200), 1);
                }
            });
        }
        let _ends = Ends(&done);
        let mut file = numbered(&pool, "table", 8, 0);
        for turn in 0..60 {
            (0..8).for_each(|block| write(&file, block, turn));
            let closed = file.close();
            assert!(closed.is_ok(), "no caller has a page of it: {closed:?}");
            file = pool.open_file("table", &FileOptions::new()).unwrap();
            assert!((0..8).all(|block| read(&file, block) == turn));
        }
    });
}

#[test]
fn extending_from_many_threads_gives_every_block_once() {
    let site = Site::new();
    let pool = site.pool(64);
    let file = pool.open_file("table", &create()).unwrap();
    thread::scope(|scope| {
        for number in 1..=4 {
            let file = &file;
            scope.spawn(move || (0..50).for_each(|_| set(&mut file.append().unwrap(), number)));
        }
    });
    assert_eq!(file.blocks(), 200);
    let mut counts = [0; 5];
    (0..200).for_each(|block| counts[read(&file, block) as usize] += 1);
    assert_eq!(counts, [0, 50, 50, 50, 50]);
}

#[test]
fn a_file_cannot_have_more_blocks_than_there_are_numbers() {
    let site = Site::new();
    let pool = site.pool(8);
    let file = numbered(&pool, "table", 2, 0);
    let error = file.extend(u32::MAX).unwrap_err();
    assert!(matches!(error, Error::Io(forebay_io::Error::TooLarge { .. })), "{error}");
    assert_eq!((file.blocks(), file.extend(0).unwrap()), (2, 2..2));
    assert_eq!(read(&file, 1), 1);
}
