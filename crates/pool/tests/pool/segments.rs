//! Files in segments: every block has one position, and segment borders are invisible.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

use forebay::{BufferPool, CheckpointOptions, Error, FileOptions, PagedFile, Tablespace};
use forebay_io::{Change, Interpose, Op, OsError, Volume};

use crate::disk::Disk;
use crate::site::{PAGE, Site, create, numbered, read, write};

fn pool_of_segments(site: &Site, pages: usize) -> BufferPool {
    let main = Tablespace::new("main", site.path("main")).segment_size(pages * PAGE);
    Site::bare(32).tablespace(main).build().unwrap()
}

fn segments_on_disk(site: &Site) -> Vec<(String, u64)> {
    let entries = std::fs::read_dir(site.path("main")).unwrap().map(Result::unwrap);
    let mut sizes: Vec<_> = entries
        .map(|entry| (entry.file_name().into_string().unwrap(), entry.metadata().unwrap().len()))
        .filter(|(name, _)| name != "forebay.lock")
        .map(|(name, len)| (name, len / PAGE as u64))
        .collect();
    sizes.sort();
    sizes
}

#[test]
fn a_block_keeps_its_place_as_the_file_grows_shrinks_and_is_opened_again() {
    let site = Site::new();
    let pool = pool_of_segments(&site, 3);
    let file = numbered(&pool, "t", 2, 0);
    for blocks in [3, 4, 7, 9, 10] {
        let from = file.extend(blocks - file.blocks()).unwrap().start;
        (from..blocks).for_each(|block| write(&file, block, u64::from(block)));
        file.flush_file().unwrap();
        for block in 0..blocks {
            let name = if block < 3 { "t".to_owned() } else { format!("t.{}", block / 3) };
            let bytes = std::fs::read(site.path("main").join(name)).unwrap();
            let page = &bytes[block as usize % 3 * PAGE..][..PAGE];
            assert_eq!(crate::site::number_in(page), u64::from(block), "[SEG-1]");
        }
    }
    file.truncate(6).unwrap();
    assert_eq!(segments_on_disk(&site), [("t".to_owned(), 3), ("t.1".to_owned(), 3)], "[SEG-1]");
    file.close().unwrap();
    let file = pool.open_file("t", &FileOptions::new()).unwrap();
    assert_eq!(file.blocks(), 6, "[SEG-1]");
    assert!((0..6).all(|block| read(&file, block) == u64::from(block)), "[SEG-1]");
    file.drop_file().unwrap();
    assert_eq!(segments_on_disk(&site), []);
}

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
    assert!(beyond(&paths[0]) < most, "[SEG-2] {paths:?}");
    assert!(beyond(&paths[1]) < most, "[SEG-2] {paths:?}, {dropped_before} before");
}

#[test]
fn a_write_stops_at_the_end_of_its_segment() {
    let site = Site::new();
    let (io, disk) = Disk::open();
    let main = Tablespace::new("main", site.path("main")).segment_size(4 * PAGE).io(io);
    let pool = Site::bare(64).cleaner(false).tablespace(main).build().unwrap();
    numbered(&pool, "t", 10, 0);
    let seen = disk.seen().into_iter().filter(|seen| seen.op == Op::Write);
    let written: Vec<u64> = seen.map(|seen| seen.len / PAGE as u64).collect();
    assert_eq!(written, [4, 4, 2]);
}

#[test]
fn a_truncation_that_fails_half_way_leaves_no_old_pages_for_a_longer_file() {
    let site = Site::new();
    let pool = pool_of_segments(&site, 4);
    let file = numbered(&pool, "t", 10, 100);
    // A directory that replaces the last segment cannot be removed, so the first segment is not truncated.
    std::fs::remove_file(site.path("main/t.2")).unwrap();
    std::fs::create_dir(site.path("main/t.2")).unwrap();
    file.truncate(2).unwrap_err();
    assert_eq!(file.blocks(), 2);
    std::fs::remove_dir(site.path("main/t.2")).unwrap();
    file.extend(4).unwrap();
    assert_eq!([0, 1, 2, 5].map(|block| read(&file, block)), [100, 101, 0, 0], "[RSZ-1]");
}

