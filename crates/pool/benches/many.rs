//! Lists of random pages that are read at once: `read_many` compared with plain reads, a mapping of the file, bare
//! io_uring, and fio; with no page in memory, with every other page, with all of them.
//!
//! Of each page either all bytes are summed, or the first 64. The pool's file is direct, so that cold rounds read from
//! the disk; the mapping's pages are dropped from the kernel's page cache before each cold round, and the mapping is
//! advised as random, because otherwise the kernel would read megabytes around each page. Bare io_uring reads every
//! page each time. fio reads random blocks of the same file by io_uring, direct, and sums nothing; it reports a rate.
//!
//! Rounds are interleaved, each with a new list and in another order of the modes. `cargo bench -p forebay --bench
//! many` measures, in `FOREBAY_BENCH_DIR` (default: the directory for temporary files); `cargo test` runs everything
//! once, on small data and without fio.

#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]
#![expect(unsafe_code, reason = "the mapping that the pool is compared with")]

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use forebay::io::{Arena, CacheMode, File, Io, IoOptions, Kind, OpenOptions, Prefer, Request};
use forebay::{
    BufferPool, Checksum, FileOptions, Lsn, Order, PagedFile, StreamOptions, Tablespace, TornPages,
};
use rustix::fs::{Advice, fadvise};
use rustix::mm::{MapFlags, ProtFlags, madvise, mmap, munmap};

const PAGE: usize = 8192;

struct Scale {
    file_blocks: u32,
    list_blocks: usize,
    rounds: usize,
    fio_depths: &'static [u32],
}

/// How many bytes of a page are read.
type Touch = usize;

fn main() {
    let measures = std::env::args().any(|argument| argument == "--bench");
    let scale = if measures {
        Scale {
            file_blocks: 1 << 17,
            list_blocks: 4096,
            rounds: 9,
            fio_depths: &[32, 64, 128, 256],
        }
    } else {
        Scale { file_blocks: 512, list_blocks: 128, rounds: 1, fio_depths: &[] }
    };
    let root = std::env::var_os("FOREBAY_BENCH_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    let directory = tempfile::tempdir_in(root).unwrap();
    let path = directory.path().join("main").join("file");
    let Some(mut pooled) = Pooled::create(&scale, path.parent().unwrap()) else { return };
    let mut mapped = Mapped::new(&path);
    let depths = if measures { &[64, 128, 256][..] } else { &[8] };
    let mut modes = vec![BenchMode::InOrder, BenchMode::Any, BenchMode::Plain, BenchMode::Mapped];
    modes.extend(depths.iter().map(|&depth| BenchMode::Bare { depth }));
    let mut random = fastrand::Rng::with_seed(7);
    let mut table = Table::default();
    for _ in 0..scale.rounds {
        let mut blocks: Vec<u32> = (0..scale.file_blocks).collect();
        random.shuffle(&mut blocks);
        let list = &blocks[..scale.list_blocks];
        let half: Vec<u32> = list.iter().copied().step_by(2).collect();
        for (state, resident) in [("cold", &[][..]), ("half", &half), ("warm", list)] {
            for (touched, touch) in [("each page summed", PAGE), ("first 64 bytes", 64)] {
                let mut modes = modes.clone();
                if state == "cold" && touch == PAGE {
                    modes.extend(scale.fio_depths.iter().map(|&depth| BenchMode::Fio { depth }));
                }
                // So that the effects of one mode on caches and the disk do not always hit the same other mode.
                random.shuffle(&mut modes);
                let mut sums = Vec::new();
                for mode in modes {
                    let (time, sum) = match mode {
                        BenchMode::Fio { depth } => {
                            table.add(format!("{state}, {mode}"), fio(&path, depth), "blocks/s");
                            continue;
                        }
                        BenchMode::InOrder | BenchMode::Any | BenchMode::Plain => {
                            pooled.prepare(resident);
                            timed(|| pooled.read(list, mode, touch))
                        }
                        BenchMode::Mapped => {
                            mapped.prepare(resident);
                            timed(|| mapped.read(list, touch))
                        }
                        BenchMode::Bare { depth } => {
                            let bare = Bare::new(&path, depth);
                            timed(|| bare.read(list, touch))
                        }
                    };
                    sums.push(sum);
                    let milliseconds = time.as_secs_f64() * 1e3;
                    table.add(format!("{state}, {touched}, {mode}"), milliseconds, "ms");
                }
                assert!(sums.windows(2).all(|pair| pair[0] == pair[1]), "the same pages: {sums:?}");
            }
        }
    }
    table.print();
}

#[derive(Clone, Copy)]
enum BenchMode {
    InOrder,
    Any,
    Plain,
    Mapped,
    Bare { depth: usize },
    Fio { depth: u32 },
}

impl fmt::Display for BenchMode {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BenchMode::InOrder => out.write_str("read_many"),
            BenchMode::Any => out.write_str("read_many in any order"),
            BenchMode::Plain => out.write_str("plain reads"),
            BenchMode::Mapped => out.write_str("mmap"),
            BenchMode::Bare { depth } => write!(out, "io_uring at depth {depth}"),
            BenchMode::Fio { depth } => write!(out, "fio at depth {depth}"),
        }
    }
}

