//! The environment of a test: a bucket of the server, and clients.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use forebay_object::object_store::ObjectStore;
use forebay_object::{Bucket, Options};
use futures_util::TryStreamExt;

use super::pages::PAGE;
use super::store::{Faults, Handle};
use crate::gateway;

pub(crate) struct Site {
    store: Arc<dyn ObjectStore>,
}

impl Site {
    /// `None` if there is no server.
    pub(crate) fn start() -> Option<Site> {
        let (address, variables) = gateway::bucket()?;
        let (store, _) = forebay_object::open(&address, variables).unwrap();
        Some(Site { store })
    }

    /// Some answers are lost, and some effects are late.
    pub(crate) fn unsure() -> Faults {
        Faults { answer_lost: 40, late: 40, unavailable: 40 }
    }

    /// Seeds of runs in which two writers compete.
    pub(crate) fn fights() -> Range<u64> {
        1..4
    }

    pub(crate) fn bucket(&self, faults: Faults, seed: u64) -> (Bucket, Arc<Handle>) {
        let handle = Arc::new(Handle::new(Arc::clone(&self.store), faults, seed));
        let options = Options {
            object_bytes: 64 << 10,
            attempt_timeout: Duration::from_secs(5),
            deadline: Duration::from_secs(20),
            seed: Some(seed),
            ..Options::default()
        };
        (Bucket::new(Arc::clone(&handle) as Arc<_>, "space", options).unwrap(), handle)
    }

    /// A bucket with an empty tablespace in it.
    pub(crate) fn created(&self, seed: u64) -> (Bucket, Arc<Handle>) {
        let (bucket, handle) = self.bucket(Faults::default(), seed);
        bucket.create(PAGE as u32).unwrap();
        (bucket, handle)
    }

    /// The paths of the objects below `prefix`.
    pub(crate) fn paths(&self, prefix: &str) -> Vec<String> {
        let listing = self.store.list(Some(&prefix.into()));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let paths = listing.map_ok(|it| it.location.to_string()).try_collect();
        runtime.block_on(paths).unwrap()
    }
}
