//! Tablespaces on object stores.
//!
//! An object store behaves like a disk with 20 ms a request, any number of requests in flight and a price for each:
//! prefetching in few large requests and writing in sorted, combined order gain more there than anywhere. So dirty
//! pages are written sorted and packed, about a thousand to an immutable object, and one manifest lists the objects.
//! One writer at a time replaces the manifest, in one step; any number of readers on other machines follow it.
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
//! To use it below a page cache, make a [`Mount`]: `Tablespace::new(name, mount.directory()).volume(mount.volume())`
//! with `.io(mount.io(256)?)` and `.costs(mount.costs())`; nothing else in an engine changes.
//!
//! Calls block their thread. Do not make them on the worker threads of an asynchronous runtime, but on threads that may
//! block (`spawn_blocking`).
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]
#![forbid(unsafe_code)]

#[cfg(feature = "url")]
mod address;
mod bucket;
mod client;
mod conditions;
mod error;
mod failure;
mod fetch;
mod format;
mod latency;
mod leases;
mod local;
mod manifest;
mod map;
mod merge;
mod mount;
mod op;
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
pub use bucket::Bucket;
pub use error::{Error, Result};
pub use failure::{in_short, is_transient};
pub use format::object::Compression;
pub use mount::Mount;
pub use object_store;
pub use op::Op;
pub use options::Options;
pub use reader::Reader;
pub use stats::{Prices, Stats};
pub use tier::Tier;
pub use view::{FileInfo, View};
pub use writer::{Fill, Maintained, Space, Takeover, Writer};

/// A file of a tablespace. The number is never used again, even after the file is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub(crate) u32);

/// A page: a block of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageId {
    /// The file.
    pub file: FileId,
    /// The page's position in the file, counted in pages from 0.
    pub block: u32,
}

impl fmt::Display for PageId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "block {} of file {}", self.block, self.file.0)
    }
}

/// The examples of the guide compile.
#[cfg(all(doctest, feature = "url"))]
#[doc = include_str!("../../../docs/object.md")]
struct Guide;
