//! The settings of a run: what the user asked for, with every default filled in and checked.

use std::path::PathBuf;
use std::time::Duration;

use forebay_io::{CacheMode, Kind};

use super::DepthArgs;
use super::cell::{Cell, Engine};
use crate::bad_input;
use crate::experiment::{listed, quoted, unique};
use crate::units::typed_size;

/// What is measured unless the user says otherwise.
struct Defaults {
    size_bytes: u64,
    depths: &'static [u32],
    rounds: u32,
    cell_time_max: Duration,
    /// For all rounds; those beyond the first so many are measured only within it.
    budget: Duration,
}

/// Document 003's file and depths.
const FULL: Defaults = Defaults {
    size_bytes: 1 << 30,
    depths: &[0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096],
    rounds: 5,
    cell_time_max: Duration::from_secs(4),
    budget: Duration::from_secs(240),
};

/// Enough to see the shape of the curve on most disks.
const QUICK: Defaults = Defaults {
    size_bytes: 256 << 20,
    depths: &[0, 1, 4, 16, 64, 256, 1024],
    rounds: 3,
    cell_time_max: Duration::from_secs(1),
    budget: Duration::from_secs(26),
};

/// A cell lasts so long at least, or the whole file.
pub(super) const CELL_TIME: Duration = Duration::from_millis(250);

/// Default of PostgreSQL's io_workers, and the most it takes.
pub(super) const PG_WORKERS: u32 = 3;
const PG_WORKERS_MAX: u32 = 32;

/// Default of maintenance_io_concurrency before version 18; no power of two, so measured for its own sake.
pub(super) const PG_MAINTENANCE: u32 = 10;

