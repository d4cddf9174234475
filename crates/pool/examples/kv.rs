//! kv: a key-value store on a buffer pool, in one file of hash buckets.
//!
//! ```sh
//! cargo run --release -p forebay --example kv -- /tmp/fruit set apple red
//! cargo run --release -p forebay --example kv -- /tmp/fruit get apple
//! cargo run --release -p forebay --example kv -- /tmp/fruit bench 10000
//! ```
//!
//! Block 0 identifies the file. Blocks 1 to 32 are the first pages of the buckets. A full bucket continues in a page
//! appended to the file, whose block its last page stores as the next. A page of zeroes is an empty page of a bucket,
//! so new blocks from `extend` need no writing.
//!
//! ```text
//! 0         4     8      10    12                                            4096
//! checksum  next  count  used  where each cell begins, u16 -> free <- cells
//! cell:     length of the key, u16; length of the value, u16; key; value
//! ```
//!
//! The four bytes of the checksum belong to the pool, which stores it in the copy that it writes.
//!
//! Concurrency: a thread that changes a bucket holds its first page exclusively, and at most one other page of the
//!              bucket at the same time. A thread that looks a key up holds nothing: while the first page has not
//!              changed, the bucket has not changed.
//! Failure:     a command's changes are durable once it succeeds. A crash or a failed write may leave a part of them; a
//!              store that must survive that keeps a log, as the example `accounts` does.

#![allow(clippy::print_stderr, reason = "a program reports what went wrong")]

use std::error::Error;
use std::ffi::OsString;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use forebay::{
    Block, BufferPool, Checksum, FileOptions, Lsn, PageMut, PagedFile, StrategyKind, TornPages,
};

const USAGE: &str = "usage: kv <dir> set KEY VALUE | get KEY | del KEY | list | stats | bench N";

const PAGE_BYTES: usize = 4096;
/// Small, so that the pool soon has more data than memory.
const MEMORY: &str = "256 KiB";
const MAGIC: &[u8] = b"kv-1";
const BUCKETS: Block = 32;
/// Number of optimistic attempts on a bucket that keeps changing before its latch is taken.
const LOOKS: u32 = 4;
const BENCH_THREADS: usize = 4;

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

fn main() -> ExitCode {
    ExitCode::from(program(std::env::args_os().skip(1)))
}

/// Runs the command in `args` and returns the exit code: 0, 1 for a failure, 2 for wrong usage.
pub(crate) fn program(args: impl Iterator<Item = OsString>) -> u8 {
    let args: Result<Vec<String>, OsString> = args.map(OsString::into_string).collect();
    let args = args.unwrap_or_default();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut out = BufWriter::new(std::io::stdout().lock());
    match run(&args, &mut out).and_then(|known| Ok(out.flush().map(|()| known)?)) {
        Ok(true) => 0,
        Ok(false) => {
            eprintln!("{USAGE}");
            2
        }
        Err(error) => {
            eprintln!("kv: {error}");
            1
        }
    }
}

/// Returns false if there is no such command.
fn run(args: &[&str], out: &mut impl Write) -> Result<bool> {
    match *args {
        [dir, "set", key, value] => {
            with_store(dir, true, |kv| kv.set(key.as_bytes(), value.as_bytes()))?;
        }
        [dir, "get", key] => {
            let value = with_store(dir, false, |kv| kv.get(key.as_bytes()))?;
            let value = value.ok_or_else(|| format!("there is no key `{key}` in {dir}"))?;
            writeln!(out, "{}", String::from_utf8_lossy(&value))?;
        }
        [dir, "del", key] => {
            let was_there = with_store(dir, true, |kv| kv.delete(key.as_bytes()))?;
            was_there.then_some(()).ok_or_else(|| format!("there is no key `{key}` in {dir}"))?;
        }
        [dir, "list"] => with_store(dir, false, |kv| kv.list(out))?,
        [dir, "stats"] => with_store(dir, false, |kv| kv.stats(out))?,
        [dir, "bench", count] => match count.parse() {
            Ok(count) => with_store(dir, true, |kv| kv.bench(count, out))?,
            Err(_) => return Ok(false),
        },
        _ => return Ok(false),
    }
    Ok(true)
}

