//! Segments: one file of pages as several files on disk.
//!
//! With a segment size of n bytes, `name` holds the first n, `name.1` the next, and so on. Every
//! segment but the last is full.
//!
//! Space is reserved for every block. Reserving it block by block would make the filesystem give single blocks in turn
//! to files that grow at the same time: on ext4, four such files of 4096 blocks had 4096 extents each. So space is
//! reserved beyond the end, in steps of an eighth of the segment and at most 8 MiB, which reduces this to 65, and
//! released when the file is closed. Space that a crash leaves reserved is released by the next truncation, or by the
//! close of the file after it has grown.
//!
//! Invariants:  [SEG-1] a block has one place, whatever the file's length
//!              [SEG-2] at most an eighth of a segment, and 8 MiB, is reserved beyond its end, none beyond its full
//!              size, and nothing once it is closed
//!              [SEG-3] blocks that a truncation failed to remove are removed before the file's length is reported
//!              durable, and never reappear in a file that grows
//!              [SEG-4] a file that is shorter than the pool has left it is never made longer: zeroes would replace
//!              lost blocks, and the loss would go undetected
//! Concurrency: any thread reads; one at a time resizes, namely the one with the file's right to do that.
//!              A segment that was removed loses its bytes at once, not when the last descriptor is closed.
//! Failure:     an extension that fails half-way is undone as far as the filesystem allows.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use forebay_io::{CacheMode, File, OpenOptions, OsError, Preallocate, Volume};

use crate::error::Error;
use crate::tag::Block;

/// ENOENT.
const NOT_THERE: OsError = OsError::from_raw(2);

/// Space is reserved ahead in steps of one part in this many of a segment.
const STEP_PART: u64 = 8;

/// The most space that is reserved ahead, in bytes.
const STEP_BYTES_MAX: u64 = 8 << 20;

#[derive(Debug)]
pub(super) struct Segments {
    volume: Volume,
    base: PathBuf,
    page_bytes: u64,
    /// Pages in a full segment.
    pages: u64,
    read_only: bool,
    cache: CacheMode,
    files: RwLock<Vec<File>>,
    /// End of the reserved space in the file, in bytes; `u64::MAX` where none can be reserved.
    reserved: AtomicU64,
    /// Why the last truncation has failed: the blocks beyond the end still exist.
    uncut: Mutex<Option<Error>>,
}

impl Segments {
    /// Opens the first segment with `options`, and the other existing ones.
    pub(super) fn open(
        volume: &Volume,
        base: PathBuf,
        page_bytes: usize,
        segment_bytes: Option<u64>,
        cache: CacheMode,
        read_only: bool,
        options: &OpenOptions,
    ) -> Result<Segments, Error> {
        let page_bytes = page_bytes as u64;
        let options = options.clone().cache(cache).read_only(read_only);
        let segments = Segments {
            volume: volume.clone(),
            base,
            page_bytes,
            pages: segment_bytes.map_or(u64::MAX, |bytes| bytes / page_bytes),
            read_only,
            cache,
            files: RwLock::default(),
            reserved: AtomicU64::new(0),
            uncut: Mutex::default(),
        };
        segments.replace(segments.open_all(&options)?);
        Ok(segments)
    }

    fn open_all(&self, first: &OpenOptions) -> Result<Vec<File>, Error> {
        let mut files = vec![self.volume.open(&self.base, first)?];
        while self.pages != u64::MAX && self.is_there(files.len())? {
            files.push(self.open_one(files.len(), false)?);
        }
        self.check_sizes(&files)?;
        Ok(files)
    }

    fn replace(&self, files: Vec<File>) {
        *self.files.write().unwrap_or_else(PoisonError::into_inner) = files;
    }

