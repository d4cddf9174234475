//! How far to read ahead, of what, and in which requests.
//!
//! Everything that reads blocks on behalf of something else (a page cache, a database's index scan, a file under
//! SQLite) has the same questions. This crate answers them by arithmetic alone: no I/O, no threads, no clock. The
//! inputs are times and events, the outputs are decisions, so each decision can be tested by property and by trace.
//!
//! | module | question |
//! |---|---|
//! | [`Distance`] | how many blocks to be ahead of the consumer |
//! | [`coalesce`] | which blocks share a request, and which gaps are read through |
//! | [`Costs`] | what a request and a byte cost on this device, as observed |
//! | [`Detector`] | whether misses of plain reads form a sequence, and which blocks come next |
//! | [`Hints`] | what to prefetch for a consumer that does its own reads, and when not to prefetch at all |
//! | [`Sampler`] | which reads to time, to know whether reads wait |
//! | [`Adaptive`], [`Trial`] | in which mode to read, given where reads wait and which mode was cheaper |
//!
//! ```
//! use forebay_lookahead::{Distance, Limits, coalesce};
//! use std::time::Duration;
//!
//! // A consumer that waits for the disk soon gets a long look-ahead.
//! let mut distance = Distance::new(1, 256);
//! for _ in 0..200 {
//!     distance.waited(Duration::from_micros(90));
//! }
//! assert_eq!(distance.blocks(), 128);
//!
//! // The blocks it wants are then merged into few requests.
//! let limits = Limits { combine_blocks: 16, gap_blocks: 1, over_read_percent: 25 };
//! let mut runs = Vec::new();
//! coalesce(&[1, 2, 3, 4, 6, 9], limits, &mut runs);
//! assert_eq!(runs.iter().map(|run| (run.first, run.blocks)).collect::<Vec<_>>(), [(1, 6), (9, 1)]);
//! ```

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod adaptive;
mod coalesce;
mod costs;
mod detect;
mod distance;
mod hints;
mod sampler;
mod trial;

pub use adaptive::{Adaptive, ReadMode, Reading, cached_batch_max, cached_read_max};
pub use coalesce::{Limits, Run, coalesce};
pub use costs::{Costs, DeviceCosts};
pub use detect::{Detected, Detector, Why};
pub use distance::Distance;
pub use hints::{HINTS_MOST, HintCounts, Hints, TAKEN_FOR_EACH, Takes, read_waited};
pub use sampler::Sampler;
pub use trial::{Side, Trial};

/// A block's position in its file, counted in blocks from 0.
pub type Block = u32;
