//! Accesses: what a process tree did, as whole reads, writes, syncs and device requests.
//!
//! The statistics are computed from them, and a record stores them. Files are numbers here, in the order in which they were
//! first seen; `file_table` has their names, most of which are found later.
//!
//! Invariants:  [ACS-1] possible accesses can be added up: a sum of bytes overflows after 2^31 of them at the earliest

use serde::{Deserialize, Serialize};

use super::event::Transfer;

/// Maximum number of files that are counted separately; all others are counted as one, which has this number.
pub(super) const FILES_MAX: u32 = 4096;

/// No read requests this many pages: the kernel limits each to 2 GiB.
pub(super) const READ_MAX: u64 = 1 << 20;

/// No call transfers this many bytes, for the same reason, and none takes this long, which is more than an hour.
const BYTES_MAX: u64 = 1 << 33;
const NS_MAX: u64 = 1 << 42;

/// Task numbers are below this limit of the kernel.
const TASKS_MAX: u32 = 1 << 22;

/// Page numbers are below this: files end at 2^63 bytes.
const PAGE_MAX: u64 = 1 << 52;

/// Something that the process tree or a device did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Access {
    /// A read that has completed.
    Read(Read),
    /// A read at an unknown offset.
    ReadAnywhere {
        file: u32,
        bytes: u64,
    },
    Write {
        file: u32,
        bytes: u64,
    },
    Sync {
        file: u32,
        took_ns: u64,
    },
    /// A program has advised the kernel. `advice`: as posix_fadvise numbers it; `pages`: those read into the page cache
    /// for it.
    Advise {
        task: u32,
        file: u32,
        offset: u64,
        bytes: u64,
        advice: u8,
        pages: u64,
        took_ns: u64,
    },
    /// Pages were read into the page cache that no call had requested.
    Ahead {
        file: u32,
        first: u64,
        pages: u64,
    },
    /// A request was issued to a device. `file`: set if the process tree submitted it.
    Request {
        device: u32,
        bytes: u64,
        transfer: Transfer,
        file: Option<u32>,
    },
    /// The device returned a request, and will get it again.
    Requeue {
        device: u32,
        bytes: u64,
        transfer: Transfer,
    },
    /// The task has exited, or its number belongs to another one from now on.
    Exited {
        task: u32,
    },
}

/// A read that has completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Read {
    pub(super) task: u32,
    pub(super) file: u32,
    /// The first page; `more`: how many pages follow it.
    pub(super) first: u64,
    pub(super) more: u64,
    pub(super) bytes: u64,
    /// From start to end.
    pub(super) took_ns: u64,
    /// From the first sleep to the end; `None` if it did not sleep.
    pub(super) waited_ns: Option<u64>,
    /// The kernel had to read some of it from a device.
    pub(super) missed: bool,
    pub(super) mode: ReadMode,
}

/// How pages were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ReadMode {
    /// By a system call, through the page cache.
    Cached,
    /// By a system call, past the page cache.
    Direct,
    /// Without a system call for it: of a mapped file, or by io_uring.
    Unseen,
}

impl Read {
    /// The first page and the last.
    pub(super) fn pages(&self) -> (u64, u64) {
        (self.first, self.first + self.more)
    }
}

impl Access {
    /// The device of a request.
    pub(super) fn device(&self) -> Option<u32> {
        match *self {
            Access::Request { device, .. } | Access::Requeue { device, .. } => Some(device),
            _ => None,
        }
    }

    /// Whether it can have happened [ACS-1]; other numbers would be those of a damaged record.
    pub(super) fn is_possible(&self) -> bool {
        let file = |file: u32| file <= FILES_MAX;
        let size = |bytes: u64| bytes < BYTES_MAX;
        let time = |ns: u64| ns < NS_MAX;
        let pages = |first: u64, count: u64| first < PAGE_MAX && count <= READ_MAX;
        let by = |task: u32| task < TASKS_MAX;
        match *self {
            Access::Read(Read {
                task, file: of, first, more, bytes, took_ns, waited_ns, ..
            }) => {
                let within = waited_ns.is_none_or(|waited_ns| waited_ns <= took_ns);
                by(task) && file(of) && pages(first, more) && size(bytes) && time(took_ns) && within
            }
            Access::ReadAnywhere { file: of, bytes } | Access::Write { file: of, bytes } => {
                file(of) && size(bytes)
            }
            Access::Sync { file: of, took_ns } => file(of) && time(took_ns),
            Access::Advise { task, file: of, pages, took_ns, .. } => {
                by(task) && file(of) && size(pages) && time(took_ns)
            }
            Access::Ahead { file: of, first, pages: count } => {
                file(of) && count > 0 && pages(first, count)
            }
            Access::Request { bytes, file: of, .. } => size(bytes) && of.is_none_or(file),
            Access::Requeue { bytes, .. } => size(bytes),
            Access::Exited { task } => by(task),
        }
    }
}
