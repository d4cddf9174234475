//! The cache over a disk of numbers: driven by loom and shuttle, as they cannot follow a pool into the kernel.
//!
//! All code for frames, the page table and a file's length is the cache's own. This module has small versions of what a
//! pool adds: the location of pages, a queue for reads ahead, and the copy of a page that is being written.
//!
//! A page is two words that are equal whenever no thread changes it, so that a mix is detected. They are accessed
//! `Relaxed`: all ordering must come from the frames.

#[cfg(loom)]
mod idle;
#[cfg(loom)]
mod interleavings;
#[cfg(loom)]
mod resizing;
#[cfg(loom)]
mod shrinking;
#[cfg(not(loom))]
mod stress;

use std::ops::Deref;
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::task::{Poll, Wake, Waker, ready};
use std::time::Duration;

use super::file::CachedFile;
#[cfg(loom)]
use super::file::Closing;
use super::frame::word::{Mode, Touch, USAGE_MAX, VALID};
use super::frame::{Detached, FrameIndex, Frames, Loading};
use super::replacement::{AccessStrategy, ClockSweep};
use super::table::PageTable;
use super::{Absent, Asked, Cache, Disk, Held, VersionedFrame, WaitResult};
use crate::error::Error;
use crate::observe::stats::Counters;
use crate::strategy_kind::StrategyKind;
use crate::sync::{AtomicU64, Mutex, Ordering, Thread, current, lock, park, yield_now};
use crate::tag::{Block, FileId, Lsn, PageTag};

/// The contents of a page that was not read completely, or whose checksum is wrong.
const BAD: u64 = u64::MAX;

/// They are large, and not part of the model.
static COUNTERS: LazyLock<Counters> = LazyLock::new(Counters::new);

/// A page in memory: two words, equal while no thread changes it.
struct Page([AtomicU64; 2]);

impl Page {
    fn set(&self, value: u64) {
        self.0.iter().for_each(|word| word.store(value, Ordering::Relaxed));
    }

    fn words(&self) -> [u64; 2] {
        [self.0[0].load(Ordering::Relaxed), self.0[1].load(Ordering::Relaxed)]
    }
}

struct File(CachedFile);

impl Deref for File {
    type Target = CachedFile;

    fn deref(&self) -> &CachedFile {
        &self.0
    }
}

/// A task that is the only one on its thread.
struct Alone(Thread);

impl Wake for Alone {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn waker() -> Waker {
    Arc::new(Alone(current())).into()
}

/// Reads ahead that have been submitted and have not ended.
#[derive(Default)]
struct Queue {
    requests: Vec<(Block, Detached)>,
    /// Threads that wait for a request to end, or to be submitted.
    drivers: Vec<Thread>,
}

/// A pool of one file.
struct Model {
    cache: Cache,
    file: Arc<File>,
    memory: Vec<Page>,
    /// The contents of the disk, by block; `BAD` where it cannot be read.
    disk: Vec<AtomicU64>,
    queue: Mutex<Queue>,
    reads: AtomicU64,
}

impl Model {
    /// A file of blocks that contain 10, 11, 12 and so on.
    fn new(frames: usize, blocks: u64) -> Arc<Model> {
        let table = PageTable::new();
        for block in 0..blocks as Block {
            table.entry(block);
        }
        let file = CachedFile::new(FileId(7), Path::new("small").into(), table, blocks);
        Arc::new(Model {
            cache: Cache {
                frames: Frames::new(frames).expect("memory for a few frames"),
                replacement: ClockSweep::default(),
                frame_wait: Duration::MAX,
            },
            file: Arc::new(File(file)),
            memory: (0..frames).map(|_| Page([AtomicU64::new(BAD), AtomicU64::new(BAD)])).collect(),
            disk: (0..blocks).map(|block| AtomicU64::new(10 + block)).collect(),
            queue: Mutex::new(Queue::default()),
            reads: AtomicU64::new(0),
        })
    }

