//! Threads that run all operations at once on a real pool with too few frames, for a second; long enough for the thread
//! sanitizer to see every pair of accesses.

#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use forebay::{BufferPool, Checksum, Error, FileOptions, Lsn, StrategyKind, TornPages};

const BLOCKS: u32 = 24;
const STEPS: u32 = 3_000;
const PAGE_BYTES: usize = 4096;

/// The count in a page, stored at both ends of it.
fn count(page: &[u8]) -> u64 {
    let (head, tail) = (&page[8..16], &page[PAGE_BYTES - 8..]);
    assert_eq!(head, tail, "[OPT-1] two states in one page");
    u64::from_le_bytes(head.try_into().unwrap())
}

#[test]
fn a_page_says_what_was_written_to_it_whatever_goes_on_around() {
    let directory = tempfile::tempdir().unwrap();
    let pool = BufferPool::builder()
        .frames(12)
        .page_size("4 KiB")
        .directory(directory.path())
        .checksum(Checksum::Crc32c { offset: 0 })
        .torn_pages(TornPages::Unprotected)
        .build()
        .unwrap();
    let create = FileOptions::new().create(true);
    let (file, other) =
        (pool.open_file("a", &create).unwrap(), pool.open_file("b", &create).unwrap());
    file.extend(BLOCKS).unwrap();
    other.extend(BLOCKS).unwrap();
    let changes: Vec<AtomicU64> = (0..BLOCKS).map(|_| AtomicU64::new(0)).collect();
    let said = |block: u32| changes[block as usize].load(Ordering::Relaxed);
    thread::scope(|scope| {
        for seed in 0..4 {
            let (pool, file, other, changes) = (&pool, &file, &other, &changes);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                let scan = pool.strategy(StrategyKind::BulkRead);
                for _ in 0..STEPS {
                    let block = random.u32(0..BLOCKS);
                    match random.u32(0..8) {
                        0 | 1 => {
                            let mut page = file.write(block).unwrap();
                            let next = count(&page) + 1;
                            assert_eq!(next, said(block) + 1, "[FRM-4] block {block}");
                            page[8..16].copy_from_slice(&next.to_le_bytes());
                            page[PAGE_BYTES - 8..].copy_from_slice(&next.to_le_bytes());
                            changes[block as usize].store(next, Ordering::Relaxed);
                            page.mark_dirty(Lsn(next));
                        }
                        2 | 3 => {
                            let page = file.read_with(block, &scan).unwrap();
                            assert_eq!(count(&page), said(block), "[FRM-1] block {block}");
                        }
                        4 | 5 => {
                            let mut copy = vec![0; PAGE_BYTES];
                            file.copy(block, 0, &mut copy).unwrap();
                            assert!(count(&copy) <= said(block), "[OPT-1] block {block}");
                        }
                        6 => assert!(file.flush_file().is_ok()),
                        // The other file grows and shrinks while it is read.
                        _ if seed == 0 => {
                            other.truncate(BLOCKS / 2).unwrap();
                            other.extend(BLOCKS / 2).unwrap();
                        }
                        _ => match other.write(block) {
                            Ok(mut page) => page[16] = 1,
                            Err(Error::PastEnd { .. } | Error::Invalidated { .. }) => {}
                            Err(error) => panic!("{error}"),
                        },
                    }
                }
            });
        }
    });
    for block in 0..BLOCKS {
        assert_eq!(count(&file.read(block).unwrap()), said(block), "block {block}");
    }
    // The cleaner pins a page while it writes it.
    let deadline = Instant::now() + Duration::from_secs(60);
    while pool.view().iter().any(|frame| frame.pins > 0) {
        assert!(Instant::now() < deadline, "[FRM-1]");
        thread::sleep(Duration::from_millis(1));
    }
    pool.close().unwrap();
}
