//! The single interface for writes: pages are protected against a torn write before they are written in place.

use super::double_write::Groups;
use super::{Torn, images};
use crate::error::Error;
use crate::store::file::FileCore;
use crate::store::tablespace::Space;
use crate::store::{PageCopy, Store};
use crate::tag::Lsn;

/// Whether to wait for writes in place that are in progress. Only a thread without such writes may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waiting {
    ForWrites,
    Never,
}

/// The staged part of some batches of a tablespace, which is not durable yet.
#[derive(Debug, Default)]
pub(crate) struct Staging {
    /// The newest image.
    newest: Lsn,
    groups: Groups,
}

impl Torn {
    /// Makes sure that pages of `file` which are about to be written in place can be repaired. Called with their log
    /// flushed, and with no write in place by the caller in progress.
    ///
    /// # Errors
    /// The reason why that failed: the pages must not be written then.
    pub(crate) fn protect(
        &self,
        store: &Store,
        file: &FileCore,
        copies: &mut [PageCopy<'_>],
    ) -> Result<(), Error> {
        let mut staging = Staging::default();
        let staged = self.stage(store, file, copies, Waiting::ForWrites, &mut staging)?;
        assert!(staged, "[DBW-1] a caller that may wait is protected, or gets the reason");
        self.make_durable(store, &file.space, &staging)?;
        self.made_durable(file, copies);
        Ok(())
    }

    /// The first step of [`Torn::protect`], for several batches of one tablespace: stores the pages where they can be
    /// repaired from. False when writes in place have to end first and the caller must not wait for them: nothing is
    /// done then.
    ///
    /// # Errors
    /// As [`Torn::protect`].
    pub(crate) fn stage(
        &self,
        store: &Store,
        file: &FileCore,
        copies: &mut [PageCopy<'_>],
        waiting: Waiting,
        staging: &mut Staging,
    ) -> Result<bool, Error> {
        match self {
            _ if copies.is_empty() => Ok(true),
            Torn::Unprotected | Torn::Atomic => Ok(true),
            Torn::Images => {
                images::append_missing(store, file, copies, &mut staging.newest).map(|()| true)
            }
            Torn::DoubleWrite(it) => it.stage(store, file, copies, waiting, &mut staging.groups),
        }
    }

    /// The second step: makes the stored pages durable.
    ///
    /// # Errors
    /// As [`Torn::protect`], for all the batches.
    pub(crate) fn make_durable(
        &self,
        store: &Store,
        space: &Space,
        staging: &Staging,
    ) -> Result<(), Error> {
        match self {
            Torn::Unprotected | Torn::Atomic => Ok(()),
            Torn::Images => store.flush_log_to(staging.newest),
            Torn::DoubleWrite(it) => it.make_durable(store, space, staging.groups),
        }
    }

    /// The third step, for each batch: the pages may be written.
    pub(crate) fn made_durable(&self, file: &FileCore, copies: &[PageCopy<'_>]) {
        if let Torn::Images = self {
            images::note(file, copies);
        }
    }
}
