//! Forebay's side of TPC-C: `forebay-tpcc`, loaded once. Each measurement runs on a copy of the files, so that all begin with
//! the same rows, as vmcache's do.

use std::fs;
use std::ops::Bound;
use std::path::Path;
use std::sync::Mutex;

use anyhow::Context;
use forebay::io::CacheMode;
use forebay::{BufferPool, Checksum, PoolBuilder, Tablespace, TornPages};
use forebay_btree::{Database, Direction, Tree};
use forebay_measure::interrupt;
use forebay_measure::progress;
use forebay_tpcc::{NAMES, Progress, Run};

use super::{PAGE_BYTES, Seconds, Settings, mib};

/// For the load, whatever is measured.
const LOAD_MEMORY: &str = "2GiB";
/// A checkpoint for this much log.
const CHECKPOINT_LOG: &str = "1GiB";
const LOADED: &str = "loaded";

fn builder(directory: &Path, torn_pages: TornPages) -> PoolBuilder {
    let tablespace = Tablespace::new("main", directory).cache(CacheMode::Direct);
    let builder = BufferPool::builder().page_size(PAGE_BYTES).tablespace(tablespace);
    builder.checksum(Checksum::Crc32c { offset: 0 }).torn_pages(torn_pages)
}

/// Makes the tables.
pub(super) fn load(
    directory: &Path,
    warehouses: u32,
    progress: &mut progress::Progress,
) -> anyhow::Result<()> {
    let directory = directory.join(LOADED);
    fs::create_dir(&directory)?;
    let pool = builder(&directory, TornPages::Unprotected).memory(LOAD_MEMORY).build()?;
    let trees = NAMES.map(|name| Tree::create(&pool, name));
    let trees = trees.into_iter().collect::<Result<Vec<_>, _>>()?;
    let progress = Mutex::new(progress);
    forebay_tpcc::load(&trees, warehouses, 2, |done| {
        progress.lock().expect("nothing panics with it").reach(done.into(), "loading the tables");
    })?;
    trees.into_iter().try_for_each(Tree::close)?;
    pool.close()?;
    interrupt::check()?;
    Ok(())
}

/// Runs one terminal for each of `threads`. With `log`, a transaction counts when its commit is durable, and pages are protected
/// from being torn.
pub(super) fn measure(
    directory: &Path,
    settings: &Settings,
    threads: u32,
    log: bool,
) -> anyhow::Result<Seconds> {
    let place = directory.join("run");
    fs::create_dir(&place)?;
    for name in NAMES {
        let from = directory.join(LOADED).join(name);
        fs::copy(&from, place.join(name)).with_context(|| format!("cannot copy {name}"))?;
    }
    let seconds = if log {
        let builder = builder(&place, TornPages::DoubleWrite).memory(settings.memory_bytes);
        let builder = builder.checkpoint_log(CHECKPOINT_LOG);
        let database = Database::open(builder, &place, &NAMES, |_| {})?;
        let seconds =
            execute(database.pool(), database.trees(), Some(&database), settings, threads)?;
        database.close()?;
        seconds
    } else {
        let builder = builder(&place, TornPages::Unprotected).memory(settings.memory_bytes);
        let pool = builder.build()?;
        let trees = NAMES.iter().map(|name| Tree::open(&pool, name));
        let trees = trees.collect::<Result<Vec<_>, _>>()?;
        let seconds = execute(&pool, &trees, None, settings, threads)?;
        trees.into_iter().try_for_each(Tree::close)?;
        pool.close()?;
        seconds
    };
    fs::remove_dir_all(&place)?;
    interrupt::check()?;
    Ok(seconds)
}

/// What is read and written in each second.
struct Watch<'p> {
    pool: &'p BufferPool,
    seconds: Mutex<(Seconds, [f64; 2])>,
}

impl Progress for Watch<'_> {
    fn second(&self, transactions: u64) -> bool {
        let mut watched = self.seconds.lock().expect("nothing panics with it");
        let (seconds, before) = &mut *watched;
        let now = mib(self.pool);
        seconds.done.push(transactions);
        seconds.read_mib.push(now[0] - before[0]);
        seconds.written_mib.push(now[1] - before[1]);
        *before = now;
        interrupt::check().is_ok()
    }
}

fn execute(
    pool: &BufferPool,
    trees: &[Tree],
    database: Option<&Database>,
    settings: &Settings,
    threads: u32,
) -> anyhow::Result<Seconds> {
    for tree in trees {
        let mut cursor = tree.range(Bound::Unbounded, Bound::Unbounded, Direction::Forward);
        while cursor.next_entry()?.is_some() {}
    }
    let (warehouses, first_terminal) = forebay_tpcc::found(trees)?;
    let watch = Watch { pool, seconds: Mutex::new((Seconds::default(), mib(pool))) };
    let seconds = u32::try_from(settings.settle_seconds + settings.seconds)?;
    let run = Run { warehouses, terminals: threads, first_terminal, seconds, seed: 1 };
    forebay_tpcc::run(trees, database, run, &watch)?;
    Ok(watch.seconds.into_inner().expect("nothing panics with it").0)
}
