//! A file of pages on disk: where its blocks are, its length, and its name.
//!
//! Space is reserved for every block. Reserving it block by block would make the filesystem give single blocks in turn
//! to files that grow at the same time: on ext4, four such files of 4096 blocks had 4096 extents each. So space is
//! reserved beyond the end, in steps of an eighth of the file and at most 8 MiB, which reduces this to 65, and
//! released when the file is closed. Space that a crash leaves reserved is released by the next truncation, or by the
//! close of the file after it has grown.
//!
//! Invariants:  [LEN-1] at most an eighth of the file, and 8 MiB, is reserved beyond its end, and nothing once it is
//!              closed
//!              [LEN-2] blocks that a truncation failed to remove are removed before the file's length is reported
//!              durable, and never reappear in a file that grows
//!              [LEN-3] a file that is shorter than the pool has left it is never made longer: zeroes would replace
//!              lost blocks, and the loss would go undetected
//! Concurrency: any thread reads; one at a time resizes, namely the one with the file's right to do that.
//!              A file that was removed loses its bytes at once, not when the last descriptor is closed.
//! Failure:     an extension that fails half-way is undone as far as the filesystem allows.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};

use forebay_io::{CacheMode, File, OpenOptions, OsError, Preallocate, Volume};

use crate::error::Error;
use crate::tag::Block;

/// ENOENT.
const NOT_THERE: OsError = OsError::from_raw(2);

/// Space is reserved ahead in steps of one part in this many of the file.
const STEP_PART: u64 = 8;

/// The most space that is reserved ahead, in bytes.
const STEP_BYTES_MAX: u64 = 8 << 20;

#[derive(Debug)]
pub(crate) struct DiskFile {
    volume: Volume,
    path: PathBuf,
    page_bytes: u64,
    read_only: bool,
    cache: CacheMode,
    /// Another one after a read-only file was opened again.
    file: RwLock<File>,
    /// End of the reserved space, in bytes; `u64::MAX` where none can be reserved.
    reserved: AtomicU64,
    /// Why the last truncation has failed: the blocks beyond the end still exist.
    uncut: Mutex<Option<Error>>,
}

impl DiskFile {
    pub(crate) fn open(
        volume: &Volume,
        path: PathBuf,
        page_bytes: usize,
        cache: CacheMode,
        read_only: bool,
        options: &OpenOptions,
    ) -> Result<DiskFile, Error> {
        let file = volume.open(&path, &options.clone().cache(cache).read_only(read_only))?;
        Ok(DiskFile {
            volume: volume.clone(),
            path,
            page_bytes: page_bytes as u64,
            read_only,
            cache,
            file: RwLock::new(file),
            reserved: AtomicU64::new(0),
            uncut: Mutex::default(),
        })
    }

    /// Opens what has the file's name now, or keeps the previous one, also if the new one's inode is not free. Returns the
    /// number of whole pages.
    pub(crate) fn open_again(&self, is_free: impl Fn((u64, u64)) -> bool) -> Result<u64, Error> {
        let options = OpenOptions::new().cache(self.cache).read_only(self.read_only);
        let file = self.volume.open(&self.path, &options)?;
        if !is_free(file.number()) {
            let file = self.path.as_path().into();
            return Err(Error::OpenOtherwise { file, what: "name" });
        }
        let pages = file.len()? / self.page_bytes;
        *self.file.write().unwrap_or_else(PoisonError::into_inner) = file;
        Ok(pages)
    }