fn timed(work: impl FnOnce() -> u64) -> (Duration, u64) {
    let start = Instant::now();
    let sum = work();
    (start.elapsed(), sum)
}

fn sum(page: &[u8]) -> u64 {
    let words = page.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap()));
    words.fold(0, u64::wrapping_add)
}

/// The results of each row.
#[derive(Default)]
struct Table(BTreeMap<String, (&'static str, Vec<f64>)>);

impl Table {
    fn add(&mut self, row: String, figure: f64, unit: &'static str) {
        self.0.entry(row).or_insert((unit, Vec::new())).1.push(figure);
    }

    fn print(&self) {
        for (name, (unit, figures)) in &self.0 {
            let mut sorted = figures.clone();
            sorted.sort_by(f64::total_cmp);
            let median = sorted[sorted.len() / 2];
            println!("{name}: {median:.3} {unit}; rounds {figures:.3?}");
        }
    }
}

struct Pooled {
    pool: BufferPool,
    file: PagedFile,
}

impl Pooled {
    /// `None`, with a message, where files cannot be direct.
    fn create(scale: &Scale, directory: &Path) -> Option<Pooled> {
        let space = Tablespace::new("main", directory).cache(CacheMode::Direct);
        let pool = BufferPool::builder()
            .checksum(Checksum::Off)
            .torn_pages(TornPages::Unprotected)
            .frames(u64::from(scale.file_blocks))
            .page_size(PAGE as u64)
            .tablespace(space)
            .build()
            .unwrap();
        let file = match pool.open_file("file", &FileOptions::new().create(true)) {
            Ok(file) => file,
            Err(error) => {
                println!("skipped: {error}");
                return None;
            }
        };
        file.extend(scale.file_blocks).unwrap();
        for block in 0..scale.file_blocks {
            let mut page = file.init(block).unwrap();
            page.fill(block as u8);
            page[..4].copy_from_slice(&block.to_ne_bytes());
            page.mark_dirty(Lsn::NONE);
        }
        pool.flush_and_sync().unwrap();
        Some(Pooled { pool, file })
    }

    /// Leaves only `resident` in memory.
    fn prepare(&mut self, resident: &[u32]) {
        self.file.close().unwrap();
        self.file = self.pool.open_file("file", &FileOptions::new()).unwrap();
        assert!(self.file.read_many(resident).all(|page| page.is_ok()));
    }

    fn read(&self, list: &[u32], mode: BenchMode, touch: Touch) -> u64 {
        let order = match mode {
            BenchMode::Plain => {
                let pages = list.iter().map(|&block| sum(&self.file.read(block).unwrap()[..touch]));
                return black_box(pages.fold(0, u64::wrapping_add));
            }
            BenchMode::Any => Order::Any,
            _ => Order::InOrder,
        };
        let many = self.file.read_many_with(list, &StreamOptions::new().order(order));
        let pages = many.map(|page| sum(&page.unwrap()[..touch]));
        black_box(pages.fold(0, u64::wrapping_add))
    }
}

struct Mapped {
    /// Not opened by `forebay::io`, which prevents a file from being direct and buffered at the same time.
    file: std::fs::File,
    start: *const u8,
    len: usize,
}

impl Mapped {
    fn new(path: &Path) -> Mapped {
        let file = std::fs::File::open(path).unwrap();
        let len = file.metadata().unwrap().len() as usize;
        Mapped { start: map(&file, len), file, len }
    }

    /// Leaves only `resident` in the page cache and in the mapping.
    fn prepare(&mut self, resident: &[u32]) {
        self.unmap();
        fadvise(&self.file, 0, None, Advice::DontNeed).unwrap();
        self.start = map(&self.file, self.len);
        self.read(resident, PAGE);
    }

    fn read(&self, list: &[u32], touch: Touch) -> u64 {
        let page = |&block: &u32| {
            assert!((block as usize + 1) * PAGE <= self.len);
            // SAFETY: inside the mapping, checked above, which lives as long as `self`; no other code writes to the
            // file or truncates it.
            sum(unsafe { std::slice::from_raw_parts(self.start.add(block as usize * PAGE), touch) })
        };
        black_box(list.iter().map(page).fold(0, u64::wrapping_add))
    }

    fn unmap(&mut self) {
        // SAFETY: the whole mapping, made by `map`; references to it end with `read`.
        unsafe { munmap(self.start.cast_mut().cast(), self.len) }.unwrap();
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        self.unmap();
    }
}

fn map(file: &std::fs::File, len: usize) -> *const u8 {
    // SAFETY: a fresh mapping at an address of the kernel's choosing aliases nothing; the advice changes no bytes.
    unsafe {
        let (read, shared) = (ProtFlags::READ, MapFlags::SHARED);
        let start = mmap(std::ptr::null_mut(), len, read, shared, file, 0).unwrap();
        madvise(start, len, rustix::mm::Advice::Random).unwrap();
        start.cast_const().cast()
    }
}

/// As many requests in flight as the queue takes, each for one page.
struct Bare {
    file: File,
    io: Io,
    depth: usize,
}

impl Bare {
    fn new(path: &Path, depth: usize) -> Bare {
        let cache = CacheMode::Direct;
        let prefer = Prefer::Only(Kind::Uring);
        // On a machine without io_uring another backend is measured.
        let open = |prefer| {
            Io::open(&IoOptions { prefer, cache, queue_depth: depth, ..IoOptions::default() })
        };
        let io = open(prefer).or_else(|_| open(Prefer::Auto)).unwrap();
        let file = File::open(path, &OpenOptions::new().read_only(true).cache(cache)).unwrap();
        Bare { file, io, depth }
    }

    fn read(&self, list: &[u32], touch: Touch) -> u64 {
        let arena = Arena::new(self.depth, PAGE).unwrap();
        let request = |&block: &u32| {
            Request::read(&self.file, u64::from(block) * PAGE as u64, vec![arena.take().unwrap()])
        };
        let mut blocks = list.iter();
        let first = blocks.by_ref().take(self.depth).map(request);
        let mut under_way: VecDeque<_> = self.io.submit_all(first).into();
        let mut total = 0_u64;
        while let Some(ticket) = under_way.pop_front() {
            let leases = ticket.wait().into_result().unwrap();
            total = total.wrapping_add(sum(&leases[0][..touch]));
            drop(leases);
            under_way.extend(blocks.next().map(|block| self.io.submit(request(block))));
        }
        black_box(total)
    }
}

/// Random blocks per second, measured by fio.
fn fio(path: &Path, depth: u32) -> f64 {
    let output = Command::new("fio")
        .args(["--name=many", "--ioengine=io_uring", "--direct=1", "--rw=randread", "--readonly"])
        .args(["--thread", "--bs=8k", "--io_size=128m", "--output-format=json"])
        .arg(format!("--filename={}", path.display()))
        .arg(format!("--iodepth={depth}"))
        .output();
    let output = match output {
        Ok(output) => String::from_utf8(output.stdout).unwrap(),
        Err(error) => panic!("fio, for the rate of the disk: {error}"),
    };
    let start = output.find('{').unwrap();
    let answer: serde_json::Value = serde_json::from_str(&output[start..]).unwrap();
    answer["jobs"][0]["read"]["iops"].as_f64().unwrap()
}
