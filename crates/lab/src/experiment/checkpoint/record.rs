//! Records: what the rounds of each cell gave, beside the slowest way of writing the same pages.
//!
//! Invariants:  [CKR-1] a metric is the median of all checkpoints of a cell, or null
//!              [CKR-2] a ratio compares cells of one pattern and one cache mode, both without readers

use std::time::{Duration, Instant};

use forebay::TablespaceReport;
use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};

use super::foreground::Sample;
use super::site::Written;
use super::{Cell, NAME, Settings};
use crate::experiment::tally::{lack_of_means, wait_histogram};
use crate::experiment::unique;
use crate::facts::DeviceCounters;
use crate::measure::{Coldness, Spread};
use crate::report::Record;

/// The longest slot of a series over time; intervals are at least so many slots.
const SLOT_MAX: Duration = Duration::from_secs(1);
const SLOTS_MIN: u32 = 20;

/// What one measurement gave.
#[derive(Debug)]
pub(super) struct Taken {
    /// One for each checkpoint.
    pub(super) written: Vec<Written>,
    pub(super) readers: Option<Readers>,
    pub(super) coldness: Vec<Coldness>,
}

/// What readers took, before and during checkpoints, and over time.
#[derive(Debug)]
pub(super) struct Readers {
    before_ns: Histogram<u64>,
    during_ns: Histogram<u64>,
    slot: Duration,
    /// The longest read of each slot, in microseconds; `None` where none was wanted.
    us_max: Vec<Option<f64>>,
    /// When checkpoints began and ended, in seconds.
    spans_s: Vec<(f64, f64)>,
}

impl Readers {
    /// `begun`: when they began; `spans`: of the checkpoints, in their order.
    pub(super) fn new(
        settings: &Settings,
        begun: Instant,
        spans: &[(Instant, Instant)],
        samples: &[Sample],
    ) -> Readers {
        let slot = (settings.interval / SLOTS_MIN).min(SLOT_MAX);
        let (mut before_ns, mut during_ns) = (wait_histogram(), wait_histogram());
        let mut us_max: Vec<Option<f64>> = Vec::new();
        for &Sample { at, took } in samples {
            let ns = took.as_nanos() as u64;
            if spans.first().is_none_or(|span| at + took <= span.0) {
                before_ns.saturating_record(ns);
            }
            if spans.iter().any(|span| at < span.1 && at + took > span.0) {
                during_ns.saturating_record(ns);
            }
            let index = at.saturating_duration_since(begun).div_duration_f64(slot) as usize;
            if us_max.len() <= index {
                us_max.resize(index + 1, None);
            }
            let us = took.as_secs_f64() * 1e6;
            us_max[index] = Some(us_max[index].map_or(us, |most: f64| most.max(us)));
        }
        let seconds = |moment: Instant| moment.saturating_duration_since(begun).as_secs_f64();
        let spans_s = spans.iter().map(|span| (seconds(span.0), seconds(span.1))).collect();
        Readers { before_ns, during_ns, slot, us_max, spans_s }
    }

    fn metrics(&self) -> Map<String, Value> {
        let us = |ns: &Histogram<u64>, quantile: f64| {
            (!ns.is_empty()).then(|| ns.value_at_quantile(quantile) as f64 / 1e3)
        };
        let metrics = json!({
            "foreground_us_p50": us(&self.during_ns, 0.5),
            "foreground_us_p99": us(&self.during_ns, 0.99),
            "foreground_us_p999": us(&self.during_ns, 0.999),
            "foreground_us_max": us(&self.during_ns, 1.0),
            "foreground_reads": self.during_ns.len(),
            "foreground_before_us_p50": us(&self.before_ns, 0.5),
            "foreground_before_us_p99": us(&self.before_ns, 0.99),
            "foreground_before_us_p999": us(&self.before_ns, 0.999),
            "foreground_before_us_max": us(&self.before_ns, 1.0),
            "foreground_slot_seconds": self.slot.as_secs_f64(),
            "foreground_us_max_over_time": self.us_max,
            "checkpoint_spans_seconds": self.spans_s,
        });
        metrics.as_object().cloned().unwrap_or_default()
    }
}

