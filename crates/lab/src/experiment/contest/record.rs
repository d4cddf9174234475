//! Records of a contest: metrics, each entrant's rank in its row, and what a reader has to know.
//!
//! `ratio_to_best` is a rate divided by the best rate of the row, so that the best has 1. Figures that
//! were not cold where they should have been take no part in it.
//!
//! Invariants:  [REC-1] in a row with any rank somebody has 1, and nobody more

use forebay::ReadaheadStrategy;
use forebay_io::CacheMode;
use serde_json::{Map, Value, json};

use super::{CacheState, Entrant, Row, Rules, Standing};
use crate::experiment::unique;
use crate::measure::Coldness;
use crate::report::Record;

/// The part of the best other's rate that `adaptive` is to reach where blocks come from the device.
const ADAPTIVE_BOUND: f64 = 0.95;

/// The same where they come from memory, and there is nothing to wait for.
const ADAPTIVE_BOUND_RESIDENT: f64 = 0.97;

/// Which experiment's records are made, and how its cells are written.
#[derive(Debug, Clone, Copy)]
pub(in crate::experiment) struct Form {
    pub(in crate::experiment) experiment: &'static str,
    /// Whether a cell names the state of the caches.
    pub(in crate::experiment) with_state: bool,
    pub(in crate::experiment) block_bytes: u64,
}

impl Form {
    /// The records of a contest's rows, in their order.
    pub(in crate::experiment) fn records(
        &self,
        rules: &Rules,
        standings: &[Standing],
    ) -> Vec<Record> {
        standings.iter().flat_map(|standing| self.of_row(rules, standing)).collect()
    }

    /// The records of a row that could not be measured. `device_readahead_bytes`: as it was found.
    pub(in crate::experiment) fn unmeasured(
        &self,
        row: &Row,
        device_readahead_bytes: Option<u64>,
        why: &str,
    ) -> Vec<Record> {
        let readahead = row.device_readahead.or(device_readahead_bytes);
        let record = |&entrant: &Entrant| {
            self.record(row, entrant, readahead, nothing(), vec![format!("not measured: {why}")])
        };
        row.entrants.iter().map(record).collect()
    }

    fn of_row(&self, rules: &Rules, standing: &Standing) -> Vec<Record> {
        let (row, rates) = (&standing.row, standing.ranked_rates());
        let best = rates.iter().flatten().copied().fold(0.0, f64::max);
        let cells = row.entrants.iter().zip(&standing.tallies).enumerate();
        cells
            .map(|(index, (&entrant, tally))| {
                let mut remarks = standing.remarks(rules, index);
                let metrics = if tally.rounds.is_empty() {
                    let why = tally.failures.first().map_or("no time", String::as_str);
                    remarks.insert(0, format!("not measured: {why}"));
                    nothing()
                } else {
                    let mut metrics = tally.metrics(self.block_bytes);
                    let ratio = rates[index].map(|rate| rate / best);
                    assert!(ratio.is_none_or(|ratio| ratio <= 1.0), "[REC-1]");
                    metrics.insert("ratio_to_best".to_owned(), json!(ratio));
                    metrics
                };
                if entrant == Entrant::Pool(ReadaheadStrategy::Adaptive) {
                    remarks.extend(adaptive_remark(row, &rates, index));
                }
                let remarks = unique(&remarks);
                self.record(row, entrant, standing.device_readahead_bytes, metrics, remarks)
            })
            .collect()
    }

    fn record(
        &self,
        row: &Row,
        entrant: Entrant,
        device_readahead_bytes: Option<u64>,
        metrics: Map<String, Value>,
        remarks: Vec<String>,
    ) -> Record {
        let mut cell = Map::new();
        let mut put = |key: &str, value: Value| cell.insert(key.to_owned(), value);
        put("pattern", json!(row.pattern.to_string()));
        put("strategy", json!(entrant.to_string()));
        if self.with_state {
            put("cache_state", json!(row.state.name()));
        }
        put("cache", json!(row.cache.to_string()));
        put("device_readahead_bytes", json!(device_readahead_bytes));
        Record {
            rounds: Vec::new(),
            experiment: self.experiment.to_owned(),
            cell,
            metrics,
            remarks,
        }
    }
}

