//! Experiment `activation`: after how many reads the kernel begins to read ahead, and how that grows.
//!
//! Document 002 of the sources left it open: "Readahead does not activate for pure random requests. The
//! question is, when does it?" Here a fresh descriptor reads one block after the other, from the beginning
//! of a file and from its middle, in steps of one and of several blocks, under each kind of advice; after
//! each read the page cache says what the kernel has read beyond it. Two streams that take turns show what
//! it can tell apart through one descriptor, and through two.
//!
//! Each cell is repeated, every time from an emptied page cache and (but for the beginning, of which there is
//! one) in another part of the file, and it is told how many repetitions agree.
//!
//! Failure:     where residency cannot be seen nothing is measured, and that is said at once.
//! Source:      document 002; the kernel's `mm/readahead.c` is what is observed.

mod conclusion;
mod record;
mod settings;
mod trail;
mod watch;

pub use settings::{Settings, Start, Told};

use forebay_io::File;

use super::readahead::{BLOCK_BYTES, Setting, emptied};
use super::{Bench, Experiment, Ground, Outcome};
use crate::measure::Coldness;
use crate::workfile::{Naming, Workfile};
use crate::{bad_input, interrupt};
use settings::{Cell, Descriptors};
use trail::{Finding, Trail};
use watch::{Gait, Stream, follow};

/// The name of this experiment in records.
pub const NAME: &str = "activation";

/// Where streams begin in the middle of the file: at multiples of this, so that how the kernel aligns its
/// windows is the same each time.
const PLACE_BYTES: u64 = 4 << 20;

impl Experiment for Settings {
    type Means = ();

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
        self.cells().len() as u64 * u64::from(self.repetitions)
    }

    fn command(&self, program: &str) -> String {
        Settings::command(self, program)
    }

    fn probe(&self, bench: &Bench<'_>) -> anyhow::Result<()> {
        match emptied(bench.workfile)? {
            Coldness::Unknown { why } => bad_input!("activation cannot be seen here: {why}"),
            Coldness::Cold | Coldness::Warm { .. } => Ok(()),
        }
    }

    fn run(
        &self,
        bench: &Bench<'_>,
        (): (),
        progress: &mut dyn FnMut(&str),
    ) -> anyhow::Result<Outcome> {
        let cells = self.cells();
        let mut tallies: Vec<Tally> = cells.iter().map(|_| Tally::default()).collect();
        let mut random = fastrand::Rng::with_seed(self.seed);
        for _ in 0..self.repetitions {
            for (&cell, tally) in cells.iter().zip(&mut tallies) {
                interrupt::check()?;
                progress(&cell.label());
                let coldness = emptied(bench.workfile)?;
                tally.findings.push(repetition(self, cell, bench.workfile, &mut random)?);
                tally.remarks.extend(coldness.remark());
            }
        }
        let records = record::records(self, bench.storage, &cells, &tallies);
        let advice = conclusion::draw(&records);
        Ok(Outcome { records, backends: Vec::new(), conclusions: advice, ..Outcome::default() })
    }
}

/// What the repetitions of a cell gave.
#[derive(Debug, Default)]
struct Tally {
    findings: Vec<Finding>,
    remarks: Vec<String>,
}

/// Reads once as `cell` says, from an emptied page cache.
fn repetition(
    settings: &Settings,
    cell: Cell,
    workfile: &Workfile,
    random: &mut fastrand::Rng,
) -> anyhow::Result<Finding> {
    let open = || Setting::Descriptor(cell.told.hint()).open(workfile.path());
    let (first, second) = (open()?, open()?);
    let gait = settings.gait(cell);
    let starts = starts(settings, cell, gait, random);
    let files: [&File; 2] = match cell.descriptors {
        Descriptors::One => [&first, &first],
        Descriptors::Own => [&first, &second],
    };
    let mut streams: Vec<Stream<'_>> = starts
        .into_iter()
        .zip(files)
        .map(|(start, file)| Stream { file, start, trail: Trail::default() })
        .collect();
    follow(workfile, &mut streams, gait)?;
    // Of two streams the one that had to wait longer; one that waited in vain waited longest.
    let findings = streams.iter().map(|stream| stream.trail.finding().clone());
    let reads = |finding: &Finding| finding.reads_until_ahead.unwrap_or(u32::MAX);
    Ok(findings.max_by_key(reads).unwrap_or_default())
}

/// Where the streams of a cell begin.
fn starts(settings: &Settings, cell: Cell, gait: Gait, random: &mut fastrand::Rng) -> Vec<u64> {
    if cell.start == Start::Begin {
        return vec![0];
    }
    // A half for each of two streams.
    let half = settings.size_bytes / 2;
    let room = if cell.streams == 1 { settings.size_bytes } else { half };
    let places = (room.saturating_sub(gait.span_bytes) / PLACE_BYTES).max(2);
    let place = random.u64(1..places) * PLACE_BYTES;
    (0..u64::from(cell.streams)).map(|stream| place + stream * half).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{ActivationArgs, CommonArgs};

    fn settings() -> Settings {
        let common = CommonArgs { dir: ".".into(), seed: Some(1) };
        Settings::new(&ActivationArgs::quick(&common)).unwrap()
    }

    #[test]
    fn every_stream_stays_in_the_file_and_away_from_the_other() {
        let settings = settings();
        let mut random = fastrand::Rng::with_seed(1);
        for cell in settings.cells() {
            let gait = settings.gait(cell);
            for _ in 0..50 {
                let starts = starts(&settings, cell, gait, &mut random);
                assert_eq!(starts.len(), cell.streams as usize);
                assert_eq!(starts[0] == 0, cell.start == Start::Begin);
                for pair in starts.windows(2) {
                    assert!(pair[0] + gait.span_bytes <= pair[1]);
                }
                assert!(starts.iter().all(|start| start + gait.span_bytes <= settings.size_bytes));
            }
        }
    }
}
