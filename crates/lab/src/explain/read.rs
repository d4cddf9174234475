//! Reading: the blocks of a pattern, one after the other, as each strategy does it.
//!
//! A reader is made first and reads then, so that what opening costs (a pool looks at its directory,
//! locks it, and makes its queue) is over before anything counts. The kernel's strategies read through one descriptor,
//! a whole block with one call. Worked example: WILLNEED at distance 2 for 1, 3, 2 advises 1 and 3,
//! reads 1, advises 2, reads 3, reads 2.
//!
//! Invariants:  [EXP-6] a reader has read every block of the pattern, each as often as it stands there
//! Failure:     a short read of a file that is long enough ends the run.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use forebay::{BufferPool, FileOptions, PagedFile, ReadaheadStrategy, StreamOptions, Tablespace};
use forebay_io::{Advice, File, Kind, OpenOptions};
use rustix::io::{Errno, pread};

use super::Strategy;
use super::settings::Settings;
use crate::interrupt;

/// Memory of the pool, unless the pattern needs less.
const POOL_BYTES_MAX: u64 = 256 << 20;

/// Frames that the pool has beyond the pattern: for blocks read through in a gap, and so that
/// look-ahead, which takes a quarter of a pool at most, is not bounded by it.
const SPARE_FRAMES: u64 = 4096;

/// A file that a pool reads before anything counts, and how large it is.
const WARM_FILE: &str = "holes";
const WARM_BLOCKS: u32 = 64;

/// A reader that is ready.
#[derive(Debug)]
pub(super) enum Reader {
    /// Through the page cache, by calls of its own.
    Plain { file: File, distance: usize },
    /// Through a stream of a pool. The pool goes last.
    Pool { file: PagedFile, pool: BufferPool },
}

/// What a reader saw.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Reading {
    /// From before the first block to after the last.
    pub(super) elapsed: Duration,
    /// Reads whose block was in the page cache, or on its way; `None` where that is not looked at.
    pub(super) cached: Option<u64>,
    pub(super) remarks: Vec<String>,
}

impl Reader {
    /// Opens `name` in `directory` for `strategy`.
    ///
    /// # Errors
    /// What the system or the pool said.
    pub(super) fn open(
        strategy: Strategy,
        directory: &Path,
        name: &str,
        settings: &Settings,
    ) -> anyhow::Result<Reader> {
        if strategy == Strategy::Adaptive {
            return pool(directory, name, settings);
        }
        let file = File::open(&directory.join(name), &OpenOptions::new().read_only(true))?;
        let advice = match strategy {
            Strategy::Random => Some(Advice::Random),
            Strategy::Max => Some(Advice::Sequential),
            Strategy::Os | Strategy::WillNeed | Strategy::Adaptive => None,
        };
        if let Some(advice) = advice {
            file.advise(0..u64::MAX, advice)?;
        }
        let distance = if strategy == Strategy::WillNeed { settings.distance as usize } else { 0 };
        Ok(Reader::Plain { file, distance })
    }

    /// Reads all `blocks`. `progress` is told how many are read, now and then.
    ///
    /// # Errors
    /// [`Interrupted`](interrupt::Interrupted), or what went wrong.
    pub(super) fn read(
        &self,
        blocks: &[u32],
        block_bytes: u64,
        mut progress: impl FnMut(usize),
    ) -> anyhow::Result<Reading> {
        match self {
            Reader::Plain { file, distance } => {
                plain(file, *distance, blocks, block_bytes, &mut progress)
            }
            Reader::Pool { file, pool } => {
                let mut reading = streamed(file, blocks, &mut progress)?;
                if let Some(why) = too_small(pool, blocks) {
                    reading.remarks.push(why);
                }
                reading.remarks.extend(lesser_backend(pool));
                Ok(reading)
            }
        }
    }
}

fn pool(directory: &Path, name: &str, settings: &Settings) -> anyhow::Result<Reader> {
    let distinct = settings.pattern.distinct().len() as u64;
    let frames = (distinct + SPARE_FRAMES).min(POOL_BYTES_MAX / settings.block_bytes);
    let space = Tablespace::new("main", directory).cache(settings.cache);
    let pool = BufferPool::builder()
        .frames(frames)
        .page_size(settings.block_bytes)
        .tablespace(space)
        .build()?;
    warm_up(&pool, directory, settings.block_bytes)?;
    let file = pool.open_file(name, &FileOptions::new().read_only(true))?;
    Ok(Reader::Pool { file, pool })
}

