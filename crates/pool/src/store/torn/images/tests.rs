//! One image for each page and redo point, whichever thread writes the page and however often it is evicted and
//! reloaded.

use std::collections::HashMap;
use std::error::Error as StdError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::{Block, BufferPool, Checksum, FileOptions, Lsn, PageImage, PagedFile, TornPages, Wal};

/// A log that counts images of pages.
#[derive(Debug, Default)]
struct Log {
    last: AtomicU64,
    flushed: AtomicU64,
    refuses_to_flush: AtomicBool,
    images: Mutex<HashMap<(String, Block), u64>>,
}

impl Log {
    /// How many images of each page there were since the last call.
    fn images(&self, file: &PagedFile) -> Vec<u64> {
        let mut images = self.images.lock().unwrap();
        let name = file.path().file_name().unwrap().to_str().unwrap().to_owned();
        let counts = (0..file.blocks()).map(|at| images.remove(&(name.clone(), at)).unwrap_or(0));
        counts.collect()
    }
}

impl Wal for Log {
    fn flush_to(&self, lsn: Lsn) -> Result<(), Box<dyn StdError + Send + Sync>> {
        if self.refuses_to_flush.load(Ordering::SeqCst) {
            return Err("not now".into());
        }
        self.flushed.fetch_max(lsn.0, Ordering::SeqCst);
        Ok(())
    }

    fn position(&self) -> Lsn {
        Lsn(self.last.load(Ordering::SeqCst))
    }

    fn flushed(&self) -> Lsn {
        Lsn(self.flushed.load(Ordering::SeqCst))
    }

    fn append_image(&self, image: &PageImage<'_>) -> Result<Lsn, Box<dyn StdError + Send + Sync>> {
        *self.images.lock().unwrap().entry((image.file.to_owned(), image.block)).or_default() += 1;
        Ok(Lsn(self.last.fetch_add(1, Ordering::SeqCst) + 1))
    }
}

fn pool(frames: u64) -> (tempfile::TempDir, BufferPool, Arc<Log>) {
    let directory = tempfile::tempdir().unwrap();
    let log = Arc::new(Log::default());
    let pool = BufferPool::builder()
        .frames(frames)
        .page_size(4096)
        .directory(directory.path())
        .checksum(Checksum::Crc32c { offset: 0 })
        .wal(Arc::clone(&log) as Arc<dyn Wal>)
        .torn_pages(TornPages::Images)
        .build()
        .unwrap();
    (directory, pool, log)
}

fn open(pool: &BufferPool, blocks: Block) -> PagedFile {
    let file = pool.open_file("table", &FileOptions::new().create(true)).unwrap();
    file.extend(blocks).unwrap();
    file
}

fn change(file: &PagedFile, block: Block) {
    let mut page = file.write(block).unwrap();
    page[100] = page[100].wrapping_add(1);
    page.mark_dirty(Lsn::NONE);
}

#[test]
fn img_1_a_page_has_one_image_for_each_redo_point_however_often_it_is_evicted() {
    let (_directory, pool, log) = pool(8);
    let file = open(&pool, 100);
    for redo in 0..4 {
        for round in 0..5 {
            (0..100).for_each(|block| change(&file, block));
            if round == 3 {
                file.flush_file().unwrap();
            }
        }
        file.flush_file().unwrap();
        assert_eq!(log.images(&file), [1; 100], "[IMG-1] redo point {redo}");
        file.core().redo.begin();
    }
    assert_eq!(log.flushed(), Lsn(400), "[IMG-1]");
}

#[test]
fn img_1_only_pages_that_are_written_have_images() {
    let (_directory, pool, log) = pool(64);
    let file = open(&pool, 40);
    (0..20).for_each(|block| change(&file, block));
    file.flush_file().unwrap();
    log.images(&file);
    file.core().redo.begin();
    (10..30).for_each(|block| change(&file, block));
    file.flush_file().unwrap();
    let expected: Vec<u64> = (0..40).map(|block| u64::from((10..30).contains(&block))).collect();
    assert_eq!(log.images(&file), expected, "[IMG-1]");
}

#[test]
fn img_2_an_image_whose_log_was_not_flushed_is_logged_again() {
    let (_directory, pool, log) = pool(64);
    let file = open(&pool, 3);
    (0..3).for_each(|block| change(&file, block));
    log.refuses_to_flush.store(true, Ordering::SeqCst);
    let error = file.flush_file().unwrap_err();
    assert!(matches!(error, crate::Error::Log { lsn: Lsn(3), .. }), "{error}");
    assert_eq!(pool.stats().frames_dirty, 3, "[OUT-2]");
    log.refuses_to_flush.store(false, Ordering::SeqCst);
    file.flush_file().unwrap();
    assert_eq!((log.images(&file), log.flushed()), (vec![2; 3], Lsn(6)), "[IMG-2]");
}

#[test]
fn a_page_that_replaces_one_that_was_cut_off_has_a_separate_image() {
    let (_directory, pool, log) = pool(64);
    let file = open(&pool, 10);
    (0..10).for_each(|block| change(&file, block));
    file.flush_file().unwrap();
    log.images(&file);
    file.truncate(4).unwrap();
    file.extend(6).unwrap();
    (0..10).for_each(|block| change(&file, block));
    file.flush_file().unwrap();
    assert_eq!(log.images(&file), [0, 0, 0, 0, 1, 1, 1, 1, 1, 1], "[IMG-1]");
}

/// [RDO-1] Checkpoints start in the middle of writes; each page they leave to others has an image that is newer than
/// their redo point.
#[test]
fn rdo_1_a_write_that_a_checkpoint_does_not_see_has_an_image_after_its_redo_point() {
    let (_directory, pool, log) = pool(16);
    let file = open(&pool, 60);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (file, done) = (&file, &done);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(thread);
                while !done.load(Ordering::SeqCst) {
                    change(file, random.u32(..60));
                }
            });
        }
        for _ in 0..30 {
            // As a checkpoint does: the log's position, the number, then every page.
            log.images.lock().unwrap().clear();
            let number = file.core().redo.begin();
            let mut written = 0;
            for (_, frame) in file.core().cache.frames.iter() {
                let word = frame.word();
                written += u32::from(word.has(crate::cache::frame::word::WRITING));
            }
            file.flush_file().unwrap();
            // A thread that used the old number has ended by now: the recorded images are of this one, and logged.
            let images = log.images.lock().unwrap();
            for block in 0..60 {
                let deferred = file.file().table.has_image(block, number);
                let logged = images.contains_key(&("table".to_owned(), block));
                assert!(!deferred || logged, "[RDO-1] block {block}, {written} were seen");
            }
        }
        done.store(true, Ordering::SeqCst);
    });
}
