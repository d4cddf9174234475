//! The b-trees of a database, as far as their interior pages are known.
//!
//! Interior pages are few, one for some hundred leaves, and they name all of those leaves. They are kept by page
//! number, in parsed form, whether SQLite has just read them or they were in the kernel's memory. They answer the
//! questions of look-ahead: which leaf holds a rowid, which leaf follows another, to which tree a leaf belongs.
//!
//! Pages may change at any time. So an answer is only an estimate, and a wrong answer costs an unneeded request. When
//! SQLite writes a page, that page is discarded; when the file changes in another way, everything is.
//!
//! Invariants:  [TRE-1] what is kept takes no more memory than the given bound, as counted here  [TRE-2] a walk goes
//!              down at most `DEPTH_MAX` levels, whatever the pages contain
//! Concurrency: one owner.
//! Failure:     `Lack`: a page that is not cached, no answer, or no memory.

use crate::memory::{Grow, Map, NoMemory, add_text, filled, insert, list, text};
use crate::page::{Geometry, Kind, Overflow, Page, Record, Value};

/// SQLite's own limit.
const DEPTH_MAX: usize = 20;
/// The maximum number of schema pages that are read.
const SCHEMA_PAGES_MAX: usize = 256;
/// Limits of what is kept of a schema: the number of trees, and the bytes of a table's name. The rest is ignored.
const SCHEMA_TREES_MAX: usize = 4096;
const NAME_MAX: usize = 512;
/// The offset in page 1 of the text encoding: the last of four bytes.
const TEXT_ENCODING: usize = 59;
/// Interior index pages that one search for a leaf examines: a few large ones take as long as many small ones.
const SEARCH_PAGES_MAX: usize = 256;
const SEARCH_PAGES_MIN: usize = 16;
const SEARCH_BYTES: usize = 1 << 20;
/// Searches without a result, after which no more are made until everything is discarded.
const SEARCHES_MAX: u32 = 16;
/// Pages that may be requested in trees without a known leaf, until everything is discarded: SQLite may not be reading
/// them.
const GUESSED_MAX: u32 = 256;
/// Approximate size of one table and of one entry themselves.
const ENTRY_BYTES: usize = 64;
/// The number of rows with the same key that are followed.
const LED_MAX: usize = 64;
/// Rows of a leaf that continue in overflow pages: SQLite puts no more into 64 KiB.
const OVERFLOW_MAX: usize = 16;
/// An index entry whose rowid is not in the page.
pub(crate) const NO_ROW: i64 = i64::MIN;

/// The file, as far as it can be read without waiting.
pub(crate) trait Pages {
    /// Fills `into` with a page (numbered from 1) or its first bytes, if the page is cached.
    fn read_cached(&mut self, page: u32, into: &mut [u8]) -> bool;
    /// Requests `count` pages from `first` on (numbered from 1).
    fn ask(&mut self, first: u32, count: u32);
    /// Whether a page will not be read from the file because a write-ahead log holds it.
    fn elsewhere(&self, page: u32) -> bool;
}

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lack {
    /// The answer requires this page, which is not cached.
    Page(u32),
    /// There is no answer.
    Answer,
    /// There is no memory to keep it.
    Memory,
}

impl From<NoMemory> for Lack {
    fn from(_: NoMemory) -> Lack {
        Lack::Memory
    }
}

impl Lack {
    /// The required page, if there is one.
    pub(crate) fn page(self) -> Result<Option<u32>, NoMemory> {
        match self {
            Lack::Page(page) => Ok(Some(page)),
            Lack::Answer => Ok(None),
            Lack::Memory => Err(NoMemory),
        }
    }
}

/// The answer, if it is available.
pub(crate) fn available<T>(answer: Result<T, Lack>) -> Result<Option<T>, NoMemory> {
    answer.map(Some).or_else(|lack| lack.page().map(|_| None))
}

/// A path down a tree: the interior pages from the root on, and the index of the child taken at each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Path {
    steps: [(u32, usize); DEPTH_MAX + 1],
    len: usize,
}