/// Has the pool make what it makes once and keeps: its queue and threads. The file that it reads for
/// that is a hole, which has no place on the disk and costs it no time.
fn warm_up(pool: &BufferPool, directory: &Path, block_bytes: u64) -> anyhow::Result<()> {
    let hole = std::fs::File::create(directory.join(WARM_FILE));
    let sized = hole.and_then(|hole| hole.set_len(u64::from(WARM_BLOCKS) * block_bytes));
    sized.context("making a file of holes on the emulated disk")?;
    let file = pool.open_file(WARM_FILE, &FileOptions::new().read_only(true))?;
    let options = StreamOptions::new().readahead(ReadaheadStrategy::Async);
    for page in file.stream_with(0..WARM_BLOCKS, &options)? {
        drop(page.map_err(forebay::Error::from)?);
    }
    file.close()?;
    Ok(())
}

/// Which backend reads, where that is not the best one.
fn lesser_backend(pool: &BufferPool) -> Option<String> {
    let (_, kind) = pool.backends().into_iter().next()?;
    (kind != Kind::Uring).then(|| format!("read through {kind}, since io_uring is not to be had"))
}

/// Whether blocks that come twice may have left the pool in between.
fn too_small(pool: &BufferPool, blocks: &[u32]) -> Option<String> {
    let mut distinct = blocks.to_vec();
    distinct.sort_unstable();
    distinct.dedup();
    (distinct.len() < blocks.len() && distinct.len() > pool.frames())
        .then(|| format!("the pool has room for {} blocks: some are read again", pool.frames()))
}

fn plain(
    file: &File,
    distance: usize,
    blocks: &[u32],
    block_bytes: u64,
    progress: &mut dyn FnMut(usize),
) -> anyhow::Result<Reading> {
    let mut page = vec![0; block_bytes as usize];
    let bytes = |block: u32| {
        let start = u64::from(block) * block_bytes;
        start..start + block_bytes
    };
    let (mut advised, mut cached) = (0, Some(0));
    let begun = Instant::now();
    for (at, &block) in blocks.iter().enumerate() {
        while distance > 0 && advised < blocks.len().min(at + distance) {
            file.advise(bytes(blocks[advised]), Advice::WillNeed)?;
            advised += 1;
        }
        // Looking costs a microsecond; where the system cannot tell, it is not asked again.
        if let Some(count) = &mut cached {
            match file.residency(bytes(block)) {
                Ok(here) => *count += u64::from(here.pages_resident == here.pages),
                Err(forebay_io::Error::Unsupported { .. }) => cached = None,
                Err(error) => return Err(error.into()),
            }
        }
        read_block(file, bytes(block).start, &mut page)?;
        interrupt::check()?;
        progress(at + 1);
    }
    Ok(Reading { elapsed: begun.elapsed(), cached, remarks: Vec::new() })
}

fn read_block(file: &File, offset: u64, page: &mut [u8]) -> anyhow::Result<()> {
    let mut done = 0;
    while done < page.len() {
        match pread(file.descriptor(), &mut page[done..], offset + done as u64) {
            Ok(0) => bail!("[EXP-6] the file ends before byte {}", offset + done as u64),
            Ok(bytes) => done += bytes,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error).context("cannot read from the emulated disk"),
        }
    }
    Ok(())
}

fn streamed(
    file: &PagedFile,
    blocks: &[u32],
    progress: &mut dyn FnMut(usize),
) -> anyhow::Result<Reading> {
    let options = StreamOptions::new().readahead(ReadaheadStrategy::Adaptive);
    let mut read = 0;
    let begun = Instant::now();
    for page in file.stream_with(blocks.iter().copied(), &options)? {
        drop(page.map_err(forebay::Error::from)?);
        read += 1;
        interrupt::check()?;
        progress(read);
    }
    let elapsed = begun.elapsed();
    assert_eq!(read, blocks.len(), "[EXP-6] a stream gives what was named");
    Ok(Reading { elapsed, cached: None, remarks: Vec::new() })
}
