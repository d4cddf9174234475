//! The settings of a run: what the user requested, and the cells that follow from it.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::BoolishValueParser;
use forebay_io::{CacheMode, Io, IoOptions, Kind, Prefer};

use super::cell::{Cell, Dirty, Order, PAGE_BYTES};
use crate::args::{CommonArgs, OutputArgs, directory_parser, parse_backend, parse_cache};
use crate::experiment::schedule::Limits;
use crate::experiment::{Experiment, Rounds, WorkfileSpec, parse_pool_size};
use forebay_measure::bad_input;
use forebay_measure::lists::unique;
use forebay_measure::units::parse_time;

/// A file has this many times the number of dirty pages, unless the user gives its size.
const DIRTY_PART: u32 = 8;

/// Minimum number of pages of a checkpoint here.
const DIRTY_MIN: u32 = 64;

/// `forebay lab checkpoint`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Each measurement changes so many pages of a working file in a new pool, writes them \
                  out by one checkpoint, and syncs. A cell of arrival, combine off and backend sync \
                  writes them as most engines did: one page after the other, in the order of frames. \
                  Every cell of one pattern and cache mode is compared with that.\n\
                  Readers: threads that read random pages at a steady rate, whatever the disk does. Cells \
                  with readers or with pacing last an interval and a half in each round; by default \
                  they are measured for the best order alone, --all-cells crosses everything with \
                  everything. Rounds are added to what is undecided while there is time.\n\n\
                  Example: forebay lab checkpoint --dir /mnt/data --patterns clustered --cache direct \
                  --elevators arrival,balanced --interval 30s"
)]
pub struct Settings {
    /// The place and the conditions.
    #[command(flatten)]
    pub(in crate::experiment) common: CommonArgs,
    /// Directory of the second tablespace, best on another device; two-tablespaces is measured with it
    #[arg(long, value_name = "DIR", value_parser = directory_parser())]
    dir2: Option<PathBuf>,
    /// Size of the working file (such as 512MiB, 4GiB) [quick: 256MiB]
    #[arg(long = "size", value_name = "SIZE",
          value_parser = parse_pool_size(2 * u64::from(DIRTY_MIN)), default_value = "4GiB",
          default_value_if("quick", "true", "256MiB"))]
    pub(super) size_bytes: u64,
    /// Pages of 8 KiB to change before each checkpoint; all are in memory [default: an eighth of the file]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(64..))]
    dirty: Option<u32>,
    /// Patterns: where the changed pages are [quick: uniform,clustered]
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "uniform,clustered,zipfian",
        default_value_if("quick", "true", "uniform,clustered")
    )]
    pub(super) patterns: Vec<Dirty>,
    /// Elevators: the orders in which they are written [quick: arrival,balanced]
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "arrival,sorted,balanced",
        default_value_if("quick", "true", "arrival,balanced")
    )]
    elevators: Vec<Order>,
    /// Neighbours coalesced into one write, from: off, on
    #[arg(long = "combine", value_name = "LIST", value_delimiter = ',',
          value_parser = BoolishValueParser::new(), hide_possible_values = true,
          default_value = "off,on")]
    combines: Vec<bool>,
    /// Cache modes, from: buffered, direct
    #[arg(long = "cache", value_name = "LIST", value_delimiter = ',', value_parser = parse_cache,
          default_value = "buffered,direct")]
    pub(super) caches: Vec<CacheMode>,
    /// Backends, from: sync, threads, aio, uring; sync writes one after the other [default: sync and
    /// the best that works here]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_backend)]
    pub(super) backends: Vec<Kind>,
    /// Writes in flight in each tablespace, except for sync
    #[arg(long, value_name = "N", default_value_t = 32,
          value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(super) depth: u32,
    /// Time from checkpoint to checkpoint in cells with readers or pacing [quick: 1200ms]
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "10s",
          default_value_if("quick", "true", "1200ms"))]
    pub(super) interval: Duration,
    /// Threads that read; 0 leaves the cells with readers out
    #[arg(long, value_name = "N", default_value_t = 4,
          value_parser = clap::value_parser!(u32).range(..=64))]
    pub(super) readers: u32,
    /// Reads per second of all of them together
    #[arg(long = "reads", value_name = "N", default_value_t = 1000,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(super) reads_per_s: u32,
    /// Measurements of each cell; 3+ is 3, and more for undecided cells while there is time
    #[arg(long, value_name = "N", default_value = "3+")]
    pub(super) rounds: Rounds,
    /// Measure all combinations, however long that takes
    #[arg(long)]
    all_cells: bool,
    /// Only the slowest and the best way of writing, and readers alongside the best
    #[arg(long, conflicts_with = "all_cells")]
    essential: bool,
    /// A sixteenth of the pages and of the file, shorter intervals: about a minute
    #[arg(long)]
    quick: bool,
    /// The output files.
    #[command(flatten)]
    pub(in crate::experiment) output: OutputArgs,
}

