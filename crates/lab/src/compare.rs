//! Compare: what really changed between two reports.
//!
//! Records of the same experiment and cell are set side by side, and their rounds are compared as those of two
//! runs: unpaired, since nothing ties the third round of Monday to the third round of Tuesday. Worked
//! example: 99, 100 and 102 blocks/s on Monday and 48, 50 and 52 on Tuesday are 0.50 of it, surely less.
//!
//! Invariants:  [CMP-1] nothing has changed whose interval includes 1, or that rests on fewer than three rounds
//!              [CMP-2] what memory answered in either of them is not compared
//!              [CMP-3] of metrics that say the same, one counts
//! Failure:     what is no report of this schema is the user's to change: exit code 2.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::Context;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::bad_input;
use crate::cli::CompareArgs;
use crate::output;
use crate::report::terminal::text::{ascii, push_line, push_wrapped};
use crate::report::terminal::{Look, drawn};
use crate::report::{
    Advice, DeviceSummary, Mark, Record, Report, Row, SCHEMA, Table, TableCell, numbers, tables,
};
use crate::statistics::{BOUND, Estimate, ROUNDS_MIN, median, unpaired_ratio};

/// The schema name written into every comparison.
const COMPARE_SCHEMA: &str = "forebay-compare/1";

/// Most changes that are printed; the JSON file has all.
const ROWS_MAX: usize = 30;

/// Two reports side by side.
#[derive(Debug, Serialize)]
pub struct Comparison {
    schema: &'static str,
    a: String,
    b: String,
    /// What is not the same about host, device and kernel.
    differences: Vec<Difference>,
    figures: Vec<Figure>,
    /// Records that only one of them has, or that could not be compared.
    uncompared: usize,
    advice: Vec<AdviceChange>,
}

#[derive(Debug, Serialize)]
struct Difference {
    what: &'static str,
    a: String,
    b: String,
}

/// A metric of a cell in both reports.
#[derive(Debug, Serialize)]
struct Figure {
    experiment: String,
    cell: Map<String, Value>,
    metric: String,
    /// Medians.
    a: f64,
    b: f64,
    /// What `b` is of `a`.
    ratio: f64,
    low: f64,
    high: f64,
    rounds_a: usize,
    rounds_b: usize,
    change: Change,
}

/// What became of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Change {
    Better,
    Worse,
    Same,
    Undecided,
}

/// A setting that the reports do not advise alike; `None` where one of them does not advise it.
#[derive(Debug, PartialEq, Serialize)]
struct AdviceChange {
    setting: String,
    applies_to: String,
    a: Option<String>,
    b: Option<String>,
}

/// Reads both reports, prints what changed, and writes it if that is asked for.
///
/// # Errors
/// [`BadInput`](crate::BadInput) for what is no report, or what went wrong.
pub fn run(args: &CompareArgs) -> anyhow::Result<()> {
    if let Some(path) = &args.json {
        output::check_file(path)?;
    }
    let (a, b) = (read(&args.a)?, read(&args.b)?);
    let comparison =
        compare((&args.a.display().to_string(), &a), (&args.b.display().to_string(), &b));
    if let Some(path) = &args.json {
        fs::write(path, serde_json::to_string_pretty(&comparison)? + "\n")
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    output::print(&shown(&comparison, &a, &b, output::look()))
}

fn read(path: &Path) -> anyhow::Result<Report> {
    let shown = path.display();
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => bad_input!("cannot read {shown}: {error}; name a report.json of forebay lab"),
    };
    let value: Value = match serde_json::from_str(&text) {
        Ok(value) => value,
        Err(error) => bad_input!("{shown} is no JSON: {error}; name a report.json of forebay lab"),
    };
    match value.get("schema").and_then(Value::as_str) {
        Some(SCHEMA) => {}
        Some(other) => bad_input!(
            "{shown} has the schema {other}, and this version compares {SCHEMA}; measure it again"
        ),
        None => bad_input!("{shown} has no schema; name a report.json of forebay lab"),
    }
    match serde_json::from_value(value) {
        Ok(report) => Ok(report),
        Err(error) => bad_input!("{shown} has the schema {SCHEMA} but not its fields: {error}"),
    }
}

/// Compares two reports, each with its name.
fn compare((name_a, a): (&str, &Report), (name_b, b): (&str, &Report)) -> Comparison {
    let mut unmatched: BTreeMap<(&str, String), Vec<&Record>> = BTreeMap::new();
    for record in b.records.iter().rev() {
        unmatched.entry(key(record)).or_default().push(record);
    }
    let (mut figures, mut uncompared) = (Vec::new(), 0);
    for ours in &a.records {
        let theirs = unmatched.get_mut(&key(ours)).and_then(Vec::pop);
        // [CMP-2]
        let theirs = theirs.filter(|theirs| !ours.is_not_cold() && !theirs.is_not_cold());
        let compared = theirs.map_or_else(Vec::new, |theirs| compared(ours, theirs));
        uncompared += usize::from(compared.is_empty());
        figures.extend(compared);
    }
    uncompared += unmatched.values().map(Vec::len).sum::<usize>();
    Comparison {
        schema: COMPARE_SCHEMA,
        a: name_a.to_owned(),
        b: name_b.to_owned(),
        differences: differences(a, b),
        figures,
        uncompared,
        advice: advice_changes(&a.advice, &b.advice),
    }
}

