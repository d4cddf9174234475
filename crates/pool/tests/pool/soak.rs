//! All operations at once for a while, on real files with the best backend, with four times as much data as memory.
//!
//! Every page contains its own tag, a version and the test's own checksum. *Kept* files are never truncated: under the
//! latch a page has exactly the version that was last written to it, and it has the same version at the end in a new
//! pool. *Changing* files are truncated, extended, dropped and created again: such a page is its own or all zero,
//! and never from before the last time it was cut away.
//!
//! `FOREBAY_SOAK_SECONDS` sets the duration (default: 2), `FOREBAY_SEED` seeds the choices.

use std::env;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use forebay::{
    AccessStrategy, BufferPool, Error, FileOptions, Lsn, PagedFile, StrategyKind, Tablespace,
};

use crate::site::{PAGE, SUMS, Site};

const FRAMES: u64 = 128;
const BLOCKS: u32 = 128;
const KEPT: usize = 2;
const CHANGING: usize = 2;

/// A page's contents: tag, version, padding derived from them, checksum over all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Contents {
    file: u64,
    block: u32,
    version: u64,
}

impl Contents {
    fn put(self, page: &mut [u8]) {
        page[8..16].copy_from_slice(&self.file.to_le_bytes());
        page[16..20].copy_from_slice(&self.block.to_le_bytes());
        page[24..32].copy_from_slice(&self.version.to_le_bytes());
        let mut random = fastrand::Rng::with_seed(self.version ^ self.file);
        page[32..PAGE - 4].chunks_mut(8).for_each(|bytes| {
            let word = random.u64(..).to_le_bytes();
            bytes.copy_from_slice(&word[..bytes.len()]);
        });
        let sum = crc32c::crc32c(&page[8..PAGE - 4]);
        page[PAGE - 4..].copy_from_slice(&sum.to_le_bytes());
    }

    /// The page's contents; `None` for a page of zeroes.
    fn of(page: &[u8], file: u64, block: u32) -> Option<Contents> {
        if page[8..].iter().all(|byte| *byte == 0) {
            return None;
        }
        let sum = crc32c::crc32c(&page[8..PAGE - 4]).to_le_bytes();
        assert_eq!(page[PAGE - 4..], sum, "block {block} of {file:x} is torn");
        let found = Contents {
            file: u64::from_le_bytes(page[8..16].try_into().unwrap()),
            block: u32::from_le_bytes(page[16..20].try_into().unwrap()),
            version: u64::from_le_bytes(page[24..32].try_into().unwrap()),
        };
        assert_eq!((found.file, found.block), (file, block), "another page's contents");
        Some(found)
    }
}

fn name(number: usize) -> String {
    let kind = if number < KEPT { "kept" } else { "changing" };
    format!("{kind} {number}")
}

fn hash(number: usize) -> u64 {
    (u64::from(crc32c::crc32c(name(number).as_bytes())) << 32) | (number as u64 + 1)
}

/// For each kept page its version; for each changing page its minimum version.
struct Versions(Vec<Vec<AtomicU64>>);

impl Versions {
    fn of(&self, number: usize, block: u32) -> u64 {
        self.0[number][block as usize].load(Ordering::SeqCst)
    }

    /// Checks a page read under the latch, given the earlier result of [`Versions::of`].
    fn check(&self, number: usize, block: u32, page: &[u8], before: u64) {
        let version = Contents::of(page, hash(number), block).map_or(0, |found| found.version);
        let name = name(number);
        if number < KEPT {
            assert_eq!(version, self.of(number, block), "block {block} of {name}");
        } else {
            let back = version != 0 && version < before;
            assert!(!back, "block {block} of {name}: {version} is back after {before}");
        }
    }
}

struct Soak {
    pool: BufferPool,
    /// The handles; for a changing file, to its current incarnation.
    files: Vec<RwLock<PagedFile>>,
    versions: Versions,
    clock: AtomicU64,
    resizing: Mutex<()>,
    done: AtomicBool,
    counts: [AtomicU64; 6],
}

fn build(site: &Site) -> BufferPool {
    let space = |name: &str| Tablespace::new(name, site.path(name));
    let builder = Site::chosen().frames(FRAMES).page_size(PAGE).checksum(SUMS);
    let wait = Duration::from_secs(20);
    builder.frame_wait(wait).tablespace(space("main")).tablespace(space("other")).build().unwrap()
}

/// Even files are in one tablespace, odd ones in the other.
fn options(number: usize) -> FileOptions {
    let space = if number.is_multiple_of(2) { "main" } else { "other" };
    FileOptions::new().tablespace(space)
}

impl Soak {
    fn new(site: &Site) -> Soak {
        let pool = build(site);
        let files = (0..KEPT + CHANGING).map(|number| {
            let file = pool.open_file(&name(number), &options(number).create_new(true)).unwrap();
            file.extend(BLOCKS).unwrap();
            RwLock::new(file)
        });
        Soak {
            files: files.collect(),
            pool,
            versions: Versions(
                (0..KEPT + CHANGING)
                    .map(|_| (0..BLOCKS).map(|_| AtomicU64::new(0)).collect())
                    .collect(),
            ),
            clock: AtomicU64::new(1),
            resizing: Mutex::new(()),
            done: AtomicBool::new(false),
            counts: Default::default(),
        }
    }

