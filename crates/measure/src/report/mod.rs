//! The report: what one run of the laboratory found, in one shape for every experiment.
//!
//! `report.json` is this structure written out, the HTML page carries the same text inside
//! itself, and the terminal tables are drawn from the same records. A metric that could not be
//! itself, and the terminal tables are drawn from the same records. A metric that could not be
//! measured is `null`, never a made-up number; the record's `remarks` say why. Each metric's
//! median is in `metrics`, and every round's figures are in `rounds`, by which `forebay compare` pairs two
//!
//! Invariants:  [REP-1] every record names its experiment and carries one metric map
//!              [REP-2] a metric is the median of all rounds, or null; never of some of them
//! Source:      the record shape is that of the design notes, schema `forebay-lab/2`.

mod advice;
pub mod html;
pub mod numbers;
mod paste;
mod plot;
#[cfg(any(test, feature = "fixture"))]
pub mod sample;
mod section;
pub mod tables;
pub mod terminal;

pub use advice::{Advice, AppliesTo, Confidence};
pub use paste::FILES as SNIPPET_FILES;
pub use paste::{Snippet, snippets};
pub use section::{Column, Line, Mark, Part, Plot, Point, Row, Section, Table, TableCell};

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::facts::{Host, Storage};
use crate::statistics::{Estimate, Judgement, median};

/// The schema name written into every report.
pub const SCHEMA: &str = "forebay-lab/2";

/// Everything one run found out.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Report {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// Version of forebay, with the commit it was built from where that is known.
    pub forebay: String,
    /// The exact command line that repeats this run, seed included.
    pub command: String,
    /// Start of the run, RFC 3339, UTC.
    pub started: String,
    /// Seconds the whole run took.
    pub seconds: f64,
    /// The machine.
    pub host: Host,
    /// The measured directory and its storage.
    pub storage: Storage,
    /// Which I/O backends could be opened, and why the others could not.
    pub backends: Vec<BackendNote>,
    /// The disk's performance, measured before anything else; `None` where it was not measured.
    pub device: Option<DeviceSummary>,
    /// One record per cell measured.
    pub records: Vec<Record>,
    /// Results of comparisons.
    pub verdicts: Vec<Verdict>,
    /// Settings worth changing.
    pub advice: Vec<Advice>,
    /// Further conclusions, one sentence each.
    pub conclusions: Vec<Conclusion>,
}

/// Whether a backend could be opened, and why not.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BackendNote {
    /// `sync`, `threads`, `aio` or `uring`.
    pub backend: String,
    /// True when it could be opened here.
    pub available: bool,
    /// Why not, or a remark about it; empty when there is nothing to say.
    pub note: String,
}

/// One cell of an experiment and its measurement.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Record {
    /// `depth`, `sync`, `strategies`, `checkpoint`, `readahead`, `activation`, `mixture`.
    pub experiment: String,
    /// The settings that make this cell; for `depth`: `backend`, `cache`, `depth`, and `workers` of threads
    /// whose number is fixed; for `sync`: `bytes`, `place`, `method`, `writers`; for `strategies`:
    /// `pattern`, `strategy`, `cache_state`, `cache`, `device_readahead_bytes`; for `checkpoint`: `dirty`,
    /// `elevator`, `combine`, `cache`, `backend`, `paced`,
    /// `foreground`; for `readahead`: `readers`, `files`, `readahead_bytes`, `readahead_by`, `advice`,
    /// `request_bytes`, `cache`, `profile`, `filesystem`; for `activation`: `start`, `advice`, `request_bytes`,
    /// `stride_bytes`, `streams`, `descriptors`,
    /// `readahead_bytes`; for `mixture`: `mix`, `streams`, `random_readers` and those of `readahead`.
    pub cell: Map<String, Value>,
    /// Metric name to the median of the rounds, or null, or to a list of these; each name ends in its unit.
    pub metrics: Map<String, Value>,
    /// The metrics of each round, in the order in which they were measured. Round n of a cell and round n of
    /// another one were measured side by side.
    #[serde(default)]
    pub rounds: Vec<Map<String, Value>>,
    /// Sentences a reader needs to judge the numbers, such as a cache that could not be emptied.
    #[serde(default)]
    pub remarks: Vec<String>,
}

