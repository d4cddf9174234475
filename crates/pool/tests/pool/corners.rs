//! Corner cases: small pools, late operations, borrowed strategies.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use forebay::{Error, Lsn, PagedFile, StrategyKind, Wal};

use crate::site::{PAGE, Site, create, read, set, write};

#[test]
fn a_file_that_opens_while_the_pool_closes_is_closed_or_refused() {
    for round in 0..300 {
        let site = Site::new();
        let pool = site.pool(8);
        let barrier = Barrier::new(2);
        let (opened, closed) = thread::scope(|scope| {
            let opening = scope.spawn(|| {
                barrier.wait();
                (0..round % 60).for_each(|_| std::hint::spin_loop());
                pool.open_file("t", &create())
            });
            barrier.wait();
            (0..round % 97 * 3).for_each(|_| std::hint::spin_loop());
            let closed = pool.close();
            (opening.join().unwrap(), closed)
        });
        closed.unwrap();
        match opened {
            Ok(file) => {
                assert!(matches!(file.extend(1), Err(Error::Invalidated { .. })), "[REG-1]");
            }
            Err(error) => assert!(matches!(error, Error::Closed), "{error}"),
        }
    }
}

/// A log whose first flush waits until the test releases it, and then may fail.
#[derive(Debug)]
struct HoldsFirst {
    held: AtomicBool,
    goes_on: Barrier,
    fails: bool,
}

impl Wal for HoldsFirst {
    fn flush_to(&self, _: Lsn) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        if !self.held.swap(true, Ordering::SeqCst) {
            self.goes_on.wait();
            return if self.fails { Err("the log is full".into()) } else { Ok(()) };
        }
        Ok(())
    }

    fn position(&self) -> Lsn {
        Lsn(5)
    }

    fn flushed(&self) -> Lsn {
        Lsn::NONE
    }
}

/// Calls `meanwhile` with a file of 20 blocks while an append waits for a frame, which it may or may not get in the
/// end; `meanwhile` lets the append continue by the first function it receives, and the second returns whether it has
/// ended. Returns the file and the block that was appended.
fn append_concurrently(
    site: &Site,
    fails: bool,
    meanwhile: impl FnOnce(&PagedFile, &dyn Fn(), &dyn Fn() -> bool),
) -> (PagedFile, Result<u32, Error>) {
    let (held, goes_on) = (AtomicBool::new(false), Barrier::new(2));
    let log = Arc::new(HoldsFirst { held, goes_on, fails });
    let builder = Site::bare(8).directory(site.path("main")).cleaner(false);
    let pool = builder.wal(Arc::<HoldsFirst>::clone(&log)).build().unwrap();
    let file = pool.open_file("t", &create()).unwrap();
    file.extend(20).unwrap();
    for block in 0..8 {
        file.write(block).unwrap().mark_dirty(Lsn(5));
    }
    let appended = thread::scope(|scope| {
        let waiting = scope.spawn(|| file.append().map(|page| page.block()));
        while !log.held.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        meanwhile(&file, &|| _ = log.goes_on.wait(), &|| waiting.is_finished());
        waiting.join().unwrap()
    });
    (file, appended)
}

/// An append waits for a frame; meanwhile another thread appends, and keeps its page latched.
#[test]
fn rsz_3_an_append_that_waits_makes_no_page_of_another_thread_and_waits_for_none() {
    let site = Site::new();
    let mut ended = false;
    let (file, appended) = append_concurrently(&site, false, |file, go_on, has_ended| {
        file.truncate(20).unwrap();
        let mut page = file.append().unwrap();
        assert_eq!(page.block(), 20);
        set(&mut page, 7);
        go_on();
        let start = Instant::now();
        while !has_ended() && start.elapsed() < Duration::from_secs(100) {
            thread::sleep(Duration::from_millis(1));
        }
        ended = has_ended();
    });
    assert!(ended, "it has waited for the other thread's page");
    assert_eq!(appended.unwrap(), 21, "[RSZ-3]");
    assert_eq!([20, 21].map(|block| read(&file, block)), [7, 0], "[RSZ-3]");
}

/// An append finds no frame; meanwhile another thread has written to the block that the append would have used, if that
/// block exists, and keeps it.
#[test]
fn rsz_3_an_append_in_vain_takes_back_no_block_of_another_thread() {
    let site = Site::new();
    let (file, appended) = append_concurrently(&site, true, |file, go_on, _| {
        let block = if file.blocks() > 20 { 20 } else { file.extend(1).unwrap().start };
        write(file, block, 7);
        go_on();
    });
    appended.unwrap_err();
    assert_eq!(file.blocks(), 21, "[RSZ-3]");
    assert_eq!(read(&file, 20), 7, "[RSZ-3]");
}

