//! The settings of a run: what the user asked for, with every default filled in and checked.

use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay_io::{CacheMode, Io, IoOptions, Kind, Prefer};

use super::{Cell, CheckpointArgs, Dirty, Order, PAGE_BYTES};
use crate::bad_input;
use crate::experiment::{Ground, listed, quoted, unique};
use crate::units::{shown_size, typed_size};
use crate::workfile::Naming;

/// What is set unless the user says otherwise.
struct Defaults {
    size_bytes: u64,
    interval: Duration,
    /// No round after the first is begun that would probably end later.
    time_max: Duration,
    patterns: &'static [Dirty],
    elevators: &'static [Order],
}

const FULL: Defaults = Defaults {
    size_bytes: 4 << 30,
    interval: Duration::from_secs(10),
    time_max: Duration::from_secs(420),
    patterns: &[Dirty::Uniform, Dirty::Clustered, Dirty::Zipfian],
    elevators: &Order::ALL,
};

const QUICK: Defaults = Defaults {
    size_bytes: 256 << 20,
    interval: Duration::from_millis(1200),
    time_max: Duration::from_secs(25),
    patterns: &[Dirty::Uniform, Dirty::Clustered],
    elevators: &[Order::Arrival, Order::Balanced],
};

/// A file has so many times the pages that are dirty, unless the user says how many are.
const DIRTY_PART: u64 = 8;

/// Rounds before any more are added to what is undecided.
const ROUNDS: u32 = 3;

/// Fewest pages that a checkpoint is made of here.
const DIRTY_MIN: u64 = 64;

/// A quiet time before the checkpoint of a cell with readers, as a part of an interval: one in so many.
const CALM_PARTS: u32 = 2;

/// Settings with every default filled in and checked.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Absolute directory of the working file.
    pub directory: PathBuf,
    /// Absolute directory of the second tablespace.
    pub second: Option<PathBuf>,
    /// Size of the working file, in bytes.
    pub size_bytes: u64,
    /// Pages changed before each checkpoint.
    pub dirty_pages: u32,
    /// Which pages these are.
    pub patterns: Vec<Dirty>,
    /// Orders of writing to measure.
    pub elevators: Vec<Order>,
    /// Whether neighbours are written together.
    pub combines: Vec<bool>,
    /// Cache modes to measure.
    pub caches: Vec<CacheMode>,
    /// Backends to measure.
    pub backends: Vec<Kind>,
    /// Writes in flight in each tablespace.
    pub depth: u32,
    /// From checkpoint to checkpoint, in cells with readers or pacing.
    pub interval: Duration,
    /// Threads that read.
    pub readers: u32,
    /// Reads per second that all of them together want.
    pub reads_per_s: u32,
    /// Measurements of each cell, before any are added.
    pub rounds: u32,
    /// No round after the first is begun that would probably end later than this; where there is none,
    /// the rounds were asked for, and none are added.
    pub time_max: Option<Duration>,
    /// Seed of everything random.
    pub seed: u64,
    /// Whether everything is crossed with everything.
    pub all_cells: bool,
    /// Whether only the slowest and the best way of writing are measured.
    pub essential: bool,
    /// Whether quick settings were asked for.
    pub quick: bool,
}

