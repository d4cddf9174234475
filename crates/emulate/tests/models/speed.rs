//! Rates of flash drives and cloud volumes, and the processor time of the models.

use std::time::Duration;

use forebay_emulate::model::{Command, Op};
use forebay_emulate::profile::Profile;
use rustix::time::{ClockId, clock_gettime};

use crate::rig::{GIB, KIB, MIB, Rig, random_reads, rate, sequential_reads};

fn reads_a_second(profile: &str, depth: usize) -> f64 {
    let count = 20_000;
    let mut rig = Rig::of(profile);
    let took = rig.keep(depth, &random_reads(1, count, 4 * KIB, 0, 90 * GIB));
    count as f64 / took.as_secs_f64()
}

fn sequential(profile: &str, op: Op, total: u64) -> f64 {
    let mut commands = sequential_reads(0, total / MIB, MIB);
    commands.iter_mut().for_each(|command: &mut Command| command.op = op);
    rate(total, Rig::of(profile).keep(8, &commands))
}

#[test]
fn flash_drives_read_as_their_data_sheets_say() {
    for (name, alone, together) in [
        ("sata-ssd", 8_000.0..11_000.0, 85_000.0..100_001.0),
        ("nvme", 13_000.0..17_000.0, 800_000.0..1_000_001.0),
        ("nvme-old", 9_000.0..11_000.0, 300_000.0..440_000.0),
    ] {
        let (one, many) = (reads_a_second(name, 1), reads_a_second(name, 256));
        assert!(alone.contains(&one), "{name}: {one}");
        assert!(together.contains(&many), "{name}: {many}");
    }
}

#[test]
fn flash_drives_stream_at_the_rate_of_their_link() {
    for (name, link) in [("sata-ssd", 550e6), ("nvme", 6.8e9), ("nvme-old", 2.1e9)] {
        let got = sequential(name, Op::Read, 2 * GIB);
        assert!((0.9..1.001).contains(&(got / link)), "{name}: {got}");
    }
}

#[test]
fn a_long_write_goes_at_the_rate_of_programming_and_slower_when_the_spare_is_used_up() {
    // 32 units, 4 KiB in 240 us each, is 546 MB/s.
    let short = sequential("sata-ssd", Op::Write, 4 * GIB);
    assert!((0.97..1.01).contains(&(short / 546e6)), "{short}");
    // 24 GB at that rate and 8 GB at a third of it.
    let long = sequential("sata-ssd", Op::Write, 32_000 * MIB);
    let expected = 32_000.0 * MIB as f64 / (24e9 / 546e6 + (32_000.0 * MIB as f64 - 24e9) / 182e6);
    assert!((0.98..1.02).contains(&(long / expected)), "{long} and not {expected}");
}

#[test]
fn a_flush_waits_for_the_cache_unless_that_is_safe() {
    for (name, least_us, most_us) in [("sata-ssd", 5_000, 10_000), ("nvme", 0, 20)] {
        let mut rig = Rig::of(name);
        rig.write(0, 4 * MIB);
        rig.all();
        let flush = rig.flush();
        let took = rig.all();
        assert_eq!(took[0].0, flush);
        let us = took[0].1.as_micros();
        assert!((least_us..most_us).contains(&us), "{name}: {us} us");
    }
}

#[test]
fn cloud_volumes_keep_to_their_limits() {
    for (name, most) in [("cloud-gp", 3_000.0), ("cloud-io", 16_000.0), ("cloud-burst", 3_000.0)] {
        let got = reads_a_second(name, 64);
        assert!((0.97..1.02).contains(&(got / most)), "{name}: {got}");
    }
    for (name, most) in [("cloud-gp", 125e6), ("cloud-io", 1e9), ("cloud-burst", 134.2e6)] {
        let got = sequential(name, Op::Read, 4 * GIB);
        assert!((0.97..1.02).contains(&(got / most)), "{name}: {got}");
    }
}

/// Processor time of this thread for each of `count` simultaneous random reads.
fn cost(profile: &str, count: usize) -> Duration {
    let cpu = || {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
    };
    let commands = random_reads(3, count, 8 * KIB, 0, 20 * GIB);
    let mut rig = Rig::of(profile);
    let began = cpu();
    rig.keep(count, &commands);
    (cpu() - began) / count as u32
}

#[test]
fn a_command_costs_the_model_as_much_however_many_wait() {
    for (name, _) in Profile::shipped() {
        // A search through all waiting commands would make it sixteen times as much.
        let grows = || cost(name, 4_000).as_secs_f64() / cost(name, 250).as_secs_f64();
        let tries: Vec<f64> = (0..5).map(|_| grows()).collect();
        let best = tries.iter().copied().fold(f64::MAX, f64::min);
        assert!(best < 8.0, "{name}: {tries:?} times as much");
    }
}
