//! What all handles of one pool keep alive: its core and its threads.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use crate::api::options::FileOptions;
use crate::core::Core;
use crate::error::Error;
use crate::writeback::Cleaner;
use crate::writeback::checkpoint::Checkpointer;

/// What the handles share; the last one to go writes what is dirty.
pub(crate) struct Pool {
    pub(crate) core: Arc<Core>,
    /// `None` in a pool without, and once it is closed.
    pub(crate) cleaner: Mutex<Option<Cleaner>>,
    /// The checkpoint thread; `None` once the pool is closed.
    pub(crate) checkpointer: Mutex<Option<Checkpointer>>,
    /// What files have that do not say: a checksum, a codec.
    pub(crate) files: FileOptions,
    pub(crate) notes: Vec<String>,
}

impl Pool {
    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Ends the pool's own threads; a checkpoint under way is broken off.
    pub(crate) fn stop_threads(&self) {
        drop(self.checkpointer.lock().unwrap_or_else(PoisonError::into_inner).take());
        drop(self.cleaner.lock().unwrap_or_else(PoisonError::into_inner).take());
        self.core.retries.stop();
        self.core.spaces.iter().for_each(|space| space.stop_drivers());
    }

    pub(crate) fn write_all(&self, sync: bool) -> Result<u64, Error> {
        let (mut pages, mut result) = (0, Ok(()));
        let files = self.core.files.all();
        for file in files.iter().filter(|file| !file.is_read_only()) {
            let written = self.core.flush_file(file).map(|written| pages += written);
            // Synced even so: of a file that could not be written whole, some pages were.
            let written = written.and(if sync { self.core.sync_file(file) } else { Ok(()) });
            // A file that was dropped meanwhile has nothing left to write.
            if file.check_open().is_ok() {
                result = result.and(written);
            }
        }
        result.map(|()| pages)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.stop_threads();
        // What is still being read ahead keeps the core alive, and nobody else will take it in.
        self.core.spaces.iter().for_each(|space| space.drain());
        if thread::panicking() {
            // Pages may be half changed; what the log says is safer than what they say.
            tracing::error!("the pool is dropped by a panic: dirty pages are not written");
            return;
        }
        if let Err(error) = self.write_all(false) {
            tracing::error!(%error, "dirty pages could not be written as the pool was dropped");
        }
        self.core.files.all().iter().for_each(|file| file.give_back_space());
    }
}
