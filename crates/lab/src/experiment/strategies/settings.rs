//! The settings of a run: what the user asked for, with every default filled in and checked.

use std::path::PathBuf;
use std::time::Duration;

use forebay::ReadaheadStrategy;
use forebay_io::CacheMode;

use super::args::StrategiesArgs;
use crate::bad_input;
use crate::device_readahead::typed_readahead;
use crate::experiment::contest::{Row, Rules};
use crate::experiment::pattern::Shape;
use crate::experiment::{CacheState, Entrant, Ground, Pattern, listed, quoted, unique};
use crate::units::{shown_size, typed_size};
use crate::workfile::Naming;

/// Size of a block, in bytes.
pub(super) const BLOCK_BYTES: u64 = 8192;

/// Fewest blocks that a pattern can be made of.
const BLOCKS_MIN: u64 = 64;

/// Most plans of a measurement; of patterns that read few blocks of a file it takes many.
const PLANS_MAX: usize = 32;

/// What is set unless the user says otherwise.
struct Defaults {
    size_bytes: u64,
    blocks: u32,
    rounds: u32,
    /// For all rounds together, unless the first ones take longer.
    time_max: Duration,
}

const FULL: Defaults = Defaults {
    size_bytes: 1 << 30,
    blocks: 16_384,
    rounds: 3,
    time_max: Duration::from_secs(1200),
};

const QUICK: Defaults =
    Defaults { size_bytes: 512 << 20, blocks: 8192, rounds: 5, time_max: Duration::from_secs(60) };

/// Settings with every default filled in and checked.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Absolute directory of the working file.
    pub directory: PathBuf,
    /// Size of the working file, in bytes.
    pub size_bytes: u64,
    /// Blocks of a plan, at most.
    pub blocks: u32,
    /// Patterns to measure.
    pub patterns: Vec<Pattern>,
    /// Who reads, but for `os-again`.
    pub strategies: Vec<Entrant>,
    /// States of the caches to measure from.
    pub states: Vec<CacheState>,
    /// Cache modes to measure.
    pub caches: Vec<CacheMode>,
    /// Values to set the device's readahead to, in bytes; none leaves it alone.
    pub device_readahead: Vec<u64>,
    /// Measurements of each cell.
    pub rounds: u32,
    /// How long each of them lasts.
    pub cell_time: Duration,
    /// How long rounds are added where they decide; `None` if the user says how many there are.
    pub time_max: Option<Duration>,
    /// Whether `os` is measured twice.
    pub noise_check: bool,
    /// Who is slowed down, and by which part of its time.
    pub handicap: Option<(Entrant, f64)>,
    /// Seed of everything random.
    pub seed: u64,
    /// Whether quick settings were asked for.
    pub quick: bool,
}

impl Settings {
    /// Fills in what `args` leave open and refuses what makes no sense.
    ///
    /// # Errors
    /// [`BadInput`](crate::BadInput), naming the option.
    pub fn new(args: &StrategiesArgs) -> anyhow::Result<Settings> {
        let defaults = if args.quick { &QUICK } else { &FULL };
        let size_bytes = args.size.unwrap_or(defaults.size_bytes);
        let file_blocks = match u32::try_from(size_bytes / BLOCK_BYTES) {
            Ok(blocks) if u64::from(blocks) >= BLOCKS_MIN => blocks,
            _ => bad_input!(
                "--size {}: it should be from {} to {}",
                shown_size(size_bytes),
                shown_size(BLOCKS_MIN * BLOCK_BYTES),
                shown_size(u64::from(u32::MAX) * BLOCK_BYTES)
            ),
        };
        let blocks = match args.blocks {
            Some(blocks) if u64::from(blocks) < BLOCKS_MIN => {
                bad_input!("--blocks {blocks}: a pattern takes at least {BLOCKS_MIN}")
            }
            Some(blocks) if blocks > file_blocks => {
                bad_input!(
                    "--blocks {blocks}: the file has only {file_blocks}; choose a larger --size"
                )
            }
            Some(blocks) => blocks,
            None => defaults.blocks.min(file_blocks),
        };
        let directory = args.common.dir.clone();
        let (some, all) = (args.quick, !args.quick);
        let settings = Settings {
            directory: std::fs::canonicalize(&directory).unwrap_or(directory),
            size_bytes,
            blocks,
            patterns: or(&args.patterns, if some { &Pattern::FEW[..] } else { &Pattern::ALL }),
            strategies: or(&args.strategies, &ReadaheadStrategy::ALL.map(Entrant::Stream)),
            states: or(&args.states, if some { &[CacheState::Cold][..] } else { &CacheState::ALL }),
            caches: or(
                &args.cache,
                &[CacheMode::Buffered, CacheMode::Direct][..1 + usize::from(all)],
            ),
            device_readahead: unique(&args.device_readahead),
            rounds: args.rounds.unwrap_or(defaults.rounds),
            cell_time: args.cell_time,
            time_max: args.rounds.is_none().then(|| args.time.unwrap_or(defaults.time_max)),
            noise_check: args.noise_check,
            handicap: args.handicap,
            seed: args.common.seed.unwrap_or_else(|| fastrand::u64(..1 << 32)),
            quick: args.quick,
        };
        if settings.cell_time.is_zero() {
            bad_input!("--cell-time 0: nothing can be measured in no time");
        }
        let os = Entrant::Stream(ReadaheadStrategy::Os);
        if settings.noise_check && !settings.strategies.contains(&os) {
            bad_input!("--noise-check measures os twice: add os to --strategies");
        }
        if settings.rows().is_empty() {
            bad_input!(
                "there is nothing to measure: in state page-cache files are buffered, and plain, random \
                 and willneed read one list through the page cache, cold or from page-cache; change \
                 --states, --cache, --patterns or --strategies"
            );
        }
        Ok(settings)
    }

