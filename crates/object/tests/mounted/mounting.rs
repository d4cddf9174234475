//! A mount of a store, taken over from its last writer.

use std::path::Path;
use std::sync::Arc;

use forebay_object::object_store::ObjectStore;
use forebay_object::{Bucket, Error, Mount, Options, Takeover};

use crate::site::PAGE;

/// A mount of the store, taken over from its last writer; at most `pages` pages are kept.
pub(crate) fn mount(store: Arc<dyn ObjectStore>, path: &Path, pages: u64) -> (Mount, Bucket) {
    // Set, so that each of many mounts need not measure it.
    let costs = Some(forebay::DeviceCosts::default());
    let options = Options { object_bytes: 64 << 10, costs, ..Options::default() };
    let bucket = Bucket::new(store, "space", options).unwrap();
    match bucket.create(PAGE as u32) {
        Ok(()) | Err(Error::Exists { .. }) => {}
        Err(error) => panic!("{error}"),
    }
    let writer = bucket.writer(Takeover::Force).unwrap();
    // A new directory each time, since the previous pool may not have closed the last one yet.
    let fresh = (0..).map(|at| path.join(at.to_string())).find(|it| !it.exists()).unwrap();
    (Mount::new(writer, &fresh, pages * PAGE as u64).unwrap(), bucket)
}