/// What the rounds of one cell gave.
#[derive(Debug)]
pub(super) struct Tally {
    pub(super) cell: Cell,
    /// Why it is not measured at all.
    missing: Option<String>,
    written: Vec<Written>,
    readers: Option<Readers>,
    coldness: Vec<Coldness>,
    rounds: usize,
    failures: Vec<String>,
}

impl Tally {
    pub(super) fn new(cell: Cell, missing: Option<String>) -> Tally {
        let (written, coldness, failures) = (Vec::new(), Vec::new(), Vec::new());
        Tally { cell, missing, written, readers: None, coldness, rounds: 0, failures }
    }

    pub(super) fn is_measurable(&self) -> bool {
        self.missing.is_none()
    }

    /// Not to be measured after all.
    pub(super) fn leave_out(&mut self, why: &str) {
        self.missing = Some(why.to_owned());
    }

    /// Takes in a measurement; one that this system has not the means for is put down as such, and
    /// anything else that went wrong is handed back.
    pub(super) fn take(&mut self, taken: anyhow::Result<Taken>) -> anyhow::Result<()> {
        self.rounds += 1;
        match taken {
            Ok(Taken { written, readers, coldness }) => {
                self.written.extend(written);
                self.readers = readers.or(self.readers.take());
                self.coldness.extend(coldness);
                Ok(())
            }
            Err(error) => match lack_of_means(&error) {
                Some(lack) => {
                    self.failures.push(lack.to_string());
                    Ok(())
                }
                None => Err(error),
            },
        }
    }

    fn spread(&self, value: impl Fn(&Written) -> f64) -> Option<Spread> {
        Spread::of(self.written.iter().map(value))
    }

    fn median(&self, value: impl Fn(&Written) -> f64) -> Option<f64> {
        self.spread(value).map(|spread| spread.median)
    }

    fn seconds(&self) -> Option<f64> {
        self.median(|one| one.report.total.as_secs_f64())
    }

    /// [CKR-1]
    fn device_median(&self, value: impl Fn(&DeviceCounters) -> f64) -> Option<f64> {
        let counts: Option<Vec<f64>> =
            self.written.iter().map(|one| one.device.as_ref().map(&value)).collect();
        Spread::of(counts?).map(|spread| spread.median)
    }

    /// When something of each tablespace was done, in their order.
    fn by_tablespace(&self, of: impl Fn(&TablespaceReport) -> Duration) -> Vec<Option<f64>> {
        let count = self.written.iter().map(|one| one.report.tablespaces.len()).min();
        let median =
            |number: usize| self.median(|one| of(&one.report.tablespaces[number]).as_secs_f64());
        (0..count.unwrap_or(0)).map(median).collect()
    }

    fn metrics(&self, settings: &Settings, baseline: Option<f64>) -> Map<String, Value> {
        let seconds = self.spread(|one| one.report.total.as_secs_f64());
        let duration = |of: fn(&Written) -> Duration| self.median(|one| of(one).as_secs_f64());
        let paced = |value: Option<f64>| value.filter(|_| self.cell.paced);
        let slip = paced(duration(|one| one.report.slip));
        let per_request = |device: &DeviceCounters| {
            device.write_bytes.checked_div(device.writes).unwrap_or(0) as f64
        };
        let metrics = json!({
            "seconds": seconds.map(|spread| spread.median),
            "seconds_min": seconds.map(|spread| spread.min),
            "seconds_max": seconds.map(|spread| spread.max),
            "checkpoints": self.written.len(),
            "pages": self.median(|one| one.report.pages as f64),
            "pages_per_s": self.median(|one| {
                one.report.pages as f64 / one.report.total.as_secs_f64()
            }),
            "ratio_to_arrival": baseline.and_then(|baseline| {
                Some(self.seconds()? / baseline).filter(|_| !self.cell.is_timed())
            }),
            "requests": self.median(|one| one.report.requests as f64),
            "device_requests": self.device_median(|device| device.writes as f64),
            "device_bytes": self.device_median(|device| device.write_bytes as f64),
            "bytes_per_request": self.device_median(per_request),
            "write_seconds": duration(|one| one.report.write),
            "sync_seconds": duration(|one| one.report.sync),
            "sync_longest_seconds": duration(|one| one.report.sync_longest),
            "files_synced": self.median(|one| one.report.files_synced as f64),
            // To the last write: that is where one starves beside another. Syncs come after all writes.
            "tablespace_seconds": self.by_tablespace(|one| one.writes_ended),
            "tablespace_sync_seconds": self.by_tablespace(|one| one.ended),
            "slip": slip.map(|slip| slip / settings.interval.as_secs_f64()),
            "slip_seconds": slip,
            "yielded_seconds": paced(duration(|one| one.report.yielded)),
            "foreground_us_p50": null,
            "foreground_us_p99": null,
            "foreground_us_p999": null,
        });
        let mut metrics = metrics.as_object().cloned().unwrap_or_default();
        metrics.extend(self.readers.iter().flat_map(Readers::metrics));
        metrics
    }