#[test]
fn readers_get_their_turn_among_writers_that_never_stop() {
    let site = Site::new();
    let pool = site.pool(8);
    let file = pool.open_file("t", &create()).unwrap();
    file.extend(1).unwrap();
    let done = AtomicBool::new(false);
    let longest = thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let page = file.write(0).unwrap();
                    thread::sleep(Duration::from_millis(1));
                    drop(page);
                }
            });
        }
        let mut longest = Duration::ZERO;
        for _ in 0..20 {
            let start = Instant::now();
            drop(file.read(0).unwrap());
            longest = longest.max(start.elapsed());
        }
        done.store(true, Ordering::Relaxed);
        longest
    });
    assert!(longest < Duration::from_secs(60), "a reader stood for {longest:?}");
}

#[test]
fn an_upgrade_of_an_invalidated_page_says_so() {
    let site = Site::new();
    let pool = site.pool(8);
    let file = pool.open_file("t", &create()).unwrap();
    file.extend(1).unwrap();
    let page = file.read(0).unwrap();
    file.truncate(0).unwrap();
    assert!(matches!(page.upgrade(), Err(Error::Invalidated { .. })));
}

#[test]
fn a_strategy_of_a_larger_pool_does_no_harm_in_a_smaller_one() {
    let site = Site::new();
    let large = Site::bare(512).directory(site.path("large")).build().unwrap();
    let small = Site::bare(8).directory(site.path("small")).build().unwrap();
    let [of_large, of_small] = [&large, &small].map(|pool| pool.open_file("t", &create()).unwrap());
    of_large.extend(400).unwrap();
    of_small.extend(20).unwrap();
    (0..200).for_each(|block| drop(of_large.read(block).unwrap()));
    let scan = large.strategy_with_ring(StrategyKind::BulkRead, 4 * PAGE).unwrap();
    (200..204).for_each(|block| drop(of_large.read_with(block, &scan).unwrap()));
    (0..20).for_each(|block| drop(of_small.read_with(block, &scan).unwrap()));
}

#[test]
fn a_wait_without_end_does_not_keep_a_pool_from_closing() {
    let site = Site::new();
    let builder = Site::bare(8).directory(site.path("main")).frame_wait(Duration::MAX);
    let pool = builder.build().unwrap();
    pool.open_file("t", &create()).unwrap().extend(1).unwrap();
    pool.close().unwrap();
}

#[test]
fn the_cleaner_works_in_the_smallest_pools_too() {
    for frames in [8, 16, 31] {
        let site = Site::new();
        let pool = Site::bare(frames).directory(site.path("main")).build().unwrap();
        let file = pool.open_file("t", &create()).unwrap();
        file.extend(400).unwrap();
        (0..3).for_each(|value| (0..400).for_each(|block| write(&file, block, value)));
        assert!(pool.stats().pool.cleaner_wakes > 0, "{frames} frames");
    }
}

/// A log that panics once, on the cleaner's thread.
#[derive(Debug, Default)]
struct PanicsOnce(AtomicBool);

impl Wal for PanicsOnce {
    fn flush_to(&self, _: Lsn) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let cleaning = thread::current().name() == Some("forebay-cleaner");
        assert!(!cleaning || self.0.swap(true, Ordering::SeqCst), "as the test wants it");
        Ok(())
    }

    fn position(&self) -> Lsn {
        Lsn(5)
    }

    fn flushed(&self) -> Lsn {
        Lsn::NONE
    }
}

#[test]
fn a_panic_of_the_log_does_not_end_the_cleaning() {
    let site = Site::new();
    let log = Arc::new(PanicsOnce::default());
    let builder = Site::bare(256).directory(site.path("main"));
    let pool = builder.wal(Arc::<PanicsOnce>::clone(&log)).build().unwrap();
    let file = pool.open_file("t", &create()).unwrap();
    file.extend(2000).unwrap();
    // The watchdog ends the test if the cleaner has died.
    while pool.stats().pool.cleaner_pages == 0 || !log.0.load(Ordering::SeqCst) {
        for block in 0..2000 {
            let mut page = file.write(block).unwrap();
            page[64] = page[64].wrapping_add(1);
            page.mark_dirty(Lsn(5));
        }
    }
    pool.close().unwrap();
}
