//! Why the engine cannot execute an operation, or recover.

use forebay::Lsn;

use super::op::{FileName, PageName};

/// What is wrong with a page whose checksum is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Damage {
    #[error("its sectors are from several states")]
    Torn,
    #[error("it says that it is another page")]
    OtherPage,
    #[error("it has missed an operation, or has one that it should not have yet")]
    OutOfTurn,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Pool(#[from] forebay::Error),
    #[error(transparent)]
    Io(#[from] forebay_io::Error),
    /// Nothing was done.
    #[error("the file or block is not there, or no longer; choose another operation")]
    Stale,
    /// The operation before may or may not be in the log.
    #[error("the engine has stopped after a failure; open it again to recover")]
    Stopped,
    #[error("{page} is damaged: {damage}; this is what the test looks for")]
    Damaged { page: PageName, damage: Damage },
    #[error("{page} fails its checksum, and the log has no image of it; see the torn-page mode")]
    TornPage { page: PageName },
    #[error("{page} is missing, and nothing in the log cuts it off; its extension was lost")]
    MissingPage { page: PageName },
    #[error("{file:?} is in the catalog and not on disk; the name of the file was lost")]
    MissingFile { file: FileName },
    #[error("the log ends at {end}, before the redo point {redo}; a flush of the log was lost")]
    LogLost { redo: Lsn, end: Lsn },
}

impl Error {
    pub(crate) fn is_retry(&self) -> bool {
        matches!(self, Error::Stale | Error::Pool(forebay::Error::NoFreeFrame { .. }))
    }
}
