//! Settings and their defaults.

use std::sync::Arc;
use std::time::Duration;

use forebay_lookahead::DeviceCosts;
use tokio::runtime::Runtime;

use crate::error::{Error, Result};
use crate::format::object::Compression;
use crate::stats::Prices;
use crate::tier::Tier;

/// Settings of a tablespace's client. The page size belongs to the data, and is set when the tablespace is created.
#[derive(Debug, Clone)]
pub struct Options {
    /// Maximum bytes of a data object. Default: 8 MiB.
    pub object_bytes: u64,
    /// How pages are stored in new objects. Default: uncompressed.
    pub compression: Compression,
    /// Maximum number of requests in flight. Default: 64.
    pub in_flight: usize,
    /// Maximum time of one attempt at a request. Default: 15 s.
    pub attempt_timeout: Duration,
    /// How long a request is retried before it fails; for an opening or a publishing, all its requests together.
    /// Default: 2 min.
    pub deadline: Duration,
    /// Whether a read whose answer begins later than the 95th percentile is sent a second time. Default: yes.
    pub hedge: bool,
    /// Costs of a request and of a byte: gaps between wanted pages are read through if that is cheaper than
    /// another request, and streams choose their look-ahead distance by them. Default: a [`Mount`](crate::Mount)
    /// measures them, and others assume 20 ms and 1 ms a MiB.
    pub costs: Option<DeviceCosts>,
    /// Maximum number of unneeded pages read, per 100 wanted. Default: 5.
    pub over_read_percent: u32,
    /// How long a reader's lease lasts without renewal. Default: 60 s.
    pub lease: Duration,
    /// How long an object is kept after nothing needs it any more: longer than the store's lists may be out of date.
    /// Default: 0, for stores whose lists are exact, such as S3, GCS and Azure.
    pub grace: Duration,
    /// What requests and bytes cost, for the statistics. Default: nothing.
    pub prices: Prices,
    /// A cache of pages on a local disk. Default: none.
    pub tier: Option<Tier>,
    /// Seed of everything that must differ between two clients, and of jitter. For tests only, and never for a store
    /// that is read through a tier: there, two objects with the same stamp are mistaken for each other. Default: drawn
    /// from the system.
    pub seed: Option<u64>,
    /// Where requests run. A current-thread runtime runs tasks only while a call waits: then leases of readers are not
    /// renewed in between, and a [`Mount`](crate::Mount) is refused. Default: a runtime with two threads.
    pub runtime: Option<Arc<Runtime>>,
}

/// Costs of a store that was not measured.
pub(crate) const COSTS_USUAL: DeviceCosts = DeviceCosts {
    request: Duration::from_millis(20),
    mebibyte: Duration::from_millis(1),
    useful_depth: 64,
};

impl Default for Options {
    fn default() -> Options {
        Options {
            object_bytes: 8 << 20,
            compression: Compression::None,
            in_flight: 64,
            attempt_timeout: Duration::from_secs(15),
            deadline: Duration::from_secs(120),
            hedge: true,
            costs: None,
            over_read_percent: 5,
            lease: Duration::from_secs(60),
            grace: Duration::ZERO,
            prices: Prices::default(),
            tier: None,
            seed: None,
            runtime: None,
        }
    }
}

impl Options {
    pub(crate) fn check(&self) -> Result<()> {
        let sound = |ok: bool, setting, value: String, expected| {
            if ok { Ok(()) } else { Err(Error::Setting { setting, value, expected }) }
        };
        let object = (64 << 10..=1 << 30).contains(&self.object_bytes);
        let expected = "it should be between 64 KiB and 1 GiB";
        sound(object, "the size of objects", self.object_bytes.to_string(), expected)?;
        let in_flight = (1..=4096).contains(&self.in_flight);
        let expected = "it should be between 1 and 4096";
        sound(in_flight, "requests in flight", self.in_flight.to_string(), expected)?;
        let expected = "it should be at least a second";
        let lease = self.lease >= Duration::from_secs(1);
        sound(lease, "the lease of readers", format!("{:?}", self.lease), expected)?;
        let expected = "it should be more than nothing and at most the deadline";
        let attempt = !self.attempt_timeout.is_zero() && self.attempt_timeout <= self.deadline;
        sound(attempt, "the time of an attempt", format!("{:?}", self.attempt_timeout), expected)
    }
}

/// Pages are a power of two from 512 bytes to 64 KiB.
pub(crate) fn check_page_bytes(page_bytes: u32, object_bytes: u64) -> Result<()> {
    let fits = (512..=65_536).contains(&page_bytes)
        && page_bytes.is_power_of_two()
        && object_bytes >= 4 * u64::from(page_bytes);
    if fits {
        return Ok(());
    }
    Err(Error::Setting {
        setting: "the page size",
        value: page_bytes.to_string(),
        expected: "it should be a power of two from 512 to 65536, and a quarter of an object at most",
    })
}
