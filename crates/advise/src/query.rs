//! The queries by which settings are proved: generated for a table, or the user's own.
//!
//! A generated query reads a part of a table that no query of the run has read yet, while there is one: a stretch of
//! its blocks, or a range of an index's keys. So it is as cold as possible without evicting anything. Worked example:
//! 99,000 blocks are 300 parts, stretches of 330; every third of them is drawn in random order, 20 for old and new in
//! ten rounds.
//!
//! The gain from depth depends on the distance between rows: a spinning disk passes over 20 blocks between two rows
//! anyway, so it serves a queue of them no faster, but with 64 blocks it does. So bitmap scans of two densities are
//! made if a table is small enough for both. The gain also depends on their length: the queue of a thousand rows, which
//! a fast disk reads in a hundredth of a second, is full for only a small part of that time. So the denser scans are
//! lengthened on such a disk, if the pages that they read can be evicted. If a thousand rows, read one by one, take
//! many seconds, fewer are read.
//!
//! The user's queries are from `given`.
//!
//! Invariants:  [QRY-2] no part is given twice before each was given once, except to lengthened queries

use std::time::Duration;

use anyhow::Context;
use serde_json::Value;

use super::server::{Index, Table};
use forebay_measure::report::numbers;

/// Maximum blocks of a stretch that is read sequentially, and maximum rows of a key range: they limit the time on slow
/// disks.
const STRETCH_BLOCKS_MAX: u64 = 4096;
const RANGE_ROWS_MAX: f64 = 1000.0;

/// Target time of a lengthened bitmap scan on a fast disk, and its maximum share of all rows.
const LONG: Duration = Duration::from_millis(500);
const LONG_SHARE_MAX: f64 = 0.02;

/// Target time for rows that are read one by one on a slow disk, and the minimum number of rows.
const SHORT: Duration = Duration::from_secs(1);
const SHORT_ROWS_MIN: f64 = 20.0;

/// Blocks between two rows of a sparse range: too many for a spinning disk to pass over them anyway.
const SPARSE_BLOCKS: u64 = 64;

/// Maximum parts of a table, every third for the same shapes; and minimum blocks of a part: a small table has fewer
/// parts.
const PARTS: u64 = 300;
const PART_BLOCKS_MIN: u64 = 32;

/// The kind of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// A stretch of consecutive blocks.
    Sequential,
    /// The rows of a key range, in index order.
    IndexRange,
    /// The same, in block order.
    Bitmap,
    /// The same with fewer rows, at a distance of [`SPARSE_BLOCKS`].
    SparseBitmap,
    /// For each row of a stretch, a lookup of its key in the index.
    Join,
    /// A key range with a given share of the rows, by whichever scan the planner chooses.
    Share,
    /// A count of all rows, which an index-only scan may do.
    Count,
    /// The user's own.
    Given,
}

/// The shapes that are generated.
pub(super) const MADE: [Shape; 5] =
    [Shape::Sequential, Shape::IndexRange, Shape::Bitmap, Shape::SparseBitmap, Shape::Join];

/// A query, and the parts of its table that it has not read yet.
#[derive(Debug, Clone)]
pub(super) struct Query {
    pub(super) shape: Shape,
    /// Its name in reports.
    pub(super) label: String,
    /// The table that it reads; none for the user's own.
    pub(super) table: Option<Table>,
    text: String,
    /// Share of the rows, if it is a range that begins anywhere; else 0.
    share: f64,
    /// Maximum rows of a part.
    rows_max: f64,
    parts: u64,
    /// Remaining parts, passes over all parts that were begun, and parts given again.
    deck: Vec<u64>,
    begun: u32,
    pub(super) given_again: u64,
}

impl Query {
    /// A query of `shape` on `table`; `None` if it lacks the index, or is so large that each range is sparse.
    pub(super) fn made(shape: Shape, table: &Table) -> Option<Query> {
        let distinct = |index: &&Index| shape != Shape::Join || index.distinct;
        let index = table.index.as_ref().filter(distinct);
        let label = match (shape, index) {
            (Shape::Given | Shape::Share | Shape::Count, _) => return None,
            (Shape::Sequential, _) => format!("stretch of {}", table.name),
            (_, None) => return None,
            (Shape::IndexRange, Some(index)) => {
                format!("index range of {} by {}", table.name, index.column)
            }
            (Shape::Bitmap, Some(index)) => format!("bitmap of {} by {}", table.name, index.column),
            (Shape::SparseBitmap, Some(index)) => {
                format!("sparse bitmap of {} by {}", table.name, index.column)
            }
            (Shape::Join, Some(index)) => format!("join with {} by {}", table.name, index.column),
        };
        let parts = (table.blocks / PART_BLOCKS_MIN).clamp(18, PARTS);
        let is_sparser = rows_in(parts, table) > sparse_rows(table);
        (shape != Shape::SparseBitmap || is_sparser).then(|| Query {
            table: Some(table.clone()),
            parts,
            ..Query::of(shape, label)
        })
    }

