//! A tablespace on the store, below a pool: written, scanned, read at random, and page by page.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use fastrand::Rng;
use forebay::{
    BufferPool, Checksum, FileOptions, PagedFile, ReadaheadStrategy, Tablespace, TornPages,
};
use forebay_object::object_store::ObjectStore;
use forebay_object::{Bucket, FileId, Mount, Options, PageId, Stats, Takeover, Writer};
use serde::Serialize;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::bare::percentiles;
use forebay_measure::interrupt;

pub(super) const PAGE: u64 = 8192;
/// Pages that are staged at a time: between two of these Ctrl-C is noticed.
const STAGED: usize = DIRTY_MOST as usize;
/// Maximum number of pages of the checkpoint.
const DIRTY_MOST: u32 = 65_536;
/// Readers of single pages: one alone would take minutes where a request takes 20 ms.
const READERS: usize = 4;
/// The number of positions at which a range is entered concurrently, as by an index over rows in about the same order.
const LOCALLY: usize = 64;

pub(super) struct Space {
    bucket: Bucket,
    mount: Mount,
    file: FileId,
    blocks: u32,
    memory: u64,
    _directory: TempDir,
}

/// The result of a part.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct Done {
    pub(super) seconds: f64,
    pub(super) pages: u64,
    pub(super) bytes_per_s: f64,
    pub(super) pages_per_s: f64,
    /// GETs of reads, PUTs of writes.
    pub(super) requests: u64,
    /// Unneeded pages fetched, per 100 needed.
    pub(super) over_read_percent: f64,
    pub(super) hedges: u64,
    pub(super) wait_us_p50: Option<f64>,
    pub(super) wait_us_p99: Option<f64>,
}

/// The ways in which pages are read through the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    /// All pages in order, read ahead.
    Scan,
    /// This many in order, each when it is needed.
    PageByPage(u32),
    /// This many at random, all known ahead.
    Random(u32),
    /// This many in short random ranges, shuffled locally, all known ahead.
    Local(u32),
}

impl Space {
    /// A tablespace of `bytes`, written in order.
    pub(super) fn new(
        store: Arc<dyn ObjectStore>,
        runtime: Arc<Runtime>,
        prefix: &str,
        in_flight: u32,
        bytes: u64,
        memory: u64,
    ) -> anyhow::Result<Space> {
        let in_flight = in_flight as usize;
        let options = Options { in_flight, runtime: Some(runtime), ..Options::default() };
        let bucket = Bucket::new(store, prefix, options)?;
        bucket.create(PAGE as u32)?;
        let writer = bucket.writer(Takeover::Refuse)?;
        let file = writer.create_file("table")?;
        writer.set_len(file, bytes)?;
        let blocks = u32::try_from(bytes / PAGE)?;
        write(&writer, file, &(0..blocks).collect::<Vec<_>>(), 0)?;
        let directory = tempfile::tempdir()?;
        let mount = Mount::new(writer, directory.path(), 256 << 20)?;
        Ok(Space { bucket, mount, file, blocks, memory, _directory: directory })
    }

    /// The mount's cost model for requests and bytes.
    pub(super) fn costs(&self) -> forebay::DeviceCosts {
        self.mount.costs()
    }

    /// Writes pages that are spread over the whole tablespace.
    pub(super) fn checkpoint(&self, rng: &mut Rng) -> anyhow::Result<Done> {
        let count = (self.blocks / 8).min(DIRTY_MOST);
        let blocks = chosen(rng, self.blocks, count);
        let before = self.bucket.stats();
        let begun = Instant::now();
        let writer = self.mount.writer().context("it is mounted by a writer")?;
        write(writer, self.file, &blocks, rng.u64(..))?;
        let seconds = begun.elapsed().as_secs_f64();
        let after = self.bucket.stats();
        let requests = after.puts - before.puts;
        Ok(Done { requests, ..done(seconds, u64::from(count)) })
    }

    /// Reads through an empty pool.
    pub(super) fn read(&self, reading: Reading, rng: &mut Rng) -> anyhow::Result<Done> {
        let tablespace = Tablespace::new("main", self.mount.directory());
        let tablespace =
            tablespace.io(self.mount.io(1024)?).volume(self.mount.volume()).costs(self.costs());
        let pool = BufferPool::builder()
            .memory(self.memory)
            .page_size(PAGE)
            .checksum(Checksum::Off) // the store keeps one of each page
            .torn_pages(TornPages::Unprotected)
            .combine_limit(1 << 20)
            .readahead(ReadaheadStrategy::Async)
            .tablespace(tablespace)
            .build()?;
        let file = pool.open_file("table", &FileOptions::new())?;
        let before = self.bucket.stats();
        let begun = Instant::now();
        let pages = self.read_all(&file, reading, rng)?;
        let done = done(begun.elapsed().as_secs_f64(), pages);
        let after = self.bucket.stats();
        drop(file);
        pool.close()?;
        Ok(read(done, &before, &after))
    }

