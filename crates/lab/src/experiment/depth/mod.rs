//! Experiment `depth`: how many random blocks to ask for ahead.
//!
//! Document 003 of the sources read 4096 random blocks of a 1 GiB file while 1, 2, 4 ... 4096 of
//! the next ones were prefetched, and went from 12.5 s to 2.2 s. The same here, over every
//! backend, through the page cache and past it.
//!
//! What is measured: blocks come to the reader in the order of its list. While one is in hand,
//! `depth` of the next ones are in flight; depth 0 asks for a block only when it is needed. Each
//! cell is measured in several rounds, on other blocks each time and from an emptied page cache;
//! the order of the cells is shuffled anew in each round, so that a disk that gets slower or
//! faster meanwhile does not favour one of them.

mod conclusion;
mod fio;
mod means;
mod reader;

pub use means::Means;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use forebay_io::{Arena, CacheMode, File, Io, IoOptions, Kind, OpenOptions, Prefer};
use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};

use crate::cli::DepthArgs;
use crate::facts::{CounterSource, DeviceCounters};
use crate::measure::{Coldness, Spread, empty_cache};
use crate::report::{Advice, BackendNote, Record};
use crate::workfile::Workfile;
use crate::{bad_input, interrupt};
use reader::{Reader, Round};

/// The name of this experiment in records.
pub const NAME: &str = "depth";

/// Most threads that the `threads` backend gets, however deep the look-ahead.
const WORKERS_MAX: usize = 256;

/// What is measured unless the user says otherwise.
struct Defaults {
    size_bytes: u64,
    blocks: u64,
    depths: &'static [u32],
    rounds: u32,
    cell_time_max: Duration,
}

/// Document 003's file, blocks and depths.
const FULL: Defaults = Defaults {
    size_bytes: 1 << 30,
    blocks: 4096,
    depths: &[0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096],
    rounds: 5,
    cell_time_max: Duration::from_secs(20),
};

/// Enough to see the shape of the curve on most disks.
const QUICK: Defaults = Defaults {
    size_bytes: 256 << 20,
    blocks: 2048,
    depths: &[0, 1, 4, 16, 64, 256, 1024],
    rounds: 3,
    cell_time_max: Duration::from_secs(1),
};

/// Settings with every default filled in and checked.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Absolute directory of the working file.
    pub directory: PathBuf,
    /// Size of the working file, in bytes.
    pub size_bytes: u64,
    /// Blocks read in each round of a cell.
    pub blocks: u64,
    /// Size of a block, in bytes.
    pub block_bytes: u64,
    /// Backends to measure.
    pub backends: Vec<Kind>,
    /// Cache modes to measure.
    pub caches: Vec<CacheMode>,
    /// Depths to measure, ascending.
    pub depths: Vec<u32>,
    /// Measurements of each cell.
    pub rounds: u32,
    /// Seed of everything random.
    pub seed: u64,
    /// Longest measurement of one cell; on a slow disk fewer blocks are read then.
    pub cell_time_max: Duration,
    /// Whether quick settings were asked for.
    pub quick: bool,
    /// Whether fio is measured as well.
    pub fio: bool,
}

impl Settings {
    /// Fills in what `args` leave open and refuses what makes no sense.
    ///
    /// # Errors
    /// [`BadInput`](crate::BadInput), naming the option.
    pub fn new(args: &DepthArgs) -> anyhow::Result<Settings> {
        let defaults = if args.quick { &QUICK } else { &FULL };
        let block_bytes = args.block_size;
        if !block_bytes.is_power_of_two() || !(512..=1 << 20).contains(&block_bytes) {
            bad_input!("--block-size {block_bytes}: it should be a power of two, 512 to 1MiB");
        }
        let size_bytes = args.size.unwrap_or(defaults.size_bytes);
        let blocks = args.blocks.unwrap_or(defaults.blocks);
        if size_bytes / block_bytes < blocks {
            bad_input!(
                "--blocks {blocks}: a file of {} has only {} blocks of {}; choose a larger --size",
                crate::units::shown_size(size_bytes),
                size_bytes / block_bytes,
                crate::units::shown_size(block_bytes)
            );
        }
        let mut depths = args.depths.clone();
        if depths.is_empty() {
            depths = defaults.depths.to_vec();
        }
        depths.sort_unstable();
        depths.dedup();
        let directory = args.common.dir.clone();
        Ok(Settings {
            directory: std::fs::canonicalize(&directory).unwrap_or(directory),
            size_bytes,
            blocks,
            block_bytes,
            backends: unique(&args.backends),
            caches: unique(&args.cache),
            depths,
            rounds: args.rounds.unwrap_or(defaults.rounds),
            seed: args.common.seed.unwrap_or_else(|| fastrand::u64(..1 << 32)),
            cell_time_max: defaults.cell_time_max,
            quick: args.quick,
            fio: args.fio,
        })
    }