    /// Where and on what is measured.
    pub(super) fn ground(&self) -> Ground {
        Ground {
            directory: self.directory.clone(),
            size_bytes: self.size_bytes,
            block_bytes: BLOCK_BYTES,
            seed: self.seed,
            naming: Naming::Named,
        }
    }

    pub(super) fn rules(&self) -> Rules {
        let file_blocks = u32::try_from(self.size_bytes / BLOCK_BYTES).unwrap_or(u32::MAX);
        Rules {
            shape: Shape { file_blocks, blocks: self.blocks },
            rounds: self.rounds,
            cell_time: self.cell_time,
            plans_max: PLANS_MAX,
            time_max: self.time_max,
            handicap: self.handicap,
            seed: self.seed,
        }
    }

    /// Everything that is to be measured, in the order of the report.
    pub(super) fn rows(&self) -> Vec<Row> {
        let mut readaheads: Vec<Option<u64>> =
            self.device_readahead.iter().copied().map(Some).collect();
        if readaheads.is_empty() {
            readaheads.push(None);
        }
        let mut rows = Vec::new();
        for device_readahead in readaheads {
            for &cache in &self.caches {
                for &state in self.states.iter().filter(|state| state.can_be(cache)) {
                    for &pattern in &self.patterns {
                        let (entrants, mut able) = (Vec::new(), self.entrants(cache));
                        let row = Row { pattern, state, cache, device_readahead, entrants };
                        able.retain(|entrant| entrant.can_read(&row));
                        rows.push(Row { entrants: able, ..row });
                    }
                }
            }
        }
        rows.retain(|row| !row.entrants.is_empty());
        rows
    }

    /// Who competes. Past the page cache there is no kernel to advise, so that all strategies that
    /// leave reading to it are one; when it has to be quick, one of them stands for all.
    fn entrants(&self, cache: CacheMode) -> Vec<Entrant> {
        use ReadaheadStrategy::{Adaptive, Async};
        let mut entrants = self.strategies.clone();
        if self.quick && cache == CacheMode::Direct {
            let is_own = |it: &Entrant| [Async, Adaptive].map(Entrant::Stream).contains(it);
            let mut seen = false;
            entrants.retain(|it| is_own(it) || !std::mem::replace(&mut seen, true));
        }
        if self.noise_check {
            entrants.push(Entrant::OsAgain);
        }
        entrants
    }

    /// The command that repeats a run with these settings, every one of them named. `program`: the
    /// path or name by which this program was called.
    pub fn command(&self, program: &str) -> String {
        let mut command = format!(
            "{} lab {} --dir {} --size {} --blocks {} --patterns {} --strategies {} --states {} --cache {} \
             --cell-time {} --seed {}",
            quoted(program),
            super::NAME,
            quoted(&self.directory.display().to_string()),
            typed_size(self.size_bytes),
            self.blocks,
            listed(&self.patterns),
            listed(&self.strategies),
            listed(&self.states),
            listed(&self.caches),
            typed_time(self.cell_time),
            self.seed,
        );
        let values: Vec<String> =
            self.device_readahead.iter().copied().map(typed_readahead).collect();
        let (rounds, time) = (self.rounds.to_string(), self.time_max.map(typed_time));
        let handicap = self.handicap.map(|(entrant, part)| format!("{entrant}={}%", part * 100.0));
        for (is_set, option, value) in [
            (!values.is_empty(), " --device-readahead ", listed(&values)),
            (self.time_max.is_none(), " --rounds ", rounds),
            (self.time_max.is_some(), " --time ", time.unwrap_or_default()),
            (self.noise_check, " --noise-check", String::new()),
            (self.quick, " --quick", String::new()),
            (handicap.is_some(), " --handicap ", handicap.unwrap_or_default()),
        ] {
            if is_set {
                command.push_str(option);
                command.push_str(&value);
            }
        }
        command
    }
}

