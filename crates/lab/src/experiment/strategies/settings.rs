//! The settings of a run: what the user requested, and the rows that follow from it.

use std::time::Duration;

use clap::Args;
use forebay::ReadaheadStrategy;
use forebay_io::CacheMode;

use crate::args::{CommonArgs, OutputArgs, parse_cache};
use crate::experiment::comparison::{Row, Rules};
use crate::experiment::pattern::Shape;
use crate::experiment::schedule::Limits;
use crate::experiment::{CacheState, POOL_BLOCK_BYTES, Pattern, Rounds, Variant, parse_pool_size};
use forebay_measure::bad_input;
use forebay_measure::device_readahead::parse_readahead;
use forebay_measure::lists::unique;
use forebay_measure::units::parse_time;

/// The name of this experiment in records.
pub const NAME: &str = "strategies";

/// Minimum number of blocks of a pattern.
const BLOCKS_MIN: u32 = 64;

/// Maximum number of plans of a measurement; patterns that read few blocks of a file need many.
const PLANS_MAX: usize = 32;

/// The most informative patterns for a short run: one scan, and several; a bitmap and an index; clustered and
/// random reads.
const PATTERNS_QUICK: &str = "sequential,interleaved-8,uniform,shuffled,index-0.9,bitmap-10";

/// `forebay lab strategies`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Each row (pattern, state of the caches, cache mode) is read by every strategy: \
                  the same blocks, in shuffled order, each time from that state again. The best \
                  of a row has ratio 1. Rows in which it is open whether adaptive is as fast as the best \
                  of the others get more rounds, while there is time.\n\
                  States: cold (a new pool, the page cache emptied), page-cache (a new pool, the file \
                  in the page cache), pool (all in the pool), quarter (a pool of a quarter of what is \
                  read, after one pass, the page cache emptied).\n\
                  Strategies: os says nothing to the kernel, hint says RANDOM or NORMAL, max \
                  SEQUENTIAL, prefetch WILLNEED for runs of blocks, async reads into the pool \
                  itself, adaptive chooses. Past the page cache the first four are the same.\n\
                  Without a pool, one read of one block after the other, on request: plain, random \
                  (after FADV_RANDOM), willneed-32 (FADV_WILLNEED for each block, 32 blocks ahead). They \
                  read patterns of one list through the page cache.\n\n\
                  Example: forebay lab strategies --dir /mnt/data --patterns sequential,bitmap-10 \
                  --states cold --cache buffered --device-readahead 128KiB,8MiB\n\
                  Document 004: forebay lab strategies --patterns shuffled,neighbours,two-streams --states \
                  cold --strategies plain,random,willneed-8,willneed-128,prefetch,async,adaptive"
)]
pub struct Settings {
    /// The place and the conditions.
    #[command(flatten)]
    pub(in crate::experiment) common: CommonArgs,
    /// Size of the working file (such as 512MiB, 4GiB) [quick: 512MiB]
    #[arg(long = "size", value_name = "SIZE", value_parser = parse_pool_size(BLOCKS_MIN.into()),
          default_value = "1GiB", default_value_if("quick", "true", "512MiB"))]
    pub(super) size_bytes: u64,
    /// Blocks of 8 KiB in a plan; plans are read one after the other [default: 16384, quick: 8192; less in
    /// a smaller file]
    #[arg(long, value_name = "N",
          value_parser = clap::value_parser!(u32).range(i64::from(BLOCKS_MIN)..))]
    pub(super) blocks: Option<u32>,
    /// Patterns, such as sequential, interleaved-8, index-0.9, bitmap-10, shuffled-8x48 (8 ranges in
    /// turn, each shuffled in windows of 48 blocks) [default: all, quick: six]
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values = Pattern::ALL.map(|(name, _)| name),
          hide_default_value = true, default_value_if("quick", "true", PATTERNS_QUICK))]
    pub(super) patterns: Vec<Pattern>,
    /// The ways of reading, from: os, hint, max, prefetch, async, adaptive; plain, random, willneed-N
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "os,hint,max,prefetch,async,adaptive"
    )]
    pub(super) strategies: Vec<Variant>,
    /// States of the caches, from: cold, page-cache, pool, quarter [quick: cold]
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "cold,page-cache,pool,quarter",
        default_value_if("quick", "true", "cold")
    )]
    pub(super) states: Vec<CacheState>,
    /// Cache modes, from: buffered, direct [quick: buffered]
    #[arg(long = "cache", value_name = "LIST", value_delimiter = ',', value_parser = parse_cache,
          default_value = "buffered,direct", default_value_if("quick", "true", "buffered"))]
    pub(super) caches: Vec<CacheMode>,
    /// The device's own readahead: set it to each of these (such as 0,128KiB,8MiB) and restore it
    /// afterwards; needs root [default: as it is]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_readahead)]
    pub(super) device_readahead: Vec<u64>,
    /// Measurements of each cell; 3+ is 3, and more where they decide, as time allows [quick: 5+]
    #[arg(long, value_name = "N", default_value = "3+", default_value_if("quick", "true", "5+"))]
    pub(super) rounds: Rounds,
    /// How long rounds are added where they decide; the first ones may take twice that [quick: 1m]
    #[arg(long, value_name = "TIME", value_parser = parse_time,
          conflicts_with = "rounds", default_value = "20m",
          default_value_if("quick", "true", "1m"))]
    pub(super) time: Duration,
    /// How long each cell is measured
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "250ms")]
    pub(super) cell_time: Duration,
    /// Also measure os a second time, as os-again: the difference between the two is noise
    #[arg(long)]
    pub(super) noise_check: bool,
    /// Six patterns from cold caches through the page cache: about a minute
    #[arg(long)]
    pub(super) quick: bool,
    /// Slow a strategy down by a part of its time: a loss that the comparison must find.
    #[arg(long, value_name = "NAME=PERCENT", value_parser = parse_slowdown, hide = true)]
    pub(super) inject_slowdown: Option<(Variant, f64)>,
    /// The output files.
    #[command(flatten)]
    pub(in crate::experiment) output: OutputArgs,
}