    fn remarks(&self, settings: &Settings) -> Vec<String> {
        let mut remarks = Vec::new();
        if self.cell.foreground && self.cell.cache == forebay_io::CacheMode::Buffered {
            remarks.extend(self.coldness.iter().filter_map(Coldness::remark));
        }
        let rounds = self.rounds as u32;
        if !self.cell.is_timed() && rounds < settings.rounds {
            remarks
                .push(format!("{rounds} of {} rounds, as there was no more time", settings.rounds));
        }
        let others: u64 = self.written.iter().map(|one| one.report.pages_by_others).sum();
        if others > 0 {
            remarks.push(format!("{others} pages were written by others than the checkpoint"));
        }
        if let Some(why) = self.failures.first() {
            let failed = self.failures.len();
            remarks.push(format!("{failed} of {rounds} rounds could not be measured: {why}"));
        }
        unique(&remarks)
    }

    fn record(&self, settings: &Settings, baseline: Option<f64>) -> Record {
        let cell = json!({
            "dirty": self.cell.dirty.name(),
            "elevator": self.cell.elevator.to_string(),
            "combine": self.cell.combine,
            "cache": self.cell.cache.to_string(),
            "backend": self.cell.backend.to_string(),
            "paced": self.cell.paced,
            "foreground": self.cell.foreground,
        });
        let why = self.missing.as_ref().or(self.failures.first());
        let (metrics, remarks) = match why.filter(|_| self.written.is_empty()) {
            Some(why) => (nothing(), vec![format!("not measured: {why}")]),
            None => (self.metrics(settings, baseline), self.remarks(settings)),
        };
        let cell = cell.as_object().cloned().unwrap_or_default();
        Record { rounds: Vec::new(), experiment: NAME.to_owned(), cell, metrics, remarks }
    }
}

fn nothing() -> Map<String, Value> {
    let metrics = json!({ "seconds": null, "ratio_to_arrival": null });
    metrics.as_object().cloned().unwrap_or_default()
}

