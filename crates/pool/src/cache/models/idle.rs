//! Memory of a page table is returned while other threads hit, miss and evict. A chunk has two entries here.

use std::sync::Arc;

use loom::thread;

use super::Model;
use super::interleavings::{check, run};
use crate::cache::frame::NO_FRAME;
use crate::cache::frame::word::Mode;
use crate::cache::replacement::AccessStrategy;
use crate::cache::table::PageTable;

/// One chunk; the pages of these blocks are in memory, each in the frame with its number.
fn with(frames: usize, resident: &[u32]) -> Arc<Model> {
    let pool = Model::new(frames, 2);
    for &block in resident {
        assert_eq!(pool.acquire(block, Mode::Pin).unwrap(), block);
        pool.frames().unpin(block);
    }
    pool
}

fn give_back(pool: &Model) {
    pool.file.table.give_back(usize::MAX);
}

#[test]
fn loom_tab_5_a_page_that_comes_in_meanwhile_keeps_its_entry() {
    check(4, || {
        let pool = with(2, &[0]);
        assert!(pool.evict(0));
        let one = run(&pool, |pool| pool.value(0).unwrap());
        give_back(&pool);
        assert_eq!(one.join().unwrap(), 10);
        assert_ne!(pool.lookup(0), NO_FRAME, "[TAB-5] an entry was wiped out");
        pool.assert_settled();
    });
}

/// The table alone: one page is removed and one is added, each in a separate entry.
#[test]
fn loom_tab_5_two_in_a_chunk_that_goes_find_their_entries() {
    check(3, || {
        let table = Arc::new(PageTable::new());
        assert!(table.entry(0).map(7));
        let of = |job: fn(&PageTable)| {
            let table = Arc::clone(&table);
            thread::spawn(move || job(&table))
        };
        let leaves = of(|table| {
            table.entry(0).unmap(7);
            assert_eq!(table.lookup(0), NO_FRAME);
        });
        let comes = of(|table| {
            assert!(table.entry(1).map(8));
            assert_eq!(table.lookup(1), 8, "[TAB-5] an entry was wiped out");
        });
        table.give_back(usize::MAX);
        leaves.join().unwrap();
        comes.join().unwrap();
        assert_eq!(table.mapped_from(0).collect::<Vec<_>>(), [(1, 8)], "[TAB-5]");
    });
}

#[test]
fn loom_tab_5_memory_goes_after_the_last_page() {
    check(4, || {
        let pool = with(2, &[0, 1]);
        let one = run(&pool, |pool| assert!(pool.evict(0)));
        give_back(&pool);
        assert_eq!(pool.lookup(1), 1, "[TAB-5] an entry was wiped out");
        assert!(pool.evict(1));
        give_back(&pool);
        one.join().unwrap();
        pool.assert_settled();
    });
}

/// A hit, or an optimistic read, returns the page or nothing: never another page.
#[test]
fn loom_tab_5_a_hit_and_an_optimistic_read_while_memory_is_returned() {
    check(3, || {
        let pool = with(1, &[0]);
        let one = run(&pool, |pool| {
            let seen = pool.optimistic(0).and_then(|seen| pool.read_by(seen));
            assert!(seen.is_none_or(|seen| seen == 10), "[OPT-1] {seen:?}");
            let strategy = &AccessStrategy::NORMAL;
            if let Some(held) = pool.cache.hit(&pool.file, 0, Mode::Shared, strategy) {
                assert_eq!(pool.read(held.frame), 10, "[TAB-4]");
                pool.frames().release_shared(held.frame);
            }
        });
        if pool.evict(0) {
            give_back(&pool);
            // Other threads may use the frame from now on.
            let (owned, _) = pool.cache.allocate_clean(&*pool, &AccessStrategy::NORMAL).unwrap();
            drop(owned);
        }
        one.join().unwrap();
        pool.assert_settled();
    });
}

/// When entries are scanned, the count represents them: see `loom_rsz_1`.
#[test]
fn loom_rsz_1_a_page_mapped_in_a_chunk_that_was_given_back_does_not_outlive_a_truncation() {
    check(4, || {
        let pool = with(1, &[0]);
        assert!(pool.evict(0));
        give_back(&pool);
        let other = run(&pool, |pool| drop(pool.value(0)));
        pool.truncate(0);
        other.join().unwrap();
        assert_eq!(pool.lookup(0), NO_FRAME, "[RSZ-1] a page beyond the end");
        pool.assert_settled();
    });
}
