//! The settings of a run: what the user asked for, with every default filled in and checked.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use forebay_io::CacheMode;
use serde::Serialize;

use super::ReadaheadArgs;
use super::activation::PLACE_BYTES;
use super::files::{BLOCK_BYTES, Files};
use super::knob::{By, Knob, Readahead, Told};
use crate::bad_input;
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

/// Document 002's steps of readahead, from 8 to 49152 sectors.
const READAHEADS: [u64; 7] = [4 * KIB, 32 * KIB, 128 * KIB, 512 * KIB, 2 * MIB, 6 * MIB, 24 * MIB];

/// Enough of them to see the shape.
const READAHEADS_QUICK: [u64; 4] = [4 * KIB, 128 * KIB, MIB, 6 * MIB];

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
        let quick = args.quick;
        let of = |full: u64, quickly: u64| if quick { quickly } else { full };
        let directory = args.common.dir.clone();
        let directory = std::fs::canonicalize(&directory).unwrap_or(directory);
        let is_odd = |request: &&u64| !request.is_multiple_of(4096) || **request > 64 * MIB;
        if let Some(request) = args.request.iter().find(is_odd) {
            bad_input!("--request {request}: it should be a multiple of 4KiB, at most 64MiB");
        }
        let knob = Knob::look(&directory, args.by, !args.readahead.is_empty())?;
        let requests =
            |full: [u64; 2]| sorted(&args.request, if quick { &[8 * KIB] } else { &full });
        let time = Duration::from_millis(of(1500, 250));
        let added = Duration::from_secs(of(240, 8));
        let mut settings = Settings {
            directory,
            readaheads: knob
                .readaheads(&args.readahead, if quick { &READAHEADS_QUICK } else { &READAHEADS }),
            knob,
            share_bytes: 0,
            size_bytes: 0,
            requests: requests([8 * KIB, 128 * KIB]),
            activation_requests: requests([4 * KIB, 8 * KIB]),
            mixture_request: args.request.iter().min().copied().unwrap_or(BLOCK_BYTES),
            rounds: args.rounds.unwrap_or(ROUNDS_MIN as u32),
            time_added: if args.rounds.is_some() { Duration::ZERO } else { added },
            time: args.time.unwrap_or(time),
            mixture_time: args.time.unwrap_or(2 * time),
            repetitions: args.repetitions.unwrap_or(of(20, 5) as u32),
            seed: args.common.seed.unwrap_or_else(|| fastrand::u64(..1 << 32)),
            args: ReadaheadArgs {
                parts: unique(&args.parts),
                readers: sorted(&args.readers, if quick { &[1, 8] } else { &[1, 2, 8, 32] }),
                files: unique(&args.files),
                cache: unique(&args.cache),
                strides: sorted(&args.strides, if quick { &[1, 2] } else { &[1, 2, 4, 16] }),
                hints: unique(&args.hints),
                starts: unique(&args.starts),
                ..args.clone()
            },
        };
        let memory_bytes = Host::read().memory_bytes.map_or(u64::MAX, |all| all / MEMORY_DIVISOR);
        settings.share_bytes = settings.checked_share(of(128, 32) * MIB, memory_bytes)?;
        settings.size_bytes = settings.checked_size(of(4, 1), memory_bytes)?;
        Ok(settings)
    }

    fn checked_share(&self, default: u64, memory_bytes: u64) -> anyhow::Result<u64> {
        let widest = self.readaheads.iter().filter_map(|readahead| readahead.bytes).max();
        let share = share_for(default, widest.unwrap_or(0), self.readers_max(), memory_bytes);
        let share = self.args.share.unwrap_or(share);
        if share < BLOCK_BYTES || !share.is_multiple_of(BLOCK_BYTES) {
            bad_input!("--share {share}: it should be a multiple of 8KiB");
        }
        if let Some(apart) = self.args.apart.filter(|&apart| apart < share) {
            bad_input!("--apart {apart}: it should be no less than --share {share}");
        }
        Ok(share)
    }

    /// As large as the part needs it that needs most; hardly anything where nobody reads it.
    fn checked_size(&self, scale: u64, memory_bytes: u64) -> anyhow::Result<u64> {
        let (args, mut size_bytes) = (&self.args, BLOCK_BYTES);
        if self.has(Part::Throughput) && args.files.contains(&Files::One) {
            size_bytes = u64::from(self.readers_max()) * self.share_bytes;
        }
        let readers = u64::from(args.streams.max(args.random));
        let mixture_least = (readers * self.mixture_request * 32).max(MIB);
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
        let (throughput, activation) = (self.has(Part::Throughput), self.has(Part::Activation));
        let mixture = self.has(Part::Mixture);
        let cache = |mode: &CacheMode| format!("{mode:?}").to_lowercase();
        let bytes = self.readaheads.iter().filter_map(|readahead| readahead.bytes);
        let time = |time| quoted(&humantime::format_duration(time).to_string());
        let on = |is_on: bool, value: String| is_on.then_some(value);
        let options = [
            ("parts", Some(names(&args.parts))),
            ("by", Some(names(&[self.knob.by]))),
            ("readahead", on(self.knob.by == By::Device, each(bytes, typed_readahead))),
            ("request", on(!args.request.is_empty(), each(&args.request, |&it| typed_size(it)))),
            ("share", on(throughput, typed_size(self.share_bytes))),
            ("apart", args.apart.map(typed_size)),
            ("readers", on(throughput, listed(&args.readers))),
            ("files", on(throughput, names(&args.files))),
            ("cache", on(throughput, each(&args.cache, cache))),
            ("strides", on(activation, listed(&args.strides))),
            ("hints", on(activation, names(&args.hints))),
            ("starts", on(activation, names(&args.starts))),
            ("repetitions", on(activation, self.repetitions.to_string())),
            ("streams", on(mixture, args.streams.to_string())),
            ("random", on(mixture, args.random.to_string())),
            ("size", args.size.map(typed_size)),
            ("time", args.time.map(time)),
            ("rounds", args.rounds.map(|rounds| rounds.to_string())),
            ("seed", Some(self.seed.to_string())),
            ("quick", on(args.quick, String::new())),
        ];
        let given =
            options.into_iter().filter_map(|(name, value)| Some(format!(" --{name} {}", value?)));
        let given: Vec<String> = given.map(|option| option.trim_end().to_owned()).collect();
        let directory = quoted(&self.directory.display().to_string());
        format!("{} lab readahead --dir {directory}{}", quoted(program), given.concat())
    }
}

