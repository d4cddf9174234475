//! Arbitrary sequences of operations, compared with a `BTreeMap`.

use std::collections::BTreeMap;
use std::ops::Bound;

use forebay_btree::{Direction, Error, Tree};
use proptest::prelude::*;

use crate::site::{Entry, Site, all, drained, key};

/// Keys with few different prefixes, so that they collide, and of every valid length.
fn keys() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![Just(0_u8), Just(1), Just(255), any::<u8>()];
    prop_oneof![
        4 => (0_u64..400, 8_usize..12).prop_map(|(number, len)| key(number, len)),
        2 => (0_u64..300, 200_usize..=256).prop_map(|(number, len)| key(number, len)),
        2 => prop::collection::vec(byte, 0..6),
        // A long common prefix, and more bytes than fit into a slot.
        2 => (0_u32..200).prop_map(|number| format!("the same beginning/{number:05}").into_bytes()),
    ]
}

fn values() -> impl Strategy<Value = Vec<u8>> {
    (prop_oneof![3 => 0_usize..40, 2 => 100_usize..768], any::<u8>())
        .prop_map(|(len, byte)| vec![byte; len])
}

#[derive(Debug, Clone)]
enum Op {
    Insert(Vec<u8>, Vec<u8>),
    /// A number of ascending keys, as an engine appends them.
    Append(u64, u64, Vec<u8>),
    Remove(Vec<u8>),
    /// Every key from the first one on, up to a maximum number.
    RemoveRange(Vec<u8>, usize),
    Get(Vec<u8>),
    Range(Bound<Vec<u8>>, Bound<Vec<u8>>, Direction),
    Checkpoint,
    Reopen,
}

fn bounds() -> impl Strategy<Value = Bound<Vec<u8>>> {
    prop_oneof![
        keys().prop_map(Bound::Included),
        keys().prop_map(Bound::Excluded),
        Just(Bound::Unbounded)
    ]
}

