//! A run as it was recorded, for tests of what is drawn from it.

use forebay_io::CacheMode;

use super::{Disk, Explained, Pattern, Request, Strategy, Told};

pub(super) const BLOCK: u64 = 8192;

/// Requests of so many blocks.
pub(super) fn requests(list: &[(u64, u64)]) -> Vec<Request> {
    let request = |&(first, blocks)| Request { offset: first * BLOCK, len: blocks * BLOCK };
    list.iter().map(request).collect()
}

/// `requests` of each strategy for the blocks of `pattern`.
pub(super) fn explained(pattern: &str, told: Vec<(Strategy, Vec<Request>)>) -> Explained {
    let pattern = Pattern::parse(pattern, 7, |_| Err(std::io::ErrorKind::NotFound.into())).unwrap();
    let told = told.into_iter().map(|(strategy, requests)| Told {
        strategy,
        cached: (strategy != Strategy::Adaptive).then_some(2),
        seconds: requests.len() as f64 * 0.000_123,
        requests,
        remarks: Vec::new(),
    });
    Explained {
        pattern,
        block_bytes: BLOCK,
        disk: Disk {
            profile: "nvme".into(),
            about: "an NVMe drive".into(),
            speed_up: 1.0,
            readahead_bytes: Some(128 << 10),
            kernel: "Linux 6.18".into(),
        },
        distance: 8,
        cache: CacheMode::Buffered,
        told: told.collect(),
        command: "forebay explain 1,3,2,6,4,9".into(),
    }
}

/// Document 004's example, as a kernel with 32 KiB of readahead might do it.
pub(super) fn neighbours() -> Explained {
    explained(
        "1,3,2,6,4,9",
        vec![
            (Strategy::Os, requests(&[(1, 1), (3, 1), (2, 1), (6, 4), (4, 2)])),
            (Strategy::Random, requests(&[(1, 1), (3, 1), (2, 1), (6, 1), (4, 1), (9, 1)])),
            (Strategy::Max, requests(&[(1, 1), (3, 1), (2, 1), (6, 8), (4, 4)])),
            (Strategy::WillNeed, requests(&[(1, 1), (3, 1), (2, 1), (6, 1), (4, 1), (9, 1)])),
            (Strategy::Adaptive, requests(&[(1, 4), (6, 4)])),
        ],
    )
}

/// 32,000 blocks in four ranges, each read one by one and in long runs.
pub(super) fn long() -> Explained {
    let pattern = Pattern::parse("shuffled:4x8000/24", 7, |_| unreachable!()).unwrap();
    let singly: Vec<(u64, u64)> = pattern.blocks.iter().map(|&block| (block.into(), 1)).collect();
    let runs: Vec<(u64, u64)> = (0..500)
        .flat_map(|turn| (0..4).map(move |range| (range * 16_000 + turn * 16, 16)))
        .collect();
    explained(
        "shuffled:4x8000/24",
        vec![(Strategy::WillNeed, requests(&singly)), (Strategy::Adaptive, requests(&runs))],
    )
}
