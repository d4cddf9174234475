//! Each pattern is what its name claims.

use super::*;

const SHAPE: Shape = Shape { file_blocks: 65_536, blocks: 2048 };

fn plan_of(pattern: Pattern, shape: &Shape, seed: u64) -> Plan {
    pattern.plan(shape, &mut fastrand::Rng::with_seed(seed))
}

fn order(pattern: Pattern) -> Vec<u32> {
    plan_of(pattern, &SHAPE, 7).streams.remove(0).blocks
}

/// All patterns, and one with the user's own numbers.
fn all() -> impl Iterator<Item = Pattern> {
    Pattern::ALL.into_iter().map(|(_, pattern)| pattern).chain([Pattern::Shuffled(64, 48)])
}

#[test]
fn every_plan_stays_in_the_file_and_reads_something_however_small_the_file() {
    for pattern in all() {
        for (file_blocks, blocks) in [(64, 64), (100, 64), (1000, 5000), (4096, 2048)] {
            let shape = Shape { file_blocks, blocks };
            for seed in 0..20 {
                let plan = plan_of(pattern, &shape, seed);
                assert!(plan.last() < Some(file_blocks), "[PAT-1] {pattern} in {file_blocks}");
                assert!(plan.blocks() > 0, "[PAT-2] {pattern} in {file_blocks}");
                assert!(plan.blocks() <= u64::from(blocks.max(32)), "{pattern} in {file_blocks}");
                assert!(plan.at_once <= plan.streams.len(), "{pattern}");
            }
        }
    }
}

#[test]
fn a_plan_depends_on_the_seed_alone_and_another_seed_gives_another_plan() {
    for pattern in all() {
        assert_eq!(plan_of(pattern, &SHAPE, 1), plan_of(pattern, &SHAPE, 1), "{pattern}");
        assert_ne!(plan_of(pattern, &SHAPE, 1), plan_of(pattern, &SHAPE, 2), "{pattern}");
    }
}

#[test]
fn most_patterns_read_the_requested_number_of_blocks() {
    for pattern in all() {
        let blocks = plan_of(pattern, &SHAPE, 3).blocks();
        match pattern {
            // The pattern covers only one percent of the file.
            Pattern::Bitmap(1) => assert_eq!(blocks, 655),
            _ => assert!((2000..=2048).contains(&blocks), "{pattern}: {blocks}"),
        }
    }
}

#[test]
fn the_plain_orders_are_what_they_are_called() {
    let steps = |pattern| {
        let order = order(pattern);
        let steps = order.windows(2).map(|pair| i64::from(pair[1]) - i64::from(pair[0]));
        let mut steps: Vec<i64> = steps.collect();
        steps.sort_unstable();
        steps.dedup();
        steps
    };
    assert_eq!(steps(Pattern::Sequential), [1]);
    assert_eq!(steps(Pattern::Backward), [-1]);
    assert_eq!(steps(Pattern::Strided), [4]);
    assert_eq!(steps(Pattern::Index(100)), [1]);
    assert!(plan_of(Pattern::Sequential, &SHAPE, 7).streams[0].scanned().is_some());
}

#[test]
fn k_interleaved_streams_are_k_scans_at_once_that_do_not_meet() {
    for streams in [2, 8, 32] {
        let plan = plan_of(Pattern::Interleaved(streams), &SHAPE, 7);
        assert_eq!((plan.streams.len(), plan.at_once), (streams as usize, streams as usize));
        assert!(plan.streams.iter().all(|stream| stream.scanned().is_some()));
        assert_eq!(plan.distinct().len() as u64, plan.blocks(), "no block twice");
    }
}

#[test]
fn mixed_is_one_scan_and_one_list_in_turn() {
    let plan = plan_of(Pattern::Mixed, &SHAPE, 7);
    assert_eq!(plan.at_once, 2);
    assert!(plan.streams[0].scanned().is_some());
    assert!(plan.streams[1].scanned().is_none());
}

#[test]
fn a_limit_takes_ten_blocks_of_a_long_stream_one_stream_at_a_time() {
    let plan = plan_of(Pattern::Limit10, &SHAPE, 7);
    assert_eq!((plan.at_once, plan.streams.len()), (1, 204));
    for stream in &plan.streams {
        assert_eq!((stream.taken().len(), stream.blocks.len()), (10, 1000));
    }
    let scans = plan.streams.iter().filter(|stream| stream.scanned().is_some()).count();
    assert_eq!(scans, 102, "half of them are scans");
}

#[test]
fn uniform_draws_from_the_whole_file_and_zipfian_from_a_few_favourites() {
    let distinct = |pattern| plan_of(pattern, &SHAPE, 7).distinct().len();
    // 2048 of 65,536: the expected number of different ones is 2016.
    assert!((1980..2048).contains(&distinct(Pattern::Uniform)));
    let quarters = order(Pattern::Uniform).iter().fold([0; 4], |mut quarters, block| {
        quarters[(block / 16_384) as usize] += 1;
        quarters
    });
    assert!(quarters.iter().all(|&count| (400..625).contains(&count)), "{quarters:?}");

    let order = order(Pattern::Zipfian);
    assert!(distinct(Pattern::Zipfian) < 1500);
    let mut counts = std::collections::HashMap::new();
    order.iter().for_each(|block| *counts.entry(block).or_insert(0) += 1);
    let mut counts: Vec<i32> = counts.into_values().collect();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    // The most popular block has a share of 1 / 11.9 of the draws, the next half of that.
    assert!((120..230).contains(&counts[0]), "{counts:?}");
    assert!((50..130).contains(&counts[1]), "{counts:?}");
}

