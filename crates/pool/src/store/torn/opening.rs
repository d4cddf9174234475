//! The parameters of a tablespace when its protection is set up.

use std::path::Path;

use forebay_io::{CacheMode, Io, Volume};

/// The input of `Torn::open`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Opening<'a> {
    pub(crate) volume: &'a Volume,
    pub(crate) directory: &'a Path,
    pub(crate) cache: CacheMode,
    pub(crate) sync_io: &'a Io,
    pub(crate) queue: &'a Io,
    pub(crate) page_bytes: usize,
    /// Pages that can be written at once.
    pub(crate) write_buffers: usize,
}
