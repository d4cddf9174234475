//! Pages with contents that the tree did not write: errors that name the page, and never a panic or an endless wait.

use std::fs::{self, File};
use std::ops::Bound;
use std::os::unix::fs::FileExt;

use forebay::{BufferPool, Checksum, FileOptions, TornPages};
use forebay_btree::{Direction, Error, Tree};

use crate::site::{PAGE_BYTES, Site, key};

fn site_with_tree() -> Site {
    let site = Site::new(64);
    let pool = site.pool();
    let tree = Tree::create(&pool, "tree").unwrap();
    for number in 0..3000 {
        tree.insert(&key(number, 100), &[5; 100]).unwrap();
    }
    for number in 500..900 {
        tree.remove(&key(number, 100)).unwrap();
    }
    assert!(tree.check().unwrap().free > 0);
    tree.close().unwrap();
    pool.close().unwrap();
    site
}

#[test]
fn a_bit_that_the_disk_lost_is_reported_by_whatever_reads_it() {
    let site = site_with_tree();
    let path = site.directory.path().join("tree");
    let blocks = fs::metadata(&path).unwrap().len() / PAGE_BYTES as u64;
    // The root and a leaf: the first one, which the split of the root created.
    for (block, get, scan) in [(1, true, true), (2, true, true), (blocks - 1, false, false)] {
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let mut byte = [0];
        let at = block * PAGE_BYTES as u64 + 2000;
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 4], at).unwrap();
        let pool = site.pool();
        let tree = Tree::open(&pool, "tree").unwrap();
        let corrupt = |error: &Error| {
            matches!(error, Error::Pool(forebay::Error::Corrupt { block: found, .. })
                if u64::from(*found) == block)
        };
        let got = (0..3000).find_map(|number| tree.get(&key(number, 100)).err());
        assert_eq!(got.as_ref().is_some_and(corrupt), get, "block {block}: {got:?}");
        let mut cursor = tree.range(Bound::Unbounded, Bound::Unbounded, Direction::Forward);
        let scanned = loop {
            match cursor.next_entry() {
                Ok(Some(_)) => {}
                Ok(None) => break None,
                Err(error) => break Some(error),
            }
        };
        assert_eq!(scanned.as_ref().is_some_and(corrupt), scan, "block {block}: {scanned:?}");
        drop(cursor);
        drop(tree);
        pool.close().unwrap();
        file.write_all_at(&byte, at).unwrap();
    }
}

#[test]
fn a_file_that_has_lost_its_end_is_refused() {
    let site = site_with_tree();
    let path = site.directory.path().join("tree");
    let bytes = fs::metadata(&path).unwrap().len();
    let half = bytes / 2 / PAGE_BYTES as u64 * PAGE_BYTES as u64;
    File::options().write(true).open(&path).unwrap().set_len(half).unwrap();
    let refused = Tree::open(&site.pool(), "tree").unwrap_err();
    assert!(matches!(refused, Error::Damaged { block: 0, .. }), "{refused}");
}

/// Opens the tree's file directly, without the tree, to write pages with a valid checksum there.
fn spoil(pool: &BufferPool, block: u32, change: impl FnOnce(&mut [u8])) {
    let options = FileOptions::new().checksum(Checksum::Crc32c { offset: 0 });
    let file = pool.open_file("tree", &options).unwrap();
    change(&mut file.write(block).unwrap());
    file.close().unwrap();
}

/// Runs every operation, whatever the result. Counts those that failed with a damage error.
fn use_all(tree: &Tree) -> u32 {
    let mut damaged = 0;
    let mut note = |error: Option<Error>| match error {
        Some(Error::Damaged { .. }) => damaged += 1,
        Some(Error::Pool(error)) => {
            // A block past the end, or one that has never been written.
            assert_eq!(error.kind(), forebay::ErrorKind::Data, "{error}");
            damaged += 1;
        }
        None => {}
        Some(error) => panic!("{error}"),
    };
    for number in (0..3000).step_by(97) {
        note(tree.get(&key(number, 100)).err());
        note(tree.insert(&key(number, 101), &[1; 300]).err());
        note(tree.remove(&key(number, 100)).err());
    }
    for direction in [Direction::Forward, Direction::Backward] {
        let mut cursor = tree.range(Bound::Unbounded, Bound::Unbounded, direction);
        // A damaged tree may lead in a circle, but never back: keys only ever move in one direction.
        for _ in 0..10_000 {
            match cursor.next_entry() {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(error) => {
                    note(Some(error));
                    break;
                }
            }
        }
    }
    note(tree.check().err());
    damaged
}

#[test]
fn a_page_that_makes_no_sense_is_an_error() {
    let site = site_with_tree();
    let path = site.directory.path().join("tree");
    let sound = fs::read(&path).unwrap();
    let blocks = (sound.len() / PAGE_BYTES) as u32;
    let (mut noticed, mut tries) = (0, 0);
    for seed in 0..160 {
        let mut random = fastrand::Rng::with_seed(seed);
        let pool = site.pool();
        // The root and its children more often than the rest.
        let block = if random.bool() { random.u32(1..6) } else { random.u32(1..blocks) };
        spoil(&pool, block, |page| match seed % 4 {
            // The header and the first slots, where a byte matters most.
            0 => page[random.usize(4..80)] = random.u8(..),
            1 => (0..20).for_each(|_| page[random.usize(4..PAGE_BYTES)] = random.u8(..)),
            2 => page[4..].fill_with(|| random.u8(..)),
            // A page from another place, consistent in itself.
            _ => {
                let from = random.usize(1..blocks as usize) * PAGE_BYTES;
                page[4..].copy_from_slice(&sound[from + 4..from + PAGE_BYTES]);
            }
        });
        match Tree::open(&pool, "tree") {
            Ok(tree) => noticed += u32::from(use_all(&tree) > 0),
            Err(error) => panic!("seed {seed}: {error}"),
        }
        tries += 1;
        drop(pool);
        fs::write(&path, &sound).unwrap();
    }
    // Some bytes belong to no cell, and some only change a value.
    assert!(noticed * 2 > tries, "{noticed} of {tries}");
}

#[test]
fn a_file_that_is_no_tree_is_refused() {
    let site = Site::new(32);
    let pool = site.pool();
    let file = pool
        .open_file(
            "other",
            &FileOptions::new().create(true).checksum(Checksum::Crc32c { offset: 0 }),
        )
        .unwrap();
    drop(file.append().unwrap());
    file.close().unwrap();
    let refused = Tree::open(&pool, "other").unwrap_err();
    assert!(matches!(refused, Error::NotATree { .. }), "{refused}");
    assert!(Tree::open(&pool, "nothing").is_err());
    let small = BufferPool::builder().frames(16).page_size(65536);
    let elsewhere = tempfile::tempdir().unwrap();
    let small = small.checksum(Checksum::Off).torn_pages(TornPages::Unprotected);
    let small = small.directory(elsewhere.path()).build().unwrap();
    assert!(matches!(Tree::create(&small, "tree"), Err(Error::PageSize { bytes: 65536 })));
}
