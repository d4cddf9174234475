//! Tablespaces: where files are stored, and how they are read and written there.
//!
//! A tablespace is a directory with one cache mode, one set of I/O limits and one failure domain: when a sync fails in
//! it, nothing more is written to any of its files, because the data that the device has lost need not be in the file
//! whose sync failed.
//!
//! There are two queues. A thread that misses one page can only wait for it, so it reads with a plain `preadv`; the
//! queue of the best backend is for work with many concurrent requests (read-ahead, cleaning, flushing).
//!
//! A thread that waits for a page that is read ahead drives the queue that carries the read.
//!
//! Invariants:  [TBS-1] after a failed sync nothing in the tablespace is written or synced
//! Source:      PostgreSQL's "fsync errors" (2018).

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use forebay_io::{CacheMode, Io, IoOptions, Kind, Mapping, Op, Prefer, Volume};
use forebay_lookahead::{Costs, DeviceCosts};

use crate::error::Error;
use crate::store::directory_lock::DirectoryLock;
use crate::store::torn::{Opening, Torn, TornPages};
use crate::store::winners::Winners;
use crate::tasks::Driver;

/// Requests in flight in a tablespace that does not specify a number: as many as a fast disk can use (a virtual one
/// here is best at 64 to 256 random reads, see results/), plus a few large ones.
const QUEUE_DEPTH_DEFAULT: usize = 256;

/// Threads of the `threads` backend, each of which blocks on one request: more of them mostly contend with each other.
const WORKERS_MAX: usize = 64;

/// Where files are stored, as configured by the user.
#[derive(Debug, Clone)]
pub struct Tablespace {
    pub(crate) name: String,
    pub(crate) directory: PathBuf,
    pub(crate) cache: Option<CacheMode>,
    pub(crate) queue_depth: Option<usize>,
    pub(crate) io: Option<Io>,
    pub(crate) volume: Volume,
    pub(crate) costs: Option<DeviceCosts>,
    pub(crate) must_exist: bool,
    pub(crate) read_only: bool,
}

impl Tablespace {
    /// Files in `directory`, which is created if needed; buffered.
    pub fn new(name: impl Into<String>, directory: impl Into<PathBuf>) -> Tablespace {
        Tablespace {
            name: name.into(),
            directory: directory.into(),
            cache: None,
            queue_depth: None,
            io: None,
            volume: Volume::system(),
            costs: None,
            must_exist: false,
            read_only: false,
        }
    }

    /// Fails for a directory that does not exist, instead of creating it.
    #[must_use]
    pub fn must_exist(mut self, must_exist: bool) -> Self {
        self.must_exist = must_exist;
        self
    }

    /// Read-only access, concurrently with the writer: another process, or another pool of this one. The directory's
    /// lock is not taken, all files are opened read-only (no change through them reaches the disk), and nothing is
    /// repaired after a crash: that is the writer's task.
    ///
    /// A page that is being written at that moment may be read half old and half new. Its checksum or its codec detects
    /// that, and it is read again a few times, for some milliseconds in all, before the reader gets an error for a
    /// damaged page; with neither, this goes undetected. (A task that reads asynchronously retries as often, but never
    /// sleeps: the duration depends on what drives it.) Pages that have been read stay as they were until
    /// [`PagedFile::refresh`](crate::PagedFile::refresh): several pages need not be from the same moment, and none need
    /// match the writer's memory.
    #[must_use]
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// Bypasses the kernel's page cache, or goes through it. Default: through it.
    #[must_use]
    pub fn cache(mut self, cache: CacheMode) -> Self {
        self.cache = Some(cache);
        self
    }

    /// Most requests for read-ahead, cleaning, flushing and syncing in flight at once, 1 to 32,768. Default: 256.
    #[must_use]
    pub fn queue_depth(mut self, requests: usize) -> Self {
        self.queue_depth = Some(requests);
        self
    }

    /// Reads and writes only through this queue, such as one over a simulated disk.
    #[must_use]
    pub fn io(mut self, io: Io) -> Self {
        self.io = Some(io);
        self
    }

    /// Creates, truncates, removes and syncs its files and directories through this volume, such as that of a simulated
    /// disk. Default: [`Volume::system`].
    #[must_use]
    pub fn volume(mut self, volume: Volume) -> Self {
        self.volume = volume;
        self
    }

    /// The cost of a request and of a byte on the device, as measured by `forebay lab`; streams correct it while they
    /// run. Default: see [`DeviceCosts`].
    #[must_use]
    pub fn costs(mut self, costs: DeviceCosts) -> Self {
        self.costs = Some(costs);
        self
    }

    fn depth(&self, defaults: &SpaceDefaults) -> usize {
        self.queue_depth.or(defaults.queue_depth).unwrap_or(QUEUE_DEPTH_DEFAULT)
    }
}

