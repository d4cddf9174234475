//! The cost of a page in memory: a hit, an optimistic read, and two threads at once, each compared with the minimum
//! that any pool could take.
//!
//! The floor is a plain array of pages, each with its own counter that is incremented before the access and decremented
//! after it: the minimum work of any pin. Same blocks in the same order, the same eight bytes of each page. Rounds are
//! interleaved, so that a disturbance affects all of them.
//!
//! Next to the hit is the cost of only the lookup in a partitioned hash table: 128 maps under reader-writer locks, as
//! in PostgreSQL, with a hash of one multiplication.
//!
//! `cargo bench -p forebay --bench resident` measures; `cargo test` runs everything once on a small pool.
//! FOREBAY_BENCH_MEMORY sets the pool's size (default: 1 GiB).

#![allow(clippy::unwrap_used, missing_docs)]

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::hint::black_box;
use std::sync::RwLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use forebay::{BufferPool, Checksum, FileOptions, Lsn, PagedFile, Size, TornPages};

const PAGE: usize = 8192;
const ROUNDS: usize = 5;

#[repr(C, align(4096))]
struct Page {
    counter: AtomicU64,
    bytes: [u8; PAGE - 8],
}

fn memory() -> u64 {
    let testing = !std::env::args().any(|argument| argument == "--bench");
    let asked = std::env::var("FOREBAY_BENCH_MEMORY").ok();
    let default = if testing { "16 MiB" } else { "1 GiB" };
    Size::from(asked.as_deref().unwrap_or(default)).bytes("FOREBAY_BENCH_MEMORY").unwrap()
}

/// The offset at which block `block` is read: not always in the same cache line.
fn offset(block: u32) -> usize {
    64 + (block as usize * 72) % (PAGE - 128)
}

/// A page tag as a hash table would store it.
fn tag(block: u32) -> u64 {
    7 << 32 | u64::from(block)
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// A hash of one multiplication, as cheap as possible.
#[derive(Default, Clone)]
struct Multiply(u64);

impl Hasher for Multiply {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("tags are hashed as one u64");
    }

    fn write_u64(&mut self, tag: u64) {
        self.0 = tag.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(26);
    }
}

type Partition = RwLock<HashMap<u64, u32, BuildHasherDefault<Multiply>>>;

const PARTITIONS: usize = 128;

struct Rig {
    hash: Vec<Partition>,
    directory: tempfile::TempDir,
    pool: BufferPool,
    file: PagedFile,
    floor: Vec<Page>,
    order: Vec<u32>,
}

fn rig() -> Rig {
    let directory = tempfile::tempdir().unwrap();
    let bytes = memory();
    let blocks = (bytes / PAGE as u64) as u32;
    let pool = BufferPool::builder()
        .checksum(Checksum::Off)
        .torn_pages(TornPages::Unprotected)
        .frames(u64::from(blocks))
        .page_size(PAGE)
        .directory(directory.path())
        .build()
        .unwrap();
    let file = pool.open_file("resident", &FileOptions::new().create(true)).unwrap();
    file.extend(blocks).unwrap();
    for block in 0..blocks {
        let mut page = file.init(block).unwrap();
        page.fill(block as u8);
        page.mark_dirty(Lsn::NONE);
    }
    let floor = (0..blocks)
        .map(|block| Page { counter: AtomicU64::new(0), bytes: [block as u8; PAGE - 8] })
        .collect();
    let hash: Vec<Partition> = (0..PARTITIONS).map(|_| Partition::default()).collect();
    for block in 0..blocks {
        let tag = tag(block);
        hash[tag as usize % PARTITIONS].write().unwrap().insert(tag, block);
    }
    let mut random = fastrand::Rng::with_seed(3);
    let order = (0..1 << 20).map(|_| random.u32(..blocks)).collect();
    Rig { hash, directory, pool, file, floor, order }
}

impl Rig {
    fn at(&self, step: u64) -> u32 {
        self.order[step as usize % self.order.len()]
    }

    fn floor(&self, from: u64, to: u64) -> u64 {
        (from..to).fold(0, |sum, step| {
            let block = self.at(step);
            let page = &self.floor[block as usize];
            page.counter.fetch_add(1, Ordering::Acquire);
            let word = word(&page.bytes, offset(block) - 8);
            page.counter.fetch_sub(1, Ordering::Release);
            sum.wrapping_add(word)
        })
    }

    fn plain(&self, from: u64, to: u64) -> u64 {
        (from..to).fold(0, |sum, step| {
            let block = self.at(step);
            sum.wrapping_add(word(&self.floor[block as usize].bytes, offset(block) - 8))
        })
    }

    fn plain_page(&self, from: u64, to: u64) -> u64 {
        let mut copy = [0; PAGE - 8];
        (from..to).fold(0, |sum, step| {
            copy.copy_from_slice(&self.floor[self.at(step) as usize].bytes);
            sum.wrapping_add(u64::from(black_box(&copy)[9]))
        })
    }

    fn hashed(&self, from: u64, to: u64) -> u64 {
        (from..to).fold(0, |sum, step| {
            let tag = tag(self.at(step));
            let partition = self.hash[tag as usize % PARTITIONS].read().unwrap();
            sum.wrapping_add(u64::from(partition[&tag]))
        })
    }

    fn hit(&self, from: u64, to: u64) -> u64 {
        (from..to).fold(0, |sum, step| {
            let block = self.at(step);
            let page = self.file.read(block).unwrap();
            sum.wrapping_add(word(&page, offset(block)))
        })
    }

