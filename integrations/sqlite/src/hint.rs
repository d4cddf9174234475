//! The descriptor of a database file: requests pages from the kernel, or reads pages that the kernel has cached.
//!
//! POSIX locks belong to the process and the file: when a process closes *any* descriptor of a file, it loses all its
//! locks on it, and with them SQLite's transactions. So this module opens and closes no descriptor, and borrows the one
//! that the wrapped VFS holds. SQLite's unix VFS keeps it in `unixFile`, after three pointers, the second of which is
//! the VFS itself. This has been so since 3.7.13, and is checked for each file: the pointer, and that the descriptor
//! and the path are one regular file. If a check fails, no hints are given.
//!
//! Concurrency: used between the wrapped VFS's open and its close, by the thread that uses the file.
//! Failure:     a hint that fails has no effect, like a page that is not cached.

#![expect(unsafe_code, reason = "the descriptor lies in SQLite's own structure")]

use std::ffi::{CStr, c_int, c_void};
use std::io::IoSliceMut;
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr;

use rustix::fs::{Advice, FileType};
use rustix::io::{Errno, ReadWriteFlags};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::abi::{File, Vfs};

/// The maximum number of kernel pages that one SQLite page covers.
const PAGES_MAX: usize = 65_536 / 4096 + 1;

/// The first fields of SQLite's `unixFile`.
#[repr(C)]
struct UnixFile {
    file: File,
    vfs: *const Vfs,
    inode: *const (),
    descriptor: RawFd,
}

unsafe extern "C" {
    /// Which pages of a mapping are in memory, one byte for each.
    fn mincore(mapping: *mut c_void, size: usize, into: *mut u8) -> c_int;
}

/// The address at which the wrapped VFS keeps a descriptor. SQLITE_FCNTL_NULL_IO closes it, and leaves -1 there.
#[derive(Debug)]
pub(crate) struct Descriptor(*const RawFd);

