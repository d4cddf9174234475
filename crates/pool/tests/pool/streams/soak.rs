//! Streams, plain reads, changes and truncations by many threads over a small pool, compared with the expected
//! contents.
//!
//! The *kept* file is never truncated: under its latch a page contains exactly the number that was last written to it.
//! The *cut* file is truncated and extended again: a page of it is zero, or contains a number that is not from before
//! the last time it was cut away.
//!
//! `FOREBAY_SOAK_SECONDS` sets the duration (default: 4), `FOREBAY_SEED` seeds the choices.

use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use forebay::{
    BufferPool, Error, FileOptions, Order, PagedFile, ReadaheadStrategy, StrategyKind,
    StreamOptions, Tablespace,
};

use crate::site::{Ends, PAGE, SUMS, Site, create, number_in, set, wait_until};

const FRAMES: u64 = 48;
const BLOCKS: u32 = 160;
const THREADS: u64 = 4;
/// Each thread may hold a page while it waits for a frame; no wait is long.
const FRAME_WAIT: Duration = Duration::from_secs(20);

/// The message of a deliberate panic of an iterator in this test.
const ON_PURPOSE: &str = "an iterator panics on purpose";

struct Soak {
    pool: BufferPool,
    kept: PagedFile,
    cut: PagedFile,
    /// For each page of `kept` its number; for each page of `cut` the minimum other than zero.
    kept_says: Vec<AtomicU64>,
    cut_least: Vec<AtomicU64>,
    clock: AtomicU64,
    resizing: Mutex<()>,
    done: AtomicBool,
    counts: [AtomicU64; 6],
}

fn build(site: &Site) -> BufferPool {
    let main = Tablespace::new("main", site.path("main"));
    let builder = Site::chosen().frames(FRAMES).page_size(PAGE).checksum(SUMS);
    builder.frame_wait(FRAME_WAIT).tablespace(main).build().unwrap()
}

fn zeroes() -> Vec<AtomicU64> {
    (0..BLOCKS).map(|_| AtomicU64::new(0)).collect()
}

impl Soak {
    fn new(site: &Site) -> Soak {
        let pool = build(site);
        let file = |name| {
            let file = pool.open_file(name, &create()).unwrap();
            file.extend(BLOCKS).unwrap();
            file
        };
        let (kept, cut) = (file("kept"), file("cut"));
        Soak {
            kept_says: zeroes(),
            cut_least: zeroes(),
            clock: AtomicU64::new(1),
            resizing: Mutex::new(()),
            done: AtomicBool::new(false),
            counts: Default::default(),
            pool,
            kept,
            cut,
        }
    }

    fn run(&self, seed: u64) {
        let mut random = fastrand::Rng::with_seed(seed);
        while !self.done.load(Ordering::Relaxed) {
            let kept = random.bool();
            let block = random.u32(..BLOCKS);
            let what = match random.u32(..100) {
                0..30 => 0,
                30..60 => 1,
                60..95 => 2,
                95..98 => 3,
                _ => 4,
            };
            match what {
                0 => self.stream(&mut random, kept),
                1 => self.read_one(kept, block),
                2 => self.change(kept, block),
                3 => self.shorten(block),
                _ => drop(self.kept.flush_file().unwrap()),
            }
            self.counts[what].fetch_add(1, Ordering::Relaxed);
        }
    }

    fn file(&self, kept: bool) -> &PagedFile {
        if kept { &self.kept } else { &self.cut }
    }

    /// The minimum numbers in the pages of `cut` from now on.
    fn least(&self, kept: bool) -> Vec<u64> {
        let least = if kept { &[] } else { &self.cut_least[..] };
        least.iter().map(|number| number.load(Ordering::SeqCst)).collect()
    }

    /// Checks a latched page, given the result of [`Soak::least`] before it was requested.
    fn check(&self, kept: bool, block: u32, page: &[u8], least: &[u64]) {
        let number = number_in(page);
        if kept {
            let says = self.kept_says[block as usize].load(Ordering::SeqCst);
            assert_eq!(number, says, "block {block} of the kept file");
        } else {
            let least = least[block as usize];
            assert!(number == 0 || number >= least, "block {block}: {number} is back ({least})");
        }
    }

    fn allowed(&self, kept: bool, error: &Error) {
        let invalidated = matches!(error, Error::PastEnd { .. } | Error::Invalidated { .. });
        assert!(invalidated && !kept, "{error}");
    }

    fn read_one(&self, kept: bool, block: u32) {
        let least = self.least(kept);
        match self.file(kept).read(block) {
            Ok(page) => self.check(kept, block, &page, &least),
            Err(error) => self.allowed(kept, &error),
        }
    }

    fn change(&self, kept: bool, block: u32) {
        let least = self.least(kept);
        match self.file(kept).write(block) {
            Ok(mut page) => {
                self.check(kept, block, &page, &least);
                let number = self.clock.fetch_add(1, Ordering::SeqCst);
                set(&mut page, number);
                if kept {
                    self.kept_says[block as usize].store(number, Ordering::SeqCst);
                }
            }
            Err(error) => self.allowed(kept, &error),
        }
    }

