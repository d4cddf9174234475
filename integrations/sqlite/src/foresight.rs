//! What SQLite will read next, from the pages that it reads.
//!
//! It reads for cursors: some go from leaf to leaf of a tree, some from leaf to leaf of an index and to each
//! row in turn. A page that was not foreseen is held against the cursors that are known, as the next leaf or the
//! leaf of a row to come; when it fits a second time, the direction is known, and look-ahead begins. Worked example:
//! SQLite reads an index's leaf that leads to rows 7, 90, 31, 4, then the table's leaf of row 90, then that of row 31:
//! it goes forward, and row 4 is next, after that the rows of the index's next leaf. In a join, a column of a
//! table's rows leads to rows of another table in the same way; which column that is, its integers tell.
//!
//! How far, and whether at all, is for `forebay_lookahead::Hints` to say, one for each cursor; any may
//! stop at any row, so each is looked ahead of by a tenth of what it took.
//!
//! Invariants:  [FOR-1] at most `CURSORS_MAX` cursors are known
//! Concurrency: one owner.
//! Failure:     a page that fits nowhere is not looked ahead of.

mod cursor;
mod overflow;

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::time::Duration;

use forebay_lookahead::{HintCounts, Hints, Limits, Takes};

use crate::page::{Kind, Overflow, Page, Record, Value, link_of};
use crate::tally::Tally;
use crate::trees::{Link, Pages, Path, Tree, Trees, overflow_of};
use cursor::{Cursor, Fit, Stage};

const CURSORS_MAX: usize = 8;
/// Leaves read recently whose columns may be keys of another tree, and how many columns are looked at.
const OUTER_MAX: usize = 4;
const COLUMNS_MAX: usize = 16;
/// Integers of a leaf that are held against others' keys, about.
const INTEGERS_MAX: usize = 4096;
/// Rows that may lead to a leaf, of those of one leaf.
const LEADING_MAX: usize = 16;
/// Leaves that SQLite may have passed over, having them itself.
const PASSED_OVER_MAX: usize = 4;
/// Trees of a schema that a leaf is looked for in.
const TREES_MAX: usize = 64;
/// Neighbours share a request; nothing is read that was not foreseen.
const LIMITS: Limits = Limits { combine_blocks: 32, gap_blocks: 0, over_read_percent: 0 };

/// What is looked ahead of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    Off,
    /// Leaves of tables and indexes in order.
    Scan,
    /// Those, and the rows that indexes lead to.
    Full,
}

#[derive(Debug)]
pub(crate) struct Foresight {
    pub(crate) trees: Trees,
    pub(crate) tally: Tally,
    scope: Scope,
    distance_max: u32,
    /// The one used last is the first.
    cursors: Vec<Cursor>,
    /// Of cursors that are gone.
    counts: HintCounts,
    /// Leaves read recently.
    outer: VecDeque<Outer>,
}

/// A leaf that may lead to another tree's rows.
#[derive(Debug)]
struct Outer {
    number: u32,
    /// The tree that a known cursor looked it up in.
    looked_up: Option<u32>,
    bytes: Vec<u8>,
    /// Its integers, once they are asked for: where each stands, and in which row.
    integers: Option<Vec<(i64, Link, usize)>>,
    /// Its rows that go on in overflow pages, once such a page was read.
    long_rows: Option<Vec<(usize, Overflow)>>,
}

impl Foresight {
    pub(crate) fn new(trees: Trees, scope: Scope, distance_max: u32) -> Foresight {
        let counts = HintCounts::default();
        Foresight {
            trees,
            tally: Tally::default(),
            scope,
            distance_max,
            cursors: Vec::new(),
            counts,
            outer: VecDeque::new(),
        }
    }

    /// What became of the pages foreseen so far.
    pub(crate) fn counts(&self) -> HintCounts {
        self.cursors.iter().fold(self.counts, added)
    }

    /// The file has changed.
    pub(crate) fn forget(&mut self) {
        self.settle();
        self.tally.forget();
        self.retire(0);
        self.outer.clear();
        self.trees.forget();
    }

