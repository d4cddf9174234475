//! The input and output of a stream: blocks with data, pages with data, errors with data.

use std::borrow::Borrow;
use std::ops::Deref;

use crate::api::guard::PageRef;
use crate::api::paged_file::PagedFile;
use crate::error::Error;
use crate::tag::Block;

/// An iterator's way to name blocks: a block number, or a pair of one and data to be returned.
pub trait Wanted {
    /// The data that is returned with the page.
    type Data;

    /// The block, and the data to return with its page.
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

/// A page from a stream. Derefs to the page, and so to its bytes. `H` as in a [`PageRef`].
#[derive(Debug)]
pub struct Streamed<'f, D, H: Borrow<PagedFile> = &'f PagedFile> {
    /// The page, pinned and latched shared.
    pub page: PageRef<'f, H>,
    /// The data passed with its block.
    pub data: D,
}

impl<'f, D, H: Borrow<PagedFile>> Deref for Streamed<'f, D, H> {
    type Target = PageRef<'f, H>;

    fn deref(&self) -> &PageRef<'f, H> {
        &self.page
    }
}

/// A block of a stream that could not be read; the stream goes on with the next.
#[derive(Debug, thiserror::Error)]
#[error("block {block} of a read stream: {error}")]
pub struct StreamError<D> {
    /// The block.
    pub block: Block,
    /// The data passed with it.
    pub data: D,
    /// The error, as returned by [`PagedFile::read`](crate::PagedFile::read).
    pub error: Error,
}

impl<D> From<StreamError<D>> for Error {
    fn from(failed: StreamError<D>) -> Error {
        failed.error
    }
}
