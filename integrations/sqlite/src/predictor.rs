//! Predicts what SQLite will read next, from the pages that it reads.
//!
//! SQLite reads on behalf of cursors. Some cursors go from leaf to leaf of a tree; others go from leaf to leaf of an
//! index and to the row of each entry. A page that was not predicted is compared with the known cursors: it may be the
//! next leaf, or the leaf of one of the next rows. A second match gives the direction, and look-ahead begins. Worked
//! example: SQLite reads an index leaf that leads to rows 7, 90, 31, 4, then the table leaf of row 90, then that of row
//! 31. So it moves forward: row 4 is next, then the rows of the index's next leaf. In a join, a column of one table's
//! rows leads to rows of another table in the same way; its integers show which column that is.
//!
//! `forebay_lookahead::Hints` decides how far to look ahead, and whether to do so at all, separately for each cursor. A
//! cursor may stop at any row, so look-ahead covers a tenth of what the cursor has read.
//!
//! Invariants:  [FOR-1] at most `CURSORS_MAX` cursors are known
//! Concurrency: one owner.
//! Failure:     a page that matches no cursor causes no look-ahead.

mod cursor;
mod overflow;
mod recipient;

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::time::Duration;

use forebay_lookahead::{HintCounts, Hints, Limits, Takes};

use crate::memory::{Grow, NoMemory, boxed, list, refill};
use crate::page::{Kind, Overflow, Page, Record, Value, link_of};
use crate::tree_counts::TreeCounts;
use crate::trees::{Link, Pages, Path, Tree, Trees, available, overflow_of};
use cursor::{Cursor, Fit, Stage};

const CURSORS_MAX: usize = 8;
/// Recently read leaves whose columns may be keys of another tree, and the number of columns examined.
const OUTER_MAX: usize = 4;
const COLUMNS_MAX: usize = 16;
/// Approximate limit of a leaf's integers that are compared with the keys of other trees.
const INTEGERS_MAX: usize = 4096;
/// Of the rows of one leaf, the number that are checked as leading to another leaf.
const LEADING_MAX: usize = 16;
/// Leaves that SQLite may have skipped because they are in its own cache.
const PASSED_OVER_MAX: usize = 4;
/// Trees of a schema that are searched for a leaf.
const TREES_MAX: usize = 64;
/// Adjacent pages share a request; no page is read that was not predicted.
const LIMITS: Limits = Limits { combine_blocks: 32, gap_blocks: 0, over_read_percent: 0 };

/// What look-ahead covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    Off,
    /// The leaves of tables and indexes in order.
    Scan,
    /// Those, and the rows that indexes lead to.
    Full,
}

#[derive(Debug)]
pub(crate) struct Predictor {
    pub(crate) trees: Trees,
    pub(crate) tree_counts: TreeCounts,
    scope: Scope,
    distance_max: u32,
    /// The most recently used one is first.
    cursors: Vec<Cursor>,
    /// The counts of removed cursors.
    counts: HintCounts,
    /// Leaves read recently.
    outer: VecDeque<Outer>,
}

/// A leaf that may lead to another tree's rows.
#[derive(Debug)]
struct Outer {
    number: u32,
    /// The tree in which a known cursor looked it up.
    looked_up: Option<u32>,
    bytes: Vec<u8>,
    /// Its integers, with the link and the row of each, once they are needed.
    integers: Option<Vec<(i64, Link, usize)>>,
    /// Its rows that continue in overflow pages, once such a page was read.
    long_rows: Option<Vec<(usize, Overflow)>>,
}

impl Predictor {
    pub(crate) fn new(trees: Trees, scope: Scope, distance_max: u32) -> Predictor {
        let counts = HintCounts::default();
        Predictor {
            trees,
            tree_counts: TreeCounts::default(),
            scope,
            distance_max,
            cursors: Vec::new(),
            counts,
            outer: VecDeque::new(),
        }
    }

    /// The counts of the pages predicted so far.
    pub(crate) fn counts(&self) -> HintCounts {
        self.cursors.iter().fold(self.counts, added)
    }

    /// The file has changed.
    pub(crate) fn forget(&mut self) {
        self.settle();
        self.tree_counts.forget();
        self.retire(0);
        self.outer.clear();
        self.trees.forget();
    }

    /// SQLite writes a page.
    pub(crate) fn written(&mut self, page: u32) {
        if page == 1 {
            self.settle(); // the schema may change
            self.tree_counts.forget();
        }
        self.trees.forget_page(page);
    }

