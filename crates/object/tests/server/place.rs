//! Where the tests of mounts have their store: in a bucket of the server.

use std::sync::Arc;

use forebay_object::object_store::ObjectStore;

/// A new one; `None` where there is no server.
pub(crate) fn store() -> Option<Arc<dyn ObjectStore>> {
    let (address, variables) = crate::gateway::bucket()?;
    Some(forebay_object::open(&address, variables).unwrap().0)
}