/// By what records are the same: the experiment, and the settings in any order.
fn key(record: &Record) -> (&str, String) {
    let sorted: BTreeMap<&String, String> =
        record.cell.iter().map(|(key, value)| (key, value.to_string())).collect();
    (&record.experiment, format!("{sorted:?}"))
}

/// True if more of a metric is better, false if less is; `None` for one that is neither, or that follows from
/// another one of `all` [CMP-3].
fn more_is_better(metric: &str, all: &Map<String, Value>) -> Option<bool> {
    let has_rate = || all.keys().any(|key| key.ends_with("_per_s"));
    match metric {
        "bytes_per_s" if all.contains_key("blocks_per_s") => None,
        _ if metric.ends_with("_per_s") => Some(true),
        "seconds" => (!has_rate()).then_some(false),
        _ if metric.contains("_us_") => Some(false),
        _ => None,
    }
}

/// Every metric that both records have a number for in each round.
fn compared(ours: &Record, theirs: &Record) -> Vec<Figure> {
    let rounds = |record: &Record, metric: &str| -> Option<Vec<f64>> {
        record.rounds.iter().map(|round| round.get(metric).and_then(Value::as_f64)).collect()
    };
    let figures = ours.metrics.keys().filter_map(|metric| {
        let more_is_better = more_is_better(metric, &ours.metrics)?;
        let (a, b) = (rounds(ours, metric)?, rounds(theirs, metric)?);
        let Estimate { value, low, high } = unpaired_ratio(&b, &a)?;
        let change = if a.len().min(b.len()) < ROUNDS_MIN {
            Change::Undecided // [CMP-1]
        } else if low > 1.0 || high < 1.0 {
            if more_is_better == (low > 1.0) { Change::Better } else { Change::Worse }
        } else if low >= BOUND && high <= 1.0 / BOUND {
            Change::Same
        } else {
            Change::Undecided
        };
        Some(Figure {
            experiment: ours.experiment.clone(),
            cell: ours.cell.clone(),
            metric: metric.clone(),
            a: median(&a)?,
            b: median(&b)?,
            ratio: value,
            low,
            high,
            rounds_a: a.len(),
            rounds_b: b.len(),
            change,
        })
    });
    figures.collect()
}