    /// Moves the counts to the trees' names, which stay.
    pub(crate) fn settle(&mut self) {
        self.tree_counts.settle(|root| self.trees.name(root));
    }

    /// SQLite has read a page, in the time `read`. Returns whether the page was predicted and look-ahead is useful.
    pub(crate) fn on_read(
        &mut self,
        number: u32,
        bytes: &[u8],
        read: Duration,
        pages: &mut impl Pages,
    ) -> Result<bool, NoMemory> {
        let useful = self.counts().useful;
        let asked = self.predict(number, bytes, read, pages)?;
        // SQLite already has these pages, or will never read them.
        let besides = self.trees.take_asked();
        self.counts.asked += besides;
        self.tree_counts.unknown().prefetched += besides;
        self.tree_counts.read(number, read, self.counts().useful > useful)?;
        Ok(asked)
    }

    /// SQLite has read this page before, and may still be using it.
    pub(crate) fn read_before(
        &mut self,
        number: u32,
        bytes: &[u8],
        pages: &mut impl Pages,
    ) -> Result<(), NoMemory> {
        self.predict(number, bytes, Duration::ZERO, pages).map(|_| ())
    }

    fn predict(
        &mut self,
        number: u32,
        bytes: &[u8],
        read: Duration,
        pages: &mut impl Pages,
    ) -> Result<bool, NoMemory> {
        let geometry = self.trees.geometry();
        let page = || Page::read(bytes, number, geometry);
        // SQLite may read only a part of an overflow page.
        let whole = bytes.len() == geometry.page_size as usize;
        let kind = bytes.first().filter(|_| whole).and_then(|first| Kind::of(*first));
        let overflow = self.on_overflow(number, bytes, kind, pages)?;
        let known = self
            .cursors
            .iter()
            .position(|cursor| cursor.hints.as_ref().is_some_and(|hints| hints.contains(number)));
        if let Some(at) = known {
            match kind.filter(|_| overflow.is_none()) {
                Some(Kind::TableInterior | Kind::IndexInterior) => {
                    if let Some(page) = page() {
                        available(self.trees.learn(number, &page))?;
                    }
                }
                Some(Kind::TableLeaf | Kind::IndexLeaf) => {
                    if let Some(page) = page() {
                        let cursor = &self.cursors[at];
                        let root = self.tree_counts.root_of(number).unwrap_or(cursor.tree.root);
                        let looked_up = Some(root).filter(|root| *root != cursor.tree.root);
                        self.outer_leaf(number, &page, bytes, looked_up, pages)?;
                    }
                }
                None => {}
            }
            self.cursors[at].mispredicted = 0;
            return self.take(at, number, read, pages);
        }
        if let Some(at) = overflow {
            let cursor = &mut self.cursors[at];
            let active = cursor.hints.as_mut().filter(|hints| !hints.is_idle());
            let Some(hints) = active else { return self.take(at, number, read, pages) };
            hints.on_other_read(read);
            cursor.look_ahead(&mut self.trees, &mut self.tree_counts, pages)?;
            return Ok(false);
        }
        let Some(page) = page() else { return Ok(false) };
        match page.kind() {
            Kind::TableInterior | Kind::IndexInterior => {
                available(self.trees.learn(number, &page))?;
                Ok(false)
            }
            Kind::IndexLeaf => self.index_leaf(number, &page, bytes, read, pages),
            Kind::TableLeaf => self.table_leaf(number, &page, bytes, read, pages),
        }
    }

    /// A cursor has reached a page: looks ahead of it.
    fn take(
        &mut self,
        at: usize,
        page: u32,
        read: Duration,
        pages: &mut impl Pages,
    ) -> Result<bool, NoMemory> {
        self.cursors[..=at].rotate_right(1);
        let cursor = &mut self.cursors[0];
        cursor.on_page(page);
        let hints = match &mut cursor.hints {
            Some(hints) => hints,
            none => {
                let hints = Hints::new(self.distance_max, Takes::MayStop, LIMITS);
                none.insert(boxed(hints)?)
            }
        };
        hints.on_read(page, Some(read));
        // An idle cursor is still tracked, so that its position is right when it becomes active.
        if hints.is_idle() {
            return Ok(false);
        }
        cursor.look_ahead(&mut self.trees, &mut self.tree_counts, pages)?;
        Ok(true)
    }

