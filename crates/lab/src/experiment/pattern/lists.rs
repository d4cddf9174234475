//! The lists behind the patterns: which blocks, in which order.
//!
//! Everything here is arithmetic on block numbers and depends on the random numbers it is given alone.

use std::ops::Range;

use super::Shape;

/// How strongly `zipfian` prefers its favourites; as in YCSB.
const ZIPF_EXPONENT: f64 = 0.99;

/// Most blocks among which `zipfian` chooses: the rest of a larger file would hardly ever be met.
const ZIPF_BLOCKS_MAX: u32 = 1 << 20;

/// From one favourite of `zipfian` to the next: a prime, which has no divisor in common with the length of any
/// shorter file, so that steps visit each block once.
const ZIPF_STEP: u64 = 2_654_435_761;

/// The order of document 004, and how far the next six are from these.
const NEIGHBOURS: [u32; 6] = [1, 3, 2, 6, 4, 9];
const NEIGHBOURS_STEP: u32 = 9;

/// How far apart the two sequences of document 004 are.
const TWO_STREAMS_APART: u32 = 1000;

/// A range of `blocks` (no more than the file has) anywhere in the file.
pub(super) fn place(shape: &Shape, blocks: u32, random: &mut fastrand::Rng) -> Range<u32> {
    let start = random.u32(0..=shape.file_blocks - blocks);
    start..start + blocks
}

/// `count` ranges of `blocks` each, one somewhere in each of as many parts of the file.
pub(super) fn parts(
    shape: &Shape,
    count: u32,
    blocks: u32,
    random: &mut fastrand::Rng,
) -> Vec<Range<u32>> {
    let part = shape.file_blocks / count;
    let blocks = blocks.clamp(1, part);
    let start =
        |index: u32, random: &mut fastrand::Rng| index * part + random.u32(0..=part - blocks);
    (0..count).map(|index| start(index, random)).map(|start| start..start + blocks).collect()
}

/// One block in `stride`, ascending.
pub(super) fn strided(shape: &Shape, stride: u32, random: &mut fastrand::Rng) -> Vec<u32> {
    let count = shape.blocks.min(shape.file_blocks / stride);
    let start = place(shape, count * stride, random).start;
    (0..count).map(|index| start + index * stride).collect()
}

/// `count` blocks, every one as likely as any other; some of them several times.
pub(super) fn uniform(file_blocks: u32, count: u32, random: &mut fastrand::Rng) -> Vec<u32> {
    (0..count).map(|_| random.u32(0..file_blocks)).collect()
}

/// Ranks of which the k-th comes in proportion to 1 / k^0.99.
pub(in crate::experiment) struct Zipf {
    sums: Vec<f64>,
}

impl Zipf {
    /// Of so many ranks.
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

/// `count` blocks, the k-th most popular in proportion to 1 / k^0.99; popular ones lie anywhere.
pub(super) fn zipfian(file_blocks: u32, count: u32, random: &mut fastrand::Rng) -> Vec<u32> {
    let zipf = Zipf::new(file_blocks.min(ZIPF_BLOCKS_MAX));
    let first = u64::from(random.u32(0..file_blocks));
    let draw = |_| {
        let place = first + u64::from(zipf.draw(random)) * ZIPF_STEP;
        (place % u64::from(file_blocks)) as u32
    };
    (0..count).map(draw).collect()
}

/// `ranges` in turn, each in consecutive windows that are shuffled.
pub(super) fn shuffled(
    shape: &Shape,
    ranges: u32,
    window: u32,
    random: &mut fastrand::Rng,
) -> Vec<u32> {
    let ranges = parts(shape, ranges, shape.blocks / ranges, random);
    let mixed: Vec<Vec<u32>> = ranges
        .into_iter()
        .map(|range| {
            let mut blocks: Vec<u32> = range.collect();
            blocks.chunks_mut(window as usize).for_each(|window| random.shuffle(window));
            blocks
        })
        .collect();
    let len = mixed[0].len();
    (0..len).flat_map(|at| mixed.iter().map(move |blocks| blocks[at])).collect()
}

/// A table of `shape.blocks` in the order of an index: `percent` of its blocks come where the table's
/// own order has them, and the others anywhere among themselves. That makes a correlation of
/// `percent` / 100. Noise on every position was the alternative; but a table that was clustered once
/// and changed since looks like this: runs, and strays among them.
pub(super) fn index(shape: &Shape, percent: u32, random: &mut fastrand::Rng) -> Vec<u32> {
    let blocks = shape.blocks.min(shape.file_blocks);
    let mut order: Vec<u32> = place(shape, blocks, random).collect();
    let strays = (u64::from(blocks) * u64::from(100 - percent) / 100) as usize;
    let positions = random.choose_multiple(0..order.len(), strays);
    let mut moved: Vec<u32> = positions.iter().map(|&position| order[position]).collect();
    random.shuffle(&mut moved);
    for (position, block) in positions.into_iter().zip(moved) {
        order[position] = block;
    }
    order
}

/// Ascending blocks, `percent` of a range that is as large as that takes, or as the file is.
pub(super) fn bitmap(shape: &Shape, percent: u32, random: &mut fastrand::Rng) -> Vec<u32> {
    let wanted = u64::from(shape.blocks) * 100 / u64::from(percent);
    let span = u32::try_from(wanted).map_or(shape.file_blocks, |span| span.min(shape.file_blocks));
    let count = (u64::from(span) * u64::from(percent) / 100).max(1) as usize;
    let range = place(shape, span, random);
    let mut blocks = random.choose_multiple(range, count);
    blocks.sort_unstable();
    blocks
}

/// 1, 3, 2, 6, 4, 9, and the same again nine blocks further on, as often as there are blocks to read.
pub(super) fn neighbours(shape: &Shape, random: &mut fastrand::Rng) -> Vec<u32> {
    let longest = NEIGHBOURS_STEP + 1;
    let room = (shape.file_blocks - longest) / NEIGHBOURS_STEP;
    let times = (shape.blocks / NEIGHBOURS.len() as u32).clamp(1, room);
    let span = times * NEIGHBOURS_STEP + 1;
    let start = place(shape, span, random).start;
    (0..times)
        .flat_map(|time| NEIGHBOURS.map(|block| start + time * NEIGHBOURS_STEP + block))
        .collect()
}

/// 1, 1001, 2, 1002 ... until the first sequence meets the second; then the same further on.
pub(super) fn two_streams(shape: &Shape, random: &mut fastrand::Rng) -> Vec<u32> {
    let count = shape.blocks.min(shape.file_blocks) / 2 * 2;
    let apart = TWO_STREAMS_APART.min(count / 2);
    // Whole pairs of sequences only, so that all blocks lie side by side.
    let count = count / (2 * apart) * (2 * apart);
    let start = place(shape, count, random).start;
    (0..count)
        .map(|at| {
            let (pair, at) = (at / (2 * apart), at % (2 * apart));
            start + pair * 2 * apart + at / 2 + at % 2 * apart
        })
        .collect()
}
