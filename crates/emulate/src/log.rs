//! The request log: the requests to an emulated disk, in order of arrival, and their completion.
//!
//! A request is added when it arrives and completed when it has been answered, so that a reader of the
//! log in between sees it in progress. The newest million are kept.
//!
//! Example of a line:
//! ```json
//! {"us":1520.125,"number":38,"op":"read","file":"disk","offset":4096,"len":131072,"device_offset":4096,"service_us":8533.3,"replied_us":10061.7}
//! ```
//!
//! Invariants:  [LOG-1] requests are in order of arrival, and each is there once
//!              [LOG-2] at most the configured number are kept, the newest
//! Concurrency: one lock, held for a few instructions; a reader copies the entries and formats them
//!              afterwards.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::Op;

/// One request as the log records it. Times are emulated ones, in microseconds since the mount.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoggedRequest {
    /// When it arrived.
    pub us: f64,
    /// The kernel's own number for it: ascending in the order in which they were issued. Several threads take
    /// requests from the kernel, so two requests issued at once may arrive in the opposite order.
    pub number: u64,
    /// `read`, `write` or `flush`.
    pub op: LoggedOp,
    /// `disk`, or the path of a file below the mount point.
    pub file: String,
    /// First byte, in the file; 0 for a flush.
    pub offset: u64,
    /// Bytes; 0 for a flush.
    pub len: u64,
    /// Position on the device; none for a flush, and for bytes that have no place there yet.
    pub device_offset: Option<u64>,
    /// The duration set by the model; none while the request is in progress.
    pub service_us: Option<f64>,
    /// When it was answered; none while it is in progress.
    pub replied_us: Option<f64>,
}

/// What a logged request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LoggedOp {
    /// Bytes come from the device.
    Read,
    /// Bytes go to the device.
    Write,
    /// Written bytes are made durable.
    Flush,
}

impl From<Op> for LoggedOp {
    fn from(op: Op) -> LoggedOp {
        match op {
            Op::Read => LoggedOp::Read,
            Op::Write => LoggedOp::Write,
            Op::Flush => LoggedOp::Flush,
        }
    }
}

/// The properties of a request when it arrives.
#[derive(Debug, Clone)]
pub(crate) struct Arrived {
    pub(crate) at: Duration,
    pub(crate) number: u64,
    pub(crate) op: Op,
    pub(crate) file: Arc<str>,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) device_offset: Option<u64>,
}

#[derive(Debug, Clone)]
struct Entry {
    arrived: Arrived,
    /// The duration set by the model, and when the answer was sent.
    ended: Option<(Duration, Duration)>,
}

/// Identifies an entry of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EntryNumber(u64);

/// The log.
#[derive(Debug)]
pub(crate) struct RequestLog {
    kept: Mutex<KeptEntries>,
    entries_max: usize,
}

#[derive(Debug, Default)]
struct KeptEntries {
    /// Number of the first of `entries`.
    first: u64,
    entries: VecDeque<Entry>,
}

impl RequestLog {
    /// Keeps the newest `entries_max`.
    pub(crate) fn new(entries_max: usize) -> RequestLog {
        RequestLog { kept: Mutex::default(), entries_max }
    }

    fn lock(&self) -> MutexGuard<'_, KeptEntries> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a request. Called in order of arrival.
    pub(crate) fn arrived(&self, arrived: Arrived) -> EntryNumber {
        let mut kept = self.lock();
        if let Some(last) = kept.entries.back() {
            assert!(
                last.arrived.at <= arrived.at,
                "[LOG-1] a request arrived before the one before"
            );
        }
        let number = kept.first + kept.entries.len() as u64;
        kept.entries.push_back(Entry { arrived, ended: None });
        if kept.entries.len() > self.entries_max {
            kept.entries.pop_front();
            kept.first += 1;
        }
        EntryNumber(number)
    }

    /// Completes an entry, if it is still kept.
    pub(crate) fn ended(&self, number: EntryNumber, service: Duration, replied: Duration) {
        let mut kept = self.lock();
        let Some(index) = number.0.checked_sub(kept.first) else { return };
        if let Some(entry) = kept.entries.get_mut(index as usize) {
            entry.ended = Some((service, replied));
        }
    }

    /// Removes all entries.
    pub(crate) fn clear(&self) {
        let mut kept = self.lock();
        kept.first += kept.entries.len() as u64;
        kept.entries.clear();
    }