    fn begin(&mut self, cursor: Cursor) -> Result<(), NoMemory> {
        self.retire(CURSORS_MAX - 1);
        self.cursors.grow_at(0, cursor)?;
        assert!(self.cursors.len() <= CURSORS_MAX, "[FOR-1]");
        Ok(())
    }

    /// Removes all cursors except the first `left`.
    fn retire(&mut self, left: usize) {
        let left = left.min(self.cursors.len());
        self.counts = self.cursors.drain(left..).fold(self.counts, |all, it| added(all, &it));
    }

    /// Handles an index leaf that was not predicted.
    fn index_leaf(
        &mut self,
        number: u32,
        page: &Page<'_>,
        bytes: &[u8],
        read: Duration,
        pages: &mut impl Pages,
    ) -> Result<bool, NoMemory> {
        let keys = keys_of(page);
        if let Some(keys) = &keys
            && let Some(fits) = self.on_row(number, keys, read, pages)?
        {
            return Ok(fits);
        }
        if let Some(at) = self.follow(number, |cursor| cursor.link == Link::Index, pages)? {
            let cursor = &mut self.cursors[at];
            self.tree_counts.belongs(number, cursor.tree.root)?;
            cursor.enter(page)?;
            // A cursor that looks up rows counts those.
            return if cursor.looks_up { Ok(true) } else { self.take(at, number, read, pages) };
        }
        self.outer_leaf(number, page, bytes, None, pages)?;
        if let Some((path, tree)) = self.trees.index_path(number, pages)? {
            self.tree_counts.belongs(number, tree.root)?;
            if let Some(keys) = keys.filter(|_| self.scope == Scope::Full)
                && let Some(at) = self.find_link(tree.root, number, keys, pages)?
            {
                return self.take(at, number, read, pages);
            }
            let mut cursor = Cursor::new(tree, Link::Index, path);
            cursor.enter(page)?;
            self.begin(cursor)?;
        }
        Ok(false)
    }

    /// Handles a table leaf that was not predicted.
    fn table_leaf(
        &mut self,
        number: u32,
        page: &Page<'_>,
        bytes: &[u8],
        read: Duration,
        pages: &mut impl Pages,
    ) -> Result<bool, NoMemory> {
        let Some(keys) = keys_of(page) else { return Ok(false) };
        if let Some(fits) = self.on_row(number, &keys, read, pages)? {
            if let Some(root) = self.tree_counts.root_of(number) {
                self.outer_leaf(number, page, bytes, Some(root), pages)?;
            }
            return Ok(fits);
        }
        self.outer_leaf(number, page, bytes, None, pages)?;
        if let Some(at) = self.follow(number, Cursor::is_scan, pages)? {
            self.tree_counts.belongs(number, self.cursors[at].tree.root)?;
            return self.take(at, number, read, pages);
        }
        if let Some((tree, path)) = self.locate(*keys.start(), number, pages)? {
            self.tree_counts.belongs(number, tree.root)?;
            if self.scope == Scope::Full
                && let Some(at) = self.find_link(tree.root, number, keys, pages)?
            {
                return self.take(at, number, read, pages);
            }
            if path.len() > 0 {
                self.begin(Cursor::new(tree, Link::Rowid, path))?;
            }
        }
        Ok(false)
    }

    /// Compares the rows that cursors lead to with a leaf of these keys. If one matches, returns whether look-ahead
    /// went on.
    fn on_row(
        &mut self,
        number: u32,
        keys: &RangeInclusive<i64>,
        read: Duration,
        pages: &mut impl Pages,
    ) -> Result<Option<bool>, NoMemory> {
        if self.scope != Scope::Full {
            return Ok(None);
        }
        for at in 0..self.cursors.len() {
            let cursor = &mut self.cursors[at];
            let fit = cursor.on_row(number, keys, &mut self.trees, pages)?;
            if let (Fit::First | Fit::Again, Some(table)) = (&fit, cursor.tree.table) {
                self.tree_counts.belongs(number, table)?;
            }
            match fit {
                Fit::Not => {}
                Fit::First => return Ok(Some(false)),
                Fit::Again => return self.take(at, number, read, pages).map(Some),
            }
        }
        Ok(None)
    }

