//! The length of files on disk: blocks that were cut off do not come back, and space is released.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

use forebay::{BufferPool, CheckpointOptions, Error, FileOptions, PagedFile, Tablespace};
use forebay_io::{Change, Interpose, OsError, Volume};

use crate::site::{Site, create, numbered, read, write};

#[test]
fn a_file_that_grew_block_by_block_takes_no_more_space_than_its_blocks_once_it_is_closed() {
    let site = Site::new();
    let beyond = |path: &Path| {
        let facts = std::fs::metadata(path).unwrap();
        (facts.blocks() * 512).saturating_sub(facts.len())
    };
    // Allowance for the filesystem's own metadata blocks.
    let most = 128 << 10;
    let pool = site.pool(64);
    let files = ["closed", "dropped with its pool"].map(|name| {
        let file = pool.open_file(name, &create()).unwrap();
        (0..2500).for_each(|_| drop(file.append().unwrap()));
        file
    });
    files[0].close().unwrap();
    let paths = files.each_ref().map(|file| file.path().to_owned());
    let dropped_before = beyond(&paths[1]);
    drop((files, pool));
    assert!(beyond(&paths[0]) < most, "[LEN-1] {paths:?}");
    assert!(beyond(&paths[1]) < most, "[LEN-1] {paths:?}, {dropped_before} before");
}

/// Executes all changes, except that on request it fails the next sync of a directory, all changes of a
/// file's size, or delays one of these.
#[derive(Debug, Default)]
struct Disturbs {
    refuses: AtomicBool,
    fails: AtomicBool,
    holds: Mutex<Option<Arc<Barrier>>>,
}

impl Interpose for Disturbs {
    fn execute(
        &self,
        change: &Change<'_>,
        make: &mut dyn FnMut() -> Result<(), OsError>,
    ) -> Result<(), OsError> {
        match change {
            Change::SyncDirectory { .. } if self.refuses.swap(false, Ordering::SeqCst) => {
                return Err(OsError::EIO);
            }
            Change::SetLen { .. } if self.fails.load(Ordering::SeqCst) => {
                return Err(OsError::EIO);
            }
            Change::SetLen { .. } => {
                let held = self.holds.lock().unwrap().take();
                held.inspect(|held| _ = held.wait()).inspect(|held| _ = held.wait());
            }
            _ => {}
        }
        make()
    }
}

fn disturbed(site: &Site) -> (BufferPool, Arc<Disturbs>) {
    let disturbs = Arc::new(Disturbs::default());
    let volume = Volume::over(Arc::<Disturbs>::clone(&disturbs));
    let main = Tablespace::new("main", site.path("main")).volume(volume);
    (Site::bare(32).tablespace(main).build().unwrap(), disturbs)
}

#[test]
fn a_truncation_that_fails_leaves_no_old_pages_for_a_longer_file() {
    let site = Site::new();
    let (pool, disturbs) = disturbed(&site);
    let file = numbered(&pool, "t", 10, 100);
    disturbs.fails.store(true, Ordering::SeqCst);
    file.truncate(2).unwrap_err();
    assert_eq!(file.blocks(), 2);
    disturbs.fails.store(false, Ordering::SeqCst);
    file.extend(4).unwrap();
    assert_eq!([0, 1, 2, 5].map(|block| read(&file, block)), [100, 101, 0, 0], "[RSZ-1]");
}

/// A failed truncation is completed on its own, or before any operation reports the file's length as durable; such
/// operations fail as long as the truncation does.
#[test]
fn len_2_what_a_failed_truncation_left_does_not_come_back_with_the_file() {
    type Ends = fn(&BufferPool, &PagedFile) -> Result<(), Error>;
    let ends: [(&str, Ends); 5] = [
        ("truncated again", |_, file| file.truncate(2)),
        ("synced", |_, file| file.sync()),
        ("closed", |_, file| file.close()),
        ("all synced", |pool, _| pool.flush_and_sync().map(drop)),
        ("checkpoint", |pool, _| pool.checkpoint(CheckpointOptions::now()).map(drop)),
    ];
    for (case, end) in ends {
        let site = Site::new();
        let (pool, disturbs) = disturbed(&site);
        let file = numbered(&pool, "t", 10, 100);
        disturbs.fails.store(true, Ordering::SeqCst);
        file.truncate(2).unwrap_err();
        end(&pool, &file).expect_err(case);
        disturbs.fails.store(false, Ordering::SeqCst);
        end(&pool, &file).unwrap();
        drop(file);
        pool.close().unwrap();
        let pool = site.pool(32);
        let file = pool.open_file("t", &FileOptions::new()).unwrap();
        assert_eq!(file.blocks(), 2, "[LEN-2] {case}");
    }
}

