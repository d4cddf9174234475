//! Requests: what the disk was asked for, in blocks and against what was wanted.
//!
//! A request is bytes; people think in blocks. One that begins or ends within a block counts as all of
//! that block here, while figures are taken from the bytes themselves. Each request is cut into runs:
//! blocks that were wanted and come for the first time, blocks that nobody asked for, and blocks that
//! an earlier request had brought already. Worked example: wanted 1, 3, 2; requests [1..=2], [3..=6],
//! [6..=6] are wanted 1-2; wanted 3 and besides 4-6; again 6.
//!
//! Invariants:  [EXP-2] the runs of a request are its blocks, in order, without a gap
//!              [EXP-3] what is wanted and new, unwanted, and again adds up to the bytes of all requests

use std::collections::BTreeMap;
use std::ops::Range;

/// One read that arrived at the disk: bytes of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Request {
    /// The first byte, in the file.
    pub offset: u64,
    /// How many bytes; at least 1.
    pub len: u64,
}

impl Request {
    /// The byte after the last.
    pub fn end(&self) -> u64 {
        self.offset + self.len
    }

    /// The blocks that it touches.
    pub fn blocks(&self, block_bytes: u64) -> Range<u64> {
        self.offset / block_bytes..self.end().div_ceil(block_bytes)
    }

    /// Whether it goes on where `before` ended.
    pub fn follows(&self, before: Option<&Request>) -> bool {
        before.is_some_and(|before| before.end() == self.offset)
    }
}

/// What a block in a request was read for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Use {
    /// It is in the pattern, and comes for the first time.
    Wanted,
    /// It is not in the pattern.
    Besides,
    /// An earlier request brought all of it that this one brings.
    Again,
}

/// Blocks side by side that one request reads for one use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) blocks: Range<u64>,
    pub(super) purpose: Use,
}

/// All requests of one strategy, each with its runs.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Account {
    /// One list for each request.
    pub(super) runs: Vec<Vec<Run>>,
    /// Bytes of all requests.
    pub(super) bytes: u64,
    /// Those of wanted blocks, each byte once.
    pub(super) wanted_bytes: u64,
    /// Those of blocks that are not in the pattern, each byte once.
    pub(super) besides_bytes: u64,
    /// Those that had been read before.
    pub(super) again_bytes: u64,
    /// Requests that go on where the one before ended.
    pub(super) following: u64,
}

impl Account {
    /// Of `requests`, in order of issue. `wanted`: the blocks of the pattern, ascending, each once.
    pub(super) fn of(requests: &[Request], wanted: &[u32], block_bytes: u64) -> Account {
        let mut account = Account::default();
        let mut seen = Seen::default();
        let mut before = None;
        for request in requests {
            let mut runs: Vec<Run> = Vec::new();
            for block in request.blocks(block_bytes) {
                let start = request.offset.max(block * block_bytes);
                let end = request.end().min((block + 1) * block_bytes);
                let new = seen.insert(start..end);
                let is_wanted =
                    u32::try_from(block).is_ok_and(|block| wanted.binary_search(&block).is_ok());
                let purpose = match (new, is_wanted) {
                    (0, _) => Use::Again,
                    (_, true) => Use::Wanted,
                    (_, false) => Use::Besides,
                };
                match purpose {
                    Use::Wanted => account.wanted_bytes += new,
                    Use::Besides => account.besides_bytes += new,
                    Use::Again => {}
                }
                account.again_bytes += end - start - new;
                match runs.last_mut() {
                    Some(run) if run.purpose == purpose => run.blocks.end = block + 1,
                    _ => runs.push(Run { blocks: block..block + 1, purpose }),
                }
            }
            account.bytes += request.len;
            account.following += u64::from(request.follows(before));
            before = Some(request);
            account.runs.push(runs);
        }
        assert_eq!(
            account.wanted_bytes + account.besides_bytes + account.again_bytes,
            account.bytes,
            "[EXP-3]"
        );
        account
    }

    /// Bytes that were read for nothing, as a part of those that had to be: 0 when each wanted block
    /// was read once and nothing else.
    pub(super) fn over_read(&self, wanted: &[u32], block_bytes: u64) -> f64 {
        self.bytes as f64 / (wanted.len() as u64 * block_bytes) as f64 - 1.0
    }
}

