//! Images: the log contains an image of each page before a write may tear the page.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use forebay::{
    BufferPool, CheckpointOptions, Checksum, Error, FileOptions, Lsn, PageImage, PagedFile,
    ReadaheadStrategy, Tablespace, TornPages, Wal,
};
use forebay_io::{Op, OsError};

use crate::disk::Disk;
use crate::site::{PAGE, SUMS, Site, create, fill, is_dirty, number_in, on_disk, read, reopened};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A log of images, and of changes that are only numbers.
#[derive(Debug, Default)]
struct Log {
    state: Mutex<State>,
    refuses: AtomicBool,
    appended: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    last: u64,
    flushed: u64,
    /// By file and block: the contents of the newest image, and its LSN.
    images: BTreeMap<(String, u32), (Vec<u8>, u64)>,
}

impl Log {
    fn record(&self) -> Lsn {
        let mut state = self.state.lock().unwrap();
        state.last += 1;
        Lsn(state.last)
    }

    /// The newest image of a page, if the log is durable up to it.
    fn durable_image(&self, file: &str, block: u32) -> Option<Vec<u8>> {
        let state = self.state.lock().unwrap();
        let (bytes, lsn) = state.images.get(&(file.to_owned(), block))?;
        (*lsn <= state.flushed).then(|| bytes.clone())
    }
}

impl Wal for Log {
    fn flush_to(&self, lsn: Lsn) -> Result<(), Failure> {
        let mut state = self.state.lock().unwrap();
        assert!(lsn.0 <= state.last, "it is flushed no further than it goes");
        state.flushed = state.flushed.max(lsn.0);
        Ok(())
    }

    fn position(&self) -> Lsn {
        Lsn(self.state.lock().unwrap().last)
    }

    fn flushed(&self) -> Lsn {
        Lsn(self.state.lock().unwrap().flushed)
    }

    fn append_image(&self, image: &PageImage<'_>) -> Result<Lsn, Failure> {
        if self.refuses.load(Ordering::SeqCst) {
            return Err("the log is full".into());
        }
        assert_eq!(image.tablespace, "main");
        self.appended.fetch_add(1, Ordering::SeqCst);
        let lsn = self.record();
        let place = (image.file.to_owned(), image.block);
        self.state.lock().unwrap().images.insert(place, (image.bytes.to_vec(), lsn.0));
        Ok(lsn)
    }
}

/// The numbers in pages that reached the disk without an image.
type Bare = Arc<Mutex<Vec<u64>>>;

/// A pool that logs images, over a disk that checks for the image of each page written.
fn logged(site: &Site, frames: u64) -> (BufferPool, Arc<Disk>, Arc<Log>, Bare) {
    let (log, bare) = (Arc::new(Log::default()), Arc::new(Mutex::new(Vec::new())));
    let (known, found) = (Arc::clone(&log), Arc::clone(&bare));
    let (io, disk) = Disk::watched(move |it| {
        if it.op() != Op::Write {
            return;
        }
        let bytes: Vec<u8> = it.slices().iter().flat_map(|slice| slice.to_vec()).collect();
        let name = it.file().path().file_name().unwrap().to_str().unwrap().to_owned();
        for (block, page) in (it.position() / PAGE as u64..).zip(bytes.chunks(PAGE)) {
            let block = block as u32;
            let image = known.durable_image(&name, block);
            // The first page written after the image was logged is identical to the image.
            if image.is_none_or(|image| !SUMS.matches(&image, block, forebay::ZeroPages::Refuse)) {
                found.lock().unwrap().push(number_in(page));
            }
        }
    });
    let main = Tablespace::new("main", site.path("main")).io(io);
    let pool = Site::bare(frames).cleaner(false).readahead(ReadaheadStrategy::Os).tablespace(main);
    let pool = pool.torn_pages(TornPages::Images).wal(Arc::clone(&log) as Arc<dyn Wal>);
    (pool.build().unwrap(), disk, log, bare)
}

fn change(file: &PagedFile, log: &Log, block: u32) -> u64 {
    let mut page = file.write(block).unwrap();
    let lsn = log.record();
    fill(&mut page, lsn.0);
    page.mark_dirty(lsn);
    lsn.0
}

fn table(pool: &BufferPool, blocks: u32) -> PagedFile {
    let file = pool.open_file("table", &create()).unwrap();
    file.extend(blocks).unwrap();
    file
}

#[test]
fn every_page_has_a_durable_image_before_its_first_write() {
    let site = Site::new();
    let (pool, disk, log, bare) = logged(&site, 8);
    let file = table(&pool, 30);
    let mut random = fastrand::Rng::with_seed(3);
    for _ in 0..600 {
        change(&file, &log, random.u32(..30));
        if random.u8(..) < 4 {
            file.flush_file().unwrap();
        }
    }
    file.flush_file().unwrap();
    assert_eq!(*bare.lock().unwrap(), [], "[IMG-1]");
    assert_eq!(log.appended.load(Ordering::SeqCst), 30, "[IMG-1] one for each page");
    assert!(disk.count(Op::Write) > 100);
}

