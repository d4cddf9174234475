//! Adaptive streams over files that are not in the page cache: what they leave to the kernel, and what they read
//! themselves.
//!
//! Newly written files are in the page cache, so the other tests see an adaptive stream that reads from there.

use forebay::{Error, Order, PagedFile, ReadaheadStrategy, StreamOptions};
use forebay_io::backend::Transfer;
use forebay_io::{Advice, CacheMode, File, Kind, OpenOptions, OsError};

use super::budgets::hinted;
use super::faults::{covers, failures};
use super::order::{check, named, real};
use super::{Stage, all_gaps, assert_says, assert_settled, stage, stage_at};
use crate::decisions::decisions;
use crate::disk::Fault;
use crate::site::{PAGE, Site, reopened, skip};

/// Whether the page cache can be made to drop a file here; recorded as skipped where it cannot.
pub(super) fn can_chill(test: &str) -> bool {
    let can = cfg!(all(target_os = "linux", not(forebay_portable)));
    if !can {
        skip(test, "no advice and no residency in the portable build");
    }
    can
}

/// Drops the file from the page cache as far as possible.
pub(super) fn chill(file: &PagedFile) {
    file.flush_file().unwrap();
    file.sync().unwrap();
    let on_disk = File::open(file.path(), &OpenOptions::new().read_only(true)).unwrap();
    on_disk.advise(0..u64::MAX, Advice::DontNeed).unwrap();
}

fn adaptive() -> StreamOptions {
    StreamOptions::new().readahead(ReadaheadStrategy::Adaptive)
}

#[test]
fn blocks_of_a_cold_file_come_back_as_they_were_named() {
    if !can_chill("blocks_of_a_cold_file_come_back_as_they_were_named") {
        return;
    }
    let site = Site::new();
    let (pool, mut file) =
        real(&site, "cold", (Kind::Threads, CacheMode::Buffered), PAGE, 600).unwrap();
    let mut random = fastrand::Rng::with_seed(11);
    for round in 0..30 {
        file = reopened(&pool, file);
        chill(&file);
        let order = if round % 3 == 0 { Order::Any } else { Order::InOrder };
        let blocks = match round % 5 {
            0 => (0..600).collect(),
            1 => (0..600).rev().collect(),
            2 => (0..600).step_by(3).collect(),
            _ => named(&mut random, 600, 500),
        };
        let options = adaptive().order(order).distance(random.u32(1..200));
        check(&file, &blocks, &options, order == Order::InOrder, &format!("round {round}"));
    }
    let pins: u64 = pool.view().iter().map(|frame| frame.pins).sum();
    assert_eq!(pins, 0, "[RS-3]");
    pool.close().unwrap();
}

/// A stage whose file is cold.
fn cold_stage(site: &Site, frames: u64, blocks: u32) -> Stage {
    let stage = stage(site, Kind::Threads, frames, blocks).unwrap();
    chill(&stage.file);
    stage
}

#[test]
fn one_bad_block_of_a_cold_file_fails_alone() {
    if !can_chill("one_bad_block_of_a_cold_file_fails_alone") {
        return;
    }
    for bad in [0, 5, 15, 40, 63] {
        let site = Site::new();
        let stage = cold_stage(&site, 256, 64);
        stage.dam.rule(move |it: &Transfer| match covers(it, bad) {
            true => Fault::Fail(OsError::EIO),
            false => Fault::None,
        });
        let failed = failures(&stage, 64, ReadaheadStrategy::Adaptive);
        let blocks: Vec<u32> = failed.iter().map(|(block, _)| *block).collect();
        assert_eq!(blocks, [bad], "{failed:?}");
        assert_settled(&stage);
    }
}

