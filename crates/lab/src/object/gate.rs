//! The gate before the store: PUTs pass until it is shut, and those that have passed are finished.
//!
//! A PUT that is given up may take effect after its object has been removed. So each runs in its own task, which
//! continues when its caller does not, and code that removes objects shuts the gate first.
//!
//! Invariants:  [GAT-1] once the gate is shut only the PUTs that `shut` returns can reach the store

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use forebay_object::is_transient;
use forebay_object::object_store::path::Path;
use forebay_object::object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use futures_util::stream::BoxStream;
use tokio::runtime::Handle;

/// The store behind its gate.
#[derive(Debug)]
pub(super) struct Gate {
    inner: Arc<dyn ObjectStore>,
    tasks: Handle,
    puts: Arc<Puts>,
}

#[derive(Debug, Default)]
struct Puts {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_shut: bool,
    /// Something may be in the store.
    has_put: bool,
    number: u64,
    under_way: BTreeMap<u64, Path>,
}

impl Puts {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Gate {
    /// PUTs run on `tasks`.
    pub(super) fn new(inner: Arc<dyn ObjectStore>, tasks: Handle) -> Gate {
        Gate { inner, tasks, puts: Arc::default() }
    }

    /// Lets no further PUT pass, and waits for those in flight. Returns the paths of those that have no response within
    /// `patience` ([GAT-1]).
    pub(super) fn shut(&self, patience: Duration) -> Vec<Path> {
        let mut state = self.puts.state();
        state.is_shut = true;
        let waited =
            self.puts.ended.wait_timeout_while(state, patience, |it| !it.under_way.is_empty());
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.under_way.values().cloned().collect()
    }

    /// Whether any PUT may have stored an object.
    pub(super) fn has_put(&self) -> bool {
        let state = self.puts.state();
        state.has_put || !state.under_way.is_empty()
    }
}

impl fmt::Display for Gate {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(out)
    }
}

#[async_trait]
impl ObjectStore for Gate {
    async fn put_opts(&self, path: &Path, body: PutPayload, how: PutOptions) -> Result<PutResult> {
        let number = {
            let mut state = self.puts.state();
            if state.is_shut {
                return Err(Error::NotSupported { source: "the run ends".into() });
            }
            state.number += 1;
            let number = state.number;
            state.under_way.insert(number, path.clone());
            number
        };
        let (inner, puts, path) = (Arc::clone(&self.inner), Arc::clone(&self.puts), path.clone());
        let put = self.tasks.spawn(async move {
            let done = inner.put_opts(&path, body, how).await;
            let mut state = puts.state();
            state.under_way.remove(&number);
            state.has_put |= done.as_ref().map_or_else(is_transient, |_| true);
            drop(state);
            puts.ended.notify_all();
            done
        });
        put.await?
    }

    async fn put_multipart_opts(
        &self,
        _: &Path,
        _: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        Err(Error::NotSupported { source: "objects are put in one part here".into() })
    }

    async fn get_opts(&self, path: &Path, how: GetOptions) -> Result<GetResult> {
        self.inner.get_opts(path, how).await
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        Err(Error::NotSupported { source: "objects are not copied here".into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_object::object_store::ObjectStoreExt;
    use forebay_object::object_store::memory::InMemory;

    use crate::object::slowed::Slowed;

    #[test]
    fn gat_1_what_has_passed_is_finished_or_named_and_nothing_follows() {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build().unwrap();
        for (latency, is_quick) in [("20ms", true), ("1h", false)] {
            let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
            let latency = Some(latency.parse().unwrap());
            let slow = Slowed::new(Arc::clone(&store), latency, None, 1);
            let gate = Gate::new(Arc::new(slow), runtime.handle().clone());
            let path = Path::from("a");
            // Its caller gives it up immediately.
            let given_up = async {
                let put = gate.put(&path, "x".into());
                tokio::time::timeout(Duration::from_millis(1), put).await.unwrap_err();
            };
            runtime.block_on(given_up);
            let patience = Duration::from_millis(if is_quick { 60_000 } else { 20 });
            let unsure = gate.shut(patience);
            assert_eq!(unsure, if is_quick { vec![] } else { vec![path.clone()] }, "[GAT-1]");
            assert!(gate.has_put());
            assert_eq!(runtime.block_on(store.head(&path)).is_ok(), is_quick);
            assert!(runtime.block_on(gate.put(&Path::from("b"), "x".into())).is_err(), "[GAT-1]");
        }
    }
}