fn nothing() -> Map<String, Value> {
    let metrics = json!({ "blocks_per_s": null, "ratio_to_best": null });
    metrics.as_object().cloned().unwrap_or_default()
}

/// What there is to say when `adaptive`, at `index`, is further behind the best other than it should be.
fn adaptive_remark(row: &Row, rates: &[Option<f64>], index: usize) -> Option<String> {
    let own = rates[index]?;
    let others =
        row.entrants.iter().zip(rates).filter(|(entrant, _)| **entrant != row.entrants[index]);
    let (best, rate) = others
        .filter_map(|(entrant, rate)| Some((entrant, (*rate)?)))
        .max_by(|a, b| f64::total_cmp(&a.1, &b.1))?;
    let bound = if row.state.reads_device() { ADAPTIVE_BOUND } else { ADAPTIVE_BOUND_RESIDENT };
    let reached = own / rate;
    (reached < bound).then(|| {
        format!("adaptive reaches {reached:.2} of {best}, less than the {bound} it should")
    })
}

impl Standing {
    /// The rates that can be compared, by entrant.
    fn ranked_rates(&self) -> Vec<Option<f64>> {
        let rate = |tally: &crate::experiment::tally::Tally| {
            let comparable = self.row.warm_remarks(&tally.coldness).is_empty();
            tally.rate().filter(|_| comparable).map(|rate| rate.median)
        };
        self.tallies.iter().map(rate).collect()
    }

    fn remarks(&self, rules: &Rules, index: usize) -> Vec<String> {
        let tally = &self.tallies[index];
        let mut remarks = self.row.warm_remarks(&tally.coldness);
        if self.cut[index] {
            remarks.push(format!(
                "stopped reading after {} s, before all blocks were read",
                rules.cell_time_max.as_secs_f64()
            ));
        }
        let rounds = tally.rounds.len() + tally.failures.len();
        if rounds < rules.rounds as usize {
            remarks.push(format!("{rounds} of {} rounds, as there was no more time", rules.rounds));
        }
        remarks.extend(tally.notes.iter().cloned());
        if let (Some(why), false) = (tally.failures.first(), tally.rounds.is_empty()) {
            let failed = tally.failures.len();
            remarks.push(format!("{failed} of {rounds} rounds could not be measured: {why}"));
        }
        remarks
    }
}

impl Row {
    /// What was in the page cache where nothing should have been.
    fn warm_remarks(&self, coldness: &[Coldness]) -> Vec<String> {
        if self.cache == CacheMode::Direct || !self.state.reads_device() {
            return Vec::new();
        }
        coldness.iter().filter_map(Coldness::remark).collect()
    }
}

/// The geometric mean of the ratios of those `records` that `of` picks, and how many there are.
pub(in crate::experiment) fn mean_ratio<'a>(
    records: impl IntoIterator<Item = &'a Record>,
) -> Option<(f64, usize)> {
    let ratios: Vec<f64> =
        records.into_iter().filter_map(|record| record.metric("ratio_to_best")).collect();
    let logarithms: f64 = ratios.iter().map(|ratio| ratio.max(1e-9).ln()).sum();
    (!ratios.is_empty()).then(|| ((logarithms / ratios.len() as f64).exp(), ratios.len()))
}

/// Whether a record's remarks say that `adaptive` misses its bound.
pub(in crate::experiment) fn adaptive_misses(record: &Record) -> bool {
    record.remarks.iter().any(|remark| remark.starts_with("adaptive reaches "))
}

/// Whether every state of a row's caches can be had in its mode.
pub(in crate::experiment) fn can_be(state: CacheState, cache: CacheMode) -> bool {
    !(state == CacheState::PageCache && cache == CacheMode::Direct)
}
