//! Databases that lose their memory at any moment: recovery finds all that was durable, and nothing else.
//!
//! A crash is a copy of the files between two operations: what the system has, without what the process had.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use forebay::{BufferPool, Checksum, PoolBuilder, TornPages};
use forebay_btree::{Database, Direction, Error, Tree};
use proptest::prelude::*;
use tempfile::TempDir;

use crate::site::{all, key};

const NAMES: [&str; 2] = ["one", "two"];

/// Far fewer frames than pages, so that pages are written and read again; nothing writes at other times.
fn builder() -> PoolBuilder {
    let builder = BufferPool::builder().frames(16).page_size(4096_u64).cleaner(false);
    builder.checksum(Checksum::Crc32c { offset: 0 }).torn_pages(TornPages::Unprotected)
}

fn open(directory: &Path) -> (Database, Vec<u64>) {
    let mut committed = Vec::new();
    let database = Database::open(builder().directory(directory), directory, &NAMES, |bytes| {
        committed.push(u64::from_le_bytes(bytes.try_into().unwrap()));
    });
    (database.unwrap(), committed)
}

fn copy_of(directory: &Path) -> TempDir {
    let copy = tempfile::tempdir().unwrap();
    for file in fs::read_dir(directory).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
    }
    copy
}

#[derive(Debug, Clone)]
enum Op {
    Insert(usize, u64, usize),
    Update(usize, u64, u8),
    Remove(usize, u64),
    RemoveRange(usize, u64, u64),
    /// With a flush of the log, or without.
    Commit(bool),
    Checkpoint,
    Crash,
}

fn ops() -> impl Strategy<Value = Op> {
    let number = 0_u64..300;
    prop_oneof![
        14 => (0_usize..2, number.clone(), 0_usize..768).prop_map(|(tree, key, len)| Op::Insert(tree, key, len)),
        5 => (0_usize..2, number.clone(), any::<u8>()).prop_map(|(tree, key, byte)| Op::Update(tree, key, byte)),
        4 => (0_usize..2, number.clone()).prop_map(|(tree, key)| Op::Remove(tree, key)),
        1 => (0_usize..2, number, 0_u64..300).prop_map(|(tree, key, count)| Op::RemoveRange(tree, key, count)),
        4 => any::<bool>().prop_map(Op::Commit),
        1 => Just(Op::Checkpoint),
        1 => Just(Op::Crash),
    ]
}

type Model = [BTreeMap<Vec<u8>, Vec<u8>>; 2];

/// A database, and its contents after each operation that may still be lost, by LSN.
struct Run {
    directory: TempDir,
    database: Database,
    /// The newest state last.
    states: Vec<(u64, Model, u64)>,
    commits: u64,
}

impl Run {
    fn new() -> Run {
        let directory = tempfile::tempdir().unwrap();
        let (database, _) = open(directory.path());
        let states = vec![(database.log_bytes(), Model::default(), 0)];
        Run { directory, database, states, commits: 0 }
    }

    fn change(&mut self, tree: usize, change: impl FnOnce(&Tree, &mut BTreeMap<Vec<u8>, Vec<u8>>)) {
        let mut model = self.states.last().unwrap().1.clone();
        change(&self.database.trees()[tree], &mut model[tree]);
        self.note(model);
    }

    fn note(&mut self, model: Model) {
        let (end, durable) = (self.database.log_bytes(), self.database.durable());
        // The newest durable one replaces all before it.
        let newest = self.states.iter().rposition(|(end, ..)| *end <= durable);
        self.states.drain(..newest.unwrap_or(0));
        self.states.push((end, model, self.commits));
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Insert(tree, number, len) => self.change(tree, |tree, model| {
                let (key, value) = (key(number, 8 + number as usize % 90), vec![len as u8; len]);
                let new = tree.insert(&key, &value).unwrap();
                assert_eq!(new, model.insert(key, value).is_none());
            }),
            Op::Update(tree, number, byte) => self.change(tree, |tree, model| {
                let key = key(number, 8 + number as usize % 90);
                let change = |value: &mut [u8]| {
                    let middle = value.len() / 2;
                    value.iter_mut().skip(middle).take(5).for_each(|old| *old = byte);
                };
                assert_eq!(tree.update(&key, change).unwrap(), model.contains_key(&key));
                if let Some(value) = model.get_mut(&key) {
                    change(value);
                }
            }),
            Op::Remove(tree, number) => self.change(tree, |tree, model| {
                let key = key(number, 8 + number as usize % 90);
                assert_eq!(tree.remove(&key).unwrap(), model.remove(&key).is_some());
            }),
            Op::RemoveRange(tree, from, count) => {
                for number in from..from + count {
                    self.apply(&Op::Remove(tree, number));
                }
            }
            Op::Commit(flush) => {
                self.commits += 1;
                let lsn = self.database.commit(&self.commits.to_le_bytes());
                if flush {
                    self.database.flush(lsn).unwrap();
                    assert!(self.database.durable() >= lsn);
                }
                let model = self.states.last().unwrap().1.clone();
                self.note(model);
            }
            Op::Checkpoint => self.database.checkpoint().unwrap(),
            Op::Crash => self.crash(),
        }
    }

    /// Goes on with what a crash leaves.
    fn crash(&mut self) {
        let durable = self.database.durable();
        let copy = copy_of(self.directory.path());
        let before = std::mem::replace(self, Run::new());
        let newest = before.states.iter().rposition(|(end, ..)| *end <= durable).unwrap();
        let (end, mut model, commits) = before.states[newest].clone();
        // Of an operation with several records, the first are durable: its change, or a split before it.
        let next = before.states.get(newest + 1).filter(|_| end < durable).cloned();
        drop(before);
        let (database, committed) = open(copy.path());
        // Those before the redo point are not in the log any more.
        if let (Some(first), Some(last)) = (committed.first(), committed.last()) {
            assert_eq!(*last, commits, "[DAT-1] {committed:?}");
            assert_eq!(committed.len() as u64, last - first + 1, "[LOG-1] {committed:?}");
        }
        let found = [0, 1].map(|tree| {
            let tree = &database.trees()[tree];
            tree.check().unwrap();
            all(tree, Direction::Forward).into_iter().collect::<BTreeMap<_, _>>()
        });
        if let Some((_, next, _)) = next.filter(|(_, next, _)| *next == found) {
            model = next;
        }
        assert!(found == model, "[DAT-1] {durable}");
        let states = vec![(database.log_bytes(), model, commits)];
        *self = Run { directory: copy, database, states, commits };
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn dat_1_a_crash_loses_nothing_durable(ops in prop::collection::vec(ops(), 1..1200)) {
        let mut run = Run::new();
        for op in &ops {
            run.apply(op);
        }
        run.crash();
        // Recovery of what recovery has left.
        run.crash();
    }
}

