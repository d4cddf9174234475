//! The axis of blocks: what is drawn of a file, with its empty parts left out, and in which columns.
//!
//! Patterns leave most of a file alone, and a picture to scale would be blank paper. So a gap without
//! requested or read blocks is cut out if it is large compared with the rest; the remaining parts are
//! segments, drawn to one scale. Worked example: blocks 1-20 and 1001-1020 are two segments, and a
//! hundred random blocks of 100,000 are one, since no gap is large there.
//!
//! Invariants:  [EXP-4] every requested or read block is in one segment, and a request is in one
//!              [EXP-5] later blocks are never drawn before earlier ones

use std::cmp::Reverse;
use std::ops::Range;

use rangemap::RangeSet;

use super::pattern::Pattern;
use super::request::{Request, Use};
use forebay_measure::report::numbers;

/// Shorter gaps are never cut.
const GAP_MIN: u64 = 16;

/// A gap is cut if it is at least one part in this many of all that would be drawn.
const GAP_PART: u64 = 16;

/// Maximum number of cuts: on the narrowest terminal each segment still has a column.
const CUTS_MAX: usize = 8;

/// If the first block is below this, the drawing starts at block 0.
const ORIGIN: u64 = 16;

/// The drawn segments, ascending, none of them empty. `touched`: blocks wanted or read, in any
/// order, at least one.
pub(super) fn segments(touched: impl Iterator<Item = Range<u64>>) -> Vec<Range<u64>> {
    let mut drawn: RangeSet<u64> = touched.collect();
    let first = drawn.first().expect("[EXP-1] a pattern has a block").start;
    if first < ORIGIN {
        drawn.insert(0..first + 1);
    }
    let start = if first < ORIGIN { 0 } else { first };
    let whole = start..drawn.last().map_or(start, |last| last.end);
    let mut gaps: Vec<Range<u64>> = drawn.gaps(&whole).collect();
    gaps.sort_by_key(|gap| Reverse(gap.end - gap.start));
    let mut left = whole.end - whole.start;
    let is_cut = |gap: &&Range<u64>| {
        let (blocks, before) = (gap.end - gap.start, left);
        left -= blocks;
        blocks >= GAP_MIN && blocks * GAP_PART >= before
    };
    let cuts = gaps.iter().take(CUTS_MAX).take_while(is_cut).count();
    drawn.extend(gaps.split_off(cuts));
    drawn.into_iter().collect()
}

/// Which column a block is in: the segments side by side, with a free column between two of them.
#[derive(Debug)]
pub(super) struct Columns {
    segments: Vec<Range<u64>>,
    /// The first column of each segment.
    starts: Vec<usize>,
    /// Blocks in a column; 1 where blocks have room.
    pub(super) blocks_each: u64,
    pub(super) width: usize,
}

impl Columns {
    /// As few blocks to a column as `room` columns allow.
    pub(super) fn fit(segments: Vec<Range<u64>>, room: usize) -> Columns {
        let mut blocks_each = 1_u64;
        loop {
            let (mut starts, mut next) = (Vec::new(), 0);
            for segment in &segments {
                starts.push(next);
                next += (segment.end - segment.start).div_ceil(blocks_each) as usize + 1;
            }
            if next - 1 <= room {
                return Columns { segments, starts, blocks_each, width: next - 1 };
            }
            blocks_each += blocks_each.div_ceil(64);
        }
    }

    /// The segment that `block` is in.
    fn segment(&self, block: u64) -> usize {
        let index = self.segments.partition_point(|segment| segment.end <= block);
        let inside = self.segments.get(index).is_some_and(|segment| segment.start <= block);
        assert!(inside, "[EXP-4] block {block} is drawn");
        index
    }

    pub(super) fn of(&self, block: u64) -> usize {
        let segment = self.segment(block);
        let within = (block - self.segments[segment].start) / self.blocks_each;
        self.starts[segment] + within as usize
    }

    /// The columns between segments.
    pub(super) fn breaks(&self) -> impl Iterator<Item = usize> {
        self.starts[1..].iter().map(|start| start - 1)
    }

    /// How many blocks `requests` read in each column, by their [`Use`].
    pub(super) fn counts(&self, requests: &[Request]) -> Vec<[u64; 3]> {
        let mut counts = vec![[0; 3]; self.width];
        for run in requests.iter().flat_map(|request| &request.runs) {
            for block in run.blocks.clone() {
                counts[self.of(block)][run.purpose as usize] += 1;
            }
        }
        counts
    }

    /// The same for the requested blocks.
    pub(super) fn asked(&self, pattern: &Pattern) -> Vec<[u64; 3]> {
        let mut counts = vec![[0; 3]; self.width];
        for &block in &pattern.wanted {
            counts[self.of(block.into())][Use::Wanted as usize] += 1;
        }
        counts
    }