impl Settings {
    fn file_blocks(&self) -> u32 {
        (self.size_bytes / POOL_BLOCK_BYTES) as u32 // as the size was parsed
    }

    /// Refuses invalid options.
    ///
    /// # Errors
    /// [`BadInput`](forebay_measure::BadInput), naming the option.
    pub(in crate::experiment) fn checked(mut self) -> anyhow::Result<Settings> {
        let file_blocks = self.file_blocks();
        if let Some(blocks) = self.blocks.filter(|&blocks| blocks > file_blocks) {
            bad_input!(
                "--blocks {blocks}: the file has only {file_blocks}; choose a larger --size"
            );
        }
        self.strategies = unique(&self.strategies);
        if self.cell_time.is_zero() {
            bad_input!("--cell-time 0: nothing can be measured in no time");
        }
        let os = Variant::Stream(ReadaheadStrategy::Os);
        if self.noise_check && !self.strategies.contains(&os) {
            bad_input!("--noise-check measures os twice: add os to --strategies");
        }
        if self.rows().is_empty() {
            bad_input!(
                "there is nothing to measure: in state page-cache files are buffered, and plain, random \
                 and willneed read one list through the page cache, cold or from page-cache; change \
                 --states, --cache, --patterns or --strategies"
            );
        }
        Ok(self)
    }

    pub(super) fn rules(&self) -> Rules {
        let file_blocks = self.file_blocks();
        let blocks = self.blocks.unwrap_or(if self.quick { 8192 } else { 16_384 });
        Rules {
            shape: Shape { file_blocks, blocks: blocks.min(file_blocks) },
            limits: self.limits(),
            cell_time: self.cell_time,
            plans_max: PLANS_MAX,
            judged: self.judged(),
            slowdown: self.inject_slowdown,
            seed: self.common.seed,
        }
    }

    /// Time limit for rounds. The first ones may take twice as long as all should, as fewer decide nothing.
    fn limits(&self) -> Limits {
        let limits = self.rounds.limits(self.time.as_secs().max(1));
        match self.rounds.more {
            true => Limits { time: self.time, first_time: 2 * self.time, ..limits },
            false => limits,
        }
    }

    /// Comparisons of a row: `adaptive` with the best other, `os` with itself, and plain reads with advice and
    /// streams.
    fn judged(&self) -> usize {
        let plain = self.strategies.contains(&Variant::Plain);
        1 + usize::from(self.noise_check) + if plain { 2 } else { 0 }
    }

    /// All rows to measure, in the order of the report.
    pub(super) fn rows(&self) -> Vec<Row> {
        let as_it_is = self.device_readahead.is_empty().then_some(None);
        let readaheads = self.device_readahead.iter().copied().map(Some).chain(as_it_is);
        let mut variants = self.strategies.clone();
        variants.extend(self.noise_check.then_some(Variant::OsAgain));
        let mut rows = Vec::new();
        for device_readahead in readaheads {
            for &cache in &self.caches {
                for &state in self.states.iter().filter(|state| state.can_be(cache)) {
                    for &pattern in &self.patterns {
                        let none = Vec::new();
                        let row = Row { pattern, state, cache, device_readahead, variants: none };
                        let able = variants.iter().copied().filter(|&it| row.supports(it));
                        rows.push(Row { variants: able.collect(), ..row });
                    }
                }
            }
        }
        rows.retain(|row| !row.variants.is_empty());
        unique(&rows)
    }
}

