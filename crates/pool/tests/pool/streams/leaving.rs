//! Streams that are paused, reset and dropped: with reads in flight, and with no thread left to drive them.

use std::thread;
use std::time::Duration;

use forebay::{BufferPool, Error, FileOptions, PagedFile, ReadaheadStrategy, Tablespace};
use forebay_io::{CacheMode, Kind, Prefer};

use super::dam::Dam;
use super::{FIRST, KINDS, Stage, ahead, assert_says, assert_settled, is_past_end, stage};
use crate::site::{PAGE, SHORT, SUMS, Site, numbered, reopened, skip, wait_until};

/// Blocks far from each other; the first one arrives while the others are held back.
const SCATTERED: [u32; 8] = [0, 10, 20, 30, 40, 50, 60, 70];

/// Long enough for a thread that should be blocked to make progress if it is not.
const MOMENT: Duration = Duration::from_millis(40);

/// Starts a stream over [`SCATTERED`], takes its first block and drops it; the other blocks are held back.
fn leave_seven_under_way(stage: &Stage) {
    stage.dam.keep_back_all_but_first();
    let mut stream = stage.file.stream_with(SCATTERED, &ahead());
    assert_says(&stream.next().unwrap().unwrap(), 0);
    assert_eq!(stage.dam.waiting(), 7);
}

#[test]
fn a_paused_stream_gives_what_it_knows_and_then_nothing_until_resumed() {
    let site = Site::new();
    for kind in KINDS {
        let Some(stage) = stage(&site, kind, 256, 200) else { continue };
        let mut stream = stage.file.stream_with(0..200, &ahead().distance(8));
        stream.pause();
        assert!(stream.next().is_none(), "{kind}: paused before the first block");
        stream.resume();
        let mut next = 0;
        for pause_after in [1, 2, 3, 7, 20] {
            for _ in 0..pause_after {
                assert_says(&stream.next().unwrap().unwrap(), next);
                next += 1;
            }
            stream.pause();
            let before = stream.stats().asked;
            for row in stream.by_ref() {
                assert_says(&row.unwrap(), next);
                next += 1;
            }
            assert!(stream.next().is_none(), "{kind}: paused");
            assert_eq!(stream.stats().asked, before, "{kind}: paused, and requests more");
            stream.resume();
        }
        for row in &mut stream {
            assert_says(&row.unwrap(), next);
            next += 1;
        }
        assert_eq!(next, 200, "[RS-2] {kind}");
        drop(stream);
        assert_settled(&stage);
    }
}

#[test]
fn a_reset_stream_gives_the_new_blocks_only_and_holds_no_old_pin() {
    let site = Site::new();
    for kind in KINDS {
        let Some(stage) = stage(&site, kind, 256, 640) else { continue };
        stage.dam.keep_back_all_but_first();
        let mut stream = stage.file.stream_with(SCATTERED.to_vec(), &ahead());
        assert_says(&stream.next().unwrap().unwrap(), 0);
        stream.reset(vec![0, 0, 0]);
        assert_eq!(stream.by_ref().map(|row| row.unwrap().page.block()).sum::<u32>(), 0);
        // The reads in flight hold no pins.
        let pins: u64 = stage.pool.view().iter().map(|frame| frame.pins).sum();
        assert!(pins == 0, "[RS-3] {kind}: {pins} pins");
        stage.dam.open();
        stage.dam.io().drain();
        let pins: u64 = stage.pool.view().iter().map(|frame| frame.pins).sum();
        assert_eq!(pins, 0, "[RS-3] {kind}");
        stream.reset(vec![600, 10, 601]);
        let blocks: Vec<u32> = stream.by_ref().map(|row| row.unwrap().page.block()).collect();
        assert_eq!(blocks, [600, 10, 601], "[RS-2] {kind}");
        stream.pause();
        stream.reset(vec![5]);
        assert_says(&stream.next().unwrap().unwrap(), 5);
        drop(stream);
        assert_settled(&stage);
    }
}

#[test]
fn what_a_dropped_stream_requested_lands_as_ordinary_pages() {
    let site = Site::new();
    for kind in KINDS {
        let Some(stage) = stage(&site, kind, 256, 640) else { continue };
        leave_seven_under_way(&stage);
        stage.dam.open();
        stage.dam.io().drain();
        assert!(SCATTERED.iter().all(|&block| stage.file.is_resident(block)), "{kind}");
        stage.dam.forget();
        let plain = stage.file.with_readahead(ReadaheadStrategy::Os);
        for block in SCATTERED {
            assert_says(&plain.read(block).unwrap(), block);
        }
        assert_eq!(stage.dam.reads(), [], "{kind}: they were there");
        assert_settled(&stage);
    }
}