fn ops() -> impl Strategy<Value = Op> {
    let direction = prop_oneof![Just(Direction::Forward), Just(Direction::Backward)];
    prop_oneof![
        12 => (keys(), values()).prop_map(|(key, value)| Op::Insert(key, value)),
        3 => (1000_u64..2000, 1_u64..200, values())
            .prop_map(|(from, count, value)| Op::Append(from, count, value)),
        4 => keys().prop_map(Op::Remove),
        2 => (keys(), 0_usize..300).prop_map(|(key, count)| Op::RemoveRange(key, count)),
        6 => keys().prop_map(Op::Get),
        4 => (bounds(), bounds(), direction).prop_map(|(lower, upper, way)| Op::Range(lower, upper, way)),
        1 => Just(Op::Checkpoint),
        1 => Just(Op::Reopen),
    ]
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn in_range(model: &Model, lower: &Bound<Vec<u8>>, upper: &Bound<Vec<u8>>) -> Vec<Entry> {
    let above = |key: &Vec<u8>| match lower {
        Bound::Included(lower) => key >= lower,
        Bound::Excluded(lower) => key > lower,
        Bound::Unbounded => true,
    };
    let below = |key: &Vec<u8>| match upper {
        Bound::Included(upper) => key <= upper,
        Bound::Excluded(upper) => key < upper,
        Bound::Unbounded => true,
    };
    let entries = model.iter().filter(|(key, _)| above(key) && below(key));
    entries.map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn apply(tree: &Tree, model: &mut Model, op: &Op) -> Result<(), TestCaseError> {
    match op {
        Op::Insert(key, value) => {
            let new = model.insert(key.clone(), value.clone()).is_none();
            prop_assert_eq!(tree.insert(key, value).unwrap(), new);
        }
        Op::Append(from, count, value) => {
            for number in *from..from + count {
                let new = model.insert(key(number, 8), value.clone()).is_none();
                prop_assert_eq!(tree.insert(&key(number, 8), value).unwrap(), new);
            }
        }
        Op::Remove(key) => {
            prop_assert_eq!(tree.remove(key).unwrap(), model.remove(key).is_some());
        }
        Op::RemoveRange(from, count) => {
            let removed: Vec<_> =
                model.range(from.clone()..).take(*count).map(|it| it.0.clone()).collect();
            for key in removed {
                model.remove(&key);
                prop_assert!(tree.remove(&key).unwrap());
            }
        }
        Op::Get(key) => {
            let found = tree.get(key).unwrap();
            prop_assert_eq!(found.as_ref(), model.get(key));
        }
        Op::Range(lower, upper, direction) => {
            let mut expected = in_range(model, lower, upper);
            if *direction == Direction::Backward {
                expected.reverse();
            }
            let bounds = (lower.as_ref().map(Vec::as_slice), upper.as_ref().map(Vec::as_slice));
            let found = drained(&mut tree.range(bounds.0, bounds.1, *direction));
            prop_assert!(found == expected, "{} entries and not {}", found.len(), expected.len());
        }
        Op::Checkpoint => tree.checkpoint().unwrap(),
        Op::Reopen => unreachable!("it takes the pool as well"),
    }
    Ok(())
}

/// Every entry is found by a look-up and by cursors in both directions, and the tree keeps its invariants.
fn compare(tree: &Tree, model: &Model) {
    let census = tree.check().expect("[PGE-1] [NOD-2] [RST-1]");
    assert_eq!(census.entries, model.len() as u64);
    let expected: Vec<Entry> = model.clone().into_iter().collect();
    assert!(all(tree, Direction::Forward) == expected);
    let mut backward = all(tree, Direction::Backward);
    backward.reverse();
    assert!(backward == expected);
    for (key, value) in model {
        assert_eq!(tree.get(key).unwrap().as_ref(), Some(value));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn a_tree_is_an_ordered_map(ops in prop::collection::vec(ops(), 1..250)) {
        // Far fewer frames than pages, so that evictions disturb descents.
        let site = Site::new(32);
        let mut pool = site.pool();
        let mut tree = Tree::create(&pool, "tree").unwrap();
        let mut model = Model::new();
        for op in &ops {
            if let Op::Reopen = op {
                tree.close().unwrap();
                pool.close().unwrap();
                pool = site.pool();
                tree = Tree::open(&pool, "tree").unwrap();
            } else {
                apply(&tree, &mut model, op)?;
            }
        }
        compare(&tree, &model);
    }

    #[test]
    fn a_bulk_load_gives_what_insertions_would(
        entries in prop::collection::btree_map(keys(), values(), 0..600),
        fill in 0.4_f64..1.1,
        more in prop::collection::vec((keys(), values()), 0..60),
    ) {
        let site = Site::new(64);
        let pool = site.pool();
        let tree = Tree::create(&pool, "tree").unwrap();
        prop_assert_eq!(tree.bulk_load(&entries, fill).unwrap(), entries.len() as u64);
        let mut model = entries;
        compare(&tree, &model);
        for (key, value) in more {
            apply(&tree, &mut model, &Op::Insert(key, value))?;
        }
        compare(&tree, &model);
    }
}

#[test]
fn every_level_splits_and_merges() {
    let site = Site::new(64);
    let pool = site.pool();
    let tree = Tree::create(&pool, "tree").unwrap();
    let mut random = fastrand::Rng::with_seed(15);
    let mut numbers: Vec<u64> = (0..6000).collect();
    random.shuffle(&mut numbers);
    // Keys that differ at their end: separators are long, and inner nodes have few of them.
    let key = |number: u64| [&[b'x'; 240], &number.to_be_bytes()[..]].concat();
    let wide = |number: u64| {
        [&number.to_be_bytes()[6..], &[b'y'; 240], &number.to_be_bytes()[6..]].concat()
    };
    for &number in &numbers {
        assert!(tree.insert(&key(number), b"a value").unwrap());
        assert!(tree.insert(&wide(number), &[7; 700]).unwrap());
    }
    let full = tree.check().unwrap();
    assert!(full.levels >= 3, "{full:?}");
    assert_eq!(full.entries, 12_000);
    random.shuffle(&mut numbers);
    for (done, &number) in numbers.iter().enumerate() {
        assert!(tree.remove(&key(number)).unwrap());
        assert!(tree.remove(&wide(number)).unwrap());
        if done % 1000 == 0 {
            tree.check().unwrap();
        }
    }
    let empty = tree.check().unwrap();
    assert_eq!((empty.entries, empty.levels, empty.inner), (0, 1, 0), "{empty:?}");
    assert_eq!(
        empty.free + 2,
        full.leaves + full.inner + full.free + 1,
        "[MET-2] every block is free again"
    );
    // And reused.
    for &number in &numbers {
        tree.insert(&wide(number), &[8; 700]).unwrap();
    }
    let again = tree.check().unwrap();
    assert_eq!(again.leaves + again.inner + again.free, empty.free + 1, "{again:?}");
}

#[test]
fn keys_that_ascend_leave_full_leaves_behind() {
    let site = Site::new(256);
    let tree = Tree::create(&site.pool(), "tree").unwrap();
    for number in 0..20_000_u64 {
        tree.insert(&number.to_be_bytes(), &[1; 120]).unwrap();
    }
    let census = tree.check().unwrap();
    assert!(census.entries / census.leaves >= 28, "{census:?}");
}

#[test]
fn what_is_too_long_is_refused_with_its_limit() {
    let site = Site::new(32);
    let tree = Tree::create(&site.pool(), "tree").unwrap();
    assert_eq!((tree.key_len_max(), tree.record_len_max()), (256, 1024));
    assert!(tree.insert(&[1; 256], &[2; 768]).unwrap());
    assert!(matches!(tree.insert(&[1; 257], b""), Err(Error::TooLong { len: 257, max: 256, .. })));
    let record = tree.insert(&[1; 256], &[2; 769]);
    assert!(matches!(record, Err(Error::TooLong { len: 1025, max: 1024, .. })));
    assert_eq!(tree.get(&[1; 256]).unwrap(), Some(vec![2; 768]));
    assert_eq!(tree.get(&[1; 5000]).unwrap(), None, "longer than any key is only not there");
}

#[test]
fn a_bulk_load_that_fails_leaves_the_tree_empty() {
    let site = Site::new(64);
    let pool = site.pool();
    let tree = Tree::create(&pool, "tree").unwrap();
    let numbers = (0..5000_u64).chain([4999]);
    let failed = tree.bulk_load(numbers.map(|it| (it.to_be_bytes(), [0; 100])), 1.0);
    assert!(matches!(failed, Err(Error::Unsorted { at: 5000 })));
    assert_eq!(tree.check().unwrap().entries, 0);
    assert_eq!(tree.bulk_load([(b"k", b"v")], 1.0).unwrap(), 1);
    assert!(matches!(tree.bulk_load([(b"l", b"v")], 1.0), Err(Error::NotEmpty { .. })));
    assert_eq!(tree.check().unwrap().entries, 1);
}

#[test]
fn a_bulk_load_refuses_what_does_not_ascend_from_one_page_to_the_next_too() {
    let site = Site::new(64);
    let tree = Tree::create(&site.pool(), "tree").unwrap();
    // About 30 entries per page.
    for count in 1..100_u64 {
        let numbers = (0..count).chain([count - 1]);
        let failed = tree.bulk_load(numbers.map(|it| (it.to_be_bytes(), [0; 100])), 1.0);
        assert!(
            matches!(failed, Err(Error::Unsorted { at }) if at == count),
            "{failed:?}, {count}"
        );
    }
    assert_eq!(tree.check().unwrap().entries, 0);
}

#[test]
fn a_bulk_load_leaves_in_memory_what_others_use() {
    let site = Site::new(64);
    let pool = site.pool();
    let hot = Tree::create(&pool, "hot").unwrap();
    hot.bulk_load((0..800_u64).map(|it| (it.to_be_bytes(), [1; 100])), 1.0).unwrap();
    for number in (0..3).flat_map(|_| 0..800_u64) {
        assert!(hot.get(&number.to_be_bytes()).unwrap().is_some());
    }
    let resident = || pool.view().iter().filter(|frame| frame.name == "hot").count();
    let before = resident();
    assert!(before > 20, "{before}");
    let other = Tree::create(&pool, "other").unwrap();
    other.bulk_load((0..20_000_u64).map(|it| (it.to_be_bytes(), [2; 100])), 1.0).unwrap();
    assert_eq!(resident(), before, "a load of ten times the pool has its own frames");
}

#[test]
fn blk_1_a_bulk_load_fills_pages_as_far_as_requested() {
    for (fill, share) in [(0.5, 0.45..=0.5), (0.8, 0.75..=0.8), (1.0, 0.95..=1.0)] {
        let site = Site::new(64);
        let tree = Tree::create(&site.pool(), "tree").unwrap();
        tree.bulk_load((0..3000_u64).map(|it| (it.to_be_bytes(), [1; 40])), fill).unwrap();
        let census = tree.check().unwrap();
        let found = census.leaf_bytes as f64 / (census.leaves * 4096) as f64;
        assert!(share.contains(&found), "[BLK-1] {found} for {fill}");
    }
}
