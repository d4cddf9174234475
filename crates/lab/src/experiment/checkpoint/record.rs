//! Rounds: the results of each checkpoint of a cell, and the latency of concurrent reads.
//!
//! Cells are compared round by round: those with the same number were measured shortly after each other, from the
//! same pages, and a cell that leaves does not return. Worked example: one write after another took 2.9, 3.3 and
//! 3.0 s in rounds 0, 1 and 2, the best way 0.37, 0.40 and 0.38: it is 7.8, 8.3 and 7.9 times as fast.
//!
//! The benefit of a spread checkpoint for readers is measured over all reads of an interval, while it writes and
//! after it: a checkpoint at once writes for a short time with few reads, and the rest of its
//! interval counts in its favour.
//!
//! Invariants:  [CKR-1] a 99th percentile is of 1,000 reads at least, or null
//!              [CKR-2] round n of a cell is compared with round n of its rival

use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::json;

use super::cell::{Cell, NAME};
use super::foreground::Sample;
use super::settings::Settings;
use crate::experiment::samples;
use forebay::CheckpointReport;
use forebay_measure::coldness::{wait_histogram, wait_us};
use forebay_measure::facts::DeviceCounters;
use forebay_measure::report::Record;
use forebay_measure::statistics::{Estimate, paired_ratio};

/// The longest slot of a series over time; an interval has at least this many slots.
const SLOT_MAX: Duration = Duration::from_secs(1);
const SLOTS_MIN: u32 = 20;

/// The result of one checkpoint.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) report: CheckpointReport,
    /// What the devices did during the measurement.
    pub(super) device: Option<DeviceCounters>,
    /// From when to when.
    pub(super) span: (Instant, Instant),
}

/// One round of a cell, in the form of the report.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Round {
    pub(super) seconds: f64,
    pages: u64,
    pages_per_s: f64,
    pub(super) requests: u64,
    device_requests: Option<u64>,
    device_bytes: Option<u64>,
    pub(super) bytes_per_request: Option<f64>,
    pub(super) sync_seconds: f64,
    /// Until the last write of each tablespace: it shows whether one tablespace starves another. Syncs follow all
    /// writes.
    pub(super) tablespace_seconds: Vec<f64>,
    /// For a paced checkpoint: how late it ended, as a part of its interval.
    #[serde(rename = "slip")]
    lag: Option<f64>,
    #[serde(flatten)]
    pub(super) readers: Option<Readers>,
}

/// The latency of reads before a checkpoint, while it wrote, and in its whole interval.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Readers {
    foreground_reads: u64,
    pub(super) foreground_us_p50: Option<f64>,
    pub(super) foreground_us_p99: Option<f64>,
    pub(super) foreground_us_max: Option<f64>,
    foreground_before_us_p50: Option<f64>,
    pub(super) foreground_before_us_p99: Option<f64>,
    foreground_interval_us_p50: Option<f64>,
    pub(super) foreground_interval_us_p99: Option<f64>,
    pub(super) foreground_slot_seconds: f64,
    /// The longest read of each slot of the interval; `None` for a slot without reads.
    pub(super) foreground_us_max_over_time: Vec<Option<f64>>,
}

