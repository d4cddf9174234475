//! The command line.

mod emulate;
mod explain;
mod on;
mod readahead;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use forebay::ReadaheadStrategy;
use forebay_io::{CacheMode, Kind};

use crate::device_readahead::parse_readahead;
use crate::experiment::{CacheState, Pattern, checkpoint, interplay};
use crate::units::parse_size;

pub use crate::device::DeviceArgs;
pub use crate::experiment::depth::DepthArgs;
pub use crate::experiment::sync::SyncArgs;
pub use emulate::EmulateArgs;
pub use explain::ExplainArgs;
pub use on::OnArgs;
pub use readahead::{ActivationArgs, MixtureArgs, ReadaheadArgs};

/// Measure what your disk and your kernel do with a storage engine's requests.
#[derive(Debug, Parser)]
#[command(name = "forebay", version, about, propagate_version = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What the command can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Measure a disk: every experiment quickly, or one of them thoroughly
    Lab(Box<LabArgs>),
    /// Mount an emulated disk: a RAID, an SSD or a cloud volume that one does not have
    Emulate(EmulateArgs),
    /// Show the very requests that the kernel issues for a list of blocks, on an emulated disk
    Explain(ExplainArgs),
}

/// `forebay lab`.
#[derive(Debug, Clone, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Without an experiment, all of them but mixture run with quick settings (about three \
                  minutes) and a report is written to forebay-report/.\n\
                  The working file is made in --dir and is gone afterwards, also after Ctrl-C. \
                  Those of depth and sync have no name while they are used where the system allows that, and \
                  leave nothing even after a kill; the others are in a directory .forebay-lab-*, which the \
                  next start removes.\n\n\
                  Example: forebay lab depth --on raid10-12 --fs ext4"
)]
pub struct LabArgs {
    /// The one experiment to run.
    #[command(subcommand)]
    pub experiment: Option<Experiment>,
    /// Where and with what.
    #[command(flatten)]
    pub common: CommonArgs,
    /// In place of a real disk.
    #[command(flatten)]
    pub on: OnArgs,
    /// The disk itself, which is measured first.
    #[command(flatten)]
    pub device: DeviceArgs,
    /// Directory for index.html and report.json
    #[arg(long, value_name = "DIR", default_value = "forebay-report")]
    pub report: PathBuf,
}

impl LabArgs {
    /// What the experiments that will run have in common.
    pub(crate) fn common(&self) -> &CommonArgs {
        match &self.experiment {
            None => &self.common,
            Some(Experiment::Depth(args)) => &args.common,
            Some(Experiment::Interplay(args)) => &args.contest.common,
            Some(Experiment::Strategies(args)) => &args.contest.common,
            Some(Experiment::Checkpoint(args)) => &args.common,
            Some(Experiment::Readahead(args)) => &args.common,
            Some(Experiment::Activation(args)) => &args.common,
            Some(Experiment::Mixture(args)) => &args.common,
            Some(Experiment::Sync(args)) => &args.common,
        }
    }

    /// The same run in another directory.
    pub(crate) fn in_directory(&self, directory: &Path) -> LabArgs {
        let mut args = self.clone();
        let common = match &mut args.experiment {
            None => &mut args.common,
            Some(Experiment::Depth(args)) => &mut args.common,
            Some(Experiment::Interplay(args)) => &mut args.contest.common,
            Some(Experiment::Strategies(args)) => &mut args.contest.common,
            Some(Experiment::Checkpoint(args)) => &mut args.common,
            Some(Experiment::Readahead(args)) => &mut args.common,
            Some(Experiment::Activation(args)) => &mut args.common,
            Some(Experiment::Mixture(args)) => &mut args.common,
            Some(Experiment::Sync(args)) => &mut args.common,
        };
        directory.clone_into(&mut common.dir);
        args
    }
}

/// The experiments there are.
#[derive(Debug, Clone, Subcommand)]
pub enum Experiment {
    /// Random reads while 0, 1, 2 ... 4096 of the next blocks are prefetched
    Depth(DepthArgs),
    /// Clustered random reads: the kernel alone, with advice for each block, and through streams
    Interplay(InterplayArgs),
    /// Every readahead strategy in 19 patterns of reading, from cold and warm caches
    Strategies(StrategiesArgs),
    /// Dirty pages written out: which order, together or one by one, at once or spread, beside readers
    Checkpoint(CheckpointArgs),
    /// The kernel's readahead, from next to none to plenty, under 1, 2, 8, 32 sequential readers
    Readahead(ReadaheadArgs),
    /// After how many reads the kernel begins to read ahead, and how its window grows
    Activation(ActivationArgs),
    /// Streaming readers beside random ones: who loses what, under each readahead
    Mixture(MixtureArgs),
    /// What a commit costs: writes and their syncs, by every method, from one writer and several
    Sync(SyncArgs),
}

