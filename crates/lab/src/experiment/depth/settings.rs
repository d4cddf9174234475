//! The settings of a run: what the user requested, and the cells that follow from it.

use std::time::Duration;

use clap::Args;
use forebay_io::{CacheMode, Kind};

use super::cell::{Cell, PG_MAINTENANCE, PG_WORKERS};
use crate::args::{CommonArgs, OutputArgs, parse_backend, parse_cache};
use crate::experiment::Rounds;
use crate::experiment::schedule::Limits;
use forebay_measure::bad_input;
use forebay_measure::lists::sorted;
use forebay_measure::lists::unique;
use forebay_measure::units::{parse_size, shown_size};

/// The name of this experiment in records.
pub const NAME: &str = "depth";

/// Minimum time of a cell, unless it reads the whole file. With `--quick` it is shorter, as more rounds decide more
/// than long ones.
const CELL_TIME: Duration = Duration::from_millis(250);
const CELL_TIME_QUICK: Duration = Duration::from_millis(120);

/// Document 003's depths, and enough of them to see the shape of the curve on most disks.
const DEPTHS: [u32; 14] = [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096];
const DEPTHS_QUICK: [u32; 7] = [0, 1, 4, 16, 64, 256, 1024];

/// PostgreSQL accepts no larger value for io_workers.
const PG_WORKERS_MAX: u32 = 32;

/// `forebay lab depth`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Depth is the number of requests in flight: while one block is in hand, \
                  that many of the next ones are being read. Depth 0 reads each block only \
                  when it is needed.\n\
                  In each round all cells (backend, cache, depth) read the same random blocks, in shuffled \
                  order and from an emptied page cache, for a quarter of a second each, with --quick for 120 ms. They are compared \
                  round by round; undecided lines get more rounds while there is time.\n\
                  Threads with one number of workers at all depths are what PostgreSQL 18 has with \
                  io_method=worker.\n\n\
                  Example: forebay lab depth --dir /mnt/data --backends uring,sync --depths 0,16,64")]
pub struct Settings {
    /// The place and the conditions.
    #[command(flatten)]
    pub(in crate::experiment) common: CommonArgs,
    /// Size of the working file (such as 512MiB, 4GiB) [quick: 256MiB]
    #[arg(long = "size", value_name = "SIZE", value_parser = parse_size, default_value = "1GiB",
          default_value_if("quick", "true", "256MiB"))]
    pub(super) size_bytes: u64,
    /// Blocks read in each measurement [default: as many as are read in 250 ms]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) blocks: Option<u64>,
    /// Size of a block, a power of two from 512 to 1MiB
    #[arg(long = "block-size", value_name = "SIZE", value_parser = parse_size,
          default_value = "8KiB")]
    pub(super) block_bytes: u64,
    /// Backends, from: sync, threads, aio, uring
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_backend,
          default_value = "sync,threads,aio,uring")]
    pub(super) backends: Vec<Kind>,
    /// Cache modes, from: buffered, direct
    #[arg(long = "cache", value_name = "LIST", value_delimiter = ',', value_parser = parse_cache,
          default_value = "buffered,direct")]
    pub(super) caches: Vec<CacheMode>,
    /// Depths, each from 0 to 4096 [default: 0,1,2,4 ... 4096, quick: 0,1,4,16,64,256,1024]
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(0..=4096))]
    pub(super) depths: Vec<u32>,
    /// Measurements of each cell; 5+ is 5 or more, as time allows [quick: 6+]
    #[arg(long, value_name = "N", default_value = "5+", default_value_if("quick", "true", "6+"))]
    pub(super) rounds: Rounds,
    /// Fewer depths and rounds, and a smaller file: less than a minute
    #[arg(long)]
    pub(super) quick: bool,
    /// Also measure `fio --ioengine=io_uring --direct=1` on the same file, in a separate shuffle
    #[arg(long)]
    pub(super) fio: bool,
    /// Leave out lines that decide no setting here, as `forebay lab` does
    #[arg(long, hide = true)]
    pub(super) survey: bool,
    /// The output files.
    #[command(flatten)]
    pub(in crate::experiment) output: OutputArgs,
    /// Whether the depths are the user's own choice.
    #[arg(skip)]
    pub(super) chosen: bool,
    /// Processors of this machine.
    #[arg(skip = std::thread::available_parallelism().map_or(1, |count| count.get() as u32))]
    pub(super) processors: u32,
}

impl Settings {
    /// Fills in the depths and refuses invalid options.
    ///
    /// # Errors
    /// [`BadInput`](forebay_measure::BadInput), naming the option.
    pub(in crate::experiment) fn checked(mut self) -> anyhow::Result<Settings> {
        let block_bytes = self.block_bytes;
        if !block_bytes.is_power_of_two() || !(512..=1 << 20).contains(&block_bytes) {
            bad_input!("--block-size {block_bytes}: it should be a power of two, 512 to 1MiB");
        }
        let (blocks, file_blocks) = (self.blocks.unwrap_or(1), self.size_bytes / block_bytes);
        if file_blocks < blocks {
            bad_input!(
                "--size {}: that is {file_blocks} blocks of {}, fewer than --blocks {blocks}; choose a larger one",
                shown_size(self.size_bytes),
                shown_size(block_bytes)
            );
        }
        self.chosen = !self.depths.is_empty();
        if !self.chosen {
            self.depths = if self.quick { DEPTHS_QUICK.to_vec() } else { DEPTHS.to_vec() };
        }
        self.depths = sorted(&self.depths);
        if self.cells().is_empty() {
            bad_input!("there is nothing to measure: aio reads direct only; add --cache direct");
        }
        Ok(self)
    }