    pub(crate) fn file(&self) -> File {
        self.file.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Device and inode.
    pub(crate) fn inode(&self) -> (u64, u64) {
        self.file().number()
    }

    pub(crate) fn page_bytes(&self) -> u64 {
        self.page_bytes
    }

    pub(crate) fn len(&self) -> Result<u64, Error> {
        Ok(self.file().len()?)
    }

    /// The file, and the block's position in it, in bytes.
    pub(crate) fn place(&self, block: Block) -> (File, u64) {
        (self.file(), u64::from(block) * self.page_bytes)
    }

    /// True if the name exists and refers to the file.
    ///
    /// # Errors
    /// [`Error::Detached`] when it refers to another file.
    pub(crate) fn is_named(&self) -> Result<bool, Error> {
        match self.volume.number(&self.path)? {
            None => Ok(false),
            Some(number) if number != self.inode() => {
                let (file, read_only) = (self.path.as_path().into(), self.read_only);
                Err(Error::Detached { file, replaced: true, read_only })
            }
            Some(_) => Ok(true),
        }
    }

    /// Makes the file `to` pages long, from `from`, with space reserved for them; all or nothing. Completes a failed
    /// truncation.
    pub(crate) fn extend(&self, from: u64, to: u64) -> Result<(), Error> {
        self.check_reaches(from)?;
        if self.len()? != from * self.page_bytes {
            // A partial page that was left beyond the end must not reappear.
            self.truncate(from)?;
        }
        let Err(error) = self.lengthen(from * self.page_bytes..to * self.page_bytes) else {
            return Ok(());
        };
        if let Err(left) = self.truncate(from) {
            tracing::error!(error = %left, file = %self.path.display(), "cannot take back an extension");
        }
        Err(error)
    }

    /// Extends the file by `range`, with space reserved.
    fn lengthen(&self, range: Range<u64>) -> Result<(), Error> {
        let file = self.file();
        if range.end <= self.reserved.load(Ordering::Relaxed) {
            return Ok(file.set_len(range.end)?);
        }
        let ahead = range.start + (range.start / STEP_PART).min(STEP_BYTES_MAX); // [LEN-1]
        if ahead > range.end {
            if file.preallocate(range.start..ahead, Preallocate::KeepSize).is_ok() {
                self.reserved.store(ahead, Ordering::Relaxed);
                return Ok(file.set_len(range.end)?);
            }
            // There may be space for this much, if the part already reserved is released.
            file.set_len(range.start)?;
        }
        match file.preallocate(range.clone(), Preallocate::Extend) {
            Err(forebay_io::Error::Unsupported { .. }) => {
                // No space can be reserved here, so a full disk shows at the first write.
                tracing::debug!(file = %file.path().display(), "no fallocate: sparse instead");
                self.reserved.store(u64::MAX, Ordering::Relaxed);
                Ok(file.set_len(range.end)?)
            }
            done => Ok(done?),
        }
    }

    /// Releases the space reserved beyond the end. The file may grow again.
    pub(crate) fn give_back(&self) -> Result<(), Error> {
        let reserved = self.reserved.swap(0, Ordering::Relaxed);
        let (file, len) = (self.file(), self.len()?);
        // At its current length, whatever that is [LEN-3].
        if reserved > len { Ok(file.set_len(len)?) } else { Ok(()) }
    }

    /// Makes the file `pages` pages long, from as many or more, and releases the space beyond.
    pub(crate) fn truncate(&self, pages: u64) -> Result<(), Error> {
        let truncated = self.check_reaches(pages).and_then(|()| {
            self.reserved.store(0, Ordering::Relaxed);
            Ok(self.file().set_len(pages * self.page_bytes)?)
        });
        *self.uncut.lock().unwrap_or_else(PoisonError::into_inner) = truncated.clone().err();
        truncated
    }

    /// The error of the last truncation, if it failed ([LEN-2]).
    pub(crate) fn check_cut(&self) -> Result<(), Error> {
        let uncut = self.uncut.lock().unwrap_or_else(PoisonError::into_inner);
        uncut.clone().map_or(Ok(()), Err)
    }

    /// [LEN-3] Checks that the file is at least `pages` pages long on disk.
    pub(crate) fn check_reaches(&self, pages: u64) -> Result<(), Error> {
        let (len, expected) = (self.len()?, pages * self.page_bytes);
        if len >= expected {
            return Ok(());
        }
        let (file, read_only) = (self.path.as_path().into(), self.read_only);
        Err(Error::Shortened { file, len, expected, read_only })
    }

    /// Removes the file from its directory. It stays open for current readers.
    pub(crate) fn remove(&self) -> Result<(), Error> {
        // A different file is left alone.
        self.is_named()?;
        match self.volume.remove(&self.path) {
            Err(error) if error.os_error() == Some(NOT_THERE) => {}
            done => done?,
        }
        self.volume.sync_directory(directory(&self.path))?;
        let file = self.file();
        // Frees its space durably: other processes that have it open keep an empty file. If it has another name it stays
        // as it is.
        match file.has_name().and_then(|named| if named { Ok(()) } else { file.set_len(0) }) {
            Ok(()) => {}
            Err(error) => {
                tracing::debug!(%error, "a removed file keeps its space until it is closed");
            }
        }
        Ok(())
    }
}

/// The directory of a file's name.
pub(crate) fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    use forebay_io::{Change, Interpose};

