//! The cache: pages in frames, and all operations on them.
//!
//! The hit, the miss, the victim, the failed read, the read-ahead that ends on another thread, the truncation: all of
//! it is here, and none of it depends on a disk, a log or a thread of the pool. Its view of them is [`Disk`]. The pool
//! implements it (`crate::disk`), and so does an array of numbers (`models`): loom and shuttle run this code itself,
//! not a copy of it.
//!
//! Concurrency: any thread may call everything here; each step documents what it relies on.

mod discard;
pub(crate) mod file;
pub(crate) mod frame;
mod load;
#[cfg(test)]
mod models;
pub(crate) mod replacement;
mod shrink;
pub(crate) mod table;
mod task;
mod victim;

pub(crate) use load::{Absent, Asked, VersionedFrame, touch};
pub(crate) use task::{Held, WaitResult};

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use crate::error::Error;
use crate::observe::stats::{Counters, Wait};
use crate::strategy_kind::StrategyKind;
use crate::tag::{Block, FileId, Lsn, PageTag};
use file::CachedFile;
use frame::word::DIRTY;
use frame::{Copied, FrameIndex, Frames, Loading};
use replacement::{AccessStrategy, ClockSweep};

/// Pages in frames.
pub(crate) struct Cache {
    pub(crate) frames: Frames,
    pub(crate) replacement: ClockSweep,
    /// How long a thread waits for a frame before it returns an error.
    pub(crate) frame_wait: Duration,
}

impl Cache {
    /// Marks the exclusively latched page `block` of `file` as dirty, with a change up to `lsn`. It is counted first: a
    /// thread that discards it at this moment subtracts it from the count ([TAB-3]).
    pub(crate) fn mark_dirty(&self, file: &CachedFile, block: Block, frame: FrameIndex, lsn: Lsn) {
        let counts = !self.frames.get(frame).word().has(DIRTY);
        if counts {
            file.table.count_unsaved(block);
        }
        if !self.frames.mark_dirty(frame, lsn) && counts {
            file.table.count_saved(block);
        }
    }

    /// The write of a copy has ended, successfully unless it `failed`: releases the pin of the copy.
    pub(crate) fn end_write(
        &self,
        file: &CachedFile,
        block: Block,
        frame: FrameIndex,
        failed: Option<Copied>,
    ) {
        if self.frames.end_write(frame, failed) {
            file.table.count_saved(block);
        }
        self.frames.unpin(frame);
    }
}

/// The cache's environment: files and the source of their pages, the log, the time.
pub(crate) trait Disk {
    /// A file of pages.
    type File: Deref<Target = CachedFile>;
    /// The reader of a page, and its parameters.
    type Reader<'a>: Copy;

    fn counters(&self) -> &Counters;

    fn now(&self) -> Duration;

    /// The open file of that number.
    fn file(&self, id: FileId) -> Option<Arc<Self::File>>;

    /// Where the file is stored: if one file there cannot be written, no other can.
    fn tablespace(&self, file: &Self::File) -> usize;

    /// Called when `block` is about to be read, and nothing is mapped yet: the following blocks may be read as well.
    /// May wait for the log and panic.
    fn missed(
        &self,
        file: &Self::File,
        block: Block,
        strategy: &AccessStrategy,
        reader: Self::Reader<'_>,
    );

    /// Fills the frame of `loading` with the page `block` as it is on disk, and verifies it.
    fn read(
        &self,
        file: &Self::File,
        block: Block,
        loading: &mut Loading<'_>,
        kind: StrategyKind,
        reader: Self::Reader<'_>,
    ) -> Result<(), Error>;

    /// Fills the frame of `loading` with zeroes.
    fn zero(&self, loading: &mut Loading<'_>);

    /// Drives the queue of the file's tablespace until `done`.
    fn drive(&self, file: &Self::File, done: &dyn Fn() -> bool);

    /// Writes the page `tag` from `frame`, if that can be started without waiting for its latch. False when it was
    /// clean, or in use.
    fn write_page(
        &self,
        tag: PageTag,
        frame: FrameIndex,
        kind: StrategyKind,
    ) -> Result<bool, Error>;

    /// True if the log is durable up to `lsn`.
    fn is_logged(&self, lsn: Lsn) -> bool;

    /// A frame must be taken from a page, since none is free. `met_dirty`: the clock sweep met a dirty victim.
    fn short_of_frames(&self, met_dirty: bool);

    /// Page tables have idle memory ([`PageTable::give_back`](table::PageTable::give_back)).
    fn tables_are_idle(&self);

    /// Processes completed reads ahead, which hold frames, and lets other threads run for `pause`.
    fn pause(&self, pause: Duration);

    /// Runs `work` and records the time as waiting.
    fn waiting<T>(&self, wait: Wait, work: impl FnOnce() -> T) -> T {
        self.counters().waiting(wait, || self.now(), work)
    }
}
