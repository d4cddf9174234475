//! The b-trees of a database, as far as their interior pages are known.
//!
//! Interior pages are few, one for some hundred leaves, and name all of those. They are kept by page number, in
//! parsed form, whether SQLite has just read them or the kernel has them at hand. What is asked is answered
//! from them: which leaf holds a rowid, which leaf comes after another, whose leaf a page is.
//!
//! Pages change under us. So nothing here is a fact about the file, and a wrong answer costs a request that nobody
//! wanted; a page that SQLite writes is forgotten, and all is when the file changes otherwise.
//!
//! Invariants:  [TRE-1] what is kept takes no more than the bound given, by its own count  [TRE-2] a walk
//!              goes down `DEPTH_MAX` levels at most, whatever pages say
//! Concurrency: one owner.
//! Failure:     `Lack`: a page that is not at hand, or no answer.

use std::collections::HashMap;
use std::rc::Rc;

use crate::page::{Geometry, Kind, Overflow, Page, Record, Value};

/// SQLite goes no deeper itself.
const DEPTH_MAX: usize = 20;
/// Of the schema, so many pages are read at most.
const SCHEMA_PAGES_MAX: usize = 256;
/// Of a schema that says more, the rest is left out: so many trees, tables' names of so many bytes.
const SCHEMA_TREES_MAX: usize = 4096;
const NAME_MAX: usize = 512;
/// Where page 1 says how text is written: the last of four bytes.
const TEXT_ENCODING: usize = 59;
/// Interior pages of indexes that one search for a leaf looks at: few large ones, which take as long as many small.
const SEARCH_PAGES_MAX: usize = 256;
const SEARCH_PAGES_MIN: usize = 16;
const SEARCH_BYTES: usize = 1 << 20;
/// Such searches until everything is forgotten, or one finds something.
const SEARCHES_MAX: u32 = 16;
/// Pages asked for in trees that no leaf is known of, until everything is forgotten: SQLite may not be there.
const GUESSED_MAX: u32 = 256;
/// A table's and an entry's own bytes, about.
const ENTRY_BYTES: usize = 64;
/// Of the rows of one key, so many are followed.
const LED_MAX: usize = 64;
/// Rows of a leaf that go on in overflow pages: SQLite puts no more into 64 KiB.
const OVERFLOW_MAX: usize = 16;
/// An index's entry whose rowid is not in the page.
pub(crate) const NO_ROW: i64 = i64::MIN;

/// The file, as far as it takes no waiting.
pub(crate) trait Pages {
    /// Fills `into` with a page, counted from 1, or its first bytes, if it is at hand.
    fn at_hand(&mut self, page: u32, into: &mut [u8]) -> bool;
    /// Asks for `count` pages from `first` on, counted from 1.
    fn ask(&mut self, first: u32, count: u32);
    /// Whether a page will not be read from the file, as a write-ahead log holds it.
    fn elsewhere(&self, page: u32) -> bool;
}

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lack {
    /// This page is needed for it, and not at hand.
    Page(u32),
    /// There is none.
    Answer,
}

/// A path down a tree: interior pages from the root on, and which child is taken at each.
pub(crate) type Path = Vec<(u32, usize)>;

/// A tree that the schema names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tree {
    pub(crate) root: u32,
    /// Of an index, its table's root.
    pub(crate) table: Option<u32>,
}

#[derive(Debug)]
struct Interior {
    kind: Kind,
    children: Vec<u32>,
    /// Between each two children: a table's largest rowid in the first of them, of an index's row at this place the first
    /// column; `NO_ROW` where that is no integer.
    keys: Vec<i64>,
    /// Between each two children of an index, the row that the entry at this place leads to.
    between: Vec<i64>,
}

#[derive(Debug)]
pub(crate) struct Trees {
    geometry: Geometry,
    interiors: HashMap<u32, Rc<Interior>>,
    /// Of the children of an index's interior pages.
    parents: HashMap<u32, u32>,
    /// How many levels of interior pages a table has, by its root.
    heights: HashMap<u32, usize>,
    schema: Option<Vec<Tree>>,
    /// What was read of it before a page that was not at hand.
    reading: Option<Reading>,
    /// Of the schema's trees, by root.
    names: HashMap<u32, String>,
    searches_left: u32,
    guesses_left: u32,
    /// Pages asked for since that was taken down.
    asked: u64,
    bytes: usize,
    bytes_max: usize,
    page: Vec<u8>,
}

