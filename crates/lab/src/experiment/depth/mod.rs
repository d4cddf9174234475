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
use serde_json::{Map, Value, json};

use super::tally::{Measured, Tally, counted};
use super::{Bench, Experiment, Ground, Outcome, unique};
use crate::facts::CounterSource;
use crate::interrupt;
use crate::measure::{Coldness, Spread, empty_cache};
use crate::report::Record;
use crate::workfile::{Naming, Workfile};
use reader::Reader;

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

impl Experiment for Settings {
    type Means = Means;

    const NAMING: Naming = Naming::Nameless;

    fn ground(&self) -> Ground {
        Ground {
            directory: self.directory.clone(),
            size_bytes: self.size_bytes,
            block_bytes: self.block_bytes,
            seed: self.seed,
        }
    }

    fn measurements(&self) -> u64 {
        self.cells().len() as u64 * u64::from(self.rounds)
    }

    fn command(&self, program: &str) -> String {
        Settings::command(self, program)
    }

    fn probe(&self, bench: &Bench<'_>) -> anyhow::Result<Means> {
        Means::probe(self, bench.workfile)
    }

    fn run(
        &self,
        bench: &Bench<'_>,
        means: Means,
        progress: &mut dyn FnMut(&str),
    ) -> anyhow::Result<Outcome> {
        run(self, bench.workfile, means, bench.counters, progress)
    }
}

/// Runs the experiment on `workfile`. `progress` is told what is being measured, once for each
/// measurement.
///
/// # Errors
/// [`Interrupted`](interrupt::Interrupted), or an I/O error of a measurement.
fn run(
    settings: &Settings,
    workfile: &Workfile,
    means: Means,
    counters: Option<&CounterSource>,
    progress: &mut dyn FnMut(&str),
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
            let coldness = empty(workfile)?;
            let measured = match (cell.engine, &fio) {
                (Engine::Forebay(kind), _) => {
                    measure(settings, workfile, cell, kind, counters, &mut random)
                }
                (Engine::Fio, Some(fio)) => {
                    let seed = random.u32(..);
                    let work = || fio.measure(settings, workfile, cell.depth, seed);
                    counted(counters, work, || ())
                }
                (Engine::Fio, None) => unreachable!("fio cells are made only with --fio"),
            };
            tally.take(coldness, measured)?;
        }
    }

    let mut records: Vec<Record> =
        cells.iter().zip(&tallies).map(|(cell, tally)| record(settings, *cell, tally)).collect();
    records.extend(
        unusable.into_iter().map(|cell| unmeasured(cell, missing.of(cell).unwrap_or_default())),
    );
    let advice = conclusion::draw(settings, &records);
    Ok(Outcome { records, backends, conclusions: advice, ..Outcome::default() })
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
        register: memory.map(|arena| Arc::clone(arena.mapping())),
        advise: true,
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
) -> anyhow::Result<Measured> {
    let depth = cell.depth as usize;
    let memory = Reader::memory(workfile, depth)?;
    let io = open_queue(kind, cell.cache, depth, Some(&memory))?;
    let file = open_file(workfile, cell.cache)?;
    let blocks = settings.blocks as usize;
    let warm_up = depth.clamp(1, WORKERS_MAX).min(workfile.blocks() as usize - blocks);
    let numbers = choose_blocks(random, workfile.blocks(), blocks + warm_up);
    let mut reader = Reader::new(&io, &file, workfile, depth, &memory);
    reader.warm_up(&numbers[blocks..])?;
    let work = || reader.read(&numbers[..blocks], settings.cell_time_max);
    // Random reads one by one: the kernel has read nothing ahead that would still be under way.
    let measured = counted(counters, work, || ())?;
    Ok(Measured { notes: notes_of(&io), ..measured })
}

/// What a queue has to say about itself by now, such as memory that could not be registered or
/// threads that could not be started.
fn notes_of(io: &Io) -> Vec<String> {
    io.notes()
}

/// `count` different ones of the blocks `0..of`, in random order.
fn choose_blocks(random: &mut fastrand::Rng, of: u64, count: usize) -> Vec<u64> {
    let mut numbers = random.choose_multiple(0..of, count);
    random.shuffle(&mut numbers);
    numbers
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
    if let (true, Some(why)) = (tally.rounds.is_empty(), tally.failures.first()) {
        return unmeasured(cell, why);
    }
    Record {
        rounds: Vec::new(),
        experiment: NAME.to_owned(),
        cell: cell_map(cell),
        metrics: tally.metrics(settings.block_bytes),
        remarks: remarks(settings, cell, tally, tally.blocks()),
    }
}

