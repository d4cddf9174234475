//! Threads that sleep until another thread wakes them.
//!
//! A thread registers *before* it checks the condition that it waits for, and parks only if the condition is false. The
//! park token keeps a wake-up between the two, so none is lost.
//!
//! Concurrency: any thread; the lock is held for a few instructions, never across a park.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};

/// A list of threads, woken in turn.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    threads: Mutex<VecDeque<Thread>>,
    /// Length of `threads`: with no waiters, waking costs one load.
    count: AtomicUsize,
}

impl Waiters {
    /// Puts the calling thread on the list until the guard is dropped.
    pub(crate) fn register(&self) -> Registered<'_> {
        let mut threads = self.lock();
        threads.push_back(thread::current());
        self.count.store(threads.len(), Ordering::SeqCst);
        Registered { waiters: self }
    }

    /// Wakes the thread that was woken longest ago; it stays on the list.
    pub(crate) fn wake_one(&self) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut threads = self.lock();
        if let Some(thread) = threads.pop_front() {
            thread.unpark();
            threads.push_back(thread);
        }
    }

    /// Wakes every thread on the list.
    pub(crate) fn wake_all(&self) {
        if self.count.load(Ordering::SeqCst) > 0 {
            self.lock().iter().for_each(Thread::unpark);
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Thread>> {
        // No code that can panic runs under the lock, so a poisoned list is still whole.
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps the calling thread on a list of [`Waiters`].
#[must_use]
pub(crate) struct Registered<'a> {
    waiters: &'a Waiters,
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        let me = thread::current().id();
        let mut threads = self.waiters.lock();
        // Search from the back: it holds the newest threads, and the one that was woken last.
        if let Some(place) = threads.iter().rposition(|thread| thread.id() == me) {
            threads.remove(place);
        }
        self.waiters.count.store(threads.len(), Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn a_wake_between_the_look_and_the_park_is_not_lost() {
        let waiters = Waiters::default();
        let _registered = waiters.register();
        waiters.wake_one();
        thread::park();
    }

    #[test]
    fn leaving_takes_only_ones_own_entry() {
        let waiters = Waiters::default();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let _registered = waiters.register();
                while !stop.load(Ordering::SeqCst) {
                    thread::park();
                }
            });
            while waiters.count.load(Ordering::SeqCst) == 0 {
                thread::yield_now();
            }
            drop(waiters.register());
            assert_eq!(waiters.count.load(Ordering::SeqCst), 1);
            stop.store(true, Ordering::SeqCst);
            waiters.wake_all();
        });
        assert_eq!(waiters.count.load(Ordering::SeqCst), 0);
    }
}
