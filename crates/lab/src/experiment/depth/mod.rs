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
mod settings;

pub use means::Means;
pub use settings::Settings;

use std::sync::Arc;

use forebay_io::{Arena, CacheMode, File, Io, IoOptions, Kind, OpenOptions, Prefer};
use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};

use crate::facts::{CounterSource, DeviceCounters};
use crate::interrupt;
use crate::measure::{Coldness, Spread, empty_cache};
use crate::report::{Advice, BackendNote, Record};
use crate::workfile::Workfile;
use reader::{Reader, Round};

/// The name of this experiment in records.
pub const NAME: &str = "depth";

/// Most threads that the `threads` backend gets, however deep the look-ahead.
const WORKERS_MAX: usize = 256;

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::DepthArgs;

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
