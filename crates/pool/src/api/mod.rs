//! The public types of the pool: handles, guards, read streams, options.

pub(crate) mod backup;
pub(crate) mod builder;
pub(crate) mod guard;
pub(crate) mod handle;
pub(crate) mod options;
pub(crate) mod paged_file;
pub(crate) mod pool;
#[cfg(feature = "config")]
mod profile;
pub(crate) mod size;
pub(crate) mod stream;
pub(crate) mod view;