#[test]
fn a_plain_read_takes_a_page_that_a_dropped_stream_left_under_way() {
    let site = Site::new();
    for kind in KINDS {
        let Some(stage) = stage(&site, kind, 256, 640) else { continue };
        leave_seven_under_way(&stage);
        thread::scope(|scope| {
            let plain = stage.file.with_readahead(ReadaheadStrategy::Os);
            let reader = scope.spawn(move || {
                for block in SCATTERED {
                    assert_says(&plain.read(block).unwrap(), block);
                }
            });
            thread::sleep(MOMENT);
            assert!(!reader.is_finished(), "{kind}: read what has not arrived");
            stage.dam.open();
            reader.join().unwrap();
        });
        let expected: Vec<u64> = SCATTERED.iter().map(|&block| u64::from(block)).collect();
        assert_eq!(stage.dam.blocks_read(PAGE), expected, "[SUB-1] {kind}: each once");
        assert_settled(&stage);
    }
}

/// Runs `work` on another thread while seven reads are in flight: it must wait for them.
fn waits_for_reads_under_way(stage: &Stage, what: &str, work: impl FnOnce() + Send) {
    leave_seven_under_way(stage);
    thread::scope(|scope| {
        let worker = scope.spawn(work);
        thread::sleep(MOMENT);
        assert!(!worker.is_finished(), "{what} did not wait for the reads");
        stage.dam.open();
        worker.join().unwrap();
    });
}

#[test]
fn a_truncation_waits_for_the_reads_under_way_and_no_page_comes_back() {
    let site = Site::new();
    for kind in KINDS {
        let Some(stage) = stage(&site, kind, 256, 640) else { continue };
        let file = stage.file.clone();
        waits_for_reads_under_way(&stage, "truncate", move || file.truncate(15).unwrap());
        let view = stage.pool.view();
        assert!(view.iter().all(|frame| frame.block < 15), "[RSZ-1] {kind}: {view:?}");
        assert!(is_past_end(&stage.file.read(20).unwrap_err()));
        stage.file.extend(100).unwrap();
        let page = stage.file.read(20).unwrap();
        assert!(page.iter().all(|byte| *byte == 0), "[RSZ-1] {kind}: a page from before the cut");
        drop(page);
        assert_settled(&stage);
    }
}

#[test]
fn dropping_a_file_waits_for_the_reads_under_way() {
    let site = Site::new();
    for kind in KINDS {
        let Some(stage) = stage(&site, kind, 256, 640) else { continue };
        let file = stage.file.clone();
        waits_for_reads_under_way(&stage, "drop_file", move || file.drop_file().unwrap());
        assert_eq!(stage.pool.view(), [], "{kind}");
        assert!(matches!(stage.file.read(0), Err(Error::Invalidated { .. })), "{kind}");
        assert_settled(&stage);
    }
}

#[test]
fn closing_waits_for_the_reads_under_way() {
    let site = Site::new();
    for kind in KINDS {
        let Some(stage) = stage(&site, kind, 256, 640) else { continue };
        let file = stage.file.clone();
        waits_for_reads_under_way(&stage, "close", move || file.close().unwrap());
        let stats = stage.pool.stats();
        assert_eq!(stats.frames_free, stats.frames, "{kind}");
        assert_settled(&stage);
    }
}

#[test]
fn a_pool_is_not_closed_over_reads_that_do_not_arrive_and_closes_when_they_have() {
    let site = Site::new();
    for kind in KINDS {
        let Ok(dam) = Dam::over(&site, kind, CacheMode::Buffered) else { continue };
        let main = Tablespace::new("main", site.path(&format!("close {kind}"))).io(dam.io());
        let pool =
            Site::bare(64).frame_wait(SHORT).cleaner(false).tablespace(main).build().unwrap();
        let file = reopened(&pool, numbered(&pool, "table", 640, FIRST));
        let stage = Stage { file, pool, dam };
        leave_seven_under_way(&stage);
        let busy = stage.pool.close().unwrap_err();
        assert!(matches!(busy, Error::Busy { pages: 7, .. }), "{kind}: {busy}");
        assert_says(&stage.file.read(0).unwrap(), 0);
        stage.dam.open();
        assert_settled(&stage);
    }
}

#[test]
fn dropping_the_pool_waits_for_the_reads_under_way() {
    let site = Site::new();
    for kind in KINDS {
        let Some(stage) = stage(&site, kind, 256, 640) else { continue };
        leave_seven_under_way(&stage);
        let Stage { file, pool, dam } = stage;
        let io = dam.io();
        thread::scope(|scope| {
            let dropper = scope.spawn(move || drop((file, pool)));
            thread::sleep(MOMENT);
            assert!(!dropper.is_finished(), "{kind}: dropped with reads in flight");
            dam.open();
            dropper.join().unwrap();
        });
        assert_eq!(io.in_flight(), 0, "{kind}");
    }
}

