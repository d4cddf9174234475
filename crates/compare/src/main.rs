//! `forebay-compare`: Forebay's buffer pool compared with its peers.
//!
//! Every peer gets the same pages, the same memory and the same order of reads, once with all of
//! them in memory (resident) and once with none (missing), on 1 to 64 threads. How a run goes:
//! [`cli`] turns the command line into settings, [`run`] lets each [`peer`] write its file into a
//! [`scratch`] directory, measures [`cell`] by cell with the peers interleaved, and hands the
//! measurements to [`report`]; [`table`] draws them. With `--vmcache` there are [`lookups`] of a B+tree instead.
//!
//! ```sh
//! cargo run --release -p forebay-compare --features peers -- --dir /mnt/data --json compare.json
//! ```
//!
//! Exit codes: 0 done; 1 something failed, a wrong page among them; 2 bad input; 130 interrupted.
#![forbid(unsafe_code)]

mod cell;
mod cli;
mod content;
mod counters;
mod facts;
mod interrupt;
mod lookups;
mod output;
mod peer;
mod progress;
mod report;
mod run;
mod scratch;
mod table;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

/// The request cannot be done as given, and the user must change it: exit code 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct BadInput(String);

/// Returns early with a [`BadInput`] that is formatted like `format!`.
macro_rules! bad_input {
    ($($message:tt)*) => { return Err($forebay_measure::BadInput(format!($($message)*)).into()) };
}
use bad_input;

fn main() -> ExitCode {
    let Err(error) = run::run(&cli::Args::parse()) else { return ExitCode::SUCCESS };
    let (message, code) = if error.is::<interrupt::Interrupted>() {
        ("interrupted; nothing is left behind".to_owned(), 130)
    } else {
        (format!("{error:#}"), if error.is::<BadInput>() { 2 } else { 1 })
    };
    // The exit code reports the failure too, so a closed standard error is no reason to panic.
    let _ = writeln!(std::io::stderr(), "forebay-compare: {message}");
    ExitCode::from(code)
}
