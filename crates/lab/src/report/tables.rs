//! Tables of the report itself: the device, the settings, the comparisons, and every record.
//!
//! They are [`Table`]s like those of the experiments, so that the terminal and the page draw all of them
//! by the same code.
//!
//! Invariants:  [TAB-1] every row has as many cells as the table has columns

use serde_json::{Map, Value};

use super::numbers;
use super::{Advice, DeviceSummary, Mark, Record, Row, Table, TableCell, Verdict};
use crate::statistics::Judgement;

/// A table of `columns`; `rows` are as wide [TAB-1].
pub(crate) fn table(caption: impl Into<String>, columns: &[&str], rows: Vec<Row>) -> Table {
    assert!(rows.iter().all(|row| row.cells.len() == columns.len()), "[TAB-1]");
    let columns = columns.iter().map(|&name| name.to_owned()).collect();
    Table { caption: caption.into(), columns, rows, notes: Vec::new() }
}

/// A row of plain texts.
pub(crate) fn row<const N: usize>(group: &str, texts: [String; N]) -> Row {
    Row { group: group.to_owned(), cells: texts.into_iter().map(TableCell::new).collect() }
}

/// How many times as fast, and the interval: `34.6× (30.1 to 38.2)`.
pub(crate) fn times(value: f64, low: f64, high: f64) -> String {
    let [value, low, high] = [value, low, high].map(numbers::number);
    format!("{value}× ({low} to {high})")
}

/// The settings to change, in the order of whose they are. A cell's note is the evidence.
pub(crate) fn settings(advice: &[Advice]) -> Table {
    let mut sorted: Vec<&Advice> = advice.iter().collect();
    sorted.sort_by_key(|advice| advice.applies_to);
    let columns = ["setting", "applies to", "current", "advised", "gain", "confidence"];
    let mut made = table("", &columns, Vec::new());
    for advice in sorted {
        let mut row = row(
            "",
            [
                advice.setting.clone(),
                advice.applies_to.to_string(),
                advice.current.clone().unwrap_or_else(|| "unknown".to_owned()),
                advice.advised.clone(),
                times(advice.gain, advice.gain_low, advice.gain_high),
                advice.confidence.to_string(),
            ],
        );
        row.cells[3].mark = Mark::Best;
        row.cells[4].notes.push(made.note(&advice.evidence));
        made.rows.push(row);
    }
    made
}

/// The same for narrow places: whose setting it is heads a group, and what was measured is not told.
pub(crate) fn settings_in_groups(advice: &[Advice]) -> Table {
    let mut made = settings(advice);
    made.columns.remove(1);
    made.notes.clear();
    for row in &mut made.rows {
        row.group = row.cells.remove(1).text;
        row.cells[3].notes.clear();
    }
    made
}

/// What the disk does: one row for each figure that could be measured.
pub(crate) fn device(device: &DeviceSummary) -> Table {
    let deep = match device.saturated_depth {
        Some(depth) => format!("random reads, {depth} at a time"),
        None => "random reads, many at a time".to_owned(),
    };
    // With the unit and how much of the figure one of it is.
    let figures = [
        ("random reads, one at a time", device.random_read_depth_1, "", 1.0),
        (deep.as_str(), device.random_read_saturated, "", 1.0),
        ("sequential read", device.sequential_read, " MB", 1e6),
        ("sequential write", device.sequential_write, " MB", 1e6),
        ("append and sync", device.sync, "", 1.0),
    ];
    let measured = figures.into_iter().filter_map(|(name, figure, unit, scale)| {
        let figure = figure?;
        let written = |rate: f64| format!("{}{unit}", numbers::number(rate / scale));
        let wait = |us: Option<f64>| us.map_or("–".to_owned(), microseconds);
        Some(row(
            "",
            [
                name.to_owned(),
                written(figure.per_s),
                format!("{} to {}", numbers::number(figure.low / scale), written(figure.high)),
                wait(figure.wait_us_p50),
                wait(figure.wait_us_p99),
            ],
        ))
    });
    let columns = ["the disk alone", "per second", "low to high", "wait p50", "wait p99"];
    table("", &columns, measured.collect())
}

