//! One suite over every backend and both cache modes: the contract of `backend`, clause by clause.
//!
//! Each claim is a function; combined with the backends and cache modes it becomes trials such as
//! `uring/direct/reads_past_the_end_say_how_much_was_there`. A trial that cannot run on this machine is ignored with
//! its reason, and counted; it never passes silently.
//!
//! Environment: `FOREBAY_SEED` replays the random choices of a failed run; `FOREBAY_TEST_DIR` is the directory of the
//! test files; skips are appended to the file that `FOREBAY_SKIPS` names.

#![allow(clippy::unwrap_used, clippy::print_stderr)]
#![allow(clippy::needless_pass_by_value)] // claims pass values that they no longer need

mod alignment;
mod atomic;
mod backpressure;
mod batches;
mod bench;
mod child;
mod churn;
mod continuations;
mod durability;
mod edges;
mod ends;
mod full_disk;
mod handover;
mod harness;
mod idle;
mod integrity;
mod ladder;
mod lifetimes;
mod progress;
mod refusals;
mod rig;
mod short;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

use bench::Cell;
use harness::Claim;

fn main() -> ExitCode {
    harness::start_watchdog();
    if let Some(code) = child::run_if_child() {
        return code;
    }
    let arguments = Arguments::from_args();
    libtest_mimic::run(&arguments, trials()).exit_code()
}

fn trials() -> Vec<Trial> {
    let themes: [fn(Cell) -> Vec<Claim>; 17] = [
        alignment::claims,
        atomic::claims,
        backpressure::claims,
        batches::claims,
        continuations::claims,
        durability::claims,
        edges::claims,
        ends::claims,
        full_disk::claims,
        handover::claims,
        idle::claims,
        integrity::claims,
        ladder::claims,
        lifetimes::claims,
        progress::claims,
        refusals::claims,
        short::claims,
    ];
    let mut trials = Vec::new();
    for cell in Cell::all() {
        for claim in themes.iter().flat_map(|theme| theme(cell)) {
            trials.push(harness::trial(cell, claim));
        }
    }
    trials.extend(ladder::general_claims());
    trials
}
