//! Records of the experiment `activation`: when the kernel begins to read ahead, cell by cell.
//!
//! A panel has the cells of one size of a read: a row for each start, advice, stride and number of
//! streams. Windows are told as a row of sizes, `32 K, 128 K, 480 K ...`.
//!
//! Invariants:  [ACR-1] every record is in exactly one panel or among the leftovers

use serde_json::Value;

use super::labels::{others, rank};
use super::{Record, numbers};

/// Name of the experiment whose records are read here.
pub(crate) const EXPERIMENT: &str = "activation";

const STARTS: [&str; 2] = ["begin", "middle"];
const ADVICE: [&str; 3] = ["random", "normal", "sequential"];
const DESCRIPTORS: [&str; 2] = ["one", "own"];

/// Windows that are told one by one.
const WINDOWS_TOLD_MAX: usize = 12;

/// The most windows that are read from a record.
const WINDOWS_MAX: usize = 256;

/// Settings that a panel's heading or a row has already.
const KNOWN: [&str; 8] = [
    "start",
    "advice",
    "request_bytes",
    "stride_bytes",
    "streams",
    "descriptors",
    "readahead_bytes",
    "cache",
];

/// One way of reading.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row<'a> {
    pub(crate) start: &'a str,
    pub(crate) advice: &'a str,
    stride_bytes: u64,
    request_bytes: u64,
    streams: u64,
    descriptors: &'a str,
    /// The record it comes from.
    pub(crate) record: &'a Record,
}

impl<'a> Row<'a> {
    fn of(record: &'a Record) -> Option<Row<'a>> {
        let text = |key| Some(record.cell_text(key)).filter(|text| !text.is_empty());
        Some(Row {
            start: text("start")?,
            advice: text("advice")?,
            stride_bytes: record.cell_number("stride_bytes")?,
            request_bytes: record.cell_number("request_bytes")?,
            streams: record.cell_number("streams")?,
            descriptors: record.cell_text("descriptors"),
            record,
        })
    }

    /// `sequence`, `16 KiB apart` (left out between two reads), or `two streams, one descriptor`.
    pub(crate) fn gait(&self) -> String {
        let gap = self.stride_bytes.saturating_sub(self.request_bytes);
        let gap = match gap {
            0 => String::new(),
            bytes => format!("leaving out {}", size(bytes)),
        };
        let streams = match (self.streams, self.descriptors) {
            (1, _) => String::new(),
            (streams, "one") => format!("{streams} streams, one descriptor"),
            (streams, descriptors) => format!("{streams} streams, {descriptors} descriptors"),
        };
        match (gap.is_empty(), streams.is_empty()) {
            (true, true) => "one after the other".to_owned(),
            (false, true) => gap,
            (true, false) => streams,
            (false, false) => format!("{gap}, {streams}"),
        }
    }

    /// `NORMAL, 8 MiB`.
    pub(crate) fn told(&self) -> String {
        let advice = self.advice.to_uppercase();
        match self.record.cell_number("readahead_bytes") {
            Some(bytes) if self.advice != "random" => format!("{advice}, {}", size(bytes)),
            _ => advice,
        }
    }

    /// The read at which it begins, or `never`; a dash where nobody looked.
    pub(crate) fn begins(&self) -> String {
        let metric = |key: &str| self.record.metric(key).filter(|value| *value >= 0.0);
        match (metric("reads_until_ahead"), metric("repetitions"), metric("repetitions_ahead")) {
            (Some(reads), _, _) => format!("read {reads:.0}"),
            (None, Some(all), Some(ahead)) if all > 0.0 && ahead < all => "never".to_owned(),
            _ => "–".to_owned(),
        }
    }

    /// `20 of 20`, repetitions that say so.
    pub(crate) fn agreeing(&self) -> String {
        let count = |key: &str| self.record.metric(key).filter(|count| *count >= 0.0);
        match (count("repetitions_agreeing"), count("repetitions")) {
            (Some(agreeing), Some(all)) => {
                format!("{} of {}", whole(agreeing), whole(all))
            }
            _ => "–".to_owned(),
        }
    }

    /// Windows, in bytes.
    pub(crate) fn windows(&self) -> Vec<f64> {
        let windows = self.record.metrics.get("windows_bytes").and_then(Value::as_array);
        let bytes = |window: &Value| window.as_f64().filter(|bytes| *bytes > 0.0);
        windows.into_iter().flatten().filter_map(bytes).take(WINDOWS_MAX).collect()
    }

    /// The first window and the largest; dashes where there is none.
    pub(crate) fn first_and_largest(&self) -> [String; 2] {
        let windows = self.windows();
        let told = |bytes: Option<f64>| bytes.map_or("–".to_owned(), |bytes| size(bytes as u64));
        [told(windows.first().copied()), told(windows.iter().copied().reduce(f64::max))]
    }

    /// `32 KiB, 128 KiB ... 8 MiB`, as they came.
    pub(crate) fn growth(&self) -> String {
        let windows = self.windows();
        let mut told: Vec<String> =
            windows.iter().take(WINDOWS_TOLD_MAX).map(|&bytes| size(bytes as u64)).collect();
        if windows.len() > WINDOWS_TOLD_MAX {
            told.push("…".to_owned());
        }
        if told.is_empty() { "–".to_owned() } else { told.join(", ") }
    }

    fn rank(&self) -> (usize, u64, u64, usize, usize) {
        (
            rank(&STARTS, self.start),
            self.streams,
            self.stride_bytes,
            rank(&DESCRIPTORS, self.descriptors),
            rank(&ADVICE, self.advice),
        )
    }

    fn is_same_cell(&self, other: &Row<'_>) -> bool {
        self.rank() == other.rank()
            && (self.start, self.advice, self.descriptors)
                == (other.start, other.advice, other.descriptors)
    }
}

/// A size without needless digits: `8 KiB`.
fn size(bytes: u64) -> String {
    numbers::bytes(bytes).replace(".0 ", " ")
}

fn whole(count: f64) -> String {
    if count < 100.0 { format!("{count:.0}") } else { numbers::number(count) }
}

/// Everything that was read in one size.
#[derive(Debug, Clone)]
pub(crate) struct Panel<'a> {
    pub(crate) label: String,
    pub(crate) rows: Vec<Row<'a>>,
    request_bytes: u64,
}