    fn frames(&self) -> &Frames {
        &self.cache.frames
    }

    fn lookup(&self, block: Block) -> FrameIndex {
        self.file.table.lookup(block)
    }

    fn spoil(&self, block: Block) {
        self.disk[block as usize].store(BAD, Ordering::Relaxed);
    }

    #[cfg(loom)]
    fn on_disk(&self, block: Block) -> u64 {
        self.disk[block as usize].load(Ordering::Relaxed)
    }

    fn acquire(&self, block: Block, mode: Mode) -> Result<FrameIndex, Error> {
        let (strategy, absent, reader) = (&AccessStrategy::NORMAL, Absent::Read, ());
        self.cache.acquire(self, &self.file, block, Asked { mode, strategy, absent, reader })
    }

    fn latch_pinned(&self, frame: FrameIndex, mode: Mode) {
        self.cache.latch_pinned(self, frame, mode);
    }

    /// Evicts the page in `frame`, if that is possible.
    fn evict(&self, frame: FrameIndex) -> bool {
        self.cache.claim(self, frame, USAGE_MAX).is_some()
    }

    /// Writes the page in `frame`, if it is dirty and not in use.
    fn write_out(&self, frame: FrameIndex) -> bool {
        let Some(tag) = self.frames().get(frame).tag() else { return false };
        self.write_page(tag, frame, StrategyKind::Normal).unwrap_or(false)
    }

    /// The value of the latched page.
    fn read(&self, frame: FrameIndex) -> u64 {
        let [one, two] = self.memory[frame as usize].words();
        assert_eq!(one, two, "[FRM-2] a latched page is changing");
        one
    }

    /// Adds to the exclusively latched page.
    fn add(&self, frame: FrameIndex, more: u64) {
        let page = &self.memory[frame as usize].0;
        let old = page.each_ref().map(|word| word.fetch_add(more, Ordering::Relaxed));
        assert_eq!(old[0], old[1], "[FRM-2] two change a page");
    }

    /// Marks the exclusively latched page as changed.
    fn mark_dirty(&self, block: Block, frame: FrameIndex, lsn: Lsn) {
        self.cache.mark_dirty(&self.file, block, frame, lsn);
    }

    /// Adds to a page as its user would.
    fn change(&self, block: Block, more: u64) -> Result<(), Error> {
        let frame = self.acquire(block, Mode::Exclusive)?;
        self.add(frame, more);
        self.mark_dirty(block, frame, Lsn::NONE);
        self.frames().release_exclusive(frame);
        Ok(())
    }

    /// Reads a page as its user would.
    fn value(&self, block: Block) -> Result<u64, Error> {
        let frame = self.acquire(block, Mode::Shared)?;
        let value = self.read(frame);
        self.frames().release_shared(frame);
        Ok(value)
    }

    /// As [`Model::value`] for a task, for a page that is in memory or loading. `None` if it is not, or no longer is.
    fn poll_value(
        &self,
        block: Block,
        mode: Mode,
        held: &mut Option<Held>,
        waker: &Waker,
    ) -> Poll<Result<Option<u64>, Error>> {
        let tag = self.file.tag(block);
        if held.is_none() {
            let frame = self.lookup(block);
            let here = self.frames().find(frame).is_some();
            if !here || !self.frames().pin(frame, tag, Touch::Count) {
                return Poll::Ready(Ok(None));
            }
            *held = Some(Held::pinned(frame));
        }
        let Some(waiting) = held.as_mut() else { return Poll::Ready(Ok(None)) };
        let frame = waiting.frame;
        let result = ready!(self.cache.poll_held(&self.file, waiting, mode, waker));
        *held = None;
        Poll::Ready(result.map(|result| {
            (result == WaitResult::Latched).then(|| {
                let value = self.read(frame);
                self.frames().release(frame, mode);
                value
            })
        }))
    }

