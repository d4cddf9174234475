//! Backups: pages as they are on disk or will be, each of one piece, while others go on changing them.
//!
//! A program that copies a file past the pool meets pages that are half written, and none of what is in memory only.
//! Here each page comes through the pool, is copied under its shared latch, and encoded and stamped like a copy that is
//! written. It goes to the caller, so nothing is held while the backup itself is written.
//!
//! The images are of different moments. A log makes a database of them: all of them have every change from before
//! the redo point at which the backup began, and none has one that the log does not know of.
//!
//! Invariants:  [BKP-1] an image is the page at one moment, with no change of it half made
//!              [BKP-2] the log is durable up to every change in the images when the backup returns
//! Concurrency: latches one page at a time, for the time of a copy, and nothing while the caller has the image.
//! Source:      PostgreSQL's pg_basebackup, for the two ends of the log.

use std::ops::Range;
use std::sync::Arc;

use super::options::StreamOptions;
use super::paged_file::PagedFile;
use crate::error::{Error, Fate};
use crate::strategy_kind::StrategyKind;
use crate::tag::{Block, Lsn};

impl PagedFile {
    /// Gives `each` the image of every block of `blocks`, in their order: its page as it is on disk or would be written
    /// now, encoded and with its checksum, of one piece. Others read, change and write pages meanwhile.
    ///
    /// Returns how far the log has to be replayed after these images are restored; it is durable that far. It is to be
    /// replayed from a redo point that was valid when the first image was taken:
    ///
    /// 1. take a checkpoint; its [`redo`](crate::CheckpointReport::redo) is where the replay begins (or take that of the
    ///    last one that ended); keep the log from there;
    /// 2. back up each file, and at the end those that were made meanwhile;
    /// 3. keep the log up to the largest LSN that was returned, or further.
    ///
    /// A page of zeroes is an image like others, also in a file that refuses it when it is read: it was extended and not
    /// written, or its write was lost.
    ///
    /// Without a log the images are of a whole only if nobody changes anything meanwhile. Pages are read as by a bulk
    /// read, through a ring of frames. Blocks that are past the end of the file, or cut off meanwhile, are left out:
    /// what the log says of that is replayed.
    ///
    /// # Errors
    /// What `each` says. As [`PagedFile::read`]: a block that is damaged ends the backup, and it may be gone on with
    /// behind it. [`Error::Log`]. [`Error::ReadOnly`] in a tablespace that is only read: what the pool has of it may be
    /// older than the redo point, and the log is another's.
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
        for page in self.scan_with(blocks, &options)? {
            let block = match page {
                Ok(page) => {
                    newest = newest.max(page.lsn());
                    image.copy_from_slice(&page);
                    page.block()
                }
                Err(failed) => match failed.error {
                    // Never written, in a file that does not take such a page for one.
                    Error::Corrupt { all_zeroes: true, block, .. } => {
                        each(block, &vec![0; image.len()])?;
                        continue;
                    }
                    Error::PastEnd { .. } | Error::Gone { how: Fate::Truncated, .. } => continue,
                    error => return Err(error.into()),
                },
            };
            self.file().encode_page(&mut image, block);
            each(block, &image)?;
        }
        core.flush_log_to(newest)?;
        // What was written and read again meanwhile had its log flushed before that.
        Ok(core.wal.as_ref().map_or(Lsn::NONE, |wal| wal.flushed()))
    }
}
