//! The clock: passed to the pool, because nothing below the lab reads one directly.
//!
//! The pool needs to know how long a thread has waited, never what time it is. An engine that builds a pool may pass
//! another clock, such as a simulation's; `SystemClock` is the default and the only place in this crate that reads the
//! system's time.
//!
//! A user's clock may go back, as a wall clock does when it is set. A thread that waits until some moment would wait
//! that much longer, so such a step counts as no time at all ([`SteadyClock`]).
//!
//! Invariants:  [CLK-1] time as the pool sees it never goes back, and advances while the clock does
#![expect(clippy::disallowed_methods, reason = "the default clock")]

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Reports how much time has passed since some fixed moment.
pub trait Clock: fmt::Debug + Send + Sync {
    /// Time since that moment. Should never go back; if it does, the pool counts no time.
    fn now(&self) -> Duration;
}

/// The system's monotonic clock, counted from the creation of this value.
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

/// A user's clock, without its backward steps ([CLK-1]).
#[derive(Debug)]
pub(crate) struct SteadyClock {
    clock: Arc<dyn Clock>,
    /// The latest reading, in nanoseconds, and the sum of all backward steps.
    latest: AtomicU64,
    steps: AtomicU64,
    stepping: Mutex<()>,
}

impl SteadyClock {
    pub(crate) fn over(clock: Arc<dyn Clock>) -> SteadyClock {
        let (latest, steps) = (AtomicU64::new(0), AtomicU64::new(0));
        SteadyClock { clock, latest, steps, stepping: Mutex::new(()) }
    }

    fn read(&self) -> u64 {
        u64::try_from(self.clock.now().as_nanos()).unwrap_or(u64::MAX)
    }

    /// A reading was earlier than a previous one. Returns a corrected one.
    #[cold]
    fn step_back(&self) -> u64 {
        let _alone = self.stepping.lock().unwrap_or_else(PoisonError::into_inner);
        let latest = self.latest.load(Ordering::SeqCst);
        // Read after `latest` was: it is earlier only if the clock went back, not if another thread was faster.
        let now = self.read();
        if now < latest {
            self.steps.fetch_add(latest - now, Ordering::SeqCst);
            self.latest.store(now, Ordering::SeqCst);
        }
        now
    }
}

impl Clock for SteadyClock {
    fn now(&self) -> Duration {
        let mut now = self.read();
        if now < self.latest.fetch_max(now, Ordering::SeqCst) {
            now = self.step_back();
        }
        Duration::from_nanos(now.saturating_add(self.steps.load(Ordering::SeqCst)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default)]
    struct Hands(AtomicU64);

    impl Clock for Hands {
        fn now(&self) -> Duration {
            Duration::from_nanos(self.0.load(Ordering::SeqCst))
        }
    }

    #[test]
    #[cfg_attr(any(loom, shuttle), ignore = "outside a model")]
    fn clk_1_a_step_back_is_no_time_and_time_goes_on_from_there() {
        let hands = Arc::new(Hands::default());
        let clock = SteadyClock::over(Arc::clone(&hands) as Arc<dyn Clock>);
        let mut seen = Vec::new();
        for now in [5, 100, 40, 45, 200, 0, 1] {
            hands.0.store(now, Ordering::SeqCst);
            seen.push(clock.now().as_nanos());
        }
        assert_eq!(seen, [5, 100, 100, 105, 260, 260, 261], "[CLK-1]");
    }
}
