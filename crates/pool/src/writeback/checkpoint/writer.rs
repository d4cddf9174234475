//! The writing part of a checkpoint: from recorded pages to requests, in the elevator's order, at the pacer's pace.
//!
//! Pages are taken in runs of neighbours, each copied under its shared latch (see [`crate::writeback`]), and sent
//! together: one check of the log and one submission for as many runs as there is room for. A page that is latched
//! exclusively, or being written by another thread, is deferred; deferred pages are retried when everything else is
//! written, while no copies are held.
//!
//! Invariants:  [CKW-1] a latch is waited for only with no copy held and none being written
//!              [CKW-2] a page counts as done only when a write of it has succeeded, or it is clean, or discarded;
//!              otherwise its tablespace has an error
//! Failure:     an error belongs to its tablespace: the others are written completely.

use std::sync::Arc;
use std::time::Duration;

use super::elevator::Order;
use super::in_flight::{InFlight, Run, UnderWay};
use super::pacing::{Pacing, Step};
use super::pages::{Pages, SortBuffer};
use super::tablespace_state::TablespaceState;
use crate::cache::Disk as _;
use crate::cache::frame::NO_FRAME;
use crate::cache::frame::word::{
    CHECKPOINT, DIRTY, EXCLUSIVE, EXCLUSIVE_WAITS, Mode, Touch, WRITING,
};
use crate::core::Core;
use crate::core::checkpoint::RequestQueue;
use crate::error::Error;
use crate::observe::stats::{Event, Wait};
use crate::store::PageCopy;
use crate::store::file::FileCore;
use crate::store::torn::{Staging, Waiting};
use crate::strategy_kind::StrategyKind;
use crate::tag::{Block, FileId, Lsn, PageTag};
use crate::writeback::Copying;

/// Pages of a failed tablespace that are skipped at a time.
const PASSED_AT_ONCE: usize = 1024;

/// The resources for writing, kept from one checkpoint to the next.
pub(super) struct Writer<'c> {
    core: &'c Core,
    pub(super) in_flight: InFlight<'c>,
    staged: Vec<Run<'c>>,
    pub(super) tablespaces: Vec<TablespaceState>,
    /// Most requests in progress in each tablespace.
    depth: usize,
    /// Most pages in a request.
    combine: usize,
    /// Copies that are held or being written, by tablespace.
    copies: Vec<usize>,
    /// Their maximum in each.
    copies_most: usize,
    pub(super) pages_by_others: u64,
    pub(super) pages_invalidated: u64,
    /// Deferred pages are being retried: with no copies held, the writer waits for them.
    patient: bool,
    /// When the checkpoint started, by the pool's clock.
    started: Duration,
}

/// The outcome for one page.
enum Taken<'c> {
    Copied(PageCopy<'c>),
    /// Another thread has written it.
    ByOthers,
    /// It was dropped with its file, or truncated.
    Invalidated,
    /// Latched, or being written.
    Busy,
    /// There is no write buffer.
    NoBuffer,
}

