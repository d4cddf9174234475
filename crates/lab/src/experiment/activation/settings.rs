//! The settings of a run: what the user asked for, with every default filled in and checked.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use forebay_io::Hint;

use super::PLACE_BYTES;
use super::watch::Gait;
use crate::bad_input;
use crate::cli::ActivationArgs;
use crate::experiment::readahead::{By, Knob, check_requests};
use crate::experiment::{listed, quoted, unique};
use crate::units::{shown_size, typed_size};

const MIB: u64 = 1 << 20;

/// Until a window of the full size has come three times, so much is read: this many times that size.
const WINDOWS_IN_SPAN: u64 = 6;

/// At least so much is looked at beyond a read, and read in all.
const SPAN_BYTES_MIN: u64 = 4 * MIB;

/// What the kernel is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// Nothing.
    Normal,
    /// FADV_RANDOM.
    Random,
    /// FADV_SEQUENTIAL.
    Sequential,
}

impl Told {
    /// All of them, in the order of tables.
    pub const ALL: [Told; 3] = [Told::Normal, Told::Random, Told::Sequential];

    /// Name in records and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Told::Normal => "normal",
            Told::Random => "random",
            Told::Sequential => "sequential",
        }
    }

    pub(super) fn hint(self) -> Hint {
        match self {
            Told::Normal => Hint::Normal,
            Told::Random => Hint::Random,
            Told::Sequential => Hint::Sequential,
        }
    }
}

impl fmt::Display for Told {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.name())
    }
}

impl FromStr for Told {
    type Err = String;

    fn from_str(name: &str) -> Result<Told, String> {
        let found = Told::ALL.into_iter().find(|told| told.name() == name.trim());
        found.ok_or_else(|| "there are normal, random and sequential".to_owned())
    }
}

/// Where in the file a stream begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// At byte 0.
    Begin,
    /// Anywhere else.
    Middle,
}

impl Start {
    /// Both, in the order of tables.
    pub const ALL: [Start; 2] = [Start::Begin, Start::Middle];

    /// Name in records and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Start::Begin => "begin",
            Start::Middle => "middle",
        }
    }
}

impl fmt::Display for Start {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.name())
    }
}

impl FromStr for Start {
    type Err = String;

    fn from_str(name: &str) -> Result<Start, String> {
        let found = Start::ALL.into_iter().find(|start| start.name() == name.trim());
        found.ok_or_else(|| "there are begin and middle".to_owned())
    }
}

/// Through which descriptors two streams read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Descriptors {
    One,
    Own,
}

impl Descriptors {
    pub(super) fn name(self) -> &'static str {
        match self {
            Descriptors::One => "one",
            Descriptors::Own => "own",
        }
    }
}

/// One thing to be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) start: Start,
    pub(super) told: Told,
    pub(super) request_bytes: u64,
    /// From one read to the next, in reads.
    pub(super) stride: u32,
    /// 1, or 2 that take turns.
    pub(super) streams: u32,
    pub(super) descriptors: Descriptors,
}

impl Cell {
    pub(super) fn label(self) -> String {
        let request = typed_size(self.request_bytes);
        let streams = match (self.streams, self.descriptors) {
            (1, _) => String::new(),
            (_, Descriptors::One) => ", two streams, one descriptor".to_owned(),
            (_, Descriptors::Own) => ", two streams, own descriptors".to_owned(),
        };
        format!("{}, {}, {request}, stride {}{streams}", self.start, self.told, self.stride)
    }
}

/// Settings with every default filled in and checked.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Absolute directory of the working file.
    pub directory: PathBuf,
    /// Size of the working file, in bytes.
    pub size_bytes: u64,
    /// Sizes of a read, in bytes.
    pub requests: Vec<u64>,
    /// From one read to the next, in reads.
    pub strides: Vec<u32>,
    /// What the kernel is told.
    pub hints: Vec<Told>,
    /// Where streams begin.
    pub starts: Vec<Start>,
    /// Repetitions of each cell.
    pub repetitions: u32,
    /// Seed of everything random.
    pub seed: u64,
    /// Whether quick settings were asked for.
    pub quick: bool,
    /// The readahead that is set for the directory, in bytes.
    pub(super) readahead_bytes: Option<u64>,
}

