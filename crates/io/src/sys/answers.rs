//! What a system says of files.

/// What a filesystem says about direct I/O on a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(dead_code, reason = "no one system has all of these answers")]
pub(crate) enum DirectSupport {
    /// It does it, with these alignments in bytes.
    Aligned { memory: u32, offset: u32 },
    /// It does not say; it may.
    Unknown,
    /// It does not, for this reason.
    No(&'static str),
}

/// Pages of a range that are in the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CachedPages {
    pub(crate) resident: u64,
    /// `None` where the system does not tell.
    pub(crate) dirty: Option<u64>,
}
