//! Error numbers of the operating system.

use std::fmt;

/// An error number of the operating system, unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct OsError(i32);

impl OsError {
    /// No space left on device.
    pub const ENOSPC: OsError = OsError(libc::ENOSPC);
    /// Input/output error.
    pub const EIO: OsError = OsError(libc::EIO);
    /// Invalid argument; on direct I/O nearly always alignment.
    pub const EINVAL: OsError = OsError(libc::EINVAL);
    /// Interrupted by a signal.
    pub const EINTR: OsError = OsError(libc::EINTR);
    /// Try again.
    pub const EAGAIN: OsError = OsError(libc::EAGAIN);
    /// A required resource is in use.
    pub const EBUSY: OsError = OsError(libc::EBUSY);
    /// The operation was cancelled.
    pub const ECANCELED: OsError = OsError(libc::ECANCELED);
    /// Out of disk quota.
    pub const EDQUOT: OsError = OsError(libc::EDQUOT);
    /// The file would become too large.
    pub const EFBIG: OsError = OsError(libc::EFBIG);
    /// Not permitted.
    pub const EPERM: OsError = OsError(libc::EPERM);
    /// Permission denied.
    pub const EACCES: OsError = OsError(libc::EACCES);
    /// Read-only filesystem.
    pub const EROFS: OsError = OsError(libc::EROFS);
    /// System call not implemented.
    pub const ENOSYS: OsError = OsError(libc::ENOSYS);
    /// Out of memory; for io_uring often the memlock limit.
    pub const ENOMEM: OsError = OsError(libc::ENOMEM);
    /// The process has reached its limit of open files.
    pub const EMFILE: OsError = OsError(libc::EMFILE);
    /// The system has reached its limit of open files.
    pub const ENFILE: OsError = OsError(libc::ENFILE);
    /// Operation not supported.
    pub const EOPNOTSUPP: OsError = OsError(libc::EOPNOTSUPP);

    /// Creates the error with number `raw`.
    pub const fn from_raw(raw: i32) -> Self {
        OsError(raw)
    }

    /// The error number.
    pub const fn raw(self) -> i32 {
        self.0
    }

    /// True for transient errors: retrying is the only remedy.
    pub(crate) fn passes(self) -> bool {
        matches!(self, OsError::EINTR | OsError::EAGAIN | OsError::ECANCELED)
    }

    /// True when the system was short of descriptors or memory: the same call may succeed later.
    pub fn is_shortage(self) -> bool {
        matches!(self, OsError::EMFILE | OsError::ENFILE | OsError::ENOMEM)
    }

    /// True when the system or the filesystem does not support the operation.
    pub(crate) fn is_unsupported(self) -> bool {
        matches!(self, OsError::EOPNOTSUPP | OsError::ENOSYS)
    }
}

impl From<std::io::Error> for OsError {
    /// An error without a number is that of a name with a zero byte, which never reached the system; any other counts
    /// as EIO.
    fn from(error: std::io::Error) -> Self {
        let without = match error.kind() {
            std::io::ErrorKind::InvalidInput => libc::EINVAL,
            _ => libc::EIO,
        };
        OsError(error.raw_os_error().unwrap_or(without))
    }
}

impl From<rustix::io::Errno> for OsError {
    fn from(error: rustix::io::Errno) -> Self {
        OsError(error.raw_os_error())
    }
}

impl fmt::Display for OsError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        std::io::Error::from_raw_os_error(self.0).fmt(out)
    }
}

impl fmt::Debug for OsError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "OsError({self})")
    }
}
