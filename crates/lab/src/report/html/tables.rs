//! Tables of the page, laid out here so that the template only writes them down.
//!
//! Invariants:  [TAB-1] every row has as many cells as the table has columns
//!              [TAB-2] only a cold figure is marked as the best of its row

use serde::Serialize;

use super::super::depth::{Cell as Point, Line, Lines};
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

/// A metric that gets a table of its own: name, caption, and how a cell's figure is found.
struct Metric {
    name: &'static str,
    caption: &'static str,
    of: fn(&Point<'_>) -> Option<f64>,
    text: fn(f64) -> String,
}

const OTHER_METRICS: [Metric; 8] = [
    Metric {
        name: "Wait, median",
        caption: "Time the reader waited for a block, in µs: the median.",
        of: |cell| cell.record.metric("wait_us_p50"),
        text: numbers::number,
    },
    Metric {
        name: "Wait, p99",
        caption: "Time the reader waited for a block, in µs: 99 of 100 waits were no longer.",
        of: |cell| cell.record.metric("wait_us_p99"),
        text: numbers::number,
    },
    Metric {
        name: "Requests",
        caption: "Requests that reached the device, for each block read.",
        of: |cell| cell.requests_per_block(),
        text: numbers::number,
    },
    Metric {
        name: "Over-read",
        caption: "Over-read, in %: what the device read beyond the blocks asked for.",
        of: |cell| cell.record.metric("over_read"),
        text: numbers::percent,
    },
    Metric {
        name: "Processor",
        caption: "Processor time for each block, in µs.",
        of: |cell| cell.record.metric("cpu_us_per_block"),
        text: numbers::number,
    },
    Metric {
        name: "Spread",
        caption: "Half the distance between slowest and fastest round, in % of the figure.",
        of: |cell| cell.spread(),
        text: numbers::percent,
    },
    Metric {
        name: "Throughput",
        caption: "Throughput, in MB (millions of bytes) per second.",
        of: |cell| cell.record.metric("bytes_per_s").map(|rate| rate / 1e6),
        text: numbers::number,
    },
    Metric {
        name: "Seconds",
        caption: "Seconds for all blocks.",
        of: |cell| cell.record.metric("seconds"),
        text: numbers::number,
    },
];

/// Blocks per second: rows are lines, columns depths, with the best of each row marked.
pub(super) fn rates(grouped: &Lines<'_>, notes: &mut Footnotes) -> Table {
    let highest = grouped.highest_rate().filter(|highest| *highest > 0.0);
    let metric = Metric {
        name: "Blocks per second",
        caption: "Blocks per second. Columns are look-ahead depths; the best of each row is bold.",
        of: |cell| cell.rate(),
        text: numbers::number,
    };
    let mut table = by_depth(grouped, &metric, notes);
    let depths = grouped.depths();
    for (line, row) in grouped.lines.iter().zip(&mut table.rows) {
        let best = line.best().map(|cell| cell.depth);
        for (depth, cell) in depths.iter().zip(&mut row.cells) {
            cell.best = best == Some(*depth);
            let rate = line.at(*depth).and_then(Point::cold_rate);
            assert!(!cell.best || rate.is_some(), "[TAB-2] the best at depth {depth} is not cold");
            cell.share =
                rate.zip(highest).map(|(rate, highest)| (rate / highest * 100.0).round() as u32);
        }
    }
    table
}

/// The other metrics, each as a table of the same shape; one that no cell has is left out.
pub(super) fn others(grouped: &Lines<'_>, notes: &mut Footnotes) -> Vec<Table> {
    let measured = |metric: &&Metric| {
        let mut cells = grouped.lines.iter().flat_map(|line| &line.cells);
        cells.any(|cell| (metric.of)(cell).is_some())
    };
    let metrics = OTHER_METRICS.iter().filter(measured);
    metrics.map(|metric| by_depth(grouped, metric, notes)).collect()
}

fn by_depth(grouped: &Lines<'_>, metric: &Metric, notes: &mut Footnotes) -> Table {
    let depths = grouped.depths();
    let row = |line: &Line<'_>| Row {
        head: line.label.clone(),
        backend: backend_class(line.backend),
        dashed: line.cache == "buffered",
        apart: false,
        cells: depths.iter().map(|depth| figure(line.at(*depth), metric, notes)).collect(),
    };
    Table {
        name: metric.name.to_owned(),
        caption: metric.caption.to_owned(),
        corner: "look-ahead depth".to_owned(),
        columns: depths.iter().map(u64::to_string).collect(),
        rows: grouped.lines.iter().map(row).collect(),
    }
}

fn figure(point: Option<&Point<'_>>, metric: &Metric, notes: &mut Footnotes) -> Cell {
    let Some(point) = point else {
        return Cell::plain(String::new(), "absent");
    };
    let class = match point.standing() {
        Standing::Cold if (metric.of)(point).is_none() => Standing::Unmeasured.name(),
        standing => standing.name(),
    };
    let text = (metric.of)(point).map_or("–".to_owned(), metric.text);
    let marks = notes.marks(&point.record.remarks);
    Cell { marks, ..Cell::plain(text, class) }
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
