//! Facts that a system reports about files.

/// What a filesystem reports about direct I/O on a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(dead_code, reason = "no single system has all of these answers")]
pub(crate) enum DirectSupport {
    /// Supported, with these alignments in bytes.
    Aligned { memory: u32, offset: u32 },
    /// Not reported; it may be supported.
    Unknown,
    /// Not supported, for this reason.
    No(&'static str),
}

/// Pages of a range that are in the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CachedPages {
    pub(crate) resident: u64,
    /// `None` where the system does not report it.
    pub(crate) dirty: Option<u64>,
}
