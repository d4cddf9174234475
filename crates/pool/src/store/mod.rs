//! The layer below the cache: files of pages, in tablespaces; failed syncs and torn pages.

pub(crate) mod checksum;
pub(crate) mod codec;
mod directory_lock;
pub(crate) mod disk;
mod disk_file;
pub(crate) mod file;
pub(crate) mod files;
mod resize;
pub(crate) mod tablespace;
pub(crate) mod torn;