/// What a reader of a cell's figures has to know, each thing once. `blocks`: read in each round.
fn remarks(settings: &Settings, cell: Cell, tally: &Tally, blocks: Option<Spread>) -> Vec<String> {
    let mut remarks: Vec<String> = Vec::new();
    if cell.cache == CacheMode::Buffered {
        remarks.extend(tally.coldness.iter().filter_map(Coldness::remark));
    }
    if blocks.is_some_and(|spread| spread.median < settings.blocks as f64) {
        remarks.push(format!(
            "stopped asking after {} s, before all {} blocks were read",
            settings.cell_time_max.as_secs(),
            settings.blocks
        ));
    }
    let workers = WORKERS_MAX as u32;
    if cell.engine == Engine::Forebay(Kind::Threads) && cell.depth > workers {
        remarks.push(format!("at most {workers} threads, so {workers} requests at the device"));
    }
    remarks.extend(tally.notes.iter().cloned());
    if let Some(why) = tally.failures.first() {
        let (failed, rounds) = (tally.failures.len(), settings.rounds);
        remarks.push(format!("{failed} of {rounds} rounds could not be measured: {why}"));
    }
    let all_measured = settings.blocks == settings.size_bytes / settings.block_bytes;
    if all_measured && cell.engine != Engine::Fio {
        remarks.push("no warm-up: every block of the file is measured".to_owned());
    }
    unique(&remarks)
}

fn unmeasured(cell: Cell, why: &str) -> Record {
    Record {
        rounds: Vec::new(),
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
    use crate::experiment::tally::Round;

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

    fn settings() -> Settings {
        let common = crate::cli::CommonArgs { dir: ".".into(), seed: Some(1) };
        Settings::new(&DepthArgs::quick(&common)).unwrap()
    }

    fn cell() -> Cell {
        Cell { engine: Engine::Forebay(Kind::Uring), cache: CacheMode::Direct, depth: 64 }
    }

    fn measured(notes: &[&str]) -> Measured {
        let (blocks, seconds) = (2048, 0.5);
        let blocks_needed = Some(blocks);
        let round = Round { blocks, blocks_needed, seconds, processor_seconds: 0.1, wait_ns: None };
        let notes = notes.iter().map(|&note| note.to_owned()).collect();
        Measured { round, device: None, notes }
    }

    fn no_memory() -> anyhow::Error {
        let source = forebay_io::OsError::ENOMEM;
        let error = forebay_io::Error::Memlock { what: "the arena", needed: 9, source };
        anyhow::Error::new(error).context("opening a queue")
    }

    #[test]
    fn a_cell_without_the_means_is_unmeasured_and_says_why() {
        let mut tally = Tally::default();
        for _ in 0..3 {
            tally.take(Coldness::Cold, Err(no_memory())).unwrap();
        }
        let record = record(&settings(), cell(), &tally);
        assert_eq!(record.metric("blocks_per_s"), None);
        assert!(record.remarks[0].contains("not measured: the arena needs 9 bytes"));
    }

    #[test]
    fn rounds_that_could_be_measured_are_kept_and_every_remark_is_said_once() {
        let mut tally = Tally::default();
        tally.take(Coldness::Cold, Ok(measured(&["memory not registered", "2 threads"]))).unwrap();
        tally.take(Coldness::Cold, Err(no_memory())).unwrap();
        tally.take(Coldness::Cold, Ok(measured(&["memory not registered"]))).unwrap();
        let record = record(&settings(), cell(), &tally);
        assert_eq!(record.metric("blocks_per_s"), Some(4096.0));
        assert_eq!(record.remarks.len(), 3, "{:?}", record.remarks);
        assert_eq!(record.remarks[..2], ["memory not registered", "2 threads"]);
        assert!(record.remarks[2].starts_with("1 of 3 rounds could not be measured: "));
    }

    #[test]
    fn interruptions_and_wrong_data_end_the_run() {
        let mut tally = Tally::default();
        let interrupted = tally.take(Coldness::Cold, Err(interrupt::Interrupted.into()));
        assert!(interrupted.unwrap_err().is::<interrupt::Interrupted>());
        assert!(tally.take(Coldness::Cold, Err(anyhow::anyhow!("block 3"))).is_err());
    }

    #[test]
    fn a_file_without_blocks_to_warm_up_with_is_remarked() {
        let whole = Settings { blocks: 256 << 20 >> 13, ..settings() };
        let remark = |settings: &Settings| {
            let mut tally = Tally::default();
            tally.take(Coldness::Cold, Ok(measured(&[]))).unwrap();
            record(settings, cell(), &tally).remarks.iter().any(|one| one.contains("no warm-up"))
        };
        assert!(remark(&whole));
        assert!(!remark(&settings()));
    }

    #[test]
    fn aio_is_not_asked_to_read_buffered() {
        let aio = Engine::Forebay(Kind::Aio);
        let of_aio = settings().cells().into_iter().filter(|cell| cell.engine == aio);
        assert!(of_aio.clone().count() > 0);
        assert!(of_aio.clone().all(|cell| cell.cache == CacheMode::Direct));
    }
}
