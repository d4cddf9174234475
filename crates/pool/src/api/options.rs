//! Options for opening a file, for a read stream (strategy, distance, order, backend), and for a checkpoint.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use crate::error::Error;
use crate::names::names;
use crate::store::checksum::{Checksum, ZeroPages};
use crate::store::codec::PageCodec;
use crate::strategy_kind::StrategyKind;

/// How to open a file. The default reads and writes a file that must exist, in the first
/// tablespace, with the pool's checksum.
#[derive(Debug, Clone, Default)]
pub struct FileOptions {
    pub(crate) tablespace: Option<String>,
    pub(crate) create: bool,
    pub(crate) create_new: bool,
    pub(crate) read_only: bool,
    pub(crate) checksum: Option<Checksum>,
    pub(crate) codec: Option<Arc<dyn PageCodec>>,
    pub(crate) zero_pages: ZeroPages,
    pub(crate) ignore_partial_page: bool,
}

impl FileOptions {
    /// Returns the default.
    pub fn new() -> FileOptions {
        FileOptions::default()
    }

    /// In the tablespace with this name.
    #[must_use]
    pub fn tablespace(mut self, name: impl Into<String>) -> Self {
        self.tablespace = Some(name.into());
        self
    }

    /// Create the file if it does not exist.
    #[must_use]
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Create the file, and fail if it already exists.
    #[must_use]
    pub fn create_new(mut self, create_new: bool) -> Self {
        self.create_new = create_new;
        self
    }

    /// Read-only.
    #[must_use]
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// Checksums, stored on write and verified on read. Default: the pool's.
    #[must_use]
    pub fn checksum(mut self, checksum: Checksum) -> Self {
        self.checksum = Some(checksum);
        self
    }

    /// The on-disk form of its pages, if it differs from memory. It must be the same each time the file is opened.
    /// Default: the pool's.
    #[must_use]
    pub fn codec(mut self, codec: Arc<dyn PageCodec>) -> Self {
        self.codec = Some(codec);
        self
    }

    /// Whether a page of zeroes, which carries no checksum, is accepted as one that was never written. Default: yes.
    #[must_use]
    pub fn zero_pages(mut self, zero_pages: ZeroPages) -> Self {
        self.zero_pages = zero_pages;
        self
    }

    /// Ignore a partial page at the end of the file, instead of rejecting the file.
    #[must_use]
    pub fn ignore_partial_page(mut self, ignore: bool) -> Self {
        self.ignore_partial_page = ignore;
        self
    }
}

/// The defaults for files whose options do not set them.
#[derive(Debug)]
pub(crate) struct FileDefaults {
    pub(crate) checksum: Checksum,
    pub(crate) codec: Option<Arc<dyn PageCodec>>,
}

/// How blocks are requested before they are needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ReadaheadStrategy {
    /// Give no hints and read a block when it is needed: the kernel's own readahead, through a descriptor of the
    /// stream.
    Os,
    /// Hint by access strategy: no kernel readahead (RANDOM) for pages that compete for the whole pool, the default
    /// readahead (NORMAL) for scans. Document 000 of the sources.
    Hint,
    /// Make the kernel read ahead twice as far (SEQUENTIAL), for every access.
    Max,
    /// Make the kernel fetch upcoming blocks into its page cache (WILLNEED), sorted and merged.
    Prefetch,
    /// Read upcoming blocks directly into frames, sorted and merged, many requests at once.
    Async,
    /// Choose, and change the choice by measurement. Direct files are read as with `Async`. In the page cache, plain
    /// reads while the kernel has everything in memory; otherwise a trial of two modes, of which the cheaper is kept:
    /// for scans the kernel's own readahead, with large reads, against `Prefetch` (only for scans over eight times that
    /// readahead, so that little is read past their end), for others `Prefetch` against `Async`.
    #[default]
    Adaptive,
}

names!(ReadaheadStrategy:
    Os "os", Hint "hint", Max "max", Prefetch "prefetch", Async "async", Adaptive "adaptive"
);

impl ReadaheadStrategy {
    /// True if the blocks after a sequence of plain reads are read ahead.
    pub(crate) fn detects(self) -> bool {
        matches!(self, ReadaheadStrategy::Async | ReadaheadStrategy::Adaptive)
    }
}

pub(super) const READAHEAD_NAMES: &str = "os, hint, max, prefetch, async or adaptive";

impl FromStr for ReadaheadStrategy {
    type Err = Error;

    fn from_str(name: &str) -> Result<ReadaheadStrategy, Error> {
        let found = ReadaheadStrategy::ALL.into_iter().find(|it| it.name() == name);
        found.ok_or_else(|| Error::Setting {
            setting: "the readahead strategy",
            value: format!("{name:?}"),
            expected: format!("it should be {READAHEAD_NAMES}"),
        })
    }
}

/// The order in which a stream returns its pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Order {
    /// In the order in which the blocks were named.
    #[default]
    InOrder,
    /// In the order of arrival: each once for each time it was named.
    Any,
}

/// Options of a read stream. The default reads in order, adaptively, for pages that compete for the whole pool.
#[derive(Debug, Clone, Default)]
pub struct StreamOptions {
    pub(crate) access: Option<StrategyKind>,
    pub(crate) readahead: Option<ReadaheadStrategy>,
    pub(crate) order: Order,
    pub(crate) expected_rows: Option<u64>,
    pub(crate) distance: Option<u32>,
}

impl StreamOptions {
    /// Returns the default.
    pub fn new() -> StreamOptions {
        StreamOptions::default()
    }

    /// The use of the pages, which determines whose frames they take. A kind other than `Normal` gets a ring that
    /// covers the look-ahead, up to an eighth of the pool. Default: `Normal`; for a scan of more than a quarter of the
    /// pool, `BulkRead`.
    #[must_use]
    pub fn access(mut self, kind: StrategyKind) -> Self {
        self.access = Some(kind);
        self
    }

    /// How blocks are prefetched. Default: the setting of the file's handle, then that of the pool.
    #[must_use]
    pub fn readahead(mut self, strategy: ReadaheadStrategy) -> Self {
        self.readahead = Some(strategy);
        self
    }

    /// The order in which pages are returned. Default: that of the blocks.
    #[must_use]
    pub fn order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// How many blocks are likely to be taken before the stream is dropped, as for a query with a LIMIT: little more
    /// than that is requested (for 10, at most 16), until it proves wrong.
    #[must_use]
    pub fn expected_rows(mut self, rows: u64) -> Self {
        self.expected_rows = Some(rows);
        self
    }

    /// Most blocks ahead; 1 for none. Default: as far as is useful for the pool, the ring and the disk.
    #[must_use]
    pub fn distance(mut self, blocks: u32) -> Self {
        self.distance = Some(blocks.max(1));
        self
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strategy_goes_by_its_name() {
        for strategy in ReadaheadStrategy::ALL {
            assert_eq!(strategy.to_string().parse::<ReadaheadStrategy>().unwrap(), strategy);
        }
        let message = "fast".parse::<ReadaheadStrategy>().unwrap_err().to_string();
        assert_eq!(
            message,
            format!("the readahead strategy is \"fast\": it should be {READAHEAD_NAMES}")
        );
    }
}
