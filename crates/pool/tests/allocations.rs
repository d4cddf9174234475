//! A miss allocates nothing, and is one system call; between its redo point and the notification of the log about its
//! end a checkpoint allocates nothing; statistics of a large pool take no more memory than those of a small one.
//!
//! This is a separate test binary, because the counting allocator is global to the process. The log is notified of the
//! redo point and of the end, so the log reads the count.

#![allow(clippy::unwrap_used, clippy::print_stderr, missing_docs)]

use std::alloc::System;
use std::fs::File;
use std::hint::black_box;
use std::io::Read as _;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use fastrand::Rng;

use forebay::{
    BufferPool, CheckpointOptions, Checksum, Elevator, FileOptions, Lsn, PageImage, PoolBuilder,
    ReadaheadStrategy, Tablespace, TornPages, Wal,
};
use forebay_io::{CacheMode, Kind, Prefer};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn allocations() -> usize {
    let stats = ALLOCATOR.stats();
    stats.allocations + stats.reallocations
}

/// A log that is queried for its position at the redo point, and notified of the end.
#[derive(Debug, Default)]
struct Counter {
    asked: AtomicUsize,
    at_redo: AtomicUsize,
    between: AtomicUsize,
    images: AtomicUsize,
}

impl Wal for Counter {
    fn flush_to(&self, _lsn: Lsn) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        Ok(())
    }

    fn flushed(&self) -> Lsn {
        Lsn(u64::MAX)
    }

    fn position(&self) -> Lsn {
        // The first query is by the thread when it wakes up, the second at the redo point; a paced checkpoint queries
        // repeatedly after that.
        if self.asked.fetch_add(1, Ordering::SeqCst) == 1 {
            self.at_redo.store(allocations(), Ordering::SeqCst);
        }
        Lsn(1)
    }

    fn append_image(
        &self,
        image: &PageImage<'_>,
    ) -> Result<Lsn, Box<dyn std::error::Error + Send + Sync>> {
        self.images.fetch_add(1, Ordering::SeqCst);
        Ok(Lsn(1 + u64::from(image.block)))
    }

    fn checkpointed(&self, _redo: Lsn) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        self.asked.store(0, Ordering::SeqCst);
        let since = allocations() - self.at_redo.load(Ordering::SeqCst);
        self.between.store(since, Ordering::SeqCst);
        Ok(())
    }
}

const BLOCKS: u32 = 2000;

/// Dirties pages of two files in two tablespaces, and takes a checkpoint: returns the number of its allocations.
fn allocations_of_one(
    backend: Prefer,
    cache: CacheMode,
    torn_pages: TornPages,
    round: u32,
    options: CheckpointOptions,
) -> usize {
    let directory = tempfile::tempdir().unwrap();
    let log = Arc::new(Counter::default());
    let space = |name| Tablespace::new(name, directory.path().join(name)).cache(cache);
    let pool = BufferPool::builder()
        .frames(4096)
        .cleaner(false)
        .backend(backend)
        .checksum(Checksum::Crc32c { offset: 0 })
        .torn_pages(torn_pages)
        .tablespace(space("a"))
        .tablespace(space("b"))
        .wal(Arc::clone(&log) as Arc<dyn Wal>)
        .build()
        .unwrap();
    let files: Vec<_> = ["a", "b"]
        .map(|space| {
            let options = FileOptions::new().create(true).tablespace(space);
            let file = pool.open_file("t", &options).unwrap();
            file.extend(BLOCKS).unwrap();
            file
        })
        .into();
    let dirty = |step: usize| {
        for file in &files {
            (0..BLOCKS)
                .step_by(step)
                .for_each(|block| file.init(block).unwrap().mark_dirty(Lsn(1)));
        }
    };
    // Structures may grow to their size at first use: lists of the queue, descriptors for syncs.
    for _ in 0..2 {
        dirty(1);
        pool.checkpoint(CheckpointOptions::now()).unwrap();
    }
    dirty(1 + round as usize % 3);
    let report = pool.checkpoint(options).unwrap();
    assert!(report.pages > 1000 && report.files_synced == 2, "{report}");
    assert_eq!(log.images.load(Ordering::SeqCst) > 0, torn_pages == TornPages::Images);
    log.between.load(Ordering::SeqCst)
}

