//! Through a pool: the state made, the memory touched, and then the plan's streams read in turn.
//!
//! Every measurement has its own pool, so that nothing is learnt or kept from the previous one. One-time costs
//! of a long-lived pool are paid before the watch is started: queues, threads, and the
//! first use of each frame's memory (by reading a file of holes, which is then closed again).
//!
//! Worked example: `quarter` for 8192 different blocks makes a pool of 2048 frames, reads the plan once,
//! empties the page cache, starts the watch and reads the plan again.
//!
//! Invariants:  [PLD-1] a block is counted when it arrives in the order of its stream and carries its number
//! Concurrency: one thread reads; the pool's own threads are counted in the processor time.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use forebay::{
    BufferPool, Checksum, FileOptions, PagedFile, ReadaheadStrategy, StrategyKind, StreamError,
    StreamOptions, Streamed, Tablespace, TornPages,
};
use forebay_io::CacheMode;
use hdrhistogram::Histogram;

use super::{CacheState, Row, Samples, begin_cold, counted_read};
use crate::experiment::Bench;
use crate::experiment::pattern::{Plan, Shape, StreamPlan};
use crate::experiment::samples::Round;
use forebay_measure::coldness::{Stopwatch, wait_histogram};
use forebay_measure::interrupt;
use forebay_measure::lists::sorted;
use forebay_measure::report::BackendNote;
use forebay_measure::workfile::Workfile;

/// The file of holes.
const BLANK: &str = "blank";

/// Requests in flight in the pools measured.
const QUEUE_DEPTH: usize = 256;

/// Frames that a pool has beyond the data: for blocks read through in a gap, and blocks in flight.
const SPARE_FRAMES: u64 = 512;

/// Fewest frames of a pool that is smaller than the data.
const QUARTER_FRAMES_MIN: u64 = 128;

/// Maximum number of blocks of a resident plan: it is read repeatedly, and must be loaded first.
pub(super) const RESIDENT_BLOCKS_MAX: u32 = 8192;

/// The pass that warms a pool may take this many times as long as a measurement.
const WARMING_TIMES: u32 = 4;

/// Blocks between two looks at the clock.
const CLOCK_INTERVAL: u64 = 16;

/// Frames of a pool that can be in `state`, for a plan with this many different blocks.
fn frames(state: CacheState, distinct: u64) -> u64 {
    match state {
        CacheState::Quarter => (distinct / 4).max(QUARTER_FRAMES_MIN),
        _ => distinct + distinct / 8 + SPARE_FRAMES,
    }
}

/// Makes the file of holes for the largest pool that reads plans of `shape`.
///
/// # Errors
/// The system's error.
pub(super) fn make_blank(workfile: &Workfile, shape: &Shape) -> anyhow::Result<()> {
    let (directory, _) = workfile.named().context("a pool opens its files by name")?;
    let frames = frames(CacheState::Cold, u64::from(shape.blocks));
    let blank = std::fs::File::create(directory.join(BLANK)).context("making a file of holes")?;
    blank.set_len(frames * workfile.block_bytes).context("making a file of holes")
}

/// The remarks of a pool over `workfile` in `cache` mode about its backend.
///
/// # Errors
/// No pool can be made.
pub(in crate::experiment) fn backend(
    workfile: &Workfile,
    cache: CacheMode,
) -> anyhow::Result<BackendNote> {
    let (pool, _) = open(workfile, cache, SPARE_FRAMES)?;
    let backends = pool.backends();
    let (_, kind) = backends.first().context("a pool has a tablespace")?;
    let note = pool.notes().join("; ");
    Ok(BackendNote { backend: kind.to_string(), available: true, note })
}

fn open(
    workfile: &Workfile,
    cache: CacheMode,
    frames: u64,
) -> anyhow::Result<(BufferPool, PagedFile)> {
    let (directory, _) = workfile.named().context("a pool opens its files by name")?;
    let space = Tablespace::new("main", directory).cache(cache).queue_depth(QUEUE_DEPTH);
    let pool = BufferPool::builder()
        .checksum(Checksum::Off)
        .torn_pages(TornPages::Unprotected)
        .frames(frames)
        .page_size(workfile.block_bytes)
        .tablespace(space)
        .build()?;
    let file = open_file(&pool, workfile)?;
    Ok((pool, file))
}

