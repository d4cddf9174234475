//! What can go wrong with a tree.

use std::path::Path;
use std::sync::Arc;

use forebay::Block;

/// Everything that a tree reports.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The pool failed: the disk, a checksum, no free frame. [`forebay::Error::kind`] says what to do.
    #[error(transparent)]
    Pool(#[from] forebay::Error),
    /// A page has a sound checksum and makes no sense.
    #[error("block {block} of {} is damaged: {what}; restore the file from a backup", file.display())]
    Damaged {
        /// The tree's file.
        file: Arc<Path>,
        /// The page.
        block: Block,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The file was changed after its last checkpoint, and then not closed.
    #[error(
        "{} was changed after its last checkpoint and not closed; a tree without a log cannot be \
         recovered from that: restore it, or load it again",
        file.display()
    )]
    Unclean {
        /// The tree's file.
        file: Arc<Path>,
    },
    /// The file is no tree, of another page size, or was not made to its end.
    #[error("{} is no tree that can be opened: {what}", file.display())]
    NotATree {
        /// The file.
        file: Arc<Path>,
        /// Why not.
        what: &'static str,
    },
    /// A key or a record is longer than a page of this size can take.
    #[error("a {what} of {len} bytes is too long: {max} is the most here")]
    TooLong {
        /// `key`, or `key with its value`.
        what: &'static str,
        /// Its bytes.
        len: usize,
        /// The most that fit.
        max: usize,
    },
    /// Pages of this size cannot hold a tree.
    #[error("a tree needs pages of 4 to 32 KiB, and the pool has {bytes} bytes")]
    PageSize {
        /// The pool's page size.
        bytes: usize,
    },
    /// Keys for a bulk load have to ascend, each once.
    #[error("entry {at} of a bulk load has a key that is not greater than the one before")]
    Unsorted {
        /// Which entry, from 0.
        at: u64,
    },
    /// A bulk load was asked for into a tree that has entries.
    #[error("{} is not empty: only an empty tree is loaded in bulk", file.display())]
    NotEmpty {
        /// The tree's file.
        file: Arc<Path>,
    },
}

/// What everything here that can fail gives.
pub type Result<T, E = Error> = std::result::Result<T, E>;
