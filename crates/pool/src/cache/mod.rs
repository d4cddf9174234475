//! The cache: pages in frames, and all that may happen to one.
//!
//! The hit, the miss, the victim, the read that fails, the read ahead that ends on another thread, the
//! truncation: all of it is here, and none of it knows a disk, a log or a thread of the pool's. What it must
//! know of them is [`Disk`]. The pool is one (`crate::disk`), a row of numbers is another (`models`): loom and
//! shuttle run this code, and no copy of it.
//!
//! Concurrency: everything here is called by any thread; what one step relies on is said where it is.

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
pub(crate) use task::{Came, Held};

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
    /// How long a thread waits for a frame before it gives up.
    pub(crate) frame_wait: Duration,
}

impl Cache {
    /// The exclusively latched page `block` of `file` is dirty from now on, by a change up to `lsn`. It is
    /// counted first: a thread that throws it away at this moment takes it off the count ([TAB-3]).
    pub(crate) fn mark_dirty(&self, file: &CachedFile, block: Block, frame: FrameIndex, lsn: Lsn) {
        let counts = !self.frames.get(frame).word().has(DIRTY);
        if counts {
            file.table.count_unsaved(block);
        }
        if !self.frames.mark_dirty(frame, lsn) && counts {
            file.table.count_saved(block);
        }
    }

    /// The write of a copy has ended, well unless it `failed`: lets go of the pin that it was made under.
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

/// What the cache knows of the world: files and where their pages come from, the log, the time.
pub(crate) trait Disk {
    /// A file of pages.
    type File: Deref<Target = CachedFile>;
    /// On whose behalf a page is read, and how.
    type Reader<'a>: Copy;

    fn counters(&self) -> &Counters;

    fn now(&self) -> Duration;

    /// The open file of that number.
    fn file(&self, id: FileId) -> Option<Arc<Self::File>>;

    /// Where the file is: what cannot be written to one file there cannot be to any.
    fn tablespace(&self, file: &Self::File) -> usize;

    /// `block` is about to be read, and nothing is mapped yet: what follows it may be read as well. May wait
    /// for the log and panic.
    fn missed(
        &self,
        file: &Self::File,
        block: Block,
        strategy: &AccessStrategy,
        reader: Self::Reader<'_>,
    );

    /// Fills the frame of `loading` with the page `block` as it is on disk, and checks it.
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

    /// Drives the queue of that number of the file's tablespace until `done`.
    fn drive(&self, file: &Self::File, queue: u8, done: &dyn Fn() -> bool);

    /// Writes the page `tag` out of `frame`, if that can be begun without a wait for its latch. False when it
    /// was clean, or somebody had it.
    fn write_page(
        &self,
        tag: PageTag,
        frame: FrameIndex,
        kind: StrategyKind,
    ) -> Result<bool, Error>;

    /// Whether the log is durable up to `lsn`.
    fn is_logged(&self, lsn: Lsn) -> bool;

    /// A frame is to be taken from a page, since none is free. `met_dirty`: a sweep came to a dirty victim.
    fn short_of_frames(&self, met_dirty: bool);

    /// Page tables have idle memory ([`PageTable::give_back`](table::PageTable::give_back)).
    fn tables_are_idle(&self);

    /// Takes in what has been read ahead, which holds frames, and lets others get on for that long.
    fn pause(&self, pause: Duration);

    /// Does `work` and books the time as waiting.
    fn waiting<T>(&self, wait: Wait, work: impl FnOnce() -> T) -> T {
        let start = self.now();
        let result = work();
        self.counters().waited(wait, self.now().saturating_sub(start));
        result
    }
}
