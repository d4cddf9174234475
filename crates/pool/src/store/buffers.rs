//! Write buffers: the memory that pages are copied to before they are written.
//!
//! Invariants:  [WBF-1] a thread that holds buffers waits only for I/O or the log, never for a latch or for more
//!              buffers: so buffers always become free again
//! Concurrency: any thread; sleeps while all buffers are in use.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use forebay_io::{Arena, Lease, Mapping};

use crate::error::Error;

pub(crate) struct WriteBuffers {
    arena: Arc<Arena>,
    free: Mutex<usize>,
    returned: Condvar,
}

/// One buffer; counted as free again when dropped.
pub(crate) struct Buffer<'a> {
    buffers: &'a WriteBuffers,
    lease: Option<Lease>,
}

impl WriteBuffers {
    pub(crate) fn new(count: usize, page_bytes: usize) -> Result<WriteBuffers, Error> {
        let arena = Arena::new(count, page_bytes)?;
        Ok(WriteBuffers { arena, free: Mutex::new(count), returned: Condvar::new() })
    }

    /// The memory of all buffers.
    pub(crate) fn mapping(&self) -> &Arc<Mapping> {
        self.arena.mapping()
    }

    pub(crate) fn count(&self) -> usize {
        self.arena.slots()
    }

    /// A buffer, if one is free.
    pub(crate) fn try_take(&self) -> Option<Buffer<'_>> {
        let mut free = self.free();
        *free = free.checked_sub(1)?;
        drop(free);
        let lease = self.arena.take().expect("[WBF-1] a counted buffer is in the arena");
        Some(Buffer { buffers: self, lease: Some(lease) })
    }

    /// Sleeps until a buffer may be free. Only for threads that hold none.
    pub(crate) fn wait(&self) {
        let free = self.free();
        let free = self.returned.wait_while(free, |free| *free == 0);
        drop(free.unwrap_or_else(PoisonError::into_inner));
    }

    fn free(&self) -> MutexGuard<'_, usize> {
        // Each change is one assignment, so a poisoned count is still right.
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Buffer<'_> {
    pub(crate) fn bytes(&self) -> &[u8] {
        self.lease.as_ref().expect("[WBF-1] a lent buffer is not read")
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        self.lease.as_mut().expect("[WBF-1] a lent buffer is not written")
    }

    /// The memory, for a transfer; must be returned with [`Buffer::give_back`].
    pub(crate) fn lend(&mut self) -> Lease {
        self.lease.take().expect("[WBF-1] a buffer is lent once")
    }

    /// The transfer has ended.
    pub(crate) fn give_back(&mut self, lease: Lease) {
        self.lease = Some(lease);
    }
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        // The memory first: the woken thread relies on it.
        drop(self.lease.take());
        *self.buffers.free() += 1;
        self.buffers.returned.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn wbf_1_a_dropped_buffer_wakes_a_thread_that_waits_for_one() {
        let buffers = WriteBuffers::new(1, 4096).unwrap();
        let one = buffers.try_take().unwrap();
        assert!(buffers.try_take().is_none());
        thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                buffers.wait();
                buffers.try_take().is_some()
            });
            drop(one);
            assert!(waiter.join().unwrap());
        });
    }
}
