//! Access strategies: a scan stays within its ring, and leaves pages to other users once they use them.

use forebay::StrategyKind;
use forebay_io::Op;

use crate::site::{Site, numbered, read, reopened, set};

#[test]
fn a_bulk_read_takes_no_more_than_its_ring() {
    let site = Site::new();
    for kind in [StrategyKind::BulkRead, StrategyKind::BulkWrite, StrategyKind::Maintenance] {
        let pool = site.pool(64);
        let hot = numbered(&pool, &format!("hot {kind}"), 48, 0);
        let big = numbered(&pool, &format!("big {kind}"), 640, 0);
        let big = reopened(&pool, big);
        for _ in 0..3 {
            (0..48).for_each(|block| drop(hot.read(block).unwrap()));
        }
        let scan = pool.strategy(kind);
        let ring = scan.ring_frames().unwrap();
        (0..640).for_each(|block| drop(big.read_with(block, &scan).unwrap()));
        let evicted = (0..48).filter(|&block| !hot.is_resident(block)).count();
        assert!(evicted <= ring, "[RNG-1] {kind}: {evicted} of 48 evicted for a ring of {ring}");
        let resident = (0..640).filter(|&block| big.is_resident(block)).count();
        assert!(resident <= ring, "[RNG-1] {kind}: {resident} pages for a ring of {ring}");
        let stats = pool.stats();
        assert_eq!(stats.strategy(kind).ring_reuses, 640 - ring as u64, "{kind}");
    }
}

/// Figure 4 of the pool: a bulk read of ten times the pool, together with a hot set that nearly fills it.
#[test]
fn a_hot_set_is_as_hot_after_a_bulk_read_of_ten_times_the_pool() {
    let site = Site::new();
    let pool = site.pool(1024);
    let (hot_pages, cold_pages) = (700, 324);
    let hot = numbered(&pool, "hot", hot_pages, 0);
    let cold = numbered(&pool, "cold", cold_pages, 0);
    let big = reopened(&pool, numbered(&pool, "big", 10_240, 0));
    (0..cold_pages).for_each(|block| drop(cold.read(block).unwrap()));
    for _ in 0..5 {
        (0..hot_pages).for_each(|block| drop(hot.read(block).unwrap()));
    }
    let scan = pool.strategy(StrategyKind::BulkRead);
    (0..10_240).for_each(|block| drop(big.read_with(block, &scan).unwrap()));

    let ring = scan.ring_frames().unwrap();
    let evicted = (0..hot_pages).filter(|&block| !hot.is_resident(block)).count();
    let before = pool.stats();
    let mut random = fastrand::Rng::with_seed(4);
    (0..10 * hot_pages).for_each(|_| drop(hot.read(random.u32(..hot_pages)).unwrap()));
    let ratio = pool.stats().since(&before).hit_ratio().unwrap();
    println!("{evicted} of {hot_pages} hot pages evicted (ring {ring}), hit ratio then {ratio:.4}");
    assert!(evicted <= ring, "[RNG-1] {evicted} hot pages evicted for a ring of {ring}");
    assert!(ratio >= 0.99, "{ratio}");
}

#[test]
fn a_page_of_the_ring_that_others_adopt_is_left_to_them() {
    let site = Site::new();
    let (pool, _disk) = site.rigged(64);
    let file = numbered(&pool, "table", 200, 0);
    let file = reopened(&pool, file);
    let scan = pool.strategy(StrategyKind::BulkRead);
    let ring = scan.ring_frames().unwrap() as u32;
    (0..ring).for_each(|block| drop(file.read_with(block, &scan).unwrap()));
    // One is used by another reader, one is pinned, the rest are used only by the scan.
    read(&file, 1);
    read(&file, 1);
    let pin = file.pin_with(2, &scan).unwrap();
    (ring..2 * ring).for_each(|block| drop(file.read_with(block, &scan).unwrap()));
    let stayed: Vec<u32> = (0..ring).filter(|&block| file.is_resident(block)).collect();
    assert_eq!(stayed, [1, 2], "[RNG-1]");
    assert_eq!(pool.stats().strategy(StrategyKind::BulkRead).ring_refusals, 2, "[RNG-1]");
    drop(pin);
}

#[test]
fn a_scan_that_looks_at_a_page_row_by_row_does_not_make_it_hot() {
    let site = Site::new();
    let (pool, _disk) = site.rigged(64);
    let file = numbered(&pool, "table", 100, 0);
    let file = reopened(&pool, file);
    let scan = pool.strategy(StrategyKind::BulkRead);
    for block in 0..100 {
        (0..20).for_each(|_| drop(file.read_with(block, &scan).unwrap()));
    }
    assert!(pool.view().iter().all(|frame| frame.usage <= 1));
    assert_eq!(pool.stats().strategy(StrategyKind::BulkRead).ring_refusals, 0);
}

