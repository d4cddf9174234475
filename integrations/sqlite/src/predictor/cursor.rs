//! One SQLite cursor, as inferred from its reads, and the pages that it will read.
//!
//! A cursor goes from leaf to leaf. Where its rows lead to other trees, each row's key is followed from stage to stage:
//! the leaf that holds the key is prefetched, and once that leaf is in memory, so is the leaf that its row leads to.
//! Worked example: rows of `orders` name customers, which are found in an index; the index leaf names a rowid, and the
//! leaf of that rowid is the last one.
//!
//! Invariants:  [FOR-2] one call examines at most `STEPS_MAX` further rows or leaves, and looks up at most `LOOKS_MAX`
//!              keys
//! Concurrency: one owner.
//! Failure:     a row that leads to no known tree is skipped.

use std::collections::VecDeque;
use std::ops::RangeInclusive;

use forebay_lookahead::{HINTS_MOST, Hints};

use super::overflow::Chains;
use super::recipient::Recipient;
use crate::memory::{Grow, NoMemory, list};
use crate::page::{Overflow, Page};
use crate::tree_counts::TreeCounts;
use crate::trees::{Link, NO_ROW, Pages, Path, Tree, Trees, rows_of};

const STEPS_MAX: u32 = 1024;
/// Each row may lead to many rows, each of those to more, and all of them to known pages, which use up no distance.
const LOOKS_MAX: u32 = 4096;
/// Stages after the first, and candidates for the next stage.
const STAGES_MAX: usize = 3;
const GUESSES_MAX: usize = 8;
/// A pass over the deferred keys ends after so many pages that are not cached: later keys were requested later.
const MISSING_MAX: usize = 4;
/// The maximum distance between rows whose leaves are read consecutively; SQLite already has the leaves in between.
const NEAR: usize = 16;
/// Reads in a row that match none of the next rows before the cursor's assumed position is dropped.
const MISPREDICTED_MAX: u32 = 8;
/// After so many leaves in a row that are adjacent in the file, the kernel's own readahead takes over: requesting the
/// same pages costs a third of a scan.
const IN_ORDER: u32 = 4;
/// Rows whose leaf is not known yet.
const DEFERRED_MAX: usize = 256;
/// Keys that may be followed a second time: as many as may be ahead.
const PAST_MAX: usize = HINTS_MOST as usize;
/// The next leaf of an index is requested when at most so many rows of the current one are left.
const ROWS_LEFT: usize = 128;
/// A SQLite cursor, as inferred from its reads.
#[derive(Debug)]
pub(super) struct Cursor {
    /// `table` is the tree that its rows lead to, if any.
    pub(super) tree: Tree,
    pub(super) link: Link,
    /// The path to the leaf that SQLite or look-ahead has reached; that leaf's number; and how many leaves in a row up
    /// to it are adjacent in the file.
    pub(super) path: Path,
    pub(super) leaf: u32,
    in_order: u32,
    /// The rows that this leaf leads to, in the cursor's order; the index of the next one.
    rows: Vec<i64>,
    next: usize,
    /// Whether it reads the table leaves of these rows.
    pub(super) looks_up: bool,
    /// Before the direction is known: the rows that may have been read last.
    pub(super) seen: Vec<usize>,
    /// Reads in a row that match none of the next rows.
    pub(super) mispredicted: u32,
    pub(super) forward: Option<bool>,
    next_leaf_asked: bool,
    /// The trees that the looked-up rows lead on to, as in joins of several tables; and candidates for the stage after
    /// the last.
    stages: Vec<Stage>,
    guesses: Vec<Stage>,
    deferred: Vec<Deferred>,
    /// Trees whose rows have overflow pages that SQLite reads; and the number of leaves or rows examined for such
    /// pages.
    chains: Vec<Chains>,
    turns: u32,
    /// The keys followed most recently; and those of them that must be followed again.
    past: VecDeque<i64>,
    again: VecDeque<i64>,
    pub(super) hints: Option<Box<Hints>>,
}