impl Trees {
    pub(crate) fn new(geometry: Geometry, bytes_max: usize) -> Trees {
        Trees {
            geometry,
            interiors: HashMap::new(),
            parents: HashMap::new(),
            heights: HashMap::new(),
            schema: None,
            reading: None,
            names: HashMap::new(),
            searches_left: SEARCHES_MAX,
            guesses_left: GUESSED_MAX,
            asked: 0,
            bytes: 0,
            bytes_max,
            page: vec![0; geometry.page_size as usize],
        }
    }

    pub(crate) fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// What is kept, by the count that is bounded.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many pages were asked for to answer by, since the last call.
    pub(crate) fn take_asked(&mut self) -> u64 {
        std::mem::take(&mut self.asked)
    }

    /// The file has changed.
    pub(crate) fn forget(&mut self) {
        self.forget_pages();
        self.heights.clear();
        (self.schema, self.reading) = (None, None);
        self.searches_left = SEARCHES_MAX;
        self.guesses_left = GUESSED_MAX;
    }

    /// SQLite writes this page.
    pub(crate) fn forget_page(&mut self, page: u32) {
        self.interiors.remove(&page);
        self.heights.remove(&page);
        if page == 1 {
            (self.schema, self.reading) = (None, None);
        }
    }

    fn forget_pages(&mut self) {
        self.interiors = HashMap::new();
        self.parents = HashMap::new();
        self.bytes = 0;
    }

    /// SQLite has read an interior page.
    pub(crate) fn learn(&mut self, number: u32, page: &Page<'_>) -> Option<()> {
        if self.interiors.contains_key(&number) {
            return Some(());
        }
        let kind = page.kind();
        let children: Option<Vec<u32>> = (0..=page.cells()).map(|at| page.child(at)).collect();
        let children = children.filter(|_| kind.is_interior())?;
        let of_index = |which: &dyn Fn(Record<'_>) -> Option<i64>| {
            let integer = |at| page.record(at).and_then(which).unwrap_or(NO_ROW);
            (0..page.cells()).map(integer).collect::<Vec<_>>()
        };
        let (keys, between, each) = match kind {
            Kind::TableInterior => {
                let rowids: Option<Vec<_>> = (0..page.cells()).map(|at| page.rowid(at)).collect();
                (rowids?, Vec::new(), 12)
            }
            _ => {
                let first = of_index(&|record| record.first_integer());
                (first, of_index(&|record| record.last_integer()), 20 + ENTRY_BYTES / 2)
            }
        };
        let bytes = ENTRY_BYTES + children.len() * each;
        if self.bytes + bytes > self.bytes_max {
            self.forget_pages();
        }
        if bytes > self.bytes_max {
            return None;
        }
        self.bytes += bytes; // [TRE-1]
        if kind == Kind::IndexInterior {
            self.parents.extend(children.iter().map(|child| (*child, number)));
        }
        self.interiors.insert(number, Rc::new(Interior { kind, children, keys, between }));
        Some(())
    }

    /// Reads an interior page that is at hand.
    pub(crate) fn load(&mut self, number: u32, pages: &mut impl Pages) -> Result<(), Lack> {
        self.interior(number, pages).map(|_| ())
    }

    fn interior(&mut self, number: u32, pages: &mut impl Pages) -> Result<Rc<Interior>, Lack> {
        if let Some(there) = self.interiors.get(&number) {
            return Ok(Rc::clone(there));
        }
        let mut bytes = std::mem::take(&mut self.page);
        let at_hand = pages.at_hand(number, &mut bytes);
        let learnt = if at_hand {
            let page = Page::read(&bytes, number, self.geometry);
            page.and_then(|page| self.learn(number, &page)).ok_or(Lack::Answer)
        } else {
            Err(Lack::Page(number))
        };
        self.page = bytes;
        learnt?;
        self.interiors.get(&number).cloned().ok_or(Lack::Answer)
    }

    /// The rows that a leaf leads to which is at hand.
    pub(crate) fn rows_at_hand(
        &mut self,
        number: u32,
        link: Link,
        into: &mut Vec<i64>,
        pages: &mut impl Pages,
    ) -> Result<(), Lack> {
        if !pages.at_hand(number, &mut self.page) {
            return Err(Lack::Page(number));
        }
        let page = Page::read(&self.page, number, self.geometry).ok_or(Lack::Answer)?;
        rows_of(&page, link, into).ok_or(Lack::Answer)
    }

