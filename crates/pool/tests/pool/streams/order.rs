//! The named blocks, in the named order: every backend, mode, strategy, order and page size.

use forebay::{
    BufferPool, FileOptions, Order, PagedFile, ReadaheadStrategy, StrategyKind, StreamOptions,
    Tablespace,
};
use forebay_io::{CacheMode, Kind, Prefer};
use proptest::prelude::*;

use super::{FIRST, KINDS, all_gaps, assert_says, assert_settled, stage, stage_at};
use crate::site::{PAGE, SUMS, Site, numbered, reopened, skip};

/// A pool on real files, and a file of `blocks` with no block in memory.
pub(super) fn real(
    site: &Site,
    name: &str,
    (kind, cache): (Kind, CacheMode),
    page_bytes: usize,
    blocks: u32,
) -> Result<(BufferPool, PagedFile), forebay::Error> {
    let main = Tablespace::new("main", site.path(name)).cache(cache);
    let builder = Site::chosen().frames(48).page_size(page_bytes).checksum(SUMS);
    let pool = builder.backend(Prefer::Only(kind)).tablespace(main).build()?;
    pool.open_file("probe", &FileOptions::new().create(true))?;
    let file = numbered(&pool, "table", blocks, FIRST);
    let file = reopened(&pool, file);
    Ok((pool, file))
}

/// Blocks as queries use them: runs in both directions, strides, clusters, repeats and jumps.
pub(super) fn named(random: &mut fastrand::Rng, blocks: u32, count: usize) -> Vec<u32> {
    let mut named = Vec::new();
    while named.len() < count {
        let (start, length) = (random.u32(..blocks), random.u32(1..20));
        match random.u32(..6) {
            0 => named.extend(start..(start + length).min(blocks)),
            1 => named.extend((start.saturating_sub(length)..start).rev()),
            2 => named.extend((start..blocks).step_by(random.usize(2..6)).take(12)),
            3 => named.extend((0..length).map(|_| (start + random.u32(..8)).min(blocks - 1))),
            4 => named.extend([start; 3]),
            _ => named.push(start),
        }
    }
    named.truncate(count);
    named
}

/// Takes all items of a stream over `blocks`; each block comes with its index in the list.
pub(super) fn check(
    file: &PagedFile,
    blocks: &[u32],
    options: &StreamOptions,
    in_order: bool,
    what: &str,
) {
    let stream = file.stream_with(blocks.iter().copied().zip(0_usize..), options);
    let mut places = Vec::new();
    for row in stream {
        let row = row.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(row.page.block(), blocks[row.data], "{what}: the data of another block");
        assert_says(&row, blocks[row.data]);
        places.push(row.data);
    }
    if !in_order {
        places.sort_unstable();
    }
    assert_eq!(places, (0..blocks.len()).collect::<Vec<_>>(), "[RS-2] {what}");
}

fn every_strategy(site: &Site, kind: Kind, cache: CacheMode, page_bytes: usize, count: usize) {
    let name = format!("{kind} {cache} {page_bytes}");
    let (pool, file) = match real(site, &name, (kind, cache), page_bytes, 130) {
        Ok(made) => made,
        Err(error) => return skip(&format!("streams: {name}"), &error.to_string()),
    };
    let mut random = fastrand::Rng::with_seed(page_bytes as u64 + count as u64);
    for readahead in ReadaheadStrategy::ALL {
        for order in [Order::InOrder, Order::Any] {
            let options = StreamOptions::new().readahead(readahead).order(order);
            let blocks = named(&mut random, 130, count);
            let what = format!("{name} {readahead} {order:?}");
            check(&file, &blocks, &options, order == Order::InOrder, &what);
        }
    }
    let pins: u64 = pool.view().iter().map(|frame| frame.pins).sum();
    assert_eq!(pins, 0, "[RS-3] {name}");
    pool.close().unwrap();
}

#[test]
fn blocks_come_back_as_they_were_named_over_every_backend_and_strategy() {
    let site = Site::new();
    for kind in Kind::ALL {
        for cache in [CacheMode::Buffered, CacheMode::Direct] {
            if kind.serves(cache) {
                every_strategy(&site, kind, cache, 4096, 300);
            }
        }
    }
}

#[test]
fn large_pages_come_back_as_they_were_named() {
    let site = Site::new();
    for cache in [CacheMode::Buffered, CacheMode::Direct] {
        every_strategy(&site, Kind::Threads, cache, 65_536, 120);
    }
}

