//! The handle to a file of pages.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use forebay_io::{Arena, Request};

use crate::api::guard::{Optimistic, PageMut, PageRef, Pin};
use crate::api::paged_file::PagedFile;
use crate::cache::Disk as _;
use crate::cache::frame::word::{DIRTY, Mode, ORPHAN, VALID};
use crate::cache::replacement::AccessStrategy;
use crate::cache::{Absent, Asked};
use crate::core::Core;
use crate::core::disk::Reader;
use crate::error::Error;
use crate::observe::stats::{FileStats, PoolEvent, Wait};
use crate::readahead::{Acquire, How};
use crate::readahead_strategy::ReadaheadStrategy;
use crate::store::file::FileCore;
use crate::tag::{Block, FileId};

/// Attempts at an optimistic copy before the latch is taken.
const OPTIMISTIC_TRIES: u32 = 4;

/// The parameters of a plain request by a future.
const PLAINLY: How<'static> = How { strategy: &AccessStrategy::NORMAL, through: None };

impl PagedFile {
    /// The parameters of a request with this handle's readahead setting.
    fn asked<'a>(
        &'a self,
        mode: Mode,
        strategy: &'a AccessStrategy,
        absent: Absent,
    ) -> Asked<'a, Reader<'a>> {
        let detects = self.readahead_strategy().detects();
        let reader =
            Reader { detect: detects.then_some((&self.core, &self.file)), ..Reader::default() };
        Asked { mode, strategy, absent, reader }
    }

    /// Returns a handle to the same file whose streams look ahead with `strategy` by default: for a
    /// session or a transaction. Sequences in its plain reads are detected and read ahead with `Async` and `Adaptive`,
    /// but not with the other strategies.
    #[must_use]
    pub fn with_readahead(&self, strategy: ReadaheadStrategy) -> PagedFile {
        let mut handle = self.clone();
        handle.readahead = Some(strategy);
        handle
    }

    /// Returns the page `block`, to read: pinned and latched shared, read from disk if needed. A thread that has the
    /// page latched exclusively deadlocks here, as with any lock.
    ///
    /// # Errors
    /// [`Error::PastEnd`], [`Error::Invalidated`]; [`Error::Corrupt`], [`Error::Codec`], [`Error::Shortened`] and
    /// [`Error::Io`] from reading it;
    /// [`Error::NoFreeFrame`], or what kept another, dirty page from being written
    /// ([`Error::Log`], [`Error::Failed`], [`Error::Io`]), when there was no frame for it.
    #[inline(always)]
    pub fn read(&self, block: Block) -> Result<PageRef<'_>, Error> {
        self.read_with(block, &AccessStrategy::NORMAL)
    }

    /// As [`PagedFile::read`], with an access strategy.
    ///
    /// # Errors
    /// As [`PagedFile::read`].
    #[inline(always)]
    pub fn read_with(&self, block: Block, strategy: &AccessStrategy) -> Result<PageRef<'_>, Error> {
        let core = self.core();
        match core.hit(&self.file, block, Mode::Shared, strategy) {
            Some(held) => Ok(PageRef::from_held(&self, held, block)),
            None => self.read_slowly(block, strategy),
        }
    }

    #[cold]
    #[inline(never)]
    fn read_slowly(&self, block: Block, strategy: &AccessStrategy) -> Result<PageRef<'_>, Error> {
        let core = self.core();
        let asked = self.asked(Mode::Shared, strategy, Absent::Read);
        let frame = core.cache.acquire_slowly(&**core, &self.file, block, asked)?;
        Ok(PageRef::latched(self, frame, block))
    }

    /// Returns the page `block`, to change: pinned and latched exclusively, read from disk if needed.
    ///
    /// # Errors
    /// As [`PagedFile::read`], and [`Error::ReadOnly`].
    pub fn write(&self, block: Block) -> Result<PageMut<'_>, Error> {
        self.write_with(block, &AccessStrategy::NORMAL)
    }

    /// As [`PagedFile::write`], with an access strategy.
    ///
    /// # Errors
    /// As [`PagedFile::write`].
    pub fn write_with(
        &self,
        block: Block,
        strategy: &AccessStrategy,
    ) -> Result<PageMut<'_>, Error> {
        self.file.check_writable()?;
        let core = self.core();
        let asked = self.asked(Mode::Exclusive, strategy, Absent::Read);
        let frame = core.cache.acquire(&**core, &self.file, block, asked)?;
        Ok(PageMut::latched(self, frame, block))
    }

    /// As [`PagedFile::read`], for a task: the future is ready at once for a page in memory whose latch is free, and
    /// blocks no thread otherwise. See [Futures](crate#futures).
    ///
    /// A future that is dropped before it is ready leaves nothing behind; a load that it began goes on.
    ///
    /// # Errors
    /// As [`PagedFile::read`]; [`Error::Setting`] when the system cannot create a thread to drive the queue.
    pub fn read_async(
        &self,
        block: Block,
    ) -> impl Future<Output = Result<PageRef<'_>, Error>> + Send + Unpin {
        let mut page = self.acquire(block, Mode::Shared);
        std::future::poll_fn(move |context| {
            let latched = page.poll(PLAINLY, context.waker());
            latched.map_ok(|frame| PageRef::latched(self, frame, block))
        })
    }

    /// As [`PagedFile::write`], for a task, like [`PagedFile::read_async`].
    ///
    /// # Errors
    /// As [`PagedFile::write`] and [`PagedFile::read_async`].
    pub fn write_async(
        &self,
        block: Block,
    ) -> impl Future<Output = Result<PageMut<'_>, Error>> + Send + Unpin {
        let mut page = self.acquire(block, Mode::Exclusive);
        std::future::poll_fn(move |context| {
            self.file.check_writable()?;
            let latched = page.poll(PLAINLY, context.waker());
            latched.map_ok(|frame| PageMut::latched(self, frame, block))
        })
    }

    fn acquire(&self, block: Block, mode: Mode) -> Acquire<'_> {
        Acquire::new(&self.core, &self.file, block, mode, self.readahead_strategy().detects())
    }

    /// Returns the page `block`, to read, if it is in memory; waits while another thread changes it, but never for the
    /// disk. Returns `None` for a page that is not in memory, or is still being read.
    ///
    /// # Errors
    /// [`Error::PastEnd`], [`Error::Invalidated`].
    pub fn read_if_resident(&self, block: Block) -> Result<Option<PageRef<'_>>, Error> {
        let core = self.core();
        match core.hit(&self.file, block, Mode::Pin, &AccessStrategy::NORMAL) {
            Some(held) => Pin::held(self, held.frame, block).into_shared().map(Some),
            None => self.nothing(block),
        }
    }

    /// Returns the page `block`, to read, if that takes no wait at all: it is in memory, and no thread changes it or is
    /// about to.
    ///
    /// # Errors
    /// [`Error::PastEnd`], [`Error::Invalidated`].
    pub fn try_read(&self, block: Block) -> Result<Option<PageRef<'_>>, Error> {
        let core = self.core();
        match core.hit(&self.file, block, Mode::Shared, &AccessStrategy::NORMAL) {
            Some(held) => Ok(Some(PageRef::from_held(&self, held, block))),
            None => self.nothing(block),
        }
    }

    /// Returns the page `block`, to change, if that takes no wait at all: it is in memory, and no thread has it
    /// latched.
    ///
    /// # Errors
    /// [`Error::PastEnd`], [`Error::Invalidated`], [`Error::ReadOnly`].
    pub fn try_write(&self, block: Block) -> Result<Option<PageMut<'_>>, Error> {
        self.file.check_writable()?;
        let core = self.core();
        match core.hit(&self.file, block, Mode::Exclusive, &AccessStrategy::NORMAL) {
            Some(held) => Ok(Some(PageMut::latched(self, held.frame, block))),
            None => self.nothing(block),
        }
    }

    /// The page is not available without a wait: an error if `block` does not exist at all.
    fn nothing<T>(&self, block: Block) -> Result<Option<T>, Error> {
        // A close in progress that may still fail is a wait as well.
        self.file.check_now(block).transpose()?;
        Ok(None)
    }

    /// Reads ahead those of `blocks` that are not in memory: sorted, with neighbours in one request. Never waits and
    /// holds nothing. Returns the number of requested pages; it skips pages past the end and those for which look-ahead
    /// has no frame, or the queue no room, now: at most a quarter of the pool's pages are being read at once.
    ///
    /// A page that cannot be read is simply not in memory afterwards; [`PagedFile::read`] reports why. The reads
    /// complete as soon as some thread waits for one of the pages, reads ahead in the same tablespace, or needs a frame
    /// when none is free: the caller need not do anything.
    pub fn prefetch(&self, blocks: &[Block]) -> u32 {
        self.core.prefetch(&self.file, blocks)
    }

    /// Removes the page `block` from memory, after writing it if it is dirty: for a page that is known not to be needed
    /// again. Returns false if it is not in memory, or if any thread, including the caller, has it pinned. Does not
    /// make it durable.
    ///
    /// # Errors
    /// [`Error::PastEnd`], [`Error::Invalidated`]; the reason why a dirty page could not be written ([`Error::Log`],
    /// [`Error::Failed`], [`Error::Io`]): the page then stays, dirty.
    pub fn evict(&self, block: Block) -> Result<bool, Error> {
        self.file.check(block)?;
        self.core.cache.evict(&*self.core, &self.file, block)
    }

    /// Returns the page `block`, to change, filled with zeroes whatever it contained: nothing is read. That is a
    /// change: with a log, mark the page dirty with the record that describes it.
    ///
    /// # Errors
    /// As [`PagedFile::write`], except for those of reading.
    pub fn init(&self, block: Block) -> Result<PageMut<'_>, Error> {
        self.init_with(block, &AccessStrategy::NORMAL)
    }

    /// As [`PagedFile::init`], with an access strategy.
    ///
    /// # Errors
    /// As [`PagedFile::init`].
    pub fn init_with(&self, block: Block, strategy: &AccessStrategy) -> Result<PageMut<'_>, Error> {
        self.file.check_writable()?;
        let core = self.core();
        let asked = self.asked(Mode::Exclusive, strategy, Absent::Zero);
        let frame = core.cache.acquire_slowly(&**core, &self.file, block, asked)?;
        Ok(zeroed(PageMut::latched(self, frame, block)))
    }

    /// Makes the file one block longer and returns that page, all zero, to change.
    ///
    /// # Errors
    /// As [`PagedFile::extend`] and [`PagedFile::init`].
    pub fn append(&self) -> Result<PageMut<'_>, Error> {
        self.append_with(&AccessStrategy::NORMAL)
    }

    /// As [`PagedFile::append`], with an access strategy.
    ///
    /// # Errors
    /// As [`PagedFile::append`]. The file is as long as before then.
    pub fn append_with(&self, strategy: &AccessStrategy) -> Result<PageMut<'_>, Error> {
        let (block, frame) = self.file.append(self.core(), strategy)?;
        Ok(PageMut::latched(self, frame, block).touched())
    }

    /// Keeps the page `block` in its frame, read from disk if needed, without latching it.
    ///
    /// # Errors
    /// As [`PagedFile::read`].
    pub fn pin(&self, block: Block) -> Result<Pin<'_>, Error> {
        self.pin_with(block, &AccessStrategy::NORMAL)
    }

    /// As [`PagedFile::pin`], with an access strategy.
    ///
    /// # Errors
    /// As [`PagedFile::read`].
    pub fn pin_with(&self, block: Block, strategy: &AccessStrategy) -> Result<Pin<'_>, Error> {
        let core = self.core();
        let asked = self.asked(Mode::Pin, strategy, Absent::Read);
        let frame = core.cache.acquire(&**core, &self.file, block, asked)?;
        Ok(Pin::held(self, frame, block))
    }

    /// Returns an optimistic guard of the page `block`, which holds nothing and writes nothing shared: for pages that
    /// are read often and rarely changed. The page is read from disk if needed. A guard ends when the page changes, and
    /// also when it is evicted: in a pool too small for the working set, try a few times, then read.
    ///
    /// # Errors
    /// As [`PagedFile::read`].
    #[inline]
    pub fn optimistic(&self, block: Block) -> Result<Optimistic<'_>, Error> {
        match Optimistic::now(&self.core, &self.file, block) {
            Some(guard) => Ok(guard),
            None => self.optimistic_slowly(block),
        }
    }

    /// As [`PagedFile::optimistic`], after waiting for the thread that changes the page, or reading it in.
    #[cold]
    #[inline(never)]
    fn optimistic_slowly(&self, block: Block) -> Result<Optimistic<'_>, Error> {
        if let Some(guard) = Optimistic::now_or_cold(&self.core, &self.file, block) {
            return Ok(guard);
        }
        loop {
            let page = self.read(block)?;
            let guard = Optimistic::now_or_cold(&self.core, &self.file, block);
            drop(page);
            if let Some(guard) = guard {
                return Ok(guard);
            }
            self.core.counters.count_pool(PoolEvent::OptimisticRetries);
        }
    }

    /// Returns the result of `read` on the page `block`, all from one state of it, as [`Optimistic::inspect`]: for a
    /// search in place. If the page changes meanwhile, `read` is called again, and if it keeps changing, with the latch
    /// held.
    ///
    /// # Errors
    /// As [`PagedFile::read`].
    #[inline]
    pub fn inspect<R>(
        &self,
        block: Block,
        mut read: impl FnMut(&Optimistic<'_>) -> R,
    ) -> Result<R, Error> {
        for _ in 0..OPTIMISTIC_TRIES {
            if let Some(found) = self.optimistic(block)?.inspect(&mut read) {
                return Ok(found);
            }
        }
        loop {
            let _latched = self.read(block)?;
            // Only a thread that takes the page from under the latch, as a truncation does, can disturb this: the page
            // is not found again.
            let guard = Optimistic::now_or_cold(&self.core, &self.file, block);
            if let Some(found) = guard.and_then(|guard| guard.inspect(&mut read)) {
                return Ok(found);
            }
        }
    }

    /// Copies `into.len()` bytes from byte `offset` of the page `block`, all from one state of it. Tries optimistically
    /// first; if the page keeps changing, it takes the latch.
    ///
    /// # Errors
    /// As [`PagedFile::read`].
    ///
    /// # Panics
    /// The range extends past the end of the page.
    #[inline(always)]
    pub fn copy(&self, block: Block, offset: usize, into: &mut [u8]) -> Result<(), Error> {
        if let Some(guard) = Optimistic::now(&self.core, &self.file, block)
            && guard.read_at_once(offset, into)
        {
            return Ok(());
        }
        self.copy_slowly(block, offset, into)
    }

    #[cold]
    #[inline(never)]
    fn copy_slowly(&self, block: Block, offset: usize, into: &mut [u8]) -> Result<(), Error> {
        for _ in 0..OPTIMISTIC_TRIES {
            if self.optimistic(block)?.read(offset, into) {
                return Ok(());
            }
        }
        let page = self.read(block)?;
        into.copy_from_slice(&page[offset..offset + into.len()]);
        Ok(())
    }

    /// Returns the bytes of the page `block`, even if it is damaged, and the checksum mismatch or the codec's error:
    /// for saving what can be saved. An intact page is read through the pool and returned as it is in memory (its
    /// checksum bytes are those of its last write); a damaged one is read directly from disk, and returned as it is
    /// there: encoded, if the file has a codec.
    ///
    /// # Errors
    /// As [`PagedFile::read`], but never [`Error::Corrupt`] or [`Error::Codec`].
    pub fn salvage(&self, block: Block) -> Result<(Vec<u8>, Option<Error>), Error> {
        match self.read(block) {
            Ok(page) => return Ok((page.to_vec(), None)),
            Err(error) if error.is_damage() => {}
            Err(error) => return Err(error),
        }
        let core = self.core();
        let (on_disk, offset) = self.file.place(block);
        let lease = Arena::new(1, core.page_bytes())?.take();
        let request = Request::read(&on_disk, offset, lease.into_iter().collect());
        let done = self.file.space.sync_io.execute(request);
        let leases = done.into_result().map_err(|error| {
            // First the pool's own truncation, or removal.
            let invalidated = self.file.check(block).err();
            invalidated.unwrap_or_else(|| self.file.read_failure(block, error))
        })?;
        let mut bytes = leases[0].to_vec();
        let damage = self.file.decode_page(&mut bytes, block).err();
        if damage.is_some() {
            bytes.copy_from_slice(&leases[0]);
        }
        Ok((bytes, damage))
    }

    /// Returns true when the page `block` is in memory now.
    pub fn is_resident(&self, block: Block) -> bool {
        let frame = self.core().cache.frames.find(self.file.table.lookup(block));
        frame.is_some_and(|frame| frame.holds(self.file.tag(block)) && frame.word().has(VALID))
    }

    /// Returns the counters of the file since it was opened, for all its handles, and how much of it is in memory.
    /// Reads every frame of the pool, as [`BufferPool::stats`](crate::BufferPool::stats) does.
    pub fn stats(&self) -> FileStats {
        let mut stats = self.file.counts.snapshot();
        for (_, frame) in self.core.cache.frames.iter() {
            let word = frame.word();
            let is_ours = || frame.tag().is_some_and(|tag| tag.file == self.file.id);
            if word.has(VALID) && !word.has(ORPHAN) && is_ours() {
                stats.pages_resident += 1;
                stats.pages_dirty += u64::from(word.has(DIRTY));
            }
        }
        stats
    }

    /// Returns the number of blocks in the file.
    pub fn blocks(&self) -> Block {
        self.file.blocks()
    }

    /// Makes the file longer by `count` blocks of zeroes, with space reserved for them if the filesystem supports it.
    /// Returns the new blocks. They are durable with the next sync.
    ///
    /// If recovery relies on a log record of the extension: first extend the file, then append the record. A checkpoint
    /// does not know of an extension that has not happened yet. If the record comes first, the redo point may lie after
    /// it while the file is synced without the new blocks, and after a crash neither the file nor the log has them.
    ///
    /// # Errors
    /// [`Error::Io`] with the filesystem's error: the file is then as long as before. [`Error::Shortened`] when it is
    /// shorter on disk than it was: zeroes would hide the loss.
    pub fn extend(&self, count: Block) -> Result<Range<Block>, Error> {
        self.file.extend(count)
    }

    /// Makes the file `blocks` blocks long, if it is longer. The pages beyond are discarded, changed or not: a thread
    /// that waits for one gets [`Error::Invalidated`], and a thread that has one pinned keeps the bytes, to no effect, until
    /// it drops its guard. Waits for the I/O of those pages.
    ///
    /// If recovery relies on a log record of the truncation: first append the record and make it durable, then truncate
    /// the file, and let no checkpoint begin between the two. A checkpoint that begins later waits for a truncation in
    /// progress.
    ///
    /// # Errors
    /// [`Error::Io`] with the filesystem's error: the pages are removed from the pool anyway. They may still be on
    /// disk; the removal is retried by this call, by the next call that makes the file longer, and by syncs,
    /// checkpoints and closes, which fail until it succeeds.
    pub fn truncate(&self, blocks: Block) -> Result<(), Error> {
        self.file.truncate(self.core(), blocks)
    }

    /// Refreshes a read-only file: it gets its current length on disk, and every page that is requested from now on is
    /// read from disk, no older than this call. Existing guards keep their bytes; a [`Pin`] without a latch loses its
    /// page ([`Fate::Refreshed`](crate::Fate)); a stream in progress reads the pages that it holds again. Returns the
    /// number of blocks. Waits for the I/O of the file's pages. For one page that no thread has pinned,
    /// [`PagedFile::evict`] is enough.
    ///
    /// # Errors
    /// [`Error::Setting`] for a file that is open for writing; [`Error::Invalidated`]; [`Error::Io`] from opening it
    /// again, for example when the writer has removed it;
    /// [`Error::OpenOtherwise`] when its name now refers to a file that is open under another name. Then the file stays
    /// unchanged.
    pub fn refresh(&self) -> Result<Block, Error> {
        self.file.refresh(self.core())
    }

    /// Removes the file, from the pool as [`PagedFile::truncate`] does and from the disk. All its handles return
    /// [`Error::Invalidated`] from then on. The rule about a log record in [`PagedFile::truncate`] applies here as well. The
    /// file's space is freed, even if another process has it open, unless it has another name.
    ///
    /// # Errors
    /// [`Error::Io`] with the filesystem's error: the file is removed from the pool anyway. [`Error::Failed`] when it
    /// is not known whether the removal is durable. [`Error::Detached`] when its name now refers to another file: both
    /// stay.
    pub fn drop_file(&self) -> Result<(), Error> {
        self.file.drop_file(self.core())
    }

    /// Writes every page that is dirty now. Does not make them durable: see [`PagedFile::sync`]. Waits for threads that
    /// have a dirty page latched exclusively: do not call it with such a latch on a page of this file. Returns the
    /// number of pages written.
    ///
    /// # Errors
    /// The first one; pages that could not be written stay dirty, and the others are written.
    pub fn flush_file(&self) -> Result<u64, Error> {
        self.file.check_open()?;
        self.core().flush_file(&self.file)
    }

    /// Makes durable everything that has been written, by [`PagedFile::flush_file`] and earlier, and the file's length.
    ///
    /// # Errors
    /// [`Error::Failed`]: what was written since the last good sync may be lost, and nothing in the tablespace is
    /// written from now on. [`Error::Io`]: an earlier truncation had failed, was retried, and still fails.
    /// [`Error::ReadOnly`] in a read-only tablespace.
    pub fn sync(&self) -> Result<(), Error> {
        self.file.check_open()?;
        if self.file.space.read_only {
            return Err(Error::ReadOnly { file: Arc::clone(&self.file.path) });
        }
        self.file.settle_length()?;
        self.core().sync_file(&self.file)
    }

    /// Writes what is dirty, syncs, and closes the file for all its handles, which return [`Error::Invalidated`] from then on.
    /// Reads that need the disk, and writes, wait while the file is being closed, and continue if that fails.
    ///
    /// # Errors
    /// Those of [`PagedFile::flush_file`] and [`PagedFile::sync`]; [`Error::Busy`] when pages are
    /// still in use after the time that the pool waits for a frame. The file then stays open.
    pub fn close(&self) -> Result<(), Error> {
        self.core().close_file(&self.file)
    }

    /// Returns the number that page tags have for this file.
    pub fn id(&self) -> FileId {
        self.file.id
    }

    /// Returns where the file is.
    pub fn path(&self) -> &Path {
        &self.file.path
    }
}

/// Returns a page that was acquired for initialisation.
fn zeroed(page: PageMut<'_>) -> PageMut<'_> {
    let mut page = page.touched();
    page.fill(0);
    page
}

impl Core {
    pub(crate) fn close_file(&self, file: &Arc<FileCore>) -> Result<(), Error> {
        file.check_open()?;
        if !file.is_read_only() {
            self.flush_file(file)?;
            self.sync_file(file)?;
        }
        file.close(self)
    }

    /// Syncs a file.
    pub(crate) fn sync_file(&self, file: &FileCore) -> Result<(), Error> {
        file.space.check_sound()?;
        let changes = file.changes();
        let request = Request::sync_data(&file.on_disk());
        self.counters.count_pool(PoolEvent::Syncs);
        let done = self.waiting(Wait::Sync, || file.space.queue.execute(request));
        if let Err(error) = done.result {
            self.counters.count_pool(PoolEvent::SyncErrors);
            return Err(file.space.sync_failed(error));
        }
        file.synced(changes);
        Ok(())
    }
}