impl Path {
    pub(crate) fn new() -> Path {
        Path { steps: [(0, 0); DEPTH_MAX + 1], len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Goes down one level.
    fn push(&mut self, page: u32, slot: usize) {
        assert!(self.len <= DEPTH_MAX, "[TRE-2]");
        self.steps[self.len] = (page, slot);
        self.len += 1;
    }

    fn pop(&mut self) -> Option<(u32, usize)> {
        self.len = self.len.checked_sub(1)?;
        Some(self.steps[self.len])
    }

    fn reverse(&mut self) {
        self.steps[..self.len].reverse();
    }
}

/// A tree that the schema names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tree {
    pub(crate) root: u32,
    /// For an index, the root of its table.
    pub(crate) table: Option<u32>,
}

#[derive(Debug)]
struct Interior {
    kind: Kind,
    children: Vec<u32>,
    /// Between each two children: for a table, the largest rowid in the first of them; for an index, the first column
    /// of the entry at this place, or `NO_ROW` if that is not an integer.
    keys: Vec<i64>,
    /// Between each two children of an index, the row that the entry at this place leads to.
    between: Vec<i64>,
    /// Its share of the bounded memory.
    bytes: usize,
}

#[derive(Debug)]
pub(crate) struct Trees {
    geometry: Geometry,
    interiors: Map<u32, Interior>,
    /// The parents of the children of an index's interior pages.
    parents: Map<u32, u32>,
    /// The number of levels of interior pages of a table, by its root.
    heights: Map<u32, usize>,
    schema: Option<Vec<Tree>>,
    /// The part of the schema that was read before a page that was not cached.
    reading: Option<Reading>,
    /// The names of the schema's trees, by root.
    names: Map<u32, String>,
    searches_left: u32,
    guesses_left: u32,
    /// Pages requested since the last `take_asked`.
    asked: u64,
    bytes: usize,
    bytes_max: usize,
    page: Vec<u8>,
}

impl Trees {
    pub(crate) fn new(geometry: Geometry, bytes_max: usize) -> Result<Trees, NoMemory> {
        Ok(Trees {
            geometry,
            interiors: Map::default(),
            parents: Map::default(),
            heights: Map::default(),
            schema: None,
            reading: None,
            names: Map::default(),
            searches_left: SEARCHES_MAX,
            guesses_left: GUESSED_MAX,
            asked: 0,
            bytes: 0,
            bytes_max,
            page: filled(0, geometry.page_size as usize)?,
        })
    }

    pub(crate) fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// The bounded memory in use.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    #[cfg(test)]
    pub(crate) fn parents_len(&self) -> usize {
        self.parents.len()
    }

    /// The number of pages requested in order to answer, since the last call.
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
        if let Some(interior) = self.interiors.remove(&page) {
            self.bytes -= interior.bytes; // [TRE-1]
            for child in interior.children.iter().filter(|_| interior.kind == Kind::IndexInterior) {
                if self.parents.get(child) == Some(&page) {
                    self.parents.remove(child);
                }
            }
        }
        self.heights.remove(&page);
        if page == 1 {
            (self.schema, self.reading) = (None, None);
        }
    }

    fn forget_pages(&mut self) {
        self.interiors = Map::default();
        self.parents = Map::default();
        self.bytes = 0;
    }

    /// SQLite has read an interior page.
    pub(crate) fn learn(&mut self, number: u32, page: &Page<'_>) -> Result<(), Lack> {
        if self.interiors.contains_key(&number) {
            return Ok(());
        }
        let (kind, cells) = (page.kind(), page.cells());
        if !kind.is_interior() {
            return Err(Lack::Answer);
        }
        let each = if kind == Kind::TableInterior { 12 } else { 20 + ENTRY_BYTES / 2 };
        let bytes = ENTRY_BYTES + (cells + 1) * each;
        if bytes > self.bytes_max {
            return Err(Lack::Answer);
        }
        let mut children = Vec::new();
        for at in 0..=cells {
            children.grow(page.child(at).ok_or(Lack::Answer)?)?;
        }
        let (mut keys, mut between) = (Vec::new(), Vec::new());
        for at in 0..cells {
            if kind == Kind::TableInterior {
                keys.grow(page.rowid(at).ok_or(Lack::Answer)?)?;
                continue;
            }
            let record = page.record(at);
            keys.grow(record.and_then(Record::first_integer).unwrap_or(NO_ROW))?;
            between.grow(record.and_then(Record::last_integer).unwrap_or(NO_ROW))?;
        }
        if self.bytes + bytes > self.bytes_max {
            self.forget_pages();
        }
        if kind == Kind::IndexInterior {
            for child in &children {
                insert(&mut self.parents, *child, number)?;
            }
        }
        insert(&mut self.interiors, number, Interior { kind, children, keys, between, bytes })?;
        self.bytes += bytes; // [TRE-1]
        Ok(())
    }