/// Opens the store in `dir`, calls `work` with it, and closes it.
fn with_store<T>(dir: &str, change: bool, work: impl FnOnce(&Kv) -> Result<T>) -> Result<T> {
    // The pool would create the directory; for a read-only command that means a mistyped path.
    if !change && !Path::new(dir).join("kv").exists() {
        return Err(format!("there is no store in {dir}; `set` makes one").into());
    }
    let kv = Kv::open(dir, change)?;
    let done = work(&kv);
    // Closed after a failure too: what was set before it stays.
    let closed = kv.pool.close();
    let value = done?;
    closed?;
    Ok(value)
}

/// An open store.
struct Kv {
    pool: BufferPool,
    file: PagedFile,
}

/// The result of a walk through a bucket.
struct Seen {
    /// The key's value, and the block that contains it.
    found: Option<(Block, Vec<u8>)>,
    /// The first block with space for the cell.
    room: Option<Block>,
    last: Block,
}

impl Kv {
    fn open(dir: &str, change: bool) -> Result<Kv> {
        let pool = BufferPool::builder()
            .memory(MEMORY)
            .page_size(PAGE_BYTES)
            .directory(dir)
            .checksum(Checksum::Crc32c { offset: 0 })
            .torn_pages(TornPages::DoubleWrite)
            .build()?;
        let file = pool.open_file("kv", &FileOptions::new().create(change).read_only(!change))?;
        if file.blocks() == 0 && change {
            file.extend(1 + BUCKETS)?;
            let mut first = file.init(0)?;
            first[4..8].copy_from_slice(MAGIC);
            first.mark_dirty(Lsn::NONE);
        }
        if file.blocks() <= BUCKETS || &file.read(0)?[4..8] != MAGIC {
            return Err(format!("{} is not a file of kv's", file.path().display()).into());
        }
        Ok(Kv { pool, file })
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let bucket = bucket_of(key);
        let mut page = [0; PAGE_BYTES];
        for _ in 0..LOOKS {
            let look = self.file.optimistic(bucket)?;
            if look.read(0, &mut page) {
                let seen = self.walk(bucket, &mut page, key, 0)?;
                if look.still_valid() {
                    return Ok(seen.found.map(|(_, value)| value));
                }
            }
        }
        let first = self.file.read(bucket)?;
        page.copy_from_slice(&first);
        Ok(self.walk(bucket, &mut page, key, 0)?.found.map(|(_, value)| value))
    }

    fn set(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let (cell_bytes, most) = (CELL_BYTES + key.len() + value.len(), PAGE_BYTES - HEADER_BYTES);
        if cell_bytes + SLOT_BYTES > most {
            let (have, most) = (key.len() + value.len(), most - SLOT_BYTES - CELL_BYTES);
            return Err(format!("key and value have {have} bytes; {most} is the most").into());
        }
        let mut first = self.file.write(bucket_of(key))?;
        let mut page = [0; PAGE_BYTES];
        page.copy_from_slice(&first);
        let seen = self.walk(first.block(), &mut page, key, cell_bytes)?;
        // The new value is inserted before the old one is removed; the old one is the first that is found.
        match seen.room {
            Some(block) => self.change(&mut first, block, |page| insert(page, key, value))?,
            None => {
                let mut fresh = self.file.append()?;
                insert(&mut fresh, key, value);
                fresh.mark_dirty(Lsn::NONE);
                let next = fresh.block();
                drop(fresh);
                self.change(&mut first, seen.last, |page| set_next(page, next))?;
            }
        }
        match seen.found {
            Some((block, _)) => self.change(&mut first, block, |page| remove(page, key)),
            None => Ok(()),
        }
    }

    /// Returns false if the key does not exist.
    fn delete(&self, key: &[u8]) -> Result<bool> {
        let mut first = self.file.write(bucket_of(key))?;
        let mut page = [0; PAGE_BYTES];
        page.copy_from_slice(&first);
        let seen = self.walk(first.block(), &mut page, key, 0)?;
        let Some((block, _)) = seen.found else {
            return Ok(false);
        };
        self.change(&mut first, block, |page| remove(page, key))?;
        Ok(true)
    }

