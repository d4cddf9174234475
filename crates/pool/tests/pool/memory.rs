//! Resizing the pool while it is in use: no page is lost, nothing waits unnecessarily, and memory is returned to the
//! system.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use forebay::{BufferPool, Error, StrategyKind, Tablespace};
use forebay_io::{Op, OsError};

use crate::disk::Disk;
use crate::site::{
    Ends, PAGE, SHORT, Site, create, number_in, numbered, on_disk, read, reopened, set, wait_until,
    write,
};

fn pages(count: usize) -> usize {
    count * PAGE
}

/// The resident memory, in KiB, of `pages` pages from address `at` on. By address, because the mapping may include
/// memory of others.
#[cfg(target_os = "linux")]
fn resident_kib(at: usize, pages: usize) -> usize {
    use std::os::unix::fs::FileExt;
    assert_eq!(PAGE % 4096, 0);
    let mut entries = vec![0; pages * PAGE / 4096 * 8];
    let map = std::fs::File::open("/proc/self/pagemap").unwrap();
    map.read_exact_at(&mut entries, (at / 4096 * 8) as u64).unwrap();
    // The top two bits of an entry: in memory, or in swap.
    entries.iter().skip(7).step_by(8).filter(|&&top| top >> 6 != 0).count() * 4
}

#[test]
#[cfg(target_os = "linux")]
fn memory_is_taken_as_it_is_used_and_goes_back_to_the_system() {
    let site = Site::new();
    let pool = site.builder(64).memory_max("1 GiB").huge_pages(false).build().unwrap();
    let file = numbered(&pool, "table", 4096, 0);
    let held = file.read(4095).unwrap();
    let frame = pool.view().into_iter().find(|frame| frame.block == 4095).unwrap().frame;
    let start = held.as_ptr().addr() - frame as usize * PAGE;
    drop(held);
    let resident = || resident_kib(start, 4096);
    assert!(resident() <= 64 * 4, "only what is in use: {}", resident());
    assert_eq!(pool.set_memory("16 MiB").unwrap(), 0);
    assert_eq!((pool.frames(), pool.stats().memory_bytes()), (4096, 16 << 20));
    for _ in 0..2 {
        (0..4096).for_each(|block| assert_eq!(read(&file, block), u64::from(block)));
        assert!((0..4096).all(|block| file.is_resident(block)), "all frames are used");
        assert!(resident() >= 16 << 10, "{}", resident());
        let bookkeeping = pool.bookkeeping_bytes();
        assert_eq!(pool.set_memory("1 MiB").unwrap(), 15 << 20);
        assert_eq!(pool.bookkeeping_bytes(), bookkeeping, "none of that goes back");
        assert_eq!((pool.frames(), pool.stats().memory_bytes()), (256, 1 << 20));
        assert!(resident() <= 1 << 10, "[EXT-2] {}", resident());
        (0..4096).for_each(|block| assert_eq!(read(&file, block), u64::from(block)));
        assert_eq!(pool.stats().frames_free, 0);
        assert!(resident() <= 1 << 10, "[EXT-2] a frame beyond is used: {}", resident());
        assert_eq!(pool.set_memory("16 MiB").unwrap(), 0);
    }
    assert_eq!(pool.set_memory("16 MiB").unwrap(), 0);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let site = Site::new();
    let pool = site.builder(64).memory_max(pages(128)).build().unwrap();
    let refused = pool.set_memory(pages(129)).unwrap_err().to_string();
    assert_eq!(
        refused,
        "memory is 528384: it should be at most 524288, the `memory_max` that the pool was built with"
    );
    for (memory, beginning) in [
        ("7 KiB", "memory is 7168: "),
        ("28 KiB", "memory is 28672: "),
        ("much", "memory is \"much\": "),
    ] {
        let error = pool.set_memory(memory).unwrap_err().to_string();
        assert!(error.starts_with(beginning), "{error}");
    }
    let error = site.builder(8).memory_max("28 KiB").build().unwrap_err().to_string();
    assert!(error.starts_with("the most memory is 28672: "), "{error}");
    assert_eq!(pool.frames(), 64);
    assert!(matches!(
        site.builder(64).memory_max(pages(63)).build(),
        Err(Error::Setting { setting: "the most memory", .. })
    ));
}

