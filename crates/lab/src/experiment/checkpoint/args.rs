//! The command line of `forebay lab checkpoint`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use forebay_io::{CacheMode, Kind};

use super::{Dirty, Order};
use crate::cli::{CommonArgs, OutputArgs, parse_backend, parse_cache};
use crate::units::parse_size;

/// `forebay lab checkpoint`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Each measurement changes so many pages of a working file in a new pool, writes them \
                  out by one checkpoint, and syncs. Who has arrival, combine off and backend sync \
                  writes them as most engines did: one page after the other, in the order of frames. \
                  Every cell of one pattern and cache mode is compared with that.\n\
                  Patterns: uniform (anywhere), clustered (runs of 8 neighbours), zipfian (dense where \
                  it is hot, sparse elsewhere), two-tablespaces (half of the pages under --dir, half \
                  under --dir2, best on another device).\n\
                  Elevators: arrival (as they stand in memory), sorted (by place, one tablespace after \
                  the other), balanced (by place, all tablespaces at once).\n\
                  Readers: threads that read random pages at a steady rate, whatever the disk does. Cells \
                  with readers or with pacing last an interval and a half in each round; by default \
                  they are measured for the best order alone, --all-cells crosses everything with \
                  everything. Rounds are added to what is undecided while there is time.\n\n\
                  Example: forebay lab checkpoint --dir /mnt/data --patterns clustered --cache direct \
                  --elevators arrival,balanced --interval 30s"
)]
pub struct CheckpointArgs {
    /// Where and with what.
    #[command(flatten)]
    pub common: CommonArgs,
    /// Directory of the second tablespace, best on another device; needed by two-tablespaces
    #[arg(long, value_name = "DIR")]
    pub dir2: Option<PathBuf>,
    /// Size of the working file (such as 512MiB, 4GiB) [default: 4GiB, quick: 256MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub size: Option<u64>,
    /// Pages of 8 KiB to change before each checkpoint; all are in memory [default: an eighth of the file]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(64..))]
    pub dirty: Option<u32>,
    /// Patterns, from: uniform, clustered, zipfian, two-tablespaces [default: all that can be, quick:
    /// uniform, clustered]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub patterns: Vec<Dirty>,
    /// Elevators, from: arrival, sorted, balanced [default: all, quick: arrival, balanced]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub elevators: Vec<Order>,
    /// Neighbours coalesced into one write, from: off, on
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_switch,
          default_value = "off,on")]
    pub combine: Vec<bool>,
    /// Cache modes, from: buffered, direct
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_cache,
          default_value = "buffered,direct")]
    pub cache: Vec<CacheMode>,
    /// Backends, from: sync, threads, aio, uring; sync writes one after the other [default: sync and
    /// the best that works here]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_backend)]
    pub backends: Vec<Kind>,
    /// Writes in flight in each tablespace, but for sync
    #[arg(long, value_name = "N", default_value_t = 32,
          value_parser = clap::value_parser!(u32).range(1..=256))]
    pub depth: u32,
    /// Time from checkpoint to checkpoint in cells with readers or pacing [default: 10s, quick: 1200ms]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub interval: Option<Duration>,
    /// Threads that read
    #[arg(long, value_name = "N", default_value_t = 4,
          value_parser = clap::value_parser!(u32).range(1..=64))]
    pub readers: u32,
    /// Reads per second that all of them together want
    #[arg(long, value_name = "N", default_value_t = 1000,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub reads: u32,
    /// Measurements of each cell [default: 3, and more of what is undecided while there is time]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// Cross everything with everything, however long that takes
    #[arg(long)]
    pub all_cells: bool,
    /// Only the slowest and the best way of writing, and readers beside the best
    #[arg(long, conflicts_with = "all_cells")]
    pub essential: bool,
    /// A sixteenth of the pages and of the file, shorter intervals: about a minute
    #[arg(long)]
    pub quick: bool,
    /// What is written.
    #[command(flatten)]
    pub output: OutputArgs,
}

impl CheckpointArgs {
    /// The quick settings, for `forebay lab` alone.
    pub fn quick(common: &CommonArgs) -> CheckpointArgs {
        CheckpointArgs {
            common: common.clone(),
            dir2: None,
            size: None,
            dirty: None,
            patterns: Vec::new(),
            elevators: Vec::new(),
            combine: vec![false, true],
            cache: vec![CacheMode::Buffered, CacheMode::Direct],
            backends: Vec::new(),
            depth: 32,
            interval: None,
            readers: 4,
            reads: 1000,
            rounds: None,
            all_cells: false,
            essential: true,
            quick: true,
            output: OutputArgs::default(),
        }
    }
}

fn parse_switch(text: &str) -> Result<bool, String> {
    match text.trim() {
        "off" => Ok(false),
        "on" => Ok(true),
        _ => Err("there are off and on".to_owned()),
    }
}
