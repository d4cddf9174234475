//! The axis of blocks: what is drawn of a file, with its empty parts left out.
//!
//! Patterns leave most of a file alone, and a picture to scale would be blank paper. So a gap that
//! nobody asked for and nobody read is cut out where it is large beside the rest; what is left are
//! segments, drawn to one scale. Worked example: blocks 1-20 and 1001-1020 are two segments, and a
//! hundred random blocks of 100,000 are one, since no gap stands out there.
//!
//! Invariants:  [EXP-4] every block that was wanted or read is in one segment, and a request is in one
//!              [EXP-5] later blocks are never drawn before earlier ones

use std::ops::Range;

/// Shorter gaps are never cut.
const GAP_MIN: u64 = 16;

/// A gap is cut that is at least one part in so many of all that would be drawn.
const GAP_PART: u64 = 16;

/// The most cuts.
const CUTS_MAX: usize = 12;

/// A first block below this is drawn from block 0 on.
const ORIGIN: u64 = 16;

/// The segments that are drawn, ascending; at least one, none of them empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Axis {
    pub(super) segments: Vec<Range<u64>>,
}

impl Axis {
    /// For everything `touched`: blocks wanted or read, in any order, at least one.
    pub(super) fn of(mut touched: Vec<Range<u64>>) -> Axis {
        touched.sort_unstable_by_key(|range| range.start);
        let mut merged: Vec<Range<u64>> = Vec::new();
        for range in touched {
            match merged.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => merged.push(range),
            }
        }
        assert!(!merged.is_empty(), "[EXP-1] a pattern has a block");
        if merged[0].start < ORIGIN {
            merged[0].start = 0;
        }
        let mut gaps: Vec<(u64, usize)> = merged
            .windows(2)
            .enumerate()
            .map(|(index, pair)| (pair[1].start - pair[0].end, index))
            .collect();
        gaps.sort_unstable_by_key(|&(blocks, index)| (std::cmp::Reverse(blocks), index));
        let mut left = merged[merged.len() - 1].end - merged[0].start;
        let mut cuts = Vec::new();
        for (blocks, index) in gaps {
            if blocks < GAP_MIN || blocks * GAP_PART < left || cuts.len() == CUTS_MAX {
                break;
            }
            left -= blocks;
            cuts.push(index);
        }
        cuts.sort_unstable();
        let mut segments = Vec::with_capacity(cuts.len() + 1);
        let mut start = merged[0].start;
        for cut in cuts {
            segments.push(start..merged[cut].end);
            start = merged[cut + 1].start;
        }
        segments.push(start..merged[merged.len() - 1].end);
        Axis { segments }
    }

    /// Blocks in all segments.
    pub(super) fn blocks(&self) -> u64 {
        self.segments.iter().map(|segment| segment.end - segment.start).sum()
    }

    /// The segment that `block` is in.
    pub(super) fn segment(&self, block: u64) -> usize {
        let index = self.segments.partition_point(|segment| segment.end <= block);
        let inside = self.segments.get(index).is_some_and(|segment| segment.start <= block);
        assert!(inside, "[EXP-4] block {block} is drawn");
        index
    }

    /// Blocks to be labelled, the more important ones first: the first of each segment, then the
    /// multiples of `step` in between.
    pub(super) fn labels(&self, step: u64) -> Vec<u64> {
        let mut labels: Vec<u64> = self.segments.iter().map(|segment| segment.start).collect();
        for segment in &self.segments {
            let mut next = (segment.start / step + 1) * step;
            while next < segment.end {
                labels.push(next);
                next += step;
            }
        }
        labels
    }
}

/// The smallest of 1, 2, 5, 10, 20, 50 ... that is at least `least`.
pub(super) fn round_step(least: f64) -> u64 {
    let mut unit = 1;
    loop {
        for times in [1, 2, 5] {
            if (unit * times) as f64 >= least {
                return unit * times;
            }
        }
        unit *= 10;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_that_stands_out_is_cut_and_small_ones_are_not() {
        let whole = |segment: Range<u64>| Axis { segments: vec![segment] };
        assert_eq!(Axis::of(vec![1..2, 3..4, 2..3, 9..10]), whole(0..10));
        assert_eq!(Axis::of(vec![1001..1021, 1..21]).segments, [0..21, 1001..1021]);
        assert_eq!(Axis::of(vec![500..501, 500..501]), whole(500..501));
    }

    #[test]
    fn random_blocks_make_one_segment() {
        let mut random = fastrand::Rng::with_seed(3);
        let blocks = random.choose_multiple(0..100_000_u64, 400);
        assert_eq!(Axis::of(blocks.iter().map(|&at| at..at + 1).collect()).segments.len(), 1);
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
            let axis = Axis::of(touched.clone());
            assert!(axis.segments.len() <= CUTS_MAX + 1);
            assert!(axis.segments.windows(2).all(|pair| pair[0].end < pair[1].start), "[EXP-5]");
            for range in &touched {
                assert_eq!(axis.segment(range.start), axis.segment(range.end - 1), "[EXP-4]");
            }
        }
    }

    #[test]
    fn steps_are_round() {
        assert_eq!(
            [0.2, 1.0, 1.1, 3.0, 7.0, 11.0, 450.0].map(round_step),
            [1, 1, 2, 5, 10, 20, 500]
        );
    }
}