    fn shorten(&self, blocks: u32) {
        let _one = self.resizing.lock().unwrap();
        self.cut.truncate(blocks).unwrap();
        let least = self.clock.fetch_add(1, Ordering::SeqCst);
        for number in &self.cut_least[blocks as usize..] {
            number.store(least, Ordering::SeqCst);
        }
        self.cut.extend(BLOCKS - self.cut.blocks()).unwrap();
    }

    fn options(&self, random: &mut fastrand::Rng) -> StreamOptions {
        let mut options = StreamOptions::new()
            .readahead(ReadaheadStrategy::ALL[random.usize(..6)])
            .order(if random.bool() { Order::InOrder } else { Order::Any });
        if random.u32(..3) == 0 {
            options = options.access(StrategyKind::ALL[random.usize(..4)]);
        }
        if random.bool() {
            options = options.distance(random.u32(1..40));
        }
        if random.u32(..4) == 0 {
            options = options.expected_rows(random.u64(..20));
        }
        options
    }

    /// Takes some items of a stream, which is paused, reset and dropped in between.
    fn stream(&self, random: &mut fastrand::Rng, kept: bool) {
        let file = self.file(kept);
        let mut stream = file.stream_with(Names::new(random, file), &self.options(random));
        for _ in 0..random.u32(1..150) {
            match random.u32(..60) {
                0 => stream.pause(),
                1..6 => stream.resume(),
                6 => stream.reset(Names::new(random, file)),
                7 => self.read_one(kept, random.u32(..BLOCKS)),
                8 => self.change(!kept, random.u32(..BLOCKS)),
                _ => {}
            }
            let least = self.least(kept);
            match catch_unwind(AssertUnwindSafe(|| stream.next())) {
                Ok(Some(Ok(row))) => {
                    assert_eq!(row.data, row.page.block(), "the data of another block");
                    self.check(kept, row.page.block(), &row, &least);
                }
                Ok(Some(Err(error))) => self.allowed(kept, &error.error),
                Ok(None) => {}
                Err(panic) if panic.downcast_ref::<&str>() == Some(&ON_PURPOSE) => {
                    self.counts[5].fetch_add(1, Ordering::Relaxed);
                }
                Err(panic) => resume_unwind(panic),
            }
        }
    }
}

/// An iterator of blocks that mixes runs and jumps, reads the file now and then, and may panic.
struct Names<'f> {
    random: fastrand::Rng,
    file: &'f PagedFile,
    run: std::ops::Range<u32>,
    left: u32,
    panics_at: u32,
}

impl<'f> Names<'f> {
    fn new(random: &mut fastrand::Rng, file: &'f PagedFile) -> Names<'f> {
        let panics_at = if random.u32(..20) == 0 { random.u32(1..60) } else { u32::MAX };
        let random = fastrand::Rng::with_seed(random.u64(..));
        Names { left: 120, run: 0..0, panics_at, file, random }
    }
}

impl Iterator for Names<'_> {
    type Item = (u32, u32);

    fn next(&mut self) -> Option<(u32, u32)> {
        self.left = self.left.checked_sub(1)?;
        if 120 - self.left == self.panics_at {
            // Bypasses the hook, which would print it.
            resume_unwind(Box::new(ON_PURPOSE));
        }
        if self.random.u32(..40) == 0 {
            drop(self.file.read(self.random.u32(..BLOCKS)));
        }
        let block = self.run.next().unwrap_or_else(|| {
            let start = self.random.u32(..BLOCKS);
            self.run = start + 1..BLOCKS.min(start + self.random.u32(1..25));
            start
        });
        Some((block, block))
    }
}

#[test]
fn streams_among_readers_writers_and_cuts_give_what_is_there() {
    let number = |name: &str| env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let seconds = number("FOREBAY_SOAK_SECONDS").unwrap_or(4);
    let seed = number("FOREBAY_SEED").unwrap_or_else(|| fastrand::u64(..));
    println!("replay with: FOREBAY_SEED={seed} cargo test -p forebay --test pool streams::soak");
    let site = Site::with_patience(Duration::from_secs(seconds + 60));
    let soak = Soak::new(&site);
    let start = Instant::now();
    thread::scope(|scope| {
        let _ends = Ends(&soak.done);
        let run = |thread| {
            let soak = &soak;
            scope.spawn(move || soak.run(seed.wrapping_add(thread)))
        };
        let threads: Vec<_> = (0..THREADS).map(run).collect();
        let over = || start.elapsed() >= Duration::from_secs(seconds);
        while !over() && !threads.iter().any(thread::ScopedJoinHandle::is_finished) {
            thread::sleep(Duration::from_millis(20));
        }
    });
    println!("{}", soak.pool.stats());
    let names = ["streams", "reads", "changes", "cuts", "flushes", "panics"];
    println!("{:?}", names.iter().zip(&soak.counts).collect::<Vec<_>>());
    // The cleaner may hold a page for a moment.
    let free = |frame: &forebay::FrameView| frame.pins == 0 && !frame.orphan;
    wait_until("every page to be released [RS-3]", || soak.pool.view().iter().all(free));
    soak.pool.close().unwrap();
    assert_eq!(soak.pool.stats().frames_free, FRAMES, "[RS-3] frames are lost");

    let pool = build(&site);
    let kept = pool.open_file("kept", &FileOptions::new()).unwrap();
    for row in kept.scan(0..BLOCKS) {
        let row = row.unwrap();
        soak.check(true, row.page.block(), &row, &[]);
    }
}
