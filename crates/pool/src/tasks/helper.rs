//! A thread of the pool that is started when there is work for the first time, and sleeps while there is none.
//!
//! Concurrency: no wakeup is lost: the thread consumes it before it works, so a later one makes it work again.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

use crate::error::Error;

/// The pause after a panic.
const AFTER_A_PANIC: Duration = Duration::from_millis(5);

#[derive(Debug, Default)]
pub(crate) struct Helper {
    /// It was woken, and has not seen that yet.
    pending: AtomicBool,
    stopped: AtomicBool,
    /// The thread to be woken. Set under the lock of `thread`.
    started: OnceLock<Thread>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Helper {
    /// Signals that there is work. If the thread has to be started, `work` creates its function, which runs at each
    /// wakeup.
    ///
    /// # Errors
    /// [`Error::Setting`] when the system cannot create a thread.
    pub(crate) fn wake<W>(self: &Arc<Self>, work: impl FnOnce() -> W) -> Result<(), Error>
    where
        W: FnMut(&Helper) + Send + 'static,
    {
        self.wake_by(work, |run| thread::Builder::new().name("forebay-tasks".to_owned()).spawn(run))
    }

    /// As [`Helper::wake`], with the function that starts a thread.
    fn wake_by<W>(
        self: &Arc<Self>,
        work: impl FnOnce() -> W,
        spawn: impl FnOnce(Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>>,
    ) -> Result<(), Error>
    where
        W: FnMut(&Helper) + Send + 'static,
    {
        let is_first = !self.pending.swap(true, Ordering::SeqCst);
        if let Some(thread) = self.started.get() {
            if is_first {
                thread.unpark();
            }
            return Ok(());
        }
        // No thread relies on another's start, which may fail.
        let mut thread = self.thread();
        if let Some(started) = self.started.get() {
            started.unpark();
        } else if !self.is_stopped() {
            let (me, mut work) = (Arc::clone(self), work());
            let run = move || {
                while me.wait() {
                    // Caused by a user's log or clock. The tasks detect it on their own.
                    if catch_unwind(AssertUnwindSafe(|| work(&me))).is_err() {
                        tracing::error!("a panic in a thread that works for tasks; it goes on");
                        // It may have been half-way through, and possibly no other thread wakes it for the waiters.
                        thread::sleep(AFTER_A_PANIC);
                        me.pending.store(true, Ordering::SeqCst);
                    }
                }
            };
            let started = spawn(Box::new(run)).map_err(|error| Error::Setting {
                setting: "the thread that works for tasks",
                value: "not started".to_owned(),
                expected: format!(
                    "the system refused it ({error}); raise the limit on threads, or build the pool \
                     without such threads and call `drive`"
                ),
            })?;
            self.started.get_or_init(|| started.thread().clone());
            *thread = Some(started);
        }
        Ok(())
    }

    /// Sleeps until it is woken. False when it must stop.
    fn wait(&self) -> bool {
        while !self.pending.swap(false, Ordering::SeqCst) {
            thread::park();
        }
        !self.is_stopped()
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    /// Ends the thread, and waits for that, unless it is the calling thread: a waker may have dropped the pool.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        let Some(thread) = self.thread().take() else { return };
        self.pending.store(true, Ordering::SeqCst);
        thread.thread().unpark();
        if thread.thread().id() != thread::current().id() && thread.join().is_err() {
            tracing::error!("a thread that worked for tasks panicked");
        }
    }

    fn thread(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        // Each change is one assignment, so a poisoned value is still consistent.
        self.thread.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Another thread wakes it while one is being started, and relies on that.
    #[test]
    fn who_wakes_it_while_no_thread_can_be_started_is_served_or_refused() {
        let helper = Arc::new(Helper::default());
        let (send, done) = mpsc::channel();
        let work = move || move |_: &Helper| assert!(send.send(()).is_ok());
        let mut second = None;
        let first = helper.wake_by(work.clone(), |_| {
            let helper = Arc::clone(&helper);
            second = Some(thread::spawn(move || helper.wake(work)));
            // As long as the system takes to refuse.
            thread::sleep(Duration::from_millis(50));
            Err(io::ErrorKind::WouldBlock.into())
        });
        assert!(matches!(first, Err(Error::Setting { .. })), "{first:?}");
        second.unwrap().join().unwrap().unwrap();
        done.recv_timeout(Duration::from_secs(30)).expect("reported as served, and is not");
        helper.stop();
    }
}
