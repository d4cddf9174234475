//! Guards: which accesses to a page are allowed at the same time, and how long the others wait.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use forebay::{
    BufferPool, Error, Optimistic, PageMut, PageRef, PagedFile, Pin, StreamOptions, TryUpgrade,
    Upgrade,
};

use crate::site::{Ends, Site, is_dirty, number_in, numbered, read, set, wait_until, write};

/// How a page is latched.
#[derive(Debug, PartialEq)]
enum Latch {
    Free,
    Shared(u64),
    Exclusive,
}

fn latch(pool: &BufferPool, block: u32) -> (u64, Latch) {
    let view = pool.view();
    let frame = view.iter().find(|frame| frame.block == block).unwrap();
    let latch = match frame.shared {
        0 if frame.exclusive => Latch::Exclusive,
        0 => Latch::Free,
        readers => Latch::Shared(readers),
    };
    (frame.pins, latch)
}

/// A latch is a count in a frame's word and belongs to its guard, not to a thread: so every guard may be released on
/// another thread, and guards that borrow nothing may be stored.
#[test]
fn guards_go_anywhere() {
    fn goes<T: Send + Sync>() {}
    fn stays<T: Send + Sync + 'static>() {}
    goes::<(Pin<'_>, PageRef<'_>, PageMut<'_>, Optimistic<'_>)>();
    stays::<(Pin<'static, PagedFile>, PageRef<'static, PagedFile>, PageMut<'static, PagedFile>)>();
    // Not larger because of that where nothing is owned.
    assert!(size_of::<PageRef<'_>>() <= 6 * size_of::<usize>());
}

/// The state that an engine keeps between two calls: the file, and the current page.
struct Cursor {
    file: PagedFile,
    page: Option<PageRef<'static, PagedFile>>,
}

impl Cursor {
    fn next(&mut self) -> Option<u64> {
        let next = self.page.take().map_or(0, |page| page.block() + 1);
        self.page = (next < self.file.blocks()).then(|| self.file.read(next).unwrap().into_owned());
        self.page.as_ref().map(|page| number_in(page))
    }
}

#[test]
fn a_cursor_keeps_its_page_with_its_file_and_goes_with_it_to_other_threads() {
    let site = Site::new();
    let (pool, _disk) = site.rigged(8);
    let file = numbered(&pool, "table", 20, 5);
    let mut cursor = Cursor { file, page: None };
    for number in 5..25 {
        cursor = thread::spawn(move || {
            assert_eq!(cursor.next(), Some(number));
            cursor
        })
        .join()
        .unwrap();
        assert_eq!(latch(&pool, number as u32 - 5), (1, Latch::Shared(1)), "[GRD-1]");
    }
    assert_eq!(cursor.next(), None);
    assert_eq!(pool.stats().frames_pinned, 0);
    // A page of a stream as well; it may outlive the stream.
    let scan = cursor.file.stream_with(3..4, &StreamOptions::new());
    let page = scan.last().unwrap().unwrap().page.into_owned();
    assert_eq!((number_in(&page), latch(&pool, 3)), (8, (1, Latch::Shared(1))));
}

#[test]
fn an_owned_guard_turns_into_owned_ones() {
    let site = Site::new();
    let (pool, _disk) = site.rigged(8);
    let file = numbered(&pool, "table", 2, 0);
    let held = || latch(&pool, 0);
    let pin = file.read(0).unwrap().into_owned().into_pin();
    drop(file);
    assert_eq!(held(), (1, Latch::Free), "[GRD-1]");
    let shared: PageRef<'static, PagedFile> = pin.latch_shared().unwrap();
    assert_eq!(held(), (2, Latch::Shared(1)), "[GRD-1]");
    let other = pin.try_latch_shared().unwrap().unwrap();
    let TryUpgrade::Shared(shared) = shared.try_upgrade().unwrap() else { panic!("others read") };
    drop(other);
    let Upgrade::Unchanged(mut page) = shared.upgrade().unwrap() else { panic!("no thread wrote") };
    assert_eq!(held(), (2, Latch::Exclusive), "[GRD-1]");
    assert!(pin.clone().try_latch_exclusive().unwrap().is_none());
    set(&mut page, 7);
    let page = page.downgrade();
    assert_eq!((held(), number_in(&page)), ((2, Latch::Shared(1)), 7), "[GRD-1]");
    drop(page);
    let page = pin.into_exclusive().unwrap();
    assert_eq!(held(), (1, Latch::Exclusive), "[GRD-1]");
    drop(page);
    assert_eq!(held(), (0, Latch::Free), "[GRD-1]");

    // A page that was changed and not marked, before or after the guard was made owned, is dirty when the guard is
    // dropped.
    let file = pool.open_file("table", &forebay::FileOptions::new()).unwrap();
    file.flush_file().unwrap();
    for before in [true, false] {
        let mut page = file.write(0).unwrap();
        if before {
            page[9] = 1;
        }
        let mut page = page.into_owned();
        assert!(!is_dirty(&pool, 0));
        if !before {
            page[9] = 2;
        }
        drop(page);
        assert!(is_dirty(&pool, 0), "[GRD-2] {before}");
        file.flush_file().unwrap();
    }
}

#[test]
fn a_guard_holds_one_pin_and_one_latch_until_it_is_dropped() {
    let site = Site::new();
    let (pool, _disk) = site.rigged(8);
    let file = numbered(&pool, "table", 2, 0);
    let held = || latch(&pool, 0);
    let one = file.read(0).unwrap();
    let two = file.read(0).unwrap();
    assert_eq!(held(), (2, Latch::Shared(2)), "[GRD-1]");
    drop(two);
    assert_eq!(held(), (1, Latch::Shared(1)), "[GRD-1]");
    let TryUpgrade::Exclusive(page) = one.try_upgrade().unwrap() else { panic!("it is alone") };
    assert_eq!(held(), (1, Latch::Exclusive), "[GRD-1]");
    let page = page.downgrade();
    assert_eq!(held(), (1, Latch::Shared(1)), "[GRD-1]");
    let pin = page.into_pin();
    assert_eq!(held(), (1, Latch::Free), "[GRD-1]");
    let copy = pin.clone();
    let page = pin.latch_exclusive().unwrap();
    assert_eq!(held(), (3, Latch::Exclusive), "[GRD-1]");
    drop((page, copy));
    let page = pin.into_exclusive().unwrap();
    assert_eq!(held(), (1, Latch::Exclusive), "[GRD-1]");
    let pin = page.into_pin();
    let shared = pin.try_latch_shared().unwrap().unwrap();
    assert_eq!(held(), (2, Latch::Shared(1)), "[GRD-1]");
    drop(shared);
    assert_eq!(held(), (1, Latch::Free), "[GRD-1]");
    drop(pin);
    assert_eq!(held(), (0, Latch::Free), "[GRD-1]");
}

#[test]
fn a_guard_may_go_to_another_thread() {
    let site = Site::new();
    let (pool, _disk) = site.rigged(8);
    let file = numbered(&pool, "table", 2, 0);
    let (mut page, shared) = (file.write(0).unwrap(), file.read(1).unwrap());
    thread::scope(|scope| {
        scope.spawn(move || set(&mut page, 5));
        scope.spawn(move || assert_eq!(number_in(&shared), 1));
    });
    assert_eq!(read(&file, 0), 5);
    assert_eq!(pool.stats().frames_pinned, 0, "[GRD-1]");
}

#[test]
fn a_conditional_latch_says_no_rather_than_waiting() {
    let site = Site::new();
    let (pool, _disk) = site.rigged(8);
    let file = numbered(&pool, "table", 1, 0);
    let pin = file.pin(0).unwrap();
    let page = file.write(0).unwrap();
    assert!(pin.try_latch_shared().unwrap().is_none());
    assert!(pin.try_latch_exclusive().unwrap().is_none());
    let page = page.downgrade();
    assert!(pin.try_latch_shared().unwrap().is_some());
    assert!(pin.try_latch_exclusive().unwrap().is_none());
    drop(page);
    assert!(pin.try_latch_exclusive().unwrap().is_some());
    assert_eq!(latch(&pool, 0), (1, Latch::Free));
}

#[test]
fn of_two_readers_neither_can_upgrade_at_once_and_both_can_by_waiting() {
    let site = Site::new();
    let pool = site.pool(8);
    let file = numbered(&pool, "table", 1, 0);
    let (one, two) = (file.read(0).unwrap(), file.read(0).unwrap());
    let TryUpgrade::Shared(one) = one.try_upgrade().unwrap() else { panic!("both read") };
    let TryUpgrade::Shared(two) = two.try_upgrade().unwrap() else { panic!("both read") };
    let unchanged = thread::scope(|scope| {
        let threads = [one, two].map(|page| {
            scope.spawn(move || {
                let upgrade = page.upgrade().unwrap();
                let unchanged = matches!(upgrade, Upgrade::Unchanged(_));
                let (Upgrade::Unchanged(mut page) | Upgrade::Changed(mut page)) = upgrade;
                let next = number_in(&page) + 1;
                set(&mut page, next);
                unchanged
            })
        });
        threads.map(|thread| thread.join().unwrap())
    });
    assert_eq!(read(&file, 0), 2);
    assert_eq!(unchanged.iter().filter(|unchanged| **unchanged).count(), 1, "{unchanged:?}");
}

#[test]
fn an_upgrade_that_was_granted_unchanged_met_no_change() {
    let site = Site::new();
    let pool = site.pool(8);
    let file = numbered(&pool, "table", 1, 0);
    let kept = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            let (file, kept) = (&file, &kept);
            scope.spawn(move || {
                for _ in 0..2000 {
                    let page = file.read(0).unwrap();
                    let seen = number_in(&page);
                    let upgrade = page.upgrade().unwrap();
                    let unchanged = matches!(upgrade, Upgrade::Unchanged(_));
                    let (Upgrade::Unchanged(mut page) | Upgrade::Changed(mut page)) = upgrade;
                    let now = number_in(&page);
                    assert!(!unchanged || now == seen, "{seen} became {now}");
                    kept.fetch_add(u64::from(unchanged), Ordering::Relaxed);
                    set(&mut page, now + 1);
                }
            });
        }
    });
    assert_eq!(read(&file, 0), 8000);
    assert!(kept.into_inner() > 0);
}

