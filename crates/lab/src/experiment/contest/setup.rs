//! Setting up a contest: the settings that all contests have, and what there is to measure with.

use std::path::PathBuf;
use std::time::Duration;

use forebay_io::CacheMode;

use super::{DeviceReadahead, Form, Pools, Row, Rules, frames_most, hold};
use crate::bad_input;
use crate::cli::ContestArgs;
use crate::device_readahead::typed_readahead;
use crate::experiment::pattern::Shape;
use crate::experiment::{Bench, Ground, listed, probe_direct, quoted, unique};
use crate::report::{BackendNote, Record};
use crate::units::{shown_size, typed_size};

/// Size of a block in every contest, in bytes.
pub(in crate::experiment) const BLOCK_BYTES: u64 = 8192;

/// Fewest blocks that a pattern can be made of.
pub(in crate::experiment) const BLOCKS_MIN: u64 = 64;

/// What is set unless the user says otherwise.
#[derive(Debug, Clone, Copy)]
pub(in crate::experiment) struct Defaults {
    pub(in crate::experiment) size_bytes: u64,
    pub(in crate::experiment) rounds: u32,
    pub(in crate::experiment) cell_time_max: Duration,
    /// For all rounds together, unless the user says how many there are to be.
    pub(in crate::experiment) time_max: Duration,
}

/// Settings of any contest, with every default filled in and checked.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Absolute directory of the working file.
    pub directory: PathBuf,
    /// Size of the working file, in bytes.
    pub size_bytes: u64,
    /// Cache modes to measure.
    pub caches: Vec<CacheMode>,
    /// Values to set the device's readahead to, in bytes; none leaves it alone.
    pub device_readahead: Vec<u64>,
    /// Measurements of each cell.
    pub rounds: u32,
    /// Longest measurement of one cell; on a slow disk fewer blocks are read then.
    pub cell_time_max: Duration,
    /// No round is begun that would probably end later than this.
    pub time_max: Option<Duration>,
    /// Seed of everything random.
    pub seed: u64,
    /// Whether quick settings were asked for.
    pub quick: bool,
}

impl Setup {
    /// Fills in what `args` leave open and refuses what makes no sense.
    ///
    /// # Errors
    /// [`BadInput`](crate::BadInput), naming the option.
    pub(in crate::experiment) fn new(
        args: &ContestArgs,
        defaults: &Defaults,
    ) -> anyhow::Result<Setup> {
        let size_bytes = args.size.unwrap_or(defaults.size_bytes);
        let blocks = size_bytes / BLOCK_BYTES;
        if blocks < BLOCKS_MIN || u32::try_from(blocks).is_err() {
            bad_input!(
                "--size {}: it should be from {} to {}",
                shown_size(size_bytes),
                shown_size(BLOCKS_MIN * BLOCK_BYTES),
                shown_size(u64::from(u32::MAX) * BLOCK_BYTES)
            );
        }
        let directory = args.common.dir.clone();
        Ok(Setup {
            directory: std::fs::canonicalize(&directory).unwrap_or(directory),
            size_bytes,
            caches: unique(&args.cache),
            device_readahead: unique(&args.device_readahead),
            rounds: args.rounds.unwrap_or(defaults.rounds),
            cell_time_max: defaults.cell_time_max,
            time_max: args.rounds.is_none().then_some(defaults.time_max),
            seed: args.common.seed.unwrap_or_else(|| fastrand::u64(..1 << 32)),
            quick: args.quick,
        })
    }

    /// Whole blocks in the file.
    pub(in crate::experiment) fn file_blocks(&self) -> u32 {
        u32::try_from(self.size_bytes / BLOCK_BYTES).unwrap_or(u32::MAX)
    }

    pub(in crate::experiment) fn ground(&self) -> Ground {
        Ground {
            directory: self.directory.clone(),
            size_bytes: self.size_bytes,
            block_bytes: BLOCK_BYTES,
            seed: self.seed,
        }
    }

    pub(in crate::experiment) fn rules(&self, shape: Shape) -> Rules {
        Rules {
            shape,
            rounds: self.rounds,
            cell_time_max: self.cell_time_max,
            time_max: self.time_max,
            seed: self.seed,
        }
    }