/// What is worth knowing of the device's figures, in sentences.
pub(crate) fn device_remarks(device: &DeviceSummary) -> Vec<String> {
    let burst = device.burst.map(|burst| {
        let [start, end] = [burst.start_per_s, burst.end_per_s].map(numbers::number);
        let time = numbers::seconds(burst.seconds);
        format!(
            "The disk is faster at first: {start} requests/s fell to {end} within {time} of load; all \
             figures are those after it."
        )
    });
    burst.into_iter().chain(device.remarks.iter().cloned()).collect()
}

/// `780 µs`, `2.10 ms`, `1.20 s`.
fn microseconds(us: f64) -> String {
    match us {
        ..1e3 => format!("{} µs", numbers::number(us)),
        1e3..1e6 => format!("{} ms", numbers::number(us / 1e3)),
        _ => numbers::seconds(us / 1e6),
    }
}

/// What all comparisons came to, in a group for each experiment.
pub(crate) fn verdicts(verdicts: &[Verdict]) -> Table {
    let rows = verdicts.iter().map(|verdict| {
        let (word, mark) = match verdict.verdict {
            Judgement::Keeps => ("keeps", Mark::Plain),
            Judgement::Misses => ("misses", Mark::Bad),
            Judgement::Undecided => ("undecided", Mark::Weak),
        };
        let Verdict { ratio, low, high, .. } = *verdict;
        let mut row = row(
            &verdict.experiment,
            [
                verdict.row.clone(),
                verdict.entrant.clone(),
                verdict.rival.clone(),
                format!("{ratio:.3}"),
                format!("{low:.3} to {high:.3}"),
                word.to_owned(),
            ],
        );
        row.cells[5].mark = mark;
        row
    });
    let caption = "What the entrant's rate is of its rival's, with the interval.";
    table(
        caption,
        &["compared on", "entrant", "rival", "ratio", "interval", "bound"],
        rows.collect(),
    )
}

/// How many comparisons came to what, one sentence for each experiment.
pub(crate) fn verdict_counts(verdicts: &[Verdict]) -> Vec<String> {
    let mut names: Vec<&str> = verdicts.iter().map(|verdict| verdict.experiment.as_str()).collect();
    names.dedup();
    let sentence = |name: &str| {
        let of = |judgement| {
            let found = |it: &&Verdict| it.experiment == name && it.verdict == judgement;
            verdicts.iter().filter(found).count()
        };
        let [keeps, misses, open] =
            [Judgement::Keeps, Judgement::Misses, Judgement::Undecided].map(of);
        format!(
            "{name}: of {} comparisons {keeps} keep the bound, {misses} miss it, {open} are undecided.",
            keeps + misses + open
        )
    };
    names.into_iter().map(sentence).collect()
}

/// Every record of `experiment` as a row, every setting and metric that some record has as a column.
pub(crate) fn plain(experiment: &str, records: &[Record]) -> Table {
    let records: Vec<&Record> =
        records.iter().filter(|record| record.experiment == experiment).collect();
    let keys = |fields: fn(&Record) -> &Map<String, Value>| {
        let mut found: Vec<&String> = Vec::new();
        for key in records.iter().flat_map(|record| fields(record).keys()) {
            if !found.contains(&key) {
                found.push(key);
            }
        }
        found
    };
    let (settings, metrics) = (keys(|record| &record.cell), keys(|record| &record.metrics));
    let names = settings.iter().chain(&metrics).map(|key| key.replace('_', " "));
    let columns: Vec<String> = std::iter::once("record".to_owned()).chain(names).collect();
    let caption =
        format!("Every record of {experiment}, in the order measured: medians of the rounds.");
    let mut made =
        table(caption, &columns.iter().map(String::as_str).collect::<Vec<_>>(), Vec::new());
    for (index, record) in records.iter().enumerate() {
        let cell = |fields: &Map<String, Value>, key: &str| {
            TableCell::new(fields.get(key).map_or(String::new(), numbers::value))
        };
        let mut head = TableCell::new((index + 1).to_string());
        head.notes = record.remarks.iter().map(|remark| made.note(remark)).collect();
        let mut cells = vec![head];
        cells.extend(settings.iter().map(|key| cell(&record.cell, key)));
        let mark = if record.is_not_cold() { Mark::Weak } else { Mark::Plain };
        cells.extend(metrics.iter().map(|key| TableCell { mark, ..cell(&record.metrics, key) }));
        assert_eq!(cells.len(), made.columns.len(), "[TAB-1]");
        made.rows.push(Row { group: String::new(), cells });
    }
    made
}
