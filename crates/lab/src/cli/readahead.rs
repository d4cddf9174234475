//! The command line of the experiments on the kernel's readahead: `readahead`, `activation`, `mixture`.

use std::time::Duration;

use clap::Args;
use forebay_io::CacheMode;

use super::{CommonArgs, OutputArgs, parse_cache};
use crate::device_readahead::parse_readahead;
use crate::experiment::{activation, readahead};
use crate::units::parse_size;

/// `forebay lab readahead`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Each cell lets so many readers read at once, each its share from beginning to end, with \
                  plain reads of one size through the page cache, which is emptied before. Bytes are \
                  counted until the first reader has read its share or time is up.\n\
                  Files: own (a file for each reader, as a program with many tables has it), one (each \
                  reader has a range of its own in one file).\n\
                  The readahead is varied in one of two ways. By the device: root sets what \
                  `blockdev --setra` sets (of a filesystem without a device, such as FUSE, what \
                  /sys/class/bdi says), and the value found is put back at the end, also after Ctrl-C. \
                  By descriptor, for everybody: FADV_RANDOM is no readahead, NORMAL the device's, \
                  SEQUENTIAL twice that.\n\
                  Beside that, --cache direct reads past the page cache with large requests, many in \
                  flight: what the disk could give. As root the first and the last part of the disk are \
                  read too, since a disk that rotates is faster at its beginning.\n\n\
                  Example: forebay lab readahead --dir /mnt/data --readers 1,8 --files own --request 8KiB \
                  --readahead 128KiB,1MiB,6MiB"
)]
pub struct ReadaheadArgs {
    /// Where and with what.
    #[command(flatten)]
    pub common: CommonArgs,
    /// Bytes that each reader reads [default: 128MiB or four times the largest readahead, quick:
    /// 32MiB; less where memory is small]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub share: Option<u64>,
    /// Reserve so much for each of the own files (such as 8GiB) and use its first share: they lie as far
    /// apart as large files do, which matters to a disk that moves its heads [default: the share]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub apart: Option<u64>,
    /// Readers at once, each from 1 to 256 [default: 1,2,8,32, quick: 1,8]
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=256))]
    pub readers: Vec<u32>,
    /// What they read, from: own, one
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "own,one")]
    pub files: Vec<readahead::Files>,
    /// Size of a read, a multiple of 4KiB [default: 8KiB,128KiB, quick: 8KiB]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_size)]
    pub request: Vec<u64>,
    /// Readahead of the device; needs root [default: as it is and 4KiB,32KiB,128KiB,512KiB,2MiB,6MiB,24MiB,
    /// quick: as it is and 4KiB,128KiB,1MiB,6MiB]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_readahead)]
    pub readahead: Vec<u64>,
    /// How the readahead is varied, one of: device, descriptor [default: device where that is permitted]
    #[arg(long, value_name = "WAY")]
    pub by: Option<readahead::By>,
    /// Cache modes, from: buffered, direct
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_cache,
          default_value = "buffered,direct")]
    pub cache: Vec<CacheMode>,
    /// Leave out reading the beginning and the end of the disk
    #[arg(long)]
    pub skip_ends: bool,
    /// Longest measurement of a cell [default: 1500ms, quick: 250ms]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub time: Option<Duration>,
    /// Measurements of each cell [default: several, as time allows]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// Fewer cells and rounds, and smaller files: about twenty seconds
    #[arg(long)]
    pub quick: bool,
    /// What is written.
    #[command(flatten)]
    pub output: OutputArgs,
}

impl ReadaheadArgs {
    /// The quick settings, for `forebay lab` alone, which leaves the device's settings as they are: they
    /// are everybody's, and nobody asked for them to be changed.
    pub fn quick(common: &CommonArgs) -> ReadaheadArgs {
        ReadaheadArgs {
            common: common.clone(),
            share: None,
            apart: None,
            readers: Vec::new(),
            files: vec![readahead::Files::Own, readahead::Files::One],
            request: Vec::new(),
            readahead: Vec::new(),
            by: Some(readahead::By::Descriptor),
            cache: vec![CacheMode::Buffered, CacheMode::Direct],
            skip_ends: false,
            time: None,
            rounds: None,
            quick: true,
            output: OutputArgs::default(),
        }
    }
}