/// Pages that were written are made durable even if the file is still too long.
#[test]
fn what_has_been_written_is_synced_where_a_truncation_has_failed() {
    let site = Site::new();
    let (pool, disturbs) = disturbed(&site);
    let file = numbered(&pool, "t", 10, 100);
    disturbs.fails.store(true, Ordering::SeqCst);
    file.truncate(2).unwrap_err();
    write(&file, 0, 7);
    let before = pool.stats().pool.syncs;
    pool.flush_and_sync().unwrap_err();
    assert_eq!(pool.stats().pool.syncs - before, 1);
}

/// The file is removed, but the removal may not be durable, and a second sync of the directory need not report that.
#[test]
fn tbs_1_a_removal_that_may_not_be_durable_fails_the_tablespace() {
    let site = Site::new();
    let (pool, disturbs) = disturbed(&site);
    let [file, other] = ["t", "other"].map(|name| numbered(&pool, name, 10, 100));
    disturbs.refuses.store(true, Ordering::SeqCst);
    let failed = |result: Result<(), Error>| {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::Failed { .. }), "[TBS-1] {error}");
    };
    failed(file.drop_file());
    failed(other.sync());
    failed(other.truncate(2));
    pool.checkpoint(CheckpointOptions::now()).unwrap_err();
}

/// The file is created, but its name may not be durable: a second sync of the directory need not report that.
#[test]
fn tbs_1_a_new_file_whose_name_may_not_be_durable_fails_the_tablespace() {
    let site = Site::new();
    let (pool, disturbs) = disturbed(&site);
    disturbs.refuses.store(true, Ordering::SeqCst);
    let error = pool.open_file("t", &create()).unwrap_err();
    assert!(matches!(error, Error::Failed { .. }), "[TBS-1] {error}");
    let file = pool.open_file("t", &create()).unwrap();
    for result in [file.extend(1).map(drop), file.sync(), file.append().map(drop)] {
        assert!(matches!(result, Err(Error::Failed { .. })), "[TBS-1] {result:?}");
    }
}

/// Otherwise its redo point would be after a truncation that a power cut undoes.
#[test]
fn len_2_a_checkpoint_waits_for_a_truncation_under_way() {
    let site = Site::new();
    let (pool, disturbs) = disturbed(&site);
    let file = numbered(&pool, "t", 10, 100);
    let held = Arc::new(Barrier::new(2));
    *disturbs.holds.lock().unwrap() = Some(Arc::clone(&held));
    thread::scope(|scope| {
        let cutting = scope.spawn(|| file.truncate(2));
        held.wait();
        let checkpoint = scope.spawn(|| pool.checkpoint(CheckpointOptions::now()).map(drop));
        thread::sleep(Duration::from_millis(300));
        let early = checkpoint.is_finished();
        held.wait();
        assert!(!early, "[LEN-2]");
        checkpoint.join().unwrap().unwrap();
        cutting.join().unwrap().unwrap();
    });
}

#[test]
fn two_names_of_one_file_are_one_file_or_refused() {
    let site = Site::new();
    std::fs::create_dir_all(site.path("main/d")).unwrap();
    let pool = site.pool(16);
    let file = pool.open_file("d/t", &create()).unwrap();
    file.extend(1).unwrap();
    write(&file, 0, 5);
    for name in ["d//t", "d/./t"] {
        if let Ok(other) = pool.open_file(name, &FileOptions::new()) {
            assert_eq!((other.id(), read(&other, 0)), (file.id(), 5), "{name} is the same file");
        }
    }
}
