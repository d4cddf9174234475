//! The kernel events that the watch uses.

use serde::{Deserialize, Serialize};

/// A file as the kernel identifies it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct FileKey {
    /// Device number of its filesystem: the major number times 2^20, plus the minor one.
    pub(super) device: u32,
    pub(super) inode: u64,
}

/// Bits of the minor number in the kernel's own device numbers.
pub(super) const MINOR_BITS: u32 = 20;

/// No device has this number.
const UNKNOWN: u32 = u32::MAX;

impl FileKey {
    /// Stands for a file until an event shows which one it is; `number` distinguishes such files.
    pub(super) const fn unknown(number: u64) -> FileKey {
        FileKey { device: UNKNOWN, inode: number }
    }

    pub(super) fn is_unknown(self) -> bool {
        self.device == UNKNOWN
    }

    /// Whether it is on a block device that is known by this number. Other filesystems, and the pages of block devices
    /// themselves, have numbers without a major part.
    pub(super) fn has_major(self) -> bool {
        self.device >> MINOR_BITS != 0
    }
}

/// Kind of a system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    Read,
    Write,
    Sync,
    /// The program advises the kernel, with the number that posix_fadvise takes.
    Advise(u8),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Event {
    /// On the monotonic clock.
    pub(super) at_ns: u64,
    /// The thread; the kernel calls its number pid.
    pub(super) task: u32,
    pub(super) kind: EventKind,
}

/// What happened. Pages are those of the page cache, sectors have 512 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EventKind {
    /// A system call begins. `file` is set once the descriptor is looked up, `offset` if the call names one.
    Enter { call: Call, descriptor: i32, file: Option<FileKey>, offset: Option<u64>, bytes: u64 },
    /// It returns.
    Exit { result: i64 },
    /// Descriptors `first..=last` are closed, or get other files.
    Closed { first: i32, last: i32 },
    /// The process executes another program. The task that called exec was `before`, and has the process's number now.
    Exec { before: u32 },
    /// The task starts another one, in its own process or in a new one.
    Started { other: u32, is_thread: bool },
    /// The task exits: its number may belong to another one from now on.
    TaskExited,
    /// A read has requested these pages, and they are in the page cache now.
    Requested { file: FileKey, first: u64, last: u64 },
    /// The filesystem writes or syncs this file, or a direct transfer of it begins at `offset`.
    Named { file: FileKey, offset: Option<u64> },
    /// Pages are added to the page cache, to be read or written.
    Added { file: FileKey, first: u64, pages: u64 },
    /// A fault on a page of a mapped file.
    Fault { file: FileKey, page: u64 },
    /// The task sleeps uninterruptibly, mostly until a device completes a request.
    Slept,
    /// The task submits a request to a device.
    Submit { device: u32, sector: u64, sectors: u64, transfer: Transfer },
    /// A request, of any process, is issued to a device.
    Issue { device: u32, sector: u64, sectors: u64, transfer: Transfer },
    /// The device returned a request, and will get it again.
    Requeue { device: u32, sectors: u64, transfer: Transfer },
}

/// Kind of a request to a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Transfer {
    Read,
    Write,
    /// Anything else: flushes, discards, and requests submitted to a device that is built from other devices.
    Other,
}

impl Transfer {
    /// Parses the kernel's letters, such as `RA`, or `FWS` for a write with a flush before it.
    pub(super) fn parse(letters: &[u8]) -> Transfer {
        let letters = letters.strip_prefix(b"F").unwrap_or(letters);
        match letters.first() {
            Some(b'R') => Transfer::Read,
            Some(b'W') => Transfer::Write,
            _ => Transfer::Other,
        }
    }
}
