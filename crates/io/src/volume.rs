//! Volume: the names of files, and the one place through which files and names are changed.
//!
//! Bytes travel through a queue, and a simulated disk takes its place there as a backend. But what
//! a power cut leaves behind depends as much on what goes past the queue: a file is made, cut,
//! renamed, synced; a directory is synced or forgotten. All of that goes through a `Volume`.
//! [`Volume::system`] does it and nothing else. [`Volume::over`] tells an [`Interpose`] of every
//! change, and lets it make the change, refuse it, or do something before and after:
//!
//! ```text
//! volume.open(path, create)      ---+
//! volume.{remove, rename, ...}      +---> Interpose::carry_out(change, make) ---> the system
//! file.{set_len, sync_data, ...} ---+
//! ```
//!
//! A file that was opened through a volume keeps it, with every clone and private descriptor.
//! Reads and writes of bytes are not changes in this sense: they are the backend's. The same file
//! is opened through one volume, or an interposer sees only a part of what happens to it.
//!
//! The alternative, a trait for whole filesystems, would give every backend files without
//! descriptors to deal with, of which the kernel knows nothing.
//!
//! Invariants:  [VOL-1] a change is made at most once, and not at all when it was refused
//!              [VOL-2] the caller that asks for a change is told what the interposer says came of it
//! Concurrency: from any thread; an interposer is called by many at once, with no lock of ours held
//!              except the right to sync of the file being synced.
//! Failure:     a refused change is the typed error that the same refusal by the system would be.

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

/// What is written and read directly to see what that does: a multiple of every alignment.
const TRIED_BYTES: usize = 64 << 10;

impl Volume {
    /// Opens `path` as `options` say.
    ///
    /// # Errors
    /// As for [`File::open`].
    pub fn open(&self, path: &Path, options: &OpenOptions) -> Result<File, Error> {
        if !self.is_interposed() || !options.makes_files() {
            return open_file(path, options, self);
        }
        // It is not made by that: if somebody removes it before it is opened, the interposer of changes is asked.
        let there = options.clone().create(false);
        if !there.makes_files() && self.exists(path)? {
            match open_file(path, &there, self) {
                Err(error) if error.os_error() == Some(OsError::from_raw(libc::ENOENT)) => {}
                opened => return opened,
            }
        }
        let (mut opened, mut failed) = (None, None);
        let done = self.carry_out(&Change::Create { path }, || {
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

    /// What of direct I/O the kernel does through its page cache all the same, on files that are made in `directory`: btrfs
    /// writes so what has checksums (since Linux 6.14), ext4 with journalled data. Tried on a file without a name. Nothing is
    /// claimed of files that an interposer stands for.
    ///
    /// # Errors
    /// [`Error::Open`] with the system's reason, where that cannot be tried: no direct I/O, no nameless files, no right to
    /// write there, another system than Linux.
    pub fn through_cache(&self, directory: &Path) -> Result<ThroughCache, Error> {
        if self.is_interposed() {
            return Ok(ThroughCache::default());
        }
        let memory = Arena::new(1, TRIED_BYTES)?.take();
        let mut memory = memory.expect("a new arena has a free slot");
        sys::through_cache(directory, &mut memory)
            .map_err(|source| Error::Open { file: directory.into(), source })
    }

    /// Whether `path` leads to something, links followed. "No" is certain: what cannot be looked at
    /// is an error.
    ///
    /// # Errors
    /// [`Error::Open`].
    pub fn exists(&self, path: &Path) -> Result<bool, Error> {
        path.try_exists().map_err(|error| Error::Open { file: path.into(), source: error.into() })
    }

    /// The numbers of device and inode of what `path` leads to, links followed, as [`File::number`]; `None` if nothing is
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
    /// [`Error::Open`], also when nothing is there.
    pub fn canonicalize(&self, path: &Path) -> Result<PathBuf, Error> {
        path.canonicalize().map_err(|error| Error::Open { file: path.into(), source: error.into() })
    }

    /// Takes the name `path` away from its file, which goes with its last name and its last open.
    /// Durable after [`Volume::sync_directory`].
    ///
    /// # Errors
    /// [`Error::Name`], also when nothing is there (ENOENT).
    pub fn remove(&self, path: &Path) -> Result<(), Error> {
        self.carry_out(&Change::Remove { path }, || Ok(fs::unlink(path)?))
            .map_err(|source| name_failure(NameOp::Remove, path, source))
    }

    /// Names the file `from` `to`; a file that had that name loses it in the same step, so that at
    /// every moment one of the two is there. Durable after [`Volume::sync_directory`].
    ///
    /// # Errors
    /// [`Error::Name`].
    pub fn rename(&self, from: &Path, to: &Path) -> Result<(), Error> {
        self.carry_out(&Change::Rename { from, to }, || Ok(fs::rename(from, to)?))
            .map_err(|source| name_failure(NameOp::Rename, from, source))
    }

    /// Makes `path` and the directories it is in, as far as they are not there, each of them durable
    /// in the one above before the next is made.
    ///
    /// # Errors
    /// [`Error::Name`] for what cannot be made, or is there and no directory; the errors of
    /// [`Volume::sync_directory`].
    pub fn make_directory(&self, path: &Path) -> Result<(), Error> {
        let absent = |it: &&Path| !it.as_os_str().is_empty() && !it.exists();
        let missing: Vec<&Path> = path.ancestors().take_while(absent).collect();
        for directory in missing.into_iter().rev() {
            let change = Change::MakeDirectory { path: directory };
            let make = || Ok(fs::mkdir(directory, fs::Mode::from_raw_mode(0o777))?);
            match self.carry_out(&change, make) {
                Ok(()) => self.sync_directory(directory_of(directory))?,
                // Somebody else was quicker.
                Err(source) if source.raw() == libc::EEXIST => {}
                Err(source) => return Err(name_failure(NameOp::MakeDirectory, directory, source)),
            }
        }
        if path.as_os_str().is_empty() || path.is_dir() {
            return Ok(());
        }
        let source = OsError::from_raw(libc::ENOTDIR);
        Err(name_failure(NameOp::MakeDirectory, path, source))
    }

    /// Makes the names in `directory` durable: needed after making, renaming or removing a file.
    ///
    /// # Errors
    /// [`Error::Open`] if it cannot be opened, [`Error::Io`] if it cannot be synced.
    pub fn sync_directory(&self, directory: &Path) -> Result<(), Error> {
        let mut failed = None;
        let change = Change::SyncDirectory { path: directory };
        let done = self.carry_out(&change, || {
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

/// The directory that a name is in.
fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn name_failure(op: NameOp, path: &Path, source: OsError) -> Error {
    Error::Name { op, file: path.into(), source }
}

#[cfg(test)]
mod tests;