#[test]
fn a_closed_database_has_nothing_to_recover() {
    let directory = tempfile::tempdir().unwrap();
    let (database, _) = open(directory.path());
    database.trees()[1].insert(b"key", b"value").unwrap();
    database.close().unwrap();
    let (database, committed) = open(directory.path());
    assert_eq!((database.recovery().records, committed.len()), (0, 0));
    assert_eq!(database.trees()[1].get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
}

#[test]
fn a_tree_is_not_opened_without_its_log() {
    let directory = tempfile::tempdir().unwrap();
    let (database, _) = open(directory.path());
    database.close().unwrap();
    let pool = builder().directory(directory.path()).build().unwrap();
    let error = Tree::open(&pool, "one").unwrap_err();
    assert!(matches!(error, Error::NotATree { .. }), "{error}");
    pool.close().unwrap();
    for name in ["log.redo", "log"] {
        fs::remove_file(directory.path().join(name)).unwrap();
    }
    let builder = builder().directory(directory.path());
    let error = Database::open(builder, directory.path(), &NAMES, |_| {}).unwrap_err();
    assert!(matches!(error, Error::NotATree { .. }), "{error}");
}

#[test]
fn a_tree_that_is_missing_is_not_created_again() {
    let directory = tempfile::tempdir().unwrap();
    let (database, _) = open(directory.path());
    database.trees()[0].insert(b"key", b"value").unwrap();
    database.close().unwrap();
    let path = directory.path().join("one");
    for make_empty in [false, true] {
        if make_empty {
            fs::write(&path, b"").unwrap();
        } else {
            fs::remove_file(&path).unwrap();
        }
        let builder = builder().directory(directory.path());
        let error = Database::open(builder, directory.path(), &NAMES, |_| {}).unwrap_err();
        assert!(matches!(error, Error::Pool(_) | Error::NotATree { .. }), "{error}");
        assert_eq!(path.exists(), make_empty);
    }
}

#[test]
fn a_tree_without_a_log_gets_one() {
    let directory = tempfile::tempdir().unwrap();
    let pool = builder().directory(directory.path()).build().unwrap();
    let tree = Tree::create(&pool, "one").unwrap();
    tree.bulk_load([("a", "1"), ("b", "2")], 1.0).unwrap();
    tree.close().unwrap();
    pool.close().unwrap();
    let (database, _) = open(directory.path());
    assert_eq!(database.trees()[0].get(b"b").unwrap().as_deref(), Some(&b"2"[..]));
    database.trees()[0].insert(b"c", b"3").unwrap();
    let lsn = database.commit(&1_u64.to_le_bytes());
    database.flush(lsn).unwrap();
    let copy = copy_of(directory.path());
    let (database, committed) = open(copy.path());
    assert_eq!(committed, [1]);
    assert_eq!(database.trees()[0].check().unwrap().entries, 3);
}

#[test]
fn a_bulk_load_with_a_log_is_recovered() {
    let directory = tempfile::tempdir().unwrap();
    let (database, _) = open(directory.path());
    let entries = (0..2000_u64).map(|number| (key(number, 20), [7; 100]));
    database.trees()[0].bulk_load(entries, 0.9).unwrap();
    let lsn = database.commit(&1_u64.to_le_bytes());
    database.flush(lsn).unwrap();
    let (database, _) = open(copy_of(directory.path()).path());
    assert_eq!(database.trees()[0].check().unwrap().entries, 2000);
}
