//! What can go wrong, and what the caller can do about it.
//!
//! Four kinds, as everywhere in Forebay: *retry* ([`Error::NoSpace`] after making room,
//! [`Error::Memlock`] after raising a limit), *data* ([`Error::PastEnd`]), *device*
//! ([`Error::Io`]) and *latched* ([`Error::Failed`], after a failed sync). Every message names the file and the
//! position, and ends with what to do. Errors are cheap to clone, because one failed read may be reported to many
//! waiters.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::kind::{Kind, Refusal};
use crate::op::Op;
use crate::os_error::OsError;
use crate::properties::CacheMode;

impl std::error::Error for OsError {}

/// The part of a direct request that is not aligned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The byte offset in the file.
    Offset,
    /// The length of a memory lease.
    Length,
    /// The address of a memory lease.
    Memory,
}

impl fmt::Display for Part {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Part::Offset => "offset",
            Part::Length => "length of a buffer",
            Part::Memory => "address of a buffer",
        })
    }
}

/// What was being done when an error occurred.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Action {
    /// A request.
    Request(Op),
    /// Changing the size of a file, or reserving space for it.
    Resize,
    /// Starting or awaiting writeback.
    Writeback,
    /// Giving advice.
    Advice,
    /// Querying size, alignment or residency.
    Query,
}

impl fmt::Display for Action {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Request(op) => op.fmt(out),
            Action::Resize => out.write_str("resize"),
            Action::Writeback => out.write_str("writeback"),
            Action::Advice => out.write_str("advice"),
            Action::Query => out.write_str("query"),
        }
    }
}

/// An operation on names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NameOp {
    /// Creating a directory.
    MakeDirectory,
    /// Removing a file's name.
    Remove,
    /// Renaming a file.
    Rename,
}

impl fmt::Display for NameOp {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            NameOp::MakeDirectory => "make the directory",
            NameOp::Remove => "remove",
            NameOp::Rename => "rename",
        })
    }
}

impl From<Op> for Action {
    fn from(op: Op) -> Action {
        Action::Request(op)
    }
}

/// The errors of this crate.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be opened or created.
    #[error("cannot open {}: {source}; {}", file.display(), open_hint(*source))]
    Open {
        /// The requested path.
        file: Arc<Path>,
        /// The system's error.
        source: OsError,
    },
    /// A name could not be created, changed or removed.
    #[error("cannot {op} {}: {source}; {}", file.display(), open_hint(*source))]
    Name {
        /// The attempted operation.
        op: NameOp,
        /// The name.
        file: Arc<Path>,
        /// The system's error.
        source: OsError,
    },
    /// The device or filesystem failed a request. The content of a read buffer is undefined. Also any failure of a
    /// sync, a full disk included: writes since the last successful sync may be lost.
    #[error(
        "{op} of {len} bytes at offset {offset} of {} failed: {source}; {}",
        file.display(),
        io_hint(*source)
    )]
    Io {
        /// The attempted operation.
        op: Action,
        /// The file.
        file: Arc<Path>,
        /// Byte offset of the request.
        offset: u64,
        /// Requested bytes.
        len: u64,
        /// The system's error.
        source: OsError,
    },
    /// The filesystem or the user's quota is full. Nothing is lost: write again after making room.
    #[error(
        "no space for the {op} of {len} bytes at offset {offset} of {} ({source}); \
         free some space or raise the quota, then try again",
        file.display()
    )]
    NoSpace {
        /// The attempted operation.
        op: Action,
        /// The file.
        file: Arc<Path>,
        /// Byte offset of the request.
        offset: u64,
        /// Requested bytes.
        len: u64,
        /// ENOSPC or EDQUOT.
        source: OsError,
    },
    /// The file would exceed a limit on file sizes.
    #[error(
        "{} may not grow to {end} bytes: past the filesystem's largest file or the process's \
         file size limit; raise `ulimit -f` or split the file",
        file.display()
    )]
    TooLarge {
        /// The file.
        file: Arc<Path>,
        /// The size it would have had, in bytes.
        end: u64,
    },
    /// A read reached the end of the file. The first `got` bytes of the memory are valid.
    #[error(
        "read of {len} bytes at offset {offset} of {} passes the end of the file: only {got} \
         bytes are there; read less, or restore the file if it was longer",
        file.display()
    )]
    PastEnd {
        /// The file.
        file: Arc<Path>,
        /// Byte offset of the request.
        offset: u64,
        /// Requested bytes.
        len: u64,
        /// Available bytes.
        got: u64,
    },
    /// A direct request breaks the alignment that its file needs. Nothing was transferred.
    #[error(
        "the {what} is {value}, but direct I/O on {} needs a multiple of {required}; \
         align it, or open the file buffered",
        file.display()
    )]
    Misaligned {
        /// The file.
        file: Arc<Path>,
        /// Which part of the request.
        what: Part,
        /// Its value.
        value: u64,
        /// The alignment needed, in bytes.
        required: u64,
    },
    /// The filesystem does not support direct I/O (or not on this file).
    #[error(
        "{filesystem} refuses direct I/O on {} ({why}); open the file buffered, or put it on \
         another filesystem",
        file.display()
    )]
    DirectRefused {
        /// The file.
        file: Arc<Path>,
        /// The filesystem's name.
        filesystem: String,
        /// How the filesystem refused.
        why: String,
    },
    /// The same file is open in this process in the other cache mode.
    #[error(
        "{} is already open {open_as} in this process and cannot be opened {asked} as well: \
         the two would not see each other's bytes in time; close the other one first",
        file.display()
    )]
    MixedModes {
        /// The file.
        file: Arc<Path>,
        /// The mode it is open in.
        open_as: CacheMode,
        /// The requested mode.
        asked: CacheMode,
    },
    /// The process or the descriptor lacks the rights for the operation.
    #[error(
        "{op} on {} is not permitted ({source}); open it for writing, or check its owner, mode \
         and mount options",
        file.display()
    )]
    Permission {
        /// The attempted operation.
        op: Action,
        /// The file.
        file: Arc<Path>,
        /// The system's error.
        source: OsError,
    },
    /// The operation exceeds the limit on locked memory.
    #[error(
        "{what} needs {needed} bytes of locked memory and was refused ({source}); raise it with \
         `ulimit -l` or LimitMEMLOCK="
    )]
    Memlock {
        /// What needs locked memory.
        what: &'static str,
        /// Bytes needed.
        needed: u64,
        /// The system's error.
        source: OsError,
    },
    /// Memory could not be allocated.
    #[error("cannot map {len} bytes of memory: {source}; map less or raise the limit")]
    Memory {
        /// Requested bytes.
        len: u64,
        /// The system's error.
        source: OsError,
    },
    /// A setting is out of range.
    #[error("{setting} is {value}: {expected}")]
    Setting {
        /// The setting's name.
        setting: &'static str,
        /// Its value.
        value: u64,
        /// The expected range.
        expected: &'static str,
    },
    /// A backend cannot be used on this system.
    #[error("the {backend} backend cannot be used: {why}")]
    Unavailable {
        /// The backend.
        backend: Kind,
        /// The cause, and the remedy.
        why: Refusal,
    },
    /// The operation is not supported on this system.
    #[error("{what} is not supported for {} ({source}); {instead}", file.display())]
    Unsupported {
        /// The attempted operation.
        what: &'static str,
        /// The file.
        file: Arc<Path>,
        /// The system's error.
        source: OsError,
        /// What to do instead.
        instead: &'static str,
    },
    /// A sync of this file failed earlier. Writes since the last successful sync may be lost even if a later sync
    /// reported success, so no further sync is attempted.
    #[error(
        "an earlier sync failed ({first}), so nothing more is written or synced through this \
         file; reopen it and recover from the log or a backup"
    )]
    Failed {
        /// The first failure.
        first: Arc<Error>,
    },
    /// The queue was opened by the process that this one was forked from. Nothing was done.
    #[error(
        "this I/O queue belongs to the process that this one was forked from; open another one after the fork"
    )]
    Forked,
    /// The request was submitted after [`Io::close`](crate::Io::close).
    #[error("the I/O queue was closed before this request; open a new one")]
    Closed,
}

