//! The builder: a pool's settings, checked before anything is created.
//!
//! Settings in code override the profile, which overrides the defaults.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use forebay_io::{CacheMode, Io, IoOptions, Owner, Prefer};

use crate::api::pool::BufferPool;
use crate::api::size::{Size, check_frames, frames_of};
use crate::cache::Cache;
use crate::cache::frame::{FrameMemory, Frames};
use crate::cache::replacement::ClockSweep;
use crate::clock::{Clock, SteadyClock, SystemClock};
use crate::core::Core;
use crate::core::checkpoint::{RedoPoint, RequestQueue};
use crate::core::{Budget, Wakeup};
use crate::error::Error;
use crate::observe::stats::Counters;
use crate::readahead_strategy::ReadaheadStrategy;
use crate::store::checksum::Checksum;
use crate::store::codec::PageCodec;
use crate::store::files::Files;
use crate::store::options::FileDefaults;
use crate::store::tablespace::{Space, SpaceDefaults, Tablespace};
use crate::store::torn::TornPages;
use crate::store::{Store, WriteBuffers};
use crate::sync::Mutex;
use crate::tasks::Retries;
use crate::wal::Wal;
use crate::writeback::checkpoint::Triggers;

const MEMORY_DEFAULT: u64 = 128 << 20;
const PAGE_BYTES_DEFAULT: u64 = 8 << 10;
const PAGE_BYTES: std::ops::RangeInclusive<u64> = 4 << 10..=64 << 10;
const FRAME_WAIT_DEFAULT: Duration = Duration::from_secs(1);
/// Most bytes in one request. Source: PostgreSQL's io_combine_limit.
const COMBINE_BYTES: u64 = 128 << 10;
/// Larger ones bring no gain, and hold their frames longer.
const COMBINE_BYTES_MAX: u64 = 1 << 20;
/// Most requests in the queue of checkpoints.
const QUEUE_DEPTH_MAX: usize = 4096;
/// Source: PostgreSQL's checkpoint_completion_target.
const TARGET_DEFAULT: f64 = 0.9;
/// Memory for pages that are being written, unless the pool is tiny.
const WRITE_BUFFER_BYTES: usize = 4 << 20;

/// The settings of a pool. Created by [`BufferPool::builder`].
#[derive(Default)]
pub struct PoolBuilder {
    pub(super) memory: Option<Size>,
    pub(super) memory_max: Option<Size>,
    pub(super) frames: Option<u64>,
    pub(super) page_size: Option<Size>,
    pub(super) backend: Option<Prefer>,
    pub(super) queue_depth: Option<usize>,
    pub(super) tablespaces: Vec<Tablespace>,
    wal: Option<Arc<dyn Wal>>,
    #[cfg(feature = "config")]
    pub(super) profile: Option<PathBuf>,
    pub(super) frame_wait: Option<Duration>,
    pub(super) huge_pages: Option<bool>,
    register_memory: bool,
    no_cleaner: bool,
    no_task_threads: bool,
    checksum: Option<Checksum>,
    codec: Option<Arc<dyn PageCodec>>,
    clock: Option<Arc<dyn Clock>>,
    pub(super) readahead: Option<ReadaheadStrategy>,
    pub(super) combine_limit: Option<Size>,
    pub(super) checkpoint_every: Option<Duration>,
    pub(super) checkpoint_log: Option<Size>,
    pub(super) checkpoint_target: Option<f64>,
    pub(super) torn_pages: Option<TornPages>,
}

impl BufferPool {
    /// Returns a builder with every default. Checksums and protection from torn pages have no default: choose both.
    pub fn builder() -> PoolBuilder {
        PoolBuilder::default()
    }
}

impl PoolBuilder {
    /// Memory for pages, such as `"2 GiB"` or a number of bytes. Default: 128 MiB.
    #[must_use]
    pub fn memory(mut self, memory: impl Into<Size>) -> Self {
        self.memory = Some(memory.into());
        self
    }

