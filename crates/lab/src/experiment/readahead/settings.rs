//! The settings of a run: what the user requested, with every default filled in and checked.

use std::time::Duration;

use clap::{Args, ValueEnum};
use forebay_io::CacheMode;
use serde::Serialize;

use super::control::{By, Control, Fadvise, Readahead};
use crate::args::{CommonArgs, OutputArgs, parse_cache};
use crate::experiment::Rounds;
use crate::experiment::schedule::Limits;
use forebay_measure::bad_input;
use forebay_measure::device_readahead::parse_readahead;
use forebay_measure::facts::Host;
use forebay_measure::lists::sorted;
use forebay_measure::lists::unique;
use forebay_measure::units::{parse_size, parse_time, shown_size};

/// The name of this experiment in records.
pub const NAME: &str = "readahead";

/// How long the device may take to finish what the kernel has begun to read ahead.
pub(super) const SETTLING_TIME_MAX: Duration = Duration::from_millis(200);

/// Bytes that carry a number, in every file.
pub(super) const BLOCK_BYTES: u64 = 8192;

/// Where streams begin in the middle of the file: at multiples of this, so that the kernel's alignment of
/// its windows is the same each time.
pub(super) const PLACE_BYTES: u64 = 4 << 20;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// The files for readers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Files {
    /// One file for each, as in a program with many tables
    Own,
    /// A range each of one file
    One,
}

/// A part of the experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// The rate of sequential readers.
    Throughput,
    /// When the kernel begins to read ahead.
    Activation,
    /// Streams together with random readers.
    Mixture,
}

/// Document 002's steps of readahead, from 8 to 49152 sectors.
const READAHEADS: [u64; 7] = [4 * KIB, 32 * KIB, 128 * KIB, 512 * KIB, 2 * MIB, 6 * MIB, 24 * MIB];

/// Enough values to see the shape.
const READAHEADS_QUICK: [u64; 4] = [4 * KIB, 128 * KIB, MIB, 6 * MIB];

/// A window that fits this many times into a share is small enough not to dominate the measurement.
const WINDOWS_IN_SHARE: u64 = 4;

/// The files of a run take at most this part of memory: pages that are read ahead must not be evicted
/// before they are read.
const MEMORY_DIVISOR: u64 = 4;

