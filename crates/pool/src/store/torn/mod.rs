//! Torn pages: what keeps a page from staying half old and half new.
//!
//! A page is larger than what a disk writes in one piece, so a power cut in the middle of a write may
//! leave some sectors of it new and the others old. Its checksum shows that; this module is about having
//! something to repair it from.
//!
//! | mode | what it costs | who repairs |
//! |---|---|---|
//! | [`TornPages::Images`] | each page once more, in the log, for each checkpoint | the engine's recovery |
//! | [`TornPages::DoubleWrite`] | each page once more, and a sync for each batch | the opening of the tablespace |
//! | [`TornPages::Atomic`] | one request for each page | nobody has to |
//! | [`TornPages::Unprotected`] | nothing | nobody can |
//!
//! All of it hangs on one call, [`Torn::protect`], between the flush of the log and the write of a batch. It
//! takes the copies that are about to be written, already stamped with their checksums. A checkpoint, which
//! has several batches in hand, makes the same call in three steps, so that they share a sync.
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

/// What keeps pages from being left half written by a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TornPages {
    /// Nothing: after a crash a page may be half old and half new. A checksum shows it, and only a
    /// backup repairs it. [`BufferPool::notes`](crate::BufferPool::notes) says so.
    Unprotected,
    /// A copy of each page in the log, before its first write after a redo point
    /// ([`Wal::append_image`](crate::Wal::append_image)); the engine's recovery repairs torn pages from
    /// there. Needs a log, checksums and checkpoints.
    Images,
    /// A copy of each page in a file of its own, before the page itself is written; the pool repairs torn
    /// pages by itself when it is opened. Needs checksums.
    DoubleWrite,
    /// The disk writes each page whole or not at all. For direct files on filesystems and devices that prove
    /// it; elsewhere the pool is not built.
    Atomic,
}

names!(TornPages:
    Unprotected "unprotected", Images "images", DoubleWrite "double-write", Atomic "atomic"
);

pub(crate) const TORN_PAGES_NAMES: &str = "unprotected, images, double-write or atomic";

impl TornPages {
    /// Refuses pages without a checksum where a torn one has to be told from a whole one.
    pub(crate) fn check_checksum(self, checksum: Checksum) -> Result<(), Error> {
        if checksum != Checksum::Off || matches!(self, TornPages::Unprotected | TornPages::Atomic) {
            return Ok(());
        }
        Err(Error::Setting {
            setting: "the checksum",
            value: "off".to_owned(),
            expected: format!(
                "with torn pages `{self}` a torn page has to be told from a whole one: choose a checksum, or leave torn \
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

/// What protects the pages of one tablespace.
#[derive(Debug)]
pub(crate) enum Torn {
    Unprotected,
    Images,
    DoubleWrite(Box<DoubleWrite>),
    Atomic,
}

impl Torn {
    /// Repairs what an earlier run left torn, whatever protects pages from now on, and sets that up.
    /// Gives what a user should know of it.
    ///
    /// # Errors
    /// [`Error::DoubleWrite`]; [`Error::Io`] with what the filesystem said.
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

    /// Refuses a file whose pages could not be protected.
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

    /// Refuses a file, made of `segments`, that cannot be written as it has to be.
    pub(crate) fn check_segments(&self, segments: &[File], page_bytes: usize) -> Result<(), Error> {
        match self {
            Torn::Atomic => segments.iter().try_for_each(|it| atomic::check_file(it, page_bytes)),
            Torn::Unprotected | Torn::Images | Torn::DoubleWrite(_) => Ok(()),
        }
    }

    /// Most pages in one request.
    pub(crate) fn run_pages_max(&self) -> usize {
        if let Torn::Atomic = self { 1 } else { usize::MAX }
    }

    /// The request that writes pages in place, as it has to be sent.
    pub(crate) fn in_place(&self, request: Request) -> Request {
        if let Torn::Atomic = self { atomic::whole(request) } else { request }
    }

    /// Whether several batches are better made durable together than one after the other.
    pub(crate) fn prefers_coalescing(&self) -> bool {
        matches!(self, Torn::Images | Torn::DoubleWrite(_))
    }

    /// Whether page tables have to remember which pages have had an image.
    pub(crate) fn has_images(&self) -> bool {
        matches!(self, Torn::Images)
    }

    /// The write in place of the page that is kept in `slot` has ended, well if `written`: when its file had so
    /// many changes, that one included.
    pub(crate) fn slot_ended(&self, slot: Slot, changes: u64, written: bool) {
        if let Torn::DoubleWrite(it) = self {
            it.slot_ended(slot, changes, written);
        }
    }

    /// Every segment of `file` was synced, by syncs submitted after so many changes of the file.
    pub(crate) fn synced(&self, file: FileId, changes: u64) {
        if let Torn::DoubleWrite(it) = self {
            it.synced(file, changes);
        }
    }

    /// True when a page of `file` was written since it was synced, as far as that matters here.
    pub(crate) fn awaits_sync(&self, file: FileId) -> bool {
        matches!(self, Torn::DoubleWrite(it) if it.awaits_sync(file))
    }

    /// The file was cut down to `blocks` blocks, which is one of so many changes of it.
    pub(crate) fn truncated(&self, file: FileId, blocks: Block, changes: u64) {
        if let Torn::DoubleWrite(it) = self {
            it.truncated(file, blocks, changes);
        }
    }

    /// The file is closed, durably, or gone.
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
            // The next opening looks at pages in vain: they are good.
            tracing::warn!(%error, "the double-write file was not laid to rest");
        }
    }

    /// Bytes set aside.
    pub(crate) fn memory_bytes(&self) -> usize {
        match self {
            Torn::DoubleWrite(it) => it.memory_bytes(),
            Torn::Unprotected | Torn::Images | Torn::Atomic => 0,
        }
    }
}
