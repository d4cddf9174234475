//! Experiment `depth`: how many random blocks to prefetch.
//!
//! Document 003 of the sources read 4096 random blocks of a 1 GiB file while 1, 2, 4 ... 4096 of
//! the next ones were prefetched, and went from 12.5 s to 2.2 s. The same here, over every
//! backend, through the page cache and past it.
//!
//! Measurement: blocks arrive at the reader in the order of its list. While it processes one,
//! `depth` of the next ones are in flight; depth 0 requests a block only when it is needed. In each
//! round every cell reads the same blocks, from an emptied page cache, and the order of cells is
//! reshuffled, so that a disk that gets slower or faster meanwhile does not favour one of them. Lines
//! that are undecided after the first rounds get more while there is time.
//!
//! Invariants:  [DPT-1] all cells of a round read from one list of blocks, each from its start

mod cell;
mod conclusion;
mod fio;
mod reader;
mod settings;
mod view;

pub use settings::{NAME, Settings};

use std::time::Duration;

use forebay_io::{CacheMode, File, IoOptions, Kind, Op, OpenOptions, Prefer};

use super::driver::{RowSet, drive};
use super::modes::{self, Modes};
use super::samples::{Figures, Round, counted, emptied};
use super::window::{Window, queue};
use super::{Bench, Experiment, Measurements, Measuring, Outcome, WorkfileSpec, stopwatch};
use cell::{Cell, Line, Row};
use forebay_measure::lists::grouped;
use forebay_measure::report::BackendNote;
use forebay_measure::statistics::Floor;
use forebay_measure::workfile::{Naming, Workfile};
use reader::Until;

/// Maximum number of threads of the `threads` backend, however deep the look-ahead.
const WORKERS_MAX: usize = 256;

/// Blocks that are not measured: they start the threads before the measurement.
const WARM_UP_BLOCKS_MAX: u64 = WORKERS_MAX as u64;

impl Experiment for Settings {
    fn workfile_spec(&self) -> WorkfileSpec {
        self.common.workfile_spec(self.size_bytes, self.block_bytes, Naming::Nameless)
    }

    fn measurements(&self) -> u64 {
        self.surveyed(|_| true).len() as u64 * u64::from(self.rounds.least)
    }

    fn probe<'a>(&'a self, bench: &Bench<'_>) -> anyhow::Result<Measuring<'a>> {
        if self.fio {
            fio::check()?;
        }
        let cells = self.cells();
        let caches: Vec<CacheMode> = cells.iter().map(|cell| cell.cache).collect();
        let backends = self.backends.iter().map(|&kind| self.probe_backend(bench.workfile, kind));
        let modes = Modes::probe(
            &self.workfile_spec(),
            bench.workfile,
            &caches,
            Op::Read,
            backends.collect(),
        )?;
        modes::check(cells.iter().map(|cell| modes.missing(cell.backend, cell.cache)))?;
        Ok(Box::new(move |bench, progress| self.run(bench, modes, progress)))
    }
}

impl Settings {
    /// Opens `kind` as the deepest measurement will, so that limits show; if that fails, as
    /// the shallowest would, because then only the deep cells cannot be measured.
    fn probe_backend(&self, workfile: &Workfile, kind: Kind) -> BackendNote {
        let cache = if kind == Kind::Aio { CacheMode::Direct } else { CacheMode::Buffered };
        let deepest = self.depths.last().map_or(1, |&depth| depth as usize);
        let open = |depth| {
            let (io, _) = queue(&options(kind, cache, depth, None), depth, workfile.block_bytes)?;
            Ok(io)
        };
        let deep = modes::note(kind, open(deepest));
        if deep.available || open(1).is_err() {
            return deep;
        }
        let note = format!("not at depth {deepest}: {}", deep.note);
        BackendNote { available: true, note, ..deep }
    }

