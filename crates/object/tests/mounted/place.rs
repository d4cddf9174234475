//! The model's tablespaces, each mounted from a store in memory that outlives the pool: whoever opens it again finds what
//! was synced and nothing else.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use forebay::Tablespace;
use forebay_object::object_store::memory::InMemory;
use forebay_object::{Bucket, Error, Mount, Options, Takeover};

use crate::disk::Disk;
use crate::site::{PAGE, Site};

/// By the path of the tablespace: its store, and its newest mount, which merges and deletes meanwhile.
static PLACES: Mutex<Option<HashMap<PathBuf, Place>>> = Mutex::new(None);

type Place = (Arc<InMemory>, Option<Mount>);

/// The disk, and the tablespaces `main` and `cut` on it.
pub(crate) fn tablespaces(site: &Site) -> (Arc<Disk>, Tablespace, Tablespace) {
    let (_, disk) = Disk::open();
    let mounted = |name: &str| {
        let path = site.path(name);
        let mut places = PLACES.lock().unwrap_or_else(PoisonError::into_inner);
        let (store, newest) = places.get_or_insert_default().entry(path.clone()).or_default();
        let (mount, _) = mount(Arc::clone(store), &path, 64);
        let mount = newest.insert(mount);
        let io =
            disk.around(|options, sink| Ok(mount.backend(options.queue_depth, Arc::clone(sink))));
        Tablespace::new(name, mount.directory()).io(io).volume(mount.volume()).costs(mount.costs())
    };
    let (main, cut) = (mounted("main"), mounted("cut"));
    (disk, main, cut)
}

/// A mount of the store, which is taken over from whoever had it; at most so many pages are kept.
pub(crate) fn mount(store: Arc<InMemory>, path: &Path, pages: u64) -> (Mount, Bucket) {
    let options = Options { object_bytes: 64 << 10, ..Options::default() };
    let bucket = Bucket::new(store, "space", options).unwrap();
    match bucket.create(PAGE as u32) {
        Ok(()) | Err(Error::Exists { .. }) => {}
        Err(error) => panic!("{error}"),
    }
    let writer = bucket.writer(Takeover::Force).unwrap();
    // A new directory each time, since the pool before may not have let go of the last one yet.
    let fresh = (0..).map(|at| path.join(at.to_string())).find(|it| !it.exists()).unwrap();
    (Mount::new(writer, &fresh, pages * PAGE as u64).unwrap(), bucket)
}
