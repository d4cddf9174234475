//! The report: what one run found, one record for each cell.
//!
//! A record has the shape that the lab's records have: `experiment`, the `cell`, its `metrics` and
//! `remarks`. A metric that could not be measured is null.
//!
//! Invariants:  [CMP-5] a missing cell that the device did not answer says `not cold`

use forebay_measure::statistics::{median, paired_ratio, range};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::cell::Outcome;
use crate::cli::{Case, Settings};
use crate::counters::Counts;
use crate::peer::{About, Kind};
use forebay_measure::facts::{Host, Storage};

/// The schema name written into every report.
pub(crate) const SCHEMA: &str = "forebay-compare/1";

/// Fewer pages than this from the device for each page read: something else answered.
const COLD_PAGES_MIN: f64 = 0.98;

/// More pages than this from the device for each page read: the kernel read ahead.
const OVER_READ_PAGES: f64 = 1.1;

/// More pages than this from the device for each page of the resident set: it did not fit.
const RESIDENT_PAGES_MAX: f64 = 0.01;

/// Everything one run found out.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Report {
    /// Always [`SCHEMA`].
    pub(crate) schema: &'static str,
    /// Version of forebay, with the commit it was built from where that is known.
    pub(crate) forebay: String,
    /// The command line.
    pub(crate) command: String,
    /// Start of the run, RFC 3339, UTC.
    pub(crate) started: String,
    /// Seconds that the whole run took.
    pub(crate) seconds: f64,
    pub(crate) host: Host,
    pub(crate) storage: Storage,
    pub(crate) settings: Settings,
    pub(crate) peers: Vec<About>,
    pub(crate) records: Vec<Record>,
}

/// One cell and its measurement.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Record {
    pub(crate) experiment: &'static str,
    pub(crate) cell: Cell,
    /// Metric name to number or null; each name ends in its unit.
    pub(crate) metrics: Map<String, Value>,
    /// Sentences that a reader needs to judge the numbers.
    pub(crate) remarks: Vec<String>,
}

/// The settings that make a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Cell {
    pub(crate) case: Case,
    pub(crate) threads: u32,
    #[serde(serialize_with = "name_of")]
    pub(crate) peer: Kind,
}

fn name_of<S: serde::Serializer>(peer: &Kind, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(peer.name())
}

/// One measurement of a cell.
#[derive(Debug, Clone)]
pub(crate) struct Measurement {
    pub(crate) cell: Cell,
    pub(crate) round: u32,
    pub(crate) outcome: Outcome,
    pub(crate) counts: Counts,
}

impl Measurement {
    fn reads_per_s(&self) -> f64 {
        self.outcome.reads as f64 / self.outcome.elapsed.as_secs_f64().max(1e-9)
    }

    fn per_read(&self, count: f64) -> Option<f64> {
        (self.outcome.reads > 0).then(|| count / self.outcome.reads as f64)
    }
}

impl Record {
    /// A metric, or `None` when it could not be measured.
    pub(crate) fn metric(&self, name: &str) -> Option<f64> {
        self.metrics.get(name).and_then(Value::as_f64)
    }
}

/// One record for each cell, in the order of `settings`.
pub(crate) fn records(settings: &Settings, measurements: &[Measurement]) -> Vec<Record> {
    let mut records = Vec::new();
    for &case in &settings.cases {
        for &threads in &settings.threads {
            for &peer in &settings.peers {
                let cell = Cell { case, threads, peer };
                let of = |cell: Cell| measurements.iter().filter(move |one| one.cell == cell);
                let rounds: Vec<&Measurement> = of(cell).collect();
                let page_db: Vec<&Measurement> = of(Cell { peer: Kind::PageDb, ..cell }).collect();
                records.push(record(cell, &rounds, &page_db, settings.page_bytes));
            }
        }
    }
    records
}

