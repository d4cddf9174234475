//! Whether look-ahead is traced, and to which trace.
//!
//! When off, it costs one relaxed load for each decision (a request, not a page).

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use super::Trace;

/// The current trace, if there is one.
#[derive(Debug, Default)]
pub(crate) struct Tracing {
    on: AtomicBool,
    trace: Mutex<Option<Trace>>,
    streams: AtomicU32,
}

impl Tracing {
    /// The trace to record to now.
    pub(crate) fn now(&self) -> Option<Trace> {
        if !self.on.load(Ordering::Relaxed) {
            return None;
        }
        // Each change is one assignment, so a poisoned value is still consistent.
        self.trace.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Records to `trace` from now on, or stops recording.
    pub(crate) fn set(&self, trace: Option<Trace>) {
        let mut place = self.trace.lock().unwrap_or_else(PoisonError::into_inner);
        self.on.store(trace.is_some(), Ordering::Relaxed);
        *place = trace;
    }

    /// A number for a stream, from 1 on; 0 stands for plain reads.
    pub(crate) fn stream_number(&self) -> u32 {
        self.streams.fetch_add(1, Ordering::Relaxed).wrapping_add(1).max(1)
    }
}
