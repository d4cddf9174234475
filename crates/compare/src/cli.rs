//! The command line, and the settings that result from it.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use forebay_measure::units::{parse_size, shown_size};
use serde::Serialize;

use crate::peer::Kind;
use forebay_measure::bad_input;

/// A file this many times the memory is "much larger".
const FILE_TIMES_MIN: u64 = 4;

/// Frames for each thread: peers may fail when every frame is pinned.
const FRAMES_PER_THREAD_MIN: u64 = 4;

/// Compare Forebay's buffer pool with its peers.
#[derive(Debug, Parser)]
#[command(
    name = "forebay-compare",
    version,
    about,
    after_help = "Each cell (case, threads, peer) is measured once in every round, the peers in \
                  shuffled order one after the other; medians are reported with the lowest and \
                  highest. Every page read is checked.\n\n\
                  resident: random reads of a working set of 3/4 of the memory, all of it in memory.\n\
                  missing:  the memory full of other pages, the kernel's page cache emptied, each \
                  block read at most once in random order, so that every read goes to the device; \
                  ends early when all are read.\n\n\
                  The working files (up to three times --file-size) are made in --dir and are removed \
                  afterwards, also after Ctrl-C."
)]
pub(crate) struct Args {
    /// Directory on the disk to measure
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) dir: PathBuf,
    /// Size of each peer's file
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "2GiB")]
    pub(crate) file_size: u64,
    /// Memory for pages that each peer gets
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "64MiB")]
    pub(crate) memory: u64,
    /// Size of a page, a power of two from 4KiB to 64KiB
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "8KiB")]
    pub(crate) page_size: u64,
    /// Numbers of threads
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,2,4,8,16,32,64",
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) threads: Vec<u32>,
    /// Length of one measurement
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = parse_seconds)]
    pub(crate) seconds: f64,
    /// Measurements of each cell
    #[arg(long, value_name = "N", default_value = "5",
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: u32,
    /// Peers to measure
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        value_enum,
        default_value = "page-db,lru-locked,lru-unlocked,quick-cache,moka,forebay-buffered,forebay-direct,\
                         pread-buffered,pread-direct"
    )]
    pub(crate) peers: Vec<Kind>,
    /// Cases to measure
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        value_enum,
        default_value = "resident,missing"
    )]
    pub(crate) cases: Vec<Case>,
    /// Instead: compare look-ups of a B+tree with vmcache's rndread, or TPC-C. PROGRAM is vmcache, built by `make` in its sources
    /// (github.com/viktorleis/vmcache; it needs libaio-dev). --memory is in whole GiB then, and --file-size,
    /// --page-size, --peers and --cases have no effect
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) vmcache: Option<PathBuf>,
    /// With --vmcache: TPC-C with so many warehouses, which need half a GiB each, twice
    #[arg(long, value_name = "N", requires = "vmcache", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) tpcc: Option<u32>,
    /// With --vmcache, look-ups: entries of 128 bytes
    #[arg(long, value_name = "N", default_value = "22000000",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) entries: u64,
    /// With --vmcache: seconds to run it, and TPC-C of both, before the counted ones, to write out the inserted data
    #[arg(long, value_name = "SECONDS", default_value = "0",
          value_parser = clap::value_parser!(u64).range(..=3600))]
    pub(crate) settle: u64,
    /// Seed of all random numbers; in the records, so that a run can be repeated
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Write the records to this file as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

/// Where the pages are that are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Case {
    /// All in the peer's memory.
    Resident,
    /// No page is in the peer's memory or in the kernel's page cache.
    Missing,
}

impl Case {
    /// The name on the command line and in the records.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Case::Resident => "resident",
            Case::Missing => "missing",
        }
    }
}

/// The settings of a measurement, checked.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Settings {
    #[serde(skip)]
    pub(crate) directory: PathBuf,
    pub(crate) page_bytes: usize,
    /// Pages in each peer's file.
    pub(crate) blocks: u32,
    /// Pages that fit into the memory of each peer.
    pub(crate) frames: u32,
    pub(crate) memory_bytes: u64,
    pub(crate) threads: Vec<u32>,
    #[serde(rename = "seconds", serialize_with = "as_seconds")]
    pub(crate) duration: Duration,
    pub(crate) rounds: u32,
    #[serde(skip)]
    pub(crate) peers: Vec<Kind>,
    pub(crate) cases: Vec<Case>,
    pub(crate) seed: u64,
}

