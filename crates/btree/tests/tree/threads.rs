//! Concurrent readers, writers and cursors.

use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use forebay_btree::{Direction, Tree};

use crate::site::{Site, drained, key};

const WRITERS: u64 = 3;
const KEYS: u64 = 1200;
const ROUNDS: u64 = 3;

/// A value that contains its key and version throughout.
fn value(number: u64, version: u64) -> Vec<u8> {
    let word = (number << 16 | version).to_le_bytes();
    let len = 16 + (number * 37 + version * 101) as usize % 300 / 8 * 8;
    word.iter().copied().cycle().take(len).collect()
}

/// The version in a value, which must be consistent throughout.
fn version_of(number: u64, found: &[u8]) -> u64 {
    let word = u64::from_le_bytes(found[..8].try_into().unwrap());
    assert_eq!(word >> 16, number, "the value of another key");
    let version = word & 0xffff;
    assert_eq!(found, value(number, version), "[TRE-2] a torn value");
    version
}

/// Keys that exist for the whole time lie between those that are inserted and removed: numbers divisible by four.
fn stays(number: u64) -> bool {
    number.is_multiple_of(4)
}

fn run(frames: u64, key_len: usize) {
    let site = Site::new(frames);
    let pool = site.pool();
    let tree = Tree::create(&pool, "tree").unwrap();
    // The lowest version that a reader may still see of each key that exists for the whole time.
    let floor: Vec<AtomicU64> = (0..WRITERS * KEYS).map(|_| AtomicU64::new(0)).collect();
    for number in (0..WRITERS * KEYS).filter(|&number| stays(number)) {
        tree.insert(&key(number, key_len), &value(number, 0)).unwrap();
    }
    let done = AtomicBool::new(false);
    let seen = thread::scope(|scope| {
        let (tree, floor, done) = (&tree, &floor, &done);
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(writer);
                    for round in 1..=ROUNDS {
                        // All writers' keys are mixed, so that they share leaves.
                        let mut mine: Vec<u64> =
                            (0..KEYS).map(|it| it * WRITERS + writer).collect();
                        random.shuffle(&mut mine);
                        for &number in &mine {
                            let new =
                                tree.insert(&key(number, key_len), &value(number, round)).unwrap();
                            assert_eq!(new, !stays(number));
                            floor[number as usize].store(round, Ordering::Release);
                            assert!(tree.get(&key(number, key_len)).unwrap().is_some());
                        }
                        for &number in mine.iter().filter(|&&number| !stays(number)) {
                            assert!(tree.remove(&key(number, key_len)).unwrap());
                            assert!(tree.get(&key(number, key_len)).unwrap().is_none());
                        }
                        if writer == 0 {
                            tree.checkpoint().unwrap();
                        }
                    }
                })
            })
            .collect();
        let readers: Vec<_> = (0..2_u64)
            .map(|reader| {
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(100 + reader);
                    let (mut seen, mut buffer) = (0_u64, Vec::new());
                    while !done.load(Ordering::Relaxed) {
                        let number = random.u64(0..WRITERS * KEYS);
                        let least = floor[number as usize].load(Ordering::Acquire);
                        if tree.get_into(&key(number, key_len), &mut buffer).unwrap() {
                            assert!(
                                version_of(number, &buffer) >= least,
                                "[DSC-1] an older value returned"
                            );
                            seen += 1;
                        } else {
                            assert!(!stays(number), "[DSC-2] {number} was there the whole time");
                        }
                    }
                    seen
                })
            })
            .collect();
        let cursors: Vec<_> = [Direction::Forward, Direction::Backward]
            .map(|direction| {
                scope.spawn(move || {
                    let mut scans = 0_u64;
                    while !done.load(Ordering::Relaxed) {
                        let mut entries =
                            drained(&mut tree.range(Bound::Unbounded, Bound::Unbounded, direction));
                        if direction == Direction::Backward {
                            entries.reverse();
                        }
                        assert!(entries.is_sorted_by(|one, next| one.0 < next.0), "[CUR-1]");
                        let number = |key: &[u8]| u64::from_be_bytes(key[..8].try_into().unwrap());
                        for (key, found) in &entries {
                            version_of(number(key), found);
                        }
                        let stayed =
                            entries.iter().filter(|(key, _)| stays(number(key))).count() as u64;
                        assert_eq!(stayed, (WRITERS * KEYS).div_ceil(4), "[CUR-2]");
                        scans += 1;
                    }
                    scans
                })
            })
            .into_iter()
            .collect();
        let wrote: Vec<_> = writers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        done.store(true, Ordering::Relaxed);
        wrote.into_iter().for_each(|it| it.expect("no writer fails"));
        readers
            .into_iter()
            .chain(cursors)
            .map(|it| it.join().expect("no reader fails"))
            .collect::<Vec<_>>()
    });
    // Otherwise the test has tested nothing.
    assert!(seen.iter().all(|&seen| seen > 0), "{seen:?}");
    let census = tree.check().expect("[RST-1] [DSC-3] however their steps interleaved");
    assert_eq!(census.entries, (WRITERS * KEYS).div_ceil(4), "{census:?}");
    drop(tree);
    pool.close().unwrap();
}

#[test]
fn readers_writers_and_cursors_agree_in_memory() {
    run(4096, 8);
}

#[test]
fn readers_writers_and_cursors_agree_while_pages_come_and_go() {
    run(96, 8);
}

#[test]
fn readers_writers_and_cursors_agree_in_a_tree_of_narrow_nodes() {
    run(256, 250);
}

#[test]
fn one_key_by_all_threads() {
    let site = Site::new(64);
    let tree = Tree::create(&site.pool(), "tree").unwrap();
    let new = AtomicU64::new(0);
    thread::scope(|scope| {
        for writer in 0..4_u64 {
            let (tree, new) = (&tree, &new);
            scope.spawn(move || {
                for round in 0..2000 {
                    let (inserted, removed) = if round % 2 == 0 {
                        (tree.insert(b"key", &value(1, writer)).unwrap(), false)
                    } else {
                        (false, tree.remove(b"key").unwrap())
                    };
                    new.fetch_add(u64::from(inserted), Ordering::Relaxed);
                    new.fetch_sub(u64::from(removed), Ordering::Relaxed);
                    if let Some(found) = tree.get(b"key").unwrap() {
                        version_of(1, &found);
                    }
                }
            });
        }
    });
    let left = u64::from(tree.get(b"key").unwrap().is_some());
    assert_eq!(new.load(Ordering::Relaxed), left, "each insertion of a new key has its removal");
}