    /// The keys that a leaf's rows of a key lead to, if it is at hand.
    pub(crate) fn led_to(
        &mut self,
        leaf: u32,
        key: i64,
        link: Link,
        pages: &mut impl Pages,
    ) -> Result<Vec<i64>, Lack> {
        if !pages.at_hand(leaf, &mut self.page) {
            return Err(Lack::Page(leaf));
        }
        let page = Page::read(&self.page, leaf, self.geometry).ok_or(Lack::Answer)?;
        Ok(page.places(key).filter_map(|at| link.follow(&page, at)).take(LED_MAX).collect())
    }

    /// Where rows of a leaf go on, if it is at hand: the rows of a key, or all, with their places.
    pub(crate) fn overflow_at_hand(
        &mut self,
        leaf: u32,
        key: Option<i64>,
        pages: &mut impl Pages,
    ) -> Result<Vec<(usize, Overflow)>, Lack> {
        if !pages.at_hand(leaf, &mut self.page) {
            return Err(Lack::Page(leaf));
        }
        let page = Page::read(&self.page, leaf, self.geometry).ok_or(Lack::Answer)?;
        Ok(match key {
            None => overflow_of(&page, 0..page.cells()),
            Some(key) => overflow_of(&page, page.places(key).take(LED_MAX)),
        })
    }

    /// The leaf of a tree that holds a key, once `path_to` has found one of its leaves: a rowid of a table, the first
    /// column of an index.
    pub(crate) fn leaf_of(
        &mut self,
        root: u32,
        key: i64,
        pages: &mut impl Pages,
    ) -> Result<u32, Lack> {
        let height = *self.heights.get(&root).ok_or(Lack::Answer)?;
        let mut page = root;
        for _ in 0..height {
            // An index, or a table without rowids, may have the row here; SQLite looks for the first of its key, and goes
            // down for that anyway.
            page = self.child_for(page, key, pages)?.1;
        }
        Ok(page)
    }

    /// The path to a leaf that holds a key, if it is of the tree at this root.
    pub(crate) fn path_to(
        &mut self,
        root: u32,
        key: i64,
        leaf: u32,
        pages: &mut impl Pages,
    ) -> Option<Path> {
        let mut path = Path::new();
        let mut page = root;
        // [TRE-2]
        while page != leaf && path.len() < DEPTH_MAX {
            if self.heights.get(&root).is_some_and(|height| *height == path.len()) {
                return None;
            }
            let (slot, child) = match self.child_for(page, key, pages) {
                Ok(found) => found,
                Err(lack) => {
                    self.ask(lack, self.heights.contains_key(&root), pages);
                    // A small table is all root: not to be looked into for each leaf of others.
                    if lack == Lack::Answer && page == root {
                        self.heights.insert(root, 0);
                    }
                    return None;
                }
            };
            path.push((page, slot));
            page = child;
        }
        if page != leaf {
            return None;
        }
        self.heights.insert(root, path.len());
        Some(path)
    }

    fn child_for(
        &mut self,
        page: u32,
        key: i64,
        pages: &mut impl Pages,
    ) -> Result<(usize, u32), Lack> {
        let interior = self.interior(page, pages)?;
        let slot = interior.keys.partition_point(|it| *it < key);
        Ok((slot, interior.children[slot]))
    }

    /// The path to a leaf of an index, and what the schema says of it.
    pub(crate) fn index_path(&mut self, leaf: u32, pages: &mut impl Pages) -> Option<(Path, Tree)> {
        let found = self.climb(leaf, pages);
        if found.is_some() || self.searches_left == 0 {
            return found;
        }
        self.searches_left -= 1;
        let found = self.search(leaf, pages).then(|| self.climb(leaf, pages)).flatten();
        if found.is_some() {
            self.searches_left = SEARCHES_MAX;
        }
        found
    }

    fn climb(&mut self, leaf: u32, pages: &mut impl Pages) -> Option<(Path, Tree)> {
        let mut path = Path::new();
        let mut page = leaf;
        // [TRE-2]
        while path.len() <= DEPTH_MAX {
            if let Some(tree) = self.schema(pages)?.iter().find(|tree| tree.root == page) {
                let tree = *tree;
                path.reverse();
                return Some((path, tree));
            }
            let parent = *self.parents.get(&page)?;
            let interior = self.interior(parent, pages).ok()?;
            let slot = interior.children.iter().position(|child| *child == page)?;
            path.push((parent, slot));
            page = parent;
        }
        None
    }

