//! accounts: balances that survive a crash, with a log, checkpoints and recovery.
//!
//! ```sh
//! cargo run --release -p forebay --example accounts -- /tmp/bank create 10000
//! cargo run --release -p forebay --example accounts -- /tmp/bank transfer 100000   # kill it at any time
//! cargo run --release -p forebay --example accounts -- /tmp/bank grow 5000
//! cargo run --release -p forebay --example accounts -- /tmp/bank check
//! ```
//!
//! `accounts` has the balances, 510 in each page, as they are with some of the changes in the log. `accounts.log` has all
//! changes in their order. `accounts.redo` has the redo point: the changes before it are in `accounts`, and durable.
//!
//! ```text
//! page:    checksum u32 | unused u32 | LSN of the last change u64 | balance i64 ...
//! record:  length of the body u32 | CRC-32C of its position and the body u32 | body
//! body:    G blocks u32                       the file has grown to this many blocks
//!          T from u32, to u32, amount i64     a transfer between two accounts
//!          I block u32, page                  a page as it is about to be written
//! ```
//!
//! The LSN of a record is the position of its end in the log, so 0 is before all records. Nothing removes the part of the
//! log before the redo point; an engine would.
//!
//! Concurrency: a transfer latches both pages, the lower block first, appends its record, and changes the pages. So the
//!              records of a page are in the order of its changes.
//! Failure:     a transfer is acknowledged once its record is durable, and then never lost. After a failed write or sync
//!              of the log nothing is acknowledged any more.

#![allow(clippy::print_stderr, reason = "a program reports what went wrong")]

use std::collections::HashMap;
use std::error::Error;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forebay::{
    Block, BufferPool, CheckpointOptions, Checksum, FileOptions, Lsn, PageImage, PageMut,
    PagedFile, TornPages, Wal,
};

const USAGE: &str =
    "usage: accounts <dir> create ACCOUNTS | grow ACCOUNTS | transfer COUNT | check";

const PAGE_BYTES: usize = 4096;
/// Small, so that pages are written and read again.
const MEMORY: &str = "256 KiB";
/// A checkpoint begins when the log has grown by this much.
const CHECKPOINT_LOG: &str = "1 MiB";
/// Each thread transfers from an account of its own: 0, 1, 2 and 3.
const THREADS: u32 = 4;

const LSN: usize = 8;
const BALANCES: usize = 16;
const BALANCES_MAX: u32 = ((PAGE_BYTES - BALANCES) / 8) as u32;

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

fn main() -> ExitCode {
    ExitCode::from(program(std::env::args_os().skip(1)))
}

/// Runs the command in `args` and returns the exit code: 0, 1 for a failure, 2 for wrong usage.
pub(crate) fn program(args: impl Iterator<Item = OsString>) -> u8 {
    let args: Result<Vec<String>, OsString> = args.map(OsString::into_string).collect();
    let args = args.unwrap_or_default();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match *args {
        [dir, "create", count] => count.parse().ok().map(|count| create(Path::new(dir), count)),
        [dir, "grow", count] => count.parse().ok().map(|count| grow(Path::new(dir), count)),
        [dir, "transfer", count] => count.parse().ok().map(|count| transfer(Path::new(dir), count)),
        [dir, "check"] => Some(check(Path::new(dir))),
        _ => None,
    };
    match result {
        Some(Ok(())) => 0,
        Some(Err(error)) => {
            eprintln!("accounts: {error}");
            1
        }
        None => {
            eprintln!("{USAGE}");
            2
        }
    }
}

/// Creates at least `count` accounts. They exist once they have a redo point.
fn create(dir: &Path, count: u32) -> Result<()> {
    if redo_path(dir).exists() {
        return Err(format!("there are accounts in {} already", dir.display()).into());
    }
    fs::create_dir_all(dir)?;
    let (log, _) = Log::open(dir, Lsn::NONE)?;
    let pool = build_pool(dir, &Arc::new(log))?;
    let file = pool.open_file("accounts", &FileOptions::new().create(true))?;
    // Left by a `create` that was interrupted.
    file.truncate(0)?;
    pool.close()?;
    set_redo(dir, Lsn::NONE)?;
    grow(dir, count)
}

/// Adds at least `count` accounts.
fn grow(dir: &Path, count: u32) -> Result<()> {
    let accounts = Accounts::open(dir)?;
    accounts.grow(count.div_ceil(BALANCES_MAX))?;
    accounts.close()
}

