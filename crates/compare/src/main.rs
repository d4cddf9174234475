//! `forebay-compare`: Forebay's buffer pool compared with its peers.
//!
//! Every peer gets the same pages, the same memory and the same order of reads, once with all of
//! them in memory (resident) and once with none (missing), on 1 to 64 threads. How a run goes:
//! [`cli`] turns the command line into settings, [`run`] lets each [`peer`] write its file into a
//! [`scratch`] directory, measures [`cell`] by cell with the peers interleaved, and hands the
//! measurements to [`report`]; [`table`] draws them. With `--vmcache`, B+trees are compared with
//! [`vmcache`]'s instead.
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
mod output;
mod peer;
mod report;
mod run;
mod scratch;
mod table;
mod vmcache;

use std::process::ExitCode;

use clap::Parser;
use forebay_measure::BadInput;
use forebay_measure::interrupt::{self, Interrupted};
use forebay_measure::output::note;

fn main() -> ExitCode {
    let result = run::run(&cli::Args::parse());
    // A second Ctrl-C may have removed files that the run needed.
    interrupt::wait_if_ending();
    let Err(error) = result else { return ExitCode::SUCCESS };
    if error.is::<Interrupted>() {
        note("interrupted; nothing is left behind");
        return ExitCode::from(130);
    }
    note(&format!("{error:#}"));
    ExitCode::from(if error.is::<BadInput>() { 2 } else { 1 })
}
