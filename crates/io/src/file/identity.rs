//! Which file an open file is, process-wide: its cache mode, and whether a sync of it failed.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use super::CacheMode;
use crate::error::Error;

/// Device and inode number.
type Key = (u64, u64);

/// The files open in this process. Entries of closed files are swept when the next one is opened.
static OPEN_FILES: Mutex<BTreeMap<Key, Weak<Identity>>> = Mutex::new(BTreeMap::new());

/// One file, however often it is open.
#[derive(Debug)]
pub(super) struct Identity {
    cache: CacheMode,
    /// The first failed sync ([FIL-2]).
    failed: OnceLock<Arc<Error>>,
}

impl Identity {
    /// Finds or makes the identity of the file of number `key`, about to be used in mode `cache`.
    pub(super) fn claim(key: Key, cache: CacheMode, path: &Path) -> Result<Arc<Identity>, Error> {
        let mut open_files = open_files();
        if let Some(identity) = open_files.get(&key).and_then(Weak::upgrade) {
            if identity.cache == cache {
                return Ok(identity);
            }
            return Err(Error::MixedModes {
                file: path.into(),
                open_as: identity.cache,
                asked: cache,
            });
        }
        open_files.retain(|_, identity| identity.strong_count() > 0);
        let identity = Arc::new(Identity { cache, failed: OnceLock::new() });
        open_files.insert(key, Arc::downgrade(&identity));
        Ok(identity)
    }

    /// The first failed sync, if there was one.
    pub(super) fn failed(&self) -> Option<Arc<Error>> {
        self.failed.get().cloned()
    }

    /// Latches `error`. Returns it if it is the first, else `Failed` with the first.
    pub(super) fn latch(&self, error: Error) -> Error {
        let mut is_first = false;
        let first = self.failed.get_or_init(|| {
            is_first = true;
            Arc::new(error.clone())
        });
        if is_first { error } else { Error::Failed { first: Arc::clone(first) } }
    }
}

fn open_files() -> MutexGuard<'static, BTreeMap<Key, Weak<Identity>>> {
    // Changes are single inserts and removals, so a poisoned map is still whole.
    OPEN_FILES.lock().unwrap_or_else(PoisonError::into_inner)
}