impl Settings {
    /// Fills in the backends and refuses invalid options.
    ///
    /// # Errors
    /// [`BadInput`](forebay_measure::BadInput), naming the option; or there is no backend.
    pub(in crate::experiment) fn checked(mut self) -> anyhow::Result<Settings> {
        let (blocks, pages) = (self.file_blocks(), self.dirty_pages());
        if pages > blocks / 2 {
            // Readers need clean ones.
            bad_input!(
                "--dirty {pages}: at most half of the file's {blocks} pages; choose fewer, or a larger --size"
            );
        }
        self.patterns.extend(self.dir2.is_some().then_some(Dirty::TwoTablespaces));
        if self.patterns.contains(&Dirty::TwoTablespaces) && self.dir2.is_none() {
            bad_input!(
                "--patterns two-tablespaces: the second tablespace needs a separate directory, best on \
                 another device; name it with --dir2"
            );
        }
        let interval = self.interval;
        if interval < Duration::from_millis(100) || interval > Duration::from_secs(3600) {
            bad_input!("--interval {interval:?}: it should be from 100ms to 1h");
        }
        if self.backends.is_empty() {
            // What a pool chooses by default.
            let best = Io::open(&IoOptions { prefer: Prefer::Auto, ..IoOptions::default() })?;
            self.backends = vec![Kind::Sync, best.kind()];
        }
        self.patterns = unique(&self.patterns);
        self.caches = unique(&self.caches);
        if self.cells().is_empty() {
            bad_input!("there is nothing to measure: aio writes direct only; add --cache direct");
        }
        Ok(self)
    }

    /// Whole blocks in the working file.
    pub(super) fn file_blocks(&self) -> u32 {
        (self.size_bytes / PAGE_BYTES) as u32 // as the size was parsed
    }

    /// Pages changed before each checkpoint.
    pub(super) fn dirty_pages(&self) -> u32 {
        self.dirty.unwrap_or((self.file_blocks() / DIRTY_PART).max(DIRTY_MIN))
    }

    /// The second tablespace's file, if there is one: half as long.
    pub(super) fn second_spec(&self) -> Option<WorkfileSpec> {
        let directory = self.dir2.clone()?;
        let size_bytes = self.size_bytes / 2 / PAGE_BYTES * PAGE_BYTES;
        Some(WorkfileSpec { directory, size_bytes, ..self.workfile_spec() })
    }

