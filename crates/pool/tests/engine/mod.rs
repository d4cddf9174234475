//! A reference engine: counters in pages, a log, and recovery, small enough to be verified by reading.
//!
//! It does what a storage engine does with a pool, and no more: each operation changes several pages of several files
//! under their exclusive latches, is one record of the log, and is acknowledged when that record is durable.
//! Checkpoints move the redo point; recovery replays the log after it. Files are created, extended, truncated and
//! dropped. A separate oracle ([`oracle`]) knows what was promised to which worker.
//!
//! The order of steps; a checkpoint may occur between any two of them:
//!
//! - A change: latch all pages, append the record, change the pages, mark them dirty, unlatch; then flush.
//! - A file is created or extended before the record is appended. So at a redo point after the record the change is
//!   already made, and the checkpoint that sets the redo point makes it durable.
//! - A file is truncated or removed after the record is durable. So nothing is lost without a record in the log; files
//!   that are too long or still exist after a crash are cut or removed by recovery. Blocks that are added again by an
//!   extension are zero, whatever recovery finds there.
//!
//! Invariants:  after recovery every acknowledged operation is present; any other one completely or not at all
//! Concurrency: any thread; operations on files exclude all others, operations on counters wait only for each other's
//!              pages.
//! Failure:     any failure after a record was appended stops the engine; opening it again recovers it.
//! Source:      ARIES for repeating history; PostgreSQL for the order of file changes and records.

pub(crate) mod cipher;
pub(crate) mod control;
pub(crate) mod disk;
pub(crate) mod error;
pub(crate) mod log;
pub(crate) mod op;
pub(crate) mod oracle;
pub(crate) mod page;
pub(crate) mod recovery;
pub(crate) mod worker;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread;
use std::time::Duration;

use forebay::{
    Block, BufferPool, CheckpointOptions, CheckpointReport, Checksum, FileOptions, Lsn, PageCodec,
    PageMut, PagedFile, Tablespace, TornPages, Wal,
};
use forebay_io::{CacheMode, Io, Volume};

pub(crate) use error::Error;
use log::Log;
use op::{Entry, FileName, Op, PageName, Record};
use page::PAGE;

/// Prefix of the names of tablespaces, followed by their numbers.
const SPACE: &str = "space-";

/// The file of the catalog and the ledger.
pub(crate) const META: &str = "meta";

/// How an engine is opened.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// The directory that contains everything: `log`, and one directory for each tablespace.
    pub(crate) root: PathBuf,
    /// The queue for all transfers, such as one over a simulated disk.
    pub(crate) io: Option<Io>,
    /// The layer between the engine and the names and sizes of its files.
    pub(crate) volume: Volume,
    pub(crate) frames: u64,
    pub(crate) spaces: u8,
    pub(crate) cache: CacheMode,
    pub(crate) cleaner: bool,
    /// The protection against torn pages.
    pub(crate) torn: TornPages,
    /// The codec for pages on disk, if any.
    pub(crate) codec: Option<Arc<dyn PageCodec>>,
    /// Checkpoints start automatically, at this interval and after this many bytes of log.
    pub(crate) checkpoint_every: Option<Duration>,
    pub(crate) checkpoint_log: Option<u64>,
    /// Recovery ends in a checkpoint.
    pub(crate) checkpoint_at_open: bool,
    /// Maximum delay, now and then, between a record in the log and the change of its pages: this makes it more likely
    /// that a checkpoint falls into that interval, which it must not.
    pub(crate) dawdle: Duration,
}

impl Settings {
    /// Two buffered tablespaces and a pool that is too small for their pages.
    pub(crate) fn new(root: impl Into<PathBuf>) -> Settings {
        Settings {
            root: root.into(),
            io: None,
            volume: Volume::system(),
            frames: 64,
            spaces: 2,
            cache: CacheMode::Buffered,
            cleaner: true,
            torn: TornPages::Unprotected,
            codec: None,
            checkpoint_every: None,
            checkpoint_log: None,
            checkpoint_at_open: false,
            dawdle: Duration::ZERO,
        }
    }

