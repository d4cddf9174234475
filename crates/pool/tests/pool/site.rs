//! A test's environment: its own directory, pools in it, and a timeout.
//!
//! A page in these tests consists of one repeated number, so that any two of its states can be distinguished at every
//! byte. Its first eight bytes are reserved for the checksum.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::{Duration, Instant};
use std::{env, process, thread};

use forebay::{
    BufferPool, Checksum, Error, FileOptions, Lsn, PageMut, PagedFile, PoolBuilder,
    ReadaheadStrategy, Tablespace, TornPages,
};
use forebay_io::OsError;
use tempfile::TempDir;

use crate::disk::Disk;

pub(crate) const PAGE: usize = 4096;

pub(crate) const SUMS: Checksum = Checksum::Crc32c { offset: 0 };

/// Maximum duration of a test. The slowest needs seconds; the rest is allowance for a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// The wait for a frame, or for a page in use, in tests where the wait succeeds.
const WAIT: Duration = Duration::from_secs(20);

/// The same in tests where the wait times out.
pub(crate) const SHORT: Duration = Duration::from_millis(50);

/// A directory that is removed with the test, and a watchdog that ends a test that hangs.
pub(crate) struct Site {
    directory: TempDir,
    _watch: Watch,
}

impl Site {
    pub(crate) fn new() -> Site {
        Site::with_patience(PATIENCE)
    }

    pub(crate) fn with_patience(patience: Duration) -> Site {
        let name = thread::current().name().unwrap_or("a test").to_owned();
        Site { directory: tempfile::tempdir().unwrap(), _watch: Watch::start(name, patience) }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A pool of 4 KiB pages that does not have a directory yet.
    pub(crate) fn bare(frames: u64) -> PoolBuilder {
        Site::chosen().frames(frames).page_size(PAGE).checksum(SUMS).frame_wait(WAIT)
    }

    /// A builder with the mandatory settings set to no protection.
    pub(crate) fn chosen() -> PoolBuilder {
        BufferPool::builder().checksum(Checksum::Off).torn_pages(TornPages::Unprotected)
    }

    /// A pool with its files in `main`.
    pub(crate) fn builder(&self, frames: u64) -> PoolBuilder {
        Site::bare(frames).directory(self.path("main"))
    }

    pub(crate) fn pool(&self, frames: u64) -> BufferPool {
        self.builder(frames).build().unwrap()
    }

    /// A pool without a cleaner over a disk that the test controls. It reads only the requested blocks, so that a test
    /// knows which reads there are.
    pub(crate) fn rigged(&self, frames: u64) -> (BufferPool, Arc<Disk>) {
        self.rigged_with(frames, WAIT)
    }

    /// The same with a timeout of `wait` for a frame.
    pub(crate) fn rigged_with(&self, frames: u64, wait: Duration) -> (BufferPool, Arc<Disk>) {
        let (io, disk) = Disk::open();
        let main = Tablespace::new("main", self.path("main")).io(io);
        let pool =
            Site::bare(frames).frame_wait(wait).cleaner(false).readahead(ReadaheadStrategy::Os);
        (pool.tablespace(main).build().unwrap(), disk)
    }
}

pub(crate) fn create() -> FileOptions {
    FileOptions::new().create(true)
}

/// Creates the file `name` with `blocks` blocks; block n contains `first` + n, and is on disk.
pub(crate) fn numbered(pool: &BufferPool, name: &str, blocks: u32, first: u64) -> PagedFile {
    let file = pool.open_file(name, &create()).unwrap();
    file.extend(blocks).unwrap();
    for block in 0..blocks {
        write(&file, block, first + u64::from(block));
    }
    file.flush_file().unwrap();
    file
}

/// Evicts every page of `file`, by closing and opening it.
pub(crate) fn reopened(pool: &BufferPool, file: PagedFile) -> PagedFile {
    let name = file.path().file_name().unwrap().to_str().unwrap().to_owned();
    let blocks = file.blocks();
    file.close().unwrap();
    let file = pool.open_file(&name, &FileOptions::new()).unwrap();
    assert_eq!(file.blocks(), blocks);
    file
}

pub(crate) fn fill(page: &mut [u8], number: u64) {
    let (head, body) = page.split_at_mut(8);
    head.fill(0);
    body.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&number.to_le_bytes()));
}

