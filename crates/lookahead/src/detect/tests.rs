//! Tests of the detector: each pattern, the bounds, and what it costs on a simulated cache.

use std::collections::{HashMap, VecDeque};

use proptest::prelude::*;

use super::*;

const BLOCKS: Block = 1 << 20;
const MOST: u32 = 128;

/// A cache that drops the oldest block and reads what the detector returns: counts the blocks read needlessly.
struct Reader {
    detector: Detector,
    blocks: Block,
    room: usize,
    order: VecDeque<Block>,
    /// Blocks in memory, and whether each was wanted.
    wanted: HashMap<Block, bool>,
    misses: u64,
    /// Blocks read beyond the missed ones.
    extra: u64,
    /// Blocks dropped before they were wanted.
    dropped: u64,
}

impl Reader {
    fn new(blocks: Block, room: usize) -> Reader {
        let (order, wanted) = (VecDeque::new(), HashMap::new());
        let detector = Detector::default();
        Reader { detector, blocks, room, order, wanted, misses: 0, extra: 0, dropped: 0 }
    }

    /// What the detector returned, if the block was not in memory.
    fn read(&mut self, block: Block) -> Option<Detected> {
        if let Some(wanted) = self.wanted.get_mut(&block) {
            *wanted = true;
            return None;
        }
        let there = |other| self.wanted.contains_key(&other);
        let ahead = self.detector.missed(block, self.blocks, MOST, there);
        self.misses += 1;
        for step in 0..ahead.count {
            let next = i64::from(block) + i64::from(step) * ahead.stride;
            let next = Block::try_from(next).expect("inside the file");
            if self.wanted.contains_key(&next) {
                continue;
            }
            self.extra += u64::from(step > 0);
            self.wanted.insert(next, step == 0);
            self.order.push_back(next);
            if self.order.len() > self.room
                && let Some(old) = self.order.pop_front()
            {
                self.dropped += u64::from(self.wanted.remove(&old) == Some(false));
            }
        }
        Some(ahead)
    }

    fn read_all(&mut self, blocks: impl IntoIterator<Item = Block>) -> Vec<Detected> {
        blocks.into_iter().filter_map(|block| self.read(block)).collect()
    }

    /// Blocks that were read and have not been wanted so far.
    fn wasted(&self) -> u64 {
        let unwanted = self.wanted.values().filter(|wanted| !**wanted).count();
        self.dropped + unwanted as u64
    }
}

fn batches(aheads: &[Detected]) -> Vec<(Block, u32)> {
    aheads.iter().map(|ahead| (ahead.first, ahead.count)).collect()
}

/// A miss with no block in memory.
fn missed(detector: &mut Detector, block: Block) -> Detected {
    detector.missed(block, BLOCKS, MOST, |_| false)
}

#[test]
fn a_forward_reader_is_known_at_its_second_miss_and_its_batches_double() {
    let mut reader = Reader::new(BLOCKS, 1000);
    let aheads = reader.read_all(10..600);
    let want = [(10, 1), (11, 4), (15, 8), (23, 16), (39, 32), (71, 64), (135, 128), (263, 128)];
    assert_eq!(batches(&aheads)[..8], want, "[DET-5]");
    assert_eq!(aheads[0].why, Why::Random);
    assert!(aheads[1..].iter().all(|ahead| (ahead.stride, ahead.why) == (1, Why::Sequential)));
    assert_eq!(reader.detector.sequences(), 1);
}

#[test]
fn a_backward_reader_is_followed_to_the_start_of_the_file() {
    let mut reader = Reader::new(BLOCKS, 1000);
    let aheads = reader.read_all((0..40).rev());
    assert_eq!(batches(&aheads), [(39, 1), (38, 4), (34, 8), (26, 16), (10, 11)]);
    assert!(aheads[1..].iter().all(|ahead| (ahead.stride, ahead.why) == (-1, Why::Backward)));
    assert_eq!(reader.wasted(), 0);
}

