//! The tree: insertion, look-up and removal, and when changes are durable.
//!
//! Invariants:  [TRE-1] nothing is changed while the meta page on disk says that the tree is clean
//!              [TRE-2] an insertion changes one leaf under its latch; the splits or merges it needs happen before or
//!              afterwards, by steps that change no entry
//! Concurrency: any number of threads. Readers take no lock; writers take `changed` shared, checkpoints and bulk loads
//!              take it exclusively.
//! Failure:     an operation that fails has changed no entry. A split or a merge that fails half way, because of a disk
//!              error, may leave a block that is not reachable.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, PoisonError};

use crossbeam_utils::sync::{ShardedLock, ShardedLockReadGuard, ShardedLockWriteGuard};
use forebay::{
    Block, BufferPool, CheckpointOptions, Checksum, FileOptions, Lsn, PageMut, PagedFile,
    ReadaheadStrategy, ZeroPages,
};

use crate::error::{Error, Result};
use crate::log::Log;
use crate::meta::{self, ROOT, State, damaged};
use crate::node::{Node, NodeMut, Shape, common};
use crate::page::{Goal, LSN_AT};
use crate::record::{self, Change, Entry};

const PAGE_BYTES_MAX: usize = 32 << 10;

/// The longest key takes one part in this many of a page; the longest record four times that.
const KEYS_TO_A_PAGE: usize = 16;

/// Maximum number of splits for one insertion. Other threads may occasionally use the space that they make; a damaged
/// tree, in which two nodes claim one key, would be split forever.
pub(crate) const ROUNDS_MAX: u32 = 1000;

/// Enough for the log record of most entries.
const BODY_BYTES: usize = 256;

pub(crate) const ENDLESS: &str =
    "nodes were split again and again, and below it there is still no room";

/// A B+tree in a file of a pool: keys and values are bytes, ordered by the bytes of the keys.
///
/// All threads share one value: every method takes `&self`.
pub struct Tree {
    pool: BufferPool,
    /// For single pages, which are read in no predictable order.
    file: PagedFile,
    /// For streams, with the pool's readahead.
    ahead: PagedFile,
    page_bytes: usize,
    /// Whether the meta page on disk says that the tree is not clean ([TRE-1]). Always, with a log. Each writer locks a
    /// cache line of its own.
    changed: ShardedLock<bool>,
    /// The log, and the tree's number in it.
    log: Option<(Arc<Log>, u8)>,
}

impl Tree {
    /// Creates a tree in a new file `name` of the pool, durable at once.
    ///
    /// # Errors
    /// [`Error::PageSize`]; [`Error::Pool`], also if the file already exists.
    pub fn create(pool: &BufferPool, name: &str) -> Result<Tree> {
        let tree = Tree::over(pool, name, &options().create_new(true))?;
        tree.lay_out()?;
        Ok(tree)
    }

    /// Writes an empty tree into an empty file.
    fn lay_out(&self) -> Result<()> {
        self.file.extend(ROOT + 1)?;
        meta::create(&self.file)?;
        let mut root = self.file.init(ROOT)?;
        let shape = Shape { level: 0, lower: &[], upper: None, first_child: 0, prefix: &[] };
        NodeMut::lay_out(&mut root, shape).expect("an empty node fits");
        self.mark(&mut root, Lsn::NONE);
        drop(root);
        *self.alone() = true;
        self.checkpoint()
    }

    /// Opens the tree in the file `name` of the pool.
    ///
    /// # Errors
    /// [`Error::Unclean`] if it was changed after its last checkpoint and then not closed; [`Error::NotATree`],
    /// [`Error::PageSize`], [`Error::Damaged`], [`Error::Pool`].
    pub fn open(pool: &BufferPool, name: &str) -> Result<Tree> {
        let tree = Tree::over(pool, name, &options())?;
        if tree.file.blocks() <= ROOT {
            let file = tree.file.path().into();
            return Err(Error::NotATree { file, what: "it has no two pages" });
        }
        match meta::state(&tree.file)? {
            State::Whole => {}
            State::Changed => return Err(Error::Unclean { file: tree.file.path().into() }),
            State::Logged => return tree.refuse("it has a log: open its database"),
        }
        meta::check_used(&tree.file)?;
        Ok(tree)
    }

