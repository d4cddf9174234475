//! A client's access to the server, on which requests fail, answers are lost and effects are late.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use fastrand::Rng;
use forebay_object::object_store::path::Path;
use forebay_object::object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use futures_util::stream::BoxStream;

/// Faults of a client's requests, each out of a thousand.
#[derive(Debug, Clone, Default)]
pub(crate) struct Faults {
    /// The request has no effect.
    pub(crate) unavailable: u32,
    /// The request takes effect, and the answer is lost.
    pub(crate) answer_lost: u32,
    /// The answer is lost, and the request takes effect later.
    pub(crate) late: u32,
}

#[derive(Debug)]
pub(crate) struct Handle {
    inner: Arc<dyn ObjectStore>,
    faults: Faults,
    rng: Mutex<Rng>,
}

impl Handle {
    pub(crate) fn new(inner: Arc<dyn ObjectStore>, faults: Faults, seed: u64) -> Handle {
        Handle { inner, faults, rng: Mutex::new(Rng::with_seed(seed)) }
    }

    fn dice(&self, of_thousand: u32) -> bool {
        self.rng.lock().unwrap().u32(0..1000) < of_thousand
    }
}

impl fmt::Display for Handle {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(out)
    }
}

fn lost() -> Error {
    Error::Generic { store: "faulty", source: "the connection was lost".into() }
}

#[async_trait]
impl ObjectStore for Handle {
    async fn put_opts(&self, path: &Path, body: PutPayload, how: PutOptions) -> Result<PutResult> {
        if self.dice(self.faults.unavailable) {
            return Err(lost());
        }
        if self.dice(self.faults.late) {
            let (inner, path) = (Arc::clone(&self.inner), path.clone());
            let time = Duration::from_millis(self.rng.lock().unwrap().u64(1..200));
            tokio::spawn(async move {
                tokio::time::sleep(time).await;
                let _ = inner.put_opts(&path, body, how).await;
            });
            return Err(lost());
        }
        let done = self.inner.put_opts(path, body, how).await;
        if self.dice(self.faults.answer_lost) { Err(lost()) } else { done }
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        how: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(path, how).await
    }

    async fn get_opts(&self, path: &Path, how: GetOptions) -> Result<GetResult> {
        if self.dice(self.faults.unavailable) {
            return Err(lost());
        }
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

    async fn copy_opts(&self, from: &Path, to: &Path, how: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, how).await
    }
}
