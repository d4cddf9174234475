//! Recovery from the contents of the files at arbitrary moments of a run, as after the process was killed there.
//!
//! The files are copied while the engine is idle; the copy is recovered and checked.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Mutex;

use forebay::Lsn;
use tempfile::TempDir;

use crate::engine::error::Error;
use crate::engine::op::{Change, Entry, FileName, Op, PageName, Record};
use crate::engine::oracle::{Found, History};
use crate::engine::page::PAGE;
use crate::engine::recovery::{self, Recovered};
use crate::engine::worker::{Mix, Witness, Worker};
use crate::engine::{Engine, Settings};

/// Receives notifications of operations; their time does not matter here.
#[derive(Default)]
struct Heard(Mutex<History>);

impl Witness for Heard {
    fn intended(&self, entry: &Entry) {
        self.0.lock().unwrap().intended(0, entry.clone());
    }

    fn acknowledged(&self, worker: u8, serial: u64, lsn: Lsn) {
        self.0.lock().unwrap().acknowledged(0, worker, serial, lsn);
    }
}

/// A directory in memory if there is one: no test here depends on syncs.
fn directory() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// A copy of the current contents of a database in the kernel.
fn copied(root: &Path) -> TempDir {
    let copy = directory();
    for directory in fs::read_dir(root).unwrap() {
        let directory = directory.unwrap();
        let into = copy.path().join(directory.file_name());
        fs::create_dir(&into).unwrap();
        for file in fs::read_dir(directory.path()).unwrap() {
            let file = file.unwrap();
            fs::copy(file.path(), into.join(file.file_name())).unwrap();
        }
    }
    copy
}

fn settings(root: &Path) -> Settings {
    Settings { cleaner: false, frames: 24, ..Settings::new(root) }
}

fn recovered(root: &Path) -> (Engine, Recovered) {
    recovery::open(&settings(root)).unwrap()
}

/// Runs `steps` operations of two workers with checkpoints between, and calls `look` at each `every`th moment.
fn run(seed: u64, steps: usize, every: usize, mut look: impl FnMut(&Path, &Heard)) {
    let root = directory();
    let engine = Engine::open(&settings(root.path())).unwrap();
    let heard = Heard::default();
    let mix = Mix { on_files: 15, ..Mix::default() };
    let mut workers = [0, 1].map(|number| Worker::new(&engine, number, seed, mix).unwrap());
    let mut random = fastrand::Rng::with_seed(seed);
    for step in 1..=steps {
        workers[step % 2].step(&engine, &heard).unwrap();
        if random.u32(0..40) == 0 {
            engine.checkpoint().unwrap();
        }
        if step % every == 0 {
            look(root.path(), &heard);
        }
    }
}

fn check(engine: &Engine, heard: &Heard) {
    let found = Found::read(engine).unwrap();
    let promise = heard.0.lock().unwrap().promised(0);
    promise.check(&found).unwrap_or_else(|broken| panic!("{broken}"));
}

#[test]
fn what_was_acknowledged_is_there_after_a_crash_at_any_moment() {
    let mut all = Recovered::default();
    let mut blocks = 0;
    for seed in 0..4 {
        run(seed, 600, 23, |root, heard| {
            let copy = copied(root);
            let (engine, done) = recovered(copy.path());
            check(&engine, heard);
            blocks += Found::read(&engine).unwrap().model.blocks();
            all.records += done.records;
            all.applied += done.applied;
            all.seen += done.seen;
        });
    }
    // The test is valid only if there were records to apply and records to skip.
    assert!(all.applied > 500 && all.seen > 100, "{all:?}");
    assert!(blocks > 1000, "{blocks}");
}

#[test]
fn recovery_may_be_interrupted_and_begun_again() {
    let mut applied = 0;
    run(7, 400, 100, |root, heard| {
        let copy = copied(root);
        let (engine, _) = recovered(copy.path());
        // Some of the replayed changes are written to the files, the rest is lost with the process.
        for (at, (file, _)) in engine.catalog().into_iter().enumerate() {
            if at % 2 == 0 {
                engine.flush_file(file).unwrap();
            }
        }
        let again = copied(copy.path());
        let (engine, done) = recovered(again.path());
        check(&engine, heard);
        applied += done.applied;
    });
    assert!(applied > 50, "{applied}");
}

#[test]
fn a_new_database_is_empty_and_stays_so() {
    let root = directory();
    let (engine, done) = recovered(root.path());
    assert!(done.fresh);
    check(&engine, &Heard::default());
    drop(engine);
    let (engine, done) = recovered(root.path());
    assert_eq!(done, Recovered::default());
    check(&engine, &Heard::default());
}