    /// A query on a key range with `share` of the rows of `table`, another range each time; `None` if it has no index.
    pub(super) fn share(table: &Table, share: f64) -> Option<Query> {
        let column = &table.index.as_ref()?.column;
        let percent = numbers::number(share * 100.0);
        let label = format!("range of {percent} % of {} by {column}", table.name);
        Some(Query { table: Some(table.clone()), share, ..Query::of(Shape::Share, label) })
    }

    /// A query that counts the rows of `table`.
    pub(super) fn count(table: &Table) -> Query {
        let text = format!("select count(*) from {}", table.name);
        let label = format!("count of {}", table.name);
        Query { table: Some(table.clone()), text, ..Query::of(Shape::Count, label) }
    }

    /// The user's own query `text`.
    pub(super) fn given(text: &str, label: String) -> Query {
        Query { text: text.to_owned(), ..Query::of(Shape::Given, label) }
    }

    fn of(shape: Shape, label: String) -> Query {
        Query {
            shape,
            label,
            table: None,
            text: String::new(),
            share: 0.0,
            rows_max: RANGE_ROWS_MAX,
            parts: 1,
            deck: Vec::new(),
            begun: 0,
            given_again: 0,
        }
    }

    /// The SQL of the next part; its plan determines the number of its rows.
    pub(super) fn next(&mut self, random: &mut fastrand::Rng) -> String {
        let ranged = self.table.as_ref().filter(|_| self.shape != Shape::Count);
        let Some(table) = ranged else { return self.text.clone() };
        if let (true, Some(index)) = (self.share > 0.0, &table.index) {
            return index.rows_between(table, random.f64() * (1.0 - self.share), self.share);
        }
        if self.deck.is_empty() {
            // Two shapes whose parts have the same order, of blocks or of keys, share no part.
            let third = match self.shape {
                Shape::Sequential | Shape::Bitmap => 0,
                Shape::Join | Shape::IndexRange => 1,
                Shape::SparseBitmap | Shape::Share | Shape::Count | Shape::Given => 2,
            };
            self.deck = (0..self.parts).filter(|part| part % 3 == third).collect();
            random.shuffle(&mut self.deck);
            self.begun += 1;
        }
        let part = self.deck.pop().unwrap_or(0); // [QRY-2]
        self.given_again += u64::from(self.begun > 1);
        let name = &table.name;
        match (self.shape, &table.index) {
            (Shape::Sequential, _) => {
                let blocks = (table.blocks / self.parts).clamp(1, STRETCH_BLOCKS_MAX);
                format!(
                    "select count(*) from {name} t where {}",
                    stretch(table, part, self.parts, blocks)
                )
            }
            (Shape::Join, Some(index)) => {
                let rows_in_block = (table.rows / table.blocks as f64).max(1.0);
                let blocks = ((self.rows_of(table) / rows_in_block) as u64).max(1);
                let (column, stretch) = (&index.column, stretch(table, part, self.parts, blocks));
                format!(
                    "select count(b.ctid) from (select t.{column} from {name} t where {stretch} offset 0) a \
                     join {name} b on b.{column} = a.{column}"
                )
            }
            (_, Some(index)) => {
                let from = part as f64 / self.parts as f64;
                index.rows_between(table, from, self.rows_of(table) / table.rows)
            }
            _ => String::new(),
        }
    }

    /// Makes it read `share` of the rows from anywhere, so rows may be read again. A short range has more positions
    /// anywhere than in its own third of all parts.
    pub(super) fn read_anywhere(&mut self, share: f64) {
        self.share = share;
    }

    /// Fits its number of rows to the disk: a part with `rows` rows took the time `took`.
    pub(super) fn fit(&mut self, rows: f64, took: Duration) {
        let Some(table) = self.table.as_ref().filter(|_| rows > 0.0 && !took.is_zero()) else {
            return;
        };
        match self.shape {
            Shape::Bitmap => {
                let share = rows / table.rows;
                let long = (share * LONG.div_duration_f64(took)).min(LONG_SHARE_MAX);
                if long > share {
                    self.read_anywhere(long);
                }
            }
            Shape::IndexRange | Shape::Join => {
                let rows = (rows * SHORT.div_duration_f64(took)).max(SHORT_ROWS_MIN);
                self.rows_max = self.rows_max.min(rows);
            }
            _ => {}
        }
    }

