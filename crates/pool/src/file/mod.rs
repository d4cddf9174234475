//! Files of pages: what the pool knows of each, and the handle its users have.
//!
//! A file is a row of pages, perhaps cut into segments. It stays open in the pool until it is closed
//! or dropped, whether or not anyone has a handle: its pages may be dirty.

mod handle;
mod options;
mod registry;
mod resize;
mod segments;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use forebay_io::File;
use forebay_lookahead::Detector;

pub use handle::{PagedFile, Salvage};
pub use options::FileOptions;
pub(crate) use registry::Files;

use crate::checksum::{Checksum, ZeroPages};
use crate::error::{Error, Fate};
use crate::table::PageTable;
use crate::tablespace::Space;
use crate::tag::{Block, FileId, PageTag};
use segments::Segments;

/// Most blocks in a file: block numbers are 32 bits, and a count has to fit as well.
pub(crate) const BLOCKS_MAX: u64 = Block::MAX as u64;

/// Readaheads of the kernel that a scan has to go over to be left to it: then what it reads too much is at
/// most an eighth.
const READAHEADS_MIN: u64 = 8;

/// What Linux sets where nobody else does, in bytes. Source: VM_READAHEAD_PAGES in linux/mm.h.
const KERNEL_READAHEAD_USUAL: u64 = 128 << 10;

/// Fates, as kept in an atomic.
const OPEN: u8 = 0;
const DROPPED: u8 = 1;
const CLOSED: u8 = 2;
/// It will be closed, or open again: whoever has the right to resize it is about to find out.
const CLOSING: u8 = 3;

/// What the pool knows of an open file.
pub(crate) struct FileCore {
    pub(crate) id: FileId,
    pub(crate) space: Arc<Space>,
    pub(crate) name: String,
    pub(crate) path: Arc<Path>,
    /// The real path, links followed, when it was opened.
    place: PathBuf,
    pub(crate) table: PageTable,
    pub(crate) checksum: Checksum,
    pub(crate) zero_pages: ZeroPages,
    read_only: bool,
    blocks: AtomicU64,
    fate: AtomicU8,
    segments: Segments,
    /// Sequences among the misses of plain reads.
    pub(crate) detector: Mutex<Detector>,
    /// The right to change the file's size or its fate; counts the changes of its size.
    resize: Mutex<u64>,
    /// What has been done to the file that only a sync makes durable: writes, changes of its size.
    changes: AtomicU64,
    /// As many of them are durable.
    changes_synced: AtomicU64,
}

impl FileCore {
    pub(crate) fn tag(&self, block: Block) -> PageTag {
        PageTag { file: self.id, block }
    }

    /// Blocks in the file, at most [`BLOCKS_MAX`].
    pub(crate) fn blocks(&self) -> Block {
        // SeqCst: see `Entry::list`.
        self.blocks.load(Ordering::SeqCst) as Block
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only
    }

    pub(crate) fn check_writable(&self) -> Result<(), Error> {
        if !self.read_only {
            return Ok(());
        }
        Err(Error::ReadOnly { file: Arc::clone(&self.path) })
    }

    /// Refuses blocks that are not there. As [`FileCore::check_open`], for callers with nothing half done.
    pub(crate) fn check(&self, block: Block) -> Result<(), Error> {
        self.check_open()?;
        self.check_length(block)
    }

    /// As [`FileCore::check`], and never waits; `None` while the file is being closed ([RSZ-2]).
    pub(crate) fn check_now(&self, block: Block) -> Option<Result<(), Error>> {
        Some(self.check_open_now()?.and_then(|()| self.check_length(block)))
    }

    fn check_length(&self, block: Block) -> Result<(), Error> {
        let blocks = self.blocks();
        if block < blocks {
            return Ok(());
        }
        Err(Error::PastEnd { file: Arc::clone(&self.path), block, blocks })
    }

    /// Refuses a file that is gone. Waits for what comes of a close that is under way.
    pub(crate) fn check_open(&self) -> Result<(), Error> {
        loop {
            match self.check_open_now() {
                Some(checked) => return checked,
                None => self.wait_resized(),
            }
        }
    }

    /// As [`FileCore::check_open`], and never waits; `None` while the file is being closed ([RSZ-2]).
    pub(crate) fn check_open_now(&self) -> Option<Result<(), Error>> {
        match self.fate.load(Ordering::SeqCst) {
            OPEN => Some(Ok(())),
            CLOSING => None,
            DROPPED => Some(Err(self.gone(Fate::Dropped))),
            _ => Some(Err(self.gone(Fate::Closed))),
        }
    }

    /// For a page that the table no longer leads to.
    pub(crate) fn page_gone(&self) -> Error {
        let gone = self.check_open_now().and_then(Result::err);
        gone.unwrap_or_else(|| self.gone(Fate::Truncated))
    }

    fn gone(&self, how: Fate) -> Error {
        Error::Gone { file: Arc::clone(&self.path), how }
    }

    /// The segment that holds `block`, and the byte offset there.
    pub(crate) fn place(&self, block: Block) -> Result<(File, u64), Error> {
        self.segments.place(block)
    }

    /// The number of the segment that holds `block`.
    pub(crate) fn segment(&self, block: Block) -> usize {
        self.segments.number(block)
    }

    /// Blocks from `block` to the end of its segment.
    pub(crate) fn run_length_max(&self, block: Block) -> usize {
        self.segments.run_length_max(block)
    }

    /// Fewest blocks of a scan that may be left to the kernel, which reads on by up to its readahead behind
    /// the last of them.
    pub(crate) fn scan_blocks_min(&self) -> u64 {
        let readahead = || self.place(0).ok().and_then(|(file, _)| file.kernel_readahead());
        let readahead = self.space.kernel_readahead(readahead).unwrap_or(KERNEL_READAHEAD_USUAL);
        (readahead * READAHEADS_MIN).div_ceil(self.space.page_bytes())
    }

    /// Something was done to the file that only a sync makes durable. Said before anybody may take it for
    /// done.
    pub(crate) fn changed(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
    }

    /// What a sync that is submitted after this makes durable, for [`FileCore::synced`].
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    /// As [`FileCore::changes`]; `None` when all of that is durable.
    pub(crate) fn unsynced(&self) -> Option<u64> {
        let changes = self.changes();
        (changes > self.changes_synced.load(Ordering::SeqCst)).then_some(changes)
    }

    /// A sync that was submitted after so many changes has ended well.
    pub(crate) fn synced(&self, changes: u64) {
        self.changes_synced.fetch_max(changes, Ordering::SeqCst);
        self.space.torn.synced(self.id, changes);
    }

    /// The segment of that number, from 0, if there is one.
    pub(crate) fn segment_file(&self, number: usize) -> Option<File> {
        self.segments.get(number)
    }

    /// All segments, for syncing.
    pub(crate) fn segment_files(&self) -> Vec<File> {
        self.segments.all()
    }
}

impl std::fmt::Debug for FileCore {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("FileCore")
            .field("id", &self.id)
            .field("path", &self.path)
            .field("blocks", &self.blocks())
            .finish_non_exhaustive()
    }
}
