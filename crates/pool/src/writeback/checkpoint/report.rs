//! What a checkpoint is doing, and what it did, as a struct and as one line of a log.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::observe::stats::bytes;
use crate::tag::Lsn;

/// Why a checkpoint was begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Trigger {
    /// Somebody asked for it.
    Request,
    /// The interval had passed.
    Time,
    /// The log had grown by so much.
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
    /// It is asked for, and waits for the one before it.
    Waiting,
    /// Finding and ordering what is dirty.
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

/// How far a checkpoint has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// What it is doing.
    pub phase: Phase,
    /// Pages that were dirty when it began.
    pub pages: u64,
    /// Those of them that are dealt with: written, by it or by others, gone, or failed.
    pub pages_done: u64,
    /// Files it has synced.
    pub files_synced: u64,
    /// Since its beginning.
    pub elapsed: Duration,
}

/// What a checkpoint did. Displayed, it is one line.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CheckpointReport {
    /// Why it was begun.
    pub trigger: Trigger,
    /// Where recovery begins from now on.
    pub redo: Lsn,
    /// Log since the redo point before, in bytes (the difference of the two); 0 for a pool's first, before
    /// which none is known.
    pub log_bytes: u64,
    /// The name of the [order](crate::Elevator) in which it wrote.
    pub elevator: &'static str,
    /// Pages it wrote.
    pub pages: u64,
    /// Pages that were dirty when it began and that somebody else wrote first: the cleaner, a thread in
    /// need of a frame, a flush.
    pub pages_by_others: u64,
    /// Pages that went with their files, or with the end of one, before their turn.
    pub pages_gone: u64,
    /// Write requests.
    pub requests: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Files synced, each once.
    pub files_synced: u64,
    /// The longest sync.
    pub sync_longest: Duration,
    /// What a sync took on average; zero when there was none.
    pub sync_average: Duration,
    /// From its beginning to the end of the last write.
    pub write: Duration,
    /// From there to the end of the last sync.
    pub sync: Duration,
    /// From its beginning to its end.
    pub total: Duration,
    /// What it was spread over; `None` when it was to be as fast as the disks.
    pub interval: Option<Duration>,
    /// By how much it was behind its plan when that was most.
    pub lag: Duration,
    /// By how much writes were put off, at most, because other threads' reads had become slow,
    /// or they had to wait longer for what was read ahead.
    pub yielded: Duration,
    /// 99 of a hundred reads that other threads began and waited for (not those ahead of them, of which
    /// they wait for a part) took no longer, from the end of the checkpoint before this
    /// (or the pool's beginning) to its start; `None` when there were none.
    pub read_p99_before: Option<Duration>,
    /// As [`read_p99_before`](CheckpointReport::read_p99_before), while it was under way.
    pub read_p99_during: Option<Duration>,
    /// By tablespace, in the order in which they were given.
    pub tablespaces: Vec<TablespaceReport>,
}

/// What a checkpoint did in one tablespace.
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
    /// When its last write had ended, counted from the checkpoint's beginning.
    pub writes_ended: Duration,
    /// When its last sync had ended, counted so, too.
    pub ended: Duration,
}

impl TablespaceReport {
    pub(super) fn new(name: &Arc<str>) -> TablespaceReport {
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
    pub(super) fn new(trigger: Trigger, tablespaces: Vec<TablespaceReport>) -> CheckpointReport {
        CheckpointReport {
            trigger,
            redo: Lsn::NONE,
            log_bytes: 0,
            elevator: "",
            pages: 0,
            pages_by_others: 0,
            pages_gone: 0,
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

    /// Bytes of a write request on average; zero when there was none.
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