    pub(crate) fn log_directory(&self) -> PathBuf {
        self.root.join("log")
    }

    fn space_name(space: u8) -> String {
        format!("{SPACE}{space}")
    }

    pub(crate) fn space_directory(&self, space: u8) -> PathBuf {
        self.root.join(Settings::space_name(space))
    }

    fn pool(&self, log: &Arc<Log>) -> forebay::Result<BufferPool> {
        let mut builder = BufferPool::builder()
            .frames(self.frames)
            .page_size(PAGE)
            .checksum(Checksum::Crc32c { offset: 0 })
            .frame_wait(Duration::from_millis(200))
            .cleaner(self.cleaner)
            .torn_pages(self.torn)
            .wal(Arc::clone(log) as Arc<dyn Wal>);
        if let Some(codec) = &self.codec {
            builder = builder.codec(Arc::clone(codec));
        }
        if let Some(interval) = self.checkpoint_every {
            builder = builder.checkpoint_every(interval);
        }
        if let Some(bytes) = self.checkpoint_log {
            builder = builder.checkpoint_log(bytes);
        }
        for space in 0..self.spaces {
            let name = Settings::space_name(space);
            let mut tablespace = Tablespace::new(name, self.space_directory(space))
                .cache(self.cache)
                .volume(self.volume.clone());
            if let Some(io) = &self.io {
                tablespace = tablespace.io(io.clone());
            }
            builder = builder.tablespace(tablespace);
        }
        builder.build()
    }
}

/// A file of the catalog, open.
#[derive(Debug)]
struct Open {
    name: FileName,
    file: PagedFile,
    blocks: Block,
}

type Files = Vec<Option<Open>>;

/// An open engine. Dropping it directly is equivalent to a crash of the process alone.
#[derive(Debug)]
pub(crate) struct Engine {
    pool: BufferPool,
    log: Arc<Log>,
    meta: PagedFile,
    /// The catalog, and the right to change it.
    files: RwLock<Files>,
    stopped: AtomicBool,
    dawdle: Duration,
}

impl Engine {
    /// Opens the database in `settings.root`, which is created or recovered.
    pub(crate) fn open(settings: &Settings) -> Result<Engine, Error> {
        recovery::open(settings).map(|(engine, _)| engine)
    }

    pub(crate) fn pool(&self) -> &BufferPool {
        &self.pool
    }

    pub(crate) fn log(&self) -> &Log {
        &self.log
    }

    /// The existing files, with their lengths.
    pub(crate) fn catalog(&self) -> Vec<(FileName, Block)> {
        self.files().iter().flatten().map(|open| (open.name, open.blocks)).collect()
    }

    /// The name that the next file in `space` would have; `None` if there are already as many files as possible.
    pub(crate) fn next_name(&self, space: u8) -> Result<Option<FileName>, Error> {
        let slots = page::slots(&self.meta.read(PageName::CATALOG.block)?);
        let free = (0..).zip(slots).find(|(_, slot)| slot.live.is_none());
        Ok(free.map(|(number, slot)| FileName { slot: number, space, serial: slot.serial + 1 }))
    }

    /// The serial number of the worker's newest operation.
    pub(crate) fn serial(&self, worker: u8) -> Result<u64, Error> {
        Ok(page::serial(&self.meta.read(PageName::ledger(worker).block)?))
    }

    /// Executes one operation and makes it durable. Returns its LSN.
    ///
    /// # Errors
    /// If [`Error::is_retry`] returns true, nothing was done. After any other error only recovery shows the outcome.
    pub(crate) fn commit(&self, entry: &Entry) -> Result<Lsn, Error> {
        self.check_running()?;
        let lsn = match &entry.op {
            Op::Transfer(_) => {
                let files = self.files();
                check(entry, &files)?;
                self.or_stop(self.change(entry, &files))?
            }
            _ => self.commit_on_files(entry)?,
        };
        self.or_stop(self.log.flush(lsn).map_err(Error::from))?;
        Ok(lsn)
    }

