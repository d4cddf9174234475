//! The pool's state of a file of pages.
//!
//! A file is an array of pages. It stays open in the pool until it is closed or dropped,
//! even without any handle: its pages may be dirty.

use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use forebay_io::{File, Op};
use forebay_lookahead::Detector;

use super::disk_file::DiskFile;
use crate::cache::file::CachedFile;
use crate::error::Error;
use crate::store::checksum::{Checksum, ZeroPages, is_all_zeroes};
use crate::store::codec::PageCodec;
use crate::store::tablespace::Space;
use crate::tag::Block;

/// Most blocks in a file: block numbers are 32 bits, and a count has to fit as well.
pub(crate) const BLOCKS_MAX: u64 = Block::MAX as u64;

/// Minimum size of a scan that is left to the kernel, in multiples of its readahead: then it reads at most an eighth
/// too much.
const READAHEADS_MIN: u64 = 8;

/// The Linux default, in bytes. Source: VM_READAHEAD_PAGES in linux/mm.h.
const KERNEL_READAHEAD_USUAL: u64 = 128 << 10;

/// The pool's state of an open file.
pub(crate) struct FileCore {
    pub(super) cached: CachedFile,
    pub(crate) space: Arc<Space>,
    pub(crate) name: String,
    pub(crate) checksum: Checksum,
    pub(crate) zero_pages: ZeroPages,
    pub(super) codec: Option<Arc<dyn PageCodec>>,
    pub(super) read_only: bool,
    pub(crate) disk: DiskFile,
    /// Sequences among the misses of plain reads.
    pub(crate) detector: Mutex<Detector>,
    /// Changes of the file that only a sync makes durable: writes, changes of its size.
    pub(super) changes: AtomicU64,
    /// How many of them are durable.
    pub(super) changes_synced: AtomicU64,
}

/// The cache's state of the file is accessible directly.
impl Deref for FileCore {
    type Target = CachedFile;

    #[inline]
    fn deref(&self) -> &CachedFile {
        &self.cached
    }
}

impl FileCore {
    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only
    }

    pub(crate) fn check_writable(&self) -> Result<(), Error> {
        if !self.read_only {
            return Ok(());
        }
        Err(Error::ReadOnly { file: Arc::clone(&self.path) })
    }

    /// Encodes the copy of a page, in place, for `block` ([COD-1]).
    pub(crate) fn encode_page(&self, page: &mut [u8], block: Block) {
        if let Some(codec) = &self.codec {
            codec.encode(&self.name, block, page);
        }
        self.checksum.stamp(page, block);
    }

    /// Decodes the bytes read from `block` into the page, or rejects them ([COD-2]).
    pub(crate) fn decode_page(&self, page: &mut [u8], block: Block) -> Result<(), Error> {
        let file = || Arc::clone(&self.path);
        self.checksum.verify(page, block, self.zero_pages).map_err(|it| Error::Corrupt {
            file: file(),
            block,
            expected: it.expected,
            found: it.found,
            all_zeroes: it.all_zeroes,
        })?;
        let Some(codec) = &self.codec else { return Ok(()) };
        if is_all_zeroes(page) {
            let refused =
                || Error::Corrupt { file: file(), block, expected: 0, found: 0, all_zeroes: true };
            return if self.zero_pages == ZeroPages::Accept { Ok(()) } else { Err(refused()) };
        }
        let decoded = codec.decode(&self.name, block, page);
        decoded.map_err(|source| Error::Codec { file: file(), block, source: source.into() })
    }

    /// The error for a page whose codec panicked where the panic cannot be propagated.
    pub(crate) fn codec_panicked(&self, block: Block) -> Error {
        let source: Box<dyn std::error::Error + Send + Sync> = "the codec panicked".into();
        Error::Codec { file: Arc::clone(&self.path), block, source: source.into() }
    }

    /// The file on disk, and the block's position in it, in bytes.
    pub(crate) fn place(&self, block: Block) -> (File, u64) {
        self.disk.place(block)
    }

    /// As [`FileCore::place`], to write `pages` pages there: not past the end of what is left of the file ([LEN-3]).
    pub(crate) fn place_to_write(&self, block: Block, pages: usize) -> Result<(File, u64), Error> {
        self.disk.check_reaches(u64::from(block) + pages as u64)?;
        Ok(self.place(block))
    }

    /// The error of a read of `block`, which is not past the end of the file, as the pool's callers see it.
    pub(crate) fn read_failure(&self, block: Block, error: forebay_io::Error) -> Error {
        let is_past_end = matches!(error, forebay_io::Error::PastEnd { .. });
        match self.disk.check_reaches(u64::from(block) + 1) {
            Err(shortened) if is_past_end => shortened,
            _ => self.space.failure(Op::Read, error),
        }
    }

    /// Fewest blocks of a scan that may be left to the kernel, which reads on by up to its readahead past the last of
    /// them.
    pub(crate) fn scan_blocks_min(&self) -> u64 {
        let readahead = || self.disk.file().kernel_readahead();
        let readahead = self.space.kernel_readahead(readahead).unwrap_or(KERNEL_READAHEAD_USUAL);
        (readahead * READAHEADS_MIN).div_ceil(self.space.page_bytes())
    }

    /// Records a change of the file that only a sync makes durable. Called before any thread may consider it done.
    pub(crate) fn changed(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
    }

    /// The number of changes that a sync submitted after this call makes durable, for [`FileCore::synced`].
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    /// As [`FileCore::changes`]; `None` when all changes are durable.
    pub(crate) fn unsynced(&self) -> Option<u64> {
        let changes = self.changes();
        (changes > self.changes_synced.load(Ordering::SeqCst)).then_some(changes)
    }

    /// A sync that was submitted after `changes` changes has succeeded.
    pub(crate) fn synced(&self, changes: u64) {
        self.changes_synced.fetch_max(changes, Ordering::SeqCst);
        self.space.torn.synced(self.id, changes);
    }

    /// The file on disk.
    pub(crate) fn on_disk(&self) -> File {
        self.disk.file()
    }
}

impl std::fmt::Debug for FileCore {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("FileCore")
            .field("id", &self.id)
            .field("path", &self.path)
            .field("blocks", &self.blocks())
            .finish_non_exhaustive()
    }
}
