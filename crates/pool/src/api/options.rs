//! Options of a read stream: strategy, distance, order.

use crate::readahead_strategy::ReadaheadStrategy;
use crate::strategy_kind::StrategyKind;

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
