//! Pages read by async tasks: on one thread, with several executors, with futures dropped early, with few frames.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use forebay::{
    BufferPool, Error, FileOptions, Order, PagedFile, ReadaheadStrategy, StreamError,
    StreamOptions, Streamed, Tablespace,
};
use forebay_io::{CacheMode, Kind, Op, OsError, Prefer};
use futures_core::Stream;

use crate::site::{
    PATIENCE, SHORT, Site, create, fill, is_io, number_in, numbered, read, reopened, set, skip,
    wait_until, write,
};

/// The tasks of one thread that are ready to be polled.
struct Ready {
    thread: Thread,
    tasks: Mutex<VecDeque<usize>>,
}

struct Numbered(usize, Arc<Ready>);

impl Wake for Numbered {
    fn wake(self: Arc<Self>) {
        self.1.tasks.lock().unwrap().push_back(self.0);
        self.1.thread.unpark();
    }
}

type Task<'t> = Pin<Box<dyn Future<Output = ()> + 't>>;

/// Runs all tasks on this thread; `idle` is called when none is ready.
fn run_all<'t>(tasks: impl IntoIterator<Item = Task<'t>>, idle: impl Fn()) {
    let ready = Arc::new(Ready { thread: thread::current(), tasks: Mutex::default() });
    let mut tasks: Vec<Option<Task<'t>>> = tasks.into_iter().map(Some).collect();
    let wakers: Vec<Waker> =
        (0..tasks.len()).map(|at| Arc::new(Numbered(at, Arc::clone(&ready))).into()).collect();
    ready.tasks.lock().unwrap().extend(0..tasks.len());
    let mut left = tasks.len();
    while left > 0 {
        let next = ready.tasks.lock().unwrap().pop_front();
        let Some(at) = next else {
            idle();
            continue;
        };
        let Some(task) = &mut tasks[at] else { continue };
        if task.as_mut().poll(&mut Context::from_waker(&wakers[at])).is_ready() {
            tasks[at] = None;
            left -= 1;
        }
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let (mut future, result) = (pin!(future), Cell::new(None));
    let task = std::future::poll_fn(|context| {
        future.as_mut().poll(context).map(|it| result.set(Some(it)))
    });
    run_all([Box::pin(task) as Task<'_>], thread::park);
    result.into_inner().unwrap()
}

/// Lets the other tasks run once.
async fn give_way() {
    let mut been = false;
    std::future::poll_fn(|context| {
        context.waker().wake_by_ref();
        if std::mem::replace(&mut been, true) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Counts how often it was woken.
#[derive(Default)]
struct Counted(AtomicUsize);

impl Wake for Counted {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn poll_once<T>(future: &mut (impl Future<Output = T> + Unpin), waker: &Arc<Counted>) -> Poll<T> {
    let waker = Waker::from(Arc::clone(waker));
    Pin::new(future).poll(&mut Context::from_waker(&waker))
}

#[test]
fn a_page_in_memory_is_there_at_the_first_look() {
    let site = Site::new();
    let (pool, disk) = site.rigged(8);
    let file = numbered(&pool, "table", 2, 10);
    let (reads, waker) = (disk.count(Op::Read), Arc::new(Counted::default()));
    let Poll::Ready(page) = poll_once(&mut file.read_async(0), &waker) else { panic!("[ACQ-1]") };
    assert_eq!(number_in(&page.unwrap()), 10);
    let Poll::Ready(page) = poll_once(&mut file.write_async(1), &waker) else { panic!("[ACQ-1]") };
    set(&mut page.unwrap(), 99);
    assert_eq!(read(&file, 1), 99);
    assert_eq!((disk.count(Op::Read), waker.0.load(Ordering::SeqCst)), (reads, 0));
    assert!(matches!(block_on(file.read_async(2)), Err(Error::PastEnd { block: 2, .. })));
    file.flush_file().unwrap();
    file.close().unwrap();
    assert!(matches!(block_on(file.read_async(0)), Err(Error::Invalidated { .. })));
    let file = pool.open_file("table", &FileOptions::new().read_only(true)).unwrap();
    assert!(matches!(block_on(file.write_async(0)), Err(Error::ReadOnly { .. })));
    assert_eq!(number_in(&block_on(file.read_async(0)).unwrap()), 10);
}

#[test]
fn lod_1_tasks_and_threads_that_miss_one_page_share_one_read() {
    let site = Site::new();
    let (pool, disk) = site.rigged(8);
    let file = numbered(&pool, "table", 1, 10);
    let file = reopened(&pool, file);
    let reads = disk.count(Op::Read);
    let gate = disk.hold(Op::Read);
    thread::scope(|scope| {
        let first =
            scope.spawn(|| block_on(async { number_in(&file.read_async(0).await.unwrap()) }));
        gate.wait_for(1);
        let second = scope.spawn(|| number_in(&pollster::block_on(file.read_async(0)).unwrap()));
        let third = scope.spawn(|| read(&file, 0));
        wait_until("three holders", || pool.view()[0].pins == 3);
        gate.open();
        for job in [first, second, third] {
            assert_eq!(job.join().unwrap(), 10);
        }
    });
    assert_eq!(disk.count(Op::Read), reads + 1, "[LOD-1]");
    let stats = pool.stats();
    assert_eq!(stats.frames_pinned, 0);
    // A page that a task requested does not count as read ahead.
    assert_eq!((stats.pool.prefetches_useful, stats.pool.prefetches_wasted), (0, 0));
}

/// Each task adds one to some pages, and holds a guard while others run; there are many more tasks than frames.
fn works(site: &Site, name: &str, kind: Kind, cache: CacheMode, run: impl Fn(Vec<Task<'_>>)) {
    const BLOCKS: u32 = 60;
    let open = || {
        let main = Tablespace::new("main", site.path(name)).cache(cache).queue_depth(4);
        let builder =
            Site::bare(12).backend(Prefer::Only(kind)).frame_wait(Duration::from_secs(60));
        builder.tablespace(main).build()
    };
    let pool = match open() {
        Ok(pool) => pool,
        Err(error) => return skip(&format!("futures: {name}"), &error.to_string()),
    };
    let file = match pool.open_file("table", &create()) {
        Ok(file) => file,
        Err(error) => return skip(&format!("futures: {name}"), &error.to_string()),
    };
    file.extend(BLOCKS).unwrap();
    let file = &file;
    let tasks = (0..150).map(|task| {
        let mut random = fastrand::Rng::with_seed(task);
        let task = async move {
            for _ in 0..3 {
                let mut page = file.write_async(random.u32(..BLOCKS)).await.unwrap();
                let number = number_in(&page);
                if random.bool() {
                    give_way().await;
                }
                set(&mut page, number + 1);
            }
            let page = file.read_async(random.u32(..BLOCKS)).await.unwrap();
            give_way().await;
            number_in(&page);
        };
        Box::pin(task) as Task<'_>
    });
    run(tasks.collect());
    let sum: u64 = (0..BLOCKS).map(|block| read(file, block)).sum();
    assert_eq!(sum, 450, "{name}");
    wait_until("the cleaner", || pool.stats().frames_pinned == 0); // [ACQ-1]
    pool.close().unwrap();
}

#[test]
fn every_backend_carries_hundreds_of_tasks_on_one_thread_over_twelve_frames() {
    let site = Site::new();
    for kind in Kind::ALL {
        for cache in [CacheMode::Buffered, CacheMode::Direct] {
            if kind.serves(cache) {
                let name = format!("{kind} {cache:?}");
                works(&site, &name, kind, cache, |tasks| run_all(tasks, thread::park));
            }
        }
    }
}

#[test]
fn other_executors_will_do() {
    let site = Site::new();
    works(&site, "local pool", Kind::Threads, CacheMode::Buffered, |tasks| {
        use futures_executor::LocalPool;
        let left = Cell::new(tasks.len());
        let mut pool = LocalPool::new();
        let all = RefCell::new(tasks);
        // It spawns only futures that live forever; so all tasks are polled by one of its tasks.
        pool.run_until(std::future::poll_fn(|context| {
            all.borrow_mut().retain_mut(|task| {
                let ended = task.as_mut().poll(context).is_ready();
                left.set(left.get() - usize::from(ended));
                !ended
            });
            if left.get() == 0 { Poll::Ready(()) } else { Poll::Pending }
        }));
    });
}

#[test]
fn thousands_of_tasks_on_one_thread_go_through_a_few_frames() {
    let site = Site::new();
    let pool = site.builder(16).frame_wait(Duration::from_secs(60)).build().unwrap();
    let file = numbered(&pool, "table", 500, 1000);
    let file = &reopened(&pool, file);
    let done = &Cell::new(0);
    let tasks = (0..2000_u32).map(|task| {
        Box::pin(async move {
            let block = task.wrapping_mul(7919) % 500;
            let page = file.read_async(block).await.unwrap();
            give_way().await;
            assert_eq!(number_in(&page), 1000 + u64::from(block));
            done.set(done.get() + 1);
        }) as Task<'_>
    });
    run_all(tasks, thread::park);
    assert_eq!(done.get(), 2000);
    wait_until("the cleaner", || pool.stats().frames_pinned == 0); // [ACQ-1]
    pool.close().unwrap();
}

/// Futures are polled a few times and dropped, by two threads, while other threads change the pages.
#[test]
fn acq_1_futures_dropped_anywhere_leave_nothing_behind() {
    let site = Site::new();
    for kind in Kind::ALL {
        let builder = Site::bare(12).backend(Prefer::Only(kind));
        let builder = builder.frame_wait(PATIENCE);
        let cache = if kind == Kind::Aio { CacheMode::Direct } else { CacheMode::Buffered };
        let main = Tablespace::new("main", site.path(&kind.to_string())).cache(cache);
        let pool = match builder.tablespace(main).build() {
            Ok(pool) => pool,
            Err(error) => {
                skip(&format!("futures: {kind}"), &error.to_string());
                continue;
            }
        };
        let file = pool.open_file("table", &create()).unwrap();
        file.extend(40).unwrap();
        (0..40).for_each(|block| fill(&mut file.write(block).unwrap(), 5));
        let (file, stop) = (&file, &AtomicBool::new(false));
        thread::scope(|scope| {
            for seed in 0..2 {
                scope.spawn(move || drop_at_random(file, seed));
            }
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(77);
                while !stop.load(Ordering::SeqCst) {
                    let block = random.u32(..40);
                    assert_eq!(number_in(&file.read(block).unwrap()), 5);
                    drop(file.write(block).unwrap());
                }
            });
            thread::sleep(Duration::from_millis(150));
            stop.store(true, Ordering::SeqCst);
        });
        // The cleaner may hold a pin for a moment.
        wait_until("pins", || pool.view().iter().all(|frame| frame.pins == 0)); // [ACQ-1]
        // All frames can be pinned: none is lost, and none is latched forever.
        let pins: Vec<_> = (0..12).map(|block| file.write(block).unwrap()).collect();
        drop(pins);
        pool.close().unwrap();
    }
}

fn drop_at_random(file: &PagedFile, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let waker = Arc::new(Counted::default());
    for _ in 0..400 {
        let mut reads: Vec<_> = (0..6).map(|_| file.read_async(random.u32(..40))).collect();
        let mut write = file.write_async(random.u32(..40));
        for _ in 0..random.usize(..8) {
            let at = random.usize(..7);
            match reads.get_mut(at) {
                Some(read) => drop(poll_once(read, &waker)),
                None => drop(poll_once(&mut write, &waker)),
            }
            if random.u8(..4) == 0 {
                thread::sleep(Duration::from_micros(random.u64(..200)));
            }
        }
    }
}

#[test]
fn a_waker_that_panics_is_its_own_tasks_misfortune() {
    struct Bad;
    impl Wake for Bad {
        fn wake(self: Arc<Self>) {
            panic!("a waker of the test's");
        }
    }
    let site = Site::new();
    for kind in [Kind::Threads, Kind::Sync, Kind::Uring] {
        let Ok(pool) = site.builder(8).backend(Prefer::Only(kind)).build() else {
            skip(&format!("futures: {kind}"), "not to be had here");
            continue;
        };
        let file = numbered(&pool, "table", 4, 10);
        let file = reopened(&pool, file);
        let bad = Waker::from(Arc::new(Bad));
        for block in 0..4 {
            let mut future = file.read_async(block);
            let first = Pin::new(&mut future).poll(&mut Context::from_waker(&bad));
            if let Poll::Ready(page) = first {
                assert_eq!(number_in(&page.unwrap()), 10 + u64::from(block));
                continue;
            }
            // Another task, and the task itself, find the page, whatever happened to the wake-up.
            assert_eq!(
                number_in(&block_on(file.read_async(block)).unwrap()),
                10 + u64::from(block)
            );
            let writer = file.write(block).unwrap();
            let again = Pin::new(&mut future).poll(&mut Context::from_waker(&bad));
            assert!(again.is_pending(), "the latch is taken");
            drop(writer);
            let again = Pin::new(&mut future).poll(&mut Context::from_waker(&bad));
            assert!(matches!(again, Poll::Ready(Ok(_))));
        }
        pool.close().unwrap();
    }
}

#[test]
fn a_guard_held_across_an_await_keeps_a_task_waiting_and_not_its_thread() {
    let site = Site::new();
    let (pool, _disk) = site.rigged(8);
    let file = &numbered(&pool, "table", 1, 10);
    let order = &RefCell::new(Vec::new());
    let writer = async {
        let mut page = file.write_async(0).await.unwrap();
        for _ in 0..5 {
            give_way().await;
        }
        set(&mut page, 11);
        order.borrow_mut().push("written");
    };
    let reader = async {
        assert_eq!(number_in(&file.read_async(0).await.unwrap()), 11);
        order.borrow_mut().push("read");
    };
    let late = async {
        set(&mut file.write_async(0).await.unwrap(), 12);
    };
    run_all([Box::pin(writer) as Task<'_>, Box::pin(reader), Box::pin(late)], thread::park);
    assert_eq!(order.borrow().first(), Some(&"written"));
    assert_eq!(read(file, 0), 12);
    assert!(pool.stats().wait(forebay::Wait::Latch).count() > 0);
}

/// Like threads, tasks that wait for an exclusive latch block new readers; but not once they are dropped.
#[test]
fn prk_2_threads_do_not_wait_for_a_writing_task_that_was_dropped_or_is_not_polled() {
    let site = Site::new();
    let (pool, _disk) = site.rigged(8);
    let file = numbered(&pool, "table", 1, 10);
    let waker = Arc::new(Counted::default());
    for dropped in [true, false] {
        let reader = file.read(0).unwrap();
        let mut writer = file.write_async(0);
        assert!(poll_once(&mut writer, &waker).is_pending());
        assert!(file.try_read(0).unwrap().is_none(), "who waits exclusively goes first");
        let mut writer = Some(writer).filter(|_| !dropped);
        if !dropped {
            drop(reader);
        }
        // With another reader holding the latch, or with no reader.
        assert_eq!(read(&file, 0), 10, "[PRK-2]");
        if let Some(writer) = &mut writer {
            assert!(matches!(poll_once(writer, &waker), Poll::Ready(Ok(_))));
        }
    }
    assert_eq!(pool.stats().frames_pinned, 0);
}

#[test]
fn a_task_waits_for_a_frame_and_gets_an_error_when_there_is_none() {
    let site = Site::new();
    let (pool, disk) = site.rigged_with(8, SHORT);
    let file = numbered(&pool, "table", 12, 10);
    let file = reopened(&pool, file);
    let mut pins: Vec<_> = (0..8).map(|block| file.pin(block).unwrap()).collect();
    let error = block_on(file.read_async(9)).unwrap_err();
    assert!(matches!(error, Error::NoFreeFrame { pinned: 8, capacity: 8, .. }), "{error}");
    let waker = Arc::new(Counted::default());
    let mut waiting = file.read_async(9);
    assert!(poll_once(&mut waiting, &waker).is_pending());
    pins.pop();
    wait_until("a frame", || waker.0.load(Ordering::SeqCst) > 0);
    assert_eq!(number_in(&block_on(waiting).unwrap()), 19);
    // And when only dirty pages can be evicted: written by the pool's own thread, or not.
    let dirty = pins.pop().unwrap().block();
    write(&file, dirty, 77);
    write(&file, 9, 78);
    assert_eq!(number_in(&block_on(file.read_async(10)).unwrap()), 20);
    write(&file, 10, 79);
    write(&file, dirty, 80);
    disk.fail(Op::Write, OsError::EIO);
    let error = block_on(file.read_async(11)).unwrap_err();
    assert!(is_io(&error, OsError::EIO), "{error}");
    disk.heal();
    assert_eq!(number_in(&block_on(file.read_async(11)).unwrap()), 21);
    drop(pins);
    assert_eq!((read(&file, 9), read(&file, 10), read(&file, dirty)), (78, 79, 80));
    pool.close().unwrap();
}

#[test]
fn lod_2_a_read_that_fails_fails_for_every_task_and_thread_that_waits() {
    let site = Site::new();
    let (pool, disk) = site.rigged(8);
    let file = numbered(&pool, "table", 2, 10);
    let file = reopened(&pool, file);
    disk.fail(Op::Read, OsError::EIO);
    let gate = disk.hold(Op::Read);
    thread::scope(|scope| {
        let first = scope.spawn(|| block_on(file.read_async(0)).err());
        gate.wait_for(1);
        let second = scope.spawn(|| block_on(file.write_async(0)).err());
        let third = scope.spawn(|| file.read(0).err());
        wait_until("three holders", || pool.view()[0].pins == 3);
        gate.open();
        for job in [first, second, third] {
            assert!(is_io(&job.join().unwrap().unwrap(), OsError::EIO), "[LOD-2]");
        }
    });
    disk.heal();
    let mut bytes = std::fs::read(file.path()).unwrap();
    bytes[5000] ^= 1;
    std::fs::write(file.path(), bytes).unwrap();
    assert!(matches!(block_on(file.read_async(1)), Err(Error::Corrupt { block: 1, .. })));
    assert_eq!(number_in(&block_on(file.read_async(0)).unwrap()), 10);
    assert_eq!(pool.stats().strategy(forebay::StrategyKind::Normal).corrupt_pages, 1, "[CPL-1]");
    assert_eq!(pool.stats().frames_pinned, 0);
}

/// The first task waits for a read of a stream; the thread that completes that read wakes it.
#[test]
fn drv_1_a_task_joins_what_a_stream_that_has_stopped_had_requested() {
    let site = Site::new();
    for kind in Kind::ALL {
        let cache = if kind == Kind::Aio { CacheMode::Direct } else { CacheMode::Buffered };
        let main = Tablespace::new("main", site.path(&kind.to_string())).cache(cache);
        let builder =
            Site::bare(256).backend(Prefer::Only(kind)).readahead(ReadaheadStrategy::Async);
        let Ok(pool) = builder.tablespace(main).build() else {
            skip(&format!("futures: {kind}"), "not to be had here");
            continue;
        };
        let file = numbered(&pool, "table", 100, 10);
        let file = reopened(&pool, file);
        let mut stream = file.scan(0..100);
        drop(stream.next().unwrap().unwrap());
        stream.pause();
        let all: Vec<Task<'_>> = (0..100_u32)
            .map(|block| {
                let file = &file;
                Box::pin(async move {
                    let page = file.read_async(block).await.unwrap();
                    assert_eq!(number_in(&page), 10 + u64::from(block), "[DRV-1]");
                }) as Task<'_>
            })
            .collect();
        run_all(all, thread::park);
        drop(stream);
        pool.close().unwrap();
    }
}

/// A file that is being closed is neither open nor closed: a task waits for the outcome.
#[test]
fn rsz_2_a_task_that_arrives_during_a_close_gets_its_result() {
    for fails in [false, true] {
        let site = Site::new();
        let (pool, disk) = site.rigged_with(8, SHORT);
        let file = numbered(&pool, "table", 2, 10);
        let file = reopened(&pool, file);
        set(&mut file.write(0).unwrap(), 5);
        file.flush_file().unwrap();
        file.sync().unwrap();
        let pin = fails.then(|| file.pin(0).unwrap());
        thread::scope(|scope| {
            let closing = scope.spawn(|| file.close());
            let task = block_on(file.read_async(1));
            match (task, closing.join().unwrap()) {
                (Ok(page), _) => assert_eq!(number_in(&page), 11),
                (Err(Error::Invalidated { .. }), closed) => assert!(closed.is_ok(), "[RSZ-2]"),
                (Err(error), _) => panic!("[RSZ-2] {error}"),
            }
        });
        drop((pin, disk));
    }
}

/// Without the pool's own threads, nothing makes progress unless the polling loop drives the queue.
#[test]
fn a_loop_may_drive_alone() {
    let site = Site::new();
    let drive = |pool: &BufferPool| pool.drive();
    let pool = site.builder(8).backend(Prefer::Only(Kind::Sync)).task_threads(false);
    let pool = pool.readahead(ReadaheadStrategy::Os).cleaner(false);
    let pool = pool.frame_wait(Duration::from_secs(60)).build().unwrap();
    let file = numbered(&pool, "table", 30, 10);
    let file = &reopened(&pool, file);
    let waker = Arc::new(Counted::default());
    let mut alone = file.read_async(0);
    assert!(poll_once(&mut alone, &waker).is_pending());
    thread::sleep(Duration::from_millis(20));
    assert!(!file.is_resident(0) && waker.0.load(Ordering::SeqCst) == 0, "another thread drives");
    drop(alone);
    let tasks = (0..100_u32).map(|task| {
        Box::pin(async move {
            let mut page = file.write_async(task % 30).await.unwrap();
            give_way().await;
            let number = number_in(&page);
            set(&mut page, number + 100);
        }) as Task<'_>
    });
    run_all(tasks, || drive(&pool));
    let sum: u64 = (0..30).map(|block| read(file, block)).sum();
    assert_eq!(sum, (10..40).sum::<u64>() + 10_000);
    pool.close().unwrap();
}

/// Sequences of misses by tasks are detected like those of threads.
#[test]
fn tasks_that_read_in_sequence_have_what_follows_read() {
    let site = Site::new();
    let pool = site.builder(256).readahead(ReadaheadStrategy::Async).build().unwrap();
    let file = numbered(&pool, "table", 100, 10);
    let file = reopened(&pool, file);
    let before = pool.stats();
    block_on(async {
        for block in 0..100 {
            assert_eq!(number_in(&file.read_async(block).await.unwrap()), 10 + u64::from(block));
        }
    });
    let requests = pool.stats().since(&before).strategy(forebay::StrategyKind::Normal).reads;
    assert!(requests < 60, "{requests} requests for 100 pages in sequence");
}

/// The next item of a stream, for a task.
async fn next<S: Stream + Unpin>(stream: &mut S) -> Option<S::Item> {
    std::future::poll_fn(|context| Pin::new(&mut *stream).poll_next(context)).await
}

/// Block and number of each page of a stream over a file of numbered pages.
fn collect<'f, D>(
    stream: impl Stream<Item = Result<Streamed<'f, D>, StreamError<D>>> + Unpin,
) -> Vec<(u32, u64)> {
    let (mut stream, mut all) = (stream, Vec::new());
    block_on(async {
        while let Some(page) = next(&mut stream).await {
            let page = page.map_err(Error::from).unwrap();
            all.push((page.page.block(), number_in(&page)));
        }
    });
    all
}

/// The last pending page of a stream may be one that another task has requested; the stream is not notified of that
/// read.
#[test]
fn a_stream_in_any_order_is_woken_by_a_read_that_is_not_its_own() {
    let site = Site::new();
    for kind in Kind::ALL {
        let cache = if kind == Kind::Aio { CacheMode::Direct } else { CacheMode::Buffered };
        let main = Tablespace::new("main", site.path(&format!("joined {kind}"))).cache(cache);
        let Ok(pool) = Site::bare(64).backend(Prefer::Only(kind)).tablespace(main).build() else {
            skip(&format!("futures: {kind}"), "not to be had here");
            continue;
        };
        let file = numbered(&pool, "table", 8, 10);
        file.flush_file().unwrap();
        let any = StreamOptions::new().order(Order::Any).readahead(ReadaheadStrategy::Async);
        for _ in 0..100 {
            [1, 4, 5].into_iter().for_each(|block| assert!(file.evict(block).unwrap()));
            let alone: Task<'_> = Box::pin(async {
                assert_eq!(number_in(&file.read_async(5).await.unwrap()), 15);
            });
            let stream: Task<'_> = Box::pin(async {
                let mut stream = file.stream_with([4, 5, 1], &any).into_async();
                for _ in 0..3 {
                    next(&mut stream).await.unwrap().map_err(Error::from).unwrap();
                }
                assert!(next(&mut stream).await.is_none());
            });
            run_all([alone, stream], thread::park);
        }
        pool.close().unwrap();
    }
}

#[test]
fn rs_2_a_stream_gives_a_task_what_it_gives_a_thread() {
    let site = Site::new();
    for kind in Kind::ALL {
        for cache in [CacheMode::Buffered, CacheMode::Direct] {
            if !kind.serves(cache) {
                continue;
            }
            let name = format!("{kind} {cache:?}");
            let main = Tablespace::new("main", site.path(&name)).cache(cache).queue_depth(8);
            let builder = Site::bare(64).backend(Prefer::Only(kind));
            let pool = builder.frame_wait(Duration::from_secs(60)).tablespace(main).build();
            let opened = pool.and_then(|pool| {
                pool.open_file("table", &create())?;
                Ok(pool)
            });
            let pool = match opened {
                Ok(pool) => pool,
                Err(error) => {
                    skip(&format!("futures: {name}"), &error.to_string());
                    continue;
                }
            };
            let file = numbered(&pool, "table", 150, 10);
            let file = reopened(&pool, file);
            let expected: Vec<_> = (0..150).map(|block| (block, 10 + u64::from(block))).collect();
            assert_eq!(collect(file.scan(0..150).into_async()), expected, "[RS-2] {name}");
            let mut random = fastrand::Rng::with_seed(1);
            let blocks: Vec<u32> = (0..200).map(|_| random.u32(..150)).collect();
            for order in [Order::InOrder, Order::Any] {
                for strategy in [ReadaheadStrategy::Os, ReadaheadStrategy::Adaptive] {
                    let options = StreamOptions::new().order(order).readahead(strategy);
                    let stream = file.stream_with(blocks.iter().copied(), &options);
                    let mut given = collect(stream.into_async());
                    let mut named: Vec<_> =
                        blocks.iter().map(|&block| (block, 10 + u64::from(block))).collect();
                    if order == Order::Any {
                        given.sort_unstable();
                        named.sort_unstable();
                    }
                    assert_eq!(given, named, "[RS-2] {name} {order:?} {strategy}");
                }
            }
            wait_until("the cleaner", || pool.stats().frames_pinned == 0); // [RS-3]
            pool.close().unwrap();
        }
    }
}

/// Ten streams and more tasks on one thread, in a pool too small for the look-ahead of all of them, over a queue of
/// two.
#[test]
fn rs_1_streams_and_tasks_share_a_small_pool_and_a_short_queue() {
    let site = Site::new();
    for order in [Order::InOrder, Order::Any] {
        let main = Tablespace::new("main", site.path(&format!("{order:?}"))).queue_depth(2);
        let builder = Site::bare(32).frame_wait(Duration::from_secs(60)).tablespace(main);
        let pool = builder.build().unwrap();
        let file = numbered(&pool, "table", 100, 10);
        let file = &reopened(&pool, file);
        let options = &StreamOptions::new().order(order);
        let streams = (0..10_u32).map(|seed| {
            Box::pin(async move {
                let mut random = fastrand::Rng::with_seed(u64::from(seed));
                let blocks: Vec<u32> = (0..150).map(|_| random.u32(..100)).collect();
                let mut stream = file.stream_with(blocks, options).into_async();
                let mut count = 0;
                while let Some(page) = next(&mut stream).await {
                    let page = page.map_err(Error::from).unwrap();
                    give_way().await;
                    assert_eq!(number_in(&page), 10 + u64::from(page.page.block()));
                    count += 1;
                    // Some are dropped early.
                    if seed % 3 == 0 && count == 70 {
                        return;
                    }
                }
                assert_eq!(count, 150, "[RS-2]");
            }) as Task<'_>
        });
        let readers = (0..100_u32).map(|block| {
            Box::pin(async move {
                let page = file.read_async(block).await.unwrap();
                assert_eq!(number_in(&page), 10 + u64::from(block));
            }) as Task<'_>
        });
        run_all(streams.chain(readers), thread::park);
        wait_until("the cleaner", || pool.stats().frames_pinned == 0); // [RS-3]
        pool.close().unwrap();
    }
}

#[test]
fn a_block_of_a_tasks_stream_that_cannot_be_read_is_that_blocks_error() {
    let site = Site::new();
    let (pool, disk) = site.rigged(64);
    let file = numbered(&pool, "table", 20, 10);
    let file = reopened(&pool, file);
    let bad = file.path().to_owned();
    disk.rule(move |it| {
        let page = crate::site::PAGE as u64;
        let met = it.file().path() == bad
            && (it.position()..it.position() + it.remaining()).contains(&(7 * page));
        if it.op() == Op::Read && met {
            crate::disk::Fault::Fail(OsError::EIO)
        } else {
            crate::disk::Fault::None
        }
    });
    let options = StreamOptions::new().readahead(ReadaheadStrategy::Async);
    let mut stream = file.stream_with(0..25, &options).into_async();
    block_on(async {
        for block in 0..25_u32 {
            let page = next(&mut stream).await.unwrap();
            match (block, page) {
                (7, Err(failed)) => {
                    assert!(is_io(&failed.error, OsError::EIO) && failed.block == 7);
                }
                (20.., Err(failed)) => assert!(matches!(failed.error, Error::PastEnd { .. })),
                (_, page) => assert_eq!(number_in(&page.unwrap()), 10 + u64::from(block)),
            }
        }
        assert!(next(&mut stream).await.is_none());
    });
}
