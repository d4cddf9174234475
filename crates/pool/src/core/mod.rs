//! The shared state of all handles of one pool.
//!
//! What involves both the cache and the disk is here: the read of a missed page (`disk`), and changes of a file's length
//! (`resize`).

mod budget;
pub(crate) mod checkpoint;
pub(crate) mod disk;
mod resize;
mod wakeup;

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use forebay_io::{Arena, Io, Owner};

use crate::cache::Cache;
use crate::cache::frame::FrameMemory;
use crate::error::Error;
use crate::readahead_strategy::ReadaheadStrategy;
use crate::store::Store;
use crate::sync::Mutex;
use crate::tasks::Retries;

pub(crate) use budget::{Budget, Share};
use checkpoint::{RedoPoint, RequestQueue};
pub(crate) use wakeup::Wakeup;

pub(crate) struct Core {
    pub(crate) cache: Cache,
    pub(crate) memory: Arc<FrameMemory>,
    pub(crate) store: Store,
    pub(crate) wakeup: Wakeup,
    /// Most pages in one request.
    pub(crate) combine_pages: usize,
    /// The default of handles.
    pub(crate) readahead: ReadaheadStrategy,
    /// The right to change the number of frames. Held across I/O.
    pub(crate) resize: Mutex<()>,
    /// Pins that all look-ahead together may hold.
    pub(crate) budget: Budget,
    /// Memory for pages that are read through and discarded; created when first needed.
    pub(crate) gaps: OnceLock<Option<Arc<Arena>>>,
    /// Tasks that wait for conditions that are not signalled.
    pub(crate) retries: Retries,
    /// Checkpoints: requested, monitored, waited for.
    pub(crate) checkpoints: Arc<RequestQueue>,
    pub(crate) redo: RedoPoint,
    /// The queue of the checkpoints of several tablespaces, on which one thread can wait for any of them;
    /// `None` where there is one tablespace, or some have separate queues.
    pub(crate) checkpoint_queue: Option<Io>,
    /// The process that built the pool.
    pub(crate) owner: Owner,
}

impl Core {
    #[inline]
    pub(crate) fn page_bytes(&self) -> usize {
        self.memory.page_bytes()
    }

    /// Fails in a child that was forked from the process that built the pool.
    pub(crate) fn check_owner(&self) -> Result<(), Error> {
        if self.owner.is_this() { Ok(()) } else { Err(Error::Forked) }
    }
}

impl Deref for Core {
    type Target = Store;

    #[inline]
    fn deref(&self) -> &Store {
        &self.store
    }
}

impl AsRef<Budget> for Arc<Core> {
    fn as_ref(&self) -> &Budget {
        &self.budget
    }
}

impl std::fmt::Debug for Core {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Core")
            .field("frames", &self.cache.frames.len())
            .field("page_bytes", &self.page_bytes())
            .finish_non_exhaustive()
    }
}