    /// Opens a tree whose changes are in a log; the caller recovers it. If the log is new, the tree must have had none, and
    /// is created if it does not exist.
    pub(crate) fn open_logged(
        pool: &BufferPool,
        name: &str,
        log: &Arc<Log>,
        number: u8,
        new: bool,
    ) -> Result<Tree> {
        let mut tree = Tree::over(pool, name, &options().create(new))?;
        if tree.file.blocks() <= ROOT {
            if !new {
                return tree.refuse("it is empty, and its log is not new");
            }
            tree.lay_out()?;
        }
        match meta::state(&tree.file)? {
            State::Whole => {}
            State::Changed => return Err(Error::Unclean { file: tree.file.path().into() }),
            State::Logged if new => return tree.refuse("its log is missing"),
            State::Logged => {}
        }
        *tree.alone() = true;
        tree.log = Some((Arc::clone(log), number));
        Ok(tree)
    }

    /// Marks the tree on disk as one with a log.
    pub(crate) fn mark_logged(&self) -> Result<()> {
        if meta::state(&self.file)? == State::Whole {
            meta::set_state(&self.file, State::Logged)?;
        }
        Ok(())
    }

    fn refuse(&self, what: &'static str) -> Result<Tree> {
        Err(Error::NotATree { file: self.file.path().into(), what })
    }

    /// Checks what recovery has made of the meta page.
    pub(crate) fn check_meta(&self) -> Result<()> {
        meta::check_used(&self.file)
    }

    fn over(pool: &BufferPool, name: &str, options: &FileOptions) -> Result<Tree> {
        let bytes = pool.page_bytes();
        if bytes > PAGE_BYTES_MAX {
            return Err(Error::PageSize { bytes });
        }
        let ahead = pool.open_file(name, options)?;
        let file = ahead.with_readahead(ReadaheadStrategy::Hint);
        Ok(Tree {
            pool: pool.clone(),
            file,
            ahead,
            page_bytes: bytes,
            changed: ShardedLock::new(false),
            log: None,
        })
    }

    pub(crate) fn pool(&self) -> &BufferPool {
        &self.pool
    }

    pub(crate) fn file(&self) -> &PagedFile {
        &self.file
    }

    pub(crate) fn file_ahead(&self) -> &PagedFile {
        &self.ahead
    }

    pub(crate) fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// The longest key, in bytes: a sixteenth of a page.
    pub fn key_len_max(&self) -> usize {
        self.page_bytes / KEYS_TO_A_PAGE
    }

    /// The longest key and value together, in bytes: a quarter of a page.
    pub fn record_len_max(&self) -> usize {
        4 * self.key_len_max()
    }

