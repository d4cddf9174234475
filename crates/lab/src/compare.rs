//! Compare: what really changed between two reports.
//!
//! Records of the same experiment and cell are compared, and their rounds are treated as those of two
//! runs: unpaired, since nothing relates the third round of Monday to the third round of Tuesday. Worked
//! example: 99, 100 and 102 blocks/s on Monday and 48, 50 and 52 on Tuesday are 0.50 of it, surely less.
//!
//! Invariants:  [CMP-1] a value whose interval includes 1, or that rests on fewer than three rounds, has not changed
//!              [CMP-2] records that memory answered in either report are not compared
//!              [CMP-3] of metrics that say the same, one counts
//! Failure:     a file that is no report of this schema is a user error: exit code 2.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use serde_json::{Map, Value};

use forebay_measure::output;
use forebay_measure::report::terminal::text::{ascii, push_line, push_wrapped};
use forebay_measure::report::terminal::{Look, device_name, drawn};
use forebay_measure::report::{
    Advice, AppliesTo, DeviceSummary, Mark, Record, Report, SCHEMA, Table, TableCell, numbers,
    tables,
};
use forebay_measure::statistics::{BOUND, Estimate, ROUNDS_MIN, median, unpaired_ratio};
use forebay_measure::units::shown_size;
use forebay_measure::{BadInput, bad_input};

/// `forebay compare`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Both are files report.json of forebay lab, or what it wrote by --json. Records of the same \
                  experiment and cell are compared, round by round of the one against round by round of the \
                  other. A figure has changed if the interval of its ratio does not include 1, has not if \
                  the interval lies within 5 % of 1, and is undecided otherwise: measure with more --rounds.\n\
                  The interval includes how much the rounds of a run differ, not how much two runs of the \
                  same disk do: compare two reports of the same state first to see that.\n\n\
                  Example: forebay compare before/report.json after/report.json"
)]
pub struct CompareArgs {
    /// The baseline report, such as one from before a change
    #[arg(value_name = "A.json")]
    pub a: PathBuf,
    /// The report to compare with it, such as one from after the change
    #[arg(value_name = "B.json")]
    pub b: PathBuf,
    /// Write every comparison to this file as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// The schema name written into every comparison.
const COMPARE_SCHEMA: &str = "forebay-compare/1";

/// Maximum size of a report, far above any real one; a device or a pipe may have no end.
const BYTES_MAX: u64 = 256 << 20;

/// Maximum number of changes that are printed; the JSON file has all.
const ROWS_MAX: usize = 30;

/// Two reports side by side.
#[derive(Debug, Serialize)]
pub struct Comparison {
    schema: &'static str,
    a: String,
    b: String,
    /// Differences in host, device and kernel.
    differences: Vec<Difference>,
    figures: Vec<Figure>,
    /// Records that only one report has, or that could not be compared.
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
    /// The ratio of `b` to `a`.
    #[serde(flatten)]
    ratio: Estimate,
    change: Change,
}

/// How a figure has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Change {
    Better,
    Worse,
    Same,
    Undecided,
}

/// A setting on which the reports' advice differs; `None` where one of them does not advise it.
#[derive(Debug, PartialEq, Serialize)]
struct AdviceChange {
    setting: String,
    applies_to: String,
    a: Option<String>,
    b: Option<String>,
}

/// Reads both reports, prints what changed, and writes it on request.
///
/// # Errors
/// [`BadInput`] for a file that is no report, or what went wrong.
pub fn run(args: &CompareArgs) -> anyhow::Result<()> {
    if let Some(path) = &args.json {
        output::check_file(path)?;
    }
    if output::is_same(&args.a, &args.b) && args.a.exists() {
        bad_input!(
            "{} and {} are the same file, of which nothing can have changed; name two reports",
            args.a.display(),
            args.b.display()
        );
    }
    let (a, b) = (read(&args.a)?, read(&args.b)?);
    let comparison =
        compare((&args.a.display().to_string(), &a), (&args.b.display().to_string(), &b));
    if let Some(path) = &args.json {
        output::save(path, &(serde_json::to_string_pretty(&comparison)? + "\n"))?;
    }
    output::print(&shown(&comparison, &a, &b, output::look()))
}