#[test]
fn a_log_that_takes_no_image_leaves_the_page_dirty_and_unwritten() {
    let site = Site::new();
    let (pool, disk, log, bare) = logged(&site, 16);
    let file = table(&pool, 4);
    let number = change(&file, &log, 2);
    log.refuses.store(true, Ordering::SeqCst);
    for _ in 0..2 {
        let error = file.flush_file().unwrap_err();
        assert!(matches!(&error, Error::Image { block: 2, .. }), "{error}");
        assert!(error.to_string().contains("the log is full; the page stays dirty"), "{error}");
        assert!(is_dirty(&pool, 2) && disk.count(Op::Write) == 0, "[OUT-2]");
    }
    assert_eq!(pool.stats().pool.log_errors, 2);
    log.refuses.store(false, Ordering::SeqCst);
    assert_eq!(file.flush_file().unwrap(), 1);
    assert_eq!((on_disk(&file, 2), bare.lock().unwrap().len()), (number, 0));
    // From now on the log may be full: the page has its image.
    log.refuses.store(true, Ordering::SeqCst);
    let number = change(&file, &log, 2);
    file.flush_file().unwrap();
    assert_eq!(on_disk(&file, 2), number);
}

#[test]
fn a_page_whose_write_failed_has_its_image_already() {
    let site = Site::new();
    let (pool, disk, log, _) = logged(&site, 16);
    let file = table(&pool, 4);
    change(&file, &log, 1);
    disk.fail(Op::Write, OsError::ENOSPC);
    file.flush_file().unwrap_err();
    disk.heal();
    file.flush_file().unwrap();
    assert_eq!(log.appended.load(Ordering::SeqCst), 1);
    change(&file, &log, 1);
    let file = reopened(&pool, file);
    assert_eq!(log.appended.load(Ordering::SeqCst), 1);
    // A file that was closed and reopened has no record of it, and logs another image.
    let number = change(&file, &log, 1);
    file.flush_file().unwrap();
    assert_eq!((log.appended.load(Ordering::SeqCst), read(&file, 1)), (2, number));
}

#[test]
fn images_need_a_log_with_images_and_checksums() {
    let site = Site::new();
    let builder = || site.builder(16).torn_pages(TornPages::Images);
    let error = builder().build().unwrap_err();
    assert!(matches!(&error, Error::Setting { setting: "torn pages", .. }), "{error}");
    assert!(!site.path("main").exists(), "nothing is made before all is checked");

    /// A log without support for images.
    #[derive(Debug)]
    struct Plain;
    impl Wal for Plain {
        fn flush_to(&self, _: Lsn) -> Result<(), Failure> {
            Ok(())
        }
        fn position(&self) -> Lsn {
            Lsn::NONE
        }
        fn flushed(&self) -> Lsn {
            Lsn(u64::MAX)
        }
    }
    let pool = builder().wal(Arc::new(Plain)).build().unwrap();
    let file = table(&pool, 1);
    fill(&mut file.write(0).unwrap(), 7);
    let error = file.flush_file().unwrap_err();
    assert!(error.to_string().contains("implement `Wal::append_image`"), "{error}");
    let bare = create().checksum(Checksum::Off);
    let error = pool.open_file("other", &bare).unwrap_err();
    assert!(error.to_string().contains("the checksum is off"), "{error}");
    file.truncate(0).unwrap();
}

#[test]
fn a_file_that_is_only_read_logs_nothing() {
    let site = Site::new();
    let (pool, _disk, log, _) = logged(&site, 16);
    let file = table(&pool, 4);
    change(&file, &log, 0);
    file.close().unwrap();
    let before = log.appended.load(Ordering::SeqCst);
    let file = pool.open_file("table", &FileOptions::new().read_only(true)).unwrap();
    (0..4).for_each(|block| drop(file.read(block).unwrap()));
    pool.close().unwrap();
    assert_eq!(log.appended.load(Ordering::SeqCst), before);
}

/// Every page that is written after a checkpoint began has another image, and no other page does.
#[test]
fn each_checkpoint_requires_new_images() {
    let site = Site::new();
    let (pool, _disk, log, bare) = logged(&site, 64);
    let file = table(&pool, 40);
    let images = || log.appended.swap(0, Ordering::SeqCst);
    (0..40).for_each(|block| _ = change(&file, &log, block));
    pool.checkpoint(CheckpointOptions::now()).unwrap();
    // The first checkpoint writes them under its own number.
    assert_eq!(images(), 40);
    (0..10).for_each(|block| _ = change(&file, &log, block));
    file.flush_file().unwrap();
    assert_eq!(images(), 0, "[IMG-1]");
    (5..20).for_each(|block| _ = change(&file, &log, block));
    pool.checkpoint(CheckpointOptions::now()).unwrap();
    assert_eq!(images(), 15, "[IMG-1]");
    (0..20).for_each(|block| _ = change(&file, &log, block));
    file.flush_file().unwrap();
    assert_eq!((images(), bare.lock().unwrap().len()), (5, 0), "[IMG-1]");
}
