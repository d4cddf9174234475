//! Statistics: what the pool did, what its threads waited for, and how to present that.
//!
//! Counting is always on, so it must cost next to nothing on a hit: one load and one store to a cache line that only
//! the calling thread writes ([`counters`]). Events around I/O use ordinary atomics, and the time a thread really
//! waited is recorded in histograms ([`waits`]). A [`Stats`] is a copy of all of it; the reader can take differences
//! ([`Stats::since`]), explain waits ([`Stats::explain`]), print a table (`Display`) or export it to a monitoring
//! system ([`Stats::prometheus`]).
//!
//! Two close alternatives were rejected. One shared atomic per counter bounces its cache line between all cores and
//! costs several times as much as a hit. Sampling one hit in many is as cheap as this, but then the numbers cannot be
//! compared with what a test knows it did.
//!
//! Concurrency: counting from any thread through `&self`; a snapshot is a plain value.

mod counters;
mod display;
mod explain;
mod prometheus;
mod snapshot;
mod thread_number;
mod waits;

pub(crate) use counters::{Counters, Event, FileCounts, PoolEvent};
pub(crate) use display::bytes;
pub use snapshot::{FileStats, PoolStats, Stats, StrategyStats};
pub use waits::{Wait, WaitTimes};
