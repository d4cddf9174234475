//! Explicit prefetch: what is requested, which thread completes it, and that no frame is kept for reads that no thread
//! completes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use forebay::{FileOptions, ReadaheadStrategy, Tablespace};
use forebay_io::{CacheMode, Kind, OsError, Prefer};

use super::faults::{covers, damage};
use super::{FIRST, KINDS, Stage, assert_says, assert_settled, is_past_end, stage};
use crate::disk::Fault;
use crate::site::{Ends, PAGE, Site, create, is_io, numbered, reopened, skip, wait_until};

/// Number of pages being read, and of pins.
fn under_way(stage: &Stage) -> (usize, u64) {
    let view = stage.pool.view();
    let reading = view.iter().filter(|frame| frame.reading).count();
    (reading, view.iter().map(|frame| frame.pins).sum())
}

#[test]
fn what_is_named_is_requested_in_few_requests_without_a_wait_or_a_pin() {
    let site = Site::new();
    for kind in KINDS {
        let Some(stage) = stage(&site, kind, 256, 100) else { continue };
        assert_says(&stage.file.read(50).unwrap(), 50);
        stage.dam.forget();
        let before = stage.pool.stats();
        stage.dam.keep_back(|_| true);
        let blocks = [9, 50, 7, 8, 99, 100, 7, 4_000_000, 60];
        assert_eq!(stage.file.prefetch(&blocks), 5, "{kind}: 7, 8, 9, 60, 99");
        assert_eq!(under_way(&stage), (5, 0), "{kind}");
        assert_eq!(stage.dam.waiting(), 3, "{kind}: [7..=9], [60], [99]");
        assert_eq!(stage.file.prefetch(&blocks), 0, "{kind}: they are on their way");
        thread::scope(|scope| {
            let reader = scope.spawn(|| assert_says(&stage.file.read(8).unwrap(), 8));
            stage.dam.open();
            reader.join().unwrap();
        });
        stage.dam.io().drain();
        stage.dam.forget();
        let plain = stage.file.with_readahead(ReadaheadStrategy::Os);
        for block in [7, 8, 9, 60, 99] {
            assert!(plain.is_resident(block), "{kind}");
            assert_says(&plain.read(block).unwrap(), block);
        }
        assert_eq!(stage.dam.reads(), [], "{kind}");
        let stats = stage.pool.stats().since(&before);
        assert_eq!((stats.total().prefetches, stats.total().misses), (5, 0), "{kind}");
        assert_eq!(stats.pool.prefetches_useful, 5, "{kind}");
        assert_settled(&stage);
    }
}

#[test]
fn bud_1_no_more_than_a_quarter_of_the_pool_is_on_its_way_and_the_budget_comes_back() {
    let site = Site::new();
    for kind in KINDS {
        let Some(stage) = stage(&site, kind, 64, 400) else { continue };
        stage.dam.keep_back(|_| true);
        let every: Vec<u32> = (0..400).step_by(3).collect();
        assert_eq!(stage.file.prefetch(&every), 16, "[BUD-1] {kind}");
        assert_eq!(stage.file.prefetch(&every[50..]), 0, "[BUD-1] {kind}");
        assert_eq!(under_way(&stage), (16, 0), "[BUD-1] {kind}");
        stage.dam.open();
        stage.dam.io().drain();
        stage.dam.rule(|_| Fault::Fail(OsError::EIO));
        // Failed reads return it as well.
        for _ in 0..3 {
            assert_eq!(stage.file.prefetch(&every[20..]), 16, "[PRE-1] {kind}");
            stage.dam.io().drain();
        }
        stage.dam.rule(|_| Fault::None);
        assert_eq!(stage.file.prefetch(&every[20..]), 16, "[PRE-1] {kind}");
        stage.dam.io().drain();
        assert_settled(&stage);
    }
}