/// Settings with every default filled in and checked.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Absolute directory of the working file.
    pub directory: PathBuf,
    /// Size of the working file, in bytes.
    pub size_bytes: u64,
    /// Blocks read in each round of a cell; `None`: as many as are read within 250 ms.
    pub blocks: Option<u64>,
    /// Size of a block, in bytes.
    pub block_bytes: u64,
    /// Backends to measure.
    pub backends: Vec<Kind>,
    /// Cache modes to measure.
    pub caches: Vec<CacheMode>,
    /// Depths to measure, ascending.
    pub depths: Vec<u32>,
    /// Measurements of each cell, at least.
    pub rounds: u32,
    /// Time for all of them, within which undecided lines get more; `None`: no more.
    pub budget: Option<Duration>,
    /// Processors of this machine.
    pub processors: u32,
    /// Seed of everything random.
    pub seed: u64,
    /// Longest measurement of one cell; on a slow disk fewer blocks are read then.
    pub cell_time_max: Duration,
    /// Whether quick settings were asked for.
    pub quick: bool,
    /// Whether lines are left out that decide no setting here.
    pub survey: bool,
    /// Whether the depths are the user's own choice.
    pub(super) chosen: bool,
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
        let blocks = args.blocks.unwrap_or(1);
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
            blocks: args.blocks,
            block_bytes,
            backends: unique(&args.backends),
            caches: unique(&args.cache),
            depths,
            rounds: args.rounds.unwrap_or(defaults.rounds),
            budget: args.rounds.is_none().then_some(defaults.budget),
            processors: std::thread::available_parallelism()
                .map_or(1, |count| u32::try_from(count.get()).unwrap_or(u32::MAX)),
            seed: args.common.seed.unwrap_or_else(|| fastrand::u64(..1 << 32)),
            cell_time_max: defaults.cell_time_max,
            quick: args.quick,
            survey: args.survey,
            chosen: !args.depths.is_empty(),
            fio: args.fio,
        })
    }

    /// The command that repeats a run with these settings, every one of them named. `program`: the
    /// path or name by which this program was called.
    pub fn command(&self, program: &str) -> String {
        let mut command = format!(
            "{} lab depth --dir {} --size {} --block-size {} --backends {} --cache {} --seed {}",
            quoted(program),
            quoted(&self.directory.display().to_string()),
            typed_size(self.size_bytes),
            typed_size(self.block_bytes),
            listed(&self.backends),
            listed(&self.caches),
            self.seed,
        );
        if self.chosen {
            command.push_str(&format!(" --depths {}", listed(&self.depths)));
        }
        if let Some(blocks) = self.blocks {
            command.push_str(&format!(" --blocks {blocks}"));
        }
        if self.budget.is_none() {
            command.push_str(&format!(" --rounds {}", self.rounds));
        }
        for (option, given) in [(" --quick", self.quick), (" --fio", self.fio)] {
            command.push_str(if given { option } else { "" });
        }
        command
    }

    /// Every cell that was asked for.
    pub(super) fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for &cache in &self.caches {
            for &kind in self.backends.iter().filter(|kind| kind.serves(cache)) {
                let cell =
                    |depth, workers| Cell { backend: Engine::Forebay(kind), cache, depth, workers };
                cells.extend(self.depths_of(kind, cache).iter().map(|&depth| cell(depth, None)));
                if kind == Kind::Threads && cache == CacheMode::Buffered {
                    for workers in self.worker_counts() {
                        let depths = self.depths_with(workers);
                        cells.extend(depths.iter().map(|&depth| cell(depth, Some(workers))));
                    }
                }
            }
        }
        if self.fio {
            let depths = self.depths.iter().filter(|&&depth| depth > 0);
            let (backend, cache, workers) = (Engine::Fio, CacheMode::Direct, None);
            cells.extend(depths.map(|&depth| Cell { backend, cache, depth, workers }));
        }
        cells
    }

    /// `cells` without lines that decide no setting where `works` says which backends there are: aio and one
    /// thread for each request are what is left without io_uring, and past the page cache `sync` is the
    /// same at every depth.
    pub(super) fn surveyed(&self, cells: Vec<Cell>, works: impl Fn(Kind) -> bool) -> Vec<Cell> {
        let uring = works(Kind::Uring);
        let decides = |cell: &Cell| match (cell.backend, cell.cache) {
            (Engine::Forebay(Kind::Aio), _) => !uring,
            (Engine::Forebay(Kind::Threads), _) => !uring || cell.workers.is_some(),
            (Engine::Forebay(Kind::Sync), CacheMode::Direct) => cell.depth == 0,
            (Engine::Forebay(Kind::Uring), _) => cell.depth > 0,
            _ => true,
        };
        cells.into_iter().filter(decides).collect()
    }

    fn depths_of(&self, kind: Kind, cache: CacheMode) -> Vec<u32> {
        let mut depths = self.depths.clone();
        if !self.chosen && kind == Kind::Sync && cache == CacheMode::Buffered {
            depths.push(PG_MAINTENANCE);
            depths.sort_unstable();
        }
        depths
    }

    /// Numbers of threads that PostgreSQL may have as io_workers: its default, and more by doubling up to four
    /// for each processor. Many more than processors are known to cost, 45 % with 32 on 2 of them, and so are
    /// neither measured nor advised.
    pub(super) fn worker_counts(&self) -> Vec<u32> {
        let most = self.workers_max();
        let doubled = std::iter::successors(Some(PG_WORKERS + 1), |count| count.checked_mul(2));
        std::iter::once(PG_WORKERS).chain(doubled.take_while(|&count| count <= most)).collect()
    }

    /// Most io_workers that are measured or advised on this machine.
    pub(super) fn workers_max(&self) -> u32 {
        self.processors.saturating_mul(4).clamp(PG_WORKERS, PG_WORKERS_MAX)
    }

    /// Depths with one number of workers: fewer requests than workers leave some without work. With more
    /// workers than the default it is their number that is in question.
    fn depths_with(&self, workers: u32) -> Vec<u32> {
        let mut depths = self.depths.clone();
        depths.retain(|&depth| depth >= workers.max(1));
        if !self.chosen {
            let few = if self.quick { &[16, 64][..] } else { &[16, 64, 256] };
            depths.retain(
                |depth| if workers == PG_WORKERS { *depth <= 1024 } else { few.contains(depth) },
            );
        }
        depths
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::CommonArgs;

    fn settings(survey: bool) -> Settings {
        let common = CommonArgs { dir: ".".into(), seed: Some(1) };
        let args = DepthArgs { survey, ..DepthArgs::quick(&common) };
        Settings { processors: 2, ..Settings::new(&args).unwrap() }
    }

    #[test]
    fn no_more_workers_are_measured_than_four_for_each_processor() {
        let counts = |processors| Settings { processors, ..settings(false) }.worker_counts();
        assert_eq!(counts(1), [3, 4]);
        assert_eq!(counts(2), [3, 4, 8]);
        assert_eq!(counts(64), [3, 4, 8, 16, 32]);
        for cell in settings(false).cells() {
            assert!(cell.workers.is_none_or(|workers| workers <= cell.depth && workers <= 8));
        }
    }

    #[test]
    fn a_survey_measures_every_default_that_it_may_advise_to_change() {
        let survey = settings(true);
        let cells = survey.surveyed(survey.cells(), |_| true);
        let has = |kind, depth, workers: Option<u32>| {
            cells.iter().any(|cell| {
                cell.is(kind, CacheMode::Buffered) && (cell.depth, cell.workers) == (depth, workers)
            })
        };
        for (kind, depth, workers) in [
            (Kind::Sync, 1, None),
            (Kind::Sync, 10, None),
            (Kind::Sync, 16, None),
            (Kind::Uring, 16, None),
            (Kind::Threads, 16, Some(3)),
            (Kind::Threads, 16, Some(8)),
        ] {
            assert!(has(kind, depth, workers), "{kind} {depth} {workers:?}");
        }
        // In three rounds of a quarter of a second each.
        assert!(cells.len() <= 32, "{}", cells.len());
        assert!(cells.iter().all(|cell| cell.backend != Engine::Forebay(Kind::Aio)));
        let without = survey.surveyed(survey.cells(), |kind| kind != Kind::Uring);
        assert!(without.iter().any(|cell| cell.backend == Engine::Forebay(Kind::Aio)));
    }

    #[test]
    fn depths_of_ones_own_are_measured_as_they_are() {
        let common = CommonArgs { dir: ".".into(), seed: Some(1) };
        let args = DepthArgs {
            depths: vec![16, 0, 16],
            backends: vec![Kind::Sync, Kind::Aio],
            ..DepthArgs::quick(&common)
        };
        let settings = Settings::new(&args).unwrap();
        let cells: Vec<(String, u32)> =
            settings.cells().iter().map(|cell| (cell.line_label(), cell.depth)).collect();
        let line = |name: &str| [(name.to_owned(), 0), (name.to_owned(), 16)];
        assert_eq!(
            cells,
            [line("sync buffered"), line("sync direct"), line("aio direct")].concat()
        );
        assert!(settings.command("forebay").contains(" --depths 0,16"));
    }
}