/// The number in the page, which must be the same throughout.
#[track_caller]
pub(crate) fn number_in(page: &[u8]) -> u64 {
    let mut words =
        page[8..].chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
    let first = words.next().unwrap();
    let other = words.position(|word| word != first);
    assert_eq!(other, None, "a torn page: {first} at first, then something else");
    first
}

pub(crate) fn write(file: &PagedFile, block: u32, number: u64) {
    try_write(file, block, number).unwrap();
}

pub(crate) fn try_write(file: &PagedFile, block: u32, number: u64) -> Result<(), Error> {
    set(&mut file.write(block)?, number);
    Ok(())
}

pub(crate) fn set<H: Borrow<PagedFile>>(page: &mut PageMut<'_, H>, number: u64) {
    fill(page, number);
    page.mark_dirty(Lsn::NONE);
}

#[track_caller]
pub(crate) fn read(file: &PagedFile, block: u32) -> u64 {
    number_in(&file.read(block).unwrap())
}

/// The page's current contents on disk, read without the pool.
pub(crate) fn on_disk(file: &PagedFile, block: u32) -> u64 {
    let bytes = std::fs::read(file.path()).unwrap();
    number_in(&bytes[block as usize * PAGE..][..PAGE])
}

pub(crate) fn is_dirty(pool: &BufferPool, block: u32) -> bool {
    pool.view().iter().any(|frame| frame.block == block && frame.dirty)
}

/// True if `error` is the device's error `expected`, for any operation.
pub(crate) fn is_io(error: &Error, expected: OsError) -> bool {
    use forebay_io::Error::{Io, NoSpace};
    matches!(error, Error::Io(Io { source, .. } | NoSpace { source, .. }) if *source == expected)
}

/// Polls until `condition` is true. If it never is, the watchdog ends the test.
pub(crate) fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "waited in vain for {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Signals the other threads of a test to stop when this one ends, normally or by a panic.
pub(crate) struct Ends<'a>(pub(crate) &'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Records a test that cannot run here, where skips are counted.
pub(crate) fn skip(test: &str, reason: &str) {
    let line = format!("pool: {test}: {}\n", reason.replace('\n', " "));
    eprint!("skipped: {line}");
    let Some(path) = env::var_os("FOREBAY_SKIPS") else {
        return;
    };
    let opened = OpenOptions::new().create(true).append(true).open(path);
    let written = opened.and_then(|mut file| file.write_all(line.as_bytes()));
    written.expect("FOREBAY_SKIPS should name a file that can be written");
}

static RUNNING: Mutex<BTreeMap<String, Instant>> = Mutex::new(BTreeMap::new());
static WATCHDOG: Once = Once::new();

/// A test that the watchdog monitors. A test that hangs cannot report that itself.
struct Watch(String);

impl Watch {
    fn start(name: String, patience: Duration) -> Watch {
        WATCHDOG.call_once(|| drop(thread::spawn(Watch::run)));
        running().insert(name.clone(), Instant::now() + patience);
        Watch(name)
    }

    fn run() {
        loop {
            thread::sleep(Duration::from_secs(1));
            let late =
                running().iter().find(|(_, end)| **end < Instant::now()).map(|(n, _)| n.clone());
            if let Some(name) = late {
                // Bypasses libtest, which captures the output of tests until they end.
                let message = format!("\npool: {name} hangs: not done in the time it was given\n");
                drop(std::io::stderr().write_all(message.as_bytes()));
                process::abort();
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        running().remove(&self.0);
    }
}

fn running() -> std::sync::MutexGuard<'static, BTreeMap<String, Instant>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}