/// No thread drives the queue: plain reads use another one, and hits use none.
#[test]
fn pre_2_frames_of_a_prefetch_that_no_thread_drives_come_back_when_frames_are_short() {
    for kind in [Kind::Uring, Kind::Aio, Kind::Sync] {
        let site = Site::new();
        let main = Tablespace::new("main", site.path("main")).cache(CacheMode::Direct);
        let builder = Site::bare(32).cleaner(false).backend(Prefer::Only(kind));
        let opened = builder.tablespace(main).build();
        let opened = opened.and_then(|pool| pool.open_file("probe", &create()).map(|_| pool));
        let pool = match opened {
            Ok(pool) => pool,
            Err(error) => {
                skip(&format!("prefetch over {kind}"), &error.to_string());
                continue;
            }
        };
        let file = reopened(&pool, numbered(&pool, "table", 200, FIRST));
        let file = file.with_readahead(ReadaheadStrategy::Os);
        let under_way = || pool.view().iter().filter(|frame| frame.reading).count();
        let scattered: Vec<u32> = (0..16).step_by(2).collect();
        assert_eq!(file.prefetch(&scattered), 8);
        (30..54).for_each(|block| assert_says(&file.read(block).unwrap(), block));
        // With kernel backends they may have completed during submission.
        let left = under_way();
        assert!(
            left == 8 || kind != Kind::Sync,
            "{left}: no thread drives, and there were frames for all"
        );
        // From here on a page must be evicted for each one that is read.
        wait_until("what was prefetched to be taken in", || {
            (60..76).for_each(|block| assert_says(&file.read(block).unwrap(), block));
            (80..96).for_each(|block| assert_says(&file.read(block).unwrap(), block));
            under_way() == 0
        });
        // They are pages like any others, and can be evicted.
        (100..164).for_each(|block| assert_says(&file.read(block).unwrap(), block));
        assert!(scattered.iter().all(|&block| !file.is_resident(block)), "[PRE-2] {kind}");
        pool.close().unwrap();
    }
}

/// A stream of another tablespace does not drive that queue; it still gets its pins back.
#[test]
fn a_prefetch_that_no_thread_drives_does_not_keep_streams_from_looking_ahead() {
    let site = Site::new();
    let other = Tablespace::new("other", site.path("other"));
    let main = super::dam::Dam::over(&site, Kind::Sync, CacheMode::Buffered).unwrap();
    let space = Tablespace::new("main", site.path("main")).io(main.io());
    let pool = Site::bare(256).cleaner(false).tablespace(space).tablespace(other).build().unwrap();
    let named = reopened(&pool, numbered(&pool, "named", 128, FIRST));
    let options = FileOptions::new().tablespace("other").create(true);
    let streamed = pool.open_file("streamed", &options).unwrap();
    streamed.extend(400).unwrap();
    let far: Vec<u32> = (0..128).step_by(2).collect();
    assert_eq!(named.prefetch(&far), 64, "the whole budget");
    // There are frames for all of these, so no reader searches for one.
    let blocks: Vec<u32> = (0..100).collect();
    let pins = streamed.read_many(&blocks).map(|page| {
        assert!(page.is_ok());
        pool.view().iter().map(|frame| frame.pins).sum::<u64>()
    });
    assert!(pins.max() >= Some(2), "[BUD-1] none but the caller's own");
    // Otherwise the close on a busy machine gives up before it has read the prefetched pages.
    main.io().drain();
    pool.close().unwrap();
}

#[test]
fn a_page_that_cannot_be_had_is_nobodys_error_until_it_is_read() {
    let site = Site::new();
    for kind in KINDS {
        let Some(stage) = stage(&site, kind, 256, 100) else { continue };
        damage(&stage, 21);
        stage.dam.rule(|it| if covers(it, 9) { Fault::Fail(OsError::EIO) } else { Fault::None });
        assert_eq!(stage.file.prefetch(&[8, 9, 10, 20, 21, 22]), 6, "{kind}");
        stage.dam.io().drain();
        let here: Vec<u32> = (0..100).filter(|&block| stage.file.is_resident(block)).collect();
        assert_eq!(here, [20, 22], "[CPL-2] {kind}");
        assert!(is_io(&stage.file.read(9).unwrap_err(), OsError::EIO), "{kind}");
        assert!(matches!(stage.file.read(21), Err(forebay::Error::Corrupt { block: 21, .. })));
        for block in [8, 10, 20, 22] {
            assert_says(&stage.file.read(block).unwrap(), block);
        }
        stage.dam.rule(|_| Fault::None);
        assert_settled(&stage);
    }
}