/// A tablespace in use.
#[derive(Debug)]
pub(crate) struct Space {
    pub(crate) name: Arc<str>,
    pub(crate) directory: PathBuf,
    /// Performs all file operations except reads and writes.
    pub(crate) volume: Volume,
    pub(crate) cache: CacheMode,
    /// For one page that a thread waits for.
    pub(crate) sync_io: Io,
    /// For many requests at once.
    pub(crate) queue: Io,
    /// Drives it for tasks.
    pub(crate) driver: Driver,
    page_bytes: u32,
    costs: Mutex<Costs>,
    /// The mode in which streams read ahead through the page cache at the lowest cost.
    pub(crate) winners: Winners,
    /// The kernel's readahead, in bytes, as it was at the first query.
    readahead: OnceLock<Option<u64>>,
    failed: OnceLock<Arc<forebay_io::Error>>,
    pub(crate) torn: Torn,
    /// Notes for the user about the opening.
    pub(crate) notes: Vec<String>,
    /// Other pools write there.
    pub(crate) read_only: bool,
    /// `None` once the pool is closed, and where no lock is needed.
    lock: Mutex<Option<DirectoryLock>>,
}

/// The pool's settings for all tablespaces.
#[derive(Debug)]
pub(crate) struct SpaceDefaults {
    pub(crate) prefer: Prefer,
    pub(crate) queue_depth: Option<usize>,
    pub(crate) page_bytes: usize,
    pub(crate) register: Option<Arc<Mapping>>,
    pub(crate) torn_pages: TornPages,
    /// Pages that can be written at once.
    pub(crate) write_buffers: usize,
    /// True if threads of the pool may drive queues for tasks.
    pub(crate) task_threads: bool,
}

impl Space {
    /// Opens all tablespaces of a pool, each in a separate directory.
    pub(crate) fn open_all(
        asked: &[Tablespace],
        defaults: &SpaceDefaults,
    ) -> Result<Vec<Arc<Space>>, Error> {
        let mut spaces: Vec<Arc<Space>> = Vec::with_capacity(asked.len());
        for asked in asked {
            match Space::open(asked, defaults) {
                Ok(space) => spaces.push(Arc::new(space)),
                Err(Error::InUse { directory, holder }) => {
                    let first = spaces.iter().find(|space| space.is_in(&directory));
                    return Err(match first {
                        None => Error::InUse { directory, holder },
                        Some(first) => Error::Setting {
                            setting: "the directory of a tablespace",
                            value: format!(
                                "{}, given to `{}` and `{}`",
                                directory.display(),
                                first.name,
                                asked.name
                            ),
                            expected: "each needs a separate directory".to_owned(),
                        },
                    });
                }
                Err(error) => return Err(error),
            }
        }
        Ok(spaces)
    }

    /// True if it has the directory locked, under any name.
    fn is_in(&self, directory: &Path) -> bool {
        let number = |path: &Path| path.metadata().map(|it| (it.dev(), it.ino())).ok();
        !self.read_only && number(&self.directory) == number(directory)
    }

    fn open(asked: &Tablespace, defaults: &SpaceDefaults) -> Result<Space, Error> {
        if !asked.must_exist && !asked.read_only {
            asked.volume.make_directory(&asked.directory)?;
        }
        // Absolute from here on: the process may change its working directory.
        let directory = asked.volume.canonicalize(&asked.directory)?;
        let lock = (!asked.read_only).then(|| DirectoryLock::take(&directory)).transpose()?;
        let cache = asked.cache.unwrap_or_default();
        let (sync_io, queue) = match &asked.io {
            Some(io) => (io.clone(), io.clone()),
            None => queues(asked, defaults, cache)?,
        };
        let opening = Opening {
            volume: &asked.volume,
            directory: &directory,
            cache,
            sync_io: &sync_io,
            queue: &queue,
            page_bytes: defaults.page_bytes,
            write_buffers: defaults.write_buffers,
        };
        let (torn, mut notes) = match asked.read_only {
            true => (Torn::Unprotected, Vec::new()),
            false => Torn::open(defaults.torn_pages, &opening)?,
        };
        if cache == CacheMode::Direct && !asked.read_only && asked.io.is_none() {
            notes.extend(through_cache_note(&asked.volume, &directory));
        }
        if asked.io.is_some() && defaults.register.is_some() {
            notes.push(
                "the write buffers are not registered: the tablespace was given a private queue"
                    .to_owned(),
            );
        }
        Ok(Space {
            name: asked.name.as_str().into(),
            directory,
            volume: asked.volume.clone(),
            cache,
            sync_io,
            queue,
            driver: Driver::new(defaults.task_threads),
            page_bytes: defaults.page_bytes as u32,
            costs: Mutex::new(Costs::new(asked.costs.unwrap_or_default())),
            winners: Winners::default(),
            readahead: OnceLock::new(),
            failed: OnceLock::new(),
            torn,
            notes,
            read_only: asked.read_only,
            lock: Mutex::new(lock),
        })
    }

