//! Read stream: look-ahead over a sequence of blocks.
//!
//! One pin at a time stalls on every miss; here the next blocks are requested while the caller works on this one. The
//! caller names its blocks by an iterator, in whatever order it wants them; inside the known window they are
//! *requested* sorted and merged. Worked example: for 1, 3, 2, 6, 4, 9 the requests are [1..=4], [6], [9], or [1..=6],
//! [9] where reading 5 as well costs less than another request; the pages are returned as 1, 3, 2, 6, 4, 9.
//!
//! The window is refilled when half of it has been returned, so blocks are requested in batches that are worth sorting,
//! and half of the window is being read while the next batch is assembled. While pages are found in memory there is no
//! window: such a page costs as much as a plain read.
//!
//! | part | purpose |
//! |---|---|
//! | `window` | blocks that are known and not returned yet |
//! | `refill` | from named blocks to requests |
//! | `deliver` | from a block of the window to a page that the caller holds |
//! | `tasked` | the same for a task, which must not block |
//! | `many` | a stream over a known list of blocks, all needed |
//!
//! How far ahead, in which mode and in which requests is decided in [`forebay_lookahead`].
//!
//! Invariants:  [RS-1] pinned <= the stream's share of the budget   [RS-2] blocks return in the caller's
//!              order, each once for each time it was named   [RS-3] a dropped stream leaves no pin
//! Concurrency: one owner; may be sent between threads. Between calls, and while the caller's iterator runs, it holds
//!              pins, never latches or locks; its requested reads complete without it.
//! Failure:     a failed block is returned as that block's error; the stream goes on.
//! Source:      PostgreSQL read_stream.c for growing by doubling, pause, resume and reset; the window
//!              sort, the gaps and the modes are ours.

mod deferred;
mod deliver;
mod many;
mod page;
mod refill;
mod stats;
#[cfg(feature = "futures")]
mod tasked;
mod window;

use std::borrow::Borrow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use forebay_io::{CacheMode, Hint, Kind};
use forebay_lookahead::{Adaptive, Distance, ReadMode, Reading, Run};

pub use many::ListedBlocks;
pub use page::{StreamError, Streamed, Wanted};
pub use stats::StreamStats;

use crate::api::guard::PageRef;
use crate::api::options::{Order, StreamOptions};
use crate::api::paged_file::PagedFile;
use crate::cache::frame::word::Mode;
use crate::cache::replacement::AccessStrategy;
use crate::core::Core;
use crate::core::Share;
use crate::readahead::Watch;
use crate::readahead::trace;
use crate::readahead_strategy::ReadaheadStrategy;
use crate::store::Private;
use crate::strategy_kind::StrategyKind;
use crate::tag::Block;
use deferred::{DeferredRun, Gaps};
use window::{State, Window};

/// Blocks ahead that a stream starts with, when the number of needed blocks is unknown.
const START_BLOCKS: u32 = 32;

/// Largest look-ahead distance, whatever the device can use.
const DISTANCE_MOST: u32 = 8192;

/// A scan of more than one part in this many of the pool reads in bulk. Source: PostgreSQL, heapam.c.
const BULK_SHARE: u64 = 4;

/// How a stream reads ahead.
#[derive(Debug)]
enum Policy {
    /// Always in this mode.
    Fixed(ReadMode),
    /// Chosen by measurement.
    Adaptive(Adaptive),
}

/// Pages of a file in the order of an iterator of their blocks, read ahead.
///
/// Made by [`PagedFile::stream`] and [`PagedFile::scan`]. An `Iterator` of pages, each with the data that the caller
/// passed with its block. Dropping it releases everything: blocks that are not requested yet are never read, and those
/// under way come in as ordinary pages.
///
/// `H` is how it refers to its file, as in a [`PageRef`]: by reference, unless [`PagedFile::into_stream`] made it.
pub struct ReadStream<'f, I, H = &'f PagedFile>
where
    I: Iterator<Item: Wanted>,
    H: Borrow<PagedFile> + Clone,
{
    handle: H,
    file: PhantomData<&'f PagedFile>,
    blocks: I,
    /// The iterator is not called again: it has ended, or has panicked.
    ended: bool,
    paused: bool,
    window: Window<<I::Item as Wanted>::Data>,
    /// The window is refilled when it has at most this many blocks left.
    low: usize,
    distance: Distance,
    policy: Policy,
    order: Order,
    expected_rows: Option<u64>,
    distance_most: u32,
    /// All blocks are known and needed: the stream requests as many as a device of this useful depth can use.
    known: Option<usize>,
    /// There were not enough frames for the last request.
    crowded: bool,
    strategy: AccessStrategy,
    /// Runs to read when the reader reaches them, ascending.
    deferred: Vec<DeferredRun>,
    gaps: Gaps,
    private: Option<Private>,
    /// Whether it may wait for room in a full queue.
    waits: bool,
    share: Share<Arc<Core>>,
    watch: Arc<Watch>,
    /// Its number in the trace; `None` if its decisions are not recorded.
    traced: Option<u32>,
    stats: StreamStats,
    /// Pages found in memory since the last that was not; they are in no other counter yet.
    found: u64,
    /// The current reads certainly go to the device, so their time measures its cost.
    from_device: bool,
    pace: Pace,
    /// Scratch of `refill`.
    wanted: Vec<Block>,
    seen: Vec<bool>,
    runs: Vec<Run>,
}

