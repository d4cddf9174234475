//! The arguments of `forebay lab strategies`.

use std::time::Duration;

use clap::Args;
use forebay_io::CacheMode;

use crate::cli::{CommonArgs, OutputArgs, parse_cache};
use crate::device_readahead::parse_readahead;
use crate::experiment::{CacheState, Entrant, Pattern};
use crate::units::parse_size;

/// `forebay lab strategies`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Each row (pattern, state of the caches, cache mode) is read by every strategy: \
                  the same blocks, in shuffled order, each time from that state made anew. The best \
                  of a row has ratio 1. Rows in which it is open whether adaptive is as fast as the best \
                  of the others get more rounds, while there is time.\n\
                  States: cold (a new pool, the page cache emptied), page-cache (a new pool, the file \
                  in the page cache), pool (all in the pool), quarter (a pool of a quarter of what is \
                  read, after one pass, the page cache emptied).\n\
                  Strategies: os says nothing to the kernel, hint says RANDOM or NORMAL, max \
                  SEQUENTIAL, prefetch WILLNEED for runs of blocks, async reads into the pool \
                  itself, adaptive chooses. Past the page cache the first four are the same, so \
                  that --quick measures one of them there.\n\
                  Without a pool, one read of one block after the other, if asked for: plain, random \
                  (after FADV_RANDOM), willneed-32 (FADV_WILLNEED for each block, 32 blocks ahead). They \
                  read patterns of one list through the page cache.\n\n\
                  Example: forebay lab strategies --dir /mnt/data --patterns sequential,bitmap-10 \
                  --states cold --cache buffered --device-readahead 128KiB,8MiB\n\
                  Document 004: forebay lab strategies --patterns shuffled,neighbours,two-streams --states \
                  cold --strategies plain,random,willneed-8,willneed-128,prefetch,async,adaptive"
)]
pub struct StrategiesArgs {
    /// Where and with what.
    #[command(flatten)]
    pub common: CommonArgs,
    /// Size of the working file (such as 512MiB, 4GiB) [default: 1GiB, quick: 512MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub size: Option<u64>,
    /// Blocks of 8 KiB in a plan; plans are read one after the other [default: 16384, quick: 8192]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub blocks: Option<u32>,
    /// Patterns, such as sequential, interleaved-8, index-0.9, bitmap-10, shuffled-8x48 (8 ranges in
    /// turn, each shuffled in windows of 48 blocks) [default: all, quick: six]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub patterns: Vec<Pattern>,
    /// Who reads, from: os, hint, max, prefetch, async, adaptive; plain, random, willneed-N [default: the
    /// first six]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub strategies: Vec<Entrant>,
    /// States of the caches, from: cold, page-cache, pool, quarter [default: all, quick: cold]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub states: Vec<CacheState>,
    /// Cache modes, from: buffered, direct [default: both, quick: buffered]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_cache)]
    pub cache: Vec<CacheMode>,
    /// The device's own readahead: set it to each of these (such as 0,128KiB,8MiB) and put it back
    /// afterwards; needs root [default: as it is]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_readahead)]
    pub device_readahead: Vec<u64>,
    /// Measurements of each cell, neither more nor less [default: 3, quick: 5, and more where they
    /// decide, as time allows]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// How long rounds are added where they decide; the first ones may take twice that [default: 20m,
    /// quick: 1m]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration,
          conflicts_with = "rounds")]
    pub time: Option<Duration>,
    /// How long each cell is measured
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration, default_value = "250ms")]
    pub cell_time: Duration,
    /// Also measure os a second time, as os-again: what the two come apart by is noise
    #[arg(long)]
    pub noise_check: bool,
    /// Six patterns from cold caches through the page cache: about a minute
    #[arg(long)]
    pub quick: bool,
    /// Slow a strategy down by a part of its time: a loss that has to be found.
    #[arg(long, value_name = "NAME=PERCENT", value_parser = parse_handicap, hide = true)]
    pub handicap: Option<(Entrant, f64)>,
    /// What is written.
    #[command(flatten)]
    pub output: OutputArgs,
}

impl StrategiesArgs {
    /// The quick settings, for `forebay lab` alone.
    pub fn quick(common: &CommonArgs) -> StrategiesArgs {
        StrategiesArgs {
            common: common.clone(),
            size: None,
            blocks: None,
            patterns: Vec::new(),
            strategies: Vec::new(),
            states: Vec::new(),
            cache: Vec::new(),
            device_readahead: Vec::new(),
            rounds: None,
            time: None,
            cell_time: Duration::from_millis(250),
            noise_check: true,
            quick: true,
            handicap: None,
            output: OutputArgs::default(),
        }
    }
}

/// `adaptive=15%`: a name and a part from 0 to 90 %.
fn parse_handicap(text: &str) -> Result<(Entrant, f64), String> {
    let parts = text.split_once('=').and_then(|(name, part)| Some((name, part.strip_suffix('%')?)));
    let (name, part) = parts.ok_or("a handicap looks like adaptive=15%")?;
    match part.parse() {
        Ok(percent @ 0.0..=90.0) => Ok((name.parse()?, percent / 100.0)),
        _ => Err("a handicap is from 0% to 90%".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handicap_is_a_name_and_a_part() {
        assert_eq!(parse_handicap("plain=15%"), Ok((Entrant::Plain, 0.15)));
        for text in
            ["adaptive", "adaptive=15", "adaptive=91%", "adaptive=-1%", "nobody=5%", "adaptive=x%"]
        {
            assert!(parse_handicap(text).is_err(), "{text}");
        }
    }
}
