//! Forebay's side of the look-ups: `forebay-btree`, loaded once, sorted, its pages full and with checksums, and opened and read
//! into memory for each measurement.

use std::ops::Bound;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use forebay::io::CacheMode;
use forebay::{BufferPool, Checksum, Tablespace, TornPages};
use forebay_btree::{Direction, Tree};

use super::{PAGE_BYTES, Seconds, Settings, VALUE_BYTES, key, mib, rest};
use forebay_measure::interrupt;
use forebay_measure::progress::Progress;

const NAME: &str = "tree";

/// Look-ups between two additions to the total.
const BATCH: u64 = 64;

fn pool(directory: &Path, settings: &Settings) -> anyhow::Result<BufferPool> {
    let space = Tablespace::new("main", directory).cache(CacheMode::Direct);
    let builder = BufferPool::builder().memory(settings.memory_bytes).page_size(PAGE_BYTES);
    // The tree names a checksum for its file.
    let builder = builder.checksum(Checksum::Off).torn_pages(TornPages::Unprotected);
    Ok(builder.tablespace(space).build()?)
}

/// Writes the tree's file.
pub(super) fn load(
    directory: &Path,
    settings: &Settings,
    entries: u64,
    progress: &mut Progress,
) -> anyhow::Result<()> {
    let pool = pool(directory, settings)?;
    let tree = Tree::create(&pool, NAME)?;
    let mut value = [0; VALUE_BYTES];
    let mut wish = Ok(());
    let entries = (0..entries).map_while(|number| {
        if number.is_multiple_of(1 << 16) {
            wish = interrupt::check();
            progress.reach(number, "loading the tree");
        }
        value[..key(number).len()].copy_from_slice(&key(number));
        wish.is_ok().then(|| (key(number), value))
    });
    tree.bulk_load(entries, 1.0)?;
    wish?;
    tree.close()?;
    pool.close()?;
    Ok(())
}

/// Looks up keys with `threads` threads, with as much in memory as fits.
pub(super) fn measure(
    directory: &Path,
    settings: &Settings,
    entries: u64,
    threads: u32,
) -> anyhow::Result<Seconds> {
    let pool = pool(directory, settings)?;
    let tree = Tree::open(&pool, NAME)?;
    let mut cursor = tree.range(Bound::Unbounded, Bound::Unbounded, Direction::Forward);
    while cursor.next_entry()?.is_some() {}
    drop(cursor);
    let (done, total) = (AtomicBool::new(false), AtomicU64::new(0));
    let seconds = thread::scope(|scope| {
        let (tree, done, total) = (&tree, &done, &total);
        let workers: Vec<_> = (0..threads)
            .map(|worker| scope.spawn(move || look_up(tree, worker, entries, done, total)))
            .collect();
        let seconds = watch(&pool, settings.seconds, done, total);
        done.store(true, Ordering::Relaxed);
        for worker in workers {
            worker.join().expect("no worker panics")?;
        }
        seconds
    })?;
    tree.close()?;
    pool.close()?;
    Ok(seconds)
}

fn watch(
    pool: &BufferPool,
    count: u64,
    done: &AtomicBool,
    total: &AtomicU64,
) -> anyhow::Result<Seconds> {
    let (mut seconds, mut before) = (Seconds::default(), mib(pool));
    let start = Instant::now();
    for second in 1..=count {
        rest(start + Duration::from_secs(second))?;
        ensure!(!done.load(Ordering::Relaxed), "a look-up failed");
        let now = mib(pool);
        seconds.done.push(total.swap(0, Ordering::Relaxed));
        seconds.read_mib.push(now[0] - before[0]);
        seconds.written_mib.push(now[1] - before[1]);
        before = now;
    }
    Ok(seconds)
}

fn look_up(
    tree: &Tree,
    worker: u32,
    entries: u64,
    done: &AtomicBool,
    total: &AtomicU64,
) -> anyhow::Result<()> {
    let mut random = fastrand::Rng::with_seed(worker.into());
    let mut value = Vec::with_capacity(VALUE_BYTES);
    while !done.load(Ordering::Relaxed) {
        for _ in 0..BATCH {
            let key = key(random.u64(0..entries));
            let found = tree.get_into(&key, &mut value);
            if !matches!(found, Ok(true)) || !value.starts_with(&key) {
                done.store(true, Ordering::Relaxed);
                found.context("a look-up failed")?;
                anyhow::bail!("the value of key {} is wrong", u64::from_be_bytes(key));
            }
        }
        total.fetch_add(BATCH, Ordering::Relaxed);
    }
    Ok(())
}
