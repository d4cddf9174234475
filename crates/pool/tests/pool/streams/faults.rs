//! Failed reads: each block gets its own error, and no state is left behind.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

use forebay::{Checksum, Error, FileOptions, ReadaheadStrategy, StreamOptions};
use forebay_io::{Kind, Op, OsError};

use super::{FIRST, KINDS, Stage, assert_says, assert_settled, at, stage};
use crate::disk::Fault;
use crate::site::{PAGE, Site, is_io, reopened};
use forebay_io::backend::Transfer;

/// True for a read that includes `block`.
pub(super) fn covers(it: &Transfer, block: u32) -> bool {
    let place = at(block);
    it.op() == Op::Read && (it.position()..it.position() + it.remaining()).contains(&place)
}

/// Replaces the contents of `block` on the disk.
pub(super) fn damage(stage: &Stage, block: u32) {
    let raw = OpenOptions::new().write(true).open(stage.file.path()).unwrap();
    raw.write_all_at(b"not what it was", at(block) + 500).unwrap();
}

/// Reads blocks 0 to `blocks` ahead; returns those that failed, with their errors.
pub(super) fn failures(
    stage: &Stage,
    blocks: u32,
    readahead: ReadaheadStrategy,
) -> Vec<(u32, Error)> {
    let mut failed = Vec::new();
    let options = StreamOptions::new().readahead(readahead);
    let mut stream = stage.file.stream_with(0..blocks, &options);
    for expected in 0..blocks {
        match stream.next().expect("a block for each that was named") {
            Ok(row) => {
                assert_eq!(row.page.block(), expected, "[RS-2]");
                assert_says(&row, expected);
            }
            Err(error) => {
                assert_eq!(error.block, expected, "[RS-2]");
                failed.push((error.block, error.error));
            }
        }
    }
    assert!(stream.next().is_none(), "[RS-2] more blocks than were named");
    assert_eq!(stream.stats().errors, failed.len() as u64);
    failed
}

/// The backends, and the strategies that read several blocks at once, each with its own directory.
fn strategies() -> impl Iterator<Item = (Site, Kind, ReadaheadStrategy)> {
    let strategies =
        [ReadaheadStrategy::Async, ReadaheadStrategy::Adaptive, ReadaheadStrategy::Prefetch];
    KINDS.into_iter().flat_map(move |kind| strategies.map(|strategy| (Site::new(), kind, strategy)))
}

#[test]
fn one_bad_block_in_a_combined_read_fails_alone() {
    for (site, kind, strategy) in strategies() {
        let Some(stage) = stage(&site, kind, 256, 64) else { continue };
        stage.dam.rule(|it| if covers(it, 5) { Fault::Fail(OsError::EIO) } else { Fault::None });
        let failed = failures(&stage, 64, strategy);
        assert_eq!(failed.len(), 1, "{kind} {strategy}: {failed:?}");
        assert!(
            failed[0].0 == 5 && is_io(&failed[0].1, OsError::EIO),
            "{kind} {strategy}: {failed:?}"
        );
        let combined = stage.dam.reads().iter().any(|it| it.len > PAGE as u64);
        assert!(combined || strategy == ReadaheadStrategy::Prefetch, "{kind} {strategy}");
        assert!(!stage.file.is_resident(5) && stage.file.is_resident(4), "[CPL-2] {kind}");
        stage.dam.rule(|_| Fault::None);
        assert_says(&stage.file.read(5).unwrap(), 5);
        assert_settled(&stage);
    }
}

#[test]
fn an_error_that_does_not_recur_is_not_reported() {
    for (site, kind, strategy) in strategies() {
        let Some(stage) = stage(&site, kind, 256, 64) else { continue };
        let mut failures_left = 2;
        stage.dam.rule(move |it| {
            if it.op() == Op::Read && it.remaining() > PAGE as u64 && failures_left > 0 {
                failures_left -= 1;
                return Fault::Fail(OsError::EIO);
            }
            Fault::None
        });
        let failed = failures(&stage, 64, strategy);
        assert!(failed.is_empty(), "{kind} {strategy}: {failed:?}");
        let errors = stage.pool.stats().total().read_errors;
        assert!(errors >= 1 || strategy == ReadaheadStrategy::Prefetch, "{kind} {strategy}");
        assert_settled(&stage);
    }
}

#[test]
fn every_read_ahead_may_fail_and_every_page_still_comes() {
    for (site, kind, strategy) in strategies() {
        let Some(stage) = stage(&site, kind, 64, 200) else { continue };
        stage.dam.rule(|it| match it.op() == Op::Read && it.remaining() > PAGE as u64 {
            true => Fault::Fail(OsError::EIO),
            false => Fault::None,
        });
        let failed = failures(&stage, 200, strategy);
        assert!(failed.is_empty(), "{kind} {strategy}: {failed:?}");
        assert_settled(&stage);
    }
}

