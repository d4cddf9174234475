//! The settings of a run: what the user asked for, with every default filled in and checked.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use forebay_io::CacheMode;
use serde::Serialize;

use super::activation::PLACE_BYTES;
use super::files::{BLOCK_BYTES, Files};
use super::knob::{By, Knob, Readahead, Told};
use crate::bad_input;
use crate::cli::ReadaheadArgs;
use crate::device_readahead::typed_readahead;
use crate::experiment::{listed, quoted, unique};
use crate::facts::Host;
use crate::statistics::ROUNDS_MIN;
use crate::units::{shown_size, typed_size};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// What sequential readers get.
    Throughput,
    /// When the kernel begins to read ahead.
    Activation,
    /// Streams beside random readers.
    Mixture,
}

/// What is measured unless the user says otherwise.
struct Defaults {
    share_bytes: u64,
    readers: &'static [u32],
    requests: &'static [u64],
    readaheads: &'static [u64],
    time: Duration,
    /// No round is added later than this after the first ones.
    time_added: Duration,
    activation_bytes: u64,
    activation_requests: &'static [u64],
    strides: &'static [u32],
    repetitions: u32,
    mixture_bytes: u64,
}

/// Document 002's steps of readahead, from 8 to 49152 sectors, and its readers.
const FULL: Defaults = Defaults {
    share_bytes: 128 * MIB,
    readers: &[1, 2, 8, 32],
    requests: &[8 * KIB, 128 * KIB],
    readaheads: &[4 * KIB, 32 * KIB, 128 * KIB, 512 * KIB, 2 * MIB, 6 * MIB, 24 * MIB],
    time: Duration::from_millis(1500),
    time_added: Duration::from_secs(240),
    activation_bytes: 512 * MIB,
    activation_requests: &[4 * KIB, 8 * KIB],
    strides: &[1, 2, 4, 16],
    repetitions: 20,
    mixture_bytes: 2048 * MIB,
};

/// Enough to see the shape.
const QUICK: Defaults = Defaults {
    share_bytes: 32 * MIB,
    readers: &[1, 8],
    requests: &[8 * KIB],
    readaheads: &[4 * KIB, 128 * KIB, MIB, 6 * MIB],
    time: Duration::from_millis(250),
    time_added: Duration::from_secs(8),
    activation_bytes: 128 * MIB,
    activation_requests: &[8 * KIB],
    strides: &[1, 2],
    repetitions: 5,
    mixture_bytes: 512 * MIB,
};

/// A window this many times in a share is small enough not to be all that is measured.
const WINDOWS_IN_SHARE: u64 = 4;

/// The files of a run take at most this part of memory: what is read ahead must not be thrown out again
/// before it is read.
const MEMORY_DIVISOR: u64 = 4;

/// Settings with every default filled in and checked.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What was asked for; in lists with defaults these, and each item once.
    pub(super) args: ReadaheadArgs,
    /// Absolute directory of the working files.
    pub(super) directory: PathBuf,
    pub(super) knob: Knob,
    /// What is measured, ascending.
    pub(super) readaheads: Vec<Readahead>,
    /// Bytes that each of the most readers reads.
    pub(super) share_bytes: u64,
    /// Size of the file that all parts share, in bytes.
    pub(super) size_bytes: u64,
    /// Sizes of a read of throughput, in bytes, ascending.
    pub(super) requests: Vec<u64>,
    /// Sizes of a read of activation, in bytes, ascending.
    pub(super) activation_requests: Vec<u64>,
    /// Size of a read of mixture, in bytes.
    pub(super) mixture_request: u64,
    /// Measurements of each cell, at least.
    pub(super) rounds: u32,
    /// No round is added later than this after the first ones.
    pub(super) time_added: Duration,
    /// Longest measurement of a cell.
    pub(super) time: Duration,
    /// The same of a cell of mixture.
    pub(super) mixture_time: Duration,
    pub(super) repetitions: u32,
    /// Seed of everything random.
    pub(super) seed: u64,
}

