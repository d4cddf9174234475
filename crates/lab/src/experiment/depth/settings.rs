//! The settings of a run: what the user asked for, with every default filled in and checked.

use std::path::PathBuf;
use std::time::Duration;

use forebay_io::{CacheMode, Kind};

use super::{Cell, Engine};
use crate::bad_input;
use crate::cli::DepthArgs;
use crate::experiment::{quoted, unique};
use crate::units::typed_size;

/// What is measured unless the user says otherwise.
struct Defaults {
    size_bytes: u64,
    blocks: u64,
    depths: &'static [u32],
    rounds: u32,
    cell_time_max: Duration,
}

/// Document 003's file, blocks and depths.
const FULL: Defaults = Defaults {
    size_bytes: 1 << 30,
    blocks: 4096,
    depths: &[0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096],
    rounds: 5,
    cell_time_max: Duration::from_secs(20),
};

/// Enough to see the shape of the curve on most disks.
const QUICK: Defaults = Defaults {
    size_bytes: 256 << 20,
    blocks: 2048,
    depths: &[0, 1, 4, 16, 64, 256, 1024],
    rounds: 3,
    cell_time_max: Duration::from_secs(1),
};

/// Settings with every default filled in and checked.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Absolute directory of the working file.
    pub directory: PathBuf,
    /// Size of the working file, in bytes.
    pub size_bytes: u64,
    /// Blocks read in each round of a cell.
    pub blocks: u64,
    /// Size of a block, in bytes.
    pub block_bytes: u64,
    /// Backends to measure.
    pub backends: Vec<Kind>,
    /// Cache modes to measure.
    pub caches: Vec<CacheMode>,
    /// Depths to measure, ascending.
    pub depths: Vec<u32>,
    /// Measurements of each cell.
    pub rounds: u32,
    /// Seed of everything random.
    pub seed: u64,
    /// Longest measurement of one cell; on a slow disk fewer blocks are read then.
    pub cell_time_max: Duration,
    /// Whether quick settings were asked for.
    pub quick: bool,
    /// Whether fio is measured as well.
    pub fio: bool,
}

impl Settings {
    /// Fills in what `args` leave open and refuses what makes no sense.
    ///
    /// # Errors
    /// [`BadInput`](crate::BadInput), naming the option.
    pub fn new(args: &DepthArgs) -> anyhow::Result<Settings> {
        let defaults = if args.quick { &QUICK } else { &FULL };
        let block_bytes = args.block_size;
        if !block_bytes.is_power_of_two() || !(512..=1 << 20).contains(&block_bytes) {
            bad_input!("--block-size {block_bytes}: it should be a power of two, 512 to 1MiB");
        }
        let size_bytes = args.size.unwrap_or(defaults.size_bytes);
        let blocks = args.blocks.unwrap_or(defaults.blocks);
        if size_bytes / block_bytes < blocks {
            bad_input!(
                "--blocks {blocks}: a file of {} has only {} blocks of {}; choose a larger --size",
                crate::units::shown_size(size_bytes),
                size_bytes / block_bytes,
                crate::units::shown_size(block_bytes)
            );
        }
        let mut depths = args.depths.clone();
        if depths.is_empty() {
            depths = defaults.depths.to_vec();
        }
        depths.sort_unstable();
        depths.dedup();
        let directory = args.common.dir.clone();
        Ok(Settings {
            directory: std::fs::canonicalize(&directory).unwrap_or(directory),
            size_bytes,
            blocks,
            block_bytes,
            backends: unique(&args.backends),
            caches: unique(&args.cache),
            depths,
            rounds: args.rounds.unwrap_or(defaults.rounds),
            seed: args.common.seed.unwrap_or_else(|| fastrand::u64(..1 << 32)),
            cell_time_max: defaults.cell_time_max,
            quick: args.quick,
            fio: args.fio,
        })
    }

    /// The command that repeats a run with these settings, every one of them named. `program`: the
    /// path or name by which this program was called.
    pub fn command(&self, program: &str) -> String {
        let list = |items: Vec<String>| items.join(",");
        let mut command = format!(
            "{} lab depth --dir {} --size {} --blocks {} --block-size {} --backends {} \
             --cache {} --depths {} --rounds {} --seed {}",
            quoted(program),
            quoted(&self.directory.display().to_string()),
            typed_size(self.size_bytes),
            self.blocks,
            typed_size(self.block_bytes),
            list(self.backends.iter().map(Kind::to_string).collect()),
            list(self.caches.iter().map(CacheMode::to_string).collect()),
            list(self.depths.iter().map(u32::to_string).collect()),
            self.rounds,
            self.seed,
        );
        if self.quick {
            command.push_str(" --quick");
        }
        if self.fio {
            command.push_str(" --fio");
        }
        command
    }

    pub(super) fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for &cache in &self.caches {
            for &backend in self.backends.iter().filter(|backend| backend.serves(cache)) {
                let engine = Engine::Forebay(backend);
                cells.extend(self.depths.iter().map(|&depth| Cell { engine, cache, depth }));
            }
        }
        if self.fio {
            let (engine, cache) = (Engine::Fio, CacheMode::Direct);
            let depths = self.depths.iter().filter(|&&depth| depth > 0);
            cells.extend(depths.map(|&depth| Cell { engine, cache, depth }));
        }
        cells
    }
}
