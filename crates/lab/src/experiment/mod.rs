//! The experiments: each measures one thing and returns records in the common shape.
//!
//! [`Experiment`] is the interface to a run: how large a file the experiment needs and where, what it can be
//! measured with, and the measurement. `strategies` compares ways of reading on the same blocks: the comparison
//! itself is in `comparison`, and the orders in which blocks are read are in `pattern`. `checkpoint` measures
//! writes: what happens to pages that were changed. `readahead` measures the kernel's own readahead: how
//! much of it sequential readers need, when it begins, and what it costs concurrent random readers. `sync`
//! measures commits.

pub mod checkpoint;
mod comparison;
pub mod depth;
mod driver;
mod modes;
mod pattern;
pub mod readahead;
pub(crate) mod rounds;
mod samples;
mod schedule;
#[cfg(test)]
mod simulation;
pub mod strategies;
pub mod sync;
mod window;

pub use comparison::{CacheState, Variant};
pub use pattern::Pattern;
pub use rounds::Rounds;

use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Subcommand;
use serde::Serializer;

use crate::args::{CommonArgs, OutputArgs, typed};
use crate::on::OnDisk;
use forebay_measure::DiskRun;
use forebay_measure::facts::{CounterSource, Storage};
use forebay_measure::report::{Advice, BackendNote, Conclusion, Record, Section, Verdict};
use forebay_measure::statistics::Floor;
use forebay_measure::units::parse_size_in;
use forebay_measure::workfile::{Naming, Workfile};

/// Size of a pool's block, in bytes.
const POOL_BLOCK_BYTES: u64 = 8192;

/// All experiments. To add one, add it here.
#[derive(Debug, Clone, Subcommand)]
pub enum Choice {
    /// Random reads while 0, 1, 2 ... 4096 of the next blocks are prefetched
    Depth(Box<depth::Settings>),
    /// What a commit costs: writes and their syncs, by every method, from one writer and several
    Sync(Box<sync::Settings>),
    /// Every readahead strategy in 21 patterns of reading, from cold and warm caches
    Strategies(Box<strategies::Settings>),
    /// Dirty pages written out: in which order, one by one or coalesced, at once or spread, with readers
    Checkpoint(Box<checkpoint::Settings>),
    /// The kernel's readahead: how much of it 1, 2, 8, 32 sequential readers need, when it begins, and what
    /// it costs concurrent random readers
    Readahead(Box<readahead::ReadaheadArgs>),
}

impl Choice {
    /// Every experiment, in the order of `forebay lab` alone.
    pub fn all(common: &CommonArgs) -> Vec<Choice> {
        let mut all = vec![
            Choice::Depth(typed("--quick --survey")),
            Choice::Sync(typed("--quick")),
            Choice::Strategies(typed("--quick --noise-check")),
            Choice::Checkpoint(typed("--quick --essential")),
            // All programs share the device's own readahead, and the user did not ask to change it.
            Choice::Readahead(typed("--quick --files own --set-via descriptor")),
        ];
        for choice in &mut all {
            choice.args().0.clone_from(common);
        }
        all
    }

    /// The experiments that support settings of PostgreSQL and its disk.
    pub(crate) fn of_postgres(run: &DiskRun) -> Vec<Choice> {
        let common = CommonArgs { dir: run.directory.clone(), seed: run.seed };
        let depth = format!("--quick --cache buffered --backends {}", run.backends);
        let readahead = "--quick --parts throughput --files own --set-via descriptor";
        // As PostgreSQL writes: page by page, in the order of files. Few enough pages for a spinning disk; with readers
        // enough pages that a fast disk writes them during more than one read in a hundred.
        let pages = if run.readers {
            "--dirty 4096 --rounds 3+"
        } else {
            "--dirty 1024 --rounds 3 --readers 0"
        };
        let modes =
            "--patterns uniform --elevators sorted --combine off --cache buffered --backends sync";
        let checkpoint = format!("--quick {modes} {pages}");
        let mut all = vec![
            Choice::Depth(typed(&depth)),
            Choice::Readahead(typed(readahead)),
            Choice::Sync(typed("--quick")),
            Choice::Checkpoint(typed(&checkpoint)),
        ];
        for choice in &mut all {
            choice.args().0.clone_from(&common);
        }
        all
    }

    /// Settings of every experiment, and the files that one alone writes.
    pub fn args(&mut self) -> (&mut CommonArgs, &OutputArgs) {
        match self {
            Choice::Depth(args) => (&mut args.common, &args.output),
            Choice::Sync(args) => (&mut args.common, &args.output),
            Choice::Strategies(args) => (&mut args.common, &args.output),
            Choice::Checkpoint(args) => (&mut args.common, &args.output),
            Choice::Readahead(args) => (&mut args.common, &args.output),
        }
    }

    /// The experiment, checked.
    ///
    /// # Errors
    /// [`BadInput`](forebay_measure::BadInput), naming the option.
    pub fn experiment(&self) -> anyhow::Result<Box<dyn Experiment>> {
        Ok(match self.clone() {
            Choice::Depth(settings) => Box::new(settings.checked()?),
            Choice::Sync(settings) => settings,
            Choice::Strategies(settings) => Box::new(settings.checked()?),
            Choice::Checkpoint(settings) => Box::new(settings.checked()?),
            Choice::Readahead(args) => Box::new(readahead::Settings::new(*args)?),
        })
    }
}

