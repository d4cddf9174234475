//! Files: opened in one cache mode, identified by device and inode, with private descriptors for separate readahead.
//!
//! On Linux, the readahead state and the RANDOM flag belong to the *open file description*, not to the file. So one
//! file may have many descriptors: [`File::private`] gives each stream its own, and the kernel then sees the sequence
//! of each stream instead of a mixture of all of them.
//!
//! A file's identity (device and inode) is shared by all its opens in this process. It carries the cache mode, because
//! mixed modes on one file would see each other's stale bytes, and the latch of a failed sync, because a later
//! successful sync proves nothing about the failed one.
//!
//! A file keeps the [`Volume`] that it was opened through. If the volume has an [`Interpose`], every change of the file
//! goes through it ([`crate::volume`]). The two types refer to each other, so both are defined here.
//!
//! Invariants:  [FIL-1] all opens of one file in this process have one cache mode
//!              [FIL-2] after a failed sync no write or sync of that file succeeds
//! Concurrency: all methods may be called from any thread; nothing here is asynchronous.
//! Source:      PostgreSQL's "fsync errors" (2018) for the reason for the latch.

mod identity;
mod open;

use std::fmt;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{fstat, ftruncate};

pub use open::{OpenOptions, sync_directory};
pub(crate) use open::{open_file, sync_names};

use crate::answer::SyncAnswer;
use crate::error::{Action, Error};
use crate::op::Op;
use crate::os_error::OsError;
use crate::properties::{Advice, Alignment, AtomicWrite, CacheMode, Preallocate, Residency};
use crate::sys;
use identity::Identity;
pub(crate) use identity::RunningSync;

/// Descriptors kept open for the next private stream, per open file.
const SPARE_DESCRIPTORS_MAX: usize = 8;

/// An open file. Cheap to clone; clones share a descriptor.
///
/// The descriptor is closed when the last clone is dropped *and* no request on it is in flight:
/// requests hold it too.
#[derive(Clone)]
pub struct File {
    descriptor: Arc<Descriptor>,
}

/// One open file description and the open that it belongs to.
struct Descriptor {
    /// `None` only while being dropped.
    file: Option<OwnedFd>,
    /// Returned to the spares when dropped.
    private: bool,
    opened: Arc<Opened>,
}

/// One call of `File::open` and the private descriptors made from it.
struct Opened {
    path: Arc<Path>,
    writable: bool,
    cache: CacheMode,
    /// Why this is buffered although direct was requested.
    fallback: Option<Error>,
    alignment: Alignment,
    atomic_write: Option<AtomicWrite>,
    /// The kernel itself performs direct I/O on the descriptor, not an interposer that simulates a disk.
    by_kernel: bool,
    /// Device and inode.
    number: (u64, u64),
    identity: Arc<Identity>,
    /// The volume through which the file is changed.
    volume: Volume,
    spare: Mutex<Vec<OwnedFd>>,
}

/// A change of a name or of a file.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Change<'a> {
    /// Creates an empty file under a name that does not exist.
    Create {
        /// The name.
        path: &'a Path,
    },
    /// Creates an empty directory.
    MakeDirectory {
        /// Its name.
        path: &'a Path,
    },
    /// Removes a name of a file.
    Remove {
        /// The name.
        path: &'a Path,
    },
    /// Renames a file and atomically replaces any file that has the new name.
    Rename {
        /// The old name.
        from: &'a Path,
        /// The new name.
        to: &'a Path,
    },
    /// Makes the names in a directory durable.
    SyncDirectory {
        /// The directory.
        path: &'a Path,
    },
    /// Changes the size of a file; new bytes read as zero.
    SetLen {
        /// The file.
        file: &'a File,
        /// The new size, in bytes.
        len: u64,
    },
    /// Reserves space; with [`Preallocate::Extend`] the file grows to the end of the range.
    Preallocate {
        /// The file.
        file: &'a File,
        /// The range, in bytes.
        range: Range<u64>,
        /// Whether the file grows.
        mode: Preallocate,
    },
    /// Makes earlier writes to a file durable.
    Sync {
        /// The file.
        file: &'a File,
        /// [`Op::SyncData`] or [`Op::SyncAll`].
        op: Op,
    },
    /// The kernel writes the dirty pages of the page cache. This is not durability.
    Writeback {
        /// The file.
        file: &'a File,
        /// The range, in bytes.
        range: Range<u64>,
        /// Whether the call waits for the writeback; it then reports a failed writeback.
        wait: bool,
    },
}