    /// The table whose leaf holds a rowid, and the path to that leaf.
    fn locate(
        &mut self,
        rowid: i64,
        leaf: u32,
        pages: &mut impl Pages,
    ) -> Result<Option<(Tree, Path)>, NoMemory> {
        let Some(schema) = self.trees.schema(pages)? else { return Ok(None) };
        let tables = schema.iter().filter(|tree| tree.table.is_none()).take(TREES_MAX);
        for tree in list(tables.copied())? {
            if let Some(path) = self.trees.path_to(tree.root, rowid, leaf, pages)? {
                return Ok(Some((tree, path)));
            }
        }
        Ok(None)
    }

    /// Keeps a leaf that was read, as its rows may lead to those of another tree.
    fn outer_leaf(
        &mut self,
        number: u32,
        page: &Page<'_>,
        bytes: &[u8],
        looked_up: Option<u32>,
        pages: &mut impl Pages,
    ) -> Result<(), NoMemory> {
        let oldest = if self.outer.len() < OUTER_MAX { None } else { self.outer.pop_back() };
        let mut kept = oldest.map_or(Vec::new(), |outer| outer.bytes);
        refill(&mut kept, bytes)?;
        let (integers, long_rows) = (None, None);
        let outer = Outer { number, looked_up, bytes: kept, integers, long_rows };
        self.outer.grow_at(0, outer)?;
        if looked_up.is_some() || self.scope != Scope::Full {
            return Ok(());
        }
        // Cursors that already know a link and are not ahead yet.
        let leads = |cursor: &Cursor| cursor.looks_up && cursor.link != Link::Index;
        if let Some(at) = self.follow(number, leads, pages)? {
            self.cursors[at].enter(page)?;
        }
        Ok(())
    }

    /// Compares a page with the rows that continue in overflow pages. If it is one of these, returns the cursor that
    /// reads them.
    fn on_overflow(
        &mut self,
        number: u32,
        bytes: &[u8],
        kind: Option<Kind>,
        pages: &mut impl Pages,
    ) -> Result<Option<usize>, NoMemory> {
        let Some(link) = link_of(bytes) else { return Ok(None) };
        let mut cursors = self.cursors.iter_mut().enumerate();
        let of_known = cursors.find_map(|(at, it)| Some((at, it.on_overflow(number, link)?)));
        if let Some((at, root)) = of_known {
            self.tree_counts.belongs(number, root)?;
            return Ok(Some(at));
        }
        if kind.is_some() || number == 1 {
            return Ok(None);
        }
        let Some((leaf, place, row)) = self.long_row(number)? else { return Ok(None) };
        let leaf = &self.outer[leaf];
        let root = self.tree_counts.root_of(leaf.number);
        let Some(root) = root else { return Ok(None) };
        let at = self.cursors.iter().position(|cursor| cursor.reads_rows_of(root));
        let Some(at) = at else { return Ok(None) };
        self.tree_counts.belongs(number, root)?;
        let cursor = &mut self.cursors[at];
        let page = Page::read(&leaf.bytes, leaf.number, self.trees.geometry());
        let Some(page) = page else { return Ok(None) };
        if cursor.on_long_row(root, page.key(place), row, link)? {
            let path = match page.rowid(0) {
                Some(rowid) => self.trees.path_to(root, rowid, leaf.number, pages)?,
                None => self.trees.index_path(leaf.number, pages)?.map(|(path, _)| path),
            };
            let forward = cursor.forward.unwrap_or(true);
            let rows = leaf.long_rows.iter().flatten().copied();
            let mut left = list(rows)?;
            left.retain(|(at, _)| if forward { *at > place } else { *at < place });
            if !forward {
                left.reverse();
            }
            if let Some(path) = path {
                cursor.go_on_from(leaf.number, path, left.into_iter().map(|(_, row)| row))?;
            }
        }
        Ok(Some(at))
    }

    /// The row whose first overflow page is this one: the leaf's index, and the row's place and overflow pages.
    fn long_row(&mut self, first: u32) -> Result<Option<(usize, usize, Overflow)>, NoMemory> {
        let geometry = self.trees.geometry();
        for (at, outer) in self.outer.iter_mut().enumerate() {
            let rows = match &mut outer.long_rows {
                Some(rows) => rows,
                none => {
                    let page = Page::read(&outer.bytes, outer.number, geometry);
                    let rows = page.map(|page| overflow_of(&page, 0..page.cells())).transpose()?;
                    none.insert(rows.unwrap_or_default())
                }
            };
            if let Some((place, row)) = rows.iter().find(|(_, row)| row.first == first) {
                return Ok(Some((at, *place, *row)));
            }
        }
        Ok(None)
    }