/// Times since the last batch.
#[derive(Debug, Default)]
struct Pace {
    refilled: Duration,
    /// Time in which the reader was blocked, for any reason.
    waited: Duration,
    /// The part of it spent waiting for reads under way: a page from the page cache says nothing about the device.
    waited_for_reads: Duration,
    delivered: u32,
    /// Returned blocks that had to be read.
    read: u32,
    /// Time spent on requesting blocks.
    asking: Duration,
}

impl PagedFile {
    /// Returns the pages of `blocks`, in that order, read ahead: an iterator of block numbers, or of pairs of a block
    /// number and a value that is returned with its page.
    ///
    /// ```
    /// # use forebay::{BufferPool, Checksum::Off, FileOptions, TornPages::Unprotected};
    /// # fn main() -> forebay::Result<()> {
    /// # let directory = tempfile::tempdir().expect("a temporary directory");
    /// # let pool = BufferPool::builder().checksum(Off).torn_pages(Unprotected).frames(256).directory(directory.path()).build()?;
    /// # let heap = pool.open_file("heap", &FileOptions::new().create(true))?;
    /// # heap.extend(50)?;
    /// let index = [(17, "ada"), (3, "bob"), (17, "cyd")]; // block of the row, and its key
    /// for row in heap.stream(index) {
    ///     let row = row?; // derefs to the page's bytes
    ///     println!("{} is on block {}: {:?}", row.data, row.page.block(), &row[0..4]);
    /// }
    /// # pool.close()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The iterator is called on the caller's thread, inside the stream's `next`, for blocks some way ahead. It may
    /// read pages itself, of this file too. While it runs the stream holds only pins, so an iterator that blocks does
    /// not keep other threads from the pages that are being read. An iterator that panics is not called again; the
    /// blocks that it named before are still returned. An iterator whose next block depends on a page that this stream
    /// has not returned yet deadlocks: give the stream [`StreamOptions::distance`] 1, or read such pages separately.
    pub fn stream<B>(&self, blocks: B) -> ReadStream<'_, B::IntoIter>
    where
        B: IntoIterator<Item: Wanted>,
    {
        let plan = Plan::new(self, &StreamOptions::default(), None);
        ReadStream::new(self, blocks.into_iter(), plan)
    }

    /// As [`PagedFile::stream`], with `options`.
    pub fn stream_with<B>(&self, blocks: B, options: &StreamOptions) -> ReadStream<'_, B::IntoIter>
    where
        B: IntoIterator<Item: Wanted>,
    {
        ReadStream::new(self, blocks.into_iter(), Plan::new(self, options, None))
    }

    /// As [`PagedFile::stream_with`], for a stream that owns its handle of the file, and whose pages do: it borrows nothing,
    /// so that a cursor or an executor node can keep it next to other handles.
    pub fn into_stream<B>(
        self,
        blocks: B,
        options: &StreamOptions,
    ) -> ReadStream<'static, B::IntoIter, PagedFile>
    where
        B: IntoIterator<Item: Wanted>,
    {
        let plan = Plan::new(&self, options, None);
        ReadStream::new(self, blocks.into_iter(), plan)
    }

    /// Returns the pages of a range of blocks, one after the other, read ahead. Each block past the end of the file is
    /// an error of that block only: `0..file.blocks()` is the whole file.
    pub fn scan(&self, range: Range<Block>) -> ReadStream<'_, Range<Block>> {
        let plan = Plan::new(self, &StreamOptions::default(), Some(range.len() as u64));
        ReadStream::new(self, range, plan)
    }

    /// As [`PagedFile::scan`], with `options`.
    pub fn scan_with(
        &self,
        range: Range<Block>,
        options: &StreamOptions,
    ) -> ReadStream<'_, Range<Block>> {
        let plan = Plan::new(self, options, Some(range.len() as u64));
        ReadStream::new(self, range, plan)
    }
}

/// The parameters of a stream, with every default filled in.
struct Plan {
    strategy: AccessStrategy,
    policy: Policy,
    hint: Option<Hint>,
    order: Order,
    expected_rows: Option<u64>,
    distance_most: u32,
    start: u32,
    known: Option<usize>,
}