#[test]
fn a_cold_file_cut_or_dropped_under_a_stream_fails_the_removed_blocks() {
    if !can_chill("a_cold_file_cut_or_dropped_under_a_stream_fails_the_removed_blocks") {
        return;
    }
    for taken in [1, 3, 9, 20] {
        let site = Site::new();
        let stage = cold_stage(&site, 256, 200);
        // Runs of three, which the kernel receives hints for, far ahead.
        let blocks: Vec<u32> = (0..200).filter(|block| block % 8 < 3).collect();
        let mut stream = stage.file.stream_with(blocks.clone(), &adaptive());
        for &block in &blocks[..taken] {
            assert_says(&stream.next().unwrap().unwrap(), block);
        }
        stage.file.truncate(25).unwrap();
        for &block in &blocks[taken..] {
            match stream.next().unwrap() {
                Ok(row) => {
                    assert!(block < 25, "[RSZ-1] block {block}");
                    assert_says(&row, block);
                }
                Err(error) => {
                    let expected =
                        matches!(error.error, Error::PastEnd { .. } | Error::Invalidated { .. });
                    assert!(block >= 25 && expected, "block {block}: {error}");
                }
            }
        }
        stream.reset(vec![0, 1, 2, 8, 9, 10]);
        assert_eq!(stream.by_ref().filter(Result::is_ok).count(), 6);
        stage.file.drop_file().unwrap();
        stream.reset(vec![0, 1, 2, 8, 9, 10]);
        for row in &mut stream {
            assert!(matches!(row.unwrap_err().error, Error::Invalidated { .. }));
        }
        drop(stream);
        assert_settled(&stage);
    }
}

#[test]
fn ten_expected_rows_of_a_cold_file_prefetch_sixteen_blocks_at_most() {
    if !can_chill("ten_expected_rows_of_a_cold_file_prefetch_sixteen_blocks_at_most") {
        return;
    }
    for step in [1, 2, 3, 7, 11] {
        let site = Site::new();
        let stage = cold_stage(&site, 256, 1000);
        let blocks: Vec<u32> = (0..90).map(|place| place * step).collect();
        let options = adaptive().expected_rows(10);
        let ((), events) = decisions(|| {
            let mut stream = stage.file.stream_with(blocks.clone(), &options);
            for &block in &blocks[..10] {
                assert_says(&stream.next().unwrap().unwrap(), block);
            }
        });
        stage.dam.io().drain();
        let (read, hinted_blocks) = (stage.dam.blocks_read(PAGE), hinted(&events));
        assert!((10..=16).contains(&read.len()), "{read:?} for 10 rows");
        assert!(hinted_blocks <= 16, "the kernel got hints for {hinted_blocks} blocks for 10 rows");
        assert_settled(&stage);
    }
}

#[test]
fn a_cold_file_is_read_about_once_in_a_pool_that_holds_it() {
    if !can_chill("a_cold_file_is_read_about_once_in_a_pool_that_holds_it") {
        return;
    }
    for gaps in [false, true] {
        let site = Site::new();
        let costs = |space: forebay::Tablespace| if gaps { space.costs(all_gaps()) } else { space };
        let stage = stage_at(&site, Kind::Threads, 1024, 600, costs).unwrap();
        chill(&stage.file);
        // A range in locally shuffled order, with a part of the blocks left out.
        let mut random = fastrand::Rng::with_seed(12);
        let mut blocks: Vec<u32> = (0..600).filter(|block| block % 7 != 6).collect();
        blocks.chunks_mut(40).for_each(|part| random.shuffle(part));
        check(&stage.file, &blocks, &adaptive(), true, "shuffled");
        stage.dam.io().drain();
        let mut read = stage.dam.blocks_read(PAGE);
        // Resident blocks may be read again as part of a gap, to save a request.
        assert!(read.len() <= 600 * 5 / 4, "gaps {gaps}: {} blocks read", read.len());
        read.dedup();
        assert!((blocks.len()..=600).contains(&read.len()), "gaps {gaps}: {}", read.len());
        for block in 0..600 {
            assert_says(&stage.file.read(block).unwrap(), block);
        }
        assert_settled(&stage);
    }
}
