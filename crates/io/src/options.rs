//! Options for opening a queue.

use std::sync::Arc;

use crate::error::Error;
use crate::kind::Kind;
use crate::memory::Mapping;
use crate::properties::CacheMode;

/// Which backend to open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Prefer {
    /// The best that works here: uring, then aio (direct only), then threads.
    #[default]
    Auto,
    /// This one or an error.
    Only(Kind),
}

/// How to open an [`Io`](crate::Io).
#[derive(Debug, Clone)]
pub struct IoOptions {
    /// Which backend. Default: [`Prefer::Auto`].
    pub prefer: Prefer,
    /// Cache mode of the files; decides whether `aio` can serve them. Default: buffered.
    pub cache: CacheMode,
    /// Maximum number of requests in flight, 1 to 32,768. Default: 256.
    pub queue_depth: usize,
    /// Maximum number of threads of the `threads` backend, 1 to 1,024. Default: 64.
    pub workers: usize,
    /// Memory to register with the kernel where the backend supports it (uring), so that the kernel need not look it
    /// up for each request. The result is reported in [`Report::notes`](crate::backend::Report::notes).
    pub register: Option<Arc<Mapping>>,
    /// Whether `sync` announces reads to the kernel with WILLNEED if they are submitted together with other reads or
    /// while others wait. Turn it off where every request is waited for at once. Default: on.
    pub advise: bool,
}

impl Default for IoOptions {
    fn default() -> IoOptions {
        IoOptions {
            prefer: Prefer::Auto,
            cache: CacheMode::Buffered,
            queue_depth: 256,
            workers: 64,
            register: None,
            advise: true,
        }
    }
}

impl IoOptions {
    pub(crate) fn check(&self) -> Result<(), Error> {
        let within = |setting, value: usize, most: usize, expected| {
            let value_ok = (1..=most).contains(&value);
            let error = Error::Setting { setting, value: value as u64, expected };
            if value_ok { Ok(()) } else { Err(error) }
        };
        within("queue depth", self.queue_depth, 32_768, "it should be between 1 and 32768")?;
        within("number of workers", self.workers, 1024, "it should be between 1 and 1024")
    }
}