    fn run(
        &self,
        bench: &Bench<'_>,
        modes: Modes,
        progress: &mut dyn FnMut(&str),
    ) -> anyhow::Result<Measurements<'_>> {
        let row = |cell: Cell| Row {
            failure: modes.missing(cell.backend, cell.cache).map(str::to_owned),
            ..Row::new(cell)
        };
        let cells = self.surveyed(|kind| modes.works(kind));
        let mut rows = Rows(cells.into_iter().map(row).collect());
        let mut random = fastrand::Rng::with_seed(self.common.seed);
        let mut plan = Plan::new(self, bench.workfile.blocks(), &mut random);
        drive(
            &mut rows,
            self.limits(),
            &mut random,
            &stopwatch(),
            progress,
            |rows, index, turn| {
                if turn.is_first {
                    plan = Plan::new(self, bench.workfile.blocks(), turn.random);
                }
                self.measure(bench, &mut rows.0[index], &plan)
            },
        )?;
        Ok(Measurements::new(move |_, floor| self.outcome(&rows.0, modes, floor)))
    }

    fn outcome(&self, rows: &[Row], modes: Modes, floor: Floor) -> Outcome {
        let lines = Line::all(rows, floor);
        Outcome {
            records: rows.iter().map(|row| row.record(NAME, "blocks_per_s")).collect(),
            backends: modes.backends,
            section: view::section(rows, &lines),
            ..conclusion::draw(self, &lines, rows)
        }
    }

    /// Measures one round of `row`.
    fn measure(&self, bench: &Bench<'_>, row: &mut Row, plan: &Plan) -> anyhow::Result<Figures> {
        let (workfile, cell) = (bench.workfile, row.cell);
        let coldness = emptied(workfile)?;
        if cell.cache == CacheMode::Buffered {
            row.begins(&coldness);
        }
        // Random reads one by one: the kernel has read nothing ahead that could still be in flight.
        let settle = Duration::ZERO;
        let (round, device) = match cell.backend {
            Some(kind) => {
                let mut window = window(workfile, cell, kind, plan)?;
                let time_max = self.cell_time_max();
                let time_min = if self.blocks.is_some() { time_max } else { self.cell_time() };
                // With few windows the first and the last have little weight.
                let until =
                    Until { time_min, blocks_min: 64.max(4 * u64::from(cell.depth)), time_max };
                let read = || reader::read(&mut window, workfile, &plan.blocks, until);
                let counted = counted(bench.counters, settle, read)?;
                row.remarks.extend(window.io.notes());
                counted
            }
            None => {
                let work = || fio::measure(self, workfile, cell.depth, plan.seed);
                counted(bench.counters, settle, work)?
            }
        };
        row.remarks.extend(self.remarks(cell, round.blocks, plan));
        Ok(Round { device, ..round }.figures(self.block_bytes))
    }

    /// Remarks for the reader on a round of `blocks`.
    fn remarks(&self, cell: Cell, blocks: u64, plan: &Plan) -> Vec<String> {
        let mut remarks = Vec::new();
        if self.blocks.is_some_and(|wanted| blocks < wanted) {
            let seconds = self.cell_time_max().as_secs();
            remarks.push(format!("stopped after {seconds} s, before all blocks were read"));
        }
        let threads = cell.backend == Some(Kind::Threads) && cell.workers.is_none();
        if threads && cell.depth as usize > WORKERS_MAX {
            remarks.push(format!(
                "at most {WORKERS_MAX} threads, so {WORKERS_MAX} requests at the device"
            ));
        }
        if plan.warm_up.is_empty() && cell.backend.is_some() {
            remarks.push("no warm-up: every block of the file is measured".to_owned());
        }
        remarks
    }
}

/// The rows of a run; those of a line are a series.
#[derive(Debug)]
struct Rows(Vec<Row>);

impl RowSet for Rows {
    type Cell = Cell;
    type Figures = Figures;

    fn rows(&self) -> usize {
        self.0.len()
    }

    fn row(&mut self, index: usize) -> &mut Row {
        &mut self.0[index]
    }