    /// Reads an interior page if it is cached.
    pub(crate) fn load(&mut self, number: u32, pages: &mut impl Pages) -> Result<(), Lack> {
        self.interior(number, pages).map(|_| ())
    }

    fn interior(&mut self, number: u32, pages: &mut impl Pages) -> Result<&Interior, Lack> {
        if !self.interiors.contains_key(&number) {
            let mut bytes = std::mem::take(&mut self.page);
            let learnt = if pages.read_cached(number, &mut bytes) {
                let page = Page::read(&bytes, number, self.geometry).ok_or(Lack::Answer);
                page.and_then(|page| self.learn(number, &page))
            } else {
                Err(Lack::Page(number))
            };
            self.page = bytes;
            learnt?;
        }
        self.interiors.get(&number).ok_or(Lack::Answer)
    }

    /// The rows that a leaf leads to, if the leaf is cached.
    pub(crate) fn rows_cached(
        &mut self,
        number: u32,
        link: Link,
        into: &mut Vec<i64>,
        pages: &mut impl Pages,
    ) -> Result<(), Lack> {
        if !pages.read_cached(number, &mut self.page) {
            return Err(Lack::Page(number));
        }
        let page = Page::read(&self.page, number, self.geometry).ok_or(Lack::Answer)?;
        if rows_of(&page, link, into)? { Ok(()) } else { Err(Lack::Answer) }
    }

    /// The keys that the rows of a leaf with this key lead to, if the leaf is cached.
    pub(crate) fn led_to(
        &mut self,
        leaf: u32,
        key: i64,
        link: Link,
        pages: &mut impl Pages,
    ) -> Result<Vec<i64>, Lack> {
        if !pages.read_cached(leaf, &mut self.page) {
            return Err(Lack::Page(leaf));
        }
        let page = Page::read(&self.page, leaf, self.geometry).ok_or(Lack::Answer)?;
        Ok(list(page.places(key).filter_map(|at| link.follow(&page, at)).take(LED_MAX))?)
    }

    /// The overflow pages of a leaf's rows, if the leaf is cached: of the rows with a key, or of all; with the rows'
    /// places.
    pub(crate) fn overflow_cached(
        &mut self,
        leaf: u32,
        key: Option<i64>,
        pages: &mut impl Pages,
    ) -> Result<Vec<(usize, Overflow)>, Lack> {
        if !pages.read_cached(leaf, &mut self.page) {
            return Err(Lack::Page(leaf));
        }
        let page = Page::read(&self.page, leaf, self.geometry).ok_or(Lack::Answer)?;
        Ok(match key {
            None => overflow_of(&page, 0..page.cells())?,
            Some(key) => overflow_of(&page, page.places(key).take(LED_MAX))?,
        })
    }

    /// The leaf of a tree that holds a key, once `path_to` has found one of the tree's leaves. The key is a table's
    /// rowid or an index's first column.
    pub(crate) fn leaf_of(
        &mut self,
        root: u32,
        key: i64,
        pages: &mut impl Pages,
    ) -> Result<u32, Lack> {
        let height = *self.heights.get(&root).ok_or(Lack::Answer)?;
        let mut page = root;
        for _ in 0..height {
            // An index, or a table without rowids, may have the row here. SQLite looks for the first row of a key, so
            // it goes down to a leaf anyway.
            page = self.child_for(page, key, pages)?.1;
        }
        Ok(page)
    }

