//! Coalescing: turns the wanted blocks into the requests that fetch them.
//!
//! A request costs about as much as the transfer of a few pages. So adjacent blocks go into one request, and two
//! requests with a small gap between them are merged by reading through the gap. Worked example: 10, 42, 43, 44, 60
//! become [10], [42..=44], [60]; 1, 2, 3, 4, 6, 9 with gaps of one block allowed become [1..=6], [9], if one block in
//! six may be wasted.
//!
//! First, adjacent blocks are joined, up to the size of one request. Then gaps are read through, the smallest first,
//! while the call's over-read budget lasts: each gap saves one request, so a small gap saves it for fewer blocks. A gap
//! is read through only if the requests on both sides of it fit into one as they are. Cutting a long row of adjacent
//! blocks elsewhere would occasionally save one more request; it was rejected, as it would also waste blocks where
//! nothing is saved.
//!
//! Invariants:  [COA-1] each wanted block is in exactly one run; runs ascend, and begin and end at a
//!              wanted block  [COA-2] no run is longer than the combine limit  [COA-3] no gap is longer than
//!              the gap limit  [COA-4] all gaps together are within the call's over-read  [COA-5] each gap read
//!              through saves one request
//! Concurrency: none; a function of its arguments that allocates only by making `runs` longer.
//! Failure:     blocks out of order, or a combine limit of 0, are bugs, and panic.

use crate::Block;

/// Limits for the requests of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Limits {
    /// Maximum number of blocks in one request, gaps included; at least 1.
    pub combine_blocks: u32,
    /// Maximum number of unneeded blocks in one gap that is read through.
    pub gap_blocks: u32,
    /// Maximum number of unneeded blocks for each 100 wanted ones, over the whole call.
    pub over_read_percent: u32,
}

/// One request: consecutive blocks, of which the first and the last are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Run {
    /// The first block.
    pub first: Block,
    /// Length in blocks, gaps included.
    pub blocks: u32,
    /// How many of them are wanted.
    pub wanted: u32,
}

impl Run {
    /// The block after the last one; wider than a block, for a run that ends at the largest block number.
    fn end(self) -> u64 {
        u64::from(self.first) + u64::from(self.blocks)
    }
}

/// Appends to `runs` the requests that fetch the `wanted` blocks, which strictly ascend.
///
/// # Panics
/// `wanted` does not ascend, or `combine_blocks` is 0.
pub fn coalesce(wanted: &[Block], limits: Limits, runs: &mut Vec<Run>) {
    let start = runs.len();
    runs.extend(wanted.iter().map(|&first| Run { first, blocks: 1, wanted: 1 }));
    let left = coalesce_in_place(&mut runs[start..], limits);
    runs.truncate(start + left);
}

/// Like [`coalesce`], for `runs` of one wanted block each, merged in place; returns how many runs remain at the front.
pub(crate) fn coalesce_in_place(runs: &mut [Run], limits: Limits) -> usize {
    assert!(limits.combine_blocks >= 1, "[COA-2] a request holds a block at least: {limits:?}");
    let over_read = (runs.len() as u64).saturating_mul(u64::from(limits.over_read_percent)) / 100;
    let mut left = join_neighbours(runs, limits.combine_blocks);

    let mut budget = over_read;
    let mut gap = 1;
    while gap <= budget.min(u64::from(limits.gap_blocks)) {
        // Runs only grow, so what did not fit at this gap size will not fit later: continue with the next size.
        (left, gap) = read_through(gap, limits.combine_blocks, &mut budget, &mut runs[..left]);
    }
    left
}

/// Joins single blocks into runs without gaps, each as long as the combine limit allows; returns the number of runs.
fn join_neighbours(runs: &mut [Run], combine_blocks: u32) -> usize {
    let mut left = 0;
    for index in 0..runs.len() {
        let block = runs[index].first;
        if left > 0 {
            let run = &mut runs[left - 1];
            let end = run.end();
            assert!(u64::from(block) >= end, "[COA-1] {block} is wanted after block {}", end - 1);
            if u64::from(block) == end && run.blocks < combine_blocks {
                run.blocks += 1;
                run.wanted += 1;
                continue;
            }
        }
        runs[left] = runs[index];
        left += 1;
    }
    left
}