#[test]
fn a_strided_reader_is_known_at_its_third_miss() {
    for stride in [2, 7, 64] {
        let mut reader = Reader::new(BLOCKS, 1000);
        let aheads = reader.read_all((0..40).map(|step| 5 + step * stride));
        let places = batches(&aheads[..5]);
        let at = |step: Block| 5 + step * stride;
        assert_eq!(places, [(at(0), 1), (at(1), 1), (at(2), 4), (at(6), 8), (at(14), 16)]);
        assert!(aheads[2..].iter().all(|ahead| ahead.stride == i64::from(stride)));
        assert!(aheads[2..].iter().all(|ahead| ahead.why == Why::Strided));

        let mut reader = Reader::new(BLOCKS, 1000);
        let aheads = reader.read_all((0..40).rev().map(|step| step * stride));
        assert_eq!(aheads[2].stride, -i64::from(stride));
        assert_eq!(aheads.len(), 6, "the last batch ends at block 0");
    }
    let mut reader = Reader::new(BLOCKS, 1000);
    reader.read_all((0..40).map(|step| step * 65));
    assert_eq!(reader.extra, 0, "65 blocks of distance are no sequence");
}

#[test]
fn a_reader_that_comes_through_resident_blocks_is_known_at_once() {
    let mut detector = Detector::default();
    let ahead = detector.missed(50, BLOCKS, MOST, |block| (40..50).contains(&block));
    assert_eq!(ahead, Detected { first: 50, stride: 1, count: 4, why: Why::Context });
    let ahead = missed(&mut detector, 54);
    assert_eq!(ahead, Detected { first: 54, stride: 1, count: 8, why: Why::Sequential });
    let ahead = detector.missed(900, BLOCKS, MOST, |block| (901..904).contains(&block));
    assert_eq!(ahead, Detected { first: 900, stride: -1, count: 4, why: Why::Context });
    // Two are too few, and a hole between resident blocks has nothing behind it.
    for around in [498..500, 501..503, 490..510] {
        let there = |block| block != 500 && around.contains(&block);
        assert_eq!(detector.missed(500, BLOCKS, MOST, there).why, Why::Random);
    }
}

#[test]
fn eight_readers_in_turn_are_all_known() {
    for step in [1, -1, 9] {
        let mut reader = Reader::new(BLOCKS, 10_000);
        for turn in 0..200 {
            for number in 0..8 {
                let start = 100_000 * (number + 1);
                reader.read(Block::try_from(start + turn * step).unwrap());
            }
        }
        assert_eq!(reader.detector.sequences(), 8);
        // 1, (1,) 4, 8, 16, 32, 64 and 128 blocks.
        let each = if step == 9 { 8 } else { 7 };
        assert_eq!(reader.misses, 8 * each, "step {step}");
    }
}

#[test]
fn a_reader_among_random_reads_is_known() {
    let mut random = fastrand::Rng::with_seed(3);
    let mut reader = Reader::new(BLOCKS, 20_000);
    let mut misses = 0;
    for block in 500_000..504_000 {
        for _ in 0..5 {
            reader.read(random.u32(..BLOCKS));
        }
        misses += u64::from(reader.read(block).is_some());
    }
    assert!(misses < 50, "{misses} misses of 4000 blocks read in order");
}

#[test]
fn a_reader_that_jumps_a_little_stays_in_its_sequence() {
    let mut reader = Reader::new(BLOCKS, 1000);
    let before = reader.read_all((0..63).chain(65..300).filter(|block| block % 10 != 3));
    let random = before.iter().filter(|ahead| ahead.why == Why::Random).count();
    assert_eq!(random, 1, "only the first: {before:?}");
    // After a jump the batch is as long as the last one.
    let mut detector = Detector::default();
    let counts = [10, 11, 15, 23, 41].map(|block| missed(&mut detector, block).count);
    assert_eq!(counts, [1, 4, 8, 16, 16]);
    assert_eq!(missed(&mut detector, 62).count, 1, "too far for a jump");
}

