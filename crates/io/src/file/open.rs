//! Opening: flags, the probe for direct I/O, and the reported fallback.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex};

use rustix::fs::{self, Mode, OFlags};

use super::identity::{Identity, RunningSync};
use super::{Descriptor, DirectFiles, File, Opened, Volume};
use crate::error::Error;
use crate::op::Op;
use crate::os_error::OsError;
use crate::properties::{Advice, Alignment, AlignmentSource, CacheMode, Hint};
use crate::sys::{self, DirectSupport};

/// Alignment if the filesystem does not report one: the largest sector size of common disks.
const ALIGNMENT_ASSUMED: u32 = 4096;

/// How to open a file. The default reads and writes an existing file, buffered.
#[derive(Debug, Clone, Default)]
pub struct OpenOptions {
    create: bool,
    create_new: bool,
    read_only: bool,
    cache: CacheMode,
    buffered_if_refused: bool,
    hint: Hint,
}

impl OpenOptions {
    /// Read and write an existing file, buffered.
    pub fn new() -> OpenOptions {
        OpenOptions::default()
    }

    /// Create the file if it does not exist.
    #[must_use]
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Create the file, and fail if it exists.
    #[must_use]
    pub fn create_new(mut self, create_new: bool) -> Self {
        self.create_new = create_new;
        self
    }

    /// Open for reading only.
    #[must_use]
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// Buffered or direct.
    #[must_use]
    pub fn cache(mut self, cache: CacheMode) -> Self {
        self.cache = cache;
        self
    }

    /// If direct I/O is refused, open buffered instead; [`File::fallback`] then returns the reason.
    #[must_use]
    pub fn buffered_if_refused(mut self, permitted: bool) -> Self {
        self.buffered_if_refused = permitted;
        self
    }

    /// Advice to the kernel about reads through this descriptor.
    #[must_use]
    pub fn hint(mut self, hint: Hint) -> Self {
        self.hint = hint;
        self
    }

    /// Whether a missing file is created.
    pub(crate) fn makes_files(&self) -> bool {
        self.create || self.create_new
    }
}

/// Makes the names in `directory` durable: needed after creating, renaming or removing a file. The
/// same as [`Volume::sync_directory`] of [`Volume::system`].
///
/// # Errors
/// [`Error::Open`] if it cannot be opened, [`Error::Io`] if it cannot be synced.
pub fn sync_directory(directory: &Path) -> Result<(), Error> {
    sync_names(directory)
}

pub(crate) fn sync_names(directory: &Path) -> Result<(), Error> {
    let failed = |source: OsError| Error::Open { file: directory.into(), source };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let descriptor =
        fs::open(directory, flags, Mode::empty()).map_err(|error| failed(error.into()))?;
    loop {
        match sys::sync_all(descriptor.as_fd()) {
            Ok(()) => return Ok(()),
            Err(OsError::EINTR) => {}
            Err(source) => {
                let op = Op::SyncAll.into();
                return Err(Error::Io { op, file: directory.into(), offset: 0, len: 0, source });
            }
        }
    }
}

pub(crate) fn open_file(
    path: &Path,
    options: &OpenOptions,
    volume: &Volume,
) -> Result<File, Error> {
    let failed = |source: OsError| Error::Open { file: path.into(), source };
    if !options.read_only {
        sys::survive_file_size_limit();
    }
    let access = if options.read_only { OFlags::RDONLY } else { OFlags::RDWR };
    let mut flags = access | OFlags::CLOEXEC;
    flags.set(OFlags::CREATE, options.makes_files());
    flags.set(OFlags::EXCL, options.create_new);
    let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH;
    let file = fs::open(path, flags, mode).map_err(|error| failed(error.into()))?;
    if fs::FileType::from_raw_mode(fs::fstat(&file).map_err(|error| failed(error.into()))?.st_mode)
        == fs::FileType::Directory
    {
        return Err(failed(OsError::from_raw(libc::EISDIR)));
    }

    let claimed = volume.direct_files().filter(|_| options.cache == CacheMode::Direct);
    let (cache, alignment, fallback) = match claimed {
        Some(claimed) => (CacheMode::Direct, alignment_of(claimed), None),
        None => settle_mode(&file, path, options)?,
    };
    // Query the kernel only if its own files are direct.
    let by_kernel = cache == CacheMode::Direct && claimed.is_none();
    let key = sys::identity(&file).map_err(failed)?;
    let opened = Opened {
        path: path.into(),
        writable: !options.read_only,
        cache,
        fallback,
        alignment,
        atomic_write: match claimed {
            Some(claimed) => claimed.atomic_write,
            None => by_kernel.then(|| sys::atomic_write(file.as_fd())).flatten(),
        },
        by_kernel,
        number: key,
        identity: Identity::claim(key, cache, path)?,
        volume: volume.clone(),
        spare: Mutex::new(Vec::new()),
    };
    // Only now: setting the flag changes how the descriptor works.
    if by_kernel {
        sys::set_direct(file.as_fd()).map_err(|source| refused(&file, path, &source))?;
    }
    let descriptor = Descriptor { file: Some(file), private: false, opened: Arc::new(opened) };
    let file = File { descriptor: Arc::new(descriptor) };
    if options.hint != Hint::Normal {
        file.advise(0..u64::MAX, Advice::from(options.hint))?;
    }
    Ok(file)
}