    /// What the device's readahead is to be, for each row anew: once as it is, or each value asked for.
    pub(in crate::experiment) fn readaheads(&self) -> Vec<Option<u64>> {
        if self.device_readahead.is_empty() {
            return vec![None];
        }
        self.device_readahead.iter().copied().map(Some).collect()
    }

    /// The command that repeats a run, with `own` options of the `experiment`.
    pub(in crate::experiment) fn command(
        &self,
        program: &str,
        experiment: &str,
        own: &str,
    ) -> String {
        let mut command = format!(
            "{} lab {experiment} --dir {} --size {} {own} --cache {} --rounds {} --seed {}",
            quoted(program),
            quoted(&self.directory.display().to_string()),
            typed_size(self.size_bytes),
            listed(&self.caches),
            self.rounds,
            self.seed,
        );
        if !self.device_readahead.is_empty() {
            let values: Vec<String> =
                self.device_readahead.iter().copied().map(typed_readahead).collect();
            command.push_str(" --device-readahead ");
            command.push_str(&listed(&values));
        }
        if self.quick {
            command.push_str(" --quick");
        }
        command
    }
}

/// What there is to measure with.
#[derive(Debug)]
pub struct Means {
    missing_direct: Option<String>,
    backends: Vec<BackendNote>,
    readahead: DeviceReadahead,
    /// As it was found, in bytes.
    readahead_bytes: Option<u64>,
}

impl Means {
    /// Looks whether `rows` can be measured, on a working file that may still be empty.
    ///
    /// # Errors
    /// [`BadInput`](crate::BadInput) when none of them can, or the device's readahead cannot be set.
    pub(in crate::experiment) fn probe(
        setup: &Setup,
        rows: &[Row],
        bench: &Bench<'_>,
    ) -> anyhow::Result<Means> {
        let readahead = DeviceReadahead::new(bench.storage, &setup.device_readahead)?;
        let readahead_bytes =
            bench.storage.device.as_ref().and_then(|device| device.readahead_bytes);
        let mut missing_direct = None;
        if setup.caches.contains(&CacheMode::Direct) {
            missing_direct = probe_direct(&setup.ground(), bench.workfile)?;
        }
        let missing = |cache| missing_direct.as_ref().filter(|_| cache == CacheMode::Direct);
        if let Some(why) = rows.iter().map(|row| missing(row.cache)).collect::<Option<Vec<_>>>() {
            bad_input!("nothing of this can be measured here: {}", why[0]);
        }
        let pools = Pools::new(bench.workfile, 0)?;
        let mut backends: Vec<BackendNote> = Vec::new();
        for &cache in setup.caches.iter().filter(|&&cache| missing(cache).is_none()) {
            let note = pools.backend(cache)?;
            if backends.iter().all(|other| other.backend != note.backend) {
                backends.push(note);
            }
        }
        Ok(Means { missing_direct, backends, readahead, readahead_bytes })
    }

    /// Holds the contest and gives the records of all `rows`, and which backends read them.
    ///
    /// # Errors
    /// [`Interrupted`](crate::interrupt::Interrupted), or what went wrong.
    pub(in crate::experiment) fn records(
        self,
        form: Form,
        rules: &Rules,
        rows: Vec<Row>,
        bench: &Bench<'_>,
        progress: &mut dyn FnMut(&str),
    ) -> anyhow::Result<(Vec<Record>, Vec<BackendNote>)> {
        let measurable =
            |row: &Row| row.cache == CacheMode::Buffered || self.missing_direct.is_none();
        let (rows, unusable): (Vec<Row>, Vec<Row>) = rows.into_iter().partition(measurable);
        let pools = Pools::new(bench.workfile, frames_most(&rules.shape))?;
        let standings = hold(bench, rules, rows, &pools, self.readahead, progress)?;
        let mut records = form.records(rules, &standings);
        let why = self.missing_direct.unwrap_or_default();
        for row in &unusable {
            records.extend(form.unmeasured(row, self.readahead_bytes, &why));
        }
        Ok((records, self.backends))
    }
}

/// Measurements in `rounds` of all `rows`.
pub(in crate::experiment) fn measurements(rows: &[Row], rounds: u32) -> u64 {
    rows.iter().map(|row| row.entrants.len() as u64).sum::<u64>() * u64::from(rounds)
}
