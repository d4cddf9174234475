//! The errors of a tree.

use std::path::Path;
use std::sync::Arc;

use forebay::Block;

/// Any error that a tree reports.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The pool failed: the disk, a checksum, no free frame. [`forebay::Error::kind`] says how to handle it.
    #[error(transparent)]
    Pool(#[from] forebay::Error),
    /// A page has a valid checksum and inconsistent contents.
    #[error("block {block} of {} is damaged: {what}; restore the file from a backup", file.display())]
    Damaged {
        /// The tree's file.
        file: Arc<Path>,
        /// The page.
        block: Block,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The file was changed after its last checkpoint, and not closed afterwards.
    #[error(
        "{} was changed after its last checkpoint and not closed; a tree without a log cannot be \
         recovered from that: restore it, or load it again",
        file.display()
    )]
    Unclean {
        /// The tree's file.
        file: Arc<Path>,
    },
    /// The file is not a tree, has another page size, or was not created completely.
    #[error("{} is no tree that can be opened: {what}", file.display())]
    NotATree {
        /// The file.
        file: Arc<Path>,
        /// The reason.
        what: &'static str,
    },
    /// The log cannot be read or written. After a failed write nothing is durable any more: open the database again.
    #[error("the log of the database: {0}")]
    Log(Arc<std::io::Error>),
    /// A record of the log has a valid checksum and inconsistent contents.
    #[error(
        "the record of the log that ends at {lsn} is damaged, or of another database; restore the database from a backup"
    )]
    LogRecord {
        /// Its LSN: the position of its end in the log.
        lsn: u64,
    },
    /// A key or a record is too long for this page size.
    #[error("a {what} of {len} bytes is too long: {max} is the most here")]
    TooLong {
        /// `key`, or `key with its value`.
        what: &'static str,
        /// Its length in bytes.
        len: usize,
        /// The maximum length in bytes.
        max: usize,
    },
    /// Pages of this size cannot hold a tree.
    #[error("a tree needs pages of 4 to 32 KiB, and the pool has {bytes} bytes")]
    PageSize {
        /// The pool's page size.
        bytes: usize,
    },
    /// The keys of a bulk load must be strictly ascending.
    #[error("entry {at} of a bulk load has a key that is not greater than the one before")]
    Unsorted {
        /// The index of the entry, from 0.
        at: u64,
    },
    /// The tree for a bulk load is not empty.
    #[error("{} is not empty: only an empty tree is loaded in bulk", file.display())]
    NotEmpty {
        /// The tree's file.
        file: Arc<Path>,
    },
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Error {
        Error::Log(Arc::new(error))
    }
}

/// The result of every fallible operation of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
