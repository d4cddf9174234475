//! The kernel's events, as far as they are used here.

use serde::{Deserialize, Serialize};

/// A file as the kernel identifies it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct FileKey {
    /// The device of its filesystem: major number times 2^20 and the minor one.
    pub(super) device: u32,
    pub(super) inode: u64,
}

/// What a system call is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    Read,
    Write,
    Sync,
    /// The program advises the kernel, as posix_fadvise numbers it.
    Advise(u8),
}

/// An event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Event {
    /// On the monotonic clock.
    pub(super) at_ns: u64,
    /// The task, which the kernel calls pid: a thread.
    pub(super) task: u32,
    pub(super) what: What,
}

/// What happened. Pages are of the page cache, sectors of 512 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// A system call begins. `file` is known once the descriptor was looked up, `offset` where the call names one.
    Enter { call: Call, descriptor: i32, file: Option<FileKey>, offset: Option<u64>, bytes: u64 },
    /// It ends.
    Exit { result: i64 },
    /// Descriptors are closed, from `first` to `last`, or get other files.
    Closed { first: i32, last: i32 },
    /// The process executes another program. The task that called exec was `before`, and has the process's number now.
    Exec { before: u32 },
    /// The task starts another one, of its own process or of a new one.
    Started { other: u32, is_thread: bool },
    /// The task ends: its number may belong to another one from now on.
    Ended,
    /// A read has asked for these pages, and they are there now.
    Asked { file: FileKey, first: u64, last: u64 },
    /// A transfer past the page cache begins here.
    Direct { file: FileKey, offset: u64 },
    /// Pages are added to the page cache, to be read or written.
    Added { file: FileKey, first: u64, pages: u64 },
    /// A mapped page is asked for.
    Fault { file: FileKey, page: u64 },
    /// The task goes to sleep until something is done, mostly by a device.
    Slept,
    /// The task submits a request to a device.
    Submit { device: u32, sector: u64, sectors: u64, transfer: Transfer },
    /// A device is given a request, of any process.
    Issue { device: u32, sector: u64, sectors: u64, transfer: Transfer },
    /// The device gave it back, and will get it again.
    Requeue { device: u32, sectors: u64, transfer: Transfer },
}

/// What a device is asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Transfer {
    Read,
    Write,
    /// Anything else: flushes, discards.
    Other,
}

impl Transfer {
    /// As the kernel writes it, such as `RA`, or `FWS` for a write with a flush before it.
    pub(super) fn parse(letters: &[u8]) -> Transfer {
        let letters = letters.strip_prefix(b"F").unwrap_or(letters);
        match letters.first() {
            Some(b'R') => Transfer::Read,
            Some(b'W') => Transfer::Write,
            _ => Transfer::Other,
        }
    }
}