/// What the disk does, without the engine in between.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct DeviceSummary {
    /// Random reads of 8 KiB, one at a time, in requests a second.
    pub random_read_depth_1: Option<Figure>,
    /// Random reads of 8 KiB, at the most useful concurrency, in requests a second.
    pub random_read_saturated: Option<Figure>,
    /// How many that is.
    pub saturated_depth: Option<u32>,
    /// Large reads in sequence, in bytes a second.
    pub sequential_read: Option<Figure>,
    /// Large writes in sequence, to the end of their sync, in bytes a second.
    pub sequential_write: Option<Figure>,
    /// 8 KiB appended and synced by fdatasync, one after the other, a second.
    pub sync: Option<Figure>,
    /// Seconds under sustained load before the figures were taken (emulated time for an emulated disk), and the
    /// rate at its start and end, if that fell: credits or a cache were used up.
    pub burst: Option<Burst>,
    /// What could not be measured, and why; and remarks on the figures.
    pub remarks: Vec<String>,
}

/// A rate, the spread of its rounds, and the latency of one request.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Figure {
    /// The median of the rounds.
    pub per_s: f64,
    /// The slowest round.
    pub low: f64,
    /// The fastest round.
    pub high: f64,
    /// How many there were.
    pub rounds: usize,
    /// Of all requests, in microseconds.
    pub wait_us_p50: Option<f64>,
    /// Of all requests, in microseconds; `None` of fewer than 1,000.
    pub wait_us_p99: Option<f64>,
}

/// A disk that is faster at first.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Burst {
    /// How long it was kept busy.
    pub seconds: f64,
    /// Requests a second at the start.
    pub start_per_s: f64,
    /// Requests a second at the end.
    pub end_per_s: f64,
}

impl fmt::Display for Burst {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [start, end] = [self.start_per_s, self.end_per_s].map(numbers::number);
        let seconds = numbers::seconds(self.seconds);
        write!(
            out,
            "The disk is faster at first: {start} random reads/s fell to {end} after {seconds} of load; the \
             figures are those after the fall."
        )
    }
}

/// The result of comparing a variant with its rival in one row.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Verdict {
    /// The experiment.
    pub experiment: String,
    /// The condition of the comparison, such as `bitmap-10 cold buffered`.
    pub row: String,
    /// The variant that is judged; `entrant` in records, since schema 1.
    #[serde(rename = "entrant")]
    pub variant: String,
    /// The variant that it is compared with.
    pub rival: String,
    /// The variant's rate divided by the rival's, with its interval.
    #[serde(flatten)]
    pub ratio: Estimate,
    /// The result.
    pub verdict: Judgement,
}

/// A conclusion, in a sentence.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Conclusion {
    /// The experiment it rests on.
    pub experiment: String,
    /// The whole conclusion.
    pub sentence: String,
    /// Whether it is useful only to authors of storage engines, and not to those who run a disk.
    #[serde(default)]
    pub for_engines: bool,
}

impl Verdict {
    /// The result when, in `row`, the first variant's rate is this multiple of the second's.
    pub fn new(experiment: &str, row: String, of: [String; 2], ratio: Estimate) -> Verdict {
        let [variant, rival] = of;
        let verdict = ratio.judgement();
        Verdict { experiment: experiment.to_owned(), row, variant, rival, ratio, verdict }
    }
}

impl Conclusion {
    /// Each of `sentences`, of one experiment.
    pub fn all(experiment: &str, sentences: impl IntoIterator<Item = String>) -> Vec<Conclusion> {
        let (experiment, for_engines) = (experiment.to_owned(), false);
        let of = |sentence| Conclusion { experiment: experiment.clone(), sentence, for_engines };
        sentences.into_iter().map(of).collect()
    }

    /// The same of sentences for authors of storage engines.
    pub fn for_engines(
        experiment: &str,
        sentences: impl IntoIterator<Item = String>,
    ) -> Vec<Conclusion> {
        let all = Conclusion::all(experiment, sentences).into_iter();
        all.map(|it| Conclusion { for_engines: true, ..it }).collect()
    }
}

