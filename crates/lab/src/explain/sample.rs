//! A recorded run, for tests of its pictures.

use std::ops::Range;

use super::{Account, Disk, Explained, Pattern, Strategy, StrategyResult};
use crate::args::typed;

pub(super) const BLOCK: u64 = 8192;

/// Reads of this many blocks.
pub(super) fn reads(list: &[(u64, u64)]) -> Vec<Range<u64>> {
    let read = |&(first, blocks)| first * BLOCK..(first + blocks) * BLOCK;
    list.iter().map(read).collect()
}

/// `reads` of each strategy for the blocks of `pattern`.
pub(super) fn explained(pattern: &str, reads: Vec<(Strategy, Vec<Range<u64>>)>) -> Explained {
    let args = typed(pattern);
    let pattern = Pattern::parse(pattern, 7).unwrap();
    let results = reads.into_iter().map(|(strategy, reads)| StrategyResult {
        strategy,
        cached: (strategy != Strategy::Adaptive).then_some(2),
        seconds: reads.len() as f64 * 0.000_123,
        account: Account::of(reads, &pattern.wanted, BLOCK),
        remark: None,
    });
    let results = results.collect();
    let disk = Disk {
        profile: "nvme".into(),
        about: "an NVMe drive".into(),
        readahead_bytes: Some(128 << 10),
        kernel: "Linux 6.18".into(),
    };
    Explained { args, pattern, disk, results }
}

/// Document 004's example, as a kernel with 32 KiB of readahead might do it.
pub(super) fn neighbours() -> Explained {
    let singly = || reads(&[(1, 1), (3, 1), (2, 1), (6, 1), (4, 1), (9, 1)]);
    explained(
        "1,3,2,6,4,9",
        vec![
            (Strategy::Os, reads(&[(1, 1), (3, 1), (2, 1), (6, 4), (4, 2)])),
            (Strategy::Random, singly()),
            (Strategy::Max, reads(&[(1, 1), (3, 1), (2, 1), (6, 8), (4, 4)])),
            (Strategy::WillNeed, singly()),
            (Strategy::Adaptive, reads(&[(1, 4), (6, 4)])),
        ],
    )
}

/// 32,000 blocks in four ranges, each read one by one and in long runs.
pub(super) fn long() -> Explained {
    let pattern = Pattern::parse("shuffled:4x8000/24", 7).unwrap();
    let singly: Vec<(u64, u64)> = pattern.blocks.iter().map(|&block| (block.into(), 1)).collect();
    let runs: Vec<(u64, u64)> = (0..500)
        .flat_map(|turn| (0..4).map(move |range| (range * 16_000 + turn * 16, 16)))
        .collect();
    explained(
        "shuffled:4x8000/24",
        vec![(Strategy::WillNeed, reads(&singly)), (Strategy::Adaptive, reads(&runs))],
    )
}