/// `adaptive=15%`: a name and a part from 0 to 90 %.
fn parse_slowdown(text: &str) -> Result<(Variant, f64), String> {
    let parts = text.split_once('=').and_then(|(name, part)| Some((name, part.strip_suffix('%')?)));
    let (name, part) = parts.ok_or("a slowdown looks like adaptive=15%")?;
    match part.parse() {
        Ok(percent @ 0.0..=90.0) => Ok((name.parse()?, percent / 100.0)),
        _ => Err("a slowdown is from 0% to 90%".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::typed;

    fn listed(variants: &[Variant]) -> String {
        variants.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
    }

    fn settings(options: &str) -> Settings {
        typed::<Settings>(options).checked().unwrap()
    }

    #[test]
    fn the_matrix_is_pattern_by_strategy_by_state_and_the_page_cache_is_for_buffered_files() {
        let rows = settings("").rows();
        assert_eq!(rows.len(), 21 * (4 + 3));
        assert!(rows.iter().all(|row| row.variants.len() == 6 && row.state.can_be(row.cache)));
    }

    #[test]
    fn quickly_it_is_six_cold_patterns_with_os_twice_in_five_rounds() {
        let settings = settings("--quick --noise-check");
        let rows = settings.rows();
        let names: Vec<String> = rows.iter().map(ToString::to_string).collect();
        assert_eq!(
            names.join(", "),
            "sequential cold buffered, interleaved-8 cold buffered, uniform cold buffered, \
             shuffled cold buffered, index-0.9 cold buffered, bitmap-10 cold buffered"
        );
        assert_eq!(listed(&rows[0].variants), "os,hint,max,prefetch,async,adaptive,os-again");
        assert_eq!((settings.rounds.least, settings.cell_time.as_millis()), (5, 250));
    }

    #[test]
    fn who_needs_no_pool_reads_one_list_through_the_page_cache() {
        for row in settings("--strategies plain,willneed-8,adaptive").rows() {
            let through = row.cache == CacheMode::Buffered
                && matches!(row.state, CacheState::Cold | CacheState::PageCache);
            let expected = match row.pattern {
                Pattern::Interleaved(_) | Pattern::Mixed | Pattern::Limit10 => "adaptive",
                _ if through => "plain,willneed-8,adaptive",
                _ => "adaptive",
            };
            assert_eq!(listed(&row.variants), expected, "{row}");
        }
    }

    #[test]
    fn each_value_of_the_devices_readahead_is_a_separate_matrix() {
        let rows = settings("--quick --device-readahead 0,128KiB,0").rows();
        assert_eq!(rows.len(), 12);
        assert_eq!(rows[6].to_string(), "sequential cold buffered 128KiB");
    }

    #[test]
    fn the_requested_rounds_are_neither_more_nor_less() {
        let asked = |options: &str| {
            let limits = settings(options).rules().limits;
            (limits.first, limits.time.as_secs())
        };
        assert_eq!(asked("--quick --rounds 9"), (9, 0));
        assert_eq!(asked("--quick --rounds 9+"), (9, 60));
        assert_eq!(asked("--quick"), (5, 60));
        assert_eq!(asked("--time 2m"), (3, 120));
    }

    #[test]
    fn a_plan_is_no_longer_than_the_file() {
        let blocks = |options: &str| settings(options).rules().shape.blocks;
        assert_eq!([blocks(""), blocks("--quick"), blocks("--size 1MiB")], [16_384, 8192, 128]);
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_the_name_of_its_option() {
        let refused = |options: &str| {
            let checked = typed::<Settings>(options).checked();
            checked.unwrap_err().to_string()
        };
        assert!(refused("--quick --blocks 1073741824").contains("larger --size"));
        assert!(refused("--noise-check --strategies plain").contains("--noise-check"));
        assert!(refused("--cache direct --states page-cache").contains("--states"));
        assert!(refused("--cache direct --strategies plain").contains("--strategies"));
    }

    #[test]
    fn a_slowdown_is_a_name_and_a_part() {
        assert_eq!(parse_slowdown("plain=15%"), Ok((Variant::Plain, 0.15)));
        for text in
            ["adaptive", "adaptive=15", "adaptive=91%", "adaptive=-1%", "unknown=5%", "adaptive=x%"]
        {
            assert!(parse_slowdown(text).is_err(), "{text}");
        }
    }
}
