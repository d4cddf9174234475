//! The environment of a test: a simulated store, a runtime whose time only passes while all tasks sleep, and clients.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use forebay_object::{Bucket, Compression, Options};
use tokio::runtime::{Builder, Runtime};

use super::pages::PAGE;
use super::store::{Faults, Handle, World};

pub(crate) struct Site {
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) world: Arc<World>,
}

impl Site {
    /// The simulated store always exists; a real server may be missing.
    pub(crate) fn start() -> Option<Site> {
        Some(Site::new())
    }

    pub(crate) fn new() -> Site {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
        let runtime = Arc::new(runtime.unwrap());
        let world = World::new(&runtime);
        Site { runtime, world }
    }

    /// Some answers are lost, and some effects are late.
    pub(crate) fn unsure() -> Faults {
        Faults { answer_lost: 40, late: 40, unavailable: 40, ..Faults::default() }
    }

    /// Seeds of runs in which two writers compete.
    pub(crate) fn fights() -> Range<u64> {
        super::crashes::seeds(100)
    }

    /// Objects of 64 KiB, and a deadline of ten seconds of simulated time.
    pub(crate) fn options(&self, seed: u64) -> Options {
        Options {
            object_bytes: 64 << 10,
            // One seeded run in four is compressed.
            compression: if seed.is_multiple_of(4) { Compression::Lz4 } else { Compression::None },
            attempt_timeout: Duration::from_secs(1),
            deadline: Duration::from_secs(10),
            seed: Some(seed),
            runtime: Some(Arc::clone(&self.runtime)),
            ..Options::default()
        }
    }

    pub(crate) fn bucket(&self, faults: Faults, seed: u64) -> (Bucket, Arc<Handle>) {
        self.bucket_with(faults, self.options(seed))
    }

    pub(crate) fn bucket_with(&self, faults: Faults, options: Options) -> (Bucket, Arc<Handle>) {
        let handle = self.world.handle(faults, options.seed.unwrap_or_default());
        let store = Arc::clone(&handle) as Arc<dyn forebay_object::object_store::ObjectStore>;
        (Bucket::new(store, "space", options).unwrap(), handle)
    }

    /// A bucket with an empty tablespace in it.
    pub(crate) fn created(&self, seed: u64) -> (Bucket, Arc<Handle>) {
        let (bucket, handle) = self.bucket(Faults::default(), seed);
        bucket.create(PAGE as u32).unwrap();
        (bucket, handle)
    }

    /// The paths of the objects below `prefix`.
    pub(crate) fn paths(&self, prefix: &str) -> Vec<String> {
        self.world.paths(prefix)
    }

    pub(crate) fn sleep(&self, time: Duration) {
        self.runtime.block_on(async { tokio::time::sleep(time).await });
    }
}
