//! The one call on the way out: pages made safe against a torn write before they are written in place.

use super::double_write::Groups;
use super::{Torn, images};
use crate::core::Core;
use crate::error::Error;
use crate::store::file::FileCore;
use crate::store::tablespace::Space;
use crate::tag::Lsn;
use crate::writeback::Copy;

/// Whether to wait for writes in place that are under way. Only who has none of its own under way may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waiting {
    ForWrites,
    Never,
}

/// What has been kept of some batches of a tablespace, and is not durable yet.
#[derive(Debug, Default)]
pub(crate) struct Keeping {
    /// The newest image.
    newest: Lsn,
    groups: Groups,
}

impl Torn {
    /// Makes sure that pages of `file` which are about to be written in place can be repaired. Called
    /// with their log flushed, and with no write in place of the caller's own under way.
    ///
    /// # Errors
    /// Whatever keeps it from that: the pages must not be written then.
    pub(crate) fn protect(
        &self,
        core: &Core,
        file: &FileCore,
        copies: &mut [Copy<'_>],
    ) -> Result<(), Error> {
        let mut keeping = Keeping::default();
        let kept = self.keep(core, file, copies, Waiting::ForWrites, &mut keeping)?;
        assert!(kept, "[DBW-1] whoever may wait is protected, or told why not");
        self.seal(core, &file.space, &keeping)?;
        self.sealed(file, copies);
        Ok(())
    }

    /// The first step of [`Torn::protect`], for several batches of one tablespace: puts the pages where they
    /// can be repaired from. False when writes in place have to end first and the caller must not wait
    /// for them: nothing is done then.
    ///
    /// # Errors
    /// As [`Torn::protect`].
    pub(crate) fn keep(
        &self,
        core: &Core,
        file: &FileCore,
        copies: &mut [Copy<'_>],
        waiting: Waiting,
        keeping: &mut Keeping,
    ) -> Result<bool, Error> {
        match self {
            _ if copies.is_empty() => Ok(true),
            Torn::Unprotected | Torn::Atomic => Ok(true),
            Torn::Images => {
                images::append_missing(core, file, copies, &mut keeping.newest).map(|()| true)
            }
            Torn::DoubleWrite(it) => it.keep(core, file, copies, waiting, &mut keeping.groups),
        }
    }

    /// The second step: makes that durable.
    ///
    /// # Errors
    /// As [`Torn::protect`], for all the batches.
    pub(crate) fn seal(&self, core: &Core, space: &Space, keeping: &Keeping) -> Result<(), Error> {
        match self {
            Torn::Unprotected | Torn::Atomic => Ok(()),
            Torn::Images => core.flush_log_to(keeping.newest),
            Torn::DoubleWrite(it) => it.seal(core, space, keeping.groups),
        }
    }

    /// The third step, of each batch: the pages may be written.
    pub(crate) fn sealed(&self, file: &FileCore, copies: &[Copy<'_>]) {
        if let Torn::Images = self {
            images::note(file, copies);
        }
    }
}