    /// Numbers of blocks with their columns: the first of each segment, and round ones while there are
    /// `room` columns. `wide`: how many columns a number takes.
    pub(super) fn labels(&self, room: usize, wide: impl Fn(&str) -> usize) -> Vec<(usize, String)> {
        let end = self.segments.last().map_or(0, |segment| segment.end);
        let step = round_step(wide(&numbers::grouped(end as f64)) as u64 * self.blocks_each);
        let firsts = self.segments.iter().map(|segment| (segment.start, true));
        let round = self.segments.iter().flat_map(|segment| {
            let multiples = (segment.start / step + 1..).map(|times| times * step);
            multiples.take_while(|&block| block < segment.end).map(|block| (block, false))
        });
        let mut labels: Vec<(usize, String)> = Vec::new();
        for (block, is_first) in firsts.chain(round) {
            let text = numbers::grouped(block as f64);
            let (column, last) = (self.of(block), room.saturating_sub(wide(&text)));
            // A segment at the edge may be narrower than its label, which then begins before it.
            let at = column.min(last);
            let is_free = |(other, label): &(usize, String)| {
                at + wide(&text) <= *other || other + wide(label) <= at
            };
            if (at == column || is_first) && labels.iter().all(is_free) {
                labels.push((at, text));
            }
        }
        labels
    }
}

/// The most frequent use of the blocks in a column; wanted, on a tie.
pub(super) fn most(counts: [u64; 3]) -> Option<Use> {
    let uses = Use::ALL.into_iter().zip(counts).filter(|&(_, blocks)| blocks > 0);
    // Of equals, the last is taken.
    uses.rev().max_by_key(|&(_, blocks)| blocks).map(|(purpose, _)| purpose)
}

/// The smallest of 1, 2, 5, 10, 20, 50 ... that is at least `least`.
pub(super) fn round_step(least: u64) -> u64 {
    let powers = (0..19).map(|power| 10_u64.pow(power));
    let mut steps = powers.flat_map(|unit| [unit, 2 * unit, 5 * unit]);
    steps.find(|&step| step >= least).unwrap_or(least)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(touched: &[Range<u64>]) -> Vec<Range<u64>> {
        segments(touched.iter().cloned())
    }

    #[test]
    fn a_gap_that_stands_out_is_cut_and_small_ones_are_not() {
        assert_eq!(of(&[1..2, 3..4, 2..3, 9..10]), vec![0..10]);
        assert_eq!(of(&[1001..1021, 1..21]), [0..21, 1001..1021]);
        assert_eq!(of(&[500..501, 500..501]), vec![500..501]);
    }

    #[test]
    fn random_blocks_make_one_segment() {
        let mut random = fastrand::Rng::with_seed(3);
        let blocks = random.choose_multiple(0..100_000_u64, 400);
        assert_eq!(segments(blocks.iter().map(|&at| at..at + 1)).len(), 1);
    }

    #[test]
    fn whatever_is_touched_lies_in_one_segment_and_in_order() {
        let mut random = fastrand::Rng::with_seed(5);
        for _ in 0..200 {
            let touched: Vec<Range<u64>> = (0..random.usize(1..60))
                .map(|_| {
                    let start = 1 << random.u32(0..30);
                    let start = start + random.u64(0..200);
                    start..start + random.u64(1..50)
                })
                .collect();
            let segments = of(&touched);
            assert!(segments.len() <= CUTS_MAX + 1);
            assert!(segments.windows(2).all(|pair| pair[0].end < pair[1].start), "[EXP-5]");
            let columns = Columns::fit(segments, 2 * CUTS_MAX + 1);
            assert!(columns.width <= 2 * CUTS_MAX + 1);
            for range in &touched {
                let (first, last) = (range.start, range.end - 1);
                assert_eq!(columns.segment(first), columns.segment(last), "[EXP-4]");
                assert!(columns.of(first) <= columns.of(last), "[EXP-5]");
            }
        }
    }

    #[test]
    fn labels_leave_each_other_room_and_each_segment_has_one() {
        let columns = Columns::fit(vec![0..21, 1001..1021], 80);
        let labels = columns.labels(42, |label| label.len() + 1);
        assert_eq!(labels[..2], [(0, "0".to_owned()), (22, "1,001".to_owned())]);
        assert!(labels.contains(&(10, "10".to_owned())), "{labels:?}");
    }

    #[test]
    fn a_column_is_what_most_of_it_is() {
        assert_eq!(most([0, 0, 0]), None);
        assert_eq!(most([2, 2, 2]), Some(Use::Wanted));
        assert_eq!(most([1, 2, 2]), Some(Use::Besides));
        assert_eq!(most([0, 0, 1]), Some(Use::Again));
    }

    #[test]
    fn steps_are_round() {
        assert_eq!([0, 1, 2, 3, 7, 11, 450].map(round_step), [1, 1, 2, 5, 10, 20, 500]);
    }
}