    /// Longest measurement of one cell; on a slow disk fewer blocks are read then.
    pub(super) fn cell_time_max(&self) -> Duration {
        Duration::from_secs(if self.quick { 1 } else { 4 })
    }

    /// Shortest measurement of one cell.
    pub(super) fn cell_time(&self) -> Duration {
        if self.quick { CELL_TIME_QUICK } else { CELL_TIME }
    }

    /// How long there are rounds.
    pub(super) fn limits(&self) -> Limits {
        self.rounds.limits(if self.quick { 30 } else { 240 })
    }

    /// Every requested cell.
    pub(super) fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for &cache in &self.caches {
            for &kind in self.backends.iter().filter(|kind| kind.serves(cache)) {
                let mut line = |depths: Vec<u32>, workers| {
                    let cell = |depth| Cell { backend: Some(kind), cache, depth, workers };
                    cells.extend(depths.into_iter().map(cell));
                };
                line(self.depths_of(kind, cache), None);
                if kind == Kind::Threads && cache == CacheMode::Buffered {
                    for workers in self.worker_counts() {
                        line(self.depths_with(workers), Some(workers));
                    }
                }
            }
        }
        if self.fio {
            let depths = self.depths.iter().filter(|&&depth| depth > 0);
            let (backend, cache, workers) = (None, CacheMode::Direct, None);
            cells.extend(depths.map(|&depth| Cell { backend, cache, depth, workers }));
        }
        unique(&cells)
    }

    /// Every cell; in a survey only those of lines that decide a setting where `works` says which backends
    /// are available: without io_uring, aio and one thread for each request remain, and past the page
    /// cache `sync` is the same at every depth.
    pub(super) fn surveyed(&self, works: impl Fn(Kind) -> bool) -> Vec<Cell> {
        let uring = works(Kind::Uring);
        let decides = |cell: &Cell| match (cell.backend, cell.cache) {
            (Some(Kind::Aio), _) => !uring,
            (Some(Kind::Threads), _) => !uring || cell.workers.is_some(),
            (Some(Kind::Sync), CacheMode::Direct) => cell.depth == 0,
            (Some(Kind::Uring), _) => cell.depth > 0,
            _ => true,
        };
        self.cells().into_iter().filter(|cell| !self.survey || decides(cell)).collect()
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
    /// for each processor. Many more threads than processors are known to cost, 45 % with 32 on 2 of them, so they are
    /// neither measured nor advised.
    pub(super) fn worker_counts(&self) -> Vec<u32> {
        let most = self.workers_max();
        let doubled = std::iter::successors(Some(PG_WORKERS + 1), |count| count.checked_mul(2));
        std::iter::once(PG_WORKERS).chain(doubled.take_while(|&count| count <= most)).collect()
    }

    /// Maximum io_workers that are measured or advised on this machine.
    pub(super) fn workers_max(&self) -> u32 {
        self.processors.saturating_mul(4).clamp(PG_WORKERS, PG_WORKERS_MAX)
    }

    /// Depths with one number of workers: fewer requests than workers leave some without work. With more
    /// workers than the default the measurement is about their number.
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
    use crate::experiment::typed;

    fn settings(options: &str) -> Settings {
        Settings { processors: 2, ..typed::<Settings>(options).checked().unwrap() }
    }

    #[test]
    fn what_is_not_given_is_as_in_document_003_or_quicker() {
        let full = settings("");
        assert_eq!((full.size_bytes, full.depths.len()), (1 << 30, 14));
        assert_eq!((full.rounds, full.limits().time.as_secs()), ("5+".parse().unwrap(), 240));
        let quick = settings("--quick --rounds 4");
        assert_eq!((quick.size_bytes, quick.depths.len()), (256 << 20, 7));
        assert_eq!((quick.limits().first, quick.limits().time), (4, Duration::ZERO));
        assert_eq!(settings("--quick").rounds, "6+".parse().unwrap());
        assert_eq!(settings("--size 4MiB --quick").size_bytes, 4 << 20);
    }

    #[test]
    fn no_more_workers_are_measured_than_four_for_each_processor() {
        let counts = |processors| Settings { processors, ..settings("--quick") }.worker_counts();
        assert_eq!(counts(1), [3, 4]);
        assert_eq!(counts(2), [3, 4, 8]);
        assert_eq!(counts(64), [3, 4, 8, 16, 32]);
        for cell in settings("--quick").cells() {
            assert!(cell.workers.is_none_or(|workers| workers <= cell.depth && workers <= 8));
        }
    }

    #[test]
    fn a_survey_measures_every_default_that_it_may_advise_to_change() {
        let survey = settings("--quick --survey");
        let cells = survey.surveyed(|_| true);
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
        // In six rounds of an eighth of a second each.
        assert!(cells.len() <= 32, "{}", cells.len());
        assert!(cells.iter().all(|cell| cell.backend != Some(Kind::Aio)));
        let without = survey.surveyed(|kind| kind != Kind::Uring);
        assert!(without.iter().any(|cell| cell.backend == Some(Kind::Aio)));
    }

    #[test]
    fn depths_of_ones_own_are_measured_as_they_are() {
        let settings = settings("--quick --depths 16,0,16 --backends sync,aio");
        let cells: Vec<(String, u32)> =
            settings.cells().iter().map(|cell| (cell.line_label(), cell.depth)).collect();
        let line = |name: &str| [(name.to_owned(), 0), (name.to_owned(), 16)];
        assert_eq!(
            cells,
            [line("sync buffered"), line("sync direct"), line("aio direct")].concat()
        );
    }
}