    fn series(&self) -> Vec<Vec<usize>> {
        let lines = grouped(0..self.0.len(), |&index| self.0[index].cell.line());
        lines.into_iter().map(|(_, rows)| rows).collect()
    }

    fn open(&self) -> Vec<bool> {
        let lines = Line::all(&self.0, Floor::default());
        let is_open = |rows: Vec<usize>| {
            let line = self.0[rows[0]].cell.line();
            lines.iter().any(|it| it.cell().line() == line && conclusion::is_open(it))
        };
        self.series().into_iter().map(is_open).collect()
    }

    fn label(&self, index: usize) -> String {
        self.0[index].cell.label()
    }
}

/// The common input of the cells of a round [DPT-1].
struct Plan {
    blocks: Vec<u64>,
    warm_up: Vec<u64>,
    /// The seed of fio's own shuffle.
    seed: u32,
}

impl Plan {
    /// For a file of this many blocks: all of them in random order, less a few, or the requested number.
    fn new(settings: &Settings, of: u64, random: &mut fastrand::Rng) -> Plan {
        let mut blocks: Vec<u64> = (0..of).collect();
        random.shuffle(&mut blocks);
        let measured = settings.blocks.unwrap_or(of - WARM_UP_BLOCKS_MAX.min(of / 8));
        let mut warm_up = blocks.split_off(measured as usize);
        warm_up.truncate(WARM_UP_BLOCKS_MAX as usize);
        Plan { blocks, warm_up, seed: random.u32(..) }
    }
}

/// A queue with its file, memory and threads, warmed up.
fn window(workfile: &Workfile, cell: Cell, kind: Kind, plan: &Plan) -> anyhow::Result<Window> {
    let depth = cell.depth as usize;
    let options = options(kind, cell.cache, depth, cell.workers);
    let (io, memory) = queue(&options, depth, workfile.block_bytes)?;
    let options = OpenOptions::new().read_only(true).cache(cell.cache);
    let file = File::open(workfile.path(), &options)?;
    let mut window = Window::new(io, file, workfile.size_bytes, depth, &memory);
    // Starts the threads, if the backend has any, by reading blocks at random like the measured ones; otherwise
    // the kernel would detect a sequence and read ahead.
    let threads = depth.clamp(1, WORKERS_MAX).min(plan.warm_up.len());
    let warm_up = plan.warm_up[..threads].iter().map(|block| block * workfile.block_bytes);
    window.read(warm_up, |_, _, _| Ok(()))?;
    Ok(window)
}

/// For a queue with `workers` threads, if it is one of threads; `None`: one for each request.
fn options(kind: Kind, cache: CacheMode, depth: usize, workers: Option<u32>) -> IoOptions {
    let workers = workers.map_or_else(|| depth.clamp(1, WORKERS_MAX), |workers| workers as usize);
    IoOptions { prefer: Prefer::Only(kind), cache, workers, ..IoOptions::default() }
}