#[test]
fn a_downgrade_lets_readers_in_and_writers_not() {
    let site = Site::new();
    let pool = site.pool(8);
    let file = numbered(&pool, "table", 1, 0);
    let mut page = file.write(0).unwrap();
    thread::scope(|scope| {
        let reader = scope.spawn(|| read(&file, 0));
        wait_until("the reader", || latch(&pool, 0).0 == 2);
        assert!(!reader.is_finished());
        set(&mut page, 1);
        let page = page.downgrade();
        assert_eq!(reader.join().unwrap(), 1);
        let writer = scope.spawn(|| write(&file, 0, 2));
        wait_until("the writer", || latch(&pool, 0).0 == 2);
        assert_eq!((number_in(&page), writer.is_finished()), (1, false));
        drop(page);
        writer.join().unwrap();
    });
    assert_eq!(read(&file, 0), 2);
}

#[test]
fn every_sleeper_is_woken_however_latches_come_and_go() {
    let site = Site::new();
    let pool = site.pool(8);
    let file = numbered(&pool, "table", 2, 0);
    thread::scope(|scope| {
        for seed in 0..8 {
            let file = &file;
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                for _ in 0..1500 {
                    let pin = file.pin(random.u32(..2)).unwrap();
                    match random.u32(..5) {
                        0 => drop(pin.latch_shared().unwrap()),
                        1 => drop(pin.latch_exclusive().unwrap().downgrade()),
                        2 => drop(pin.into_shared().unwrap().upgrade().unwrap()),
                        3 => {
                            let page = pin.latch_exclusive().unwrap();
                            thread::yield_now();
                            drop(page);
                        }
                        _ => {
                            let page = pin.latch_shared().unwrap();
                            thread::yield_now();
                            drop(page.try_upgrade());
                        }
                    }
                }
            });
        }
    });
    assert_eq!((latch(&pool, 0), latch(&pool, 1)), ((0, Latch::Free), (0, Latch::Free)), "[PRK-1]");
    // A lost wake-up would have triggered the watchdog; a flag left behind would keep the page here.
    let other = numbered(&pool, "other", 16, 0);
    (0..48).for_each(|turn| drop(other.read(turn % 16).unwrap()));
    assert!(!file.is_resident(0) && !file.is_resident(1), "[PRK-1]");
}