/// `forebay lab activation`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "A fresh descriptor reads one block after the other, and after each read the page cache is \
                  looked at: which pages are in memory that nobody asked for yet? So it is seen after how \
                  many reads the kernel begins to read ahead, how much it reads first (the initial \
                  window), and how that grows to the readahead that is set.\n\
                  Each cell is repeated from an emptied page cache, in a part of the file of its own, and \
                  it is told whether all repetitions agree.\n\
                  Starts: begin (byte 0 of the file, where the kernel expects a sequence), middle. \
                  Strides: the distance from one read to the next, in reads; 1 is a sequence, 2 leaves every \
                  other block out. Two interleaved streams are read through one descriptor and through \
                  two.\n\n\
                  Example: forebay lab activation --dir /mnt/data --hints normal --request 8KiB --strides 1,2,4"
)]
pub struct ActivationArgs {
    /// Where and with what.
    #[command(flatten)]
    pub common: CommonArgs,
    /// Size of the working file [default: 512MiB, quick: 128MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub size: Option<u64>,
    /// Size of a read, a multiple of 4KiB
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_size,
          default_value = "4KiB,8KiB")]
    pub request: Vec<u64>,
    /// Distances from one read to the next, in reads [default: 1,2,4,16, quick: 1,2]
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub strides: Vec<u32>,
    /// What the kernel is told, from: normal, random, sequential
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "normal,random,sequential"
    )]
    pub hints: Vec<activation::Told>,
    /// Where it begins, from: begin, middle
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "begin,middle")]
    pub starts: Vec<activation::Start>,
    /// Repetitions of each cell [default: 20, quick: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repetitions: Option<u32>,
    /// Fewer repetitions and strides, and a smaller file: a few seconds
    #[arg(long)]
    pub quick: bool,
    /// What is written.
    #[command(flatten)]
    pub output: OutputArgs,
}

impl ActivationArgs {
    /// The quick settings, for `forebay lab` alone.
    pub fn quick(common: &CommonArgs) -> ActivationArgs {
        ActivationArgs {
            common: common.clone(),
            size: None,
            request: vec![4096, 8192],
            strides: Vec::new(),
            hints: activation::Told::ALL.to_vec(),
            starts: activation::Start::ALL.to_vec(),
            repetitions: None,
            quick: true,
            output: OutputArgs::default(),
        }
    }
}

/// `forebay lab mixture`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Streams read ranges of a file from beginning to end, random readers read single blocks in \
                  another part of the same file. Each kind is measured alone, then both together, from \
                  an emptied page cache and after a time to settle, under each readahead: so it is seen \
                  who loses what. The readahead is varied as by `forebay lab readahead`.\n\n\
                  Example: forebay lab mixture --dir /mnt/data --streams 4 --random 8 --readahead 128KiB,6MiB"
)]
pub struct MixtureArgs {
    /// Where and with what.
    #[command(flatten)]
    pub common: CommonArgs,
    /// Size of the working file: one half for the streams, one for the random readers [default: 2GiB,
    /// quick: 512MiB; less where memory is small]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub size: Option<u64>,
    /// Readers that read a range each from beginning to end
    #[arg(long, value_name = "N", default_value_t = 4,
          value_parser = clap::value_parser!(u32).range(1..=256))]
    pub streams: u32,
    /// Readers of random blocks
    #[arg(long, value_name = "N", default_value_t = 4,
          value_parser = clap::value_parser!(u32).range(1..=256))]
    pub random: u32,
    /// Size of a read of both kinds, a multiple of 4KiB
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "8KiB")]
    pub request: u64,
    /// Readahead of the device; needs root [default: as it is and 32KiB,128KiB,512KiB,2MiB,6MiB, quick: as it
    /// is and 128KiB,2MiB]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_readahead)]
    pub readahead: Vec<u64>,
    /// How the readahead is varied, one of: device, descriptor [default: device where that is permitted]
    #[arg(long, value_name = "WAY")]
    pub by: Option<readahead::By>,
    /// Time that each cell is measured for, after half as long to settle [default: 4s, quick: 500ms]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub time: Option<Duration>,
    /// Measurements of each cell [default: 3, quick: 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// Fewer cells and rounds, and a smaller file: less than a minute
    #[arg(long)]
    pub quick: bool,
    /// What is written.
    #[command(flatten)]
    pub output: OutputArgs,
}