/// Settings that every experiment takes.
#[derive(Debug, Clone, Args)]
pub struct CommonArgs {
    /// Directory on the disk to measure
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub dir: PathBuf,
    /// Seed of everything random; printed in the report so that a run can be repeated
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
}

/// The files that one experiment alone writes, if they are asked for.
#[derive(Debug, Clone, Default, Args)]
pub struct OutputArgs {
    /// Write the records to this file as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write a self-contained page with plots to this file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// Settings that the experiments take in which ways of reading compete.
#[derive(Debug, Clone, Args)]
pub struct ContestArgs {
    /// Where and with what.
    #[command(flatten)]
    pub common: CommonArgs,
    /// Size of the working file (such as 512MiB, 4GiB) [default: 1GiB, quick: 512MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub size: Option<u64>,
    /// Cache modes, from: buffered, direct
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_cache,
          default_value = "buffered,direct")]
    pub cache: Vec<CacheMode>,
    /// The device's own readahead: set it to each of these (such as 0,128KiB,8MiB) and put it back
    /// afterwards; needs root [default: as it is]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_readahead)]
    pub device_readahead: Vec<u64>,
    /// Measurements of each cell [default: several, as time allows]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// Fewer blocks and rounds, and a smaller file: less than a minute
    #[arg(long)]
    pub quick: bool,
    /// What is written.
    #[command(flatten)]
    pub output: OutputArgs,
}

impl ContestArgs {
    fn quick(common: &CommonArgs) -> ContestArgs {
        ContestArgs {
            common: common.clone(),
            size: None,
            cache: vec![CacheMode::Buffered, CacheMode::Direct],
            device_readahead: Vec::new(),
            rounds: None,
            quick: true,
            output: OutputArgs::default(),
        }
    }
}

/// `forebay lab interplay`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Three orders of reading: shuffled (ranges in turn, each in an order that is \
                  random within a small window, as of a nested loop over two indexes), neighbours \
                  (1, 3, 2, 6, 4, 9 along the file) and two-streams (1, 1001, 2, 1002 ...).\n\
                  Who reads: os is the kernel alone, one read of one block after the other; random \
                  the same after FADV_RANDOM; willneed the same with FADV_WILLNEED for each block, \
                  so many blocks ahead; hint, max, prefetch, async and adaptive are streams of a \
                  Forebay pool. All read the same blocks from emptied caches, in shuffled order.\n\n\
                  Example: forebay lab interplay --dir /mnt/data --strategies os,willneed,adaptive \
                  --distances 8,64 --cache buffered"
)]
pub struct InterplayArgs {
    /// What all such experiments take.
    #[command(flatten)]
    pub contest: ContestArgs,
    /// Ranges of `shuffled` that are read in turn
    #[arg(long, value_name = "N", default_value_t = 4,
          value_parser = clap::value_parser!(u32).range(1..=64))]
    pub ranges: u32,
    /// Blocks of 8 KiB in each range [default: 8000, quick: 1000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub range_blocks: Option<u32>,
    /// Blocks that `shuffled` mixes up among themselves
    #[arg(long, value_name = "N", default_value_t = 24,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub window: u32,
    /// Distances of willneed, in blocks
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,8,32,128,256",
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub distances: Vec<u32>,
    /// Who reads, from: os, random, willneed, hint, max, prefetch, async, adaptive [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub strategies: Vec<interplay::Way>,
}

impl InterplayArgs {
    /// The quick settings, for `forebay lab` alone.
    pub fn quick(common: &CommonArgs) -> InterplayArgs {
        InterplayArgs {
            contest: ContestArgs::quick(common),
            ranges: 4,
            range_blocks: None,
            window: 24,
            distances: vec![1, 8, 32, 128, 256],
            strategies: Vec::new(),
        }
    }
}

