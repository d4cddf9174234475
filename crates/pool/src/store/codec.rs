//! Page codecs: the on-disk form of pages, where it differs from the form in memory.
//!
//! Examples are encryption, the engine's own checksum, or a tag that identifies the page's owner. There is one path in
//! and one path out, and the built-in checksum is applied there next to the codec:
//!
//! | direction | steps | where |
//! |---|---|---|
//! | out | [`PageCodec::encode`], then the checksum is stamped | in the copy that is written; no latch is held |
//! | in | the checksum is verified, then [`PageCodec::decode`] | in the frame, before any caller gets the page |
//!
//! So everything below the pool (double write, images in the log, the file itself) has encoded bytes, and the checksum
//! covers those: a torn page is detected and repaired before any key is known.
//!
//! Invariants:  [COD-1] every written page was encoded for its block
//!              [COD-2] no caller gets a page that was not decoded; a rejected page is not resident
//! Concurrency: any thread, several at once, including those that execute a queue's requests.
//! Failure:     [`Error::Codec`]. A panic during encoding leaves the page dirty, a panic during decoding leaves it not
//! resident.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use crate::tag::Block;

/// The on-disk form of a file's pages, if it differs from the form in memory: encrypted, for example, or with a
/// checksum that the pool does not know.
///
/// Called by any thread that reads or writes a page, several at once. It must not wait for anything or use the pool:
/// others may wait for this page, and for the thread.
///
/// Where the file has a [`Checksum`](crate::Checksum) its four bytes belong to the pool, on disk as in memory: the pool
/// stores the checksum after `encode`, and `decode` finds it there. So a codec skips these bytes, or keeps nothing
/// there that it needs again. The codec and the engine agree on where it keeps a tag or a nonce: some bytes of each
/// page that the engine does not use; a page has as many bytes on disk as in memory.
///
/// A page of zeroes on disk is a block that was never written, and is not decoded: it is accepted or rejected according
/// to [`ZeroPages`](crate::ZeroPages). (Anyone who can write to the disk can create such a page. A codec that must
/// detect this needs `Refuse`, and an engine that writes each block before it reads it.)
///
/// The name passed to it is the one under which the file was opened first: if the name matters, open a file with
/// several names (links) always under the same one.
pub trait PageCodec: fmt::Debug + Send + Sync {
    /// Encodes a page in place for `block` of the file (its name in its tablespace). The bytes are a copy: others may
    /// read and change the page meanwhile. Called again for each write.
    fn encode(&self, file: &str, block: Block, page: &mut [u8]);

    /// Decodes in place the bytes read from `block` of the file, to the page that was written there.
    ///
    /// # Errors
    /// If the bytes are not such a page: no caller gets to see them, and the reader receives
    /// [`Error::Codec`](crate::Error::Codec).
    fn decode(
        &self,
        file: &str,
        block: Block,
        page: &mut [u8],
    ) -> Result<(), Box<dyn StdError + Send + Sync>>;
}

/// True if two openings of a file specify the same codec.
pub(super) fn is_same(
    one: Option<&Arc<dyn PageCodec>>,
    other: Option<&Arc<dyn PageCodec>>,
) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        (one, other) => one.is_none() && other.is_none(),
    }
}
