//! What a cursor reads ahead, and how it continues after the tree has changed.

use std::ops::Bound;

use forebay::{ReadaheadStrategy, StrategyKind};
use forebay_btree::{Direction, Tree};

use crate::site::{Site, key};

const ENTRIES: u64 = 20_000;

fn loaded(site: &Site) {
    let pool = site.pool();
    let tree = Tree::create(&pool, "tree").unwrap();
    tree.bulk_load((0..ENTRIES).map(|it| (key(it, 8), [3; 200])), 1.0).unwrap();
    tree.close().unwrap();
    pool.close().unwrap();
}

#[test]
fn a_long_range_has_its_leaves_read_ahead() {
    let site = Site::new(512);
    loaded(&site);
    for direction in [Direction::Forward, Direction::Backward] {
        // The kernel has all of it cached, so an adaptive pool would request nothing.
        let pool = site.pool_that_reads_ahead(ReadaheadStrategy::Async);
        let tree = Tree::open(&pool, "tree").unwrap();
        let mut cursor = tree.range(Bound::Unbounded, Bound::Unbounded, direction);
        let mut count = 0;
        while cursor.next_entry().unwrap().is_some() {
            count += 1;
        }
        assert_eq!(count, ENTRIES);
        let (leaves, streamed) = cursor.leaves();
        assert_eq!(streamed, leaves - 1, "all but the first leaf come out of the stream");
        let stats = *pool.stats().strategy(StrategyKind::Normal);
        assert!(stats.prefetches > leaves * 9 / 10, "{stats:?} of {leaves}");
    }
}

#[test]
fn cur_3_a_short_range_prefetches_nothing_behind_its_end() {
    let site = Site::new(512);
    loaded(&site);
    for direction in [Direction::Forward, Direction::Backward] {
        let pool = site.pool_that_reads_ahead(ReadaheadStrategy::Async);
        let tree = Tree::open(&pool, "tree").unwrap();
        let (from, to) = (key(10_000, 8), key(10_040, 8));
        let mut cursor = tree.range(Bound::Included(&from), Bound::Excluded(&to), direction);
        let mut count = 0;
        while cursor.next_entry().unwrap().is_some() {
            count += 1;
        }
        assert_eq!(count, 40);
        let (leaves, _) = cursor.leaves();
        assert!((2..=4).contains(&leaves));
        // And the path to the leaves: block 0, the root, one or two nodes between.
        let resident = pool.view().len() as u64;
        assert!(resident <= leaves + 4, "[CUR-3] {resident} pages for {leaves} leaves");
    }
}

#[test]
fn a_cursor_goes_on_over_splits_and_merges() {
    for direction in [Direction::Forward, Direction::Backward] {
        let site = Site::new(512);
        let pool = site.pool();
        let tree = Tree::create(&pool, "tree").unwrap();
        tree.bulk_load((0..4000).map(|it| (key(it * 4, 8), [3; 200])), 1.0).unwrap();
        let mut cursor = tree.range(Bound::Unbounded, Bound::Unbounded, direction);
        let (mut seen, mut last) = (0, None);
        while let Some((found, _)) = cursor.next_entry().unwrap() {
            let number = u64::from_be_bytes(found[..8].try_into().unwrap());
            let ahead = |by: u64| match direction {
                Direction::Forward => number + by,
                Direction::Backward => number.saturating_sub(by),
            };
            let in_order = match direction {
                Direction::Forward => last.is_none_or(|last| last < number),
                Direction::Backward => last.is_none_or(|last| last > number),
            };
            assert!(in_order, "[CUR-1] {last:?}, {number}");
            last = Some(number);
            seen += u64::from(number % 4 == 0);
            // Ahead of the cursor leaves are split, behind it they are emptied.
            if number % 16 == 0 {
                tree.insert(&key(ahead(61) | 1, 8), &[4; 600]).unwrap();
                tree.insert(&key(ahead(903) | 1, 8), &[4; 600]).unwrap();
            }
            tree.remove(&key(number, 8)).unwrap();
        }
        assert_eq!(seen, 4000, "[CUR-2]");
        drop(cursor);
        tree.check().unwrap();
    }
}

/// The next leaf is thinned out until it is merged with the one that the cursor has copied: the cursor returns only the
/// new entries of the merged leaf.
#[test]
fn cur_1_a_leaf_that_was_merged_with_the_one_before_gives_nothing_twice() {
    for direction in [Direction::Forward, Direction::Backward] {
        let site = Site::new(512);
        let tree = Tree::create(&site.pool(), "tree").unwrap();
        tree.bulk_load((0..2000).map(|it| (key(it, 8), [3; 200])), 1.0).unwrap();
        let leaves = tree.check().unwrap().leaves;
        let mut cursor = tree.range(Bound::Unbounded, Bound::Unbounded, direction);
        let mut numbers = Vec::new();
        while let Some((found, _)) = cursor.next_entry().unwrap() {
            let number = u64::from_be_bytes(found[..8].try_into().unwrap());
            numbers.push(number);
            let ahead = |by: u64| match direction {
                Direction::Forward => Some(number + by),
                Direction::Backward => number.checked_sub(by),
            };
            if number % 16 == 0 {
                // From the right: a leaf is merged with its right neighbour, once that has space.
                let mut others: Vec<u64> = (1..80).filter_map(ahead).collect();
                others.sort_unstable();
                for &other in others.iter().rev().filter(|&other| other % 8 != 0) {
                    tree.remove(&key(other, 8)).unwrap();
                }
            }
        }
        drop(cursor);
        if direction == Direction::Backward {
            numbers.reverse();
        }
        assert!(numbers.is_sorted_by(|one, next| one < next), "[CUR-1] {direction:?}: {numbers:?}");
        let stayed = numbers.iter().filter(|number| **number % 8 == 0).count();
        assert_eq!(stayed, 250, "[CUR-2]");
        let left = tree.check().unwrap().leaves;
        assert!(left < leaves * 3 / 4, "{left} of {leaves}: nothing was merged");
    }
}
