//! One page, many readers: repeated blocks, other streams, other threads, and the caller's own iterator.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::thread;

use forebay::{Order, ReadaheadStrategy, Tablespace};
use forebay_io::{CacheMode, Kind, Prefer};

use super::{KINDS, ahead, assert_says, assert_settled, is_past_end, no_gaps, stage};
use crate::site::{PAGE, Site, create, numbered, reopened, skip, wait_until};

#[test]
fn a_block_named_often_is_read_once_and_given_each_time() {
    let site = Site::new();
    for kind in KINDS {
        let Some(stage) = stage(&site, kind, 256, 64) else { continue };
        let blocks = [3, 3, 9, 3, 50, 9, 9, 3, 50, 50, 3, 3, 20, 3];
        let mut stream = stage.file.stream_with(blocks, &ahead());
        for block in blocks {
            let row = stream.next().unwrap().unwrap();
            assert_eq!(row.page.block(), block, "[RS-2] {kind}");
            assert_says(&row, block);
        }
        assert!(stream.next().is_none(), "[RS-2] {kind}");
        drop(stream);
        assert_eq!(stage.dam.blocks_read(PAGE), [3, 9, 20, 50], "[SUB-1] {kind}: each once");
        assert_settled(&stage);
    }
}

#[test]
fn what_another_stream_is_reading_is_joined_and_not_read_again() {
    let site = Site::new();
    for kind in KINDS {
        let Some(stage) = stage(&site, kind, 256, 64) else { continue };
        stage.dam.keep_back(|_| true);
        let read_all = || {
            for (row, block) in stage.file.stream_with(0..32, &ahead()).zip(0..) {
                assert_says(&row.unwrap(), block);
            }
        };
        thread::scope(|scope| {
            let first = scope.spawn(read_all);
            wait_until("the first stream's reads", || stage.dam.waiting() > 0);
            let second = scope.spawn(read_all);
            let joined = || stage.pool.stats().total().prefetches_joined;
            wait_until("the second stream to join", || joined() >= 8);
            stage.dam.open();
            first.join().unwrap();
            second.join().unwrap();
        });
        let expected: Vec<u64> = (0..32).collect();
        assert_eq!(stage.dam.blocks_read(PAGE), expected, "[SUB-1] {kind}: each once");
        assert_settled(&stage);
    }
}

/// Requests that one stream has made and does not complete, the other must complete.
#[test]
fn pages_that_a_resting_stream_requested_are_fetched_in_any_order() {
    const BLOCKS: u32 = 400;
    let site = Site::new();
    for kind in [Kind::Uring, Kind::Threads, Kind::Sync] {
        let main = Tablespace::new("main", site.path(&kind.to_string())).cache(CacheMode::Direct);
        let builder = Site::bare(4096).tablespace(main.costs(no_gaps())).cleaner(false);
        let made = builder.backend(Prefer::Only(kind)).build().and_then(|pool| {
            pool.open_file("probe", &create())?;
            Ok(pool)
        });
        let pool = match made {
            Ok(pool) => pool,
            Err(error) => {
                skip(&format!("two streams by {kind}"), &error.to_string());
                continue;
            }
        };
        let mut file = numbered(&pool, "table", 2 * BLOCKS, super::FIRST);
        let by = |order| ahead().order(order).distance(BLOCKS);
        for taken in [1, 20, 40, 100] {
            file = reopened(&pool, file);
            // No two are adjacent, so each is a separate request.
            let blocks = || (0..2 * BLOCKS).step_by(2);
            let mut first = file.stream_with(blocks(), &by(Order::InOrder));
            let second = file.stream_with(blocks(), &by(Order::Any));
            for block in blocks().take(taken) {
                assert_says(&first.next().unwrap().unwrap(), block);
            }
            let mut given: Vec<u32> = second.map(|row| row.unwrap().page.block()).collect();
            given.sort_unstable();
            assert!(given.into_iter().eq(blocks()), "[RS-2] {kind}");
        }
        pool.close().unwrap();
    }
}

#[test]
fn blocks_past_the_end_are_errors_of_their_own_and_the_stream_goes_on() {
    let site = Site::new();
    for kind in KINDS {
        let Some(stage) = stage(&site, kind, 64, 30) else { continue };
        let blocks = [0, 30, 1, u32::MAX, 2, 1_000_000, 29, u32::MAX - 1, 3, 30];
        let stream = stage.file.stream_with(blocks.into_iter().zip('a'..), &ahead());
        let mut letters = 'a'..;
        for (given, block) in stream.zip(blocks) {
            let letter = letters.next().unwrap();
            match given {
                Ok(row) => {
                    assert!(block < 30, "{kind}: block {block}");
                    assert_eq!((row.page.block(), row.data), (block, letter), "[RS-2] {kind}");
                    assert_says(&row, block);
                }
                Err(error) => {
                    assert!(block >= 30 && is_past_end(&error.error), "{kind}: {error}");
                    assert_eq!((error.block, error.data), (block, letter), "[RS-2] {kind}");
                }
            }
        }
        assert!(stage.dam.blocks_read(PAGE).iter().all(|&block| block < 30), "{kind}");
        assert_settled(&stage);
    }
}