    fn commit_on_files(&self, entry: &Entry) -> Result<Lsn, Error> {
        let mut files = self.files_mut();
        check(entry, &files)?;
        match &entry.op {
            Op::Create(name) => {
                let slot = page::slot(&self.meta.read(PageName::CATALOG.block)?, name.slot);
                // The slot may have had another file since the name was chosen.
                if slot.serial + 1 != name.serial {
                    return Err(Error::Stale);
                }
                let file = self.open_file(*name, true)?;
                // Contents that a creation without a log record may have left.
                file.truncate(0)?;
                let lsn = self.or_stop(self.change(entry, &files))?;
                files[usize::from(name.slot)] = Some(Open { name: *name, file, blocks: 0 });
                Ok(lsn)
            }
            Op::Extend { file, from, to } => {
                let open = files[usize::from(file.slot)].as_ref().ok_or(Error::Stale)?;
                open.file.truncate(*from)?;
                open.file.extend(to - from)?;
                let lsn = self.or_stop(self.change(entry, &files))?;
                self.resized(&mut files, *file, *to);
                Ok(lsn)
            }
            Op::Truncate { file, to } => {
                let lsn = self.or_stop(self.change(entry, &files))?;
                let open = files[usize::from(file.slot)].as_ref().ok_or(Error::Stale)?;
                self.or_stop(self.log.flush(lsn).map_err(Error::from))?;
                self.or_stop(open.file.truncate(*to).map_err(Error::from))?;
                self.resized(&mut files, *file, *to);
                Ok(lsn)
            }
            Op::Drop(file) => {
                let lsn = self.or_stop(self.change(entry, &files))?;
                self.or_stop(self.log.flush(lsn).map_err(Error::from))?;
                let open = files[usize::from(file.slot)].take().ok_or(Error::Stale)?;
                self.or_stop(open.file.drop_file().map_err(Error::from))?;
                Ok(lsn)
            }
            Op::Transfer(_) => Err(Error::Stale),
        }
    }

    fn resized(&self, files: &mut Files, file: FileName, blocks: Block) {
        if let Some(open) = &mut files[usize::from(file.slot)] {
            open.blocks = blocks;
        }
    }

    /// Closes a file and opens it again: after that its pages must not depend on any state in the pool.
    ///
    /// # Errors
    /// If [`Error::is_retry`] returns true, nothing was done.
    pub(crate) fn reopen(&self, name: FileName) -> Result<(), Error> {
        self.check_running()?;
        let mut files = self.files_mut();
        let open = files[usize::from(name.slot)].as_mut().filter(|open| open.name == name);
        let open = open.ok_or(Error::Stale)?;
        match open.file.close() {
            // The cleaner or a checkpoint holds a page for a moment; the file stays open.
            Err(forebay::Error::Busy { .. }) => return Ok(()),
            closed => closed?,
        }
        open.file = self.or_stop(self.open_file(name, false))?;
        Ok(())
    }

    /// Appends the record and changes its pages.
    fn change(&self, entry: &Entry, files: &Files) -> Result<Lsn, Error> {
        let names = entry.pages();
        let mut pages: Vec<PageMut<'_>> = Vec::with_capacity(names.len());
        for name in &names {
            let page = self.paged(*name, files)?.write(name.block)?;
            page::expects(&page, *name, entry)
                .map_err(|damage| Error::Damaged { page: *name, damage })?;
            pages.push(page);
        }
        let lsn = self.log.append(&Record::Entry(entry.clone()));
        self.dawdle();
        for (page, name) in pages.iter_mut().zip(names) {
            page::apply(page, name, entry, lsn);
            // For most pages no LSN is given, and the pool uses the end of the log.
            if lsn.0.is_multiple_of(4) {
                page.mark_dirty(lsn);
            }
        }
        Ok(lsn)
    }

