//! Page codecs: what a page is on disk, where that is not what it is in memory.
//!
//! Encryption, a checksum of the engine's own, a tag that says whose page it is. There is one way in and one way
//! out, and the built-in checksum stands on it beside the codec:
//!
//! | direction | steps | where |
//! |---|---|---|
//! | out | [`PageCodec::encode`], then the checksum is stamped | in the copy that is written; no latch is held |
//! | in | the checksum is verified, then [`PageCodec::decode`] | in the frame, before anybody has the page |
//!
//! So everything below the pool (double write, images in the log, the file itself) has encoded bytes, and the
//! checksum is of those: a torn page is found and repaired before any key is known.
//!
//! Invariants:  [COD-1] what is written was encoded for its block, and nothing that was not is written
//!              [COD-2] nobody is given a page that was not decoded; a page that is refused is not resident
//! Concurrency: any thread, several at once, also those that carry out a queue's requests.
//! Failure:     [`Error::Codec`]. A panic while a page is encoded leaves it dirty, while it is decoded not there.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use crate::tag::Block;

/// What pages of a file are on disk, if not what they are in memory: encrypted, say, or with a checksum that
/// the pool does not know.
///
/// Called by whichever thread reads or writes a page, several at once. It should neither wait for anything nor use
/// the pool: others may wait for this page, and for the thread.
///
/// Where the file has a [`Checksum`](crate::Checksum) its four bytes are the pool's, on disk as in memory: the pool stamps them
/// after `encode`, and `decode` finds the stamp there. So a codec passes them by, or has nothing there that it
/// needs again. Where it keeps a tag or a nonce is agreed with the engine, as some bytes of each page that the
/// engine leaves alone; a page has as many bytes on disk as in memory.
///
/// A page of zeroes on disk is a block that was never written, and is not decoded: it is accepted or refused as
/// [`ZeroPages`](crate::ZeroPages) says. (Anybody who can write to the disk can make such a page. A codec that has to notice
/// this needs `Refuse`, and an engine that writes each block before it reads it.)
///
/// The name it is given is the one by which the file was opened first: a file that has several names (links) is to
/// be opened by one of them, if the name counts.
pub trait PageCodec: fmt::Debug + Send + Sync {
    /// Makes of a page, in place, what is to be written to `block` of the file (its name in its tablespace). The
    /// bytes are a copy: others may read and change the page meanwhile. Called again for each write.
    fn encode(&self, file: &str, block: Block, page: &mut [u8]);

    /// Makes of what was read from `block` of the file the page that was written there, in place.
    ///
    /// # Errors
    /// That it is not such a page: nobody gets to see the bytes, and the caller is told
    /// ([`Error::Codec`](crate::Error::Codec)).
    fn decode(
        &self,
        file: &str,
        block: Block,
        page: &mut [u8],
    ) -> Result<(), Box<dyn StdError + Send + Sync>>;
}

/// Whether two openings of a file mean the same codec.
pub(super) fn is_same(
    one: Option<&Arc<dyn PageCodec>>,
    other: Option<&Arc<dyn PageCodec>>,
) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        (one, other) => one.is_none() && other.is_none(),
    }
}
