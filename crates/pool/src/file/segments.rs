//! Segments: one file of pages as several files on disk.
//!
//! With a segment size of n bytes, `name` holds the first n, `name.1` the next, and so on. Every
//! segment but the last is full.
//!
//! Invariants:  [SEG-1] a block has one place, whatever the file's length
//! Failure:     an extension that fails half-way is taken back as far as the filesystem lets it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use forebay_io::{CacheMode, File, OpenOptions, OsError, Preallocate, Volume};

use crate::error::Error;
use crate::tag::Block;

/// ENOENT.
const NOT_THERE: OsError = OsError::from_raw(2);

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
}

impl Segments {
    /// Opens the first segment as `options` say, and the others that are there.
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
        let mut files = vec![volume.open(&base, &options)?];
        let segments = Segments {
            volume: volume.clone(),
            base,
            page_bytes,
            pages: segment_bytes.map_or(u64::MAX, |bytes| bytes / page_bytes),
            read_only,
            cache,
            files: RwLock::default(),
        };
        while segment_bytes.is_some() && segments.is_there(files.len())? {
            files.push(segments.open_one(files.len(), false)?);
        }
        segments.check_sizes(&files)?;
        *segments.files.write().unwrap_or_else(PoisonError::into_inner) = files;
        Ok(segments)
    }

    fn path(&self, segment: usize) -> PathBuf {
        if segment == 0 {
            return self.base.clone();
        }
        let mut name = self.base.clone().into_os_string();
        name.push(format!(".{segment}"));
        name.into()
    }

    /// Whether a segment is on disk. "No" is certain: what cannot be looked at is an error.
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

    /// Removes the segments from `first` on: those of the list, and what is on disk beyond it from an
    /// earlier failure.
    fn remove_from(&self, first: usize) -> Result<(), Error> {
        let listed = self.files().len();
        let mut end = listed.max(first);
        while self.pages != u64::MAX && self.is_there(end)? {
            end += 1;
        }
        // From the end, so that a failure leaves no hole before a segment that is still there.
        for segment in (first..end).rev() {
            match self.volume.remove(&self.path(segment)) {
                Err(error) if error.os_error() == Some(NOT_THERE) => {}
                removed => removed?,
            }
            let mut files = self.files.write().unwrap_or_else(PoisonError::into_inner);
            // The first one stays open for those who still read it.
            if segment > 0 {
                files.truncate(segment);
            }
        }
        if end > first {
            self.volume.sync_directory(directory(&self.base))?;
        }
        Ok(())
    }

    fn open_one(&self, segment: usize, create: bool) -> Result<File, Error> {
        let options = OpenOptions::new().cache(self.cache).read_only(self.read_only).create(create);
        Ok(self.volume.open(&self.path(segment), &options)?)
    }

    fn files(&self) -> std::sync::RwLockReadGuard<'_, Vec<File>> {
        // Each change is one push or truncation, so a poisoned list is still whole.
        self.files.read().unwrap_or_else(PoisonError::into_inner)
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
        let files = self.files();
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

    /// Makes the file `to` pages long, from `from`, with space reserved for them; all or nothing.
    pub(super) fn extend(&self, from: u64, to: u64) -> Result<(), Error> {
        // What a partial page or a failed truncation left beyond the end must not come back.
        if self.len()? != from * self.page_bytes {
            self.truncate(from)?;
        }
        let extended = self.try_extend(from, to);
        if extended.is_err()
            && let Err(error) = self.truncate(from)
        {
            tracing::error!(%error, file = %self.base.display(), "cannot take back an extension");
        }
        extended
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
            match file.preallocate(range.clone(), Preallocate::Extend) {
                Err(forebay_io::Error::Unsupported { .. }) => {
                    // No space can be reserved here, so a full disk shows at the first write.
                    tracing::debug!(file = %file.path().display(), "no fallocate: sparse instead");
                    file.set_len(range.end)?;
                }
                done => done?,
            }
            at = end;
        }
        Ok(())
    }

    fn add(&self, segment: usize) -> Result<File, Error> {
        // Every segment but the last counts as full, so the one before has to be so durably before
        // there is one after it.
        let before = self.files().last().cloned();
        before.map_or(Ok(()), |file| file.sync_data())?;
        let file = self.open_one(segment, true)?;
        // It may be there from a truncation that failed.
        file.set_len(0)?;
        self.volume.sync_directory(directory(&self.base))?;
        self.files.write().unwrap_or_else(PoisonError::into_inner).push(file.clone());
        Ok(file)
    }

    /// Makes the file `pages` pages long, from more.
    pub(super) fn truncate(&self, pages: u64) -> Result<(), Error> {
        let last = (pages.saturating_sub(1) / self.pages) as usize;
        self.remove_from(last + 1)?;
        let file = self.files().last().cloned();
        let len = (pages - last as u64 * self.pages.min(pages)) * self.page_bytes;
        Ok(file.map_or(Ok(()), |file| file.set_len(len))?)
    }

    /// Removes all segments from their directory.
    pub(super) fn remove(&self) -> Result<(), Error> {
        self.remove_from(0)
    }
}

/// The directory that a file's name is in.
pub(super) fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 4096;

    fn open(path: &Path, segment_pages: Option<u64>) -> Segments {
        let options = OpenOptions::new().create(true);
        let bytes = segment_pages.map(|pages| pages * PAGE as u64);
        let volume = Volume::system();
        Segments::open(&volume, path.to_owned(), PAGE, bytes, CacheMode::Buffered, false, &options)
            .unwrap()
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