    /// As [`Model::poll_value`], on this thread, which otherwise only calls `idle`.
    fn value_by_task(&self, block: Block, idle: impl Fn()) -> Result<Option<u64>, Error> {
        let (waker, mut held) = (waker(), None);
        loop {
            match self.poll_value(block, Mode::Shared, &mut held, &waker) {
                Poll::Ready(value) => return value,
                Poll::Pending => idle(),
            }
        }
    }

    /// Reads a page ahead, by the queue. False if that cannot be started.
    fn prefetch(&self, block: Block) -> bool {
        let Some((owned, _)) = self.cache.allocate_clean(self, &AccessStrategy::NORMAL) else {
            return false;
        };
        let Some(mapped) = self.cache.map(&self.file, block, owned, true) else {
            return false;
        };
        if !matches!(self.file.check_now(block), Some(Ok(()))) {
            return false;
        }
        let load = mapped.detach();
        let mut queue = lock(&self.queue);
        queue.requests.push((block, load));
        queue.drivers.drain(..).for_each(|thread| thread.unpark());
        true
    }

    /// Completes a read-ahead, if one is in progress.
    fn end_request(&self) -> bool {
        let request = lock(&self.queue).requests.pop();
        request.map(|(block, load)| self.complete(block, load)).is_some()
    }

    /// Completes a read-ahead on this thread.
    fn complete(&self, block: Block, load: Detached) {
        let mut mapped = self.cache.resume(&self.file, block, load);
        if self.fill(block, mapped.loading()) {
            mapped.complete();
        }
    }

    /// False if the bytes read are not a page.
    fn fill(&self, block: Block, loading: &mut Loading<'_>) -> bool {
        let value = self.disk[block as usize].load(Ordering::Relaxed);
        self.memory[loading.frame() as usize].set(value);
        value != BAD
    }

    fn optimistic(&self, block: Block) -> Option<VersionedFrame<'_>> {
        self.cache
            .optimistic(&self.file, block)
            .or_else(|| self.cache.optimistic_and_count(&self.file, block))
    }

    /// As `Optimistic::read`.
    fn read_by(&self, seen: VersionedFrame<'_>) -> Option<u64> {
        let [one, two] = self.memory[seen.frame as usize].words();
        if !seen.still_valid() {
            return None;
        }
        assert_eq!(one, two, "[OPT-1] a mix of two states was taken for one");
        Some(one)
    }

    /// Makes the file shorter, as `FileCore::truncate` does in the cache.
    fn truncate(&self, blocks: u64) {
        let _right = self.file.resizing();
        self.cache.cut(self, &self.file, blocks as Block);
    }

    /// Discards all pages, as `FileCore::refresh` does in the cache.
    #[cfg(loom)]
    fn refresh(&self) {
        let _right = self.file.resizing();
        self.cache.refresh(self, &self.file, self.file.blocks().into());
    }

    /// Makes the file longer by one block with `value`. No other thread uses that block.
    fn extend(&self, value: u64) {
        let _right = self.file.resizing();
        let block = self.file.blocks();
        self.disk[block as usize].store(value, Ordering::Relaxed);
        self.file.set_blocks(u64::from(block) + 1);
    }

    /// Makes the file longer by one block whose page contains `value`, as `FileCore::append` does in the cache.
    #[cfg(loom)]
    fn append(&self, value: u64) {
        let strategy = &AccessStrategy::NORMAL;
        loop {
            let allocated = self.cache.allocate(self, strategy).unwrap();
            let right = self.file.resizing();
            let block = self.file.blocks();
            let appended = self.cache.append(self, &self.file, block, allocated, strategy);
            drop(right);
            if let Some(frame) = appended {
                self.add(frame, value);
                self.mark_dirty(block, frame, Lsn::NONE);
                return self.frames().release_exclusive(frame);
            }
            yield_now();
        }
    }

    /// Closes the file, as `FileCore::close` does in the cache; `synced`: whether the last sync succeeds.
    #[cfg(loom)]
    fn close(&self, synced: bool) -> Result<(), Error> {
        let _right = self.file.resizing();
        self.cache.evict_all(self, &self.file)?;
        let closing = Closing::begin(&self.file);
        self.cache.evict_all(self, &self.file)?;
        if synced {
            closing.succeeded();
        }
        Ok(())
    }

