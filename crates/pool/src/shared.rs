//! The state that all handles of one pool keep alive: its core and its threads.
//!
//! The last handle to be dropped ends the pool, on the thread that drops it: it waits for the pool's threads, and for
//! all I/O. If a waker drops the handle, that may be the very thread to be waited for: the pool's threads call wakers,
//! while they process a queue's completions.
//!
//! Invariants:  [END-1] a pool is not ended by a waker's caller; a new thread does it then
//!              [END-2] in a child of the process that built it, the end of a pool does nothing

use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use crate::core::Core;
use crate::error::Error;
use crate::store::options::FileDefaults;
use crate::sync::is_waking;
use crate::writeback::Cleaner;
use crate::writeback::checkpoint::Checkpointer;

/// Shared by the handles; dropping the last one writes what is dirty.
pub(crate) struct Pool {
    pub(crate) core: Arc<Core>,
    /// `None` in a pool without a cleaner, and once it is closed.
    pub(crate) cleaner: Mutex<Option<Cleaner>>,
    /// The checkpoint thread; `None` once the pool is closed.
    pub(crate) checkpointer: Mutex<Option<Checkpointer>>,
    /// The defaults for files whose options do not set them.
    pub(crate) files: FileDefaults,
    pub(crate) notes: Vec<String>,
}

impl Pool {
    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Stops the pool's threads; a checkpoint in progress is aborted.
    pub(crate) fn stop_threads(&self) {
        drop(self.take_threads());
        self.core.stop_helpers();
    }

    /// They end when they are dropped.
    fn take_threads(&self) -> (Option<Checkpointer>, Option<Cleaner>) {
        let checkpointer = self.checkpointer.lock().unwrap_or_else(PoisonError::into_inner).take();
        (checkpointer, self.cleaner.lock().unwrap_or_else(PoisonError::into_inner).take())
    }
}

impl Core {
    fn stop_helpers(&self) {
        self.retries.stop();
        self.spaces.iter().for_each(|space| space.driver.stop());
    }

    pub(crate) fn write_all(&self, sync: bool) -> Result<u64, Error> {
        let (mut pages, mut result) = (0, Ok(()));
        let files = self.files.all();
        for file in files.iter().filter(|file| !file.is_read_only()) {
            let written = self.flush_file(file).map(|written| pages += written);
            // Synced nevertheless: some pages of a file that could not be written or truncated completely were written.
            let synced = || {
                let settled = file.settle_length();
                self.sync_file(file).and(settled)
            };
            let written = written.and(if sync { synced() } else { Ok(()) });
            // A file that was dropped meanwhile has no dirty pages to write.
            if file.check_open().is_ok() {
                result = result.and(written);
            }
        }
        result.map(|()| pages)
    }

    /// The work that is left when the last handle is dropped.
    fn end(&self, is_panicking: bool) {
        self.stop_helpers();
        // Reads ahead in progress keep the core alive, and no other thread will complete them.
        self.spaces.iter().for_each(|space| space.drain());
        if is_panicking {
            // Pages may be half changed; the log is more reliable than the pages.
            tracing::error!("the pool is dropped by a panic: dirty pages are not written");
            return;
        }
        if let Err(error) = self.write_all(false) {
            tracing::error!(%error, "dirty pages could not be written as the pool was dropped");
        }
        self.files.all().iter().for_each(|file| file.give_back_space());
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if self.core.check_owner().is_err() {
            // [END-2] Its threads do not exist here, its queues are the parent's, and unlocking a directory would
            // unlock it for the parent. This bypasses the locks, which threads of the parent may have held.
            let cleaner = self.cleaner.get_mut().unwrap_or_else(PoisonError::into_inner).take();
            let checkpointer = self.checkpointer.get_mut().unwrap_or_else(PoisonError::into_inner);
            std::mem::forget((Arc::clone(&self.core), cleaner, checkpointer.take()));
            return;
        }
        let (core, threads) = (Arc::clone(&self.core), self.take_threads());
        let is_panicking = thread::panicking();
        let end = move || {
            drop(threads);
            core.end(is_panicking);
        };
        if !is_waking() {
            return end();
        }
        // [END-1] Not dropped either where no thread can be started: that would wait as well.
        let end = ManuallyDrop::new(end);
        let thread = thread::Builder::new().name("forebay-end".to_owned());
        if let Err(error) = thread.spawn(move || ManuallyDrop::into_inner(end)()) {
            tracing::error!(%error, "no thread to end the pool: dirty pages are not written");
        }
    }
}
