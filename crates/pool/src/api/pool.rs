//! The pool: the handle from which all others are created.

use std::fmt;
use std::sync::{Arc, Mutex};

use forebay_io::{Io, Kind};
use forebay_lookahead::DeviceCosts;

use crate::api::paged_file::PagedFile;
use crate::api::size::{Size, frames_of};
use crate::api::view::FrameView;
use crate::cache::frame::word::DIRTY;
use crate::cache::replacement::AccessStrategy;
use crate::core::Core;
use crate::core::checkpoint::{Checkpoint, CheckpointOptions};
use crate::error::Error;
use crate::observe::checkpoint_report::{CheckpointReport, Trigger};
use crate::observe::stats::Stats;
use crate::shared::Pool;
use crate::store::options::{FileDefaults, FileOptions};
use crate::store::tablespace::Space;
use crate::strategy_kind::StrategyKind;
use crate::writeback::Cleaner;
use crate::writeback::checkpoint::{Checkpointer, Triggers, checkpoint_bytes};

/// A buffer pool: frames in memory for the pages of files. Cheap to clone; may be used from any
/// thread.
///
/// When the last handle to it and to its files is dropped, dirty pages are written (not synced), and a failure cannot
/// be reported. [`BufferPool::close`] reports failures.
///
/// It belongs to the process that built it: see [Children](crate#children).
#[derive(Clone)]
pub struct BufferPool {
    pool: Arc<Pool>,
}

impl BufferPool {
    pub(crate) fn assemble(
        core: Core,
        with_cleaner: bool,
        triggers: Triggers,
        files: FileDefaults,
        notes: Vec<String>,
    ) -> Result<BufferPool, Error> {
        let core = Arc::new(core);
        let cleaner = with_cleaner.then(|| Cleaner::start(&core)).transpose()?;
        let checkpointer = Checkpointer::start(&core, triggers)?;
        let (cleaner, checkpointer) = (Mutex::new(cleaner), Mutex::new(Some(checkpointer)));
        Ok(BufferPool { pool: Arc::new(Pool { core, cleaner, checkpointer, files, notes }) })
    }

    fn core(&self) -> &Core {
        &self.pool.core
    }

    /// Opens the file `name`, a path relative to its tablespace's directory. A file that is already open is recognised
    /// under any of its names (links, a later rename).
    ///
    /// # Errors
    /// [`Error::Io`] with the system's reason; [`Error::NoTablespace`]; [`Error::PartialPage`];
    /// [`Error::OpenOtherwise`] when it is already open with other options; [`Error::Detached`] when a file that was
    /// opened under this name has lost it since, and is still open ([`BufferPool::open_files`] returns its handle);
    /// [`Error::Failed`] when it is not known whether its name is durable.
    pub fn open_file(&self, name: &str, options: &FileOptions) -> Result<PagedFile, Error> {
        let core = self.core();
        core.check_owner()?;
        let (number, space) = self.space(options.tablespace.as_deref())?;
        let (mut options, defaults) = (options.clone(), &self.pool.files);
        options.codec = options.codec.or_else(|| defaults.codec.clone());
        options.read_only |= space.read_only;
        let checksum = options.checksum.unwrap_or(defaults.checksum);
        checksum.check_setting(core.page_bytes())?;
        if !options.read_only {
            space.torn.check_file(name, checksum)?;
        }
        let file = core.files.open((number, space), name, core.page_bytes(), checksum, &options)?;
        Ok(PagedFile::new(Arc::clone(&self.pool), file))
    }

    /// Returns a handle of each open file, in the order in which they were opened: a file stays open without one.
    pub fn open_files(&self) -> Vec<PagedFile> {
        let files = self.core().files.all().into_iter();
        files.map(|file| PagedFile::new(Arc::clone(&self.pool), file)).collect()
    }

    /// A tablespace, with its number.
    fn space(&self, name: Option<&str>) -> Result<(usize, &Arc<Space>), Error> {
        let mut spaces = self.core().spaces.iter().enumerate();
        let found = match name {
            None => spaces.next(),
            Some(name) => spaces.find(|(_, space)| &*space.name == name),
        };
        found.ok_or_else(|| Error::NoTablespace { name: name.unwrap_or_default().to_owned() })
    }

    /// Returns an access strategy for one scan, with a ring of the usual size.
    pub fn strategy(&self, kind: StrategyKind) -> AccessStrategy {
        let core = self.core();
        AccessStrategy::new(kind, None, core.page_bytes(), core.cache.frames.usable())
    }