/// An experiment, as a run sees it. The experiments' settings implement it.
pub trait Experiment {
    /// The place and the kind of working file of its measurements.
    fn workfile_spec(&self) -> WorkfileSpec;

    /// Total bytes of its files, including those that it makes on its own.
    fn space_bytes(&self) -> u64 {
        self.workfile_spec().size_bytes
    }

    /// Measurements in all, for the progress bar.
    fn measurements(&self) -> u64;

    /// Checks whether this can be measured here, on a working file that is still empty. Returns the measurement to run
    /// once the file is filled.
    ///
    /// # Errors
    /// [`BadInput`](forebay_measure::BadInput) when nothing of the request can be measured.
    fn probe<'a>(&'a self, bench: &Bench<'_>) -> anyhow::Result<Measuring<'a>>;
}

/// Measures. The second argument receives a description of each measurement before it starts. Errors are
/// [`Interrupted`](forebay_measure::interrupt::Interrupted), or what went wrong.
pub type Measuring<'a> =
    Box<dyn FnOnce(&Bench<'_>, &mut dyn FnMut(&str)) -> anyhow::Result<Measurements<'a>> + 'a>;

/// The measurements of an experiment. Conclusions are drawn after all experiments have run, so that none of them
/// contradicts the noise floor of another one.
pub struct Measurements<'a> {
    /// The difference between two equal variants, where it was measured.
    pub floor: Option<Floor>,
    /// The conclusions.
    pub conclude: Conclude<'a>,
}

/// Draws conclusions, on this storage and with the noise floor of the whole run.
pub type Conclude<'a> = Box<dyn FnOnce(&Storage, Floor) -> Outcome + 'a>;

impl fmt::Debug for Measurements<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Measurements").field("floor", &self.floor).finish_non_exhaustive()
    }
}

impl<'a> Measurements<'a> {
    /// Without a separate floor.
    fn new(conclude: impl FnOnce(&Storage, Floor) -> Outcome + 'a) -> Measurements<'a> {
        Measurements { floor: None, conclude: Box::new(conclude) }
    }
}

/// Time since the first call.
fn stopwatch() -> impl Fn() -> Duration {
    let begun = Instant::now();
    move || begun.elapsed()
}

/// The place where an experiment measures, and the properties of its working file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkfileSpec {
    /// Absolute directory of the working file.
    pub directory: PathBuf,
    /// Size of the working file, in bytes.
    pub size_bytes: u64,
    /// Size of a block, in bytes.
    pub block_bytes: u64,
    /// Seed of everything random.
    pub seed: u64,
    /// Whether the working file keeps a name.
    pub naming: Naming,
}

/// The resources of an experiment.
#[derive(Debug, Clone, Copy)]
pub struct Bench<'a> {
    /// The file.
    pub workfile: &'a Workfile,
    /// The storage below it.
    pub storage: &'a Storage,
    /// The device's counters, if there are any.
    pub counters: Option<&'a CounterSource>,
    /// The emulated disk under all of it, if there is one.
    pub on: Option<&'a OnDisk>,
}

/// The result of an experiment.
#[derive(Debug, Default)]
pub struct Outcome {
    /// One record per cell, with nulls and a remark where it could not be measured.
    pub records: Vec<Record>,
    /// Which backends could be opened.
    pub backends: Vec<BackendNote>,
    /// Results of comparisons.
    pub verdicts: Vec<Verdict>,
    /// Settings worth changing.
    pub advice: Vec<Advice>,
    /// Further conclusions from the records.
    pub conclusions: Vec<Conclusion>,
    /// The section to show.
    pub section: Section,
}

/// A field of a record by its name.
fn by_name<S: Serializer>(named: &impl fmt::Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(named)
}

/// Parses the size of a file that a pool reads and that has `least` blocks.
fn parse_pool_size(least: u64) -> impl Fn(&str) -> Result<u64, String> + Clone + Send + Sync {
    parse_size_in(least * POOL_BLOCK_BYTES..=u64::from(u32::MAX) * POOL_BLOCK_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_experiment_has_the_place_and_seed_that_all_were_given() {
        let common = CommonArgs { dir: "/there".into(), seed: 7 };
        let mut all = Choice::all(&common);
        assert_eq!(all.len(), 5);
        for choice in &mut all {
            let (own, _) = choice.args();
            assert_eq!((own.dir.as_path(), own.seed), (common.dir.as_path(), 7));
        }
    }

    #[test]
    fn checkpoints_as_postgresql_writes_them_have_readers_only_where_these_are_wanted() {
        let measurements = |readers| {
            let (directory, backends) = ("/there".into(), "sync".to_owned());
            let run = DiskRun { directory, backends, readers, sustained: None, seed: 7 };
            let choices = Choice::of_postgres(&run);
            let last = choices.last().map(|choice| choice.experiment().unwrap().measurements());
            last.unwrap()
        };
        assert_eq!(measurements(false), 3, "one way, three times");
        assert_eq!(measurements(true), 9, "and with readers, at once and spread");
    }
}