    /// Opens the segments that exist now, or keeps the previous ones, also if the first one's inode is not free. Returns
    /// the number of whole pages.
    pub(super) fn open_again(&self, is_free: impl Fn((u64, u64)) -> bool) -> Result<u64, Error> {
        let files = self.open_all(&self.options())?;
        if !is_free(files[0].number()) {
            let file = self.base.as_path().into();
            return Err(Error::OpenOtherwise { file, what: "name" });
        }
        let len = self.len_of(&files)?;
        self.replace(files);
        Ok(len / self.page_bytes)
    }

    fn options(&self) -> OpenOptions {
        OpenOptions::new().cache(self.cache).read_only(self.read_only)
    }

    fn path(&self, segment: usize) -> PathBuf {
        if segment == 0 {
            return self.base.clone();
        }
        let mut name = self.base.clone().into_os_string();
        name.push(format!(".{segment}"));
        name.into()
    }

    /// True if a segment is on disk. "No" is certain: a failed check is an error.
    fn is_there(&self, segment: usize) -> Result<bool, Error> {
        Ok(self.volume.exists(&self.path(segment))?)
    }

    /// [SEG-1] Every segment but the last is full, and none is more than full.
    fn check_sizes(&self, files: &[File]) -> Result<(), Error> {
        let full = self.pages.saturating_mul(self.page_bytes);
        for (segment, file) in files.iter().enumerate() {
            let len = file.len()?;
            let last = segment + 1 == files.len();
            if len > full || (len < full && !last) {
                return Err(Error::SegmentSize { file: file.path().into(), len, expected: full });
            }
        }
        Ok(())
    }

    /// True if the segment's name exists and refers to it.
    ///
    /// # Errors
    /// [`Error::Detached`] when it refers to another file.
    pub(super) fn is_named(&self, segment: usize) -> Result<bool, Error> {
        match (self.volume.number(&self.path(segment))?, self.get(segment)) {
            (None, _) => Ok(false),
            (Some(number), Some(file)) if number != file.number() => Err(self.detached(true)),
            _ => Ok(true),
        }
    }

    fn detached(&self, replaced: bool) -> Error {
        Error::Detached { file: self.base.as_path().into(), replaced, read_only: self.read_only }
    }

    /// Removes the segments from `first` on: those of the list, and those left on disk beyond it by an earlier failure.
    fn remove_from(&self, first: usize) -> Result<(), Error> {
        let listed = self.files().len();
        let mut end = listed.max(first);
        while self.pages != u64::MAX && self.is_there(end)? {
            end += 1;
        }
        let mut removed = Vec::new();
        // From the end, so that a failure leaves no hole before a segment that still exists.
        for segment in (first..end).rev() {
            // A different file is left alone.
            self.is_named(segment)?;
            if segment == 0 && end > 1 {
                // Permanently: a power cut that brought one of them back without the first would leave a name that
                // cannot be opened.
                self.volume.sync_directory(directory(&self.base))?;
            }
            match self.volume.remove(&self.path(segment)) {
                Err(error) if error.os_error() == Some(NOT_THERE) => {}
                done => done?,
            }
            removed.extend(self.get(segment));
            let mut files = self.files.write().unwrap_or_else(PoisonError::into_inner);
            // The first one stays open for current readers.
            if segment > 0 {
                files.truncate(segment);
            }
        }
        // Also for segments that an earlier truncation removed, and could not make durable.
        if end > first || self.check_cut().is_err() {
            self.volume.sync_directory(directory(&self.base))?;
        }
        removed.iter().for_each(give_up);
        Ok(())
    }

    fn open_one(&self, segment: usize, create: bool) -> Result<File, Error> {
        Ok(self.volume.open(&self.path(segment), &self.options().create(create))?)
    }

    fn files(&self) -> std::sync::RwLockReadGuard<'_, Vec<File>> {
        // Each change is one push or truncation, so a poisoned list is still consistent.
        self.files.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Device and inode of the first segment.
    pub(super) fn inode(&self) -> (u64, u64) {
        self.files().first().expect("a file has a first segment").number()
    }

