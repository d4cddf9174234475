//! The clock: handed to the pool, because nothing below the lab reads one by itself.
//!
//! The pool needs to know how long a thread has waited, never what time it is. An engine that builds a
//! pool may hand it another clock, such as a simulation's; `SystemClock` is the default and the
//! one place in this crate that asks the system.
#![expect(clippy::disallowed_methods, reason = "the default clock")]

use std::fmt;
use std::time::{Duration, Instant};

/// Tells how much time has passed since some fixed moment.
pub trait Clock: fmt::Debug + Send + Sync {
    /// Time since that moment. Never goes back.
    fn now(&self) -> Duration;
}

/// The system's monotonic clock, counted from when this was made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// Starts at 0 now.
    pub(crate) fn new() -> SystemClock {
        SystemClock { start: Instant::now() }
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }
}