impl File {
    /// Opens `path` of [`Volume::system`] with `options`.
    ///
    /// # Errors
    /// [`Error::Open`] with the system's error; [`Error::DirectRefused`] if direct I/O was requested and is not
    /// available; [`Error::MixedModes`] if this process has the same file open in the other mode.
    pub fn open(path: &Path, options: &OpenOptions) -> Result<File, Error> {
        open_file(path, options, &Volume::system())
    }

    /// The same file through a private descriptor, with its own readahead state and `hint`.
    ///
    /// Reuses a spare descriptor if there is one; the descriptor becomes a spare when the last clone is dropped.
    ///
    /// # Errors
    /// [`Error::Open`] if the system provides no further descriptor, or (outside Linux) if the path now names another
    /// file; [`Error::Unsupported`] for a hint other than `Normal` where hints are not supported.
    pub fn private(&self, hint: Hint) -> Result<File, Error> {
        let opened = Arc::clone(&self.descriptor.opened);
        let spare = opened.spare().pop();
        let (file, used) = match spare {
            Some(file) => (file, true),
            None => (again(self, &opened)?, false),
        };
        let descriptor = Descriptor { file: Some(file), private: true, opened };
        let file = File { descriptor: Arc::new(descriptor) };
        if used || hint != Hint::Normal {
            match file.advise(0..u64::MAX, hint.into()) {
                // If hints are not supported, a reused descriptor has none to undo.
                Err(Error::Unsupported { .. }) if hint == Hint::Normal => {}
                advised => advised?,
            }
        }
        Ok(file)
    }

    /// Registers a sync that the kernel is about to run asynchronously.
    pub(crate) fn begin_sync(&self) -> Result<RunningSync, Error> {
        let opened = &self.descriptor.opened;
        opened.identity.begin_sync(|| again(self, opened))
    }
}

fn alignment_of(claimed: DirectFiles) -> Alignment {
    let DirectFiles { alignment, .. } = claimed;
    Alignment { memory: alignment, offset: alignment, source: AlignmentSource::Filesystem }
}

/// The possible mode of the file, its alignment, and why it is not the requested mode.
fn settle_mode(
    file: &OwnedFd,
    path: &Path,
    options: &OpenOptions,
) -> Result<(CacheMode, Alignment, Option<Error>), Error> {
    let buffered = Alignment { memory: 1, offset: 1, source: AlignmentSource::Buffered };
    if options.cache == CacheMode::Buffered {
        return Ok((CacheMode::Buffered, buffered, None));
    }
    match direct_alignment(file, path) {
        Ok(alignment) => Ok((CacheMode::Direct, alignment, None)),
        Err(why) if options.buffered_if_refused => {
            tracing::warn!(%why, "opened buffered instead of direct");
            Ok((CacheMode::Buffered, buffered, Some(why)))
        }
        Err(why) => {
            if options.create_new {
                // This open created the file; a failed open should leave nothing behind.
                let removed = std::fs::remove_file(path);
                tracing::debug!(?removed, "removed the file of a refused direct open");
            }
            Err(why)
        }
    }
}

fn direct_alignment(file: &OwnedFd, path: &Path) -> Result<Alignment, Error> {
    let alignment = match sys::direct_support(file.as_fd()) {
        DirectSupport::Aligned { memory, offset } => {
            Alignment { memory, offset, source: AlignmentSource::Filesystem }
        }
        DirectSupport::Unknown => Alignment {
            memory: ALIGNMENT_ASSUMED,
            offset: ALIGNMENT_ASSUMED,
            source: AlignmentSource::Assumed,
        },
        DirectSupport::No(why) => return Err(refused(file, path, &why)),
    };
    // Probe on a second descriptor: the first must stay usable for the fallback.
    match sys::reopen(file.as_fd()) {
        Ok(probe) => sys::set_direct(probe.as_fd()).map_err(|why| refused(file, path, &why))?,
        // Not supported on this system, or /proc is not mounted: setting the flag itself then shows the answer.
        Err(OsError::EOPNOTSUPP) => {}
        Err(source) if source.raw() == libc::ENOENT => {}
        Err(source) => return Err(Error::Open { file: path.into(), source }),
    }
    Ok(alignment)
}

fn refused(file: &OwnedFd, path: &Path, why: &dyn std::fmt::Display) -> Error {
    Error::DirectRefused {
        file: path.into(),
        filesystem: sys::filesystem_name(file.as_fd()).to_owned(),
        why: why.to_string(),
    }
}

/// A second open file description of an open file.
fn again(file: &File, opened: &Opened) -> Result<OwnedFd, Error> {
    let failed = |source: OsError| Error::Open { file: Arc::clone(&opened.path), source };
    match sys::reopen(file.descriptor()) {
        Ok(descriptor) => return Ok(descriptor),
        // Not supported on this system, or /proc is not mounted: open by path, if it still names this file.
        Err(OsError::EOPNOTSUPP) => {}
        Err(source) if source.raw() == libc::ENOENT => {}
        Err(source) => return Err(failed(source)),
    }
    let access = if opened.writable { OFlags::RDWR } else { OFlags::RDONLY };
    let descriptor = fs::open(&*opened.path, access | OFlags::CLOEXEC, Mode::empty())
        .map_err(|error| failed(error.into()))?;
    let same = sys::identity(&descriptor).map_err(failed)?
        == sys::identity(file.descriptor()).map_err(failed)?;
    if !same {
        return Err(failed(OsError::from_raw(libc::ESTALE)));
    }
    if opened.by_kernel {
        sys::set_direct(descriptor.as_fd()).map_err(failed)?;
    }
    Ok(descriptor)
}
