//! Experiment `strategies`: which readahead strategy suits which order of reading.
//!
//! Document 000 of the sources proposed to advise the kernel RANDOM or NORMAL by access strategy, and its
//! readers wanted figures for other patterns and with cold caches. Here every strategy of a stream
//! reads the same blocks: in 21 patterns, from four states of the caches, through the page cache and
//! past it, and for each requested value of the device's own readahead. In each of these rows
//! the best strategy has ratio 1; `adaptive`, which gets no hints, should be near it everywhere.
//!
//! Document 004 found that advising every block (WILLNEED) made clustered random reads slower: the kernel
//! executes each piece of advice separately, and no longer sees the pattern for which it would have read
//! ahead. Its orders are patterns here (`shuffled`: ranges in turn, each locally random; `neighbours`: 1, 3,
//! 2, 6, 4, 9; `two-streams`: 1, 1001, 2, 1002), and its ways of reading are variants that need no pool.
//!
//! Source:      documents 000 and 004.

mod conclusion;
mod settings;
mod view;

pub use settings::{NAME, Settings};

use forebay_io::Op;
use serde::Serialize;
use serde_json::json;

use super::comparison::{self, RowResult, hold, judge, readahead_guard};
use super::modes::{self, Modes};
use super::samples::Row;
use super::{
    Bench, CacheState, Experiment, Measurements, Measuring, Outcome, POOL_BLOCK_BYTES, Variant,
    WorkfileSpec,
};
use forebay_measure::report::{BackendNote, Record};
use forebay_measure::statistics::Floor;
use forebay_measure::workfile::Naming;

/// One variant in one row.
#[derive(Debug, Serialize)]
struct Cell {
    pattern: String,
    strategy: String,
    cache_state: CacheState,
    cache: String,
    device_readahead_bytes: Option<u64>,
}

impl Experiment for Settings {
    fn workfile_spec(&self) -> WorkfileSpec {
        self.common.workfile_spec(self.size_bytes, POOL_BLOCK_BYTES, Naming::Named)
    }

    fn measurements(&self) -> u64 {
        let cells: usize = self.rows().iter().map(|row| row.variants.len()).sum();
        cells as u64 * u64::from(self.rounds.least)
    }

    fn probe<'a>(&'a self, bench: &Bench<'_>) -> anyhow::Result<Measuring<'a>> {
        let guard = readahead_guard(bench.storage, &self.device_readahead)?;
        let workfile_spec = self.workfile_spec();
        let mut modes =
            Modes::probe(&workfile_spec, bench.workfile, &self.caches, Op::Read, Vec::new())?;
        modes::check(self.rows().iter().map(|row| modes.missing(None, row.cache)))?;
        for &cache in &self.caches {
            if modes.missing(None, cache).is_none() {
                modes.backends.push(comparison::backend(bench.workfile, cache)?);
            }
        }
        modes.backends.dedup_by(|a, b| a.backend == b.backend);
        Ok(Box::new(move |bench, progress| {
            let result = |row: comparison::Row| match modes.missing(None, row.cache) {
                Some(why) => RowResult::unmeasured(row, why),
                None => RowResult::new(row),
            };
            let mut results: Vec<RowResult> = self.rows().into_iter().map(result).collect();
            hold(bench, &self.rules(), &mut results, guard, progress)?;
            let floor = conclusion::floor(&results);
            let backends = modes.backends;
            let conclude = Box::new(move |_: &_, floor| self.outcome(&results, backends, floor));
            Ok(Measurements { floor, conclude })
        }))
    }
}

impl Settings {
    /// The conclusions from the rows. Rows with additional rounds are included with all their rounds.
    fn outcome(&self, results: &[RowResult], backends: Vec<BackendNote>, floor: Floor) -> Outcome {
        let judge = judge(results, self.rules().judged, floor);
        let verdicts = conclusion::verdicts(results, &judge);
        let conclusions = conclusion::draw(results, &verdicts, &judge);
        Outcome {
            records: results.iter().flat_map(|result| self.records(result)).collect(),
            backends,
            section: view::section(results, &judge),
            advice: conclusion::advice(results, &judge).into_iter().collect(),
            verdicts,
            conclusions,
        }
    }

    /// The records of a row: the metrics, each variant's rank in it, and remarks for the reader.
    fn records(&self, result: &RowResult) -> Vec<Record> {
        let row = &result.row;
        let ratios = result.ratios_to_best();
        let record = |(index, variant): (usize, &Variant)| {
            let cell = Cell {
                pattern: row.pattern.to_string(),
                strategy: variant.to_string(),
                cache_state: row.state,
                cache: row.cache.to_string(),
                device_readahead_bytes: result.device_readahead_bytes,
            };
            let samples = &result.measured[index];
            let rounds =
                samples.rounds.iter().map(|round| round.figures(POOL_BLOCK_BYTES)).collect();
            let mut record = Row { rounds, ..Row::new(cell) }.record(NAME, "blocks_per_s");
            record.metrics.insert("ratio_to_best".to_owned(), json!(ratios[index]));
            record.remarks = samples.notes();
            let slowed = self.inject_slowdown.filter(|(slowed, _)| slowed == variant);
            record.remarks.extend(slowed.map(|(_, part)| {
                format!("slowed down on purpose by {:.0} % of its time", part * 100.0)
            }));
            record
        };
        row.variants.iter().enumerate().map(record).collect()
    }
}

/// Draws conclusions from runs on disks on which all strategies are equal, except for adaptive in the first row, which
/// reads this part of the others' blocks.
#[cfg(test)]
pub(super) fn simulated() -> super::simulation::Simulated {
    let options = "--seed 1 --quick --patterns sequential,uniform,bitmap-10 --noise-check --time 4m \
         --strategies plain,willneed-8,os,prefetch,async,adaptive";
    let settings = super::typed::<Settings>(options).checked().unwrap();
    let of = Variant::Stream(forebay::ReadaheadStrategy::Adaptive);
    Box::new(move |disk, adaptive| {
        let mut results: Vec<RowResult> = settings.rows().into_iter().map(RowResult::new).collect();
        let (rules, variants) = (settings.rules(), results[0].measured.len());
        let slow = results[0].row.variants.iter().position(|variant| *variant == of).unwrap();
        let mut rows = comparison::Rows { results: &mut results, judged: rules.judged };
        let seconds = settings.cell_time.as_secs_f64() + 0.02;
        disk.simulate(&mut rows, rules.limits, seconds, |_, index, rate| {
            let part = if index < variants && index == slow { adaptive } else { 1.0 };
            let seconds = 0.1 / (part * rate);
            super::samples::Round { blocks: 1000, seconds, ..Default::default() }
        });
        let judge = judge(&results, rules.judged, conclusion::floor(&results).unwrap());
        let verdicts = conclusion::verdicts(&results, &judge);
        let conclusions = conclusion::draw(&results, &verdicts, &judge);
        let advice = conclusion::advice(&results, &judge).into_iter().collect();
        Outcome { verdicts, conclusions, advice, ..Outcome::default() }
    })
}

#[cfg(test)]
mod tests;
