//! Curves: the tables of the founding documents 002 and 003, computed on the models, next to the measured values.
//!
//! ```text
//! cargo run --release -p forebay-emulate --example curves [PROFILE…]
//! ```
//!
//! The readers' files are either spread over the whole disk, as in file systems with allocation groups, or
//! adjacent in its middle. The measurements used ext3; xfs took 36, 88, 119, 182, 259, 357, 437, 505,
//! 560 and 621 for eight readers.

#![allow(clippy::print_stdout)]

mod kernel;

use std::time::Duration;

use forebay_emulate::profile::Profile;
use kernel::{Streaming, prefetching};

const KIB: u64 = 1024;
const GIB: u64 = 1024 * 1024 * KIB;

/// Document 003: seconds on four disks under Linux, by the number of blocks requested at a time.
const PREFETCHED_S: [(usize, f64); 13] = [
    (1, 12.473),
    (2, 9.053),
    (4, 6.787),
    (8, 5.303),
    (16, 4.209),
    (32, 3.388),
    (64, 2.869),
    (128, 2.515),
    (256, 2.312),
    (512, 2.168),
    (1024, 2.139),
    (2048, 2.242),
    (4096, 2.222),
];

/// Document 002, ext3 on a PERC 6: readahead in sectors, MiB a second of eight readers and of one.
const READAHEAD_MIB_S: [(u64, f64, Option<f64>); 10] = [
    (8, 38.0, None),
    (256, 81.0, Some(300.0)),
    (512, 108.0, None),
    (1024, 162.0, Some(302.0)),
    (2048, 211.0, None),
    (4096, 264.0, None),
    (8192, 292.0, None),
    (12_288, 304.0, Some(309.0)),
    (16_384, 312.0, Some(312.0)),
    (49_152, 311.0, Some(314.0)),
];

fn main() {
    let profiles: Vec<String> = std::env::args().skip(1).collect();
    let or = |all: &[&str]| -> Vec<String> {
        if profiles.is_empty() {
            all.iter().map(ToString::to_string).collect()
        } else {
            profiles.clone()
        }
    };
    or(&["7200rpm", "raid0-4x7200", "raid0-4x15k"]).iter().for_each(|profile| depths(profile));
    or(&["raid10-12", "raid10-12-256k"]).iter().for_each(|profile| readaheads(profile));
}

/// The blocks of 1 GiB in random order, each of them once.
fn blocks(seed: u64) -> Vec<u64> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut all: Vec<u64> = (0..GIB / (8 * KIB)).map(|block| block * 8 * KIB).collect();
    random.shuffle(&mut all);
    all.truncate(4096);
    all
}

fn depths(name: &str) {
    let profile = Profile::load(name).expect("a profile");
    println!("\n4096 random blocks of 8 KiB out of 1 GiB on {}", profile.about);
    println!("  depth   seconds   times   measured   off");
    let mut alone = None;
    for (depth, seconds) in PREFETCHED_S {
        let took = prefetching(&mut *profile.build(1), &blocks(1), 8 * KIB, depth).as_secs_f64();
        let alone = *alone.get_or_insert(took);
        let (times, measured) = (alone / took, PREFETCHED_S[0].1 / seconds);
        let off = (times / measured - 1.0) * 100.0;
        println!("  {depth:5}   {took:7.3}   {times:5.2}   {measured:8.2}   {off:+3.0} %");
    }
}

fn readaheads(name: &str) {
    let profile = Profile::load(name).expect("a profile");
    println!("\nSequential readers of 8 KiB, MiB a second, on {}", profile.about);
    println!("  readahead   8 spread out   8 side by side   measured   1 reader   measured");
    for (sectors, eight, one) in READAHEAD_MIB_S {
        let rate = |readers, begin, spacing| {
            let streaming = Streaming {
                readers,
                readahead: sectors * 512,
                request: 8 * KIB,
                request_max: 512 * KIB,
                begin,
                spacing,
            };
            streaming.rate(&mut *profile.build(1), Duration::from_secs(4)) / (1024.0 * 1024.0)
        };
        let spread = rate(8, 0, profile.size_bytes / 8 / GIB * GIB);
        let near = rate(8, profile.size_bytes / 2 / GIB * GIB, 4 * GIB);
        let alone = rate(1, 0, 0);
        let one = one.map_or("-".into(), |one| format!("{one:.0}"));
        println!(
            "  {sectors:9}   {spread:12.0}   {near:14.0}   {eight:8.0}   {alone:8.0}   {one:>8}"
        );
    }
}