/// One record for each cell, in their order.
pub(super) fn records(settings: &Settings, tallies: &[Tally]) -> Vec<Record> {
    let baseline = |cell: &Cell| {
        let here = |tally: &&Tally| {
            tally.cell.is_baseline()
                && tally.cell.dirty == cell.dirty
                && tally.cell.cache == cell.cache
        };
        tallies.iter().find(here).and_then(Tally::seconds).filter(|seconds| *seconds > 0.0)
    };
    tallies.iter().map(|tally| tally.record(settings, baseline(&tally.cell))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{CheckpointArgs, CommonArgs};
    use crate::experiment::checkpoint::{Dirty, Order};
    use forebay::{BufferPool, CheckpointOptions};
    use forebay_io::{CacheMode, Kind};

    fn settings() -> Settings {
        let common = CommonArgs { dir: ".".into(), seed: Some(1) };
        Settings::new(&CheckpointArgs::quick(&common)).unwrap()
    }

    /// What a checkpoint of nothing gave, as if it had taken so long.
    fn written(seconds: f64, device: Option<DeviceCounters>) -> Written {
        let directory = tempfile::tempdir().unwrap();
        let pool = BufferPool::builder().frames(64).directory(directory.path()).build().unwrap();
        let mut report = pool.checkpoint(CheckpointOptions::now()).unwrap();
        report.total = Duration::from_secs_f64(seconds);
        (report.pages, report.slip) = (4096, Duration::from_millis(100));
        let now = Instant::now();
        Written { report, device, span: (now, now) }
    }

    fn tally(elevator: Order, seconds: &[f64], device: &[Option<DeviceCounters>]) -> Tally {
        let combine = elevator != Order::Arrival;
        let cell = Cell {
            dirty: Dirty::Uniform,
            elevator,
            combine,
            cache: CacheMode::Direct,
            backend: if combine { Kind::Uring } else { Kind::Sync },
            paced: false,
            foreground: false,
        };
        let mut tally = Tally::new(cell, None);
        for (seconds, device) in seconds.iter().zip(device) {
            let written = vec![written(*seconds, *device)];
            tally.take(Ok(Taken { written, readers: None, coldness: Vec::new() })).unwrap();
        }
        tally
    }

    #[test]
    fn metrics_are_medians_of_all_checkpoints_or_null() {
        let device = DeviceCounters { writes: 512, write_bytes: 512 << 13, ..Default::default() };
        let all = [Some(device), Some(device), Some(device)];
        let full = tally(Order::Balanced, &[1.0, 9.0, 2.0], &all);
        let record = &records(&settings(), &[full])[0];
        assert_eq!(record.metric("seconds"), Some(2.0), "[CKR-1]");
        assert_eq!(record.metric("pages_per_s"), Some(2048.0), "[CKR-1]");
        assert_eq!(record.metric("device_requests"), Some(512.0), "[CKR-1]");
        assert_eq!(record.metric("bytes_per_request"), Some(8192.0), "[CKR-1]");
        assert!(record.metrics["slip"].is_null(), "it was not paced");
        let partial = tally(Order::Balanced, &[1.0, 9.0], &[Some(device), None]);
        let record = &records(&settings(), &[partial])[0];
        assert!(record.metrics["device_requests"].is_null(), "[CKR-1] never of some of them");
    }

    #[test]
    fn cells_are_compared_with_one_write_after_another_of_the_same_pattern_and_mode() {
        let baseline = tally(Order::Arrival, &[4.0], &[None]);
        let mut other = tally(Order::Arrival, &[100.0], &[None]);
        other.cell.cache = CacheMode::Buffered;
        let mut paced = tally(Order::Balanced, &[1.8], &[None]);
        paced.cell.paced = true;
        let cells = [other, baseline, tally(Order::Sorted, &[1.0], &[None]), paced];
        let records = records(&settings(), &cells);
        let ratios: Vec<Option<f64>> =
            records.iter().map(|record| record.metric("ratio_to_arrival")).collect();
        assert_eq!(ratios, [Some(1.0), Some(1.0), Some(0.25), None], "[CKR-2]");
        assert_eq!(records[3].metric("slip"), Some(0.05), "of an interval of 2 s");
    }

    #[test]
    fn what_was_not_measured_is_null_and_says_why() {
        let mut left_out = tally(Order::Sorted, &[], &[]);
        left_out.leave_out("no time");
        let record = &records(&settings(), &[left_out])[0];
        assert!(record.metrics["seconds"].is_null());
        assert_eq!(record.remarks, ["not measured: no time"]);
    }

    #[test]
    fn reads_are_told_apart_by_whether_a_checkpoint_was_under_way() {
        let (settings, begun) = (settings(), Instant::now());
        let at = |ms: u64| begun + Duration::from_millis(ms);
        let sample =
            |ms: u64, took_us: u64| Sample { at: at(ms), took: Duration::from_micros(took_us) };
        let samples = [
            sample(10, 100),
            sample(450, 100_000), // into the first checkpoint
            sample(550, 300),
            sample(1500, 100), // in the calm between
            sample(2100, 500),
        ];
        let spans = [(at(500), at(1000)), (at(2000), at(2200))];
        let readers = Readers::new(&settings, begun, &spans, &samples);
        assert_eq!((readers.before_ns.len(), readers.during_ns.len()), (1, 3));
        let metrics = readers.metrics();
        assert!((metrics["foreground_us_max"].as_f64().unwrap() - 100_000.0).abs() < 200.0);
        assert_eq!(metrics["foreground_slot_seconds"], 0.1);
        let series = metrics["foreground_us_max_over_time"].as_array().unwrap();
        assert_eq!(series.len(), 22);
        assert_eq!(series[0], 100.0);
        assert!(series[1].is_null(), "nobody read then");
        assert_eq!(series[4], 100_000.0);
        assert_eq!(metrics["checkpoint_spans_seconds"], json!([[0.5, 1.0], [2.0, 2.2]]));
    }
}
