//! An open file as users hold it; its operations are in `handle`.
//!
//! A separate module because guards hold one, and the module that creates guards needs them.

use std::fmt;
use std::sync::Arc;

use crate::core::Core;
use crate::readahead_strategy::ReadaheadStrategy;
use crate::shared::Pool;
use crate::store::file::FileCore;

/// An open file of pages. Cheap to clone; may be used from any thread.
///
/// Dropping a handle does not close the file: it stays open in its pool, with its dirty pages, and
/// opening it again gives it back. [`PagedFile::close`] closes it.
#[derive(Clone)]
pub struct PagedFile {
    /// The same as the pool's: a hit should not go through `pool` for it.
    pub(super) core: Arc<Core>,
    pub(super) file: Arc<FileCore>,
    /// The default of this handle's streams; `None`: the pool's.
    pub(super) readahead: Option<ReadaheadStrategy>,
    /// Keeps the pool from closing.
    _pool: Arc<Pool>,
}

impl PagedFile {
    pub(crate) fn new(pool: Arc<Pool>, file: Arc<FileCore>) -> PagedFile {
        PagedFile { core: Arc::clone(pool.core()), file, readahead: None, _pool: pool }
    }

    #[inline]
    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    #[inline]
    pub(crate) fn file(&self) -> &Arc<FileCore> {
        &self.file
    }

    /// The default of this handle's streams.
    pub(crate) fn readahead_strategy(&self) -> ReadaheadStrategy {
        self.readahead.unwrap_or(self.core.readahead)
    }
}

impl fmt::Debug for PagedFile {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("PagedFile")
            .field("path", &self.file.path)
            .field("blocks", &self.file.blocks())
            .finish_non_exhaustive()
    }
}
