//! What a checkpoint is asked to be.

use std::fmt;
use std::time::Duration;

use super::elevator::Elevator;

/// How a checkpoint is to be carried out.
#[derive(Debug)]
#[must_use]
pub struct CheckpointOptions {
    pub(super) over: Option<Duration>,
    pub(super) elevator: Option<Box<dyn Elevator>>,
    pub(super) combine: bool,
    pub(super) depth: Option<usize>,
}

impl CheckpointOptions {
    /// As fast as the disks take it.
    pub fn now() -> CheckpointOptions {
        CheckpointOptions { over: None, elevator: None, combine: true, depth: None }
    }

    /// Spread over so much time, at a steady pace: written by the [target share] of it, synced by its
    /// end.
    ///
    /// [target share]: crate::PoolBuilder::checkpoint_target
    pub fn spread(over: Duration) -> CheckpointOptions {
        CheckpointOptions { over: Some(over), ..CheckpointOptions::now() }
    }

    /// In another order than that of [`Balanced`](super::Balanced).
    pub fn elevator(mut self, elevator: impl Elevator + 'static) -> Self {
        self.elevator = Some(Box::new(elevator));
        self
    }

    /// Whether neighbours leave in one request. Default: yes. What it is worth is seen without.
    pub fn combine(mut self, combine: bool) -> Self {
        self.combine = combine;
        self
    }

    /// Most write requests in flight in each tablespace, from 1. Default: 32, and as many pages as there
    /// are write buffers for.
    pub fn depth(mut self, requests: usize) -> Self {
        self.depth = Some(requests.max(1));
        self
    }
}

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