    /// All cells to measure, in the order of the report.
    pub(super) fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        let (paced, foreground) = (false, false);
        let mut modes = Vec::new();
        for &elevator in &self.elevators {
            modes.extend(self.combines.iter().map(|&combine| (elevator, combine)));
        }
        for &dirty in &self.patterns {
            for &cache in &self.caches {
                for &(elevator, combine) in &modes {
                    for &backend in self.backends.iter().filter(|kind| kind.serves(cache)) {
                        let cell =
                            Cell { dirty, elevator, combine, cache, backend, paced, foreground };
                        let with_readers = Cell { foreground: true, ..cell };
                        let paced = |cell| Cell { paced: true, ..cell };
                        cells.extend([cell, paced(cell), with_readers, paced(with_readers)]);
                    }
                }
            }
        }
        cells.retain(|cell| !cell.foreground || self.readers > 0);
        cells.retain(|cell| match cell.is_timed() {
            // Timed cells last long, so only the best requested mode is measured, with readers.
            true if !self.all_cells => {
                let is_first = self.patterns.first() == Some(&cell.dirty);
                cell.foreground && is_first && self.is_best(cell)
            }
            true => true,
            false => !self.essential || self.is_essential(cell),
        });
        unique(&cells)
    }

    /// Whether it writes in the best requested mode.
    pub(super) fn is_best(&self, cell: &Cell) -> bool {
        let serving = self.backends.iter().rev().find(|kind| kind.serves(cell.cache));
        self.elevators.iter().max() == Some(&cell.elevator)
            && cell.combine == self.combines.contains(&true)
            && serving == Some(&cell.backend)
    }

    /// Whether it is measured before others if time is short: the slowest mode, which others
    /// are compared with, and the best.
    pub(super) fn is_essential(&self, cell: &Cell) -> bool {
        cell.is_baseline() || self.is_best(cell)
    }

    /// No round after the first begins that would probably end later, unless `--rounds` says how many.
    pub(super) fn time_max(&self) -> Duration {
        match (self.rounds.more, self.quick) {
            (false, _) => Duration::MAX,
            (true, true) => Duration::from_secs(25),
            (true, false) => Duration::from_secs(420),
        }
    }

    /// The time limits of rounds: the first ones also run only while there is time.
    pub(super) fn limits(&self) -> Limits {
        let time = self.time_max();
        let limits = self.rounds.limits(time.as_secs());
        Limits { first_time: time, ..limits }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::typed;

    fn settings(options: &str) -> Settings {
        typed::<Settings>(options).checked().unwrap()
    }

    fn refused(options: &str) -> String {
        let error = typed::<Settings>(options).checked().unwrap_err();
        assert!(error.is::<forebay_measure::BadInput>());
        error.to_string()
    }

    #[test]
    fn by_default_the_best_backend_that_works_is_set_against_sync() {
        let settings = settings("--quick");
        assert_eq!(settings.backends[0], Kind::Sync);
        assert!(settings.backends.len() == 2 && settings.backends[1].serves(CacheMode::Buffered));
    }

    #[test]
    fn by_default_an_eighth_of_524_288_pages_is_dirty() {
        let pages = |options: &str| {
            let settings = settings(options);
            (settings.file_blocks(), settings.dirty_pages())
        };
        assert_eq!(pages(""), (524_288, 65_536));
        assert_eq!(pages("--quick"), (32_768, 4096), "a sixteenth");
    }

    #[test]
    fn two_tablespaces_are_refused_without_a_second_directory_and_measured_with_one() {
        assert!(refused("--quick --patterns two-tablespaces").contains("--dir2"));
        let both = settings("--quick --dir2 .");
        assert_eq!(both.patterns, [Dirty::Uniform, Dirty::Clustered, Dirty::TwoTablespaces]);
        assert_eq!(both.second_spec().unwrap().size_bytes, 128 << 20);
        let named = settings("--quick --dir2 . --patterns two-tablespaces");
        assert_eq!(named.patterns, [Dirty::TwoTablespaces]);
    }

    #[test]
    fn the_baseline_is_always_among_the_cells_and_the_best_is_measured_with_readers() {
        let cells = settings("--quick --backends sync,uring").cells();
        for cache in [CacheMode::Buffered, CacheMode::Direct] {
            let baseline = Cell {
                dirty: Dirty::Clustered,
                elevator: Order::Arrival,
                combine: false,
                cache,
                backend: Kind::Sync,
                paced: false,
                foreground: false,
            };
            assert!(cells.contains(&baseline));
            let with_readers: Vec<&Cell> =
                cells.iter().filter(|cell| cell.is_timed() && cell.cache == cache).collect();
            assert_eq!(with_readers.len(), 2, "at once, and paced");
            assert!(
                with_readers.iter().all(|cell| cell.elevator == Order::Balanced && cell.combine)
            );
            assert!(with_readers.iter().all(|cell| cell.backend == Kind::Uring && cell.foreground));
        }
        assert_eq!(cells.len(), 2 * 2 * 2 * 2 * 2 + 4);
    }

    #[test]
    fn of_each_pattern_and_mode_two_cells_are_essential() {
        let settings = settings("--quick --backends sync,uring");
        let essential: Vec<Cell> = settings
            .cells()
            .into_iter()
            .filter(|cell| !cell.is_timed() && settings.is_essential(cell))
            .collect();
        assert_eq!(essential.len(), 2 * 2 * 2);
        assert_eq!(essential.iter().filter(|cell| cell.is_baseline()).count(), 4);
    }

    #[test]
    fn all_cells_cross_everything() {
        let cells = settings("--quick --backends sync,uring --all-cells").cells();
        assert_eq!(cells.len(), 2 * 2 * 2 * 2 * 2 * 4);
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_options_name() {
        for (options, expected) in [
            ("--size 1MiB --dirty 65", "--dirty 65"),
            ("--interval 0s", "--interval"),
            ("--backends aio --cache buffered", "aio"),
        ] {
            let message = refused(options);
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn only_the_slowest_and_the_best_way_are_essential() {
        let cells = settings("--quick --backends sync,uring --essential").cells();
        assert_eq!(cells.len(), 2 * 2 * 2 + 4, "two patterns and cache modes, and readers");
    }

    #[test]
    fn without_readers_there_are_no_cells_that_wait_for_them() {
        let alone = |options: &str| settings(options).cells().iter().all(|cell| !cell.is_timed());
        assert!(alone("--quick --readers 0") && !alone("--quick"));
    }

    #[test]
    fn rounds_end_when_time_does_unless_so_many_are_wanted() {
        let limits = settings("").limits();
        assert_eq!((limits.first, limits.first_time, limits.time.as_secs()), (3, limits.time, 420));
        let exact = settings("--rounds 2").limits();
        assert_eq!((exact.first, exact.time), (2, Duration::ZERO));
        assert_eq!(exact.first_time, Duration::MAX);
    }
}
