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
mod interface;
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
pub use interface::{Bench, Conclude, Experiment, Measurements, Measuring, Outcome, WorkfileSpec};
use interface::{POOL_BLOCK_BYTES, by_name, parse_pool_size, stopwatch};
pub use pattern::Pattern;
pub use rounds::Rounds;

use clap::Subcommand;

use crate::args::{CommonArgs, OutputArgs, typed};
use forebay_measure::DiskRun;

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
            // For the noise floor alone: how well our own streams read is a question of their authors.
            Choice::Strategies(typed("--quick --strategies os --noise-check")),
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