    /// The final check: when all threads have finished, each frame is free or has a mapped page.
    fn assert_settled(&self) {
        let mut resident = 0;
        for (frame, it) in self.frames().iter() {
            let word = it.word();
            assert_eq!((word.pins(), word.shared()), (0, 0), "[FRM-1] held by no thread: {word:?}");
            let even = it.version().is_multiple_of(2);
            match it.tag() {
                Some(tag) => {
                    resident += 1;
                    assert!(word.has(VALID) && even, "[FRM-2] a page at rest: {word:?}");
                    assert!(it.is_cold() || !word.is_cold(), "[FRM-5] {word:?}");
                    assert_eq!(self.lookup(tag.block), frame, "[TAB-1] {tag}");
                }
                None => assert!(!word.has(VALID) && !even, "[FRM-2] nothing at rest: {word:?}"),
            }
        }
        let free = self.frames().free_count();
        assert_eq!(free + resident, self.frames().len(), "[FRM-3] a frame is lost or freed twice");
    }
}

impl Disk for Model {
    type File = File;
    type Reader<'a> = ();

    fn counters(&self) -> &Counters {
        &COUNTERS
    }

    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn file(&self, id: FileId) -> Option<Arc<File>> {
        assert_eq!(id, self.file.id);
        Some(Arc::clone(&self.file))
    }

    fn tablespace(&self, _file: &File) -> usize {
        0
    }

    fn missed(&self, _file: &File, _block: Block, _strategy: &AccessStrategy, _reader: ()) {}

    fn read(
        &self,
        file: &File,
        block: Block,
        loading: &mut Loading<'_>,
        _kind: StrategyKind,
        _reader: (),
    ) -> Result<(), Error> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        if self.fill(block, loading) {
            return Ok(());
        }
        let file = Arc::clone(&file.path);
        Err(Error::Corrupt { file, block, expected: 0, found: 1, all_zeroes: false })
    }

    fn zero(&self, loading: &mut Loading<'_>) {
        self.memory[loading.frame() as usize].set(0);
    }

    fn drive(&self, _file: &File, done: &dyn Fn() -> bool) {
        while !done() {
            let request = {
                let mut queue = lock(&self.queue);
                let request = queue.requests.pop();
                if request.is_none() {
                    queue.drivers.push(current());
                }
                request
            };
            match request {
                Some((block, load)) => self.complete(block, load),
                // The thread that completes the read wakes its sleepers, including this thread; a page that is mapped
                // and not submitted yet is about to be. Checked again, as loom forgets an unpark of a thread that has
                // waited for a mutex since.
                None if !done() => park(),
                None => {}
            }
        }
    }

    /// As `Core::write_page`.
    fn write_page(
        &self,
        tag: PageTag,
        frame: FrameIndex,
        _kind: StrategyKind,
    ) -> Result<bool, Error> {
        let frames = self.frames();
        if !frames.pin(frame, tag, Touch::Not) {
            return Ok(false);
        }
        let copied = frames.try_latch_passing(frame) && {
            let begun = frames.begin_write(frame);
            if begun {
                let copy = self.read(frame);
                frames.copied(frame);
                frames.unlatch_shared(frame);
                self.disk[tag.block as usize].store(copy, Ordering::Relaxed);
            } else {
                frames.unlatch_shared(frame);
            }
            begun
        };
        if copied {
            self.cache.end_write(&self.file, tag.block, frame, None);
        } else {
            frames.unpin(frame);
        }
        Ok(copied)
    }

    fn is_logged(&self, _lsn: Lsn) -> bool {
        true
    }

    fn short_of_frames(&self, _met_dirty: bool) {}

    fn tables_are_idle(&self) {}

    fn pause(&self, _pause: Duration) {
        if !self.end_request() {
            yield_now();
        }
    }
}