    /// As [`BufferPool::strategy`], with a ring of `ring` bytes, but at most an eighth of the pool.
    ///
    /// # Errors
    /// [`Error::Setting`] when `ring` is not a size.
    pub fn strategy_with_ring(
        &self,
        kind: StrategyKind,
        ring: impl Into<Size>,
    ) -> Result<AccessStrategy, Error> {
        let core = self.core();
        let bytes = ring.into().bytes("ring size")?;
        Ok(AccessStrategy::new(kind, Some(bytes), core.page_bytes(), core.cache.frames.usable()))
    }

    /// Writes every dirty page of every file, then syncs every file. Waits for threads that have a dirty page latched
    /// exclusively: do not call it while holding such a latch. Returns the number of pages written.
    ///
    /// # Errors
    /// The first one. Pages that could not be written stay dirty; the others are written and synced.
    pub fn flush_and_sync(&self) -> Result<u64, Error> {
        self.core().check_owner()?;
        self.core().write_all(true)
    }

    /// Writes what is dirty, syncs, closes all files and releases the directories. Remaining handles return
    /// [`Error::Invalidated`] and [`Error::Closed`] from then on. Returns the number of pages written.
    ///
    /// # Errors
    /// The first one, as [`BufferPool::flush_and_sync`] and [`PagedFile::close`]: the pool stays
    /// open, with the files that could not be closed.
    pub fn close(&self) -> Result<u64, Error> {
        let pages = self.flush_and_sync()?;
        let core = self.core();
        while !core.files.shut_if_empty() {
            for file in core.files.all() {
                match core.close_file(&file) {
                    // Another thread closes or drops it: wait for the result.
                    Err(Error::Invalidated { .. }) => file.wait_resized(),
                    result => result?,
                }
            }
        }
        self.pool.stop_threads();
        for space in &core.spaces {
            space.torn.rest();
            space.unlock();
        }
        Ok(pages)
    }

    /// Takes a checkpoint and waits for its end: writes every page that is dirty now, in the disk's order,
    /// and syncs every file changed since its last sync. Do not call it with a page latched exclusively.
    ///
    /// One checkpoint runs at a time. During a checkpoint this requests the next one, shared with all other callers
    /// that request it meanwhile: the first of them determines its options, the most urgent one its speed.
    /// [`CheckpointOptions::now`] also speeds up the one in progress.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] with the errors of each tablespace; [`Error::Log`] when the log rejected the new redo
    /// point; [`Error::LogWentBack`]; [`Error::CheckpointPanicked`] for a bug in the log; [`Error::Closed`];
    /// [`Error::ReadOnly`] where all tablespaces are read-only. The redo point stays where it was, and no change is
    /// lost.
    pub fn checkpoint(&self, options: CheckpointOptions) -> Result<CheckpointReport, Error> {
        self.start_checkpoint(options)?.wait()
    }

    /// Requests a checkpoint. The caller may wait for it later, or not at all.
    ///
    /// # Errors
    /// [`Error::Closed`]; [`Error::ReadOnly`] where all tablespaces are read-only.
    pub fn start_checkpoint(&self, options: CheckpointOptions) -> Result<Checkpoint, Error> {
        self.core().check_owner()?;
        let spaces = &self.core().spaces;
        if spaces.iter().all(|space| space.read_only) {
            return Err(Error::ReadOnly { file: spaces[0].directory.as_path().into() });
        }
        self.core().checkpoints.ask(options, Trigger::Request)
    }

    /// Returns the result of the last checkpoint, however it was started.
    pub fn last_checkpoint(&self) -> Option<Result<CheckpointReport, Error>> {
        self.core().checkpoints.last()
    }

    /// Bytes reserved to record and sort the pages of a checkpoint: 16 for each possible frame. In addition, each
    /// tablespace has lists for its requests in progress: about 1 MiB for each 128 KiB of the combine limit.
    pub fn checkpoint_bytes(&self) -> usize {
        checkpoint_bytes(self.core().cache.frames.most())
    }

    /// Processes the queues' completions, and checks once the other conditions that futures wait for (a frame, room in
    /// a queue), without sleeping: for the event loop of an engine in which the pool starts no threads for futures
    /// ([`PoolBuilder::task_threads`](crate::PoolBuilder::task_threads)). May write a dirty page to free a frame; with
    /// the `sync` backend it executes one request.
    pub fn drive(&self) {
        let core = self.core();
        if core.check_owner().is_ok() {
            core.poll();
            core.help_tasks();
        }
    }