#[test]
fn a_file_is_cut_off_and_closed_and_a_pool_ends_with_prefetches_that_no_thread_drives() {
    for kind in KINDS {
        let site = Site::new();
        let Some(stage) = stage(&site, kind, 256, 100) else { continue };
        let scattered: Vec<u32> = (0..100).step_by(2).collect();
        assert_eq!(stage.file.prefetch(&scattered), 50, "{kind}");
        stage.file.truncate(50).unwrap();
        assert!(is_past_end(&stage.file.read(50).unwrap_err()), "{kind}");
        assert_eq!(stage.file.prefetch(&[98]), 0, "{kind}");
        stage.file.close().unwrap();
        assert_eq!(stage.file.prefetch(&scattered), 0, "{kind}: it is closed");
        let file = stage.pool.open_file("table", &FileOptions::new()).unwrap();
        assert_eq!(file.prefetch(&scattered), 25, "{kind}");
        assert_settled(&stage);
        drop(file);
        let site = Site::new();
        let Some(Stage { dam, file, pool }) = super::stage(&site, kind, 256, 100) else { return };
        assert_eq!(file.prefetch(&scattered), 50, "{kind}");
        drop((file, pool));
        assert_eq!(dam.io().in_flight(), 0, "{kind}: dropped, not closed");
    }
}

/// Over `sync` a request is in flight until a thread drives the queue; waiting for space would mean driving it.
#[test]
fn a_full_queue_is_not_waited_for() {
    let site = Site::new();
    let Some(stage) = stage(&site, Kind::Sync, 4096, 1000) else { return };
    let scattered: Vec<u32> = (0..1000).step_by(2).collect();
    let depth = stage.dam.io().queue_depth() as u32;
    assert_eq!(stage.file.prefetch(&scattered), depth);
    assert_eq!(
        stage.file.prefetch(&scattered),
        1,
        "what has ended is taken in: a look executes one"
    );
    assert_eq!(under_way(&stage), (depth as usize, 0));
    stage.dam.io().drain();
    assert_eq!(stage.file.prefetch(&scattered), 500 - depth - 1);
    stage.dam.io().drain();
    assert_eq!(stage.dam.blocks_read(PAGE).len(), 500, "[SUB-1] each once");
    assert_settled(&stage);
}

#[test]
fn many_threads_prefetch_and_read_the_same_blocks() {
    for kind in KINDS {
        let site = Site::new();
        let Some(stage) = stage(&site, kind, 64, 300) else { continue };
        let ended = AtomicBool::new(false);
        thread::scope(|scope| {
            let (file, ended) = (&stage.file, &ended);
            for seed in 0..3 {
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(seed);
                    while !ended.load(Ordering::SeqCst) {
                        let blocks: Vec<u32> = (0..20).map(|_| random.u32(..310)).collect();
                        assert!(file.prefetch(&blocks) <= 16, "[BUD-1]");
                    }
                });
            }
            let _ends = Ends(ended);
            let readers: Vec<_> = (10..12)
                .map(|seed| {
                    scope.spawn(move || {
                        let mut random = fastrand::Rng::with_seed(seed);
                        for _ in 0..600 {
                            let block = random.u32(..300);
                            assert_says(&file.read(block).unwrap(), block);
                        }
                    })
                })
                .collect();
            readers.into_iter().for_each(|reader| reader.join().unwrap());
        });
        assert_settled(&stage);
    }
}