    /// Measurements in all.
    pub fn measurements(&self) -> u64 {
        self.cells().len() as u64 * u64::from(self.rounds)
    }

    fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for &cache in &self.caches {
            for &backend in self.backends.iter().filter(|backend| backend.serves(cache)) {
                let engine = Engine::Forebay(backend);
                cells.extend(self.depths.iter().map(|&depth| Cell { engine, cache, depth }));
            }
        }
        if self.fio {
            let (engine, cache) = (Engine::Fio, CacheMode::Direct);
            let depths = self.depths.iter().filter(|&&depth| depth > 0);
            cells.extend(depths.map(|&depth| Cell { engine, cache, depth }));
        }
        cells
    }
}

/// Who reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Engine {
    Forebay(Kind),
    Fio,
}

/// One setting to be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cell {
    engine: Engine,
    cache: CacheMode,
    depth: u32,
}

impl Cell {
    fn engine_name(self) -> &'static str {
        match self.engine {
            Engine::Forebay(kind) => kind.name(),
            Engine::Fio => "fio",
        }
    }

    fn label(self) -> String {
        format!("{} {} depth {}", self.engine_name(), self.cache, self.depth)
    }
}

/// What the rounds of one cell gave.
#[derive(Debug, Default)]
struct Tally {
    rounds: Vec<Round>,
    device: Vec<DeviceCounters>,
    coldness: Vec<Coldness>,
}

/// What came of the experiment.
#[derive(Debug)]
pub struct Outcome {
    /// One record per cell that could be measured.
    pub records: Vec<Record>,
    /// Which backends could be opened.
    pub backends: Vec<BackendNote>,
    /// What follows from the records.
    pub advice: Vec<Advice>,
}

/// Runs the experiment on `workfile`. `progress` is told what is being measured, once for each
/// measurement.
///
/// # Errors
/// [`Interrupted`](interrupt::Interrupted), or an I/O error of a measurement.
pub fn run(
    settings: &Settings,
    workfile: &Workfile,
    means: Means,
    counters: Option<&CounterSource>,
    mut progress: impl FnMut(&str),
) -> anyhow::Result<Outcome> {
    let Means { fio, backends, missing } = means;
    let (unusable, cells): (Vec<Cell>, Vec<Cell>) =
        settings.cells().into_iter().partition(|cell| missing.of(*cell).is_some());

    let mut random = fastrand::Rng::with_seed(settings.seed);
    let mut tallies: Vec<Tally> = cells.iter().map(|_| Tally::default()).collect();
    for _ in 0..settings.rounds {
        let mut order: Vec<usize> = (0..cells.len()).collect();
        random.shuffle(&mut order);
        for index in order {
            interrupt::check()?;
            let (cell, tally) = (cells[index], &mut tallies[index]);
            progress(&cell.label());
            tally.coldness.push(empty(workfile)?);
            let (round, device) = match (cell.engine, &fio) {
                (Engine::Forebay(kind), _) => {
                    measure(settings, workfile, cell, kind, counters, &mut random)?
                }
                (Engine::Fio, Some(fio)) => counted(counters, || {
                    fio.measure(settings, workfile, cell.depth, random.u32(..))
                })?,
                (Engine::Fio, None) => unreachable!("fio cells are made only with --fio"),
            };
            tally.device.extend(device);
            tally.rounds.push(round);
        }
    }

    let mut records: Vec<Record> =
        cells.iter().zip(&tallies).map(|(cell, tally)| record(settings, *cell, tally)).collect();
    records.extend(
        unusable.into_iter().map(|cell| unmeasured(cell, missing.of(cell).unwrap_or_default())),
    );
    let advice = conclusion::draw(settings, &records);
    Ok(Outcome { records, backends, advice })
}