impl Settings {
    /// Fills in what `args` leave open and refuses what makes no sense.
    ///
    /// # Errors
    /// [`BadInput`](crate::BadInput), naming the option.
    pub fn new(args: &CheckpointArgs) -> anyhow::Result<Settings> {
        let defaults = if args.quick { &QUICK } else { &FULL };
        let size_bytes = args.size.unwrap_or(defaults.size_bytes);
        let dirty_pages = dirty_pages(args, size_bytes)?;
        let mut patterns = unique(&args.patterns);
        if patterns.is_empty() {
            patterns.extend(defaults.patterns);
            patterns.extend(args.dir2.is_some().then_some(Dirty::TwoTablespaces));
        }
        if patterns.contains(&Dirty::TwoTablespaces) && args.dir2.is_none() {
            bad_input!(
                "--patterns two-tablespaces: the second tablespace needs a directory of its own, best on \
                 another device; name it with --dir2"
            );
        }
        let canonical =
            |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let elevators = if args.elevators.is_empty() {
            defaults.elevators.to_vec()
        } else {
            unique(&args.elevators)
        };
        let interval = args.interval.unwrap_or(defaults.interval);
        if interval < Duration::from_millis(100) || interval > Duration::from_secs(3600) {
            bad_input!("--interval {interval:?}: it should be from 100ms to 1h");
        }
        let settings = Settings {
            directory: canonical(&args.common.dir),
            second: args.dir2.as_deref().map(canonical),
            size_bytes,
            dirty_pages,
            patterns,
            elevators,
            combines: unique(&args.combine),
            caches: unique(&args.cache),
            backends: if args.backends.is_empty() {
                unique(&[Kind::Sync, best_backend()?])
            } else {
                unique(&args.backends)
            },
            depth: args.depth,
            interval,
            readers: args.readers,
            reads_per_s: args.reads,
            rounds: args.rounds.unwrap_or(ROUNDS),
            time_max: args.rounds.is_none().then_some(defaults.time_max),
            seed: args.common.seed.unwrap_or_else(|| fastrand::u64(..1 << 32)),
            all_cells: args.all_cells,
            essential: args.essential,
            quick: args.quick,
        };
        if settings.cells().is_empty() {
            bad_input!("there is nothing to measure: aio writes direct only; add --cache direct");
        }
        Ok(settings)
    }

    /// Whole blocks in the working file.
    pub(super) fn file_blocks(&self) -> u32 {
        u32::try_from(self.size_bytes / PAGE_BYTES).unwrap_or(u32::MAX)
    }

    pub(super) fn ground(&self) -> Ground {
        Ground {
            directory: self.directory.clone(),
            size_bytes: self.size_bytes,
            block_bytes: PAGE_BYTES,
            seed: self.seed,
            naming: Naming::Named,
        }
    }

    /// The second tablespace's file, if there is one: half as long.
    pub(super) fn second_ground(&self) -> Option<Ground> {
        let directory = self.second.clone()?;
        let size_bytes = self.size_bytes / 2 / PAGE_BYTES * PAGE_BYTES;
        Some(Ground { directory, size_bytes, ..self.ground() })
    }

