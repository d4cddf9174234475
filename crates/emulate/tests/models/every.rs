//! What every model promises, on random commands.

use std::time::Duration;

use forebay_emulate::model::{Command, Op};
use forebay_emulate::profile::Profile;
use proptest::prelude::*;

use crate::rig::{MIB, Rig};

/// A command, and how long after the one before it comes, in microseconds.
fn step() -> impl Strategy<Value = (Command, u64)> {
    let op = prop_oneof![5 => Just(Op::Read), 4 => Just(Op::Write), 1 => Just(Op::Flush)];
    // Mostly near the begin, so that commands overlap, sometimes anywhere.
    let sector = prop_oneof![3 => 0_u64..4096, 1 => 0_u64..200_000_000];
    let sectors = prop_oneof![3 => Just(16_u64), 1 => 1_u64..2500];
    let after_us = prop_oneof![3 => Just(0_u64), 2 => 0_u64..3000, 1 => 0_u64..200_000];
    (op, sector, sectors, after_us).prop_map(|(op, sector, sectors, after_us)| {
        let (offset, len) = if op == Op::Flush { (0, 0) } else { (sector * 512, sectors * 512) };
        (Command { op, offset, len }, after_us)
    })
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

    /// What is looked at late behaves as what is looked at at once.
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
