//! Requests: what the disk received, in blocks and compared with the wanted blocks.
//!
//! A request is bytes; people think in blocks. One that begins or ends within a block counts as all of
//! that block here, while figures are taken from the bytes themselves. Each request is cut into runs:
//! wanted blocks that are read for the first time, blocks that were not requested, and blocks that
//! an earlier request has read already. Worked example: wanted 1, 3, 2; requests [1..=2], [3..=6],
//! [6..=6] are wanted 1-2; wanted 3 and besides 4-6; again 6.
//!
//! Invariants:  [EXP-2] the runs of a request are its blocks, in order, without a gap
//!              [EXP-3] what is wanted and new, unwanted, and again adds up to the bytes of all requests

use std::ops::Range;

use rangemap::RangeSet;

/// One read that arrived at the disk.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Request {
    /// Bytes of the file; at least one.
    pub(super) bytes: Range<u64>,
    /// The blocks that it touches, by their use.
    pub(super) runs: Vec<Run>,
    /// Whether it continues where the previous request ended.
    pub(super) follows: bool,
}

impl Request {
    pub(super) fn blocks(&self) -> Range<u64> {
        self.runs[0].blocks.start..self.runs[self.runs.len() - 1].blocks.end
    }
}

/// Adjacent blocks that one request reads for one use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) blocks: Range<u64>,
    pub(super) purpose: Use,
}

/// The use of a block in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// It is in the pattern, and is read for the first time.
    Wanted,
    /// It is not in the pattern.
    Besides,
    /// An earlier request has read all of it that this one reads.
    Again,
}

impl Use {
    pub(super) const ALL: [Use; 3] = [Use::Wanted, Use::Besides, Use::Again];
}

/// All requests of one strategy.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Account {
    /// In order of issue.
    pub(super) requests: Vec<Request>,
    /// Bytes of all requests.
    pub(super) bytes: u64,
    /// Bytes of wanted blocks, each byte once.
    pub(super) wanted_bytes: u64,
    /// Bytes of blocks that are not in the pattern, each byte once.
    pub(super) besides_bytes: u64,
    /// Bytes of blocks that had been read before.
    pub(super) again_bytes: u64,
}

impl Account {
    /// Of `reads`, byte ranges in order of issue. `wanted`: the blocks of the pattern, ascending, each once.
    pub(super) fn of(
        reads: impl IntoIterator<Item = Range<u64>>,
        wanted: &[u32],
        block_bytes: u64,
    ) -> Account {
        let mut account = Account::default();
        let mut seen: RangeSet<u64> = RangeSet::new();
        let mut end_before = None;
        for bytes in reads {
            let mut runs: Vec<Run> = Vec::new();
            for block in bytes.start / block_bytes..bytes.end.div_ceil(block_bytes) {
                let start = bytes.start.max(block * block_bytes);
                let part = start..bytes.end.min((block + 1) * block_bytes);
                let new = seen.gaps(&part).map(|gap| gap.end - gap.start).sum::<u64>();
                let is_wanted =
                    u32::try_from(block).is_ok_and(|block| wanted.binary_search(&block).is_ok());
                let purpose = match (new, is_wanted) {
                    (0, _) => Use::Again,
                    (_, true) => Use::Wanted,
                    (_, false) => Use::Besides,
                };
                let sum =
                    if is_wanted { &mut account.wanted_bytes } else { &mut account.besides_bytes };
                *sum += new;
                account.again_bytes += part.end - part.start - new;
                seen.insert(part);
                match runs.last_mut() {
                    Some(run) if run.purpose == purpose => run.blocks.end = block + 1,
                    _ => runs.push(Run { blocks: block..block + 1, purpose }),
                }
            }
            account.bytes += bytes.end - bytes.start;
            let follows = end_before == Some(bytes.start);
            end_before = Some(bytes.end);
            account.requests.push(Request { bytes, runs, follows });
        }
        assert_eq!(
            account.wanted_bytes + account.besides_bytes + account.again_bytes,
            account.bytes,
            "[EXP-3]"
        );
        account
    }
}

/// How many of `requests` continue where the previous one ended.
pub(super) fn following(requests: &[Request]) -> usize {
    requests.iter().filter(|request| request.follows).count()
}

/// `S` if most of `requests` continue where the previous one ended, otherwise `R`.
pub(super) fn letter(requests: &[Request]) -> char {
    if following(requests) * 2 > requests.len() { 'S' } else { 'R' }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = 8192;

    fn read(first: u64, blocks: u64) -> Range<u64> {
        first * BLOCK..(first + blocks) * BLOCK
    }

    fn run(blocks: Range<u64>, purpose: Use) -> Run {
        Run { blocks, purpose }
    }

    #[test]
    fn each_block_of_a_request_is_wanted_besides_or_again() {
        let account = Account::of([read(1, 2), read(3, 4), read(6, 1)], &[1, 2, 3], BLOCK);
        let runs: Vec<&Vec<Run>> = account.requests.iter().map(|request| &request.runs).collect();
        assert_eq!(
            runs,
            [
                &vec![run(1..3, Use::Wanted)],
                &vec![run(3..4, Use::Wanted), run(4..7, Use::Besides)],
                &vec![run(6..7, Use::Again)],
            ]
        );
        assert_eq!(account.wanted_bytes, 3 * BLOCK, "[EXP-3]");
        assert_eq!((account.besides_bytes, account.again_bytes), (3 * BLOCK, BLOCK), "[EXP-3]");
        assert_eq!(following(&account.requests), 1);
    }

    #[test]
    fn runs_are_the_blocks_of_their_request_whatever_is_wanted() {
        let mut random = fastrand::Rng::with_seed(4);
        for _ in 0..200 {
            let mut wanted = random.choose_multiple(0..40_u32, 12);
            wanted.sort_unstable();
            let reads: Vec<Range<u64>> = (0..12)
                .map(|_| {
                    let start = random.u64(0..60) * 4096;
                    start..start + random.u64(1..20) * 4096
                })
                .collect();
            let account = Account::of(reads, &wanted, BLOCK);
            for request in &account.requests {
                let mut next = request.bytes.start / BLOCK;
                for run in &request.runs {
                    assert_eq!(run.blocks.start, next, "[EXP-2]");
                    next = run.blocks.end;
                }
                assert_eq!(next, request.bytes.end.div_ceil(BLOCK), "[EXP-2]");
            }
        }
    }

    #[test]
    fn half_a_block_is_all_of_it_in_blocks_and_half_in_bytes() {
        // The first half of block 5, then the second with the first of block 6.
        let middle = 5 * BLOCK + 4096;
        let account = Account::of([5 * BLOCK..middle, middle..middle + 8192], &[5], BLOCK);
        assert_eq!(account.requests[0].blocks(), 5..6);
        assert_eq!(account.requests[1].blocks(), 5..7);
        let runs = [run(5..6, Use::Wanted), run(6..7, Use::Besides)];
        assert_eq!(account.requests[1].runs, runs);
        assert_eq!((account.wanted_bytes, account.besides_bytes), (BLOCK, 4096));
        assert_eq!(following(&account.requests), 1);
    }
}
