//! Experiment `sync`: what a commit costs.
//!
//! A commit is durable when what was written is synced, and how long that takes decides how many of them a
//! writer makes. Measured are writes of three sizes, each with its sync, appended and in place of what was
//! written before, by every method that Linux has for it, with one writer and with several.
//!
//! All cells of a round are measured shortly after each other, in an order that is shuffled anew; those that
//! PostgreSQL can choose from get more rounds while it is undecided which is the best and there is time.
//!
//! Invariants:  [SYN-1] round n of a cell is beside round n of every other: who leaves does not come back

mod args;
mod cell;
mod conclusion;
mod settings;
mod view;
mod writer;

pub use args::SyncArgs;
pub use settings::Settings;

use std::time::Instant;

use super::tally::{one_round, shuffled};
use super::{Bench, Experiment, Ground, Measuring, Outcome};
use crate::workfile::{Naming, Workfile};
use cell::{Cell, Figures, Files, Place, Row};
use writer::{CELL_TIME, Part};

/// The name of this experiment in records.
pub const NAME: &str = "sync";

/// Rounds beyond which time does not decide any more.
const ROUNDS_MAX: u32 = 15;

/// Size of a writer's own file, and most that is appended in a measurement.
const OWN_BYTES: u64 = 4 << 20;
const APPENDED_BYTES_MAX: u64 = 256 << 20;

impl Experiment for Settings {
    fn ground(&self) -> Ground {
        Ground {
            directory: self.directory.clone(),
            size_bytes: self.size_bytes,
            block_bytes: 8192,
            seed: self.seed,
            naming: Naming::Nameless,
        }
    }

    fn space_bytes(&self) -> u64 {
        let writers = self.cells().iter().map(|cell| cell.writers).max().unwrap_or(1);
        self.size_bytes + self.appended_bytes() + u64::from(writers) * OWN_BYTES
    }

    fn measurements(&self) -> u64 {
        self.cells().len() as u64 * u64::from(self.rounds)
    }

    fn command(&self, program: &str) -> String {
        Settings::command(self, program)
    }

    fn probe<'a>(&'a self, _: &Bench<'_>) -> anyhow::Result<Measuring<'a>> {
        crate::workfile::check_directory(&self.directory, self.space_bytes())?;
        Ok(Box::new(|bench, progress| self.run(bench, progress)))
    }
}

impl Settings {
    fn run(&self, bench: &Bench<'_>, progress: &mut dyn FnMut(&str)) -> anyhow::Result<Outcome> {
        let own = self.cells().into_iter().filter(|cell| cell.files == Files::Own);
        let own = own.map(|cell| cell.writers).max().unwrap_or(0);
        let own: anyhow::Result<Vec<Workfile>> = (0..own).map(|_| self.file(OWN_BYTES)).collect();
        let site = Site { settings: self, workfile: bench.workfile, own: own? };
        let rows = site.measure_all(progress)?;
        Ok(Outcome {
            records: rows.iter().map(|row| row.record(NAME, "syncs_per_s")).collect(),
            section: view::section(&rows),
            ..conclusion::draw(bench.storage.filesystem.as_deref(), &rows)
        })
    }

    fn appended_bytes(&self) -> u64 {
        self.size_bytes.min(APPENDED_BYTES_MAX)
    }

    /// A file without a name, filled with so many bytes and synced.
    fn file(&self, bytes: u64) -> anyhow::Result<Workfile> {
        let (directory, naming) = (&self.directory, Naming::Nameless);
        let mut file = Workfile::create(directory, bytes, 8192, self.seed, naming)?;
        file.fill(|_| ())?;
        Ok(file)
    }
}

/// Where cells are measured.
struct Site<'a> {
    settings: &'a Settings,
    workfile: &'a Workfile,
    own: Vec<Workfile>,
}

impl Site<'_> {
    fn measure_all(&self, progress: &mut dyn FnMut(&str)) -> anyhow::Result<Vec<Row>> {
        let (settings, clock) = (self.settings, Instant::now());
        let mut random = fastrand::Rng::with_seed(settings.seed);
        let mut rows: Vec<Row> = settings.cells().into_iter().map(Row::new).collect();
        for round in 0..ROUNDS_MAX.max(settings.rounds) {
            let mut order = shuffled(&rows, &mut random);
            if round >= settings.rounds {
                // [SYN-1]
                order.retain(|&row| rows[row].cell.is_a_commit());
                let next = CELL_TIME * order.len() as u32;
                let in_time = settings.budget.is_some_and(|most| clock.elapsed() + next < most);
                if !in_time || !conclusion::is_undecided(&rows) {
                    break;
                }
            }
            one_round(
                &mut rows,
                order,
                progress,
                |cell| cell.label(),
                |row| {
                    assert_eq!(row.rounds.len(), round as usize, "[SYN-1]");
                    let figures = self.measure(row.cell)?;
                    if figures.seconds < CELL_TIME.as_secs_f64() {
                        row.remarks.push("ended early: the file has its largest size".to_owned());
                    }
                    Ok(figures)
                },
            )?;
        }
        Ok(rows)
    }

    fn measure(&self, cell: Cell) -> anyhow::Result<Figures> {
        let (writers, appended) = (u64::from(cell.writers), self.settings.appended_bytes());
        let part = |file: &Workfile, bytes| Part::new(file, bytes, cell);
        let parts: anyhow::Result<Vec<Part>> = match (cell.files, cell.place) {
            (Files::One, Place::Overwritten) => {
                let each = self.workfile.size_bytes() / writers / cell.bytes * cell.bytes;
                let range = |number| number * each..(number + 1) * each;
                (0..writers).map(|number| part(self.workfile, range(number))).collect()
            }
            // One part for all: who comes next appends.
            (Files::One, Place::Appended) => {
                part(&self.settings.file(0)?, 0..appended).map(|it| vec![it])
            }
            (Files::Own, Place::Overwritten) => {
                let own = self.own.iter().take(cell.writers as usize);
                own.map(|file| part(file, 0..OWN_BYTES)).collect()
            }
            (Files::Own, Place::Appended) => {
                let each = appended / writers;
                (0..writers).map(|_| part(&self.settings.file(0)?, 0..each)).collect()
            }
        };
        writer::measure(cell, &parts?)
    }
}