/// `forebay lab readahead`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "throughput: so many readers read at once, each its share from beginning to end, with \
                  plain reads of one size through the page cache, which is emptied before. Bytes are \
                  counted until the first reader has read its share or time is up. All readaheads are \
                  measured side by side, and more rounds are added until it is clear which of them is the \
                  smallest that is as good as the best.\n\
                  In addition, --cache direct reads past the page cache with large requests, many in \
                  flight: what the disk could give. As root the first and the last part of the disk are \
                  read too, since a disk that rotates is faster at its beginning.\n\n\
                  activation: a fresh descriptor reads one block after the other, and after each read the \
                  page cache is looked at: which pages are in memory before any read of them? This \
                  shows after how many reads the kernel begins to read ahead, how much it reads first (the \
                  initial window), and how that grows. The report says whether all repetitions agree. Two \
                  interleaved streams are read through one descriptor and through two.\n\n\
                  mixture: streams read ranges of a file, random readers read single blocks in another \
                  part of it. Each kind is measured alone, then both together, under each readahead: this \
                  shows which of them loses what.\n\n\
                  Example: forebay lab readahead --dir /mnt/data --readers 1,8 --files own --request 8KiB \
                  --readahead 128KiB,1MiB,6MiB\n\
                  Example: forebay lab readahead --parts activation --hints normal --strides 1,2,4\n\
                  Example: forebay lab readahead --parts mixture --streams 4 --random 8"
)]
pub struct ReadaheadArgs {
    /// The place and the conditions.
    #[command(flatten)]
    pub common: CommonArgs,
    /// What is measured: throughput of sequential readers, activation (when the kernel begins to read
    /// ahead), mixture (streams together with random readers)
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "throughput,activation"
    )]
    pub parts: Vec<Part>,
    /// How the readahead is varied [default: device where that is permitted]
    #[arg(long, value_name = "WAY")]
    pub set_via: Option<By>,
    /// Readahead of the device; needs root [default: as it is and 4KiB,32KiB,128KiB,512KiB,2MiB,6MiB,24MiB,
    /// quick: as it is and 4KiB,128KiB,1MiB,6MiB]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_readahead)]
    pub readahead: Vec<u64>,
    /// Size of a read, a multiple of 4KiB; mixture takes the smallest [default: 8KiB and for throughput
    /// 128KiB, for activation 4KiB; quick: 8KiB]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_size)]
    pub request: Vec<u64>,
    /// Longest measurement of a cell, of mixture twice that after as long to settle [quick: 250ms]
    #[arg(long, value_name = "TIME", value_parser = parse_time,
          default_value = "1500ms", default_value_if("quick", "true", "250ms"))]
    pub time: Duration,
    /// Measurements of each cell of throughput and mixture; 3+ is 3, for throughput more until it is decided
    /// [quick: 6+]
    #[arg(long, value_name = "N", default_value = "3+", default_value_if("quick", "true", "6+"))]
    pub rounds: Rounds,
    /// throughput: bytes that each reader reads, of one file at least [default: 128MiB or four times the
    /// largest readahead, quick: 32MiB; less where memory is small]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub share: Option<u64>,
    /// throughput: reserve this much for each of the own files (such as 8GiB) and use its first share: the distances
    /// are then those of large files, which matters to a disk that moves its heads [default: the share]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub spacing: Option<u64>,
    /// throughput: readers at once, each from 1 to 256 [quick: 1,8]
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=256),
          default_value = "1,2,8,32", default_value_if("quick", "true", "1,8"))]
    pub readers: Vec<u32>,
    /// throughput: the files that they read
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "own,one")]
    pub files: Vec<Files>,
    /// throughput: cache modes, from: buffered, direct
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_cache,
          default_value = "buffered,direct")]
    pub cache: Vec<CacheMode>,
    /// throughput: leave out reading the beginning and the end of the disk
    #[arg(long)]
    pub skip_ends: bool,
    /// activation and mixture: size of the working file [default: 512MiB, quick: 128MiB; with mixture 2GiB,
    /// quick: 512MiB; less where memory is small]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub size: Option<u64>,
    /// activation: distances from one read to the next, in reads; 1 is a sequence, 2 skips every other
    /// block [quick: 1,2]
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=4096),
          default_value = "1,2,4,16", default_value_if("quick", "true", "1,2"))]
    pub strides: Vec<u32>,
    /// activation: the advice that the kernel gets
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "normal,random,sequential"
    )]
    pub hints: Vec<Fadvise>,
    /// activation: repetitions of each cell [quick: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000),
          default_value = "20", default_value_if("quick", "true", "5"))]
    pub repetitions: u32,
    /// mixture: readers that each read a range from beginning to end
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
    /// The output files.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Settings, and the values that follow from them and from the disk.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The user's options; in lists each item once, and numbers ascend.
    pub(super) args: ReadaheadArgs,
    pub(super) control: Control,
    /// The parts to measure, ascending.
    pub(super) readaheads: Vec<Readahead>,
    /// Bytes that each reader reads when the number of readers is highest.
    pub(super) share_bytes: u64,
    /// Size of the file that all parts share, in bytes.
    pub(super) size_bytes: u64,
}