    /// Sets the memory for pages to `memory`, rounded down to whole pages: at most [`PoolBuilder::memory_max`], at
    /// least 8 pages. Other threads read, write and read ahead meanwhile, and no hit waits for it. Returns the number
    /// of bytes returned to the system, 0 when the pool grows; where huge pages are in use, up to 2 MiB of them are
    /// returned only when the system runs short.
    ///
    /// To shrink the pool, pages that no longer fit are written (their log first) and evicted, even if they are used
    /// often. The call waits for pinned pages, provided some become free within [`PoolBuilder::frame_wait`]. So hold no
    /// guards meanwhile, and no read stream whose pages are not consumed: it holds its prefetched pages until it is
    /// dropped. [`BufferPool::view`] shows which pages are pinned. Existing rings and streams keep their sizes. Only
    /// one call runs at a time; the next one waits, even if it makes the pool larger, while pages become free one after
    /// another.
    ///
    /// [`PoolBuilder::memory_max`]: crate::PoolBuilder::memory_max
    /// [`PoolBuilder::frame_wait`]: crate::PoolBuilder::frame_wait
    ///
    /// # Errors
    /// After any error the pool has as much memory as before, and all its pages except those evicted meanwhile.
    /// [`Error::Setting`] for an invalid size, too much or too little; [`Error::Io`] when the system does not have that
    /// much; [`Error::MemoryInUse`] when pages stayed pinned, or busy with I/O; otherwise the reason why a dirty page
    /// could not be written.
    pub fn set_memory(&self, memory: impl Into<Size>) -> Result<u64, Error> {
        let (core, page_bytes) = (self.core(), self.page_bytes() as u64);
        core.check_owner()?;
        let frames = frames_of("memory", memory.into().bytes("memory")?, page_bytes)?;
        let most = core.cache.frames.most() as u64;
        if frames > most {
            return Err(Error::Setting {
                setting: "memory",
                value: (frames * page_bytes).to_string(),
                expected: format!(
                    "it should be at most {}, the `memory_max` that the pool was built with",
                    most * page_bytes
                ),
            });
        }
        core.resize(frames as usize)
    }

    /// Returns the pool's counters and its current state.
    pub fn stats(&self) -> Stats {
        let core = self.core();
        let mut stats = core.counters.snapshot();
        for (_, frame) in core.cache.frames.iter() {
            let word = frame.word();
            stats.frames_pinned += u64::from(word.holders() > 0);
            stats.frames_dirty += u64::from(word.has(DIRTY));
        }
        (stats.pool.prefetches_useful, stats.pool.prefetches_wasted) =
            core.cache.frames.ahead_outcomes();
        stats.frames = core.cache.frames.len() as u64;
        stats.frames_free = core.cache.frames.free_count() as u64;
        stats.page_bytes = core.page_bytes() as u64;
        stats
    }

    /// Every frame that holds or loads a page: which page, and how it is pinned. The snapshot is taken frame by frame
    /// while the pool goes on. Source: PostgreSQL's pg_buffercache.
    pub fn view(&self) -> Vec<FrameView> {
        crate::api::view::of(self.core())
    }

    /// Returns the cost of a request and of a byte on each tablespace's device, as far as the pool knows it now.
    pub fn device_costs(&self) -> Vec<(String, DeviceCosts)> {
        let spaces = self.core().spaces.iter();
        spaces.map(|space| (space.name.to_string(), space.device_costs())).collect()
    }

    /// Size of a page, in bytes.
    pub fn page_bytes(&self) -> usize {
        self.core().page_bytes()
    }

    /// Frames in the pool.
    pub fn frames(&self) -> usize {
        self.core().cache.frames.len()
    }

    /// Bytes of bookkeeping: frames, page tables, counters and the protection from torn pages, without the pages
    /// themselves and the write buffers.
    pub fn bookkeeping_bytes(&self) -> usize {
        let core = self.core();
        let tables: usize = core.files.all().iter().map(|file| file.table.memory_bytes()).sum();
        let torn: usize = core.spaces.iter().map(|space| space.torn.memory_bytes()).sum();
        core.cache.frames.memory_bytes() + tables + core.counters.memory_bytes() + torn
    }

    /// Returns the backend that each tablespace uses for work with many concurrent requests.
    pub fn backends(&self) -> Vec<(String, Kind)> {
        let spaces = self.core().spaces.iter();
        spaces.map(|space| (space.name.to_string(), space.queue.kind())).collect()
    }

    /// Returns notes for the user: requested features that are not available, and what is used instead.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = self.pool.notes.clone();
        let of_checkpoints = self.core().checkpoint_queue.iter().flat_map(Io::notes);
        notes.extend(of_checkpoints.map(|note| format!("checkpoints: {note}")));
        for space in &self.core().spaces {
            let of_space = space.queue.notes().into_iter().chain(space.notes.iter().cloned());
            notes.extend(of_space.map(|note| format!("tablespace {}: {note}", space.name)));
        }
        notes
    }
}

impl fmt::Debug for BufferPool {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("BufferPool")
            .field("frames", &self.frames())
            .field("page_bytes", &self.page_bytes())
            .finish_non_exhaustive()
    }
}
