//! Backups concurrent with writers: restored elsewhere, with the log from their start to their end, they are a database
//! with everything that was acknowledged by then, and no partial operation.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use forebay::{Block, Lsn, PageCodec};
use tempfile::TempDir;

use crate::engine::cipher::Cipher;
use crate::engine::error::Error;
use crate::engine::op::{Entry, FileName};
use crate::engine::oracle::{Found, History, Promise};
use crate::engine::page::PAGE;
use crate::engine::recovery::{self, Recovered};
use crate::engine::worker::{Mix, Witness, Worker};
use crate::engine::{Engine, META, Settings};

/// Receives notifications of operations, and counts them.
#[derive(Default)]
struct Heard(Mutex<(u64, History)>);

impl Heard {
    fn record(&self, record: impl FnOnce(u64, &mut History)) {
        let (time, history) = &mut *self.0.lock().unwrap();
        *time += 1;
        record(*time, history);
    }

    /// The end of the log at a moment without notifications, what is promised then, and the files that the log knows up
    /// to there. A file created before that moment is in the second listing, a file dropped after it is in the first:
    /// no operation begins meanwhile, so no file is missing from both.
    fn now(&self, engine: &Engine) -> (Lsn, Promise, BTreeSet<FileName>) {
        let (time, history) = &*self.0.lock().unwrap();
        let names = || engine.catalog().into_iter().map(|(name, _)| name);
        let mut files: BTreeSet<FileName> = names().collect();
        let end = engine.log().end();
        files.extend(names());
        (end, history.promised(*time), files)
    }
}

impl Witness for Heard {
    fn intended(&self, entry: &Entry) {
        self.record(|at, history| history.intended(at, entry.clone()));
    }

    fn acknowledged(&self, worker: u8, serial: u64, lsn: Lsn) {
        self.record(|at, history| history.acknowledged(at, worker, serial, lsn));
    }
}

fn settings(root: &Path, codec: Option<&Arc<dyn PageCodec>>) -> Settings {
    Settings { frames: 48, codec: codec.cloned(), ..Settings::new(root) }
}

/// Copies the images of a file to its path in `to`. Returns false if the file was dropped meanwhile.
fn back_up(engine: &Engine, name: Option<FileName>, to: &Settings) -> bool {
    let Ok(file) = engine.paged_file(name) else { return false };
    let on_disk = name.map_or(META.to_owned(), FileName::on_disk);
    let directory = to.space_directory(name.map_or(0, |name| name.space));
    fs::create_dir_all(&directory).unwrap();
    let copy = File::create(directory.join(on_disk)).unwrap();
    let done = file.backup(0..Block::MAX, |block, image| {
        copy.write_all_at(image, u64::from(block) * PAGE as u64).unwrap();
        Ok::<_, forebay::Error>(())
    });
    match done {
        Ok(end) => assert!(end <= engine.log().end()),
        Err(forebay::Error::Invalidated { .. }) => return false,
        Err(error) => panic!("{error}"),
    }
    true
}

/// Backs up a whole database in `from`. Returns what was promised at the end of its log.
fn backed_up(engine: &Engine, heard: &Heard, from: &Settings, to: &Settings) -> Promise {
    engine.checkpoint().unwrap();
    fs::create_dir(to.log_directory()).unwrap();
    let [from_log, to_log] = [from, to].map(Settings::log_directory);
    fs::copy(from_log.join("control"), to_log.join("control")).unwrap();
    let mut done = BTreeSet::new();
    loop {
        let (end, promise, files) = heard.now(engine);
        let files = files.into_iter().map(Some);
        let missing = std::iter::once(None).chain(files).filter(|name| !done.contains(name));
        let missing: Vec<_> = missing.collect();
        if missing.is_empty() {
            engine.log().flush(end).unwrap();
            let log = fs::read(from_log.join("log")).unwrap();
            fs::write(to_log.join("log"), &log[..end.0 as usize]).unwrap();
            return promise;
        }
        done.extend(missing.into_iter().filter(|name| back_up(engine, *name, to)));
    }
}

fn work(engine: &Engine, number: u8, heard: &Heard, done: &AtomicBool) -> Result<(), Error> {
    let mix = Mix { on_files: 15, ..Mix::default() };
    let mut worker = Worker::new(engine, number, u64::from(number), mix)?;
    while !done.load(Ordering::SeqCst) {
        worker.step(engine, heard)?;
        if number == 0 && fastrand::u32(0..60) == 0 {
            engine.checkpoint()?;
        }
    }
    Ok(())
}

#[test]
fn a_backup_with_concurrent_writers_with_its_log_is_what_was_promised_at_its_end() {
    let mut all = Recovered::default();
    let cipher: Arc<dyn PageCodec> = Arc::new(Cipher(7));
    for codec in [None, Some(&cipher)] {
        let (root, heard, done) =
            (TempDir::new().unwrap(), Heard::default(), AtomicBool::new(false));
        let from = settings(root.path(), codec);
        let engine = Engine::open(&from).unwrap();
        let backups: Vec<_> = thread::scope(|scope| {
            let workers = [0, 1, 2].map(|number| {
                let (engine, heard, done) = (&engine, &heard, &done);
                scope.spawn(move || work(engine, number, heard, done))
            });
            while heard.0.lock().unwrap().0 < 300 {
                thread::yield_now();
            }
            let backups = (0..6).map(|_| {
                let copy = TempDir::new().unwrap();
                let promise = backed_up(&engine, &heard, &from, &settings(copy.path(), codec));
                (copy, promise)
            });
            let backups = backups.collect();
            done.store(true, Ordering::SeqCst);
            workers.into_iter().for_each(|worker| worker.join().unwrap().unwrap());
            backups
        });
        for (copy, promise) in backups {
            let (engine, done) = recovery::open(&settings(copy.path(), codec)).unwrap();
            let found = Found::read(&engine).unwrap();
            promise.check(&found).unwrap_or_else(|broken| panic!("{broken}"));
            (all.applied, all.seen) = (all.applied + done.applied, all.seen + done.seen);
        }
    }
    // The test is valid only if pages were of different moments.
    assert!(all.applied > 50 && all.seen > 50, "{all:?}");
}
