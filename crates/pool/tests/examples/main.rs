//! The examples, run as a user would: each command in its own process.
//!
//! They are compiled into this test, which starts itself again as the example's program: cargo builds no examples for
//! `cargo test --test examples`, and an unprivileged user can run a copy of this binary.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod accounts;
mod kv;

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::Command;

#[allow(dead_code, reason = "this test calls what the example's main calls")]
#[path = "../../examples/accounts.rs"]
mod accounts_program;
#[allow(dead_code, reason = "this test calls what the example's main calls")]
#[path = "../../examples/kv.rs"]
mod kv_program;

/// Contains the name of the example that a process should run, and its arguments, separated by newlines.
const ARGS: &str = "FOREBAY_TEST_EXAMPLE_ARGS";

/// Separates the output of the test harness from the output of the program.
const BEGIN: &str = "the example begins\n";

/// Not a test itself: runs the program, in a process started by [`command`].
#[test]
fn program() {
    if let Some(args) = std::env::var_os(ARGS) {
        print!("{BEGIN}");
        let mut args = args.as_bytes().split(|&byte| byte == b'\n');
        let name = args.next().unwrap();
        let args = args.map(|arg| OsString::from_vec(arg.to_vec()));
        let code =
            if name == b"kv" { kv_program::program(args) } else { accounts_program::program(args) };
        std::process::exit(code.into());
    }
}

/// The command `<example> <dir> <args>`.
fn command(example: &str, dir: &Path, args: &[&str]) -> Command {
    let start = [example.as_bytes(), dir.as_os_str().as_bytes()];
    let args: Vec<&[u8]> = start.into_iter().chain(args.iter().map(|arg| arg.as_bytes())).collect();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "--nocapture", "program"])
        .env(ARGS, OsString::from_vec(args.join(&b'\n')));
    command
}

/// Exit code, standard output and standard error of a command.
fn run(example: &str, dir: &Path, args: &[&str]) -> (i32, String, String) {
    let output = command(example, dir, args).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let (out, err) = (text(output.stdout), text(output.stderr));
    let (_, out) = out.split_once(BEGIN).unwrap();
    (output.status.code().unwrap(), out.to_owned(), err)
}
