//! Where requests run.
//!
//! The last owner of the runtime may be one of its tasks, and dropping the runtime there panics, since
//! it would wait for itself. So the runtime is shut down without waiting.

use std::ops::Deref;
use std::sync::Arc;

use tokio::runtime::{Builder, Runtime};

use crate::error::{Error, Result};

/// Number of threads for requests: they only wait and copy.
const THREADS: usize = 2;

#[derive(Debug, Clone)]
pub(crate) struct Executor {
    /// `None` only during the drop.
    runtime: Option<Arc<Runtime>>,
}

impl Executor {
    /// The given runtime, or a new one.
    pub(crate) fn new(given: Option<Arc<Runtime>>) -> Result<Executor> {
        if given.is_some() {
            return Ok(Executor { runtime: given });
        }
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(THREADS).thread_name("forebay-object").enable_all();
        let built = builder.build().map_err(|error| Error::Local {
            path: "threads for requests".to_owned(),
            what: error.to_string(),
        });
        Ok(Executor { runtime: Some(Arc::new(built?)) })
    }
}

impl Deref for Executor {
    type Target = Runtime;

    fn deref(&self) -> &Runtime {
        self.runtime.as_ref().expect("taken only while being dropped")
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take().and_then(Arc::into_inner) {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_may_be_the_last_to_let_go() {
        let executor = Executor::new(None).unwrap();
        let (sender, ended) = std::sync::mpsc::channel();
        let (go, may_go) = std::sync::mpsc::channel::<()>();
        let last = executor.clone();
        executor.spawn(async move {
            may_go.recv().unwrap();
            let dropped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(last)));
            sender.send(dropped.is_ok()).unwrap();
        });
        drop(executor);
        go.send(()).unwrap();
        assert!(ended.recv().unwrap(), "no panic");
    }
}
