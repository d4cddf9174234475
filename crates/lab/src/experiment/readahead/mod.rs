//! Experiment `readahead`: how far the kernel should read ahead, when it begins to, and what that costs.
//!
//! Document 002 of the sources measured an array under readahead settings from 8 to 98304 sectors, with one
//! and with eight sequential readers, and found factors of 2 to 20: a disk that serves several streams
//! moves its heads between them, and only a large piece read at each stop pays for the way. The same here, on
//! the user's own disk, in three parts:
//!
//! - *throughput*: readahead by readers by files (one for each, or one for all) by size of a read. All readers
//!   start together from an emptied page cache, and bytes are counted until the first has read its share or
//!   time is up. Large direct reads with many in flight say what the disk could give.
//! - *activation*: after how many reads the kernel begins to read ahead, seen in the page cache.
//! - *mixture*: streams together with random readers, and what each loses.
//!
//! Failure:     a cell that this system does not support is unmeasured and says why; a block other
//!              than the requested one ends the run.
//! Source:      document 002.

mod activation;
mod conclusion;
mod control;
mod files;
mod mixture;
mod race;
mod reader;
mod series;
mod settings;
mod throughput;
mod view;
mod watch;

pub use control::{By, Fadvise};
pub use settings::{Files, NAME, Part, ReadaheadArgs, Settings};

use serde_json::json;

use super::{Bench, Experiment, Measurements, Measuring, Outcome, WorkfileSpec};
use control::Turned;
use forebay_measure::device_readahead::ReadaheadGuard;
use forebay_measure::facts::Storage;
use forebay_measure::report::Conclusion;
use forebay_measure::statistics::Floor;
use forebay_measure::workfile::{self, Naming};
use settings::BLOCK_BYTES;
use view::Found;

impl Experiment for Settings {
    fn workfile_spec(&self) -> WorkfileSpec {
        self.args.common.workfile_spec(self.size_bytes, BLOCK_BYTES, Naming::Nameless)
    }

    fn space_bytes(&self) -> u64 {
        u64::from(self.own_files()) * self.share_bytes + self.size_bytes
    }

    fn measurements(&self) -> u64 {
        let rounds = u64::from(self.args.rounds.least);
        let cells = throughput::cells(self).len() + mixture::cells(self).len();
        let repetitions = u64::from(self.args.repetitions);
        let looks = activation::cells(self).len() as u64 * repetitions;
        u64::from(self.own_files()) + cells as u64 * rounds + looks
    }

    fn probe<'a>(&'a self, bench: &Bench<'_>) -> anyhow::Result<Measuring<'a>> {
        // A reservation on an emulated disk takes no real space, unless a filesystem over it takes it.
        let storage = bench.storage;
        let is_emulated = storage.emulated.is_some() && storage.device.is_none();
        let reserved = self.args.spacing.filter(|_| !is_emulated);
        let each = reserved.unwrap_or(self.share_bytes);
        let own_bytes = u64::from(self.own_files()).saturating_mul(each);
        workfile::check_directory(
            &self.args.common.dir,
            own_bytes.saturating_add(self.size_bytes),
        )?;
        let turned = self.control.take()?;
        Ok(Box::new(move |bench, progress| self.run(bench, turned, progress)))
    }
}

impl Settings {
    fn run(
        &self,
        bench: &Bench<'_>,
        turned: Turned,
        progress: &mut dyn FnMut(&str),
    ) -> anyhow::Result<Measurements<'_>> {
        let mut measure = || {
            anyhow::Ok(Found {
                // First, under the original readahead.
                activation: activation::measure(self, bench, progress)?,
                throughput: series::measure(self, bench, &turned, progress)?,
                mixture: mixture::measure(self, bench, &turned, progress)?,
            })
        };
        let found = measure();
        // Restore it on success and on error; if both failed, report the first error.
        let restored = turned.map_or(Ok(()), ReadaheadGuard::restore);
        let found = found?;
        restored?;
        Ok(Measurements::new(move |storage, floor| self.outcome(&found, storage, floor)))
    }

    fn outcome(&self, found: &Found, storage: &Storage, floor: Floor) -> Outcome {
        let mut outcome =
            Outcome { section: view::section(found, self, floor), ..Outcome::default() };
        let throughput = found.throughput.iter().map(|cell| cell.record(NAME, "bytes_per_s"));
        let throughput = throughput.map(|record| (Part::Throughput, record));
        let activation = found.activation.iter().map(activation::record);
        let activation = activation.map(|record| (Part::Activation, record));
        let mixture = found.mixture.iter().map(|cell| cell.record(NAME, "seconds"));
        let mixture = mixture.map(|record| (Part::Mixture, record));
        for (part, mut record) in throughput.chain(activation).chain(mixture) {
            record.cell.insert("part".to_owned(), json!(part));
            record.cell.entry("cache").or_insert("buffered".into());
            record.cell.insert("profile".to_owned(), storage.profile().into());
            record.cell.insert("filesystem".to_owned(), json!(storage.filesystem));
            outcome.records.push(record);
        }
        conclusion::draw(self, storage, &found.throughput, floor, &mut outcome);
        outcome.conclusions.extend(Conclusion::all(NAME, mixture::sentence(&found.mixture, floor)));
        let begins = activation::sentence(&found.activation);
        outcome.conclusions.extend(Conclusion::for_engines(NAME, begins));
        outcome
    }
}

/// Draws conclusions from runs on disks on which all readaheads are equal, except for the current one, with which
/// readers get this part of their rate with the others.
#[cfg(test)]
pub(super) fn simulated() -> super::simulation::Simulated {
    let mut settings =
        Settings::new(super::typed("--seed 1 --set-via descriptor --files own --request 8KiB"))
            .unwrap();
    let found_bytes = Some(128 << 10);
    settings.control.found_bytes = found_bytes;
    settings.readaheads = [Fadvise::Random, Fadvise::Normal, Fadvise::Sequential]
        .map(|advice| control::Readahead::descriptor(advice, found_bytes))
        .to_vec();
    let storage = conclusion::tests::storage(true);
    Box::new(move |disk, now| {
        let cells = throughput::cells(&settings).into_iter().map(throughput::Cell::new).collect();
        let mut rows = series::Rows { settings: &settings, cells };
        disk.simulate(&mut rows, settings.limits(), 1.6, |rows, index, rate| {
            let is_now = rows.cells[index].cell.readahead.advice == Some(Fadvise::Normal);
            let rate = 3e8 * rate * if is_now { now } else { 1.0 };
            throughput::Round::new(&race::Finish { seconds: 1.0, moved: vec![rate as u64] }, None)
        });
        let mut outcome = Outcome::default();
        conclusion::draw(&settings, &storage, &rows.cells, Floor::default(), &mut outcome);
        outcome
    })
}