    /// The upper limit for [`BufferPool::set_memory`]. Address space is reserved for it and 56 bytes of bookkeeping for
    /// each page, which use memory only once they are used. Default: the initial size, so that the pool can only shrink
    /// and grow back.
    #[must_use]
    pub fn memory_max(mut self, memory: impl Into<Size>) -> Self {
        self.memory_max = Some(memory.into());
        self
    }

    /// Frames for pages, instead of [`PoolBuilder::memory`].
    #[must_use]
    pub fn frames(mut self, frames: u64) -> Self {
        self.frames = Some(frames);
        self
    }

    /// Size of a page: a power of two, 4 to 64 KiB. Default: 8 KiB.
    #[must_use]
    pub fn page_size(mut self, size: impl Into<Size>) -> Self {
        self.page_size = Some(size.into());
        self
    }

    /// The I/O backend for work with many requests: read-ahead, cleaning, flushing, syncing. A thread that misses a
    /// page reads it directly. Default: the best that works here.
    #[must_use]
    pub fn backend(mut self, prefer: Prefer) -> Self {
        self.backend = Some(prefer);
        self
    }

    /// Most requests in flight in each tablespace without its own setting. Default: 256.
    #[must_use]
    pub fn queue_depth(mut self, requests: usize) -> Self {
        self.queue_depth = Some(requests);
        self
    }

    /// Adds a tablespace. Files that name no tablespace go to the first one.
    #[must_use]
    pub fn tablespace(mut self, tablespace: Tablespace) -> Self {
        self.tablespaces.push(tablespace);
        self
    }

    /// A tablespace named `main` in `directory`, equivalent to [`PoolBuilder::tablespace`].
    #[must_use]
    pub fn directory(self, directory: impl Into<PathBuf>) -> Self {
        self.tablespace(Tablespace::new("main", directory))
    }

    /// The log that is flushed before pages are written. Default: none.
    #[must_use]
    pub fn wal(mut self, wal: Arc<dyn Wal>) -> Self {
        self.wal = Some(wal);
        self
    }

    /// How long a thread waits for a frame when all are pinned, before it gets an error. Default: one second.
    #[must_use]
    pub fn frame_wait(mut self, wait: Duration) -> Self {
        self.frame_wait = Some(wait);
        self
    }

    /// Request huge pages behind the frames: a page is found faster, and memory is taken from the system 2 MiB at a
    /// time. Default: yes; where they are not available, small pages are used. Source: the default of PostgreSQL's
    /// `huge_pages`, `try`.
    #[must_use]
    pub fn huge_pages(mut self, huge: bool) -> Self {
        self.huge_pages = Some(huge);
        self
    }

    /// Register the write buffers with the kernel where the backend can (uring): they are locked in
    /// memory, and writes of the queue cost less. [`BufferPool::notes`] says if they are not. Default: no.
    #[must_use]
    pub fn register_memory(mut self, register: bool) -> Self {
        self.register_memory = register;
        self
    }

    /// Most bytes in one request for read-ahead or writing, one page to 1 MiB. Default: 128 KiB.
    /// Source: PostgreSQL's io_combine_limit.
    #[must_use]
    pub fn combine_limit(mut self, limit: impl Into<Size>) -> Self {
        self.combine_limit = Some(limit.into());
        self
    }

    /// The look-ahead of streams without their own setting. Default: adaptive. Sequences in plain reads are detected
    /// and read ahead with `Async` and `Adaptive`, but not with the other strategies.
    #[must_use]
    pub fn readahead(mut self, strategy: ReadaheadStrategy) -> Self {
        self.readahead = Some(strategy);
        self
    }

    /// Take a checkpoint automatically when this much time has passed since the last one began, spread over the same
    /// time. In a pool with a log the first one must be requested: only the engine knows when it has recovered, and a
    /// checkpoint before that would make recovery start too late. Default: never.
    #[must_use]
    pub fn checkpoint_every(mut self, interval: Duration) -> Self {
        self.checkpoint_every = Some(interval);
        self
    }

