//! What a checkpoint takes before it writes: noting and sorting a million pages on one core.
//!
//! The pages are dirtied in random order, so that frames and blocks have nothing to do with each other.
//! `cargo bench -p forebay --bench checkpoint` measures, with 4 GiB of pages; `cargo test` runs it once on
//! a small pool.

#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use forebay::{
    BufferPool, CheckpointOptions, Elevator, Error, FileOptions, Lsn, Pages, Sorted, Tablespace,
};

/// Sorts as often as it is told to, tells how long that took, and writes nothing.
#[derive(Debug)]
struct Timed {
    sorted: Sorted,
    nanos: Arc<AtomicU64>,
    started: Instant,
    noted: Arc<AtomicU64>,
}

impl Elevator for Timed {
    fn name(&self) -> &'static str {
        "timed"
    }

    fn begin(&mut self, pages: &mut Pages<'_>) {
        let noted = self.started.elapsed();
        let start = Instant::now();
        self.sorted.begin(pages);
        self.nanos.store(start.elapsed().as_nanos() as u64, Ordering::SeqCst);
        self.noted.store(noted.as_nanos() as u64, Ordering::SeqCst);
    }

    fn next(&mut self, _pages: &Pages<'_>, _has_room: &dyn Fn(usize) -> bool) -> Option<usize> {
        None
    }

    fn took(&mut self, _first: usize, _count: usize) {}
}

fn main() {
    let measures = std::env::args().any(|argument| argument == "--bench");
    let (pages, rounds): (u32, usize) = if measures { (1 << 20, 9) } else { (1 << 10, 1) };
    let directory = tempfile::tempdir().unwrap();
    let pool = BufferPool::builder()
        .frames(u64::from(pages))
        .page_size(4096)
        .cleaner(false)
        .tablespace(Tablespace::new("a", directory.path().join("a")))
        .tablespace(Tablespace::new("b", directory.path().join("b")))
        .build()
        .unwrap();
    let files = [("a", "1"), ("b", "2"), ("a", "3"), ("b", "4")].map(|(space, name)| {
        let options = FileOptions::new().create(true).tablespace(space);
        let file = pool.open_file(name, &options).unwrap();
        file.extend(pages / 4).unwrap();
        file
    });
    let mut order: Vec<u32> = (0..pages).collect();
    fastrand::Rng::with_seed(5).shuffle(&mut order);
    for page in order {
        let mut page = files[page as usize % 4].init(page / 4).unwrap();
        page.mark_dirty(Lsn::NONE);
    }
    let (mut sorts, mut notes) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let (nanos, noted) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let timed = Timed {
            sorted: Sorted::default(),
            nanos: Arc::clone(&nanos),
            started: Instant::now(),
            noted: Arc::clone(&noted),
        };
        let gave_up = pool.checkpoint(CheckpointOptions::now().elevator(timed));
        assert!(matches!(gave_up, Err(Error::Elevator { .. })), "{gave_up:?}");
        sorts.push(Duration::from_nanos(nanos.load(Ordering::SeqCst)));
        notes.push(Duration::from_nanos(noted.load(Ordering::SeqCst)));
    }
    sorts.sort_unstable();
    notes.sort_unstable();
    println!(
        "{pages} pages of 4 files in 2 tablespaces: noted within {:.1?} (the wake of the thread \
         included), sorted in {:.1?}, at most {:.1?}; {} bytes a frame set aside",
        notes[rounds / 2],
        sorts[rounds / 2],
        sorts[rounds - 1],
        pool.checkpoint_bytes() / pool.frames(),
    );
    for file in files {
        file.drop_file().unwrap();
    }
}