/// Draws conclusions from runs on disks on which all depths are equal, except for PostgreSQL's default, which reaches
/// this part of the others.
#[cfg(test)]
pub(super) fn simulated(lines: &str) -> super::simulation::Simulated {
    let options = format!("--seed 1 --quick --depths 1,16,64,256 {lines}");
    let settings = super::typed::<Settings>(&options).checked().unwrap();
    Box::new(move |disk, default| {
        let mut rows = Rows(settings.cells().into_iter().map(Row::new).collect());
        let seconds = settings.cell_time().as_secs_f64() + 0.02;
        let is_default = |cell: Cell| cell.depth == cell::CONCURRENCY_18;
        disk.simulate(&mut rows, settings.limits(), seconds, |rows, index, rate| {
            let part = if is_default(rows.0[index].cell) { default } else { 1.0 };
            Figures { blocks_per_s: 20_000.0 * part * rate, ..Figures::default() }
        });
        conclusion::draw(&settings, &Line::all(&rows.0, Floor::default()), &rows.0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use cell::sample::{line, row};
    use forebay_measure::facts::Storage;

    fn settings() -> Settings {
        crate::experiment::typed::<Settings>("--quick --survey --seed 1").checked().unwrap()
    }

    #[test]
    fn a_plan_is_of_different_blocks_in_random_order_and_depends_on_the_seed_alone() {
        let plan = |seed| Plan::new(&settings(), 1000, &mut fastrand::Rng::with_seed(seed));
        let Plan { blocks, warm_up, .. } = plan(1);
        assert_eq!(blocks, plan(1).blocks);
        assert_ne!(blocks, plan(2).blocks);
        assert_eq!((blocks.len(), warm_up.len()), (875, 125));
        let mut sorted = [blocks.clone(), warm_up].concat();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..1000).collect::<Vec<u64>>(), "none twice");
        assert_ne!(blocks, sorted[..875]);
        let few = Settings { blocks: Some(64), ..settings() };
        let few = Plan::new(&few, 1000, &mut fastrand::Rng::with_seed(1));
        assert_eq!((few.blocks.len(), few.warm_up.len()), (64, 256));
    }

    #[test]
    fn dpt_1_cells_of_a_round_read_the_same_blocks_and_last_their_time() {
        let directory = tempfile::tempdir().unwrap();
        let (path, naming) = (directory.path(), Naming::Nameless);
        let mut workfile = Workfile::create(path, 64 << 20, 8192, 1, naming).unwrap();
        workfile.fill(|_| ()).unwrap();
        let settings = settings();
        let storage = Storage::read(path).unwrap();
        let bench = Bench { workfile: &workfile, storage: &storage, counters: None, on: None };
        let plan = Plan::new(&settings, workfile.blocks(), &mut fastrand::Rng::with_seed(1));
        // The next cell would find the blocks that one cell has read through the page cache.
        let cell = |depth| {
            let (backend, cache) = (Some(Kind::Threads), CacheMode::Buffered);
            Row::new(Cell { backend, cache, depth, workers: Some(3) })
        };
        for mut row in [cell(0), cell(16)] {
            let round = &settings.measure(&bench, &mut row, &plan).unwrap();
            let whole = round.blocks == plan.blocks.len() as u64;
            assert!(whole || round.seconds >= 0.12, "{round:?}");
            let file = File::open(workfile.path(), &OpenOptions::new().read_only(true)).unwrap();
            let Some(resident) = resident_blocks(&file, &plan.blocks) else { return };
            let read = round.blocks as usize;
            assert!(resident[..read].iter().all(|&one| one), "[DPT-1] from the start of the list");
        }
    }

    /// Which of `blocks` are in the page cache, where the system can report it.
    fn resident_blocks(file: &File, blocks: &[u64]) -> Option<Vec<bool>> {
        let resident = |&block: &u64| {
            let range = block * 8192..(block + 1) * 8192;
            file.residency(range).ok().map(|found| found.pages_resident > 0)
        };
        blocks.iter().map(resident).collect()
    }

    #[test]
    fn only_undecided_lines_get_more_rounds() {
        let mut rows = line(Kind::Uring, None, &[(1, 10.0), (16, 50.0)]);
        rows.push(row(Kind::Uring, CacheMode::Direct, 1, &[44.0, 58.0, 41.0, 60.0, 40.0]));
        rows.push(row(Kind::Uring, CacheMode::Direct, 16, &[52.0, 43.0, 50.0, 42.0, 59.0]));
        let rows = Rows(rows);
        assert_eq!((rows.series(), rows.open()), (vec![vec![0, 1], vec![2, 3]], vec![false, true]));
    }

    #[test]
    fn aio_is_not_used_to_read_buffered() {
        let aio = Some(Kind::Aio);
        let of_aio = settings().cells().into_iter().filter(|cell| cell.backend == aio);
        assert!(of_aio.clone().count() > 0);
        assert!(of_aio.clone().all(|cell| cell.cache == CacheMode::Direct));
    }
}