impl<'c> Writer<'c> {
    pub(super) fn new(core: &'c Core, depth_most: usize) -> Writer<'c> {
        let tablespaces = core.spaces.len();
        Writer {
            core,
            in_flight: InFlight::new(core, depth_most),
            staged: Vec::with_capacity(depth_most * tablespaces),
            tablespaces: Vec::with_capacity(tablespaces),
            depth: depth_most,
            combine: core.combine_pages,
            copies: vec![0; tablespaces],
            // Others need buffers, too: threads that need a frame, and the cleaner.
            copies_most: (core.buffers.count() / 2 / tablespaces).max(1),
            pages_by_others: 0,
            pages_invalidated: 0,
            patient: false,
            started: Duration::ZERO,
        }
    }

    /// Starts another checkpoint.
    pub(super) fn begin(&mut self, started: Duration, depth: usize, combine: bool) {
        self.started = started;
        self.depth = depth;
        self.combine = if combine { self.core.combine_pages } else { 1 };
        (self.pages_by_others, self.pages_invalidated) = (0, 0);
        self.patient = false;
    }

    fn elapsed(&self) -> Duration {
        self.core.clock.now().saturating_sub(self.started)
    }

    /// Writes everything that `buffer` holds.
    pub(super) fn write(
        &mut self,
        buffer: &mut SortBuffer,
        order: &mut Order,
        pacing: &mut Pacing<'_>,
        checkpoints: &RequestQueue,
    ) -> Result<(), Error> {
        let core = self.core;
        let tablespace_of = |id: FileId| core.files.tablespace(id);
        loop {
            let round = self.round(&mut buffer.pages(&tablespace_of), order, pacing, checkpoints);
            if round.is_err() {
                self.break_off(checkpoints);
                return round;
            }
            if buffer.turn_to_deferred() == 0 {
                self.tablespaces.iter_mut().for_each(TablespaceState::start_writeback);
                return Ok(());
            }
            // Everything in progress has ended, so the first page of the next round may be waited for.
            self.patient = true;
        }
    }

    /// Drops the held copies, and waits for writes in progress.
    fn break_off(&mut self, checkpoints: &RequestQueue) {
        for run in self.staged.drain(..) {
            self.copies[run.tablespace] -= run.copies.len();
            self.in_flight.give_back(run.copies);
        }
        while !self.in_flight.is_empty() {
            self.in_flight.wait();
            self.reap(checkpoints);
        }
    }

    fn round(
        &mut self,
        pages: &mut Pages<'_>,
        order: &mut Order,
        pacing: &mut Pacing<'_>,
        checkpoints: &RequestQueue,
    ) -> Result<(), Error> {
        order.begin(pages);
        let mut left = pages.len();
        loop {
            self.reap(checkpoints);
            if checkpoints.is_stopped() {
                return Err(Error::Closed);
            }
            pacing.under_way(self.copies.iter().sum());
            let most = match pacing.step() {
                Step::Go(most) => most,
                // A thread that holds buffers does not rest.
                Step::RestWhenEmpty => 0,
                Step::Rested => continue,
            };
            let before = left;
            let starved = self.fill(pages, order, most, &mut left, checkpoints);
            self.send(checkpoints);
            if !self.in_flight.is_empty() {
                self.core.waiting(Wait::Write, || self.in_flight.wait());
            } else if !self.staged.is_empty() {
                // Some of it could not be sent; now the rest is tried.
            } else if left == 0 {
                return Ok(());
            } else if starved {
                self.core.buffers.wait();
            } else {
                assert!(left < before || most == 0, "[ELV-1] pages are left, and none is named");
            }
        }
    }

    /// Takes pages until `most` are held (or a few more, to finish a run of neighbours), there is no room for more, or
    /// none is `left`. True when it ended for want of a write buffer.
    fn fill(
        &mut self,
        pages: &mut Pages<'_>,
        order: &mut Order,
        most: usize,
        left: &mut usize,
        checkpoints: &RequestQueue,
    ) -> bool {
        let mut taken = 0;
        while *left > 0 && taken < most {
            let Some(at) = order.next(pages, |tablespace| self.has_room(tablespace)) else {
                return false;
            };
            let (count, copied, no_buffer) = self.take(pages, at, checkpoints);
            if count > 0 {
                pages.take(at, count);
                order.took(at, count);
                *left -= count;
                taken += copied;
            }
            if no_buffer {
                return true;
            }
        }
        false
    }

    fn has_room(&self, tablespace: usize) -> bool {
        let requests = self.in_flight.requests(tablespace)
            + self.staged.iter().filter(|run| run.tablespace == tablespace).count();
        let staged = self.staged.len();
        self.tablespaces[tablespace].is_lost()
            || (requests < self.depth.min(self.core.spaces[tablespace].depth())
                && self.copies[tablespace] < self.copies_most
                && self.in_flight.has_room(tablespace, staged))
    }

    /// Takes the page at `at` and its neighbours. Returns how many are done, how many of them were copied, and whether
    /// it ended for want of a buffer.
    fn take(
        &mut self,
        pages: &mut Pages<'_>,
        at: usize,
        checkpoints: &RequestQueue,
    ) -> (usize, usize, bool) {
        let (first, tablespace) = (pages.get(at), pages.tablespace(at));
        if self.tablespaces[tablespace].is_lost() {
            let lost = |it: &usize| pages.is_left(*it) && pages.get(*it).file == first.file;
            let passed = (at..pages.len()).take_while(lost).take(PASSED_AT_ONCE).count();
            checkpoints.settled(passed as u64);
            return (passed, 0, false);
        }
        let Some(file) = self.core.files.get(first.file) else {
            self.pages_invalidated += 1;
            checkpoints.settled(1);
            return (1, 0, false);
        };
        let most = self
            .combine
            .min(file.space.torn.run_pages_max())
            .min(self.copies_most - self.copies[tablespace]);
        let mut copies = self.in_flight.copies();
        let (mut count, mut no_buffer) = (0, false);
        while count < most && pages.is_left(at + count) {
            let tag = pages.get(at + count);
            if tag.file != first.file || tag.block != first.block + count as Block {
                break;
            }
            let empty_hands =
                copies.is_empty() && self.staged.is_empty() && self.in_flight.is_empty();
            match self.take_page(&file, tag, self.patient && empty_hands) {
                Taken::Copied(copy) => {
                    copies.push(copy);
                    count += 1;
                    continue;
                }
                Taken::ByOthers => {
                    self.pages_by_others += 1;
                    checkpoints.settled(1);
                }
                Taken::Invalidated => {
                    self.pages_invalidated += 1;
                    checkpoints.settled(1);
                }
                Taken::Busy => pages.defer(tag),
                Taken::NoBuffer => {
                    no_buffer = true;
                    break;
                }
            }
            count += 1;
            break;
        }
        let copied = copies.len();
        if copied == 0 {
            self.in_flight.give_back(copies);
            return (count, 0, no_buffer);
        }
        match file.place_to_write(first.block, copied) {
            Ok((on_disk, offset)) => {
                self.copies[tablespace] += copied;
                self.staged.push(Run { tablespace, copies, on_disk, offset, is_protected: false });
            }
            Err(error) => {
                self.in_flight.give_back(copies);
                checkpoints.settled(copied as u64);
                self.tablespaces[tablespace].failed(error);
            }
        }
        (count, copied, no_buffer)
    }

    /// Takes one page; `patient`: if it is latched or being written, after waiting for that.
    fn take_page(&self, file: &Arc<FileCore>, tag: PageTag, patient: bool) -> Taken<'c> {
        let frames = &self.core.cache.frames;
        let frame = file.table.lookup(tag.block);
        if frame == NO_FRAME || !frames.pin(frame, tag, Touch::Not) {
            let invalidated = matches!(file.check_now(tag.block), Some(Err(_)));
            return if invalidated { Taken::Invalidated } else { Taken::ByOthers };
        }
        if patient {
            let empty_hands = self.in_flight.is_empty() && self.staged.is_empty();
            assert!(empty_hands, "[CKW-1] a checkpoint waits for a latch with copies in hand");
            frames.wait_written(frame);
        }
        let word = frames.get(frame).word();
        // A write in progress first: if it fails, the page is due again.
        let taken = if word.has(WRITING) {
            Taken::Busy
        } else if !word.has(CHECKPOINT) {
            Taken::ByOthers
        } else if patient && word.has(EXCLUSIVE | EXCLUSIVE_WAITS) {
            // In the queue of threads that wait for the latch, or one writer after the other would be first.
            self.core.cache.latch_pinned(self.core, frame, Mode::Shared);
            match self.core.copy_latched(file, tag, frame) {
                Copying::Copied(copy) => return Taken::Copied(copy),
                Copying::Clean => {
                    frames.unmark_due(frame);
                    Taken::ByOthers
                }
                Copying::NotNow if frames.get(frame).word().has(WRITING) => Taken::Busy,
                Copying::NotNow => Taken::NoBuffer,
            }
        } else if word.has(EXCLUSIVE) {
            Taken::Busy
        } else if !word.has(DIRTY) {
            // The thread that had it exclusively when it was recorded has changed nothing.
            frames.unmark_due(frame);
            Taken::ByOthers
        } else {
            match self.core.try_copy(file, tag, frame) {
                Copying::Copied(copy) => return Taken::Copied(copy),
                Copying::Clean => Taken::Busy,
                Copying::NotNow => {
                    let word = frames.get(frame).word();
                    let barred = word.has(EXCLUSIVE | WRITING) || !word.has(DIRTY);
                    if barred { Taken::Busy } else { Taken::NoBuffer }
                }
            }
        };
        frames.unpin(frame);
        taken
    }

