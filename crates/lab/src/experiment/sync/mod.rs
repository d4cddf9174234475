//! Experiment `sync`: what a commit costs.
//!
//! A commit is durable when its writes are synced, and the time of that decides how many commits a
//! writer makes. The experiment measures writes of three sizes, each with its sync, appended and in place of
//! earlier data, by every method of Linux, with one writer and with several.
//!
//! All cells of a round are measured shortly after each other, in an order that is reshuffled; those that
//! PostgreSQL can choose from get more rounds while the best is undecided and there is time.

mod cell;
mod conclusion;
mod settings;
mod view;
mod writer;

pub use settings::{NAME, Settings};

use forebay_io::Op;

use super::driver::{RowSet, drive};
use super::modes::through_cache;
use super::{Bench, Experiment, Measurements, Measuring, Outcome, WorkfileSpec, stopwatch};
use cell::{Cell, Figures, Method, Place, Row};
use forebay_measure::lists::grouped;
use forebay_measure::workfile::{Naming, Workfile};
use writer::Part;

/// Most that is appended in a measurement.
const APPENDED_BYTES_MAX: u64 = 256 << 20;

impl Experiment for Settings {
    fn workfile_spec(&self) -> WorkfileSpec {
        self.common.workfile_spec(self.size_bytes, 8192, Naming::Nameless)
    }

    fn space_bytes(&self) -> u64 {
        self.size_bytes + self.appended_bytes()
    }

    fn measurements(&self) -> u64 {
        self.cells().len() as u64 * u64::from(self.rounds.least)
    }

    fn probe<'a>(&'a self, _: &Bench<'_>) -> anyhow::Result<Measuring<'a>> {
        Ok(Box::new(|bench, progress| {
            let Rows(rows) = self.measure_all(bench.workfile, progress)?;
            Ok(Measurements::new(move |storage, floor| Outcome {
                records: rows.iter().map(|row| row.record(NAME, "syncs_per_s")).collect(),
                section: view::section(&rows),
                ..conclusion::draw(storage.filesystem.as_deref(), &rows, floor)
            }))
        }))
    }
}

impl Settings {
    fn appended_bytes(&self) -> u64 {
        self.size_bytes.min(APPENDED_BYTES_MAX)
    }

    fn measure_all(
        &self,
        workfile: &Workfile,
        progress: &mut dyn FnMut(&str),
    ) -> anyhow::Result<Rows> {
        let mut random = fastrand::Rng::with_seed(self.common.seed);
        let mut rows = Rows(self.cells().into_iter().map(Row::new).collect());
        if let Some(why) = through_cache(&self.common.dir, Op::Write) {
            let direct = rows.0.iter_mut().filter(|row| row.cell.method == Method::ODirectODsync);
            direct.for_each(|row| row.failure = Some(why.clone()));
        }
        drive(&mut rows, self.limits(), &mut random, &stopwatch(), progress, |rows, index, _| {
            let row = &mut rows.0[index];
            let figures = self.measure(row.cell, workfile)?;
            if figures.seconds < self.cell_time().as_secs_f64() {
                row.remarks.push("ended early: the file has its largest size".to_owned());
            }
            Ok(figures)
        })?;
        Ok(rows)
    }

    fn measure(&self, cell: Cell, workfile: &Workfile) -> anyhow::Result<Figures> {
        let parts = match cell.place {
            Place::Overwritten => {
                let writers = u64::from(cell.writers);
                let each = workfile.size_bytes / writers / cell.bytes * cell.bytes;
                let part = |number| Part::new(workfile, number * each..(number + 1) * each, cell);
                (0..writers).map(part).collect::<anyhow::Result<Vec<Part>>>()?
            }
            // One part for all: the next writer appends.
            Place::Appended => {
                let (directory, naming) = (&self.common.dir, Naming::Nameless);
                let empty = Workfile::create(directory, 0, 8192, self.common.seed, naming)?;
                vec![Part::new(&empty, 0..self.appended_bytes(), cell)?]
            }
        };
        writer::measure(cell, &parts, self.cell_time())
    }
}

/// The rows of a run; those that differ only in their method are a series.
#[derive(Debug)]
struct Rows(Vec<Row>);

impl RowSet for Rows {
    type Cell = Cell;
    type Figures = Figures;

    fn rows(&self) -> usize {
        self.0.len()
    }

    fn row(&mut self, index: usize) -> &mut Row {
        &mut self.0[index]
    }

    fn series(&self) -> Vec<Vec<usize>> {
        let by_writes = grouped(0..self.0.len(), |&index| self.0[index].cell.row_label());
        by_writes.into_iter().map(|(_, rows)| rows).collect()
    }

    fn open(&self) -> Vec<bool> {
        let is_open = conclusion::is_undecided(&self.0);
        let is_commits = |rows: &Vec<usize>| self.0[rows[0]].cell.is_a_commit();
        self.series().iter().map(|rows| is_open && is_commits(rows)).collect()
    }

    fn label(&self, index: usize) -> String {
        self.0[index].cell.label()
    }
}

/// Draws conclusions from runs on disks on which all methods are equal, except for PostgreSQL's own, which makes this
/// part of the others' syncs.
#[cfg(test)]
pub(super) fn simulated() -> super::simulation::Simulated {
    let settings = super::typed::<Settings>("--seed 1");
    Box::new(move |disk, default| {
        let mut rows = Rows(settings.cells().into_iter().map(Row::new).collect());
        let seconds = settings.cell_time().as_secs_f64();
        disk.simulate(&mut rows, settings.limits(), seconds, |rows, index, rate| {
            let part = if rows.0[index].cell == Cell::COMMIT { default } else { 1.0 };
            let syncs_per_s = 3000.0 * part * rate;
            let (syncs, latency_us_p50) = ((syncs_per_s * seconds) as u64, 1e6 / syncs_per_s);
            Figures { seconds, syncs, syncs_per_s, latency_us_p50, latency_us_p99: None }
        });
        conclusion::draw(Some("ext4"), &rows.0, forebay_measure::statistics::Floor::default())
    })
}