    /// SQLite writes a page.
    pub(crate) fn written(&mut self, page: u32) {
        if page == 1 {
            self.settle(); // the schema may change
            self.tally.forget();
        }
        self.trees.forget_page(page);
    }

    /// Moves what was counted to the trees' names, which stay.
    pub(crate) fn settle(&mut self) {
        self.tally.settle(|root| self.trees.name(root).map(str::to_owned));
    }

    /// SQLite has read a page, which took so long. Returns whether it was foreseen, and looking ahead is of use.
    pub(crate) fn came(
        &mut self,
        number: u32,
        bytes: &[u8],
        read: Duration,
        pages: &mut impl Pages,
    ) -> bool {
        let (useful, asked) = (self.counts().useful, self.foresee(number, bytes, read, pages));
        // SQLite has had these, or never will.
        let besides = self.trees.take_asked();
        self.counts.asked += besides;
        self.tally.unknown().prefetched += besides;
        self.tally.read(number, read, self.counts().useful > useful);
        asked
    }

    /// SQLite read this page before, and may not be done with it.
    pub(crate) fn read_before(&mut self, number: u32, bytes: &[u8], pages: &mut impl Pages) {
        self.foresee(number, bytes, Duration::ZERO, pages);
    }

    fn foresee(
        &mut self,
        number: u32,
        bytes: &[u8],
        read: Duration,
        pages: &mut impl Pages,
    ) -> bool {
        let geometry = self.trees.geometry();
        let page = || Page::read(bytes, number, geometry);
        // SQLite may read a part of an overflow page.
        let whole = bytes.len() == geometry.page_size as usize;
        let kind = bytes.first().filter(|_| whole).and_then(|first| Kind::of(*first));
        let overflow = self.overflow_came(number, bytes, kind, pages);
        let known = self
            .cursors
            .iter()
            .position(|cursor| cursor.hints.as_ref().is_some_and(|hints| hints.knows(number)));
        if let Some(at) = known {
            match kind.filter(|_| overflow.is_none()) {
                Some(Kind::TableInterior | Kind::IndexInterior) => {
                    page().and_then(|page| self.trees.learn(number, &page));
                }
                Some(Kind::TableLeaf | Kind::IndexLeaf) => {
                    if let Some(page) = page() {
                        let cursor = &self.cursors[at];
                        let root = self.tally.root_of(number).unwrap_or(cursor.tree.root);
                        let looked_up = Some(root).filter(|root| *root != cursor.tree.root);
                        self.outer_leaf(number, &page, bytes, looked_up, pages);
                    }
                }
                None => {}
            }
            self.cursors[at].astray = 0;
            return self.take(at, number, read, pages);
        }
        if let Some(at) = overflow {
            let cursor = &mut self.cursors[at];
            let awake = cursor.hints.as_mut().filter(|hints| !hints.asleep());
            let Some(hints) = awake else { return self.take(at, number, read, pages) };
            hints.came_besides(read);
            cursor.look_ahead(&mut self.trees, &mut self.tally, pages);
            return false;
        }
        let Some(page) = page() else { return false };
        match page.kind() {
            Kind::TableInterior | Kind::IndexInterior => {
                self.trees.learn(number, &page);
                false
            }
            Kind::IndexLeaf => self.index_leaf(number, &page, bytes, read, pages),
            Kind::TableLeaf => self.table_leaf(number, &page, bytes, read, pages),
        }
    }

    /// A cursor has come to a page: looks ahead of it.
    fn take(&mut self, at: usize, page: u32, read: Duration, pages: &mut impl Pages) -> bool {
        self.cursors[..=at].rotate_right(1);
        let cursor = &mut self.cursors[0];
        let distance_max = self.distance_max;
        cursor.page_came(page);
        let hints = cursor
            .hints
            .get_or_insert_with(|| Box::new(Hints::new(distance_max, Takes::MayStop, LIMITS)));
        hints.came(page, Some(read));
        // Asleep, it is still followed, to be at the right place when it wakes.
        if hints.asleep() {
            return false;
        }
        cursor.look_ahead(&mut self.trees, &mut self.tally, pages);
        true
    }

