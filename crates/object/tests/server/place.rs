//! The store of the tests of mounts: in a bucket of the server.

use std::sync::Arc;

use forebay_object::object_store::ObjectStore;

/// A new store; `None` if there is no server.
pub(crate) fn store() -> Option<Arc<dyn ObjectStore>> {
    let (address, variables) = crate::gateway::bucket()?;
    Some(forebay_object::open(&address, variables).unwrap().0)
}
