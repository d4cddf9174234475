//! The `forebay` command: reads its arguments, runs, and turns what came of it into an exit code.
//!
//! Exit codes: 0 done; 1 something failed; 2 bad input; 130 interrupted.
#![forbid(unsafe_code)]
// This is the one place where errors and hints for the user are printed.
#![allow(clippy::print_stderr)]

use std::process::ExitCode;

use clap::Parser;
use forebay_lab::{BadInput, cli::Cli, interrupt::Interrupted, run};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let Err(error) = run::run(&cli) else { return ExitCode::SUCCESS };
    if error.is::<Interrupted>() {
        eprintln!("forebay: interrupted; nothing is left behind");
        return ExitCode::from(130);
    }
    eprintln!("forebay: {error:#}");
    ExitCode::from(if error.is::<BadInput>() { 2 } else { 1 })
}