impl Settings {
    /// Fills in what `args` leave open and refuses what makes no sense.
    ///
    /// # Errors
    /// [`BadInput`](crate::BadInput), naming the option.
    pub fn new(args: &ActivationArgs) -> anyhow::Result<Settings> {
        let size_bytes = args.size.unwrap_or(if args.quick { 128 * MIB } else { 512 * MIB });
        if size_bytes < 8 * PLACE_BYTES {
            bad_input!(
                "--size {size_bytes}: it should be at least {}",
                shown_size(8 * PLACE_BYTES)
            );
        }
        check_requests(&args.request)?;
        let directory = args.common.dir.clone();
        let directory = std::fs::canonicalize(&directory).unwrap_or(directory);
        let readahead_bytes = Knob::look(&directory, Some(By::Descriptor), false)?.found_bytes;
        let default: &[u32] = if args.quick { &[1, 2] } else { &[1, 2, 4, 16] };
        let strides = if args.strides.is_empty() { default } else { &args.strides };
        Ok(Settings {
            directory,
            size_bytes,
            requests: unique(&args.request),
            strides: unique(strides),
            hints: unique(&args.hints),
            starts: unique(&args.starts),
            repetitions: args.repetitions.unwrap_or(if args.quick { 5 } else { 20 }),
            seed: args.common.seed.unwrap_or_else(|| fastrand::u64(..1 << 32)),
            quick: args.quick,
            readahead_bytes,
        })
    }

    /// The readahead of a descriptor that was told so, in bytes, as far as it is known.
    pub(super) fn readahead_of(&self, told: Told) -> Option<u64> {
        match told {
            Told::Random => Some(0),
            Told::Normal => self.readahead_bytes,
            Told::Sequential => self.readahead_bytes.map(|bytes| bytes.saturating_mul(2)),
        }
    }

    /// How the streams of `cell` read.
    pub(super) fn gait(&self, cell: Cell) -> Gait {
        let full = self.readahead_of(cell.told).unwrap_or(0);
        let horizon_bytes = full.saturating_mul(2).max(SPAN_BYTES_MIN);
        let span_bytes = full.saturating_mul(WINDOWS_IN_SPAN).max(SPAN_BYTES_MIN);
        Gait {
            request_bytes: cell.request_bytes,
            stride_bytes: cell.request_bytes * u64::from(cell.stride),
            // Half of a half: two streams fit, and repetitions have room for other places.
            span_bytes: span_bytes.min(self.size_bytes / 4),
            horizon_bytes,
        }
    }

    /// Everything that is to be looked at, in the order of the report.
    pub(super) fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for &request_bytes in &self.requests {
            let sequence = Cell {
                start: Start::Begin,
                told: Told::Normal,
                request_bytes,
                stride: 1,
                streams: 1,
                descriptors: Descriptors::One,
            };
            for &start in &self.starts {
                for &stride in &self.strides {
                    // Advice is about sequences; strides are a question to the kernel alone.
                    let hints =
                        self.hints.iter().filter(|&&told| stride == 1 || told == Told::Normal);
                    cells.extend(hints.map(|&told| Cell { start, told, stride, ..sequence }));
                }
            }
            if self.starts.contains(&Start::Middle) && self.hints.contains(&Told::Normal) {
                let pair = Cell { start: Start::Middle, streams: 2, ..sequence };
                for descriptors in [Descriptors::One, Descriptors::Own] {
                    cells.push(Cell { descriptors, ..pair });
                }
            }
        }
        cells
    }

    /// The command that repeats a run with these settings. `program`: the path or name by which this
    /// program was called.
    pub fn command(&self, program: &str) -> String {
        let requests: Vec<String> = self.requests.iter().copied().map(typed_size).collect();
        let mut command = format!(
            "{} lab activation --dir {} --size {} --request {} --strides {} --hints {} --starts {} \
             --repetitions {} --seed {}",
            quoted(program),
            quoted(&self.directory.display().to_string()),
            typed_size(self.size_bytes),
            listed(&requests),
            listed(&self.strides),
            listed(&self.hints),
            listed(&self.starts),
            self.repetitions,
            self.seed,
        );
        if self.quick {
            command.push_str(" --quick");
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::CommonArgs;

    fn args() -> ActivationArgs {
        ActivationArgs::quick(&CommonArgs { dir: ".".into(), seed: Some(1) })
    }

    #[test]
    fn advice_is_for_sequences_and_two_streams_are_told_nothing() {
        let cells = Settings::new(&args()).unwrap().cells();
        // For each of two sizes: both starts with three hints and one stride, and two streams twice.
        assert_eq!(cells.len(), 2 * (2 * (3 + 1) + 2));
        let strided = cells.iter().filter(|cell| cell.stride > 1);
        assert!(strided.clone().count() > 0);
        assert!(strided.clone().all(|cell| cell.told == Told::Normal && cell.streams == 1));
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_the_name_of_the_option() {
        for (args, expected) in [
            (ActivationArgs { request: vec![1000], ..args() }, "--request 1000"),
            (ActivationArgs { size: Some(4096), ..args() }, "--size 4096"),
        ] {
            let error = Settings::new(&args).unwrap_err();
            assert!(error.is::<crate::BadInput>());
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
}
