//! The command line of `forebay lab depth`.

use clap::Args;
use forebay_io::{CacheMode, Kind};

use crate::cli::{CommonArgs, OutputArgs, parse_backend, parse_cache};
use crate::units::parse_size;

/// `forebay lab depth`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Depth is the number of requests in flight: while one block is in hand, \
                  that many of the next ones are being read. Depth 0 reads each block only \
                  when it is needed.\n\
                  In each round all cells (backend, cache, depth) read the same random blocks, in shuffled \
                  order and from an emptied page cache, for a quarter of a second each. They are compared \
                  round by round; lines whose knee is undecided get more rounds while there is time.\n\
                  Threads with one number of workers at all depths are what PostgreSQL 18 has with \
                  io_method=worker.\n\n\
                  Example: forebay lab depth --dir /mnt/data --backends uring,sync --depths 0,16,64")]
pub struct DepthArgs {
    /// Where and with what.
    #[command(flatten)]
    pub common: CommonArgs,
    /// Size of the working file (such as 512MiB, 4GiB) [default: 1GiB, quick: 256MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub size: Option<u64>,
    /// Blocks read in each measurement [default: as many as are read in 250 ms]
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
    /// Measurements of each cell [default: 5 or more, quick: 3 or more, as time allows]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// Fewer depths and rounds, and a smaller file: less than a minute
    #[arg(long)]
    pub quick: bool,
    /// Also measure `fio --ioengine=io_uring --direct=1` on the same file, in a shuffle of its own
    #[arg(long)]
    pub fio: bool,
    /// Leave out lines that decide no setting here, as `forebay lab` does.
    #[arg(skip)]
    pub survey: bool,
    /// What is written.
    #[command(flatten)]
    pub output: OutputArgs,
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
            survey: true,
            output: OutputArgs::default(),
        }
    }
}
