//! The settings of a run: what the user asked for, with every default filled in and checked.

use std::time::Duration;

use forebay::ReadaheadStrategy;
use forebay_io::CacheMode;

use crate::bad_input;
use crate::cli::StrategiesArgs;
use crate::experiment::contest::{BLOCKS_MIN, CacheState, Defaults, Entrant, Row, Setup, can_be};
use crate::experiment::pattern::{Pattern, RANGES, Shape, WINDOW};
use crate::experiment::{listed, unique};

const FULL: Defaults = Defaults {
    size_bytes: 1 << 30,
    rounds: 3,
    cell_time_max: Duration::from_millis(400),
    time_max: Duration::from_secs(780),
};

/// The same rows, each read less and less often.
const QUICK: Defaults = Defaults {
    size_bytes: 512 << 20,
    rounds: 2,
    cell_time_max: Duration::from_millis(100),
    time_max: Duration::from_secs(45),
};

/// Blocks read in each measurement.
const FULL_BLOCKS: u32 = 8192;
const QUICK_BLOCKS: u32 = 1536;

/// Settings with every default filled in and checked.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What all contests have.
    pub setup: Setup,
    /// Blocks read in each measurement, at most.
    pub blocks: u32,
    /// Patterns to measure.
    pub patterns: Vec<Pattern>,
    /// Strategies to measure.
    pub strategies: Vec<ReadaheadStrategy>,
    /// States of the caches to measure from.
    pub states: Vec<CacheState>,
}

impl Settings {
    /// Fills in what `args` leave open and refuses what makes no sense.
    ///
    /// # Errors
    /// [`BadInput`](crate::BadInput), naming the option.
    pub fn new(args: &StrategiesArgs) -> anyhow::Result<Settings> {
        let (defaults, blocks) =
            if args.contest.quick { (&QUICK, QUICK_BLOCKS) } else { (&FULL, FULL_BLOCKS) };
        let setup = Setup::new(&args.contest, defaults)?;
        let blocks = match args.blocks {
            Some(blocks) if u64::from(blocks) < BLOCKS_MIN => {
                bad_input!("--blocks {blocks}: a pattern takes at least {BLOCKS_MIN}")
            }
            Some(blocks) if blocks > setup.file_blocks() => {
                bad_input!(
                    "--blocks {blocks}: the file has only {}; choose a larger --size",
                    setup.file_blocks()
                )
            }
            Some(blocks) => blocks,
            None => blocks.min(setup.file_blocks()),
        };
        let settings = Settings {
            setup,
            blocks,
            patterns: or_all(&args.patterns, &Pattern::OF_STRATEGIES),
            strategies: or_all(&args.strategies, &ReadaheadStrategy::ALL),
            states: or_all(&args.states, &CacheState::ALL),
        };
        if settings.rows().is_empty() {
            bad_input!(
                "there is nothing to measure: in state page-cache files are buffered; add --cache \
                 buffered or another of --states"
            );
        }
        Ok(settings)
    }

    /// What patterns are made from.
    pub(super) fn shape(&self) -> Shape {
        let (file_blocks, blocks) = (self.setup.file_blocks(), self.blocks);
        Shape { file_blocks, blocks, ranges: RANGES, window: WINDOW }
    }

    /// Everything that is to be measured, in the order of the report.
    pub(super) fn rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for device_readahead in self.setup.readaheads() {
            for &cache in &self.setup.caches {
                let entrants = self.entrants(cache);
                for &state in self.states.iter().filter(|&&state| can_be(state, cache)) {
                    rows.extend(self.patterns.iter().map(|&pattern| Row {
                        pattern,
                        state,
                        cache,
                        device_readahead,
                        entrants: entrants.clone(),
                    }));
                }
            }
        }
        rows
    }

    /// Who competes. Past the page cache there is no kernel to advise, so that all strategies that
    /// leave reading to it are one; when it has to be quick, one of them stands for all.
    fn entrants(&self, cache: CacheMode) -> Vec<Entrant> {
        let mut kernel_seen = false;
        let differs = |strategy: &ReadaheadStrategy| {
            if matches!(strategy, ReadaheadStrategy::Async | ReadaheadStrategy::Adaptive) {
                return true;
            }
            !std::mem::replace(&mut kernel_seen, true) || cache == CacheMode::Buffered
        };
        let all = self.strategies.iter().copied();
        if self.setup.quick {
            return all.filter(differs).map(Entrant::Pool).collect();
        }
        all.map(Entrant::Pool).collect()
    }

    /// The command that repeats a run with these settings, every one of them named. `program`: the
    /// path or name by which this program was called.
    pub fn command(&self, program: &str) -> String {
        let own = format!(
            "--blocks {} --patterns {} --strategies {} --states {}",
            self.blocks,
            listed(&self.patterns),
            listed(&self.strategies),
            listed(&self.states),
        );
        self.setup.command(program, super::NAME, &own)
    }
}

fn or_all<T: Clone + PartialEq>(asked: &[T], all: &[T]) -> Vec<T> {
    if asked.is_empty() { all.to_vec() } else { unique(asked) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::CommonArgs;

    fn quick() -> StrategiesArgs {
        StrategiesArgs::quick(&CommonArgs { dir: ".".into(), seed: Some(1) })
    }

    #[test]
    fn the_matrix_is_pattern_by_strategy_by_state_and_the_page_cache_is_for_buffered_files() {
        let mut args = quick();
        args.contest.quick = false;
        let rows = Settings::new(&args).unwrap().rows();
        assert_eq!(rows.len(), 19 * (4 + 3));
        assert!(rows.iter().all(|row| row.entrants.len() == 6));
        assert!(rows.iter().all(|row| can_be(row.state, row.cache)));
    }

    #[test]
    fn quickly_one_strategy_stands_for_all_that_are_one_past_the_page_cache() {
        let rows = Settings::new(&quick()).unwrap().rows();
        let names = |cache| {
            let row = rows.iter().find(|row| row.cache == cache).unwrap();
            listed(&row.entrants)
        };
        assert_eq!(names(CacheMode::Buffered), "os,hint,max,prefetch,async,adaptive");
        assert_eq!(names(CacheMode::Direct), "os,async,adaptive");
    }

    #[test]
    fn each_value_of_the_devices_readahead_is_a_matrix_of_its_own() {
        let mut args = quick();
        args.contest.device_readahead = vec![0, 131_072, 0];
        let settings = Settings::new(&args).unwrap();
        let once = Settings::new(&quick()).unwrap().rows().len();
        assert_eq!(settings.rows().len(), 2 * once);
        assert!(settings.command("forebay").contains(" --device-readahead 0,128KiB"));
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_the_name_of_its_option() {
        let refused = |change: &dyn Fn(&mut StrategiesArgs)| {
            let mut args = quick();
            change(&mut args);
            Settings::new(&args).unwrap_err().to_string()
        };
        assert!(refused(&|args| args.blocks = Some(9)).contains("--blocks 9"));
        assert!(refused(&|args| args.blocks = Some(1 << 30)).contains("larger --size"));
        assert!(refused(&|args| args.contest.size = Some(8192)).contains("--size"));
        let page_cache_alone = |args: &mut StrategiesArgs| {
            args.states = vec![CacheState::PageCache];
            args.contest.cache = vec![CacheMode::Direct];
        };
        assert!(refused(&page_cache_alone).contains("--states"));
    }
}
