//! Volume: the interface for creating, renaming, resizing and syncing files.
//!
//! Bytes go through a queue, and a simulated disk replaces its backend there. But the state after a power cut depends
//! equally on operations outside the queue: files are created, resized, renamed and synced; directories are synced, or
//! the sync is forgotten. All of these go through a `Volume`. [`Volume::system`] only performs them. [`Volume::over`]
//! passes every change to an [`Interpose`], which can make the change, refuse it, or act before and after it:
//!
//! ```text
//! volume.open(path, create)      ---+
//! volume.{remove, rename, ...}      +---> Interpose::execute(change, make) ---> the system
//! file.{set_len, sync_data, ...} ---+
//! ```
//!
//! A file that is opened through a volume keeps it, with every clone and private descriptor. Reads and writes of bytes
//! are not changes in this sense: they belong to the backend. Open a file through one volume only, or an interposer
//! sees just some of its changes.
//!
//! The alternative, a trait for whole filesystems, would require every backend to handle files without descriptors,
//! which the kernel does not know.
//!
//! Invariants:  [VOL-1] a change is made at most once, and not at all when it is refused
//!              [VOL-2] the caller that requests a change receives the result that the interposer returns
//! Concurrency: from any thread; an interposer is called by many threads at once, with no lock of this crate held
//!              except the right to sync of the file being synced.
//! Failure:     a refused change returns the same typed error as a refusal by the system.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs;

use crate::error::{Error, NameOp};
use crate::file::{Change, File, OpenOptions, Volume, open_file, sync_names};
use crate::memory::Arena;
use crate::op::Op;
use crate::os_error::OsError;
use crate::properties::ThroughCache;
use crate::sys;

/// Size of the direct write and read that probe the kernel's behaviour: a multiple of every alignment.
const TRIED_BYTES: usize = 64 << 10;

impl Volume {
    /// Opens `path` with `options`.
    ///
    /// # Errors
    /// As for [`File::open`].
    pub fn open(&self, path: &Path, options: &OpenOptions) -> Result<File, Error> {
        if !self.is_interposed() || !options.makes_files() {
            return open_file(path, options, self);
        }
        // This does not create the file. If the file is removed before it is opened, the interposer is called.
        let there = options.clone().create(false);
        if !there.makes_files() && self.exists(path)? {
            match open_file(path, &there, self) {
                Err(error) if error.os_error() == Some(OsError::from_raw(libc::ENOENT)) => {}
                opened => return opened,
            }
        }
        let (mut opened, mut failed) = (None, None);
        let done = self.execute(&Change::Create { path }, || {
            open_file(path, options, self).map(|file| opened = Some(file)).map_err(|error| {
                let source = error.os_error().unwrap_or(OsError::EIO);
                failed = Some(error);
                source
            })
        });
        match (done, opened, failed) {
            (Ok(()), Some(file), _) => Ok(file),
            (Err(_), _, Some(error)) => Err(error),
            (Err(source), _, None) => Err(Error::Open { file: path.into(), source }),
            (Ok(()), None, _) => panic!("[VOL-1] {} was made without being made", path.display()),
        }
    }

    /// Which direct I/O the kernel still performs through its page cache, on files that are created in `directory`:
    /// btrfs writes data with checksums this way (since Linux 6.14), ext4 journalled data. Probed on a nameless file.
    /// With an interposer it reports nothing.
    ///
    /// # Errors
    /// [`Error::Open`] with the system's error, if the probe is impossible: no direct I/O, no nameless files, no write
    /// permission, or a system other than Linux.
    pub fn through_cache(&self, directory: &Path) -> Result<ThroughCache, Error> {
        if self.is_interposed() {
            return Ok(ThroughCache::default());
        }
        let memory = Arena::new(1, TRIED_BYTES)?.take();
        let mut memory = memory.expect("a new arena has a free slot");
        sys::through_cache(directory, &mut memory)
            .map_err(|source| Error::Open { file: directory.into(), source })
    }

    /// Whether `path` exists, following links. "No" is certain: a path that cannot be examined is an error.
    ///
    /// # Errors
    /// [`Error::Open`].
    pub fn exists(&self, path: &Path) -> Result<bool, Error> {
        path.try_exists().map_err(|error| Error::Open { file: path.into(), source: error.into() })
    }

