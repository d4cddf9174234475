//! The log hook: no page is written before the log that describes its changes.
//!
//! The pool only knows LSNs. Before it writes a page it calls the log to make it durable up to the page's newest
//! change; if the log fails, the page stays dirty in memory.

use std::error::Error;
use std::fmt;

use crate::tag::{Block, Lsn};

/// A write-ahead log, as far as a pool needs one.
///
/// Called from any thread that needs a frame, from the cleaner and from checkpoints; never with a latch taken by the
/// pool itself, but possibly with latches of the engine: the calling thread may be about to read one page with another
/// one latched. An implementation must not use the pool that calls it: the caller may be the only thread that could
/// free the frame it would wait for.
pub trait Wal: fmt::Debug + Send + Sync {
    /// Makes the log durable at least up to and including `lsn`.
    ///
    /// # Errors
    /// The reason why the log could not be made durable. The page is then not written.
    fn flush_to(&self, lsn: Lsn) -> Result<(), Box<dyn Error + Send + Sync>>;

    /// Returns the newest record so far: every record appended after this call has a larger LSN. A checkpoint uses it
    /// as its redo point, and fails if it is less than at an earlier one: recovery must redo what was logged after it.
    /// The difference of two positions is used as bytes of log. `u64::MAX` is not a position: the checkpoint fails.
    ///
    /// A page that was changed and not [marked](crate::PageMut::mark_dirty) is not written before the log is durable up
    /// to its position at the time the guard is dropped. So this is also called with a latch held: it must not wait for
    /// one, and the thread that drops such a guard must not hold a lock that this takes. If it panics then, the page
    /// stays dirty until the log is [durable](Wal::flushed) up to `u64::MAX`.
    ///
    /// A change of a page may be logged before it is marked, because the page is latched exclusively until then, and a
    /// checkpoint waits for that. Files have no such latch: create or extend one before the corresponding record is
    /// appended, so that a recovery that finds the record after a redo point finds the change synced (see
    /// [`PagedFile::extend`](crate::PagedFile::extend)); truncate or remove one after it, and let no checkpoint begin
    /// between the two (see [`PagedFile::truncate`](crate::PagedFile::truncate)).
    fn position(&self) -> Lsn;

    /// A checkpoint has succeeded: every change logged up to `redo` is in the files, and durable. The implementation
    /// must make `redo` durable (for example in a control file) before this returns; only then may the log up to `redo`
    /// be removed. Called by the checkpoint thread, one call at a time. Default: does nothing.
    ///
    /// # Errors
    /// The reason why it could not be made durable. Then the checkpoint has failed.
    fn checkpointed(&self, redo: Lsn) -> Result<(), Box<dyn Error + Send + Sync>> {
        let _ = redo;
        Ok(())
    }

    /// Returns the LSN up to which the log is already durable. Must be cheap: a bulk read calls it before it decides
    /// whether to reuse a dirty frame of its ring.
    fn flushed(&self) -> Lsn;

    /// Appends the whole page as it is about to be written, and returns the record's LSN. Called only with
    /// [`TornPages::Images`](crate::TornPages::Images), for the first write of a page after a redo point; the pool then
    /// flushes the log that far before it writes the page.
    ///
    /// The image is from a moment before this call: records of later changes of the page may precede it in the log. So
    /// recovery restores a torn page from its newest image, wherever in the log that is, and applies to it every record
    /// that is newer than the page's own LSN *in the image*.
    ///
    /// # Errors
    /// The reason why the log could not be written. The page is then not written. By default, that there is no such
    /// record.
    fn append_image(&self, image: &PageImage<'_>) -> Result<Lsn, Box<dyn Error + Send + Sync>> {
        let _ = image;
        Err("this log takes no images of pages; implement `Wal::append_image`, or protect pages from \
             being torn in another way than by images"
            .into())
    }
}

/// A page as it is about to be written, for the log.
#[derive(Clone, Copy)]
pub struct PageImage<'a> {
    /// The name of its tablespace.
    pub tablespace: &'a str,
    /// The name of its file in the tablespace.
    pub file: &'a str,
    /// Its position in the file.
    pub block: Block,
    /// The page as it is on disk: encoded by the file's [`PageCodec`](crate::PageCodec), if it has one, and with its
    /// checksum. It must be decoded to restore the page.
    pub bytes: &'a [u8],
}

impl fmt::Debug for PageImage<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PageImage { tablespace, file, block, bytes } = self;
        write!(out, "PageImage({tablespace}, {file}, {block}, {} bytes)", bytes.len())
    }
}
