//! Samples: the rounds of one cell, and the metrics that follow from them.
//!
//! Every experiment measures its cells in rounds: each cell once per round, in a new order. A [`Row`] is
//! a cell with the results of its rounds. Reads of blocks are reported under the same names everywhere: a
//! measurement is a [`Round`], its metrics are [`Figures`].
//!
//! Invariants:  [TAL-1] a metric is the median of all rounds, or null; never of some of them
//!              [TAL-2] a 99th percentile is of a thousand waits at least

use std::time::{Duration, Instant};

use forebay_io::{File, OpenOptions};
use hdrhistogram::Histogram;
use serde::Serialize;
use serde_json::Value;

use forebay_measure::coldness::{Coldness, Stopwatch, empty_cache, wait_us};
use forebay_measure::facts::{CounterSource, DeviceCounters};
use forebay_measure::lists::unique;
use forebay_measure::report::Record;
use forebay_measure::statistics::median;
use forebay_measure::workfile::Workfile;

/// Maximum number of looks at a device's counters until they are stable.
const SETTLING_LOOKS: u32 = 20;

/// A cell and the results of its rounds.
#[derive(Debug, Clone)]
pub(super) struct Row<C, R> {
    pub(super) cell: C,
    pub(super) rounds: Vec<R>,
    /// False if memory answered some of the reads, or may have.
    pub(super) cold: bool,
    /// Why a round could not be measured. No round follows it, so that round n of this cell is
    /// comparable with round n of the others.
    pub(super) failure: Option<String>,
    /// Remarks for the reader on the figures.
    pub(super) remarks: Vec<String>,
}

impl<C, R> Row<C, R> {
    pub(super) fn new(cell: C) -> Row<C, R> {
        Row { cell, rounds: Vec::new(), cold: true, failure: None, remarks: Vec::new() }
    }

    /// Records the coldness of the page cache at the start of a round.
    pub(super) fn begins(&mut self, coldness: &Coldness) {
        // The numbers differ from round to round; those of one round suffice.
        self.remarks.extend(coldness.remark().filter(|_| self.cold));
        self.cold &= *coldness == Coldness::Cold;
    }

    /// A figure of all rounds; `None` if one lacks it [TAL-1].
    pub(super) fn figures(&self, value: impl Fn(&R) -> Option<f64>) -> Option<Vec<f64>> {
        self.rounds.iter().map(value).collect()
    }

    /// The median of [`figures`](Row::figures).
    pub(super) fn median(&self, value: impl Fn(&R) -> Option<f64>) -> Option<f64> {
        median(&self.figures(value)?)
    }

    /// All remarks for the reader, each once.
    pub(super) fn notes(&self) -> Vec<String> {
        let failure = self.failure.iter().map(|why| match self.rounds.len() {
            0 => format!("not measured: {why}"),
            rounds => format!("not measured after {rounds} rounds: {why}"),
        });
        unique(&failure.chain(self.remarks.iter().cloned()).collect::<Vec<_>>())
    }
}

impl<C: Serialize, R: Serialize> Row<C, R> {
    /// Its record. `rate`: a metric that is null without any round.
    pub(super) fn record(&self, experiment: &str, rate: &str) -> Record {
        let mut record = Record::new(experiment, &self.cell, &self.rounds);
        record.metrics.insert("rounds".to_owned(), self.rounds.len().into());
        record.metrics.entry(rate).or_insert(Value::Null);
        record.remarks = self.notes();
        record
    }
}

/// The result of one measurement of reads.
#[derive(Debug, Clone, Default)]
pub(super) struct Round {
    pub(super) blocks: u64,
    /// Different blocks that had to be read from the device; `None` where that does not apply, since they
    /// were in memory.
    pub(super) blocks_needed: Option<u64>,
    pub(super) seconds: f64,
    /// Processor time of the whole process.
    pub(super) processor_seconds: f64,
    /// How long the reader waited for each block, in nanoseconds; `None` where it was not measured.
    pub(super) wait_ns: Option<Histogram<u64>>,
    /// What the device did during the round.
    pub(super) device: Option<DeviceCounters>,
}

/// The metrics of a round of reads, by their names in records.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Figures {
    pub(super) seconds: f64,
    pub(super) blocks: u64,
    pub(super) blocks_per_s: f64,
    pub(super) bytes_per_s: f64,
    pub(super) device_requests: Option<u64>,
    pub(super) device_bytes: Option<u64>,
    /// Bytes read without a request, as a part of the requested bytes.
    pub(super) over_read: Option<f64>,
    pub(super) wait_us_p50: Option<f64>,
    /// `None` of fewer than 1,000 waits.
    pub(super) wait_us_p99: Option<f64>,
    pub(super) cpu_us_per_block: f64,
}

