//! The disk below the cache, as the pool implements it: one page read by the thread that misses it.

use std::cell::Cell;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use forebay_io::{File, Lease, Request};

use crate::cache::Disk;
use crate::cache::frame::word::Mode;
use crate::cache::frame::{FrameIndex, Hold, Loading};
use crate::cache::replacement::AccessStrategy;
use crate::core::Core;
use crate::error::Error;
use crate::observe::stats::{Counters, Event, Wait};
use crate::store::Private;
use crate::store::file::FileCore;
use crate::strategy_kind::StrategyKind;
use crate::tag::{Block, FileId, Lsn, PageTag};

/// Pauses between attempts to read a page that another pool may be writing: the first, each twice as long as the one
/// before, and their number. A write in the page cache takes microseconds; a direct one to a slow disk, some
/// milliseconds.
const TORN_PAUSE: Duration = Duration::from_micros(50);
pub(crate) const TORN_PAUSES: u32 = 8;

thread_local! {
    /// A list for the one lease of a read, reused by successive misses.
    static LEASES: Cell<Vec<Lease>> = const { Cell::new(Vec::new()) };
}

/// The reader of a page, and its parameters. The default is a plain read.
#[derive(Clone, Copy, Default)]
pub(crate) struct Reader<'a> {
    /// The reader's private descriptors, which the kernel tracks separately from all others.
    pub(crate) through: Option<&'a Private>,
    /// Where to store the duration of a read, if one was needed.
    pub(crate) took: Option<&'a Cell<Duration>>,
    /// Where a miss that continues a sequence has the following blocks read as well.
    pub(crate) detect: Option<(&'a Arc<Core>, &'a Arc<FileCore>)>,
}

impl Reader<'_> {
    fn place(&self, file: &FileCore, block: Block) -> (File, u64) {
        match self.through {
            Some(private) => private.place(file, block),
            None => file.place(block),
        }
    }
}

impl Core {
    /// Returns the page `block` of `file`, pinned and latched in `mode`, if it is in memory and nothing is in the way.
    #[inline(always)]
    pub(crate) fn hit(
        &self,
        file: &FileCore,
        block: Block,
        mode: Mode,
        strategy: &AccessStrategy,
    ) -> Option<Hold<'_>> {
        let found = self.cache.hit(file, block, mode, strategy)?;
        self.counters.hit(strategy.kind());
        Some(found)
    }

    /// One attempt of [`Disk::read`].
    fn read_once(
        &self,
        file: &FileCore,
        block: Block,
        loading: &mut Loading<'_>,
        kind: StrategyKind,
        reader: Reader<'_>,
    ) -> Result<(), Error> {
        let (on_disk, offset) = reader.place(file, block);
        file.counts.count(&self.counters, kind, Event::Reads);
        let start = self.clock.now();
        // Not available in a thread that is ending, which allocates a new one.
        let mut leases = LEASES.try_with(Cell::take).unwrap_or_default();
        leases.push(self.memory.lend(loading));
        let mut done = file.space.sync_io.execute(Request::read(&on_disk, offset, leases));
        for lease in done.leases.drain(..) {
            self.memory.take_back(loading, lease);
        }
        let _ = LEASES.try_with(|list| list.set(done.leases));
        let took = self.clock.now().saturating_sub(start);
        self.counters.waited(Wait::Read, took);
        if let Some(cell) = reader.took {
            cell.set(took);
        }
        if let Err(error) = done.result {
            file.counts.count(&self.counters, kind, Event::ReadErrors);
            return Err(file.read_failure(block, error));
        }
        file.counts.add(&self.counters, kind, Event::BytesRead, self.page_bytes() as u64);
        let page = self.memory.bytes_mut(loading);
        file.decode_page(page, block)
    }
}

impl Disk for Core {
    type File = FileCore;
    type Reader<'a> = Reader<'a>;

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn now(&self) -> Duration {
        self.clock.now()
    }

    fn file(&self, id: FileId) -> Option<Arc<FileCore>> {
        self.files.get(id)
    }

    fn tablespace(&self, file: &FileCore) -> usize {
        Arc::as_ptr(&file.space).addr()
    }

    fn missed(
        &self,
        _file: &FileCore,
        block: Block,
        strategy: &AccessStrategy,
        reader: Reader<'_>,
    ) {
        if let Some((core, file)) = reader.detect {
            core.follow(file, block, strategy);
        }
    }

    fn read(
        &self,
        file: &FileCore,
        block: Block,
        loading: &mut Loading<'_>,
        kind: StrategyKind,
        reader: Reader<'_>,
    ) -> Result<(), Error> {
        file.counts.count(&self.counters, kind, Event::Miss);
        let mut done = self.read_once(file, block, loading, kind, reader);
        // While another pool writes the file, the page may have been read half written.
        let pauses = if file.space.read_only { TORN_PAUSES } else { 0 };
        for pause in (0..pauses).map(|number| TORN_PAUSE * (1 << number)) {
            if !done.as_ref().is_err_and(Error::is_damage) {
                break;
            }
            thread::sleep(pause);
            done = self.read_once(file, block, loading, kind, reader);
        }
        done.inspect_err(|error| {
            if error.is_damage() {
                file.counts.count(&self.counters, kind, Event::CorruptPages);
            }
        })
    }

    fn zero(&self, loading: &mut Loading<'_>) {
        self.memory.bytes_mut(loading).fill(0);
    }

    fn drive(&self, file: &FileCore, done: &dyn Fn() -> bool) {
        file.space.queue.wait_until(done);
    }

    fn write_page(
        &self,
        tag: PageTag,
        frame: FrameIndex,
        kind: StrategyKind,
    ) -> Result<bool, Error> {
        Core::write_page(self, tag, frame, kind)
    }

    fn is_logged(&self, lsn: Lsn) -> bool {
        self.wal.as_ref().is_none_or(|wal| lsn <= wal.flushed())
    }

    fn short_of_frames(&self, met_dirty: bool) {
        if met_dirty {
            self.wakeup.wake();
        } else {
            self.wakeup.allocated();
            self.take_in_prefetched();
        }
    }

    fn tables_are_idle(&self) {
        self.wakeup.wake_for_tables();
    }

    fn pause(&self, pause: Duration) {
        self.poll();
        thread::sleep(pause);
    }
}