    /// Everything that is to be measured, in the order of the report.
    pub(super) fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for &dirty in &self.patterns {
            for &cache in &self.caches {
                for &elevator in &self.elevators {
                    for &combine in &self.combines {
                        for &backend in self.backends.iter().filter(|kind| kind.serves(cache)) {
                            for (paced, foreground) in
                                [(false, false), (true, false), (false, true), (true, true)]
                            {
                                cells.push(Cell {
                                    dirty,
                                    elevator,
                                    combine,
                                    cache,
                                    backend,
                                    paced,
                                    foreground,
                                });
                            }
                        }
                    }
                }
            }
        }
        cells.retain(|cell| match cell.is_timed() {
            true => self.all_cells || self.is_telling(cell),
            false => !self.essential || self.is_essential(cell),
        });
        cells
    }

    /// Whether a cell that lasts some intervals is worth them: with readers, and of everything else the
    /// best that was asked for, in the first pattern.
    fn is_telling(&self, cell: &Cell) -> bool {
        cell.foreground && self.patterns.first() == Some(&cell.dirty) && self.is_best(cell)
    }

    /// Whether it writes in the best way that was asked for.
    pub(super) fn is_best(&self, cell: &Cell) -> bool {
        let best = |order: Order| self.elevators.contains(&order).then_some(order);
        let order = Order::ALL.into_iter().rev().find_map(best);
        let serving = self.backends.iter().rev().find(|kind| kind.serves(cell.cache));
        order == Some(cell.elevator)
            && cell.combine == self.combines.contains(&true)
            && serving == Some(&cell.backend)
    }

    /// Whether it is to be measured before others, should time be short: the slowest way, which others
    /// are compared with, and the best.
    pub(super) fn is_essential(&self, cell: &Cell) -> bool {
        cell.is_baseline() || self.is_best(cell)
    }

    /// Whether another round is likely to end in time, and wanted: all of the first ones are, later ones of
    /// what is `undecided`. `begun`: rounds that took `elapsed`.
    pub(super) fn another_round(&self, begun: u32, elapsed: Duration, undecided: bool) -> bool {
        let in_time = |time_max: Duration| begun == 0 || elapsed + elapsed / begun <= time_max;
        let wanted = begun < self.rounds || (undecided && self.time_max.is_some());
        wanted && self.time_max.is_none_or(in_time)
    }

    /// Whether even the first round has to be left unfinished.
    pub(super) fn is_out_of_time(&self, elapsed: Duration) -> bool {
        self.time_max.is_some_and(|time_max| elapsed > time_max)
    }

    /// How long readers read before the checkpoint of a cell.
    pub(super) fn calm(&self) -> Duration {
        self.interval / CALM_PARTS
    }

    /// The command that repeats a run with these settings, every one of them named. `program`: the
    /// path or name by which this program was called.
    pub fn command(&self, program: &str) -> String {
        let switches: Vec<&str> =
            self.combines.iter().map(|&on| if on { "on" } else { "off" }).collect();
        let mut command = format!(
            "{} lab {} --dir {}",
            quoted(program),
            super::NAME,
            quoted(&self.directory.display().to_string())
        );
        if let Some(second) = &self.second {
            command.push_str(&format!(" --dir2 {}", quoted(&second.display().to_string())));
        }
        command.push_str(&format!(
            " --size {} --dirty {} --patterns {} --elevators {} --combine {} --cache {} --backends {} \
             --depth {} --interval {} --readers {} --reads {} --rounds {} --seed {}",
            typed_size(self.size_bytes),
            self.dirty_pages,
            listed(&self.patterns),
            listed(&self.elevators),
            listed(&switches),
            listed(&self.caches),
            listed(&self.backends),
            self.depth,
            quoted(&humantime::format_duration(self.interval).to_string()),
            self.readers,
            self.reads_per_s,
            self.rounds,
            self.seed,
        ));
        let flags = [
            (" --all-cells", self.all_cells),
            (" --essential", self.essential),
            (" --quick", self.quick),
        ];
        for (flag, on) in flags {
            command.push_str(if on { flag } else { "" });
        }
        command
    }
}

/// What a pool takes that is not told which.
fn best_backend() -> anyhow::Result<Kind> {
    Ok(Io::open(&IoOptions { prefer: Prefer::Auto, ..IoOptions::default() })?.kind())
}

