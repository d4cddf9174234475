//! Options for opening a file.

use std::sync::Arc;

use super::checksum::{Checksum, ZeroPages};
use super::codec::PageCodec;

/// How to open a file. The default reads and writes a file that must exist, in the first
/// tablespace, with the pool's checksum.
#[derive(Debug, Clone, Default)]
pub struct FileOptions {
    pub(crate) tablespace: Option<String>,
    pub(crate) create: bool,
    pub(crate) create_new: bool,
    pub(crate) read_only: bool,
    pub(crate) checksum: Option<Checksum>,
    pub(crate) codec: Option<Arc<dyn PageCodec>>,
    pub(crate) zero_pages: ZeroPages,
    pub(crate) ignore_partial_page: bool,
}

impl FileOptions {
    /// Returns the default.
    pub fn new() -> FileOptions {
        FileOptions::default()
    }

    /// In the tablespace with this name.
    #[must_use]
    pub fn tablespace(mut self, name: impl Into<String>) -> Self {
        self.tablespace = Some(name.into());
        self
    }

    /// Create the file if it does not exist.
    #[must_use]
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Create the file, and fail if it already exists.
    #[must_use]
    pub fn create_new(mut self, create_new: bool) -> Self {
        self.create_new = create_new;
        self
    }

    /// Read-only.
    #[must_use]
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// Checksums, stored on write and verified on read. Default: the pool's.
    #[must_use]
    pub fn checksum(mut self, checksum: Checksum) -> Self {
        self.checksum = Some(checksum);
        self
    }

    /// The on-disk form of its pages, if it differs from memory. It must be the same each time the file is opened.
    /// Default: the pool's.
    #[must_use]
    pub fn codec(mut self, codec: Arc<dyn PageCodec>) -> Self {
        self.codec = Some(codec);
        self
    }

    /// Whether a page of zeroes, which carries no checksum, is accepted as one that was never written. Default: yes.
    #[must_use]
    pub fn zero_pages(mut self, zero_pages: ZeroPages) -> Self {
        self.zero_pages = zero_pages;
        self
    }

    /// Ignore a partial page at the end of the file, instead of rejecting the file.
    #[must_use]
    pub fn ignore_partial_page(mut self, ignore: bool) -> Self {
        self.ignore_partial_page = ignore;
        self
    }
}

/// The defaults for files whose options do not set them.
#[derive(Debug)]
pub(crate) struct FileDefaults {
    pub(crate) checksum: Checksum,
    pub(crate) codec: Option<Arc<dyn PageCodec>>,
}