/// The record of `cell` from its `rounds`, with those of page-db, `page_db`.
fn record(
    cell: Cell,
    rounds: &[&Measurement],
    page_db: &[&Measurement],
    page_bytes: usize,
) -> Record {
    let rates: Vec<f64> = rounds.iter().map(|round| round.reads_per_s()).collect();
    let ends = (!rates.is_empty()).then(|| range(&rates));
    // Each round is compared with the same round of page-db: anything that slows the machine slows both.
    let pairs = rounds.iter().filter_map(|round| {
        let other = page_db.iter().find(|other| other.round == round.round)?;
        Some((round.reads_per_s(), other.reads_per_s()))
    });
    let (ours, theirs): (Vec<f64>, Vec<f64>) = pairs.unzip();
    let times = paired_ratio(&ours, &theirs);
    let median = |value: &dyn Fn(&Measurement) -> Option<f64>| {
        median(&rounds.iter().filter_map(|round| value(round)).collect::<Vec<f64>>())
    };
    let pages =
        |round: &Measurement, bytes: Option<u64>| round.per_read(bytes? as f64 / page_bytes as f64);
    let process_pages = median(&|round| pages(round, round.counts.process_bytes));
    let mut waits = crate::cell::waits();
    for round in rounds {
        waits.add(&round.outcome.wait_ns).expect("histograms are alike");
    }
    let wait_us =
        |quantile| (!waits.is_empty()).then(|| waits.value_at_quantile(quantile) as f64 / 1000.0);
    let metrics = json!({
        "rounds": rounds.len(),
        "reads": rounds.iter().map(|round| round.outcome.reads).sum::<u64>(),
        "seconds": rounds.iter().map(|round| round.outcome.elapsed.as_secs_f64()).sum::<f64>(),
        "reads_per_s": median(&|round| Some(round.reads_per_s())),
        "reads_per_s_min": ends.map(|(lowest, _)| lowest),
        "reads_per_s_max": ends.map(|(_, highest)| highest),
        "reads_per_s_rounds": rates,
        "times_page_db": times.map(|times| times.value),
        "times_page_db_low": times.map(|times| times.low),
        "times_page_db_high": times.map(|times| times.high),
        "wait_us_p50": wait_us(0.5),
        "wait_us_p99": wait_us(0.99),
        "wait_us_max": wait_us(1.0),
        "cpu_us_per_read": median(&|round| {
            round.per_read(round.counts.processor.as_secs_f64() * 1e6)
        }),
        "process_pages_per_read": process_pages,
        "device_pages_per_read": median(&|round| pages(round, Some(round.counts.device?.read_bytes))),
        "device_requests_per_read": median(&|round| {
            round.per_read(round.counts.device?.reads as f64)
        }),
    });
    let metrics = if let Value::Object(metrics) = metrics { metrics } else { Map::new() };
    let remarks = remark(cell.case, process_pages).into_iter().collect();
    Record { experiment: "compare", cell, metrics, remarks }
}

/// What the reader must know about the source of the pages, if anything.
fn remark(case: Case, pages: Option<f64>) -> Option<String> {
    let Some(pages) = pages else {
        return Some("the source of the pages is unknown: /proc/self/io is not here".to_owned());
    };
    match case {
        Case::Missing if pages < COLD_PAGES_MIN => Some(format!(
            "not cold: only {pages:.2} pages were read from the device for each page read"
        )),
        Case::Missing if pages > OVER_READ_PAGES => {
            Some(format!("{pages:.2} pages were read from the device for each page read"))
        }
        Case::Resident if pages > RESIDENT_PAGES_MAX => Some(format!(
            "not resident: {pages:.2} pages were read from the device for each page read"
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn measurement(peer: Kind, round: u32, reads: u64, pages: u64) -> Measurement {
        let outcome =
            Outcome { reads, elapsed: Duration::from_secs(2), wait_ns: crate::cell::waits() };
        let counts = Counts { process_bytes: Some(pages * 8192), ..Counts::default() };
        let cell = Cell { case: Case::Missing, threads: 4, peer };
        Measurement { cell, round, outcome, counts }
    }

    #[test]
    fn a_peer_is_compared_with_page_db_round_by_round() {
        let slow = [measurement(Kind::PageDb, 0, 100, 100), measurement(Kind::PageDb, 1, 10, 10)];
        let fast =
            [measurement(Kind::LruLocked, 0, 300, 300), measurement(Kind::LruLocked, 1, 50, 50)];
        let (slow, fast): (Vec<_>, Vec<_>) = (slow.iter().collect(), fast.iter().collect());
        let record = record(fast[0].cell, &fast, &slow, 8192);
        let times = record.metric("times_page_db").unwrap();
        assert!((times - 15_f64.sqrt()).abs() < 1e-9, "the geometric mean of 3 and 5: {times}");
        assert_eq!(record.metric("reads_per_s_max"), Some(150.0));
        assert_eq!(record.metric("process_pages_per_read"), Some(1.0));
        assert!(record.metrics["wait_us_p99"].is_null());
        assert!(record.remarks.is_empty());
    }

    #[test]
    fn cmp_5_a_miss_answered_by_the_page_cache_is_no_evidence() {
        let warm = measurement(Kind::LruLocked, 0, 100, 90);
        let record = record(warm.cell, &[&warm], &[], 8192);
        assert!(record.remarks[0].starts_with("not cold"), "[CMP-5]");
        assert!(record.metrics["times_page_db"].is_null());
        assert!(remark(Case::Missing, None).is_some(), "[CMP-5]");
        assert_eq!(remark(Case::Resident, Some(0.0)), None);
    }
}