fn read(path: &Path) -> anyhow::Result<Report> {
    let (shown, instead) = (path.display(), "name a report.json of forebay lab");
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(BYTES_MAX + 1).read_to_string(&mut text));
    read.map_err(|error| BadInput(format!("cannot read {shown}: {error}; {instead}")))?;
    if text.len() as u64 > BYTES_MAX {
        bad_input!(
            "{shown} has more than {}, so it is no report; {instead}",
            shown_size(BYTES_MAX)
        );
    }
    let value: Value = serde_json::from_str(&text)
        .map_err(|error| BadInput(format!("{shown} is no JSON: {error}; {instead}")))?;
    match value["schema"].as_str() {
        Some(SCHEMA) => {}
        Some(other) if version(other) > version(SCHEMA) => bad_input!(
            "{shown} has the schema {other}, of a newer forebay, and this version compares {SCHEMA}; compare them \
             with the newer one"
        ),
        Some(other) => bad_input!(
            "{shown} has the schema {other}, and this version compares {SCHEMA}; measure it again"
        ),
        None => bad_input!("{shown} has no schema; {instead}"),
    }
    let other = |error| format!("{shown} has the schema {SCHEMA} but not its fields: {error}");
    Ok(serde_json::from_value(value).map_err(|error| BadInput(other(error)))?)
}

/// The number of a schema of the laboratory's reports; `None` for other schemas.
fn version(schema: &str) -> Option<u32> {
    schema.strip_prefix("forebay-lab/")?.parse().ok()
}

/// Compares two reports, each with its name.
fn compare((name_a, a): (&str, &Report), (name_b, b): (&str, &Report)) -> Comparison {
    let theirs: BTreeMap<_, &Record> = b.records.iter().map(|it| (key(it), it)).collect();
    let mut unpaired: BTreeSet<_> = a.records.iter().chain(&b.records).map(key).collect();
    let mut figures = Vec::new();
    for ours in &a.records {
        let key = key(ours);
        let theirs = theirs.get(&key).filter(|it| !ours.is_not_cold() && !it.is_not_cold()); // [CMP-2]
        let compared = theirs.map_or_else(Vec::new, |theirs| compared(ours, theirs));
        if !compared.is_empty() {
            unpaired.remove(&key);
        }
        figures.extend(compared);
    }
    Comparison {
        schema: COMPARE_SCHEMA,
        a: name_a.to_owned(),
        b: name_b.to_owned(),
        differences: differences(a, b),
        figures,
        uncompared: unpaired.len(),
        advice: advice_changes(&a.advice, &b.advice),
    }
}

/// The key by which records match: the experiment, and the settings in any order.
fn key(record: &Record) -> (&str, String) {
    let sorted: BTreeMap<&String, String> =
        record.cell.iter().map(|(key, value)| (key, value.to_string())).collect();
    (&record.experiment, format!("{sorted:?}"))
}

/// True if a higher value of a metric is better, false if a lower one is; `None` for a metric that is neither, or that
/// follows from another one of `all` [CMP-3].
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
        let ratio = unpaired_ratio(&b, &a)?;
        let change = match ratio {
            Estimate { rounds, .. } if rounds < ROUNDS_MIN => Change::Undecided, // [CMP-1]
            _ if ratio.is_clear() && more_is_better == (ratio.low > 1.0) => Change::Better,
            _ if ratio.is_clear() => Change::Worse,
            Estimate { low, high, .. } if low >= BOUND && high <= 1.0 / BOUND => Change::Same,
            _ => Change::Undecided,
        };
        Some(Figure {
            experiment: ours.experiment.clone(),
            cell: ours.cell.clone(),
            metric: metric.clone(),
            a: median(&a)?,
            b: median(&b)?,
            ratio,
            change,
        })
    });
    figures.collect()
}