#[test]
fn a_file_cut_or_dropped_under_a_stream_fails_the_removed_blocks() {
    let site = Site::new();
    for kind in KINDS {
        let Some(stage) = stage(&site, kind, 256, 200) else { continue };
        let mut stream = stage.file.stream_with(0..200, &ahead());
        for block in 0..5 {
            assert_says(&stream.next().unwrap().unwrap(), block);
        }
        stage.file.truncate(60).unwrap();
        for block in 5..200 {
            match stream.next().unwrap() {
                Ok(row) => {
                    assert!(block < 60, "[RSZ-1] {kind}: block {block}");
                    assert_says(&row, block);
                }
                Err(error) => {
                    let expected =
                        matches!(error.error, Error::PastEnd { .. } | Error::Invalidated { .. });
                    assert!(block >= 60 && expected, "{kind}: block {block}: {error}");
                }
            }
        }
        assert!(stream.next().is_none());
        drop(stream);
        let mut stream = stage.file.stream_with(0..60, &ahead());
        assert_says(&stream.next().unwrap().unwrap(), 0);
        stage.file.drop_file().unwrap();
        for row in &mut stream {
            assert!(matches!(row.unwrap_err().error, Error::Invalidated { .. }), "{kind}");
        }
        assert_eq!(stream.stats().delivered, 60, "[RS-2] {kind}: each its error");
        drop(stream);
        assert_settled(&stage);
    }
}

/// A pool over a real backend, with streams that were started, dropped, and are never driven again.
fn abandoned(site: &Site, kind: Kind, turn: &str) -> Option<(BufferPool, PagedFile)> {
    let name = format!("{kind} {turn}");
    let space = Tablespace::new("main", site.path(&name)).cache(CacheMode::Buffered);
    let builder = Site::chosen().frames(64).page_size(PAGE).checksum(SUMS).cleaner(false);
    let options = ahead().distance(16);
    let made = builder.backend(Prefer::Only(kind)).tablespace(space).build().map(|pool| {
        let file = reopened(&pool, numbered(&pool, "table", 640, FIRST));
        (pool, file)
    });
    let (pool, file) = match made {
        Ok(made) => made,
        Err(error) => {
            skip(&format!("streams: {name}"), &error.to_string());
            return None;
        }
    };
    for start in [0, 5] {
        let blocks = (0..16).map(|place| start + place * 40);
        assert_says(&file.stream_with(blocks, &options).next().unwrap().unwrap(), start);
    }
    Some((pool, file))
}

#[test]
fn what_an_abandoned_stream_left_is_taken_in_by_who_needs_it() {
    let site = Site::new();
    for kind in KINDS {
        let Some((pool, file)) = abandoned(&site, kind, "read") else { continue };
        for block in 0..640 {
            assert_says(&file.read(block).unwrap(), block);
        }
        pool.close().unwrap();

        let (pool, file) = abandoned(&site, kind, "truncate").unwrap();
        file.truncate(3).unwrap();
        assert!(pool.view().iter().all(|frame| frame.block < 3), "[RSZ-1] {kind}");
        pool.close().unwrap();

        let (pool, file) = abandoned(&site, kind, "drop file").unwrap();
        file.drop_file().unwrap();
        assert_eq!(pool.stats().frames_free, 64, "{kind}");
        pool.close().unwrap();

        let (pool, file) = abandoned(&site, kind, "close").unwrap();
        file.close().unwrap();
        assert_eq!(pool.stats().frames_free, 64, "{kind}");
        let file = pool.open_file("table", &FileOptions::new()).unwrap();
        assert_says(&file.read(40).unwrap(), 40);
        pool.close().unwrap();

        drop(abandoned(&site, kind, "drop").unwrap());
    }
}

#[test]
fn streams_that_are_begun_and_dropped_leave_frames_for_others() {
    let site = Site::new();
    for kind in KINDS {
        let Some((pool, file)) = abandoned(&site, kind, "often") else { continue };
        for turn in 0..100 {
            let mut stream = file.stream_with((0..16).map(|it| turn + it * 30), &ahead());
            assert_says(&stream.next().unwrap().unwrap(), turn);
            let block = 639 - turn;
            assert_says(&file.read(block).unwrap(), block);
        }
        wait_until("what is under way to complete", || {
            drop(file.read(0).unwrap());
            pool.view().iter().all(|frame| frame.pins == 0) || kind == Kind::Sync
        });
        pool.close().unwrap();
    }
}