impl Settings {
    /// Fills in the missing values of `args` and refuses invalid ones.
    ///
    /// # Errors
    /// [`BadInput`](forebay_measure::BadInput), naming the option.
    pub fn new(mut args: ReadaheadArgs) -> anyhow::Result<Settings> {
        let is_odd = |request: &&u64| !request.is_multiple_of(4096) || **request > 64 * MIB;
        if let Some(request) = args.request.iter().find(is_odd) {
            bad_input!("--request {request}: it should be a multiple of 4KiB, at most 64MiB");
        }
        args.parts = unique(&args.parts);
        args.readers = sorted(&args.readers);
        args.files = unique(&args.files);
        args.cache = unique(&args.cache);
        args.strides = sorted(&args.strides);
        args.hints = unique(&args.hints);
        let control = Control::look(&args.common.dir, args.set_via, !args.readahead.is_empty())?;
        let defaults: &[u64] = if args.quick { &READAHEADS_QUICK } else { &READAHEADS };
        let readaheads = control.readaheads(&args.readahead, defaults);
        let mut settings = Settings { args, control, readaheads, share_bytes: 0, size_bytes: 0 };
        let memory_bytes = Host::read().memory_bytes.map_or(u64::MAX, |all| all / MEMORY_DIVISOR);
        settings.share_bytes = settings.checked_share(memory_bytes)?;
        settings.size_bytes = settings.checked_size(memory_bytes)?;
        Ok(settings)
    }

    /// How long there are rounds of throughput.
    pub(super) fn limits(&self) -> Limits {
        self.args.rounds.limits(if self.args.quick { 24 } else { 900 })
    }

    /// Sizes of a read in `part`, in bytes, ascending; mixture takes the first.
    pub(super) fn requests(&self, part: Part) -> Vec<u64> {
        match part {
            _ if !self.args.request.is_empty() => sorted(&self.args.request),
            Part::Throughput if !self.args.quick => vec![8 * KIB, 128 * KIB],
            Part::Activation if !self.args.quick => vec![4 * KIB, 8 * KIB],
            _ => vec![8 * KIB],
        }
    }

    fn checked_share(&self, memory_bytes: u64) -> anyhow::Result<u64> {
        let default = if self.args.quick { 32 * MIB } else { 128 * MIB };
        let widest = self.readaheads.iter().filter_map(|readahead| readahead.bytes).max();
        let share = share_for(default, widest.unwrap_or(0), self.readers_max(), memory_bytes);
        let share = self.args.share.unwrap_or(share);
        if share < BLOCK_BYTES || !share.is_multiple_of(BLOCK_BYTES) {
            bad_input!("--share {share}: it should be a multiple of 8KiB");
        }
        if let Some(spacing) = self.args.spacing.filter(|&spacing| spacing < share) {
            bad_input!("--spacing {spacing}: it should be no less than --share {share}");
        }
        Ok(share)
    }

    /// The size of the part that needs most; almost nothing if no part reads the file.
    fn checked_size(&self, memory_bytes: u64) -> anyhow::Result<u64> {
        let (args, mut size_bytes) = (&self.args, BLOCK_BYTES);
        let scale = if args.quick { 1 } else { 4 };
        if self.has(Part::Throughput) && args.files.contains(&Files::One) {
            size_bytes = u64::from(self.readers_max()) * self.share_bytes;
        }
        let readers = u64::from(args.streams.max(args.random));
        let mixture_least = (readers * self.requests(Part::Mixture)[0] * 32).max(MIB);
        for (part, default, least) in [
            (Part::Activation, scale * 128 * MIB, 8 * PLACE_BYTES),
            (Part::Mixture, (scale * 512 * MIB).min(memory_bytes / MIB * MIB), mixture_least),
        ] {
            let bytes = args.size.unwrap_or(default);
            if self.has(part) && (bytes < least || !bytes.is_multiple_of(2 * BLOCK_BYTES)) {
                let least = shown_size(least);
                bad_input!("--size {bytes}: it takes at least {least}, in multiples of 16KiB");
            }
            size_bytes = size_bytes.max(if self.has(part) { bytes } else { 0 });
        }
        Ok(size_bytes)
    }