/// Joins runs that have `gap` blocks between them, while `budget` lasts and the joined run fits; returns how many
/// remain, and the next larger gap among them, or `u64::MAX`.
fn read_through(gap: u64, combine_blocks: u32, budget: &mut u64, runs: &mut [Run]) -> (usize, u64) {
    let mut larger = u64::MAX;
    let mut last = 0;
    for index in 1..runs.len() {
        let (left, right) = (runs[last], runs[index]);
        let between = u64::from(right.first) - left.end();
        if between == gap && gap <= *budget {
            let blocks = right.end() - u64::from(left.first);
            if blocks <= u64::from(combine_blocks) {
                *budget -= gap;
                runs[last].blocks = blocks as u32; // at most the combine limit
                runs[last].wanted += right.wanted;
                continue;
            }
        } else if between > gap {
            larger = larger.min(between);
        }
        last += 1;
        runs[last] = right;
    }
    ((last + 1).min(runs.len()), larger)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WIDE: Limits = Limits { combine_blocks: 16, gap_blocks: 1, over_read_percent: 25 };

    fn runs_of(wanted: &[Block], limits: Limits) -> Vec<Run> {
        let mut runs = Vec::new();
        coalesce(wanted, limits, &mut runs);
        runs
    }

    /// First block, length and wanted blocks of each run.
    fn plain(wanted: &[Block], limits: Limits) -> Vec<(Block, u32, u32)> {
        let runs = runs_of(wanted, limits);
        runs.iter().map(|run| (run.first, run.blocks, run.wanted)).collect()
    }

    #[test]
    fn neighbours_share_a_request_and_far_blocks_do_not() {
        let wanted = [10, 42, 43, 44, 60];
        assert_eq!(plain(&wanted, WIDE), [(10, 1, 1), (42, 3, 3), (60, 1, 1)]);
        assert_eq!(plain(&[], WIDE), []);
    }

    #[test]
    fn a_small_gap_is_read_through_when_the_budget_allows() {
        let wanted = [1, 2, 3, 4, 6, 9];
        assert_eq!(plain(&wanted, WIDE), [(1, 6, 5), (9, 1, 1)]);
        let frugal = Limits { over_read_percent: 16, ..WIDE };
        assert_eq!(plain(&wanted, frugal), [(1, 4, 4), (6, 1, 1), (9, 1, 1)]);
    }

    #[test]
    fn the_smallest_gaps_are_read_through_first() {
        // Gaps of 3, 1 and 2 blocks; 3 of them may be wasted.
        let limits = Limits { combine_blocks: 16, gap_blocks: 3, over_read_percent: 75 };
        assert_eq!(plain(&[10, 14, 16, 19], limits), [(10, 1, 1), (14, 6, 3)]);
    }

    #[test]
    fn a_gap_never_makes_a_run_overflow() {
        let limits = Limits { combine_blocks: 4, gap_blocks: 1, over_read_percent: 100 };
        assert_eq!(plain(&[1, 2, 4, 5], limits), [(1, 2, 2), (4, 2, 2)]);
        assert_eq!(plain(&[1, 2, 4], limits), [(1, 4, 3)]);
    }

    #[test]
    fn the_last_block_of_all_is_a_block_like_others() {
        let last = u32::MAX;
        let limits = Limits { combine_blocks: u32::MAX, gap_blocks: u32::MAX, ..WIDE };
        assert_eq!(plain(&[0, last - 2, last - 1, last], limits), [(0, 1, 1), (last - 2, 3, 3)]);
    }

    #[test]
    fn runs_that_are_there_already_stay() {
        let before = Run { first: 5, blocks: 1, wanted: 1 };
        let mut runs = vec![before];
        coalesce(&[6, 7, 9], Limits { over_read_percent: 50, ..WIDE }, &mut runs);
        assert_eq!(runs, [before, Run { first: 6, blocks: 4, wanted: 3 }]);
        coalesce(&[], WIDE, &mut runs);
        assert_eq!(runs.len(), 2);
    }

    #[test]
    #[should_panic(expected = "[COA-1]")]
    fn blocks_out_of_order_are_a_bug() {
        runs_of(&[4, 3], WIDE);
    }

    #[test]
    #[should_panic(expected = "[COA-2]")]
    fn a_request_without_blocks_is_a_bug() {
        runs_of(&[4], Limits { combine_blocks: 0, ..WIDE });
    }

    /// The minimum number of requests without a gap.
    fn fewest_without_gaps(wanted: &[Block], combine_blocks: u32) -> usize {
        let rows = wanted.chunk_by(|left, right| left + 1 == *right);
        rows.map(|row| row.len().div_ceil(combine_blocks as usize)).sum()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 64 } else { 10_000 }))]

        #[test]
        fn every_run_keeps_every_limit(
            wanted in proptest::collection::btree_set(0_u32..200, 0..80),
            combine_blocks in 1_u32..20,
            gap_blocks in 0_u32..6,
            over_read_percent in 0_u32..120,
        ) {
            let wanted: Vec<Block> = wanted.into_iter().collect();
            let limits = Limits { combine_blocks, gap_blocks, over_read_percent };
            let runs = runs_of(&wanted, limits);

            let mut left = wanted.as_slice();
            let (mut over_read, mut gaps) = (0, 0);
            for run in &runs {
                let (own, rest) = left.split_at(run.wanted as usize);
                left = rest;
                let last = run.first + run.blocks - 1;
                prop_assert_eq!(own.first(), Some(&run.first), "[COA-1] begins");
                prop_assert_eq!(own.last(), Some(&last), "[COA-1] ends");
                prop_assert!(run.blocks <= combine_blocks, "[COA-2]");
                for pair in own.windows(2) {
                    let gap = pair[1] - pair[0] - 1;
                    prop_assert!(gap <= gap_blocks, "[COA-3]");
                    gaps += usize::from(gap > 0);
                }
                over_read += run.blocks - run.wanted;
            }
            prop_assert!(left.is_empty(), "[COA-1] {:?} are in no run", left);
            prop_assert!(over_read * 100 <= wanted.len() as u32 * over_read_percent, "[COA-4]");
            let without = fewest_without_gaps(&wanted, combine_blocks);
            prop_assert_eq!(runs.len() + gaps, without, "[COA-5]");
        }
    }
}