#[test]
fn a_pinned_page_that_is_in_the_way_is_reported_and_the_pool_is_unchanged() {
    let site = Site::new();
    let pool = site.builder(64).frame_wait(SHORT).build().unwrap();
    let file = numbered(&pool, "table", 64, 0);
    let pins: Vec<_> = (0..64).map(|block| file.pin(block).unwrap()).collect();
    let error = pool.set_memory(pages(16)).unwrap_err();
    let Error::MemoryInUse { pages: 48, waited } = error else { panic!("[SHR-2] {error}") };
    assert!(waited >= SHORT && error.is_retryable());
    assert!(error.to_string().contains("idle read streams"), "{error}");
    assert_eq!((pool.frames(), pool.stats().frames_pinned), (64, 64), "[SHR-2]");
    drop(pins);
    // One page, in the last frame.
    let last = pool.view().into_iter().find(|frame| frame.frame == 63).unwrap();
    let pin = file.pin(last.block).unwrap();
    let error = pool.set_memory(pages(16)).unwrap_err();
    assert!(matches!(error, Error::MemoryInUse { pages: 1, .. }), "[SHR-2] {error}");
    assert_eq!(pool.frames(), 64);
    // The other frames are used again.
    (0..64).for_each(|block| assert_eq!(read(&file, block), u64::from(block)));
    assert!((0..64).all(|block| file.is_resident(block)), "[SHR-2]");
    thread::scope(|scope| {
        let once = || match pool.set_memory(pages(16)) {
            Err(Error::MemoryInUse { pages: 1, .. }) => None,
            done => Some(done.unwrap()),
        };
        let shrinking = scope.spawn(move || std::iter::repeat_with(once).flatten().next());
        thread::sleep(Duration::from_millis(10));
        drop(pin);
        assert_eq!(shrinking.join().unwrap(), Some(pages(48) as u64));
    });
    (0..64).for_each(|block| assert_eq!(read(&file, block), u64::from(block)));
    assert_eq!(pool.view().iter().map(|frame| frame.frame).max(), Some(15), "[EXT-1]");
}

#[test]
fn a_page_that_cannot_be_written_stays_and_so_does_the_memory() {
    let site = Site::new();
    let (pool, disk) = site.rigged(64);
    let file = numbered(&pool, "table", 64, 0);
    (0..64).for_each(|block| write(&file, block, 1000 + u64::from(block)));
    disk.fail(Op::Write, OsError::EIO);
    let before = disk.count(Op::Write);
    let error = pool.set_memory(pages(16)).unwrap_err();
    assert!(crate::site::is_io(&error, OsError::EIO), "[SHR-2] {error}");
    assert_eq!((pool.frames(), pool.stats().frames_dirty), (64, 64), "[SHR-1]");
    assert_eq!(disk.count(Op::Write) - before, 1, "it goes on after the first error");
    disk.heal();
    assert_eq!(pool.set_memory(pages(16)).unwrap(), pages(48) as u64);
    (16..64).for_each(|block| assert_eq!(on_disk(&file, block), 1000 + u64::from(block)));
    let file = reopened(&pool, file);
    (0..64).for_each(|block| assert_eq!(read(&file, block), 1000 + u64::from(block), "[SHR-1]"));
}

/// While a dirty page in the last frame is being written.
#[test]
fn what_is_to_go_is_handed_out_no_more_before_its_pages_are_written() {
    let site = Site::new();
    let (io, disk) = Disk::open();
    let main = Tablespace::new("main", site.path("main")).io(io);
    let pool = Site::bare(64).cleaner(false).tablespace(main).build().unwrap();
    let file = numbered(&pool, "table", 300, 0);
    let file = reopened(&pool, file);
    (0..64).for_each(|block| drop(file.read(block).unwrap()));
    let last = pool.view().into_iter().find(|frame| frame.frame == 63).unwrap();
    write(&file, last.block, 1000);
    let gate = disk.hold(Op::Write);
    thread::scope(|scope| {
        let shrinking = scope.spawn(|| pool.set_memory(pages(16)));
        gate.wait_for(1);
        let ahead = (64..264).collect::<Vec<_>>();
        let asked = ahead.chunks(20).map(|blocks| file.prefetch(blocks)).max().unwrap();
        (264..300).for_each(|block| assert_eq!(read(&file, block), u64::from(block)));
        let late = pool.view().into_iter().filter(|frame| frame.block >= 64);
        let last = late.map(|frame| frame.frame).max();
        gate.open();
        assert_eq!(shrinking.join().unwrap().unwrap(), pages(48) as u64);
        assert!((1..=4).contains(&asked), "[BUD-1] a quarter of 16 pages: {asked}");
        assert!(last < Some(16), "[EXT-2] {last:?}");
    });
    assert_eq!(on_disk(&file, last.block), 1000, "[SHR-1]");
}