fn open_file(pool: &BufferPool, workfile: &Workfile) -> anyhow::Result<PagedFile> {
    let (_, name) = workfile.named().context("a pool opens its files by name")?;
    Ok(pool.open_file(name, &FileOptions::new().read_only(true))?)
}

/// Makes the cache state of `row`, the same for all strategies, so that they start from the same
/// frames; then reads `plan` once, or for all of `time_max` where it is resident. `kept`: the pool of the
/// previous plan in the same measurement, and then of this one.
///
/// # Errors
/// [`Interrupted`](interrupt::Interrupted), or a state that could not be made.
pub(super) fn measure(
    kept: &mut Option<BufferPool>,
    bench: &Bench<'_>,
    row: &Row,
    strategy: ReadaheadStrategy,
    plan: &Plan,
    time_max: Duration,
    samples: &mut Samples,
) -> anyhow::Result<Round> {
    let (workfile, distinct) = (bench.workfile, plan.distinct());
    let (pool, file) = ready(kept, workfile, row, distinct.len() as u64)?;
    let warming_max = time_max * WARMING_TIMES;
    match row.state {
        CacheState::Cold | CacheState::PageCache => {}
        CacheState::Pool => {
            let begun = Instant::now();
            for page in file.stream_with(distinct.iter().copied(), &everywhere()) {
                drop(page.map_err(forebay::Error::from)?);
                interrupt::check()?;
                if begun.elapsed() > warming_max {
                    break;
                }
            }
        }
        CacheState::Quarter => {
            // Like the pattern itself, with rings for scans that use them.
            let mut before = Pass::new(workfile, false, plan, warming_max);
            before.read(&file, plan, ReadaheadStrategy::Async)?;
            let blocks = before.blocks;
            if blocks < plan.blocks() {
                samples.remarks.push(format!("the pass before was stopped after {blocks} blocks"));
            }
            // Direct reads have put nothing into the page cache; and a file is open in one mode at a time.
            if row.cache == CacheMode::Buffered {
                begin_cold(workfile, row, samples)?;
            }
        }
    }
    let (resident, missing): (Vec<u32>, Vec<u32>) =
        distinct.into_iter().partition(|&block| file.is_resident(block));
    if row.state == CacheState::Pool && !missing.is_empty() {
        let (there, all) = (resident.len(), resident.len() + missing.len());
        samples.remarks.push(format!("{there} of {all} blocks were in the pool"));
    }
    let round = counted_read(bench, row, || {
        let is_resident = row.state == CacheState::Pool;
        let mut pass = Pass::new(workfile, !is_resident, plan, time_max);
        pass.read(&file, plan, strategy)?;
        while is_resident && pass.watch.elapsed() < time_max {
            pass.read(&file, plan, strategy)?;
        }
        Ok(pass.round(&resident))
    })?;
    file.close()?;
    *kept = Some(pool);
    Ok(round)
}

/// An empty pool, and the file. The pool that was `kept` suffices where a pool only has to be large
/// enough: to make another and touch its memory takes longer than most plans.
fn ready(
    kept: &mut Option<BufferPool>,
    workfile: &Workfile,
    row: &Row,
    distinct: u64,
) -> anyhow::Result<(BufferPool, PagedFile)> {
    let frames = frames(row.state, distinct);
    let serves =
        |pool: &BufferPool| row.state != CacheState::Quarter && pool.frames() as u64 >= frames;
    if let Some(pool) = kept.take().filter(serves) {
        let file = open_file(&pool, workfile)?;
        return Ok((pool, file));
    }
    let (pool, file) = open(workfile, row.cache, frames)?;
    touch_memory(&pool)?;
    Ok((pool, file))
}

/// Reads into any frame, and fast.
fn everywhere() -> StreamOptions {
    StreamOptions::new().access(StrategyKind::Normal).readahead(ReadaheadStrategy::Async)
}

/// Uses every frame of a new pool once and leaves it empty again.
fn touch_memory(pool: &BufferPool) -> anyhow::Result<()> {
    let blank = pool.open_file(BLANK, &FileOptions::new().read_only(true))?;
    let frames = u32::try_from(pool.frames())?.min(blank.blocks());
    // Not in a ring, which would reuse a few frames.
    let options = everywhere();
    for page in blank.scan_with(0..frames, &options) {
        drop(page.map_err(forebay::Error::from)?);
    }
    blank.close()?;
    Ok(())
}

