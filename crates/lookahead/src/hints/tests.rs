//! Hints, on traces of consumers whose reads wait or do not.

use proptest::prelude::*;

use super::*;

const LIMITS: Limits = Limits { combine_blocks: 16, gap_blocks: 2, over_read_percent: 25 };
const SLOW: Option<Duration> = Some(Duration::from_micros(100));
const FAST: Option<Duration> = Some(Duration::from_micros(4));

/// A consumer that takes blocks in a given order. `read` returns how long each read takes, given whether the block was
/// requested.
fn consume(
    hints: &mut Hints,
    order: &[Block],
    mut read: impl FnMut(Block, bool) -> Option<Duration>,
) -> Vec<Block> {
    let mut asked = Vec::new();
    let mut ahead = 0;
    for (index, &block) in order.iter().enumerate() {
        let hinted = asked.contains(&block);
        hints.on_read(block, read(block, hinted));
        ahead = ahead.max(index + 1);
        while hints.available() > 0 && ahead < order.len() {
            if !hints.contains(order[ahead]) {
                hints.predict(order[ahead], false);
            }
            ahead += 1;
        }
        for run in hints.take_runs() {
            asked.extend(run.first..run.first + run.blocks);
        }
    }
    asked
}

fn scattered(blocks: u32) -> Vec<Block> {
    (0..blocks).map(|index| index * 100 + 7).collect()
}

/// A requested block is in memory, any other must be read from the device.
fn cold(_: Block, asked: bool) -> Option<Duration> {
    if asked { FAST } else { SLOW }
}

#[test]
fn a_cold_scan_is_prefetched_but_for_the_few_left_out() {
    let mut hints = Hints::new(64, Takes::All, LIMITS);
    let order = scattered(8_000);
    let asked = consume(&mut hints, &order, |_, _| SLOW);
    let counts = hints.counts();
    assert_eq!(counts.asked, asked.len() as u64);
    assert!(order.len() - asked.len() < 24, "{} of {}", asked.len(), order.len());
    assert!(counts.useful + 64 >= counts.asked, "{counts:?}");
    assert!((32..=64).contains(&counts.ahead_most), "{counts:?}");
}

#[test]
fn a_resident_file_is_left_alone_after_some_ten_blocks() {
    let mut hints = Hints::new(256, Takes::All, LIMITS);
    let mut first = true;
    let asked = consume(&mut hints, &scattered(5_000), |_, _| {
        if std::mem::take(&mut first) { SLOW } else { FAST }
    });
    assert!(hints.is_idle());
    assert!(asked.len() < 48, "{} blocks", asked.len());
}

#[test]
fn a_busy_machine_wakes_it_rarely() {
    let mut hints = Hints::new(256, Takes::All, LIMITS);
    // One read in 100 takes long although all blocks are resident.
    let asked =
        consume(
            &mut hints,
            &scattered(50_000),
            |block, _| {
                if block / 100 % 100 == 0 { SLOW } else { FAST }
            },
        );
    assert!(asked.len() < 48, "{} blocks", asked.len());
}

#[test]
fn a_read_that_waits_wakes_again() {
    let mut hints = Hints::new(256, Takes::All, LIMITS);
    let order = scattered(20_000);
    let asked = consume(&mut hints, &order, |block, asked| match block {
        0..400_000 => cold(block, asked),
        400_000..1_200_000 => FAST,
        _ => cold(block, asked),
    });
    let count = |range: std::ops::Range<u32>| asked.iter().filter(|at| range.contains(at)).count();
    assert!(count(0..400_000) > 3_900);
    assert!(count(400_000..1_200_000) < 2_100, "{}", count(400_000..1_200_000));
    assert!(count(1_200_000..2_000_000) > 7_900);
}

#[test]
fn what_the_consumer_has_itself_is_not_prefetched_and_ends_looking() {
    let mut hints = Hints::new(64, Takes::All, LIMITS);
    hints.on_read(1, SLOW);
    let mut predicted = 0;
    for block in 0..10_000 {
        hints.on_read(block, None);
        while hints.available() > 0 {
            hints.predict(20_000 + predicted, true);
            predicted += 1;
            hints.jump();
        }
        assert!(hints.take_runs().is_empty());
    }
    assert!(hints.is_idle());
    assert_eq!(predicted, RESIDENT_PREDICTED);
    assert_eq!(hints.counts().resident, u64::from(RESIDENT_PREDICTED));
}

#[test]
fn one_that_may_stop_is_looked_ahead_of_by_a_tenth() {
    for rows in [1, 9, 10, 25, 100, 1_000] {
        let mut hints = Hints::new(256, Takes::MayStop, LIMITS);
        let order = scattered(20_000);
        let mut reached = 0;
        let mut ahead = 0;
        for (index, &block) in order.iter().enumerate().take(rows) {
            hints.on_read(block, SLOW);
            reached = index + 1;
            ahead = ahead.max(reached);
            while hints.available() > 0 {
                hints.predict(order[ahead], false);
                ahead += 1;
            }
            hints.take_runs();
            assert!(ahead - reached <= reached / 10, "[HNT-2] {ahead} at {reached}");
        }
        assert_eq!(reached, rows);
    }
}

#[test]
fn neighbours_share_a_request() {
    let mut hints = Hints::new(64, Takes::All, LIMITS);
    for block in 0..200 {
        hints.on_read(1_000_000 + block * 50, SLOW);
    }
    assert!(hints.available() >= 6);
    for block in [44, 42, 10, 43, 60, 46] {
        hints.predict(block, false);
    }
    let runs: Vec<_> = hints.take_runs().iter().map(|run| (run.first, run.blocks)).collect();
    assert_eq!(runs, [(10, 1), (42, 5), (60, 1)]);
    assert!(hints.take_runs().is_empty());
}

