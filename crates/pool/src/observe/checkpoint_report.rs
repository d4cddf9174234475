//! The progress and the result of a checkpoint, as a struct and as one line of a log.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::observe::stats::bytes;
use crate::tag::Lsn;

/// Why a checkpoint was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Trigger {
    /// It was requested.
    Request,
    /// The interval had passed.
    Time,
    /// The log had grown by the configured amount.
    Log,
}

impl fmt::Display for Trigger {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Trigger::Request => "request",
            Trigger::Time => "time",
            Trigger::Log => "log",
        })
    }
}

/// What a checkpoint is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
    /// It is requested, and waits for the one before it.
    Waiting,
    /// Finding and ordering dirty pages.
    Scanning,
    /// Writing pages.
    Writing,
    /// Syncing files.
    Syncing,
}

impl fmt::Display for Phase {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Phase::Waiting => "waiting",
            Phase::Scanning => "scanning",
            Phase::Writing => "writing",
            Phase::Syncing => "syncing",
        })
    }
}

/// The progress of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// What it is doing.
    pub phase: Phase,
    /// Pages that were dirty when it began.
    pub pages: u64,
    /// Those of them that are done: written, by the checkpoint or by others, discarded, or failed.
    pub pages_done: u64,
    /// Files it has synced.
    pub files_synced: u64,
    /// Time since its start.
    pub elapsed: Duration,
}

/// The result of a checkpoint. `Display` prints it on one line.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CheckpointReport {
    /// Why it was started.
    pub trigger: Trigger,
    /// Where recovery starts from now on.
    pub redo: Lsn,
    /// Log since the previous redo point, in bytes (the difference of the two); 0 for a pool's first checkpoint, before
    /// which none is known.
    pub log_bytes: u64,
    /// The name of its [write order](crate::Elevator).
    pub elevator: &'static str,
    /// Pages it wrote.
    pub pages: u64,
    /// Pages that were dirty when it started and that another thread wrote first: the cleaner, a thread that needed a
    /// frame, a flush.
    pub pages_by_others: u64,
    /// Pages that were dropped or truncated before their turn.
    pub pages_invalidated: u64,
    /// Write requests.
    pub requests: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Files synced, each once.
    pub files_synced: u64,
    /// The longest sync.
    pub sync_longest: Duration,
    /// The average duration of a sync; zero when there was none.
    pub sync_average: Duration,
    /// From its start to the end of the last write.
    pub write: Duration,
    /// From there to the end of the last sync.
    pub sync: Duration,
    /// From its start to its end.
    pub total: Duration,
    /// The interval that it was spread over; `None` when it was as fast as the disks allow.
    pub interval: Option<Duration>,
    /// The largest delay behind its plan.
    pub lag: Duration,
    /// The largest deferral of writes because other threads' reads had become slow, or because they had to wait longer
    /// for pages read ahead.
    pub yielded: Duration,
    /// The 99th percentile of reads that other threads began and waited for (not reads ahead, for which they wait only
    /// in part), from the end of the checkpoint before this (or the pool's start) to its start; `None` when there were
    /// none.
    pub read_p99_before: Option<Duration>,
    /// As [`read_p99_before`](CheckpointReport::read_p99_before), during the checkpoint.
    pub read_p99_during: Option<Duration>,
    /// By tablespace, in the order in which they were configured.
    pub tablespaces: Vec<TablespaceReport>,
}

/// The result of a checkpoint in one tablespace.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TablespaceReport {
    /// Its name.
    pub name: Arc<str>,
    /// Pages written.
    pub pages: u64,
    /// Write requests.
    pub requests: u64,
    /// Bytes written.
    pub bytes: u64,
    /// When its last write had ended, measured from the checkpoint's start.
    pub writes_ended: Duration,
    /// When its last sync had ended, measured likewise.
    pub ended: Duration,
}

impl TablespaceReport {
    pub(crate) fn new(name: &Arc<str>) -> TablespaceReport {
        TablespaceReport {
            name: Arc::clone(name),
            pages: 0,
            requests: 0,
            bytes: 0,
            writes_ended: Duration::ZERO,
            ended: Duration::ZERO,
        }
    }
}

impl CheckpointReport {
    pub(crate) fn new(trigger: Trigger, tablespaces: Vec<TablespaceReport>) -> CheckpointReport {
        CheckpointReport {
            trigger,
            redo: Lsn::NONE,
            log_bytes: 0,
            elevator: "",
            pages: 0,
            pages_by_others: 0,
            pages_invalidated: 0,
            requests: 0,
            bytes: 0,
            files_synced: 0,
            sync_longest: Duration::ZERO,
            sync_average: Duration::ZERO,
            write: Duration::ZERO,
            sync: Duration::ZERO,
            total: Duration::ZERO,
            interval: None,
            lag: Duration::ZERO,
            yielded: Duration::ZERO,
            read_p99_before: None,
            read_p99_during: None,
            tablespaces,
        }
    }

    /// Average bytes of a write request; zero when there was none.
    pub fn bytes_per_request(&self) -> u64 {
        self.bytes.checked_div(self.requests).unwrap_or(0)
    }
}

impl fmt::Display for CheckpointReport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "checkpoint ({}): {} pages in {} requests, {} ({} each), {} by others; {} files synced, \
             longest {:.1?}, average {:.1?}; write {:.1?}, sync {:.1?}, total {:.1?}; {} of log, redo {}",
            self.trigger,
            self.pages,
            self.requests,
            bytes(self.bytes),
            bytes(self.bytes_per_request()),
            self.pages_by_others,
            self.files_synced,
            self.sync_longest,
            self.sync_average,
            self.write,
            self.sync,
            self.total,
            bytes(self.log_bytes),
            self.redo,
        )?;
        if let Some(interval) = self.interval {
            write!(out, "; spread over {interval:.1?}, lag {:.1?}", self.lag)?;
        }
        let or_none = |time: Option<Duration>| match time {
            Some(time) => format!("{time:.1?}"),
            None => "none".to_owned(),
        };
        if self.read_p99_before.is_some() || self.read_p99_during.is_some() {
            let (before, during) = (or_none(self.read_p99_before), or_none(self.read_p99_during));
            write!(out, "; reads p99 {during} ({before} before)")?;
        }
        if self.tablespaces.len() > 1 {
            for space in &self.tablespaces {
                write!(out, "; {}: {} pages, ended {:.1?}", space.name, space.pages, space.ended)?;
            }
        }
        Ok(())
    }
}
