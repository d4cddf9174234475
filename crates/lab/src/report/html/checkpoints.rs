//! The tables of the experiment `checkpoint`: ways of writing, and what readers felt beside them.
//!
//! Invariants:  [HCK-1] the best of a table is bold and was measured, and nothing else is

use super::super::checkpoint::{Panel, Way};
use super::super::footnotes::Footnotes;
use super::super::numbers;
use super::super::standing::Standing;
use super::tables::{Cell, Row, Table, backend_class};

const WRITING: [&str; 7] =
    ["backend", "pages/s", "time", "of one by one", "requests", "bytes each", "sync"];

/// What panels of several tablespaces have as well.
const TABLESPACES: &str = "writes of each ended";

const READING: [&str; 8] =
    ["backend", "read µs, p50", "p99", "times before", "p99.9", "most", "slip %", "checkpoint"];

/// What was written as fast as could be, in one pattern and mode.
pub(super) fn writing(panel: &Panel<'_>, notes: &mut Footnotes) -> Table {
    let highest = panel.highest_rate().filter(|highest| *highest > 0.0);
    let several = panel.ways.iter().any(|way| way.tablespaces().is_some());
    let row = |way: &Way<'_>| {
        let rate = way.metric("pages_per_s").filter(|_| way.seconds().is_some());
        let share = rate.zip(highest).map(|(rate, highest)| rate / highest * 100.0);
        let rate = Cell {
            best: panel.is_best(way), // [HCK-1]
            share: share.map(|share| share.round() as u32),
            marks: notes.marks(&way.record.remarks),
            ..figure(rate.map(numbers::number))
        };
        let mut cells = vec![
            Cell::plain(way.backend.to_owned(), "text"),
            rate,
            figure(way.seconds().map(numbers::seconds)),
            figure(way.metric("ratio_to_arrival").map(numbers::number)),
            figure(way.metric("device_requests").or(way.metric("requests")).map(numbers::number)),
            figure(way.metric("bytes_per_request").map(numbers::byte_count)),
            figure(way.metric("sync_seconds").map(numbers::seconds)),
        ];
        cells.extend(several.then(|| figure(way.tablespaces())));
        named(way, way.order(), cells)
    };
    let columns: Vec<&str> = WRITING.into_iter().chain(several.then_some(TABLESPACES)).collect();
    table(panel, &columns, panel.ways.iter().map(row).collect())
}

/// What readers felt, in one pattern and mode.
pub(super) fn reading(panel: &Panel<'_>, notes: &mut Footnotes) -> Table {
    let row = |way: &Way<'_>| {
        let us = |key: &str| figure(way.metric(key).map(numbers::number));
        let marks = notes.marks(&way.record.remarks);
        let cells = vec![
            Cell::plain(way.backend.to_owned(), "text"),
            us("foreground_us_p50"),
            Cell { marks, ..us("foreground_us_p99") },
            figure(way.times_before().map(numbers::number)),
            us("foreground_us_p999"),
            us("foreground_us_max"),
            figure(way.metric("slip").map(numbers::percent)),
            figure(way.seconds().map(numbers::seconds)),
        ];
        let readers = if way.foreground { "" } else { ", nobody reads" };
        named(way, format!("{}: {}{readers}", way.pace(), way.order()), cells)
    };
    table(panel, &READING, panel.ways.iter().map(row).collect())
}

fn figure(text: Option<String>) -> Cell {
    let class = if text.is_some() { Standing::Cold } else { Standing::Unmeasured };
    Cell::plain(text.unwrap_or_else(|| "–".to_owned()), class.name())
}

fn named(way: &Way<'_>, head: String, cells: Vec<Cell>) -> Row {
    Row { head, backend: backend_class(way.backend), dashed: way.paced, apart: false, cells }
}

fn table(panel: &Panel<'_>, columns: &[&str], rows: Vec<Row>) -> Table {
    Table {
        name: panel.label.clone(),
        caption: panel.label.clone(),
        corner: "order".to_owned(),
        columns: columns.iter().map(|&column| column.to_owned()).collect(),
        rows,
    }
}