#[test]
fn what_was_added_is_there_for_look_ahead_and_for_checkpoints() {
    let site = Site::new();
    let pool = site.builder(64).memory_max(pages(512)).build().unwrap();
    let file = numbered(&pool, "table", 400, 0);
    let file = reopened(&pool, file);
    pool.set_memory(pages(512)).unwrap();
    let asked = file.prefetch(&(0..100).collect::<Vec<_>>());
    assert!(asked > 16, "[BUD-1] a quarter of 512 pages: {asked}");
    (0..400).for_each(|block| write(&file, block, 1000 + u64::from(block)));
    let dirty = pool.stats().frames_dirty;
    let report = pool.checkpoint(forebay::CheckpointOptions::now()).unwrap();
    assert!(dirty > 64 && report.pages >= dirty, "[CKP-2] {dirty}: {report:?}");
    (0..400).for_each(|block| assert_eq!(on_disk(&file, block), 1000 + u64::from(block)));
}

#[test]
fn a_pool_that_began_small_writes_as_many_pages_at_a_time_as_a_large_one() {
    let site = Site::new();
    let (io, disk) = Disk::open();
    let main = Tablespace::new("main", site.path("main")).io(io);
    let pool = Site::bare(8).memory_max(pages(512)).cleaner(false).tablespace(main);
    let pool = pool.build().unwrap();
    pool.set_memory(pages(512)).unwrap();
    let file = numbered(&pool, "table", 256, 0);
    let before = disk.count(Op::Write);
    (0..256).for_each(|block| write(&file, block, 1000));
    file.flush_file().unwrap();
    let writes = disk.count(Op::Write) - before;
    assert!(writes <= 32, "{writes} writes of 256 pages in a row");
}

/// A ring that was created by the larger pool, and a stream that holds pages from before.
#[test]
fn rings_and_streams_made_before_go_on_in_what_is_left() {
    let site = Site::new();
    let pool = site.builder(512).frame_wait(Duration::from_secs(20)).build().unwrap();
    let file = numbered(&pool, "table", 2000, 0);
    let file = reopened(&pool, file);
    let ring = pool.strategy(StrategyKind::BulkWrite);
    (0..512).for_each(|block| drop(file.read_with(block, &ring).unwrap()));
    let mut stream = file.scan(0..2000);
    for block in 0..50 {
        assert_eq!(number_in(&stream.next().unwrap().unwrap()), block);
    }
    thread::scope(|scope| {
        let shrinking = scope.spawn(|| pool.set_memory(pages(32)));
        for block in 50..2000 {
            assert_eq!(number_in(&stream.next().unwrap().unwrap()), block);
        }
        drop(stream);
        assert_eq!(shrinking.join().unwrap().unwrap(), pages(480) as u64);
    });
    for block in 0..1000 {
        assert_eq!(number_in(&file.read_with(block, &ring).unwrap()), u64::from(block));
    }
    assert!(pool.view().iter().all(|frame| frame.frame < 32), "[EXT-1]");
}

/// Readers, writers, scans, prefetches and checkpoints, while one thread changes the memory size continuously.
#[test]
fn shr_1_no_page_is_lost_while_the_memory_grows_and_shrinks_under_load() {
    const BLOCKS: u32 = 600;
    const ROUNDS: u32 = 100;
    let site = Site::new();
    let wait = Duration::from_secs(20);
    let pool = site.builder(64).memory_max(pages(512)).frame_wait(wait).build().unwrap();
    let file = numbered(&pool, "table", BLOCKS, 0);
    let latest: BTreeMap<u32, AtomicU64> =
        (0..BLOCKS).map(|block| (block, AtomicU64::new(u64::from(block)))).collect();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _ends = Ends(&over);
        for seed in 0..3 {
            let (pool, file, latest, over) = (&pool, &file, &latest, &over);
            scope.spawn(move || work(seed, pool, file, latest, over));
        }
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..ROUNDS {
            let frames = random.usize(24..=512);
            match pool.set_memory(pages(frames)) {
                Ok(_) => assert_eq!(pool.frames(), frames),
                Err(error) => panic!("[SHR-2] {error}"),
            }
        }
    });
    pool.set_memory(pages(8)).unwrap();
    for (block, number) in latest {
        assert_eq!(read(&file, block), number.into_inner(), "[SHR-1] block {block}");
    }
    let stats = pool.stats();
    assert_eq!((stats.frames, stats.frames_pinned), (8, 0), "[FRM-3]");
    pool.set_memory(pages(512)).unwrap();
    (0..512).for_each(|block| drop(file.read(block).unwrap()));
    assert_eq!(pool.stats().frames_free, 0, "[FRM-3] a frame was lost");
}