impl Descriptor {
    /// The descriptor of an open file, if the VFS is SQLite's own for unix.
    ///
    /// # Safety
    /// `file` was opened by `vfs` at `path`; the result is not used after the file is closed.
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
        let unix = file.cast::<UnixFile>();
        // SAFETY: the file has at least this size (above), whatever its contents; any bytes are valid for the fields.
        let (of_vfs, descriptor) =
            unsafe { ((*unix).vfs, Descriptor(&raw const (*unix).descriptor)) };
        if of_vfs != vfs {
            return None;
        }
        // If it is the file's descriptor, the VFS keeps it open; otherwise, fstat fails or reports another file.
        let open = rustix::fs::fstat(descriptor.borrow()?).ok()?;
        let named = rustix::fs::stat(path).ok()?;
        let same = open.st_dev == named.st_dev
            && open.st_ino == named.st_ino
            && FileType::from_raw_mode(open.st_mode) == FileType::RegularFile;
        same.then_some(descriptor)
    }

    #[cfg(test)]
    pub(crate) fn of(file: &std::fs::File) -> Descriptor {
        Descriptor(Box::leak(Box::new(std::os::fd::AsRawFd::as_raw_fd(file))))
    }

    /// Asks the kernel to read `size` bytes from `offset` on, without waiting for them.
    pub(crate) fn ask(&self, offset: u64, size: u64) {
        let size = std::num::NonZeroU64::new(size);
        let _ = self.borrow().map(|it| rustix::fs::fadvise(it, offset, size, Advice::WillNeed));
    }

    /// Fills `into` from `offset` on, if all of these bytes are in the kernel's memory. `None` if that cannot be known
    /// without waiting: the filesystem cannot report it (a container's overlay, FUSE, NFS), or the call is forbidden
    /// (seccomp) or missing (gVisor, QEMU, Linux before 4.14).
    pub(crate) fn read_cached(&self, offset: u64, into: &mut [u8]) -> Option<bool> {
        let (Some(descriptor), size) = (self.borrow(), into.len()) else { return Some(false) };
        let vector = &mut [IoSliceMut::new(into)];
        match rustix::io::preadv2(descriptor, vector, offset, ReadWriteFlags::NOWAIT) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM | Errno::INVAL) => None,
            read => Some(read == Ok(size)),
        }
    }

    /// Whether `size` bytes from `offset` on are in the page cache, as mincore reports. For a process that may not
    /// write the file, mincore reports all pages as present.
    pub(crate) fn is_resident(&self, offset: u64, size: usize) -> bool {
        let page = rustix::param::page_size();
        let start = offset - offset % page as u64;
        let size = size + (offset - start) as usize;
        let mut there = [0; PAGES_MAX];
        let Some(there) = there.get_mut(..size.div_ceil(page)) else { return false };
        let Some(descriptor) = self.borrow() else { return false };
        let (read, shared) = (ProtFlags::READ, MapFlags::SHARED);
        // SAFETY: it is mapped at an address that the kernel chooses, never read, and unmapped below. The list has a
        // byte per page.
        unsafe {
            let Ok(mapping) = mmap(ptr::null_mut(), size, read, shared, descriptor, start) else {
                return false;
            };
            let answered = mincore(mapping, size, there.as_mut_ptr()) == 0;
            let _ = munmap(mapping, size);
            answered && there.iter().all(|it| it & 1 == 1)
        }
    }

    /// Fills `into` from `offset` on. May wait.
    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) -> bool {
        let size = into.len();
        self.borrow().is_some_and(|it| rustix::io::pread(it, into, offset) == Ok(size))
    }

    fn borrow(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: the wrapped VFS's file, which holds the descriptor's number, and the descriptor itself outlive this
        // borrow (contract of `find`); only the thread that uses the file changes it.
        unsafe { (*self.0 >= 0).then(|| BorrowedFd::borrow_raw(*self.0)) }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use rusqlite::{Connection, ffi};
    use rustix::fs::MemfdFlags;

    use super::*;

    #[test]
    fn what_is_in_memory_is_known_where_a_read_would_not_say() {
        let file =
            std::fs::File::from(rustix::fs::memfd_create("pages", MemfdFlags::CLOEXEC).unwrap());
        file.set_len(1 << 20).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &[7; 8192], 65_536).unwrap();
        let descriptor = Descriptor::of(&file);
        let resident = |offset, size| descriptor.is_resident(offset, size);
        assert!(resident(65_536, 8192) && resident(65_536 + 100, 4));
        assert!(!resident(0, 100) && !resident(65_536 - 100, 200) && !resident(65_536, 65_536));
        assert!(!resident(2 << 20, 100), "after its end");
        let proc = Descriptor::of(&std::fs::File::open("/proc/version").unwrap());
        assert!(!proc.is_resident(0, 5), "what cannot be mapped");
    }

    #[test]
    fn where_the_call_is_missing_it_is_not_known_whether_bytes_are_in_memory() {
        use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 4096]).unwrap();
        for errno in [Errno::NOSYS, Errno::PERM, Errno::INVAL] {
            let file = file.try_clone().unwrap();
            // A filter is one of its thread.
            let known = std::thread::spawn(move || {
                let filter = SeccompFilter::new(
                    [(libc::SYS_preadv2, Vec::new())].into(),
                    SeccompAction::Allow,
                    SeccompAction::Errno(errno.raw_os_error().unsigned_abs()),
                    std::env::consts::ARCH.try_into().unwrap(),
                );
                apply_filter(&BpfProgram::try_from(filter.unwrap()).unwrap()).unwrap();
                let descriptor = Descriptor::of(&file);
                (descriptor.read_cached(0, &mut [0; 16]), descriptor.is_resident(0, 16))
            });
            assert_eq!(known.join().unwrap(), (None, true), "{errno}");
        }
    }

    #[test]
    fn a_descriptor_that_sqlite_has_closed_is_not_used() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data.db");
        let db = Connection::open(&path).unwrap();
        db.execute_batch("create table t(a)").unwrap();
        let find = |operation| {
            let mut found: *mut c_void = ptr::null_mut();
            // SAFETY: these operations store a pointer there.
            unsafe {
                ffi::sqlite3_file_control(
                    db.handle(),
                    c"main".as_ptr(),
                    operation,
                    (&raw mut found).cast(),
                );
            }
            found
        };
        let (file, vfs) =
            (find(ffi::SQLITE_FCNTL_FILE_POINTER), find(ffi::SQLITE_FCNTL_VFS_POINTER));
        let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: that VFS has opened that file, which is closed at the end of the test.
        let found = unsafe { Descriptor::find(file.cast(), vfs.cast(), &name) }.unwrap();
        assert!(found.read_cached(0, &mut [0; 16]).unwrap_or(true));
        // SAFETY: the operation has no argument.
        let closed = unsafe {
            let operation = ffi::SQLITE_FCNTL_NULL_IO;
            ffi::sqlite3_file_control(db.handle(), c"main".as_ptr(), operation, ptr::null_mut())
        };
        assert_eq!(closed, ffi::SQLITE_OK);
        // Other files may now receive its number.
        let others: Vec<_> = (0..64).map(|_| std::fs::File::open(&path).unwrap()).collect();
        assert!(found.read_cached(0, &mut [0; 16]) == Some(false) && !found.read(0, &mut [0; 16]));
        assert!(!found.is_resident(0, 16));
        found.ask(0, 4096);
        drop(others);
    }
}