#[test]
fn a_long_sequence_is_left_to_the_kernel() {
    let mut hints = Hints::new(64, Takes::All, LIMITS);
    let runs = |length: u32| (0..40 * length).map(move |n| n / length * 10_000 + n % length);
    // Of 40 sequences, only the first blocks are requested.
    let asked = consume(&mut hints, &runs(200).collect::<Vec<_>>(), cold);
    assert!(asked.iter().all(|block| block % 10_000 < SEQUENCE_ASKED + 1), "{asked:?}");
    assert!(asked.len() > 600 - 40, "{}", asked.len());
    // Within a very long sequence nothing is even predicted, although its reads wait now and then.
    let mut hints = Hints::new(64, Takes::All, LIMITS);
    let long: Vec<_> = (0..5_000).collect();
    let asked = consume(&mut hints, &long, |block, _| if block % 16 == 0 { SLOW } else { FAST });
    assert!(hints.is_idle() && asked.len() <= 17, "{asked:?}");
    hints.on_read(1_000_000, SLOW);
    assert!(!hints.is_idle(), "it has left the sequence");
    // Short sequences are requested as a whole.
    let mut hints = Hints::new(64, Takes::All, LIMITS);
    let asked = consume(&mut hints, &runs(16).collect::<Vec<_>>(), cold);
    assert!(asked.len() > 600, "{}", asked.len());
}

#[test]
fn parts_of_a_thing_are_prefetched_although_they_follow_each_other() {
    let mut hints = Hints::new(256, Takes::All, LIMITS);
    for block in 0..400 {
        hints.on_read(1_000_000 + block * 50, SLOW);
    }
    let asked = |hints: &mut Hints| hints.take_runs().iter().map(|run| run.blocks).sum::<u32>();
    hints.predict(100, false);
    (101..180).for_each(|block| hints.predict_part(block));
    let (most, left_out) = (80, 80 / LEAVE_OUT_FIRST + 1);
    let parts = asked(&mut hints);
    assert!((most - left_out..=most).contains(&parts), "{parts}");
    // The continuation of a long sequence is left to the kernel.
    (1_000..1_000 + SEQUENCE_ASKED + 1).for_each(|block| hints.predict(block, false));
    asked(&mut hints);
    (1_000 + SEQUENCE_ASKED + 1..1_100).for_each(|block| hints.predict_part(block));
    assert_eq!(asked(&mut hints), 0);
}

#[test]
fn blocks_that_were_not_predicted_count_as_taken_and_lead_nowhere_else() {
    let mut hints = Hints::new(64, Takes::MayStop, LIMITS);
    hints.on_read(1, SLOW);
    let Some(slow) = SLOW else { unreachable!() };
    for _ in 0..99 {
        hints.on_other_read(slow);
    }
    assert_eq!(hints.most(), 10);
    (1_000..1_010).for_each(|block| hints.predict(block * 7, false));
    for _ in 0..30 {
        hints.on_other_read(slow);
    }
    assert_eq!((hints.most(), hints.available()), (13, 3), "it has not moved elsewhere");
}

#[test]
fn a_consumer_that_went_elsewhere_is_followed() {
    let mut hints = Hints::new(64, Takes::All, LIMITS);
    consume(&mut hints, &scattered(1_000), |_, _| SLOW);
    while hints.available() > 0 {
        hints.predict(hints.next + 5_000_000, false);
    }
    assert_eq!(hints.available(), 0);
    hints.jump();
    assert!(hints.available() > 0);
    while hints.available() > 0 {
        hints.predict(hints.next + 6_000_000, false);
    }
    for block in 0..100 {
        hints.on_read(9_000_000 + block, SLOW);
    }
    assert!(hints.available() > 0, "unpredicted reads show it too");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 200 }))]

    #[test]
    fn never_too_far_ahead_never_twice_and_never_idle(
        most in 1_u32..300,
        may_stop in any::<bool>(),
        steps in proptest::collection::vec((0_u32..3_000, 0_u8..4, any::<bool>()), 1..600),
    ) {
        let takes = if may_stop { Takes::MayStop } else { Takes::All };
        let mut hints = Hints::new(most, takes, LIMITS);
        let mut numbers = std::collections::HashMap::new();
        let mut predicted = 0_usize;
        for (index, &(block, read, resident)) in steps.iter().enumerate() {
            hints.on_read(block, [None, FAST, SLOW, SLOW][usize::from(read)]);
            let mut next = block;
            for _ in 0..hints.available() {
                next = next.wrapping_mul(31).wrapping_add(17) % 3_000;
                if !hints.contains(next) {
                    hints.predict(next, resident);
                    predicted += 1;
                }
            }
            let idle = hints.is_idle();
            let bound = if may_stop { (index as u32 + 1) / 10 } else { most };
            prop_assert!(hints.ahead() <= bound.min(most), "[HNT-2]");
            for run in hints.take_runs() {
                prop_assert!(run.blocks <= LIMITS.combine_blocks);
                if run.wanted < run.blocks {
                    continue; // gaps are read through, not requested
                }
                for block in run.first..run.first + run.blocks {
                    if let Some(before) = numbers.insert(block, predicted) {
                        // At least one set of four blocks is remembered.
                        prop_assert!(predicted - before >= WAYS, "[HNT-1] {}", block);
                    }
                }
            }
            prop_assert!(!idle || hints.available() == 0, "[HNT-3]");
        }
    }
}
