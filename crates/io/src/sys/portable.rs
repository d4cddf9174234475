//! Systems other than Linux, and Linux built with `--cfg forebay_portable`.
//!
//! macOS has its own calls for three things: F_FULLFSYNC (its fsync does not reach the platter), F_NOCACHE (instead of
//! O_DIRECT) and F_RDADVISE (instead of WILLNEED).

use std::io::IoSlice;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs;

use super::answers::{CachedPages, DirectSupport};
use crate::os_error::OsError;
use crate::properties::{Advice, AtomicWrite};

#[cfg(target_vendor = "apple")]
pub(crate) fn sync_data(file: BorrowedFd<'_>) -> Result<(), OsError> {
    Ok(fs::fcntl_fullfsync(file)?)
}

#[cfg(not(target_vendor = "apple"))]
pub(crate) fn sync_data(file: BorrowedFd<'_>) -> Result<(), OsError> {
    Ok(fs::fsync(file)?)
}

pub(crate) fn sync_all(file: BorrowedFd<'_>) -> Result<(), OsError> {
    sync_data(file)
}

pub(crate) fn preallocate(
    _file: BorrowedFd<'_>,
    _range: Range<u64>,
    _keep_size: bool,
) -> Result<(), OsError> {
    Err(OsError::EOPNOTSUPP)
}

#[cfg(target_vendor = "apple")]
pub(crate) fn advise(
    file: BorrowedFd<'_>,
    range: Range<u64>,
    advice: Advice,
) -> Result<(), OsError> {
    match advice {
        Advice::WillNeed => {
            Ok(fs::fcntl_rdadvise(file, range.start, range.end.saturating_sub(range.start))?)
        }
        _ => Err(OsError::EOPNOTSUPP),
    }
}

#[cfg(not(target_vendor = "apple"))]
pub(crate) fn advise(
    _file: BorrowedFd<'_>,
    _range: Range<u64>,
    _advice: Advice,
) -> Result<(), OsError> {
    Err(OsError::EOPNOTSUPP)
}

pub(crate) fn start_writeback(_file: BorrowedFd<'_>, _range: Range<u64>) -> Result<(), OsError> {
    Err(OsError::EOPNOTSUPP)
}

pub(crate) fn wait_writeback(_file: BorrowedFd<'_>, _range: Range<u64>) -> Result<(), OsError> {
    Err(OsError::EOPNOTSUPP)
}

#[cfg(target_vendor = "apple")]
pub(crate) fn set_direct(file: BorrowedFd<'_>) -> Result<(), OsError> {
    Ok(fs::fcntl_nocache(file, true)?)
}

#[cfg(not(target_vendor = "apple"))]
pub(crate) fn set_direct(_file: BorrowedFd<'_>) -> Result<(), OsError> {
    Err(OsError::EOPNOTSUPP)
}

#[cfg(target_vendor = "apple")]
pub(crate) fn direct_support(_file: BorrowedFd<'_>) -> DirectSupport {
    // F_NOCACHE takes any alignment; unaligned pieces go through the cache.
    DirectSupport::Aligned { memory: 1, offset: 1 }
}

#[cfg(not(target_vendor = "apple"))]
pub(crate) fn direct_support(_file: BorrowedFd<'_>) -> DirectSupport {
    DirectSupport::No("this build of forebay-io has no direct I/O")
}

pub(crate) fn atomic_write(_file: BorrowedFd<'_>) -> Option<AtomicWrite> {
    None
}

pub(crate) fn write_atomic(
    _file: BorrowedFd<'_>,
    _slices: &[IoSlice<'_>],
    _position: u64,
) -> Result<usize, OsError> {
    Err(OsError::EOPNOTSUPP)
}

/// A descriptor cannot be reopened here; the caller opens the path again.
pub(crate) fn reopen(_file: BorrowedFd<'_>) -> Result<OwnedFd, OsError> {
    Err(OsError::EOPNOTSUPP)
}

pub(crate) fn through_cache(
    _directory: &std::path::Path,
    _memory: &mut [u8],
) -> Result<crate::properties::ThroughCache, OsError> {
    Err(OsError::EOPNOTSUPP)
}

pub(crate) fn filesystem_name(_file: BorrowedFd<'_>) -> &'static str {
    "the filesystem"
}

pub(crate) fn residency(
    _file: BorrowedFd<'_>,
    _range: Range<u64>,
    _page_bytes: u64,
) -> Result<CachedPages, OsError> {
    Err(OsError::EOPNOTSUPP)
}

pub(crate) fn kernel_readahead(_file: BorrowedFd<'_>) -> Option<u64> {
    None
}

pub(crate) fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

#[allow(clippy::unnecessary_cast)] // the types differ between systems
pub(crate) fn identity(file: impl AsFd) -> Result<(u64, u64), OsError> {
    let facts = fs::fstat(file)?;
    Ok((facts.st_dev as u64, facts.st_ino as u64))
}