/// The records of the experiment, grouped.
#[derive(Debug, Clone, Default)]
pub(crate) struct Activations<'a> {
    pub(crate) panels: Vec<Panel<'a>>,
    /// Records that lack a setting, or name a cell a second time.
    pub(crate) leftovers: Vec<&'a Record>,
}

impl<'a> Activations<'a> {
    /// Groups the records of the experiment `activation`; others are passed over.
    pub(crate) fn group(records: &'a [Record]) -> Activations<'a> {
        let mut grouped = Activations::default();
        for record in records.iter().filter(|record| record.experiment == EXPERIMENT) {
            grouped.place(record);
        }
        grouped.panels.sort_by_key(|panel| panel.request_bytes);
        for panel in &mut grouped.panels {
            panel.rows.sort_by_key(Row::rank);
        }
        grouped
    }

    fn place(&mut self, record: &'a Record) {
        let Some(row) = Row::of(record) else {
            self.leftovers.push(record);
            return;
        };
        let label = format!("reads of {}{}", size(row.request_bytes), others(record, &KNOWN));
        let at = self.panels.iter().position(|panel| panel.label == label).unwrap_or_else(|| {
            let request_bytes = row.request_bytes;
            self.panels.push(Panel { label, rows: Vec::new(), request_bytes });
            self.panels.len() - 1
        });
        let rows = &mut self.panels[at].rows;
        if rows.iter().any(|seen| seen.is_same_cell(&row)) {
            self.leftovers.push(record); // [ACR-1]
        } else {
            rows.push(row);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::{absurd_readaheads, activation};
    use super::*;
    use serde_json::json;

    #[test]
    fn a_row_says_when_it_begins_how_it_grows_and_how_many_say_so() {
        let records = [
            activation("middle", "normal", 2, Some(2)),
            activation("middle", "random", 1, None),
            activation("begin", "normal", 1, Some(1)),
        ];
        let grouped = Activations::group(&records);
        let [panel] = &grouped.panels[..] else { panic!("{grouped:?}") };
        assert_eq!(panel.label, "reads of 8 KiB, ext4");
        let told: Vec<String> = panel
            .rows
            .iter()
            .map(|row| format!("{}: {}, {}, {}", row.start, row.told(), row.gait(), row.begins()))
            .collect();
        assert_eq!(
            told,
            [
                "begin: NORMAL, 128 KiB, one after the other, read 1",
                "middle: RANDOM, one after the other, never",
                "middle: NORMAL, 128 KiB, leaving out 8 KiB, read 2",
            ]
        );
        assert_eq!(panel.rows[0].agreeing(), "20 of 20");
        assert_eq!(panel.rows[0].growth(), "32 KiB, 64 KiB, 128 KiB, 128 KiB");
        assert_eq!(panel.rows[0].first_and_largest(), ["32 KiB", "128 KiB"]);
        assert_eq!(panel.rows[1].first_and_largest(), ["–", "–"]);
    }

    #[test]
    fn no_record_is_lost_whatever_it_looks_like() {
        let mut records = absurd_readaheads();
        for record in &mut records {
            record.experiment = EXPERIMENT.to_owned();
        }
        let mut odd = activation("middle", "normal", 1, Some(2));
        odd.metrics.insert("windows_bytes".into(), json!([-1, null, "x", 5e300]));
        odd.cell.insert("stride_bytes".into(), json!(0));
        let twice = activation("begin", "normal", 1, Some(1));
        records.extend([odd, twice.clone(), twice]);
        let grouped = Activations::group(&records);
        let placed: usize = grouped.panels.iter().map(|panel| panel.rows.len()).sum();
        assert_eq!(placed + grouped.leftovers.len(), records.len(), "[ACR-1]");
        assert_eq!(placed, 2);
        let rows = grouped.panels.iter().flat_map(|panel| &panel.rows);
        assert!(rows.map(Row::growth).all(|growth| !growth.is_empty()));
    }
}