fn unprotected() -> PoolBuilder {
    BufferPool::builder().checksum(Checksum::Off).torn_pages(TornPages::Unprotected)
}

/// Runs one test at a time: they count the allocations of the process.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn statistics_take_as_much_memory_however_many_frames_there_are() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let bytes = [64, 16_384].map(|frames| {
        let directory = tempfile::tempdir().unwrap();
        let space = Tablespace::new("a", directory.path());
        let pool = unprotected().frames(frames).page_size(4096).cleaner(false);
        let pool = pool.tablespace(space).build().unwrap();
        let taken = || {
            let before = ALLOCATOR.stats().bytes_allocated;
            drop(pool.stats());
            ALLOCATOR.stats().bytes_allocated - before
        };
        // The pool's threads may just be starting, and allocate memory.
        (0..100).map(|_| taken()).min()
    });
    assert_eq!(bytes[0], bytes[1]);
}

#[test]
fn a_future_of_a_page_in_memory_is_ready_at_the_first_poll_without_an_allocation() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = tempfile::tempdir().unwrap();
    let pool = unprotected().frames(64).cleaner(false).directory(directory.path());
    let pool = pool.build().unwrap();
    let file = pool.open_file("table", &FileOptions::new().create(true)).unwrap();
    file.extend(1).unwrap();
    drop(file.read(0).unwrap());
    let poll = || {
        let before = allocations();
        let mut future = file.read_async(0);
        let polled = Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(polled, Poll::Ready(Ok(_))));
        allocations() - before
    };
    // The pool's threads may just be starting, and allocate memory.
    assert_eq!((0..100).map(|_| poll()).min(), Some(0));
}

#[test]
fn ckp_2_a_checkpoint_allocates_nothing_from_its_redo_point_to_its_end() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for backend in [Prefer::Auto, Prefer::Only(Kind::Sync)] {
        for (round, cache) in [CacheMode::Buffered, CacheMode::Direct].into_iter().enumerate() {
            if !is_possible(backend, cache) {
                continue;
            }
            let paced = CheckpointOptions::spread(Duration::from_millis(300));
            let kinds = [
                CheckpointOptions::now(),
                CheckpointOptions::now().elevator(Elevator::Sorted).combine(false),
                CheckpointOptions::now().elevator(Elevator::Balanced),
                paced,
            ];
            for options in kinds {
                let what = format!("{backend:?} {cache} {options:?}");
                let mode = TornPages::Unprotected;
                let count = allocations_of_one(backend, cache, mode, round as u32, options);
                assert_eq!(count, 0, "[CKP-2] {what}");
            }
            for mode in [TornPages::Images, TornPages::DoubleWrite] {
                let options = CheckpointOptions::now();
                let count = allocations_of_one(backend, cache, mode, round as u32, options);
                assert_eq!(count, 0, "[CKP-2] {backend:?} {cache} {mode}");
            }
        }
    }
}

/// Blocks of each of two files, and the number of frames.
const MISSED_BLOCKS: u32 = 8192;
const FRAMES: u64 = 128;

/// Threads that miss concurrently, and the number of pages that each of them reads.
const THREADS: u32 = 4;
const READS: usize = 300;

#[test]
fn a_miss_allocates_nothing_and_is_one_system_call() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (auto, sync) = (Prefer::Auto, Prefer::Only(Kind::Sync));
    for (backend, cache, readahead) in [
        (auto, CacheMode::Buffered, ReadaheadStrategy::Os),
        (auto, CacheMode::Direct, ReadaheadStrategy::Os),
        (auto, CacheMode::Direct, ReadaheadStrategy::Async),
        (sync, CacheMode::Buffered, ReadaheadStrategy::Os),
    ] {
        let what = format!("{backend:?} {cache} {readahead:?}");
        let detects = readahead == ReadaheadStrategy::Async;
        let cost = || cost_of_misses(backend, cache, readahead);
        // Two threads that meet at a page may grow a list, once; on a busy machine more of them meet.
        let Some(mut cost_least) = cost() else {
            eprintln!("skipped: {what}");
            continue;
        };
        for _ in 0..7 {
            if cost_least.1 > 0 && !detects {
                cost_least = cost().unwrap();
            }
        }
        let (misses, allocations, calls) = cost_least;
        assert!(misses > u64::from(THREADS) * READS as u64 / 2, "{misses} misses");
        if detects {
            // Occasionally the random blocks look like a sequence, which is read ahead.
            assert!(allocations < misses / 2, "{allocations} in {misses} misses, {what}");
        } else {
            assert_eq!(allocations, 0, "in {misses} misses, {what}");
            // Hits need no system call, so there is one for each miss and no other.
            assert_eq!(calls.unwrap_or(misses), misses, "{what}");
        }
    }
}