#[test]
fn a_miss_inside_the_batch_halves_it() {
    let mut detector = Detector::default();
    let counts = [10, 11, 15, 23, 39, 50].map(|block| missed(&mut detector, block).count);
    assert_eq!(counts, [1, 4, 8, 16, 32, 16]);
    assert_eq!(missed(&mut detector, 66).count, 32);
}

#[test]
fn of_two_sequences_the_one_whose_batch_ends_there_goes_on() {
    let mut detector = Detector::default();
    // Forward, with 39..71 as its last batch; and backward, read down to 62.
    let counts = [10, 11, 15, 23, 39].map(|block| missed(&mut detector, block).count);
    assert_eq!(counts, [1, 4, 8, 16, 32]);
    let counts = [90, 89, 85, 77].map(|block| missed(&mut detector, block).count);
    assert_eq!(counts, [1, 4, 8, 16]);
    let ahead = missed(&mut detector, 61);
    assert_eq!((ahead.why, ahead.count), (Why::Backward, 32));
    assert_eq!(missed(&mut detector, 71).why, Why::Sequential);
}

#[test]
fn holes_and_crowded_steps_begin_no_sequence() {
    let last = |order: &[Block]| {
        let mut detector = Detector::default();
        let whys: Vec<Why> = order.iter().map(|block| missed(&mut detector, *block).why).collect();
        whys.last().copied()
    };
    assert_eq!(last(&[10, 12, 11]), Some(Why::Random), "a hole");
    assert_eq!(last(&[20, 10, 30]), Some(Why::Random), "equal steps, in another order");
    assert_eq!(last(&[10, 20, 30]), Some(Why::Strided));
    assert_eq!(last(&[10, 20, 5, 30]), Some(Why::Strided));
    assert_eq!(last(&[10, 20, 23, 30]), Some(Why::Random), "another miss among them");
}

#[test]
fn a_block_that_two_threads_miss_at_once_is_one_miss() {
    let mut detector = Detector::default();
    let counts = [10, 10, 11, 11, 15, 15, 23].map(|block| missed(&mut detector, block).count);
    assert_eq!(counts, [1, 1, 4, 1, 8, 1, 16]);
    assert_eq!(detector.sequences(), 1);
    // It is not remembered among the recent misses either.
    missed(&mut detector, 500);
    (0..30).for_each(|_| _ = missed(&mut detector, 900));
    assert_eq!(missed(&mut detector, 501).count, 4);
}

/// [DET-2]
#[test]
fn det_2_a_block_of_a_sequence_asks_nothing_and_others_at_most_eight_times() {
    let mut detector = Detector::default();
    let asked = std::cell::Cell::new(0);
    let count = |answer: bool| {
        let asked = &asked;
        move |_| {
            asked.set(asked.get() + 1);
            answer
        }
    };
    detector.missed(500, BLOCKS, MOST, count(true));
    assert_eq!(asked.replace(0), 6);
    detector.missed(900, BLOCKS, MOST, count(false));
    assert_eq!(asked.replace(0), 2, "one on each side of a random read");
    detector.missed(901, BLOCKS, MOST, count(true));
    detector.missed(905, BLOCKS, MOST, count(true));
    assert_eq!(asked.get(), 0);
}

/// [DET-4]
#[test]
fn det_4_the_seventeenth_sequence_replaces_the_least_recently_used() {
    assert!(size_of::<Detector>() <= 480, "{}", size_of::<Detector>());
    let mut detector = Detector::default();
    for number in 0..17 {
        missed(&mut detector, number * 1000);
        missed(&mut detector, number * 1000 + 1);
        // Continuing a sequence returns its credit, so that there is some for the next one.
        assert_eq!(missed(&mut detector, number * 1000 + 5).count, 8);
        if number == 15 {
            assert_eq!(missed(&mut detector, 13).count, 16, "the first one is used again");
        }
    }
    assert_eq!(detector.sequences(), 16);
    assert_eq!(missed(&mut detector, 29).count, 32);
    assert_eq!(missed(&mut detector, 1013).count, 1, "the second one went");
    assert_eq!(missed(&mut detector, 2013).count, 16);
}

