//! Drivers: process the completions of one queue for tasks, which cannot do it while they wait.
//!
//! Threads that wait drive a queue themselves. Where only tasks wait, no thread would process completions, so a driver
//! thread does, while requests are in flight and a task waits for the queue. It also processes the requests that
//! threads have submitted to the same queue.
//!
//! Invariants:  [DRV-1] while tasks wait for a queue and requests are in flight, it is driven: a task that begins to
//!              wait registers before the driver checks what is in flight, and a thread submits before it checks
//!              whether tasks wait
//! Concurrency: any thread; the driver's own thread holds no lock of the pool while it waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use forebay_io::{Io, Kind};

use super::helper::Helper;
use crate::error::Error;

/// Drives one queue for tasks.
#[derive(Debug)]
pub(crate) struct Driver {
    helper: Arc<Helper>,
    /// Tasks that wait for a request in the queue.
    waiting: Arc<AtomicUsize>,
    /// True if it may have a thread.
    threads: bool,
}

/// A task that waits for a queue.
#[derive(Debug)]
pub(crate) struct Attended<'d>(&'d Driver);

impl Driver {
    pub(crate) fn new(threads: bool) -> Driver {
        Driver { helper: Arc::default(), waiting: Arc::default(), threads }
    }

    /// Until the guard is dropped, a task waits for requests in `io`.
    ///
    /// # Errors
    /// [`Error::Setting`] when the system cannot create a thread.
    pub(crate) fn attend(&self, io: &Io) -> Result<Attended<'_>, Error> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let attended = Attended(self);
        self.wake(io)?;
        Ok(attended)
    }

    /// A request was submitted to `io`, possibly after a task began to wait for it ([DRV-1]).
    pub(crate) fn submitted(&self, io: &Io) {
        if self.waiting.load(Ordering::SeqCst) > 0
            && io.in_flight() > 0
            && let Err(error) = self.wake(io)
        {
            tracing::error!(%error, "tasks that wait for a queue may wait forever");
        }
    }

    fn wake(&self, io: &Io) -> Result<(), Error> {
        if !self.threads || io.kind() == Kind::Threads {
            return Ok(());
        }
        self.helper.wake(|| {
            let (io, waiting) = (io.clone(), Arc::clone(&self.waiting));
            move |helper: &Helper| {
                io.wait_until(&|| {
                    io.in_flight() == 0
                        || waiting.load(Ordering::SeqCst) == 0
                        || helper.is_stopped()
                });
            }
        })
    }

    pub(crate) fn stop(&self) {
        self.helper.stop();
    }
}

impl Drop for Attended<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}
