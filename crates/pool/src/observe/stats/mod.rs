//! Statistics: what the pool did, what its threads waited for, and how to read that.
//!
//! Counting is always on, so it has to cost next to nothing where pages are found: a hit is one
//! load and one store to a cache line that only the calling thread writes ([`counters`]). What
//! happens around I/O is counted plainly, and the time a thread really waited goes into
//! histograms ([`waits`]). A [`Stats`] is a copy of all of it, with which the reader does as it
//! likes: take differences ([`Stats::since`]), ask for reasons ([`Stats::explain`]), print a table
//! (`Display`) or hand it to a monitoring system ([`Stats::prometheus`]).
//!
//! Two close alternatives were rejected. One shared atomic per counter bounces its cache line
//! between all cores and costs a hit several times its price. Sampling one hit in many is
//! as cheap as this, but then numbers cannot be compared with what a test knows it did.
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
