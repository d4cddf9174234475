//! How to open a file of pages.

use crate::checksum::{Checksum, ZeroPages};

/// How to open a file. The default reads and writes a file that must exist, in the first
/// tablespace, with the pool's checksum.
#[derive(Debug, Clone, Default)]
pub struct FileOptions {
    pub(crate) tablespace: Option<String>,
    pub(crate) create: bool,
    pub(crate) create_new: bool,
    pub(crate) read_only: bool,
    pub(crate) checksum: Option<Checksum>,
    pub(crate) zero_pages: ZeroPages,
    pub(crate) ignore_partial_page: bool,
}

impl FileOptions {
    /// The default.
    pub fn new() -> FileOptions {
        FileOptions::default()
    }

    /// In the tablespace of this name.
    #[must_use]
    pub fn tablespace(mut self, name: impl Into<String>) -> Self {
        self.tablespace = Some(name.into());
        self
    }

    /// Make the file if it is not there.
    #[must_use]
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Make the file, and fail if it is there already.
    #[must_use]
    pub fn create_new(mut self, create_new: bool) -> Self {
        self.create_new = create_new;
        self
    }

    /// For reading only.
    #[must_use]
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// Checksums stamped on write and checked on read. Default: the pool's.
    #[must_use]
    pub fn checksum(mut self, checksum: Checksum) -> Self {
        self.checksum = Some(checksum);
        self
    }

    /// Whether a page of zeroes, which carries no checksum, is accepted as one that was never
    /// written. Default: it is.
    #[must_use]
    pub fn zero_pages(mut self, zero_pages: ZeroPages) -> Self {
        self.zero_pages = zero_pages;
        self
    }

    /// Leave a part of a page at the end of the file unread, rather than refuse the file.
    #[must_use]
    pub fn ignore_partial_page(mut self, ignore: bool) -> Self {
        self.ignore_partial_page = ignore;
        self
    }
}