/// Intercepts changes of names and files between the library and the system.
///
/// Source: redb's storage backend, through which its tests build crash images; here it covers names too.
pub trait Interpose: fmt::Debug + Send + Sync {
    /// Executes `change` by calling `make`, at most once, or refuses it with its own error. The caller that requested
    /// the change receives the returned result.
    ///
    /// # Errors
    /// The system's error, as `make` returns it, or one that the system might have returned. After EINTR, EAGAIN or
    /// ECANCELED a sync is attempted again, in another call.
    fn execute(
        &self,
        change: &Change<'_>,
        make: &mut dyn FnMut() -> Result<(), OsError>,
    ) -> Result<(), OsError>;

    /// Properties of files that are opened direct here, if the interposer and its backend simulate a disk: the kernel's
    /// alignment is then not queried, and its page cache is not bypassed. Default: the properties of the system's
    /// files.
    fn direct_files(&self) -> Option<DirectFiles> {
        None
    }
}

/// Properties of direct files on a simulated disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirectFiles {
    /// Required alignment of addresses, offsets and lengths, in bytes.
    pub alignment: u32,
    /// The atomic writes that the backend supports, if any.
    pub atomic_write: Option<AtomicWrite>,
}

/// The place of files and their names. Cheap to clone.
#[derive(Clone, Default)]
pub struct Volume {
    interpose: Option<Arc<dyn Interpose>>,
}

impl Volume {
    /// The system's files.
    pub fn system() -> Volume {
        Volume { interpose: None }
    }

    /// The system's files, with every change going through `interpose`.
    pub fn over(interpose: Arc<dyn Interpose>) -> Volume {
        Volume { interpose: Some(interpose) }
    }

    pub(crate) fn direct_files(&self) -> Option<DirectFiles> {
        self.interpose.as_ref()?.direct_files()
    }

    pub(crate) fn is_interposed(&self) -> bool {
        self.interpose.is_some()
    }

    /// Makes a change, through the interposer if there is one.
    pub(crate) fn execute(
        &self,
        change: &Change<'_>,
        make: impl FnOnce() -> Result<(), OsError>,
    ) -> Result<(), OsError> {
        let Some(interpose) = &self.interpose else {
            return make();
        };
        let mut make = Some(make);
        interpose.execute(change, &mut || {
            let make = make.take();
            make.expect("[VOL-1] an interposer makes a change at most once")()
        })
    }
}

impl fmt::Debug for Volume {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.interpose {
            None => out.write_str("Volume(system)"),
            Some(interpose) => out.debug_tuple("Volume").field(interpose).finish(),
        }
    }
}

impl File {
    /// True when this is the same open as `other`, or a private descriptor made from it: both refer to one file,
    /// whatever their paths refer to by now.
    pub fn is_of(&self, other: &File) -> bool {
        Arc::ptr_eq(&self.descriptor.opened, &other.descriptor.opened)
    }

    /// Device and inode number: the same for every open of this file, and different from those of any other file while
    /// it is open.
    pub fn number(&self) -> (u64, u64) {
        self.descriptor.opened.number
    }

    /// The path used to open it. The file may have been renamed or removed since.
    pub fn path(&self) -> &Path {
        &self.descriptor.opened.path
    }

    pub(crate) fn path_shared(&self) -> Arc<Path> {
        Arc::clone(&self.descriptor.opened.path)
    }

    /// The cache mode; after a permitted fallback, the actual one.
    pub fn cache_mode(&self) -> CacheMode {
        self.descriptor.opened.cache
    }

    /// The reason, if the file is buffered although direct was requested.
    pub fn fallback(&self) -> Option<&Error> {
        self.descriptor.opened.fallback.as_ref()
    }

    /// Required alignment of requests on this file.
    pub fn alignment(&self) -> Alignment {
        self.descriptor.opened.alignment
    }

    /// The limits of atomic writes to this file. `None` where atomicity is not proven: on systems other than Linux, on
    /// buffered files, and on most filesystems and devices.
    pub fn atomic_write(&self) -> Option<AtomicWrite> {
        self.descriptor.opened.atomic_write
    }

    /// Whether the kernel itself guarantees atomic writes.
    pub(crate) fn is_direct_by_kernel(&self) -> bool {
        self.descriptor.opened.by_kernel
    }

