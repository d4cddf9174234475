//! What the volume, the queues and the maintenance of a mount share.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::sync::{Mutex, PoisonError};

use forebay_io::OsError;

use super::local::{Locals, broken};
use crate::PageId;
use crate::error::{Error, Result};
use crate::reader::Reader;
use crate::view::View;
use crate::writer::Writer;

pub(super) const EROFS: OsError = OsError::from_raw(30);

/// The handle through which a tablespace is mounted.
pub(super) enum Source {
    Writer(Writer),
    /// At the version of the view, which the view keeps.
    Reader(Reader, View),
}

pub(super) struct Shared {
    pub(super) source: Source,
    /// The directory of the files; canonical.
    pub(super) root: PathBuf,
    pub(super) locals: Locals,
    /// The right to commit.
    pub(super) committing: Mutex<()>,
    /// The right to make, rename and remove files.
    pub(super) names: Mutex<()>,
    pub(super) failure: Mutex<Option<Error>>,
    /// Wakes the maintenance thread after a commit; `None` once the mount is closed.
    pub(super) wake: Mutex<Option<Sender<()>>>,
    pub(super) _lock: File,
}

impl Source {
    pub(super) fn view(&self) -> View {
        match self {
            Source::Writer(writer) => writer.view(),
            Source::Reader(_, view) => view.clone(),
        }
    }
}

impl Shared {
    /// The current pages.
    pub(super) fn view(&self) -> View {
        self.source.view()
    }

    /// The writer, if changes are allowed.
    pub(super) fn writer(&self) -> Result<&Writer, OsError> {
        match &self.source {
            Source::Writer(writer) => Ok(writer),
            Source::Reader(..) => Err(EROFS),
        }
    }

    /// Puts all dirty pages into objects and publishes everything.
    pub(super) fn commit(&self) -> Result<()> {
        // A reader has nothing to commit.
        let Ok(writer) = self.writer() else { return Ok(()) };
        let _alone = self.committing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(page) = self.stage(writer)? {
            return Err(broken(page));
        }
        let before = writer.version();
        let after = writer.publish()?;
        self.locals.shrink();
        if after != before
            && let Some(wake) = &*self.wake.lock().unwrap_or_else(PoisonError::into_inner)
        {
            // The thread has ended only if it has panicked, and then no thread needs the message.
            let _ = wake.send(());
        }
        Ok(())
    }

    /// Puts dirty pages into objects until the buffer has room.
    pub(super) fn make_room(&self, writer: &Writer) -> Result<()> {
        let _alone = self.committing.lock().unwrap_or_else(PoisonError::into_inner);
        if self.locals.is_full() {
            self.stage(writer)?;
            self.locals.shrink();
        }
        Ok(())
    }

    /// Puts dirty pages into objects; returns a page that cannot be put, if there is one.
    pub(super) fn stage(&self, writer: &Writer) -> Result<Option<PageId>> {
        let (dirty, broken) = self.locals.dirty();
        if dirty.is_empty() {
            return Ok(broken);
        }
        let staged = writer.stage(&dirty, &mut |page, bytes| self.locals.take(page, bytes));
        if staged.is_err() {
            // Copied or not: a page that is not certain to be in an object is dirty.
            self.locals.mark_dirty(&dirty);
        }
        self.locals.settled();
        staged.map(|()| broken)
    }

    /// Records an error for [`Mount::failure`], and returns the system's error for it.
    pub(super) fn failed(&self, error: &Error) -> OsError {
        tracing::error!(%error, "a tablespace on an object store");
        self.note(error);
        OsError::EIO
    }

    pub(super) fn note(&self, error: &Error) {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.clone());
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Mount")
            .field("tablespace", &self.view().client)
            .field("root", &self.root)
            .finish_non_exhaustive()
    }
}

pub(super) fn open_new(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).open(path)
}