    /// Take a checkpoint automatically when the log has grown by this many bytes since the last redo point (see
    /// [`Wal::position`]), and make checkpoints in progress keep up with the log. The first one must be requested, as
    /// for [`PoolBuilder::checkpoint_every`]. Default: never.
    #[must_use]
    pub fn checkpoint_log(mut self, bytes: impl Into<Size>) -> Self {
        self.checkpoint_log = Some(bytes.into());
        self
    }

    /// The share of its interval, and of the log until the next, by which a spread checkpoint has written
    /// its pages; the rest is for its syncs. More than 0, at most 1. Default: 0.9, as PostgreSQL's
    /// checkpoint_completion_target.
    #[must_use]
    pub fn checkpoint_target(mut self, share: f64) -> Self {
        self.checkpoint_target = Some(share);
        self
    }

    /// Whether a thread cleans victims ahead of need, and returns idle memory of page tables to the system. Default:
    /// yes.
    #[must_use]
    pub fn cleaner(mut self, cleaner: bool) -> Self {
        self.no_cleaner = !cleaner;
        self
    }

    /// Whether threads of the pool drive waiting futures; the first such future starts them. Default: yes. Without
    /// them, call [`BufferPool::drive`] from the loop that polls the futures, or they never complete.
    #[must_use]
    pub fn task_threads(mut self, threads: bool) -> Self {
        self.no_task_threads = !threads;
        self
    }

    /// The checksum of files without their own setting. No default: a pool is not built without it.
    #[must_use]
    pub fn checksum(mut self, checksum: Checksum) -> Self {
        self.checksum = Some(checksum);
        self
    }

    /// The on-disk form of pages, if it differs from memory, in files without their own setting. Default: the same.
    #[must_use]
    pub fn codec(mut self, codec: Arc<dyn PageCodec>) -> Self {
        self.codec = Some(codec);
        self
    }

    /// The protection against pages left half written by a crash. No default: a pool is not built without it.
    #[must_use]
    pub fn torn_pages(mut self, mode: TornPages) -> Self {
        self.torn_pages = Some(mode);
        self
    }

