//! The counters of one stream.

use std::time::Duration;

/// The counters of a stream so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamStats {
    /// Blocks returned, as pages or errors.
    pub delivered: u64,
    /// Pages that were in memory when they were named.
    pub hits: u64,
    /// Pages that the stream prefetched.
    pub asked: u64,
    /// Pages to be prefetched that another reader was already reading.
    pub joined: u64,
    /// Pages read separately when it was their turn.
    pub read_alone: u64,
    /// Requests made ahead: reads, or hints to the kernel.
    pub requests: u64,
    /// Pages read through between two needed ones.
    pub gap_blocks: u64,
    /// Times that a prefetched page was not resident yet.
    pub waits: u64,
    /// Time spent waiting for them.
    pub waited: Duration,
    /// Times that look-ahead backed off for want of a clean frame.
    pub backed_off: u64,
    /// Blocks that could not be returned.
    pub errors: u64,
    /// Blocks ahead now.
    pub distance: u32,
    /// Blocks returned before the last reset.
    pub(crate) delivered_before_reset: u64,
}
