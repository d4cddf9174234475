//! Copies of pages that are being written: see `writeback`.

use std::sync::Arc;

use forebay_io::Lease;

use super::buffers::Buffer;
use super::file::FileCore;
use super::torn::Slot;
use crate::cache::Cache;
use crate::cache::frame::{Copied, FrameIndex};
use crate::tag::{Block, Lsn};

/// A page that is being written, with the pin under which its frame was copied.
///
/// If it is dropped before its write has succeeded, the page is as dirty as before ([OUT-2]); also when the log or a
/// codec panics.
pub(crate) struct PageCopy<'c> {
    cache: &'c Cache,
    file: Arc<FileCore>,
    written: bool,
    frame: FrameIndex,
    block: Block,
    copied: Copied,
    /// The number of the redo point before which every change is in the copy.
    redo: u64,
    buffer: Buffer<'c>,
    /// Where the page is kept in case its write is torn.
    slot: Option<Slot>,
}

impl<'c> PageCopy<'c> {
    /// A copy in `buffer`, which is still to be encoded, of the page in `frame`: WRITING is set there, and unset at the
    /// end. It contains every change before the redo point with the number `redo`.
    pub(crate) fn new(
        cache: &'c Cache,
        file: Arc<FileCore>,
        block: Block,
        (frame, copied): (FrameIndex, Copied),
        redo: u64,
        buffer: Buffer<'c>,
    ) -> PageCopy<'c> {
        PageCopy { cache, file, written: false, frame, block, copied, redo, buffer, slot: None }
    }

    /// Brings the copy into the form that it has on disk.
    pub(crate) fn encode(&mut self) {
        self.file.encode_page(self.buffer.bytes_mut(), self.block);
    }

    /// The LSN up to which the log must be durable before the copy may be written.
    pub(crate) fn lsn(&self) -> Lsn {
        self.copied.lsn
    }

    pub(crate) fn file(&self) -> &Arc<FileCore> {
        &self.file
    }

    pub(crate) fn block(&self) -> Block {
        self.block
    }

    /// The number of the redo point before which every change is in the copy.
    pub(crate) fn redo(&self) -> u64 {
        self.redo
    }

    /// The page as it is written: encoded, with its checksum.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.buffer.bytes()
    }

    /// The copy's memory, for a transfer; must be returned with [`PageCopy::settle`].
    pub(crate) fn lend(&mut self) -> Lease {
        self.buffer.lend()
    }

    /// Its transfer has ended: successfully if `written`.
    pub(crate) fn settle(&mut self, lease: Lease, written: bool) {
        self.give_back(lease);
        self.written = written;
    }

    /// A transfer other than that of the page itself has ended.
    pub(crate) fn give_back(&mut self, lease: Lease) {
        self.buffer.give_back(lease);
    }

    /// The page is kept in `slot` until its write has ended, and beyond.
    pub(crate) fn put_in_slot(&mut self, slot: Slot) {
        self.slot = Some(slot);
    }
}

impl Drop for PageCopy<'_> {
    fn drop(&mut self) {
        if self.written {
            // Before the page counts as saved: a thread that sees it saved must see that the file needs a sync.
            self.file.changed();
        }
        // Before the page may be written again: that write's slot is the newer one.
        if let Some(slot) = self.slot.take() {
            self.file.space.torn.slot_ended(slot, self.file.changes(), self.written);
        }
        let failed = (!self.written).then_some(self.copied);
        self.cache.end_write(&self.file, self.block, self.frame, failed);
    }
}
