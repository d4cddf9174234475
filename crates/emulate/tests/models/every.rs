//! Properties of every model, on random commands.

use std::time::Duration;

use forebay_emulate::model::{Command, Op};
use forebay_emulate::profile::Profile;
use proptest::prelude::*;

use crate::rig::{MIB, Rig};

/// A command, and its delay after the previous one, in microseconds.
fn step() -> impl Strategy<Value = (Command, u64)> {
    let op = prop_oneof![5 => Just(Op::Read), 4 => Just(Op::Write), 1 => Just(Op::Flush)];
    // Mostly near the start, so that commands overlap, sometimes anywhere.
    let sector = prop_oneof![3 => 0_u64..4096, 1 => 0_u64..200_000_000];
    let sectors = prop_oneof![3 => Just(16_u64), 1 => 1_u64..2500];
    let after_us = prop_oneof![3 => Just(0_u64), 2 => 0_u64..3000, 1 => 0_u64..200_000];
    (op, sector, sectors, after_us).prop_map(|(op, sector, sectors, after_us)| {
        let (offset, len) = if op == Op::Flush { (0, 0) } else { (sector * 512, sectors * 512) };
        (Command { op, offset, len }, after_us)
    })
}

/// Devices whose caches, queues and limits are so small that commands keep running into them.
const TIGHT: [&str; 4] = [
    r#"about = "a disk"
       [disk]
       like = "7200rpm"
       queue = 4
       overtaken_max = 2
       elevator_limit = "20ms"
       read_cache = "256KiB"
       segments = 2
       read_ahead = "64KiB"
       write_cache = "128KiB""#,
    r#"about = "a disk without a write cache"
       [disk]
       like = "7200rpm"
       queue = 3
       overtaken_max = 1
       read_cache = "0KiB"
       write_cache = "0KiB""#,
    r#"about = "an array behind a controller"
       [disk]
       like = "15k"
       queue = 2
       write_cache = "64KiB"
       [array]
       level = "raid10"
       count = 4
       stripe = "16KiB"
       [controller]
       command_time = "20us"
       rate = "100MB/s"
       write_cache = "128KiB"
       destage_depth = 2
       destage_max = "32KiB""#,
    r#"about = "flash"
       [flash]
       like = "sata-ssd"
       units = 3
       queue = 2
       write_cache = "64KiB"
       spare = "256KiB""#,
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// [DSK-2], [DSK-3], [ARY-1], [CTR-1], [CTR-2], [FLS-1] and others are asserted in the models.
    #[test]
    fn devices_that_are_too_small_still_end_everything(
        steps in prop::collection::vec(step(), 1..300),
        seed in any::<u64>(),
    ) {
        for text in TIGHT {
            let mut rig = Rig::new(Profile::parse(text, "tight").unwrap().build(seed));
            for (command, after_us) in &steps {
                rig.until(rig.now() + Duration::from_micros(after_us / 4));
                rig.submit(*command);
            }
            rig.all();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// [MOD-1] and [MOD-2] are asserted by the rig.
    #[test]
    fn every_command_of_every_device_ends_once_and_in_order(
        steps in prop::collection::vec(step(), 1..120),
        seed in any::<u64>(),
    ) {
        for (name, text) in Profile::shipped() {
            let mut rig = Rig::new(Profile::parse(text, name).unwrap().build(seed));
            for (command, after_us) in &steps {
                let until = rig.now() + Duration::from_micros(*after_us);
                rig.until(until);
                rig.submit(*command);
            }
            rig.all();
            prop_assert_eq!(rig.under_way(), 0);
        }
    }

/// A model that is advanced late gives the same results as one that is advanced at once.
    #[test]
    fn ends_do_not_depend_on_when_one_looks(
        steps in prop::collection::vec(step(), 1..60),
        seed in any::<u64>(),
    ) {
        for (name, text) in Profile::shipped() {
            let profile = Profile::parse(text, name).unwrap();
            let (mut often, mut late) = (profile.build(seed), profile.build(seed));
            let (mut seen_often, mut seen_late) = (Vec::new(), Vec::new());
            let mut now = Duration::ZERO;
            for (id, (command, after_us)) in steps.iter().enumerate() {
                now += Duration::from_micros(*after_us);
                while let Some(next) = often.next_event().filter(|next| *next <= now) {
                    often.advance(next, &mut seen_often);
                }
                often.submit(now, id as u64, *command);
                late.submit(now, id as u64, *command);
            }
            now += Duration::from_secs(100);
            while let Some(next) = often.next_event().filter(|next| *next <= now) {
                often.advance(next, &mut seen_often);
            }
            late.advance(now, &mut seen_late);
            prop_assert_eq!(&seen_often, &seen_late, "{}", name);
        }
    }
}

#[test]
fn no_read_beats_the_fastest_way_its_bytes_can_take() {
    // The rate of each one's cable or link; for an array, the sum over its members.
    for (name, bytes_per_s) in [
        ("15k", 300e6),
        ("raid0-4x7200", 4.0 * 280e6),
        ("raid10-12", 550e6),
        ("sata-ssd", 550e6),
        ("nvme", 6.8e9),
        ("nvme-old", 2.1e9),
    ] {
        let mut random = fastrand::Rng::with_seed(9);
        let mut rig = Rig::of(name);
        let mut lens = Vec::new();
        for _ in 0..400 {
            lens.push(random.u64(1..4000) * 512);
            // Half of them go to the same place, so that caches have it.
            let place = if random.bool() { 0 } else { random.u64(0..30 * 1024) * MIB };
            rig.read(place, lens[lens.len() - 1]);
            if rig.under_way() > 8 {
                for (id, took) in rig.wait() {
                    let least = lens[id as usize] as f64 / bytes_per_s;
                    assert!(took.as_secs_f64() > least, "{name}: {took:?} instead of {least} s");
                }
            }
        }
    }
}

#[test]
fn the_same_commands_end_at_the_same_times() {
    for (name, _) in Profile::shipped() {
        let times = |seed: u64| {
            let mut rig = Rig::new(Profile::load(name).unwrap().build(seed));
            let reads: Vec<u64> = (0..50).map(|i| (i * 7919 % 50) * MIB).collect();
            reads.iter().map(|&at| rig.time_of_read(at, 8192)).collect::<Vec<_>>()
        };
        assert_eq!(times(1), times(1), "{name}");
    }
}
