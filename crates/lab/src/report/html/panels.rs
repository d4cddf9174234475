//! The tables of the experiment `interplay`: one for each pattern and kernel readahead.
//!
//! Bars of one pattern share a scale, so that a reader sees what the kernel's readahead changes
//! as well as what the strategies do.
//!
//! Invariants:  [PAN-1] a figure that was not cold has no bar and is not the best

use serde::Serialize;

use super::super::footnotes::Footnotes;
use super::super::interplay::{Cell as Point, Panel, Panels};
use super::super::numbers;
use super::super::standing::Standing;
use super::tables::{Cell, Row, Table};

/// All tables of one pattern.
#[derive(Debug, Serialize)]
pub(super) struct PatternTables {
    pub(super) pattern: String,
    pub(super) tables: Vec<Table>,
}

const COLUMNS: [&str; 7] =
    ["cache", "blocks/s", "times kernel alone", "requests", "bytes", "over-read %", "time"];

/// The tables, pattern by pattern.
pub(super) fn tables(grouped: &Panels<'_>, notes: &mut Footnotes) -> Vec<PatternTables> {
    let mut patterns = Vec::new();
    for pattern in grouped.patterns() {
        let highest = grouped.highest_rate(pattern);
        let panels = grouped.panels.iter().filter(|panel| panel.pattern == pattern);
        let tables = panels.map(|panel| table(panel, highest, notes)).collect();
        patterns.push(PatternTables { pattern: pattern.to_owned(), tables });
    }
    patterns
}

fn table(panel: &Panel<'_>, highest: Option<f64>, notes: &mut Footnotes) -> Table {
    let mut rows: Vec<Row> = Vec::new();
    let mut was_ours = None;
    for point in &panel.cells {
        let is_ours = point.is_ours();
        let mut row = row(panel, point, highest, notes);
        row.apart = was_ours.is_some_and(|was_ours| was_ours != is_ours);
        was_ours = Some(is_ours);
        rows.push(row);
    }
    Table {
        name: panel.label(),
        caption: panel.place.clone(),
        corner: "strategy".to_owned(),
        columns: COLUMNS.map(str::to_owned).to_vec(),
        rows,
    }
}

fn row(panel: &Panel<'_>, point: &Point<'_>, highest: Option<f64>, notes: &mut Footnotes) -> Row {
    let metric = |key: &str| point.record.metric(key);
    let figure = |text: Option<String>| {
        let class = match (&text, point.standing()) {
            (Some(_), standing) => standing.name(),
            (None, _) => Standing::Unmeasured.name(),
        };
        Cell::plain(text.unwrap_or_else(|| "–".to_owned()), class)
    };
    let share = point.cold_rate().zip(highest.filter(|highest| *highest > 0.0)); // [PAN-1]
    let rate = Cell {
        best: panel.is_best(point),
        share: share.map(|(rate, highest)| (rate / highest * 100.0).round() as u32),
        marks: notes.marks(&point.record.remarks),
        ..figure(point.rate().map(numbers::number))
    };
    Row {
        head: point.strategy.to_owned(),
        backend: "",
        dashed: false,
        apart: false,
        cells: vec![
            Cell::plain(point.cache.to_owned(), "text"),
            rate,
            figure(panel.times_alone(point).map(numbers::number)),
            figure(metric("device_requests").map(numbers::number)),
            figure(metric("device_bytes").map(numbers::byte_count)),
            figure(metric("over_read").map(numbers::percent)),
            figure(metric("seconds").map(numbers::seconds)),
        ],
    }
}
