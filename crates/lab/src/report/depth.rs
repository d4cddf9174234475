//! Records of the experiment `depth`, grouped into lines that a table or a plot can draw.
//!
//! A line is everything of a cell but its depth: `uring direct`, `threads buffered`, and so on,
//! in the order in which the run measured them. A record that fits no line (no depth, or a cell
//! seen twice) is handed back as a leftover, so that a page shows it plainly and loses nothing.
//!
//! Invariants:  [DEP-1] every record is in exactly one line or among the leftovers
//!              [DEP-2] the cells of a line are sorted by depth, each depth once
//!              [DEP-3] a line's best and its depth 0 are cold figures
//! Source:      Gregory Stark's table of 2007, blocks prefetched against seconds, is the shape.

use super::Record;
use super::standing::{self, Standing};

/// Name of the experiment whose records are read here.
pub(crate) const EXPERIMENT: &str = "depth";

/// One point of a line.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cell<'a> {
    /// Blocks requested ahead of the one in use.
    pub(crate) depth: u64,
    /// The record it comes from.
    pub(crate) record: &'a Record,
}

impl Cell<'_> {
    /// Blocks per second, as measured, whatever it is worth.
    pub(crate) fn rate(&self) -> Option<f64> {
        standing::rate(self.record)
    }

    /// Blocks per second when the figure is about the disk.
    pub(crate) fn cold_rate(&self) -> Option<f64> {
        standing::cold_rate(self.record)
    }

    pub(crate) fn standing(&self) -> Standing {
        Standing::of(self.record)
    }

    /// Half the distance between the slowest and the fastest round, as a share of the figure.
    pub(crate) fn spread(&self) -> Option<f64> {
        let low = self.record.metric("blocks_per_s_min")?;
        let high = self.record.metric("blocks_per_s_max")?;
        let rate = self.rate().filter(|rate| *rate > 0.0)?;
        Some((high - low) / 2.0 / rate)
    }

    /// Device requests for each block the reader got.
    pub(crate) fn requests_per_block(&self) -> Option<f64> {
        let blocks = self.record.metric("blocks").filter(|blocks| *blocks > 0.0)?;
        Some(self.record.metric("device_requests")? / blocks)
    }
}

/// All depths of one backend and cache mode.
#[derive(Debug, Clone)]
pub(crate) struct Line<'a> {
    /// `sync`, `threads`, `aio`, `uring`, `fio`, or a name from a later version.
    pub(crate) backend: &'a str,
    /// `buffered` or `direct`.
    pub(crate) cache: &'a str,
    /// What a reader calls it: `uring direct`.
    pub(crate) label: String,
    /// Sorted by depth [DEP-2].
    pub(crate) cells: Vec<Cell<'a>>,
}

impl<'a> Line<'a> {
    pub(crate) fn at(&self, depth: u64) -> Option<&Cell<'a>> {
        let index = self.cells.binary_search_by_key(&depth, |cell| cell.depth).ok()?;
        self.cells.get(index)
    }

    /// The fastest cold cell; of equals the one with the smallest depth.
    pub(crate) fn best(&self) -> Option<&Cell<'a>> {
        let mut best: Option<(&Cell<'a>, f64)> = None;
        for cell in &self.cells {
            if let Some(rate) = cell.cold_rate()
                && best.is_none_or(|(_, highest)| rate > highest)
            {
                best = Some((cell, rate));
            }
        }
        best.map(|(cell, _)| cell)
    }

    /// How many times the cold rate at depth 0 a cell reaches; `None` without either figure.
    pub(crate) fn ratio(&self, cell: &Cell<'_>) -> Option<f64> {
        let alone = self.at(0)?.cold_rate().filter(|rate| *rate > 0.0)?;
        Some(cell.cold_rate()? / alone)
    }
}

/// The records of the experiment, grouped.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lines<'a> {
    pub(crate) lines: Vec<Line<'a>>,
    /// Records of the experiment that name no depth, or name a cell a second time.
    pub(crate) leftovers: Vec<&'a Record>,
}