    fn begin(&mut self, cursor: Cursor) {
        self.retire(CURSORS_MAX - 1);
        self.cursors.insert(0, cursor);
        assert!(self.cursors.len() <= CURSORS_MAX, "[FOR-1]");
    }

    /// Ends all cursors but the first so many.
    fn retire(&mut self, left: usize) {
        let left = left.min(self.cursors.len());
        self.counts = self.cursors.drain(left..).fold(self.counts, |all, it| added(all, &it));
    }

    /// An index's leaf that was not foreseen.
    fn index_leaf(
        &mut self,
        number: u32,
        page: &Page<'_>,
        bytes: &[u8],
        read: Duration,
        pages: &mut impl Pages,
    ) -> bool {
        let keys = keys_of(page);
        if let Some(keys) = &keys
            && let Some(fits) = self.row_came(number, keys, read, pages)
        {
            return fits;
        }
        if let Some(at) = self.follow(number, |cursor| cursor.link == Link::Index, pages) {
            let cursor = &mut self.cursors[at];
            self.tally.belongs(number, cursor.tree.root);
            cursor.enter(page);
            // One that goes to rows is counted by them.
            return if cursor.looks_up { true } else { self.take(at, number, read, pages) };
        }
        self.outer_leaf(number, page, bytes, None, pages);
        if let Some((path, tree)) = self.trees.index_path(number, pages) {
            self.tally.belongs(number, tree.root);
            if let Some(keys) = keys.filter(|_| self.scope == Scope::Full)
                && let Some(at) = self.find_link(tree.root, number, keys, pages)
            {
                return self.take(at, number, read, pages);
            }
            let mut cursor = Cursor::new(tree, Link::Index, path);
            cursor.enter(page);
            self.begin(cursor);
        }
        false
    }

    /// A table's leaf that was not foreseen.
    fn table_leaf(
        &mut self,
        number: u32,
        page: &Page<'_>,
        bytes: &[u8],
        read: Duration,
        pages: &mut impl Pages,
    ) -> bool {
        let Some(keys) = keys_of(page) else { return false };
        if let Some(fits) = self.row_came(number, &keys, read, pages) {
            if let Some(root) = self.tally.root_of(number) {
                self.outer_leaf(number, page, bytes, Some(root), pages);
            }
            return fits;
        }
        self.outer_leaf(number, page, bytes, None, pages);
        if let Some(at) = self.follow(number, Cursor::is_scan, pages) {
            self.tally.belongs(number, self.cursors[at].tree.root);
            return self.take(at, number, read, pages);
        }
        if let Some((tree, path)) = self.locate(*keys.start(), number, pages) {
            self.tally.belongs(number, tree.root);
            if self.scope == Scope::Full
                && let Some(at) = self.find_link(tree.root, number, keys, pages)
            {
                return self.take(at, number, read, pages);
            }
            if !path.is_empty() {
                self.begin(Cursor::new(tree, Link::Rowid, path));
            }
        }
        false
    }

    /// Holds a leaf of these keys against the rows that cursors lead to. Returns whether it was taken, if it is one.
    fn row_came(
        &mut self,
        number: u32,
        keys: &RangeInclusive<i64>,
        read: Duration,
        pages: &mut impl Pages,
    ) -> Option<bool> {
        if self.scope != Scope::Full {
            return None;
        }
        for at in 0..self.cursors.len() {
            let cursor = &mut self.cursors[at];
            let fit = cursor.row_came(number, keys, &mut self.trees, pages);
            if let (Fit::First | Fit::Again, Some(table)) = (&fit, cursor.tree.table) {
                self.tally.belongs(number, table);
            }
            match fit {
                Fit::Not => {}
                Fit::First => return Some(false),
                Fit::Again => return Some(self.take(at, number, read, pages)),
            }
        }
        None
    }

