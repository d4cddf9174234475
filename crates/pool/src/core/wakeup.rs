//! How the cleaner is woken.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, Thread};

/// How the cleaner is woken.
#[derive(Debug)]
pub(crate) struct Wakeup {
    /// Frames taken by clock sweeps so far.
    pub(crate) allocations: AtomicU64,
    /// The number of taken frames at which the cleaner is woken.
    pub(crate) wake_at: AtomicU64,
    /// It was woken, and has not seen that yet.
    pub(crate) pending: AtomicBool,
    /// Page tables have idle memory.
    pub(crate) tables: AtomicBool,
    pub(crate) stop: AtomicBool,
    pub(crate) thread: OnceLock<Thread>,
}

impl Wakeup {
    pub(crate) fn new() -> Wakeup {
        Wakeup {
            allocations: AtomicU64::new(0),
            wake_at: AtomicU64::new(u64::MAX),
            pending: AtomicBool::new(false),
            tables: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            thread: OnceLock::new(),
        }
    }

    /// A frame was taken by the clock sweep.
    pub(crate) fn allocated(&self) {
        let count = self.allocations.fetch_add(1, Ordering::Relaxed) + 1;
        if count >= self.wake_at.load(Ordering::Relaxed) {
            self.wake();
        }
    }

    /// The clock sweep met a dirty victim.
    pub(crate) fn wake(&self) {
        if !self.pending.swap(true, Ordering::AcqRel)
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }

    /// Page tables have idle memory.
    pub(crate) fn wake_for_tables(&self) {
        if !self.tables.swap(true, Ordering::AcqRel) {
            self.wake();
        }
    }

    /// Sleeps until it is woken. False when it must stop.
    pub(crate) fn wait(&self) -> bool {
        while !self.pending.swap(false, Ordering::AcqRel) {
            thread::park();
        }
        !self.stop.load(Ordering::Acquire)
    }
}
