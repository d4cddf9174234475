//! The typed cell of `depth`, what its rounds gave, and lines of such cells over the depth.
//!
//! Invariants:  [DEP-1] the rows of a line have the same rounds, all of them cold, ascending in depth

use std::cmp::Ordering;

use forebay_io::{CacheMode, Kind};
use serde::{Serialize, Serializer};

use crate::experiment::tally;
pub(super) use crate::experiment::tally::Figures;
use crate::experiment::{by_name, grouped, rounds};
use crate::statistics::{self, Estimate, Judgement, median};

/// One setting to be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Cell {
    /// `None`: fio.
    #[serde(serialize_with = "backend_by_name")]
    pub(super) backend: Option<Kind>,
    #[serde(serialize_with = "by_name")]
    pub(super) cache: CacheMode,
    pub(super) depth: u32,
    /// Threads of the backend `threads`; `None`: one for each request in flight, up to a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) workers: Option<u32>,
}

fn backend_by_name<S: Serializer>(backend: &Option<Kind>, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_str(backend.map_or("fio", Kind::name))
}

impl Cell {
    pub(super) fn is(self, kind: Kind, cache: CacheMode) -> bool {
        self.backend == Some(kind) && self.cache == cache
    }

    /// The line that it is on: everything but the depth.
    pub(super) fn line_label(self) -> String {
        let workers = self.workers.map_or_else(String::new, |count| format!(" {count} workers"));
        format!("{} {}{workers}", self.backend.map_or("fio", Kind::name), self.cache)
    }

    pub(super) fn label(&self) -> String {
        format!("{} depth {}", self.line_label(), self.depth)
    }
}

/// A cell and what its rounds gave.
pub(super) type Row = tally::Row<Cell, Figures>;

impl Row {
    pub(super) fn rates(&self) -> Vec<f64> {
        self.rounds.iter().map(|round| round.blocks_per_s).collect()
    }

    /// The median rate, whatever it is worth.
    pub(super) fn rate(&self) -> Option<f64> {
        median(&self.rates())
    }

    /// Whether its rates say something about the disk.
    pub(super) fn is_evidence(&self) -> bool {
        self.cold && self.failure.is_none() && !self.rounds.is_empty()
    }

    /// The rate in words, with its rounds if they are far apart.
    pub(super) fn told(&self) -> String {
        rounds::told(&self.rates(), "blocks/s")
    }
}

/// The rows of one backend and cache mode that are evidence.
#[derive(Debug, Clone)]
pub(super) struct Line<'a> {
    pub(super) rows: Vec<&'a Row>,
}

impl<'a> Line<'a> {
    /// All lines, in the order of their first rows.
    pub(super) fn all(rows: &'a [Row]) -> Vec<Line<'a>> {
        let evidence = rows.iter().filter(|row| row.is_evidence());
        let lines = grouped(evidence, |row| Cell { depth: 0, ..row.cell });
        let mut lines: Vec<Line<'a>> = lines.into_iter().map(|(_, rows)| Line { rows }).collect();
        for line in &mut lines {
            line.rows.sort_by_key(|row| row.cell.depth);
            let rounds = line.rows.iter().map(|row| row.rounds.len()).max();
            line.rows.retain(|row| Some(row.rounds.len()) == rounds);
            assert!(line.rows.is_sorted_by_key(|row| row.cell.depth), "[DEP-1]");
        }
        lines
    }

    /// A cell of it; its depth means nothing.
    pub(super) fn cell(&self) -> Cell {
        self.rows[0].cell
    }

    pub(super) fn label(&self) -> String {
        self.cell().line_label()
    }

    pub(super) fn rounds(&self) -> usize {
        self.rows[0].rounds.len()
    }

    pub(super) fn at(&self, depth: u32) -> Option<&'a Row> {
        self.rows.iter().copied().find(|row| row.cell.depth == depth)
    }

    /// The smallest depth that reaches the best of all.
    pub(super) fn knee(&self) -> Option<&'a Row> {
        let rates: Vec<Vec<f64>> = self.rows.iter().map(|row| row.rates()).collect();
        match statistics::knee(&rates) {
            Some(knee) => Some(self.rows[knee]),
            // Of a single round: there is no telling what is chance.
            None => self.fastest().filter(|_| self.rounds() < 2),
        }
    }

    pub(super) fn fastest(&self) -> Option<&'a Row> {
        let by_rate =
            |a: &&Row, b: &&Row| a.rate().partial_cmp(&b.rate()).unwrap_or(Ordering::Equal);
        self.rows.iter().rev().copied().max_by(by_rate)
    }

    /// What `row` is of the best of the others, and which that is.
    pub(super) fn compared(&self, row: &Row) -> Option<(&'a Row, Estimate)> {
        let others: Vec<&'a Row> =
            self.rows.iter().copied().filter(|other| other.cell != row.cell).collect();
        let rates: Vec<Vec<f64>> = others.iter().map(|other| other.rates()).collect();
        let (best, ratio) = statistics::ratio_to_best(&row.rates(), &rates)?;
        Some((others[best], ratio))
    }

    /// The depth before the knee, if there is one, and the knee.
    pub(super) fn about_the_knee(&self) -> &[&'a Row] {
        let knee = self.knee().map(|knee| knee.cell);
        match self.rows.iter().position(|row| Some(row.cell) == knee) {
            Some(knee) => &self.rows[knee.saturating_sub(1)..=knee],
            None => &[],
        }
    }

    /// Whether more rounds could tell where the knee is: it, or the depth before it, is undecided.
    pub(super) fn is_undecided(&self) -> bool {
        let is_open = |ratio: Estimate| ratio.judgement() == Judgement::Undecided;
        let mut rows = self.about_the_knee().iter();
        rows.any(|row| self.compared(row).is_some_and(|(_, ratio)| is_open(ratio)))
    }
}

