//! Plain reads: a sequence is detected and read ahead; other reads cost nothing extra.

use forebay::{FileOptions, PagedFile, ReadaheadStrategy};
use forebay_io::Kind;

use super::{KINDS, Stage, assert_says, assert_settled, stage};
use crate::site::{PAGE, Site, create};

fn read_all(file: &PagedFile, blocks: impl Iterator<Item = u32>) {
    for block in blocks {
        assert_says(&file.read(block).unwrap(), block);
    }
}

#[test]
fn a_sequence_of_plain_reads_becomes_few_large_ones() {
    let site = Site::new();
    for kind in KINDS {
        for backward in [false, true] {
            let site = if backward { &Site::new() } else { &site };
            let Some(stage) = stage(site, kind, 1024, 640) else { continue };
            let before = stage.pool.stats();
            if backward {
                read_all(&stage.file, (0..640).rev());
            } else {
                read_all(&stage.file, 0..640);
            }
            stage.dam.io().drain();
            let reads = stage.dam.reads();
            assert!(reads.len() < 100, "{kind}: {} reads of 640 blocks", reads.len());
            assert!(reads.iter().any(|it| it.len >= 16 * PAGE as u64), "{kind}: none is large");
            let expected: Vec<u64> = (0..640).collect();
            assert_eq!(stage.dam.blocks_read(PAGE), expected, "[SUB-1] {kind}: each once");
            let stats = stage.pool.stats().since(&before);
            assert_eq!(stats.pool.prefetches_useful, stats.total().prefetches, "{kind}");
            assert_settled(&stage);
        }
    }
}

#[test]
fn a_stride_of_plain_reads_is_read_ahead_and_what_lies_between_is_not() {
    let site = Site::new();
    let Some(stage) = stage(&site, Kind::Sync, 256, 640) else { return };
    let before = stage.pool.stats();
    read_all(&stage.file, (0..640).step_by(8));
    stage.dam.io().drain();
    assert!(stage.pool.stats().since(&before).total().prefetches > 40);
    assert!(stage.dam.blocks_read(PAGE).iter().all(|block| block % 8 == 0));
    assert_settled(&stage);
}

#[test]
fn writes_in_sequence_are_read_ahead_too() {
    let site = Site::new();
    let Some(stage) = stage(&site, Kind::Sync, 256, 200) else { return };
    for block in 0..200 {
        crate::site::write(&stage.file, block, 9);
    }
    assert!(stage.dam.reads().len() < 60, "{} reads", stage.dam.reads().len());
    assert!((0..200).all(|block| crate::site::read(&stage.file, block) == 9));
    assert_settled(&stage);
}

#[test]
fn who_wants_no_readahead_gets_one_read_for_each_block() {
    let site = Site::new();
    for kind in KINDS {
        let Some(stage) = stage(&site, kind, 256, 300) else { continue };
        let before = stage.pool.stats();
        for (number, strategy) in
            [ReadaheadStrategy::Os, ReadaheadStrategy::Hint].into_iter().enumerate()
        {
            let start = number as u32 * 150;
            read_all(&stage.file.with_readahead(strategy), start..start + 150);
        }
        let reads = stage.dam.reads();
        assert_eq!(reads.len(), 300, "{kind}");
        assert!(reads.iter().all(|it| it.len == PAGE as u64), "{kind}");
        assert_eq!(stage.pool.stats().since(&before).total().prefetches, 0, "{kind}");
        assert_settled(&stage);
    }
}

/// A file of zeroes, which are valid pages, on `stage`.
fn vast(stage: &Stage, blocks: u32) -> PagedFile {
    let file = stage.pool.open_file("vast", &create()).unwrap();
    file.extend(blocks).unwrap();
    file
}

#[test]
fn random_plain_reads_read_little_more_than_they_request() {
    let site = Site::new();
    for kind in KINDS {
        let Some(stage) = stage(&site, kind, 256, 8) else { continue };
        let file = vast(&stage, 50_000);
        let mut random = fastrand::Rng::with_seed(7);
        let mut blocks: Vec<u32> = (0..50_000).collect();
        random.shuffle(&mut blocks);
        for block in &blocks[..3000] {
            drop(file.read(*block).unwrap());
        }
        stage.dam.io().drain();
        // 48 at first, and one for each 128 misses (DET-3).
        let read = stage.dam.blocks_read(PAGE).len();
        assert!(read <= 3000 + 48 + 3000 / 128, "{kind}: {read} blocks read for 3000");
        file.drop_file().unwrap();
        assert_settled(&stage);
    }
}

#[test]
fn a_sequence_that_meets_the_end_of_the_file_stops_there() {
    let site = Site::new();
    for kind in KINDS {
        let Some(stage) = stage(&site, kind, 256, 37) else { continue };
        read_all(&stage.file, 0..37);
        assert!(stage.file.read(37).is_err());
        stage.dam.io().drain();
        assert_eq!(stage.dam.blocks_read(PAGE), (0..37).collect::<Vec<u64>>(), "{kind}");
        assert_eq!(stage.pool.stats().total().read_errors, 0, "{kind}");
        assert_settled(&stage);
    }
}

#[test]
fn a_read_only_file_is_read_ahead_as_well() {
    let site = Site::new();
    let Some(stage) = stage(&site, Kind::Sync, 256, 200) else { return };
    stage.file.close().unwrap();
    let file = stage.pool.open_file("table", &FileOptions::new().read_only(true)).unwrap();
    read_all(&file, 0..100);
    for (row, block) in file.stream(100..200).zip(100..) {
        assert_says(&row.unwrap(), block);
    }
    assert!(stage.dam.reads().len() < 60);
    assert_settled(&stage);
}