fn differences(a: &Report, b: &Report) -> Vec<Difference> {
    let of = |report: &Report| -> [(&'static str, Option<String>); 10] {
        let (host, storage) = (&report.host, &report.storage);
        let device = storage.device.as_ref();
        [
            ("host", Some(host.name.clone())),
            ("kernel", Some(host.kernel.clone())),
            ("processors", Some(host.cpus.to_string())),
            ("memory", host.memory_bytes.map(shown_size)),
            ("device", device.map(device_name)),
            ("emulated disk", storage.profile().map(str::to_owned)),
            ("filesystem", storage.filesystem.clone()),
            ("mount options", storage.mount_options.clone()),
            ("readahead", device.and_then(|it| it.readahead_bytes).map(shown_size)),
            ("scheduler", device.and_then(|it| it.scheduler.clone())),
        ]
    };
    let unknown = |value: Option<String>| value.unwrap_or_else(|| "unknown".to_owned());
    let pairs = of(a).into_iter().zip(of(b)).filter(|(a, b)| a != b);
    pairs.map(|((what, a), (_, b))| Difference { what, a: unknown(a), b: unknown(b) }).collect()
}

fn advice_changes(a: &[Advice], b: &[Advice]) -> Vec<AdviceChange> {
    let advised = |all: &[Advice], of: (AppliesTo, &String)| {
        let advice = all.iter().rfind(|it| (it.applies_to, &it.setting) == of);
        advice.map(|it| it.advised.clone())
    };
    let settings: BTreeSet<_> = a.iter().chain(b).map(|it| (it.applies_to, &it.setting)).collect();
    let change = |of: (AppliesTo, &String)| {
        let [a, b] = [a, b].map(|all| advised(all, of));
        let (applies_to, setting) = (of.0.to_string(), of.1.clone());
        (a != b).then_some(AdviceChange { setting, applies_to, a, b })
    };
    settings.into_iter().filter_map(change).collect()
}

/// The comparison as text, the different machine first.
fn shown(comparison: &Comparison, a: &Report, b: &Report, look: Look) -> String {
    let mut text = String::new();
    let said = |sentence: &str, text: &mut String| push_wrapped(text, "", sentence, look.width);
    for (letter, name, report) in [('A', &comparison.a, a), ('B', &comparison.b, b)] {
        let Report { started, forebay, .. } = report;
        said(&format!("{letter}: {name}, {started}, forebay {forebay}"), &mut text);
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

/// Both disks' own figures, if both reports have them.
fn devices(a: &DeviceSummary, b: &DeviceSummary) -> Table {
    let (a, b) = (tables::device(a), tables::device(b));
    let columns = ["the disk alone", "A/s", "low to high", "B/s", "low to high"];
    let mut table = Table::new("", columns);
    for ours in a.rows {
        let theirs = b.rows.iter().find(|row| row.cells[0] == ours.cells[0]);
        if let Some(theirs) = theirs {
            table.push(String::new(), [&ours.cells[..3], &theirs.cells[1..3]].concat());
        }
    }
    table
}

/// The figures that changed, the most changed ones if there are many.
fn changes(comparison: &Comparison) -> Table {
    let is_change = |figure: &&Figure| matches!(figure.change, Change::Better | Change::Worse);
    let mut changed: Vec<&Figure> = comparison.figures.iter().filter(is_change).collect();
    let by = |figure: &Figure| figure.ratio.value.ln().abs();
    changed.sort_by(|a, b| by(b).total_cmp(&by(a)));
    changed.truncate(ROWS_MAX);
    changed.sort_by_key(|figure| (&figure.experiment, &figure.metric));
    let times = |Estimate { value, low, high, .. }: Estimate| tables::times(value, low, high);
    let changed_to = |figure: &Figure| match figure.change {
        Change::Better => TableCell { mark: Mark::Best, ..TableCell::new("better") },
        _ => TableCell { mark: Mark::Bad, ..TableCell::new("worse") },
    };
    Table::of(
        "",
        changed,
        |figure| format!("{}: {}", figure.experiment, figure.metric),
        &[
            ("cell", &|figure| TableCell::new(label(&figure.cell))),
            ("A", &|figure| TableCell::figure(Some(figure.a))),
            ("B", &|figure| TableCell::figure(Some(figure.b))),
            ("B of A", &|figure| TableCell::new(times(figure.ratio))),
            ("changed", &changed_to),
        ],
    )
}

/// The settings of a cell: words alone, everything else with its name.
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
         {open} are undecided: their rounds are too few or differ too much."
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
    let advised = |it: &Option<String>| TableCell::new(it.as_deref().unwrap_or("no advice"));
    Table::of(
        "",
        &comparison.advice,
        |change| change.applies_to.clone(),
        &[
            ("setting advised", &|change| TableCell::new(&change.setting)),
            ("A", &|change| advised(&change.a)),
            ("B", &|change| advised(&change.b)),
        ],
    )
}

#[cfg(test)]
mod tests;
