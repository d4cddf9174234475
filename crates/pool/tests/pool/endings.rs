//! The end of a pool: the last handle ends it, wherever that handle is kept and whichever thread drops it.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

use forebay::{Error, PagedFile, PoolBuilder, Tablespace};
use forebay_io::{CacheMode, Kind, Prefer};

use crate::site::{SHORT, Site, create, number_in, numbered, read, set, skip, wait_until, write};

/// The contents of block 0 of the table on disk, read by another pool on the same directory, once that can be opened.
fn left_behind(builder: impl Fn() -> PoolBuilder, block: u32) -> u64 {
    let next = Mutex::new(None);
    wait_until("the pool's end", || match builder().build() {
        Ok(pool) => {
            *next.lock().unwrap() = Some(pool);
            true
        }
        Err(error) => matches!(error, Error::InUse { .. }).then_some(false).expect("in use"),
    });
    let pool = next.into_inner().unwrap().unwrap();
    read(&pool.open_file("table", &create()).unwrap(), block)
}

#[test]
fn grd_3_a_guard_that_is_kept_keeps_the_pool() {
    let site = Site::with_patience(Duration::from_secs(30));
    let builder = || site.builder(8);
    let pool = builder().build().unwrap();
    let file = numbered(&pool, "table", 3, 10);
    let (pin, shared) = (file.pin(1).unwrap().into_owned(), file.read(2).unwrap().into_owned());
    let mut page = file.write(0).unwrap().into_owned();
    drop((pool, file));
    assert!(matches!(builder().build(), Err(Error::InUse { .. })), "[GRD-3]");
    set(&mut page, 99);
    assert_eq!((number_in(&pin.latch_shared().unwrap()), number_in(&shared)), (11, 12), "[GRD-3]");
    drop((shared, pin));
    // The last handle, and on another thread: its latch is released before its page is written.
    thread::spawn(move || drop(page)).join().unwrap();
    assert!(builder().build().is_ok(), "the pool has ended with the guard");
    assert_eq!(left_behind(builder, 0), 99, "[GRD-2]");
}

#[test]
fn what_is_kept_keeps_a_file_from_closing() {
    let site = Site::new();
    let pool = site.builder(8).frame_wait(SHORT).build().unwrap();
    let file = numbered(&pool, "table", 1, 10);
    let page = file.read(0).unwrap().into_owned();
    assert!(matches!(file.close(), Err(Error::Busy { .. })));
    assert!(matches!(pool.close(), Err(Error::Busy { .. })));
    assert_eq!(number_in(&page), 10);
    let pin = page.into_pin();
    assert!(matches!(file.close(), Err(Error::Busy { .. })));
    file.truncate(0).unwrap();
    assert!(matches!(pin.latch_shared(), Err(Error::Invalidated { .. })));
    drop(pin);
    pool.close().unwrap();
}

/// A task that is dropped with all its contents when it is woken.
struct Dropped {
    task: Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
    is_dropped: AtomicBool,
}

impl Wake for Dropped {
    fn wake(self: Arc<Self>) {
        let task = self.task.lock().unwrap().take();
        drop(task);
        self.is_dropped.store(true, Ordering::SeqCst);
    }
}

/// A task that holds the pool's last handle and is dropped when the page it waits for arrives. `None` if the page
/// arrived too early.
fn drop_in_landing(file: PagedFile) -> Option<()> {
    let task = Box::pin(async move { drop(file.read_async(0).await) });
    let dropped =
        Arc::new(Dropped { task: Mutex::new(Some(task)), is_dropped: AtomicBool::new(false) });
    let waker = Waker::from(Arc::clone(&dropped));
    {
        let mut task = dropped.task.lock().unwrap();
        let polled = task.as_mut().unwrap().as_mut().poll(&mut Context::from_waker(&waker));
        if polled.is_ready() {
            return None;
        }
    }
    wait_until("the task's end", || dropped.is_dropped.load(Ordering::SeqCst));
    Some(())
}

/// By the queue's own thread, or by the pool's thread that drives the queue.
#[test]
fn end_1_a_waker_drops_the_last_handle_as_a_page_lands() {
    let site = Site::with_patience(Duration::from_secs(30));
    for kind in Kind::ALL {
        // A direct read takes longer.
        let main = Tablespace::new("main", site.path(&kind.to_string())).cache(CacheMode::Direct);
        let builder =
            || Site::bare(8).backend(Prefer::Only(kind)).tablespace(main.clone()).cleaner(false);
        let opened =
            builder().build().and_then(|pool| pool.open_file("table", &create()).map(drop));
        if let Err(error) = opened {
            skip(&format!("endings: {kind}"), &error.to_string());
            continue;
        }
        let found = (0..200).find_map(|number| {
            let pool = builder().build().unwrap();
            let file = numbered(&pool, "table", 2, 10);
            assert!(file.evict(0).unwrap());
            write(&file, 1, number);
            drop(pool);
            drop_in_landing(file).map(|()| number)
        });
        let number = found.expect("a page that takes longer than a poll");
        assert_eq!(left_behind(builder, 1), number, "[END-1] {kind}");
    }
}