    pub(super) fn has(&self, part: Part) -> bool {
        self.args.parts.contains(&part)
    }

    /// The most readers at once.
    pub(super) fn readers_max(&self) -> u32 {
        self.args.readers.last().copied().unwrap_or(1)
    }

    /// Number of files that readers do not share.
    pub(super) fn own_files(&self) -> u32 {
        let wanted = self.has(Part::Throughput) && self.args.files.contains(&Files::Own);
        if wanted { self.readers_max() } else { 0 }
    }
}

/// A share that is a few times the `widest` readahead, if `memory_bytes` suffice for all `readers`.
fn share_for(default: u64, widest: u64, readers: u32, memory_bytes: u64) -> u64 {
    let wanted = default.max(widest.saturating_mul(WINDOWS_IN_SHARE));
    // Whole mebibytes; at least one.
    wanted.min((memory_bytes / u64::from(readers)).max(MIB)) / MIB * MIB
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Experiment, typed};

    const GIB: u64 = 1 << 30;

    #[test]
    fn a_share_holds_several_windows_and_all_of_them_fit_into_memory() {
        assert_eq!(share_for(128 * MIB, 24 * MIB, 32, u64::MAX), 128 * MIB);
        assert_eq!(share_for(32 * MIB, 24 * MIB, 8, 16 * GIB), 96 * MIB);
        assert_eq!(share_for(128 * MIB, 24 * MIB, 32, GIB), 32 * MIB);
        assert_eq!(share_for(128 * MIB, 24 * MIB, 256, GIB / 32), MIB);
    }

    /// The settings with `options` in addition to those of `forebay lab` alone.
    fn settings(options: &str) -> anyhow::Result<Settings> {
        Settings::new(typed(&format!("--quick --set-via descriptor {options}")))
    }

    #[test]
    fn everything_at_once_leaves_the_device_alone() {
        let settings = settings("").unwrap();
        assert_eq!(settings.control.file, None);
        assert_eq!(settings.readaheads.len(), 3);
        assert_eq!(settings.args.readers, [1, 8]);
        assert_eq!(settings.args.parts, [Part::Throughput, Part::Activation]);
    }

    #[test]
    fn requests_differ_by_part_unless_they_are_given() {
        let requests = |options: &str| {
            let settings = Settings::new(typed(options)).unwrap();
            [Part::Throughput, Part::Activation, Part::Mixture].map(|part| settings.requests(part))
        };
        let kib = |sizes: &[u64]| sizes.iter().map(|size| size * KIB).collect::<Vec<u64>>();
        assert_eq!(requests(""), [kib(&[8, 128]), kib(&[4, 8]), kib(&[8])]);
        assert_eq!(requests("--quick"), [(); 3].map(|()| kib(&[8])));
        assert_eq!(requests("--request 64KiB,4KiB,64KiB"), [(); 3].map(|()| kib(&[4, 64])));
    }

    #[test]
    fn what_all_files_take_is_reported() {
        let all = |files: &str| -> u64 {
            let options = format!("--parts throughput --share 4MiB --files {files}");
            settings(&options).unwrap().space_bytes()
        };
        assert_eq!(all("one,own"), 2 * 8 * 4 * MIB);
        assert_eq!(all("one"), 8 * 4 * MIB);
        assert_eq!(all("own"), 8 * 4 * MIB + BLOCK_BYTES);
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_the_name_of_the_option() {
        for (options, expected) in [
            ("--request 1000", "--request 1000"),
            ("--share 5000", "--share 5000"),
            ("--share 1MiB --spacing 4096", "--spacing 4096"),
            ("--readahead 4096", "--readahead"),
            ("--size 4096", "--size 4096"),
            ("--parts mixture --size 8192", "--size 8192"),
        ] {
            let error = settings(options).unwrap_err();
            assert!(error.is::<forebay_measure::BadInput>());
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
}