/// Transfers 1 from each thread's account to others, `count` times in all. After each transfer that is durable it prints
/// the thread's account, and how often it has transferred.
fn transfer(dir: &Path, count: u32) -> Result<()> {
    let accounts = Accounts::open(dir)?;
    std::thread::scope(|scope| {
        let part = |thread| {
            for number in 1..=count / THREADS {
                let to = fastrand::u32(THREADS..accounts.count());
                accounts.log.flush_to(accounts.transfer(thread, to, 1)?)?;
                writeln!(io::stdout(), "{thread} {number}")?;
            }
            Result::<()>::Ok(())
        };
        let threads: Vec<_> = (0..THREADS).map(|it| scope.spawn(move || part(it))).collect();
        threads.into_iter().try_for_each(|thread| {
            thread.join().unwrap_or_else(|_| Err("a thread panicked".into()))
        })
    })?;
    accounts.close()
}

/// Prints what recovery did, how often each thread's account has transferred, and the sum of all balances, which is 0.
fn check(dir: &Path) -> Result<()> {
    let accounts = Accounts::open(dir)?;
    let Recovery { redo, records, applied, restored } = &accounts.recovery;
    let mut out = io::stdout();
    writeln!(
        out,
        "recovered from {}: {records} records, {applied} changes of pages, {restored} pages restored",
        redo.0
    )?;
    let mut sum = 0;
    for block in 0..accounts.file.blocks() {
        let page = accounts.file.read(block)?;
        sum += (0..BALANCES_MAX).map(|at| balance(&page, at)).sum::<i64>();
        for at in (0..THREADS).filter(|_| block == 0) {
            writeln!(out, "{at} {}", -balance(&page, at))?;
        }
    }
    writeln!(out, "sum {sum}")?;
    accounts.close()
}

/// The open accounts.
struct Accounts {
    log: Arc<Log>,
    pool: BufferPool,
    file: PagedFile,
    recovery: Recovery,
}

/// What recovery did.
struct Recovery {
    redo: Lsn,
    records: usize,
    /// Changes that were not in their pages yet.
    applied: usize,
    /// Torn pages.
    restored: usize,
}

fn build_pool(dir: &Path, log: &Arc<Log>) -> Result<BufferPool> {
    let pool = BufferPool::builder()
        .memory(MEMORY)
        .page_size(PAGE_BYTES)
        .directory(dir)
        .checksum(Checksum::Crc32c { offset: 0 })
        .torn_pages(TornPages::Images)
        .wal(Arc::<Log>::clone(log))
        .checkpoint_log(CHECKPOINT_LOG)
        .build()?;
    Ok(pool)
}

impl Accounts {
    /// Opens the accounts in `dir` and recovers them. Recovery may be interrupted and repeated.
    fn open(dir: &Path) -> Result<Accounts> {
        let redo = redo_of(dir)?;
        let (log, records) = Log::open(dir, redo)?;
        let log = Arc::new(log);
        let pool = build_pool(dir, &log)?;
        let file = pool.open_file("accounts", &FileOptions::new())?;
        let recovery = Recovery { redo, records: records.len(), applied: 0, restored: 0 };
        let mut accounts = Accounts { log, pool, file, recovery };
        accounts.recover(&records)?;
        // The first checkpoint, with which those of `checkpoint_log` begin: not before the pages are recovered, as it moves the
        // redo point.
        accounts.checkpoint()?;
        Ok(accounts)
    }

    fn checkpoint(&self) -> Result<()> {
        self.pool.checkpoint(CheckpointOptions::now())?;
        Ok(())
    }

    /// Moves the redo point to the end, so that the next opening has nothing to do.
    fn close(&self) -> Result<()> {
        self.checkpoint()?;
        self.pool.close()?;
        Ok(())
    }

    fn count(&self) -> u32 {
        self.file.blocks() * BALANCES_MAX
    }

    /// Adds `blocks` blocks. The file is extended before the record is appended: a checkpoint that moves the redo point past
    /// the record then finds the file extended, and makes that durable. Nothing else would repeat it.
    fn grow(&self, blocks: Block) -> Result<()> {
        self.file.extend(blocks)?;
        let lsn = self.log.append(&Record::Grow { blocks: self.file.blocks() })?;
        self.log.flush_to(lsn)
    }

    /// Moves `amount` from one account to another. Returns the record, which is not durable yet.
    fn transfer(&self, from: u32, to: u32, amount: i64) -> Result<Lsn> {
        let (low, high) = (from.min(to) / BALANCES_MAX, from.max(to) / BALANCES_MAX);
        let mut pages = vec![self.file.write(low)?];
        if high != low {
            pages.push(self.file.write(high)?);
        }
        let record = Record::Transfer { from, to, amount };
        let lsn = self.log.append(&record)?;
        for page in &mut pages {
            apply(page, &record, lsn);
        }
        Ok(lsn)
    }

