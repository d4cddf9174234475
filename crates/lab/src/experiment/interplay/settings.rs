//! The settings of a run: what the user asked for, with every default filled in and checked.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use forebay::ReadaheadStrategy;
use forebay_io::CacheMode;

use crate::bad_input;
use crate::cli::InterplayArgs;
use crate::experiment::contest::{BLOCKS_MIN, CacheState, Defaults, Entrant, Manner, Row, Setup};
use crate::experiment::pattern::{Pattern, Shape};
use crate::experiment::{listed, unique};

const FULL: Defaults = Defaults {
    size_bytes: 1 << 30,
    rounds: 5,
    cell_time_max: Duration::from_secs(5),
    time_max: Duration::from_secs(480),
};

const QUICK: Defaults = Defaults {
    size_bytes: 512 << 20,
    rounds: 3,
    cell_time_max: Duration::from_millis(500),
    time_max: Duration::from_secs(20),
};

/// Blocks in each range; document 004's pattern as the design notes measured it.
const FULL_RANGE_BLOCKS: u32 = 8000;
const QUICK_RANGE_BLOCKS: u32 = 1000;

/// A way of reading as it is named on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// The kernel alone.
    Os,
    /// The kernel after FADV_RANDOM.
    Random,
    /// WILLNEED page by page, at each of the distances.
    WillNeed,
    /// A stream of a pool.
    Stream(ReadaheadStrategy),
}

impl Way {
    /// All of them, in the order of tables.
    pub const ALL: [Way; 8] = [
        Way::Os,
        Way::Random,
        Way::WillNeed,
        Way::Stream(ReadaheadStrategy::Hint),
        Way::Stream(ReadaheadStrategy::Max),
        Way::Stream(ReadaheadStrategy::Prefetch),
        Way::Stream(ReadaheadStrategy::Async),
        Way::Stream(ReadaheadStrategy::Adaptive),
    ];
}

impl fmt::Display for Way {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Way::Os => out.pad("os"),
            Way::Random => out.pad("random"),
            Way::WillNeed => out.pad("willneed"),
            Way::Stream(strategy) => out.pad(strategy.name()),
        }
    }
}

impl FromStr for Way {
    type Err = String;

    fn from_str(name: &str) -> Result<Way, String> {
        let found = Way::ALL.into_iter().find(|way| way.to_string() == name.trim());
        found.ok_or_else(|| format!("there are {}", Way::ALL.map(|way| way.to_string()).join(", ")))
    }
}

/// Settings with every default filled in and checked.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What all contests have.
    pub setup: Setup,
    /// Ranges of `shuffled` that are read in turn.
    pub ranges: u32,
    /// Blocks in each range; all patterns read as many as all ranges together have.
    pub range_blocks: u32,
    /// Blocks that `shuffled` mixes up among themselves.
    pub window: u32,
    /// Distances of WILLNEED, in blocks.
    pub distances: Vec<u32>,
    /// Ways of reading to measure.
    pub ways: Vec<Way>,
}

impl Settings {
    /// Fills in what `args` leave open and refuses what makes no sense.
    ///
    /// # Errors
    /// [`BadInput`](crate::BadInput), naming the option.
    pub fn new(args: &InterplayArgs) -> anyhow::Result<Settings> {
        let (defaults, range_blocks) = if args.contest.quick {
            (&QUICK, QUICK_RANGE_BLOCKS)
        } else {
            (&FULL, FULL_RANGE_BLOCKS)
        };
        let setup = Setup::new(&args.contest, defaults)?;
        let file_blocks = setup.file_blocks();
        // With nothing said of the ranges, they become as small as a small file needs.
        let fitting = (file_blocks / 2 / args.ranges).max(1);
        let range_blocks = args.range_blocks.unwrap_or(range_blocks.min(fitting));
        let blocks = u64::from(args.ranges) * u64::from(range_blocks);
        if blocks < BLOCKS_MIN {
            bad_input!(
                "--ranges {} of --range-blocks {range_blocks}: a pattern takes at least {BLOCKS_MIN} \
                 blocks",
                args.ranges
            );
        }
        // `neighbours` leaves three blocks of nine out.
        if blocks * 3 / 2 > u64::from(file_blocks) {
            bad_input!(
                "--ranges {} of --range-blocks {range_blocks}: they take a file of {} blocks and it has \
                 {file_blocks}; choose a larger --size",
                args.ranges,
                blocks * 3 / 2
            );
        }
        let settings = Settings {
            setup,
            ranges: args.ranges,
            range_blocks,
            window: args.window,
            distances: unique(&args.distances),
            ways: if args.strategies.is_empty() {
                Way::ALL.to_vec()
            } else {
                unique(&args.strategies)
            },
        };
        if settings.rows().is_empty() {
            bad_input!(
                "there is nothing to measure: os, random and willneed go through the page cache; add \
                 --cache buffered or others of --strategies"
            );
        }
        Ok(settings)
    }