    /// Searches a bucket, whose first page is already in `page`, for `key` and for space for `cell_bytes`. Takes no
    /// latches, so the caller may hold the first page.
    fn walk(&self, first: Block, page: &mut [u8], key: &[u8], cell_bytes: usize) -> Result<Seen> {
        let mut seen = Seen { found: None, room: None, last: first };
        loop {
            if seen.found.is_none() {
                seen.found = find(page, key).map(|(_, value)| (seen.last, value.to_vec()));
            }
            if seen.room.is_none() && has_room(page, cell_bytes) {
                seen.room = Some(seen.last);
            }
            match next(page) {
                0 => return Ok(seen),
                block => seen.last = block,
            }
            self.file.copy(seen.last, 0, page)?;
        }
    }

    /// Changes the page `block` of the bucket whose first page is `first`. The first page is already latched: latching
    /// it again would deadlock.
    fn change(
        &self,
        first: &mut PageMut<'_>,
        block: Block,
        change: impl FnOnce(&mut [u8]),
    ) -> Result<()> {
        if block == first.block() {
            change(first);
            first.mark_dirty(Lsn::NONE);
        } else {
            let mut page = self.file.write(block)?;
            change(&mut page);
            page.mark_dirty(Lsn::NONE);
        }
        Ok(())
    }

    /// Prints all keys and values. In a process that also looked keys up, the ring would keep this scan from evicting
    /// their pages.
    fn list(&self, out: &mut impl Write) -> Result<()> {
        let scan = self.pool.strategy(StrategyKind::BulkRead);
        for block in 1..self.file.blocks() {
            for (_, key, value) in cells(&self.file.read_with(block, &scan)?) {
                let (key, value) = (String::from_utf8_lossy(key), String::from_utf8_lossy(value));
                writeln!(out, "{key}\t{value}")?;
            }
        }
        Ok(())
    }

    /// Prints how full the pages are, what reading them cost, and the pool's statistics for that.
    fn stats(&self, out: &mut impl Write) -> Result<()> {
        let (mut keys, mut bytes, pages) = (0, 0, self.file.blocks() - 1);
        let scan = self.pool.strategy(StrategyKind::BulkRead);
        for block in 1..=pages {
            let page = self.file.read_with(block, &scan)?;
            (keys, bytes) = (keys + number(&page, COUNT), bytes + number(&page, USED));
        }
        writeln!(out, "{keys} keys, {bytes} bytes, {pages} pages, {BUCKETS} buckets\n")?;
        let stats = self.pool.stats();
        Ok(write!(out, "{stats}\n\n{}", stats.explain())?)
    }

    /// Sets `count` keys from several threads, gets them again, and prints how long that took.
    fn bench(&self, count: usize, out: &mut impl Write) -> Result<()> {
        let pair = |n| (format!("bench-{n:08}").into_bytes(), format!("{n:->80}").into_bytes());
        let set = |n| {
            let (key, value) = pair(n);
            self.set(&key, &value)
        };
        let get = |n| {
            let (key, value) = pair(n);
            let right = self.get(&key)? == Some(value);
            right.then_some(()).ok_or_else(|| format!("key {n} has lost its value").into())
        };
        let before = self.pool.stats();
        for (what, done) in [("set", timed(count, set)?), ("got", timed(count, get)?)] {
            let per_s = count as f64 / done.max(1e-9);
            writeln!(out, "{what} {count} keys in {done:.2} s: {per_s:.0} a second")?;
        }
        Ok(writeln!(out, "\n{}", self.pool.stats().since(&before))?)
    }
}