impl Settings {
    /// Fills in what `args` leave open and refuses what makes no sense.
    ///
    /// # Errors
    /// [`BadInput`](crate::BadInput), naming the option.
    pub fn new(args: &ReadaheadArgs) -> anyhow::Result<Settings> {
        let defaults = if args.quick { &QUICK } else { &FULL };
        let directory = args.common.dir.clone();
        let directory = std::fs::canonicalize(&directory).unwrap_or(directory);
        let is_odd = |request: &&u64| !request.is_multiple_of(4096) || **request > 64 * MIB;
        if let Some(request) = args.request.iter().find(is_odd) {
            bad_input!("--request {request}: it should be a multiple of 4KiB, at most 64MiB");
        }
        let knob = Knob::look(&directory, args.by, !args.readahead.is_empty())?;
        let args = ReadaheadArgs {
            parts: unique(&args.parts),
            readers: sorted(&args.readers, defaults.readers),
            files: unique(&args.files),
            cache: unique(&args.cache),
            strides: sorted(&args.strides, defaults.strides),
            hints: unique(&args.hints),
            starts: unique(&args.starts),
            ..args.clone()
        };
        let mut settings = Settings {
            directory,
            readaheads: knob.readaheads(&args.readahead, defaults.readaheads),
            knob,
            share_bytes: 0,
            size_bytes: BLOCK_BYTES,
            requests: sorted(&args.request, defaults.requests),
            activation_requests: sorted(&args.request, defaults.activation_requests),
            mixture_request: args.request.iter().min().copied().unwrap_or(BLOCK_BYTES),
            rounds: args.rounds.unwrap_or(ROUNDS_MIN as u32),
            time_added: if args.rounds.is_some() { Duration::ZERO } else { defaults.time_added },
            time: args.time.unwrap_or(defaults.time),
            mixture_time: args.time.unwrap_or(2 * defaults.time),
            repetitions: args.repetitions.unwrap_or(defaults.repetitions),
            seed: args.common.seed.unwrap_or_else(|| fastrand::u64(..1 << 32)),
            args,
        };
        settings.share_bytes = settings.checked_share(defaults)?;
        settings.size_bytes = settings.checked_size(defaults)?;
        Ok(settings)
    }

    fn checked_share(&self, defaults: &Defaults) -> anyhow::Result<u64> {
        let share_bytes = self.args.share.unwrap_or_else(|| {
            let widest = self.readaheads.iter().filter_map(|readahead| readahead.bytes).max();
            let memory_bytes = Host::read().memory_bytes;
            share_for(defaults.share_bytes, widest.unwrap_or(0), self.readers_max(), memory_bytes)
        });
        if share_bytes < BLOCK_BYTES || !share_bytes.is_multiple_of(BLOCK_BYTES) {
            bad_input!("--share {share_bytes}: it should be a multiple of 8KiB");
        }
        if let Some(apart) = self.args.apart.filter(|&apart| apart < share_bytes) {
            bad_input!("--apart {apart}: it should be no less than --share {share_bytes}");
        }
        Ok(share_bytes)
    }

