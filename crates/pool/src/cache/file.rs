//! A file as the cache knows it: its page table, its length and its fate; and how it is made shorter, closed
//! and dropped while others read it.
//!
//! Whoever shortens a file first says so (the new length, or the fate), then goes through the page
//! table and discards what lies beyond; whoever loads a page first lists it, then looks at the length.
//! So one of the two sees the other, and no page beyond the end stays behind.
//!
//! Those who have a discarded page pinned keep what they have, until they let go; it is never written.
//!
//! A close may fail when it is nearly done: a page is in use, or the last sync fails. Until it cannot fail
//! any more the file is *closing*: a thread that asks whether it is open waits for the right to resize it
//! and asks again. The closing thread in turn waits for the pages of the file. Therefore
//! - a thread that has listed a page as loading, has copies in hand, or has the right to open files asks
//!   without waiting; a loader that is told "closing" takes its page out again, then waits empty-handed;
//! - a caller may hold pages of this file, or of another one that is closing, while it waits here. The close
//!   waits for pages for a limited time, so it fails (`Busy`) and the caller goes on.
//!
//! Invariants:  [RSZ-1] after a truncation no page beyond the end is in the table, and none is written
//!              [RSZ-2] nobody is told that a file is closed by a close that may fail, and no load is waited
//!              for by a close that its loader waits for
//! Concurrency: one thread at a time resizes or closes a file; it waits for the I/O of the pages it
//!              discards, and for no latch.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::frame::word::{DIRTY, USAGE_MAX};
use super::frame::{Discarded, NO_FRAME};
use super::table::PageTable;
use super::{Cache, Disk};
use crate::error::{Error, Fate};
use crate::stats::PoolEvent;
use crate::sync::{AtomicU32, AtomicU64, Mutex, MutexGuard, Ordering, fence, lock, yield_now};
use crate::tag::{Block, FileId, PageTag};

/// Fates, as kept in an atomic.
const OPEN: u32 = 0;
const DROPPED: u32 = 1;
const CLOSED: u32 = 2;
/// It will be closed, or open again: whoever has the right to resize it is about to find out.
const CLOSING: u32 = 3;

/// Pause before a page that somebody has is looked at again.
const PAUSE: Duration = Duration::from_micros(100);

/// What the cache knows of an open file.
pub(crate) struct CachedFile {
    pub(crate) id: FileId,
    pub(crate) path: Arc<Path>,
    pub(crate) table: PageTable,
    blocks: AtomicU64,
    fate: AtomicU32,
    /// The right to change the file's size or its fate; counts the changes of its size.
    resize: Mutex<u64>,
}

impl CachedFile {
    /// An open file of so many blocks, none of them in memory.
    pub(crate) fn new(id: FileId, path: Arc<Path>, table: PageTable, blocks: u64) -> CachedFile {
        let (blocks, fate) = (AtomicU64::new(blocks), AtomicU32::new(OPEN));
        CachedFile { id, path, table, blocks, fate, resize: Mutex::new(0) }
    }

    pub(crate) fn tag(&self, block: Block) -> PageTag {
        PageTag { file: self.id, block }
    }

    /// Blocks in the file; block numbers are 32 bits, and so is their count.
    pub(crate) fn blocks(&self) -> Block {
        // SeqCst: see `Entry::list`.
        self.blocks.load(Ordering::SeqCst) as Block
    }

    /// The file is longer now. By whoever has the right to resize it.
    pub(crate) fn grown_to(&self, blocks: u64) {
        self.blocks.store(blocks, Ordering::SeqCst);
    }

    /// Refuses blocks that are not there. As [`CachedFile::check_open`], for callers with nothing half done.
    pub(crate) fn check(&self, block: Block) -> Result<(), Error> {
        self.check_open()?;
        self.check_length(block)
    }

    /// As [`CachedFile::check`], and never waits; `None` while the file is being closed ([RSZ-2]).
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

    /// As [`CachedFile::check_open`], and never waits; `None` while the file is being closed ([RSZ-2]).
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