    /// The current entries, as JSON lines.
    pub(crate) fn lines(&self) -> Vec<u8> {
        let entries: Vec<Entry> = self.lock().entries.iter().cloned().collect();
        let mut lines = Vec::with_capacity(entries.len() * 160);
        entries.iter().for_each(|entry| entry.line(&mut lines));
        lines
    }

    /// Lines of the entries from `next` on that have ended, up to the first that has not; `next` becomes
    /// the number after them.
    pub(crate) fn ended_lines(&self, next: &mut u64) -> Vec<u8> {
        let kept = self.lock();
        *next = (*next).max(kept.first);
        let from = (*next - kept.first) as usize;
        let news = kept.entries.iter().skip(from).take_while(|entry| entry.ended.is_some());
        let news: Vec<Entry> = news.cloned().collect();
        drop(kept);
        *next += news.len() as u64;
        let mut lines = Vec::with_capacity(news.len() * 160);
        news.iter().for_each(|entry| entry.line(&mut lines));
        lines
    }
}

fn us(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}

impl Entry {
    fn line(&self, lines: &mut Vec<u8>) {
        let arrived = &self.arrived;
        let request = LoggedRequest {
            us: us(arrived.at),
            number: arrived.number,
            op: arrived.op.into(),
            file: arrived.file.to_string(),
            offset: arrived.offset,
            len: arrived.len,
            device_offset: arrived.device_offset,
            service_us: self.ended.map(|(service, _)| us(service)),
            replied_us: self.ended.map(|(_, replied)| us(replied)),
        };
        // Neither the numbers nor the writer can fail.
        if serde_json::to_writer(&mut *lines, &request).is_ok() {
            lines.push(b'\n');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrived(ms: u64, file: &str) -> Arrived {
        let at = Duration::from_millis(ms);
        Arrived {
            at,
            number: ms,
            op: Op::Read,
            file: file.into(),
            offset: 4096,
            len: 8192,
            device_offset: None,
        }
    }

    fn parsed(lines: &[u8]) -> Vec<LoggedRequest> {
        let text = std::str::from_utf8(lines).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn requests_are_listed_in_order_of_arrival_with_those_in_flight() {
        let log = RequestLog::new(10);
        let first = log.arrived(arrived(1, "disk"));
        let second = log.arrived(arrived(2, "a/\"quoted\""));
        log.ended(second, Duration::from_micros(100), Duration::from_micros(2_101));
        let entries = parsed(&log.lines());
        assert_eq!(entries.len(), 2, "[LOG-1]");
        assert_eq!((entries[0].us, entries[0].service_us), (1000.0, None), "[LOG-1]");
        assert_eq!(entries[1].file, "a/\"quoted\"");
        assert_eq!((entries[1].service_us, entries[1].replied_us), (Some(100.0), Some(2101.0)));
        log.ended(first, Duration::ZERO, Duration::from_millis(3));
        assert_eq!(parsed(&log.lines())[0].replied_us, Some(3000.0));
    }

    #[test]
    fn the_newest_are_kept_and_late_ends_of_forgotten_ones_do_no_harm() {
        let log = RequestLog::new(3);
        let numbers: Vec<EntryNumber> = (0..5).map(|ms| log.arrived(arrived(ms, "disk"))).collect();
        numbers.iter().for_each(|one| log.ended(*one, Duration::ZERO, Duration::from_secs(one.0)));
        let entries = parsed(&log.lines());
        let replied: Vec<_> = entries.iter().map(|one| one.replied_us.unwrap() / 1e6).collect();
        assert_eq!(replied, [2.0, 3.0, 4.0], "[LOG-2]");
        let under_way = log.arrived(arrived(9, "disk"));
        log.clear();
        log.ended(under_way, Duration::ZERO, Duration::ZERO);
        assert!(log.lines().is_empty());
    }

    #[test]
    fn a_follower_gets_each_ended_entry_once_and_in_order() {
        let log = RequestLog::new(100);
        let mut next = 0;
        let (a, b) = (log.arrived(arrived(1, "a")), log.arrived(arrived(2, "b")));
        log.ended(b, Duration::ZERO, Duration::ZERO);
        assert!(log.ended_lines(&mut next).is_empty(), "[LOG-1] b arrived after a");
        log.ended(a, Duration::ZERO, Duration::ZERO);
        let entries: Vec<_> =
            parsed(&log.ended_lines(&mut next)).into_iter().map(|one| one.file).collect();
        assert_eq!(entries, ["a", "b"], "[LOG-1]");
        assert!(log.ended_lines(&mut next).is_empty());
    }
}