    /// Repeats what the pages do not contain of the records after the redo point.
    fn recover(&mut self, records: &[(Lsn, Record)]) -> Result<()> {
        // The newest of each page, wherever it is: it contains all changes from before the redo point, and its LSN shows which
        // of those after it. An older one may have been copied before the redo point.
        let mut images = HashMap::new();
        for (_, record) in records {
            if let Record::Image { block, page } = record {
                images.insert(*block, page.as_slice());
            }
        }
        for (lsn, record) in records {
            match record {
                // A file that is longer has blocks whose record was lost. They are zeroes: nothing changes a block before its
                // record is appended.
                Record::Grow { blocks } => {
                    self.file.extend(blocks.saturating_sub(self.file.blocks()))?;
                }
                Record::Transfer { from, to, .. } => {
                    let (first, second) = (from / BALANCES_MAX, to / BALANCES_MAX);
                    self.repeat(*lsn, record, first, &images)?;
                    if second != first {
                        self.repeat(*lsn, record, second, &images)?;
                    }
                }
                Record::Image { .. } => {}
            }
        }
        Ok(())
    }

    /// Applies a record to one page, unless the page has it already.
    fn repeat(
        &mut self,
        lsn: Lsn,
        record: &Record,
        block: Block,
        images: &HashMap<Block, &[u8]>,
    ) -> Result<()> {
        let mut page = match self.file.write(block) {
            // Torn by the crash. A page that was written since the redo point has an image; any other is damaged.
            Err(forebay::Error::Corrupt { .. }) => {
                let image = images.get(&block).ok_or_else(|| {
                    format!("block {block} is damaged, and the log has no image of it")
                })?;
                let mut page = self.file.init(block)?;
                page.copy_from_slice(image);
                let newest = lsn_of(&page);
                page.mark_dirty(newest);
                self.recovery.restored += 1;
                page
            }
            page => page?,
        };
        if lsn_of(&page) < lsn {
            apply(&mut page, record, lsn);
            self.recovery.applied += 1;
        }
        Ok(())
    }
}

/// Changes the balances of a transfer that are in this page. Transactions and recovery do the same.
fn apply(page: &mut PageMut<'_>, record: &Record, lsn: Lsn) {
    let Record::Transfer { from, to, amount } = *record else { return };
    for (account, change) in [(from, -amount), (to, amount)] {
        if account / BALANCES_MAX == page.block() {
            let at = account % BALANCES_MAX;
            let new = balance(page, at) + change;
            let place = BALANCES + 8 * at as usize;
            page[place..place + 8].copy_from_slice(&new.to_le_bytes());
        }
    }
    page[LSN..LSN + 8].copy_from_slice(&lsn.0.to_le_bytes());
    page.mark_dirty(lsn);
}

fn lsn_of(page: &[u8]) -> Lsn {
    page[LSN..].first_chunk().map_or(Lsn::NONE, |bytes| Lsn(u64::from_le_bytes(*bytes)))
}

fn balance(page: &[u8], at: u32) -> i64 {
    page[BALANCES + 8 * at as usize..].first_chunk().map_or(0, |bytes| i64::from_le_bytes(*bytes))
}

fn redo_path(dir: &Path) -> PathBuf {
    dir.join("accounts.redo")
}

fn redo_of(dir: &Path) -> Result<Lsn> {
    let text = fs::read_to_string(redo_path(dir)).map_err(|error| {
        format!("{}: {error}; `create` makes accounts", redo_path(dir).display())
    })?;
    Ok(Lsn(text.trim().parse()?))
}

/// Replaces the redo point: after a crash it is the old one or the new one.
fn set_redo(dir: &Path, redo: Lsn) -> Result<()> {
    let new = dir.join("accounts.redo.new");
    let mut file = File::create(&new)?;
    writeln!(file, "{}", redo.0)?;
    file.sync_all()?;
    fs::rename(&new, redo_path(dir))?;
    Ok(File::open(dir)?.sync_all()?)
}

/// One change.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Record {
    Grow { blocks: Block },
    Transfer { from: u32, to: u32, amount: i64 },
    Image { block: Block, page: Vec<u8> },
}

impl Record {
    fn encode(&self) -> Vec<u8> {
        match self {
            Record::Grow { blocks } => [&b"G"[..], &blocks.to_le_bytes()].concat(),
            Record::Transfer { from, to, amount } => {
                [&b"T"[..], &from.to_le_bytes(), &to.to_le_bytes(), &amount.to_le_bytes()].concat()
            }
            Record::Image { block, page } => [&b"I"[..], &block.to_le_bytes(), page].concat(),
        }
    }

    fn decode(body: &[u8]) -> Option<Record> {
        let (kind, body) = body.split_first()?;
        let (number, rest) = body.split_first_chunk()?;
        let number = u32::from_le_bytes(*number);
        match (kind, rest.len()) {
            (b'G', 0) => Some(Record::Grow { blocks: number }),
            (b'T', 12) => {
                let (to, amount) = rest.split_first_chunk()?;
                let amount = i64::from_le_bytes(*amount.first_chunk()?);
                Some(Record::Transfer { from: number, to: u32::from_le_bytes(*to), amount })
            }
            (b'I', PAGE_BYTES) => Some(Record::Image { block: number, page: rest.to_vec() }),
            _ => None,
        }
    }
}

