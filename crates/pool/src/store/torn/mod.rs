//! Torn pages: protection against pages that are half old and half new.
//!
//! A page is larger than the disk's atomic write unit, so a power cut in the middle of a write may leave some sectors
//! of it new and the others old. Its checksum detects that; this module keeps something to repair it from.
//!
//! | mode | cost | repaired by |
//! |---|---|---|
//! | [`TornPages::Images`] | each page is written again, to the log, once per checkpoint | the engine's recovery |
//! | [`TornPages::DoubleWrite`] | each page is written twice, one sync per batch | the opening of the tablespace |
//! | [`TornPages::Atomic`] | one request for each page | no repair needed |
//! | [`TornPages::Unprotected`] | nothing | no repair possible |
//!
//! The interface is one call, [`Torn::protect`], between the flush of the log and the write of a batch. It takes the
//! copies that are about to be written, including their checksums. A checkpoint, which prepares several batches, makes
//! the same call in three steps, so that they share a sync.
//!
//! Source:      PostgreSQL's full_page_writes, InnoDB's doublewrite buffer, Linux's RWF_ATOMIC. See
//!              docs/adr/0011-torn-pages.md.

mod atomic;
mod double_write;
mod images;
mod opening;
mod protect;

use std::str::FromStr;

use forebay_io::{File, Request};

pub(crate) use double_write::{NAME as DOUBLE_WRITE_NAME, Slot};
pub(crate) use opening::Opening;
pub(crate) use protect::{Staging, Waiting};

use crate::error::Error;
use crate::names::names;
use crate::store::checksum::Checksum;
use crate::tag::{Block, FileId};
use double_write::DoubleWrite;

/// The protection against pages left half written by a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TornPages {
    /// None: after a crash a page may be half old and half new. A checksum detects it, and only a backup repairs it.
    /// [`BufferPool::notes`](crate::BufferPool::notes) says so.
    Unprotected,
    /// A copy of each page in the log, before its first write after a redo point
    /// ([`Wal::append_image`](crate::Wal::append_image)); the engine's recovery repairs torn pages from
    /// there. Needs a log, checksums and checkpoints.
    Images,
    /// A copy of each page in a separate file, before the page itself is written; the pool repairs torn pages on its
    /// own when it is opened. Needs checksums.
    DoubleWrite,
    /// The disk writes each page completely or not at all. For direct files on filesystems and devices that guarantee
    /// it; elsewhere building the pool fails.
    Atomic,
}

names!(TornPages:
    Unprotected "unprotected", Images "images", DoubleWrite "double-write", Atomic "atomic"
);

pub(crate) const TORN_PAGES_NAMES: &str = "unprotected, images, double-write or atomic";

impl TornPages {
    /// Rejects pages without a checksum where torn pages must be detected.
    pub(crate) fn check_checksum(self, checksum: Checksum) -> Result<(), Error> {
        if checksum != Checksum::Off || matches!(self, TornPages::Unprotected | TornPages::Atomic) {
            return Ok(());
        }
        Err(Error::Setting {
            setting: "the checksum",
            value: "off".to_owned(),
            expected: format!(
                "with torn pages `{self}` a torn page must be distinguishable from a whole one: choose a checksum, or leave torn \
                 pages `unprotected`"
            ),
        })
    }
}

impl FromStr for TornPages {
    type Err = Error;

    fn from_str(name: &str) -> Result<TornPages, Error> {
        let found = TornPages::ALL.into_iter().find(|it| it.name() == name);
        found.ok_or_else(|| Error::Setting {
            setting: "torn pages",
            value: format!("{name:?}"),
            expected: format!("it should be {TORN_PAGES_NAMES}"),
        })
    }
}

/// The protection of the pages of one tablespace.
#[derive(Debug)]
pub(crate) enum Torn {
    Unprotected,
    Images,
    DoubleWrite(Box<DoubleWrite>),
    Atomic,
}