    /// Sends the taken pages, after flushing their log. Pages that must wait for writes in progress stay held.
    fn send(&mut self, checkpoints: &RequestQueue) {
        for tablespace in 0..self.tablespaces.len() {
            if !self.waits_to_coalesce(tablespace) {
                self.send_of(tablespace, Waiting::Never, checkpoints);
            }
        }
        for tablespace in 0..self.tablespaces.len() {
            // Only other threads' writes are in the way.
            if self.in_flight.is_empty() {
                self.send_of(tablespace, Waiting::ForWrites, checkpoints);
            }
        }
        self.in_flight.start();
    }

    /// A few pages are better protected from torn writes together with others, while there is time.
    fn waits_to_coalesce(&self, tablespace: usize) -> bool {
        let in_hand = self.staged.iter().filter(|run| run.tablespace == tablespace);
        let pages: usize = in_hand.map(|run| run.copies.len()).sum();
        self.core.spaces[tablespace].torn.prefers_coalescing()
            && self.in_flight.requests(tablespace) > 0
            && pages < self.copies_most / 2
    }

    fn send_of(&mut self, tablespace: usize, waiting: Waiting, checkpoints: &RequestQueue) {
        let of_tablespace = self.staged.iter().filter(|run| run.tablespace == tablespace);
        let newest = of_tablespace.flat_map(|run| &run.copies).map(PageCopy::lsn).max();
        let Some(newest) = newest else { return };
        let ready = self
            .ready(tablespace, newest)
            .and_then(|()| self.protect(tablespace, waiting, checkpoints));
        if let Err(error) = ready {
            self.tablespaces[tablespace].failed(error);
            // Latched or not, these cannot be written.
            self.give_up(|run| run.tablespace == tablespace, checkpoints);
            return;
        }
        for run in
            self.staged.extract_if(.., |run| run.tablespace == tablespace && run.is_protected)
        {
            let counts = &run.copies[0].file().counts;
            counts.count(&self.core.counters, StrategyKind::Normal, Event::Writes);
            self.in_flight.stage_write(run);
        }
    }

