//! Block 0: the file's type, the blocks in use, and whether the file is clean.
//!
//! ```text
//! 0         4     8              16       20          24     28          32   40
//! checksum  kind  magic          version  page bytes  state  free blocks LSN  used blocks
//! ```
//!
//! A tree without a log cannot be repaired after a crash, but it can detect one. Before the first change after a
//! checkpoint reaches the disk, the state becomes "changed", synced; a checkpoint writes and syncs everything else before
//! the state becomes "whole" again. So after a power cut the file either is the last checkpoint, or is marked as changed.
//! The state of a tree with a log is always "logged".
//!
//! Invariants:  [MET-1] if the state on disk is "whole", no page there differs from the last checkpoint's
//!              [MET-2] a block below `used` is this one, a node that is reachable from the root, or in the list of
//!              free blocks; blocks from `used` on have never been used
//! Concurrency: the page's latch is taken last, by a thread that holds latches of nodes, and held briefly.

use forebay::{Block, Lsn, PageMut, PagedFile};

use crate::error::{Error, Result};
use crate::page::{FREE, KIND_AT, LINK_AT, META};

pub(crate) const META_BLOCK: Block = 0;
/// The root never moves.
pub(crate) const ROOT: Block = 1;

const MAGIC: &[u8; 8] = b"fb-btree";
const VERSION: u32 = 3;
const MAGIC_AT: usize = 8;
const VERSION_AT: usize = 16;
const PAGE_BYTES_AT: usize = 20;
const STATE_AT: usize = 24;
const FREE_AT: usize = 28;
const USED_AT: usize = 40;

/// What the file on disk is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Some of the changes since the last checkpoint.
    Changed,
    /// The last checkpoint.
    Whole,
    /// What its log says.
    Logged,
}

/// The file grows by an eighth of itself, but by at most this many blocks.
const GROWTH_MAX: Block = 4096;

fn get(page: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([page[at], page[at + 1], page[at + 2], page[at + 3]])
}

fn put(page: &mut [u8], at: usize, value: u32) {
    page[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

/// Creates the meta page of a new file, not marked as whole yet.
pub(crate) fn create(file: &PagedFile) -> Result<()> {
    let mut page = file.init(META_BLOCK)?;
    page[KIND_AT] = META;
    page[MAGIC_AT..MAGIC_AT + 8].copy_from_slice(MAGIC);
    let bytes = page.len() as u32;
    for (at, value) in [(VERSION_AT, VERSION), (PAGE_BYTES_AT, bytes), (USED_AT, ROOT + 1)] {
        put(&mut page, at, value);
    }
    page.mark_dirty(Lsn::NONE);
    Ok(())
}

/// Checks that the file is a tree of this format, and returns its state.
///
/// # Errors
/// [`Error::NotATree`].
pub(crate) fn state(file: &PagedFile) -> Result<State> {
    let page = file.read(META_BLOCK)?;
    let not = |what| Err(Error::NotATree { file: file.path().into(), what });
    if page[KIND_AT] != META || &page[MAGIC_AT..MAGIC_AT + 8] != MAGIC {
        return not("its first page says nothing of one");
    }
    if get(&page, VERSION_AT) != VERSION {
        return not("it is of another version");
    }
    if get(&page, PAGE_BYTES_AT) as usize != page.len() {
        return not("it has pages of another size");
    }
    match page[STATE_AT] {
        0 => Ok(State::Changed),
        1 => Ok(State::Whole),
        2 => Ok(State::Logged),
        _ => Err(damaged(file, META_BLOCK, "its state is none")),
    }
}

/// Checks that the file has all blocks in use.
pub(crate) fn check_used(file: &PagedFile) -> Result<()> {
    if get(&file.read(META_BLOCK)?, USED_AT) > file.blocks() {
        return Err(damaged(file, META_BLOCK, "it counts more blocks than the file has"));
    }
    Ok(())
}

/// Sets the state of the tree on disk ([MET-1]).
pub(crate) fn set_state(file: &PagedFile, state: State) -> Result<()> {
    let mut page = file.write(META_BLOCK)?;
    page[STATE_AT] = match state {
        State::Changed => 0,
        State::Whole => 1,
        State::Logged => 2,
    };
    page.mark_dirty(Lsn::NONE);
    drop(page);
    file.flush_file()?;
    Ok(file.sync()?)
}

/// Latches the meta page, for [`allocate`] and [`free`]. The caller notes its change, together with theirs.
pub(crate) fn latch(file: &PagedFile) -> Result<PageMut<'_>> {
    Ok(file.write(META_BLOCK)?)
}

/// Allocates a block for a new node: all zero, latched exclusively.
pub(crate) fn allocate<'f>(file: &'f PagedFile, meta: &mut PageMut<'_>) -> Result<PageMut<'f>> {
    let free = get(meta, FREE_AT);
    // A thread on an outdated path may hold its latch for a moment; a block from the end serves as well.
    if free != 0
        && let Some(mut page) = file.pin(free)?.try_latch_exclusive()?
    {
        if page[KIND_AT] != FREE {
            return Err(damaged(file, free, "it is in the list of free blocks and not free"));
        }
        put(meta, FREE_AT, get(&page, LINK_AT));
        page.fill(0);
        return Ok(page);
    }
    let used = get(meta, USED_AT);
    if used >= file.blocks() {
        file.extend((used / 8).clamp(1, GROWTH_MAX))?;
    }
    let page = file.init(used)?;
    put(meta, USED_AT, used + 1);
    Ok(page)
}

/// Frees a node's block. A thread that still reaches it on an outdated path sees that it is not a node.
pub(crate) fn free(meta: &mut PageMut<'_>, page: &mut PageMut<'_>) {
    page.fill(0);
    page[KIND_AT] = FREE;
    put(page, LINK_AT, get(meta, FREE_AT));
    put(meta, FREE_AT, page.block());
}

/// Returns how many blocks are in use, and the first free block, 0 for none.
pub(crate) fn counts(file: &PagedFile) -> Result<(Block, Block)> {
    let page = file.read(META_BLOCK)?;
    Ok((get(&page, USED_AT), get(&page, FREE_AT)))
}

/// Sets the number of blocks in use: for a bulk load, during which no other thread allocates.
pub(crate) fn set_used(meta: &mut PageMut<'_>, used: Block) {
    put(meta, USED_AT, used);
}

/// Returns the next block in the list of free blocks.
pub(crate) fn next_free(file: &PagedFile, block: Block) -> Result<Block> {
    let page = file.read(block)?;
    if page[KIND_AT] != FREE {
        return Err(damaged(file, block, "it is in the list of free blocks and not free"));
    }
    Ok(get(&page, LINK_AT))
}

pub(crate) fn damaged(file: &PagedFile, block: Block, what: &'static str) -> Error {
    Error::Damaged { file: file.path().into(), block, what }
}