impl Error {
    /// The operating system's error number behind this error, if there is one.
    pub fn os_error(&self) -> Option<OsError> {
        match self {
            Error::Open { source, .. }
            | Error::Name { source, .. }
            | Error::Io { source, .. }
            | Error::NoSpace { source, .. }
            | Error::Permission { source, .. }
            | Error::Memlock { source, .. }
            | Error::Memory { source, .. }
            | Error::Unsupported { source, .. } => Some(*source),
            Error::TooLarge { .. } => Some(OsError::EFBIG),
            Error::Failed { first } => first.os_error(),
            Error::Unavailable { why, .. } => why.source,
            Error::PastEnd { .. }
            | Error::Misaligned { .. }
            | Error::DirectRefused { .. }
            | Error::MixedModes { .. }
            | Error::Setting { .. }
            | Error::Forked
            | Error::Closed => None,
        }
    }

    /// True when a sync failed, now or earlier: writes since the last successful sync may be lost.
    pub fn is_failed_sync(&self) -> bool {
        let sync = |op: &Action| matches!(op, Action::Request(Op::SyncData | Op::SyncAll));
        match self {
            Error::Failed { .. } => true,
            Error::Io { op, .. } => sync(op),
            _ => false,
        }
    }
}

fn io_hint(source: OsError) -> &'static str {
    if source.is_shortage() {
        return "the system is short of memory or descriptors; free some and try again";
    }
    "check the device's health and the kernel log, the bytes are not to be trusted"
}

fn open_hint(source: OsError) -> &'static str {
    match source.raw() {
        libc::ENOENT => "check the path, or open it with `create`",
        libc::EACCES | libc::EPERM => "check the owner and mode of the file and its directories",
        libc::EROFS => "the filesystem is mounted read-only",
        libc::EEXIST => "it exists already; choose another name or open it without create_new",
        libc::EISDIR => "it is a directory; name a file",
        libc::EMFILE => "close some files or raise the limit (`ulimit -n`), and try again",
        libc::ENFILE => "close some files or raise sysctl fs.file-max, and try again",
        libc::ENOMEM => "the system is short of memory; free some and try again",
        libc::EINVAL => "the name has a zero byte, or one that the filesystem does not take",
        libc::ENOSPC | libc::EDQUOT => "free some space or raise the quota",
        _ => "check the path and the filesystem",
    }
}