/// How many pages are to be dirty, in a file that can have them twice over: readers need clean ones.
fn dirty_pages(args: &CheckpointArgs, size_bytes: u64) -> anyhow::Result<u32> {
    let blocks = size_bytes / PAGE_BYTES;
    if blocks < DIRTY_MIN * 2 || u32::try_from(blocks).is_err() {
        bad_input!(
            "--size {}: it should be from {} to {}",
            shown_size(size_bytes),
            shown_size(DIRTY_MIN * 2 * PAGE_BYTES),
            shown_size(u64::from(u32::MAX) * PAGE_BYTES)
        );
    }
    let pages = args.dirty.map_or((blocks / DIRTY_PART).max(DIRTY_MIN), u64::from);
    if pages > blocks / 2 {
        bad_input!(
            "--dirty {pages}: at most half of the file's {blocks} pages; choose fewer, or a larger --size"
        );
    }
    Ok(pages as u32) // less than `blocks`, which fits
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::CommonArgs;

    fn quick() -> CheckpointArgs {
        let common = CommonArgs { dir: ".".into(), seed: Some(1) };
        let backends = vec![Kind::Sync, Kind::Uring];
        CheckpointArgs { backends, essential: false, ..CheckpointArgs::quick(&common) }
    }

    #[test]
    fn unless_told_otherwise_the_best_backend_that_works_is_set_against_sync() {
        let settings = Settings::new(&CheckpointArgs { backends: Vec::new(), ..quick() }).unwrap();
        assert_eq!(settings.backends[0], Kind::Sync);
        assert!(settings.backends.len() == 2 && settings.backends[1].serves(CacheMode::Buffered));
    }

    #[test]
    fn unless_told_otherwise_an_eighth_of_524_288_pages_is_dirty() {
        let args = CheckpointArgs { quick: false, ..quick() };
        let settings = Settings::new(&args).unwrap();
        assert_eq!((settings.file_blocks(), settings.dirty_pages), (524_288, 65_536));
        let settings = Settings::new(&quick()).unwrap();
        assert_eq!((settings.file_blocks(), settings.dirty_pages), (32_768, 4096), "a sixteenth");
    }

    #[test]
    fn two_tablespaces_are_refused_without_a_second_directory_and_measured_with_one() {
        let mut args = CheckpointArgs { patterns: vec![Dirty::TwoTablespaces], ..quick() };
        assert!(Settings::new(&args).unwrap_err().to_string().contains("--dir2"));
        args.dir2 = Some(".".into());
        let settings = Settings::new(&args).unwrap();
        assert_eq!(settings.second_ground().unwrap().size_bytes, 128 << 20);
        args.patterns.clear();
        let patterns = Settings::new(&args).unwrap().patterns;
        assert!(patterns.contains(&Dirty::TwoTablespaces));
    }

    #[test]
    fn the_baseline_is_always_among_the_cells_and_readers_stand_beside_the_best() {
        let cells = Settings::new(&quick()).unwrap().cells();
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
            let beside: Vec<&Cell> =
                cells.iter().filter(|cell| cell.is_timed() && cell.cache == cache).collect();
            assert_eq!(beside.len(), 2, "at once, and paced");
            assert!(beside.iter().all(|cell| cell.elevator == Order::Balanced && cell.combine));
            assert!(beside.iter().all(|cell| cell.backend == Kind::Uring && cell.foreground));
        }
        assert_eq!(cells.len(), 2 * 2 * 2 * 2 * 2 + 4);
    }

    #[test]
    fn of_each_pattern_and_mode_two_cells_are_essential() {
        let settings = Settings::new(&quick()).unwrap();
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
        let cells = Settings::new(&CheckpointArgs { all_cells: true, ..quick() }).unwrap().cells();
        assert_eq!(cells.len(), 2 * 2 * 2 * 2 * 2 * 4);
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_options_name() {
        let wrong = [
            (CheckpointArgs { size: Some(8192), ..quick() }, "--size"),
            (CheckpointArgs { size: Some(1 << 20), dirty: Some(65), ..quick() }, "--dirty 65"),
            (CheckpointArgs { interval: Some(Duration::ZERO), ..quick() }, "--interval"),
            (
                CheckpointArgs {
                    backends: vec![Kind::Aio],
                    cache: vec![CacheMode::Buffered],
                    ..quick()
                },
                "aio",
            ),
        ];
        for (args, expected) in wrong {
            let error = Settings::new(&args).unwrap_err();
            assert!(error.is::<crate::BadInput>());
            assert!(error.to_string().contains(expected), "{error}");
        }
    }

    #[test]
    fn only_the_slowest_and_the_best_way_are_essential() {
        let args = CheckpointArgs { essential: true, ..quick() };
        let cells = Settings::new(&args).unwrap().cells();
        assert_eq!(cells.len(), 2 * 2 * 2 + 4, "two patterns and cache modes, and readers");
    }

    #[test]
    fn rounds_end_when_time_does_and_what_is_undecided_has_more() {
        let settings = Settings::new(&CheckpointArgs { quick: false, ..quick() }).unwrap();
        let second = Duration::from_secs(1);
        assert!(settings.another_round(0, Duration::ZERO, false));
        assert!(settings.another_round(1, second * 200, false));
        assert!(!settings.another_round(1, second * 300, false), "it would take as long again");
        assert!(!settings.another_round(3, second, false));
        assert!(settings.another_round(3, second, true));
        assert!(!settings.another_round(3, second * 400, true));
        let asked = Settings::new(&CheckpointArgs { rounds: Some(2), ..quick() }).unwrap();
        assert!(!asked.another_round(2, second, true), "so many were asked for");
    }
}
