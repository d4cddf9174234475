//! The cache's view of a file: its page table, its length and its fate, while it is truncated, closed or dropped and
//! others read it.
//!
//! A thread that shortens a file first publishes that (the new length, or the fate), then goes through the page table
//! and discards the pages beyond; a thread that loads a page first maps it, then checks the length. So one of the two
//! sees the other, and no page beyond the end stays behind.
//!
//! Threads that have a discarded page pinned keep it until they release it; it is never written.
//!
//! A close may fail when it is nearly done: a page is in use, or the last sync fails. Until it can no longer fail the
//! file is *closing*: a thread that checks whether it is open waits for the right to resize it and checks again. The
//! closing thread in turn waits for the pages of the file. Therefore
//! - a thread that has mapped a page as loading, holds copies, or has the right to open files checks without waiting; a
//!   loader that finds the file closing removes its page again, then waits while it holds nothing;
//! - a caller may hold pages of this file, or of another one that is closing, while it waits here. The close waits for
//!   pages for a limited time, so it fails (`Busy`) and the caller goes on.
//!
//! Invariants:  [RSZ-1] after a truncation no page beyond the end is in the table, and none is written
//!              [RSZ-2] no caller gets an error for a closed file from a close that may still fail, and a close waits
//!              for no load whose loader waits for the close
//!              [RSZ-3] an appended block is visible to no other thread before the appending thread has its page
//! Concurrency: one thread at a time resizes or closes a file; it waits for the I/O of the pages it
//!              discards, and for no latch.

use std::path::Path;
use std::sync::Arc;

use super::table::PageTable;
use crate::error::{Error, Fate};
use forebay_io::Owner;

use crate::observe::stats::FileCounts;
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Mutex, MutexGuard, Ordering, lock};
use crate::tag::{Block, FileId, PageTag};

/// Fates, as kept in an atomic.
const OPEN: u32 = 0;
const DROPPED: u32 = 1;
const CLOSED: u32 = 2;
/// It will be closed, or open again: the thread that has the right to resize it is about to decide.
const CLOSING: u32 = 3;

/// The cache's state of an open file.
pub(crate) struct CachedFile {
    pub(crate) id: FileId,
    pub(crate) path: Arc<Path>,
    pub(crate) table: PageTable,
    pub(crate) counts: FileCounts,
    blocks: AtomicU64,
    fate: AtomicU32,
    /// Its pages are discarded only by refreshes: it is read-only.
    refreshed: AtomicBool,
    /// The right to change the file's size or its fate.
    resize: Mutex<()>,
    owner: Owner,
}

impl CachedFile {
    /// An open file of `blocks` blocks, none of them in memory.
    pub(crate) fn new(id: FileId, path: Arc<Path>, table: PageTable, blocks: u64) -> CachedFile {
        let (blocks, fate) = (AtomicU64::new(blocks), AtomicU32::new(OPEN));
        let (counts, refreshed) = (FileCounts::default(), AtomicBool::new(false));
        let (resize, owner) = (Mutex::new(()), Owner::this());
        CachedFile { id, path, table, counts, blocks, fate, refreshed, resize, owner }
    }

    #[inline]
    pub(crate) fn tag(&self, block: Block) -> PageTag {
        PageTag { file: self.id, block }
    }

    /// Blocks in the file; block numbers have 32 bits, and so has their count.
    pub(crate) fn blocks(&self) -> Block {
        // SeqCst: see `Place::map`.
        self.blocks.load(Ordering::SeqCst) as Block
    }

    /// Sets the file's length. Called by the thread that has the right to resize it.
    pub(crate) fn set_blocks(&self, blocks: u64) {
        self.blocks.store(blocks, Ordering::SeqCst);
    }

    /// The file was refreshed, and has this length. Called by the thread that has the right to resize it, which then
    /// discards its pages.
    pub(super) fn set_refreshed(&self, blocks: u64) {
        self.refreshed.store(true, Ordering::SeqCst);
        self.set_blocks(blocks);
    }

    /// The file is dropped. Called by the thread that has the right to resize it.
    pub(super) fn set_dropped(&self) {
        self.fate.store(DROPPED, Ordering::SeqCst);
    }

    /// Rejects blocks that do not exist. As [`CachedFile::check_open`], for callers with nothing half done.
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

    /// Fails in a child that was forked from the process that has the file open.
    pub(crate) fn check_owner(&self) -> Result<(), Error> {
        if self.owner.is_this() { Ok(()) } else { Err(Error::Forked) }
    }

    /// Rejects a file that was dropped or closed, and one of another process. Waits for the result of a close in
    /// progress.
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
        if let Err(forked) = self.check_owner() {
            return Some(Err(forked));
        }
        match self.fate.load(Ordering::SeqCst) {
            OPEN => Some(Ok(())),
            CLOSING => None,
            DROPPED => Some(Err(self.invalidated(Fate::Dropped))),
            _ => Some(Err(self.invalidated(Fate::Closed))),
        }
    }

    /// The error for a page that the table no longer points to.
    pub(crate) fn page_invalidated(&self) -> Error {
        let invalidated = self.check_open_now().and_then(Result::err);
        let refreshed = self.refreshed.load(Ordering::SeqCst);
        let how = if refreshed { Fate::Refreshed } else { Fate::Truncated };
        invalidated.unwrap_or_else(|| self.invalidated(how))
    }

    fn invalidated(&self, how: Fate) -> Error {
        Error::Invalidated { file: Arc::clone(&self.path), how }
    }

    /// The right to change the file's size or its fate. Held across I/O.
    pub(crate) fn resizing(&self) -> MutexGuard<'_, ()> {
        lock(&self.resize)
    }

    /// Waits for the thread that is changing the file's size or its fate.
    pub(crate) fn wait_resized(&self) {
        drop(self.resizing());
    }
}

/// A close that may still fail; if it does, by an error or a panic, the file is open again.
pub(crate) struct Closing<'f>(&'f CachedFile);

impl<'f> Closing<'f> {
    /// From here on nothing is loaded. Called by the thread that has the right to resize the file, which is open.
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
