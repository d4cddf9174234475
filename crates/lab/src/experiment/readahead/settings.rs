//! The settings of a run: what the user asked for, with every default filled in and checked.

use std::path::PathBuf;
use std::time::Duration;

use forebay_io::CacheMode;

use super::files::{BLOCK_BYTES, Files};
use super::knob::{By, Knob, Setting};
use crate::bad_input;
use crate::cli::ReadaheadArgs;
use crate::device_readahead::typed_readahead;
use crate::experiment::{listed, quoted, unique};
use crate::facts::Host;
use crate::units::typed_size;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// What is measured unless the user says otherwise.
struct Defaults {
    share_bytes: u64,
    readers: &'static [u32],
    requests: &'static [u64],
    readaheads: &'static [u64],
    rounds: u32,
    cell_time_max: Duration,
    /// No round is begun that would probably end later than this.
    time_max: Duration,
}

/// Document 002's steps of readahead, from 8 to 49152 sectors, and its readers.
const FULL: Defaults = Defaults {
    share_bytes: 128 * MIB,
    readers: &[1, 2, 8, 32],
    requests: &[8 * KIB, 128 * KIB],
    readaheads: &[4 * KIB, 32 * KIB, 128 * KIB, 512 * KIB, 2 * MIB, 6 * MIB, 24 * MIB],
    rounds: 5,
    cell_time_max: Duration::from_millis(1500),
    time_max: Duration::from_secs(600),
};

/// Enough to see the shape.
const QUICK: Defaults = Defaults {
    share_bytes: 32 * MIB,
    readers: &[1, 8],
    requests: &[8 * KIB],
    readaheads: &[4 * KIB, 128 * KIB, MIB, 6 * MIB],
    rounds: 3,
    cell_time_max: Duration::from_millis(250),
    time_max: Duration::from_secs(20),
};

/// A window this many times in a share is small enough not to be all that is measured.
const WINDOWS_IN_SHARE: u64 = 4;

/// The files of a run take at most this part of memory: what is read ahead must not be thrown out again
/// before it is read.
const MEMORY_DIVISOR: u64 = 4;

/// Settings with every default filled in and checked.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Absolute directory of the working files.
    pub directory: PathBuf,
    /// Bytes that each reader reads.
    pub share_bytes: u64,
    /// Bytes reserved for each of the own files, if more than a share.
    pub apart_bytes: Option<u64>,
    /// Readers at once.
    pub readers: Vec<u32>,
    /// What they read.
    pub files: Vec<Files>,
    /// Sizes of a read, in bytes.
    pub requests: Vec<u64>,
    /// Readahead settings, ascending.
    pub(super) readaheads: Vec<Setting>,
    pub(super) knob: Knob,
    /// Whether readahead is measured, through the page cache.
    pub buffered: bool,
    /// Whether the ceiling is measured, past it.
    pub direct: bool,
    /// Whether the beginning and the end of the disk are read.
    pub ends: bool,
    /// Measurements of each cell.
    pub rounds: u32,
    /// Longest measurement of a cell.
    pub cell_time_max: Duration,
    /// No round is begun that would probably end later than this; `None` if the rounds were asked for.
    pub(super) time_max: Option<Duration>,
    /// Seed of everything random.
    pub seed: u64,
    /// Whether quick settings were asked for.
    pub quick: bool,
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
        let knob = Knob::look(&directory, args.by, !args.readahead.is_empty())?;
        let readaheads = knob.settings(&args.readahead, defaults.readaheads);
        let readers = sorted(&args.readers, defaults.readers);
        let requests = sorted(&args.request, defaults.requests);
        check_requests(&requests)?;
        let share_bytes = args.share.unwrap_or_else(|| {
            let widest =
                readaheads.iter().filter_map(|setting| setting.bytes(knob.found_bytes)).max();
            share_for(
                defaults.share_bytes,
                widest.unwrap_or(0),
                &readers,
                Host::read().memory_bytes,
            )
        });
        if share_bytes < BLOCK_BYTES || !share_bytes.is_multiple_of(BLOCK_BYTES) {
            bad_input!("--share {share_bytes}: it should be a multiple of 8KiB");
        }
        if let Some(apart) = args.apart.filter(|&apart| apart < share_bytes) {
            bad_input!("--apart {apart}: it should be no less than --share {share_bytes}");
        }
        let caches = unique(&args.cache);
        Ok(Settings {
            directory,
            share_bytes,
            apart_bytes: args.apart,
            readers,
            files: unique(&args.files),
            requests,
            readaheads,
            knob,
            buffered: caches.contains(&CacheMode::Buffered),
            direct: caches.contains(&CacheMode::Direct),
            ends: !args.skip_ends,
            rounds: args.rounds.unwrap_or(defaults.rounds),
            cell_time_max: args.time.unwrap_or(defaults.cell_time_max),
            time_max: args.rounds.is_none().then_some(defaults.time_max),
            seed: args.common.seed.unwrap_or_else(|| fastrand::u64(..1 << 32)),
            quick: args.quick,
        })
    }

    /// The most readers at once.
    pub(super) fn readers_max(&self) -> u32 {
        self.readers.last().copied().unwrap_or(1)
    }

    /// Files of their own that readers need.
    pub(super) fn own_files(&self) -> u32 {
        if self.files.contains(&Files::Own) { self.readers_max() } else { 0 }
    }

    /// Size of the one file, in bytes; hardly anything where nobody reads it.
    pub(super) fn one_bytes(&self) -> u64 {
        if self.files.contains(&Files::One) {
            u64::from(self.readers_max()) * self.share_bytes
        } else {
            BLOCK_BYTES
        }
    }

    /// The command that repeats a run with these settings. `program`: the path or name by which this
    /// program was called.
    pub fn command(&self, program: &str) -> String {
        let sizes =
            |sizes: &[u64]| listed(&sizes.iter().copied().map(typed_size).collect::<Vec<_>>());
        let mut command = format!(
            "{} lab readahead --dir {} --share {} --readers {} --files {} --request {} --by {} --time {} \
             --rounds {} --seed {}",
            quoted(program),
            quoted(&self.directory.display().to_string()),
            typed_size(self.share_bytes),
            listed(&self.readers),
            listed(&self.files),
            sizes(&self.requests),
            self.knob.by.name(),
            quoted(&humantime::format_duration(self.cell_time_max).to_string()),
            self.rounds,
            self.seed,
        );
        if self.knob.by == By::Device {
            let values = self.readaheads.iter().filter_map(|setting| setting.bytes(None));
            command.push_str(" --readahead ");
            command.push_str(&listed(&values.map(typed_readahead).collect::<Vec<_>>()));
        }
        if let Some(apart) = self.apart_bytes {
            command.push_str(" --apart ");
            command.push_str(&typed_size(apart));
        }
        match (self.buffered, self.direct) {
            (true, false) => command.push_str(" --cache buffered"),
            (false, true) => command.push_str(" --cache direct"),
            _ => {}
        }
        if !self.ends {
            command.push_str(" --skip-ends");
        }
        if self.quick {
            command.push_str(" --quick");
        }
        command
    }
}

