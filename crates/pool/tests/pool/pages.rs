//! Pages keep their contents, whatever happens to their frames meanwhile.

use forebay::{FileOptions, Lsn, StrategyKind, TryUpgrade};
use forebay_io::Op;
use proptest::prelude::*;

use crate::site::{
    PAGE, Site, create, fill, number_in, numbered, on_disk, read, reopened, set, write,
};

#[test]
fn pages_survive_eviction_closing_and_reopening() {
    let site = Site::new();
    {
        let pool = site.pool(8);
        let file = pool.open_file("table", &create()).unwrap();
        assert_eq!(file.extend(100).unwrap(), 0..100);
        (0..100).for_each(|block| write(&file, block, u64::from(block)));
        for block in 0..100 {
            assert_eq!(read(&file, block), u64::from(block));
            let mut bytes = [0; 8];
            file.copy(block, 8, &mut bytes).unwrap();
            assert_eq!(u64::from_le_bytes(bytes), u64::from(block));
        }
        pool.close().unwrap();
    }
    let pool = site.pool(8);
    let file = pool.open_file("table", &FileOptions::new()).unwrap();
    assert_eq!(file.blocks(), 100);
    (0..100).rev().for_each(|block| assert_eq!(read(&file, block), u64::from(block)));
    let stats = pool.stats();
    assert_eq!(stats.total().misses + stats.pool.prefetches_useful, 100);
    assert!(stats.to_string().contains("normal"));
    assert!(!stats.explain().to_string().is_empty());
}

#[test]
fn a_pool_that_is_dropped_without_being_closed_writes_what_is_dirty() {
    let site = Site::new();
    let pool = site.pool(8);
    let file = pool.open_file("table", &create()).unwrap();
    file.extend(3).unwrap();
    (0..3).for_each(|block| write(&file, block, 7));
    drop(pool);
    // The file is a handle to the pool as well.
    assert_eq!(on_disk(&file, 2), 0);
    drop(file);
    let pool = site.pool(8);
    let file = pool.open_file("table", &FileOptions::new()).unwrap();
    assert_eq!([0, 1, 2].map(|block| read(&file, block)), [7; 3]);
}

#[test]
fn an_appended_page_is_all_zero_and_is_not_read() {
    let site = Site::new();
    let pool = site.pool(8);
    let file = numbered(&pool, "table", 3, 5);
    let before = pool.stats();
    let mut page = file.append().unwrap();
    assert_eq!(page.block(), 3);
    assert!(page.iter().all(|byte| *byte == 0));
    set(&mut page, 9);
    drop(page);
    let done = pool.stats().since(&before).total();
    assert_eq!((done.inits, done.misses, done.reads), (1, 0, 0));
    assert_eq!(read(&reopened(&pool, file), 3), 9);
}

#[test]
fn an_initialised_page_forgets_what_it_was_in_memory_and_on_disk() {
    let site = Site::new();
    let pool = site.pool(8);
    let file = numbered(&pool, "table", 2, 5);
    assert!(file.init(0).unwrap().iter().all(|byte| *byte == 0));
    let file = reopened(&pool, file);
    assert!(file.init(1).unwrap().iter().all(|byte| *byte == 0));
    assert_eq!((read(&file, 0), read(&file, 1)), (0, 0));
    let file = reopened(&pool, file);
    assert_eq!((read(&file, 0), read(&file, 1)), (0, 0));
}

#[test]
fn a_page_changed_without_mark_dirty_is_dirty_when_its_guard_is_dropped() {
    let site = Site::new();
    let (pool, _disk) = site.rigged(8);
    let file = numbered(&pool, "table", 3, 0);
    assert_eq!(pool.stats().frames_dirty, 0);
    fill(&mut file.write(0).unwrap(), 10);
    let page = file.write(1).unwrap().downgrade();
    let TryUpgrade::Exclusive(mut page) = page.try_upgrade().unwrap() else {
        panic!("it is alone")
    };
    fill(&mut page, 11);
    drop(page);
    let mut page = file.write(2).unwrap();
    // Marked too early: later changes are included anyway.
    page.mark_dirty(Lsn::NONE);
    fill(&mut page, 12);
    let pin = page.into_pin();
    assert_eq!(pool.stats().frames_dirty, 3, "[GRD-2]");
    drop(pin);
    let file = reopened(&pool, file);
    assert_eq!([0, 1, 2].map(|block| read(&file, block)), [10, 11, 12], "[GRD-2]");
}

#[test]
fn a_page_latched_exclusively_and_left_alone_stays_clean() {
    let site = Site::new();
    let (pool, disk) = site.rigged(8);
    let file = numbered(&pool, "table", 1, 0);
    let writes = disk.count(Op::Write);
    drop(file.write(0).unwrap());
    assert_eq!(pool.stats().frames_dirty, 0);
    file.flush_file().unwrap();
    assert_eq!(disk.count(Op::Write), writes);
}

