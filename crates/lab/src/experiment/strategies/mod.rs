//! Experiment `strategies`: which readahead strategy suits which order of reading.
//!
//! Document 000 of the sources proposed to tell the kernel RANDOM or NORMAL by access strategy, and was
//! asked for figures beside other patterns and with cold caches. Here every strategy that a stream can
//! have reads the same blocks: in 21 patterns, from four states of the caches, through the page cache and
//! past it, and for each value of the device's own readahead that is asked for. In each of these rows
//! the best strategy has ratio 1; `adaptive`, which is told nothing, should be near it everywhere.
//!
//! Document 004 found that advising every block (WILLNEED) made clustered random reads slower: the kernel
//! carries out each piece of advice by itself, and no longer sees the pattern for which it would have read
//! ahead. Its orders are patterns here (`shuffled`: ranges in turn, each locally random; `neighbours`: 1, 3,
//! 2, 6, 4, 9; `two-streams`: 1, 1001, 2, 1002), and its ways of reading are entrants that need no pool.
//!
//! Source:      documents 000 and 004.

mod args;
mod conclusion;
mod settings;
mod view;

pub use args::StrategiesArgs;
pub use settings::Settings;

use forebay_io::CacheMode;
use serde::Serialize;
use serde_json::json;

use super::contest::{self, Standing, hold, readahead_guard};
use super::tally::Row;
use super::{Bench, Entrant, Experiment, Ground, Measuring, Outcome, probe_direct};
use crate::bad_input;
use crate::device_readahead::ReadaheadGuard;
use crate::report::{BackendNote, Record};
use settings::BLOCK_BYTES;

/// The name of this experiment in records.
pub const NAME: &str = "strategies";

/// What there is to measure with.
#[derive(Debug)]
pub struct Means {
    missing_direct: Option<String>,
    backends: Vec<BackendNote>,
    guard: Option<ReadaheadGuard>,
}

/// One entrant in one row.
#[derive(Debug, Serialize)]
struct Cell {
    pattern: String,
    strategy: String,
    cache_state: &'static str,
    cache: String,
    device_readahead_bytes: Option<u64>,
}

impl Experiment for Settings {
    fn ground(&self) -> Ground {
        Settings::ground(self)
    }

    fn measurements(&self) -> u64 {
        let cells: usize = self.rows().iter().map(|row| row.entrants.len()).sum();
        cells as u64 * u64::from(self.rounds)
    }

    fn command(&self, program: &str) -> String {
        Settings::command(self, program)
    }

    fn probe<'a>(&'a self, bench: &Bench<'_>) -> anyhow::Result<Measuring<'a>> {
        let guard = readahead_guard(bench.storage, &self.device_readahead)?;
        let mut missing_direct = None;
        if self.caches.contains(&CacheMode::Direct) {
            missing_direct = probe_direct(&self.ground(), bench.workfile)?;
        }
        let is_missing = |cache| cache == CacheMode::Direct && missing_direct.is_some();
        if let Some(why) = &missing_direct
            && self.rows().iter().all(|row| is_missing(row.cache))
        {
            bad_input!("nothing of this can be measured here: {why}");
        }
        let mut backends: Vec<BackendNote> = Vec::new();
        for &cache in self.caches.iter().filter(|&&cache| !is_missing(cache)) {
            let note = contest::backend(bench.workfile, cache)?;
            if backends.iter().all(|other| other.backend != note.backend) {
                backends.push(note);
            }
        }
        let means = Means { missing_direct, backends, guard };
        Ok(Box::new(move |bench, progress| self.run(bench, means, progress)))
    }
}

impl Settings {
    fn run(
        &self,
        bench: &Bench<'_>,
        means: Means,
        progress: &mut dyn FnMut(&str),
    ) -> anyhow::Result<Outcome> {
        let Means { missing_direct, backends, guard } = means;
        let standing = |row: contest::Row| match &missing_direct {
            Some(why) if row.cache == CacheMode::Direct => Standing::unmeasured(row, why),
            _ => Standing::new(row),
        };
        let mut standings: Vec<Standing> = self.rows().into_iter().map(standing).collect();
        hold(bench, &self.rules(), &mut standings, guard, progress)?;
        Ok(self.outcome(&standings, backends))
    }

    /// What the rows say. Those that rounds were added to are in it with all their rounds.
    fn outcome(&self, standings: &[Standing], backends: Vec<BackendNote>) -> Outcome {
        let verdicts = conclusion::verdicts(standings);
        let conclusions = conclusion::draw(standings, &verdicts);
        Outcome {
            records: standings.iter().flat_map(|standing| self.records(standing)).collect(),
            backends,
            section: view::section(standings),
            advice: conclusion::advice(standings).into_iter().collect(),
            verdicts,
            conclusions,
        }
    }

    /// The records of a row: the metrics, each entrant's rank in it, and what a reader has to know.
    fn records(&self, standing: &Standing) -> Vec<Record> {
        let row = &standing.row;
        let ratios = standing.ratios_to_best();
        let record = |(index, entrant): (usize, &Entrant)| {
            let cell = Cell {
                pattern: row.pattern.to_string(),
                strategy: entrant.to_string(),
                cache_state: row.state.name(),
                cache: row.cache.to_string(),
                device_readahead_bytes: standing.device_readahead_bytes,
            };
            let tally = &standing.tallies[index];
            let rounds = tally.rounds.iter().map(|round| round.figures(BLOCK_BYTES)).collect();
            let mut record = Row { rounds, ..Row::new(cell) }.record(NAME, "blocks_per_s");
            record.metrics.insert("ratio_to_best".to_owned(), json!(ratios[index]));
            record.remarks = tally.notes();
            let slowed = self.handicap.filter(|(slowed, _)| slowed == entrant);
            record.remarks.extend(slowed.map(|(_, part)| {
                format!("slowed down on purpose by {:.0} % of its time", part * 100.0)
            }));
            record
        };
        row.entrants.iter().enumerate().map(record).collect()
    }
}

#[cfg(test)]
mod tests;
