//! The local tier: slots of objects, as they were fetched, on a disk of this machine.
//!
//! Objects are immutable, and each has a unique stamp, so a cached slot is valid forever: nothing here is
//! ever out of date; it can only become useless. A slot names, under its checksum, its page and its object,
//! and slots read from here are verified like slots from the store. So no damage to these
//! files makes a read wrong: a slot that is damaged, torn or missing is fetched from the store, counted, and removed
//! from the catalog.
//!
//! ```text
//! plan --- all but one GET's worth is here? ---> read, verify ---> pages
//!   |                                              | damaged: forgotten, and
//!   +--- else: GET, verify ---> pages   <----------+
//!                  +---> queue ---> newest segment (one thread that may block)
//! ```
//!
//! The tier belongs to one client, and its directory to one at a time. The oldest segments make room for new
//! ones (`catalog`); their format is in `segment`. Opening reads their tables, a few bytes a page, not the pages.
//!
//! Invariants:  [TIR-1] all segments together take no more than the configured bytes
//!              [TIR-2] bytes leave here only through the check that bytes from the store go through
//! Concurrency: any thread looks up; reads and writes are on threads that may block, writes on one at a time. The
//!              catalog's lock is never held across I/O.
//! Failure:     a failing disk makes lookups miss and slots not admitted. A full disk takes segments from the tier.
//!              After eight reads, or writes, that fail without a success in between, the tier is off until it is
//!              reopened.

mod catalog;
mod segment;

use std::collections::HashSet;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use forebay_io::{
    Advice, Arena, Error as IoError, File, Io, IoOptions, Lease, OpenOptions, Request, Ticket,
    Volume,
};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};

use crate::error::{Error, Result};
use crate::local::{local_error, lock};
use crate::stats::{Stats, count};
use catalog::Catalog;
pub(crate) use segment::SlotKey;
use segment::{HEADER_BYTES, ROW_BYTES, Row, Segment, Spot};

const LOCK: &str = "forebay-object-tier.lock";
/// Tries to take the lock, every 10 ms: the last write of a tier that was dropped may still be in progress.
const LOCK_TRIES: u32 = 100;
/// Minimum bytes of a tier.
const BYTES_LEAST: u64 = 1 << 20;
/// Maximum bytes of one request to the disk.
const LEASE_BYTES: usize = 128 << 10;
/// Requests of a thread to the disk at a time, and number of threads that read.
const JOB_REQUESTS: usize = 16;
const JOBS: usize = 4;
/// Maximum bytes in the queue to the tier; slots that exceed it are not admitted.
const QUEUED_MOST: usize = 32 << 20;
/// A disk that takes longer than this is slower than a store.
const PATIENCE: Duration = Duration::from_secs(2);
/// Failures in a row after which the tier is off.
const FAILURES_MOST: u32 = 8;

/// A cache of pages on a local disk, for a [`Bucket`](crate::Bucket)'s readers, writers and mounts. It survives
/// restarts and crashes, is verified by checksums, and is never needed: a disk that is full, fails, is emptied or
/// damaged makes reads slower; [`Bucket::tier_failure`](crate::Bucket::tier_failure) and the statistics report that.
#[derive(Debug, Clone)]
pub struct Tier {
    /// Its directory, which is made if it does not exist and is the tier's alone.
    pub directory: PathBuf,
    /// Maximum bytes of its files, at least 1 MiB. In memory it takes 16 to 32 bytes a page, 10 MiB for requests to the
    /// disk, and up to 34 MiB for pages on their way there.
    pub bytes: u64,
    /// The queue of the directory's disk. Default: a new one.
    pub io: Option<Io>,
}

/// A slot in the tier, of a wanted page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Hit {
    spot: Spot,
    key: SlotKey,
}

/// A slot to be written into the tier.
struct Admitted {
    key: SlotKey,
    bytes: Bytes,
    many: bool,
}

#[derive(Default)]
struct Queue {
    slots: Vec<Admitted>,
    /// Including the slots that are being written.
    bytes: usize,
    /// When the writing thread has begun its current write.
    begun: Option<Instant>,
}