#[test]
fn shuffled_ranges_come_in_turn_and_no_block_leaves_its_window() {
    let order = order(Pattern::Shuffled(RANGES, WINDOW));
    let part = SHAPE.file_blocks / RANGES;
    for range in 0..RANGES {
        let own: Vec<u32> =
            order.iter().copied().skip(range as usize).step_by(RANGES as usize).collect();
        assert_eq!(own.len() as u32, SHAPE.blocks / RANGES);
        assert!(own.iter().all(|block| block / part == range), "range {range} in its place");
        let first = *own.iter().min().unwrap();
        let ascending: Vec<u32> = own.iter().enumerate().map(|(at, _)| first + at as u32).collect();
        assert_ne!(own, ascending, "shuffled");
        for (at, block) in own.iter().enumerate() {
            let displaced = (at as u32).abs_diff(block - first);
            assert!(displaced < WINDOW, "block {block} is {displaced} from its place");
        }
        let mut sorted = own;
        sorted.sort_unstable();
        assert_eq!(sorted, ascending, "every block of the range once");
    }
}

/// Pearson's, between position and block.
fn correlation(order: &[u32]) -> f64 {
    let n = order.len() as f64;
    let mean_at = (n - 1.0) / 2.0;
    let mean_block = order.iter().map(|&block| f64::from(block)).sum::<f64>() / n;
    let mut sums = (0.0, 0.0, 0.0);
    for (at, &block) in order.iter().enumerate() {
        let (x, y) = (at as f64 - mean_at, f64::from(block) - mean_block);
        sums = (sums.0 + x * y, sums.1 + x * x, sums.2 + y * y);
    }
    sums.0 / (sums.1 * sums.2).sqrt()
}

#[test]
fn an_index_has_the_correlation_of_its_name_and_reads_every_block_once() {
    for percent in [0, 50, 90, 100] {
        let order = order(Pattern::Index(percent));
        let found = correlation(&order);
        assert!((found - f64::from(percent) / 100.0).abs() < 0.06, "index-{percent}: {found}");
        let mut sorted = order;
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len() as u32, SHAPE.blocks);
        assert_eq!(sorted[sorted.len() - 1] - sorted[0] + 1, SHAPE.blocks, "one table");
    }
}

#[test]
fn a_bitmap_ascends_with_the_density_of_its_name() {
    for percent in [1, 10, 50, 90] {
        let order = order(Pattern::Bitmap(percent));
        assert!(order.windows(2).all(|pair| pair[0] < pair[1]), "ascending, none twice");
        let span = f64::from(order[order.len() - 1] - order[0] + 1);
        let density = 100.0 * order.len() as f64 / span;
        assert!((density / f64::from(percent) - 1.0).abs() < 0.05, "{percent}: {density}");
    }
}

#[test]
fn document_004s_orders_are_its_own() {
    let from_one = |pattern: Pattern, count: usize| {
        let order = order(pattern);
        let first = order[0];
        order[..count].iter().map(|block| block - first + 1).collect::<Vec<_>>()
    };
    assert_eq!(from_one(Pattern::Neighbours, 8), [1, 3, 2, 6, 4, 9, 10, 12]);
    assert_eq!(from_one(Pattern::TwoStreams, 6), [1, 1001, 2, 1002, 3, 1003]);
    let plan = plan_of(Pattern::TwoStreams, &SHAPE, 7);
    assert_eq!(plan.distinct().len() as u64, plan.blocks(), "no block twice");
}

#[test]
fn names_are_as_records_have_them() {
    let names: Vec<String> = all().map(|pattern| pattern.to_string()).collect();
    assert_eq!(
        names.join(" "),
        "sequential backward strided interleaved-2 interleaved-8 interleaved-32 uniform zipfian \
         shuffled index-0 index-0.5 index-0.9 index-1 bitmap-1 bitmap-10 bitmap-50 bitmap-90 mixed \
         limit-10 neighbours two-streams shuffled-64x48"
    );
    for pattern in all() {
        assert_eq!(pattern.to_string().parse(), Ok(pattern));
    }
    for name in ["zigzag", "shuffled-", "shuffled-0x4", "shuffled-65x4", "shuffled-4x0", "bitmap-7"]
    {
        assert!(name.parse::<Pattern>().unwrap_err().contains("index-0.9"), "{name}");
    }
}

#[test]
fn a_pattern_of_one_list_is_one_stream() {
    for pattern in all() {
        assert_eq!(
            plan_of(pattern, &SHAPE, 7).streams.len() == 1,
            pattern.is_one_list(),
            "{pattern}"
        );
    }
}