    fn dawdle(&self) {
        let most = self.dawdle.as_micros() as u64;
        if most > 0 && fastrand::u32(0..8) == 0 {
            thread::sleep(Duration::from_micros(fastrand::u64(0..most)));
        }
    }

    fn paged<'a>(&'a self, name: PageName, files: &'a Files) -> Result<&'a PagedFile, Error> {
        let Some(file) = name.file else {
            return Ok(&self.meta);
        };
        let open = files[usize::from(file.slot)].as_ref().filter(|open| open.name == file);
        Ok(&open.ok_or(Error::Stale)?.file)
    }

    /// Writes all pages that are dirty now and moves the redo point to the current position.
    pub(crate) fn checkpoint(&self) -> Result<CheckpointReport, Error> {
        self.checkpoint_with(CheckpointOptions::now())
    }

    pub(crate) fn checkpoint_with(
        &self,
        options: CheckpointOptions,
    ) -> Result<CheckpointReport, Error> {
        self.check_running()?;
        Ok(self.pool.checkpoint(options)?)
    }

    /// Writes the dirty pages of one file.
    pub(crate) fn flush_file(&self, name: FileName) -> Result<u64, Error> {
        let files = self.files();
        Ok(self.paged(PageName { file: Some(name), block: 0 }, &files)?.flush_file()?)
    }

    /// The file of that name, or the catalog's file.
    pub(crate) fn paged_file(&self, file: Option<FileName>) -> Result<PagedFile, Error> {
        self.paged(PageName { file, block: 0 }, &self.files()).cloned()
    }

    /// The page as it is in memory.
    pub(crate) fn bytes_of(&self, name: PageName) -> Result<Vec<u8>, Error> {
        let files = self.files();
        Ok(self.paged(name, &files)?.read(name.block)?.to_vec())
    }

    fn open_file(&self, name: FileName, create: bool) -> Result<PagedFile, Error> {
        open_file(&self.pool, name, create)
    }

    fn check_running(&self) -> Result<(), Error> {
        if self.stopped.load(Ordering::SeqCst) { Err(Error::Stopped) } else { Ok(()) }
    }

    /// Stops the engine after a failure that cannot be retried.
    fn or_stop<T>(&self, result: Result<T, Error>) -> Result<T, Error> {
        result.inspect_err(|error| {
            if !error.is_retry() {
                self.stopped.store(true, Ordering::SeqCst);
            }
        })
    }

    fn files(&self) -> RwLockReadGuard<'_, Files> {
        self.files.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn files_mut(&self) -> RwLockWriteGuard<'_, Files> {
        self.files.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The engine's name of the pool's page, if it is one of the engine's.
fn page_name(tablespace: &str, file: &str, block: Block) -> Option<PageName> {
    let space = tablespace.strip_prefix(SPACE)?.parse().ok()?;
    let file = if file == META { None } else { Some(FileName::parse(space, file)?) };
    Some(PageName { file, block })
}

fn open_file(pool: &BufferPool, name: FileName, create: bool) -> Result<PagedFile, Error> {
    let space = Settings::space_name(name.space);
    let options = FileOptions::new().create(create).tablespace(space);
    Ok(pool.open_file(&name.on_disk(), &options)?)
}

/// Checks that the operation is possible in the current state.
fn check(entry: &Entry, files: &Files) -> Result<(), Error> {
    let blocks = |file: &FileName| {
        let open = files[usize::from(file.slot)].as_ref().filter(|open| open.name == *file);
        open.map(|open| open.blocks)
    };
    let can = match &entry.op {
        Op::Transfer(changes) => {
            changes.iter().all(|it| blocks(&it.file).is_some_and(|blocks| it.block < blocks))
        }
        Op::Create(file) => files[usize::from(file.slot)].is_none(),
        Op::Extend { file, from, to } => blocks(file) == Some(*from) && from < to,
        Op::Truncate { file, to } => blocks(file).is_some_and(|blocks| *to < blocks),
        Op::Drop(file) => blocks(file).is_some(),
    };
    if can { Ok(()) } else { Err(Error::Stale) }
}
