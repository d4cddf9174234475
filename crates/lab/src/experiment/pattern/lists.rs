//! The lists behind the patterns: which blocks, in which order.
//!
//! All of it is arithmetic on block numbers and depends only on the random numbers that it receives.

use std::ops::Range;

/// The input of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::experiment) struct Shape {
    /// Blocks of the file.
    pub(in crate::experiment) file_blocks: u32,
    /// The maximum number of blocks to read; fewer where the file is too small.
    pub(in crate::experiment) blocks: u32,
}

/// How strongly `zipfian` prefers its favourites; as in YCSB.
const ZIPF_EXPONENT: f64 = 0.99;

/// Maximum number of blocks among which `zipfian` chooses: the rest of a larger file would almost never be drawn.
const ZIPF_BLOCKS_MAX: u32 = 1 << 20;

/// The step from one favourite of `zipfian` to the next: a prime, which has no divisor in common with the length of
/// any shorter file, so that the steps visit each block once.
const ZIPF_STEP: u64 = 2_654_435_761;

/// The order of document 004, and its distance to the next six.
const NEIGHBOURS: [u32; 6] = [1, 3, 2, 6, 4, 9];
const NEIGHBOURS_STEP: u32 = 9;

/// The distance between the two sequences of document 004.
const TWO_DISTANT_STREAMS: u32 = 1000;

/// Ranks; the k-th is drawn in proportion to 1 / k^0.99.
pub(in crate::experiment) struct Zipf {
    sums: Vec<f64>,
}

impl Zipf {
    /// For this many ranks.
    pub(in crate::experiment) fn new(ranks: u32) -> Zipf {
        let mut sum = 0.0;
        let sums = (1..=ranks).map(|rank| {
            sum += f64::from(rank).powf(-ZIPF_EXPONENT);
            sum
        });
        Zipf { sums: sums.collect() }
    }

    /// A rank from 0 on.
    pub(in crate::experiment) fn draw(&self, random: &mut fastrand::Rng) -> u32 {
        let point = random.f64() * self.sums[self.sums.len() - 1];
        self.sums.partition_point(|&upto| upto <= point).min(self.sums.len() - 1) as u32
    }
}

/// Makes lists for files and plans of a shape.
pub(super) struct Lists<'a> {
    pub(super) shape: Shape,
    pub(super) random: &'a mut fastrand::Rng,
}

