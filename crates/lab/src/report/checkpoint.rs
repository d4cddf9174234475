//! Records of the experiment `checkpoint`: ways of writing, panel by panel, and what readers felt.
//!
//! A panel has the cells of one pattern and one cache mode that were written as fast as they could be;
//! every figure in it is also a part of the baseline's, one synchronous write after another. Cells
//! with readers or pacing last as long as their intervals, so that their times say nothing; they are
//! grouped by what they have in common but the pace, and compared by what their readers waited.
//!
//! Worked example: 9.2 s of `arrival` and 1.7 s of `balanced, combined, uring` are 1 and 0.185.
//!
//! Invariants:  [CPR-1] every record is in exactly one panel, in one group of readers, or among the
//!              leftovers
//!              [CPR-2] the best of a panel was measured

use serde_json::Value;

use super::labels::rank;
use super::{Record, numbers};

/// Name of the experiment whose records are read here.
pub(crate) const EXPERIMENT: &str = "checkpoint";

const PATTERNS: [&str; 4] = ["uniform", "clustered", "zipfian", "two-tablespaces"];
const CACHES: [&str; 2] = ["buffered", "direct"];
const ELEVATORS: [&str; 3] = ["arrival", "sorted", "balanced"];
const BACKENDS: [&str; 4] = ["sync", "threads", "aio", "uring"];

/// Settings that a panel's heading or a row's name has already.
const KNOWN: [&str; 7] =
    ["dirty", "cache", "elevator", "combine", "backend", "paced", "foreground"];

/// The most tablespaces that are told apart.
const TABLESPACES_MAX: usize = 4;

/// The most points of a series over time that are drawn.
const POINTS_MAX: usize = 3600;

/// One way of writing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Way<'a> {
    pub(crate) elevator: &'a str,
    pub(crate) backend: &'a str,
    pub(crate) combine: bool,
    pub(crate) paced: bool,
    /// Whether readers were there.
    pub(crate) foreground: bool,
    /// The record it comes from.
    pub(crate) record: &'a Record,
}

impl<'a> Way<'a> {
    fn of(record: &'a Record) -> Option<Way<'a>> {
        let flag = |key: &str| record.cell.get(key).and_then(Value::as_bool);
        let (elevator, backend) = (record.cell_text("elevator"), record.cell_text("backend"));
        (!elevator.is_empty() && !backend.is_empty()).then_some(Way {
            elevator,
            backend,
            combine: flag("combine")?,
            paced: flag("paced")?,
            foreground: flag("foreground")?,
            record,
        })
    }

    /// Time to the end of the last sync.
    pub(crate) fn seconds(&self) -> Option<f64> {
        self.metric("seconds")
    }

    /// A metric that is not below zero.
    pub(crate) fn metric(&self, key: &str) -> Option<f64> {
        self.record.metric(key).filter(|value| *value >= 0.0)
    }

    /// `balanced, combined`.
    pub(crate) fn order(&self) -> String {
        if self.combine { format!("{}, combined", self.elevator) } else { self.elevator.to_owned() }
    }

    /// `spread` or `at once`.
    pub(crate) fn pace(&self) -> &'static str {
        if self.paced { "spread" } else { "at once" }
    }

    /// When the last write of each tablespace had ended, if there are several: `0.52 s, 1.04 s`.
    pub(crate) fn tablespaces(&self) -> Option<String> {
        let times = self.record.metrics.get("tablespace_seconds")?.as_array()?;
        let seconds = |time: &Value| time.as_f64().map_or("–".to_owned(), numbers::seconds);
        (times.len() > 1)
            .then(|| times.iter().take(TABLESPACES_MAX).map(seconds).collect::<Vec<_>>().join(", "))
    }

    /// How many times as long readers waited at worst (p99) as before the checkpoint.
    pub(crate) fn times_before(&self) -> Option<f64> {
        let before = self.metric("foreground_before_us_p99").filter(|before| *before > 0.0)?;
        Some(self.metric("foreground_us_p99")? / before)
    }

    /// The longest read of each slot of time, in milliseconds; `None` where nobody read.
    pub(crate) fn over_time(&self) -> Vec<Option<f64>> {
        let series = self.record.metrics.get("foreground_us_max_over_time");
        let points = series.and_then(Value::as_array).into_iter().flatten().take(POINTS_MAX);
        let milliseconds = |us: &Value| us.as_f64().filter(|us| *us >= 0.0).map(|us| us / 1e3);
        points.map(milliseconds).collect()
    }