    /// Finds the rows in recently read leaves that lead to the leaf just read, which has these keys. Returns the
    /// cursor, if one is known to lead there.
    fn find_link(
        &mut self,
        table: u32,
        leaf: u32,
        keys: RangeInclusive<i64>,
        pages: &mut impl Pages,
    ) -> Result<Option<usize>, NoMemory> {
        let geometry = self.trees.geometry();
        let mut found = Vec::new();
        for outer in self.outer.iter_mut().filter(|outer| outer.number != leaf) {
            let Some(page) = Page::read(&outer.bytes, outer.number, geometry) else { continue };
            let integers = match &mut outer.integers {
                Some(integers) => integers,
                none => none.insert(integers_of(&page)?),
            };
            let leading = integers.iter().filter(|(row, ..)| keys.contains(row));
            for &(row, link, at) in leading.take(LEADING_MAX) {
                if self.trees.path_to(table, row, leaf, pages)?.is_none() {
                    continue;
                }
                let Some(from) = outer.looked_up else {
                    found.grow((outer.number, page.kind(), page.rowid(0), link, at))?;
                    continue;
                };
                let stage = Stage { root: table, link };
                for (at, cursor) in self.cursors.iter_mut().enumerate() {
                    if cursor.leads_on(from, stage)? {
                        return Ok(Some(at));
                    }
                }
            }
        }
        for (number, kind, rowid, link, at) in found.into_iter().take(CURSORS_MAX / 2) {
            let located = match (kind, rowid) {
                (Kind::IndexLeaf, _) => {
                    self.trees.index_path(number, pages)?.map(|(path, tree)| (tree, path))
                }
                (_, Some(rowid)) => self.locate(rowid, number, pages)?,
                (_, None) => None,
            };
            let Some((tree, path)) = located else { continue };
            let outer = self.outer.iter().find(|outer| outer.number == number);
            let page = outer.and_then(|outer| Page::read(&outer.bytes, number, geometry));
            let tree = Tree { table: Some(table), ..tree };
            let mut cursor = Cursor::new(tree, link, path);
            if let Some(page) = page {
                cursor.enter(&page)?;
            }
            cursor.looks_up = true;
            cursor.seen.grow(at)?;
            self.cursors.retain(|it| it.hints.is_some() || it.link != link || it.tree != tree);
            self.begin(cursor)?;
        }
        Ok(None)
    }

    /// Among the cursors that `which` selects, returns the one that goes from leaf to leaf and has reached this leaf.
    fn follow(
        &mut self,
        leaf: u32,
        which: impl Fn(&Cursor) -> bool,
        pages: &mut impl Pages,
    ) -> Result<Option<usize>, NoMemory> {
        for at in 0..self.cursors.len() {
            let cursor = &mut self.cursors[at];
            for forward in [true, false] {
                if !which(cursor) || cursor.forward.is_some_and(|it| it != forward) {
                    continue;
                }
                let mut path = cursor.path;
                for _ in 0..PASSED_OVER_MAX {
                    let next = available(self.trees.step(&mut path, forward, pages))?;
                    let Some((next, _)) = next else { break };
                    if next == leaf {
                        cursor.found_at(leaf, path, forward)?;
                        return Ok(Some(at));
                    }
                }
            }
        }
        Ok(None)
    }
}

fn added(all: HintCounts, cursor: &Cursor) -> HintCounts {
    all.and(cursor.hints.as_ref().map(|hints| hints.counts()).unwrap_or_default())
}

/// The keys of a leaf, from the first row's to the last row's.
fn keys_of(page: &Page<'_>) -> Option<RangeInclusive<i64>> {
    Some(page.key(0)?..=page.key(page.cells().checked_sub(1)?)?)
}

/// The integers of a leaf that may be keys of another tree.
fn integers_of(page: &Page<'_>) -> Result<Vec<(i64, Link, usize)>, NoMemory> {
    let mut found = Vec::new();
    for at in 0..page.cells() {
        if found.len() >= INTEGERS_MAX {
            break;
        }
        found.grow_by(page.rowid(at).map(|rowid| (rowid, Link::Rowid, at)))?;
        let columns = page.record(at).into_iter().flat_map(Record::columns);
        for (column, value) in columns.enumerate().take(COLUMNS_MAX) {
            if let Value::Integer(row) = value {
                found.grow((row, Link::Column(column), at))?;
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
