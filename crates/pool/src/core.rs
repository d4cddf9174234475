//! The shared state of all handles of one pool.

use std::sync::{Arc, OnceLock};

use forebay_io::{Arena, Io, Owner};

use crate::api::options::ReadaheadStrategy;
use crate::cache::Cache;
use crate::cache::frame::FrameMemory;
use crate::clock::Clock;
use crate::error::Error;
use crate::observe::stats::Counters;
use crate::readahead::Budget;
use crate::store::files::Files;
use crate::store::tablespace::Space;
use crate::sync::Mutex;
use crate::tasks::Retries;
use crate::wal::Wal;
use crate::writeback::checkpoint::{RedoPoint, RequestQueue};
use crate::writeback::{Wakeup, WriteBuffers};

pub(crate) struct Core {
    pub(crate) cache: Cache,
    pub(crate) memory: Arc<FrameMemory>,
    pub(crate) files: Files,
    pub(crate) spaces: Vec<Arc<Space>>,
    pub(crate) buffers: WriteBuffers,
    pub(crate) wakeup: Wakeup,
    pub(crate) wal: Option<Arc<dyn Wal>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) counters: Counters,
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

    /// Processes completed reads ahead.
    pub(crate) fn poll(&self) {
        self.spaces.iter().for_each(|space| space.poll());
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
