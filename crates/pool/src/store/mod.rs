//! Files of pages, in tablespaces; failed syncs and torn pages.

mod buffers;
pub(crate) mod checksum;
pub(crate) mod codec;
mod directory_lock;
mod disk_file;
pub(crate) mod file;
pub(crate) mod files;
pub(crate) mod options;
mod page_copy;
mod private;
pub(crate) mod tablespace;
pub(crate) mod torn;
pub(crate) mod winners;

pub(crate) use buffers::WriteBuffers;
pub(crate) use page_copy::PageCopy;
pub(crate) use private::Private;

use std::sync::Arc;

use crate::clock::Clock;
use crate::error::Error;
use crate::observe::stats::{Counters, PoolEvent, Wait};
use crate::tag::Lsn;
use crate::wal::Wal;
use files::Files;
use tablespace::Space;

/// The tablespaces of a pool, their files, the log, and what reads and writes need besides the cache.
pub(crate) struct Store {
    pub(crate) files: Files,
    pub(crate) spaces: Vec<Arc<Space>>,
    pub(crate) buffers: WriteBuffers,
    pub(crate) wal: Option<Arc<dyn Wal>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) counters: Counters,
}

impl Store {
    /// Runs `work` and records the time as waiting.
    pub(crate) fn waiting<T>(&self, wait: Wait, work: impl FnOnce() -> T) -> T {
        self.counters.waiting(wait, || self.clock.now(), work)
    }

    /// Processes completed reads ahead.
    pub(crate) fn poll(&self) {
        self.spaces.iter().for_each(|space| space.poll());
    }

    /// Makes the log durable up to `newest`, if it is not.
    pub(crate) fn flush_log_to(&self, newest: Lsn) -> Result<(), Error> {
        let Some(wal) = self.wal.as_ref().filter(|wal| newest > wal.flushed()) else {
            return Ok(());
        };
        #[cfg(forebay_bug)]
        if forebay_io::bug::is_planted("skip_log_flush") {
            return Ok(());
        }
        let flushed = self.waiting(Wait::Log, || wal.flush_to(newest));
        flushed.map_err(|source| {
            self.counters.count_pool(PoolEvent::LogErrors);
            Error::Log { lsn: newest, source: source.into() }
        })
    }
}
