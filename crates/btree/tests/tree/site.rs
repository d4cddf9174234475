//! Where a test's tree is: a directory, and pools opened over it one after another.

use std::ops::Bound;

use forebay::{BufferPool, Checksum, ReadaheadStrategy, TornPages};
use forebay_btree::{Cursor, Direction, Tree};
use tempfile::TempDir;

pub(crate) const PAGE_BYTES: usize = 4096;

pub(crate) struct Site {
    pub(crate) directory: TempDir,
    frames: u64,
}

impl Site {
    /// A site whose pools have `frames` frames of 4 KiB.
    pub(crate) fn new(frames: u64) -> Site {
        Site { directory: tempfile::tempdir().unwrap(), frames }
    }

    pub(crate) fn pool(&self) -> BufferPool {
        self.pool_that_reads_ahead(ReadaheadStrategy::default())
    }

    pub(crate) fn pool_that_reads_ahead(&self, strategy: ReadaheadStrategy) -> BufferPool {
        let builder = BufferPool::builder().frames(self.frames).page_size(PAGE_BYTES as u64);
        let builder = builder.checksum(Checksum::Off).torn_pages(TornPages::Unprotected);
        builder.readahead(strategy).directory(self.directory.path()).build().unwrap()
    }
}

/// A key of `len` bytes, at least eight, ordered like `number`.
pub(crate) fn key(number: u64, len: usize) -> Vec<u8> {
    let mut key = number.to_be_bytes().to_vec();
    key.resize(len.max(8), b'k');
    key
}

pub(crate) type Entry = (Vec<u8>, Vec<u8>);

/// All entries that a cursor returns.
pub(crate) fn drained(cursor: &mut Cursor<'_>) -> Vec<Entry> {
    let mut entries = Vec::new();
    while let Some((key, value)) = cursor.next_entry().unwrap() {
        entries.push((key.to_vec(), value.to_vec()));
    }
    entries
}

pub(crate) fn all(tree: &Tree, direction: Direction) -> Vec<Entry> {
    drained(&mut tree.range(Bound::Unbounded, Bound::Unbounded, direction))
}
