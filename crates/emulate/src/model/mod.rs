//! Timing models: how long a device takes, and which command it executes next.
//!
//! A model is a discrete simulation. The caller passes each command as it arrives; the model says when it wants to
//! be advanced next, and each advance returns the commands that have ended by then. The caller supplies the
//! time, counted from an origin of its choice: a real clock, a clock that runs faster, or the
//! next moment at which something happens.
//!
//! Worked example: a disk with one head gets reads at 0 ms for places far from each other. It requests to be
//! advanced at 11 ms, when the first has ended, then at 19 ms.
//!
//! Inside, time is in whole nanoseconds, so that the same commands at the same times end at the same
//! times on every machine. Models can contain models: an [`array`](mod@array) has many devices, a
//! [`controller`] has one, and neither knows their kind.
//!
//! Invariants:  [MOD-1] every command ends once, not before it arrived
//!              [MOD-2] time passed to a model never goes back; ended commands are returned in order of time
//! Concurrency: one caller at a time.
//! Failure:     none. A place beyond the device's end counts as the end, a time before the last one passed
//!              counts as that one.

use std::time::Duration;

pub mod array;
pub mod cloud;
pub mod controller;
pub mod disk;
pub mod fixed;
pub mod flash;

mod bucket;
mod dirty;
mod outbox;
mod queue;

/// Bytes of a sector, the unit of every position and length.
pub const SECTOR_BYTES: u64 = 512;

/// The operation of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Op {
    /// Bytes come from the device.
    Read,
    /// Bytes go to the device, perhaps into its own cache.
    Write,
    /// Everything written and ended before this arrived must reach the medium.
    Flush,
}

/// One command, as it arrives at the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Command {
    /// Its operation.
    pub op: Op,
    /// First byte, a multiple of 512; 0 for a flush.
    pub offset: u64,
    /// Bytes, a multiple of 512; 0 for a flush.
    pub len: u64,
}

impl Command {
    /// The command without the part beyond the end of the device; it keeps at least a sector.
    pub(crate) fn within(self, size_bytes: u64) -> Self {
        if self.op == Op::Flush {
            return Self { op: Op::Flush, offset: 0, len: 0 };
        }
        let last = size_bytes.saturating_sub(SECTOR_BYTES);
        let offset = self.offset.min(last);
        let len = self.len.max(SECTOR_BYTES).min(size_bytes - offset);
        Self { op: self.op, offset, len }
    }
}

/// A command that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// The number it was submitted with.
    pub id: u64,
    /// When it ended.
    pub at: Duration,
}

/// The timing behaviour of a device.
pub trait Device: Send + std::fmt::Debug {
    /// Size of the address space, in bytes.
    fn size_bytes(&self) -> u64;

    /// A command arrives at `now`. `id` is the caller's and is returned when the command ends.
    ///
    /// Any number may be in progress; a device that processes a limited number at a time queues the others.
    fn submit(&mut self, now: Duration, id: u64, command: Command);

    /// When something may end or change next, if anything is in progress. Not before the last time passed in.
    fn next_event(&self) -> Option<Duration>;

    /// Lets time pass up to and including `now`, and adds the ended commands to `ended`, in order of time.
    fn advance(&mut self, now: Duration, ended: &mut Vec<Ended>);
}

/// A time in whole nanoseconds since the origin.
pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// How long `bytes` take at `bytes_per_s`, rounded up.
pub(crate) fn transfer_ns(bytes: u64, bytes_per_s: u64) -> u64 {
    let ns = (u128::from(bytes) * 1_000_000_000).div_ceil(u128::from(bytes_per_s.max(1)));
    u64::try_from(ns).unwrap_or(u64::MAX)
}
