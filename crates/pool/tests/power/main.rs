//! A database whose power is cut, at any moment and with any legal outcome, loses nothing that it acknowledged.
//!
//! The reference engine (`tests/engine`) runs on a simulated disk (`forebay-sim`). Afterwards the disk's journal is cut
//! at many positions; for each, the engine recovers from a state that a power cut there may leave, and the oracle
//! checks that everything promised by then is there, and no operation partially. Some recoveries are cut as well. Then
//! the next life begins on one of the images.
//!
//! Environment: `FOREBAY_POWER_CUTS` is the total number of power cuts (default: 1,200), `FOREBAY_POWER_SEED` seeds the
//! choices. Built with the cfg `forebay_bug`, `FOREBAY_BUG` names the bug to plant; the first variant that finds it
//! reports that and ends the process immediately.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr)]

mod cuts;
#[path = "../engine/mod.rs"]
#[allow(dead_code, reason = "other suites use the rest of it")]
mod engine;
mod life;
mod variant;

use std::env;
use std::process::{self, ExitCode};

use libtest_mimic::{Arguments, Failed, Trial};
use variant::VARIANTS;

/// Default total number of cuts: takes some seconds.
const CUTS: u64 = 1200;

fn main() -> ExitCode {
    let number = |name: &str| env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let cuts = number("FOREBAY_POWER_CUTS").unwrap_or(CUTS);
    let seed = number("FOREBAY_POWER_SEED").unwrap_or_else(|| fastrand::u64(..));
    #[cfg(forebay_bug)]
    let planted = env::var("FOREBAY_BUG").is_ok_and(|name| {
        forebay_io::bug::plant(&name);
        true
    });
    #[cfg(not(forebay_bug))]
    let planted = false;
    let cuts_each = cuts.div_ceil(VARIANTS.len() as u64);
    let trials = VARIANTS.iter().map(|variant| {
        let name = format!("{}/what_was_acknowledged_survives_a_power_cut", variant.name);
        let replay = format!(
            "FOREBAY_POWER_SEED={seed} FOREBAY_POWER_CUTS={cuts} cargo test -p forebay --test power {name}"
        );
        Trial::test(name, move || match cuts::run(variant, cuts_each, seed) {
            Ok(said) => {
                eprintln!("{}: {said}", variant.name);
                Ok(())
            }
            Err(broken) if planted => {
                println!("found by {}: {broken}", variant.name);
                process::exit(1)
            }
            Err(broken) => Err(Failed::from(format!("{broken}\nreplay with:\n  {replay}"))),
        })
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}
