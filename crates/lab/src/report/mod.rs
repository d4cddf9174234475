//! The report: what one run of the laboratory found, in one shape for every experiment.
//!
//! `report.json` is this structure written out, the HTML page carries the same text inside
//! itself, and the terminal tables are drawn from the same records. A metric that could not be
//! measured is `null`, never a made-up number; why is said in the record's `remarks`.
//!
//! Invariants:  [REP-1] every record names its experiment and carries one metric map
//! Source:      the record shape is that of the design notes, schema `forebay-lab/1`.

mod activation;
mod checkpoint;
mod depth;
mod footnotes;
pub mod html;
mod interplay;
mod labels;
mod mixture;
pub(crate) mod numbers;
mod readahead;
#[cfg(test)]
mod sample;
mod standing;
mod strategies;
mod summary;
pub mod terminal;

pub use summary::summary;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::facts::{Host, Storage};

/// The schema name written into every report.
pub const SCHEMA: &str = "forebay-lab/1";

/// Everything one run found out.
#[derive(Debug, Clone, Serialize, Deserialize)]
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
    /// The directory measured and what lies under it.
    pub storage: Storage,
    /// Which I/O backends could be opened, and why the others could not.
    pub backends: Vec<BackendNote>,
    /// One record per cell measured.
    pub records: Vec<Record>,
    /// Conclusions, one sentence each, with the setting they lead to.
    pub advice: Vec<Advice>,
}

/// Whether a backend could be opened, and why not.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BackendNote {
    /// `sync`, `threads`, `aio` or `uring`.
    pub backend: String,
    /// True when it could be opened here.
    pub available: bool,
    /// Why not, or what is worth knowing about it; empty when there is nothing to say.
    pub note: String,
}

/// One cell of an experiment and what was measured in it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Record {
    /// `depth`, `strategies`, `interplay`, `checkpoint`, `readahead`, `activation`, `mixture`.
    pub experiment: String,
    /// The settings that make this cell; for `depth`: `backend`, `cache`, `depth`; for `strategies` and
    /// `interplay`: `pattern`, `strategy`, `cache`, `device_readahead_bytes`, and for the former also
    /// `cache_state`; for `checkpoint`: `dirty`, `elevator`, `combine`, `cache`, `backend`, `paced`,
    /// `foreground`; for `readahead`: `readers`, `files`, `readahead_bytes`, `readahead_by`, `advice`,
    /// `request_bytes`, `cache`, `profile`, `filesystem`, and `position` instead of `files` for the ends of a
    /// disk; for `activation`: `start`, `advice`, `request_bytes`, `stride_bytes`, `streams`, `descriptors`,
    /// `readahead_bytes`; for `mixture`: `mix`, `streams`, `random_readers` and those of `readahead`.
    pub cell: Map<String, Value>,
    /// Metric name to number or null, or to a list of these; each name ends in its unit.
    pub metrics: Map<String, Value>,
    /// Sentences a reader needs to judge the numbers, such as a cache that could not be emptied.
    #[serde(default)]
    pub remarks: Vec<String>,
}

/// A conclusion and the evidence for it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Advice {
    /// The experiment it rests on.
    pub experiment: String,
    /// The whole conclusion as a sentence.
    pub sentence: String,
    /// The setting, such as `effective_io_concurrency`; empty when the advice is not a setting.
    pub setting: String,
    /// Its value; empty when the advice is not a setting.
    pub value: String,
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
    pub fn metric(&self, key: &str) -> Option<f64> {
        self.metrics.get(key).and_then(Value::as_f64)
    }

    /// True when a remark says `not cold`: memory answered some of the reads, so that the
    /// figures say little about the disk and are never drawn, ranked or compared as if they did.
    pub fn is_not_cold(&self) -> bool {
        self.remarks.iter().any(|remark| remark.contains("not cold"))
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
        assert_eq!(fields, ["experiment", "cell", "metrics", "remarks"], "[REP-1]");
        assert_eq!(written["cell"]["depth"], 64, "[REP-1]");
        assert!(written["metrics"]["blocks_per_s"].is_number(), "[REP-1]");
    }

    #[test]
    fn what_could_not_be_measured_is_null() {
        let record = sample::record("aio", "direct", 64, None, &["not measured: no aio"]);
        let written = serde_json::to_value(&record).unwrap();
        assert!(written["metrics"]["blocks_per_s"].is_null());
    }
}
