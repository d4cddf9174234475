//! `cargo xtask figures`: docs/benchmarks.md, from the raw output in results/.
//!
//! `results/figures.toml` says which tables there are and the position of each figure: in a record of a JSON
//! report, or after some words in a text. So a number in the document is a measured one, and a
//! result that is replaced changes it.
//!
//! Worked example: `{ text = "2026-11-21-vm/streams.txt", after = ["each its own"] }` is `308.1`.
//!
//! Failure: a figure that is missing, or occurs twice, ends the run and names its table and row.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use cargo_metadata::Metadata;
use serde::Deserialize;
use serde_json::{Map, Value};

/// The source of the document, and its path.
const PLAN: &str = "results/figures.toml";
const DOCUMENT: &str = "docs/benchmarks.md";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Plan {
    about: String,
    table: Vec<Table>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    title: String,
    /// The conditions of the measurement, and its result.
    about: String,
    columns: Vec<String>,
    row: Vec<Row>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    name: String,
    cells: Vec<Cell>,
}

/// A cell of a table.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Cell {
    /// Words.
    Words(String),
    /// Of things that are counted, in all its digits.
    Count { count: Source },
    /// The quotient of `over` and `under`.
    Ratio { over: Source, under: Source },
    /// One figure.
    Figure {
        #[serde(flatten)]
        source: Source,
        #[serde(default)]
        unit: String,
    },
}

/// The path of a figure, below results/.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Source {
    /// The metric of the one record of a report whose cell has all these values.
    Record { json: String, cell: Map<String, Value>, metric: String },
    /// The number that follows all of these words, one after the other, and `skip` other numbers.
    Text {
        text: String,
        after: Vec<String>,
        #[serde(default)]
        skip: usize,
    },
}

/// Writes the document, or with `check` compares it.
///
/// # Errors
/// A result is missing, or with `check` the document differs.
pub(crate) fn run(workspace: &Metadata, check: bool) -> Result<()> {
    let root = workspace.workspace_root.as_std_path();
    let document = render(root)?;
    let path = root.join(DOCUMENT);
    if !check {
        return fs::write(&path, document).with_context(|| format!("cannot write {DOCUMENT}"));
    }
    let written = fs::read_to_string(&path).with_context(|| format!("cannot read {DOCUMENT}"))?;
    ensure!(written == document, "{DOCUMENT} is not what results/ makes: run cargo xtask figures");
    Ok(())
}

fn render(root: &Path) -> Result<String> {
    let plan =
        fs::read_to_string(root.join(PLAN)).with_context(|| format!("cannot read {PLAN}"))?;
    let plan: Plan = toml::from_str(&plan).with_context(|| format!("in {PLAN}"))?;
    let mut text = format!(
        "# Benchmarks\n\n<!-- Made by `cargo xtask figures` from {PLAN}; change that. -->\n\n{}",
        plan.about
    );
    for table in &plan.table {
        let _ = write!(text, "\n## {}\n\n{}\n", table.title, table.about);
        let _ = writeln!(text, "| {} |", table.columns.join(" | "));
        let _ = writeln!(text, "|{}", "---|".repeat(table.columns.len()));
        for row in &table.row {
            let at = || format!("table {:?}, row {:?}", table.title, row.name);
            let cells: Result<Vec<String>> =
                row.cells.iter().map(|cell| cell.shown(root)).collect();
            let cells = cells.with_context(at)?;
            ensure!(cells.len() + 1 == table.columns.len(), "{}: not a cell a column", at());
            let _ = writeln!(text, "| {} | {} |", row.name, cells.join(" | "));
        }
    }
    Ok(text)
}

impl Cell {
    fn shown(&self, root: &Path) -> Result<String> {
        Ok(match self {
            Cell::Words(words) => words.clone(),
            Cell::Count { count } => format!("{:.0}", count.value(root)?),
            Cell::Ratio { over, under } => number(over.value(root)? / under.value(root)?),
            Cell::Figure { source, unit } => {
                let space = if unit.is_empty() { "" } else { " " };
                format!("{}{space}{unit}", number(source.value(root)?))
            }
        })
    }
}

impl Source {
    fn value(&self, root: &Path) -> Result<f64> {
        let read = |file: &str| {
            let path = root.join("results").join(file);
            fs::read_to_string(&path).with_context(|| format!("cannot read results/{file}"))
        };
        match self {
            Source::Record { json, cell, metric } => {
                let report: Value = serde_json::from_str(&read(json)?)?;
                let records = report["records"].as_array().context("a report without records")?;
                let says =
                    |record: &&Value| cell.iter().all(|(key, value)| &record["cell"][key] == value);
                let mut found = records.iter().filter(says);
                let (first, other) = (found.next(), found.next());
                let record = first.with_context(|| format!("{json} has no record {cell:?}"))?;
                ensure!(other.is_none(), "{json} has several records {cell:?}");
                let value = record["metrics"][metric].as_f64();
                value.with_context(|| format!("{json} has no {metric} for {cell:?}"))
            }
            Source::Text { text, after, skip } => {
                let said = read(text)?;
                let missing = || format!("{text} has nothing after {after:?}");
                let behind = after.iter().try_fold(said.as_str(), |rest, words| {
                    rest.split_once(words.as_str()).map(|(_, behind)| behind)
                });
                let mut numbers =
                    behind.with_context(missing)?.split_whitespace().filter_map(|word| {
                        let digits = word.trim_matches(['*', '[', ']', ';']).replace(',', "");
                        digits.parse::<f64>().ok()
                    });
                numbers.nth(*skip).with_context(missing)
            }
        }
    }
}

/// Three digits, or as many as needed: `74,258`, `5.28`.
fn number(value: f64) -> String {
    let decimals = match value.abs() {
        100.0.. => 0,
        10.0.. => 1,
        _ => 2,
    };
    let text = format!("{value:.decimals$}");
    let whole = text.split('.').next().map_or(0, str::len);
    let mut grouped = String::new();
    for (at, digit) in text.char_indices() {
        if at > 0 && at < whole && (whole - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace;

    #[test]
    fn the_document_is_what_the_results_make() {
        run(&workspace::find().unwrap(), true).unwrap();
    }

    #[test]
    fn a_figure_that_is_not_there_is_an_error_that_names_it() {
        let root = workspace::find().unwrap().workspace_root;
        let source = |after: &str| Source::Text {
            text: "2026-11-21-vm/streams.txt".to_owned(),
            after: vec![after.to_owned()],
            skip: 0,
        };
        assert!((source("each its own").value(root.as_std_path()).unwrap() - 308.1).abs() < 1e-9);
        let error = source("no such thing").value(root.as_std_path()).unwrap_err();
        assert!(error.to_string().contains("streams.txt"), "{error}");
        let cell = serde_json::json!({ "backend": "uring" }).as_object().cloned().unwrap();
        let record = Source::Record {
            json: "2026-11-21-vm/figures.json".to_owned(),
            cell,
            metric: "blocks_per_s".to_owned(),
        };
        assert!(record.value(root.as_std_path()).unwrap_err().to_string().contains("several"));
    }

    #[test]
    fn numbers_have_three_digits_and_separated_thousands() {
        let shown = [0.369, 5.281, 74_258.3, 1_234_567.0, 123.4, 12.34].map(number);
        assert_eq!(shown, ["0.37", "5.28", "74,258", "1,234,567", "123", "12.3"]);
    }
}