    fn file(&self, number: usize) -> PagedFile {
        self.files[number].read().unwrap().clone()
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    fn run(&self, seed: u64) {
        let mut random = fastrand::Rng::with_seed(seed);
        let rings = StrategyKind::ALL.map(|kind| self.pool.strategy(kind));
        while !self.done.load(Ordering::Relaxed) {
            let number = random.usize(..KEPT + CHANGING);
            let block = random.u32(..BLOCKS).min(random.u32(..BLOCKS));
            let ring = &rings[random.usize(..6).saturating_sub(2)];
            let file = self.file(number);
            let what = match random.u32(..1000) {
                0..2 => 0,
                2..6 => 1,
                6..8 => 2,
                8..400 => 3,
                400..500 => 4,
                _ => 5,
            };
            let done = match what {
                0 if number >= KEPT => self.recreate(number, &file),
                1 if number >= KEPT => self.cut(number, &file, block),
                2 => file.flush_file().map(drop),
                3 => self.change(number, &file, block, ring),
                4 => self.copy(number, &file, block),
                _ => self.read_one(number, &file, block, ring),
            };
            self.counts[what].fetch_add(1, Ordering::Relaxed);
            if let Err(error) = done {
                let invalidated =
                    matches!(error, Error::Invalidated { .. } | Error::PastEnd { .. });
                assert!(invalidated && number >= KEPT, "{error}");
            }
        }
    }

    fn read_one(
        &self,
        number: usize,
        file: &PagedFile,
        block: u32,
        ring: &AccessStrategy,
    ) -> Result<(), Error> {
        let before = self.versions.of(number, block);
        let page = file.read_with(block, ring)?;
        self.versions.check(number, block, &page, before);
        Ok(())
    }

    fn copy(&self, number: usize, file: &PagedFile, block: u32) -> Result<(), Error> {
        let before = self.versions.of(number, block);
        let mut page = vec![0; PAGE];
        file.copy(block, 0, &mut page)?;
        let found = Contents::of(&page, hash(number), block).map_or(0, |found| found.version);
        let fresh = found >= before || (number >= KEPT && found == 0);
        assert!(fresh, "block {block} of {}: {found} after {before}", name(number));
        Ok(())
    }

    fn change(
        &self,
        number: usize,
        file: &PagedFile,
        block: u32,
        ring: &AccessStrategy,
    ) -> Result<(), Error> {
        let before = self.versions.of(number, block);
        let mut page = file.write_with(block, ring)?;
        self.versions.check(number, block, &page, before);
        let version = self.tick();
        Contents { file: hash(number), block, version }.put(&mut page);
        page.mark_dirty(Lsn::NONE);
        if number < KEPT {
            self.versions.0[number][block as usize].store(version, Ordering::SeqCst);
        }
        Ok(())
    }

    /// From now on, pages of this file from `block` on have versions above this.
    fn raise(&self, number: usize, block: u32) {
        let least = self.tick();
        for version in &self.versions.0[number][block as usize..] {
            version.store(least, Ordering::SeqCst);
        }
    }

    fn cut(&self, number: usize, file: &PagedFile, block: u32) -> Result<(), Error> {
        let _one = self.resizing.lock().unwrap();
        file.truncate(block)?;
        self.raise(number, block);
        file.extend(BLOCKS - block).map(drop)
    }

    fn recreate(&self, number: usize, file: &PagedFile) -> Result<(), Error> {
        let _one = self.resizing.lock().unwrap();
        file.drop_file()?;
        self.raise(number, 0);
        let fresh = self.pool.open_file(&name(number), &options(number).create_new(true)).unwrap();
        fresh.extend(BLOCKS)?;
        *self.files[number].write().unwrap() = fresh;
        Ok(())
    }
}

/// Reads everything in a new pool; returns how many pages were ever written.
fn verify(site: &Site, versions: &Versions) -> u32 {
    let pool = build(site);
    let mut written = 0;
    for number in 0..KEPT + CHANGING {
        let file = pool.open_file(&name(number), &options(number)).unwrap();
        assert_eq!(file.blocks(), BLOCKS);
        for block in 0..BLOCKS {
            let page = file.read(block).unwrap();
            versions.check(number, block, &page, versions.of(number, block));
            written += u32::from(page.iter().any(|byte| *byte != 0));
        }
    }
    written
}

#[test]
fn everything_at_once_loses_nothing() {
    let number = |name: &str| env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let seconds = number("FOREBAY_SOAK_SECONDS").unwrap_or(2);
    let seed = number("FOREBAY_SEED").unwrap_or_else(|| fastrand::u64(..));
    println!("replay with: FOREBAY_SEED={seed} cargo test -p forebay --test pool soak");
    let site = Site::with_patience(Duration::from_secs(seconds + 120));
    let soak = Soak::new(&site);
    let start = Instant::now();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..2)
            .map(|thread| {
                let soak = &soak;
                scope.spawn(move || soak.run(seed ^ thread))
            })
            .collect();
        let over = || start.elapsed() >= Duration::from_secs(seconds);
        while !over() && !threads.iter().any(thread::ScopedJoinHandle::is_finished) {
            thread::sleep(Duration::from_millis(20));
        }
        soak.done.store(true, Ordering::Relaxed);
    });
    let Soak { pool, files, versions, counts, .. } = soak;
    println!("{}", pool.stats());
    let names = ["drops", "cuts", "flushes", "changes", "copies", "reads"];
    println!("{:?}", names.iter().zip(&counts).collect::<Vec<_>>());
    drop(files);
    pool.close().unwrap();
    println!("all as it should be; {} pages have contents", verify(&site, &versions));
}