/// While the caller's iterator blocks, another thread reads a page that the stream has requested.
#[test]
fn an_iterator_that_blocks_keeps_no_thread_from_the_pages_on_their_way() {
    let site = Site::new();
    for kind in KINDS {
        let Some(stage) = stage(&site, kind, 256, 640) else { continue };
        let (ask, asked) = mpsc::channel::<u32>();
        let (answer, answered) = mpsc::channel::<()>();
        thread::scope(|scope| {
            let file = &stage.file;
            let plain = file.with_readahead(ReadaheadStrategy::Os);
            scope.spawn(move || {
                for block in asked {
                    assert_says(&plain.read(block).unwrap(), block);
                    answer.send(()).unwrap();
                }
            });
            // The first window is 8 blocks: at the ninth call some of the blocks before it have been returned.
            let blocks = (0..40_u32).map(move |place| {
                for before in (1..=4).filter(|before| place >= 8 + before) {
                    ask.send((place - before) * 10).unwrap();
                    answered.recv().expect("the page in flight was had by the other thread");
                }
                place * 10
            });
            for (row, place) in file.stream_with(blocks, &ahead()).zip(0..) {
                assert_says(&row.unwrap(), place * 10);
            }
        });
        let expected: Vec<u64> = (0..40).map(|place| place * 10).collect();
        assert_eq!(stage.dam.blocks_read(PAGE), expected, "[SUB-1] {kind}: each once");
        assert_settled(&stage);
    }
}

/// Panics at the call number `fatal`; counts the calls.
fn panicking<'a>(
    blocks: &'a [u32],
    fatal: u32,
    asked: &'a Cell<u32>,
) -> impl Iterator<Item = (u32, u32)> + 'a {
    let mut blocks = blocks.iter();
    std::iter::from_fn(move || {
        asked.set(asked.get() + 1);
        if asked.get() == fatal {
            panic!("the iterator of a test");
        }
        Some((*blocks.next()?, asked.get()))
    })
}

#[test]
fn what_an_iterator_named_before_it_panicked_is_still_given() {
    let site = Site::new();
    for kind in KINDS {
        let Some(stage) = stage(&site, kind, 256, 640) else { continue };
        let blocks: Vec<u32> = (0..40).map(|place| place * 10).collect();
        for fatal in [1, 2, 5, 13, 30] {
            let asked = Cell::new(0);
            let named = panicking(&blocks, fatal, &asked);
            let mut stream = stage.file.stream_with(named, &ahead());
            let (mut given, mut panics) = (Vec::new(), 0);
            loop {
                match catch_unwind(AssertUnwindSafe(|| stream.next())) {
                    Ok(Some(row)) => {
                        let row = row.unwrap();
                        assert_says(&row, row.page.block());
                        given.push(row.page.block());
                    }
                    Ok(None) => break,
                    Err(panic) => {
                        assert_eq!(
                            panic.downcast_ref::<&str>(),
                            Some(&"the iterator of a test"),
                            "{kind}: a panic of another kind after {fatal} questions"
                        );
                        panics += 1;
                    }
                }
            }
            assert_eq!(panics, 1, "{kind}: not asked again");
            assert_eq!(asked.get(), fatal, "{kind}: not asked again");
            assert_eq!(given, blocks[..fatal as usize - 1], "[RS-2] {kind}: those named before");
            drop(stream);
            let pins: u64 = stage.pool.view().iter().map(|frame| frame.pins).sum();
            assert_eq!(pins, 0, "[RS-3] {kind}");
        }
        assert_settled(&stage);
    }
}

#[test]
fn a_stream_dropped_by_its_iterators_panic_leaves_no_pin() {
    let site = Site::new();
    for kind in KINDS {
        let Some(stage) = stage(&site, kind, 256, 640) else { continue };
        let blocks: Vec<u32> = (0..40).map(|place| place * 10).collect();
        for fatal in [3, 13] {
            let asked = Cell::new(0);
            let named = panicking(&blocks, fatal, &asked);
            let died = catch_unwind(AssertUnwindSafe(|| {
                stage.file.stream_with(named, &ahead()).for_each(|row| drop(row.unwrap()));
            }));
            assert!(died.is_err());
        }
        assert_settled(&stage);
    }
}

#[test]
fn an_iterator_may_read_and_change_the_file_that_it_names_blocks_of() {
    let site = Site::new();
    for kind in KINDS {
        let Some(stage) = stage(&site, kind, 64, 200) else { continue };
        let file = &stage.file;
        // Reads the block that it names, one that it named before, and one that was never named.
        let blocks = (0..100_u32).inspect(|&block| {
            for other in [block, block.saturating_sub(3), 199 - block] {
                assert_says(&file.read(other).unwrap(), other);
            }
            file.write(block).unwrap().mark_dirty(forebay::Lsn::NONE);
        });
        for (row, block) in file.stream_with(blocks, &ahead()).zip(0..) {
            assert_says(&row.unwrap(), block);
        }
        assert_settled(&stage);
    }
}