impl Record {
    /// A cell that was measured in `rounds`, with the median of each metric; null unless every round has a
    /// number for it [REP-2].
    ///
    /// # Panics
    /// `cell` or a round is not a struct, or cannot be serialised.
    pub fn new(experiment: &str, cell: &impl Serialize, rounds: &[impl Serialize]) -> Record {
        let rounds: Vec<Map<String, Value>> = rounds.iter().map(|round| fields(round)).collect();
        let keys = rounds.first().map(|round| round.keys().cloned()).into_iter().flatten();
        let metric = |key: String| {
            let values: Option<Vec<&Value>> = rounds.iter().map(|round| round.get(&key)).collect();
            let middle = values.map_or(Value::Null, |values| middle(&values));
            (key, middle)
        };
        let (experiment, metrics) = (experiment.to_owned(), keys.map(metric).collect());
        Record { experiment, cell: fields(cell), metrics, rounds, remarks: Vec::new() }
    }

    /// True when a remark says `not cold`: memory answered some of the reads, so that the
    /// figures say little about the disk and are never drawn, ranked or compared as if they did.
    pub fn is_not_cold(&self) -> bool {
        self.remarks.iter().any(|remark| remark.contains("not cold"))
    }
}

/// The fields of a struct of plain data; numbers that are none, such as 0 / 0, are null.
pub fn fields(plain: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(plain) {
        Ok(Value::Object(fields)) => fields,
        other => panic!("not a struct of plain data: {other:?}"),
    }
}

/// The median of numbers, and of lists one by one; null of anything else.
fn middle(values: &[&Value]) -> Value {
    if let Some(numbers) = values.iter().map(|value| value.as_f64()).collect::<Option<Vec<f64>>>() {
        return median(&numbers).map_or(Value::Null, Value::from);
    }
    let lists = values.iter().map(|value| value.as_array()).collect::<Option<Vec<_>>>();
    let Some(lists) = lists else { return Value::Null };
    let longest = lists.iter().map(|list| list.len()).max().unwrap_or(0);
    let at = |index: usize| lists.iter().map(move |list| list.get(index).unwrap_or(&Value::Null));
    (0..longest).map(|index| middle(&at(index).collect::<Vec<_>>())).collect()
}

impl Record {
    /// A text setting of the cell, or `""`.
    pub fn cell_text(&self, key: &str) -> &str {
        self.cell.get(key).and_then(Value::as_str).unwrap_or("")
    }

    /// A whole-number setting of the cell.
    pub fn cell_number(&self, key: &str) -> Option<u64> {
        self.cell.get(key).and_then(Value::as_u64)
    }

    /// A metric, or `None` when it could not be measured.
    #[cfg(any(test, feature = "fixture"))]
    pub fn metric(&self, key: &str) -> Option<f64> {
        self.metrics.get(key).and_then(Value::as_f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rep_1_a_record_is_its_experiment_its_cell_and_one_map_of_metrics() {
        let record = sample::record("uring", "direct", 64, Some(7e4), &[]);
        let written = serde_json::to_value(&record).unwrap();
        let fields: Vec<_> = written.as_object().unwrap().keys().cloned().collect();
        assert_eq!(fields, ["experiment", "cell", "metrics", "rounds", "remarks"], "[REP-1]");
        assert_eq!(written["cell"]["depth"], 64, "[REP-1]");
        assert!(written["metrics"]["blocks_per_s"].is_number(), "[REP-1]");
    }

    #[test]
    fn rep_2_a_metric_that_one_round_lacks_is_null() {
        #[derive(Serialize)]
        struct Cell {
            depth: u32,
        }
        let round = |rate: f64, p99: Option<f64>| {
            let map = serde_json::json!({
                "blocks_per_s": rate, "wait_us_p99": p99, "over_time": [rate, null],
            });
            map.as_object().cloned().unwrap()
        };
        let rounds = vec![round(3.0, Some(1.0)), round(1.0, None), round(2.0, Some(2.0))];
        let record = Record::new("depth", &Cell { depth: 8 }, &rounds);
        assert_eq!(record.metric("blocks_per_s"), Some(2.0));
        assert!(record.metrics["wait_us_p99"].is_null(), "[REP-2]");
        assert_eq!(record.metrics["over_time"], serde_json::json!([2.0, null]), "[REP-2]");
        assert_eq!((record.cell_number("depth"), record.rounds.len()), (Some(8), 3));
        assert!(Record::new("depth", &Cell { depth: 8 }, &[] as &[Cell]).metrics.is_empty());
    }

    #[test]
    fn what_could_not_be_measured_is_null() {
        let record = sample::record("aio", "direct", 64, None, &["not measured: no aio"]);
        let written = serde_json::to_value(&record).unwrap();
        assert!(written["metrics"]["blocks_per_s"].is_null());
    }
}