fn names<T: ValueEnum>(items: &[T]) -> String {
    let names = items.iter().filter_map(ValueEnum::to_possible_value);
    each(names, |value| value.get_name().to_owned())
}

fn each<T>(items: impl IntoIterator<Item = T>, text: impl Fn(T) -> String) -> String {
    listed(&items.into_iter().map(text).collect::<Vec<_>>())
}

/// What was asked for or else the defaults, ascending, each once.
fn sorted<T: Copy + Ord>(asked: &[T], defaults: &[T]) -> Vec<T> {
    let mut items = if asked.is_empty() { defaults.to_vec() } else { asked.to_vec() };
    items.sort_unstable();
    items.dedup();
    items
}

/// A share that is a few times the `widest` readahead, as far as all `readers` have `memory_bytes` for it.
fn share_for(default: u64, widest: u64, readers: u32, memory_bytes: u64) -> u64 {
    let wanted = default.max(widest.saturating_mul(WINDOWS_IN_SHARE));
    // Whole mebibytes; at least one of them.
    wanted.min((memory_bytes / u64::from(readers)).max(MIB)) / MIB * MIB
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::CommonArgs;
    use crate::experiment::Experiment;

    const GIB: u64 = 1 << 30;

    #[test]
    fn a_share_holds_several_windows_and_all_of_them_fit_into_memory() {
        assert_eq!(share_for(128 * MIB, 24 * MIB, 32, u64::MAX), 128 * MIB);
        assert_eq!(share_for(32 * MIB, 24 * MIB, 8, 16 * GIB), 96 * MIB);
        assert_eq!(share_for(128 * MIB, 24 * MIB, 32, GIB), 32 * MIB);
        assert_eq!(share_for(128 * MIB, 24 * MIB, 256, GIB / 32), MIB);
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