fn work(
    seed: u64,
    pool: &BufferPool,
    file: &forebay::PagedFile,
    latest: &BTreeMap<u32, AtomicU64>,
    over: &AtomicBool,
) {
    let mut random = fastrand::Rng::with_seed(seed);
    let blocks = latest.len() as u32;
    while !over.load(Ordering::SeqCst) {
        let block = random.u32(0..blocks);
        match random.u32(0..100) {
            0 => drop(pool.checkpoint(forebay::CheckpointOptions::now()).unwrap()),
            1 => {
                file.scan(0..blocks).for_each(|page| assert!(number_in(&page.unwrap()) < u64::MAX));
            }
            2..5 => drop(file.prefetch(&[block, (block + 7) % blocks])),
            5..40 => {
                // The number is changed under the page's latch, so it can be compared under the latch.
                let mut page = file.write(block).unwrap();
                let number = latest[&block].fetch_add(1000, Ordering::Relaxed);
                assert_eq!(number_in(&page), number, "[SHR-1] block {block}");
                set(&mut page, number + 1000);
            }
            _ => {
                let page = file.read(block).unwrap();
                let number = latest[&block].load(Ordering::Relaxed);
                assert_eq!(number_in(&page), number, "[SHR-1] block {block}");
            }
        }
    }
}

/// The resident memory of page tables, which no other table shares, in KiB.
#[cfg(target_os = "linux")]
fn tables_kib() -> u64 {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let of_tables = maps.split_inclusive("VmFlags:").filter(|it| it.contains("forebay-no-frame"));
    let dirty = of_tables.filter_map(|it| it.split_once("Private_Dirty:")?.1.split_once(" kB"));
    dirty.map(|(kib, _)| kib.trim().parse::<u64>().unwrap()).sum()
}

/// One page in each 4 MiB of a file of 32 GiB, while other threads read, change and evict pages between them.
#[test]
#[cfg(target_os = "linux")]
fn tab_5_what_a_scan_takes_of_the_page_table_goes_back_while_others_use_it() {
    const CHUNKS: u32 = 8192;
    let site = Site::new();
    let pool = site.pool(128);
    let file = pool.open_file("table", &create()).unwrap();
    let path = file.path().to_owned();
    file.close().unwrap();
    let sparse = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    sparse.set_len(u64::from(CHUNKS) * 1024 * PAGE as u64).unwrap();
    let file = pool.open_file("table", &create()).unwrap();
    let before = pool.bookkeeping_bytes();
    let scanned = AtomicBool::new(false);
    thread::scope(|scope| {
        for user in 1..4_u32 {
            let (file, scanned) = (&file, &scanned);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(user.into());
                let mut pages = BTreeMap::new();
                while !scanned.load(Ordering::Relaxed) {
                    let block = random.u32(..CHUNKS / 32) * 32 * 1024 + user;
                    let number = pages.entry(block).or_insert(0);
                    assert_eq!(read(file, block), *number, "[TAB-5] block {block}");
                    match random.u32(..4) {
                        0 => {
                            *number += 1;
                            write(file, block, *number);
                        }
                        1 => drop(file.evict(block).unwrap()),
                        _ => {}
                    }
                }
                pages.iter().for_each(|(block, number)| assert_eq!(read(file, *block), *number));
            });
        }
        let _ends = Ends(&scanned);
        let ring = pool.strategy(StrategyKind::BulkRead);
        for chunk in 0..CHUNKS {
            drop(file.read_with(chunk * 1024 + 1000, &ring).unwrap());
        }
    });
    // All except the entries of 128 frames, and the idle chunks that are kept: 64 of 8192 and the first one.
    let entries = 4096 * (128 + 128 + 1);
    let rest = 128 * CHUNKS as usize;
    let taken = || pool.bookkeeping_bytes() - before;
    wait_until("the table is small again", || taken() <= entries + rest);
    let (kib, most) = (tables_kib(), entries as u64 / 1024 + 4096);
    assert!((1..=most).contains(&kib), "[TAB-5] {kib} KiB in memory");
}
