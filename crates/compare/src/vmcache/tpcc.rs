//! Forebay's side of TPC-C: `forebay-tpcc`, loaded once. Each measurement runs on a copy of the files, so that all begin with
//! the same rows, as vmcache's do.

use std::fs;
use std::path::Path;
use std::sync::Mutex;

use anyhow::Context;
use forebay::BufferPool;
use forebay_measure::interrupt;
use forebay_measure::progress;
use forebay_tpcc::{NAMES, Progress, Run, Store};

use super::{GIB, Seconds, Settings, mib};

/// For the load, whatever is measured.
const LOAD_MEMORY: u64 = 2 * GIB;
const LOAD_THREADS: u32 = 2;
/// A checkpoint for this much log.
const CHECKPOINT_LOG: u64 = GIB;
const LOADED: &str = "loaded";

/// Makes the tables.
pub(super) fn load(
    directory: &Path,
    warehouses: u32,
    progress: &mut progress::Progress,
) -> anyhow::Result<()> {
    let directory = directory.join(LOADED);
    fs::create_dir(&directory)?;
    let progress = Mutex::new(progress);
    Store::create(&directory, LOAD_MEMORY, warehouses, LOAD_THREADS, |done| {
        progress.lock().expect("nothing panics with it").reach(done.into(), "loading the tables");
        interrupt::check().is_ok()
    })?;
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
    let store = Store::open(&place, settings.memory_bytes, log.then_some(CHECKPOINT_LOG))?;
    store.warm()?;
    let (warehouses, first_terminal) = forebay_tpcc::found(store.trees())?;
    let pool = store.pool();
    let watch = Watch { pool, seconds: Mutex::new((Seconds::default(), mib(pool))) };
    let seconds = u32::try_from(settings.settle_seconds + settings.seconds)?;
    let run = Run { warehouses, terminals: threads, first_terminal, seconds, seed: 1 };
    forebay_tpcc::run(&store, run, &watch)?;
    let seconds = watch.seconds.into_inner().expect("nothing panics with it").0;
    store.close()?;
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
