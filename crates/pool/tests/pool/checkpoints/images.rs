//! Page images during checkpoints: the image from which recovery restores a torn page contains every change that is
//! before the redo point.

use std::error::Error as StdError;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use forebay::{
    BufferPool, CheckpointOptions, Error, Lsn, PageImage, PagedFile, Phase, TornPages, Wal,
};

use crate::site::{Site, create, fill, number_in, on_disk, wait_until};

type Failure = Box<dyn StdError + Send + Sync>;

/// A log that keeps images, and whose flushes block on command.
#[derive(Debug, Default)]
struct Log {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    last: u64,
    flushed: u64,
    held: bool,
    refuses: bool,
    waiting: usize,
    /// LSN and block of each image, and the LSN of the newest change that is in it.
    images: Vec<(u64, u32, u64)>,
}

impl Log {
    fn append(&self) -> Lsn {
        let mut state = self.state.lock().unwrap();
        state.last += 1;
        Lsn(state.last)
    }

    fn hold(&self, held: bool) {
        self.state.lock().unwrap().held = held;
        self.changed.notify_all();
    }

    fn is_waited_for(&self) -> bool {
        self.state.lock().unwrap().waiting > 0
    }

    /// The LSN in the newest image of the block after `redo`.
    fn newest_image(&self, block: u32, redo: Lsn) -> Option<u64> {
        let state = self.state.lock().unwrap();
        let after = |it: &&(u64, u32, u64)| it.0 > redo.0 && it.1 == block;
        state.images.iter().filter(after).max().map(|it| it.2)
    }
}

impl Wal for Log {
    fn flush_to(&self, lsn: Lsn) -> Result<(), Failure> {
        let mut state = self.state.lock().unwrap();
        state.waiting += 1;
        let mut state = self.changed.wait_while(state, |state| state.held).unwrap();
        state.waiting -= 1;
        state.flushed = state.flushed.max(lsn.0);
        Ok(())
    }

    fn flushed(&self) -> Lsn {
        Lsn(self.state.lock().unwrap().flushed)
    }

    fn position(&self) -> Lsn {
        Lsn(self.state.lock().unwrap().last)
    }

    fn append_image(&self, image: &PageImage<'_>) -> Result<Lsn, Failure> {
        if self.state.lock().unwrap().refuses {
            return Err("the log is full".into());
        }
        let lsn = self.append();
        let says = number_in(image.bytes);
        self.state.lock().unwrap().images.push((lsn.0, image.block, says));
        Ok(lsn)
    }
}

fn logged(site: &Site) -> (BufferPool, Arc<Log>, PagedFile) {
    let log = Arc::new(Log::default());
    let wal = Arc::clone(&log) as Arc<dyn Wal>;
    let pool = site.builder(32).cleaner(false).torn_pages(TornPages::Images).wal(wal);
    let pool = pool.build().unwrap();
    let file = pool.open_file("table", &create()).unwrap();
    file.extend(8).unwrap();
    (pool, log, file)
}

fn change(file: &PagedFile, log: &Log, block: u32) -> Lsn {
    let mut page = file.write(block).unwrap();
    let lsn = log.append();
    fill(&mut page, lsn.0);
    page.mark_dirty(lsn);
    lsn
}

#[test]
fn a_copy_from_before_the_redo_point_gives_no_image_for_it() {
    let site = Site::new();
    let (pool, log, file) = logged(&site);
    change(&file, &log, 3);
    log.hold(true);
    thread::scope(|scope| {
        let flush = scope.spawn(|| file.flush_file());
        wait_until("a page to be copied", || log.is_waited_for());
        // Not in the copy, and before the redo point: from then on it is not in the replayed log.
        let before = change(&file, &log, 3);
        let checkpoint = pool.start_checkpoint(CheckpointOptions::now()).unwrap();
        let writes = |phase| matches!(phase, Phase::Writing);
        wait_until("a checkpoint to look at all frames", || {
            checkpoint.progress().is_some_and(|it| writes(it.phase))
        });
        log.hold(false);
        flush.join().unwrap().unwrap();
        let redo = checkpoint.wait().unwrap().redo;
        assert!(redo >= before);
        // A later write may be torn, and recovery begins at that redo point.
        change(&file, &log, 3);
        file.flush_file().unwrap();
        let image = log.newest_image(3, redo).expect("[IMG-1] an image after the redo point");
        assert!(image >= before.0, "[IMG-1] the image knows changes up to {image}, not {before}");
    });
}
#[test]
fn every_page_that_a_checkpoint_writes_has_an_image_first() {
    let site = Site::new();
    let (pool, log, file) = logged(&site);
    for _ in 0..3 {
        let lsns: Vec<Lsn> = (0..8).map(|block| change(&file, &log, block)).collect();
        let before = log.position();
        pool.checkpoint(CheckpointOptions::now()).unwrap();
        for (block, lsn) in (0..8).zip(lsns) {
            assert_eq!(log.newest_image(block, before), Some(lsn.0), "[IMG-1] block {block}");
        }
    }
}

#[test]
fn a_log_that_takes_no_image_fails_the_checkpoint_and_nothing_is_written() {
    let site = Site::new();
    let (pool, log, file) = logged(&site);
    let lsns: Vec<u64> = (0..8).map(|block| change(&file, &log, block).0).collect();
    log.state.lock().unwrap().refuses = true;
    let error = pool.checkpoint(CheckpointOptions::now()).unwrap_err();
    let Error::Checkpoint { failed, report } = error else {
        panic!("{error}");
    };
    assert!(matches!(&failed[..], [(_, Error::Image { .. })]), "{failed:?}");
    assert_eq!((report.pages, pool.stats().frames_dirty), (0, 8), "[OUT-2]");
    assert!((0..8).all(|block| on_disk(&file, block) == 0), "[IMG-1]");

    log.state.lock().unwrap().refuses = false;
    assert_eq!(pool.checkpoint(CheckpointOptions::now()).unwrap().pages, 8);
    let found: Vec<u64> = (0..8).map(|block| on_disk(&file, block)).collect();
    assert_eq!(found, lsns);
}