    /// Most requests in flight.
    pub(crate) fn depth(&self) -> usize {
        self.queue.queue_depth()
    }

    /// Records that the device, kept busy, took `busy` for `requests` requests of `bytes` bytes in all.
    pub(crate) fn observe(&self, requests: u32, bytes: u64, busy: Duration) {
        self.costs().observe(requests, bytes, busy);
    }

    /// Most blocks to read through rather than make another request.
    pub(crate) fn gap_blocks(&self) -> u32 {
        self.costs().gap_blocks(self.page_bytes)
    }

    /// The cost of requests and bytes on the device, as far as it is known now.
    pub(crate) fn device_costs(&self) -> DeviceCosts {
        self.costs().now()
    }

    pub(crate) fn page_bytes(&self) -> u64 {
        u64::from(self.page_bytes)
    }

    /// The kernel's readahead in this tablespace, in bytes, which `ask` determines once; `None` where the system does
    /// not report it.
    pub(crate) fn kernel_readahead(&self, ask: impl FnOnce() -> Option<u64>) -> Option<u64> {
        *self.readahead.get_or_init(ask)
    }

    fn costs(&self) -> MutexGuard<'_, Costs> {
        // A value left by a panic is acceptable: it is only an estimate.
        self.costs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Processes the reads that have completed by now.
    pub(crate) fn poll(&self) {
        if self.queue.in_flight() > 0 {
            self.queue.poll();
        }
    }

    /// Waits for all reads ahead and writes in progress.
    pub(crate) fn drain(&self) {
        self.queue.drain();
    }

    /// Releases the directory for others.
    pub(crate) fn unlock(&self) {
        drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// Returns an error once a sync has failed.
    pub(crate) fn check_sound(&self) -> Result<(), Error> {
        match self.failed.get() {
            None => Ok(()),
            Some(first) => {
                Err(Error::Failed { tablespace: Arc::clone(&self.name), first: Arc::clone(first) })
            }
        }
    }

    /// A sync failed: the tablespace is failed from now on ([TBS-1]). A sync that could not be started, for example for
    /// lack of a descriptor, has lost nothing and can be repeated.
    pub(crate) fn sync_failed(&self, error: forebay_io::Error) -> Error {
        let first = match error {
            forebay_io::Error::Failed { first } => first,
            other if other.is_failed_sync() => Arc::new(other),
            other => return Error::Io(other),
        };
        let first = Arc::clone(self.failed.get_or_init(|| first));
        tracing::error!(tablespace = %self.name, error = %first, "a sync failed");
        Error::Failed { tablespace: Arc::clone(&self.name), first }
    }

    /// The result of a change of files and names: if a sync failed in it, the tablespace fails.
    pub(crate) fn latched(&self, changed: Result<(), Error>) -> Result<(), Error> {
        changed.map_err(|error| match error {
            Error::Io(error) if error.is_failed_sync() => self.sync_failed(error),
            error => error,
        })
    }

    /// The error of a request, as the pool's callers see it.
    pub(crate) fn failure(&self, op: Op, error: forebay_io::Error) -> Error {
        match error {
            error @ forebay_io::Error::Failed { .. } if op != Op::Read => self.sync_failed(error),
            error => Error::Io(error),
        }
    }
}

/// A note for the user about direct I/O that goes through the page cache.
fn through_cache_note(volume: &Volume, directory: &Path) -> Option<String> {
    let it = match volume.through_cache(directory) {
        Ok(it) => it,
        Err(error) => {
            tracing::debug!(%error, "it cannot be seen whether direct I/O goes past the page cache");
            return None;
        }
    };
    (!it.is_nothing()).then(|| {
        format!(
            "direct {it} in {} go through the kernel's page cache, as btrfs does with files that have checksums, and ext4 \
             with journalled data; open it buffered, or turn that off (chattr +C for new files on btrfs)",
            directory.display()
        )
    })
}

fn queues(
    asked: &Tablespace,
    defaults: &SpaceDefaults,
    cache: CacheMode,
) -> Result<(Io, Io), Error> {
    let depth = asked.depth(defaults);
    let register = defaults.register.clone();
    let queue = Io::open(&queue_options(defaults.prefer, cache, depth, register))?;
    let sync_io = Io::open(&IoOptions {
        prefer: Prefer::Only(Kind::Sync),
        cache,
        // Every thread that misses has one request here, and none should wait for another.
        queue_depth: 32_768,
        // A thread that submits here waits at once: a hint would only add a system call.
        advise: false,
        ..IoOptions::default()
    })?;
    Ok((sync_io, queue))
}

fn queue_options(
    prefer: Prefer,
    cache: CacheMode,
    queue_depth: usize,
    register: Option<Arc<Mapping>>,
) -> IoOptions {
    let workers = queue_depth.min(WORKERS_MAX);
    IoOptions { prefer, cache, queue_depth, workers, register, advise: true }
}