/// A reader with its watch.
pub(super) struct Pass<'a> {
    workfile: &'a Workfile,
    time_max: Duration,
    watch: Stopwatch,
    waits: Option<Histogram<u64>>,
    blocks: u64,
    /// Those of the first pass over a plan, in the order in which they were read.
    delivered: Vec<u32>,
}

impl<'a> Pass<'a> {
    /// Begins now. `timed`: whether to measure the wait for each block.
    pub(super) fn new(
        workfile: &'a Workfile,
        timed: bool,
        plan: &Plan,
        time_max: Duration,
    ) -> Pass<'a> {
        let delivered = Vec::with_capacity(plan.blocks() as usize);
        let waits = timed.then(wait_histogram);
        Pass { workfile, time_max, watch: Stopwatch::start(), waits, blocks: 0, delivered }
    }

    /// Counts `page`, which the reader has waited for since `moment`; false when time is up.
    ///
    /// # Errors
    /// It is another block, or was damaged; [`Interrupted`](interrupt::Interrupted).
    pub(super) fn goes_on(
        &mut self,
        moment: Option<Instant>,
        block: u32,
        page: &[u8],
    ) -> anyhow::Result<bool> {
        if let (Some(waits), Some(moment)) = (&mut self.waits, moment) {
            waits.saturating_record(moment.elapsed().as_nanos() as u64);
        }
        ensure!(
            page[..8] == self.workfile.stamp(u64::from(block)),
            "[PLD-1] block {block} of the working file has other contents"
        );
        // The minimum work of a reader: it looks at the page, here at a few words of it.
        let words = page.chunks_exact(8).step_by(128);
        let sum = words.fold(0, |sum: u64, word| sum.wrapping_add(u64::from(word[0])));
        std::hint::black_box(sum);
        if self.delivered.len() < self.delivered.capacity() {
            self.delivered.push(block);
        }
        self.blocks += 1;
        if !self.blocks.is_multiple_of(CLOCK_INTERVAL) {
            return Ok(true);
        }
        interrupt::check()?;
        Ok(self.watch.elapsed() <= self.time_max)
    }

    /// Reads `plan` until time is up.
    fn read(
        &mut self,
        file: &PagedFile,
        plan: &Plan,
        strategy: ReadaheadStrategy,
    ) -> anyhow::Result<()> {
        let options = StreamOptions::new().readahead(strategy);
        let mut streams = plan.streams.iter();
        let first = streams.by_ref().take(plan.at_once);
        let mut open: VecDeque<OpenStream<'_>> =
            first.map(|stream| open_stream(file, stream, &options)).collect::<Result<_, _>>()?;
        while let Some((mut pages, rest)) = open.pop_front() {
            let Some((&block, rest)) = rest.split_first() else {
                // Drop the old stream before opening the next: an exhausted stream must not hold frames.
                drop(pages);
                if let Some(stream) = streams.next() {
                    open.push_front(open_stream(file, stream, &options)?);
                }
                continue;
            };
            let moment = self.waits.is_some().then(Instant::now);
            let Some(page) = pages.next() else {
                bail!("a stream ended before block {block}, with {} to come", rest.len());
            };
            if !self.goes_on(moment, block, &page.map_err(forebay::Error::from)?)? {
                break;
            }
            open.push_back((pages, rest));
        }
        Ok(())
    }

    /// The result. `resident`: blocks that were in the pool before, ascending.
    pub(super) fn round(self, resident: &[u32]) -> Round {
        let ended = Round::ended(&self.watch, self.blocks, 0, self.waits);
        let mut needed = sorted(&self.delivered);
        needed.retain(|block| resident.binary_search(block).is_err());
        Round { blocks_needed: Some(needed.len() as u64), ..ended }
    }
}

type Pages<'f> = Box<dyn Iterator<Item = Result<Streamed<'f, ()>, StreamError<()>>> + 'f>;

/// A stream that is being read, and the blocks that its reader has still to read.
type OpenStream<'f> = (Pages<'f>, &'f [u32]);

fn open_stream<'f>(
    file: &'f PagedFile,
    stream: &'f StreamPlan,
    options: &StreamOptions,
) -> Result<OpenStream<'f>, forebay::Error> {
    let options = match stream.limit {
        Some(limit) => options.clone().expected_rows(limit as u64),
        None => options.clone(),
    };
    let pages: Pages<'f> = match stream.scanned() {
        Some(range) => Box::new(file.scan_with(range, &options)),
        None => Box::new(file.stream_with(stream.blocks.iter().copied(), &options)),
    };
    Ok((pages, stream.taken()))
}
