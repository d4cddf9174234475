//! The settings of a run: what the user requested, and the cells that follow from it.

use std::time::Duration;

use clap::Args;

use super::cell::{Cell, Method, Place};
use crate::args::{CommonArgs, OutputArgs};
use crate::experiment::Rounds;
use crate::experiment::schedule::Limits;
use forebay_measure::units::parse_size_in;

/// The name of this experiment in records.
pub const NAME: &str = "sync";

/// The smallest file in which sixteen writers have room for a few of the largest writes.
const SIZE_MIN: u64 = 32 << 20;

/// Sizes of a write.
const SIZES: [u64; 3] = [Cell::COMMIT.bytes, 64 << 10, 1 << 20];

/// Concurrent writers.
const WRITERS: [u32; 2] = [4, 16];

/// `forebay lab sync`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Each measurement writes and syncs, one after the other, for a quarter of a second, with --quick for 120 ms: \
                  what a commit costs.\n\
                  Places: overwritten (a file that was written and synced before, as PostgreSQL's recycled \
                  WAL segments), appended (a file that grows).\n\
                  Methods: fdatasync, fsync, o_dsync, o_sync (a file that was opened so), rwf_dsync (each \
                  write says so), o_direct_o_dsync (past the page cache). In PostgreSQL's wal_sync_method o_dsync is \
                  open_datasync, and o_sync is open_sync.\n\
                  Writers share one file, each in a part of it.\n\n\
                  Example: forebay lab sync --dir /var/lib/postgresql"
)]
pub struct Settings {
    /// The place and the conditions.
    #[command(flatten)]
    pub(in crate::experiment) common: CommonArgs,
    /// Size of the file that is overwritten, at least 32MiB [quick: 64MiB]
    #[arg(long = "size", value_name = "SIZE", value_parser = parse_size_in(SIZE_MIN..=1 << 50),
          default_value = "256MiB", default_value_if("quick", "true", "64MiB"))]
    pub(super) size_bytes: u64,
    /// Measurements of each cell; 5+ is 5 or more, as time allows [quick: 6+]
    #[arg(long, value_name = "N", default_value = "5+", default_value_if("quick", "true", "6+"))]
    pub(super) rounds: Rounds,
    /// Fewer cells and rounds: less than ten seconds
    #[arg(long)]
    pub(super) quick: bool,
    /// The output files.
    #[command(flatten)]
    pub(in crate::experiment) output: OutputArgs,
}

impl Settings {
    /// How long there are rounds.
    pub(super) fn limits(&self) -> Limits {
        self.rounds.limits(if self.quick { 9 } else { 120 })
    }

    /// How long a measurement lasts.
    pub(super) fn cell_time(&self) -> Duration {
        Duration::from_millis(if self.quick { 120 } else { 250 })
    }

    pub(super) fn cells(&self) -> Vec<Cell> {
        let page = Cell::COMMIT;
        let by_methods = |cell: Cell| Method::ALL.map(|method| Cell { method, ..cell });
        if self.quick {
            // `forebay lab` has only a few seconds for this: the methods that PostgreSQL can choose from, and one of
            // each other kind.
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