#[test]
fn a_checkpoint_leaves_nothing_to_redo() {
    run(3, 200, 200, |root, heard| {
        let copy = copied(root);
        let (engine, done) = recovered(copy.path());
        assert!(done.records > 0);
        let redo = engine.checkpoint().unwrap().redo;
        drop(engine);
        let (engine, done) = recovered(copy.path());
        assert_eq!(done, Recovered { redo, ..Recovered::default() });
        check(&engine, heard);
    });
}

const FILE: FileName = FileName { slot: 0, space: 0, serial: 1 };

/// Executes one operation of worker 0.
fn act(engine: &Engine, heard: &Heard, op: Op) {
    let entry = Entry { worker: 0, serial: engine.serial(0).unwrap() + 1, op };
    heard.intended(&entry);
    let lsn = engine.commit(&entry).unwrap();
    heard.acknowledged(0, entry.serial, lsn);
}

fn transfer(delta: i64) -> Op {
    let change = |block, delta| Change { file: FILE, block, counter: 5, delta };
    Op::Transfer(vec![change(1, delta), change(2, -delta)])
}

/// A database with a file of four blocks, created before the redo point.
fn with_file(root: &Path, heard: &Heard) -> Engine {
    let engine = Engine::open(&settings(root)).unwrap();
    act(&engine, heard, Op::Create(FILE));
    act(&engine, heard, Op::Extend { file: FILE, from: 0, to: 4 });
    act(&engine, heard, transfer(1000));
    engine.checkpoint().unwrap();
    engine
}

/// Damages the second half of a block of [`FILE`].
fn tear(root: &Path, block: u64) {
    let path = root.join("space-0").join(FILE.on_disk());
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(&[0xEE; PAGE / 2], block * PAGE as u64 + PAGE as u64 / 2).unwrap();
}

#[test]
fn a_torn_page_without_an_image_is_an_error_that_names_it() {
    let (root, heard) = (directory(), Heard::default());
    let engine = with_file(root.path(), &heard);
    act(&engine, &heard, transfer(7));
    let copy = copied(root.path());
    tear(copy.path(), 1);
    let error = recovery::open(&settings(copy.path())).unwrap_err();
    let torn = PageName { file: Some(FILE), block: 1 };
    assert!(matches!(error, Error::TornPage { page } if page == torn), "{error}");
}

#[test]
fn a_torn_page_comes_from_its_image_and_the_records_that_the_image_has_not_seen() {
    let (root, heard) = (directory(), Heard::default());
    let engine = with_file(root.path(), &heard);
    let page = PageName { file: Some(FILE), block: 1 };
    act(&engine, &heard, transfer(7));
    let bytes = engine.bytes_of(page).unwrap();
    // Changed between its copy and its image: the record is before the image, which does not contain it.
    act(&engine, &heard, transfer(20));
    let lsn = engine.log().append(&Record::Image { page, bytes });
    act(&engine, &heard, transfer(300));
    engine.log().flush(lsn).unwrap();
    let copy = copied(root.path());
    tear(copy.path(), 1);
    let (engine, done) = recovered(copy.path());
    assert_eq!(done.pages_from_images, 1);
    check(&engine, &heard);
}

#[test]
fn of_several_images_of_a_torn_page_the_newest_counts() {
    let (root, heard) = (directory(), Heard::default());
    let engine = with_file(root.path(), &heard);
    let page = PageName { file: Some(FILE), block: 1 };
    let before = engine.bytes_of(page).unwrap();
    // In no log after the checkpoint, and not in the image that was copied before it and appended after it.
    act(&engine, &heard, transfer(20));
    engine.checkpoint().unwrap();
    engine.log().append(&Record::Image { page, bytes: before });
    act(&engine, &heard, transfer(300));
    let bytes = engine.bytes_of(page).unwrap();
    engine.log().append(&Record::Image { page, bytes });
    act(&engine, &heard, transfer(1));
    let copy = copied(root.path());
    tear(copy.path(), 1);
    let (engine, done) = recovered(copy.path());
    assert_eq!(done.pages_from_images, 1);
    check(&engine, &heard);
}

#[test]
fn an_image_of_a_sound_page_takes_nothing_back() {
    let (root, heard) = (directory(), Heard::default());
    let engine = with_file(root.path(), &heard);
    let page = PageName { file: Some(FILE), block: 1 };
    let bytes = engine.bytes_of(page).unwrap();
    act(&engine, &heard, transfer(7));
    let lsn = engine.log().append(&Record::Image { page, bytes });
    engine.log().flush(lsn).unwrap();
    engine.flush_file(FILE).unwrap();
    let copy = copied(root.path());
    let (engine, done) = recovered(copy.path());
    assert_eq!(done.pages_from_images, 0);
    check(&engine, &heard);
}