impl Torn {
    /// Repairs pages torn in an earlier run, whatever protects pages from now on, and sets up the protection. Returns
    /// notes for the user.
    ///
    /// # Errors
    /// [`Error::DoubleWrite`]; [`Error::Io`] with the filesystem's error.
    pub(crate) fn open(
        mode: TornPages,
        opening: &Opening<'_>,
    ) -> Result<(Torn, Vec<String>), Error> {
        let recovered = double_write::recover(opening)?;
        let mut notes = Vec::new();
        if recovered.repaired > 0 {
            let count = recovered.repaired;
            notes.push(format!("pages torn by a crash and repaired by double write: {count}"));
        }
        if recovered.lost > 0 {
            let count = recovered.lost;
            notes.push(format!(
                "pages that are damaged and have no good copy in the double-write file: {count}; \
                 restore them from the log or a backup"
            ));
        }
        let torn = match mode {
            TornPages::Unprotected => {
                recovered.remove(opening)?;
                notes.push(
                    "torn pages: unprotected; a crash may leave a page half written, which its \
                     checksum (if it has one) shows and only a backup repairs; choose another mode \
                     with `torn_pages`"
                        .to_owned(),
                );
                Torn::Unprotected
            }
            TornPages::Images => {
                recovered.remove(opening)?;
                Torn::Images
            }
            TornPages::Atomic => {
                recovered.remove(opening)?;
                atomic::check_tablespace(opening)?;
                Torn::Atomic
            }
            TornPages::DoubleWrite => {
                let it = DoubleWrite::open(opening, &recovered)?;
                Torn::DoubleWrite(Box::new(it))
            }
        };
        Ok((torn, notes))
    }

    /// Rejects a file whose pages could not be protected.
    pub(crate) fn check_file(&self, name: &str, checksum: Checksum) -> Result<(), Error> {
        self.mode().check_checksum(checksum)?;
        if matches!(self, Torn::DoubleWrite(_)) && name.len() > double_write::NAME_BYTES_MAX {
            return Err(Error::Setting {
                setting: "the name of a file",
                value: format!("{} bytes long", name.len()),
                expected: format!(
                    "with double write it should be at most {}",
                    double_write::NAME_BYTES_MAX
                ),
            });
        }
        Ok(())
    }

    fn mode(&self) -> TornPages {
        match self {
            Torn::Unprotected => TornPages::Unprotected,
            Torn::Images => TornPages::Images,
            Torn::DoubleWrite(_) => TornPages::DoubleWrite,
            Torn::Atomic => TornPages::Atomic,
        }
    }

    /// Rejects a file that does not support the required writes.
    pub(crate) fn check_support(&self, file: &File, page_bytes: usize) -> Result<(), Error> {
        match self {
            Torn::Atomic => atomic::check_file(file, page_bytes),
            Torn::Unprotected | Torn::Images | Torn::DoubleWrite(_) => Ok(()),
        }
    }

    /// Most pages in one request.
    pub(crate) fn run_pages_max(&self) -> usize {
        if let Torn::Atomic = self { 1 } else { usize::MAX }
    }

    /// The request that writes pages in place, with the required flags.
    pub(crate) fn in_place(&self, request: Request) -> Request {
        if let Torn::Atomic = self { atomic::whole(request) } else { request }
    }

    /// True if several batches are better made durable together than one after the other.
    pub(crate) fn prefers_coalescing(&self) -> bool {
        matches!(self, Torn::Images | Torn::DoubleWrite(_))
    }

    /// True if page tables must remember which pages have had an image.
    pub(crate) fn has_images(&self) -> bool {
        matches!(self, Torn::Images)
    }

    /// The write in place of the page that is kept in `slot` has ended, successfully if `written`; its file then had
    /// `changes` changes, including that one.
    pub(crate) fn slot_ended(&self, slot: Slot, changes: u64, written: bool) {
        if let Torn::DoubleWrite(it) = self {
            it.slot_ended(slot, changes, written);
        }
    }

    /// `file` was synced, by a sync submitted after `changes` changes of the file.
    pub(crate) fn synced(&self, file: FileId, changes: u64) {
        if let Torn::DoubleWrite(it) = self {
            it.synced(file, changes);
        }
    }

    /// True when a page of `file` was written since its last sync, as far as this protection needs it.
    pub(crate) fn awaits_sync(&self, file: FileId) -> bool {
        matches!(self, Torn::DoubleWrite(it) if it.awaits_sync(file))
    }

    /// The file was truncated to `blocks` blocks, as one of its `changes` changes.
    pub(crate) fn truncated(&self, file: FileId, blocks: Block, changes: u64) {
        if let Torn::DoubleWrite(it) = self {
            it.truncated(file, blocks, changes);
        }
    }

    /// The file is closed, durably, or removed.
    pub(crate) fn forget(&self, file: FileId) {
        if let Torn::DoubleWrite(it) = self {
            it.forget(file);
        }
    }

    /// The pool is closed, its files are closed and durable.
    pub(crate) fn rest(&self) {
        if let Torn::DoubleWrite(it) = self
            && let Err(error) = it.rest()
        {
            // The next opening checks pages in vain: they are intact.
            tracing::warn!(%error, "the double-write file was not laid to rest");
        }
    }

    /// Bytes reserved.
    pub(crate) fn memory_bytes(&self) -> usize {
        match self {
            Torn::DoubleWrite(it) => it.memory_bytes(),
            Torn::Unprotected | Torn::Images | Torn::Atomic => 0,
        }
    }
}
