//! Tables of the page, laid out here so that the template only writes them down.
//!
//! Invariants:  [TAB-1] every row has as many cells as the table has columns

use serde::Serialize;

use super::super::footnotes::Footnotes;
use super::super::standing::Standing;
use super::super::{Record, numbers};

/// A table with one heading for each column and one for each row.
#[derive(Debug, Serialize)]
pub(super) struct Table {
    /// Short name, for the switch between tables.
    pub(super) name: String,
    /// What the figures are and in which unit.
    pub(super) caption: String,
    /// Heading of the column of row headings.
    pub(super) corner: String,
    pub(super) columns: Vec<String>,
    pub(super) rows: Vec<Row>,
}

/// One row.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub(super) head: String,
    /// Style class of the backend's colour; empty for none.
    pub(super) backend: &'static str,
    /// True for a line drawn with dashes.
    pub(super) dashed: bool,
    /// True for the first row of another kind than the rows above it.
    pub(super) apart: bool,
    pub(super) cells: Vec<Cell>,
}

/// One figure.
#[derive(Debug, Serialize)]
pub(super) struct Cell {
    pub(super) text: String,
    /// `cold`, `not-cold`, `unmeasured`, `text` or `absent`.
    pub(super) class: &'static str,
    pub(super) best: bool,
    /// Percent of the highest figure of the table, for the bar behind it.
    pub(super) share: Option<u32>,
    /// Numbers of its footnotes.
    pub(super) marks: String,
}

impl Cell {
    pub(super) fn plain(text: String, class: &'static str) -> Cell {
        Cell { text, class, best: false, share: None, marks: String::new() }
    }
}

/// The style class of a backend; names of later versions share one.
pub(super) fn backend_class(backend: &str) -> &'static str {
    match backend {
        "sync" => "sync",
        "threads" => "threads",
        "aio" => "aio",
        "uring" => "uring",
        "fio" => "fio",
        _ => "other",
    }
}

/// Every record as a row, every setting and metric that some record has as a column.
pub(super) fn plain(name: &str, records: &[&Record], notes: &mut Footnotes) -> Table {
    let mut settings: Vec<&str> = Vec::new();
    let mut metrics: Vec<&str> = Vec::new();
    for record in records {
        for (keys, found) in [(&record.cell, &mut settings), (&record.metrics, &mut metrics)] {
            for key in keys.keys() {
                if !found.contains(&key.as_str()) {
                    found.push(key);
                }
            }
        }
    }
    let mut rows = Vec::new();
    for (index, record) in records.iter().enumerate() {
        let value = |fields: &serde_json::Map<String, serde_json::Value>, key: &str| {
            let Some(value) = fields.get(key) else {
                return Cell::plain(String::new(), "absent");
            };
            let class = match value {
                serde_json::Value::Null => Standing::Unmeasured.name(),
                serde_json::Value::Number(_) if record.is_not_cold() => Standing::NotCold.name(),
                serde_json::Value::Number(_) => Standing::Cold.name(),
                _ => "text",
            };
            Cell::plain(numbers::value(value), class)
        };
        let mut cells: Vec<Cell> = settings.iter().map(|key| value(&record.cell, key)).collect();
        for cell in &mut cells {
            if cell.class == Standing::NotCold.name() {
                cell.class = Standing::Cold.name(); // a setting is certain, whatever it led to
            }
        }
        cells.extend(metrics.iter().map(|key| value(&record.metrics, key)));
        cells.push(Cell::plain(notes.marks(&record.remarks), "text"));
        let head = (index + 1).to_string();
        rows.push(Row { head, backend: "", dashed: false, apart: false, cells });
    }
    let mut columns: Vec<String> =
        settings.iter().chain(&metrics).map(|key| key.replace('_', " ")).collect();
    columns.push("remarks".to_owned());
    assert!(rows.iter().all(|row| row.cells.len() == columns.len()), "[TAB-1]");
    Table {
        name: name.to_owned(),
        caption: format!("Every record of {name}, in the order measured."),
        corner: "record".to_owned(),
        columns,
        rows,
    }
}