#[test]
fn short_reads_are_continued_to_their_end() {
    for (site, kind, strategy) in strategies() {
        let Some(stage) = stage(&site, kind, 256, 64) else { continue };
        let mut random = fastrand::Rng::with_seed(5);
        stage.dam.rule(move |it| match it.op() == Op::Read && random.bool() {
            true => Fault::Short(random.u64(1..=3 * PAGE as u64)),
            false => Fault::None,
        });
        let failed = failures(&stage, 64, strategy);
        assert!(failed.is_empty(), "{kind} {strategy}: {failed:?}");
        assert_settled(&stage);
    }
}

#[test]
fn a_wrong_checksum_is_its_own_blocks_error() {
    for (site, kind, strategy) in strategies() {
        let Some(mut stage) = stage(&site, kind, 256, 64) else { continue };
        [7, 40].iter().for_each(|&block| damage(&stage, block));
        stage.file = reopened(&stage.pool, stage.file);
        let failed = failures(&stage, 64, strategy);
        let blocks: Vec<u32> = failed.iter().map(|(block, _)| *block).collect();
        assert_eq!(blocks, [7, 40], "{kind} {strategy}: {failed:?}");
        for (wrong, error) in &failed {
            assert!(matches!(error, Error::Corrupt { block, .. } if block == wrong), "{error}");
        }
        assert_eq!(stage.pool.stats().total().corrupt_pages, 2, "{kind}: once each");
        assert_settled(&stage);
    }
}

#[test]
fn a_file_cut_behind_the_pools_back_gives_the_pages_before_the_cut() {
    for (site, kind, strategy) in strategies() {
        let Some(stage) = stage(&site, kind, 256, 64) else { continue };
        let raw = OpenOptions::new().write(true).open(stage.file.path()).unwrap();
        raw.set_len(at(21) + 100).unwrap();
        let failed = failures(&stage, 64, strategy);
        let blocks: Vec<u32> = failed.iter().map(|(block, _)| *block).collect();
        assert_eq!(blocks, (21..64).collect::<Vec<_>>(), "[CPL-1] {kind}");
        for (_, error) in &failed {
            assert!(matches!(error, Error::Shortened { .. }), "{error}");
        }
        assert!((0..21).all(|block| stage.file.is_resident(block)), "[CPL-1] {kind}");
        raw.set_len(at(64)).unwrap();
        assert_settled(&stage);
    }
}

#[test]
fn an_error_reaches_every_stream_that_joined_and_no_other() {
    let site = Site::new();
    let Some(stage) = stage(&site, Kind::Threads, 256, 64) else { return };
    stage.dam.rule(|it| if covers(it, 9) { Fault::Fail(OsError::EIO) } else { Fault::None });
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| failures(&stage, 64, ReadaheadStrategy::Async)))
            .collect();
        for reader in readers {
            let failed = reader.join().unwrap();
            assert!(failed.len() == 1 && failed[0].0 == 9, "{failed:?}");
        }
    });
    assert_settled(&stage);
}

/// A checksum would reveal a page whose read has not completed; these pages have none.
#[test]
fn cpl_1_a_read_that_delivers_nothing_is_no_page_even_without_checksums() {
    for (site, kind, strategy) in strategies() {
        let Some(mut stage) = stage(&site, kind, 256, 64) else { continue };
        let options = FileOptions::new().checksum(Checksum::Off);
        let bare = stage.pool.open_file("bare", &options.clone().create(true)).unwrap();
        bare.extend(64).unwrap();
        (0..64).for_each(|block| crate::site::write(&bare, block, FIRST + u64::from(block)));
        bare.close().unwrap();
        stage.file = stage.pool.open_file("bare", &options).unwrap();
        stage.dam.rule(|it| match it.op() == Op::Read && it.remaining() > PAGE as u64 {
            true => Fault::Fail(OsError::EIO),
            false => Fault::None,
        });
        let failed = failures(&stage, 64, strategy);
        assert!(failed.is_empty(), "[CPL-1] {kind} {strategy}: {failed:?}");

        stage.dam.rule(|_| Fault::None);
        stage.file.close().unwrap();
        stage.file = stage.pool.open_file("bare", &options).unwrap();
        let raw = OpenOptions::new().write(true).open(stage.file.path()).unwrap();
        raw.set_len(at(21) + 100).unwrap();
        let blocks: Vec<u32> =
            failures(&stage, 64, strategy).iter().map(|(block, _)| *block).collect();
        assert_eq!(blocks, (21..64).collect::<Vec<_>>(), "[CPL-1] {kind} {strategy}");
        raw.set_len(at(64)).unwrap();
        assert_settled(&stage);
    }
}