    /// What patterns are made from.
    pub(super) fn shape(&self) -> Shape {
        Shape {
            file_blocks: self.setup.file_blocks(),
            blocks: self.ranges * self.range_blocks,
            ranges: self.ranges,
            window: self.window,
        }
    }

    /// Everything that is to be measured, in the order of the report.
    pub(super) fn rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for device_readahead in self.setup.readaheads() {
            for pattern in Pattern::OF_INTERPLAY {
                for &cache in &self.setup.caches {
                    let entrants = self.entrants(cache);
                    let state = CacheState::Cold;
                    rows.push(Row { pattern, state, cache, device_readahead, entrants });
                }
            }
        }
        rows.retain(|row| !row.entrants.is_empty());
        rows
    }

    /// Who competes: the kernel's ways through the page cache only.
    fn entrants(&self, cache: CacheMode) -> Vec<Entrant> {
        let mut entrants = Vec::new();
        for way in &self.ways {
            match way {
                Way::Stream(strategy) => entrants.push(Entrant::Pool(*strategy)),
                _ if cache == CacheMode::Direct => {}
                Way::Os => entrants.push(Entrant::Kernel(Manner::Os)),
                Way::Random => entrants.push(Entrant::Kernel(Manner::Random)),
                Way::WillNeed => {
                    let manners = self.distances.iter().map(|&distance| Manner::WillNeed(distance));
                    entrants.extend(manners.map(Entrant::Kernel));
                }
            }
        }
        entrants
    }

    /// The command that repeats a run with these settings, every one of them named. `program`: the
    /// path or name by which this program was called.
    pub fn command(&self, program: &str) -> String {
        let own = format!(
            "--ranges {} --range-blocks {} --window {} --distances {} --strategies {}",
            self.ranges,
            self.range_blocks,
            self.window,
            listed(&self.distances),
            listed(&self.ways),
        );
        self.setup.command(program, super::NAME, &own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::CommonArgs;

    fn quick() -> InterplayArgs {
        InterplayArgs::quick(&CommonArgs { dir: ".".into(), seed: Some(1) })
    }

    #[test]
    fn the_kernels_ways_are_measured_through_the_page_cache_only() {
        let rows = Settings::new(&quick()).unwrap().rows();
        let names = |cache| {
            let row = rows.iter().find(|row| row.cache == cache).unwrap();
            listed(&row.entrants)
        };
        assert_eq!(rows.len(), 6);
        assert_eq!(
            names(CacheMode::Buffered),
            "os,random,willneed-1,willneed-8,willneed-32,willneed-128,willneed-256,\
             hint,max,prefetch,async,adaptive"
        );
        assert_eq!(names(CacheMode::Direct), "hint,max,prefetch,async,adaptive");
    }

    #[test]
    fn unless_told_otherwise_the_pattern_is_document_004s() {
        let mut args = quick();
        args.contest.quick = false;
        let shape = Settings::new(&args).unwrap().shape();
        assert_eq!((shape.blocks, shape.ranges, shape.window), (32_000, 4, 24));
    }

    #[test]
    fn ranges_that_do_not_fit_are_refused_and_defaults_are_made_to_fit() {
        let mut args = quick();
        args.contest.size = Some(1 << 20);
        assert_eq!(Settings::new(&args).unwrap().range_blocks, 16);
        args.range_blocks = Some(1000);
        assert!(Settings::new(&args).unwrap_err().to_string().contains("larger --size"));
        args.range_blocks = Some(1);
        assert!(Settings::new(&args).unwrap_err().to_string().contains("--range-blocks 1"));
    }

    #[test]
    fn a_way_is_read_back_from_its_name() {
        for way in Way::ALL {
            assert_eq!(way.to_string().parse(), Ok(way));
        }
        assert!("quantum".parse::<Way>().unwrap_err().contains("willneed"));
    }
}