#[test]
fn a_ring_forgets_a_frame_that_was_given_to_another_page() {
    let site = Site::new();
    let (pool, _disk) = site.rigged(16);
    let file = numbered(&pool, "table", 200, 0);
    let file = reopened(&pool, file);
    let scan = pool.strategy(StrategyKind::Maintenance);
    let ring = scan.ring_frames().unwrap() as u32;
    (0..ring).for_each(|block| drop(file.read_with(block, &scan).unwrap()));
    // Other reads use the whole pool, including the ring's frames.
    (100..160).for_each(|block| drop(file.read(block).unwrap()));
    assert!((0..ring).all(|block| !file.is_resident(block)));
    let held: Vec<u32> = (100..160).filter(|&block| file.is_resident(block)).collect();
    drop(file.read_with(0, &scan).unwrap());
    let stats = *pool.stats().strategy(StrategyKind::Maintenance);
    assert_eq!((stats.ring_reuses, stats.ring_refusals), (0, 1), "[RNG-1]");
    let left = held.iter().filter(|block| file.is_resident(**block)).count();
    assert_eq!(left, held.len() - 1);
}

#[test]
fn a_bulk_write_writes_its_own_pages_when_it_comes_round() {
    let site = Site::new();
    let (pool, disk) = site.rigged(64);
    let file = numbered(&pool, "table", 100, 0);
    let file = reopened(&pool, file);
    let scan = pool.strategy(StrategyKind::BulkWrite);
    let ring = scan.ring_frames().unwrap() as u32;
    let writes = disk.count(Op::Write);
    for block in 0..40 {
        set(&mut file.init_with(block, &scan).unwrap(), 7);
    }
    assert_eq!(disk.count(Op::Write) - writes, 40 - ring as usize);
    let file = reopened(&pool, file);
    assert!((0..40).all(|block| read(&file, block) == 7));
}

#[test]
fn a_ring_that_cannot_be_written_leaves_its_pages_dirty_and_goes_elsewhere() {
    let site = Site::new();
    let (pool, disk) = site.rigged(64);
    let file = numbered(&pool, "table", 100, 0);
    let file = reopened(&pool, file);
    let scan = pool.strategy(StrategyKind::BulkWrite);
    let ring = scan.ring_frames().unwrap() as u32;
    disk.fail(Op::Write, forebay_io::OsError::ENOSPC);
    for block in 0..3 * ring {
        set(&mut file.write_with(block, &scan).unwrap(), 7);
    }
    assert_eq!(pool.stats().frames_dirty, u64::from(3 * ring), "[OUT-2]");
    disk.heal();
    let file = reopened(&pool, file);
    assert!((0..3 * ring).all(|block| read(&file, block) == 7), "[OUT-2]");
}

#[test]
fn the_size_of_a_ring_is_chosen_and_bounded() {
    let site = Site::new();
    let pool = site.pool(64);
    let frames = |size: &str| {
        pool.strategy_with_ring(StrategyKind::BulkRead, size).map(|scan| scan.ring_frames())
    };
    assert_eq!(frames("8 KiB").unwrap(), Some(2));
    assert_eq!(frames("1").unwrap(), Some(1));
    assert_eq!(frames("1 GiB").unwrap(), Some(8));
    assert!(frames("many").unwrap_err().to_string().contains("ring size"));
    assert_eq!(pool.strategy(StrategyKind::Normal).ring_frames(), None);
}

#[test]
fn two_threads_on_one_scan_share_its_ring() {
    let site = Site::new();
    let pool = site.pool(64);
    let file = numbered(&pool, "table", 400, 0);
    let file = reopened(&pool, file).with_readahead(forebay::ReadaheadStrategy::Os);
    let scan = pool.strategy(StrategyKind::BulkRead);
    std::thread::scope(|scope| {
        for part in 0..2 {
            let (file, scan) = (&file, &scan);
            scope.spawn(move || {
                for block in (part..400).step_by(2) {
                    let page = file.read_with(block, scan).unwrap();
                    assert_eq!(crate::site::number_in(&page), u64::from(block));
                }
            });
        }
    });
    let resident = (0..400).filter(|&block| file.is_resident(block)).count();
    // A slot that one thread finds empty while the other thread uses its frame is filled again.
    assert!(resident <= 3 * scan.ring_frames().unwrap(), "[RNG-1] {resident}");
}
