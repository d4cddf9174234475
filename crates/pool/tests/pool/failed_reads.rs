//! Failed reads: every waiting reader gets the error, and no state is left behind.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use forebay::{Clock, Error, PagedFile, StrategyKind};
use forebay_io::{Op, OsError};

use crate::disk::Fault;
use crate::site::{PAGE, Site, is_io, numbered, read, reopened, wait_until};

#[test]
fn a_failed_read_leaves_nothing_behind_and_the_next_one_tries_again() {
    let site = Site::new();
    let (pool, disk) = site.rigged(8);
    let file = numbered(&pool, "table", 4, 50);
    let file = reopened(&pool, file);
    disk.fail(Op::Read, OsError::EIO);
    for turn in 0..20 {
        let block = turn % 4;
        let strategy = pool.strategy(StrategyKind::ALL[turn as usize % 4]);
        let errors = [
            file.read_with(block, &strategy).err(),
            file.write_with(block, &strategy).err(),
            file.pin_with(block, &strategy).err(),
            file.optimistic(block).err(),
            file.copy(block, 0, &mut [0; 9]).err(),
            file.salvage(block).err(),
        ];
        assert!(errors.iter().flatten().all(|error| is_io(error, OsError::EIO)), "{errors:?}");
        assert_eq!(errors.iter().flatten().count(), 6);
        assert_eq!(pool.stats().frames_free, 8, "[LOD-2]");
        assert_eq!(pool.view(), [], "[LOD-2]");
        assert!(!file.is_resident(block), "[LOD-2]");
    }
    assert_eq!(pool.stats().total().read_errors, 120);
    disk.heal();
    (0..4).for_each(|block| assert_eq!(read(&file, block), 50 + u64::from(block)));
}

#[test]
fn one_held_back_read_serves_everyone_who_waits_for_it() {
    let site = Site::new();
    let (pool, disk) = site.rigged(8);
    let file = numbered(&pool, "table", 4, 50);
    let file = reopened(&pool, file);
    let gate = disk.hold(Op::Read);
    let reads = disk.count(Op::Read);
    thread::scope(|scope| {
        let waiters: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| (read(&file, 1), file.pin(1).unwrap().block())))
            .collect();
        wait_until("seven waiters", || pool.stats().total().hits_in_flight == 7);
        gate.open();
        waiters.into_iter().for_each(|waiter| assert_eq!(waiter.join().unwrap(), (51, 1)));
    });
    assert_eq!(disk.count(Op::Read) - reads, 1, "[LOD-1]");
}

#[test]
fn the_error_of_one_held_back_read_reaches_everyone_who_waits_for_it() {
    let site = Site::new();
    let (pool, disk) = site.rigged(8);
    let file = numbered(&pool, "table", 4, 50);
    let file = reopened(&pool, file);
    let gate = disk.hold(Op::Read);
    disk.fail(Op::Read, OsError::EIO);
    let reads = disk.count(Op::Read);
    thread::scope(|scope| {
        let ask = |way: u32| match way {
            0 => file.read(1).err(),
            1 => file.write(1).err(),
            2 => file.pin(1).err(),
            3 => file.optimistic(1).err(),
            _ => file.copy(1, 0, &mut [0]).err(),
        };
        let first = scope.spawn(move || ask(0));
        gate.wait_for(1);
        let waiters: Vec<_> = (0..5).map(|way| scope.spawn(move || ask(way))).collect();
        wait_until("five waiters", || pool.stats().total().hits_in_flight == 5);
        assert_eq!(pool.view()[0].pins, 6);
        gate.open();
        for thread in waiters.into_iter().chain([first]) {
            let error = thread.join().unwrap().unwrap();
            assert!(is_io(&error, OsError::EIO), "[LOD-2] {error}");
        }
    });
    assert_eq!(disk.count(Op::Read) - reads, 1, "[LOD-1]");
    assert_eq!(pool.stats().frames_free, 8, "[LOD-2]");
    disk.heal();
    assert_eq!(read(&file, 1), 51);
}

/// A clock that panics when it is read the n-th time.
#[derive(Debug)]
struct Fragile(Instant, AtomicI64);

impl Clock for Fragile {
    fn now(&self) -> Duration {
        assert!(
            self.1.fetch_sub(1, Ordering::SeqCst) != 1,
            "the clock panics, as the test wants it"
        );
        self.0.elapsed()
    }
}