impl Plan {
    /// `scan`: the number of blocks of a scan; `None` when it is not a scan.
    fn new(handle: &PagedFile, options: &StreamOptions, scan: Option<u64>) -> Plan {
        let (core, cache) = (handle.core(), handle.file().space.cache);
        let frames = core.cache.frames.usable();
        let bulk = scan.is_some_and(|blocks| blocks > frames as u64 / BULK_SHARE);
        let usual = if bulk { StrategyKind::BulkRead } else { StrategyKind::Normal };
        let kind = options.access.unwrap_or(usual);
        // As many requests as the device can use, each of the largest size.
        let useful = handle.file().space.device_costs().useful_depth.max(1);
        let useful = useful.saturating_mul(core.combine_pages as u32).min(DISTANCE_MOST);
        let most = options.distance.unwrap_or(useful).min(core.budget.most());
        // Twice the look-ahead: the caller may still hold the returned half.
        let ring = 2 * u64::from(most) * core.page_bytes() as u64;
        let strategy = AccessStrategy::covering(kind, ring, core.page_bytes(), frames);
        let ring_most = strategy.ring_frames().map_or(u32::MAX, |frames| frames as u32 / 2);
        let distance_most = most.min(ring_most).max(1);
        let readahead = options.readahead.unwrap_or(handle.readahead_strategy());
        let start = if scan.is_some() { 2 * core.combine_pages as u32 } else { START_BLOCKS };
        let start = options.expected_rows.map_or(start, refill::rows_asked);
        // With a LIMIT, the blocks after it are not needed.
        let whole = scan.filter(|_| options.expected_rows.is_none());
        let by_kernel = whole.is_some_and(|blocks| {
            cache == CacheMode::Buffered && blocks >= handle.file().scan_blocks_min()
        });
        Plan {
            policy: Policy::new(readahead, handle, by_kernel),
            hint: hint(readahead, cache, kind, whole.is_some(), by_kernel),
            strategy,
            order: options.order,
            expected_rows: options.expected_rows,
            distance_most,
            start: start.clamp(1, distance_most),
            known: None,
        }
    }
}

impl Policy {
    fn new(strategy: ReadaheadStrategy, handle: &PagedFile, scan: bool) -> Policy {
        let space = &handle.file().space;
        match (strategy, space.cache) {
            (ReadaheadStrategy::Async, _) => Policy::Fixed(ReadMode::Queue),
            (ReadaheadStrategy::Adaptive, cache) => {
                let reading = Reading {
                    buffered: cache == CacheMode::Buffered,
                    page_bytes: handle.core().page_bytes(),
                    batches: space.queue.kind() == Kind::Uring,
                    scan,
                };
                Policy::Adaptive(Adaptive::new(reading, space.winners.get(scan)))
            }
            (ReadaheadStrategy::Prefetch, CacheMode::Buffered) => Policy::Fixed(ReadMode::Hint),
            // The kernel's help would work in its page cache, which a direct file does not use.
            _ => Policy::Fixed(ReadMode::Plain),
        }
    }
}

/// The advice to the kernel for a stream's own descriptor; `None` where none is useful.
fn hint(
    strategy: ReadaheadStrategy,
    cache: CacheMode,
    kind: StrategyKind,
    scan: bool,
    by_kernel: bool,
) -> Option<Hint> {
    if cache == CacheMode::Direct {
        return None;
    }
    Some(match strategy {
        ReadaheadStrategy::Os => Hint::Normal,
        ReadaheadStrategy::Hint if scan || kind != StrategyKind::Normal => Hint::Normal,
        ReadaheadStrategy::Max => Hint::Sequential,
        ReadaheadStrategy::Hint => Hint::Random,
        ReadaheadStrategy::Adaptive if !by_kernel => Hint::Random,
        // For a sequence the kernel's predictions are right, and its own readahead creates larger pages in its cache.
        _ if scan => Hint::Normal,
        // The stream requests exactly what it needs; the kernel's own readahead would only add to it.
        _ => Hint::Random,
    })
}

