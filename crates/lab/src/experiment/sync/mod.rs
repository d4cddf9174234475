//! Experiment `sync`: what a commit costs.
//!
//! A commit is durable when what was written is synced, and how long that takes decides how many of them a
//! writer makes. Measured are writes of three sizes, each with its sync, appended and in place of what was
//! written before, by every method that Linux has for it, with one writer and with several.
//!
//! All cells of a round are measured shortly after each other, in an order that is reshuffled; those that
//! PostgreSQL can choose from get more rounds while it is undecided which is the best and there is time.
//!
//! Invariants:  [SYN-1] round n of a cell is beside round n of every other: one that leaves does not come back

mod cell;
mod conclusion;
mod settings;
mod view;
mod writer;

pub use settings::Settings;

use std::time::Instant;

use forebay_io::Op;

use super::modes::through_cache;
use super::tally::{one_round, shuffled};
use super::{Bench, Experiment, Ground, Measuring, Outcome};
use crate::workfile::{Naming, Workfile};
use cell::{Cell, Figures, Method, Place, Row};
use writer::{CELL_TIME, Part};

/// The name of this experiment in records.
pub const NAME: &str = "sync";

/// Rounds beyond which time does not decide any more.
const ROUNDS_MAX: u32 = 15;

/// Most that is appended in a measurement.
const APPENDED_BYTES_MAX: u64 = 256 << 20;

impl Experiment for Settings {
    fn ground(&self) -> Ground {
        self.common.ground(self.size_bytes, 8192, Naming::Nameless)
    }

    fn space_bytes(&self) -> u64 {
        self.size_bytes + self.appended_bytes()
    }

    fn measurements(&self) -> u64 {
        self.cells().len() as u64 * u64::from(self.rounds.least)
    }

    fn probe<'a>(&'a self, _: &Bench<'_>) -> anyhow::Result<Measuring<'a>> {
        Ok(Box::new(|bench, progress| {
            let rows = self.measure_all(bench.workfile, progress)?;
            Ok(Outcome {
                records: rows.iter().map(|row| row.record(NAME, "syncs_per_s")).collect(),
                section: view::section(&rows),
                ..conclusion::draw(bench.storage.filesystem.as_deref(), &rows)
            })
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
    ) -> anyhow::Result<Vec<Row>> {
        let clock = Instant::now();
        let mut random = fastrand::Rng::with_seed(self.common.seed);
        let mut rows: Vec<Row> = self.cells().into_iter().map(Row::new).collect();
        if let Some(why) = through_cache(&self.common.dir, Op::Write) {
            let direct = rows.iter_mut().filter(|row| row.cell.method == Method::ODirectODsync);
            direct.for_each(|row| row.failure = Some(why.clone()));
        }
        for round in 0..ROUNDS_MAX.max(self.rounds.least) {
            let mut order = shuffled(&rows, &mut random);
            if round >= self.rounds.least {
                // [SYN-1]
                order.retain(|&row| rows[row].cell.is_a_commit());
                let next = CELL_TIME * order.len() as u32;
                let in_time = clock.elapsed() + next < self.budget();
                if !in_time || !conclusion::is_undecided(&rows) {
                    break;
                }
            }
            one_round(&mut rows, order, progress, Cell::label, |row| {
                assert_eq!(row.rounds.len(), round as usize, "[SYN-1]");
                let figures = self.measure(row.cell, workfile)?;
                if figures.seconds < CELL_TIME.as_secs_f64() {
                    row.remarks.push("ended early: the file has its largest size".to_owned());
                }
                Ok(figures)
            })?;
        }
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
            // One part for all: the next to come appends.
            Place::Appended => {
                let (directory, naming) = (&self.common.dir, Naming::Nameless);
                let empty = Workfile::create(directory, 0, 8192, self.common.seed, naming)?;
                vec![Part::new(&empty, 0..self.appended_bytes(), cell)?]
            }
        };
        writer::measure(cell, &parts)
    }
}