/// A failed truncation is completed on its own, or before any operation reports the file's length as durable; such
/// operations fail as long as the truncation does.
#[test]
fn seg_3_what_a_failed_truncation_left_does_not_come_back_with_the_file() {
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
        let pool = pool_of_segments(&site, 4);
        let file = numbered(&pool, "t", 10, 100);
        // A directory that replaces the last segment cannot be removed, so the first segment is not truncated.
        std::fs::remove_file(site.path("main/t.2")).unwrap();
        std::fs::create_dir(site.path("main/t.2")).unwrap();
        file.truncate(2).unwrap_err();
        end(&pool, &file).expect_err(case);
        std::fs::remove_dir(site.path("main/t.2")).unwrap();
        end(&pool, &file).unwrap();
        drop(file);
        pool.close().unwrap();
        let pool = pool_of_segments(&site, 4);
        let file = pool.open_file("t", &FileOptions::new()).unwrap();
        assert_eq!(file.blocks(), 2, "[SEG-3] {case}");
    }
}

/// Executes all changes, except that on request it fails the next sync of a directory, or delays one change of a file's
/// size.
#[derive(Debug)]
struct Disturbs {
    refuses: AtomicBool,
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
    let disturbs = Arc::new(Disturbs { refuses: AtomicBool::new(false), holds: Mutex::default() });
    let volume = Volume::over(Arc::<Disturbs>::clone(&disturbs));
    let main = Tablespace::new("main", site.path("main")).segment_size(4 * PAGE).volume(volume);
    (Site::bare(32).tablespace(main).build().unwrap(), disturbs)
}

/// The segments are removed, but the removal may not be durable, and a second sync of the directory need not report
/// that.
#[test]
fn seg_3_a_removal_of_segments_that_may_not_be_durable_fails_the_tablespace() {
    type Resize = fn(&PagedFile) -> Result<(), Error>;
    let changes: [(&str, Resize); 3] = [
        ("truncation", |file| file.truncate(2)),
        ("removal", |file| file.clone().drop_file()),
        ("extension", |file| file.extend(10).map(drop)),
    ];
    for (case, change) in changes {
        let site = Site::new();
        let (pool, disturbs) = disturbed(&site);
        let [file, other] = ["t", "other"].map(|name| numbered(&pool, name, 10, 100));
        disturbs.refuses.store(true, Ordering::SeqCst);
        let failed = |result: Result<(), Error>| {
            let error = result.expect_err(case);
            assert!(matches!(error, Error::Failed { .. }), "[SEG-3] {case}: {error}");
        };
        failed(change(&file));
        failed(other.sync());
        failed(other.truncate(2));
        pool.checkpoint(CheckpointOptions::now()).expect_err(case);
    }
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
fn seg_3_a_checkpoint_waits_for_a_truncation_under_way() {
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
        assert!(!early, "[SEG-3]");
        checkpoint.join().unwrap().unwrap();
        cutting.join().unwrap().unwrap();
    });
}

/// Records which names are removed, and when a directory is synced; on request hides the next directory to be synced.
#[derive(Debug, Default)]
struct Notes {
    seen: Mutex<Vec<String>>,
    hides: AtomicBool,
}

impl Interpose for Notes {
    fn execute(
        &self,
        change: &Change<'_>,
        make: &mut dyn FnMut() -> Result<(), OsError>,
    ) -> Result<(), OsError> {
        match change {
            Change::SyncDirectory { path } if self.hides.swap(false, Ordering::SeqCst) => {
                let away = path.with_extension("away");
                std::fs::rename(path, &away).unwrap();
                let made = make();
                std::fs::rename(&away, path).unwrap();
                return made;
            }
            Change::SyncDirectory { .. } => self.seen.lock().unwrap().push("sync".to_owned()),
            Change::Remove { path } => {
                let name = path.file_name().unwrap().to_str().unwrap();
                self.seen.lock().unwrap().push(name.to_owned());
            }
            _ => {}
        }
        make()
    }
}