    /// Rejects an atomic write that the kernel would refuse or, worse, execute non-atomically.
    pub(crate) fn check_atomic(&self, offset: u64, len: u64, pieces: usize) -> Result<(), Error> {
        let fits = |it: AtomicWrite| {
            it.takes(len) && offset.is_multiple_of(len) && pieces as u64 <= it.pieces_max.into()
        };
        if self.atomic_write().is_some_and(fits) {
            return Ok(());
        }
        Err(self.unsupported(
            "an atomic write of that size and place",
            OsError::EOPNOTSUPP,
            "ask File::atomic_write first, and protect what is written in another way",
        ))
    }

    /// Name of the filesystem, if its number is known.
    pub fn filesystem(&self) -> String {
        sys::filesystem_name(self.descriptor()).to_owned()
    }

    /// Current readahead of the kernel for newly opened files on this filesystem, in bytes, as set for its device
    /// (`blockdev --setra`). `None` where the system does not report it: outside Linux, and on filesystems over several
    /// devices.
    pub fn kernel_readahead(&self) -> Option<u64> {
        sys::kernel_readahead(self.descriptor())
    }

    /// The descriptor.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.file.as_ref().expect("taken only while being dropped").as_fd()
    }

    pub(crate) fn descriptor_number(&self) -> RawFd {
        self.descriptor().as_raw_fd()
    }

    /// Size, in bytes.
    ///
    /// # Errors
    /// [`Error::Io`] if the system cannot determine it.
    #[allow(clippy::len_without_is_empty)] // a file is not a container
    pub fn len(&self) -> Result<u64, Error> {
        let facts = fstat(self.descriptor())
            .map_err(|error| self.failure(Action::Query, 0..0, error.into()))?;
        Ok(facts.st_size.cast_unsigned())
    }

    /// Whether the file still has a name: without one it is freed with its last open.
    ///
    /// # Errors
    /// [`Error::Io`] if the system cannot determine it.
    pub fn has_name(&self) -> Result<bool, Error> {
        let facts = fstat(self.descriptor())
            .map_err(|error| self.failure(Action::Query, 0..0, error.into()))?;
        Ok(facts.st_nlink > 0)
    }

    /// Sets the size, in bytes. New bytes read as zero and use no space yet.
    ///
    /// The new size survives a crash only after [`File::sync_all`].
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::Permission`], [`Error::NoSpace`], [`Error::Io`].
    pub fn set_len(&self, len: u64) -> Result<(), Error> {
        self.check_writable(Action::Resize)?;
        let change = Change::SetLen { file: self, len };
        self.execute(&change, || Ok(ftruncate(self.descriptor(), len)?))
            .map_err(|source| self.failure(Action::Resize, 0..len, source))
    }

    /// Reserves space for `range` (bytes), so that writes there cannot run out of space.
    ///
    /// # Errors
    /// [`Error::NoSpace`] (the size of the file is then unchanged), [`Error::Unsupported`] where the filesystem or
    /// system cannot reserve space.
    pub fn preallocate(&self, range: Range<u64>, mode: Preallocate) -> Result<(), Error> {
        self.check_writable(Action::Resize)?;
        let keep_size = mode == Preallocate::KeepSize;
        let change = Change::Preallocate { file: self, range: range.clone(), mode };
        let reserve = || sys::preallocate(self.descriptor(), range.clone(), keep_size);
        match self.execute(&change, reserve) {
            Err(source) if source.is_unsupported() => Err(self.unsupported(
                "reserving space",
                source,
                "write zeros, or extend with set_len and be ready for a full disk later",
            )),
            result => result.map_err(|source| self.failure(Action::Resize, range, source)),
        }
    }

    /// Makes completed writes durable, with the metadata needed to read them back (size included).
    ///
    /// # Errors
    /// [`Error::Io`] once, and [`Error::Failed`] from then on: see the contract of
    /// [`backend`](crate::backend).
    pub fn sync_data(&self) -> Result<(), Error> {
        self.sync(Op::SyncData, sys::sync_data)
    }

    /// Makes completed writes and all metadata durable. A new file's *name* is made durable by
    /// [`sync_directory`].
    ///
    /// # Errors
    /// As for [`File::sync_data`].
    pub fn sync_all(&self) -> Result<(), Error> {
        self.sync(Op::SyncAll, sys::sync_all)
    }

    fn sync(&self, op: Op, call: fn(BorrowedFd<'_>) -> Result<(), OsError>) -> Result<(), Error> {
        self.check_latch()?;
        loop {
            match self.latching(op.into(), 0..0, || self.synced(op, call)) {
                Err(OsError::EINTR) => {}
                result => {
                    return result
                        .map_err(|source| self.sync_failed(self.failure(op.into(), 0..0, source)));
                }
            }
        }
    }

    /// One attempt at a sync, for the blocking backends; returns only the system's error.
    pub(crate) fn sync_attempt(&self, op: Op) -> Result<(), OsError> {
        let call = if op == Op::SyncAll { sys::sync_all } else { sys::sync_data };
        self.latching(op.into(), 0..0, || self.synced(op, call))
    }

    fn synced(
        &self,
        op: Op,
        call: fn(BorrowedFd<'_>) -> Result<(), OsError>,
    ) -> Result<(), OsError> {
        self.execute(&Change::Sync { file: self, op }, || call(self.descriptor()))
    }

    fn execute(
        &self,
        change: &Change<'_>,
        make: impl FnOnce() -> Result<(), OsError>,
    ) -> Result<(), OsError> {
        self.descriptor.opened.volume.execute(change, make)
    }

    /// Runs `call`, which may report a failed writeback. No other sync runs at the same time, and a failure is latched
    /// before the next one may run.
    fn latching(
        &self,
        action: Action,
        range: Range<u64>,
        call: impl Fn() -> Result<(), OsError>,
    ) -> Result<(), OsError> {
        let identity = &self.descriptor.opened.identity;
        let _alone = identity.sync_alone();
        if let Some(first) = identity.failed() {
            // After a failure, a successful sync proves nothing.
            return Err(first.os_error().unwrap_or(OsError::EIO));
        }
        let result = call();
        #[cfg(forebay_bug)]
        let result = if crate::bug::is_planted("retry_failed_sync") {
            result.or_else(|_| call())
        } else {
            result
        };
        if let Err(source) = result
            && !source.passes()
            && !source.is_unsupported()
        {
            identity.latch(self.failure(action, range, source));
        }
        result
    }

    /// Registers the end of such a sync. `answer` receives the result, perhaps later.
    pub(crate) fn end_sync(
        &self,
        sync: &RunningSync,
        result: Result<(), Error>,
        answer: SyncAnswer,
    ) {
        self.descriptor.opened.identity.end_sync(sync, result, answer);
    }

    /// Latches the file ([FIL-2]) and returns the error to report.
    pub(crate) fn sync_failed(&self, error: Error) -> Error {
        self.descriptor.opened.identity.report(error)
    }

    /// Asks the kernel to start writing the dirty pages of `range` (bytes). Only buffered files have dirty pages. Not
    /// durability: the device's cache and the metadata are not flushed.
    ///
    /// # Errors
    /// [`Error::Unsupported`] outside Linux; [`Error::Io`].
    pub fn start_writeback(&self, range: Range<u64>) -> Result<(), Error> {
        self.check_latch()?;
        // This call does not wait, so it does not consume the report of a failed writeback. It may therefore overlap
        // other syncs, does not queue behind a long sync, and latches nothing when it fails.
        let change = Change::Writeback { file: self, range: range.clone(), wait: false };
        self.execute(&change, || sys::start_writeback(self.descriptor(), range.clone()))
            .map_err(|source| self.writeback_failure(range, source))
    }

    /// Starts writing the dirty pages of `range` and waits until they are written.
    ///
    /// # Errors
    /// As for [`File::start_writeback`]. An I/O error latches the file like a failed sync, for the same reason: the
    /// kernel reports it once.
    pub fn wait_writeback(&self, range: Range<u64>) -> Result<(), Error> {
        self.check_latch()?;
        let change = Change::Writeback { file: self, range: range.clone(), wait: true };
        let wait =
            || self.execute(&change, || sys::wait_writeback(self.descriptor(), range.clone()));
        let waited = self.latching(Action::Writeback, range.clone(), wait);
        waited.map_err(|source| {
            let latches = !source.passes() && !source.is_unsupported();
            let failure = self.writeback_failure(range, source);
            if latches { self.sync_failed(failure) } else { failure }
        })
    }

    fn writeback_failure(&self, range: Range<u64>, source: OsError) -> Error {
        if source.is_unsupported() {
            return self.unsupported("writeback of a range", source, "use sync_data");
        }
        self.failure(Action::Writeback, range, source)
    }

    /// Gives the kernel advice about `range` (bytes).
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the system does not support the advice.
    pub fn advise(&self, range: Range<u64>, advice: Advice) -> Result<(), Error> {
        // The kernel takes signed numbers; "to the end" is clamped to the largest possible file.
        let range = range.start..range.end.min(i64::MAX as u64);
        match sys::advise(self.descriptor(), range.clone(), advice) {
            Ok(()) => Ok(()),
            Err(source) if source.is_unsupported() => {
                Err(self.unsupported("advice", source, "go without it"))
            }
            Err(source) => Err(self.failure(Action::Advice, range, source)),
        }
    }

    /// How much of `range` (bytes) is in the page cache. The query loads no pages.
    ///
    /// # Errors
    /// [`Error::Unsupported`] outside Linux; [`Error::Io`].
    pub fn residency(&self, range: Range<u64>) -> Result<Residency, Error> {
        let end = range.end.min(self.len()?);
        let range = range.start.min(end)..end;
        let page_bytes = sys::page_bytes();
        match sys::residency(self.descriptor(), range.clone(), page_bytes) {
            Ok(cached) => Ok(Residency {
                page_bytes,
                pages: range.end.div_ceil(page_bytes) - range.start / page_bytes,
                pages_resident: cached.resident,
                pages_dirty: cached.dirty,
            }),
            Err(source) if source.is_unsupported() => {
                Err(self.unsupported("page-cache residency", source, "go without it"))
            }
            Err(source) => Err(self.failure(Action::Query, range, source)),
        }
    }

    /// Refuses changes to a file that is read-only or latched.
    pub(crate) fn check_writable(&self, action: impl Into<Action>) -> Result<(), Error> {
        let action = action.into();
        let syncs = matches!(action, Action::Request(Op::SyncData | Op::SyncAll));
        if !self.descriptor.opened.writable && !syncs {
            let source = OsError::from_raw(libc::EBADF);
            return Err(Error::Permission { op: action, file: self.path_shared(), source });
        }
        self.check_latch()
    }

    fn check_latch(&self) -> Result<(), Error> {
        match self.descriptor.opened.identity.failed() {
            Some(first) => Err(Error::Failed { first }),
            None => Ok(()),
        }
    }

    fn failure(&self, action: Action, range: Range<u64>, source: OsError) -> Error {
        let len = range.end.saturating_sub(range.start);
        self.refusal(action, range.start, len, source)
    }

    fn unsupported(&self, what: &'static str, source: OsError, instead: &'static str) -> Error {
        Error::Unsupported { what, file: self.path_shared(), source, instead }
    }
}

impl File {
    /// The typed error for a call that the system refused with `source`.
    pub(crate) fn refusal(&self, op: Action, offset: u64, len: u64, source: OsError) -> Error {
        let path = self.path_shared();
        let moves_data = matches!(op, Action::Request(Op::Read | Op::Write));
        let syncs = matches!(op, Action::Request(Op::SyncData | Op::SyncAll) | Action::Writeback);
        match source {
            // A failed sync must not be retried: the bytes may already be lost.
            _ if syncs => Error::Io { op, file: path, offset, len, source },
            OsError::ENOSPC | OsError::EDQUOT => {
                Error::NoSpace { op, file: path, offset, len, source }
            }
            OsError::EFBIG => Error::TooLarge { file: path, end: offset.saturating_add(len) },
            OsError::EPERM | OsError::EACCES | OsError::EROFS => {
                Error::Permission { op, file: path, source }
            }
            OsError::EINVAL if moves_data && self.cache_mode() == CacheMode::Direct => {
                Error::DirectRefused {
                    file: path,
                    filesystem: self.filesystem(),
                    why: format!("{op} of {len} bytes at offset {offset}: {source}"),
                }
            }
            _ => Error::Io { op, file: path, offset, len, source },
        }
    }
}

impl fmt::Debug for File {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("File")
            .field("path", &self.path())
            .field("cache", &self.cache_mode())
            .field("descriptor", &self.descriptor_number())
            .finish()
    }
}

impl Opened {
    fn spare(&self) -> std::sync::MutexGuard<'_, Vec<OwnedFd>> {
        // Each change is one push or pop, so a poisoned list is still whole.
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        if let (true, Some(file)) = (self.private, self.file.take()) {
            let mut spare = self.opened.spare();
            if spare.len() < SPARE_DESCRIPTORS_MAX {
                spare.push(file);
            }
        }
    }
}

#[cfg(test)]
mod tests;