fn open_file(workfile: &Workfile, cache: CacheMode) -> Result<File, forebay_io::Error> {
    File::open(workfile.path(), &OpenOptions::new().read_only(true).cache(cache))
}

fn open_queue(
    kind: Kind,
    cache: CacheMode,
    depth: usize,
    memory: Option<&Arc<Arena>>,
) -> Result<Io, forebay_io::Error> {
    Io::open(&IoOptions {
        prefer: Prefer::Only(kind),
        cache,
        queue_depth: depth.max(1),
        workers: depth.clamp(1, WORKERS_MAX),
        arena: memory.cloned(),
    })
}

fn empty(workfile: &Workfile) -> Result<Coldness, forebay_io::Error> {
    empty_cache(&File::open(workfile.path(), &OpenOptions::new().read_only(true))?)
}

fn measure(
    settings: &Settings,
    workfile: &Workfile,
    cell: Cell,
    kind: Kind,
    counters: Option<&CounterSource>,
    random: &mut fastrand::Rng,
) -> anyhow::Result<(Round, Option<DeviceCounters>)> {
    let depth = cell.depth as usize;
    let memory = Reader::memory(workfile, depth)?;
    let io = open_queue(kind, cell.cache, depth, Some(&memory))?;
    let file = open_file(workfile, cell.cache)?;
    let blocks = settings.blocks as usize;
    let warm_up = depth.clamp(1, WORKERS_MAX).min(workfile.blocks() as usize - blocks);
    let numbers = choose_blocks(random, workfile.blocks(), blocks + warm_up);
    let mut reader = Reader::new(&io, &file, workfile, depth, &memory);
    reader.warm_up(&numbers[blocks..])?;
    counted(counters, || reader.read(&numbers[..blocks], settings.cell_time_max))
}

/// `count` different ones of the blocks `0..of`, in random order.
fn choose_blocks(random: &mut fastrand::Rng, of: u64, count: usize) -> Vec<u64> {
    let mut numbers = random.choose_multiple(0..of, count);
    random.shuffle(&mut numbers);
    numbers
}

/// What `work` gives, and what the device did meanwhile where that can be told.
fn counted(
    counters: Option<&CounterSource>,
    work: impl FnOnce() -> anyhow::Result<Round>,
) -> anyhow::Result<(Round, Option<DeviceCounters>)> {
    let read = || counters.and_then(|source| source.read().ok());
    let before = read();
    let round = work()?;
    let device = before.zip(read()).map(|(before, after)| after.since(&before));
    Ok((round, device))
}

fn cell_map(cell: Cell) -> Map<String, Value> {
    let value = json!({
        "backend": cell.engine_name(),
        "cache": cell.cache.to_string(),
        "depth": cell.depth,
    });
    value.as_object().cloned().unwrap_or_default()
}

