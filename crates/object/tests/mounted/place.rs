//! The model's tablespaces, each mounted from a store in memory that outlives the pool: the next pool finds
//! the synced data and nothing else.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use forebay::Tablespace;
use forebay_object::Mount;
use forebay_object::object_store::ObjectStore;
use forebay_object::object_store::memory::InMemory;

use crate::disk::Disk;
use crate::mounting::mount;
use crate::site::Site;

/// The store of the tests of mounts.
pub(crate) fn store() -> Option<Arc<dyn ObjectStore>> {
    Some(Arc::new(InMemory::new()))
}

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
        let (mount, _) = mount(Arc::clone(store) as Arc<_>, &path, 64);
        let mount = newest.insert(mount);
        let io =
            disk.around(|options, sink| Ok(mount.backend(options.queue_depth, Arc::clone(sink))));
        Tablespace::new(name, mount.directory()).io(io).volume(mount.volume()).costs(mount.costs())
    };
    let (main, cut) = (mounted("main"), mounted("cut"));
    (disk, main, cut)
}