    /// The clock that measures waits. Default: the system's.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Builds the pool: locks its directories, maps its memory, opens its I/O queues.
    ///
    /// # Errors
    /// [`Error::Unchosen`] without [`checksum`](PoolBuilder::checksum) or [`torn_pages`](PoolBuilder::torn_pages);
    /// [`Error::Setting`] for an invalid setting, with the reason; [`Error::Profile`]; [`Error::InUse`] when another
    /// pool has one of the directories; [`Error::Io`] for memory or a backend that is not available.
    pub fn build(mut self) -> Result<BufferPool, Error> {
        #[cfg(feature = "config")]
        self.fill_in()?;
        let (Some(checksum), Some(torn_pages)) = (self.checksum, self.torn_pages) else {
            let (checksum, torn_pages) = (self.checksum.is_none(), self.torn_pages.is_none());
            return Err(Error::Unchosen { checksum, torn_pages });
        };
        let page_bytes = self.page_bytes()?;
        checksum.check_setting(page_bytes as usize)?;
        let frames = self.frame_count(page_bytes)?;
        let frames_most = self.frames_most(frames, page_bytes)? as usize;
        let tablespaces = self.all_tablespaces()?;
        let combine_bytes = self.combine_bytes(page_bytes)?;
        let triggers = self.triggers()?;
        torn_pages.check_checksum(checksum)?;
        if torn_pages == TornPages::Images && self.wal.is_none() {
            return Err(Error::Setting {
                setting: "torn pages",
                value: torn_pages.to_string(),
                expected:
                    "images of pages go to the log, and this pool has none: give it one with \
                           `wal`, or protect pages in another way"
                        .to_owned(),
            });
        }
        let (frames_count, page_bytes) = (frames as usize, page_bytes as usize);

        let memory = FrameMemory::new(frames_count, frames_most, page_bytes)?;
        let mut notes = Vec::new();
        if self.huge_pages.unwrap_or(true)
            && let Err(error) = memory.mapping().use_huge_pages()
        {
            notes.push(format!("huge pages were requested and refused ({error})"));
        }
        let buffers = (WRITE_BUFFER_BYTES / page_bytes).min(frames_most / 2).max(2);
        let buffers = WriteBuffers::new(buffers, page_bytes)?;
        let defaults = SpaceDefaults {
            prefer: self.backend.unwrap_or_default(),
            queue_depth: self.queue_depth,
            page_bytes,
            register: self.register_memory.then(|| Arc::clone(buffers.mapping())),
            torn_pages,
            write_buffers: buffers.count(),
            task_threads: !self.no_task_threads,
        };
        let spaces = Space::open_all(&tablespaces, &defaults)?;
        let checkpoint_queue = self.checkpoint_queue(&tablespaces, &spaces, &defaults)?;
        let clock: Arc<dyn Clock> = match self.clock.take() {
            Some(clock) => Arc::new(SteadyClock::over(clock)),
            None => Arc::new(SystemClock::new()),
        };
        let core = Core {
            cache: Cache {
                frames: Frames::with_room(frames_count, frames_most)?,
                replacement: ClockSweep::default(),
                frame_wait: self.frame_wait.unwrap_or(FRAME_WAIT_DEFAULT),
            },
            memory,
            checkpoints: Arc::new(RequestQueue::new(Arc::clone(&clock))),
            store: Store {
                files: Files::default(),
                spaces,
                buffers,
                wal: self.wal.take(),
                clock,
                counters: Counters::new(),
            },
            wakeup: Wakeup::new(),
            redo: RedoPoint::new(),
            checkpoint_queue,
            owner: Owner::this(),
            combine_pages: combine_bytes / page_bytes,
            readahead: self.readahead.unwrap_or_default(),
            resize: Mutex::new(()),
            budget: Budget::new(frames_count),
            gaps: OnceLock::new(),
            retries: Retries::new(!self.no_task_threads),
        };
        let files = FileDefaults { checksum, codec: self.codec };
        BufferPool::assemble(core, !self.no_cleaner, triggers, files, notes)
    }

    fn triggers(&self) -> Result<Triggers, Error> {
        let target = self.checkpoint_target.unwrap_or(TARGET_DEFAULT);
        if !(target > 0.0 && target <= 1.0) {
            return Err(Error::Setting {
                setting: "the target share of checkpoints",
                value: target.to_string(),
                expected: "it should be more than 0 and at most 1".to_owned(),
            });
        }
        let every = self.checkpoint_every;
        if every.is_some_and(|every| every.is_zero()) {
            return Err(Error::Setting {
                setting: "the interval of checkpoints",
                value: "0".to_owned(),
                expected: "give it some time, or leave it out for none by time".to_owned(),
            });
        }
        let log = self.checkpoint_log.as_ref();
        let log_bytes = log.map(|size| size.bytes("log between checkpoints")).transpose()?;
        if log_bytes == Some(0) || (log_bytes.is_some() && self.wal.is_none()) {
            return Err(Error::Setting {
                setting: "the log between checkpoints",
                value: log_bytes.unwrap_or_default().to_string(),
                expected: "it should be more than 0, and the pool should have a log".to_owned(),
            });
        }
        Ok(Triggers { every, log_bytes, target })
    }

    /// One queue for the checkpoints of several tablespaces.
    fn checkpoint_queue(
        &self,
        asked: &[Tablespace],
        spaces: &[Arc<Space>],
        defaults: &SpaceDefaults,
    ) -> Result<Option<Io>, Error> {
        if spaces.len() < 2 || asked.iter().any(|space| space.io.is_some()) {
            return Ok(None);
        }
        let direct = spaces.iter().all(|space| space.cache == CacheMode::Direct);
        Ok(Some(Io::open(&IoOptions {
            prefer: defaults.prefer,
            cache: if direct { CacheMode::Direct } else { CacheMode::Buffered },
            register: defaults.register.clone(),
            // Room for all of them; the checkpoint enforces each tablespace's own limit.
            queue_depth: spaces
                .iter()
                .map(|space| space.depth())
                .sum::<usize>()
                .min(QUEUE_DEPTH_MAX),
            ..IoOptions::default()
        })?))
    }