    /// Drops held runs.
    fn give_up(&mut self, which: impl Fn(&Run<'c>) -> bool, checkpoints: &RequestQueue) {
        for run in self.staged.extract_if(.., |run| which(run)) {
            self.copies[run.tablespace] -= run.copies.len();
            checkpoints.settled(run.copies.len() as u64);
            self.in_flight.give_back(run.copies);
        }
    }

    /// Prepares the held copies of a tablespace for writing.
    fn ready(&self, tablespace: usize, newest: Lsn) -> Result<(), Error> {
        self.core.spaces[tablespace].check_sound()?;
        self.core.flush_log_to(newest)
    }

    /// Makes sure that the held runs of a tablespace can be repaired if they are torn, as many as there is room for.
    fn protect(
        &mut self,
        tablespace: usize,
        mut waiting: Waiting,
        checkpoints: &RequestQueue,
    ) -> Result<(), Error> {
        let (core, space) = (self.core, &self.core.spaces[tablespace]);
        let mut staging = Staging::default();
        let mut failed = None;
        for run in self.staged.iter_mut().filter(|run| run.tablespace == tablespace) {
            let file = Arc::clone(run.copies[0].file());
            match space.torn.stage(core, &file, &mut run.copies, waiting, &mut staging) {
                Ok(true) => run.is_protected = true,
                Ok(false) => break,
                Err(error) => {
                    failed = Some((run.offset, run.on_disk.clone(), error));
                    break;
                }
            }
            // From here on others may be waiting for this thread.
            waiting = Waiting::Never;
        }
        if let Some((offset, on_disk, error)) = failed {
            self.tablespaces[tablespace].failed(error);
            self.give_up(|run| run.offset == offset && run.on_disk.is_of(&on_disk), checkpoints);
        }
        space.torn.make_durable(core, space, &staging)?;
        for run in self.staged.iter().filter(|run| run.tablespace == tablespace && run.is_protected)
        {
            space.torn.made_durable(run.copies[0].file(), &run.copies);
        }
        Ok(())
    }

    /// Processes completed writes.
    fn reap(&mut self, checkpoints: &RequestQueue) {
        while let Some((ended, result)) = self.in_flight.take_ended() {
            let UnderWay::Write(run) = ended else { continue };
            let Run { tablespace, copies, on_disk, offset, .. } = run;
            let (pages, file) = (copies.len(), Arc::clone(copies[0].file()));
            self.copies[tablespace] -= pages;
            self.in_flight.give_back(copies);
            checkpoints.settled(pages as u64);
            match result {
                Ok(()) => {
                    let bytes = (pages * self.core.page_bytes()) as u64;
                    let (counters, kind) = (&self.core.counters, StrategyKind::Normal);
                    file.counts.add(counters, kind, Event::BytesWritten, bytes);
                    let now = self.elapsed();
                    self.tablespaces[tablespace].wrote(
                        pages,
                        &on_disk,
                        offset..offset + bytes,
                        now,
                    );
                }
                Err(error) => {
                    let (counters, kind) = (&self.core.counters, StrategyKind::Normal);
                    file.counts.count(counters, kind, Event::WriteErrors);
                    let error = self.core.spaces[tablespace].failure(forebay_io::Op::Write, error);
                    self.tablespaces[tablespace].failed(error);
                }
            }
        }
    }
}
