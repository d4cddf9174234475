//! Writing pages: copied one by one, written in runs.
//!
//! Invariants:  [OUT-1] no page is written before the log up to its newest change is durable
//!              [OUT-2] a page whose write failed is dirty, and in its frame
//!              [OUT-3] at most one write of a page is in progress (WRITING in its word)
//! Concurrency: any thread. Latches are waited for only while the thread holds no buffer and no other page's WRITING:
//!              see [WBF-1].

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use forebay_io::{File, Op, Request, Ticket};

use crate::cache::Disk as _;
use crate::cache::frame::FrameIndex;
use crate::cache::frame::word::{DIRTY, EXCLUSIVE, Touch, WRITING};
use crate::core::Core;
use crate::error::Error;
use crate::observe::stats::{Event, PoolEvent, Wait};
use crate::store::PageCopy;
use crate::store::file::FileCore;
use crate::strategy_kind::StrategyKind;
use crate::tag::{Lsn, PageTag};

/// Neighbouring pages that are written by one request.
struct Run {
    on_disk: File,
    /// In the file, in bytes.
    offset: u64,
    pages: usize,
}

/// The outcome of trying to copy a page.
pub(crate) enum Copying<'c> {
    Copied(PageCopy<'c>),
    /// It is clean, or discarded: there is nothing to write.
    Clean,
    /// Another thread holds the latch, or already writes it, or there is no buffer.
    NotNow,
}