    /// The path to a leaf that holds a key, if the leaf belongs to the tree with this root.
    pub(crate) fn path_to(
        &mut self,
        root: u32,
        key: i64,
        leaf: u32,
        pages: &mut impl Pages,
    ) -> Result<Option<Path>, NoMemory> {
        let mut path = Path::new();
        let mut page = root;
        // [TRE-2]
        while page != leaf && path.len() < DEPTH_MAX {
            if self.heights.get(&root).is_some_and(|height| *height == path.len()) {
                return Ok(None);
            }
            let (slot, child) = match self.child_for(page, key, pages) {
                Ok(found) => found,
                Err(lack) => {
                    let needed = lack.page()?;
                    self.ask(lack, self.heights.contains_key(&root), pages);
                    // A small table is only a root: it must not be examined for each leaf of other tables.
                    if needed.is_none() && page == root {
                        insert(&mut self.heights, root, 0)?;
                    }
                    return Ok(None);
                }
            };
            path.push(page, slot);
            page = child;
        }
        if page != leaf {
            return Ok(None);
        }
        insert(&mut self.heights, root, path.len())?;
        Ok(Some(path))
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

    /// The path to a leaf of an index, and the index's entry in the schema.
    pub(crate) fn index_path(
        &mut self,
        leaf: u32,
        pages: &mut impl Pages,
    ) -> Result<Option<(Path, Tree)>, NoMemory> {
        let found = self.climb(leaf, pages)?;
        if found.is_some() || self.searches_left == 0 {
            return Ok(found);
        }
        self.searches_left -= 1;
        if !self.search(leaf, pages)? {
            return Ok(None);
        }
        let found = self.climb(leaf, pages)?;
        if found.is_some() {
            self.searches_left = SEARCHES_MAX;
        }
        Ok(found)
    }

    fn climb(
        &mut self,
        leaf: u32,
        pages: &mut impl Pages,
    ) -> Result<Option<(Path, Tree)>, NoMemory> {
        let mut path = Path::new();
        let mut page = leaf;
        // [TRE-2]
        while path.len() <= DEPTH_MAX {
            let Some(schema) = self.schema(pages)? else { return Ok(None) };
            if let Some(tree) = schema.iter().find(|tree| tree.root == page) {
                path.reverse();
                return Ok(Some((path, *tree)));
            }
            let Some(&parent) = self.parents.get(&page) else { return Ok(None) };
            let Some(interior) = available(self.interior(parent, pages))? else { return Ok(None) };
            let slot = interior.children.iter().position(|child| *child == page);
            let Some(slot) = slot else { return Ok(None) };
            path.push(parent, slot);
            page = parent;
        }
        Ok(None)
    }

    /// Requests a missing page. SQLite read it long ago and will not read it again; the request makes it cached the
    /// next time.
    fn ask(&mut self, lack: Lack, tree_known: bool, pages: &mut impl Pages) {
        if let Lack::Page(page) = lack
            && (tree_known || self.guesses_left > 0)
        {
            self.guesses_left -= u32::from(!tree_known);
            self.asked += 1;
            pages.ask(page, 1);
        }
    }

    /// Looks for a leaf below the roots of all indexes and of tables without rowids, level by level.
    fn search(&mut self, leaf: u32, pages: &mut impl Pages) -> Result<bool, NoMemory> {
        let Some(schema) = self.schema(pages)? else { return Ok(false) };
        let roots = |index: bool| {
            let trees = schema.iter().filter(move |tree| tree.table.is_some() == index);
            trees.map(|tree| tree.root)
        };
        let mut level = list(roots(true).chain(roots(false)))?;
        let page_size = self.geometry.page_size as usize;
        let mut left = (SEARCH_BYTES / page_size).clamp(SEARCH_PAGES_MIN, SEARCH_PAGES_MAX);
        while !level.is_empty() {
            let mut below = Vec::new();
            for page in level {
                if left == 0 {
                    return Ok(false);
                }
                left -= 1;
                let interior = match self.interior(page, pages) {
                    Ok(interior) => interior,
                    Err(lack) => {
                        lack.page()?;
                        self.ask(lack, false, pages);
                        continue;
                    }
                };
                if interior.kind != Kind::IndexInterior {
                    continue;
                }
                if interior.children.contains(&leaf) {
                    return Ok(true);
                }
                below.grow_by(interior.children.iter().copied().take(left))?;
            }
            level = below;
        }
        Ok(false)
    }

    /// Moves a path to the next or the previous leaf. Returns that leaf and, in an index, the row between the two
    /// leaves.
    pub(crate) fn step(
        &mut self,
        path: &mut Path,
        forward: bool,
        pages: &mut impl Pages,
    ) -> Result<(u32, i64), Lack> {
        let mut moved = *path;
        let (mut child, between) = loop {
            let (page, slot) = moved.pop().ok_or(Lack::Answer)?;
            let interior = self.interior(page, pages)?;
            let next = if forward { Some(slot + 1) } else { slot.checked_sub(1) };
            if let Some(next) = next
                && let Some(&child) = interior.children.get(next)
            {
                let between = interior.between.get(slot.min(next)).copied().unwrap_or(NO_ROW);
                moved.push(page, next);
                break (child, between);
            }
        };
        while moved.len() < path.len() {
            let interior = self.interior(child, pages)?;
            let slot = if forward { 0 } else { interior.children.len() - 1 };
            let below = interior.children[slot];
            moved.push(child, slot);
            child = below;
        }
        *path = moved;
        Ok((child, between))
    }

    /// The trees of the schema, if it is cached.
    pub(crate) fn schema(&mut self, pages: &mut impl Pages) -> Result<Option<&[Tree]>, NoMemory> {
        if self.schema.is_none() {
            self.schema = self.read_schema(pages)?;
        }
        Ok(self.schema.as_deref())
    }

    /// The name of a tree, from the last schema that was read.
    pub(crate) fn name(&self, root: u32) -> Option<&str> {
        self.names.get(&root).map(String::as_str)
    }

    fn read_schema(&mut self, pages: &mut impl Pages) -> Result<Option<Vec<Tree>>, NoMemory> {
        let mut bytes = filled(0, self.geometry.page_size as usize)?;
        let mut reading = match self.reading.take() {
            Some(reading) => reading,
            None => Reading {
                left: list([1])?,
                pages_left: SCHEMA_PAGES_MAX,
                utf16: None,
                found: Vec::new(),
            },
        };
        while reading.pages_left > 0
            && let Some(&number) = reading.left.last()
        {
            if !pages.read_cached(number, &mut bytes) {
                self.asked += 1;
                pages.ask(number, 1);
                self.reading = Some(reading);
                return Ok(None);
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
                    left.grow_by(children.take(SCHEMA_PAGES_MAX))?;
                }
                Some((page, Kind::TableLeaf)) => {
                    for at in 0..page.cells() {
                        if found.len() < SCHEMA_TREES_MAX
                            && let Some(row) = named(&page, at, *utf16)?
                        {
                            found.grow(row)?;
                        }
                    }
                }
                // This is not a schema page. The schema is not read again before the file changes.
                Some((_, Kind::IndexInterior | Kind::IndexLeaf)) | None => {
                    left.clear();
                    found.clear();
                }
            }
        }
        let mut tables = Map::<&str, u32>::default();
        for named in reading.found.iter().filter(|named| !named.index) {
            insert(&mut tables, &named.table, named.root)?;
        }
        let mut trees = Vec::new();
        for Named { index, table, root, .. } in &reading.found {
            let table = tables.get(table.as_str()).copied().filter(|_| *index);
            trees.grow(Tree { root: *root, table })?;
        }
        trees.grow(Tree { root: 1, table: None })?;
        drop(tables);
        self.names = Map::default();
        for named in reading.found {
            insert(&mut self.names, named.root, named.name)?;
        }
        insert(&mut self.names, 1, text("sqlite_schema")?)?;
        Ok(Some(trees))
    }
}