    /// The table whose leaf holds a rowid, and the path to it.
    fn locate(&mut self, rowid: i64, leaf: u32, pages: &mut impl Pages) -> Option<(Tree, Path)> {
        let schema = self.trees.schema(pages)?;
        let tables = schema.iter().filter(|tree| tree.table.is_none()).take(TREES_MAX);
        let tables: Vec<Tree> = tables.copied().collect();
        tables
            .into_iter()
            .find_map(|tree| Some((tree, self.trees.path_to(tree.root, rowid, leaf, pages)?)))
    }

    /// A leaf was read: keeps it, as its rows may lead to those of another tree.
    fn outer_leaf(
        &mut self,
        number: u32,
        page: &Page<'_>,
        bytes: &[u8],
        looked_up: Option<u32>,
        pages: &mut impl Pages,
    ) {
        let oldest = if self.outer.len() < OUTER_MAX { None } else { self.outer.pop_back() };
        let new =
            || Outer { number, looked_up, bytes: Vec::new(), integers: None, long_rows: None };
        let mut outer = oldest.unwrap_or_else(new);
        outer.bytes.clear();
        outer.bytes.extend_from_slice(bytes);
        (outer.number, outer.looked_up) = (number, looked_up);
        (outer.integers, outer.long_rows) = (None, None);
        self.outer.push_front(outer);
        if looked_up.is_some() || self.scope != Scope::Full {
            return;
        }
        // Those that know a link already, and are not ahead yet.
        let leads = |cursor: &Cursor| cursor.looks_up && cursor.link != Link::Index;
        if let Some(at) = self.follow(number, leads, pages) {
            self.cursors[at].enter(page);
        }
    }

    /// Holds a page against the rows that go on in overflow pages. Returns the cursor that reads them, if it is one.
    fn overflow_came(
        &mut self,
        number: u32,
        bytes: &[u8],
        kind: Option<Kind>,
        pages: &mut impl Pages,
    ) -> Option<usize> {
        let link = link_of(bytes)?;
        let mut cursors = self.cursors.iter_mut().enumerate();
        let of_known = cursors.find_map(|(at, it)| Some((at, it.overflow_came(number, link)?)));
        if let Some((at, root)) = of_known {
            self.tally.belongs(number, root);
            return Some(at);
        }
        if kind.is_some() || number == 1 {
            return None;
        }
        let geometry = self.trees.geometry();
        let (leaf, place, row) = self.outer.iter_mut().enumerate().find_map(|(at, outer)| {
            let page = || Page::read(&outer.bytes, outer.number, geometry);
            let read = || page().map_or(Vec::new(), |page| overflow_of(&page, 0..page.cells()));
            let rows = outer.long_rows.get_or_insert_with(read);
            let (place, row) = rows.iter().find(|(_, row)| row.first == number)?;
            Some((at, *place, *row))
        })?;
        let leaf = &self.outer[leaf];
        let root = self.tally.root_of(leaf.number)?;
        let at = self.cursors.iter().position(|cursor| cursor.reads_rows_of(root))?;
        self.tally.belongs(number, root);
        let cursor = &mut self.cursors[at];
        let page = Page::read(&leaf.bytes, leaf.number, geometry)?;
        if cursor.long_row_came(root, page.key(place), row, link) {
            let path = match page.rowid(0) {
                Some(rowid) => self.trees.path_to(root, rowid, leaf.number, pages),
                None => self.trees.index_path(leaf.number, pages).map(|(path, _)| path),
            };
            let forward = cursor.forward.unwrap_or(true);
            let mut left: Vec<(usize, Overflow)> = leaf.long_rows.clone().unwrap_or_default();
            left.retain(|(at, _)| if forward { *at > place } else { *at < place });
            if !forward {
                left.reverse();
            }
            if let Some(path) = path {
                cursor.go_on_from(leaf.number, path, left.into_iter().map(|(_, row)| row));
            }
        }
        Some(at)
    }

