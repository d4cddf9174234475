//! What goes into a stream and what comes out: blocks with data, pages with data, errors with data.

use std::ops::Deref;

use crate::api::guard::PageRef;
use crate::error::Error;
use crate::tag::Block;

/// What an iterator may name blocks by: a block number, or a pair of one and data for the way back.
pub trait Wanted {
    /// What comes back with the page.
    type Data;

    /// The block, and what comes back with its page.
    fn into_parts(self) -> (Block, Self::Data);
}

impl Wanted for Block {
    type Data = ();

    #[inline]
    fn into_parts(self) -> (Block, ()) {
        (self, ())
    }
}

impl<D> Wanted for (Block, D) {
    type Data = D;

    #[inline]
    fn into_parts(self) -> (Block, D) {
        self
    }
}

/// A page out of a stream. Derefs to the page, and so to its bytes.
#[derive(Debug)]
pub struct Streamed<'f, D> {
    /// The page, pinned and latched shared.
    pub page: PageRef<'f>,
    /// What was given along with its block.
    pub data: D,
}

impl<'f, D> Deref for Streamed<'f, D> {
    type Target = PageRef<'f>;

    fn deref(&self) -> &PageRef<'f> {
        &self.page
    }
}

/// A block of a stream that could not be had; the stream goes on with the next.
#[derive(Debug, thiserror::Error)]
#[error("block {block} of a read stream: {error}")]
pub struct StreamError<D> {
    /// Which block.
    pub block: Block,
    /// What was given along with it.
    pub data: D,
    /// What is wrong: as [`PagedFile::read`](crate::PagedFile::read) would say.
    pub error: Error,
}

impl<D> From<StreamError<D>> for Error {
    fn from(failed: StreamError<D>) -> Error {
        failed.error
    }
}
