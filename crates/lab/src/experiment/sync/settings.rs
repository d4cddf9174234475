//! The settings of a run, and the cells that follow from them.

use std::path::PathBuf;
use std::time::Duration;

use super::SyncArgs;
use super::cell::{Cell, Method, Place};
use crate::bad_input;
use crate::experiment::quoted;
use crate::units::typed_size;

/// The smallest file in which sixteen writers have room for a few of the largest writes.
const SIZE_MIN: u64 = 32 << 20;

/// Sizes of a write. The first is a page of PostgreSQL's WAL, as a small commit writes it.
const SIZES: [u64; 3] = [8 << 10, 64 << 10, 1 << 20];

/// Writers beside each other.
const WRITERS: [u32; 2] = [4, 16];

/// Settings with every default filled in and checked.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Absolute directory of the files.
    pub directory: PathBuf,
    /// Size of the file that is overwritten, in bytes.
    pub size_bytes: u64,
    /// Measurements of each cell, at least.
    pub rounds: u32,
    /// Time for all of them, within which undecided methods get more; `None`: no more.
    pub budget: Option<Duration>,
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
    pub fn new(args: &SyncArgs) -> anyhow::Result<Settings> {
        let (size, rounds, seconds) = if args.quick { (64, 3, 9) } else { (256, 5, 120) };
        let size_bytes = args.size.unwrap_or(size << 20);
        if size_bytes < SIZE_MIN {
            bad_input!("--size {size_bytes}: it should be {} at least", typed_size(SIZE_MIN));
        }
        let directory = args.common.dir.clone();
        Ok(Settings {
            directory: std::fs::canonicalize(&directory).unwrap_or(directory),
            size_bytes,
            rounds: args.rounds.unwrap_or(rounds),
            budget: args.rounds.is_none().then_some(Duration::from_secs(seconds)),
            seed: args.common.seed.unwrap_or_else(|| fastrand::u64(..1 << 32)),
            quick: args.quick,
        })
    }

    /// The command that repeats a run with these settings. `program`: the path or name by which this
    /// program was called.
    pub fn command(&self, program: &str) -> String {
        let mut command = format!(
            "{} lab sync --dir {} --size {} --seed {}",
            quoted(program),
            quoted(&self.directory.display().to_string()),
            typed_size(self.size_bytes),
            self.seed,
        );
        if self.budget.is_none() {
            command.push_str(&format!(" --rounds {}", self.rounds));
        }
        command.push_str(if self.quick { " --quick" } else { "" });
        command
    }

    pub(super) fn cells(&self) -> Vec<Cell> {
        let page = Cell {
            bytes: SIZES[0],
            place: Place::Overwritten,
            method: Method::Fdatasync,
            writers: 1,
        };
        let by_methods = |cell: Cell| Method::ALL.map(|method| Cell { method, ..cell });
        if self.quick {
            // In `forebay lab` a few seconds are left for this: what PostgreSQL can choose from, and one of each
            // other kind.
            let methods = by_methods(page).into_iter().filter(|it| it.method != Method::RwfDsync);
            let others = [
                Cell { place: Place::Appended, ..page },
                Cell { bytes: SIZES[2], ..page },
                Cell { writers: WRITERS[1], ..page },
            ];
            return methods.chain(others).collect();
        }
        let mut cells = Vec::new();
        for place in [Place::Overwritten, Place::Appended] {
            for bytes in SIZES {
                cells.extend(by_methods(Cell { bytes, place, ..page }));
            }
            for writers in WRITERS {
                cells.extend(by_methods(Cell { place, writers, ..page }));
            }
        }
        cells
    }
}
