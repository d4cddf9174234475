//! The backends by name, and why one cannot be used.

use std::fmt;
use std::str::FromStr;

use crate::os_error::OsError;
use crate::properties::CacheMode;

/// The available backends, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// io_uring: one system call for many requests, buffered and direct.
    Uring,
    /// Linux native AIO: direct files only.
    Aio,
    /// A pool of threads that block in `preadv` and `pwritev`. Available everywhere.
    Threads,
    /// The caller's own thread, when it waits; look-ahead through WILLNEED. Available everywhere.
    Sync,
}

impl Kind {
    /// All of them, best first.
    pub const ALL: [Kind; 4] = [Kind::Uring, Kind::Aio, Kind::Threads, Kind::Sync];

    /// `uring`, `aio`, `threads` or `sync`.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Uring => "uring",
            Kind::Aio => "aio",
            Kind::Threads => "threads",
            Kind::Sync => "sync",
        }
    }

    /// False for `aio` on buffered files: the kernel would execute those inside the submission.
    pub fn serves(self, cache: CacheMode) -> bool {
        self != Kind::Aio || cache == CacheMode::Direct
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

impl FromStr for Kind {
    type Err = UnknownKind;

    fn from_str(name: &str) -> Result<Kind, UnknownKind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name).ok_or(UnknownKind)
    }
}

/// The name is not that of a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("unknown backend; there are uring, aio, threads and sync")]
pub struct UnknownKind;

/// Why a backend cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The backend.
    pub backend: Kind,
    /// The step that failed, such as `io_uring_setup`.
    pub step: &'static str,
    /// The system's error; `None` where no system call was made.
    pub source: Option<OsError>,
}

impl Refusal {
    pub(crate) fn os(backend: Kind, step: &'static str, source: OsError) -> Refusal {
        Refusal { backend, step, source: Some(source) }
    }

    pub(crate) fn buffered(backend: Kind) -> Refusal {
        Refusal { backend, step: "serves direct files only", source: None }
    }

    /// How to make it work.
    pub fn remedy(&self) -> &'static str {
        match (self.backend, self.source) {
            (Kind::Uring, Some(OsError::EPERM)) => {
                "allow it with sysctl kernel.io_uring_disabled=0, or in the container's seccomp \
                 profile"
            }
            (Kind::Uring, Some(OsError::EACCES)) => "allow it in the security module's policy",
            (Kind::Uring, Some(OsError::ENOSYS)) => {
                "needs Linux 5.11 or newer, and a seccomp profile that knows the call"
            }
            (Kind::Uring, Some(OsError::ENOMEM)) => {
                "raise the locked-memory limit (ulimit -l, LimitMEMLOCK=) or choose a shorter \
                 queue"
            }
            (Kind::Uring, Some(OsError::EOPNOTSUPP)) => "needs Linux 5.11 or newer",
            (Kind::Aio, Some(OsError::EAGAIN)) => {
                "raise sysctl fs.aio-max-nr or choose a shorter queue"
            }
            (Kind::Aio, Some(OsError::ENOSYS)) => "needs a kernel built with CONFIG_AIO",
            (Kind::Aio, None) => "open the files direct, or use uring or threads",
            (Kind::Threads, Some(_)) => "raise the limit on processes (ulimit -u, pids.max)",
            (_, None) => "needs Linux; use threads or sync here",
            (_, Some(_)) => "use another backend",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.source {
            Some(source) => write!(out, "{}: {source}; {}", self.step, self.remedy()),
            None => write!(out, "{}; {}", self.step, self.remedy()),
        }
    }
}
