//! Experiment `mixture`: streaming readers with random readers beside them, and who loses what.
//!
//! The last question of document 002: "I will also measure its affect when mixed random access and streaming
//! reads occur." A large readahead lets a stream have the disk for longer at a time, and a random reader
//! wait for as long; a small one is the other way round. Under each readahead each kind is measured alone,
//! then both together, and told is what part of what it had alone each of them keeps.
//!
//! Invariants:  [MIX-1] what a kind keeps is compared with what it had alone under the same readahead
//! Source:      document 002.

mod conclusion;
mod mix;
mod record;
mod settings;

pub use settings::Settings;

use std::fmt;

use super::readahead::{
    BLOCK_BYTES, Finish, Limits, Setting, Turned, counted, emptied, hold, ranges,
};
use super::tally::wait_histogram;
use super::{Bench, Experiment, Ground, Outcome};
use crate::facts::DeviceCounters;
use crate::interrupt;
use crate::measure::Coldness;
use crate::workfile::Naming;
use hdrhistogram::Histogram;
use mix::{Random, Reader, Stream, deal};

/// The name of this experiment in records.
pub const NAME: &str = "mixture";

/// Who reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mix {
    Streams,
    Random,
    Both,
}

impl Mix {
    const ALL: [Mix; 3] = [Mix::Streams, Mix::Random, Mix::Both];

    fn name(self) -> &'static str {
        match self {
            Mix::Streams => "streams",
            Mix::Random => "random",
            Mix::Both => "both",
        }
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.name())
    }
}

/// One thing to be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cell {
    setting: Setting,
    mix: Mix,
}

/// What one round of a cell gave.
#[derive(Debug)]
struct Measured {
    finish: Finish,
    /// Of the random readers.
    wait_ns: Histogram<u64>,
    device: Option<DeviceCounters>,
}

/// What the rounds of one cell gave.
#[derive(Debug, Default)]
struct Tally {
    rounds: Vec<Measured>,
    coldness: Vec<Coldness>,
    made_bytes: Option<u64>,
}

/// What there is to measure with.
#[derive(Debug)]
pub struct Means {
    turned: Turned,
}

impl Settings {
    fn cells(&self) -> Vec<Cell> {
        let cells = |&setting: &Setting| Mix::ALL.map(|mix| Cell { setting, mix });
        self.readaheads.iter().flat_map(cells).collect()
    }

    /// How many streams and how many random readers take part.
    fn readers(&self, mix: Mix) -> (u32, u32) {
        match mix {
            Mix::Streams => (self.streams, 0),
            Mix::Random => (0, self.random),
            Mix::Both => (self.streams, self.random),
        }
    }
}

impl Experiment for Settings {
    type Means = Means;

    const NAMING: Naming = Naming::Nameless;

    fn ground(&self) -> Ground {
        Ground {
            directory: self.directory.clone(),
            size_bytes: self.size_bytes,
            block_bytes: BLOCK_BYTES,
            seed: self.seed,
        }
    }

    fn measurements(&self) -> u64 {
        self.cells().len() as u64 * u64::from(self.rounds)
    }

    fn command(&self, program: &str) -> String {
        Settings::command(self, program)
    }

    fn probe(&self, _bench: &Bench<'_>) -> anyhow::Result<Means> {
        Ok(Means { turned: self.knob.take()? })
    }

    fn run(
        &self,
        bench: &Bench<'_>,
        Means { turned }: Means,
        progress: &mut dyn FnMut(&str),
    ) -> anyhow::Result<Outcome> {
        let cells = self.cells();
        let mut tallies: Vec<Tally> = cells.iter().map(|_| Tally::default()).collect();
        let held = rounds(self, bench, &turned, &cells, &mut tallies, progress);
        // Put back whatever happened; and if both failed, what went wrong first is told.
        let restored = turned.restore();
        held.and(restored)?;
        let records = record::records(self, bench.storage, &cells, &tallies);
        let advice = conclusion::draw(&records);
        Ok(Outcome { records, backends: Vec::new(), conclusions: advice, ..Outcome::default() })
    }
}

fn rounds(
    settings: &Settings,
    bench: &Bench<'_>,
    turned: &Turned,
    cells: &[Cell],
    tallies: &mut [Tally],
    progress: &mut dyn FnMut(&str),
) -> anyhow::Result<()> {
    let mut random = fastrand::Rng::with_seed(settings.seed);
    for _ in 0..settings.rounds {
        let mut order: Vec<usize> = (0..cells.len()).collect();
        random.shuffle(&mut order);
        for index in order {
            interrupt::check()?;
            let (cell, tally) = (cells[index], &mut tallies[index]);
            progress(&format!("{}, {}", cell.setting, cell.mix));
            tally.coldness.push(emptied(bench.workfile)?);
            tally.made_bytes = turned.set(cell.setting)?;
            tally.rounds.push(measure(settings, bench, cell, &mut random)?);
        }
    }
    Ok(())
}

fn measure(
    settings: &Settings,
    bench: &Bench<'_>,
    cell: Cell,
    random: &mut fastrand::Rng,
) -> anyhow::Result<Measured> {
    let (workfile, request) = (bench.workfile, settings.request_bytes);
    let (streams, randoms) = settings.readers(cell.mix);
    let half = settings.size_bytes / 2;
    let mut readers: Vec<Reader<'_>> = Vec::new();
    for range in ranges(half, streams, half) {
        readers.push(Reader::Stream(Stream::new(workfile, cell.setting, range, request)));
    }
    for offsets in deal(half..settings.size_bytes, request, randoms, random) {
        readers.push(Reader::Random(Random::new(workfile, cell.setting, offsets, request)?));
    }
    let limits = Limits { settle: settings.time / 2, time_max: settings.time };
    let (finish, device) = counted(bench.counters, || hold(&mut readers, limits))?;
    let mut wait_ns = wait_histogram();
    for reader in &readers {
        if let Reader::Random(reader) = reader {
            wait_ns.add(&reader.wait_ns).expect("all histograms are made alike");
        }
    }
    Ok(Measured { finish, wait_ns, device })
}
