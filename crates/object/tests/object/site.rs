//! Where a test takes place: a simulated store, a runtime whose time only passes while all sleep, and clients.

use std::sync::Arc;
use std::time::Duration;

use forebay_object::{Bucket, FileId, Options, PageId, Result, View, Writer};
use tokio::runtime::{Builder, Runtime};

use crate::store::{Faults, Handle, World};

pub(crate) const PAGE: usize = 512;

pub(crate) struct Site {
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) world: Arc<World>,
}

impl Site {
    pub(crate) fn new() -> Site {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
        let runtime = Arc::new(runtime.unwrap());
        let world = World::new(&runtime);
        Site { runtime, world }
    }

    /// Objects of 64 KiB, and no patience beyond ten seconds of simulated time.
    pub(crate) fn options(&self, seed: u64) -> Options {
        Options {
            object_bytes: 64 << 10,
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

    pub(crate) fn sleep(&self, time: Duration) {
        self.runtime.block_on(async { tokio::time::sleep(time).await });
    }
}

/// Fills a page so that it says whose it is and in which state, at every byte.
pub(crate) fn fill(page: PageId, state: u64, bytes: &mut [u8]) {
    let word = state << 32 | u64::from(page.block);
    bytes.chunks_exact_mut(8).for_each(|it| it.copy_from_slice(&word.to_le_bytes()));
}

/// The state that a page says it is in; 0 for one that was never written.
#[track_caller]
pub(crate) fn state_in(page: PageId, bytes: &[u8]) -> u64 {
    let mut words = bytes.chunks_exact(8).map(|it| u64::from_le_bytes(it.try_into().unwrap()));
    let first = words.next().unwrap();
    assert!(words.all(|it| it == first), "{page} is torn");
    assert!(first == 0 || first as u32 == page.block, "{page} has the bytes of another");
    first >> 32
}

pub(crate) fn pages(file: FileId, blocks: impl IntoIterator<Item = u32>) -> Vec<PageId> {
    blocks.into_iter().map(|block| PageId { file, block }).collect()
}

pub(crate) fn commit(writer: &Writer, pages: &[PageId], state: u64) -> Result<u64> {
    writer.commit(pages, &mut |page, bytes| {
        fill(page, state, bytes);
        Ok(())
    })
}

/// The states of the first `blocks` pages of `file`.
pub(crate) fn states(view: &View, file: FileId, blocks: u32) -> Result<Vec<u64>> {
    let mut states = vec![0; blocks as usize];
    view.read_pages(&pages(file, 0..blocks), &mut |page, bytes| {
        states[page.block as usize] = state_in(page, bytes);
    })?;
    Ok(states)
}