#[test]
fn every_access_strategy_gives_the_same_pages() {
    let site = Site::new();
    for kind in StrategyKind::ALL {
        let name = kind.to_string();
        let (pool, file) =
            real(&site, &name, (Kind::Threads, CacheMode::Buffered), PAGE, 130).unwrap();
        let mut random = fastrand::Rng::with_seed(8);
        for readahead in [ReadaheadStrategy::Async, ReadaheadStrategy::Adaptive] {
            let options = StreamOptions::new().access(kind).readahead(readahead);
            check(&file, &named(&mut random, 130, 500), &options, true, &name);
        }
        pool.close().unwrap();
    }
}

#[test]
fn a_scan_gives_its_range_and_a_stream_of_nothing_gives_nothing() {
    let site = Site::new();
    let (pool, file) =
        real(&site, "scan", (Kind::Threads, CacheMode::Buffered), PAGE, 130).unwrap();
    for range in [0..130, 5..6, 100..130, 7..7] {
        let given: Vec<u32> =
            file.scan(range.clone()).map(|row| row.unwrap().page.block()).collect();
        assert_eq!(given, range.collect::<Vec<_>>(), "[RS-2]");
    }
    assert!(file.stream(Vec::<u32>::new()).next().is_none());
    let mut stream = file.stream([1, 2]);
    assert_eq!(stream.by_ref().count(), 2);
    assert!(stream.next().is_none() && stream.next().is_none(), "an end is an end");
    drop(stream);
    pool.close().unwrap();
}

#[test]
fn known_blocks_are_requested_sorted_and_merged_whatever_their_order() {
    let site = Site::new();
    for kind in KINDS {
        let Some(stage) = stage(&site, kind, 256, 64) else { continue };
        let options = StreamOptions::new().readahead(ReadaheadStrategy::Async);
        // All eight are in the first window.
        check(&stage.file, &[1, 3, 2, 60, 4, 42, 41, 43], &options, true, "merged");
        let page = PAGE as u64;
        let mut asked: Vec<(u64, u64)> =
            stage.dam.reads().iter().map(|it| (it.position / page, it.len / page)).collect();
        asked.sort_unstable();
        assert_eq!(asked, [(1, 4), (41, 3), (60, 1)], "{kind}");
        assert_settled(&stage);
    }
}

#[test]
fn in_any_order_what_is_ready_is_given_while_the_rest_is_on_its_way() {
    let site = Site::new();
    let Some(stage) = stage(&site, Kind::Threads, 256, 640) else { return };
    let options = StreamOptions::new().readahead(ReadaheadStrategy::Async).order(Order::Any);
    // Block 20 is held back for now.
    stage.dam.keep_back(|it| it.position() == super::at(20));
    let mut stream = stage.file.stream_with([20, 60, 0, 40, 80], &options);
    // While nothing is ready yet, the stream waits for the first in sorted order, which is block 0.
    let mut given = Vec::new();
    for _ in 0..4 {
        let row = stream.next().unwrap().unwrap();
        assert_says(&row, row.page.block());
        given.push(row.page.block());
        let others = [0, 40, 60, 80];
        crate::site::wait_until("the other blocks", || {
            others.iter().all(|&block| stage.file.is_resident(block))
        });
    }
    given.sort_unstable();
    assert_eq!(given, [0, 40, 60, 80], "[RS-2] all but the one that is kept back");
    stage.dam.open();
    assert_eq!(stream.next().unwrap().unwrap().page.block(), 20);
    assert!(stream.next().is_none());
    drop(stream);
    assert_settled(&stage);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_list_of_blocks_comes_back_in_order(
        blocks in proptest::collection::vec(0_u32..70, 0..150),
        resident in proptest::collection::btree_set(0_u32..70, 0..30),
        distance in 1_u32..40,
        gaps in any::<bool>(),
        any_order in any::<bool>(),
        frames in 8_u64..64,
    ) {
        let site = Site::new();
        let costs = |space: Tablespace| if gaps { space.costs(all_gaps()) } else { space };
        let stage = stage_at(&site, Kind::Sync, frames, 70, costs).unwrap();
        for block in resident {
            drop(stage.file.with_readahead(ReadaheadStrategy::Os).read(block).unwrap());
        }
        let order = if any_order { Order::Any } else { Order::InOrder };
        let readahead = ReadaheadStrategy::Async;
        let options = StreamOptions::new().readahead(readahead).distance(distance).order(order);
        check(&stage.file, &blocks, &options, !any_order, "a list");
        assert_settled(&stage);
    }
}