pub(crate) struct LocalTier {
    directory: PathBuf,
    io: Io,
    /// Memory of reads, and of the writing thread.
    read_memory: Arc<Arena>,
    write_memory: Arc<Arena>,
    reads: Arc<Semaphore>,
    catalog: Mutex<Catalog>,
    queue: Mutex<Queue>,
    failure: Mutex<Option<Error>>,
    /// Failures in a row, separately: a disk that accepts writes may fail reads.
    reads_failed: AtomicU32,
    writes_failed: AtomicU32,
    hits: AtomicU64,
    misses: AtomicU64,
    damaged: AtomicU64,
    failures: AtomicU64,
    lock: fs::File,
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LocalTier {
    pub(crate) fn open(tier: &Tier) -> Result<Arc<LocalTier>> {
        if tier.bytes < BYTES_LEAST {
            return Err(Error::Setting {
                setting: "the bytes of a local tier",
                value: tier.bytes.to_string(),
                expected: "it should be at least 1 MiB",
            });
        }
        let directory = &tier.directory;
        let failed = |error: IoError| {
            let (path, what) = (directory.display().to_string(), error.to_string());
            Error::Local { path, what }
        };
        let lock = own(directory)?;
        let io = match &tier.io {
            Some(io) => io.clone(),
            None => {
                let queue_depth = JOB_REQUESTS * (JOBS + 1);
                Io::open(&IoOptions { queue_depth, ..IoOptions::default() }).map_err(failed)?
            }
        };
        let arena = |jobs| Arena::new(JOB_REQUESTS * jobs, LEASE_BYTES).map_err(failed);
        let segment_bytes = (tier.bytes / 32).clamp(128 << 10, 1 << 30);
        let opened = LocalTier {
            directory: directory.clone(),
            io,
            read_memory: arena(JOBS)?,
            write_memory: arena(1)?,
            reads: Arc::new(Semaphore::new(JOBS)),
            catalog: Mutex::new(Catalog::new(segment_bytes, tier.bytes)),
            queue: Mutex::default(),
            failure: Mutex::default(),
            reads_failed: AtomicU32::new(0),
            writes_failed: AtomicU32::new(0),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            damaged: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            lock,
        };
        opened.recover()?;
        Ok(Arc::new(opened))
    }

    /// Adopts the segments of an earlier tier, newest first, as far as there is room.
    fn recover(&self) -> Result<()> {
        let listed = || {
            let names = fs::read_dir(&self.directory)?.map(|it| Ok(it?.file_name()));
            names.collect::<std::io::Result<Vec<_>>>()
        };
        let names = listed().map_err(|error| local_error(&self.directory, &error))?;
        let mut numbers: Vec<u32> =
            names.iter().filter_map(|it| Segment::number(it.to_str()?)).collect();
        numbers.sort_unstable();
        numbers.last().into_iter().for_each(|it| held(&self.catalog).begin_after(*it));
        for number in numbers.into_iter().rev() {
            let kept = match self.load(number) {
                Ok(Some((segment, rows))) => held(&self.catalog).take_up(segment, rows),
                Ok(None) => false,
                Err(error) => {
                    self.note(&self.reads_failed, &error.to_string());
                    false
                }
            };
            if held(&self.catalog).is_off() {
                // The rest may be readable when the disk has recovered.
                break;
            }
            if !kept {
                self.delete(vec![number]);
            }
        }
        Ok(())
    }

    fn load(&self, number: u32) -> Result<Option<(Segment, Vec<Row>)>, IoError> {
        let file = self.open_file(number, &OpenOptions::new())?;
        let len = file.len()?;
        let header = self.read(&file, 0, HEADER_BYTES.min(len))?;
        let Some(rows) = segment::rows(&header) else {
            self.found_damaged(&format!("segment {number:08x} has no header that is known"));
            return Ok(None);
        };
        if segment::slots_at(rows) > len {
            // Nothing was written into it before its process ended.
            return Ok(None);
        }
        let table = self.read(&file, HEADER_BYTES, u64::from(rows) * ROW_BYTES)?;
        let mut segment = Segment { number, file, rows, taken: 0, end: len, used: false };
        let mut found = Vec::new();
        for (at, row) in (1..).zip(table.chunks_exact(ROW_BYTES as usize)) {
            if row.iter().all(|it| *it == 0) {
                continue;
            }
            segment.taken = at;
            match segment::decode_row(row, number, len) {
                Some(row) => found.push(row),
                None => self.found_damaged(&format!("a row of segment {number:08x} is damaged")),
            }
        }
        Ok(Some((segment, found)))
    }

    fn path(&self, number: u32) -> PathBuf {
        self.directory.join(Segment::name(number))
    }

    pub(crate) fn find(&self, key: SlotKey) -> Option<Hit> {
        held(&self.catalog).find(key).map(|spot| Hit { spot, key })
    }

    /// Records that `pages` wanted pages were requested from the store.
    pub(crate) fn missed(&self, pages: usize) {
        count(&self.misses, pages as u64);
    }

    /// Records that `pages` pages from the tier were valid.
    pub(crate) fn has_hit(&self, pages: usize) {
        count(&self.hits, pages as u64);
    }

    /// The bytes of a slot from the tier were not valid: removes the slot.
    pub(crate) fn is_damaged(&self, hit: &Hit, what: &str) {
        held(&self.catalog).remove(hit.key, hit.spot);
        self.found_damaged(what);
    }

    fn found_damaged(&self, what: &str) {
        if self.damaged.fetch_add(1, Ordering::Relaxed) == 0 {
            let directory = self.directory.display();
            tracing::warn!(%directory, what, "the local tier is damaged; pages are fetched again");
        }
    }

    /// Reads slots; slots that cannot be read are removed and left out. Returns each with its index in `hits`.
    pub(crate) async fn slots(self: &Arc<Self>, hits: &[Hit]) -> Vec<(usize, Bytes)> {
        let mut order: Vec<(Hit, usize)> = hits.iter().copied().zip(0..).collect();
        order.sort_unstable();
        let joins = |left: &(Hit, usize), right: &(Hit, usize)| {
            let (left, right) = (left.0.spot, right.0.spot);
            left.segment == right.segment && left.offset + left.len >= right.offset
        };
        let runs = order.chunk_by(joins).flat_map(|run| {
            // As many adjacent slots at a time as fit into a request.
            let mut left = run;
            std::iter::from_fn(move || {
                let start = left.first()?.0.spot.offset;
                let end = |it: &(Hit, usize)| (it.0.spot.offset + it.0.spot.len - start) as usize;
                let (run, rest) = left.split_at(left.partition_point(|it| end(it) <= LEASE_BYTES));
                left = rest;
                Some(run.to_vec())
            })
        });
        let runs: Vec<Vec<(Hit, usize)>> = runs.collect();
        let mut jobs: FuturesUnordered<_> =
            runs.chunks(JOB_REQUESTS).map(|runs| self.read_runs(runs.to_vec())).collect();
        let mut slots = Vec::new();
        while let Some(read) = jobs.next().await {
            slots.extend(read);
        }
        slots
    }

    async fn read_runs(self: &Arc<Self>, runs: Vec<Vec<(Hit, usize)>>) -> Vec<(usize, Bytes)> {
        let _permit = self.reads.acquire().await;
        let tier = Arc::clone(self);
        // A read that hangs keeps its thread and its memory; without memory other reads go to the store.
        let reading = spawn_blocking(move || tier.read_now(&runs));
        match timeout(PATIENCE, reading).await {
            Ok(slots) => slots.unwrap_or_default(),
            Err(_) => {
                self.note(
                    &self.reads_failed,
                    &format!("a read took longer than {PATIENCE:?}; check the disk"),
                );
                Vec::new()
            }
        }
    }

    fn read_now(&self, runs: &[Vec<(Hit, usize)>]) -> Vec<(usize, Bytes)> {
        let mut requests = Vec::new();
        let mut asked = Vec::new();
        for run in runs {
            let Spot { segment, offset: start, .. } = run[0].0.spot;
            // It may have been evicted since it was found.
            let file = held(&self.catalog).used(segment);
            if let (Some(file), Some(mut lease)) = (file, self.read_memory.take()) {
                let ends = run.iter().map(|it| it.0.spot.offset + it.0.spot.len - start);
                lease.truncate(ends.max().unwrap_or(0) as usize);
                requests.push(Request::read(&file, start.into(), vec![lease]));
                asked.push(run);
            }
        }
        let mut slots = Vec::new();
        let tickets = self.io.submit_all(requests);
        for (run, read) in asked.into_iter().zip(tickets.into_iter().map(Ticket::wait)) {
            match read.into_result() {
                Ok(leases) => {
                    self.reads_failed.store(0, Ordering::Relaxed);
                    let bytes = Bytes::copy_from_slice(&leases[0]);
                    slots.extend(run.iter().map(|(hit, at)| {
                        let start = (hit.spot.offset - run[0].0.spot.offset) as usize;
                        (*at, bytes.slice(start..start + hit.spot.len as usize))
                    }));
                }
                Err(error) => {
                    for (hit, _) in run {
                        held(&self.catalog).remove(hit.key, hit.spot);
                    }
                    match error {
                        // Another process has truncated the file.
                        IoError::PastEnd { .. } => self.found_damaged(&error.to_string()),
                        error => self.note(&self.reads_failed, &error.to_string()),
                    }
                }
            }
        }
        slots
    }

    /// Admits slots that were fetched and verified, in a request for `many` pages or for few. A thread that may block
    /// writes them later.
    pub(crate) fn admit(
        self: &Arc<Self>,
        page_bytes: u32,
        many: bool,
        slots: impl Iterator<Item = (SlotKey, Bytes)>,
    ) {
        let slots: Vec<_> = {
            let catalog = held(&self.catalog);
            if catalog.is_off() {
                return;
            }
            slots.filter(|(key, _)| catalog.find(*key).is_none()).collect()
        };
        let mut queue = held(&self.queue);
        for (key, bytes) in slots {
            if queue.bytes + bytes.len() <= QUEUED_MOST {
                queue.bytes += bytes.len();
                // A copy: these bytes are a slice of a whole answer, which they would keep in memory.
                let bytes = Bytes::copy_from_slice(&bytes);
                queue.slots.push(Admitted { key, bytes, many });
            }
        }
        let now = Instant::now();
        match queue.begun {
            Some(begun) if now - begun > PATIENCE => {
                queue.begun = Some(now);
                drop(queue);
                self.note(
                    &self.writes_failed,
                    &format!("a write took longer than {PATIENCE:?}; check the disk"),
                );
            }
            None if !queue.slots.is_empty() => {
                queue.begun = Some(now);
                let tier = Arc::clone(self);
                drop(spawn_blocking(move || tier.drain(page_bytes)));
            }
            _ => {}
        }
    }

    fn drain(&self, page_bytes: u32) {
        let mut bytes = 0;
        loop {
            let mut slots = {
                let mut queue = held(&self.queue);
                queue.bytes -= bytes;
                let slots = std::mem::take(&mut queue.slots);
                if slots.is_empty() {
                    queue.begun = None;
                    return;
                }
                slots
            };
            bytes = slots.iter().map(|it| it.bytes.len()).sum();
            // A slot that was fetched again while it waited is written once.
            let mut keys = HashSet::new();
            {
                let catalog = held(&self.catalog);
                slots.retain(|it| catalog.find(it.key).is_none() && keys.insert(it.key));
            }
            let mut left = &slots[..];
            while !left.is_empty() {
                held(&self.queue).begun = Some(Instant::now());
                let stored = self.store(left, page_bytes);
                left = &left[stored.max(1)..];
            }
        }
    }

    /// Writes slots to the newest segment, as many as it takes at once; returns how many were processed.
    fn store(&self, slots: &[Admitted], page_bytes: u32) -> usize {
        let first = &slots[0];
        let Some((file, number, row, start, rows_left)) = self.target(first, page_bytes) else {
            return 1;
        };
        let room = {
            let most = held(&self.catalog).segment_bytes - start;
            most.min((LEASE_BYTES * JOB_REQUESTS) as u64) as usize
        };
        let (mut bytes, mut table, mut spots) = (Vec::new(), Vec::new(), Vec::new());
        for slot in slots.iter().take(rows_left as usize) {
            if bytes.len() + slot.bytes.len() > room || slot.many != first.many {
                break;
            }
            let offset = (start + bytes.len() as u64) as u32;
            let spot = Spot { segment: number, offset, len: slot.bytes.len() as u32 };
            bytes.extend_from_slice(&slot.bytes);
            table.extend(segment::row(slot.key, spot));
            spots.push((slot.key, spot));
        }
        let rows_at = HEADER_BYTES + u64::from(row) * ROW_BYTES;
        let written =
            self.write(&file, start, &bytes).and_then(|()| self.write(&file, rows_at, &table));
        match written {
            Ok(()) => {
                self.writes_failed.store(0, Ordering::Relaxed);
                held(&self.catalog).filled(number, &spots, bytes.len() as u64);
            }
            Err(error) => {
                // The contents there are unknown; the range is not written again, unless it can be truncated.
                let is_full = matches!(error, IoError::NoSpace { .. });
                if !is_full || file.set_len(start).is_err() {
                    held(&self.catalog).seal(number, bytes.len() as u64);
                }
                self.write_failed(&error);
            }
        }
        spots.len()
    }

    /// The segment for a slot: its file, number, next row, next offset and rows left. Makes a new one if necessary.
    fn target(&self, slot: &Admitted, page_bytes: u32) -> Option<(File, u32, u32, u64, u32)> {
        let bytes = slot.bytes.len() as u64;
        let opened = || {
            let mut catalog = held(&self.catalog);
            let it = catalog.open(bytes)?;
            Some((it.file.clone(), it.number, it.taken, it.end, it.rows - it.taken))
        };
        if let Some(opened) = opened() {
            return Some(opened);
        }
        let (evicted, room, number, rows) = {
            let mut catalog = held(&self.catalog);
            let (evicted, room) = catalog.make_room(slot.many);
            if !room {
                catalog.refuse(bytes);
            }
            // Compressed slots are smaller, so more of them fit.
            let rows = (catalog.segment_bytes * 2 / u64::from(page_bytes)) as u32;
            (evicted, room, catalog.next_number(), rows)
        };
        let deleted = self.delete(evicted);
        if !room || !deleted || !self.is_ours() {
            return None;
        }
        let end = segment::slots_at(rows);
        let added = self.create(number, rows).map(|file| {
            let segment = Segment { number, file, rows, taken: 0, end, used: false };
            held(&self.catalog).add(segment)
        });
        if let Ok(true) = added {
            return opened();
        }
        self.delete(vec![number]);
        if let Err(error) = added {
            self.write_failed(&error);
        }
        None
    }

    fn create(&self, number: u32, rows: u32) -> Result<File, IoError> {
        let file = self.open_file(number, &OpenOptions::new().create_new(true))?;
        self.write(&file, 0, &segment::header(rows)).map(|()| file)
    }

    fn open_file(&self, number: u32, options: &OpenOptions) -> Result<File, IoError> {
        let file = Volume::system().open(&self.path(number), options)?;
        // Errors are ignored: systems without this advice work without it.
        let _ = file.advise(0..u64::MAX, Advice::Random);
        Ok(file)
    }

    /// Whether the directory is still the one that was locked: a new one may belong to another process.
    fn is_ours(&self) -> bool {
        let number = |it: fs::Metadata| (it.dev(), it.ino());
        let there = fs::metadata(self.directory.join(LOCK)).map(number);
        let ours = there.is_ok_and(|it| self.lock.metadata().is_ok_and(|own| number(own) == it));
        if !ours {
            held(&self.catalog).clear();
            self.note(&self.writes_failed, "its directory was deleted or replaced");
        }
        ours
    }

    /// Deletes segments from the disk; returns whether all were deleted. If one cannot be deleted, others are evicted.
    fn delete(&self, mut numbers: Vec<u32>) -> bool {
        let mut all = true;
        while let Some(number) = numbers.pop() {
            if !self.is_ours() {
                return false;
            }
            match fs::remove_file(self.path(number)) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    numbers.extend(held(&self.catalog).lose());
                    self.note(&self.writes_failed, &format!(
                        "segment {number:08x} cannot be deleted: {error}; check the owner and mode of the directory"
                    ));
                    all = false;
                }
                _ => {}
            }
        }
        all
    }

    fn write_failed(&self, error: &IoError) {
        let is_full = matches!(error, IoError::NoSpace { .. });
        let evicted = if is_full { held(&self.catalog).shrink() } else { Vec::new() };
        self.note(&self.writes_failed, &error.to_string());
        self.delete(evicted);
    }

    fn read(&self, file: &File, offset: u64, len: u64) -> Result<Vec<u8>, IoError> {
        let mut bytes = Vec::with_capacity(len as usize);
        while (bytes.len() as u64) < len {
            let mut lease = self.write_lease();
            lease.truncate((len as usize) - bytes.len());
            let request = Request::read(file, offset + bytes.len() as u64, vec![lease]);
            bytes.extend_from_slice(&self.io.execute(request).into_result()?[0]);
        }
        Ok(bytes)
    }

    /// Writes at most as many bytes as a job has memory for.
    fn write(&self, file: &File, offset: u64, bytes: &[u8]) -> Result<(), IoError> {
        let pieces = (offset..).step_by(LEASE_BYTES).zip(bytes.chunks(LEASE_BYTES));
        let requests = pieces.map(|(offset, piece)| {
            let mut lease = self.write_lease();
            lease.truncate(piece.len());
            lease.copy_from_slice(piece);
            Request::write(file, offset, vec![lease])
        });
        let ended: Vec<_> = self.io.submit_all(requests).into_iter().map(Ticket::wait).collect();
        ended.into_iter().try_for_each(|it| it.into_result().map(drop))
    }

    fn write_lease(&self) -> Lease {
        self.write_memory.take().expect("one thread writes, and no more at a time than there are")
    }

    /// Records a failure of the disk, to be reported; after too many the tier is off.
    fn note(&self, in_row: &AtomicU32, what: &str) {
        let mut catalog = held(&self.catalog);
        let before = self.failures.fetch_add(1, Ordering::Relaxed);
        let in_row = in_row.fetch_add(1, Ordering::Relaxed) + 1;
        let directory = self.directory.display();
        let off = in_row >= FAILURES_MOST && !catalog.is_off();
        if off {
            catalog.clear();
        }
        if before == 0 || off {
            tracing::warn!(%directory, what, off, "the local tier fails; pages are fetched instead");
        }
        let off = if catalog.is_off() {
            "; the tier is off until the bucket is opened again"
        } else {
            ""
        };
        let what = format!("the local tier: {what}{off}");
        *held(&self.failure) = Some(Error::Local { path: directory.to_string(), what });
    }

    pub(crate) fn failure(&self) -> Option<Error> {
        held(&self.failure).clone()
    }

    pub(crate) fn add_to(&self, stats: &mut Stats) {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (stats.tier_hits, stats.tier_misses) = (get(&self.hits), get(&self.misses));
        (stats.tier_damaged, stats.tier_failures) = (get(&self.damaged), get(&self.failures));
        stats.tier_bytes = held(&self.catalog).bytes();
    }
}

/// Locks a tier's directory.
fn own(directory: &Path) -> Result<fs::File> {
    let refuse = |what: &str| {
        let path = directory.display().to_string();
        Err(Error::Local { path, what: what.to_owned() })
    };
    let is_empty = fs::read_dir(directory).map_or(true, |mut it| it.next().is_none());
    if !is_empty && !directory.join(LOCK).exists() {
        return refuse("it has files that are no local tier's; choose another directory");
    }
    for _ in 0..LOCK_TRIES {
        if let Some(lock) = lock(directory, LOCK)? {
            return Ok(lock);
        }
        thread::sleep(Duration::from_millis(10));
    }
    refuse("another bucket, of this process or another, uses it; choose another directory")
}