    const PAGE: usize = 4096;

    fn open(volume: &Volume, path: &Path) -> DiskFile {
        let options = OpenOptions::new().create(true);
        DiskFile::open(volume, path.to_owned(), PAGE, CacheMode::Buffered, false, &options).unwrap()
    }

    /// The ends of the reservations, in bytes, and the newest length that was set.
    #[derive(Debug, Default)]
    struct Reservations {
        ends: Mutex<Vec<u64>>,
        len: Mutex<Option<u64>>,
        refuse_ahead: bool,
    }

    impl Interpose for Reservations {
        fn execute(
            &self,
            change: &Change<'_>,
            make: &mut dyn FnMut() -> Result<(), OsError>,
        ) -> Result<(), OsError> {
            match change {
                Change::Preallocate { mode: Preallocate::KeepSize, .. } if self.refuse_ahead => {
                    return Err(OsError::ENOSPC);
                }
                Change::Preallocate { range, .. } => self.ends.lock().unwrap().push(range.end),
                Change::SetLen { len, .. } => *self.len.lock().unwrap() = Some(*len),
                _ => {}
            }
            make()
        }
    }

    fn watched(reservations: &Arc<Reservations>) -> Volume {
        Volume::over(Arc::clone(reservations) as Arc<dyn Interpose>)
    }

    #[test]
    #[cfg(all(target_os = "linux", not(forebay_portable)))] // elsewhere files are sparse
    fn len_1_space_for_single_blocks_is_reserved_in_growing_steps_and_given_back() {
        const BLOCKS: u64 = 20_000;
        let directory = tempfile::tempdir().unwrap();
        let seen = Arc::new(Reservations::default());
        let file = open(&watched(&seen), &directory.path().join("f"));
        for block in 0..BLOCKS {
            file.extend(block, block + 1).unwrap();
            let (len, pages) = (file.len().unwrap(), block + 1);
            assert_eq!(len, pages * PAGE as u64);
            let reserved = seen.ends.lock().unwrap().last().copied().unwrap();
            let most = len + (len / STEP_PART).min(STEP_BYTES_MAX);
            assert!(reserved >= len && reserved <= most, "[LEN-1] {reserved} for {len}");
        }
        let count = seen.ends.lock().unwrap().len();
        assert!(count < 100, "{count} reservations for {BLOCKS} blocks");
        *seen.len.lock().unwrap() = None;
        file.give_back().unwrap();
        assert_eq!(*seen.len.lock().unwrap(), Some(BLOCKS * PAGE as u64), "[LEN-1]");
        // The reserved space no longer exists, so it is reserved again.
        file.truncate(60).unwrap();
        seen.ends.lock().unwrap().clear();
        file.extend(60, 61).unwrap();
        assert_eq!(seen.ends.lock().unwrap().len(), 1);
    }

    #[test]
    fn where_there_is_space_for_a_block_and_no_more_the_file_grows_all_the_same() {
        let directory = tempfile::tempdir().unwrap();
        let seen = Arc::new(Reservations { refuse_ahead: true, ..Reservations::default() });
        let file = open(&watched(&seen), &directory.path().join("f"));
        (0..100).for_each(|block| file.extend(block, block + 1).unwrap());
        assert_eq!(file.len().unwrap(), 100 * PAGE as u64);
    }

    #[test]
    fn a_file_grows_and_shrinks_and_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        let file = open(&Volume::system(), &path);
        file.extend(0, 10).unwrap();
        assert_eq!(file.place(9).1, 9 * PAGE as u64);
        for pages in [9, 4, 0] {
            file.truncate(pages).unwrap();
            assert_eq!(open(&Volume::system(), &path).len().unwrap(), pages * PAGE as u64);
        }
        file.remove().unwrap();
        assert!(!path.exists());
        assert!(!file.is_named().unwrap());
    }
}
