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

use std::fs::File;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use anyhow::Context;

use super::{Bench, Experiment, Ground, Measuring, Outcome};
use crate::interrupt;
use crate::workfile::{Naming, Workfile};
use cell::{Cell, Files, Method, Place, Row};
use writer::{CELL_TIME, Part, Refused};

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
        let own = self.own_files()?;
        let site = Site { settings: self, workfile: bench.workfile, own };
        let rows = site.measure_all(progress)?;
        Ok(Outcome {
            records: rows.iter().map(Row::record).collect(),
            section: view::section(&rows),
            ..conclusion::draw(bench.storage.filesystem.as_deref(), &rows)
        })
    }

    fn appended_bytes(&self) -> u64 {
        self.size_bytes.min(APPENDED_BYTES_MAX)
    }

    /// A file for each writer that has one of its own, written and synced.
    fn own_files(&self) -> anyhow::Result<Vec<File>> {
        let own = self.cells().into_iter().filter(|cell| cell.files == Files::Own);
        let count = own.map(|cell| cell.writers).max().unwrap_or(0);
        (0..count).map(|_| self.scratch(OWN_BYTES)).collect()
    }

    /// A file without a name, filled with so many bytes.
    fn scratch(&self, bytes: u64) -> anyhow::Result<File> {
        let file = tempfile::tempfile_in(&self.directory).context("cannot make a file")?;
        let mut contents = vec![0; bytes as usize];
        fastrand::fill(&mut contents);
        std::io::Write::write_all(&mut &file, &contents).context("cannot fill a file")?;
        file.sync_all().context("cannot sync a file")?;
        Ok(file)
    }
}

/// Where cells are measured.
struct Site<'a> {
    settings: &'a Settings,
    workfile: &'a Workfile,
    own: Vec<File>,
}

impl Site<'_> {
    fn measure_all(&self, progress: &mut dyn FnMut(&str)) -> anyhow::Result<Vec<Row>> {
        let (settings, clock) = (self.settings, Instant::now());
        let mut random = fastrand::Rng::with_seed(settings.seed);
        let mut rows: Vec<Row> = settings.cells().into_iter().map(Row::new).collect();
        for round in 0..ROUNDS_MAX.max(settings.rounds) {
            let mut order: Vec<usize> = (0..rows.len()).collect();
            if round >= settings.rounds {
                // [SYN-1]
                order.retain(|&row| rows[row].cell.is_a_commit());
                let next = CELL_TIME * order.len() as u32;
                let in_time = settings.budget.is_some_and(|most| clock.elapsed() + next < most);
                if !in_time || !conclusion::is_undecided(&rows) {
                    break;
                }
            }
            random.shuffle(&mut order);
            for index in order {
                if rows[index].refused.is_some() {
                    continue;
                }
                interrupt::check()?;
                assert_eq!(rows[index].rounds.len(), round as usize, "[SYN-1]");
                progress(&rows[index].cell.label());
                self.measure_into(&mut rows[index])?;
            }
        }
        Ok(rows)
    }

    fn measure_into(&self, row: &mut Row) -> anyhow::Result<()> {
        match self.measure(row.cell) {
            Ok(figures) => {
                if figures.seconds < CELL_TIME.as_secs_f64() {
                    row.remarks.push("ended early: the file has its largest size".to_owned());
                }
                row.rounds.push(figures);
            }
            Err(error) => match error.downcast_ref::<Refused>() {
                Some(refused) => row.refused = Some(refused.to_string()),
                None => return Err(error),
            },
        }
        Ok(())
    }

    fn measure(&self, cell: Cell) -> anyhow::Result<cell::Figures> {
        let writers = u64::from(cell.writers);
        match (cell.files, cell.place) {
            (Files::One, Place::Overwritten) => {
                let file = writer::open(self.workfile.path(), cell.method)?;
                let each = self.workfile.size_bytes() / writers / cell.bytes * cell.bytes;
                let nexts: Vec<AtomicU64> = (0..writers).map(|_| AtomicU64::new(0)).collect();
                let part = |(number, next)| {
                    let number: u64 = number;
                    let bytes = number * each..(number + 1) * each;
                    Part { file: &file, bytes, next, once: false }
                };
                writer::measure(cell, &(0..).zip(&nexts).map(part).collect::<Vec<_>>())
            }
            (Files::One, Place::Appended) => {
                let kept = self.settings.scratch(0)?;
                let file = reopened(&kept, cell.method)?;
                let next = AtomicU64::new(0);
                let bytes = 0..self.settings.appended_bytes();
                let part = |_| Part { file: &file, bytes: bytes.clone(), next: &next, once: true };
                writer::measure(cell, &(0..writers).map(part).collect::<Vec<_>>())
            }
            (Files::Own, place) => {
                let appended = place == Place::Appended;
                let nexts: Vec<AtomicU64> = (0..writers).map(|_| AtomicU64::new(0)).collect();
                let each =
                    if appended { self.settings.appended_bytes() / writers } else { OWN_BYTES };
                let fresh = if appended { writers } else { 0 };
                let fresh: anyhow::Result<Vec<File>> =
                    (0..fresh).map(|_| self.settings.scratch(0)).collect();
                let fresh = fresh?;
                let files = if appended { &fresh } else { &self.own };
                let part = |(file, next)| Part { file, bytes: 0..each, next, once: appended };
                writer::measure(cell, &files.iter().zip(&nexts).map(part).collect::<Vec<_>>())
            }
        }
    }
}

/// `file`, which has no name, opened once more for `method`.
fn reopened(file: &File, method: Method) -> anyhow::Result<File> {
    use std::os::fd::AsRawFd;

    if matches!(method, Method::Fdatasync | Method::Fsync | Method::RwfDsync) {
        return file.try_clone().context("cannot open the file");
    }
    writer::open(format!("/proc/self/fd/{}", file.as_raw_fd()).as_ref(), method)
}
