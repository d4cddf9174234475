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
//! Invariants:  [FOR-1] at most `CURSORS_MAX` cursors are known  [FOR-2] one call looks at `STEPS_MAX` rows or leaves
//!              to come, at most
//! Concurrency: one owner.
//! Failure:     a page that fits nowhere is not looked ahead of.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::time::Duration;

use forebay_lookahead::{HintCounts, Hints, Limits, Takes};

use crate::page::{Kind, Page, Record, Value};
use crate::tally::Tally;
use crate::trees::{Lack, Link, NO_ROW, Pages, Path, Tree, Trees, rows_of};

const CURSORS_MAX: usize = 8;
/// Leaves of tables read lately whose columns may be rowids of another table, and how many columns are looked at.
const OUTER_MAX: usize = 3;
const COLUMNS_MAX: usize = 16;
const STEPS_MAX: u32 = 1024;
/// Leaves that SQLite may have passed over, having them itself.
const PASSED_OVER_MAX: usize = 4;
/// Trees of a schema that a leaf is looked for in.
const TREES_MAX: usize = 64;
/// So near to each other are rows whose leaves are read one after the other; SQLite has those between.
const NEAR: usize = 16;
/// Reads in a row that fit to no next row, and leave the cursor where it is thought to be.
const ASTRAY_MAX: u32 = 8;
/// So many leaves that lie one after the other are left to the kernel's own readahead: to ask for what it brings
/// costs a third of a scan.
const IN_ORDER: u32 = 4;
/// Rows whose leaf is not known yet.
const DEFERRED_MAX: usize = 256;
/// The next leaf of an index is asked for when so few rows of this one are left.
const ROWS_LEFT: usize = 128;
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

/// A cursor of SQLite's, as far as its reads tell.
#[derive(Debug)]
struct Cursor {
    /// `table` is where its rows lead to, if they do.
    tree: Tree,
    link: Link,
    /// The way to the leaf that SQLite has come to, or we ahead of it; its number, and how many leaves in a row up to it
    /// lie one after the other in the file.
    path: Path,
    leaf: u32,
    in_order: u32,
    /// The rows that this leaf leads to, in the cursor's order; which of them is next.
    rows: Vec<i64>,
    next: usize,
    /// It reads the table's leaves of these rows.
    looks_up: bool,
    /// Before the direction is known: which of the rows may have been read last.
    seen: Vec<usize>,
    /// Reads in a row that fit to none of the next rows.
    astray: u32,
    forward: Option<bool>,
    next_leaf_asked: bool,
    /// Rows whose leaf is not known as this page is not at hand.
    deferred: Vec<(i64, u32)>,
    hints: Option<Box<Hints>>,
}

/// What a cursor comes to next.
enum Next {
    Page(u32),
    /// A leaf in a row of them, which the kernel reads ahead of by itself.
    Follows(u32),
    Row(i64),
    /// This page has to be there before more is known.
    Needs(u32),
    End,
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
    /// Leaves of tables read lately.
    outer: VecDeque<Outer>,
}

