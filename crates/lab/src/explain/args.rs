//! The arguments of `forebay explain`.

use std::path::PathBuf;

use clap::Args;
use forebay_io::CacheMode;

use super::Strategy;
use crate::args::parse_cache;
use crate::emulate::parse_speed_up;
use forebay_measure::device_readahead::parse_readahead;
use forebay_measure::units::parse_size;

/// `forebay explain`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "PATTERN is blocks in the order in which they are read, separated by commas:\n  \
                  1,3,2,6,4,9          these blocks\n  \
                  10-20  20-10         a range, forwards or backwards\n  \
                  sequential:1000      so many blocks from 0; sequential:1000@500 from 500\n  \
                  random:100           so many different blocks anywhere; random:100/5000 of the \
                  first 5000\n  \
                  shuffled:4x1000/24   4 ranges of 1000 blocks read in turn, each in windows of 24 \
                  that are shuffled; shuffled:2x500/1 is two scans side by side\n  \
                  @FILE                a file with such items on its lines; # begins a remark\n\n\
                  Each strategy reads the blocks one by one from a new file on an emulated disk of its \
                  own, and what is shown are the reads that arrived there, in order of issue:\n  \
                  os                   plain reads; the kernel reads ahead as it sees fit\n  \
                  random               the same after FADV_RANDOM: no readahead\n  \
                  max                  the same after FADV_SEQUENTIAL: twice the readahead\n  \
                  willneed             the same, with FADV_WILLNEED for each block --distance blocks \
                  before it is read\n  \
                  adaptive             a read stream of a Forebay pool, which knows the list\n\
                  Times are those of the disk emulated, from the first read to the end of the last; where \
                  a request takes less than some 200 us, what FUSE itself costs shows in them.\n\
                  Needs FUSE (/dev/fuse and fusermount3), but not root.\n\n\
                  Examples:\n  \
                  forebay explain 1,3,2,6,4,9\n  \
                  forebay explain sequential:64 --strategy os,max --readahead 64KiB\n  \
                  forebay explain shuffled:4x1000/24 --profile 7200rpm --svg requests.svg\n  \
                  forebay explain 1,1001,2,1002,3,1003 --strategy os,adaptive --json requests.json"
)]
pub struct ExplainArgs {
    /// Blocks in the order in which they are read, such as 1,3,2,6,4,9 or random:100 or @FILE
    #[arg(value_name = "PATTERN")]
    pub pattern: String,
    /// The disk to emulate: a shipped profile (`forebay emulate --list`) or a file of one
    #[arg(long, value_name = "PROFILE", default_value = "nvme")]
    pub profile: String,
    /// The strategies, from: os, random, max, willneed, adaptive
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        hide_possible_values = true,
        default_value = "os,random,max,willneed,adaptive"
    )]
    pub strategy: Vec<Strategy>,
    /// How many blocks ahead willneed advises the kernel
    #[arg(long, value_name = "N", default_value_t = 8,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub distance: u32,
    /// Size of a block, a power of two from 4KiB to 64KiB
    #[arg(long, value_name = "SIZE", value_parser = parse_block_size, default_value = "8KiB")]
    pub block_size: u64,
    /// How far the kernel may read ahead (such as 0, 128KiB, 8MiB); more than 128KiB needs root
    /// [default: as the kernel sets it]
    #[arg(long, value_name = "SIZE", value_parser = parse_readahead)]
    pub readahead: Option<u64>,
    /// How adaptive reads, from: buffered, direct; the other strategies always use the page cache
    #[arg(long, value_name = "MODE", value_parser = parse_cache, default_value = "buffered")]
    pub cache: CacheMode,
    /// Let the disk run this many times faster; the reported times are still its own
    #[arg(long, value_name = "N", default_value_t = 1.0, value_parser = parse_speed_up)]
    pub speed_up: f64,
    /// Seed of all random numbers; printed, so that a run can be repeated
    #[arg(long, value_name = "N", default_value_t = fastrand::u64(..1 << 32),
          hide_default_value = true)]
    pub seed: u64,
    /// Write the requests to this file as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Draw the requests into this file as SVG
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Keep each disk's own log of its requests in this directory, as STRATEGY.jsonl
    #[arg(long, value_name = "DIR")]
    pub logs: Option<PathBuf>,
}

fn parse_block_size(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        size @ 4096..=65_536 if size.is_power_of_two() => Ok(size),
        _ => Err("it has to be a power of two from 4KiB to 64KiB".to_owned()),
    }
}