    /// Latches pages exclusively, and leaves them unchanged.
    fn exclusive(&self, from: u64, to: u64) -> u64 {
        (from..to).fold(0, |sum, step| {
            let block = self.at(step);
            let page = self.file.write(block).unwrap();
            sum.wrapping_add(word(&page, offset(block)))
        })
    }

    fn optimistic(&self, from: u64, to: u64) -> u64 {
        let mut copy = [0; 8];
        (from..to).fold(0, |sum, step| {
            let block = self.at(step);
            self.file.copy(block, offset(block), &mut copy).unwrap();
            sum.wrapping_add(u64::from_ne_bytes(copy))
        })
    }

    fn optimistic_page(&self, from: u64, to: u64) -> u64 {
        let mut copy = [0; PAGE - 8];
        (from..to).fold(0, |sum, step| {
            self.file.copy(self.at(step), 8, &mut copy).unwrap();
            sum.wrapping_add(u64::from(black_box(&copy)[9]))
        })
    }

    /// A sequence of blocks in which each one is known only after the page before it has been read, as in the descent
    /// of a tree. `zero` is 0, which the compiler does not know.
    fn chained(&self, from: u64, to: u64, zero: u64, read: impl Fn(u32) -> u64) -> u64 {
        (from..to).fold(0, |word, step| read(self.at(step + (word & zero))))
    }

    fn hot(&self, steps: u64) -> u64 {
        let mut copy = [0; 8];
        (0..steps).fold(0, |sum, step| {
            self.file.copy(7, (step as usize * 8) % 4096, &mut copy).unwrap();
            sum.wrapping_add(u64::from_ne_bytes(copy))
        })
    }
}

/// The time in which `threads` threads each run `steps` steps. They start together behind a lock that they all wait to
/// share, and time runs from the first thread's start to the last one's end.
fn together(threads: u64, steps: u64, work: impl Fn(u64, u64) -> u64 + Sync) -> Duration {
    let gate = RwLock::new(());
    thread::scope(|scope| {
        let closed = gate.write().unwrap();
        let run = |thread: u64| {
            let (gate, work) = (&gate, &work);
            move || {
                drop(gate.read().unwrap());
                let start = Instant::now();
                black_box(work(thread * steps, (thread + 1) * steps));
                (start, Instant::now())
            }
        };
        let all: Vec<_> = (0..threads).map(|thread| scope.spawn(run(thread))).collect();
        thread::sleep(Duration::from_millis(1));
        drop(closed);
        let times: Vec<_> = all.into_iter().map(|one| one.join().unwrap()).collect();
        let start = times.iter().map(|(start, _)| *start).min().unwrap();
        times.iter().map(|(_, end)| *end).max().unwrap() - start
    })
}

fn resident(criterion: &mut Criterion) {
    let rig = rig();
    for round in 1..=ROUNDS {
        let mut group = criterion.benchmark_group(format!("resident {round}"));
        group.throughput(Throughput::Elements(1));
        let mut one = |name: &str, work: &dyn Fn(u64, u64) -> u64| {
            let mut at = 0;
            group.bench_function(name, |bencher| {
                bencher.iter_custom(|steps| {
                    let start = Instant::now();
                    black_box(work(at, at + steps));
                    at += steps;
                    start.elapsed()
                });
            });
        };
        one("floor", &|from, to| rig.floor(from, to));
        one("hash lookup alone", &|from, to| rig.hashed(from, to));
        one("hit", &|from, to| rig.hit(from, to));
        one("hit, exclusive", &|from, to| rig.exclusive(from, to));
        one("plain 8 bytes", &|from, to| rig.plain(from, to));
        one("optimistic 8 bytes", &|from, to| rig.optimistic(from, to));
        let zero = black_box(0);
        one("floor, chained", &|from, to| {
            rig.chained(from, to, zero, |block| {
                let page = &rig.floor[block as usize];
                page.counter.fetch_add(1, Ordering::Acquire);
                let word = word(&page.bytes, offset(block) - 8);
                page.counter.fetch_sub(1, Ordering::Release);
                word
            })
        });
        one("hit, chained", &|from, to| {
            rig.chained(from, to, zero, |block| word(&rig.file.read(block).unwrap(), offset(block)))
        });
        one("plain 8 bytes, chained", &|from, to| {
            rig.chained(from, to, zero, |block| {
                word(&rig.floor[block as usize].bytes, offset(block) - 8)
            })
        });
        one("optimistic 8 bytes, chained", &|from, to| {
            rig.chained(from, to, zero, |block| {
                let mut copy = [0; 8];
                rig.file.copy(block, offset(block), &mut copy).unwrap();
                u64::from_ne_bytes(copy)
            })
        });
        one("plain page", &|from, to| rig.plain_page(from, to));
        one("optimistic page", &|from, to| rig.optimistic_page(from, to));
        for threads in [1, 2] {
            group.throughput(Throughput::Elements(threads));
            group.bench_function(format!("hits by {threads} threads"), |bencher| {
                bencher.iter_custom(|steps| together(threads, steps, |from, to| rig.hit(from, to)));
            });
            group.bench_function(format!("one hot page by {threads} threads"), |bencher| {
                bencher
                    .iter_custom(|steps| together(threads, steps, |from, to| rig.hot(to - from)));
            });
        }
        group.finish();
    }
    // Nothing here needs to be written to the disk.
    rig.file.drop_file().unwrap();
    drop(rig.pool);
    rig.directory.close().unwrap();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(30)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2));
    targets = resident
}
criterion_main!(benches);