impl Core {
    /// Copies the page `tag` from `frame`, which the caller has pinned, if that is possible at once.
    pub(crate) fn try_copy(
        &self,
        file: &Arc<FileCore>,
        tag: PageTag,
        frame: FrameIndex,
    ) -> Copying<'_> {
        let word = self.cache.frames.get(frame).word();
        if word.has(WRITING) {
            return Copying::NotNow;
        }
        if !word.has(DIRTY) {
            return Copying::Clean;
        }
        if !self.cache.frames.try_latch_passing(frame) {
            return Copying::NotNow;
        }
        self.copy_latched(file, tag, frame)
    }

    /// As [`Core::try_copy`], with the latch already held shared; releases the latch.
    pub(crate) fn copy_latched(
        &self,
        file: &Arc<FileCore>,
        tag: PageTag,
        frame: FrameIndex,
    ) -> Copying<'_> {
        let mut copying = self.take_copy(file, tag, frame);
        self.cache.frames.unlatch_shared(frame);
        if let Copying::Copied(copy) = &mut copying {
            // From here on a panic of the codec leaves the page as dirty as it was.
            copy.encode();
        }
        copying
    }

    /// As [`Core::copy_latched`], without releasing the latch, and not encoded.
    fn take_copy(&self, file: &Arc<FileCore>, tag: PageTag, frame: FrameIndex) -> Copying<'_> {
        let Some(mut buffer) = self.buffers.try_take() else {
            return Copying::NotNow;
        };
        if !self.cache.frames.begin_write(frame) {
            let writing = self.cache.frames.get(frame).word().has(WRITING);
            return if writing { Copying::NotNow } else { Copying::Clean };
        }
        // After WRITING was set (see `RedoPoint`), and under the latch before the bytes are copied: a thread that has
        // logged a change of the page before that redo point has released the latch.
        let redo = self.redo.now();
        self.memory.copy_out(frame, 0, buffer.bytes_mut());
        let copied = self.cache.frames.copied(frame);
        Copying::Copied(PageCopy::new(
            &self.cache,
            Arc::clone(file),
            tag.block,
            (frame, copied),
            redo,
            buffer,
        ))
    }

    /// Writes one page if that can be started at once. False when it was clean, or in use.
    pub(crate) fn write_page(
        &self,
        tag: PageTag,
        frame: FrameIndex,
        kind: StrategyKind,
    ) -> Result<bool, Error> {
        let Some(file) = self.files.get(tag.file) else {
            return Ok(false);
        };
        if !self.cache.frames.pin(frame, tag, Touch::Not) {
            return Ok(false);
        }
        loop {
            match self.try_copy(&file, tag, frame) {
                Copying::Copied(copy) => {
                    return self.write_copies(&file, vec![copy], kind).map(|()| true);
                }
                Copying::NotNow if self.buffers_are_out(frame) => self.buffers.wait(),
                Copying::Clean | Copying::NotNow => {
                    self.cache.frames.unpin(frame);
                    return Ok(false);
                }
            }
        }
    }

    /// True when only the lack of a buffer kept a page from being copied.
    fn buffers_are_out(&self, frame: FrameIndex) -> bool {
        let word = self.cache.frames.get(frame).word();
        word.has(DIRTY) && !word.has(WRITING | EXCLUSIVE)
    }

    /// Writes every page of `file` that is dirty now, in the order of blocks. Waits for exclusive latches: the caller
    /// must hold none of this file's.
    ///
    /// # Errors
    /// The first one. The pages that could not be written stay dirty; the others are written.
    pub(crate) fn flush_file(&self, file: &Arc<FileCore>) -> Result<u64, Error> {
        let mut batch: Vec<PageCopy<'_>> = Vec::new();
        let batch_most = (self.buffers.count() / 2).max(1);
        let (mut pages, mut first_error) = (0, None);
        let mut write = |batch: &mut Vec<PageCopy<'_>>| {
            pages += batch.len() as u64;
            let result = self.write_copies(file, std::mem::take(batch), StrategyKind::Normal);
            if let Err(error) = result {
                first_error.get_or_insert(error);
            }
        };
        for (block, frame) in file.table.mapped_and_unsaved() {
            let tag = PageTag { file: file.id, block };
            let word = self.cache.frames.get(frame).word();
            if !word.has(DIRTY | WRITING) || !self.cache.frames.pin(frame, tag, Touch::Not) {
                continue;
            }
            loop {
                match self.try_copy(file, tag, frame) {
                    Copying::Copied(copy) => {
                        batch.push(copy);
                        if batch.len() >= batch_most {
                            write(&mut batch);
                        }
                        break;
                    }
                    Copying::Clean => {
                        self.cache.frames.unpin(frame);
                        break;
                    }
                    // Wait without holding buffers: first write the held copies.
                    Copying::NotNow if !batch.is_empty() => write(&mut batch),
                    Copying::NotNow => self.wait_to_copy(frame),
                }
            }
        }
        if !batch.is_empty() {
            write(&mut batch);
        }
        first_error.map_or(Ok(pages), Err)
    }

    /// Sleeps until the pinned page may be ready to be copied.
    fn wait_to_copy(&self, frame: FrameIndex) {
        self.cache.frames.wait_written(frame);
        if self.cache.frames.get(frame).word().has(DIRTY) {
            self.cache.frames.wait_readable(frame);
            self.buffers.wait();
        }
    }

    /// Writes copies of pages of one file, in the order of their blocks, neighbours together, and releases the pins.
    pub(crate) fn write_copies(
        &self,
        file: &FileCore,
        mut copies: Vec<PageCopy<'_>>,
        kind: StrategyKind,
    ) -> Result<(), Error> {
        file.space.check_sound()?;
        copies.sort_unstable_by_key(PageCopy::block);
        // Before they are protected: a page that is not written in place would keep its slot of the double-write file.
        let (runs, mut first_error) = self.runs(file, &copies);
        copies.truncate(runs.iter().map(|run| run.pages).sum());
        self.flush_log(&copies)?;
        file.space.torn.protect(self, file, &mut copies)?;
        let single = copies.len() == 1;
        let io = if single { &file.space.sync_io } else { &file.space.queue };
        self.waiting(Wait::Write, || {
            let mut lent = copies.iter_mut().map(PageCopy::lend);
            let requests = runs.iter().map(|run| {
                let leases = lent.by_ref().take(run.pages).collect();
                file.space.torn.in_place(Request::write(&run.on_disk, run.offset, leases))
            });
            let tickets = io.submit_all(requests);
            let mut copies = copies.into_iter();
            for (ticket, run) in tickets.into_iter().zip(runs) {
                let run = copies.by_ref().take(run.pages).collect();
                if let Err(error) = self.end_run(file, run, ticket, kind) {
                    first_error.get_or_insert(error);
                }
            }
        });
        first_error.map_or(Ok(()), Err)
    }

    /// The runs of neighbours among the sorted `copies`, up to the first that has no place on disk, and why it has none.
    fn runs(&self, file: &FileCore, copies: &[PageCopy<'_>]) -> (Vec<Run>, Option<Error>) {
        let mut runs = Vec::new();
        let mut start = 0;
        while start < copies.len() {
            let first = copies[start].block();
            let most = self.combine_pages.min(file.space.torn.run_pages_max());
            let pages = (start..copies.len())
                .zip(first..)
                .take(most)
                .take_while(|&(at, block)| copies[at].block() == block)
                .count();
            match file.place_to_write(first, pages) {
                Ok((on_disk, offset)) => runs.push(Run { on_disk, offset, pages }),
                Err(error) => return (runs, Some(error)),
            }
            start += pages;
        }
        (runs, None)
    }

    fn end_run(
        &self,
        file: &FileCore,
        mut run: Vec<PageCopy<'_>>,
        ticket: Ticket,
        kind: StrategyKind,
    ) -> Result<(), Error> {
        let done = ticket.wait();
        let failed = done.result.is_err();
        file.counts.count(&self.counters, kind, Event::Writes);
        if failed {
            file.counts.count(&self.counters, kind, Event::WriteErrors);
        } else {
            let bytes = run.len() * self.page_bytes();
            file.counts.add(&self.counters, kind, Event::BytesWritten, bytes as u64);
        }
        for (copy, lease) in run.iter_mut().zip(done.leases) {
            copy.settle(lease, !failed);
        }
        done.result.map_err(|error| file.space.failure(Op::Write, error))
    }

    /// [OUT-1]
    fn flush_log(&self, copies: &[PageCopy<'_>]) -> Result<(), Error> {
        self.flush_log_to(copies.iter().map(PageCopy::lsn).max().unwrap_or(Lsn::NONE))
    }

    /// The newest record that may belong to an unmarked change: the end of the log ([GRD-2]).
    #[cold]
    pub(crate) fn end_of_log(&self) -> Lsn {
        let Some(wal) = &self.wal else { return Lsn::NONE };
        // A child has a copy of the log as well. It cannot write the page.
        if !self.owner.is_this() {
            return Lsn::NONE;
        }
        self.counters.count_pool(PoolEvent::UnloggedChanges);
        #[cfg(forebay_bug)]
        if forebay_io::bug::is_planted("ignore_end_of_log") {
            return Lsn::NONE;
        }
        // A panic would leave the page latched. Without an answer no record is known to suffice.
        let asked = catch_unwind(AssertUnwindSafe(|| wal.position()));
        asked.unwrap_or(Lsn(u64::MAX))
    }
}