    /// How many rows a key range of `table` should have.
    pub(super) fn rows_of(&self, table: &Table) -> f64 {
        match self.shape {
            Shape::SparseBitmap => sparse_rows(table),
            _ => rows_in(self.parts, table).min(self.rows_max),
        }
    }

    /// Settings that make the server plan it as intended.
    pub(super) fn planned_by(&self) -> &'static [(&'static str, &'static str)] {
        match self.shape {
            Shape::Given | Shape::Sequential | Shape::Share | Shape::Count => &[],
            Shape::IndexRange => &[("enable_seqscan", "off"), ("enable_bitmapscan", "off")],
            Shape::Bitmap | Shape::SparseBitmap => {
                &[("enable_seqscan", "off"), ("enable_indexscan", "off")]
            }
            Shape::Join => &[
                ("enable_hashjoin", "off"),
                ("enable_mergejoin", "off"),
                ("enable_material", "off"),
                ("enable_bitmapscan", "off"),
            ],
        }
    }

    /// The plan node whose rows are counted; `None` if runs are counted.
    pub(super) fn node(&self) -> Option<&'static str> {
        match self.shape {
            Shape::Sequential => Some("Tid Range Scan"),
            Shape::IndexRange => Some("Index Scan"),
            Shape::Bitmap | Shape::SparseBitmap => Some("Bitmap Heap Scan"),
            Shape::Join => Some("Nested Loop"),
            Shape::Share | Shape::Count | Shape::Given => None,
        }
    }
}

/// Rows of a range in one of `parts` parts of `table`; below, of a sparse range.
fn rows_in(parts: u64, table: &Table) -> f64 {
    (table.rows / parts as f64).clamp(1.0, RANGE_ROWS_MAX)
}

fn sparse_rows(table: &Table) -> f64 {
    (table.blocks as f64 / SPARSE_BLOCKS as f64).max(1.0)
}

/// A condition for the first `blocks` blocks of a part.
fn stretch(table: &Table, part: u64, parts: u64, blocks: u64) -> String {
    let start = table.blocks * part / parts;
    format!("t.ctid >= '({start},0)' and t.ctid < '({},0)'", start + blocks)
}

impl Index {
    /// SQL that reads `share` of the rows of `table`, beginning at the share `from` of the keys. Counting ctid, which
    /// no index has, rules out an index-only scan.
    fn rows_between(&self, table: &Table, from: f64, share: f64) -> String {
        let (name, column) = (&table.name, &self.column);
        let (low, high) = (self.at(from), self.at(from + share));
        format!(
            "select count(t.ctid) from {name} t where t.{column} >= {low} and t.{column} < {high}"
        )
    }

    /// The key below which `share` of the rows lie, interpolated between the two bounds around it.
    fn at(&self, share: f64) -> String {
        let steps = self.bounds.len() - 1;
        let at = share.clamp(0.0, 1.0) * steps as f64;
        let step = (at as usize).min(steps - 1);
        let rest = at - step as f64;
        let bound =
            |number: usize| format!("'{}'::{}", self.bounds[number].replace('\'', "''"), self.kind);
        let (low, high) = (bound(step), bound(step + 1));
        match self.kind.as_str() {
            "timestamp" | "timestamptz" => format!("({low} + ({high} - {low}) * {rest:.9})"),
            "date" => format!("({low} + round(({high} - {low}) * {rest:.9})::int)"),
            "numeric" => format!("({low} + ({high} - {low}) * {rest:.9})"),
            kind => format!(
                "round({low}::numeric + ({high}::numeric - {low}::numeric) * {rest:.9})::{kind}"
            ),
        }
    }
}

/// The types of all nodes of a plan.
pub(super) fn nodes(plan: &Value) -> Vec<&str> {
    let mut found = Vec::new();
    walk(plan, &mut |key, text| {
        if key == "Node Type" {
            found.push(text);
        }
    });
    found
}

/// Calls `look` with each text in `value` and its key.
pub(super) fn walk<'p>(value: &'p Value, look: &mut impl FnMut(&'p str, &'p str)) {
    match value {
        Value::Array(items) => {
            for item in items {
                // List items, such as those of Output, have no key.
                if let Value::String(text) = item {
                    look("", text);
                }
                walk(item, look);
            }
        }
        Value::Object(fields) => {
            for (key, value) in fields {
                if let Value::String(text) = value {
                    look(key, text);
                }
                walk(value, look);
            }
        }
        _ => {}
    }
}

/// The first node of type `node`, with its children.
pub(super) fn find<'p>(plan: &'p Value, node: &str) -> Option<&'p Value> {
    if plan.get("Node Type").and_then(Value::as_str) == Some(node) {
        return Some(plan);
    }
    plan.get("Plans")?.as_array()?.iter().find_map(|child| find(child, node))
}

