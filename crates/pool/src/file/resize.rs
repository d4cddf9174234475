//! Making files longer, shorter, and gone, while others read them.
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

use std::ops::Range;
use std::sync::atomic::{Ordering, fence};
use std::sync::{MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::{BLOCKS_MAX, CLOSED, CLOSING, DROPPED, FileCore, OPEN};
use crate::core::Core;
use crate::error::Error;
use crate::frame::word::{DIRTY, USAGE_MAX};
use crate::frame::{Discarded, NO_FRAME};
use crate::stats::PoolEvent;
use crate::sync::yield_now;
use crate::tag::Block;

/// Pause before a page that somebody has is looked at again.
const PAUSE: Duration = Duration::from_micros(100);

impl FileCore {
    fn resizing(&self) -> MutexGuard<'_, u64> {
        // The count is whole after any panic.
        self.resize.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for whoever is changing the file's size or its fate.
    pub(crate) fn wait_resized(&self) {
        drop(self.resizing());
    }

    /// Makes the file longer by `count` blocks of zeroes. Gives the new blocks.
    pub(crate) fn extend(&self, count: Block) -> Result<Range<Block>, Error> {
        self.extend_counted(count).map(|(blocks, _)| blocks)
    }

    /// As [`FileCore::extend`]; also gives how often the file has been resized, this time included.
    pub(crate) fn extend_counted(&self, count: Block) -> Result<(Range<Block>, u64), Error> {
        self.check_writable()?;
        let mut resized = self.resizing();
        self.check_open()?;
        self.space.check_sound()?;
        let from = u64::from(self.blocks());
        let to = from + u64::from(count);
        if to > BLOCKS_MAX {
            let (file, end) = (self.path.clone(), to.saturating_mul(self.segments.page_bytes()));
            return Err(Error::Io(forebay_io::Error::TooLarge { file, end }));
        }
        let extended = self.segments.extend(from, to);
        self.changed();
        extended.map_err(|error| match error {
            Error::Io(error) if error.is_failed_sync() => self.space.sync_failed(error),
            error => error,
        })?;
        self.blocks.store(to, Ordering::SeqCst);
        *resized += 1;
        Ok((from as Block..to as Block, *resized))
    }

    /// Makes the file `blocks` blocks long, if it is longer.
    pub(crate) fn truncate(&self, core: &Core, blocks: Block) -> Result<(), Error> {
        self.check_writable()?;
        let mut resized = self.resizing();
        self.check_open()?;
        self.space.check_sound()?;
        if blocks >= self.blocks() {
            return Ok(());
        }
        *resized += 1;
        self.blocks.store(u64::from(blocks), Ordering::SeqCst);
        self.discard_from(core, blocks);
        let truncated = self.segments.truncate(u64::from(blocks));
        self.changed();
        self.space.torn.truncated(self.id, blocks, self.changes());
        self.table.forget_images_from(blocks);
        truncated
    }

    /// Takes back the extension by `block`, if nobody has resized the file since it was counted as
    /// number `extension`.
    pub(crate) fn retract(&self, core: &Core, block: Block, extension: u64) -> Result<(), Error> {
        let mut resized = self.resizing();
        self.check_open()?;
        self.space.check_sound()?;
        if *resized != extension {
            return Ok(());
        }
        *resized += 1;
        self.blocks.store(u64::from(block), Ordering::SeqCst);
        self.discard_from(core, block);
        let truncated = self.segments.truncate(u64::from(block));
        self.changed();
        self.space.torn.truncated(self.id, block, self.changes());
        self.table.forget_images_from(block);
        truncated
    }

    /// Takes the file out of the pool and off the disk.
    pub(crate) fn drop_file(&self, core: &Core) -> Result<(), Error> {
        self.check_writable()?;
        let _right = self.resizing();
        self.check_open()?;
        self.fate.store(DROPPED, Ordering::SeqCst);
        self.discard_from(core, 0);
        core.files.forget(self, || self.segments.remove())
    }

    /// Throws away every page from `first` on.
    fn discard_from(&self, core: &Core, first: Block) {
        // With its counterpart in `Core::bring_in`: one of the two sees the other.
        fence(Ordering::SeqCst);
        for (block, frame) in self.table.listed_from(first) {
            let entry = self.table.entry(block);
            let mut frame = frame;
            while frame != NO_FRAME {
                let discarded = core.frames.discard(
                    frame,
                    self.tag(block),
                    || entry.unlist(frame),
                    |frame| core.wait_read(&self.space, frame),
                );
                match discarded {
                    Some(Discarded { pinned, dirty }) => {
                        if pinned {
                            core.counters.count_pool(PoolEvent::Doomed);
                        }
                        if dirty {
                            self.table.count_saved(block);
                        }
                    }
                    // Being evicted, or its load failing: its entry is about to go.
                    None => yield_now(),
                }
                frame = entry.frame();
            }
        }
    }

    /// Closes the file, which has been written and synced: takes its pages out of the pool.
    pub(crate) fn close(&self, core: &Core) -> Result<(), Error> {
        let _right = self.resizing();
        self.check_open()?;
        self.evict_all(core)?;
        // From here on nothing is loaded; what was loaded since the first pass goes in a second.
        let closing = Closing::begin(self);
        self.evict_all(core)?;
        // What was written since the caller's sync: no checkpoint will know this file any more.
        let written = !self.is_read_only() && self.unsynced().is_some();
        if written || self.space.torn.awaits_sync(self.id) {
            core.sync_file(self)?;
        }
        self.give_back_space();
        closing.succeeded();
        core.files.forget(self, || Ok(()))
    }

    /// Gives back the space that is reserved beyond the end, if the filesystem lets it. By who has the right
    /// to resize, or when nobody has the pool any more.
    pub(crate) fn give_back_space(&self) {
        if let Err(error) = self.segments.give_back() {
            tracing::debug!(%error, "space stays reserved beyond the end of a file");
        }
    }

    /// Evicts every page, which must be clean and unpinned.
    fn evict_all(&self, core: &Core) -> Result<(), Error> {
        // As in `discard_from`.
        fence(Ordering::SeqCst);
        let mut pages = 0;
        // The cleaner, or a reader in passing, may have a page for a moment.
        let start = core.clock.now();
        for (block, frame) in self.table.listed_from(0) {
            let (entry, tag) = (self.table.entry(block), self.tag(block));
            while entry.frame() == frame {
                let word = core.frames.get(frame).word();
                if let Some(owned) = core.frames.claim_page(frame, tag, USAGE_MAX) {
                    entry.unlist(frame);
                    drop(owned);
                } else if word.has(DIRTY)
                    || core.clock.now().saturating_sub(start) >= core.frame_wait
                {
                    pages += 1;
                    break;
                } else {
                    // It may be on its way in, with nobody waiting for it.
                    self.space.poll();
                    thread::sleep(PAUSE);
                }
            }
        }
        if pages == 0 { Ok(()) } else { Err(Error::Busy { file: self.path.clone(), pages }) }
    }
}

/// A close that may still fail; if it does, by an error or a panic, the file is open again.
struct Closing<'f>(&'f FileCore);

impl<'f> Closing<'f> {
    fn begin(file: &'f FileCore) -> Closing<'f> {
        let before = file.fate.swap(CLOSING, Ordering::SeqCst);
        assert_eq!(before, OPEN, "[RSZ-2] a close of a file that is not open");
        Closing(file)
    }

    fn succeeded(self) {
        self.0.fate.store(CLOSED, Ordering::SeqCst);
    }
}

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        let (from, to, order) = (CLOSING, OPEN, Ordering::SeqCst);
        let _ = self.0.fate.compare_exchange(from, to, order, order);
    }
}