impl Readers {
    /// `span`: start and end of the checkpoint; the readers began before it. The interval lasts until the last sample.
    pub(super) fn new(interval: Duration, span: (Instant, Instant), samples: &[Sample]) -> Readers {
        let (mut before, mut during, mut all) =
            (wait_histogram(), wait_histogram(), wait_histogram());
        let slot = (interval / SLOTS_MIN).min(SLOT_MAX);
        let slots = interval.div_duration_f64(slot).round() as usize;
        let mut us_max: Vec<Option<f64>> = vec![None; slots];
        for &Sample { at, took } in samples {
            let ns = took.as_nanos() as u64;
            if at + took <= span.0 {
                before.saturating_record(ns);
                continue;
            }
            all.saturating_record(ns);
            if at < span.1 {
                during.saturating_record(ns);
            }
            let index = at.saturating_duration_since(span.0).div_duration_f64(slot) as usize;
            if let Some(most) = us_max.get_mut(index) {
                let us = took.as_secs_f64() * 1e6;
                *most = Some(most.map_or(us, |most: f64| most.max(us)));
            }
        }
        Readers {
            foreground_reads: all.len(),
            foreground_us_p50: wait_us(&during, 0.5),
            foreground_us_p99: wait_us(&during, 0.99),
            foreground_us_max: wait_us(&during, 1.0),
            foreground_before_us_p50: wait_us(&before, 0.5),
            foreground_before_us_p99: wait_us(&before, 0.99),
            foreground_interval_us_p50: wait_us(&all, 0.5),
            foreground_interval_us_p99: wait_us(&all, 0.99),
            foreground_slot_seconds: slot.as_secs_f64(),
            foreground_us_max_over_time: us_max,
        }
    }
}

impl Round {
    /// The round of a checkpoint of `cell` whose result is `written`.
    pub(super) fn new(
        settings: &Settings,
        cell: Cell,
        written: &Written,
        readers: Option<Readers>,
    ) -> Round {
        let Written { report, device, .. } = written;
        let seconds = report.total.as_secs_f64();
        let ends = report.tablespaces.iter().map(|one| one.writes_ended.as_secs_f64());
        let counted = device.filter(|device| device.writes > 0);
        Round {
            seconds,
            pages: report.pages,
            pages_per_s: report.pages as f64 / seconds,
            requests: report.requests,
            device_requests: device.map(|device| device.writes),
            device_bytes: device.map(|device| device.write_bytes),
            bytes_per_request: counted
                .map(|device| device.write_bytes as f64 / device.writes as f64),
            sync_seconds: report.sync.as_secs_f64(),
            tablespace_seconds: ends.collect(),
            lag: cell.paced.then(|| report.lag.div_duration_f64(settings.interval)),
            readers,
        }
    }
}

/// A cell and the results of its rounds.
pub(super) type Samples = samples::Row<Cell, Round>;

impl Samples {
    /// The figure divided by that of `other`; `None` if a round lacks it.
    pub(super) fn ratio_to(
        &self,
        other: &Samples,
        value: impl Fn(&Round) -> Option<f64>,
    ) -> Option<Estimate> {
        paired_ratio(&self.figures(&value)?, &other.figures(&value)?)
    }

    /// Its record. `baseline`: one write after another of the same pages, where there is one.
    pub(super) fn record_with_readers(&self, baseline: Option<&Samples>) -> Record {
        let mut record = self.record(NAME, "seconds");
        let baseline = baseline.filter(|_| !self.cell.is_timed());
        let ratio = baseline.and_then(|it| self.ratio_to(it, |round| Some(round.seconds)));
        record.metrics.insert("ratio_to_arrival".to_owned(), json!(ratio.map(|it| it.value)));
        record
    }
}