impl<'f, I, H> ReadStream<'f, I, H>
where
    I: Iterator<Item: Wanted>,
    H: Borrow<PagedFile> + Clone,
{
    fn new(handle: H, blocks: I, plan: Plan) -> ReadStream<'f, I, H> {
        let core = Arc::clone(handle.borrow().core());
        let from_device = handle.borrow().file().space.cache == CacheMode::Direct;
        ReadStream {
            handle,
            file: PhantomData,
            blocks,
            ended: false,
            paused: false,
            window: Window::new(),
            low: 0,
            distance: Distance::new(plan.start, plan.distance_most),
            policy: plan.policy,
            order: plan.order,
            expected_rows: plan.expected_rows,
            distance_most: plan.distance_most,
            known: plan.known,
            crowded: false,
            strategy: plan.strategy,
            deferred: Vec::new(),
            gaps: Gaps::default(),
            private: plan.hint.map(Private::new),
            waits: true,
            share: Share::new(core),
            watch: Arc::default(),
            traced: trace::stream_number(),
            stats: StreamStats::default(),
            found: 0,
            from_device,
            pace: Pace::default(),
            wanted: Vec::new(),
            seen: Vec::new(),
            runs: Vec::new(),
        }
    }

    /// Stops taking blocks from the iterator until [`ReadStream::resume`]: those known are still returned, then `None`.
    pub fn pause(&mut self) {
        self.paused = true;
    }

    /// Continues after [`ReadStream::pause`].
    pub fn resume(&mut self) {
        self.paused = false;
        // The reader did not use the time in between.
        self.pace = Pace { refilled: self.handle.borrow().core().clock.now(), ..Pace::default() };
    }

    /// Begins again with other blocks. Old blocks that are known and not returned are forgotten; the look-ahead
    /// distance is kept, reduced according to the number of pages requested in vain.
    pub fn reset<B>(&mut self, blocks: B)
    where
        B: IntoIterator<IntoIter = I>,
    {
        self.book_found();
        let wasted = self.let_go();
        self.distance.wasted(wasted);
        self.blocks = blocks.into_iter();
        self.ended = false;
        self.paused = false;
        self.stats.delivered_before_reset = self.stats.delivered;
    }

    /// Returns the stream's counters so far.
    pub fn stats(&self) -> StreamStats {
        StreamStats {
            delivered: self.stats.delivered + self.found,
            hits: self.stats.hits + self.found,
            distance: self.known.map_or(self.distance.blocks(), |_| self.distance_most),
            ..self.stats
        }
    }

    /// Counts the pages that were found in memory. This is deferred so that a hit stays cheap.
    fn book_found(&mut self) {
        let found = std::mem::take(&mut self.found);
        self.stats.delivered += found;
        self.stats.hits += found;
        self.distance.hits(u32::try_from(found).unwrap_or(u32::MAX));
    }

    /// The next block that the caller's iterator names.
    #[inline]
    fn pull(&mut self) -> Option<(Block, <I::Item as Wanted>::Data)> {
        if self.ended || self.paused {
            return None;
        }
        // If the iterator panics, it is not called again.
        self.ended = true;
        let wanted = self.blocks.next()?;
        self.ended = false;
        Some(wanted.into_parts())
    }

    /// Releases every known page. Returns how many of them were requested in vain.
    fn let_go(&mut self) -> u32 {
        let mut wasted = 0;
        self.deferred.clear();
        // All pins first: the caller's data may panic when it is dropped.
        for item in self.window.iter_mut() {
            if let State::Pinned { frame, asked } = item.state {
                item.state = State::Later;
                self.handle.borrow().core().cache.frames.unpin(frame);
                self.share.give_back();
                wasted += u32::from(asked);
            }
        }
        self.window.clear();
        wasted
    }

    /// True if the stream looks ahead now.
    fn looks_ahead(&self) -> bool {
        match &self.policy {
            Policy::Fixed(mode) => *mode != ReadMode::Plain,
            Policy::Adaptive(adaptive) => adaptive.mode() != ReadMode::Plain,
        }
    }
}

impl<'f, I, H> Iterator for ReadStream<'f, I, H>
where
    I: Iterator<Item: Wanted>,
    H: Borrow<PagedFile> + Clone,
{
    type Item =
        Result<Streamed<'f, <I::Item as Wanted>::Data, H>, StreamError<<I::Item as Wanted>::Data>>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if !self.window.is_empty() {
            return self.next_known();
        }
        let (block, data) = self.pull()?;
        let handle = self.handle.borrow();
        match handle.core().hit(handle.file(), block, Mode::Shared, &self.strategy) {
            Some(held) if self.traced.is_none() => {
                self.found += 1;
                let page = PageRef::from_held(&self.handle, held, block);
                Some(Ok(Streamed { page, data }))
            }
            hit => Some(self.first_of_window(block, data, hit.map(|held| held.frame))),
        }
    }
}

impl<I, H> Drop for ReadStream<'_, I, H>
where
    I: Iterator<Item: Wanted>,
    H: Borrow<PagedFile> + Clone,
{
    fn drop(&mut self) {
        self.let_go();
    }
}

impl<I, H> fmt::Debug for ReadStream<'_, I, H>
where
    I: Iterator<Item: Wanted>,
    H: Borrow<PagedFile> + Clone,
{
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ReadStream")
            .field("file", self.handle.borrow())
            .field("known", &self.window.len())
            .field("distance", &self.distance.blocks())
            .finish_non_exhaustive()
    }
}
