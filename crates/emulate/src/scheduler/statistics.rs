//! Counters of an emulated disk: requests, bytes, busy time, and how late its answers were.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::model::Op;

/// Counters since the mount. Bytes and requests are counted when they arrive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Read requests.
    pub reads: u64,
    /// Bytes of read requests.
    pub read_bytes: u64,
    /// Write requests.
    pub writes: u64,
    /// Bytes of write requests.
    pub write_bytes: u64,
    /// Flush requests.
    pub flushes: u64,
    /// Requests that have no answer yet.
    pub in_flight: u64,
    /// Emulated time during which at least one request had no answer, in microseconds.
    pub busy_us: u64,
}

/// How well the real clock followed the model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Answered requests.
    pub requests: u64,
    /// Real microseconds from the end that the model set until the answer was sent: the median over the requests that
    /// took time.
    pub late_us_p50: u64,
    /// The 99th percentile of the same.
    pub late_us_p99: u64,
}

/// Longest lateness that the histogram distinguishes from longer ones: a minute.
const LATE_US_MAX: u64 = 60_000_000;

#[derive(Debug)]
pub(super) struct Statistics {
    counters: Counters,
    busy: Duration,
    /// Since when there has been a request in flight, if there is one.
    busy_since: Duration,
    answered: u64,
    /// Real nanoseconds.
    late: Histogram<u64>,
}

impl Default for Statistics {
    fn default() -> Statistics {
        let bounds = Histogram::new_with_bounds(1, LATE_US_MAX * 1000, 2);
        Statistics {
            counters: Counters::default(),
            busy: Duration::ZERO,
            busy_since: Duration::ZERO,
            answered: 0,
            late: bounds.unwrap_or_else(|_| unreachable!("the bounds are in order")),
        }
    }
}

impl Statistics {
    pub(super) fn arrived(&mut self, op: Op, len: u64, now: Duration) {
        let counters = &mut self.counters;
        match op {
            Op::Read => {
                counters.reads += 1;
                counters.read_bytes += len;
            }
            Op::Write => {
                counters.writes += 1;
                counters.write_bytes += len;
            }
            Op::Flush => counters.flushes += 1,
        }
        if counters.in_flight == 0 {
            self.busy_since = now;
        }
        counters.in_flight += 1;
    }

    /// `late`: real time from the model's end to the answer, for requests that took time.
    pub(super) fn answered(&mut self, late: Option<Duration>, now: Duration) {
        self.answered += 1;
        self.counters.in_flight -= 1;
        if self.counters.in_flight == 0 {
            self.busy += now.saturating_sub(self.busy_since);
        }
        if let Some(late) = late {
            self.late.saturating_record(u64::try_from(late.as_nanos()).unwrap_or(u64::MAX));
        }
    }

    pub(super) fn counters(&self, now: Duration) -> Counters {
        let under_way = match self.counters.in_flight {
            0 => Duration::ZERO,
            _ => now.saturating_sub(self.busy_since),
        };
        let busy_us = (self.busy + under_way).as_micros() as u64;
        Counters { busy_us, ..self.counters }
    }

    pub(super) fn summary(&self) -> Summary {
        let us = |quantile| self.late.value_at_quantile(quantile).div_ceil(1000);
        let empty = self.late.is_empty();
        Summary {
            requests: self.answered,
            late_us_p50: if empty { 0 } else { us(0.5) },
            late_us_p99: if empty { 0 } else { us(0.99) },
        }
    }
}