    pub(super) fn page_bytes(&self) -> u64 {
        self.page_bytes
    }

    pub(super) fn get(&self, number: usize) -> Option<File> {
        self.files().get(number).cloned()
    }

    pub(super) fn all(&self) -> Vec<File> {
        self.files().clone()
    }

    /// Bytes in all segments; every one but the last counts as full.
    pub(super) fn len(&self) -> Result<u64, Error> {
        self.len_of(&self.files())
    }

    fn len_of(&self, files: &[File]) -> Result<u64, Error> {
        let full = files.len() as u64 - 1;
        let last = files.last().map_or(Ok(0), File::len)?;
        Ok(full * self.pages.saturating_mul(self.page_bytes) + last)
    }

    pub(super) fn number(&self, block: Block) -> usize {
        (u64::from(block) / self.pages) as usize
    }

    pub(super) fn place(&self, block: Block) -> Result<(File, u64), Error> {
        let (segment, page) = (self.number(block), u64::from(block) % self.pages);
        let file = self.files().get(segment).cloned();
        let missing =
            || forebay_io::Error::Open { file: Arc::from(self.path(segment)), source: NOT_THERE };
        Ok((file.ok_or_else(missing)?, page * self.page_bytes))
    }

    pub(super) fn run_length_max(&self, block: Block) -> usize {
        let left = self.pages - u64::from(block) % self.pages;
        usize::try_from(left).unwrap_or(usize::MAX)
    }

    /// Makes the file `to` pages long, from `from`, with space reserved for them; all or nothing. Completes a failed
    /// truncation.
    pub(super) fn extend(&self, from: u64, to: u64) -> Result<(), Error> {
        self.check_reaches(from)?;
        // Otherwise its next segments would become those of another file.
        if self.end_of(to).0 >= self.files().len() && !self.is_named(0)? {
            return Err(self.detached(false));
        }
        if self.len()? != from * self.page_bytes {
            // A partial page that was left beyond the end must not reappear.
            self.truncate(from)?;
        }
        let Err(error) = self.try_extend(from, to) else { return Ok(()) };
        match self.truncate(from) {
            // The worse of the two: the space may reappear.
            Err(Error::Io(left)) if left.is_failed_sync() => Err(Error::Io(left)),
            Err(left) => {
                tracing::error!(error = %left, file = %self.base.display(), "cannot take back an extension");
                Err(error)
            }
            Ok(()) => Err(error),
        }
    }

    fn try_extend(&self, from: u64, to: u64) -> Result<(), Error> {
        let mut at = from;
        while at < to {
            let segment = (at / self.pages) as usize;
            let first = segment as u64 * self.pages;
            let end = to.min(first.saturating_add(self.pages));
            let file = self.files().get(segment).cloned();
            let file = match file {
                Some(file) => file,
                None => self.add(segment)?,
            };
            let range = (at - first) * self.page_bytes..(end - first) * self.page_bytes;
            self.lengthen(&file, first * self.page_bytes, range)?;
            at = end;
        }
        Ok(())
    }

