//! What files hold: their places, and the bytes that are copied from and to them.
//!
//! A transfer uses the files twice: first it looks up its places, which go to the model; then its bytes are
//! copied, which for a read may be much later. By then the places may belong to another file, so they
//! are looked up again under the lock under which the bytes are copied. Rejected: keeping places from being
//! freed while a transfer refers to them, which would leave the work of a removal to the last of these transfers.
//!
//! Invariants:  [CON-1] bytes are copied to and from places only under a lock under which the file has them
//!              [CON-2] a freed place is zeroed before another file can have it
//! Concurrency: a read-write lock over names and places. A thread that copies out of the store takes it shared; a
//!              thread that places, frees or copies into the store takes it exclusive. Nothing waits for the model.
//! Failure:     [`Errno`], as the kernel expects; a refused operation has at most placed something.

use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use fuser::Errno;

use super::nodes::Node;
use crate::files::{Attributes, Changes, Files, FilesError, Growth, Stretch};
use crate::store::{Store, StoreError};

#[derive(Debug)]
pub(super) struct Contents {
    files: RwLock<Files>,
    store: Arc<Store>,
    /// Name of `disk` in the log.
    disk: Arc<str>,
    size_bytes: u64,
}

/// A range of bytes of a file.
#[derive(Debug)]
pub(super) struct Span {
    pub(super) file: Arc<str>,
    pub(super) offset: u64,
    pub(super) stretches: Vec<Stretch>,
}

impl Span {
    pub(super) fn len(&self) -> u64 {
        self.stretches.iter().map(|stretch| stretch.len).sum()
    }
}

impl From<FilesError> for Errno {
    fn from(error: FilesError) -> Errno {
        match error {
            FilesError::NotFound => Errno::ENOENT,
            FilesError::Exists => Errno::EEXIST,
            FilesError::NotADirectory => Errno::ENOTDIR,
            FilesError::IsADirectory => Errno::EISDIR,
            FilesError::NotEmpty => Errno::ENOTEMPTY,
            FilesError::IntoItself => Errno::EINVAL,
            FilesError::Reserved => Errno::EPERM,
            FilesError::Full => Errno::ENOSPC,
        }
    }
}

fn errno(error: &StoreError) -> Errno {
    match error {
        StoreError::Full { .. } => Errno::ENOSPC,
        StoreError::Io(error) => error.raw_os_error().map_or(Errno::EIO, Errno::from_i32),
    }
}

/// Flags of `fallocate`; see fallocate(2).
mod mode {
    pub(super) const KEEP_SIZE: i32 = 1;
    pub(super) const PUNCH_HOLE: i32 = 2;
    pub(super) const ZERO_RANGE: i32 = 16;
}

impl Contents {
    /// The contents of `files`, on a disk of `size_bytes`.
    pub(super) fn new(files: Files, store: Arc<Store>, size_bytes: u64) -> Contents {
        Contents { files: RwLock::new(files), store, disk: "disk".into(), size_bytes }
    }

    /// The files, for reading.
    pub(super) fn files(&self) -> RwLockReadGuard<'_, Files> {
        self.files.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The files, for changes. Freed ranges go to [`Contents::zero`] before the guard is dropped.
    pub(super) fn files_mut(&self) -> RwLockWriteGuard<'_, Files> {
        self.files.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Zeros ranges of the device. [CON-2] Under the lock on files, so that no file gets the ranges before.
    pub(super) fn zero(&self, ranges: Vec<Range<u64>>) -> Result<(), Errno> {
        for range in ranges {
            let done = self.store.discard(range.start, range.end - range.start);
            done.map_err(|error| errno(&error))?;
        }
        Ok(())
    }

    /// The part of `disk` from `offset`, at most `len` long.
    fn disk_span(&self, offset: u64, len: u64) -> Span {
        let len = len.min(self.size_bytes.saturating_sub(offset));
        let whole = Stretch { len, device_offset: Some(offset) };
        let stretches = if len == 0 { Vec::new() } else { vec![whole] };
        Span { file: Arc::clone(&self.disk), offset, stretches }
    }

    fn span(&self, files: &Files, node: Node, offset: u64, len: u64) -> Result<Span, Errno> {
        let Node::Placed(number) = node else { return Ok(self.disk_span(offset, len)) };
        let (file, stretches) = files.span(number, offset..offset.saturating_add(len))?;
        Ok(Span { file, offset, stretches })
    }

    /// The current span of a read of `len` bytes at `offset`.
    pub(super) fn read_span(&self, node: Node, offset: u64, len: u64) -> Result<Span, Errno> {
        self.span(&self.files(), node, offset, len)
    }

    /// Copies the current bytes at `offset`; holes and bytes beyond the file's end read as zeros.
    pub(super) fn copy_out(&self, node: Node, offset: u64, into: &mut [u8]) -> Result<(), Errno> {
        let files = self.files(); // [CON-1]
        let span = self.span(&files, node, offset, into.len() as u64)?;
        let mut rest = into;
        for stretch in &span.stretches {
            let here;
            (here, rest) = rest.split_at_mut(stretch.len as usize);
            match stretch.device_offset {
                Some(offset) => self.store.read(offset, here).map_err(|error| errno(&error))?,
                None => here.fill(0),
            }
        }
        rest.fill(0);
        Ok(())
    }

    /// The span of a write of `len` bytes at `offset`, with all of it placed.
    pub(super) fn write_span(&self, node: Node, offset: u64, len: u64) -> Result<Span, Errno> {
        self.placed_span(&mut self.files_mut(), node, offset, len)
    }