impl<'a> Lines<'a> {
    /// Groups the records of the experiment `depth`; others are passed over.
    pub(crate) fn group(records: &'a [Record]) -> Lines<'a> {
        let mut grouped = Lines::default();
        for record in records.iter().filter(|record| record.experiment == EXPERIMENT) {
            grouped.place(record);
        }
        grouped
    }

    fn place(&mut self, record: &'a Record) {
        let Some(depth) = record.cell_number("depth") else {
            self.leftovers.push(record);
            return;
        };
        let label = label(record);
        let cell = Cell { depth, record };
        let Some(line) = self.lines.iter_mut().find(|line| line.label == label) else {
            self.lines.push(Line {
                backend: record.cell_text("backend"),
                cache: record.cell_text("cache"),
                label,
                cells: vec![cell],
            });
            return;
        };
        match line.cells.binary_search_by_key(&depth, |cell| cell.depth) {
            Ok(_) => self.leftovers.push(record), // [DEP-1], [DEP-2]
            Err(index) => line.cells.insert(index, cell),
        }
    }

    /// Every depth that some line has, ascending.
    pub(crate) fn depths(&self) -> Vec<u64> {
        let cells = self.lines.iter().flat_map(|line| &line.cells);
        let mut depths: Vec<u64> = cells.map(|cell| cell.depth).collect();
        depths.sort_unstable();
        depths.dedup();
        depths
    }

    /// The highest cold rate of all lines, for bars drawn to one scale.
    pub(crate) fn highest_rate(&self) -> Option<f64> {
        let best = self.lines.iter().filter_map(Line::best);
        best.filter_map(Cell::cold_rate).reduce(f64::max)
    }
}

/// Backend and cache mode, then any other setting of the cell with its name.
fn label(record: &Record) -> String {
    let mut words = Vec::new();
    for key in ["backend", "cache"] {
        let word = record.cell_text(key);
        if !word.is_empty() {
            words.push(word.to_owned());
        }
    }
    for (key, value) in &record.cell {
        if !["backend", "cache", "depth"].contains(&key.as_str()) {
            words.push(format!("{key} {}", super::numbers::value(value)));
        }
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::sample::record;
    use super::*;

    #[test]
    fn records_become_lines_sorted_by_depth() {
        let records = [
            record("uring", "direct", 8, Some(800.0), &[]),
            record("sync", "buffered", 0, Some(90.0), &[]),
            record("uring", "direct", 0, Some(100.0), &[]),
        ];
        let grouped = Lines::group(&records);
        assert_eq!(grouped.depths(), [0, 8]);
        assert_eq!(grouped.lines[0].label, "uring direct");
        let depths: Vec<u64> = grouped.lines[0].cells.iter().map(|cell| cell.depth).collect();
        assert_eq!(depths, [0, 8], "[DEP-2]");
        assert_eq!(grouped.lines[1].label, "sync buffered");
        assert_eq!(grouped.highest_rate(), Some(800.0));
        assert_eq!(grouped.lines[0].ratio(&grouped.lines[0].cells[1]), Some(8.0));
    }

    #[test]
    fn no_record_is_lost() {
        let mut nameless = record("uring", "direct", 0, Some(1.0), &[]);
        nameless.cell.remove("depth");
        let mut other = record("uring", "direct", 0, Some(1.0), &[]);
        other.cell.insert("stride".into(), json!(4));
        let records =
            [record("uring", "direct", 0, Some(1.0), &[]), nameless, other.clone(), other];
        let grouped = Lines::group(&records);
        assert_eq!(grouped.lines.len(), 2);
        assert_eq!(grouped.lines[1].label, "uring direct stride 4");
        assert_eq!(grouped.leftovers.len(), 2, "[DEP-1]");
    }

    #[test]
    fn a_cell_that_was_not_cold_is_never_the_best() {
        let records = [
            record("uring", "buffered", 0, Some(100.0), &[]),
            record("uring", "buffered", 1, Some(90_000.0), &["not cold: 40 % was cached"]),
            record("uring", "buffered", 2, None, &["the device went away"]),
        ];
        let grouped = Lines::group(&records);
        let line = &grouped.lines[0];
        assert_eq!(line.best().map(|cell| cell.depth), Some(0), "[DEP-3]");
        let standings: Vec<Standing> = line.cells.iter().map(Cell::standing).collect();
        assert_eq!(standings, [Standing::Cold, Standing::NotCold, Standing::Unmeasured]);
        assert_eq!(line.ratio(&line.cells[1]), None);
    }
}
