//! Options of a checkpoint.

use std::time::Duration;

use crate::names::names;

/// The parameters of a checkpoint.
#[derive(Debug, Clone, Copy)]
#[must_use]
pub struct CheckpointOptions {
    pub(crate) over: Option<Duration>,
    pub(crate) elevator: Elevator,
    pub(crate) combine: bool,
    pub(crate) depth: Option<usize>,
}

impl CheckpointOptions {
    /// As fast as the disks allow.
    pub fn now() -> CheckpointOptions {
        CheckpointOptions { over: None, elevator: Elevator::Balanced, combine: true, depth: None }
    }

    /// Spread over this time, at a steady pace: written by the [target share] of it, synced by its end.
    ///
    /// [target share]: crate::PoolBuilder::checkpoint_target
    pub fn spread(over: Duration) -> CheckpointOptions {
        CheckpointOptions { over: Some(over), ..CheckpointOptions::now() }
    }

    /// Write in this order. Default: [`Elevator::Balanced`].
    pub fn elevator(mut self, elevator: Elevator) -> Self {
        self.elevator = elevator;
        self
    }

    /// Whether neighbours are written in one request. Default: yes. Disable it to measure its benefit.
    pub fn combine(mut self, combine: bool) -> Self {
        self.combine = combine;
        self
    }

    /// Most write requests in flight in each tablespace, from 1. Default: 32, limited by the number of write buffers.
    pub fn depth(mut self, requests: usize) -> Self {
        self.depth = Some(requests.max(1));
        self
    }
}

/// The order in which a checkpoint writes pages. Consecutive neighbours are written in one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Elevator {
    /// In the order of frames, as a clock hand would reach them: the baseline for comparison.
    Arrival,
    /// By tablespace, file and block, one tablespace after the other. For one disk.
    Sorted,
    /// Each tablespace by file and block, all of them in proportion. For several disks.
    #[default]
    Balanced,
}

names!(Elevator:
    Arrival "arrival", Sorted "sorted", Balanced "balanced"
);
