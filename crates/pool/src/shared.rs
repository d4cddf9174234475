//! What all handles of one pool keep alive: its core and its threads.
//!
//! The last handle to go ends the pool, on the thread that drops it: it waits for the pool's threads, and for all I/O.
//! That may be the very thread that would be waited for, where a waker drops the handle: wakers are called by the pool's
//! threads, and in the middle of taking in what a queue has ended.
//!
//! Invariants:  [END-1] a pool is not ended by a waker's caller, but by a thread of its own then
//!              [END-2] in a child of the process that built it, the end of a pool does nothing

use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use crate::api::options::FileDefaults;
use crate::core::Core;
use crate::error::Error;
use crate::sync::is_waking;
use crate::writeback::Cleaner;
use crate::writeback::checkpoint::Checkpointer;

/// What the handles share; the last one to go writes what is dirty.
pub(crate) struct Pool {
    pub(crate) core: Arc<Core>,
    /// `None` in a pool without, and once it is closed.
    pub(crate) cleaner: Mutex<Option<Cleaner>>,
    /// The checkpoint thread; `None` once the pool is closed.
    pub(crate) checkpointer: Mutex<Option<Checkpointer>>,
    /// What files have whose options do not name it.
    pub(crate) files: FileDefaults,
    pub(crate) notes: Vec<String>,
}

impl Pool {
    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Ends the pool's own threads; a checkpoint under way is broken off.
    pub(crate) fn stop_threads(&self) {
        drop(self.take_threads());
        self.core.stop_helpers();
    }

    /// They end as they are dropped.
    fn take_threads(&self) -> (Option<Checkpointer>, Option<Cleaner>) {
        let checkpointer = self.checkpointer.lock().unwrap_or_else(PoisonError::into_inner).take();
        (checkpointer, self.cleaner.lock().unwrap_or_else(PoisonError::into_inner).take())
    }
}

impl Core {
    fn stop_helpers(&self) {
        self.retries.stop();
        self.spaces.iter().for_each(|space| space.stop_drivers());
    }

    pub(crate) fn write_all(&self, sync: bool) -> Result<u64, Error> {
        let (mut pages, mut result) = (0, Ok(()));
        let files = self.files.all();
        for file in files.iter().filter(|file| !file.is_read_only()) {
            let written = self.flush_file(file).map(|written| pages += written);
            // Synced even so: of a file that could not be written whole, or be cut, some pages were.
            let synced = || {
                let settled = file.settle_length();
                self.sync_file(file).and(settled)
            };
            let written = written.and(if sync { synced() } else { Ok(()) });
            // A file that was dropped meanwhile has nothing left to write.
            if file.check_open().is_ok() {
                result = result.and(written);
            }
        }
        result.map(|()| pages)
    }

    /// What the last handle leaves to be done.
    fn end(&self, is_panicking: bool) {
        self.stop_helpers();
        // What is still being read ahead keeps the core alive, and nobody else will take it in.
        self.spaces.iter().for_each(|space| space.drain());
        if is_panicking {
            // Pages may be half changed; what the log says is safer than what they say.
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
            // [END-2] Its threads are not here, its queues are the parent's, and to unlock a directory would unlock it for
            // the parent. Past the locks, which threads of the parent may have had.
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
        // [END-1] Not dropped either where there is no thread for it: that would wait as well.
        let end = ManuallyDrop::new(end);
        let thread = thread::Builder::new().name("forebay-end".to_owned());
        if let Err(error) = thread.spawn(move || ManuallyDrop::into_inner(end)()) {
            tracing::error!(%error, "no thread to end the pool: dirty pages are not written");
        }
    }
}