impl Lists<'_> {
    /// A range of `blocks` (no more than the file has) at a random position in the file.
    pub(super) fn place(&mut self, blocks: u32) -> Range<u32> {
        let start = self.random.u32(0..=self.shape.file_blocks - blocks);
        start..start + blocks
    }

    /// `count` ranges of `blocks` each: the file is divided into as many parts, and each has one at a random position.
    pub(super) fn parts(&mut self, count: u32, blocks: u32) -> Vec<Range<u32>> {
        let part = self.shape.file_blocks / count;
        let blocks = blocks.clamp(1, part);
        let starts = (0..count).map(|index| index * part + self.random.u32(0..=part - blocks));
        starts.map(|start| start..start + blocks).collect()
    }

    /// One block in `stride`, ascending.
    pub(super) fn strided(&mut self, stride: u32) -> Vec<u32> {
        let count = self.shape.blocks.min(self.shape.file_blocks / stride);
        let start = self.place(count * stride).start;
        (0..count).map(|index| start + index * stride).collect()
    }

    /// `count` blocks, every one as likely as any other; some of them several times.
    pub(super) fn uniform(&mut self, count: u32) -> Vec<u32> {
        (0..count).map(|_| self.random.u32(0..self.shape.file_blocks)).collect()
    }

    /// `count` blocks, the k-th most popular in proportion to 1 / k^0.99; popular ones are spread over the file.
    pub(super) fn zipfian(&mut self, count: u32) -> Vec<u32> {
        let zipf = Zipf::new(self.shape.file_blocks.min(ZIPF_BLOCKS_MAX));
        let first = u64::from(self.random.u32(0..self.shape.file_blocks));
        let draw = |_| {
            let place = first + u64::from(zipf.draw(self.random)) * ZIPF_STEP;
            (place % u64::from(self.shape.file_blocks)) as u32
        };
        (0..count).map(draw).collect()
    }

    /// `ranges` in turn, each in consecutive windows that are shuffled.
    pub(super) fn shuffled(&mut self, ranges: u32, window: u32) -> Vec<u32> {
        let ranges = self.parts(ranges, self.shape.blocks / ranges).into_iter();
        let mut mixed: Vec<Vec<u32>> = ranges.map(Iterator::collect).collect();
        for window in mixed.iter_mut().flat_map(|blocks| blocks.chunks_mut(window as usize)) {
            self.random.shuffle(window);
        }
        let len = mixed[0].len();
        (0..len).flat_map(|at| mixed.iter().map(move |blocks| blocks[at])).collect()
    }

    /// A table of `shape.blocks` in the order of an index: `percent` of its blocks are where the table's
    /// own order has them, and the others are permuted among themselves. That makes a correlation of
    /// `percent` / 100. Noise on every position was the alternative; but a table that was clustered once
    /// and changed since looks like this: runs, with outliers among them.
    pub(super) fn index(&mut self, percent: u32) -> Vec<u32> {
        let blocks = self.shape.blocks.min(self.shape.file_blocks);
        let mut order: Vec<u32> = self.place(blocks).collect();
        let strays = (u64::from(blocks) * u64::from(100 - percent) / 100) as usize;
        let positions = self.random.choose_multiple(0..order.len(), strays);
        let mut moved: Vec<u32> = positions.iter().map(|&position| order[position]).collect();
        self.random.shuffle(&mut moved);
        for (position, block) in positions.into_iter().zip(moved) {
            order[position] = block;
        }
        order
    }

    /// Ascending blocks, `percent` of a range that is as large as needed, or as the file.
    pub(super) fn bitmap(&mut self, percent: u32) -> Vec<u32> {
        let wanted = u64::from(self.shape.blocks) * 100 / u64::from(percent);
        let span = wanted.min(u64::from(self.shape.file_blocks)) as u32;
        let count = (u64::from(span) * u64::from(percent) / 100).max(1) as usize;
        let range = self.place(span);
        let mut blocks = self.random.choose_multiple(range, count);
        blocks.sort_unstable();
        blocks
    }

    /// 1, 3, 2, 6, 4, 9, and the same again nine blocks further on, as often as there are blocks to read.
    pub(super) fn neighbours(&mut self) -> Vec<u32> {
        let longest = NEIGHBOURS_STEP + 1;
        let room = (self.shape.file_blocks - longest) / NEIGHBOURS_STEP;
        let times = (self.shape.blocks / NEIGHBOURS.len() as u32).clamp(1, room);
        let span = times * NEIGHBOURS_STEP + 1;
        let start = self.place(span).start;
        (0..times)
            .flat_map(|time| NEIGHBOURS.map(|block| start + time * NEIGHBOURS_STEP + block))
            .collect()
    }

    /// 1, 1001, 2, 1002 ... until the first sequence meets the second; then the same further on.
    pub(super) fn two_streams(&mut self) -> Vec<u32> {
        let count = self.shape.blocks.min(self.shape.file_blocks) / 2 * 2;
        let gap = TWO_DISTANT_STREAMS.min(count / 2);
        // Whole pairs of sequences only, so that all blocks are adjacent.
        let count = count / (2 * gap) * (2 * gap);
        let start = self.place(count).start;
        (0..count)
            .map(|at| {
                let (pair, at) = (at / (2 * gap), at % (2 * gap));
                start + pair * 2 * gap + at / 2 + at % 2 * gap
            })
            .collect()
    }
}
