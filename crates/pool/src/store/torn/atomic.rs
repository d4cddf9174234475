//! Atomic writes: the disk itself writes a page completely or not at all.
//!
//! Only where that is guaranteed. The filesystem is queried for each file (statx), and reports for which sizes its
//! direct writes are atomic, on this device and all layers in between; and each write is flagged as such a write
//! (RWF_ATOMIC), so that the kernel rejects it instead of splitting it. A disk's data sheet is no guarantee for its
//! sectors: a RAID or a partition may split a page differently.
//!
//! Pages are written one by one: an atomic write is one piece of memory, a power of two, at a multiple of its size.
//!
//! Invariants:  [ATM-1] a page of a tablespace with atomic writes is written only by such writes
//! Failure:     [`Error::Setting`] at opening, with the filesystem, the device and the alternative.
//! Source:      the kernel's block/atomic_writes documentation; pwritev2(2), statx(2).

use forebay_io::{CacheMode, File, OpenOptions, Request};
use rustix::fs::{fstat, major, minor};

use super::opening::Opening;
use crate::error::Error;
use crate::store::directory_lock;

const INSTEAD: &str = "protect its pages by images in the log or by double write";

/// Rejects a tablespace whose pages cannot be written this way.
///
/// # Errors
/// [`Error::Setting`]; [`Error::Io`] when even the query fails.
pub(super) fn check_tablespace(opening: &Opening<'_>) -> Result<(), Error> {
    if opening.cache == CacheMode::Buffered {
        return Err(refusal(format!(
            "{} is buffered, and the page cache writes as it likes; open it with CacheMode::Direct, \
             or {INSTEAD}",
            opening.directory.display()
        )));
    }
    // A file that always exists.
    let options = OpenOptions::new().read_only(true).cache(CacheMode::Direct);
    let path = opening.directory.join(directory_lock::NAME);
    check_file(&opening.volume.open(&path, &options)?, opening.page_bytes)
}

/// Rejects a file whose pages cannot be written this way.
///
/// # Errors
/// [`Error::Setting`].
pub(super) fn check_file(file: &File, page_bytes: usize) -> Result<(), Error> {
    let limits = file.atomic_write();
    if limits.is_some_and(|it| it.takes(page_bytes as u64)) {
        return Ok(());
    }
    let says = match limits {
        None => "proves no atomic writes".to_owned(),
        Some(it) => format!(
            "proves atomic writes of {} to {} bytes, and a page has {page_bytes}",
            it.bytes_min, it.bytes_max
        ),
    };
    let device = fstat(file.descriptor()).map_or_else(
        |_| "its device".to_owned(),
        |facts| format!("device {}:{}", major(facts.st_dev), minor(facts.st_dev)),
    );
    let (path, filesystem) = (file.path().display(), file.filesystem());
    Err(refusal(format!("{filesystem} on {device} {says} for {path}; {INSTEAD}")))
}

fn refusal(expected: String) -> Error {
    Error::Setting { setting: "torn pages", value: "atomic".to_owned(), expected }
}

/// The same write, completely or not at all ([ATM-1]).
pub(super) fn whole(request: Request) -> Request {
    request.atomic()
}
