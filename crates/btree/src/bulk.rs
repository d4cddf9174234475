//! Bulk load of a sorted sequence: each page is written once, from left to right, and the root last.
//!
//! Each level has one page in progress. When it is full, it gets a block and is written, and its lowest key and block
//! are added to the level above. The last page of the top level becomes the root, and only then is the load visible to
//! other threads: a failed load leaves the tree empty as it was.
//!
//! Invariants:  [BLK-1] a page holds no more than its share of bytes, but always two entries
//! Concurrency: excludes other writers; readers see an empty tree until the end.
//! Failure:     the allocated blocks are freed again.

use forebay::{AccessStrategy, Block, StrategyKind};

use crate::error::{Error, Result};
use crate::meta::{self, ROOT};
use crate::node::{NodeMut, Shape, common, separator};
use crate::page::{CHILD, Goal, HEADER, SLOT, WORD, cell_len};
use crate::record::Change;
use crate::tree::Tree;

/// Number of blocks by which the file grows at a time.
const GROWTH: Block = 1024;

/// The entries of a page that is not full yet.
#[derive(Debug, Default)]
struct Batch {
    level: u8,
    lower: Vec<u8>,
    first_child: Block,
    /// Keys and values, one after the other.
    bytes: Vec<u8>,
    /// The end of each key and of each value in `bytes`.
    ends: Vec<(usize, usize)>,
    /// Number of leading bytes that the first key shares with the last.
    prefix_len: usize,
    /// Bytes that slots and cells need with that prefix.
    used: usize,
}

impl Batch {
    fn entry(&self, index: usize) -> (&[u8], &[u8]) {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before].1);
        let (key_end, end) = self.ends[index];
        (&self.bytes[start..key_end], &self.bytes[key_end..end])
    }

    fn last_key(&self) -> Option<&[u8]> {
        self.ends.len().checked_sub(1).map(|last| self.entry(last).0)
    }

    /// Bytes that an entry needs. A child is in the slot.
    fn bytes_for(&self, key_len: usize, value_len: usize) -> usize {
        SLOT + cell_len(key_len, if self.level == 0 { value_len } else { 0 })
    }

    /// The prefix length and the total bytes, with one more entry.
    fn grown(&self, key: &[u8], value_len: usize) -> (usize, usize) {
        let prefix = match self.ends.len() {
            0 => key.len(),
            _ => common(&self.entry(0).0[..self.prefix_len], key),
        };
        let used = if prefix == self.prefix_len {
            self.used
        } else {
            let entries = (0..self.ends.len()).map(|at| self.entry(at));
            entries.map(|(key, value)| self.bytes_for(key.len() - prefix, value.len())).sum()
        };
        (prefix, used + self.bytes_for(key.len() - prefix, value_len))
    }

    /// Adds an entry, if the page then uses at most `most` bytes. [BLK-1]
    fn push(&mut self, key: &[u8], value: &[u8], most: usize) -> bool {
        let (prefix_len, used) = self.grown(key, value.len());
        // The next fence is at most one byte longer than the last key.
        let others = [prefix_len, self.lower.len(), key.len() + 1];
        let others: usize = others.into_iter().map(|len| len.next_multiple_of(WORD)).sum();
        if self.ends.len() >= 2 && HEADER + used + others > most {
            return false;
        }
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.ends.push((key_end, self.bytes.len()));
        (self.prefix_len, self.used) = (prefix_len, used);
        true
    }

    fn write(&self, page: &mut [u8], upper: Option<&[u8]>) {
        let prefix = if self.ends.is_empty() { &[] } else { &self.entry(0).0[..self.prefix_len] };
        let Batch { level, ref lower, first_child, .. } = *self;
        let node = NodeMut::lay_out(page, Shape { level, lower, upper, first_child, prefix });
        let mut node = node.expect("fences fit");
        for (key, value) in (0..self.ends.len()).map(|at| self.entry(at)) {
            assert!(node.push(key, value), "[BLK-1]");
        }
    }

    /// Begins the next page to the right.
    fn begin(&mut self, lower: &[u8], first_child: Block) {
        self.lower.clear();
        self.lower.extend_from_slice(lower);
        self.bytes.clear();
        self.ends.clear();
        (self.first_child, self.prefix_len, self.used) = (first_child, 0, 0);
    }
}