/// A schema that is being read in parts.
#[derive(Debug)]
struct Reading {
    /// Pages that are still to be examined, the next one last, and the maximum number of further pages.
    left: Vec<u32>,
    pages_left: usize,
    /// For UTF-16 text: how two bytes form a unit.
    utf16: Option<FromBytes>,
    found: Vec<Named>,
}

type FromBytes = fn([u8; 2]) -> u16;

/// The text encoding, from page 1.
fn utf16(page_1: &[u8]) -> Option<FromBytes> {
    match page_1.get(TEXT_ENCODING)? {
        2 => Some(u16::from_le_bytes),
        3 => Some(u16::from_be_bytes),
        _ => None,
    }
}

fn decoded(bytes: &[u8], utf16: Option<FromBytes>) -> Result<String, NoMemory> {
    let mut all = String::new();
    if let Some(from_bytes) = utf16 {
        let (units, _) = bytes.as_chunks();
        for char in char::decode_utf16(units.iter().map(|unit| from_bytes(*unit))) {
            let char = char.unwrap_or(char::REPLACEMENT_CHARACTER);
            add_text(&mut all, char.encode_utf8(&mut [0; 4]))?;
        }
        return Ok(all);
    }
    for chunk in bytes.utf8_chunks() {
        add_text(&mut all, chunk.valid())?;
        if !chunk.invalid().is_empty() {
            add_text(&mut all, "\u{fffd}")?;
        }
    }
    Ok(all)
}

