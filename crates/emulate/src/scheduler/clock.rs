//! The clock of an emulated disk: real time since its beginning, times the speed-up; and the date, for its files.
//!
//! The only module of this crate that reads the system's clock.
#![expect(clippy::disallowed_methods, reason = "the clock")]

use std::time::{Duration, Instant, SystemTime};

/// A date, for the times of files.
pub(crate) type Date = SystemTime;

/// The current date.
pub(crate) fn today() -> Date {
    SystemTime::now()
}

/// Counts emulated time from its start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    started: Instant,
    speed_up: f64,
}

impl Clock {
    /// Starts at zero. `speed_up`: emulated seconds per real second, above zero.
    pub(crate) fn start(speed_up: f64) -> Clock {
        assert!(speed_up > 0.0 && speed_up.is_finite(), "a clock that stands still");
        Clock { started: Instant::now(), speed_up }
    }

    /// Emulated time since the start.
    pub(crate) fn now(&self) -> Duration {
        Duration::from_nanos(self.now_ns())
    }

    /// Emulated time since the start, in nanoseconds.
    pub(crate) fn now_ns(&self) -> u64 {
        let real_ns = self.started.elapsed().as_nanos();
        if self.speed_up == 1.0 { real_ns as u64 } else { (real_ns as f64 * self.speed_up) as u64 }
    }

    /// The real duration of the emulated duration `emulated`.
    pub(crate) fn real(&self, emulated: Duration) -> Duration {
        if self.speed_up == 1.0 { emulated } else { emulated.div_f64(self.speed_up) }
    }
}

/// Makes the calling thread's sleeps end as soon as the kernel can, not up to 50 microseconds later.
#[cfg(all(target_os = "linux", not(forebay_portable)))]
pub(super) fn least_timer_slack() {
    // Errors are ignored: the leader polls the clock at the end of each sleep anyway.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
}

/// Other systems have no such setting.
#[cfg(not(all(target_os = "linux", not(forebay_portable))))]
pub(super) fn least_timer_slack() {}
