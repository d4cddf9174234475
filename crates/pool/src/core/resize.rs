//! Extending, truncating and removing files: on disk, and then in the cache (`cache::file` describes how other threads
//! are kept from pages that are removed).
//!
//! Concurrency: one thread at a time resizes or closes a file.

use std::ops::Range;

use crate::cache::file::Closing;
use crate::cache::frame::FrameIndex;
use crate::cache::replacement::AccessStrategy;
use crate::core::Core;
use crate::error::Error;
use crate::store::file::{BLOCKS_MAX, FileCore};
use crate::sync::MutexGuard;
use crate::tag::Block;

impl FileCore {
    /// Waits for the right to resize the file. A child process would wait for a thread that does not exist in it.
    fn right_to_resize(&self) -> Result<MutexGuard<'_, ()>, Error> {
        self.check_owner()?;
        Ok(self.resizing())
    }

    /// Makes the file longer by `count` blocks of zeroes. Returns the new blocks.
    pub(crate) fn extend(&self, count: Block) -> Result<Range<Block>, Error> {
        self.check_writable()?;
        let _right = self.right_to_resize()?;
        let blocks = self.lengthen(count)?;
        self.set_blocks(blocks.end.into());
        Ok(blocks)
    }

    /// Makes the file one block longer. Returns the block and the frame of its page, all zero, pinned and latched
    /// exclusively.
    pub(crate) fn append(
        &self,
        core: &Core,
        strategy: &AccessStrategy,
    ) -> Result<(Block, FrameIndex), Error> {
        self.check_writable()?;
        self.check_owner()?;
        loop {
            // Before anything else: without a frame there is nothing to undo, and with it nothing more to wait for.
            let allocated = core.cache.allocate(core, strategy)?;
            let _right = self.right_to_resize()?;
            let block = self.lengthen(1)?.start;
            match core.cache.append(core, self, block, allocated, strategy) {
                Some(frame) => return Ok((block, frame)),
                None => self.cut_on_disk()?,
            }
        }
    }

    /// Makes the file longer on disk. Returns the new blocks. The caller has the right to resize, and then publishes
    /// them.
    fn lengthen(&self, count: Block) -> Result<Range<Block>, Error> {
        self.check_open()?;
        self.space.check_sound()?;
        self.finish_cut()?;
        let from = u64::from(self.blocks());
        let to = from + u64::from(count);
        if to > BLOCKS_MAX {
            let (file, end) = (self.path.clone(), to.saturating_mul(self.disk.page_bytes()));
            return Err(Error::Io(forebay_io::Error::TooLarge { file, end }));
        }
        let extended = self.disk.extend(from, to);
        self.changed();
        extended?;
        Ok(from as Block..to as Block)
    }

    /// Makes the file `blocks` blocks long, if it is longer.
    pub(crate) fn truncate(&self, core: &Core, blocks: Block) -> Result<(), Error> {
        self.check_writable()?;
        let _right = self.right_to_resize()?;
        self.check_open()?;
        self.space.check_sound()?;
        if blocks >= self.blocks() {
            return self.finish_cut();
        }
        // Before its pages are discarded.
        self.disk.check_reaches(u64::from(blocks))?;
        self.disk.is_named()?;
        core.cache.cut(core, self, blocks);
        self.table.forget_images_from(blocks);
        self.cut_on_disk()
    }

    /// Removes the part beyond the end on disk. The caller has the right to resize.
    fn cut_on_disk(&self) -> Result<(), Error> {
        let blocks = self.blocks();
        let truncated = self.disk.truncate(u64::from(blocks));
        self.changed();
        if truncated.is_ok() {
            self.space.torn.truncated(self.id, blocks, self.changes());
        }
        truncated
    }

    /// Repeats [`FileCore::cut_on_disk`], if that has failed before ([LEN-2]).
    fn finish_cut(&self) -> Result<(), Error> {
        self.disk.check_cut().or_else(|_| self.cut_on_disk())
    }

    /// Before a sync: truncates the file on disk to its length, if a truncation has left it longer.
    pub(crate) fn settle_length(&self) -> Result<(), Error> {
        if self.disk.check_cut().is_ok() {
            return Ok(());
        }
        let _right = self.right_to_resize()?;
        self.check_open()?;
        self.space.check_sound()?;
        self.finish_cut()
    }

    /// Opens a read-only file again, and makes all its pages be read again.
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
        let _right = self.right_to_resize()?;
        self.check_open()?;
        let blocks = core.files.open_again(self)?.min(BLOCKS_MAX);
        core.cache.refresh(core, self, blocks);
        Ok(blocks as Block)
    }

    /// Removes the file from the pool and from the disk.
    pub(crate) fn drop_file(&self, core: &Core) -> Result<(), Error> {
        self.check_writable()?;
        let _right = self.right_to_resize()?;
        self.check_open()?;
        // Before its pages are discarded.
        self.disk.is_named()?;
        core.cache.drop_pages(core, self);
        core.files.forget(self, || self.space.latched(self.disk.remove()))
    }

    /// Closes the file, which has been written and synced: removes its pages from the pool.
    pub(crate) fn close(&self, core: &Core) -> Result<(), Error> {
        let _right = self.right_to_resize()?;
        self.check_open()?;
        self.finish_cut()?;
        core.cache.evict_all(core, self)?;
        // From here on nothing is loaded; pages loaded since the first pass are evicted by a second one.
        let closing = Closing::begin(self);
        core.cache.evict_all(core, self)?;
        // Pages written since the caller's sync: no checkpoint will know this file any more.
        let written = !self.is_read_only() && self.unsynced().is_some();
        if written || self.space.torn.awaits_sync(self.id) {
            core.sync_file(self)?;
        }
        self.give_back_space();
        closing.succeeded();
        core.files.forget(self, || Ok(()))
    }

    /// Releases the space that is reserved beyond the end, if the filesystem allows it. The caller has the right to
    /// resize, or the pool has no users any more.
    pub(crate) fn give_back_space(&self) {
        if let Err(error) = self.disk.give_back() {
            tracing::debug!(%error, "space stays reserved beyond the end of a file");
        }
    }
}
