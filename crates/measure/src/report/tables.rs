//! Tables of the report itself: the device, the settings, the comparisons, and every record.
//!
//! They are [`Table`]s like those of the experiments, so that the same code draws all of them in the terminal and
//! on the page.

use serde_json::{Map, Value};

use super::numbers::{number, seconds, value};
use super::{Advice, DeviceSummary, Figure, Mark, Record, Table, TableCell, Verdict};
use crate::lists::{grouped, unique};
use crate::statistics::{Estimate, Judgement};

/// How many times as fast, and the interval: `34.6× (30.1 to 38.2)`.
pub fn times(value: f64, low: f64, high: f64) -> String {
    let [value, low, high] = [value, low, high].map(number);
    format!("{value}× ({low} to {high})")
}

/// The settings to change, ordered by their owners. A cell's note is the evidence.
pub fn settings(advice: &[Advice]) -> Table {
    let mut sorted: Vec<&Advice> = advice.iter().collect();
    sorted.sort_by_key(|advice| advice.applies_to);
    let gain = |it: &Advice| TableCell::new(times(it.gain, it.gain_low, it.gain_high));
    let current = |it: &Advice| it.current.clone().unwrap_or_else(|| "unknown".to_owned());
    Table::of(
        "",
        sorted,
        |_| String::new(),
        &[
            // The first three are visible on a narrow screen.
            ("setting", &|it| TableCell::new(&it.setting)),
            ("advised", &|it| TableCell { mark: Mark::Best, ..TableCell::new(&it.advised) }),
            ("gain", &|it| gain(it).with_notes(std::slice::from_ref(&it.evidence))),
            ("current", &|it| TableCell::new(current(it))),
            ("applies to", &|it| TableCell::new(it.applies_to.to_string())),
            ("confidence", &|it| TableCell::new(it.confidence.to_string())),
        ],
    )
}

/// The same for narrow places: the name of the setting's owner heads a group, and what was measured is omitted.
pub fn settings_in_groups(advice: &[Advice]) -> Table {
    let mut made = settings(advice);
    made.columns.remove(4);
    for row in &mut made.rows {
        row.group = row.cells.remove(4).text;
        row.cells.iter_mut().for_each(|cell| cell.notes.clear());
    }
    made
}

/// The disk's performance: one row for each figure that could be measured.
pub fn device(device: &DeviceSummary) -> Table {
    let deep = match device.saturated_depth {
        Some(depth) => format!("random reads, {depth} at a time"),
        None => "random reads, many at a time".to_owned(),
    };
    // With the unit and its size.
    let figures = [
        ("random reads, one at a time", device.random_read_depth_1, "", 1.0),
        (deep.as_str(), device.random_read_saturated, "", 1.0),
        ("sequential read", device.sequential_read, " MB", 1e6),
        ("sequential write", device.sequential_write, " MB", 1e6),
        ("append and sync", device.sync, "", 1.0),
    ];
    let columns = ["the disk alone", "per second", "low to high", "wait p50", "wait p99"];
    let mut table = Table::new("", columns);
    for (name, figure, unit, scale) in figures {
        let Some(Figure { per_s, low, high, wait_us_p50, wait_us_p99, .. }) = figure else {
            continue;
        };
        let [per_s, low, high] = [per_s, low, high].map(|rate| number(rate / scale));
        let wait = |us: Option<f64>| us.map_or("–".to_owned(), |us| seconds(us / 1e6));
        let texts = [
            name.to_owned(),
            format!("{per_s}{unit}"),
            format!("{low} to {high}{unit}"),
            wait(wait_us_p50),
            wait(wait_us_p99),
        ];
        table.push(String::new(), texts.map(TableCell::new).to_vec());
    }
    table
}

/// The results of all comparisons, in a group for each experiment.
pub fn verdicts(verdicts: &[Verdict]) -> Table {
    let interval = |Estimate { low, high, .. }: Estimate| format!("{low:.3} to {high:.3}");
    let bound = |it: &Verdict| {
        let (word, mark) = match it.verdict {
            Judgement::Keeps => ("keeps", Mark::Plain),
            Judgement::Misses => ("misses", Mark::Bad),
            Judgement::Undecided => ("undecided", Mark::Weak),
        };
        TableCell { mark, ..TableCell::new(word) }
    };
    Table::of(
        "The variant's rate divided by its rival's, with the interval.",
        verdicts,
        |it| it.experiment.clone(),
        &[
            ("compared on", &|it| TableCell::new(&it.row)),
            ("variant", &|it| TableCell::new(&it.variant)),
            ("rival", &|it| TableCell::new(&it.rival)),
            ("ratio", &|it| TableCell::new(format!("{:.3}", it.ratio.value))),
            ("interval", &|it| TableCell::new(interval(it.ratio))),
            ("bound", &bound),
        ],
    )
}

/// How many comparisons had which result, one sentence for each experiment.
pub fn verdict_counts(verdicts: &[Verdict]) -> Vec<String> {
    let table = |of_one: &[Verdict]| {
        let [keeps, misses, open] = [Judgement::Keeps, Judgement::Misses, Judgement::Undecided]
            .map(|judgement| of_one.iter().filter(|it| it.verdict == judgement).count());
        let (name, all) = (&of_one[0].experiment, of_one.len());
        format!(
            "{name}: of {all} comparisons {keeps} keep the bound, {misses} miss it, {open} are undecided."
        )
    };
    verdicts.chunk_by(|a, b| a.experiment == b.experiment).map(table).collect()
}

/// A table for each experiment, in the order measured: every record as a row, every setting and metric that some
/// record has as a column [HTM-2].
pub fn plain(records: &[Record]) -> Vec<Table> {
    let by_name = grouped(records, |record| record.experiment.as_str());
    by_name.into_iter().map(|(name, records)| plain_table(name, &records)).collect()
}

fn plain_table(experiment: &str, records: &[&Record]) -> Table {
    let keys = |fields: fn(&Record) -> &Map<String, Value>| {
        unique(&records.iter().flat_map(|record| fields(record).keys()).collect::<Vec<_>>())
    };
    let (settings, metrics) = (keys(|record| &record.cell), keys(|record| &record.metrics));
    let columns = settings.iter().chain(&metrics).map(|key| key.replace('_', " "));
    let mut table = Table::new(
        format!("Every record of {experiment}, in the order measured: medians of the rounds."),
        std::iter::once("record".to_owned()).chain(columns),
    );
    for (index, record) in records.iter().enumerate() {
        let cell = |fields: &Map<String, Value>, key: &str| {
            TableCell::new(fields.get(key).map_or(String::new(), value))
        };
        let mark = if record.is_not_cold() { Mark::Weak } else { Mark::Plain };
        let metric = |key: &&String| TableCell { mark, ..cell(&record.metrics, key) };
        let mut cells = vec![TableCell::new((index + 1).to_string()).with_notes(&record.remarks)];
        cells.extend(settings.iter().map(|key| cell(&record.cell, key)));
        cells.extend(metrics.iter().map(metric));
        table.push(String::new(), cells);
    }
    table
}