/// The log, open for appending.
#[derive(Debug)]
pub(crate) struct Log {
    dir: PathBuf,
    file: File,
    tail: Mutex<Tail>,
    /// The right to write the tail. Threads that wait for it find their records written, with those of others.
    writing: Mutex<()>,
    flushed: AtomicU64,
}

/// The records that are not written yet.
#[derive(Debug)]
struct Tail {
    start: u64,
    bytes: Vec<u8>,
    /// What is durable is not known any more: the system may have dropped what it could not write.
    failed: bool,
}

const HEADER_BYTES: usize = 8;

/// Records that moved, or were left of another log, do not have the checksum of their position.
fn checksum(start: u64, body: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&start.to_le_bytes()), body)
}

impl Log {
    /// Opens the log and returns the records after `redo`. What follows the last whole record is removed: it was never
    /// acknowledged.
    pub(crate) fn open(dir: &Path, redo: Lsn) -> Result<(Log, Vec<(Lsn, Record)>)> {
        let path = dir.join("accounts.log");
        let file =
            OpenOptions::new().create(true).truncate(false).read(true).write(true).open(path)?;
        let len = file.metadata()?.len();
        let mut bytes =
            vec![0; len.checked_sub(redo.0).ok_or("the log ends before its redo point")? as usize];
        file.read_exact_at(&mut bytes, redo.0)?;
        let (mut records, mut end) = (Vec::new(), redo.0);
        while let Some((record, length)) = next(&bytes[(end - redo.0) as usize..], end) {
            end += length;
            records.push((Lsn(end), record));
        }
        file.set_len(end)?;
        file.sync_all()?;
        File::open(dir)?.sync_all()?;
        let tail = Mutex::new(Tail { start: end, bytes: Vec::new(), failed: false });
        let (writing, flushed) = (Mutex::new(()), AtomicU64::new(end));
        Ok((Log { dir: dir.to_owned(), file, tail, writing, flushed }, records))
    }

    fn tail(&self) -> MutexGuard<'_, Tail> {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn append(&self, record: &Record) -> Result<Lsn> {
        let body = record.encode();
        let mut tail = self.tail();
        if tail.failed {
            return Err("an earlier write of the log failed; open the accounts again".into());
        }
        let start = tail.end();
        tail.bytes.extend((body.len() as u32).to_le_bytes());
        tail.bytes.extend(checksum(start, &body).to_le_bytes());
        tail.bytes.extend(body);
        Ok(Lsn(tail.end()))
    }
}

impl Tail {
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

/// The record at the beginning of `bytes`, which are at `start` in the log, and its length; none if it is not whole.
fn next(bytes: &[u8], start: u64) -> Option<(Record, u64)> {
    let (length, rest) = bytes.split_first_chunk()?;
    let (sum, rest) = rest.split_first_chunk()?;
    let body = rest.get(..u32::from_le_bytes(*length) as usize)?;
    let whole = checksum(start, body) == u32::from_le_bytes(*sum);
    let record = whole.then(|| Record::decode(body)).flatten()?;
    Some((record, (HEADER_BYTES + body.len()) as u64))
}

impl Wal for Log {
    fn flush_to(&self, lsn: Lsn) -> Result<()> {
        let _right = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        if self.flushed() >= lsn {
            return Ok(());
        }
        let (start, bytes) = {
            let mut tail = self.tail();
            if tail.failed {
                return Err("an earlier write of the log failed".into());
            }
            let (start, bytes) = (tail.start, std::mem::take(&mut tail.bytes));
            tail.start += bytes.len() as u64;
            (start, bytes)
        };
        let written = self.file.write_all_at(&bytes, start).and_then(|()| self.file.sync_data());
        if let Err(error) = written {
            self.tail().failed = true;
            return Err(error.into());
        }
        self.flushed.store(start + bytes.len() as u64, Ordering::Release);
        Ok(())
    }

    fn position(&self) -> Lsn {
        Lsn(self.tail().end())
    }

    fn flushed(&self) -> Lsn {
        Lsn(self.flushed.load(Ordering::Acquire))
    }

    fn checkpointed(&self, redo: Lsn) -> Result<()> {
        // Recovery reads the log from there, so it must not end before.
        self.flush_to(redo)?;
        set_redo(&self.dir, redo)
    }

    fn append_image(&self, image: &PageImage<'_>) -> Result<Lsn> {
        self.append(&Record::Image { block: image.block, page: image.bytes.to_vec() })
    }
}
