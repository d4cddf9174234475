//! After a power cut the file is either the last checkpoint, or marked as changed.

use std::collections::BTreeMap;
use std::sync::Arc;

use fastrand::Rng;
use forebay::io::OsError;
use forebay::{BufferPool, Checksum, Tablespace, TornPages};
use forebay_btree::{Direction, Error, Tree};
use forebay_sim::{Disk, DiskOptions, Fault, Image, Position, What};

use crate::site::{PAGE_BYTES, Site, all, key};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

const LIVES: u64 = 4;
const CHECKPOINTS: usize = 6;
const CUTS: u64 = 50;

/// When the disk had to hold `model`: from a checkpoint's end to the beginning of the next change.
struct Kept {
    from: Position,
    to: Position,
    model: Model,
}

/// So few frames that changed pages are evicted, and written, all the time.
fn pool_on(disk: &Arc<Disk>) -> BufferPool {
    let space = Tablespace::new("main", disk.directory()).io(disk.io(8).unwrap());
    let builder = BufferPool::builder().frames(32).page_size(PAGE_BYTES as u64).cleaner(false);
    let builder = builder.checksum(Checksum::Off).torn_pages(TornPages::Unprotected);
    builder.tablespace(space.volume(disk.volume())).build().unwrap()
}

fn live(disk: &Arc<Disk>, random: &mut Rng) -> Vec<Kept> {
    let pool = pool_on(disk);
    let tree = Tree::create(&pool, "tree").unwrap();
    let mut kept = Vec::new();
    let mut model = Model::new();
    let mut from = disk.position();
    for _ in 0..CHECKPOINTS {
        kept.push(Kept { from, to: disk.position(), model: model.clone() });
        for _ in 0..random.u32(1..400) {
            let key = key(random.u64(0..500), 120);
            if random.u8(0..4) == 0 {
                tree.remove(&key).unwrap();
                model.remove(&key);
            } else {
                let value = vec![random.u8(..); random.usize(0..400)];
                tree.insert(&key, &value).unwrap();
                model.insert(key, value);
            }
        }
        tree.checkpoint().unwrap();
        from = disk.position();
    }
    kept.push(Kept { from, to: from, model });
    kept
}

/// What is found after a cut: the entries, or `None` if the tree is marked as not whole.
fn found(image: &Image) -> Result<Option<Model>, Error> {
    let disk = Disk::boot(image, DiskOptions::default()).unwrap();
    let pool = pool_on(&disk);
    let tree = match Tree::open(&pool, "tree") {
        Err(Error::Unclean { .. }) => return Ok(None),
        tree => tree?,
    };
    tree.check()?;
    Ok(Some(all(&tree, Direction::Forward).into_iter().collect()))
}

#[test]
fn a_power_cut_leaves_the_last_checkpoint_or_word_of_it() {
    let (mut whole, mut unclean, mut between) = (0, 0, 0);
    for seed in 0..LIVES {
        let mut random = Rng::with_seed(seed);
        let options = DiskOptions { seed, ..DiskOptions::default() };
        let disk = Disk::boot(&Image::empty(), options).unwrap();
        let kept = live(&disk, &mut random);
        let journal = disk.journal();
        let begin = kept[0].from;
        // Half of the cuts are near a checkpoint, where errors are most likely.
        let cuts = (0..CUTS).map(|cut| match cut % 2 {
            0 => random.u64(begin..=journal.len()),
            _ => {
                let it = &kept[random.usize(0..kept.len())];
                let near = [it.from, it.to][random.usize(0..2)];
                (near + random.u64(0..8))
                    .saturating_sub(random.u64(0..8))
                    .clamp(begin, journal.len())
            }
        });
        for at in cuts.collect::<Vec<_>>() {
            let said =
                |what: &str| format!("life {seed}, cut at {at} of {}: {what}", journal.len());
            let it = found(&journal.crash(at, at))
                .unwrap_or_else(|it| panic!("{}", said(&it.to_string())));
            let now = kept.iter().rfind(|it| it.from <= at).expect("after the creation");
            let next = kept.iter().find(|it| it.from > at);
            match it {
                Some(found) if at <= now.to => {
                    assert!(found == now.model, "{}", said("[MET-1] not the checkpoint's entries"));
                    whole += 1;
                }
                None => {
                    assert!(at > now.to, "{}", said("a checkpoint is lost"));
                    unclean += 1;
                }
                // Before the mark of a change was durable, or when a checkpoint was almost complete.
                Some(found) => {
                    let either = found == now.model || next.is_some_and(|it| found == it.model);
                    assert!(either, "{}", said("[TRE-1] some changes and not others"));
                    between += 1;
                }
            }
        }
    }
    // Otherwise the test has tested nothing.
    assert!(whole > 10 && unclean > 10 && between > 0, "{whole}, {unclean}, {between}");
}

#[test]
fn a_power_cut_during_a_bulk_load_leaves_nothing_of_it_or_all() {
    let disk = Disk::boot(&Image::empty(), DiskOptions::default()).unwrap();
    let pool = pool_on(&disk);
    let tree = Tree::create(&pool, "tree").unwrap();
    let model: Model = (0..3000).map(|number| (key(number, 40), vec![7; 200])).collect();
    let begin = disk.position();
    tree.bulk_load(&model, 1.0).unwrap();
    tree.checkpoint().unwrap();
    let (end, journal) = (disk.position(), disk.journal());
    let mut random = Rng::with_seed(5);
    let mut unclean = 0;
    let near_the_end = (0..8).map(|before| end - before);
    let cuts: Vec<Position> =
        (0..40).map(|_| random.u64(begin..=end)).chain(near_the_end).collect();
    for at in cuts {
        let found = found(&journal.crash(at, at))
            .unwrap_or_else(|error| panic!("cut at {at} of {begin} to {end}: {error}"));
        match found {
            None => unclean += 1,
            Some(found) if at < end && found.is_empty() => {}
            Some(found) => assert!(found == model, "[MET-1] cut at {at} of {begin} to {end}"),
        }
    }
    // Otherwise the test has tested nothing.
    assert!(unclean > 10, "{unclean}");
}

#[test]
fn a_tree_that_was_not_closed_says_so() {
    let site = Site::new(64);
    let pool = site.pool();
    let tree = Tree::create(&pool, "tree").unwrap();
    tree.insert(b"key", b"value").unwrap();
    drop(tree);
    pool.close().unwrap(); // this writes everything, but is not a checkpoint of the tree
    let refused = Tree::open(&site.pool(), "tree").unwrap_err();
    assert!(matches!(refused, Error::Unclean { .. }), "{refused}");
    assert!(refused.to_string().contains("was changed after its last checkpoint"), "{refused}");
}

#[test]
fn a_checkpoint_that_fails_is_no_checkpoint() {
    let disk = Disk::boot(&Image::empty(), DiskOptions::default()).unwrap();
    let pool = pool_on(&disk);
    let tree = Tree::create(&pool, "tree").unwrap();
    tree.insert(b"key", b"value").unwrap();
    disk.rule(|operation| match operation.what {
        What::Write => Fault::Fail(OsError::EIO),
        _ => Fault::None,
    });
    assert!(tree.checkpoint().is_err());
    disk.heal();
    assert_eq!(found(&disk.journal().crash(disk.position(), 1)).unwrap(), None);
    tree.insert(b"another", b"value").unwrap();
    tree.checkpoint().unwrap();
    let entries = found(&disk.journal().crash(disk.position(), 1)).unwrap().expect("a checkpoint");
    assert_eq!(entries.len(), 2);
}