#[cfg(test)]
pub(super) mod sample {
    use super::*;

    /// A row whose rounds have these rates.
    pub(crate) fn row(kind: Kind, cache: CacheMode, depth: u32, rates: &[f64]) -> Row {
        let mut row = Row::new(Cell { backend: Some(kind), cache, depth, workers: None });
        let figures =
            |rate: &f64| Figures { blocks: 4096, blocks_per_s: *rate, ..Figures::default() };
        row.rounds = rates.iter().map(figures).collect();
        row
    }

    /// A buffered line of five rounds with little noise, the same in all depths of a round.
    pub(crate) fn line(kind: Kind, workers: Option<u32>, rates: &[(u32, f64)]) -> Vec<Row> {
        let rounds = |rate: f64| [0.97, 1.0, 1.02, 0.99, 1.01].map(|noise| rate * noise);
        let rows = rates.iter().map(|&(depth, rate)| {
            let mut row = row(kind, CacheMode::Buffered, depth, &rounds(rate));
            row.cell.workers = workers;
            row
        });
        rows.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sample::{line, row};

    #[test]
    fn a_record_has_the_cell_the_medians_and_every_round() {
        let mut one = row(Kind::Uring, CacheMode::Direct, 64, &[70.0, 90.0, 80.0]);
        one.remarks = vec!["2 threads".to_owned(), "2 threads".to_owned()];
        let record = one.record("depth", "blocks_per_s");
        assert_eq!((record.cell_text("backend"), record.cell_text("cache")), ("uring", "direct"));
        assert_eq!((record.cell_number("depth"), record.cell.len()), (Some(64), 3));
        assert_eq!(record.metric("blocks_per_s"), Some(80.0));
        assert_eq!(record.metric("rounds"), Some(3.0));
        assert_eq!(record.rounds[1]["blocks_per_s"], 90.0);
        assert_eq!(record.remarks, ["2 threads"]);
        one.cell.workers = Some(3);
        assert_eq!(one.record("depth", "blocks_per_s").cell_number("workers"), Some(3));
    }

    #[test]
    fn a_cell_that_failed_says_why_and_is_no_evidence() {
        let mut failed = row(Kind::Uring, CacheMode::Direct, 64, &[]);
        failed.failure = Some("the arena needs 9 bytes".to_owned());
        assert!(failed.record("depth", "blocks_per_s").metrics["blocks_per_s"].is_null());
        assert_eq!(
            failed.record("depth", "blocks_per_s").remarks,
            ["not measured: the arena needs 9 bytes"]
        );
        let mut late = row(Kind::Uring, CacheMode::Direct, 32, &[1.0, 2.0]);
        late.failure = Some("no memory".to_owned());
        assert_eq!(
            late.record("depth", "blocks_per_s").remarks,
            ["not measured after 2 rounds: no memory"]
        );
        let mut warm = row(Kind::Uring, CacheMode::Direct, 16, &[1.0, 2.0]);
        warm.cold = false;
        assert!(Line::all(&[failed, late, warm]).is_empty(), "[DEP-1]");
    }

    #[test]
    fn lines_differ_in_backend_cache_and_threads_and_ascend() {
        let mut rows = line(Kind::Threads, Some(3), &[(16, 2.0), (4, 1.0)]);
        rows.extend(line(Kind::Threads, Some(8), &[(16, 3.0)]));
        rows.push(row(Kind::Threads, CacheMode::Direct, 16, &[1.0; 5]));
        let lines = Line::all(&rows);
        let labels: Vec<String> = lines.iter().map(Line::label).collect();
        assert_eq!(
            labels,
            ["threads buffered 3 workers", "threads buffered 8 workers", "threads direct"]
        );
        let depths: Vec<u32> = lines[0].rows.iter().map(|row| row.cell.depth).collect();
        assert_eq!(depths, [4, 16], "[DEP-1]");
    }

    #[test]
    fn rounds_that_are_far_apart_are_told() {
        let told = |rates: &[f64]| row(Kind::Sync, CacheMode::Direct, 1, rates).told();
        assert_eq!(
            told(&[18_628.0, 37_072.0, 60_641.0]),
            "37,072 blocks/s (rounds from 18,628 to 60,641)"
        );
        assert_eq!(told(&[37_000.0, 37_072.0, 37_500.0]), "37,072 blocks/s");
    }

    #[test]
    fn a_knee_that_noise_hides_is_undecided() {
        let clear = line(Kind::Uring, None, &[(1, 10.0), (16, 40.0), (64, 50.0), (256, 50.5)]);
        let lines = Line::all(&clear);
        assert_eq!(lines[0].knee().unwrap().cell.depth, 64);
        assert!(!lines[0].is_undecided());
        let noisy = [
            row(Kind::Uring, CacheMode::Direct, 16, &[44.0, 58.0, 41.0]),
            row(Kind::Uring, CacheMode::Direct, 64, &[52.0, 43.0, 50.0]),
        ];
        assert!(Line::all(&noisy)[0].is_undecided());
    }
}