    /// As large as the part needs it that needs most; hardly anything where nobody reads it.
    fn checked_size(&self, defaults: &Defaults) -> anyhow::Result<u64> {
        let (asked, mut size_bytes) = (self.args.size, BLOCK_BYTES);
        if self.has(Part::Throughput) && self.args.files.contains(&Files::One) {
            size_bytes = u64::from(self.readers_max()) * self.share_bytes;
        }
        if self.has(Part::Activation) {
            let bytes = asked.unwrap_or(defaults.activation_bytes);
            if bytes < 8 * PLACE_BYTES {
                bad_input!("--size {bytes}: it should be at least {}", shown_size(8 * PLACE_BYTES));
            }
            size_bytes = size_bytes.max(bytes);
        }
        if self.has(Part::Mixture) {
            let most = Host::read().memory_bytes.map_or(u64::MAX, |memory| memory / MEMORY_DIVISOR);
            let bytes = asked.unwrap_or(defaults.mixture_bytes.min(most / MIB * MIB));
            let readers = u64::from(self.args.streams.max(self.args.random));
            let least = (readers * self.mixture_request * 32).max(MIB);
            if bytes < least || !bytes.is_multiple_of(2 * BLOCK_BYTES) {
                bad_input!(
                    "--size {bytes}: so many readers need at least {}, in multiples of 16KiB",
                    shown_size(least)
                );
            }
            size_bytes = size_bytes.max(bytes);
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

    /// Files of their own that readers need.
    pub(super) fn own_files(&self) -> u32 {
        let wanted = self.has(Part::Throughput) && self.args.files.contains(&Files::Own);
        if wanted { self.readers_max() } else { 0 }
    }

    /// The readahead of a descriptor that is told so while the device's is as it was found.
    pub(super) fn told(&self, told: Told) -> Readahead {
        Readahead::descriptor(told, self.knob.found_bytes)
    }

    /// The command that repeats a run with these settings. `program`: the path or name by which this
    /// program was called.
    pub fn command(&self, program: &str) -> String {
        let args = &self.args;
        let directory = quoted(&self.directory.display().to_string());
        let mut command = format!("{} lab readahead --dir {directory}", quoted(program));
        let mut option = |name: &str, value: String| {
            command.push_str(&format!(" --{name} {value}"));
        };
        option("parts", names(&args.parts));
        option("by", names(&[self.knob.by]));
        if self.knob.by == By::Device {
            let values = self.readaheads.iter().filter_map(|readahead| readahead.bytes);
            option("readahead", listed(&values.map(typed_readahead).collect::<Vec<_>>()));
        }
        if self.has(Part::Throughput) {
            option("share", typed_size(self.share_bytes));
            option("readers", listed(&args.readers));
            option("files", names(&args.files));
            let cache = |mode: &CacheMode| format!("{mode:?}").to_lowercase();
            option("cache", listed(&args.cache.iter().map(cache).collect::<Vec<_>>()));
        }
        if self.has(Part::Activation) {
            option("strides", listed(&args.strides));
            option("hints", names(&args.hints));
            option("starts", names(&args.starts));
            option("repetitions", self.repetitions.to_string());
        }
        if self.has(Part::Mixture) {
            option("streams", args.streams.to_string());
            option("random", args.random.to_string());
        }
        let optional = [
            ("request", (!args.request.is_empty()).then(|| sizes(&args.request))),
            ("size", args.size.map(typed_size)),
            ("apart", args.apart.map(typed_size)),
            ("time", args.time.map(|time| quoted(&humantime::format_duration(time).to_string()))),
            ("rounds", args.rounds.map(|rounds| rounds.to_string())),
            ("seed", Some(self.seed.to_string())),
        ];
        for (name, value) in optional {
            value.into_iter().for_each(|value| option(name, value));
        }
        for (flag, is_set) in [(" --skip-ends", args.skip_ends), (" --quick", args.quick)] {
            command.push_str(if is_set { flag } else { "" });
        }
        command
    }
}

fn names<T: ValueEnum>(items: &[T]) -> String {
    let values = items.iter().filter_map(ValueEnum::to_possible_value);
    listed(&values.map(|value| value.get_name().to_owned()).collect::<Vec<_>>())
}

fn sizes(bytes: &[u64]) -> String {
    listed(&bytes.iter().copied().map(typed_size).collect::<Vec<_>>())
}

/// What was asked for or else the defaults, ascending, each once.
fn sorted<T: Copy + Ord>(asked: &[T], defaults: &[T]) -> Vec<T> {
    let mut items = if asked.is_empty() { defaults.to_vec() } else { asked.to_vec() };
    items.sort_unstable();
    items.dedup();
    items
}

/// A share that is a few times the `widest` readahead, as far as memory allows for all `readers`.
fn share_for(default: u64, widest: u64, readers: u32, memory_bytes: Option<u64>) -> u64 {
    let wanted = default.max(widest.saturating_mul(WINDOWS_IN_SHARE));
    let most = memory_bytes.map_or(u64::MAX, |memory| memory / MEMORY_DIVISOR / u64::from(readers));
    // Of what is left, whole mebibytes; at least one of them.
    wanted.min(most.max(MIB)) / MIB * MIB
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::CommonArgs;
    use crate::experiment::Experiment;

    const GIB: u64 = 1 << 30;

    #[test]
    fn a_share_holds_several_windows_and_all_of_them_fit_into_memory() {
        assert_eq!(share_for(128 * MIB, 24 * MIB, 32, None), 128 * MIB);
        assert_eq!(share_for(32 * MIB, 24 * MIB, 8, Some(64 * GIB)), 96 * MIB);
        assert_eq!(share_for(128 * MIB, 24 * MIB, 32, Some(4 * GIB)), 32 * MIB);
        assert_eq!(share_for(128 * MIB, 24 * MIB, 256, Some(GIB / 8)), MIB);
    }

    fn args() -> ReadaheadArgs {
        let common = CommonArgs { dir: ".".into(), seed: Some(1) };
        ReadaheadArgs::quick(&common)
    }

    #[test]
    fn everything_at_once_leaves_the_device_alone() {
        let settings = Settings::new(&args()).unwrap();
        assert_eq!(settings.knob.by, By::Descriptor);
        assert_eq!(settings.readaheads.len(), 3);
        assert_eq!(settings.args.readers, [1, 8]);
        assert_eq!(settings.args.parts, [Part::Throughput, Part::Activation]);
    }

    #[test]
    fn what_all_files_take_is_told() {
        let share = Some(4 * MIB);
        let all = |files: Vec<Files>| -> u64 {
            let parts = vec![Part::Throughput];
            let settings = Settings::new(&ReadaheadArgs { parts, share, files, ..args() }).unwrap();
            settings.space_bytes()
        };
        assert_eq!(all(vec![Files::One, Files::Own]), 2 * 8 * 4 * MIB);
        assert_eq!(all(vec![Files::One]), 8 * 4 * MIB);
        assert_eq!(all(vec![Files::Own]), 8 * 4 * MIB + BLOCK_BYTES);
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_the_name_of_the_option() {
        for (args, expected) in [
            (ReadaheadArgs { request: vec![1000], ..args() }, "--request 1000"),
            (ReadaheadArgs { share: Some(5000), ..args() }, "--share 5000"),
            (ReadaheadArgs { share: Some(1 << 20), apart: Some(4096), ..args() }, "--apart 4096"),
            (ReadaheadArgs { readahead: vec![4096], ..args() }, "--readahead"),
            (ReadaheadArgs { size: Some(4096), ..args() }, "--size 4096"),
            (
                ReadaheadArgs { parts: vec![Part::Mixture], size: Some(8192), ..args() },
                "--size 8192",
            ),
        ] {
            let error = Settings::new(&args).unwrap_err();
            assert!(error.is::<crate::BadInput>());
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
}