#[test]
fn neighbours_leave_in_one_write() {
    let site = Site::new();
    let (pool, disk) = site.rigged(64);
    let file = pool.open_file("table", &create()).unwrap();
    file.extend(40).unwrap();
    (0..40).filter(|block| *block != 20).for_each(|block| write(&file, block, 1));
    assert_eq!(file.flush_file().unwrap(), 39);
    let seen = disk.seen();
    let writes = seen.iter().filter(|seen| seen.op == Op::Write);
    let written: Vec<u64> = writes.map(|seen| seen.len / PAGE as u64).collect();
    assert_eq!(written.iter().sum::<u64>(), 39);
    assert!(written.len() <= 4, "{written:?}");
}

#[test]
fn short_transfers_are_not_success() {
    let site = Site::new();
    let (pool, disk) = site.rigged(16);
    let mut random = fastrand::Rng::with_seed(1);
    disk.rule(move |it| match it.op().moves_data() {
        true => crate::disk::Fault::Short(random.u64(1..5000)),
        false => crate::disk::Fault::None,
    });
    let file = numbered(&pool, "table", 12, 100);
    let file = reopened(&pool, file);
    (0..12).for_each(|block| assert_eq!(read(&file, block), 100 + u64::from(block)));
    assert!(disk.count(Op::Read) > 12);
}

#[test]
fn the_view_and_the_numbers_of_frames_agree() {
    let site = Site::new();
    let (pool, _disk) = site.rigged(8);
    let file = numbered(&pool, "table", 5, 0);
    write(&file, 1, 3);
    let _pin = file.pin(2).unwrap();
    let page = file.read_with(3, &pool.strategy(StrategyKind::Maintenance)).unwrap();
    let (view, stats) = (pool.view(), pool.stats());
    assert_eq!(view.len() as u64, stats.frames - stats.frames_free);
    assert_eq!(view.iter().filter(|frame| frame.pins > 0).count() as u64, stats.frames_pinned);
    assert_eq!(view.iter().filter(|frame| frame.dirty).count() as u64, stats.frames_dirty);
    assert_eq!((stats.frames, stats.frames_pinned, stats.frames_dirty), (8, 2, 1));
    let shown: Vec<String> = view.iter().map(ToString::to_string).collect();
    assert!(shown.iter().any(|line| line.contains("table block 1") && line.contains("dirty")));
    assert!(shown.iter().any(|line| line.contains("block 3") && line.contains("latched shared")));
    assert_eq!(number_in(&page), 3);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_part_of_a_page_can_be_copied(offset in 0..=PAGE, len in 0..=PAGE) {
        let site = Site::new();
        let pool = site.builder(8).cleaner(false).build().unwrap();
        let file = pool.open_file("table", &create()).unwrap();
        file.extend(1).unwrap();
        file.write(0).unwrap().iter_mut().zip(0_u32..).for_each(|(byte, at)| *byte = (at * 7) as u8);
        let end = (offset + len).min(PAGE);
        let mut copy = vec![0; end - offset];
        file.copy(0, offset, &mut copy).unwrap();
        prop_assert_eq!(&copy[..], &file.read(0).unwrap()[offset..end]);
    }
}

#[test]
fn a_page_says_the_newest_lsn_that_it_was_marked_with_also_when_it_was_written() {
    let site = Site::new();
    let pool = site.builder(16).cleaner(false).build().unwrap();
    let file = numbered(&pool, "table", 4, 50);
    let mut page = file.write(1).unwrap();
    assert_eq!(page.lsn(), Lsn::NONE);
    page.mark_dirty(Lsn(7));
    page.mark_dirty(Lsn(5));
    assert_eq!(page.lsn(), Lsn(7), "the newest, not the last");
    let pin = page.into_pin();
    assert_eq!((pin.lsn(), pin.latch_shared().unwrap().lsn()), (Lsn(7), Lsn(7)));
    file.flush_file().unwrap();
    assert_eq!(pin.lsn(), Lsn(7), "written since");
    pin.latch_exclusive().unwrap().mark_dirty(Lsn(9));
    assert_eq!((pin.lsn(), file.read(2).unwrap().lsn()), (Lsn(9), Lsn::NONE));
    drop(pin);
    assert!(file.evict(1).unwrap());
    assert_eq!(file.read(1).unwrap().lsn(), Lsn::NONE, "it has left memory meanwhile");
}

#[test]
fn mem_5_pages_begin_at_multiples_of_4096_whatever_their_size() {
    for (page, huge) in [(4_u64 << 10, true), (8 << 10, false), (64 << 10, true)] {
        let site = Site::new();
        let pool = site.builder(16).page_size(page).huge_pages(huge).build().unwrap();
        let file = numbered(&pool, "table", 12, 50);
        let pages: Vec<_> = (0..6).map(|block| file.read(block).unwrap()).collect();
        assert!(pages.iter().all(|page| page.as_ptr().addr().is_multiple_of(4096)), "[MEM-5]");
        let pages: Vec<_> = (6..12).map(|block| file.write(block).unwrap()).collect();
        assert!(pages.iter().all(|page| page.as_ptr().addr().is_multiple_of(4096)), "[MEM-5]");
    }
}