    /// The right to change the file's size or its fate. Held across I/O.
    pub(crate) fn resizing(&self) -> MutexGuard<'_, u64> {
        // The count is whole after any panic.
        lock(&self.resize)
    }

    /// Waits for whoever is changing the file's size or its fate.
    pub(crate) fn wait_resized(&self) {
        drop(self.resizing());
    }
}

impl Cache {
    /// The file is `blocks` blocks long now: throws away every page beyond. By whoever has the right to resize
    /// it, before it is cut on disk.
    pub(crate) fn cut<D: Disk>(&self, disk: &D, file: &D::File, blocks: Block) {
        file.blocks.store(u64::from(blocks), Ordering::SeqCst);
        self.discard_from(disk, file, blocks);
    }

    /// The file is dropped: throws away all its pages. By whoever has the right to resize it.
    pub(crate) fn drop_pages<D: Disk>(&self, disk: &D, file: &D::File) {
        file.fate.store(DROPPED, Ordering::SeqCst);
        self.discard_from(disk, file, 0);
    }

    /// Throws away every page from `first` on.
    fn discard_from<D: Disk>(&self, disk: &D, file: &D::File, first: Block) {
        // With its counterpart in `Cache::list`: one of the two sees the other.
        fence(Ordering::SeqCst);
        for (block, frame) in file.table.listed_from(first) {
            let entry = file.table.entry(block);
            let mut frame = frame;
            while frame != NO_FRAME {
                let discarded = self.frames.discard(
                    frame,
                    file.tag(block),
                    || entry.unlist(frame),
                    |frame| self.wait_read(disk, file, frame),
                );
                match discarded {
                    Some(Discarded { pinned, dirty }) => {
                        if pinned {
                            disk.counters().count_pool(PoolEvent::Doomed);
                        }
                        if dirty {
                            file.table.count_saved(block);
                        }
                    }
                    // Being evicted, or its load failing: its entry is about to go.
                    None => yield_now(),
                }
                frame = entry.frame();
            }
        }
    }

    /// Evicts every page, which must be clean and unpinned. Waits for a limited time for those who have one
    /// in passing.
    ///
    /// # Errors
    /// [`Error::Busy`] with the number of pages that stay.
    pub(crate) fn evict_all<D: Disk>(&self, disk: &D, file: &D::File) -> Result<(), Error> {
        // As in `discard_from`.
        fence(Ordering::SeqCst);
        let mut pages = 0;
        // The cleaner, or a reader in passing, may have a page for a moment.
        let start = disk.now();
        for (block, frame) in file.table.listed_from(0) {
            let (entry, tag) = (file.table.entry(block), file.tag(block));
            while entry.frame() == frame {
                let word = self.frames.get(frame).word();
                if let Some(owned) = self.frames.claim_page(frame, tag, USAGE_MAX) {
                    entry.unlist(frame);
                    drop(owned);
                } else if word.has(DIRTY) || disk.now().saturating_sub(start) >= self.frame_wait {
                    pages += 1;
                    break;
                } else {
                    // It may be on its way in, with nobody waiting for it.
                    disk.pause(PAUSE);
                }
            }
        }
        if pages == 0 { Ok(()) } else { Err(Error::Busy { file: Arc::clone(&file.path), pages }) }
    }
}

/// A close that may still fail; if it does, by an error or a panic, the file is open again.
pub(crate) struct Closing<'f>(&'f CachedFile);

impl<'f> Closing<'f> {
    /// From here on nothing is loaded. By whoever has the right to resize the file, which is open.
    pub(crate) fn begin(file: &'f CachedFile) -> Closing<'f> {
        let before = file.fate.swap(CLOSING, Ordering::SeqCst);
        assert_eq!(before, OPEN, "[RSZ-2] a close of a file that is not open");
        Closing(file)
    }

    pub(crate) fn succeeded(self) {
        self.0.fate.store(CLOSED, Ordering::SeqCst);
    }
}

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        let (from, to, order) = (CLOSING, OPEN, Ordering::SeqCst);
        let _ = self.0.fate.compare_exchange(from, to, order, order);
    }
}
