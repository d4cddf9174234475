//! The cost and gain of streams: pages in memory read by a stream and by plain reads, and eight interleaved sequences
//! on separate descriptors and on a shared one.
//!
//! Rounds are interleaved and medians reported. `cargo bench -p forebay --bench streams` measures, in
//! `FOREBAY_BENCH_DIR` (default: the directory for temporary files); `cargo test` runs everything once, on small data.
//! The interleaved sequences depend on the readahead of the block device (`blockdev --getra`); the effect is largest
//! with the kernel's default of 128 KiB.

#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

use std::cell::Cell;
use std::hint::black_box;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use forebay::io::{Advice, File, OpenOptions};
use forebay::{
    BufferPool, Checksum, FileOptions, Lsn, PagedFile, ReadaheadStrategy, StreamOptions, TornPages,
};

const PAGE: u64 = 8192;

struct Scale {
    resident_blocks: u32,
    sequence_blocks: u32,
    rounds: usize,
}

const SEQUENCES: u32 = 8;

fn main() {
    let measures = std::env::args().any(|argument| argument == "--bench");
    let scale = if measures {
        Scale { resident_blocks: 1 << 16, sequence_blocks: 8192, rounds: 9 }
    } else {
        Scale { resident_blocks: 512, sequence_blocks: 32, rounds: 1 }
    };
    let root = std::env::var_os("FOREBAY_BENCH_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    let directory = tempfile::tempdir_in(root).unwrap();
    resident(&scale, &directory.path().join("resident"));
    interleaved(&scale, &directory.path().join("interleaved"));
}

fn word(page: &[u8]) -> u64 {
    u64::from_ne_bytes(page[64..72].try_into().unwrap())
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// Interleaved rounds of two ways to do the same work, after one warm-up round of each.
fn compare(rounds: usize, mut plain: impl FnMut(), mut other: impl FnMut()) -> [Duration; 2] {
    let mut times = [Vec::new(), Vec::new()];
    plain();
    other();
    for _ in 0..rounds {
        let start = Instant::now();
        plain();
        times[0].push(start.elapsed());
        let start = Instant::now();
        other();
        times[1].push(start.elapsed());
    }
    times.map(|mut times| median(&mut times))
}

/// A file of `blocks` blocks in a pool of `frames`.
fn file(directory: &std::path::Path, blocks: u32, frames: u64) -> (BufferPool, PagedFile) {
    let pool = BufferPool::builder()
        .checksum(Checksum::Off)
        .torn_pages(TornPages::Unprotected)
        .frames(frames)
        .page_size(PAGE)
        .directory(directory)
        .readahead(ReadaheadStrategy::Os)
        .build()
        .unwrap();
    let file = pool.open_file("file", &FileOptions::new().create(true)).unwrap();
    file.extend(blocks).unwrap();
    for block in 0..blocks {
        let mut page = file.init(block).unwrap();
        page.fill(block as u8);
        page.mark_dirty(Lsn::NONE);
    }
    pool.flush_and_sync().unwrap();
    (pool, file)
}

fn resident(scale: &Scale, directory: &std::path::Path) {
    let (_pool, file) = file(directory, scale.resident_blocks, u64::from(scale.resident_blocks));
    let in_order: Vec<u32> = (0..scale.resident_blocks).collect();
    let mut shuffled = in_order.clone();
    fastrand::Rng::with_seed(3).shuffle(&mut shuffled);
    for (name, blocks) in [("in order", in_order), ("shuffled", shuffled)] {
        let plain = || {
            for &block in &blocks {
                black_box(word(&file.read(block).unwrap()));
            }
        };
        let adaptive = StreamOptions::new().readahead(ReadaheadStrategy::Adaptive);
        let stream = || {
            for page in file.stream_with(blocks.iter().copied(), &adaptive) {
                black_box(word(&page.unwrap()));
            }
        };
        let [plain, stream] = compare(scale.rounds, plain, stream)
            .map(|time| time.as_nanos() as f64 / blocks.len() as f64);
        println!(
            "resident, {name}: plain {plain:.1} ns a page, stream {stream:.1} ns: {:.2} times",
            stream / plain
        );
    }
}

fn interleaved(scale: &Scale, directory: &std::path::Path) {
    let blocks = SEQUENCES * scale.sequence_blocks;
    let (pool, file) = file(directory, blocks, u64::from(blocks.min(2048)));
    file.close().unwrap();
    let is_cold = Cell::new(true);
    let cold = || {
        let cached = File::open(&directory.join("file"), &OpenOptions::new()).unwrap();
        // Where the system does not support this advice, nothing is cold, and the output says so.
        is_cold.set(cached.advise(0..u64::MAX, Advice::DontNeed).is_ok());
        pool.open_file("file", &FileOptions::new()).unwrap()
    };
    let sequences =
        || (0..SEQUENCES).map(|it| it * scale.sequence_blocks..(it + 1) * scale.sequence_blocks);
    let (mut one, mut private) = (Vec::new(), Vec::new());
    for _ in 0..scale.rounds {
        let file = cold();
        let start = Instant::now();
        for step in 0..scale.sequence_blocks {
            for sequence in sequences() {
                black_box(word(&file.read(sequence.start + step).unwrap()));
            }
        }
        one.push(start.elapsed());
        file.close().unwrap();

        let file = cold();
        let options = StreamOptions::new().readahead(ReadaheadStrategy::Os);
        let start = Instant::now();
        let mut scans: Vec<_> = sequences().map(|range| file.scan_with(range, &options)).collect();
        for _ in 0..scale.sequence_blocks {
            for scan in &mut scans {
                black_box(word(&scan.next().unwrap().unwrap()));
            }
        }
        private.push(start.elapsed());
        drop(scans);
        file.close().unwrap();
    }
    let [one, private] = [one, private]
        .map(|mut times| f64::from(blocks) / median(&mut times).as_secs_f64() / 1000.0);
    println!(
        "{SEQUENCES} interleaved sequences, {}: one descriptor {one:.1} k blocks/s, each its own \
         {private:.1} k: {:.2} times",
        if is_cold.get() { "cold" } else { "from the page cache, which cannot be emptied here" },
        private / one
    );
}