#[test]
fn a_sequence_that_no_reader_continues_is_forgotten() {
    let mut detector = Detector::default();
    for block in [10, 11, 15] {
        missed(&mut detector, block);
    }
    for number in 0..1024 {
        missed(&mut detector, 1000 + 100 * number);
    }
    assert_eq!(detector.sequences(), 1);
    assert_eq!(missed(&mut detector, 23).count, 1);
    assert_eq!(detector.sequences(), 0);
}

/// [DET-3]
#[test]
fn det_3_what_only_looks_like_a_sequence_is_soon_no_longer_believed() {
    let pairs = 10_000;
    let mut detector = Detector::default();
    let extra: u32 = (0..pairs)
        .flat_map(|number| [number * 100, number * 100 + 1])
        .map(|block| missed(&mut detector, block).count - 1)
        .sum();
    assert!(extra >= 2 * pairs / 128, "credit comes in: {extra}");
    assert!(extra <= 48 + 2 * pairs / 128, "[DET-3] {extra}");
    // Three in a row count as strong evidence anyway.
    let counts = [3_000_000, 3_000_001, 3_000_002, 3_000_006]
        .map(|block| detector.missed(block, Block::MAX, MOST, |_| false).count);
    assert_eq!(counts, [1, 1, 4, 8]);
    // In another order they do not.
    let counts = [4_000_001, 4_000_000, 4_000_002]
        .map(|block| detector.missed(block, Block::MAX, MOST, |_| false).count);
    assert_eq!(counts, [1, 1, 1]);
}

#[test]
fn random_reads_prefetch_less_than_one_per_cent_more() {
    for seed in 0..4 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut reader = Reader::new(BLOCKS, 1 << 17);
        while reader.misses < 100_000 {
            reader.read(random.u32(..BLOCKS));
        }
        assert!(reader.extra * 100 <= reader.misses, "seed {seed}: {}", reader.extra);
    }
}

#[test]
fn random_reads_of_a_half_resident_file_prefetch_less_than_one_per_cent_more() {
    let blocks = 1 << 17;
    let mut random = fastrand::Rng::with_seed(5);
    let mut reader = Reader::new(blocks, blocks as usize / 2);
    reader.read_all(std::iter::repeat_with(|| random.u32(..blocks)).take(2 * blocks as usize));
    (reader.misses, reader.extra) = (0, 0);
    while reader.misses < 100_000 {
        reader.read(random.u32(..blocks));
    }
    assert!(reader.extra * 100 <= reader.misses, "{}", reader.extra);
}

#[test]
fn random_reads_in_clusters_prefetch_less_than_one_per_cent_more() {
    for spread in [64, 1024] {
        let mut random = fastrand::Rng::with_seed(7);
        let mut reader = Reader::new(BLOCKS, 20_000);
        while reader.misses < 100_000 {
            // Cluster n is chosen about 1/n as often as the first of 1000.
            let cluster = 1000_f64.powf(random.f64()) as u32;
            let start = cluster.wrapping_mul(0x9e37_79b9) % (BLOCKS - spread);
            reader.read(start + random.u32(..spread));
        }
        assert!(reader.extra * 100 <= reader.misses, "spread {spread}: {}", reader.extra);
    }
}

/// Four ranges of 8000 blocks, each read in windows of `window` blocks in shuffled order; only one block in `keep_of`
/// is wanted.
fn shuffled_ranges(window: u32, keep_of: u32, seed: u64) -> Vec<Block> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut order = Vec::new();
    for range in 0..4 {
        let start = 200_000 * range + 1000;
        for begin in (start..start + 8000).step_by(window as usize) {
            let mut blocks: Vec<Block> =
                (begin..begin + window).filter(|_| random.u32(..keep_of) == 0).collect();
            random.shuffle(&mut blocks);
            order.extend(blocks);
        }
    }
    order
}