struct Load<'t> {
    tree: &'t Tree,
    strategy: AccessStrategy,
    most: usize,
    used: Block,
    /// From the leaves up.
    levels: Vec<Batch>,
}

impl Load<'_> {
    fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        if self.levels[0].push(key, value, self.most) {
            return Ok(());
        }
        let last = self.levels[0].last_key().unwrap_or_default();
        let fence = separator(last, key);
        self.finish(0, Some(fence))?;
        self.levels[0].begin(fence, 0);
        assert!(self.levels[0].push(key, value, self.most), "[BLK-1] two entries always fit");
        Ok(())
    }

    /// Adds a finished page to the level above it.
    fn add_child(&mut self, level: usize, lower: &[u8], block: Block) -> Result<()> {
        if level == self.levels.len() {
            let mut batch = Batch { level: level as u8, ..Batch::default() };
            batch.begin(lower, block);
            self.levels.push(batch);
            return Ok(());
        }
        let child = block.to_le_bytes();
        debug_assert_eq!(child.len(), CHILD);
        if self.levels[level].push(lower, &child, self.most) {
            return Ok(());
        }
        self.finish(level, Some(lower))?;
        self.levels[level].begin(lower, block);
        Ok(())
    }

    /// Writes the page of `level` to a new block.
    fn finish(&mut self, level: usize, upper: Option<&[u8]>) -> Result<()> {
        let file = self.tree.file();
        if self.used >= file.blocks() {
            file.extend(GROWTH)?;
        }
        let block = self.used;
        let mut page = file.init_with(block, &self.strategy)?;
        self.levels[level].write(&mut page, upper);
        self.tree.note(&mut [(&mut page, Change::Page)]);
        drop(page);
        self.used += 1;
        let lower = std::mem::take(&mut self.levels[level].lower);
        self.add_child(level + 1, &lower, block)
    }

    /// Writes the unfinished pages, and the root.
    fn end(mut self) -> Result<()> {
        let mut level = 0;
        while level + 1 < self.levels.len() {
            self.finish(level, None)?;
            level += 1;
        }
        let file = self.tree.file();
        let mut root = file.write(ROOT)?;
        let mut meta = meta::latch(file)?;
        meta::set_used(&mut meta, self.used);
        self.levels[level].write(&mut root, None);
        self.tree.note(&mut [&mut root, &mut meta].map(|page| (page, Change::Page)));
        Ok(())
    }
}

impl Tree {
    /// Fills an empty tree with `entries`, whose keys must be strictly ascending. Pages are filled to `fill` of their
    /// bytes, 0.5 to 1.0: full pages for a tree that is only read, less to leave space for insertions. Does not make
    /// the tree durable: see [`Tree::checkpoint`]. Returns the number of entries.
    ///
    /// # Errors
    /// [`Error::NotEmpty`], [`Error::Unsorted`], [`Error::TooLong`], [`Error::Pool`]: the tree is empty then.
    pub fn bulk_load<K, V>(
        &self,
        entries: impl IntoIterator<Item = (K, V)>,
        fill: f64,
    ) -> Result<u64>
    where
        K: AsRef<[u8]>,
        V: AsRef<[u8]>,
    {
        let mut changed = self.alone();
        let root = self.read(Goal::Last, 0)?;
        let node = self.node(&root, root.block())?;
        if root.block() != ROOT || node.count() > 0 {
            return Err(Error::NotEmpty { file: self.file().path().into() });
        }
        drop(root);
        self.report_changed(&mut changed)?;
        let (used, _) = meta::counts(self.file())?;
        let mut load = Load {
            tree: self,
            strategy: self.pool().strategy(StrategyKind::BulkWrite),
            most: (self.page_bytes() as f64 * fill.clamp(0.5, 1.0)) as usize,
            used,
            levels: vec![Batch::default()],
        };
        let mut count = 0;
        for (key, value) in entries {
            let (key, value) = (key.as_ref(), value.as_ref());
            self.check_length(key, value)?;
            // Across pages, too: the first key of a page is above the last key of the page before.
            if load.levels[0].last_key().is_some_and(|last| last >= key) {
                return Err(Error::Unsorted { at: count });
            }
            load.add(key, value)?;
            count += 1;
        }
        load.end()?;
        Ok(count)
    }
}
