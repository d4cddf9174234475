//! One disk: seeks, revolutions, zones, caches and its queue.

use std::time::Duration;

use forebay_emulate::model::{Command, Op};
use forebay_emulate::profile::Profile;
use proptest::prelude::*;

use crate::rig::{GIB, KIB, MIB, Rig, random_reads, rate, sequential_reads};

const REVOLUTION: Duration = Duration::from_nanos(8_333_333);
const COMMAND: Duration = Duration::from_micros(100);

/// The shipped disk with some lines replaced.
fn changed(changes: &[(&str, &str)]) -> Profile {
    let (_, text) = Profile::shipped().iter().find(|(name, _)| *name == "7200rpm").unwrap();
    let mut text = (*text).to_owned();
    for (key, value) in changes {
        let from = text.find(&format!("\n{key} = ")).unwrap() + 1;
        let to = from + text[from..].find('\n').unwrap();
        text.replace_range(from..to, &format!("{key} = {value}"));
    }
    Profile::parse(&text, "changed").unwrap()
}

/// A disk without any cache.
fn bare() -> Profile {
    changed(&[
        ("read_ahead", r#""0KiB""#),
        ("read_ahead_min", r#""0KiB""#),
        ("write_cache", r#""0KiB""#),
        ("read_cache", r#""0KiB""#),
    ])
}

#[test]
fn the_same_sector_again_costs_a_revolution_where_there_is_no_cache() {
    let mut rig = Rig::new(bare().build(3));
    rig.time_of_read(GIB, 4 * KIB);
    let again = rig.time_of_read(GIB, 4 * KIB);
    assert!(again.abs_diff(REVOLUTION) < Duration::from_micros(1), "{again:?}");
}

#[test]
fn a_read_from_the_next_cylinder_costs_a_seek_or_a_revolution_more() {
    // The skew is such that a stream just reaches the next sector, and a command's time makes it miss it.
    let mut rig = Rig::new(bare().build(3));
    rig.time_of_read(0, 4 * KIB);
    let next = rig.time_of_read(4 * KIB, 4 * KIB);
    assert!(next > REVOLUTION && next < REVOLUTION + COMMAND, "{next:?}");
}

#[test]
fn a_cached_read_costs_the_command_and_the_cable() {
    let mut rig = Rig::new(changed(&[]).build(3));
    rig.time_of_read(GIB, 64 * KIB);
    let again = rig.time_of_read(GIB, 28 * KIB);
    // 28 KiB at 280 MB/s.
    assert_eq!(again, COMMAND + Duration::from_nanos(102_400));
}

#[test]
fn a_sequential_reader_gets_the_rate_of_its_zone_one_request_at_a_time() {
    for (len, from, expected) in
        [(128 * KIB, 0, 120e6), (128 * KIB, 990 * GIB * 931 / 1000, 60e6), (64 * KIB, 0, 120e6)]
    {
        let mut rig = Rig::new(changed(&[]).build(3));
        rig.time_of_read(from, 4 * KIB);
        let count = 256 * MIB / len;
        let took = rig.keep(1, &sequential_reads(from + 4 * KIB, count, len));
        let got = rate(256 * MIB, took);
        assert!((got / expected - 1.0).abs() < 0.02, "{len} from {from}: {got}");
    }
}

#[test]
fn small_sequential_requests_are_bound_by_the_electronics_not_by_the_platter() {
    let mut rig = Rig::new(changed(&[]).build(3));
    let took = rig.keep(1, &sequential_reads(0, 4096, 8 * KIB));
    let each = took / 4096;
    assert!(each < Duration::from_micros(140), "{each:?}");
}

#[test]
fn random_reads_one_at_a_time_cost_a_seek_and_half_a_revolution() {
    let mut rig = Rig::of("7200rpm");
    let size = rig.size_bytes();
    let took = rig.keep(1, &random_reads(5, 4000, 8 * KIB, 0, size)) / 4000;
    let transfer = Duration::from_micros(90);
    let expected = Duration::from_micros(8500) + REVOLUTION / 2 + COMMAND + transfer;
    let off = took.as_secs_f64() / expected.as_secs_f64() - 1.0;
    assert!(off.abs() < 0.02, "{took:?} instead of {expected:?}");
}

#[test]
fn thirty_two_at_a_time_gain_by_their_order() {
    let reads = random_reads(5, 4000, 8 * KIB, 0, 1_000_000_000_000);
    let alone = Rig::of("7200rpm").keep(1, &reads);
    let queued = Rig::of("7200rpm").keep(32, &reads);
    let gain = alone.as_secs_f64() / queued.as_secs_f64();
    assert!((1.8..3.2).contains(&gain), "{gain}");
    let in_order = changed(&[("overtaken_max", "0")]);
    let unordered = Rig::new(in_order.build(7)).keep(32, &reads);
    let gain = alone.as_secs_f64() / unordered.as_secs_f64();
    assert!(gain < 1.05, "{gain}");
}

#[test]
fn more_waiting_commands_are_not_served_more_slowly() {
    // Behind a queue of 32 the other commands wait for longer than any limit of the elevator.
    let reads = random_reads(5, 4000, 8 * KIB, 0, 1_000_000_000_000);
    let took = |depth| Rig::of("7200rpm").keep(depth, &reads);
    let (few, many) = (took(64), took(512));
    assert!(many < few, "{many:?} with 512 at a time, {few:?} with 64");
}

#[test]
fn a_far_command_is_overtaken_only_so_often() {
    let often = |limit: &str| {
        let profile = changed(&[("overtaken_max", limit), ("read_cache", r#""0KiB""#)]);
        let mut rig = Rig::new(profile.build(7));
        let mut random = fastrand::Rng::with_seed(3);
        let mut near = || random.u64(0..16 * MIB / 4096) * 4096;
        rig.read(near(), 4 * KIB);
        let far = rig.read(900 * GIB, 4 * KIB);
        for _ in 0..30 {
            rig.read(near(), 4 * KIB);
        }
        let mut overtaken = 0;
        while !rig.wait().iter().any(|(id, _)| *id == far) {
            overtaken += 1;
            rig.read(near(), 4 * KIB);
        }
        overtaken
    };
    // [DSK-3]; the read that the arm had begun with arrived first, and so did not overtake.
    assert_eq!(often("40"), 41);
    assert_eq!(often("100"), 101);
}

#[test]
fn a_write_ends_in_the_cache_and_a_flush_on_the_platter() {
    let mut rig = Rig::of("7200rpm");
    let write = rig.write(500 * GIB, 4 * KIB);
    let flush_later = rig.until(Duration::from_millis(1));
    assert_eq!(flush_later.len(), 1);
    assert!(flush_later[0].0 == write && flush_later[0].1 < Duration::from_micros(200));
    let flush = rig.flush();
    let took = rig.all();
    assert_eq!(took[0].0, flush);
    // It was being written already; a seek from the start of the disk to its middle takes about 8 ms.
    assert!(took[0].1 > Duration::from_millis(5), "[DSK-4] {took:?}");
    let mut idle = Rig::of("7200rpm");
    idle.flush();
    assert_eq!(idle.all()[0].1, COMMAND);
}

#[test]
fn a_flush_ends_however_many_reads_there_are() {
    let mut rig = Rig::of("7200rpm");
    let reads = random_reads(5, 400, 8 * KIB, 0, 900 * GIB);
    let mut next = reads.iter();
    for at in 0..4 {
        rig.write(at * 100 * GIB, 4 * KIB);
    }
    let flush = rig.flush();
    // Five are always waiting; four pieces of the cache take their turns with them.
    let mut ended = 0;
    loop {
        while rig.under_way() < 6 {
            let read = next.next().expect("the flush ends before so many reads");
            rig.read(read.offset, read.len);
        }
        let took = rig.wait();
        ended += took.len();
        if took.iter().any(|(id, _)| *id == flush) {
            break;
        }
    }
    assert!(ended < 20, "{ended} commands ended before the flush");
}

#[test]
fn without_a_write_cache_a_write_costs_what_a_read_does_and_its_settling() {
    let mut writes: Vec<Command> = random_reads(5, 2000, 8 * KIB, 0, 900 * GIB);
    let reads = Rig::new(bare().build(1)).keep(1, &writes) / 2000;
    writes.iter_mut().for_each(|command| command.op = Op::Write);
    let writes = Rig::new(bare().build(1)).keep(1, &writes) / 2000;
    let more = writes.saturating_sub(reads);
    assert!(more.abs_diff(Duration::from_micros(500)) < Duration::from_micros(150), "{more:?}");
}

#[test]
fn a_full_write_cache_makes_writers_wait_for_the_arm() {
    let profile = changed(&[("write_cache", r#""1MiB""#)]);
    let mut rig = Rig::new(profile.build(1));
    let mut writes = random_reads(5, 2000, 8 * KIB, 0, 900 * GIB);
    writes.iter_mut().for_each(|command| command.op = Op::Write);
    let took = rig.keep(1, &writes) / 2000;
    // In order of position among 128 queued ones: less than a random seek, more than nothing.
    assert!(took > Duration::from_millis(3) && took < Duration::from_millis(11), "{took:?}");
}

#[test]
fn writes_that_join_leave_together() {
    let profile = changed(&[("write_cache", r#""1MiB""#)]);
    let mut rig = Rig::new(profile.build(1));
    let mut writes = sequential_reads(10 * GIB, 16_384, 8 * KIB);
    writes.iter_mut().for_each(|command| command.op = Op::Write);
    let got = rate(128 * MIB, rig.keep(1, &writes));
    assert!(got > 25e6, "{got}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

/// No command is faster than the electronics and the fastest path of its bytes.
    #[test]
    fn no_command_beats_the_cable(
        places in prop::collection::vec((0_u64..1_900_000_000, 1_u64..4000), 1..60),
    ) {
        let mut rig = Rig::of("7200rpm");
        let sectors: Vec<u64> = places.iter().map(|(_, sectors)| *sectors).collect();
        for (sector, sectors) in &places {
            rig.read(sector * 512, sectors * 512);
        }
        for (id, took) in rig.all() {
            let bytes = sectors[id as usize] * 512;
            let cable = Duration::from_secs_f64(bytes as f64 / 280e6);
            prop_assert!(took >= cable + COMMAND, "{bytes} bytes in {took:?}");
        }
    }
}
