//! The command line of the experiment on the kernel's readahead.

use std::time::Duration;

use clap::{Args, Command, FromArgMatches};
use forebay_io::CacheMode;

use super::{By, Files, Part, Start, Told};
use crate::cli::{CommonArgs, OutputArgs, parse_cache};
use crate::device_readahead::parse_readahead;
use crate::units::parse_size;

/// `forebay lab readahead`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "throughput: so many readers read at once, each its share from beginning to end, with \
                  plain reads of one size through the page cache, which is emptied before. Bytes are \
                  counted until the first reader has read its share or time is up. All readaheads are \
                  measured side by side, and more rounds are added until it is clear which of them is the \
                  smallest that is as good as the best.\n\
                  Files: own (a file for each reader, as a program with many tables has it), one (each \
                  reader has a range of its own in one file).\n\
                  The readahead is varied in one of two ways. By the device: root sets what \
                  `blockdev --setra` sets (of a filesystem without a device, such as FUSE, what \
                  /sys/class/bdi says), and the value found is put back at the end, also after Ctrl-C. \
                  By descriptor, for everybody: FADV_RANDOM is no readahead, NORMAL the device's, \
                  SEQUENTIAL twice that.\n\
                  Beside that, --cache direct reads past the page cache with large requests, many in \
                  flight: what the disk could give.\n\n\
                  activation: a fresh descriptor reads one block after the other, and after each read the \
                  page cache is looked at: which pages are in memory that nobody asked for yet? So it is \
                  seen after how many reads the kernel begins to read ahead, how much it reads first (the \
                  initial window), and how that grows. It is told whether all repetitions agree. Two \
                  interleaved streams are read through one descriptor and through two.\n\n\
                  mixture: streams read ranges of a file, random readers read single blocks in another \
                  part of it. Each kind is measured alone, then both together, under each readahead: so it \
                  is seen who loses what.\n\n\
                  Example: forebay lab readahead --dir /mnt/data --readers 1,8 --files own --request 8KiB \
                  --readahead 128KiB,1MiB,6MiB\n\
                  Example: forebay lab readahead --parts activation --hints normal --strides 1,2,4\n\
                  Example: forebay lab readahead --parts mixture --streams 4 --random 8"
)]
pub struct ReadaheadArgs {
    /// Where and with what.
    #[command(flatten)]
    pub common: CommonArgs,
    /// What is measured: throughput of sequential readers, activation (when the kernel begins to read
    /// ahead), mixture (streams beside random readers)
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "throughput,activation"
    )]
    pub parts: Vec<Part>,
    /// How the readahead is varied [default: device where that is permitted]
    #[arg(long, value_name = "WAY")]
    pub by: Option<By>,
    /// Readahead of the device; needs root [default: as it is and 4KiB,32KiB,128KiB,512KiB,2MiB,6MiB,24MiB,
    /// quick: as it is and 4KiB,128KiB,1MiB,6MiB]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_readahead)]
    pub readahead: Vec<u64>,
    /// Size of a read, a multiple of 4KiB; mixture takes the smallest [default: 8KiB and for throughput
    /// 128KiB, for activation 4KiB; quick: 8KiB]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_size)]
    pub request: Vec<u64>,
    /// Longest measurement of a cell, of mixture after half as long to settle [default: 1500ms, mixture 3s,
    /// quick: 250ms, mixture 500ms]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub time: Option<Duration>,
    /// Measurements of each cell of throughput and mixture [default: 3, of throughput more until it is
    /// decided]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// throughput: bytes that each reader reads, of one file at least [default: 128MiB or four times the
    /// largest readahead, quick: 32MiB; less where memory is small]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub share: Option<u64>,
    /// throughput: reserve so much for each of the own files (such as 8GiB) and use its first share: they lie
    /// as far apart as large files do, which matters to a disk that moves its heads [default: the share]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub apart: Option<u64>,
    /// throughput: readers at once, each from 1 to 256 [default: 1,2,8,32, quick: 1,8]
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=256))]
    pub readers: Vec<u32>,
    /// throughput: what they read
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "own,one")]
    pub files: Vec<Files>,
    /// throughput: cache modes, from: buffered, direct
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_cache,
          default_value = "buffered,direct")]
    pub cache: Vec<CacheMode>,
    /// activation and mixture: size of the working file [default: 512MiB, quick: 128MiB; with mixture 2GiB,
    /// quick: 512MiB; less where memory is small]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub size: Option<u64>,
    /// activation: distances from one read to the next, in reads; 1 is a sequence, 2 leaves every other block
    /// out [default: 1,2,4,16, quick: 1,2]
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub strides: Vec<u32>,
    /// activation: what the kernel is told
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "normal,random,sequential"
    )]
    pub hints: Vec<Told>,
    /// activation: where in the file it begins; at byte 0 the kernel expects a sequence
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "begin,middle")]
    pub starts: Vec<Start>,
    /// activation: repetitions of each cell [default: 20, quick: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repetitions: Option<u32>,
    /// mixture: readers that read a range each from beginning to end
    #[arg(long, value_name = "N", default_value_t = 4,
          value_parser = clap::value_parser!(u32).range(1..=256))]
    pub streams: u32,
    /// mixture: readers of random blocks
    #[arg(long, value_name = "N", default_value_t = 4,
          value_parser = clap::value_parser!(u32).range(1..=256))]
    pub random: u32,
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
        let line = ["", "--quick", "--files", "own", "--by", "descriptor"];
        let matches = ReadaheadArgs::augment_args(Command::new("quick")).get_matches_from(line);
        let args = ReadaheadArgs::from_arg_matches(&matches).expect("options of its own");
        ReadaheadArgs { common: common.clone(), ..args }
    }
}