impl Round {
    /// The round of this many blocks, `needed` of which had to be read, with the time since `watch` was started.
    pub(super) fn ended(
        watch: &Stopwatch,
        blocks: u64,
        needed: u64,
        wait_ns: Option<Histogram<u64>>,
    ) -> Round {
        let (seconds, processor) = (watch.elapsed(), watch.processor_elapsed());
        let (seconds, processor_seconds) = (seconds.as_secs_f64(), processor.as_secs_f64());
        let blocks_needed = Some(needed);
        Round { blocks, blocks_needed, seconds, processor_seconds, wait_ns, device: None }
    }

    /// Blocks per second.
    pub(super) fn rate(&self) -> f64 {
        self.blocks as f64 / self.seconds
    }

    /// Its metrics, for blocks of this many bytes.
    pub(super) fn figures(&self, block_bytes: u64) -> Figures {
        let waited = |quantile| wait_us(self.wait_ns.as_ref()?, quantile);
        let needed = self.blocks_needed.filter(|&needed| needed > 0);
        let over_read = needed
            .zip(self.device)
            .map(|(needed, device)| device.read_bytes as f64 / (needed * block_bytes) as f64 - 1.0);
        Figures {
            seconds: self.seconds,
            blocks: self.blocks,
            blocks_per_s: self.rate(),
            bytes_per_s: self.rate() * block_bytes as f64,
            device_requests: self.device.map(|device| device.reads),
            device_bytes: self.device.map(|device| device.read_bytes),
            over_read,
            wait_us_p50: waited(0.50),
            wait_us_p99: waited(0.99),
            cpu_us_per_block: self.processor_seconds * 1e6 / self.blocks as f64,
        }
    }

    /// Both, measured one after the other.
    pub(super) fn plus(mut self, more: &Round) -> Round {
        self.blocks += more.blocks;
        self.blocks_needed = self.blocks_needed.zip(more.blocks_needed).map(|(a, b)| a + b);
        self.seconds += more.seconds;
        self.processor_seconds += more.processor_seconds;
        if let (Some(waits), Some(others)) = (&mut self.wait_ns, &more.wait_ns) {
            waits.add(others).expect("all histograms are made alike");
        }
        self.device = self.device.zip(more.device).map(|(some, others)| some.plus(others));
        self
    }
}