    fn page_bytes(&self) -> Result<u64, Error> {
        let asked = self.page_size.as_ref();
        let bytes = asked.map_or(Ok(PAGE_BYTES_DEFAULT), |size| size.bytes("page size"))?;
        if PAGE_BYTES.contains(&bytes) && bytes.is_power_of_two() {
            return Ok(bytes);
        }
        Err(Error::Setting {
            setting: "page size",
            value: bytes.to_string(),
            expected: "it should be a power of two from 4096 to 65536 bytes".to_owned(),
        })
    }

    fn combine_bytes(&self, page_bytes: u64) -> Result<usize, Error> {
        let asked = self.combine_limit.as_ref();
        let usual = COMBINE_BYTES.max(page_bytes);
        let bytes = asked.map_or(Ok(usual), |size| size.bytes("combine limit"))?;
        if (page_bytes..=COMBINE_BYTES_MAX).contains(&bytes) {
            return Ok(bytes as usize);
        }
        Err(Error::Setting {
            setting: "combine limit",
            value: bytes.to_string(),
            expected: format!("it should be from one page, {page_bytes}, to {COMBINE_BYTES_MAX}"),
        })
    }

    fn frame_count(&self, page_bytes: u64) -> Result<u64, Error> {
        match (self.frames, &self.memory) {
            (Some(_), Some(_)) => Err(Error::Setting {
                setting: "memory",
                value: "given as well as a number of frames".to_owned(),
                expected: "give one of the two".to_owned(),
            }),
            (Some(frames), None) => {
                check_frames("the number of frames", frames, frames, page_bytes)
            }
            (None, memory) => {
                let memory = memory.as_ref();
                let bytes = memory.map_or(Ok(MEMORY_DEFAULT), |size| size.bytes("memory"))?;
                frames_of("memory", bytes, page_bytes)
            }
        }
    }

    /// The largest number of frames that `frames` can grow to.
    fn frames_most(&self, frames: u64, page_bytes: u64) -> Result<u64, Error> {
        let Some(memory) = &self.memory_max else { return Ok(frames) };
        let most = frames_of("the most memory", memory.bytes("the most memory")?, page_bytes)?;
        if most >= frames {
            return Ok(most);
        }
        Err(Error::Setting {
            setting: "the most memory",
            value: (most * page_bytes).to_string(),
            expected: format!(
                "it should be at least what there is at first, {}",
                frames * page_bytes
            ),
        })
    }

    fn all_tablespaces(&mut self) -> Result<Vec<Tablespace>, Error> {
        let all = std::mem::take(&mut self.tablespaces);
        let twice = all
            .iter()
            .enumerate()
            .find(|(at, space)| all[..*at].iter().any(|earlier| earlier.name == space.name));
        if let Some((_, space)) = twice {
            return Err(Error::Setting {
                setting: "the name of a tablespace",
                value: format!("`{}` twice", space.name),
                expected: "each needs a separate name".to_owned(),
            });
        }
        if all.is_empty() {
            return Err(Error::Setting {
                setting: "the number of tablespaces",
                value: "0".to_owned(),
                expected: "name a directory with `directory` or `tablespace`".to_owned(),
            });
        }
        Ok(all)
    }
}

impl std::fmt::Debug for PoolBuilder {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("PoolBuilder")
            .field("memory", &self.memory)
            .field("frames", &self.frames)
            .field("page_size", &self.page_size)
            .field("tablespaces", &self.tablespaces)
            .finish_non_exhaustive()
    }
}