    /// SQLite has read a missing page long ago, and will not again: it is at hand the next time.
    fn ask(&mut self, lack: Lack, tree_known: bool, pages: &mut impl Pages) {
        if let Lack::Page(page) = lack
            && (tree_known || self.guesses_left > 0)
        {
            self.guesses_left -= u32::from(!tree_known);
            self.asked += 1;
            pages.ask(page, 1);
        }
    }

    /// Looks for a leaf below the roots of all indexes, and of tables without rowids, level by level.
    fn search(&mut self, leaf: u32, pages: &mut impl Pages) -> bool {
        let Some(schema) = self.schema(pages) else { return false };
        let (indexes, tables): (Vec<&Tree>, Vec<&Tree>) =
            schema.iter().partition(|tree| tree.table.is_some());
        let mut level: Vec<u32> = indexes.iter().chain(&tables).map(|tree| tree.root).collect();
        let page_size = self.geometry.page_size as usize;
        let mut left = (SEARCH_BYTES / page_size).clamp(SEARCH_PAGES_MIN, SEARCH_PAGES_MAX);
        while !level.is_empty() {
            let mut below = Vec::new();
            for page in level {
                if left == 0 {
                    return false;
                }
                left -= 1;
                let interior = match self.interior(page, pages) {
                    Ok(interior) => interior,
                    Err(lack) => {
                        self.ask(lack, false, pages);
                        continue;
                    }
                };
                if interior.kind != Kind::IndexInterior {
                    continue;
                }
                if interior.children.contains(&leaf) {
                    return true;
                }
                below.extend_from_slice(&interior.children[..interior.children.len().min(left)]);
            }
            level = below;
        }
        false
    }

    /// Moves a path to the next leaf, or the one before. Returns that, and the row between the two in an index.
    pub(crate) fn step(
        &mut self,
        path: &mut Path,
        forward: bool,
        pages: &mut impl Pages,
    ) -> Result<(u32, i64), Lack> {
        let mut moved = path.clone();
        let (mut child, between) = loop {
            let (page, slot) = moved.pop().ok_or(Lack::Answer)?;
            let interior = self.interior(page, pages)?;
            let next = if forward { Some(slot + 1) } else { slot.checked_sub(1) };
            if let Some(next) = next
                && let Some(&child) = interior.children.get(next)
            {
                moved.push((page, next));
                break (child, interior.between.get(slot.min(next)).copied().unwrap_or(NO_ROW));
            }
        };
        while moved.len() < path.len() {
            let interior = self.interior(child, pages)?;
            let slot = if forward { 0 } else { interior.children.len() - 1 };
            moved.push((child, slot));
            child = interior.children[slot];
        }
        *path = moved;
        Ok((child, between))
    }

    /// What the schema names, if it is at hand.
    pub(crate) fn schema(&mut self, pages: &mut impl Pages) -> Option<&[Tree]> {
        if self.schema.is_none() {
            self.schema = Some(self.read_schema(pages)?);
        }
        self.schema.as_deref()
    }

    /// The name of a tree of the schema that was read last.
    pub(crate) fn name(&self, root: u32) -> Option<&str> {
        self.names.get(&root).map(String::as_str)
    }

    fn read_schema(&mut self, pages: &mut impl Pages) -> Option<Vec<Tree>> {
        let mut bytes = vec![0; self.geometry.page_size as usize];
        let begin = || Reading {
            left: vec![1],
            pages_left: SCHEMA_PAGES_MAX,
            utf16: None,
            found: Vec::new(),
        };
        let mut reading = self.reading.take().unwrap_or_else(begin);
        while reading.pages_left > 0
            && let Some(&number) = reading.left.last()
        {
            if !pages.at_hand(number, &mut bytes) {
                self.asked += 1;
                pages.ask(number, 1);
                self.reading = Some(reading);
                return None;
            }
            reading.left.pop();
            reading.pages_left -= 1;
            if number == 1 {
                reading.utf16 = utf16(&bytes);
            }
            let Reading { left, found, utf16, .. } = &mut reading;
            let page = Page::read(&bytes, number, self.geometry);
            match page.map(|page| (page, page.kind())) {
                Some((page, Kind::TableInterior)) => {
                    let children = (0..=page.cells()).filter_map(|at| page.child(at));
                    left.extend(children.take(SCHEMA_PAGES_MAX));
                }
                Some((page, Kind::TableLeaf)) => {
                    let rows = (0..page.cells()).filter_map(|at| named(&page, at, *utf16));
                    found.extend(rows.take(SCHEMA_TREES_MAX - found.len()));
                }
                // It is no schema, and is not read again before the file changes.
                Some((_, Kind::IndexInterior | Kind::IndexLeaf)) | None => {
                    left.clear();
                    found.clear();
                }
            }
        }
        let found = reading.found;
        let tables: HashMap<String, u32> = found
            .iter()
            .filter(|named| !named.index)
            .map(|named| (named.table.clone(), named.root))
            .collect();
        let names = found.iter().map(|named| (named.root, named.name.clone()));
        self.names = names.chain([(1, "sqlite_schema".to_owned())]).collect();
        let tree = |named: &Named| {
            let table = named.index.then(|| tables.get(&named.table).copied()).flatten();
            Tree { root: named.root, table }
        };
        Some(found.iter().map(tree).chain([Tree { root: 1, table: None }]).collect())
    }
}

