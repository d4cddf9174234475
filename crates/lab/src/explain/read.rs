//! Reading: the blocks of a pattern, one after the other, as each strategy does it.
//!
//! A reader is made first and reads then, so that the cost of opening (a pool looks at its directory,
//! locks it, and makes its queue) is paid before anything counts. The kernel's strategies read through one
//! descriptor, a whole block with one call. Worked example: WILLNEED at distance 2 for 1, 3, 2 advises 1
//! and 3, reads 1, advises 2, reads 3, reads 2.
//!
//! Invariants:  [EXP-6] a reader has read every block of the pattern, each as often as it stands there
//! Failure:     a short read of a file that is long enough ends the run.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::Context;
use forebay::{
    BufferPool, Checksum, FileOptions, PagedFile, ReadaheadStrategy, StreamOptions, Tablespace,
    TornPages,
};
use forebay_io::{Advice, File, Kind, OpenOptions};

use super::ExplainArgs;
use super::Strategy;
use super::pattern::Pattern;
use forebay_measure::interrupt;

/// Memory of the pool, unless the pattern needs less.
const POOL_BYTES_MAX: u64 = 256 << 20;

/// Frames of the pool in addition to the pattern: for blocks read through in a gap, and so that
/// look-ahead, which takes a quarter of a pool at most, is not bounded by it.
const SPARE_FRAMES: u64 = 4096;

/// The file in it.
pub(super) const FILE: &str = "blocks";

/// A file that a pool reads before anything counts, and how large it is.
const WARM_FILE: &str = "holes";
const WARM_BLOCKS: u32 = 64;

/// A reader that is ready.
#[derive(Debug)]
pub(super) enum Reader {
    /// Through the page cache, with its own system calls.
    Plain { file: File, distance: usize, block_bytes: u64 },
    /// Through a stream of a pool. The pool is dropped last.
    Pool { file: PagedFile, pool: BufferPool },
}

impl Reader {
    /// Opens the file in `directory` for `strategy`.
    ///
    /// # Errors
    /// The error of the system or the pool.
    pub(super) fn open(
        strategy: Strategy,
        directory: &Path,
        pattern: &Pattern,
        args: &ExplainArgs,
    ) -> anyhow::Result<Reader> {
        let (advice, distance) = match strategy {
            Strategy::Os => (None, 0),
            Strategy::Random => (Some(Advice::Random), 0),
            Strategy::Max => (Some(Advice::Sequential), 0),
            Strategy::WillNeed => (None, args.distance as usize),
            Strategy::Adaptive => return Reader::of_pool(directory, pattern, args),
        };
        let file = File::open(&directory.join(FILE), &OpenOptions::new().read_only(true))?;
        if let Some(advice) = advice {
            file.advise(0..u64::MAX, advice)?;
        }
        Ok(Reader::Plain { file, distance, block_bytes: args.block_size })
    }

    fn of_pool(directory: &Path, pattern: &Pattern, args: &ExplainArgs) -> anyhow::Result<Reader> {
        let frames = pattern.wanted.len() as u64 + SPARE_FRAMES;
        let pool = BufferPool::builder()
            .checksum(Checksum::Off)
            .torn_pages(TornPages::Unprotected)
            .frames(frames.min(POOL_BYTES_MAX / args.block_size))
            .page_size(args.block_size)
            .tablespace(Tablespace::new("main", directory).cache(args.cache))
            .build()?;
        warm_up(&pool, directory, args.block_size)?;
        let file = pool.open_file(FILE, &FileOptions::new().read_only(true))?;
        Ok(Reader::Pool { file, pool })
    }

    /// Reads all `blocks`. `progress` receives the number of blocks read.
    ///
    /// Returns how many reads found all of their block in the page cache, already there or in flight; `None`
    /// for a pool, whose reads do not wait for the current block.
    ///
    /// # Errors
    /// [`Interrupted`](interrupt::Interrupted), or what went wrong.
    pub(super) fn read(
        &self,
        blocks: &[u32],
        mut progress: impl FnMut(usize),
    ) -> anyhow::Result<Option<u64>> {
        let file = match self {
            Reader::Plain { file, distance, block_bytes } => {
                return plain(file, *distance, blocks, *block_bytes, progress);
            }
            Reader::Pool { file, .. } => file,
        };
        let options = StreamOptions::new().readahead(ReadaheadStrategy::Adaptive);
        let mut read = 0;
        for page in file.stream_with(blocks.iter().copied(), &options) {
            drop(page.map_err(forebay::Error::from)?);
            read += 1;
            interrupt::check()?;
            progress(read);
        }
        assert_eq!(read, blocks.len(), "[EXP-6] a stream gives what was named");
        Ok(None)
    }

    /// The backend that reads, if it is not the best one.
    pub(super) fn remark(&self) -> Option<String> {
        let Reader::Pool { pool, .. } = self else { return None };
        let (_, kind) = pool.backends().into_iter().next()?;
        let is_best = kind == Kind::Uring;
        (!is_best).then(|| format!("read through {kind}, since io_uring is not to be had"))
    }
}

/// Makes the pool create what it makes once and keeps: its queue and threads. The file that it reads for
/// that is a hole, which has no place on the disk and costs it no time.
fn warm_up(pool: &BufferPool, directory: &Path, block_bytes: u64) -> anyhow::Result<()> {
    let hole = fs::File::create(directory.join(WARM_FILE));
    let sized = hole.and_then(|hole| hole.set_len(u64::from(WARM_BLOCKS) * block_bytes));
    sized.context("making a file of holes on the emulated disk")?;
    let file = pool.open_file(WARM_FILE, &FileOptions::new().read_only(true))?;
    let options = StreamOptions::new().readahead(ReadaheadStrategy::Async);
    for page in file.stream_with(0..WARM_BLOCKS, &options) {
        drop(page.map_err(forebay::Error::from)?);
    }
    file.close()?;
    Ok(())
}

fn plain(
    file: &File,
    distance: usize,
    blocks: &[u32],
    block_bytes: u64,
    mut progress: impl FnMut(usize),
) -> anyhow::Result<Option<u64>> {
    // The same open file, so that the kernel sees one reader.
    let reader = fs::File::from(file.descriptor().try_clone_to_owned()?);
    let mut page = vec![0; block_bytes as usize];
    let bytes = |block: u32| {
        let start = u64::from(block) * block_bytes;
        start..start + block_bytes
    };
    let (mut advised, mut cached) = (0, Some(0));
    for (at, &block) in blocks.iter().enumerate() {
        while distance > 0 && advised < blocks.len().min(at + distance) {
            file.advise(bytes(blocks[advised]), Advice::WillNeed)?;
            advised += 1;
        }
        // A look costs a microsecond; a system without residency information is asked only once.
        if let Some(count) = &mut cached {
            match file.residency(bytes(block)) {
                Ok(here) => *count += u64::from(here.pages_resident == here.pages),
                Err(forebay_io::Error::Unsupported { .. }) => cached = None,
                Err(error) => return Err(error.into()),
            }
        }
        let read = reader.read_exact_at(&mut page, bytes(block).start);
        read.with_context(|| format!("[EXP-6] cannot read block {block} of the emulated disk"))?;
        interrupt::check()?;
        progress(at + 1);
    }
    Ok(cached)
}