    /// Length of such a slot, in seconds.
    pub(crate) fn slot_seconds(&self) -> f64 {
        self.metric("foreground_slot_seconds").filter(|seconds| *seconds > 0.0).unwrap_or(1.0)
    }

    /// When checkpoints were under way, in seconds from the first read.
    pub(crate) fn spans(&self) -> Vec<(f64, f64)> {
        let spans = self.record.metrics.get("checkpoint_spans_seconds").and_then(Value::as_array);
        let pair = |span: &Value| {
            let at = |index: usize| span.get(index)?.as_f64().filter(|at| *at >= 0.0);
            Some((at(0)?, at(1)?)).filter(|(from, to)| from <= to)
        };
        spans.into_iter().flatten().filter_map(pair).take(POINTS_MAX).collect()
    }

    fn rank(&self) -> (usize, bool, usize, bool, bool) {
        let (elevator, backend) = (rank(&ELEVATORS, self.elevator), rank(&BACKENDS, self.backend));
        (elevator, self.combine, backend, self.paced, self.foreground)
    }

    fn is_same_cell(&self, other: &Way<'_>) -> bool {
        self.rank() == other.rank()
            && (self.elevator, self.backend) == (other.elevator, other.backend)
    }
}

/// Cells of one pattern and one cache mode, to be compared with each other.
#[derive(Debug, Clone)]
pub(crate) struct Panel<'a> {
    pub(crate) dirty: &'a str,
    /// `clustered, direct`, and any setting that a later version adds.
    pub(crate) label: String,
    pub(crate) ways: Vec<Way<'a>>,
    cache: &'a str,
}

impl<'a> Panel<'a> {
    /// The way that took the least time; of equals the first [CPR-2].
    pub(crate) fn best(&self) -> Option<&Way<'a>> {
        let timed = self.ways.iter().filter_map(|way| Some((way, way.seconds()?)));
        timed.min_by(|(_, one), (_, other)| one.total_cmp(other)).map(|(way, _)| way)
    }

    pub(crate) fn is_best(&self, way: &Way<'_>) -> bool {
        self.best().is_some_and(|best| std::ptr::eq(best.record, way.record))
    }

    /// The most pages a second of all ways, for bars drawn to one scale.
    pub(crate) fn highest_rate(&self) -> Option<f64> {
        self.ways.iter().filter_map(|way| way.metric("pages_per_s")).reduce(f64::max)
    }
}

/// The records of the experiment, grouped.
#[derive(Debug, Clone, Default)]
pub(crate) struct Checkpoints<'a> {
    /// Written as fast as could be.
    pub(crate) panels: Vec<Panel<'a>>,
    /// With readers, or paced.
    pub(crate) beside: Vec<Panel<'a>>,
    /// Records that lack a setting, or name a cell a second time.
    pub(crate) leftovers: Vec<&'a Record>,
}