/// A row of the schema that has a tree.
#[derive(Debug)]
struct Named {
    index: bool,
    name: String,
    table: String,
    root: u32,
}

fn named(page: &Page<'_>, at: usize, utf16: Option<FromBytes>) -> Result<Option<Named>, NoMemory> {
    let Some([kind, name, table, root]) = page.record(at).map(|record| {
        let mut columns = record.columns();
        std::array::from_fn(|_| columns.next())
    }) else {
        return Ok(None);
    };
    let (Some(Value::Text(kind)), Some(Value::Text(name)), Some(Value::Text(table))) =
        (kind, name, table)
    else {
        return Ok(None);
    };
    let Some(Value::Integer(root)) = root else { return Ok(None) };
    let Some(root) = u32::try_from(root).ok().filter(|root| *root > 0) else { return Ok(None) };
    if name.len().max(table.len()) > NAME_MAX || kind.len() > NAME_MAX {
        return Ok(None);
    }
    let index = match decoded(kind, utf16)?.as_str() {
        "table" => false,
        "index" => true,
        _ => return Ok(None),
    };
    let (name, table) = (decoded(name, utf16)?, decoded(table, utf16)?);
    Ok(Some(Named { index, name, table, root }))
}

/// Where a leaf's rows state which rows of a table they lead to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Link {
    /// In an index: the last column is the rowid, or the key of a table without rowids.
    Index,
    /// In a joined table: this column is the rowid of the other table, or is looked up in its index.
    Column(usize),
    /// The table's rowid is also the rowid of the other table.
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

/// Lists the keys that a leaf leads to, in order. Returns false if it is not such a leaf.
pub(crate) fn rows_of(page: &Page<'_>, link: Link, into: &mut Vec<i64>) -> Result<bool, NoMemory> {
    into.clear();
    match (page.kind(), link) {
        (Kind::IndexLeaf, Link::Index | Link::Column(_)) => {}
        (Kind::TableLeaf, Link::Rowid | Link::Column(_)) => {}
        _ => return Ok(false),
    }
    into.grow_by((0..page.cells()).map(|at| link.follow(page, at).unwrap_or(NO_ROW)))?;
    Ok(true)
}

/// The overflow pages of the rows at these places of a leaf, if they have any.
pub(crate) fn overflow_of(
    page: &Page<'_>,
    places: impl Iterator<Item = usize>,
) -> Result<Vec<(usize, Overflow)>, NoMemory> {
    let found = places.filter_map(|at| Some((at, page.overflow(at)?)));
    list(found.take(OVERFLOW_MAX))
}