#[test]
fn locally_shuffled_ranges_waste_little() {
    for window in [1, 8, 32, 100, 500] {
        for (keep_of, per_cent) in [(1, 2), (2, 100), (3, 145), (4, 65), (8, 10)] {
            let order = shuffled_ranges(window, keep_of, u64::from(window));
            let mut reader = Reader::new(BLOCKS, 4000);
            let wanted = order.len() as u64;
            reader.read_all(order);
            let (wasted, misses) = (reader.wasted(), reader.misses);
            let case = format!("one in {keep_of}, window {window}: {wanted} wanted");
            assert!(wasted * 100 <= wanted * per_cent, "{case}, {wasted} wasted");
            if keep_of == 1 && window <= 100 {
                assert!(misses * 5 <= wanted, "{case}, {misses} misses");
            }
        }
    }
}

#[test]
fn the_edges_of_a_file_are_safe() {
    let last = Block::MAX - 1;
    let mut detector = Detector::default();
    let miss = |detector: &mut Detector, block| {
        detector.missed(block, Block::MAX, u32::MAX, |_| false).count
    };
    assert_eq!([last - 2, last - 1, last].map(|block| miss(&mut detector, block)), [1, 2, 1]);
    assert_eq!([2, 1, 0].map(|block| miss(&mut detector, block)), [1, 2, 1]);
    assert_eq!(miss(&mut detector, 0), 1);
    // Past the end, as after a truncation: the detector learns nothing.
    let mut detector = Detector::default();
    for block in [100, 101, 102, Block::MAX] {
        let ahead = detector.missed(block, 100, MOST, |_| true);
        assert_eq!(ahead, Detected { first: block, stride: 1, count: 1, why: Why::Random });
    }
    assert_eq!(detector.missed(5, 0, 0, |_| true).count, 1);
    // The file grows under its reader.
    let counts = [96, 97].map(|block| detector.missed(block, 100, MOST, |_| false).count);
    assert_eq!(counts, [1, 3]);
    assert_eq!(detector.missed(100, 1000, MOST, |_| false).count, 6);
}

/// Bursts of sequential reads, near the start, the middle or the end of a file.
fn reads() -> impl Strategy<Value = Vec<Block>> {
    let start = prop_oneof![0..200_u32, 5_000..5_400_u32, 9_800..10_100_u32];
    let burst = (start, -70..70_i64, 1..12_i64).prop_map(|(start, stride, count)| {
        let at = move |step| i64::from(start) + step * stride;
        (0..count).filter_map(move |step| Block::try_from(at(step)).ok()).collect::<Vec<_>>()
    });
    prop::collection::vec(burst, 1..40).prop_map(|bursts| bursts.concat())
}

proptest! {
    #[test]
    fn whatever_is_read_the_answer_is_in_bounds(
        order in reads(),
        file in prop_oneof![Just(0), Just(5_200), Just(10_000), Just(Block::MAX)],
        most in prop_oneof![0..10_u32, Just(MOST), Just(u32::MAX)],
        resident in any::<u64>(),
    ) {
        let mut detector = Detector::default();
        for block in order {
            let asked = std::cell::Cell::new(0);
            let ahead = detector.missed(block, file, most, |other| {
                asked.set(asked.get() + 1);
                assert!(other < file, "prefetched block {other} of {file}");
                resident >> (other % 64) & 1 == 1
            });
            prop_assert!(asked.get() <= 8, "[DET-2]");
            prop_assert_eq!(ahead.first, block, "[DET-1]");
            prop_assert!((1..=most.max(1)).contains(&ahead.count), "[DET-1]");
            let last = i64::from(block) + i64::from(ahead.count - 1) * ahead.stride;
            prop_assert!(last >= 0, "[DET-1]");
            prop_assert!(ahead.count == 1 || last < i64::from(file), "[DET-1]");
            prop_assert!(ahead.stride != 0 && ahead.stride.abs() <= STRIDE_MAX, "[DET-1]");
            prop_assert!(ahead.why != Why::Random || ahead.count == 1, "[DET-1]");
            prop_assert!(detector.sequences() <= TRACKED, "[DET-4]");
        }
    }
}
