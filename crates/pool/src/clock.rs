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
    /// Held while the clock is read, so that readings are compared in their order: a reading that is less than the one
    /// before it is a backward step, not a thread that was slow.
    read: Mutex<Read>,
}

#[derive(Debug, Default)]
struct Read {
    /// The last reading.
    last: Duration,
    /// The sum of all backward steps.
    steps: Duration,
}

impl SteadyClock {
    pub(crate) fn over(clock: Arc<dyn Clock>) -> SteadyClock {
        SteadyClock { clock, read: Mutex::default() }
    }
}

impl Clock for SteadyClock {
    fn now(&self) -> Duration {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.now();
        read.steps = read.steps.saturating_add(read.last.saturating_sub(now));
        read.last = now;
        now.saturating_add(read.steps)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

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

    /// A clock that goes back by 1 s at every hundredth reading, and otherwise forward by 1 ms.
    #[derive(Debug, Default)]
    struct Jumping(AtomicU64);

    impl Clock for Jumping {
        fn now(&self) -> Duration {
            let count = self.0.fetch_add(1, Ordering::SeqCst);
            Duration::from_millis(1_000_000 + count) - Duration::from_secs(count / 100)
        }
    }

    /// A reading from before a step may be used after it: no later reading by any thread is less than what that returned.
    #[test]
    #[cfg_attr(any(loom, shuttle), ignore = "outside a model")]
    fn clk_1_threads_agree_on_time_while_the_clock_steps_back() {
        let clock = SteadyClock::over(Arc::new(Jumping::default()));
        let latest = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2_000 {
                        let before = latest.load(Ordering::SeqCst);
                        let now = clock.now().as_nanos() as u64;
                        assert!(now >= before, "[CLK-1] {now} after {before}");
                        latest.fetch_max(now, Ordering::SeqCst);
                    }
                });
            }
        });
        // One reading in a hundred is a step, which counts as no time.
        assert_eq!(clock.now(), Duration::from_millis(1_000_000 + 8_000 - 80), "[CLK-1]");
    }
}
