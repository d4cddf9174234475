//! The layer below the cache: files of pages, split into segments, in tablespaces; failed syncs and torn pages.

pub(crate) mod checksum;
pub(crate) mod codec;
mod directory_lock;
pub(crate) mod disk;
pub(crate) mod file;
pub(crate) mod files;
mod resize;
mod segments;
pub(crate) mod tablespace;
pub(crate) mod torn;
