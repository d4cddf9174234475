//! Making files longer, shorter, and gone: on disk, and with that in the cache (`cache::file` says how others are
//! kept from what goes).
//!
//! Concurrency: one thread at a time resizes or closes a file.

use std::ops::Range;

use super::file::{BLOCKS_MAX, FileCore};
use crate::cache::file::{Appended, Closing};
use crate::core::Core;
use crate::error::Error;
use crate::tag::Block;

/// An append under way: the block is there, and its page is to be made.
pub(crate) struct Appending<'f> {
    file: &'f FileCore,
    pub(crate) appended: Appended,
}

impl Drop for Appending<'_> {
    fn drop(&mut self) {
        self.file.forget_appended(self.appended);
    }
}

impl FileCore {
    /// Makes the file longer by `count` blocks of zeroes. Gives the new blocks.
    pub(crate) fn extend(&self, count: Block) -> Result<Range<Block>, Error> {
        self.check_writable()?;
        let mut resized = self.resizing();
        self.lengthen(&mut resized, count)
    }

    /// Makes the file one block longer, for the thread that is to make its page.
    pub(crate) fn append(&self) -> Result<Appending<'_>, Error> {
        self.check_writable()?;
        let mut resized = self.resizing();
        let block = self.lengthen(&mut resized, 1)?.start;
        let appended = Appended { block, resize: *resized };
        self.set_appended(appended);
        Ok(Appending { file: self, appended })
    }

    /// As [`FileCore::extend`], by the thread that has the right to resize.
    fn lengthen(&self, resized: &mut u64, count: Block) -> Result<Range<Block>, Error> {
        self.check_open()?;
        self.space.check_sound()?;
        self.finish_cut()?;
        let from = u64::from(self.blocks());
        let to = from + u64::from(count);
        if to > BLOCKS_MAX {
            let (file, end) = (self.path.clone(), to.saturating_mul(self.segments.page_bytes()));
            return Err(Error::Io(forebay_io::Error::TooLarge { file, end }));
        }
        let extended = self.segments.extend(from, to);
        self.changed();
        self.latched(extended)?;
        self.set_blocks(to);
        *resized += 1;
        Ok(from as Block..to as Block)
    }

    /// What came of a change of files and names: a sync that failed in it is the tablespace's.
    fn latched(&self, changed: Result<(), Error>) -> Result<(), Error> {
        changed.map_err(|error| match error {
            Error::Io(error) if error.is_failed_sync() => self.space.sync_failed(error),
            error => error,
        })
    }

    /// Makes the file `blocks` blocks long, if it is longer.
    pub(crate) fn truncate(&self, core: &Core, blocks: Block) -> Result<(), Error> {
        self.check_writable()?;
        let mut resized = self.resizing();
        self.check_open()?;
        self.space.check_sound()?;
        if blocks >= self.blocks() {
            return self.finish_cut();
        }
        *resized += 1;
        core.cache.cut(core, self, blocks);
        self.table.forget_images_from(blocks);
        self.cut_segments()
    }

    /// Cuts off what lies beyond the end on disk. By who has the right to resize.
    fn cut_segments(&self) -> Result<(), Error> {
        let blocks = self.blocks();
        let truncated = self.segments.truncate(u64::from(blocks));
        self.changed();
        if truncated.is_ok() {
            self.space.torn.truncated(self.id, blocks, self.changes());
        }
        self.latched(truncated)
    }

    /// As [`FileCore::cut_segments`], if that has failed before ([SEG-3]).
    fn finish_cut(&self) -> Result<(), Error> {
        self.segments.check_cut().or_else(|_| self.cut_segments())
    }

    /// Before a sync: has the file on disk end where it ends, if a truncation has left it longer.
    pub(crate) fn settle_length(&self) -> Result<(), Error> {
        if self.segments.check_cut().is_ok() {
            return Ok(());
        }
        let _right = self.resizing();
        self.check_open()?;
        self.space.check_sound()?;
        self.finish_cut()
    }

    /// Opens a read-only file again, and has all its pages read again.
    pub(crate) fn refresh(&self, core: &Core) -> Result<Block, Error> {
        if !self.is_read_only() {
            return Err(Error::Setting {
                setting: "a file to refresh",
                value: format!("{}, open for writing", self.path.display()),
                expected:
                    "the pool knows what it has written; open it read-only to follow another's \
                           writes"
                        .to_owned(),
            });
        }
        let mut resized = self.resizing();
        self.check_open()?;
        let blocks = self.segments.open_again()?.min(BLOCKS_MAX);
        *resized += 1;
        core.cache.refresh(core, self, blocks);
        Ok(blocks as Block)
    }

    /// Takes back a block that was appended, if nobody has resized the file since.
    pub(crate) fn retract(&self, core: &Core, appended: Appended) -> Result<(), Error> {
        let mut resized = self.resizing();
        self.check_open()?;
        self.space.check_sound()?;
        if *resized != appended.resize {
            return Ok(());
        }
        *resized += 1;
        let block = appended.block;
        core.cache.cut(core, self, block);
        self.table.forget_images_from(block);
        self.cut_segments()
    }

    /// Takes the file out of the pool and off the disk.
    pub(crate) fn drop_file(&self, core: &Core) -> Result<(), Error> {
        self.check_writable()?;
        let _right = self.resizing();
        self.check_open()?;
        core.cache.drop_pages(core, self);
        core.files.forget(self, || self.latched(self.segments.remove()))
    }

    /// Closes the file, which has been written and synced: takes its pages out of the pool.
    pub(crate) fn close(&self, core: &Core) -> Result<(), Error> {
        let _right = self.resizing();
        self.check_open()?;
        self.finish_cut()?;
        core.cache.evict_all(core, self)?;
        // From here on nothing is loaded; what was loaded since the first pass goes in a second.
        let closing = Closing::begin(self);
        core.cache.evict_all(core, self)?;
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
}