/// What was asked for or else the defaults, ascending, each once.
fn sorted<T: Copy + Ord>(asked: &[T], defaults: &[T]) -> Vec<T> {
    let mut items = if asked.is_empty() { defaults.to_vec() } else { asked.to_vec() };
    items.sort_unstable();
    items.dedup();
    items
}

/// Refuses sizes of a read that do not go with the blocks of a file.
pub(in crate::experiment) fn check_requests(requests: &[u64]) -> anyhow::Result<()> {
    for &request in requests {
        if !request.is_multiple_of(4096) || request > 64 * MIB {
            bad_input!("--request {request}: it should be a multiple of 4KiB, at most 64MiB");
        }
    }
    Ok(())
}

/// A share that is a few times the `widest` readahead, as far as memory allows for all `readers`.
fn share_for(default: u64, widest: u64, readers: &[u32], memory_bytes: Option<u64>) -> u64 {
    let wanted = default.max(widest.saturating_mul(WINDOWS_IN_SHARE));
    let readers = u64::from(readers.last().copied().unwrap_or(1));
    let most = memory_bytes.map_or(u64::MAX, |memory| memory / MEMORY_DIVISOR / readers);
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
        assert_eq!(share_for(128 * MIB, 24 * MIB, &[1, 32], None), 128 * MIB);
        assert_eq!(share_for(32 * MIB, 24 * MIB, &[1, 8], Some(64 * GIB)), 96 * MIB);
        assert_eq!(share_for(128 * MIB, 24 * MIB, &[1, 32], Some(4 * GIB)), 32 * MIB);
        assert_eq!(share_for(128 * MIB, 24 * MIB, &[256], Some(GIB / 8)), MIB);
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
        assert_eq!(settings.readers, [1, 8]);
    }

    #[test]
    fn what_all_files_take_is_told() {
        let share = Some(4 * MIB);
        let all = |files: Vec<Files>| -> u64 {
            let settings = Settings::new(&ReadaheadArgs { share, files, ..args() }).unwrap();
            settings.space_bytes()
        };
        assert_eq!(all(Files::ALL.to_vec()), 2 * 8 * 4 * MIB);
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
        ] {
            let error = Settings::new(&args).unwrap_err();
            assert!(error.is::<crate::BadInput>());
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
}