/// The plan itself in the output of EXPLAIN.
///
/// # Errors
/// It contains none.
pub(super) fn root(explained: &Value) -> anyhow::Result<&Value> {
    explained.get(0).and_then(|one| one.get("Plan")).context("the server's plan cannot be read")
}

#[cfg(test)]
pub(super) mod sample {
    use super::*;

    pub(crate) fn table() -> Table {
        let index = Index {
            oid: 2,
            name: "i".to_owned(),
            file: None,
            column: "k".to_owned(),
            kind: "int4".to_owned(),
            correlation: 0.0,
            distinct: true,
            bounds: ["-10", "0", "100"].map(str::to_owned).to_vec(),
        };
        let (name, index) = ("public.t".to_owned(), Some(index));
        Table { oid: 1, name, tablespace: 1663, blocks: 1000, rows: 60_000.0, file: None, index }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::sample::table;
    use super::*;

    #[test]
    fn qry_2_every_part_is_read_once_before_any_is_read_again() {
        let mut random = fastrand::Rng::with_seed(1);
        for shape in MADE {
            let mut query = Query::made(shape, &table()).unwrap();
            let all: Vec<String> = (0..10).map(|_| query.next(&mut random)).collect();
            let different: BTreeSet<&String> = all.iter().collect();
            assert_eq!(
                (query.parts, different.len(), query.given_again),
                (31, 10, 0),
                "[QRY-2] {shape:?}"
            );
            query.deck.clear();
            assert!(all.contains(&query.next(&mut random)), "{shape:?}");
            assert_eq!(query.given_again, 1);
        }
    }

    #[test]
    fn a_sparse_range_is_made_where_the_other_is_denser() {
        let rows = |shape, blocks, rows| {
            let table = Table { blocks, rows, ..table() };
            Query::made(shape, &table).map(|query| query.rows_of(&table))
        };
        let both = |blocks, all| {
            [Shape::Bitmap, Shape::SparseBitmap].map(|shape| rows(shape, blocks, all))
        };
        assert_eq!(both(19_200, 600_000.0), [Some(1000.0), Some(300.0)]);
        assert_eq!(both(128_000, 4e6), [Some(1000.0), None]);
    }

    #[test]
    fn a_range_is_as_long_as_suits_the_disk() {
        let fitted = |shape, rows, millis| {
            let table = Table { blocks: 19_200, rows: 600_000.0, ..table() };
            let mut query = Query::made(shape, &table).unwrap();
            query.fit(rows, Duration::from_millis(millis));
            (query.share, query.rows_of(&table))
        };
        assert_eq!(fitted(Shape::Bitmap, 1200.0, 100), (0.01, 1000.0));
        assert_eq!(fitted(Shape::Bitmap, 1200.0, 10), (LONG_SHARE_MAX, 1000.0));
        assert_eq!(fitted(Shape::Bitmap, 1000.0, 2000), (0.0, 1000.0), "never shortened");
        assert_eq!(fitted(Shape::Bitmap, 15_000.0, 10), (0.0, 1000.0), "it has more already");
        assert_eq!(fitted(Shape::Bitmap, 0.0, 10), (0.0, 1000.0));
        assert_eq!(fitted(Shape::IndexRange, 1000.0, 10_000), (0.0, 100.0));
        assert_eq!(fitted(Shape::Join, 1000.0, 500_000), (0.0, SHORT_ROWS_MIN));
        assert_eq!(fitted(Shape::Join, 1000.0, 10), (0.0, 1000.0), "never lengthened");
    }

    #[test]
    fn a_range_lies_between_the_bounds_about_it() {
        let index = table().index.unwrap();
        let at = |share| index.at(share);
        assert_eq!(
            at(0.25),
            "round('-10'::int4::numeric + ('0'::int4::numeric - '-10'::int4::numeric) * 0.500000000)::int4"
        );
        assert!(
            at(0.75).starts_with("round('0'::int4") && at(0.75).contains("* 0.5"),
            "{}",
            at(0.75)
        );
        assert!(at(1.0).contains("* 1.000"), "{}", at(1.0));
    }

    #[test]
    fn nodes_of_a_plan_are_found_at_any_depth() {
        let plan = serde_json::json!([{"Plan": {
            "Node Type": "Result", "Plans": [{"Node Type": "Function Scan"}],
        }}]);
        assert_eq!(nodes(&plan), ["Result", "Function Scan"]);
        assert!(find(root(&plan).unwrap(), "Function Scan").is_some());
    }
}