/// Maximum time that `wanted` waits while `others` run in a loop on four threads.
fn longest_wait(others: impl Fn() + Sync, wanted: impl Fn()) -> Duration {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    others();
                }
            });
        }
        let _ends = Ends(&done);
        let waits = (0..30).map(|_| {
            thread::sleep(Duration::from_millis(2));
            let start = Instant::now();
            wanted();
            start.elapsed()
        });
        waits.max().unwrap()
    })
}

#[test]
fn a_writer_is_not_starved_by_readers() {
    let site = Site::new();
    let pool = site.pool(8);
    let file = numbered(&pool, "table", 1, 0);
    let longest = longest_wait(
        || {
            let page = file.read(0).unwrap();
            number_in(&page);
        },
        || write(&file, 0, 1),
    );
    assert!(longest < Duration::from_secs(60), "{longest:?}");
}

#[test]
fn a_reader_is_not_starved_by_writers() {
    let site = Site::new();
    let pool = site.pool(8);
    let file = numbered(&pool, "table", 1, 0);
    let longest = longest_wait(|| write(&file, 0, 1), || drop(file.read(0).unwrap()));
    assert!(longest < Duration::from_secs(60), "{longest:?}");
}

#[test]
fn a_page_of_a_read_only_file_is_never_latched_exclusively() {
    let site = Site::new();
    let pool = site.pool(8);
    numbered(&pool, "table", 1, 6).close().unwrap();
    let file = pool.open_file("table", &forebay::FileOptions::new().read_only(true)).unwrap();
    let pin = file.pin(0).unwrap();
    let refused = [
        file.write(0).err(),
        file.init(0).err(),
        file.append().err(),
        pin.latch_exclusive().err(),
        pin.try_latch_exclusive().err(),
        file.read(0).unwrap().upgrade().err(),
        file.read(0).unwrap().try_upgrade().err(),
        file.extend(1).err(),
        file.truncate(0).err(),
        file.drop_file().err(),
    ];
    for error in &refused {
        assert!(matches!(error, Some(Error::ReadOnly { .. })), "{error:?}");
    }
    assert_eq!((latch(&pool, 0), read(&file, 0)), ((1, Latch::Free), 6));
    drop(pin);
    file.flush_file().unwrap();
    file.close().unwrap();
}