    fn read_all(&self, file: &PagedFile, reading: Reading, rng: &mut Rng) -> anyhow::Result<u64> {
        let mut pages = 0;
        let mut look = |bytes: &[u8], block: u32| {
            pages += 1;
            if pages % 1000 == 0 {
                interrupt::check()?;
            }
            let says = bytes.first_chunk().map(|it| u32::from_le_bytes(*it));
            anyhow::ensure!(says == Some(block), "block {block} has other bytes than were written");
            Ok(())
        };
        match reading {
            Reading::Scan => {
                for page in file.scan(0..self.blocks) {
                    let page = page?;
                    look(&page, page.block())?;
                }
            }
            Reading::PageByPage(count) => {
                let file = file.with_readahead(ReadaheadStrategy::Os);
                for block in 0..count.min(self.blocks) {
                    look(&file.read(block)?, block)?;
                }
            }
            Reading::Random(count) => {
                let mut blocks = chosen(rng, self.blocks, count.min(self.blocks / 2));
                rng.shuffle(&mut blocks);
                for page in file.stream(blocks) {
                    let page = page?;
                    look(&page, page.block())?;
                }
            }
            Reading::Local(count) => {
                let count = count.min(self.blocks / 2);
                for page in file.stream(locally(rng, self.blocks, count)) {
                    let page = page?;
                    look(&page, page.block())?;
                }
            }
        }
        Ok(pages)
    }

    /// Reads single pages at random, past the pool; a separate client says whether late requests are sent twice.
    pub(super) fn single(
        &self,
        store: Arc<dyn ObjectStore>,
        prefix: &str,
        hedge: bool,
        count: u32,
        seed: u64,
    ) -> anyhow::Result<Done> {
        let options = Options { hedge, ..Options::default() };
        let bucket = Bucket::new(store, prefix, options)?;
        let reader = bucket.reader()?;
        let view = reader.view();
        let left = AtomicUsize::new(count as usize);
        let one = |rng: &mut Rng| {
            let begun = Instant::now();
            view.read(self.file, rng.u32(..self.blocks), &mut [0; PAGE as usize])?;
            Ok(begun.elapsed())
        };
        // The limit for late requests must be known before the first one is late.
        (0..64).map(|at| one(&mut Rng::with_seed(at))).collect::<anyhow::Result<Vec<_>>>()?;
        let before = bucket.stats();
        let begun = Instant::now();
        let all = std::thread::scope(|scope| {
            let threads = (0..READERS as u64).map(|thread| {
                let (left, one) = (&left, &one);
                scope.spawn(move || {
                    let mut rng = Rng::with_seed(seed ^ thread << 32);
                    let next = |left: usize| left.checked_sub(1);
                    let mut waits = Vec::new();
                    while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok() {
                        interrupt::check()?;
                        waits.push(one(&mut rng)?);
                    }
                    Ok(waits)
                })
            });
            let threads: Vec<_> = threads.collect();
            let joined = threads.into_iter().map(|it| it.join().expect("it does not panic"));
            joined.collect::<anyhow::Result<Vec<Vec<Duration>>>>()
        })?;
        let done = done(begun.elapsed().as_secs_f64(), u64::from(count));
        let after = bucket.stats();
        reader.close()?;
        let (wait_us_p50, wait_us_p99) = percentiles(&mut all.concat());
        Ok(Done { wait_us_p50, wait_us_p99, ..read(done, &before, &after) })
    }
}

fn done(seconds: f64, pages: u64) -> Done {
    let pages_per_s = pages as f64 / seconds;
    let bytes_per_s = pages_per_s * PAGE as f64;
    Done { seconds, pages, bytes_per_s, pages_per_s, ..Done::default() }
}

fn read(done: Done, before: &Stats, after: &Stats) -> Done {
    let wanted = (after.pages_read - before.pages_read).max(1);
    let over = after.pages_over_read - before.pages_over_read;
    Done {
        requests: after.gets - before.gets,
        over_read_percent: over as f64 * 100.0 / wanted as f64,
        hedges: after.hedges - before.hedges,
        ..done
    }
}

/// Commits these pages, each of which begins with its number; the rest of a page compresses badly.
fn write(writer: &Writer, file: FileId, blocks: &[u32], seed: u64) -> anyhow::Result<()> {
    for part in blocks.chunks(STAGED) {
        interrupt::check()?;
        let pages: Vec<PageId> = part.iter().map(|&block| PageId { file, block }).collect();
        writer.stage(&pages, &mut |page, bytes| {
            let mut rng = Rng::with_seed(seed ^ u64::from(page.block));
            bytes.chunks_exact_mut(8).for_each(|it| it.copy_from_slice(&rng.u64(..).to_le_bytes()));
            bytes[..4].copy_from_slice(&page.block.to_le_bytes());
            Ok(())
        })?;
    }
    writer.publish()?;
    Ok(())
}

/// `count` of the blocks, ascending, each once.
fn chosen(rng: &mut Rng, blocks: u32, count: u32) -> Vec<u32> {
    let mut chosen = std::collections::BTreeSet::new();
    while chosen.len() < count as usize {
        chosen.insert(rng.u32(..blocks));
    }
    chosen.into_iter().collect()
}

/// `count` blocks in ranges of 100 to 300, in an order that is random within each few dozen, as when a nested loop goes
/// over two indexes: `1 6 8 100 34 299 3 7`, and in the end whole ranges.
fn locally(rng: &mut Rng, blocks: u32, count: u32) -> Vec<u32> {
    let mut all: Vec<u32> = Vec::new();
    while all.len() < count as usize {
        let len = rng.u32(100..300).min(count - all.len() as u32).min(blocks);
        let first = rng.u32(..=blocks - len);
        all.extend(first..first + len);
    }
    all.chunks_mut(LOCALLY).for_each(|part| rng.shuffle(part));
    all
}