/// Calls `work` for every number below `count`, on several threads; returns the seconds it took.
fn timed(count: usize, work: impl Fn(usize) -> Result<()> + Sync) -> Result<f64> {
    let start = Instant::now();
    std::thread::scope(|scope| {
        let part = |at| (at..count).step_by(BENCH_THREADS).try_for_each(&work);
        let threads = [0; BENCH_THREADS].iter().enumerate();
        let threads: Vec<_> = threads.map(|(at, _)| scope.spawn(move || part(at))).collect();
        threads.into_iter().try_for_each(|thread| {
            thread.join().unwrap_or_else(|_| Err("a thread of the benchmark panicked".into()))
        })
    })?;
    Ok(start.elapsed().as_secs_f64())
}

/// FNV-1a: the same in every process, which the standard library's hasher does not guarantee.
fn bucket_of(key: &[u8]) -> Block {
    let step = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    1 + key.iter().fold(0x811c_9dc5, step) % BUCKETS
}

// A page of a bucket. None of these can fail: the checksum guarantees that the page is as it was written.

const NEXT: usize = 4;
const COUNT: usize = 8;
const USED: usize = 10;
const HEADER_BYTES: usize = 12;
const SLOT_BYTES: usize = 2;
const CELL_BYTES: usize = 4;

fn number(page: &[u8], at: usize) -> usize {
    usize::from(u16::from_le_bytes([page[at], page[at + 1]]))
}

fn put(page: &mut [u8], at: usize, number: usize) {
    page[at..at + 2].copy_from_slice(&(number as u16).to_le_bytes());
}

/// The bucket's next page; 0 after the last.
fn next(page: &[u8]) -> Block {
    page[NEXT..].first_chunk().map_or(0, |bytes| Block::from_le_bytes(*bytes))
}

fn set_next(page: &mut [u8], next: Block) {
    page[NEXT..NEXT + 4].copy_from_slice(&next.to_le_bytes());
}

fn slot(index: usize) -> usize {
    HEADER_BYTES + SLOT_BYTES * index
}

/// The index, key and value of each cell.
fn cells(page: &[u8]) -> impl Iterator<Item = (usize, &[u8], &[u8])> {
    (0..number(page, COUNT)).map(|index| {
        let at = number(page, slot(index));
        let (key, value) = (number(page, at), number(page, at + 2));
        let cell = &page[at + CELL_BYTES..];
        (index, &cell[..key], &cell[key..key + value])
    })
}

/// Index and value of the first cell with `key`.
fn find<'p>(page: &'p [u8], key: &[u8]) -> Option<(usize, &'p [u8])> {
    let found = cells(page).find(|(_, found, _)| *found == key);
    found.map(|(index, _, value)| (index, value))
}

fn has_room(page: &[u8], cell_bytes: usize) -> bool {
    slot(number(page, COUNT) + 1) + number(page, USED) + cell_bytes <= PAGE_BYTES
}

/// Appends a cell, for which there must be space.
fn insert(page: &mut [u8], key: &[u8], value: &[u8]) {
    let (count, used) = (number(page, COUNT), number(page, USED));
    let used = used + CELL_BYTES + key.len() + value.len();
    let at = PAGE_BYTES - used;
    put(page, at, key.len());
    put(page, at + 2, value.len());
    let (key_at, value_at) = (at + CELL_BYTES, at + CELL_BYTES + key.len());
    page[key_at..value_at].copy_from_slice(key);
    page[value_at..value_at + value.len()].copy_from_slice(value);
    put(page, slot(count), at);
    put(page, COUNT, count + 1);
    put(page, USED, used);
}

/// Removes the first cell with `key`, and closes the gaps.
fn remove(page: &mut [u8], key: &[u8]) {
    let Some((index, value)) = find(page, key) else {
        return;
    };
    let cell_bytes = CELL_BYTES + key.len() + value.len();
    let (count, used, at) = (number(page, COUNT), number(page, USED), number(page, slot(index)));
    page.copy_within(PAGE_BYTES - used..at, PAGE_BYTES - used + cell_bytes);
    page.copy_within(slot(index + 1)..slot(count), slot(index));
    for index in 0..count - 1 {
        let cell = number(page, slot(index));
        if cell < at {
            put(page, slot(index), cell + cell_bytes);
        }
    }
    put(page, COUNT, count - 1);
    put(page, USED, used - cell_bytes);
}
