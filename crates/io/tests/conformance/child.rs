//! Claims that need a separate process: this program again, with a hidden argument.
//!
//! Limits, system call filters, mounts and a count of processor time belong to a process, and must not affect trials
//! that run at the same time.

use std::env;
use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, ExitCode};

use crate::bench::{Bench, Cell};
use crate::harness::{self, Claim, Outcome};
use crate::{atomic, full_disk, idle, ladder};

const FLAG: &str = "--conformance-child";

/// Exit code of a child that cannot run its test.
pub(crate) const SKIPPED: u8 = 77;

/// All bodies that run in a child.
fn bodies() -> Vec<Claim> {
    let mut bodies = atomic::child_bodies();
    bodies.extend(full_disk::child_bodies());
    bodies.extend(idle::child_bodies());
    bodies.extend(ladder::child_bodies());
    bodies
}

/// Runs the body named in the arguments, if this process is such a child.
pub(crate) fn run_if_child() -> Option<ExitCode> {
    let arguments: Vec<String> = env::args().collect();
    let [_, flag, name, cell] = arguments.as_slice() else {
        return None;
    };
    if flag != FLAG {
        return None;
    }
    let claim = bodies().into_iter().find(|claim| claim.name == name).unwrap();
    let cell = Cell::parse(cell).unwrap();
    harness::watch_child(&format!("{cell}: child {name}"));
    Some(match (claim.body)(&Bench::new(cell, harness::seed())) {
        Outcome::Held => ExitCode::SUCCESS,
        Outcome::Skipped(reason) => {
            eprintln!("{reason}");
            ExitCode::from(SKIPPED)
        }
    })
}

/// Runs the body called `name` in a child whose files are in `directory`.
///
/// `launcher` is the program and arguments that start it, such as `sh -c '... exec "$@"'`.
pub(crate) fn run(bench: &Bench, name: &str, launcher: &[&OsStr], directory: &Path) -> Outcome {
    let program = env::current_exe().unwrap();
    let mut words = launcher.to_vec();
    words.push(program.as_os_str());
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).args([FLAG, name, &bench.cell.to_string()]);
    command.env("FOREBAY_TEST_DIR", directory).env("FOREBAY_SEED", bench.seed.to_string());
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(0) => Outcome::Held,
        Some(code) if code == i32::from(SKIPPED) => Outcome::Skipped(said.trim().to_owned()),
        _ => panic!("child {name}: {}\n{said}", output.status),
    }
}

/// Runs the body called `name` in a child, in the directory of `bench`.
pub(crate) fn run_plain(bench: &Bench, name: &str) -> Outcome {
    run(bench, name, &[], bench.directory())
}