    /// Returns the value of `key`.
    ///
    /// # Errors
    /// [`Error::Pool`], [`Error::Damaged`].
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut value = Vec::new();
        Ok(self.get_into(key, &mut value)?.then_some(value))
    }

    /// Copies the value of `key` into `value`, replacing its contents: a look-up that allocates nothing once `value` is
    /// large enough. Returns false, with `value` empty, if the key does not exist.
    ///
    /// # Errors
    /// As [`Tree::get`].
    pub fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let found = self.look_up(key, value)?;
        if !found {
            value.clear();
        }
        Ok(found)
    }

    /// Stores `value` under `key`, replacing an existing value. Returns true if the key is new.
    ///
    /// # Errors
    /// [`Error::TooLong`]; as [`Tree::get`].
    pub fn insert(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.check_length(key, value)?;
        let _shared = self.begin_change()?;
        for _ in 0..ROUNDS_MAX {
            let mut page = self.write(Goal::Key(key), 0)?;
            let (node, place) = self.look_up_in(&page, key)?;
            let done = match place {
                Ok(at) if node.fits_instead(at, value) => {
                    NodeMut::checked(&mut page).replace(at, key, value)
                }
                Err(at) if node.fits(key, value.len()) => {
                    let inserted = NodeMut::checked(&mut page).insert(at, key, value);
                    inserted.map(|inserted| assert!(inserted, "[NOD-3]"))
                }
                _ => {
                    drop(page);
                    self.split(0, key, &|leaf| match leaf.find(key) {
                        Ok(at) => leaf.fits_instead(at, value),
                        Err(_) => leaf.fits(key, value.len()),
                    })?;
                    continue;
                }
            };
            done.map_err(|what| damaged(&self.file, page.block(), what))?;
            self.note(&mut [(&mut page, Change::Entry(Entry::Put { key, value }))]);
            return Ok(place.is_err());
        }
        Err(damaged(&self.file, ROOT, ENDLESS))
    }

    /// Removes `key` and its value. Returns false if it does not exist.
    ///
    /// # Errors
    /// As [`Tree::get`].
    pub fn remove(&self, key: &[u8]) -> Result<bool> {
        let _shared = self.begin_change()?;
        let mut page = self.write(Goal::Key(key), 0)?;
        let (node, Ok(at)) = self.look_up_in(&page, key)? else { return Ok(false) };
        let before = self.is_sparse(node);
        let mut node = NodeMut::checked(&mut page);
        node.remove(at);
        // A leaf that fits into none of its neighbours is not tried again for each removal, but only when it is empty.
        let node = node.as_node();
        let merge = (self.is_sparse(node) && !before) || node.count() == 0;
        self.note(&mut [(&mut page, Change::Entry(Entry::Remove { key }))]);
        drop(page);
        if merge {
            self.merge(0, key)?;
        }
        Ok(true)
    }

    /// Changes the value of `key` in place: `change` gets its bytes, whose number stays as it is. Returns false if the key
    /// does not exist. The leaf is latched meanwhile, so `change` must not use a tree of this pool.
    ///
    /// # Errors
    /// As [`Tree::get`].
    pub fn update(&self, key: &[u8], change: impl FnOnce(&mut [u8])) -> Result<bool> {
        let _shared = self.begin_change()?;
        let mut page = self.write(Goal::Key(key), 0)?;
        let (node, Ok(at)) = self.look_up_in(&page, key)? else { return Ok(false) };
        if self.log.is_none() {
            change(NodeMut::checked(&mut page).into_value(at));
            self.note(&mut [(&mut page, Change::Page)]);
            return Ok(true);
        }
        let mut bytes = node.value(at).to_vec();
        change(NodeMut::checked(&mut page).into_value(at));
        let after = Node::trusted(&page).value(at);
        let Some(part) = changed_part(&bytes, after) else { return Ok(true) };
        bytes.clear();
        bytes.extend_from_slice(&after[part.clone()]);
        let patch = Entry::Patch { key, at: part.start, bytes: &bytes };
        self.note(&mut [(&mut page, Change::Entry(patch))]);
        Ok(true)
    }

    /// Makes all changes durable: after a crash, the tree is as it is now, until the next change. Waits for changes in
    /// progress; new changes wait for it, readers do not. Of a tree with a log, it is a checkpoint of the pool, for which no
    /// change waits.
    ///
    /// # Errors
    /// [`Error::Pool`]: the tree remains usable, but has no valid state on disk until a checkpoint succeeds.
    pub fn checkpoint(&self) -> Result<()> {
        if self.log.is_some() {
            self.pool.checkpoint(CheckpointOptions::now())?;
            return Ok(());
        }
        let mut changed = self.alone();
        if !*changed {
            return Ok(());
        }
        self.file.flush_file()?;
        self.file.sync()?;
        // If this fails, the disk may have either state, so the next change has to write the mark again.
        *changed = false;
        meta::set_state(&self.file, State::Whole)
    }

    /// Takes a checkpoint and closes the file.
    ///
    /// # Errors
    /// As [`Tree::checkpoint`], and [`forebay::Error::Busy`] while a cursor is reading ahead.
    pub fn close(self) -> Result<()> {
        self.checkpoint()?;
        Ok(self.file.close()?)
    }

    /// Excludes checkpoints during a change, after the disk has been marked as changed.
    fn begin_change(&self) -> Result<ShardedLockReadGuard<'_, bool>> {
        loop {
            let shared = self.changed.read().unwrap_or_else(PoisonError::into_inner);
            if *shared {
                return Ok(shared);
            }
            drop(shared);
            let mut alone = self.alone();
            self.report_changed(&mut alone)?;
        }
    }

    /// [TRE-1]
    pub(crate) fn report_changed(&self, changed: &mut bool) -> Result<()> {
        if !*changed {
            meta::set_state(&self.file, State::Changed)?;
            *changed = true;
        }
        Ok(())
    }

    /// Excludes all changes by other threads.
    pub(crate) fn alone(&self) -> ShardedLockWriteGuard<'_, bool> {
        self.changed.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn check_length(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let records = ("key with its value", key.len() + value.len(), self.record_len_max());
        for (what, len, max) in [("key", key.len(), self.key_len_max()), records] {
            if len > max {
                return Err(Error::TooLong { what, len, max });
            }
        }
        Ok(())
    }

    /// The node in a latched page.
    pub(crate) fn node<'a>(&self, page: &'a [u8], block: Block) -> Result<Node<'a>> {
        Node::new(page).map_err(|what| damaged(&self.file, block, what))
    }

    /// The leaf in a latched page, with its header checked, and where `key` is in it or belongs.
    fn look_up_in<'a>(
        &self,
        page: &'a PageMut<'_>,
        key: &[u8],
    ) -> Result<(Node<'a>, std::result::Result<usize, usize>)> {
        let wrong = |what| damaged(&self.file, page.block(), what);
        let node = Node::header(page).map_err(wrong)?;
        if node.level() != 0 {
            return Err(wrong("it should be a leaf"));
        }
        Ok((node, node.look_up(key).map_err(wrong)?))
    }

    /// Notes changes that belong together, of pages latched exclusively: marks the pages dirty and, with a log, appends one
    /// record of all.
    pub(crate) fn note(&self, changes: &mut [(&mut PageMut<'_>, Change<'_>)]) {
        let lsn = match &self.log {
            None => Lsn::NONE,
            Some((log, number)) => {
                let mut body = Vec::with_capacity(BODY_BYTES);
                record::begin_changes(&mut body);
                for (page, change) in changes.iter() {
                    record::put_change(&mut body, *number, page.block(), page, *change);
                }
                log.append(&body)
            }
        };
        for (page, _) in changes {
            self.mark(page, lsn);
        }
    }

    /// Marks a page as dirty by the change with that LSN.
    pub(crate) fn mark(&self, page: &mut PageMut<'_>, lsn: Lsn) {
        page[LSN_AT..LSN_AT + 8].copy_from_slice(&lsn.0.to_le_bytes());
        page.mark_dirty(lsn);
    }

    /// Whether a node has so few bytes in use that it should be merged with a neighbour.
    pub(crate) fn is_sparse(&self, node: Node<'_>) -> bool {
        node.used() < self.page_bytes / 4 || node.count() == 0
    }
}

