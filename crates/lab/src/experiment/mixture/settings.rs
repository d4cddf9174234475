//! The settings of a run: what the user asked for, with every default filled in and checked.

use std::path::PathBuf;
use std::time::Duration;

use crate::bad_input;
use crate::cli::MixtureArgs;
use crate::device_readahead::typed_readahead;
use crate::experiment::readahead::{By, Knob, Setting, check_requests};
use crate::experiment::{listed, quoted};
use crate::facts::Host;
use crate::units::{shown_size, typed_size};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// The file takes at most this part of memory.
const MEMORY_DIVISOR: u64 = 4;

/// What is measured unless the user says otherwise.
struct Defaults {
    size_bytes: u64,
    readaheads: &'static [u64],
    time: Duration,
    rounds: u32,
}

const FULL: Defaults = Defaults {
    size_bytes: 2048 * MIB,
    readaheads: &[32 * KIB, 128 * KIB, 512 * KIB, 2 * MIB, 6 * MIB],
    time: Duration::from_secs(4),
    rounds: 3,
};

const QUICK: Defaults = Defaults {
    size_bytes: 512 * MIB,
    readaheads: &[128 * KIB, 2 * MIB],
    time: Duration::from_millis(500),
    rounds: 2,
};

/// Settings with every default filled in and checked.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Absolute directory of the working file.
    pub directory: PathBuf,
    /// Size of the working file, in bytes.
    pub size_bytes: u64,
    /// Readers that read a range each from beginning to end.
    pub streams: u32,
    /// Readers of random blocks.
    pub random: u32,
    /// Size of a read, in bytes.
    pub request_bytes: u64,
    /// Readahead settings, ascending.
    pub(super) readaheads: Vec<Setting>,
    pub(super) knob: Knob,
    /// Time that each cell is measured for.
    pub time: Duration,
    /// Measurements of each cell.
    pub rounds: u32,
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
    pub fn new(args: &MixtureArgs) -> anyhow::Result<Settings> {
        let defaults = if args.quick { &QUICK } else { &FULL };
        let directory = args.common.dir.clone();
        let directory = std::fs::canonicalize(&directory).unwrap_or(directory);
        check_requests(&[args.request])?;
        let size_bytes = args.size.unwrap_or_else(|| {
            let most = Host::read().memory_bytes.map_or(u64::MAX, |memory| memory / MEMORY_DIVISOR);
            defaults.size_bytes.min(most / MIB * MIB)
        });
        let readers = u64::from(args.streams.max(args.random));
        let least = (readers * args.request * 32).max(MIB);
        if size_bytes < least || !size_bytes.is_multiple_of(2 * 8192) {
            bad_input!(
                "--size {size_bytes}: so many readers need at least {}, in multiples of 16KiB",
                shown_size(least)
            );
        }
        let knob = Knob::look(&directory, args.by, !args.readahead.is_empty())?;
        Ok(Settings {
            directory,
            size_bytes,
            streams: args.streams,
            random: args.random,
            request_bytes: args.request,
            readaheads: knob.settings(&args.readahead, defaults.readaheads),
            knob,
            time: args.time.unwrap_or(defaults.time),
            rounds: args.rounds.unwrap_or(defaults.rounds),
            seed: args.common.seed.unwrap_or_else(|| fastrand::u64(..1 << 32)),
            quick: args.quick,
        })
    }

    /// The command that repeats a run with these settings. `program`: the path or name by which this
    /// program was called.
    pub fn command(&self, program: &str) -> String {
        let mut command = format!(
            "{} lab mixture --dir {} --size {} --streams {} --random {} --request {} --by {} --time {} \
             --rounds {} --seed {}",
            quoted(program),
            quoted(&self.directory.display().to_string()),
            typed_size(self.size_bytes),
            self.streams,
            self.random,
            typed_size(self.request_bytes),
            self.knob.by.name(),
            quoted(&humantime::format_duration(self.time).to_string()),
            self.rounds,
            self.seed,
        );
        if self.knob.by == By::Device {
            let values = self.readaheads.iter().filter_map(|setting| setting.bytes(None));
            command.push_str(" --readahead ");
            command.push_str(&listed(&values.map(typed_readahead).collect::<Vec<_>>()));
        }
        if self.quick {
            command.push_str(" --quick");
        }
        command
    }
}