    /// Finds in leaves read recently the rows that lead to one that was read now, which has these keys. Returns the
    /// cursor that is known to lead there.
    fn find_link(
        &mut self,
        table: u32,
        leaf: u32,
        keys: RangeInclusive<i64>,
        pages: &mut impl Pages,
    ) -> Option<usize> {
        let geometry = self.trees.geometry();
        let mut found = Vec::new();
        for outer in self.outer.iter_mut().filter(|outer| outer.number != leaf) {
            let Some(page) = Page::read(&outer.bytes, outer.number, geometry) else { continue };
            let integers = outer.integers.get_or_insert_with(|| integers_of(&page));
            let leading = integers.iter().filter(|(row, ..)| keys.contains(row));
            for &(row, link, at) in leading.take(LEADING_MAX) {
                if self.trees.path_to(table, row, leaf, pages).is_none() {
                    continue;
                }
                let Some(from) = outer.looked_up else {
                    found.push((outer.number, page.kind(), page.rowid(0), link, at));
                    continue;
                };
                let stage = Stage { root: table, link };
                let mut cursors = self.cursors.iter_mut();
                if let Some(at) = cursors.position(|cursor| cursor.leads_on(from, stage)) {
                    return Some(at);
                }
            }
        }
        for (number, kind, rowid, link, at) in found.into_iter().take(CURSORS_MAX / 2) {
            let located = match kind {
                Kind::IndexLeaf => {
                    self.trees.index_path(number, pages).map(|(path, tree)| (tree, path))
                }
                _ => rowid.and_then(|it| self.locate(it, number, pages)),
            };
            let Some((tree, path)) = located else { continue };
            let outer = self.outer.iter().find(|outer| outer.number == number);
            let page = outer.and_then(|outer| Page::read(&outer.bytes, number, geometry));
            let tree = Tree { table: Some(table), ..tree };
            let mut cursor = Cursor::new(tree, link, path);
            if let Some(page) = page {
                cursor.enter(&page);
            }
            cursor.looks_up = true;
            cursor.seen.push(at);
            self.cursors.retain(|it| it.hints.is_some() || it.link != link || it.tree != tree);
            self.begin(cursor);
        }
        None
    }

    /// The cursor, of those that `which` chooses, that goes from leaf to leaf and has come to this one.
    fn follow(
        &mut self,
        leaf: u32,
        which: impl Fn(&Cursor) -> bool,
        pages: &mut impl Pages,
    ) -> Option<usize> {
        for at in 0..self.cursors.len() {
            let cursor = &mut self.cursors[at];
            for forward in [true, false] {
                if !which(cursor) || cursor.forward.is_some_and(|it| it != forward) {
                    continue;
                }
                let mut path = cursor.path.clone();
                for _ in 0..PASSED_OVER_MAX {
                    let Ok((next, _)) = self.trees.step(&mut path, forward, pages) else { break };
                    if next == leaf {
                        cursor.found_at(leaf, path, forward);
                        return Some(at);
                    }
                }
            }
        }
        None
    }
}

fn added(all: HintCounts, cursor: &Cursor) -> HintCounts {
    all.and(cursor.hints.as_ref().map(|hints| hints.counts()).unwrap_or_default())
}

/// The keys of a leaf, from the first row's to the last's.
fn keys_of(page: &Page<'_>) -> Option<RangeInclusive<i64>> {
    Some(page.key(0)?..=page.key(page.cells().checked_sub(1)?)?)
}

/// The integers of a leaf that may be keys of another tree.
fn integers_of(page: &Page<'_>) -> Vec<(i64, Link, usize)> {
    let mut found = Vec::new();
    for at in 0..page.cells() {
        if found.len() >= INTEGERS_MAX {
            break;
        }
        found.extend(page.rowid(at).map(|rowid| (rowid, Link::Rowid, at)));
        let columns = page.record(at).into_iter().flat_map(Record::columns);
        for (column, value) in columns.enumerate().take(COLUMNS_MAX) {
            if let Value::Integer(row) = value {
                found.push((row, Link::Column(column), at));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests;