impl<'a> Checkpoints<'a> {
    /// Groups the records of the experiment `checkpoint`; others are passed over.
    pub(crate) fn group(records: &'a [Record]) -> Checkpoints<'a> {
        let mut grouped = Checkpoints::default();
        for record in records.iter().filter(|record| record.experiment == EXPERIMENT) {
            grouped.place(record);
        }
        for panels in [&mut grouped.panels, &mut grouped.beside] {
            panels.sort_by_key(|panel| (rank(&PATTERNS, panel.dirty), rank(&CACHES, panel.cache)));
            for panel in panels {
                panel.ways.sort_by_key(Way::rank);
            }
        }
        grouped
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.panels.is_empty() && self.beside.is_empty()
    }

    fn place(&mut self, record: &'a Record) {
        let (dirty, cache) = (record.cell_text("dirty"), record.cell_text("cache"));
        let Some(way) = Way::of(record).filter(|_| !dirty.is_empty() && !cache.is_empty()) else {
            self.leftovers.push(record);
            return;
        };
        let is_beside = way.paced || way.foreground;
        let panels = if is_beside { &mut self.beside } else { &mut self.panels };
        let label = label(record, dirty, cache);
        let index = panels.iter().position(|panel| panel.label == label).unwrap_or_else(|| {
            panels.push(Panel { dirty, label, ways: Vec::new(), cache });
            panels.len() - 1
        });
        let ways = &mut panels[index].ways;
        if ways.iter().any(|seen| seen.is_same_cell(&way)) {
            self.leftovers.push(record); // [CPR-1]
        } else {
            ways.push(way);
        }
    }

    /// Whether anything was written to several tablespaces.
    pub(crate) fn has_tablespaces(&self) -> bool {
        self.panels.iter().flat_map(|panel| &panel.ways).any(|way| way.tablespaces().is_some())
    }

    /// One sentence: from the best to the worst panel, what the best way takes of the baseline's time.
    pub(crate) fn sentence(&self) -> String {
        let rated = self
            .panels
            .iter()
            .filter_map(|panel| Some((panel, panel.best()?.metric("ratio_to_arrival")?)));
        let mut rated: Vec<(&Panel<'_>, f64)> = rated.collect();
        rated.sort_by(|(_, one), (_, other)| one.total_cmp(other));
        match rated.as_slice() {
            [] => "no way of writing could be compared with one write after another".to_owned(),
            [(panel, ratio)] => format!(
                "the best way takes {} of the time of one write after another ({})",
                numbers::number(*ratio),
                panel.label
            ),
            [(best, least), .., (worst, most)] => format!(
                "the best way takes from {} ({}) to {} ({}) of the time of one write after another",
                numbers::number(*least),
                best.label,
                numbers::number(*most),
                worst.label
            ),
        }
    }
}

fn label(record: &Record, dirty: &str, cache: &str) -> String {
    let mut words = vec![dirty.to_owned(), cache.to_owned()];
    for (key, value) in &record.cell {
        if !KNOWN.contains(&key.as_str()) {
            words.push(format!("{key} {}", numbers::value(value)));
        }
    }
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::super::sample::{absurd_checkpoints, checkpoint};
    use super::*;
    use serde_json::json;

    #[test]
    fn ways_of_one_pattern_and_mode_stand_together_the_slowest_order_first() {
        let records = [
            checkpoint(("clustered", "direct"), ("balanced", true, "uring"), 1.7, 0.185),
            checkpoint(("uniform", "direct"), ("arrival", false, "sync"), 9.9, 1.0),
            checkpoint(("clustered", "direct"), ("arrival", false, "sync"), 9.2, 1.0),
        ];
        let grouped = Checkpoints::group(&records);
        let labels: Vec<&str> = grouped.panels.iter().map(|panel| panel.label.as_str()).collect();
        assert_eq!(labels, ["uniform, direct", "clustered, direct"]);
        let clustered = &grouped.panels[1];
        assert_eq!(clustered.ways[0].order(), "arrival");
        assert_eq!(clustered.best().map(Way::order).as_deref(), Some("balanced, combined"));
        assert_eq!(
            grouped.sentence(),
            "the best way takes from 0.185 (clustered, direct) to 1.00 (uniform, direct) of the time of \
             one write after another"
        );
    }

    #[test]
    fn a_cell_that_was_not_measured_is_never_the_best() {
        let place = ("uniform", "direct");
        let mut lost = checkpoint(place, ("sorted", true, "uring"), 0.1, 0.01);
        lost.metrics.insert("seconds".into(), json!(null));
        let records = [lost, checkpoint(place, ("arrival", false, "sync"), 9.9, 1.0)];
        let grouped = Checkpoints::group(&records);
        assert_eq!(grouped.panels[0].best().map(|way| way.elevator), Some("arrival"), "[CPR-2]");
    }

    #[test]
    fn no_record_is_lost_whatever_it_looks_like() {
        let mut records = absurd_checkpoints();
        let twice = checkpoint(("uniform", "direct"), ("sorted", true, "uring"), 1.0, 0.5);
        records.extend([twice.clone(), twice]);
        let grouped = Checkpoints::group(&records);
        let panels = grouped.panels.iter().chain(&grouped.beside);
        let placed: usize = panels.map(|panel| panel.ways.len()).sum();
        assert_eq!(placed + grouped.leftovers.len(), records.len(), "[CPR-1]");
        assert!(placed > 0 && !grouped.leftovers.is_empty());
    }

    #[test]
    fn a_series_of_any_shape_is_read_as_far_as_it_makes_sense() {
        let mut record = checkpoint(("uniform", "direct"), ("balanced", true, "uring"), 1.0, 0.5);
        record.metrics.insert("foreground_us_max_over_time".into(), json!([1500, null, -1, "x"]));
        record.metrics.insert(
            "checkpoint_spans_seconds".into(),
            json!([[1, 2.5], [3], [5, 4], "x", [-1, 2]]),
        );
        let way = Way::of(&record).unwrap();
        assert_eq!(way.over_time(), [Some(1.5), None, None, None]);
        assert_eq!(way.spans(), [(1.0, 2.5)]);
        assert_eq!(way.slot_seconds(), 1.0, "a metric that is not there");
    }
}