fn differences(a: &Report, b: &Report) -> Vec<Difference> {
    let device = |report: &Report| {
        let device = report.storage.device.as_ref();
        device.map(|device| {
            let model = device.model.as_ref();
            device.name.clone()
                + &model.map_or(String::new(), |model| format!(" ({})", model.trim()))
        })
    };
    let of = |report: &Report| -> [(&'static str, Option<String>); 10] {
        let (host, storage) = (&report.host, &report.storage);
        let settings = storage.device.as_ref();
        [
            ("host", Some(host.name.clone())),
            ("kernel", Some(host.kernel.clone())),
            ("processors", Some(host.cpus.to_string())),
            ("memory", host.memory_bytes.map(numbers::bytes)),
            ("device", device(report)),
            ("emulated disk", storage.profile().map(str::to_owned)),
            ("filesystem", storage.filesystem.clone()),
            ("mount options", storage.mount_options.clone()),
            ("readahead", settings.and_then(|it| it.readahead_bytes).map(numbers::bytes)),
            ("scheduler", settings.and_then(|it| it.scheduler.clone())),
        ]
    };
    let unknown = |value: Option<String>| value.unwrap_or_else(|| "unknown".to_owned());
    let pairs = of(a).into_iter().zip(of(b)).filter(|(a, b)| a != b);
    pairs.map(|((what, a), (_, b))| Difference { what, a: unknown(a), b: unknown(b) }).collect()
}

fn advice_changes(a: &[Advice], b: &[Advice]) -> Vec<AdviceChange> {
    let key = |advice: &Advice| (advice.applies_to, advice.setting.clone());
    let mut settings: Vec<_> = a.iter().chain(b).map(key).collect();
    settings.sort();
    settings.dedup();
    let changes = settings.into_iter().filter_map(|(applies_to, setting)| {
        let of = |all: &[Advice]| {
            let found = all.iter().find(|it| it.applies_to == applies_to && it.setting == setting);
            found.map(|it| it.advised.clone())
        };
        let (a, b) = (of(a), of(b));
        let applies_to = applies_to.to_string();
        (a != b).then_some(AdviceChange { setting, applies_to, a, b })
    });
    changes.collect()
}

/// The comparison as text, the different machine first.
fn shown(comparison: &Comparison, a: &Report, b: &Report, look: Look) -> String {
    let mut text = String::new();
    let said = |sentence: &str, text: &mut String| push_wrapped(text, "", sentence, look.width);
    for (letter, name, report) in [('A', &comparison.a, a), ('B', &comparison.b, b)] {
        said(
            &format!("{letter}: {name}, {}, forebay {}", report.started, report.forebay),
            &mut text,
        );
    }
    if comparison.differences.is_empty() {
        said("Host, kernel and device are the same.", &mut text);
    }
    for Difference { what, a, b } in &comparison.differences {
        said(&format!("Not the same {what}: {a} in A, {b} in B."), &mut text);
    }
    let put = |table: &Table, text: &mut String| {
        if !table.rows.is_empty() {
            push_line(text, "");
            text.push_str(&drawn(table, look));
        }
    };
    if let (Some(a), Some(b)) = (&a.device, &b.device) {
        put(&devices(a, b), &mut text);
    }
    put(&changes(comparison), &mut text);
    push_line(&mut text, "");
    for sentence in counts(comparison) {
        said(&sentence, &mut text);
    }
    put(&advice(comparison), &mut text);
    if comparison.advice.is_empty() {
        said("Both advise the same settings.", &mut text);
    }
    if look.ascii { ascii(&text) } else { text }
}

/// Both disks' own figures, of those that both have.
fn devices(a: &DeviceSummary, b: &DeviceSummary) -> Table {
    let (a, b) = (tables::device(a), tables::device(b));
    let rows = a.rows.iter().filter_map(|ours| {
        let theirs = b.rows.iter().find(|row| row.cells[0] == ours.cells[0])?;
        let [name, a, a_range] = [0, 1, 2].map(|cell| ours.cells[cell].text.clone());
        let [b, b_range] = [1, 2].map(|cell| theirs.cells[cell].text.clone());
        Some(tables::row("", [name, a, a_range, b, b_range]))
    });
    tables::table(
        "",
        &["the disk alone", "A/s", "low to high", "B/s", "low to high"],
        rows.collect(),
    )
}

/// The figures that changed, the most changed ones if there are many.
fn changes(comparison: &Comparison) -> Table {
    let is_change = |figure: &&Figure| matches!(figure.change, Change::Better | Change::Worse);
    let mut changed: Vec<&Figure> = comparison.figures.iter().filter(is_change).collect();
    changed.sort_by(|a, b| b.ratio.ln().abs().total_cmp(&a.ratio.ln().abs()));
    changed.truncate(ROWS_MAX);
    changed.sort_by_key(|figure| (&figure.experiment, &figure.metric));
    let rows = changed.into_iter().map(|figure| {
        let better = figure.change == Change::Better;
        let mut row: Row = tables::row(
            &format!("{}: {}", figure.experiment, figure.metric),
            [
                label(&figure.cell),
                numbers::number(figure.a),
                numbers::number(figure.b),
                tables::times(figure.ratio, figure.low, figure.high),
                (if better { "better" } else { "worse" }).to_owned(),
            ],
        );
        let mark = if better { Mark::Best } else { Mark::Bad };
        row.cells[4] = TableCell { mark, ..row.cells[4].clone() };
        row
    });
    tables::table("", &["cell", "A", "B", "B of A", "changed"], rows.collect())
}

/// The settings of a cell: words by themselves, everything else with its name.
fn label(cell: &Map<String, Value>) -> String {
    let settings = cell.iter().filter_map(|(key, value)| match value {
        Value::Null => None,
        Value::String(word) => Some(word.clone()),
        other => Some(format!("{} {}", key.replace('_', " "), numbers::value(other))),
    });
    settings.collect::<Vec<_>>().join(", ")
}

/// How many changed, did not, or are undecided.
fn counts(comparison: &Comparison) -> Vec<String> {
    let count = |change| comparison.figures.iter().filter(|it| it.change == change).count();
    let [better, worse, same, open] =
        [Change::Better, Change::Worse, Change::Same, Change::Undecided].map(count);
    let (all, changed) = (comparison.figures.len(), better + worse);
    let mut sentences = vec![format!(
        "Of {all} figures {changed} changed ({better} better, {worse} worse), {same} did not by more than 5 %, and \
         {open} are undecided: their rounds are too few or too far apart."
    )];
    if changed > 0 {
        let chance = (all as f64 * 0.05).ceil();
        sentences.push(format!(
            "By chance alone up to {chance} of {all} would seem changed: trust large changes, and several of a kind."
        ));
    }
    if changed > ROWS_MAX {
        sentences.push(format!("The {ROWS_MAX} most changed are shown; --json FILE has all."));
    }
    if comparison.uncompared > 0 {
        sentences.push(format!(
            "{} records are in one report only, were not measured, or were answered by memory.",
            comparison.uncompared
        ));
    }
    sentences
}

/// The settings that are not advised alike.
fn advice(comparison: &Comparison) -> Table {
    let advised = |value: &Option<String>| value.clone().unwrap_or_else(|| "no advice".to_owned());
    let rows = comparison.advice.iter().map(|change| {
        let AdviceChange { setting, applies_to, a, b } = change;
        tables::row(applies_to, [setting.clone(), advised(a), advised(b)])
    });
    tables::table("", &["setting advised", "A", "B"], rows.collect())
}

#[cfg(test)]
mod tests;