impl Settings {
    /// Checks that `args` fit together.
    ///
    /// # Errors
    /// [`BadInput`](forebay_measure::BadInput).
    pub(crate) fn new(args: &Args) -> anyhow::Result<Settings> {
        let page = args.page_size;
        if !page.is_power_of_two() || !(4096..=65536).contains(&page) {
            bad_input!("--page-size is {page}: a power of two from 4KiB to 64KiB is expected");
        }
        let (frames, blocks) = (args.memory / page, args.file_size / page);
        let threads_max = args.threads.iter().max().copied().unwrap_or(1);
        let frames_min = FRAMES_PER_THREAD_MIN * u64::from(threads_max);
        if frames < frames_min {
            bad_input!(
                "--memory {} is too little for {threads_max} threads: {frames_min} pages, {}, are \
                 needed",
                shown_size(args.memory),
                shown_size(frames_min * page)
            );
        }
        if args.file_size < FILE_TIMES_MIN.saturating_mul(args.memory) {
            bad_input!(
                "--file-size {} is too small for --memory {}: make it {FILE_TIMES_MIN} times \
                 as large",
                shown_size(args.file_size),
                shown_size(args.memory)
            );
        }
        let (Ok(frames), Ok(blocks)) = (u32::try_from(frames), u32::try_from(blocks)) else {
            bad_input!("--file-size {} is more than 2^32 pages", shown_size(args.file_size));
        };
        Ok(Settings {
            directory: args.dir.clone(),
            page_bytes: page as usize,
            blocks,
            frames,
            memory_bytes: args.memory,
            threads: in_order(&args.threads),
            duration: Duration::from_secs_f64(args.seconds),
            rounds: args.rounds,
            peers: in_order(&args.peers),
            cases: in_order(&args.cases),
            seed: args.seed.unwrap_or_else(|| fastrand::u64(..1 << 32)),
        })
    }

    /// Size of each peer's file, in bytes.
    pub(crate) fn file_bytes(&self) -> u64 {
        u64::from(self.blocks) * self.page_bytes as u64
    }

    /// Pages of the working set that stays in memory: 3/4 of the memory, so that an uneven split of it
    /// does not matter.
    pub(crate) fn resident_blocks(&self) -> u32 {
        self.frames / 4 * 3
    }

    /// Measurements in all.
    pub(crate) fn measurements(&self) -> u64 {
        let cells = self.cases.len() * self.threads.len() * self.peers.len();
        cells as u64 * u64::from(self.rounds)
    }
}

/// `named` in its order, each once.
fn in_order<T: Copy + PartialEq>(named: &[T]) -> Vec<T> {
    let mut once = Vec::new();
    for &one in named {
        if !once.contains(&one) {
            once.push(one);
        }
    }
    once
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.01..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("a number of seconds from 0.01 to 3600 is expected".to_owned()),
    }
}

fn as_seconds<S: serde::Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(duration.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn settings(line: &[&str]) -> anyhow::Result<Settings> {
        let all = ["forebay-compare"].iter().chain(line);
        Settings::new(&Args::try_parse_from(all)?)
    }

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
        let usual = settings(&[]).unwrap();
        assert_eq!((usual.frames, usual.blocks), (8192, 262_144));
    }

    #[test]
    fn settings_that_do_not_fit_together_are_bad_input() {
        for line in [
            ["--page-size", "5000"],
            ["--page-size", "2KiB"],
            ["--memory", "1MiB"],
            ["--file-size", "128MiB"],
            ["--file-size", "100TiB"],
        ] {
            let error = settings(&line).unwrap_err();
            assert!(error.is::<forebay_measure::BadInput>(), "{line:?}: {error}");
        }
    }

    #[test]
    fn what_is_named_twice_is_measured_once() {
        assert_eq!(settings(&["--threads", "4,1,4"]).unwrap().threads, [4, 1]);
    }
}
