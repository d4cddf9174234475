//! Project tasks: the one entry that people, the README and CI share.
//!
//! `cargo xtask ci` runs every check in order and stops at the first failure. `cargo xtask tidy`
//! checks what rustc and clippy cannot: rules of our own style. `cargo xtask bugs` plants bugs, which
//! the tests have to find. `cargo xtask dist` makes packages. `cargo xtask figures` makes docs/benchmarks.md. `cargo xtask no-uring` runs a
//! command that cannot use io_uring, as in most containers.
//!
//! Concurrency: one thread; a step's children run one after another.
//! Failure:     any error is printed with its causes and ends the process with status 1.
#![forbid(unsafe_code)]
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command for people: printing is its work"
)]

mod bugs;
mod ci;
mod dist;
mod figures;
mod imports;
mod links;
mod no_uring;
mod tidy;
mod words;
mod workspace;
mod wrapper;

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "Forebay's project tasks", version)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Run every check that CI runs, in order, and stop at the first failure
    Ci(ci::Options),
    /// Plant each of the known bugs and check that the power cuts find it
    Bugs {
        /// Plant only this bug (may be given several times)
        #[arg(long, value_name = "BUG", value_parser = bugs::BUGS)]
        only: Vec<String>,
    },
    /// Make packages, in target/dist: of every kind, or of those named
    Dist {
        /// What to package
        #[arg(value_enum)]
        kinds: Vec<dist::Kind>,
    },
    /// Make docs/benchmarks.md from the raw output in results/
    Figures {
        /// Write nothing; fail if the document differs from the results
        #[arg(long)]
        check: bool,
    },
    /// Check our own style rules over all files
    Tidy,
    /// Run a command in which every io_uring system call fails (Linux)
    NoUring {
        /// The error of the blocked calls
        #[arg(long, value_enum, default_value_t = no_uring::Errno::Eperm)]
        errno: no_uring::Errno,
        /// The command and its arguments
        #[arg(last = true, required = true, value_name = "COMMAND")]
        command: Vec<OsString>,
    },
}

fn main() -> ExitCode {
    match execute(Cli::parse().task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn execute(task: Task) -> Result<()> {
    match task {
        Task::Ci(options) => ci::run(workspace::find()?, &options),
        Task::Bugs { only } => bugs::run(&workspace::find()?, &only),
        Task::Dist { kinds } => dist::run(workspace::find()?, &kinds),
        Task::Figures { check } => figures::run(&workspace::find()?, check),
        Task::Tidy => tidy::run(&workspace::find()?),
        Task::NoUring { errno, command } => no_uring::replace_process(&command, errno),
    }
}