fn record(settings: &Settings, cell: Cell, tally: &Tally) -> Record {
    let rounds = &tally.rounds;
    let spread = |value: &dyn Fn(&Round) -> f64| Spread::of(rounds.iter().map(value));
    let seconds = spread(&|round| round.seconds);
    let rate = spread(&|round| round.blocks as f64 / round.seconds);
    let processor = spread(&|round| round.processor_seconds * 1e6 / round.blocks as f64);
    let blocks = spread(&|round| round.blocks as f64);
    // Bytes nobody asked for, as a part of those that were asked for.
    let over_read = |device: &DeviceCounters, round: &Round| {
        device.read_bytes as f64 / (round.blocks * settings.block_bytes) as f64 - 1.0
    };
    // Several readings or none: a median of some of the rounds would be of other rounds.
    let device = (tally.device.len() == rounds.len()).then_some(&tally.device);
    let device_median = |value: &dyn Fn(&DeviceCounters, &Round) -> f64| {
        Spread::of(device?.iter().zip(rounds).map(|(device, round)| value(device, round)))
            .map(|spread| spread.median)
    };
    let mut waits: Option<Histogram<u64>> = None;
    for round_waits in rounds.iter().filter_map(|round| round.wait_ns.as_ref()) {
        match &mut waits {
            Some(sum) => sum.add(round_waits).expect("all histograms are made alike"),
            None => waits = Some(round_waits.clone()),
        }
    }
    let wait_us = |quantile| waits.as_ref().map(|ns| ns.value_at_quantile(quantile) as f64 / 1e3);

    let metrics = json!({
        "seconds": seconds.map(|spread| spread.median),
        "seconds_min": seconds.map(|spread| spread.min),
        "seconds_max": seconds.map(|spread| spread.max),
        "rounds": rounds.len(),
        "blocks": blocks.map(|spread| spread.median),
        "blocks_per_s": rate.map(|spread| spread.median),
        "blocks_per_s_min": rate.map(|spread| spread.min),
        "blocks_per_s_max": rate.map(|spread| spread.max),
        "bytes_per_s": rate.map(|spread| spread.median * settings.block_bytes as f64),
        "device_requests": device_median(&|device, _| device.reads as f64),
        "device_bytes": device_median(&|device, _| device.read_bytes as f64),
        "over_read": device_median(&over_read),
        "wait_us_p50": wait_us(0.50),
        "wait_us_p99": wait_us(0.99),
        "cpu_us_per_block": processor.map(|spread| spread.median),
    });
    let mut remarks: Vec<String> = Vec::new();
    if cell.cache == CacheMode::Buffered {
        remarks.extend(tally.coldness.iter().filter_map(Coldness::remark));
    }
    if blocks.is_some_and(|spread| spread.median < settings.blocks as f64) {
        remarks.push(format!(
            "stopped after {} s, before all {} blocks were read",
            settings.cell_time_max.as_secs(),
            settings.blocks
        ));
    }
    let workers = WORKERS_MAX as u32;
    if cell.engine == Engine::Forebay(Kind::Threads) && cell.depth > workers {
        remarks.push(format!("at most {workers} threads, so {workers} requests at the device"));
    }
    remarks.dedup();
    Record {
        experiment: NAME.to_owned(),
        cell: cell_map(cell),
        metrics: metrics.as_object().cloned().unwrap_or_default(),
        remarks,
    }
}

fn unmeasured(cell: Cell, why: &str) -> Record {
    Record {
        experiment: NAME.to_owned(),
        cell: cell_map(cell),
        metrics: json!({ "blocks_per_s": null }).as_object().cloned().unwrap_or_default(),
        remarks: vec![format!("not measured: {why}")],
    }
}

fn unique<T: Copy + PartialEq>(items: &[T]) -> Vec<T> {
    let mut kept: Vec<T> = Vec::new();
    for item in items {
        if !kept.contains(item) {
            kept.push(*item);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_different_ones_and_depend_on_the_seed_alone() {
        let choose = |seed| choose_blocks(&mut fastrand::Rng::with_seed(seed), 1000, 400);
        let numbers = choose(1);
        assert_eq!(numbers, choose(1));
        assert_ne!(numbers, choose(2));
        let mut sorted = numbers.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), 400);
        assert!(sorted.iter().all(|&number| number < 1000));
        assert_ne!(numbers, sorted, "they come in random order");
    }

    #[test]
    fn aio_is_not_asked_to_read_buffered() {
        let common = crate::cli::CommonArgs { dir: ".".into(), seed: Some(1) };
        let settings = Settings::new(&DepthArgs::quick(&common)).unwrap();
        let aio = Engine::Forebay(Kind::Aio);
        let of_aio = settings.cells().into_iter().filter(|cell| cell.engine == aio);
        assert!(of_aio.clone().count() > 0);
        assert!(of_aio.clone().all(|cell| cell.cache == CacheMode::Direct));
    }
}
