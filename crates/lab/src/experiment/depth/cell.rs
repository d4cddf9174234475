//! The typed cell of `depth`, the results of its rounds, and lines of such cells over the depth.
//!
//! Invariants:  [DEP-1] the rows of a line have the same rounds, all of them cold, ascending in depth

use std::cmp::Ordering;

use forebay_io::{CacheMode, Kind};
use serde::{Serialize, Serializer};

use crate::experiment::by_name;
use crate::experiment::samples;
pub(super) use crate::experiment::samples::Figures;
use forebay_measure::lists::grouped;
use forebay_measure::lists::sorted;
use forebay_measure::report::{AppliesTo, numbers};
use forebay_measure::statistics::{Estimate, Floor, Judge, Judgement, median};

/// Default of PostgreSQL's io_workers.
pub(super) const PG_WORKERS: u32 = 3;

/// Default of maintenance_io_concurrency before version 18; it is no power of two, so it is measured separately.
pub(super) const PG_MAINTENANCE: u32 = 10;

/// PostgreSQL's effective_io_concurrency, and from 18 on maintenance_io_concurrency too.
pub(super) const CONCURRENCY_18: u32 = 16;

/// Forebay's own queue_depth. Source: `QUEUE_DEPTH_DEFAULT` of the pool's tablespaces.
const QUEUE_DEPTH: u32 = 256;

pub(super) const EFFECTIVE: &str = "effective_io_concurrency";
pub(super) const MAINTENANCE: &str = "maintenance_io_concurrency";

/// A setting that is a number of requests in flight, with its default.
pub(super) type DepthSetting = (AppliesTo, &'static str, u32);

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

    /// The settings that its line represents. PostgreSQL reads through the page cache: with WILLNEED up to
    /// version 17 and with `io_method=sync`, by worker processes or io_uring from 18 on.
    pub(super) fn depth_settings(self) -> Vec<DepthSetting> {
        use AppliesTo::{
            Postgres14To17, Postgres18Sync, Postgres18Uring, Postgres18Worker, Profile,
        };
        let both = |applies_to, effective, maintenance| {
            vec![(applies_to, EFFECTIVE, effective), (applies_to, MAINTENANCE, maintenance)]
        };
        let of_18 = |applies_to| both(applies_to, CONCURRENCY_18, CONCURRENCY_18);
        match (self.backend, self.cache, self.workers) {
            (Some(Kind::Sync), CacheMode::Buffered, _) => {
                [both(Postgres14To17, 1, PG_MAINTENANCE), of_18(Postgres18Sync)].concat()
            }
            (Some(Kind::Threads), CacheMode::Buffered, Some(PG_WORKERS)) => of_18(Postgres18Worker),
            (Some(Kind::Uring), CacheMode::Buffered, _) => of_18(Postgres18Uring),
            (Some(Kind::Uring), CacheMode::Direct, _) => {
                vec![(Profile, "queue_depth", QUEUE_DEPTH)]
            }
            _ => Vec::new(),
        }
    }

    /// The line that it is on, as a cell without a depth.
    pub(super) fn line(self) -> Cell {
        Cell { depth: 0, ..self }
    }

    /// Everything but the depth in words.
    pub(super) fn line_label(self) -> String {
        let workers = self.workers.map_or_else(String::new, |count| format!(" {count} workers"));
        format!("{} {}{workers}", self.backend.map_or("fio", Kind::name), self.cache)
    }

    pub(super) fn label(&self) -> String {
        format!("{} depth {}", self.line_label(), self.depth)
    }
}

/// A cell and the results of its rounds.
pub(super) type Row = samples::Row<Cell, Figures>;

impl Row {
    pub(super) fn rates(&self) -> Vec<f64> {
        self.rounds.iter().map(|round| round.blocks_per_s).collect()
    }

    /// The median rate, however reliable it is.
    pub(super) fn rate(&self) -> Option<f64> {
        median(&self.rates())
    }

    /// Whether its rates are evidence about the disk.
    pub(super) fn is_evidence(&self) -> bool {
        self.cold && self.failure.is_none() && !self.rounds.is_empty()
    }

    /// The rate in words, with its rounds if they differ much.
    pub(super) fn text(&self) -> String {
        numbers::of_rounds(&self.rates(), "blocks/s")
    }
}

/// The rows of one backend and cache mode that are evidence.
#[derive(Debug, Clone)]
pub(super) struct Line<'a> {
    pub(super) rows: Vec<&'a Row>,
    pub(super) judge: Judge,
    /// Of comparisons with other lines.
    pub(super) run: Judge,
}

impl<'a> Line<'a> {
    /// The lines of `rows`, in the order of their first rows. No difference smaller than `floor` is decided.
    pub(super) fn all(rows: &'a [Row], floor: Floor) -> Vec<Line<'a>> {
        let evidence = rows.iter().filter(|row| row.is_evidence());
        let mut lines: Vec<Vec<&'a Row>> =
            grouped(evidence, |row| row.cell.line()).into_iter().map(|(_, rows)| rows).collect();
        for rows in &mut lines {
            rows.sort_by_key(|row| row.cell.depth);
            let rounds = rows.iter().map(|row| row.rounds.len()).max();
            rows.retain(|row| Some(row.rounds.len()) == rounds);
            assert!(rows.is_sorted_by_key(|row| row.cell.depth), "[DEP-1]");
        }
        let rates = |rows: &Vec<&Row>| rows.iter().map(|row| row.rates()).collect();
        let rates: Vec<Vec<Vec<f64>>> = lines.iter().map(rates).collect();
        // A depth may be compared with the best, with the first, and with the default of a setting; a line with
        // another one, as a number of threads and as a backend.
        let comparisons = |rows: &Vec<&Row>| {
            let defaults = rows[0].cell.depth_settings().into_iter().map(|(.., default)| default);
            rows.len() * (2 + sorted(&defaults.collect::<Vec<_>>()).len()) + 2
        };
        let judge = Judge::new(&rates, lines.iter().map(comparisons).sum(), floor);
        let line = |(rows, rates): (Vec<&'a Row>, &Vec<Vec<f64>>)| Line {
            rows,
            judge: judge.within(rates),
            run: judge,
        };
        lines.into_iter().zip(&rates).map(line).collect()
    }

    /// One of its cells; the depth of this cell has no meaning.
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
    pub(super) fn near_best(&self) -> Option<&'a Row> {
        let rates: Vec<Vec<f64>> = self.rows.iter().map(|row| row.rates()).collect();
        match self.judge.knee(&rates) {
            Some(knee) => Some(self.rows[knee]),
            // Of a single round: chance cannot be excluded.
            None => self.fastest().filter(|_| self.rounds() < 2),
        }
    }

