//! Refilling the window: blocks are named, and those not in memory are requested, sorted and merged.

use std::borrow::Borrow;

use forebay_io::{Advice, CacheMode};
use forebay_lookahead::{Limits, ReadMode, Run, cached_batch_max};

use super::deferred::DeferredRun;
use super::deliver::Held;
use super::window::State;
use super::{Pace, Policy, ReadStream, Wanted};
use crate::api::options::Order;
use crate::api::paged_file::PagedFile;
use crate::cache::frame::word::{AHEAD, QUEUED, READING, Touch, VALID};
use crate::cache::frame::{Frame, NO_FRAME};
use crate::observe::stats::Event;
use crate::readahead::trace::{self, Action, Why};
use crate::readahead::{Ahead, Submitted, requests};
use crate::tag::Block;

/// Most unneeded blocks read through, per hundred needed. Source: Seastar limits read-ahead waste to 25 %; that suits
/// users who pay by the byte as well.
const OVER_READ_PERCENT: u32 = 25;

/// Most runs to remember for a later read, before those of a batch are added.
const DEFERRED_MAX: usize = 1024;

/// Requests in progress, per request that the device can use, so that the next ones can be assembled meanwhile.
const KEPT_BUSY: usize = 2;

/// When frames are short, a stream of blocks that are all needed knows only one in this many of the maximum.
const CROWDED_PART: usize = 4;

/// The part of the time since the last batch that the reader must have spent waiting for the batch, for its time to say
/// anything about the device: then the device was kept busy. In percent.
const BUSY_PERCENT: u32 = 70;

/// The number of blocks to request when `rows` are expected: some more, as a row may be skipped, and 16 for 10. Source:
/// the issue of LIMIT queries that PostgreSQL's index prefetching ran into.
pub(super) fn rows_asked(rows: u64) -> u32 {
    u32::try_from(rows.saturating_add(rows / 5 * 3)).unwrap_or(u32::MAX).max(1)
}