/// The part in which two values of the same length differ. Found by steps, then by bytes: values are hundreds of bytes long,
/// and few of them change.
fn changed_part(before: &[u8], after: &[u8]) -> Option<Range<usize>> {
    const STEP: usize = 32;
    let step = before.chunks(STEP).zip(after.chunks(STEP)).position(|(one, other)| one != other)?;
    let start = step * STEP;
    let start = start + common(&before[start..], &after[start..]);
    let mut end = before.len();
    while end > start + STEP && before[end - STEP..end] == after[end - STEP..end] {
        end -= STEP;
    }
    let differs = |at: &usize| before[*at] != after[*at];
    (start..end).rfind(differs).map(|last| start..last + 1)
}

fn options() -> FileOptions {
    let checksum = Checksum::Crc32c { offset: 0 };
    FileOptions::new().checksum(checksum).zero_pages(ZeroPages::Refuse)
}

impl fmt::Debug for Tree {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Tree").field("file", &self.file).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_changed_part_is_the_smallest(
            before in prop::collection::vec(0_u8..2, 0..200),
            places in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
        ) {
            let mut after = before.clone();
            for place in places.iter().filter(|_| !before.is_empty()) {
                after[place.index(before.len())] += 2;
            }
            let differ = (0..before.len()).filter(|&at| before[at] != after[at]);
            let expected = differ.clone().min().zip(differ.max()).map(|(first, last)| first..last + 1);
            prop_assert_eq!(changed_part(&before, &after), expected);
        }
    }
}
