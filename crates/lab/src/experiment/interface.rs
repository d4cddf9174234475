//! What a run needs of an experiment, and what an experiment gets from a run.

use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::Serializer;

use crate::on::OnDisk;
use forebay_measure::facts::{CounterSource, Storage};
use forebay_measure::report::{Advice, BackendNote, Conclusion, Record, Section, Verdict};
use forebay_measure::statistics::Floor;
use forebay_measure::units::parse_size_in;
use forebay_measure::workfile::{Naming, Workfile};

/// Size of a pool's block, in bytes.
pub(super) const POOL_BLOCK_BYTES: u64 = 8192;

/// An experiment, as a run sees it. The experiments' settings implement it.
pub trait Experiment {
    /// The place and the kind of working file of its measurements.
    fn workfile_spec(&self) -> WorkfileSpec;

    /// Total bytes of its files, including those that it makes on its own.
    fn space_bytes(&self) -> u64 {
        self.workfile_spec().size_bytes
    }

    /// Measurements in all, for the progress bar.
    fn measurements(&self) -> u64;

    /// Checks whether this can be measured here, on a working file that is still empty. Returns the measurement to run
    /// once the file is filled.
    ///
    /// # Errors
    /// [`BadInput`](forebay_measure::BadInput) when nothing of the request can be measured.
    fn probe<'a>(&'a self, bench: &Bench<'_>) -> anyhow::Result<Measuring<'a>>;
}

/// Measures. The second argument receives a description of each measurement before it starts. Errors are
/// [`Interrupted`](forebay_measure::interrupt::Interrupted), or what went wrong.
pub type Measuring<'a> =
    Box<dyn FnOnce(&Bench<'_>, &mut dyn FnMut(&str)) -> anyhow::Result<Measurements<'a>> + 'a>;

/// The measurements of an experiment. Conclusions are drawn after all experiments have run, so that none of them
/// contradicts the noise floor of another one.
pub struct Measurements<'a> {
    /// The difference between two equal variants, where it was measured.
    pub floor: Option<Floor>,
    /// The conclusions.
    pub conclude: Conclude<'a>,
}

/// Draws conclusions, on this storage and with the noise floor of the whole run.
pub type Conclude<'a> = Box<dyn FnOnce(&Storage, Floor) -> Outcome + 'a>;

impl fmt::Debug for Measurements<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Measurements").field("floor", &self.floor).finish_non_exhaustive()
    }
}

impl<'a> Measurements<'a> {
    /// Without a separate floor.
    pub(super) fn new(conclude: impl FnOnce(&Storage, Floor) -> Outcome + 'a) -> Measurements<'a> {
        Measurements { floor: None, conclude: Box::new(conclude) }
    }
}

/// Time since the first call.
pub(super) fn stopwatch() -> impl Fn() -> Duration {
    let begun = Instant::now();
    move || begun.elapsed()
}

/// The place where an experiment measures, and the properties of its working file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkfileSpec {
    /// Absolute directory of the working file.
    pub directory: PathBuf,
    /// Size of the working file, in bytes.
    pub size_bytes: u64,
    /// Size of a block, in bytes.
    pub block_bytes: u64,
    /// Seed of everything random.
    pub seed: u64,
    /// Whether the working file keeps a name.
    pub naming: Naming,
}

/// The resources of an experiment.
#[derive(Debug, Clone, Copy)]
pub struct Bench<'a> {
    /// The file.
    pub workfile: &'a Workfile,
    /// The storage below it.
    pub storage: &'a Storage,
    /// The device's counters, if there are any.
    pub counters: Option<&'a CounterSource>,
    /// The emulated disk under all of it, if there is one.
    pub on: Option<&'a OnDisk>,
}

/// The result of an experiment.
#[derive(Debug, Default)]
pub struct Outcome {
    /// One record per cell, with nulls and a remark where it could not be measured.
    pub records: Vec<Record>,
    /// Which backends could be opened.
    pub backends: Vec<BackendNote>,
    /// Results of comparisons.
    pub verdicts: Vec<Verdict>,
    /// Settings worth changing.
    pub advice: Vec<Advice>,
    /// Further conclusions from the records.
    pub conclusions: Vec<Conclusion>,
    /// The section to show.
    pub section: Section,
}

/// A field of a record by its name.
pub(super) fn by_name<S: Serializer>(
    named: &impl fmt::Display,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_str(named)
}

/// Parses the size of a file that a pool reads and that has `least` blocks.
pub(super) fn parse_pool_size(
    least: u64,
) -> impl Fn(&str) -> Result<u64, String> + Clone + Send + Sync {
    parse_size_in(least * POOL_BLOCK_BYTES..=u64::from(u32::MAX) * POOL_BLOCK_BYTES)
}