    fn placed_span(
        &self,
        files: &mut Files,
        node: Node,
        offset: u64,
        len: u64,
    ) -> Result<Span, Errno> {
        if let Node::Placed(number) = node {
            let range = offset..offset.checked_add(len).ok_or(Errno::EFBIG)?;
            self.place(files, number, range, Growth::WRITE)?;
        }
        self.span(files, node, offset, len)
    }

    /// Copies bytes to `offset`, as far as they fit; ranges that have lost their place since the lookup get one.
    pub(super) fn copy_in(&self, node: Node, offset: u64, from: &[u8]) -> Result<(), Errno> {
        let mut files = self.files_mut(); // [CON-1]
        let span = self.placed_span(&mut files, node, offset, from.len() as u64)?;
        let mut rest = from;
        for stretch in &span.stretches {
            let here;
            (here, rest) = rest.split_at(stretch.len as usize);
            if let Some(offset) = stretch.device_offset {
                self.store.write(offset, here).map_err(|error| errno(&error))?;
            }
        }
        Ok(())
    }

    fn place(
        &self,
        files: &mut Files,
        number: u64,
        range: Range<u64>,
        growth: Growth,
    ) -> Result<(), Errno> {
        let mut placed = Vec::new();
        let all = files.place(number, range, growth, &mut placed);
        self.zero(placed)?;
        Ok(all?)
    }

    /// Executes `fallocate` on a file, or on `disk` (from a loop device).
    pub(super) fn allocate(&self, node: Node, range: Range<u64>, asked: i32) -> Result<(), Errno> {
        let keep_size = asked & mode::KEEP_SIZE != 0;
        let what = asked & !mode::KEEP_SIZE;
        let Node::Placed(number) = node else {
            if node != Node::Disk || range.end > self.size_bytes {
                return Err(Errno::EFBIG);
            }
            return match what {
                0 => Ok(()),
                // A loop device's requests to discard and to zero. Neither takes the device any time.
                mode::PUNCH_HOLE | mode::ZERO_RANGE => self.zero(vec![range]),
                _ => Err(Errno::EOPNOTSUPP),
            };
        };
        let mut files = self.files_mut();
        if !matches!(what, 0 | mode::PUNCH_HOLE | mode::ZERO_RANGE) {
            return Err(Errno::EOPNOTSUPP);
        }
        if what != 0 {
            let zeros = files.punch(number, range.clone())?;
            self.zero(zeros)?;
        }
        if what != mode::PUNCH_HOLE {
            self.place(&mut files, number, range, Growth { exact: true, keep_size })?;
        }
        Ok(())
    }

    /// Changes a file's attributes, and its size if one is given.
    pub(super) fn change(
        &self,
        number: u64,
        size: Option<u64>,
        changes: Changes,
    ) -> Result<Attributes, Errno> {
        let mut files = self.files_mut();
        if let Some(size) = size {
            let zeros = files.resize(number, size)?;
            self.zero(zeros)?;
        }
        files.change(number, changes)?;
        Ok(files.attributes(number)?)
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;
    use crate::files::{Owner, Place, ROOT};

    const SIZE_BYTES: u64 = 4 << 20;

    /// An empty disk with two files.
    fn two_files() -> (Contents, [Node; 2]) {
        let owner = Owner { user: 0, group: 0 };
        let today = crate::scheduler::today;
        let mut files = Files::new(SIZE_BYTES, Place::Middle, (owner, 0o755), &[], today);
        let nodes = ["one", "two"].map(|name| {
            let made = files.make((ROOT, OsStr::new(name)), false, 0o600, owner).unwrap();
            Node::Placed(made.inode)
        });
        (Contents::new(files, Arc::new(Store::memory(SIZE_BYTES)), SIZE_BYTES), nodes)
    }

    /// Frees all places of `one`, and gives them to `two`.
    fn hand_over(contents: &Contents, [one, two]: [Node; 2], known: &Span) {
        let Node::Placed(number) = one else { unreachable!() };
        contents.change(number, Some(0), Changes::default()).unwrap();
        let taken = contents.write_span(two, 0, known.len()).unwrap();
        assert_eq!(taken.stretches, known.stretches, "the other file got the same places");
    }

    #[test]
    fn a_read_whose_places_went_to_another_file_does_not_get_that_files_bytes() {
        let (contents, files) = two_files();
        contents.copy_in(files[0], 0, &[1; 8192]).unwrap();
        let known = contents.read_span(files[0], 0, 8192).unwrap();
        hand_over(&contents, files, &known);
        contents.copy_in(files[1], 0, &[2; 8192]).unwrap();
        let mut read = [9; 8192];
        contents.copy_out(files[0], 0, &mut read).unwrap();
        assert!(read == [0; 8192], "[CON-1]");
    }

    #[test]
    fn a_write_whose_places_went_to_another_file_goes_to_its_own_file() {
        let (contents, files) = two_files();
        let known = contents.write_span(files[0], 0, 8192).unwrap();
        hand_over(&contents, files, &known);
        contents.copy_in(files[0], 0, &[1; 8192]).unwrap();
        for (file, byte) in [(files[0], 1), (files[1], 0)] {
            let mut read = [9; 8192];
            contents.copy_out(file, 0, &mut read).unwrap();
            assert!(read == [byte; 8192], "[CON-1] {file:?}");
        }
    }

    #[test]
    fn places_that_were_given_back_are_zeros_for_the_next_file() {
        let (contents, files) = two_files();
        contents.copy_in(files[0], 0, &[1; 8192]).unwrap();
        let known = contents.read_span(files[0], 0, 8192).unwrap();
        hand_over(&contents, files, &known);
        let mut read = [9; 8192];
        contents.copy_out(files[1], 0, &mut read).unwrap();
        assert!(read == [0; 8192], "[CON-2]");
    }
}
