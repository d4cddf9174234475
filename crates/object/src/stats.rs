//! The requests to the store, and their cost.

use std::sync::atomic::{AtomicU64, Ordering};

/// Prices, in any currency.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Prices {
    /// Of 1,000 PUT and LIST requests.
    pub thousand_puts: f64,
    /// Of 1,000 GET requests.
    pub thousand_gets: f64,
    /// Of a GiB read.
    pub gibibyte_read: f64,
}

/// Requests and bytes since the client was made.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[non_exhaustive]
pub struct Stats {
    /// GET requests, including hedges and retries.
    pub gets: u64,
    /// PUT requests, including retries.
    pub puts: u64,
    /// DELETE requests.
    pub deletes: u64,
    /// LIST requests.
    pub lists: u64,
    /// Retries after failed attempts.
    pub retries: u64,
    /// Second requests, sent because the first was late.
    pub hedges: u64,
    /// Second requests that were answered first.
    pub hedges_won: u64,
    /// Bytes of pages, indexes and manifests read.
    pub bytes_read: u64,
    /// Bytes put.
    pub bytes_written: u64,
    /// Requested pages that were fetched.
    pub pages_read: u64,
    /// Pages fetched because they were in a gap.
    pub pages_over_read: u64,
    /// Bytes of dirty pages that were put.
    pub bytes_dirty: u64,
    /// Bytes of live pages that were put again, to be rid of old objects.
    pub bytes_merged: u64,
    /// Pages that the local tier had.
    pub tier_hits: u64,
    /// Pages requested from the store because the local tier did not have them.
    pub tier_misses: u64,
    /// Current bytes of the tier's files.
    pub tier_bytes: u64,
    /// Pages and rows of the tier that were damaged.
    pub tier_damaged: u64,
    /// Requests to the tier's disk that failed.
    pub tier_failures: u64,
    /// The cost, by the prices given.
    pub cost: f64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) gets: AtomicU64,
    pub(crate) puts: AtomicU64,
    pub(crate) deletes: AtomicU64,
    pub(crate) lists: AtomicU64,
    pub(crate) retries: AtomicU64,
    pub(crate) hedges: AtomicU64,
    pub(crate) hedges_won: AtomicU64,
    pub(crate) bytes_read: AtomicU64,
    pub(crate) bytes_written: AtomicU64,
    pub(crate) pages_read: AtomicU64,
    pub(crate) pages_over_read: AtomicU64,
    pub(crate) bytes_dirty: AtomicU64,
    pub(crate) bytes_merged: AtomicU64,
}

pub(crate) fn count(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Ordering::Relaxed);
}

impl Counters {
    pub(crate) fn stats(&self, prices: &Prices) -> Stats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (gets, puts, lists) = (get(&self.gets), get(&self.puts), get(&self.lists));
        let bytes_read = get(&self.bytes_read);
        let cost = (puts + lists) as f64 / 1000.0 * prices.thousand_puts
            + gets as f64 / 1000.0 * prices.thousand_gets
            + bytes_read as f64 / f64::from(1 << 30) * prices.gibibyte_read;
        Stats {
            gets,
            puts,
            deletes: get(&self.deletes),
            lists,
            retries: get(&self.retries),
            hedges: get(&self.hedges),
            hedges_won: get(&self.hedges_won),
            bytes_read,
            bytes_written: get(&self.bytes_written),
            pages_read: get(&self.pages_read),
            pages_over_read: get(&self.pages_over_read),
            bytes_dirty: get(&self.bytes_dirty),
            bytes_merged: get(&self.bytes_merged),
            cost,
            ..Stats::default()
        }
    }
}
