//! How the cleaner is told that it is needed.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, Thread};

/// How the cleaner is told that it is needed.
#[derive(Debug)]
pub(crate) struct Wakeup {
    /// Frames taken by sweeps so far.
    pub(super) allocations: AtomicU64,
    /// Wake the cleaner when that many have been taken.
    pub(super) wake_at: AtomicU64,
    pub(super) rung: AtomicBool,
    /// Page tables have idle memory.
    pub(super) tables: AtomicBool,
    pub(super) stop: AtomicBool,
    pub(super) thread: OnceLock<Thread>,
}

impl Wakeup {
    pub(crate) fn new() -> Wakeup {
        Wakeup {
            allocations: AtomicU64::new(0),
            wake_at: AtomicU64::new(u64::MAX),
            rung: AtomicBool::new(false),
            tables: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            thread: OnceLock::new(),
        }
    }

    /// A frame was taken from the sweep.
    pub(crate) fn allocated(&self) {
        let count = self.allocations.fetch_add(1, Ordering::Relaxed) + 1;
        if count >= self.wake_at.load(Ordering::Relaxed) {
            self.ring();
        }
    }

    /// A sweep met a dirty victim.
    pub(crate) fn ring(&self) {
        if !self.rung.swap(true, Ordering::AcqRel)
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }

    /// Page tables have idle memory.
    pub(crate) fn ring_for_tables(&self) {
        if !self.tables.swap(true, Ordering::AcqRel) {
            self.ring();
        }
    }

    /// Sleeps until it is rung. False when it is for stopping.
    pub(super) fn wait(&self) -> bool {
        while !self.rung.swap(false, Ordering::AcqRel) {
            thread::park();
        }
        !self.stop.load(Ordering::Acquire)
    }
}
