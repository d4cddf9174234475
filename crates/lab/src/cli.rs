//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use forebay_io::{CacheMode, Kind};

use crate::units::parse_size;

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
    Lab(LabArgs),
}

/// `forebay lab`.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Without an experiment, all of them run with quick settings (about a minute) and \
                  a report is written to forebay-report/.\n\
                  The working file is made in --dir, has no name while it is used where the \
                  system allows that, and is gone afterwards, also after Ctrl-C."
)]
pub struct LabArgs {
    /// The one experiment to run.
    #[command(subcommand)]
    pub experiment: Option<Experiment>,
    /// Where and with what.
    #[command(flatten)]
    pub common: CommonArgs,
    /// Directory for index.html and report.json
    #[arg(long, value_name = "DIR", default_value = "forebay-report")]
    pub report: PathBuf,
}

/// The experiments there are.
#[derive(Debug, Subcommand)]
pub enum Experiment {
    /// Random reads while 0, 1, 2 ... 4096 of the next blocks are asked for ahead
    Depth(DepthArgs),
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

/// `forebay lab depth`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Depth is the number of requests in flight: while one block is in hand, \
                  that many of the next ones have been asked for. Depth 0 reads each block only \
                  when it is needed.\n\
                  Each cell (backend, cache, depth) is measured several times on different \
                  blocks, in shuffled order, on an emptied page cache; the median is reported \
                  with the lowest and highest.\n\n\
                  Example: forebay lab depth --dir /mnt/data --backends uring,sync --depths 0,16,64")]
pub struct DepthArgs {
    /// Where and with what.
    #[command(flatten)]
    pub common: CommonArgs,
    /// Size of the working file (such as 512MiB, 4GiB) [default: 1GiB, quick: 256MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub size: Option<u64>,
    /// Blocks read in each measurement [default: 4096, quick: 2048]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub blocks: Option<u64>,
    /// Size of a block, a power of two from 512 to 1MiB
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "8KiB")]
    pub block_size: u64,
    /// Backends, from: sync, threads, aio, uring
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_backend,
          default_value = "sync,threads,aio,uring")]
    pub backends: Vec<Kind>,
    /// Cache modes, from: buffered, direct
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_cache,
          default_value = "buffered,direct")]
    pub cache: Vec<CacheMode>,
    /// Depths, each from 0 to 4096 [default: 0,1,2,4 ... 4096, quick: 0,1,4,16,64,256,1024]
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(0..=4096))]
    pub depths: Vec<u32>,
    /// Measurements of each cell [default: 5, quick: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// Fewer blocks, depths and rounds, and a smaller file: about half a minute
    #[arg(long)]
    pub quick: bool,
    /// Also measure `fio --ioengine=io_uring --direct=1` on the same file, in the same shuffle
    #[arg(long)]
    pub fio: bool,
    /// Write the records to this file as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write a self-contained page with plots to this file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

impl DepthArgs {
    /// The quick settings, for `forebay lab` alone.
    pub fn quick(common: &CommonArgs) -> DepthArgs {
        DepthArgs {
            common: common.clone(),
            size: None,
            blocks: None,
            block_size: 8192,
            backends: vec![Kind::Sync, Kind::Threads, Kind::Aio, Kind::Uring],
            cache: vec![CacheMode::Buffered, CacheMode::Direct],
            depths: Vec::new(),
            rounds: None,
            quick: true,
            fio: false,
            json: None,
            html: None,
        }
    }
}

fn parse_backend(name: &str) -> Result<Kind, String> {
    name.trim().parse().map_err(|_| "there are sync, threads, aio and uring".to_owned())
}

fn parse_cache(name: &str) -> Result<CacheMode, String> {
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
}