/// A table's leaf that may lead to another table's rows.
#[derive(Debug)]
struct Outer {
    number: u32,
    bytes: Vec<u8>,
    /// Its integers, once they are asked for: where each stands, and in which row.
    integers: Option<Vec<(i64, Link, usize)>>,
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
        self.retire(0);
        self.outer.clear();
        self.trees.forget();
    }

    /// SQLite writes a page.
    pub(crate) fn written(&mut self, page: u32) {
        if page == 1 {
            self.settle(); // the schema may change
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
        self.tally.read(number, read, self.counts().useful > useful);
        asked
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
        let known = self
            .cursors
            .iter()
            .position(|cursor| cursor.hints.as_ref().is_some_and(|hints| hints.knows(number)));
        if let Some(at) = known {
            match bytes.first().and_then(|first| Kind::of(*first)) {
                Some(Kind::TableInterior | Kind::IndexInterior) => {
                    page().and_then(|page| self.trees.learn(number, &page));
                }
                Some(Kind::TableLeaf) if !self.cursors[at].looks_up => {
                    if let Some(page) = page() {
                        self.outer_leaf(number, &page, bytes, pages);
                    }
                }
                _ => {}
            }
            self.cursors[at].astray = 0;
            return self.take(at, number, read, pages);
        }
        let Some(page) = page() else { return false };
        match page.kind() {
            Kind::TableInterior | Kind::IndexInterior => {
                self.trees.learn(number, &page);
                false
            }
            Kind::IndexLeaf => self.index_leaf(number, &page, read, pages),
            Kind::TableLeaf => self.table_leaf(number, &page, bytes, read, pages),
        }
    }

    /// A cursor has come to a page: looks ahead of it.
    fn take(&mut self, at: usize, page: u32, read: Duration, pages: &mut impl Pages) -> bool {
        self.cursors[..=at].rotate_right(1);
        let cursor = &mut self.cursors[0];
        let distance_max = self.distance_max;
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
        read: Duration,
        pages: &mut impl Pages,
    ) -> bool {
        if let Some(at) = self.follow(number, |cursor| cursor.link == Link::Index, pages) {
            let cursor = &mut self.cursors[at];
            self.tally.belongs(number, cursor.tree.root);
            cursor.enter(page);
            // One that goes to rows is counted by them.
            return if cursor.looks_up { true } else { self.take(at, number, read, pages) };
        }
        if let Some((path, tree)) = self.trees.index_path(number, pages) {
            self.tally.belongs(number, tree.root);
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
        let Some(last) = page.cells().checked_sub(1) else { return false };
        let (Some(first), Some(last)) = (page.rowid(0), page.rowid(last)) else { return false };
        if self.scope == Scope::Full {
            for at in 0..self.cursors.len() {
                let cursor = &mut self.cursors[at];
                let fit = cursor.row_came(number, first..=last, &mut self.trees, pages);
                if let (Fit::First | Fit::Again, Some(table)) = (&fit, cursor.tree.table) {
                    self.tally.belongs(number, table);
                }
                match fit {
                    Fit::Not => {}
                    Fit::First => return false,
                    Fit::Again => return self.take(at, number, read, pages),
                }
            }
        }
        self.outer_leaf(number, page, bytes, pages);
        if let Some(at) = self.follow(number, Cursor::is_scan, pages) {
            self.tally.belongs(number, self.cursors[at].tree.root);
            return self.take(at, number, read, pages);
        }
        if let Some((tree, path)) = self.locate(first, number, pages) {
            self.tally.belongs(number, tree.root);
            if self.scope == Scope::Full {
                self.find_link(tree.root, number, first..=last, pages);
            }
            if !path.is_empty() {
                self.begin(Cursor::new(tree, Link::Rowid, path));
            }
        }
        false
    }

    /// The table whose leaf holds a rowid, and the way to it.
    fn locate(&mut self, rowid: i64, leaf: u32, pages: &mut impl Pages) -> Option<(Tree, Path)> {
        let schema = self.trees.schema(pages)?;
        let tables = schema.iter().filter(|tree| tree.table.is_none()).take(TREES_MAX);
        let tables: Vec<Tree> = tables.copied().collect();
        tables
            .into_iter()
            .find_map(|tree| Some((tree, self.trees.table_path(tree.root, rowid, leaf, pages)?)))
    }

    /// A table's leaf was read: keeps it, as its rows may lead to those of another table.
    fn outer_leaf(&mut self, number: u32, page: &Page<'_>, bytes: &[u8], pages: &mut impl Pages) {
        if self.scope != Scope::Full {
            return;
        }
        let oldest = if self.outer.len() < OUTER_MAX { None } else { self.outer.pop_back() };
        let mut outer = oldest.unwrap_or(Outer { number, bytes: Vec::new(), integers: None });
        outer.bytes.clear();
        outer.bytes.extend_from_slice(bytes);
        (outer.number, outer.integers) = (number, None);
        self.outer.push_front(outer);
        // Those that know a link already, and are not ahead yet.
        let leads = |cursor: &Cursor| cursor.looks_up && cursor.link != Link::Index;
        if let Some(at) = self.follow(number, leads, pages) {
            self.cursors[at].enter(page);
        }
    }

    /// Finds in leaves read lately the rows that lead to these, of a table's leaf that was read now.
    fn find_link(
        &mut self,
        table: u32,
        leaf: u32,
        rowids: RangeInclusive<i64>,
        pages: &mut impl Pages,
    ) {
        let geometry = self.trees.geometry();
        let mut found = Vec::new();
        for outer in self.outer.iter_mut().filter(|outer| outer.number != leaf) {
            let Some(page) = Page::read(&outer.bytes, outer.number, geometry) else { continue };
            let integers = outer.integers.get_or_insert_with(|| integers_of(&page));
            for &(row, link, at) in integers.iter().filter(|(row, ..)| rowids.contains(row)) {
                if self.trees.table_path(table, row, leaf, pages).is_some() {
                    found.push((outer.number, page.rowid(0), link, at));
                }
            }
        }
        for (number, rowid, link, at) in found.into_iter().take(CURSORS_MAX / 2) {
            let Some((tree, path)) = rowid.and_then(|it| self.locate(it, number, pages)) else {
                continue;
            };
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
                        cursor.path = path;
                        cursor.leaf = leaf;
                        cursor.forward = Some(forward);
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

/// The integers of a table's leaf that may be rowids.
fn integers_of(page: &Page<'_>) -> Vec<(i64, Link, usize)> {
    let mut found = Vec::new();
    for at in 0..page.cells() {
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

/// Whether a table's leaf is that of a cursor's row.
enum Fit {
    Not,
    /// For the first time: that may be chance, and the direction is open.
    First,
    Again,
}

impl Cursor {
    fn new(tree: Tree, link: Link, path: Path) -> Cursor {
        Cursor {
            tree,
            link,
            path,
            leaf: 0,
            in_order: 0,
            rows: Vec::new(),
            next: 0,
            looks_up: false,
            seen: Vec::new(),
            astray: 0,
            forward: None,
            next_leaf_asked: false,
            deferred: Vec::new(),
            hints: None,
        }
    }

    /// It goes from leaf to leaf of a table, and nowhere else.
    fn is_scan(&self) -> bool {
        self.link != Link::Index && !self.looks_up
    }

    /// SQLite has come to a leaf whose rows lead elsewhere.
    fn enter(&mut self, page: &Page<'_>) {
        if rows_of(page, self.link, &mut self.rows).is_none() {
            self.rows.clear();
        }
        if self.forward == Some(false) {
            self.rows.reverse();
        }
        self.next = 0;
        self.seen.clear();
        self.next_leaf_asked = false;
    }

    /// SQLite has come to a leaf of a table that holds these rowids.
    fn row_came(
        &mut self,
        leaf: u32,
        rowids: RangeInclusive<i64>,
        trees: &mut Trees,
        pages: &mut impl Pages,
    ) -> Fit {
        let Some(table) = self.tree.table else { return Fit::Not };
        let places = self.rows.iter().enumerate().filter(|(_, row)| rowids.contains(row));
        let places: Vec<usize> = places.map(|(at, _)| at).collect();
        let Some(&any) = places.first() else { return Fit::Not };
        // Another table may have the same rowids.
        if trees.table_path(table, self.rows[any], leaf, pages).is_none() {
            return Fit::Not;
        }
        self.looks_up = true;
        if self.forward.is_some() {
            let next = self.next..self.next + NEAR;
            match places.iter().find(|at| next.contains(at)) {
                Some(at) => {
                    self.astray = 0;
                    self.pass(*at, &rowids);
                }
                None => self.astray += 1,
            }
            if self.astray <= ASTRAY_MAX {
                return Fit::Again;
            }
            self.lose_way();
            return Fit::First;
        }
        // Several rows of a leaf may be in one leaf of the table: those near each other are meant.
        let pairs =
            self.seen.iter().flat_map(|first| places.iter().map(move |then| (*first, *then)));
        let near = pairs.filter(|(first, then)| first != then && first.abs_diff(*then) <= NEAR);
        let Some((first, then)) = near.min_by_key(|(first, then)| first.abs_diff(*then)) else {
            self.seen = places;
            return Fit::First;
        };
        self.forward = Some(then > first);
        if then > first {
            self.pass(then, &rowids);
        } else {
            self.rows.reverse();
            self.pass(self.rows.len() - 1 - then, &rowids);
        }
        Fit::Again
    }

    /// SQLite has read the leaf of the row at this place: it has those of the next rows that are in it, too.
    fn pass(&mut self, at: usize, rowids: &RangeInclusive<i64>) {
        self.next = at + 1;
        while self.rows.get(self.next).is_some_and(|row| rowids.contains(row)) {
            self.next += 1;
        }
    }

    /// It is somewhere else in its rows than was thought.
    fn lose_way(&mut self) {
        if self.forward == Some(false) {
            self.rows.reverse();
        }
        (self.forward, self.next, self.astray) = (None, 0, 0);
        self.seen.clear();
        self.deferred.clear();
        if let Some(hints) = &mut self.hints {
            hints.jump();
        }
    }

    /// Asks for what comes next, as far as there is room for it.
    fn look_ahead(&mut self, trees: &mut Trees, tally: &mut Tally, pages: &mut impl Pages) {
        let Some(mut hints) = self.hints.take() else { return };
        let mut room = hints.room();
        if room > 0 {
            // Where its rows are, or else the tree that it goes through.
            let (through, to) = (self.tree.root, self.tree.table.unwrap_or(self.tree.root));
            let mut foresee_as = |page: u32, root: u32, resident: bool, room: &mut u32| {
                if *room > 0 && !hints.knows(page) {
                    tally.belongs(page, root);
                    hints.foresee(page, resident);
                    *room -= 1;
                }
            };
            self.try_deferred(trees, pages, |page| foresee_as(page, to, false, &mut room));
            let mut steps = 0;
            while room > 0 && steps < STEPS_MAX && self.deferred.len() < DEFERRED_MAX {
                steps += 1; // [FOR-2]
                let mut foresee = |page, root| foresee_as(page, root, false, &mut room);
                match self.advance(trees, pages) {
                    Next::Page(page) => foresee(page, through),
                    Next::Follows(page) => foresee_as(page, through, true, &mut room),
                    Next::Row(row) => match self.leaf_of(row, trees, pages) {
                        Ok(leaf) => foresee(leaf, to),
                        Err(Lack::Page(interior)) => {
                            foresee(interior, to);
                            self.deferred.push((row, interior));
                        }
                        Err(Lack::Answer) => {}
                    },
                    Next::Needs(page) => {
                        foresee(page, through);
                        break;
                    }
                    Next::End => break,
                }
            }
            for run in hints.due() {
                pages.ask(run.first, run.blocks);
                // Nothing is asked for that is not wanted.
                (run.first..run.first.saturating_add(run.blocks))
                    .for_each(|page| tally.asked(page));
            }
        }
        self.hints = Some(hints);
    }

    fn leaf_of(&self, row: i64, trees: &mut Trees, pages: &mut impl Pages) -> Result<u32, Lack> {
        trees.leaf_of(self.tree.table.ok_or(Lack::Answer)?, row, pages)
    }

    /// Looks again where rows are whose leaves were not known.
    fn try_deferred(
        &mut self,
        trees: &mut Trees,
        pages: &mut impl Pages,
        mut foresee: impl FnMut(u32),
    ) {
        let mut missing = Vec::new();
        for (row, interior) in std::mem::take(&mut self.deferred) {
            if missing.contains(&interior) {
                self.deferred.push((row, interior));
                continue;
            }
            match self.leaf_of(row, trees, pages) {
                Ok(leaf) => foresee(leaf),
                Err(Lack::Page(interior)) => {
                    foresee(interior);
                    missing.push(interior);
                    self.deferred.push((row, interior));
                }
                Err(Lack::Answer) => {}
            }
        }
    }

    /// Moves on by a row or a leaf.
    fn advance(&mut self, trees: &mut Trees, pages: &mut impl Pages) -> Next {
        let forward = self.forward.unwrap_or(true);
        let rows_left = self.rows.len() - self.next;
        if self.looks_up && rows_left > 0 && (self.next_leaf_asked || rows_left > ROWS_LEFT) {
            self.next += 1;
            return Next::Row(self.rows[self.next - 1]);
        }
        let mut path = self.path.clone();
        if !self.looks_up {
            return match trees.step(&mut path, forward, pages) {
                Ok((leaf, _)) => {
                    let follows = forward && leaf.wrapping_sub(self.leaf) == 1;
                    self.in_order = if follows { self.in_order.saturating_add(1) } else { 0 };
                    (self.path, self.leaf) = (path, leaf);
                    self.rows.clear();
                    self.next = 0;
                    if self.in_order >= IN_ORDER { Next::Follows(leaf) } else { Next::Page(leaf) }
                }
                Err(Lack::Page(page)) => Next::Needs(page),
                Err(Lack::Answer) => Next::End,
            };
        }
        if rows_left > 0 {
            self.next_leaf_asked = true;
            return match trees.step(&mut path, forward, pages) {
                Ok((page, _)) | Err(Lack::Page(page)) => Next::Page(page),
                Err(Lack::Answer) => self.advance(trees, pages),
            };
        }
        let mut rows = std::mem::take(&mut self.rows);
        let entered = trees.step(&mut path, forward, pages).and_then(|(leaf, between)| {
            trees.rows_at_hand(leaf, self.link, &mut rows, pages)?;
            Ok(between)
        });
        match entered {
            Ok(between) => {
                if !forward {
                    rows.reverse();
                }
                if between != NO_ROW {
                    rows.insert(0, between);
                }
                (self.rows, self.next, self.path) = (rows, 0, path);
                self.next_leaf_asked = false;
                if self.rows.is_empty() { Next::End } else { self.advance(trees, pages) }
            }
            Err(lack) => {
                // What `rows` holds now is over: it was all foreseen.
                rows.clear();
                (self.rows, self.next) = (rows, 0);
                if let Lack::Page(page) = lack { Next::Needs(page) } else { Next::End }
            }
        }
    }
}

#[cfg(test)]
mod tests;