/// A time as the command line takes it.
fn typed_time(time: Duration) -> String {
    quoted(&humantime::format_duration(time).to_string())
}

fn or<T: Clone + PartialEq>(asked: &[T], default: &[T]) -> Vec<T> {
    if asked.is_empty() { default.to_vec() } else { unique(asked) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::CommonArgs;

    fn quick() -> StrategiesArgs {
        StrategiesArgs::quick(&CommonArgs { dir: ".".into(), seed: Some(1) })
    }

    fn full() -> StrategiesArgs {
        StrategiesArgs { quick: false, noise_check: false, ..quick() }
    }

    #[test]
    fn the_matrix_is_pattern_by_strategy_by_state_and_the_page_cache_is_for_buffered_files() {
        let rows = Settings::new(&full()).unwrap().rows();
        assert_eq!(rows.len(), 21 * (4 + 3));
        assert!(rows.iter().all(|row| row.entrants.len() == 6 && row.state.can_be(row.cache)));
    }

    #[test]
    fn quickly_it_is_six_cold_patterns_with_os_twice_in_five_rounds() {
        let settings = Settings::new(&quick()).unwrap();
        let rows = settings.rows();
        let names: Vec<String> = rows.iter().map(ToString::to_string).collect();
        assert_eq!(
            names.join(", "),
            "sequential cold buffered, interleaved-8 cold buffered, uniform cold buffered, \
             shuffled cold buffered, index-0.9 cold buffered, bitmap-10 cold buffered"
        );
        assert_eq!(listed(&rows[0].entrants), "os,hint,max,prefetch,async,adaptive,os-again");
        assert_eq!((settings.rounds, settings.cell_time.as_millis()), (5, 250));
        let direct = StrategiesArgs { cache: vec![CacheMode::Direct], ..quick() };
        let rows = Settings::new(&direct).unwrap().rows();
        assert_eq!(listed(&rows[0].entrants), "os,async,adaptive,os-again");
    }

    #[test]
    fn who_needs_no_pool_reads_one_list_through_the_page_cache() {
        let asked = ["plain", "willneed-8", "adaptive"].map(|name| name.parse().unwrap());
        let args = StrategiesArgs { strategies: asked.to_vec(), ..full() };
        for row in Settings::new(&args).unwrap().rows() {
            let through = row.cache == CacheMode::Buffered
                && matches!(row.state, CacheState::Cold | CacheState::PageCache);
            let expected = match row.pattern {
                Pattern::Interleaved(_) | Pattern::Mixed | Pattern::Limit10 => "adaptive",
                _ if through => "plain,willneed-8,adaptive",
                _ => "adaptive",
            };
            assert_eq!(listed(&row.entrants), expected, "{row}");
        }
    }

    #[test]
    fn each_value_of_the_devices_readahead_is_a_matrix_of_its_own() {
        let args = StrategiesArgs { device_readahead: vec![0, 131_072, 0], ..quick() };
        let settings = Settings::new(&args).unwrap();
        let rows = settings.rows();
        assert_eq!(rows.len(), 12);
        assert_eq!(rows[6].to_string(), "sequential cold buffered 128KiB");
        assert!(settings.command("forebay").contains(" --device-readahead 0,128KiB"));
    }

    #[test]
    fn rounds_that_were_asked_for_are_neither_more_nor_less() {
        let settings = Settings::new(&StrategiesArgs { rounds: Some(9), ..quick() }).unwrap();
        assert_eq!((settings.rounds, settings.time_max), (9, None));
        assert!(settings.command("forebay").contains(" --rounds 9"));
        let command = Settings::new(&quick()).unwrap().command("forebay");
        assert!(command.contains(" --time 1m") && !command.contains("--rounds"), "{command}");
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_the_name_of_its_option() {
        let refused = |args| Settings::new(&args).unwrap_err().to_string();
        let plain = vec![Entrant::Plain];
        assert!(refused(StrategiesArgs { blocks: Some(9), ..quick() }).contains("--blocks 9"));
        assert!(
            refused(StrategiesArgs { blocks: Some(1 << 30), ..quick() }).contains("larger --size")
        );
        assert!(refused(StrategiesArgs { size: Some(8192), ..quick() }).contains("--size"));
        assert!(
            refused(StrategiesArgs { strategies: plain.clone(), ..quick() })
                .contains("--noise-check")
        );
        let (states, cache) = (vec![CacheState::PageCache], vec![CacheMode::Direct]);
        let direct = StrategiesArgs { cache, ..full() };
        assert!(refused(StrategiesArgs { states, ..direct.clone() }).contains("--states"));
        assert!(refused(StrategiesArgs { strategies: plain, ..direct }).contains("--strategies"));
    }
}
