//! Optimistic reads: they hold no latch, and never return a state that did not exist.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use forebay::{Error, Optimistic};

use crate::site::{Ends, PAGE, Site, number_in, numbered, set, write};

#[test]
fn an_optimistic_guard_is_valid_until_a_thread_has_the_page_exclusively() {
    let site = Site::new();
    let (pool, _disk) = site.rigged(8);
    let file = numbered(&pool, "table", 1, 4);
    let guard = file.optimistic(0).unwrap();
    let mut bytes = [0; 8];
    assert!(guard.read(8, &mut bytes) && guard.still_valid());
    assert_eq!((u64::from_le_bytes(bytes), guard.block()), (4, 0));
    assert_eq!(guard.load(8).map(u64::from_le_bytes), Some(4));
    assert_eq!(
        guard.load(PAGE - 2).map(u16::from_le_bytes),
        Some(0),
        "the highest two bytes of a 4"
    );
    assert_eq!((guard.load::<8>(PAGE - 7), guard.load::<1>(usize::MAX)), (None, None));
    assert_eq!(guard.inspect(|page| page.load(16).map(u32::from_le_bytes)), Some(Some(4)));
    drop((file.read(0).unwrap(), file.pin(0).unwrap()));
    assert!(guard.still_valid(), "nothing was changed");
    let page = file.write(0).unwrap();
    assert!(!guard.still_valid());
    drop(page);
    assert!(!guard.read(8, &mut bytes), "[OPT-1]");
    assert_eq!(bytes, [0; 8], "[OPT-1]");
    assert_eq!(guard.inspect(|_| ()), None, "[OPT-1]");
    assert!(file.optimistic(0).unwrap().read(8, &mut bytes));
    assert_eq!(pool.stats().pool.optimistic_retries, 2);
    assert_eq!(pool.stats().frames_pinned, 0);
}

#[test]
fn a_guard_of_a_page_that_left_its_frame_is_not_valid() {
    let site = Site::new();
    let (pool, _disk) = site.rigged(8);
    let file = numbered(&pool, "table", 40, 0);
    let guard = file.optimistic(3).unwrap();
    (8..40).for_each(|block| drop(file.read(block).unwrap()));
    assert!(!file.is_resident(3));
    assert!(!guard.read(0, &mut [1; PAGE]), "[OPT-1]");
    let guard = file.optimistic(39).unwrap();
    file.truncate(39).unwrap();
    assert!(!guard.still_valid(), "[OPT-1]");
    assert!(matches!(file.optimistic(39), Err(Error::PastEnd { .. })));
}

#[test]
fn an_optimistic_read_waits_for_a_thread_that_changes_the_page() {
    let site = Site::new();
    let (pool, _disk) = site.rigged(8);
    let file = numbered(&pool, "table", 1, 4);
    let mut page = file.write(0).unwrap();
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut bytes = [0; 8];
            file.copy(0, 8, &mut bytes).unwrap();
            u64::from_le_bytes(bytes)
        });
        crate::site::wait_until("the reader", || pool.view()[0].pins == 2);
        set(&mut page, 5);
        drop(page);
        assert_eq!(reader.join().unwrap(), 5);
    });
}

/// An optimistic reader is not starved by threads that change the page: in the end they wait for it.
#[test]
fn what_keeps_changing_is_inspected_under_the_latch() {
    let site = Site::new();
    let (pool, _disk) = site.rigged(8);
    let file = numbered(&pool, "table", 2, 0);
    let mut tries = 0;
    let found = file.inspect(0, |page| {
        tries += 1;
        let before = page.load(8).map(u64::from_le_bytes);
        match file.try_write(0).unwrap() {
            Some(mut page) => set(&mut page, tries),
            None => assert_eq!(pool.view()[0].shared, 1, "another thread than the reader has it"),
        }
        before
    });
    assert_eq!((found.unwrap(), tries), (Some(4), 5), "[OPT-1]");
    assert_eq!(pool.stats().frames_pinned, 0);

    // Even a latch does not keep a page in its file.
    let mut tries = 0;
    let cut = file.inspect(1, |_| {
        tries += 1;
        if file.try_write(1).unwrap().is_none() {
            file.truncate(1).unwrap();
        }
    });
    assert!(matches!(cut, Err(Error::PastEnd { block: 1, .. })), "{cut:?} after {tries} tries");
    assert_eq!(tries, 5, "[OPT-1]");
}

#[test]
fn no_copy_is_torn_and_none_is_older_than_what_was_known() {
    let site = Site::new();
    let pool = site.pool(8);
    let file = numbered(&pool, "table", 20, 0);
    // The newest number that is known to be in page 0.
    let newest = AtomicU64::new(0);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let _ends = Ends(&done);
            for number in 1..4000 {
                write(&file, 0, number);
                newest.store(number, Ordering::SeqCst);
            }
        });
        // The page is evicted now and then.
        scope.spawn(|| {
            let mut random = fastrand::Rng::with_seed(1);
            while !done.load(Ordering::SeqCst) {
                drop(file.read(random.u32(1..20)).unwrap());
            }
        });
        for reader in 0..3 {
            let (file, newest, done) = (&file, &newest, &done);
            scope.spawn(move || {
                let mut bytes = vec![0; PAGE];
                while !done.load(Ordering::SeqCst) {
                    let known = newest.load(Ordering::SeqCst);
                    if reader == 0 {
                        file.copy(0, 0, &mut bytes).unwrap();
                    } else if reader == 1 {
                        let words = |page: &Optimistic<'_>| {
                            let mut words = bytes.chunks_exact_mut(8).enumerate();
                            words.all(|(at, word)| {
                                page.load(8 * at)
                                    .map(|it: [u8; 8]| word.copy_from_slice(&it))
                                    .is_some()
                            })
                        };
                        assert!(file.inspect(0, words).unwrap());
                    } else {
                        // Two reads by one guard, combined into one page.
                        let guard = file.optimistic(0).unwrap();
                        let (head, tail) = bytes.split_at_mut(PAGE / 2);
                        if !(guard.read(0, head) && guard.read(PAGE / 2, tail)) {
                            continue;
                        }
                    }
                    let number = number_in(&bytes);
                    assert!(number >= known, "[OPT-1] [MEM-4] {number} after {known}");
                }
            });
        }
    });
    assert!(pool.stats().pool.optimistic_reads > 0);
}