/// Bytes that have been read: ranges that neither meet nor overlap, by their start.
#[derive(Debug, Default)]
struct Seen {
    ranges: BTreeMap<u64, u64>,
}

impl Seen {
    /// Adds `range`, and says how many of its bytes are new.
    fn insert(&mut self, range: Range<u64>) -> u64 {
        let (mut start, mut end, mut old) = (range.start, range.end, 0);
        // From the last one that begins before the end of `range`, downwards.
        while let Some((&first, &last)) = self.ranges.range(..=end).next_back()
            && last >= start
        {
            old += last.min(range.end).saturating_sub(first.max(range.start));
            self.ranges.remove(&first);
            (start, end) = (start.min(first), end.max(last));
        }
        self.ranges.insert(start, end);
        range.end - range.start - old
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = 8192;

    fn request(first: u64, blocks: u64) -> Request {
        Request { offset: first * BLOCK, len: blocks * BLOCK }
    }

    fn run(blocks: Range<u64>, purpose: Use) -> Run {
        Run { blocks, purpose }
    }

    #[test]
    fn each_block_of_a_request_is_wanted_besides_or_again() {
        let requests = [request(1, 2), request(3, 4), request(6, 1)];
        let account = Account::of(&requests, &[1, 2, 3], BLOCK);
        assert_eq!(
            account.runs,
            [
                vec![run(1..3, Use::Wanted)],
                vec![run(3..4, Use::Wanted), run(4..7, Use::Besides)],
                vec![run(6..7, Use::Again)],
            ]
        );
        assert_eq!(account.wanted_bytes, 3 * BLOCK, "[EXP-3]");
        assert_eq!((account.besides_bytes, account.again_bytes), (3 * BLOCK, BLOCK), "[EXP-3]");
        assert_eq!(account.following, 1);
        let over_read = account.over_read(&[1, 2, 3], BLOCK);
        assert!((over_read - 4.0 / 3.0).abs() < 1e-9, "{over_read}");
    }

    #[test]
    fn runs_are_the_blocks_of_their_request_whatever_is_wanted() {
        let mut random = fastrand::Rng::with_seed(4);
        for _ in 0..200 {
            let mut wanted = random.choose_multiple(0..40_u32, 12);
            wanted.sort_unstable();
            let requests: Vec<Request> = (0..12)
                .map(|_| Request {
                    offset: random.u64(0..60) * 4096,
                    len: random.u64(1..20) * 4096,
                })
                .collect();
            let account = Account::of(&requests, &wanted, BLOCK);
            for (runs, request) in account.runs.iter().zip(&requests) {
                let mut next = request.blocks(BLOCK).start;
                for run in runs {
                    assert_eq!(run.blocks.start, next, "[EXP-2]");
                    next = run.blocks.end;
                }
                assert_eq!(next, request.blocks(BLOCK).end, "[EXP-2]");
            }
        }
    }

    #[test]
    fn half_a_block_is_all_of_it_in_blocks_and_half_in_bytes() {
        // The first half of block 5, then the second with the first of block 6.
        let requests = [
            Request { offset: 5 * BLOCK, len: 4096 },
            Request { offset: 5 * BLOCK + 4096, len: 8192 },
        ];
        assert_eq!(requests[0].blocks(BLOCK), 5..6);
        assert_eq!(requests[1].blocks(BLOCK), 5..7);
        let account = Account::of(&requests, &[5], BLOCK);
        assert_eq!(account.runs[1], [run(5..6, Use::Wanted), run(6..7, Use::Besides)]);
        assert_eq!((account.wanted_bytes, account.besides_bytes), (BLOCK, 4096));
        assert_eq!(account.following, 1);
    }

    #[test]
    fn what_was_seen_is_counted_once_as_in_a_naive_model() {
        let mut random = fastrand::Rng::with_seed(5);
        for _ in 0..100 {
            let (mut seen, mut naive) = (Seen::default(), [false; 128]);
            for _ in 0..40 {
                let start = random.usize(0..120);
                let end = random.usize(start + 1..=128.min(start + 30));
                let new = naive[start..end].iter().filter(|&&old| !old).count() as u64;
                naive[start..end].fill(true);
                assert_eq!(seen.insert(start as u64..end as u64), new);
            }
            let ends: Vec<(u64, u64)> = seen.ranges.into_iter().collect();
            assert!(ends.windows(2).all(|pair| pair[0].1 < pair[1].0), "{ends:?}");
        }
    }
}