    /// Extends a segment by `range` (its bytes), with space reserved; it begins at byte `base` of the file.
    fn lengthen(&self, file: &File, base: u64, range: Range<u64>) -> Result<(), Error> {
        if base + range.end <= self.reserved.load(Ordering::Relaxed) {
            return Ok(file.set_len(range.end)?);
        }
        let ahead = range.start + (range.start / STEP_PART).min(STEP_BYTES_MAX);
        let ahead = ahead.min(self.pages.saturating_mul(self.page_bytes)); // [SEG-2]
        if ahead > range.end {
            if file.preallocate(range.start..ahead, Preallocate::KeepSize).is_ok() {
                self.reserved.store(base + ahead, Ordering::Relaxed);
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
    pub(super) fn give_back(&self) -> Result<(), Error> {
        let reserved = self.reserved.swap(0, Ordering::Relaxed);
        let last = self.files().last().cloned();
        match last {
            // At its current length, whatever that is [SEG-4].
            Some(file) if reserved > self.len()? => Ok(file.set_len(file.len()?)?),
            _ => Ok(()),
        }
    }

    fn add(&self, segment: usize) -> Result<File, Error> {
        // Every segment but the last counts as full, so the previous one must be durably full before there is a next
        // one.
        let before = self.files().last().cloned();
        before.map_or(Ok(()), |file| file.sync_data())?;
        // After a hole, which a power cut during a truncation leaves if a later removal reached the disk before an
        // earlier one.
        self.remove_from(segment + 1)?;
        let file = self.open_one(segment, true)?;
        // It may exist from a truncation that failed.
        file.set_len(0)?;
        self.volume.sync_directory(directory(&self.base))?;
        self.files.write().unwrap_or_else(PoisonError::into_inner).push(file.clone());
        Ok(file)
    }

    /// Makes the file `pages` pages long, from as many or more, and releases the space beyond.
    pub(super) fn truncate(&self, pages: u64) -> Result<(), Error> {
        let truncated = self.try_truncate(pages);
        *self.uncut.lock().unwrap_or_else(PoisonError::into_inner) = truncated.clone().err();
        truncated
    }

    /// The error of the last truncation, if it failed ([SEG-3]).
    pub(super) fn check_cut(&self) -> Result<(), Error> {
        let uncut = self.uncut.lock().unwrap_or_else(PoisonError::into_inner);
        uncut.clone().map_or(Ok(()), Err)
    }

    fn try_truncate(&self, pages: u64) -> Result<(), Error> {
        self.check_reaches(pages)?;
        self.reserved.store(0, Ordering::Relaxed);
        let (last, len) = self.end_of(pages);
        self.remove_from(last + 1)?;
        let file = self.files().last().cloned();
        Ok(file.map_or(Ok(()), |file| file.set_len(len))?)
    }

    /// The last segment of a file of `pages` pages, and its length, in bytes.
    fn end_of(&self, pages: u64) -> (usize, u64) {
        let last = pages.saturating_sub(1) / self.pages;
        (last as usize, (pages - last * self.pages.min(pages)) * self.page_bytes)
    }

    /// [SEG-4] Checks that the file is at least `pages` pages long on disk.
    pub(super) fn check_reaches(&self, pages: u64) -> Result<(), Error> {
        let (last, expected) = self.end_of(pages);
        let Some(file) = self.get(last) else { return Ok(()) };
        let len = file.len()?;
        if len >= expected {
            return Ok(());
        }
        let (file, read_only) = (file.path().into(), self.read_only);
        Err(Error::Shortened { file, len, expected, read_only })
    }

    /// Removes all segments from their directory.
    pub(super) fn remove(&self) -> Result<(), Error> {
        self.remove_from(0)
    }
}

/// Frees the space of a file that was removed, durably: other processes that have it open keep an empty file. A file
/// that has another name stays as it is.
fn give_up(file: &File) {
    match file.has_name().and_then(|named| if named { Ok(()) } else { file.set_len(0) }) {
        Ok(()) => {}
        Err(error) => tracing::debug!(%error, "a removed file keeps its space until it is closed"),
    }
}

/// The directory of a file's name.
pub(super) fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    use forebay_io::{Change, Interpose};

    const PAGE: usize = 4096;

    fn open(path: &Path, segment_pages: Option<u64>) -> Segments {
        open_in(&Volume::system(), path, segment_pages)
    }

    fn open_in(volume: &Volume, path: &Path, segment_pages: Option<u64>) -> Segments {
        let options = OpenOptions::new().create(true);
        let bytes = segment_pages.map(|pages| pages * PAGE as u64);
        Segments::open(volume, path.to_owned(), PAGE, bytes, CacheMode::Buffered, false, &options)
            .unwrap()
    }

    /// The ends of the reservations, in bytes of a segment, and the newest length that was set.
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
    fn seg_2_space_for_single_blocks_is_reserved_in_growing_steps_and_given_back() {
        const BLOCKS: u64 = 20_000;
        let directory = tempfile::tempdir().unwrap();
        let seen = Arc::new(Reservations::default());
        let segments = open_in(&watched(&seen), &directory.path().join("f"), None);
        for block in 0..BLOCKS {
            segments.extend(block, block + 1).unwrap();
            let (len, pages) = (segments.len().unwrap(), block + 1);
            assert_eq!(len, pages * PAGE as u64);
            let reserved = seen.ends.lock().unwrap().last().copied().unwrap();
            let most = len + (len / STEP_PART).min(STEP_BYTES_MAX);
            assert!(reserved >= len && reserved <= most, "[SEG-2] {reserved} for {len}");
        }
        let count = seen.ends.lock().unwrap().len();
        assert!(count < 100, "{count} reservations for {BLOCKS} blocks");
        *seen.len.lock().unwrap() = None;
        segments.give_back().unwrap();
        assert_eq!(*seen.len.lock().unwrap(), Some(BLOCKS * PAGE as u64), "[SEG-2]");
    }

    #[test]
    #[cfg(all(target_os = "linux", not(forebay_portable)))] // elsewhere files are sparse
    fn seg_2_no_segment_gets_more_space_than_it_may_have() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        let seen = Arc::new(Reservations::default());
        let segments = open_in(&watched(&seen), &path, Some(50));
        (0..130).for_each(|block| segments.extend(block, block + 1).unwrap());
        assert!(seen.ends.lock().unwrap().iter().all(|&end| end <= 50 * PAGE as u64), "[SEG-2]");
        drop(open(&path, Some(50)));
        // The reserved space no longer exists, so it is reserved again.
        segments.truncate(60).unwrap();
        seen.ends.lock().unwrap().clear();
        segments.extend(60, 61).unwrap();
        assert_eq!(seen.ends.lock().unwrap().len(), 1);
    }

    #[test]
    fn where_there_is_space_for_a_block_and_no_more_the_file_grows_all_the_same() {
        let directory = tempfile::tempdir().unwrap();
        let seen = Arc::new(Reservations { refuse_ahead: true, ..Reservations::default() });
        let segments = open_in(&watched(&seen), &directory.path().join("f"), None);
        (0..100).for_each(|block| segments.extend(block, block + 1).unwrap());
        assert_eq!(segments.len().unwrap(), 100 * PAGE as u64);
    }

    #[test]
    fn seg_1_a_block_keeps_its_place_as_the_file_grows_and_shrinks() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        let segments = open(&path, Some(4));
        segments.extend(0, 10).unwrap();
        assert_eq!(segments.len().unwrap(), 10 * PAGE as u64);
        let (file, offset) = segments.place(9).unwrap();
        assert_eq!((file.path(), offset), (&*directory.path().join("f.2"), PAGE as u64));
        assert_eq!((segments.run_length_max(5), segments.run_length_max(9)), (3, 3));

        for pages in [9, 8, 5, 4, 1, 0] {
            segments.truncate(pages).unwrap();
            assert_eq!(segments.len().unwrap(), pages * PAGE as u64);
            drop(open(&path, Some(4)));
            assert_eq!(open(&path, Some(4)).len().unwrap(), pages * PAGE as u64, "reopened");
        }
        assert!(!directory.path().join("f.1").exists());
        segments.remove().unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn without_a_segment_size_there_is_one_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        let segments = open(&path, None);
        segments.extend(0, 5).unwrap();
        segments.truncate(3).unwrap();
        assert_eq!(segments.len().unwrap(), 3 * PAGE as u64);
        assert!(segments.place(1_000_000).unwrap().1 == 1_000_000 * PAGE as u64);
    }
}