/// A schema that is read in parts.
#[derive(Debug)]
struct Reading {
    /// Pages to be looked into, the next one last, and how many may be.
    left: Vec<u32>,
    pages_left: usize,
    /// How two bytes of its text are read, where they are a unit of it.
    utf16: Option<FromBytes>,
    found: Vec<Named>,
}

type FromBytes = fn([u8; 2]) -> u16;

/// How page 1 says that all text is written.
fn utf16(page_1: &[u8]) -> Option<FromBytes> {
    match page_1.get(TEXT_ENCODING)? {
        2 => Some(u16::from_le_bytes),
        3 => Some(u16::from_be_bytes),
        _ => None,
    }
}

fn text(bytes: &[u8], utf16: Option<FromBytes>) -> String {
    let Some(from_bytes) = utf16 else { return String::from_utf8_lossy(bytes).into_owned() };
    let (units, _) = bytes.as_chunks();
    String::from_utf16_lossy(&units.iter().map(|unit| from_bytes(*unit)).collect::<Vec<u16>>())
}

/// A row of the schema that has a tree.
#[derive(Debug)]
struct Named {
    index: bool,
    name: String,
    table: String,
    root: u32,
}

fn named(page: &Page<'_>, at: usize, utf16: Option<FromBytes>) -> Option<Named> {
    let mut columns = page.record(at)?.columns();
    let [kind, name, table, root] = std::array::from_fn(|_| columns.next());
    let (Value::Text(kind), Value::Text(name), Value::Text(table)) = (kind?, name?, table?) else {
        return None;
    };
    let Value::Integer(root) = root? else { return None };
    let root = u32::try_from(root).ok().filter(|root| *root > 0)?;
    if name.len().max(table.len()) > NAME_MAX || kind.len() > NAME_MAX {
        return None;
    }
    let index = match text(kind, utf16).as_str() {
        "table" => false,
        "index" => true,
        _ => return None,
    };
    Some(Named { index, name: text(name, utf16), table: text(table, utf16), root })
}

/// Where a leaf's rows say which rows of a table they lead to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Link {
    /// In an index: its last column is the rowid, or the key of a table without rowids.
    Index,
    /// In a table that is joined with another: this column is the other's rowid, or is looked for in its index.
    Column(usize),
    /// The table's rowid is the other's as well.
    Rowid,
}

impl Link {
    /// The key that a leaf's row leads to.
    fn follow(self, page: &Page<'_>, at: usize) -> Option<i64> {
        match self {
            Link::Index => page.record(at)?.last_integer(),
            Link::Rowid => page.rowid(at),
            Link::Column(column) => match page.record(at)?.columns().nth(column)? {
                Value::Integer(row) => Some(row),
                Value::Text(_) | Value::Other => None,
            },
        }
    }
}

/// The keys that a leaf leads to, in order.
pub(crate) fn rows_of(page: &Page<'_>, link: Link, into: &mut Vec<i64>) -> Option<()> {
    match (page.kind(), link) {
        (Kind::IndexLeaf, Link::Index | Link::Column(_)) => {}
        (Kind::TableLeaf, Link::Rowid | Link::Column(_)) => {}
        _ => return None,
    }
    into.clear();
    into.extend((0..page.cells()).map(|at| link.follow(page, at).unwrap_or(NO_ROW)));
    Some(())
}

/// Where the rows at these places of a leaf go on, as far as they do.
pub(crate) fn overflow_of(
    page: &Page<'_>,
    places: impl Iterator<Item = usize>,
) -> Vec<(usize, Overflow)> {
    let found = places.filter_map(|at| Some((at, page.overflow(at)?)));
    found.take(OVERFLOW_MAX).collect()
}