/// `forebay lab strategies`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Each row (pattern, state of the caches, cache mode) is read by every strategy: \
                  the same blocks, in shuffled order, each time from that state made anew. The best \
                  of a row has ratio 1.\n\
                  States: cold (a new pool, the page cache emptied), page-cache (a new pool, the file \
                  in the page cache), pool (all in the pool), quarter (a pool of a quarter of what is \
                  read, after one pass, the page cache emptied).\n\
                  Strategies: os says nothing to the kernel, hint says RANDOM or NORMAL, max \
                  SEQUENTIAL, prefetch WILLNEED for runs of blocks, async reads into the pool \
                  itself, adaptive chooses. Past the page cache the first four are the same, so \
                  that --quick measures one of them there.\n\n\
                  Example: forebay lab strategies --dir /mnt/data --patterns sequential,bitmap-10 \
                  --states cold --cache buffered --device-readahead 128KiB,8MiB"
)]
pub struct StrategiesArgs {
    /// What all such experiments take.
    #[command(flatten)]
    pub contest: ContestArgs,
    /// Blocks of 8 KiB read in each measurement [default: 8192, quick: 1536]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub blocks: Option<u32>,
    /// Patterns, such as sequential, interleaved-8, zipfian, index-0.9, bitmap-10 [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_pattern)]
    pub patterns: Vec<Pattern>,
    /// Strategies, from: os, hint, max, prefetch, async, adaptive [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_strategy)]
    pub strategies: Vec<ReadaheadStrategy>,
    /// States of the caches, from: cold, page-cache, pool, quarter [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub states: Vec<CacheState>,
}

impl StrategiesArgs {
    /// The quick settings, for `forebay lab` alone.
    pub fn quick(common: &CommonArgs) -> StrategiesArgs {
        StrategiesArgs {
            contest: ContestArgs::quick(common),
            blocks: None,
            patterns: Vec::new(),
            strategies: Vec::new(),
            states: Vec::new(),
        }
    }
}

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
                  with readers or with pacing last a few intervals each; by default they are measured \
                  for the best order alone, --all-cells crosses everything with everything.\n\n\
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
    pub patterns: Vec<checkpoint::Dirty>,
    /// Elevators, from: arrival, sorted, balanced [default: all, quick: arrival, balanced]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub elevators: Vec<checkpoint::Order>,
    /// Neighbours in one write, from: off, on
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
    /// Time from checkpoint to checkpoint in cells with readers or pacing [default: 20s, quick: 2s]
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
    /// Measurements of each cell without readers [default: 3, if there is time; quick: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// Cross everything with everything, however long that takes
    #[arg(long)]
    pub all_cells: bool,
    /// A sixteenth of the pages and of the file, shorter intervals: less than a minute
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

fn parse_pattern(name: &str) -> Result<Pattern, String> {
    let all = Pattern::OF_STRATEGIES;
    let found = all.into_iter().find(|pattern| pattern.to_string() == name.trim());
    found.ok_or_else(|| format!("there are {}", all.map(|pattern| pattern.to_string()).join(", ")))
}

fn parse_strategy(name: &str) -> Result<ReadaheadStrategy, String> {
    let all = ReadaheadStrategy::ALL;
    let found = all.into_iter().find(|strategy| strategy.name() == name.trim());
    found.ok_or_else(|| format!("there are {}", all.map(ReadaheadStrategy::name).join(", ")))
}

pub(crate) fn parse_backend(name: &str) -> Result<Kind, String> {
    name.trim().parse().map_err(|_| "there are sync, threads, aio and uring".to_owned())
}

pub(crate) fn parse_cache(name: &str) -> Result<CacheMode, String> {
    match name.trim() {
        "buffered" => Ok(CacheMode::Buffered),
        "direct" => Ok(CacheMode::Direct),
        _ => Err("there are buffered and direct".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn an_emulated_disk_is_named_before_or_behind_the_experiment() {
        let on = |line: &str| {
            let Command::Lab(lab) = Cli::try_parse_from(line.split(' ')).unwrap().command else {
                panic!("{line}");
            };
            (lab.on.on, lab.on.fs.map(|filesystem| filesystem.to_string()), lab.on.speed_up)
        };
        let expected = (Some("nvme".to_owned()), Some("xfs".to_owned()), Some(4.0));
        assert_eq!(on("forebay lab --on nvme --fs xfs --speed-up 4"), expected);
        assert_eq!(on("forebay lab depth --on nvme --fs xfs --quick --speed-up 4"), expected);
        assert_eq!(on("forebay lab depth"), (None, None, None));
        let refused = Cli::try_parse_from(["forebay", "lab", "--on", "nvme", "--fs", "zfs"]);
        assert!(refused.unwrap_err().to_string().contains("ext4, xfs and btrfs"));
    }

    #[test]
    fn a_run_is_moved_to_another_directory_whatever_it_measures() {
        for words in ["", "depth ", "interplay ", "strategies ", "checkpoint "] {
            let line = format!("forebay lab {words}--dir /here --seed 7");
            let Command::Lab(lab) = Cli::try_parse_from(line.split(' ')).unwrap().command else {
                panic!("{line}");
            };
            let moved = lab.in_directory(Path::new("/there"));
            assert_eq!(lab.common().dir, Path::new("/here"));
            assert_eq!(
                (moved.common().dir.as_path(), moved.common().seed),
                (Path::new("/there"), Some(7))
            );
        }
    }
}