/// Returns the result of `work`, and what the device did from then until it was idle, where its counters are known.
/// `settle`: how long it may take to finish what the kernel has begun to read ahead.
///
/// # Errors
/// Those of `work`.
pub(super) fn counted<T>(
    counters: Option<&CounterSource>,
    settle: Duration,
    work: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<(T, Option<DeviceCounters>)> {
    let read = || counters.and_then(|source| source.read().ok());
    let before = read();
    let worked = work()?;
    let begun = Instant::now();
    let mut now = read();
    while now.is_some() && begun.elapsed() < settle {
        std::thread::sleep(settle / SETTLING_LOOKS);
        let earlier = std::mem::replace(&mut now, read());
        if earlier.map(|device| device.reads) == now.map(|device| device.reads) {
            break;
        }
    }
    Ok((worked, before.zip(now).map(|(before, now)| now.since(&before))))
}

/// Empties the page cache of `workfile`.
///
/// # Errors
/// The system's error, unless it means that the system does not support this.
pub(super) fn emptied(workfile: &Workfile) -> Result<Coldness, forebay_io::Error> {
    empty_cache(&File::open(workfile.path(), &OpenOptions::new().read_only(true))?)
}

/// The system lacks what a cell needs.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Missing(pub(super) String);

/// The message of `error` if it means that this system does not provide what a cell needs: it is no evidence against
/// the other cells, as wrong data or a failing device would be.
pub(super) fn unsupported(error: &anyhow::Error) -> Option<String> {
    use forebay_io::Error::{DirectRefused, Memlock, Memory, Unavailable, Unsupported};
    if let Some(missing) = error.downcast_ref::<Missing>() {
        return Some(missing.to_string());
    }
    let below = error.downcast_ref::<forebay_io::Error>().or_else(|| {
        match error.downcast_ref::<forebay::Error>()? {
            forebay::Error::Io(error) => Some(error),
            _ => None,
        }
    })?;
    let is_lack = matches!(
        below,
        DirectRefused { .. }
            | Unavailable { .. }
            | Unsupported { .. }
            | Memory { .. }
            | Memlock { .. }
    );
    is_lack.then(|| below.to_string())
}

#[cfg(test)]
impl<C> Row<C, Round> {
    /// Adds rounds of a hundred blocks at these rates, in blocks per second.
    pub(super) fn with_rates(mut self, rates: &[f64]) -> Row<C, Round> {
        let round = |rate| Round {
            blocks: 100,
            blocks_needed: Some(100),
            seconds: 100.0 / rate,
            processor_seconds: 0.1,
            ..Round::default()
        };
        self.rounds.extend(rates.iter().copied().map(round));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_measure::coldness::wait_histogram;

    fn round(device: Option<DeviceCounters>, blocks_needed: Option<u64>) -> Round {
        let (seconds, processor_seconds) = (0.5, 0.1);
        Round { blocks: 100, blocks_needed, seconds, processor_seconds, device, ..Round::default() }
    }

    fn record(rounds: &[Round]) -> Record {
        let rounds = rounds.iter().map(|round| round.figures(8192)).collect();
        Row { rounds, ..Row::new(serde_json::Map::new()) }.record("depth", "blocks_per_s")
    }

    #[test]
    fn what_one_round_did_not_count_is_null_for_all() {
        let device = DeviceCounters { reads: 7, read_bytes: 819_200, ..Default::default() };
        let both = record(&[round(Some(device), Some(50)), round(Some(device), Some(50))]).metrics;
        assert_eq!(both["device_requests"], 7.0);
        assert_eq!(both["over_read"], 1.0, "twice the bytes that were needed");
        let one = record(&[round(Some(device), Some(50)), round(None, Some(50))]).metrics;
        assert!(one["device_requests"].is_null(), "[TAL-1]");
        let resident = record(&[round(Some(device), None)]).metrics;
        assert!(resident["over_read"].is_null(), "[TAL-1]");
        assert_eq!(resident["blocks_per_s"], 200.0);
        assert!(resident["wait_us_p50"].is_null());
        assert!(record(&[]).metrics["blocks_per_s"].is_null());
    }

    #[test]
    fn each_round_has_its_metrics_and_a_p99_only_of_a_thousand_waits() {
        let of = |count| {
            let mut waits = wait_histogram();
            waits.record_n(2000, count).unwrap();
            let device = DeviceCounters { reads: count, read_bytes: 819_200, ..Default::default() };
            Round { wait_ns: Some(waits), ..round(Some(device), Some(50)) }
        };
        let rounds = record(&[of(999), of(1000)]).rounds;
        assert_eq!(
            (&rounds[0]["device_requests"], &rounds[1]["device_requests"]),
            (&999.into(), &1000.into())
        );
        assert_eq!(
            (&rounds[0]["over_read"], &rounds[0]["blocks_per_s"]),
            (&1.0.into(), &200.0.into())
        );
        assert!(rounds[0]["wait_us_p99"].is_null(), "[TAL-2]");
        assert!(rounds[0]["wait_us_p50"].is_number() && rounds[1]["wait_us_p99"].is_number());
    }

    #[test]
    fn two_measurements_make_one_and_what_one_of_them_lacks_is_lacking() {
        let device = DeviceCounters { reads: 7, ..Default::default() };
        let sum = round(Some(device), Some(50)).plus(&round(Some(device), None));
        assert_eq!((sum.blocks, sum.seconds, sum.blocks_needed), (200, 1.0, None));
        assert_eq!(sum.device.map(|device| device.reads), Some(14));
        assert!(sum.plus(&round(None, None)).device.is_none());
    }

    #[test]
    fn what_is_not_supported_ends_a_row_and_anything_else_the_run() {
        let lack = || forebay_io::Error::Memlock {
            what: "the arena",
            needed: 9,
            source: forebay_io::OsError::ENOMEM,
        };
        assert!(unsupported(&anyhow::Error::new(lack())).is_some());
        assert!(unsupported(&anyhow::Error::new(forebay::Error::Io(lack()))).is_some());
        assert!(unsupported(&anyhow::Error::new(forebay::Error::Closed)).is_none());
    }

    #[test]
    fn what_was_not_cold_says_so_once() {
        let mut row: Row<(), Round> = Row::new(());
        row.begins(&Coldness::Cold);
        assert!(row.cold && row.notes().is_empty());
        row.begins(&Coldness::Warm { pages: 3, of: 9 });
        row.begins(&Coldness::Warm { pages: 4, of: 9 });
        row.begins(&Coldness::Cold);
        assert!(!row.cold);
        assert_eq!(row.notes(), ["not cold: 3 of 9 pages stayed in the page cache"]);
    }
}