    /// Device and inode number of the file at `path`, following links, as [`File::number`]; `None` if nothing exists
    /// there.
    ///
    /// # Errors
    /// [`Error::Open`].
    pub fn number(&self, path: &Path) -> Result<Option<(u64, u64)>, Error> {
        match std::fs::metadata(path) {
            Ok(facts) => Ok(Some((facts.dev(), facts.ino()))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::Open { file: path.into(), source: error.into() }),
        }
    }

    /// The real path, absolute and with all links followed.
    ///
    /// # Errors
    /// [`Error::Open`], also when nothing exists there.
    pub fn canonicalize(&self, path: &Path) -> Result<PathBuf, Error> {
        path.canonicalize().map_err(|error| Error::Open { file: path.into(), source: error.into() })
    }

    /// Removes the name `path` of a file, which is freed with its last name and its last open. Durable after
    /// [`Volume::sync_directory`].
    ///
    /// # Errors
    /// [`Error::Name`], also when nothing exists there (ENOENT).
    pub fn remove(&self, path: &Path) -> Result<(), Error> {
        self.execute(&Change::Remove { path }, || Ok(fs::unlink(path)?))
            .map_err(|source| name_failure(NameOp::Remove, path, source))
    }

    /// Renames the file `from` to `to`. A file that already has that name is replaced atomically: at every moment the
    /// name refers to one of the two files. Durable after [`Volume::sync_directory`].
    ///
    /// # Errors
    /// [`Error::Name`].
    pub fn rename(&self, from: &Path, to: &Path) -> Result<(), Error> {
        self.execute(&Change::Rename { from, to }, || Ok(fs::rename(from, to)?))
            .map_err(|source| name_failure(NameOp::Rename, from, source))
    }

    /// Creates `path` and its missing parent directories. Each is made durable in its parent before the next is
    /// created; so is the deepest one that exists, since an earlier call, or another process, may have created it and
    /// not made it durable.
    ///
    /// # Errors
    /// [`Error::Name`] if a directory cannot be created, or if the path exists and is not a directory; the errors of
    /// [`Volume::sync_directory`].
    pub fn make_directory(&self, path: &Path) -> Result<(), Error> {
        let absent = |it: &&Path| !it.as_os_str().is_empty() && !it.exists();
        let missing: Vec<&Path> = path.ancestors().take_while(absent).collect();
        let existing = path.ancestors().nth(missing.len());
        if let Some(existing) = existing.filter(|it| it.parent().is_some() && it.is_dir()) {
            match self.sync_directory(directory_of(existing)) {
                // This user has created nothing in a directory that it may not read.
                Err(error) if error.os_error() == Some(OsError::from_raw(libc::EACCES)) => {}
                done => done?,
            }
        }
        for directory in missing.into_iter().rev() {
            let change = Change::MakeDirectory { path: directory };
            let make = || Ok(fs::mkdir(directory, fs::Mode::from_raw_mode(0o777))?);
            match self.execute(&change, make) {
                Ok(()) => {}
                // Another process created it first.
                Err(source) if source.raw() == libc::EEXIST => {}
                Err(source) => return Err(name_failure(NameOp::MakeDirectory, directory, source)),
            }
            self.sync_directory(directory_of(directory))?;
        }
        if path.as_os_str().is_empty() || path.is_dir() {
            return Ok(());
        }
        let source = OsError::from_raw(libc::ENOTDIR);
        Err(name_failure(NameOp::MakeDirectory, path, source))
    }

    /// Makes the names in `directory` durable: needed after creating, renaming or removing a file.
    ///
    /// # Errors
    /// [`Error::Open`] if it cannot be opened, [`Error::Io`] if it cannot be synced.
    pub fn sync_directory(&self, directory: &Path) -> Result<(), Error> {
        let mut failed = None;
        let change = Change::SyncDirectory { path: directory };
        let done = self.execute(&change, || {
            sync_names(directory).map_err(|error| {
                let source = error.os_error().unwrap_or(OsError::EIO);
                failed = Some(error);
                source
            })
        });
        done.map_err(|source| {
            failed.unwrap_or_else(|| {
                let op = Op::SyncAll.into();
                Error::Io { op, file: directory.into(), offset: 0, len: 0, source }
            })
        })
    }
}

/// The directory that contains `path`.
fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn name_failure(op: NameOp, path: &Path, source: OsError) -> Error {
    Error::Name { op, file: path.into(), source }
}

#[cfg(test)]
mod tests;