fn with_notes(site: &Site) -> (BufferPool, Arc<Notes>) {
    let notes = Arc::new(Notes::default());
    let volume = Volume::over(Arc::<Notes>::clone(&notes));
    let main = Tablespace::new("main", site.path("main")).segment_size(4 * PAGE).volume(volume);
    (Site::bare(32).tablespace(main).build().unwrap(), notes)
}

/// The segments are removed, but the directory cannot be opened, as in a process with too many open files.
#[test]
fn seg_3_removals_that_were_not_made_durable_are_before_a_file_counts_as_cut() {
    type Ends = fn(&PagedFile) -> Result<(), Error>;
    let ends: [Ends; 3] =
        [|file| file.truncate(2), PagedFile::sync, |file| file.extend(1).map(drop)];
    for end in ends {
        let site = Site::new();
        let (pool, notes) = with_notes(&site);
        let file = numbered(&pool, "t", 10, 100);
        notes.hides.store(true, Ordering::SeqCst);
        let error = file.truncate(2).unwrap_err();
        assert!(matches!(error, Error::Io(forebay_io::Error::Open { .. })), "{error}");
        notes.seen.lock().unwrap().clear();
        end(&file).unwrap();
        assert_eq!(*notes.seen.lock().unwrap(), ["sync"], "[SEG-3]");
    }
}

/// A power cut may leave any subset of the removals that are not durable: none leaves a segment without the first, and
/// so without a name that can be opened.
#[test]
fn seg_1_a_files_first_segment_is_removed_when_the_others_are_durably_removed() {
    let site = Site::new();
    let (pool, notes) = with_notes(&site);
    let file = numbered(&pool, "t", 10, 100);
    notes.seen.lock().unwrap().clear();
    file.drop_file().unwrap();
    assert_eq!(*notes.seen.lock().unwrap(), ["t.2", "t.1", "sync", "t", "sync"], "[SEG-1]");
}

/// Pages that were written are made durable even if the file is still too long.
#[test]
fn what_has_been_written_is_synced_where_a_truncation_has_failed() {
    let site = Site::new();
    let pool = pool_of_segments(&site, 4);
    let file = numbered(&pool, "t", 10, 100);
    std::fs::remove_file(site.path("main/t.2")).unwrap();
    std::fs::create_dir(site.path("main/t.2")).unwrap();
    file.truncate(2).unwrap_err();
    write(&file, 0, 7);
    let before = pool.stats().pool.syncs;
    pool.flush_and_sync().unwrap_err();
    assert_eq!(pool.stats().pool.syncs - before, 3);
    std::fs::remove_dir(site.path("main/t.2")).unwrap();
}

/// A power cut may undo any of a truncation's removals: here that of `t.2` is lost.
#[test]
fn seg_3_segments_behind_a_hole_do_not_come_back() {
    let site = Site::new();
    let pool = pool_of_segments(&site, 4);
    numbered(&pool, "t", 12, 100);
    pool.close().unwrap();
    std::fs::remove_file(site.path("main/t.1")).unwrap();
    for (count, blocks) in [(2, 6), (2, 8), (4, 12)] {
        let pool = pool_of_segments(&site, 4);
        let file = pool.open_file("t", &FileOptions::new()).unwrap();
        file.extend(count).unwrap();
        pool.close().unwrap();
        let pool = pool_of_segments(&site, 4);
        let file = pool.open_file("t", &FileOptions::new()).unwrap();
        assert_eq!(file.blocks(), blocks, "[SEG-3]");
        let expected = (0..blocks).map(|at| if at < 4 { 100 + u64::from(at) } else { 0 });
        assert!((0..blocks).map(|block| read(&file, block)).eq(expected), "[SEG-3]");
        pool.close().unwrap();
    }
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

#[test]
fn a_segment_is_not_opened_as_a_separate_file() {
    let site = Site::new();
    let pool = pool_of_segments(&site, 4);
    let file = numbered(&pool, "t", 6, 0);
    write(&file, 5, 50);
    if let Ok(other) = pool.open_file("t.1", &create()) {
        assert_ne!(other.blocks(), 2, "the second segment of `t`, with other pages");
    }
}