/// Counts the misses of several threads, their allocations, and their reads as counted by the kernel, where it counts
/// them; `None` where files cannot be read in this mode.
fn cost_of_misses(
    backend: Prefer,
    cache: CacheMode,
    readahead: ReadaheadStrategy,
) -> Option<(u64, u64, Option<u64>)> {
    let directory = tempfile::tempdir().unwrap();
    let space = Tablespace::new("a", directory.path()).cache(cache);
    let pool = BufferPool::builder()
        .frames(FRAMES)
        .page_size(4096)
        .readahead(readahead)
        .cleaner(false)
        .backend(backend)
        .checksum(Checksum::Crc32c { offset: 0 })
        .torn_pages(TornPages::Unprotected)
        .tablespace(space)
        .build()
        .unwrap();
    // Never written: pages of zeroes.
    let options = FileOptions::new().create(true);
    let open = |name| pool.open_file(name, &options).ok();
    let files = [open("a")?, open("b")?];
    for file in &files {
        file.extend(MISSED_BLOCKS).unwrap();
        // The page table allocates memory when a part of the file is used for the first time.
        (0..MISSED_BLOCKS).step_by(256).for_each(|block| drop(file.read(block).unwrap()));
    }
    // The threads' own numbers, lists and places are allocated in a first round.
    let (ready, go) = (Barrier::new(THREADS as usize + 1), Barrier::new(THREADS as usize + 1));
    let read = |random: &mut Rng| {
        for _ in 0..READS {
            let file = &files[random.usize(..2)];
            black_box(file.read(random.u32(..MISSED_BLOCKS)).unwrap()[9]);
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (ready, go, read) = (&ready, &go, &read);
                scope.spawn(move || {
                    let mut random = Rng::with_seed(thread.into());
                    read(&mut random);
                    let (first, second) = (read_calls(), read_calls());
                    let own = second.zip(first).map(|(second, first)| second - first);
                    ready.wait();
                    go.wait();
                    let before = read_calls();
                    read(&mut random);
                    let after = read_calls();
                    ready.wait();
                    Some(after? - before? - own?)
                })
            })
            .collect();
        ready.wait();
        let misses = pool.stats().total().misses;
        let before = allocations();
        go.wait();
        ready.wait();
        let allocated = (allocations() - before) as u64;
        let misses = pool.stats().total().misses - misses;
        let calls: Option<u64> = workers.into_iter().map(|it| it.join().unwrap()).sum();
        Some((misses, allocated, calls))
    })
}

/// Number of read system calls of this thread according to the kernel, without heap allocation.
fn read_calls() -> Option<u64> {
    let mut text = [0; 512];
    let len = File::open("/proc/thread-self/io").ok()?.read(&mut text).ok()?;
    let text = std::str::from_utf8(&text[..len]).ok()?;
    text.lines().find_map(|line| line.strip_prefix("syscr: "))?.parse().ok()
}

/// Whether files can be read and written in this mode here, by a backend that allocates no memory for a request: `aio`
/// allocates a list for each submission, and `threads` a message.
fn is_possible(backend: Prefer, cache: CacheMode) -> bool {
    let directory = tempfile::tempdir().unwrap();
    let space = Tablespace::new("probe", directory.path()).cache(cache);
    let pool = unprotected().frames(64).backend(backend).tablespace(space).build();
    let Ok(pool) = pool else { return false };
    let possible = pool.open_file("probe", &FileOptions::new().create(true)).is_ok()
        && matches!(pool.backends()[0].1, Kind::Uring | Kind::Sync);
    if !possible {
        eprintln!("skipped: {backend:?} {cache} is {}", pool.backends()[0].1);
    }
    possible
}
