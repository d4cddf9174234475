//! Tablespaces on object stores.
//!
//! An object store is a disk with 20 ms a request, any number of requests in flight and a price for each: asking
//! early, in few large requests, and writing in sorted, combined order is worth more there than anywhere. So dirty
//! pages leave sorted and packed, some thousand to an immutable object, and one manifest says which objects there
//! are. It is replaced in one step, by one writer at a time; any number of readers elsewhere follow it.
//!
//! ```text
//! Writer --stage--> data objects (PUT)          View --plan--> ranged GETs, neighbours and gaps joined
//!    |                                            ^
//!    +----publish--> manifest (conditional PUT) --+--refresh-- Reader, on another machine
//! ```
//!
//! A page is durable when a manifest that names its object is. The format is in docs/format-object.md.
//!
//! ```
//! use std::sync::Arc;
//! use forebay_object::{Bucket, Options, PageId, Takeover};
//! use object_store::memory::InMemory;
//!
//! # fn main() -> forebay_object::Result<()> {
//! let bucket = Bucket::new(Arc::new(InMemory::new()), "spaces/main", Options::default())?;
//! bucket.create(8192)?;
//! let writer = bucket.writer(Takeover::Refuse)?;
//! let file = writer.create_file("table")?;
//! writer.set_len(file, 100 * 8192)?;
//! let pages: Vec<PageId> = (0..100).map(|block| PageId { file, block }).collect();
//! writer.commit(&pages, &mut |page, bytes| Ok(bytes.fill(page.block as u8)))?;
//!
//! // Elsewhere:
//! let reader = bucket.reader()?;
//! let mut bytes = vec![0; 2 * 8192];
//! reader.view().read(file, 41, &mut bytes)?;
//! assert_eq!((bytes[0], bytes[8192]), (41, 42));
//! # Ok(())
//! # }
//! ```
//!
//! Below a page cache it is a [`Mount`]: `Tablespace::new(name, mount.directory()).volume(mount.volume())` with
//! `.io(mount.io(256)?)` and `.costs(mount.costs())`, and nothing else of an engine changes.
//!
//! Calls block their thread. They are not for threads of an asynchronous runtime, but for those that may block
//! there (`spawn_blocking`).
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]
#![forbid(unsafe_code)]

#[cfg(feature = "url")]
mod address;
mod bucket;
mod client;
mod error;
mod failure;
mod fetch;
mod format;
mod latency;
mod leases;
mod map;
mod merge;
mod mount;
mod options;
mod probe;
mod reader;
mod runtime;
mod snapshot;
mod stats;
mod tier;
mod view;
mod writer;

use std::fmt;

#[cfg(feature = "url")]
pub use address::open;
pub use bucket::{Bucket, Takeover};
pub use client::Op;
pub use error::{Error, Result};
pub use failure::{in_short, is_transient};
pub use format::object::Compression;
pub use mount::Mount;
pub use object_store;
pub use options::{Options, Prices};
pub use reader::Reader;
pub use stats::Stats;
pub use tier::Tier;
pub use view::{FileInfo, View};
pub use writer::{Fill, Maintained, Space, Writer};

/// A file of a tablespace. The number is never used again, even after the file is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub(crate) u32);

/// A page: a block of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageId {
    /// The file.
    pub file: FileId,
    /// The page's place in it, counted in pages from 0.
    pub block: u32,
}

impl fmt::Display for PageId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "block {} of file {}", self.block, self.file.0)
    }
}
