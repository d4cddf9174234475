//! Pages that must be discarded: their file is truncated, dropped or closed. See `file` for how loads are prevented
//! meanwhile.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use super::frame::word::{DIRTY, USAGE_MAX};
use super::frame::{Discarded, NO_FRAME};
use super::{Cache, Disk};
use crate::error::Error;
use crate::observe::stats::PoolEvent;
use crate::strategy_kind::StrategyKind;
use crate::sync::{Ordering, fence, yield_now};
use crate::tag::Block;

/// Pause before a page in use is checked again.
const PAUSE: Duration = Duration::from_micros(100);

impl Cache {
    /// The file is `blocks` blocks long now: discards every page beyond. Called by the thread that has the right to
    /// resize it, before the file is truncated on disk.
    pub(crate) fn cut<D: Disk>(&self, disk: &D, file: &D::File, blocks: Block) {
        file.set_blocks(blocks.into());
        self.discard_from(disk, file, blocks);
    }

    /// The file is dropped: discards all its pages. Called by the thread that has the right to resize it.
    pub(crate) fn drop_pages<D: Disk>(&self, disk: &D, file: &D::File) {
        file.set_dropped();
        self.discard_from(disk, file, 0);
    }

    /// The file was refreshed, and is `blocks` blocks long: discards all its pages, to be read again. Called by the
    /// thread that has the right to resize it.
    pub(crate) fn refresh<D: Disk>(&self, disk: &D, file: &D::File, blocks: u64) {
        file.set_refreshed(blocks);
        self.discard_from(disk, file, 0);
    }

    /// Discards every page from `first` on.
    fn discard_from<D: Disk>(&self, disk: &D, file: &D::File, first: Block) {
        // Paired with the one in `Cache::map`: one of the two sees the other.
        fence(Ordering::SeqCst);
        let idle = Cell::new(false);
        for (block, frame) in file.table.mapped_from(first) {
            let entry = file.table.entry(block);
            let mut frame = frame;
            while frame != NO_FRAME {
                let discarded = self.frames.discard(
                    frame,
                    file.tag(block),
                    || idle.set(entry.unmap(frame) || idle.get()),
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
                    // Being evicted, or its load failing: its entry is about to be removed.
                    None => yield_now(),
                }
                frame = entry.frame();
            }
        }
        if idle.get() {
            disk.tables_are_idle();
        }
    }

    /// Removes the page `block` from memory, after writing it if it is dirty. False if it is not in memory, or in use.
    pub(crate) fn evict<D: Disk>(
        &self,
        disk: &D,
        file: &D::File,
        block: Block,
    ) -> Result<bool, Error> {
        let (entry, tag) = (file.table.entry(block), file.tag(block));
        let frame = entry.frame();
        if frame == NO_FRAME {
            return Ok(false);
        }
        disk.write_page(tag, frame, StrategyKind::Normal)?;
        let Some(owned) = self.frames.claim_page(frame, tag, USAGE_MAX) else {
            return Ok(false);
        };
        if entry.unmap(frame) {
            disk.tables_are_idle();
        }
        drop(owned);
        Ok(true)
    }

    /// Evicts every page, which must be clean and unpinned. Waits for a limited time for threads that have one pinned
    /// briefly.
    ///
    /// # Errors
    /// [`Error::Busy`] with the number of pages that stay.
    pub(crate) fn evict_all<D: Disk>(&self, disk: &D, file: &D::File) -> Result<(), Error> {
        // As in `discard_from`.
        fence(Ordering::SeqCst);
        let mut pages = 0;
        // The cleaner, or a brief reader, may have a page for a moment.
        let start = disk.now();
        for (block, frame) in file.table.mapped_from(0) {
            let (entry, tag) = (file.table.entry(block), file.tag(block));
            while entry.frame() == frame {
                let word = self.frames.get(frame).word();
                if let Some(owned) = self.frames.claim_page(frame, tag, USAGE_MAX) {
                    entry.unmap(frame);
                    drop(owned);
                } else if word.has(DIRTY) || disk.now().saturating_sub(start) >= self.frame_wait {
                    pages += 1;
                    break;
                } else {
                    // It may be loading, with no thread waiting for it.
                    disk.pause(PAUSE);
                }
            }
        }
        if pages == 0 { Ok(()) } else { Err(Error::Busy { file: Arc::clone(&file.path), pages }) }
    }
}