/// Rows of the previously looked-up tree lead to this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stage {
    pub(super) root: u32,
    pub(super) link: Link,
}

/// A key to follow from this stage on once the page is cached or, without a page, once look-ahead has room for it.
#[derive(Debug)]
struct Deferred {
    stage: usize,
    key: i64,
    turn: u32,
    page: Option<u32>,
}

/// What a cursor reads next.
enum Next {
    Page(u32),
    /// A leaf in a run of adjacent ones, which the kernel reads ahead.
    Follows(u32),
    Row(i64),
    /// Rows that continue in overflow pages.
    LongRows,
    /// This page must be cached before the next one is known.
    Needs(u32),
    End,
}

/// Whether a leaf holds one of a cursor's rows.
pub(super) enum Fit {
    Not,
    /// It does for the first time. That may be chance, and the direction is still unknown.
    First,
    Again,
}

impl Cursor {
    pub(super) fn new(tree: Tree, link: Link, path: Path) -> Cursor {
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
            mispredicted: 0,
            forward: None,
            next_leaf_asked: false,
            stages: Vec::new(),
            guesses: Vec::new(),
            deferred: Vec::new(),
            chains: Vec::new(),
            turns: 0,
            past: VecDeque::new(),
            again: VecDeque::new(),
            hints: None,
        }
    }

    /// It goes from leaf to leaf of a table, and reads nothing else.
    pub(super) fn is_scan(&self) -> bool {
        self.link != Link::Index && !self.looks_up
    }

    /// SQLite has reached a leaf whose rows lead to another tree.
    pub(super) fn enter(&mut self, page: &Page<'_>) -> Result<(), NoMemory> {
        rows_of(page, self.link, &mut self.rows)?;
        if self.forward == Some(false) {
            self.rows.reverse();
        }
        self.next = 0;
        self.seen.clear();
        self.next_leaf_asked = false;
        Ok(())
    }

    /// SQLite has reached a leaf that holds these keys.
    pub(super) fn on_row(
        &mut self,
        leaf: u32,
        keys: &RangeInclusive<i64>,
        trees: &mut Trees,
        pages: &mut impl Pages,
    ) -> Result<Fit, NoMemory> {
        let Some(table) = self.tree.table else { return Ok(Fit::Not) };
        let places = self.rows.iter().enumerate().filter(|(_, row)| keys.contains(row));
        let places = list(places.map(|(at, _)| at))?;
        let Some(&any) = places.first() else { return Ok(Fit::Not) };
        // Another tree may have the same keys.
        if trees.path_to(table, self.rows[any], leaf, pages)?.is_none() {
            return Ok(Fit::Not);
        }
        if !self.looks_up {
            self.looks_up = true;
            self.chains.clear();
        }
        if self.forward.is_some() {
            let next = self.next..self.next + NEAR;
            match places.iter().find(|at| next.contains(at)) {
                Some(at) => {
                    self.mispredicted = 0;
                    self.pass(*at, keys);
                    self.chains.iter_mut().for_each(Chains::overtaken);
                }
                None => self.mispredicted += 1,
            }
            if self.mispredicted <= MISPREDICTED_MAX {
                return Ok(Fit::Again);
            }
            self.forget_direction();
            return Ok(Fit::First);
        }
        // Several rows of this leaf may be in one leaf of the table; only a pair of rows near each other counts. Both
        // lists are sorted, so it is enough to compare neighbours.
        let pairs = self.seen.iter().flat_map(|first| {
            let at = places.partition_point(|then| then < first);
            let neighbours = at.saturating_sub(1)..places.len().min(at + 2);
            places[neighbours].iter().map(move |then| (*first, *then))
        });
        let near = pairs.filter(|(first, then)| first != then && first.abs_diff(*then) <= NEAR);
        let Some((first, then)) = near.min_by_key(|(first, then)| first.abs_diff(*then)) else {
            self.seen = places;
            return Ok(Fit::First);
        };
        self.forward = Some(then > first);
        if then > first {
            self.pass(then, keys);
        } else {
            self.rows.reverse();
            self.pass(self.rows.len() - 1 - then, keys);
        }
        Ok(Fit::Again)
    }

    /// SQLite has read the leaf of the row at this place. Skips the next rows that are in the same leaf.
    fn pass(&mut self, at: usize, keys: &RangeInclusive<i64>) {
        self.next = at + 1;
        while self.rows.get(self.next).is_some_and(|row| keys.contains(row)) {
            self.next += 1;
        }
    }

    /// The cursor is not at its assumed position in its rows.
    fn forget_direction(&mut self) {
        if self.forward == Some(false) {
            self.rows.reverse();
        }
        (self.forward, self.next, self.mispredicted) = (None, 0, 0);
        self.seen.clear();
        self.deferred.clear();
        self.past.clear();
        self.again.clear();
        self.chains.iter_mut().for_each(Chains::clear);
        if let Some(hints) = &mut self.hints {
            hints.jump();
        }
    }

    /// Requests the next pages, as far as the look-ahead distance allows.
    pub(super) fn look_ahead(
        &mut self,
        trees: &mut Trees,
        tree_counts: &mut TreeCounts,
        pages: &mut impl Pages,
    ) -> Result<(), NoMemory> {
        let Some(mut hints) = self.hints.take() else { return Ok(()) };
        let done = self.look_ahead_by(&mut hints, trees, tree_counts, pages);
        self.hints = Some(hints);
        done
    }

    fn look_ahead_by(
        &mut self,
        hints: &mut Hints,
        trees: &mut Trees,
        tree_counts: &mut TreeCounts,
        pages: &mut impl Pages,
    ) -> Result<(), NoMemory> {
        let room = hints.available();
        if room == 0 {
            return Ok(());
        }
        let through = self.tree.root;
        let most = hints.most();
        let mut recipient = Recipient { hints, tree_counts, room, looks: LOOKS_MAX };
        self.try_deferred(trees, &mut recipient, pages)?;
        self.prefetch_chains(most, &mut recipient, pages)?;
        let mut steps = 0;
        while recipient.goes_on() && steps < STEPS_MAX && self.deferred.len() < DEFERRED_MAX {
            steps += 1; // [FOR-2]
            if self.looks_up && self.are_chains_enough(most) {
                break;
            }
            match self.advance(most, trees, pages)? {
                // A page that must be examined is requested even if a log holds a newer version of it.
                Next::Page(page) => {
                    recipient.predict(page, through, !self.looks_up && pages.elsewhere(page))?;
                }
                Next::Follows(page) => recipient.predict(page, through, true)?,
                Next::Row(key) => {
                    if self.past.len() >= PAST_MAX {
                        self.past.pop_front();
                    }
                    self.past.grow(key)?;
                    self.turns = self.turns.wrapping_add(1);
                    self.pursue(0, key, self.turns, trees, &mut recipient, pages)?;
                }
                Next::LongRows => self.prefetch_chains(most, &mut recipient, pages)?,
                Next::Needs(page) => {
                    recipient.predict(page, through, false)?;
                    break;
                }
                Next::End => break,
            }
        }
        if self.looks_up {
            self.prefetch_chains(most, &mut recipient, pages)?;
        }
        for run in hints.take_runs() {
            pages.ask(run.first, run.blocks);
            // Each requested page was predicted, as gaps are not read through.
            let mut asked = run.first..run.first.saturating_add(run.blocks);
            asked.try_for_each(|page| tree_counts.asked(page))?;
        }
        Ok(())
    }

    /// The tree in which this stage's keys are looked up.
    fn looked_up(&self, stage: usize) -> Option<u32> {
        match stage.checked_sub(1) {
            None => self.tree.table,
            Some(before) => self.stages.get(before).map(|stage| stage.root),
        }
    }

    /// A leaf that was looked up in the tree with root `from` seems to lead on to another tree. A second match confirms
    /// it. Returns whether the stage was known already.
    pub(super) fn leads_on(&mut self, from: u32, stage: Stage) -> Result<bool, NoMemory> {
        let known = self.stages.iter().position(|it| *it == stage);
        if known.is_some_and(|at| self.looked_up(at) == Some(from)) {
            return Ok(true);
        }
        if self.stages.len() >= STAGES_MAX || self.looked_up(self.stages.len()) != Some(from) {
            return Ok(false);
        }
        if self.guesses.contains(&stage) {
            self.stages.grow(stage)?;
            self.guesses.clear();
        } else if self.guesses.len() < GUESSES_MAX {
            self.guesses.grow(stage)?;
        }
        Ok(false)
    }

    /// Follows a key from this stage on, as far as pages are cached and there is room; the rest is deferred.
    fn pursue(
        &mut self,
        stage: usize,
        key: i64,
        turn: u32,
        trees: &mut Trees,
        recipient: &mut Recipient<'_>,
        pages: &mut impl Pages,
    ) -> Result<(), NoMemory> {
        let Some(root) = self.looked_up(stage) else { return Ok(()) };
        if !recipient.look() {
            return self.deferred.grow(Deferred { stage, key, turn, page: None });
        }
        let leaf = match trees.leaf_of(root, key, pages) {
            Ok(leaf) => leaf,
            Err(lack) => {
                if let Some(interior) = lack.page()? {
                    recipient.predict(interior, root, false)?;
                    self.deferred.grow(Deferred { stage, key, turn, page: Some(interior) })?;
                }
                return Ok(());
            }
        };
        let Some(&Stage { link, .. }) = self.stages.get(stage) else {
            let long = self.chains.iter_mut().find(|it| it.root == root && it.are_read());
            recipient.predict(leaf, root, long.is_none() && pages.elsewhere(leaf))?;
            let Some(chains) = long else { return Ok(()) };
            return match trees.overflow_cached(leaf, Some(key), pages) {
                Ok(rows) => chains.looked_into(leaf, turn, rows.into_iter().map(|(_, row)| row)),
                Err(lack) => match lack.page()? {
                    Some(_) => self.deferred.grow(Deferred { stage, key, turn, page: Some(leaf) }),
                    None => Ok(()),
                },
            };
        };
        match trees.led_to(leaf, key, link, pages) {
            Ok(keys) => {
                recipient.predict(leaf, root, true)?;
                for key in keys {
                    self.pursue(stage + 1, key, turn, trees, recipient, pages)?;
                }
            }
            Err(lack) => {
                if lack.page()?.is_some() {
                    recipient.predict(leaf, root, false)?;
                    self.deferred.grow(Deferred { stage, key, turn, page: Some(leaf) })?;
                }
            }
        }
        Ok(())
    }

    fn prefetch_chains(
        &mut self,
        most: u32,
        recipient: &mut Recipient<'_>,
        pages: &mut impl Pages,
    ) -> Result<(), NoMemory> {
        self.chains.iter_mut().try_for_each(|chains| chains.ask(most, recipient, pages))
    }

    /// Whether the looked-up rows have so many overflow pages that no further rows should be examined yet.
    fn are_chains_enough(&self, most: u32) -> bool {
        let mut read = self.chains.iter().filter(|chains| chains.are_read());
        read.any(|chains| {
            let rows = self.deferred.len() + chains.rows_ahead();
            rows >= chains.lead(most) || !chains.have_room(most)
        })
    }

    /// SQLite has reached a page, which may be a leaf.
    pub(super) fn on_page(&mut self, page: u32) {
        self.chains.iter_mut().for_each(|chains| chains.on_leaf(page));
    }

    /// SQLite has read a page, which may be an overflow page that names `link` as the next. Returns the root of its
    /// tree, if it belongs to a known row.
    pub(super) fn on_overflow(&mut self, page: u32, link: u32) -> Option<u32> {
        self.chains.iter_mut().find_map(|it| it.on_page(page, link).then_some(it.root))
    }

    /// Whether it reads rows of this tree.
    pub(super) fn reads_rows_of(&self, root: u32) -> bool {
        if self.looks_up {
            (0..=self.stages.len()).any(|stage| self.looked_up(stage) == Some(root))
        } else {
            self.tree.root == root && self.forward.is_some()
        }
    }

    /// SQLite has read the first overflow page of an unknown row with this key, in a tree whose rows this cursor reads.
    /// Returns whether the caller must pass the path to the row's leaf to `go_on_from`.
    pub(super) fn on_long_row(
        &mut self,
        root: u32,
        key: Option<i64>,
        row: Overflow,
        link: u32,
    ) -> Result<bool, NoMemory> {
        if !self.chains.iter().any(|chains| chains.root == root) && self.chains.len() <= STAGES_MAX
        {
            self.chains.grow(Chains::new(root))?;
        }
        let Some(chains) = self.chains.iter_mut().find(|chains| chains.root == root) else {
            return Ok(false);
        };
        chains.row_begins(row, link);
        if let Some(at) = self.again.iter().position(|row| key == Some(*row)) {
            self.again.drain(..=at);
        } else if self.looks_up
            && chains.are_read()
            && self.tree.table == Some(root)
            && let Some(at) = self.past.iter().rposition(|row| key == Some(*row))
        {
            // The keys after it were followed before it was known that their overflow pages are read.
            while self.past.len() > at + 1
                && let Some(row) = self.past.pop_back()
            {
                self.again.grow_at(0, row)?;
            }
            self.past.pop_back();
            self.deferred.clear();
            chains.look_again();
            // Leaves that are far ahead leave no room for the pages in between.
            if let Some(hints) = &mut self.hints {
                hints.jump();
            }
        }
        Ok(!self.looks_up && chains.are_read())
    }

    /// A scan continues from this leaf, of which these rows with overflow pages are left.
    pub(super) fn go_on_from(
        &mut self,
        leaf: u32,
        path: Path,
        rows: impl Iterator<Item = Overflow>,
    ) -> Result<(), NoMemory> {
        (self.path, self.leaf, self.in_order) = (path, leaf, 0);
        if let Some(hints) = &mut self.hints {
            hints.jump();
        }
        self.turns = self.turns.wrapping_add(1);
        let (root, turn) = (self.tree.root, self.turns);
        if let Some(chains) = self.chains.iter_mut().find(|chains| chains.root == root) {
            chains.look_again();
            chains.looked_into(leaf, turn, rows)?;
        }
        Ok(())
    }

    /// It was found to be at this leaf, which was not predicted.
    pub(super) fn found_at(
        &mut self,
        leaf: u32,
        path: Path,
        forward: bool,
    ) -> Result<(), NoMemory> {
        (self.path, self.leaf, self.forward) = (path, leaf, Some(forward));
        for chains in &mut self.chains {
            if !self.looks_up {
                chains.on_leaf(leaf);
                chains.clear();
                chains.leaves.grow(leaf)?;
            }
        }
        Ok(())
    }

    /// Advances a scan of rows with overflow pages: the next leaves are read before this leaf's overflow pages are
    /// requested.
    fn advance_long(
        &mut self,
        at: usize,
        most: u32,
        trees: &mut Trees,
        pages: &mut impl Pages,
    ) -> Result<Next, NoMemory> {
        let forward = self.forward.unwrap_or(true);
        let chains = &mut self.chains[at];
        let mut needs = None;
        if chains.leaves.len() <= chains.lead(most) {
            let mut path = self.path;
            match trees.step(&mut path, forward, pages) {
                Ok((leaf, _)) => {
                    (self.path, self.leaf) = (path, leaf);
                    chains.leaves.grow(leaf)?;
                    return Ok(Next::Page(leaf));
                }
                Err(lack) => needs = lack.page()?,
            }
        }
        let Some(&leaf) = chains.leaves.front().filter(|_| chains.have_room(most)) else {
            return Ok(needs.map_or(Next::End, Next::Needs));
        };
        match trees.overflow_cached(leaf, None, pages) {
            Ok(mut rows) => {
                if !forward {
                    rows.reverse();
                }
                self.turns = self.turns.wrapping_add(1);
                chains.looked_into(leaf, self.turns, rows.into_iter().map(|(_, row)| row))?;
            }
            Err(lack) => {
                if lack.page()?.is_some() {
                    return Ok(Next::Needs(needs.unwrap_or(leaf)));
                }
            }
        }
        chains.leaves.pop_front();
        Ok(Next::LongRows)
    }

    /// Retries the deferred keys in order, until several of their pages are not cached.
    fn try_deferred(
        &mut self,
        trees: &mut Trees,
        recipient: &mut Recipient<'_>,
        pages: &mut impl Pages,
    ) -> Result<(), NoMemory> {
        let mut missing = Vec::new();
        for one in std::mem::take(&mut self.deferred) {
            let wait = !recipient.goes_on() || one.page.is_some_and(|page| missing.contains(&page));
            if wait || missing.len() >= MISSING_MAX {
                self.deferred.grow(one)?;
                continue;
            }
            let before = self.deferred.len();
            self.pursue(one.stage, one.key, one.turn, trees, recipient, pages)?;
            missing.grow_by(self.deferred[before..].iter().filter_map(|it| it.page))?;
        }
        Ok(())
    }

    /// Advances by one row or leaf.
    fn advance(
        &mut self,
        most: u32,
        trees: &mut Trees,
        pages: &mut impl Pages,
    ) -> Result<Next, NoMemory> {
        if let Some(key) = self.again.pop_front() {
            return Ok(Next::Row(key));
        }
        let forward = self.forward.unwrap_or(true);
        let rows_left = self.rows.len() - self.next;
        if self.looks_up && rows_left > 0 && (self.next_leaf_asked || rows_left > ROWS_LEFT) {
            self.next += 1;
            return Ok(Next::Row(self.rows[self.next - 1]));
        }
        if !self.looks_up
            && let Some(at) = self.chains.iter().position(Chains::are_read)
        {
            return self.advance_long(at, most, trees, pages);
        }
        let mut path = self.path;
        if !self.looks_up {
            return match trees.step(&mut path, forward, pages) {
                Ok((leaf, _)) => {
                    let follows = forward && leaf.wrapping_sub(self.leaf) == 1;
                    self.in_order = if follows { self.in_order.saturating_add(1) } else { 0 };
                    (self.path, self.leaf) = (path, leaf);
                    self.rows.clear();
                    self.next = 0;
                    let in_order = self.in_order >= IN_ORDER;
                    Ok(if in_order { Next::Follows(leaf) } else { Next::Page(leaf) })
                }
                Err(lack) => Ok(lack.page()?.map_or(Next::End, Next::Needs)),
            };
        }
        if rows_left > 0 {
            self.next_leaf_asked = true;
            let next = match trees.step(&mut path, forward, pages) {
                Ok((page, _)) => Some(page),
                Err(lack) => lack.page()?,
            };
            return next.map_or_else(|| self.advance(most, trees, pages), |it| Ok(Next::Page(it)));
        }
        let mut rows = std::mem::take(&mut self.rows);
        let entered = trees.step(&mut path, forward, pages).and_then(|(leaf, between)| {
            trees.rows_cached(leaf, self.link, &mut rows, pages)?;
            Ok(between)
        });
        match entered {
            Ok(between) => {
                if !forward {
                    rows.reverse();
                }
                if between != NO_ROW {
                    rows.grow_at(0, between)?;
                }
                (self.rows, self.next, self.path) = (rows, 0, path);
                self.next_leaf_asked = false;
                if self.rows.is_empty() { Ok(Next::End) } else { self.advance(most, trees, pages) }
            }
            Err(lack) => {
                // The contents of `rows` are used up: all of them were predicted.
                rows.clear();
                (self.rows, self.next) = (rows, 0);
                Ok(lack.page()?.map_or(Next::End, Next::Needs))
            }
        }
    }
}