/// Runs `work` with a clock that panics at each of its readings in turn, and then `other` on another thread, which must
/// return `expected`.
fn panic_at_each_look(
    claim: &str,
    work: impl Fn(&PagedFile),
    other: impl Fn(&PagedFile) -> u64 + Sync,
    expected: u64,
) {
    let site = Site::new();
    let clock = Arc::new(Fragile(Instant::now(), AtomicI64::new(0)));
    let pool = site.builder(64).cleaner(false).clock(Arc::clone(&clock) as Arc<dyn Clock>);
    let pool = pool.build().unwrap();
    let mut file = numbered(&pool, "table", 40, 50);
    for calls in 1.. {
        file = reopened(&pool, file);
        // Makes the read of block 11 the second of a sequence.
        assert_eq!(read(&file, 10), 60);
        clock.1.store(calls, Ordering::SeqCst);
        let done = catch_unwind(AssertUnwindSafe(|| work(&file)));
        clock.1.store(0, Ordering::SeqCst);
        let found = thread::scope(|scope| scope.spawn(|| other(&file)).join().unwrap());
        assert_eq!(found, expected, "{claim} after {calls} looks at the clock");
        if done.is_ok() {
            assert!(calls > 2, "it looks at the clock {} times", calls - 1);
            break;
        }
    }
    drop(reopened(&pool, file));
    assert_eq!(pool.stats().frames_free, pool.stats().frames, "{claim} frames are lost");
}

#[test]
fn lod_2_a_panic_in_the_middle_of_a_miss_keeps_no_thread_from_the_page() {
    // Look-ahead begins in the middle of the miss as well.
    let miss = |file: &PagedFile| assert_eq!(read(file, 11), 61);
    panic_at_each_look("[LOD-2]", miss, |file| read(file, 11), 61);
}

#[test]
fn sub_2_a_panic_while_a_stream_looks_ahead_keeps_no_thread_from_its_pages() {
    let all = |file: &PagedFile| (0..40).map(|block| read(file, block)).sum::<u64>();
    let stream = |file: &PagedFile| assert_eq!(file.stream(0..40).count(), 40);
    panic_at_each_look("[SUB-2]", stream, all, (50..90).sum());
}

#[test]
fn who_recreates_a_page_does_not_mind_that_another_read_of_it_fails() {
    let site = Site::new();
    let (pool, disk) = site.rigged(8);
    let file = reopened(&pool, numbered(&pool, "table", 4, 50));
    let gate = disk.hold(Op::Read);
    disk.fail(Op::Read, OsError::EIO);
    thread::scope(|scope| {
        let reader = scope.spawn(|| file.read(1).map(drop));
        gate.wait_for(1);
        let maker = scope.spawn(|| file.init(1).map(drop));
        wait_until("one waiter", || pool.stats().total().hits_in_flight == 1);
        gate.open();
        assert!(reader.join().unwrap().is_err());
        maker.join().unwrap().unwrap();
    });
    disk.heal();
    assert!(file.read(1).unwrap().iter().all(|&byte| byte == 0));
}

#[test]
fn readers_of_other_pages_do_not_wait_for_a_read_that_stands_still() {
    let site = Site::new();
    let (pool, disk) = site.rigged(8);
    let file = numbered(&pool, "table", 4, 50);
    let file = reopened(&pool, file);
    assert_eq!(read(&file, 0), 50);
    let gate = disk.hold(Op::Read);
    thread::scope(|scope| {
        let slow = scope.spawn(|| read(&file, 1));
        gate.wait_for(1);
        assert_eq!(read(&file, 0), 50);
        assert!(!file.is_resident(2));
        gate.open();
        assert_eq!(slow.join().unwrap(), 51);
    });
}

#[test]
fn reads_that_fail_and_succeed_among_many_threads_agree_with_the_disk() {
    let site = Site::new();
    let (pool, disk) = site.rigged(8);
    let file = numbered(&pool, "table", 24, 50);
    let mut random = fastrand::Rng::with_seed(3);
    disk.rule(move |it| match it.op() == Op::Read && random.u32(..4) == 0 {
        true => Fault::Fail(OsError::EIO),
        false => Fault::None,
    });
    thread::scope(|scope| {
        for seed in 0..4 {
            let file = &file;
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                for _ in 0..1500 {
                    let block = random.u32(..24);
                    match file.read(block) {
                        Ok(page) => {
                            assert_eq!(crate::site::number_in(&page), 50 + u64::from(block));
                        }
                        Err(error) => assert!(is_io(&error, OsError::EIO), "[LOD-2] {error}"),
                    }
                }
            });
        }
    });
    assert_eq!(pool.view().iter().map(|frame| frame.pins).sum::<u64>(), 0);
    let stats = pool.stats();
    assert_eq!(stats.frames_free as usize + pool.view().len(), 8, "[LOD-2]");
    assert!(stats.total().read_errors > 0);
}

#[test]
fn a_file_shortened_behind_the_pools_back_says_where_it_ends() {
    let site = Site::new();
    let (pool, _disk) = site.rigged(8);
    let file = numbered(&pool, "table", 4, 50);
    let file = reopened(&pool, file);
    let other = std::fs::OpenOptions::new().write(true).open(file.path()).unwrap();
    other.set_len(2 * PAGE as u64 + 100).unwrap();
    let error = file.read(2).unwrap_err();
    let expected = Arc::from(file.path());
    let Error::Shortened { file: path, len, expected: whole, .. } = error else {
        panic!("{error}");
    };
    assert_eq!((path, len, whole), (expected, 2 * PAGE as u64 + 100, 3 * PAGE as u64));
    assert_eq!(pool.stats().frames_free, 8);
    assert_eq!(read(&file, 1), 51);
}