/// The baseline for others of the same pages and cache mode.
pub(super) fn baseline<'t>(measured: &'t [Samples], cell: &Cell) -> Option<&'t Samples> {
    measured.iter().find(|samples| {
        samples.cell.is_baseline()
            && samples.cell.dirty == cell.dirty
            && samples.cell.cache == cell.cache
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::experiment::checkpoint::{Dirty, Order};
    use forebay_io::{CacheMode, Kind};

    pub(in super::super) fn settings() -> Settings {
        let options = "--quick --essential --seed 1 --backends sync,uring";
        crate::experiment::typed::<Settings>(options).checked().unwrap()
    }

    pub(in super::super) fn round(seconds: f64, interval_us_p99: Option<f64>) -> Round {
        Round {
            seconds,
            pages: 4096,
            pages_per_s: 4096.0 / seconds,
            requests: 512,
            device_requests: Some(512),
            device_bytes: None,
            bytes_per_request: None,
            sync_seconds: 0.0,
            tablespace_seconds: vec![seconds],
            lag: None,
            readers: interval_us_p99
                .map(|p99| Readers { foreground_interval_us_p99: Some(p99), ..Readers::default() }),
        }
    }

    /// A cell written at full speed; `best`: in the best way, otherwise one after another.
    pub(in super::super) fn written(dirty: Dirty, best: bool, seconds: &[f64]) -> Samples {
        let cell = Cell {
            dirty,
            elevator: if best { Order::Balanced } else { Order::Arrival },
            combine: best,
            cache: CacheMode::Direct,
            backend: if best { Kind::Uring } else { Kind::Sync },
            paced: false,
            foreground: false,
        };
        let mut samples = Samples::new(cell);
        samples.rounds.extend(seconds.iter().map(|&it| round(it, None)));
        samples
    }

    /// A cell with readers, and the 99th percentiles of their intervals.
    pub(in super::super) fn with_readers(paced: bool, us_p99: &[f64]) -> Samples {
        let mut samples = written(Dirty::Uniform, true, &[]);
        (samples.cell.paced, samples.cell.foreground) = (paced, true);
        samples.rounds.extend(us_p99.iter().map(|&p99| round(1.0, Some(p99))));
        samples
    }

    #[test]
    fn ckr_2_only_rounds_that_both_have_are_compared() {
        let baseline = written(Dirty::Uniform, false, &[4.0, 8.0, 2.0]);
        let mut best = written(Dirty::Uniform, true, &[1.0, 2.0]);
        let ratio = best.ratio_to(&baseline, |round| Some(round.seconds)).unwrap();
        assert!((ratio.value - 0.25).abs() < 1e-9 && ratio.rounds == 2, "[CKR-2] {ratio:?}");
        best.failure = Some("no memory".to_owned());
        let record = best.record_with_readers(Some(&baseline));
        assert!((record.metric("ratio_to_arrival").unwrap() - 0.25).abs() < 1e-9);
        assert_eq!(record.metric("seconds"), Some(1.5));
        assert_eq!(record.cell["elevator"], "balanced");
        assert_eq!(record.remarks, ["not measured after 2 rounds: no memory"]);
    }

    #[test]
    fn what_was_not_measured_is_null_and_says_why() {
        let mut left_out = written(Dirty::Uniform, true, &[]);
        left_out.failure = Some("no time".to_owned());
        let record = left_out.record_with_readers(None);
        assert!(record.metrics["ratio_to_arrival"].is_null() && record.rounds.is_empty());
        assert_eq!(record.remarks, ["not measured: no time"]);
    }

    #[test]
    fn reads_are_separated_by_when_they_were_wanted() {
        let begun = Instant::now();
        let at = |ms: u64| begun + Duration::from_millis(ms);
        let sample =
            |ms: u64, took_us: u64| Sample { at: at(ms), took: Duration::from_micros(took_us) };
        let samples = [
            sample(10, 100),
            sample(450, 100_000), // into the checkpoint
            sample(550, 300),
            sample(1500, 200), // in the idle time after it
        ];
        let readers = Readers::new(Duration::from_secs(2), (at(500), at(1000)), &samples);
        assert!((readers.foreground_us_max.unwrap() - 100_000.0).abs() < 200.0);
        assert!((readers.foreground_before_us_p50.unwrap() - 100.0).abs() < 1.0);
        assert_eq!(readers.foreground_reads, 3);
        let series = &readers.foreground_us_max_over_time;
        assert_eq!((series.len(), series[0], series[10]), (20, Some(100_000.0), Some(200.0)));
        assert_eq!(series[5], None, "no reads then");
        assert_eq!(readers.foreground_interval_us_p99, None, "[CKR-1] of three reads");
        let many: Vec<Sample> =
            (0..1000).map(|it| sample(600 + it, 50 + it / 980 * 1000)).collect();
        let readers = Readers::new(Duration::from_secs(2), (at(500), at(1000)), &many);
        assert!(
            readers.foreground_interval_us_p99.unwrap() > 1000.0,
            "[CKR-1] 20 of 1,000 are slow"
        );
        assert_eq!(readers.foreground_us_p99, None, "[CKR-1] 400 of them began while it wrote");
    }
}
