//! The descriptor of a database file: asks the kernel for pages, or for what it has at hand.
//!
//! POSIX locks belong to the process and the file: when a process closes *any* descriptor of a file, it loses all its
//! locks on it, and SQLite's transactions with them. So none is opened here, and none is closed. The one that the
//! wrapped VFS holds is borrowed: SQLite's unix VFS keeps it in `unixFile`, after three pointers, the second of which
//! is the VFS itself. That is so from 3.7.13 to today's, and is checked for each file: the pointer, and that the
//! descriptor and the path are one regular file. Where it is not so, nothing is asked for.
//!
//! Concurrency: used between the wrapped VFS's open and its close, by the thread that uses the file.
//! Failure:     a hint that fails, and a page that is not at hand, are the same: nothing comes of it.

#![expect(unsafe_code, reason = "the descriptor lies in SQLite's own structure")]

use std::ffi::{CStr, c_int};
use std::io::IoSliceMut;
use std::os::fd::{BorrowedFd, RawFd};

use rustix::fs::{Advice, FileType};
use rustix::io::{Errno, ReadWriteFlags};

use crate::abi::{File, Vfs};

/// The front of SQLite's `unixFile`.
#[repr(C)]
struct UnixFile {
    file: File,
    vfs: *const Vfs,
    inode: *const (),
    descriptor: c_int,
}

/// A descriptor that the wrapped VFS keeps open.
#[derive(Debug)]
pub(crate) struct Descriptor(RawFd);

impl Descriptor {
    /// That of an open file, if the VFS is SQLite's own for unix.
    ///
    /// # Safety
    /// `file` was opened by `vfs` at `path`; what is returned is not used after it is closed.
    pub(crate) unsafe fn find(
        file: *const File,
        vfs: *const Vfs,
        path: &CStr,
    ) -> Option<Descriptor> {
        // SAFETY: a registered VFS has a name.
        let (name, file_size) = unsafe { (CStr::from_ptr((*vfs).name), (*vfs).file_size) };
        if !name.to_bytes().starts_with(b"unix") || (file_size as usize) < size_of::<UnixFile>() {
            return None;
        }
        // SAFETY: the file has so many bytes (above), whatever they mean; any bytes will do for the fields.
        let unix = unsafe { &*file.cast::<UnixFile>() };
        if unix.vfs != vfs || unix.descriptor < 0 {
            return None;
        }
        // SAFETY: if it is the file's, the VFS keeps it open; if not, fstat fails, or reports another file.
        let borrowed = unsafe { BorrowedFd::borrow_raw(unix.descriptor) };
        let (open, named) = (rustix::fs::fstat(borrowed).ok()?, rustix::fs::stat(path).ok()?);
        let same = open.st_dev == named.st_dev
            && open.st_ino == named.st_ino
            && FileType::from_raw_mode(open.st_mode) == FileType::RegularFile;
        same.then_some(Descriptor(unix.descriptor))
    }

    #[cfg(test)]
    pub(crate) fn of(file: &std::fs::File) -> Descriptor {
        Descriptor(std::os::fd::AsRawFd::as_raw_fd(file))
    }

    /// Asks the kernel to read `size` bytes from `offset` on, without waiting for them.
    pub(crate) fn ask(&self, offset: u64, size: u64) {
        let size = std::num::NonZeroU64::new(size);
        let _ = rustix::fs::fadvise(self.borrow(), offset, size, Advice::WillNeed);
    }

    /// Fills `into` from `offset` on, if the kernel has all of that in memory. A filesystem that does not say so (a
    /// container's overlay, FUSE, NFS) is read, and may wait: so often as `waits` says, which is counted down.
    pub(crate) fn at_hand(&self, offset: u64, into: &mut [u8], waits: &mut u32) -> bool {
        let size = into.len();
        let vector = &mut [IoSliceMut::new(into)];
        match rustix::io::preadv2(self.borrow(), vector, offset, ReadWriteFlags::NOWAIT) {
            Err(Errno::OPNOTSUPP) if *waits > 0 => {
                *waits -= 1;
                rustix::io::pread(self.borrow(), into, offset) == Ok(size)
            }
            read => read == Ok(size),
        }
    }

    fn borrow(&self) -> BorrowedFd<'_> {
        // SAFETY: the wrapped VFS keeps it open for longer than this is used (contract of `find`).
        unsafe { BorrowedFd::borrow_raw(self.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filesystem_that_does_not_say_what_it_has_is_read_so_often_and_no_more() {
        let file = std::fs::File::open("/proc/version").unwrap();
        let (descriptor, into, mut waits) = (Descriptor::of(&file), &mut [0; 5], 2);
        let read: Vec<bool> = (0..4).map(|_| descriptor.at_hand(0, into, &mut waits)).collect();
        assert_eq!((read, &into[..]), (vec![true, true, false, false], &b"Linux"[..]));
    }
}