    /// Whether `row` is the deepest of several: then a curve may still rise, and its knee is not reached.
    pub(super) fn is_edge(&self, row: &Row) -> bool {
        self.rows.len() > 1 && self.rows.last().is_some_and(|last| last.cell == row.cell)
    }

    /// The smallest depth that reaches the best of all, if a deeper one was measured and gains nothing more.
    pub(super) fn knee(&self) -> Option<&'a Row> {
        self.near_best().filter(|row| !self.is_edge(row))
    }

    pub(super) fn fastest(&self) -> Option<&'a Row> {
        let by_rate =
            |a: &&Row, b: &&Row| a.rate().partial_cmp(&b.rate()).unwrap_or(Ordering::Equal);
        self.rows.iter().rev().copied().max_by(by_rate)
    }

    /// The ratio of `row` to the best of the others, and the best.
    pub(super) fn compared(&self, row: &Row) -> Option<(&'a Row, Estimate)> {
        let others: Vec<&'a Row> =
            self.rows.iter().copied().filter(|other| other.cell != row.cell).collect();
        let rates: Vec<Vec<f64>> = others.iter().map(|other| other.rates()).collect();
        let (best, ratio) = self.judge.ratio_to_best(&row.rates(), &rates)?;
        Some((others[best], ratio))
    }

    /// The smallest depth that reaches the best, and the one before it, if there is one.
    pub(super) fn about_the_knee(&self) -> &[&'a Row] {
        let knee = self.near_best().map(|knee| knee.cell);
        match self.rows.iter().position(|row| Some(row.cell) == knee) {
            Some(knee) => &self.rows[knee.saturating_sub(1)..=knee],
            None => &[],
        }
    }

    /// Whether more rounds could show where the knee is: it, or the depth before it, is undecided.
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
        assert!(Line::all(&[failed, late, warm], Floor::default()).is_empty(), "[DEP-1]");
    }

    #[test]
    fn lines_differ_in_backend_cache_and_threads_and_ascend() {
        let mut rows = line(Kind::Threads, Some(3), &[(16, 2.0), (4, 1.0)]);
        rows.extend(line(Kind::Threads, Some(8), &[(16, 3.0)]));
        rows.push(row(Kind::Threads, CacheMode::Direct, 16, &[1.0; 5]));
        let lines = Line::all(&rows, Floor::default());
        let labels: Vec<String> = lines.iter().map(Line::label).collect();
        assert_eq!(
            labels,
            ["threads buffered 3 workers", "threads buffered 8 workers", "threads direct"]
        );
        let depths: Vec<u32> = lines[0].rows.iter().map(|row| row.cell.depth).collect();
        assert_eq!(depths, [4, 16], "[DEP-1]");
    }

    #[test]
    fn rounds_that_differ_widely_are_reported() {
        let text = |rates: &[f64]| row(Kind::Sync, CacheMode::Direct, 1, rates).text();
        assert_eq!(
            text(&[18_628.0, 37_072.0, 60_641.0]),
            "37,072 blocks/s (rounds from 18,628 to 60,641)"
        );
        assert_eq!(text(&[37_000.0, 37_072.0, 37_500.0]), "37,072 blocks/s");
    }

    #[test]
    fn a_knee_that_noise_hides_is_undecided() {
        let clear = line(Kind::Uring, None, &[(1, 10.0), (16, 40.0), (64, 50.0), (256, 50.5)]);
        let lines = Line::all(&clear, Floor::default());
        assert_eq!(lines[0].knee().unwrap().cell.depth, 64);
        assert!(!lines[0].is_undecided());
        let noisy = [
            row(Kind::Uring, CacheMode::Direct, 16, &[44.0, 58.0, 41.0]),
            row(Kind::Uring, CacheMode::Direct, 64, &[52.0, 43.0, 50.0]),
        ];
        assert!(Line::all(&noisy, Floor::default())[0].is_undecided());
    }

    #[test]
    fn a_knee_at_the_edge_is_not_reached_also_after_a_dip() {
        let of = |rates: &[(u32, f64)]| {
            let rows = line(Kind::Uring, None, rates);
            let lines = Line::all(&rows, Floor::default());
            let near_best = lines[0].near_best().unwrap().cell.depth;
            (near_best, lines[0].knee().map(|knee| knee.cell.depth))
        };
        assert_eq!(of(&[(1, 10.0), (64, 49.0), (256, 50.0)]), (64, Some(64)));
        assert_eq!(of(&[(1, 10.0), (64, 40.0), (256, 50.0)]), (256, None), "it still rises");
        assert_eq!(of(&[(64, 44.0), (256, 30.0), (1024, 50.0)]), (1024, None), "a dip is no knee");
        assert_eq!(of(&[(64, 50.0), (256, 30.0), (1024, 50.0)]), (64, Some(64)));
    }
}