impl<'f, I, H> ReadStream<'f, I, H>
where
    I: Iterator<Item: Wanted>,
    H: Borrow<PagedFile> + Clone,
{
    /// Blocks that may be known now.
    fn window_most(&mut self) -> usize {
        let most = self.distance_most.min(self.share.most());
        if let Some(depth) = self.known {
            return self.known_most().min(self.window.len() + self.batch(depth));
        }
        self.distance.set_most(most);
        let mut ahead = self.distance.blocks();
        if let Policy::Adaptive(adaptive) = &self.policy {
            ahead = adaptive.window(ahead).min(most);
        }
        let delivered = self.stats.delivered - self.stats.delivered_before_reset;
        let by_rows = match self.expected_rows {
            Some(rows) if delivered < rows => u64::from(rows_asked(rows)).saturating_sub(delivered),
            // More rows than expected: then as many again, and so on.
            Some(_) => delivered,
            None => u64::MAX,
        };
        u64::from(ahead).min(by_rows).max(1) as usize
    }

    /// Most blocks that may be known, if all of them are needed.
    fn known_most(&self) -> usize {
        let most = self.distance_most.min(self.share.most()) as usize;
        if self.crowded { most.div_ceil(CROWDED_PART) } else { most }
    }

    /// Blocks to request at once, if all of them are needed. A larger batch merges better; but the device should get
    /// work soon, and the caller should have little left to process when the device has finished.
    fn batch(&self, depth: usize) -> usize {
        let few = KEPT_BUSY * depth;
        if self.window.len() <= 1 {
            return few;
        }
        let left = self.blocks.size_hint().0;
        (left / 2).clamp(few, few.max(depth * self.handle.borrow().core().combine_pages))
    }

    /// True when it is time to name more blocks.
    #[inline]
    pub(super) fn is_due(&self) -> bool {
        if self.ended || self.paused {
            return false;
        }
        self.window.len() <= self.low || self.known.is_some_and(|depth| self.device_runs_dry(depth))
    }

    /// True if the queue will soon have fewer requests than the device can use, and a batch has room in the window.
    fn device_runs_dry(&self, depth: usize) -> bool {
        let io = &self.handle.borrow().file().space.queue;
        if io.in_flight() >= KEPT_BUSY * depth {
            return false;
        }
        let most = self.known_most();
        let room = most.saturating_sub(self.window.len());
        room > 0 && room >= self.batch(depth).min(most / 2)
    }

    /// True while fewer rows have been taken than were expected.
    fn counts_rows(&self) -> bool {
        let delivered = self.stats.delivered - self.stats.delivered_before_reset;
        self.expected_rows.is_some_and(|rows| delivered < rows)
    }

    /// Names and requests more blocks, once half of the window has been used.
    #[inline]
    pub(super) fn refill(&mut self) {
        if self.is_due() {
            self.refill_behind_first();
        }
    }

    /// Names as many blocks as the window allows, and requests those that have not been decided on.
    pub(super) fn refill_behind_first(&mut self) {
        let most = self.window_most();
        self.low = most / 2;
        self.take_stock();
        let core = self.handle.borrow().core();
        if core.budget.room() == 0 {
            core.take_in_prefetched();
        }
        while self.window.len() < most {
            let Some((block, data)) = self.pull() else { break };
            self.window.push(block, data);
        }
        let start = self.handle.borrow().core().clock.now();
        self.ask();
        self.pace.asking += self.handle.borrow().core().clock.now().saturating_sub(start);
    }

    /// Evaluates what the time since the last batch says about device and reader.
    fn take_stock(&mut self) {
        let now = self.handle.borrow().core().clock.now();
        let elapsed = now.saturating_sub(self.pace.refilled);
        let ended = self.watch.take();
        if ended.requests > 0 {
            self.distance.latency(ended.latency / u32::try_from(ended.requests).unwrap_or(1));
            let requests = u32::try_from(ended.requests).unwrap_or(u32::MAX);
            if self.from_device && self.pace.waited_for_reads >= elapsed / 100 * BUSY_PERCENT {
                self.handle.borrow().file().space.observe(requests, ended.bytes, elapsed);
            }
        }
        if self.pace.delivered > 0 {
            let own = elapsed.saturating_sub(self.pace.waited);
            self.distance.interval(own / self.pace.delivered);
        }
        if let Policy::Adaptive(adaptive) = &mut self.policy {
            let known = u32::try_from(self.window.len()).unwrap_or(u32::MAX);
            let spent = self.pace.asking + self.pace.waited;
            if let Some(winner) = adaptive.spent(self.pace.read, spent, known) {
                self.handle.borrow().file().space.winners.set(adaptive.is_scan(), winner);
            }
        }
        self.pace = Pace { refilled: now, ..Pace::default() };
    }

    /// Decides on every named block: requests those that are not in memory.
    pub(super) fn ask(&mut self) {
        if self.order == Order::Any {
            self.window.sort_named();
        }
        let file = self.handle.borrow().file();
        self.window.named_sorted(&mut self.wanted);
        let limits = self.limits();
        requests(file, &mut self.wanted, limits, &mut self.runs);

        // A child process cannot request anything.
        let mode = if file.check_owner().is_ok() { self.choose() } else { ReadMode::Plain };
        let submitted = match mode {
            ReadMode::Plain => {
                self.runs.clear();
                self.read_runs(false)
            }
            ReadMode::Inline => self.read_inline(),
            ReadMode::Kernel | ReadMode::Hint => return self.note_runs(mode == ReadMode::Hint),
            ReadMode::Queue => self.read_runs(true),
        };
        self.stats.requests += u64::from(submitted.requests);
        self.stats.asked += u64::from(submitted.pages);
        self.stats.gap_blocks += u64::from(submitted.gaps);
        self.gaps.read(submitted.gaps);
        self.crowded = submitted.backed_off;
        if submitted.backed_off {
            self.stats.backed_off += 1;
            self.unpin_all();
            self.distance.halve();
        }
    }

    /// The limits for the requests of the next batch.
    fn limits(&self) -> Limits {
        let (core, file) = (self.handle.borrow().core(), self.handle.borrow().file());
        let combine_blocks = core.combine_pages as u32;
        if self.counts_rows() {
            return Limits { combine_blocks, gap_blocks: 0, over_read_percent: 0 };
        }
        let gap_blocks = file.space.gap_blocks();
        // The cost of a gap is the part of it that is not needed later.
        let lost = if self.window.ascends() { 100 } else { self.gaps.lost_percent() };
        Limits {
            combine_blocks,
            gap_blocks: if lost < 100 { (gap_blocks + 1) * 100 / lost } else { gap_blocks },
            over_read_percent: OVER_READ_PERCENT * 100 / lost,
        }
    }

    /// There were not enough frames for all reads: releases the pins of the pages that were read, or this stream itself
    /// would hold the frame that its next block needs.
    fn unpin_all(&mut self) {
        for item in self.window.iter_mut() {
            if let State::Pinned { frame, .. } = item.state {
                item.state = State::Later;
                self.handle.borrow().core().cache.frames.unpin(frame);
                self.share.give_back();
            }
        }
    }

    fn choose(&mut self) -> ReadMode {
        let adaptive = match &mut self.policy {
            Policy::Fixed(mode) => return *mode,
            Policy::Adaptive(adaptive) => adaptive,
        };
        if adaptive.mode() == ReadMode::Inline {
            // While its reads are fast.
            return ReadMode::Inline;
        }
        let Some(first) = self.runs.first() else {
            return adaptive.disk_mode();
        };
        let middle = self.runs[self.runs.len() / 2];
        let (file, page_bytes) =
            (self.handle.borrow().file(), self.handle.borrow().core().page_bytes() as u64);
        let cached = |run: &Run| {
            let (on_disk, offset) = file.place(run.first);
            let range = offset..offset + u64::from(run.blocks) * page_bytes;
            let residency = on_disk.residency(range).ok()?;
            Some(residency.pages_resident >= residency.pages)
        };
        let wanted = adaptive.wants_sample().then_some(first);
        let cached = wanted.and_then(cached).and_then(|first| Some(first && cached(&middle)?));
        self.from_device = file.space.cache == CacheMode::Direct || cached == Some(false);
        adaptive.batch(cached, self.wanted.len() as u32, self.runs.len() as u32)
    }

    /// Reads `runs` synchronously, all at once.
    fn read_inline(&mut self) -> Submitted {
        let start = self.handle.borrow().core().clock.now();
        let submitted = self.read_runs(false);
        let took = self.handle.borrow().core().clock.now().saturating_sub(start);
        self.pace.waited += took;
        if let Policy::Adaptive(adaptive) = &mut self.policy {
            adaptive.read_inline(took, submitted.requests, submitted.pages + submitted.gaps);
        }
        submitted
    }

    /// Reads `runs` into frames, by the queue, or by this thread; pins the named blocks.
    fn read_runs(&mut self, queued: bool) -> Submitted {
        let ahead = Ahead {
            core: self.handle.borrow().core(),
            file: self.handle.borrow().file(),
            strategy: &self.strategy,
            through: self.private.as_ref(),
            queued,
            watch: Some(&self.watch),
            traced: self.traced,
            why: None,
            waits: self.waits,
            prefetched: false,
        };
        let (window, share, stats) = (&mut self.window, &mut self.share, &mut self.stats);
        let gaps = &mut self.gaps;
        let (wanted, runs) = (&self.wanted, &self.runs);
        let seen = &mut self.seen;
        seen.clear();
        seen.resize(wanted.len(), runs.is_empty());
        ahead.submit(runs, wanted, || {
            let (core, file) = (ahead.core, ahead.file);
            for item in window.newly_named() {
                item.state = State::Later;
                let frame = file.table.lookup(item.block);
                if frame == NO_FRAME || !share.take() {
                    continue;
                }
                if !core.cache.frames.pin(frame, file.tag(item.block), Touch::Not) {
                    share.give_back();
                    continue;
                }
                // When a block is named twice, the second one is a hit.
                let asked = wanted
                    .binary_search(&item.block)
                    .is_ok_and(|place| !std::mem::replace(&mut seen[place], true));
                item.state = State::Pinned { frame, asked };
                let word = core.cache.frames.get(frame).word();
                let why = if asked {
                    continue;
                } else if word.has(READING) && !word.has(VALID) {
                    file.counts.count(&core.counters, ahead.strategy.kind(), Event::PrefetchJoined);
                    stats.joined += 1;
                    // Probably its own gaps; if another stream's, gaps seem better than they are.
                    gaps.used += u32::from(word.has(QUEUED));
                    Why::Joined
                } else {
                    stats.hits += 1;
                    gaps.used += u32::from(word.has(AHEAD));
                    Why::Hit
                };
                trace::record(ahead.traced, file.id, (item.block, 1), Action::Request, why);
            }
        })
    }

    /// Defers `runs` until the reader reaches them; if `hinted` is set, a hint makes the kernel fetch them into its page
    /// cache meanwhile.
    fn note_runs(&mut self, hinted: bool) {
        let (core, file) = (self.handle.borrow().core(), self.handle.borrow().file());
        for item in self.window.newly_named() {
            item.state = State::Later;
            let frame = file.table.lookup(item.block);
            // Not pinned: it may be another page by now, which a statistic tolerates.
            let word =
                core.cache.frames.find(frame).map(Frame::word).filter(|word| word.has(VALID));
            self.stats.hits += u64::from(word.is_some());
            self.gaps.used += u32::from(word.is_some_and(|word| word.has(AHEAD)));
        }
        let page_bytes = core.page_bytes() as u64;
        if self.deferred.len() > DEFERRED_MAX {
            // Blocks that were found in memory after all. Forgetting one costs a smaller read.
            self.deferred.clear();
        }
        self.stats.asked += self.wanted.len() as u64;
        self.stats.requests += self.runs.len() as u64;
        for &run in &self.runs {
            self.deferred.push(DeferredRun { run, hinted });
            self.stats.gap_blocks += u64::from(run.blocks - run.wanted);
            self.gaps.read(run.blocks - run.wanted);
            if !hinted {
                continue;
            }
            let (on_disk, offset) = match &self.private {
                Some(private) => private.place(file, run.first),
                None => file.place(run.first),
            };
            let range = offset..offset + u64::from(run.blocks) * page_bytes;
            if let Err(error) = on_disk.advise(range, Advice::WillNeed) {
                tracing::warn!(%error, "the kernel cannot be asked to fetch");
                if let Policy::Adaptive(adaptive) = &mut self.policy {
                    adaptive.without_hints();
                }
            }
            let why = if run.blocks == 1 { Why::Single } else { Why::Merged };
            trace::record(self.traced, file.id, (run.first, run.blocks), Action::Hint, why);
        }
        // Batches overlap when their blocks do; the later entry is as good as the earlier.
        self.deferred.sort_unstable_by_key(|deferred| deferred.run.first);
        self.deferred.dedup_by_key(|deferred| deferred.run.first);
    }

    /// Returns the deferred run with `block`, which must be read now, if no other reader has read it since.
    pub(super) fn take_deferred(&mut self, block: Block) -> Option<DeferredRun> {
        let place = self.deferred.partition_point(|it| it.run.first <= block).checked_sub(1)?;
        let run = self.deferred[place].run;
        (block - run.first < run.blocks).then(|| self.deferred.remove(place))
    }

    /// Reads a run that the kernel has fetched, or is about to, into frames. Returns the frame of `block`, pinned until
    /// it is handed out; `None` if there was no frame for it.
    pub(super) fn read_deferred(&mut self, deferred: DeferredRun, block: Block) -> Option<Held<H>> {
        let DeferredRun { run, hinted } = deferred;
        let handle = self.handle.clone();
        let core = handle.borrow().core();
        let start = core.clock.now();
        let ahead = Ahead {
            core,
            file: self.handle.borrow().file(),
            strategy: &self.strategy,
            through: self.private.as_ref(),
            queued: false,
            watch: None,
            traced: self.traced.filter(|_| !hinted), // otherwise the hint represents it
            why: None,
            waits: true,
            prefetched: false,
        };
        let blocks: Vec<Block> = (run.first..run.first + run.blocks)
            .filter(|&block| ahead.file.table.lookup(block) == NO_FRAME)
            .collect();
        let mut pinned = None;
        ahead.submit(&[run], &blocks, || {
            let frame = ahead.file.table.lookup(block);
            let tag = ahead.file.tag(block);
            if frame != NO_FRAME && core.cache.frames.pin(frame, tag, Touch::Not) {
                pinned = Some(Held::new(handle.clone(), frame));
            }
        });
        let took = core.clock.now().saturating_sub(start);
        self.pace.waited += took;
        if took > cached_batch_max(1, run.blocks, core.page_bytes()) {
            self.stats.waits += 1;
            self.stats.waited += took;
            self.distance.waited(took);
        } else {
            self.distance.ready();
        }
        pinned
    }
}
