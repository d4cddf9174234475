//! Backups: pages as they are on disk or will be, each a consistent image, while others go on changing them.
//!
//! A program that copies a file without the pool reads half-written pages, and misses all changes that are only in
//! memory. Here each page comes through the pool, is copied under its shared latch, and encoded and stamped like a copy
//! that is written. The copy is passed to the caller, so nothing is held while the backup itself is written.
//!
//! The images are from different moments. The log makes them a database: all of them contain every change from before
//! the redo point at which the backup began, and none contains a change that is not in the log.
//!
//! Invariants:  [BKP-1] an image is the page at one moment, with no half-made change
//!              [BKP-2] the log is durable up to every change in the images when the backup returns
//! Concurrency: latches one page at a time while it copies it, and nothing while the caller has the image.
//! Source:      PostgreSQL's pg_basebackup, for the two ends of the log.

use std::ops::Range;
use std::sync::Arc;

use super::options::StreamOptions;
use super::paged_file::PagedFile;
use crate::error::{Error, Fate};
use crate::strategy_kind::StrategyKind;
use crate::tag::{Block, Lsn};

impl PagedFile {
    /// Passes the image of every block of `blocks` to `each`, in their order: its page as it is on disk or would be
    /// written now, encoded and with its checksum, as one consistent image. Others read, change and write pages
    /// meanwhile.
    ///
    /// Returns the LSN up to which the log must be replayed after these images are restored; the log is durable that
    /// far. Replay starts at a redo point that was valid when the first image was taken:
    ///
    /// 1. take a checkpoint; its [`redo`](crate::CheckpointReport::redo) is where the replay starts (or use that of the
    ///    last completed checkpoint); keep the log from there;
    /// 2. back up each file, and finally those that were created meanwhile;
    /// 3. keep the log up to the largest LSN that was returned, or further.
    ///
    /// A page of zeroes is an image like others, also in a file that rejects it when it is read: it was extended and
    /// not written, or its write was lost.
    ///
    /// Without a log the images are consistent only if no thread changes anything meanwhile. Pages are read as by a
    /// bulk read, through a ring of frames. Blocks that are past the end of the file, or truncated meanwhile, are left
    /// out: replaying the log handles them.
    ///
    /// # Errors
    /// The error of `each`. As [`PagedFile::read`]: a damaged block ends the backup, which may be continued after it.
    /// [`Error::Log`]. [`Error::ReadOnly`] in a read-only tablespace: its pages in the pool may be older than the redo
    /// point, and the log belongs to another pool.
    pub fn backup<E: From<Error>>(
        &self,
        blocks: Range<Block>,
        mut each: impl FnMut(Block, &[u8]) -> Result<(), E>,
    ) -> Result<Lsn, E> {
        if self.file().space.read_only {
            return Err(Error::ReadOnly { file: Arc::clone(&self.file().path) }.into());
        }
        let core = self.core();
        let (mut image, mut newest) = (vec![0; core.page_bytes()], Lsn::NONE);
        let blocks = blocks.start..blocks.end.min(self.blocks());
        let options = StreamOptions::new().access(StrategyKind::BulkRead);
        for page in self.scan_with(blocks, &options) {
            let block = match page {
                Ok(page) => {
                    newest = newest.max(page.lsn());
                    image.copy_from_slice(&page);
                    page.block()
                }
                Err(failed) => match failed.error {
                    // Never written, in a file that does not accept such a page.
                    Error::Corrupt { all_zeroes: true, block, .. } => {
                        each(block, &vec![0; image.len()])?;
                        continue;
                    }
                    Error::PastEnd { .. } | Error::Invalidated { how: Fate::Truncated, .. } => {
                        continue;
                    }
                    error => return Err(error.into()),
                },
            };
            self.file().encode_page(&mut image, block);
            each(block, &image)?;
        }
        core.flush_log_to(newest)?;
        // The log of a page that was written and read again meanwhile was flushed before that.
        Ok(core.wal.as_ref().map_or(Lsn::NONE, |wal| wal.flushed()))
    }
}
