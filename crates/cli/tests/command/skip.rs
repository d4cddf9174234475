//! Tests that do nothing, because this machine or user lacks what they need: each says so, and is counted.
#![allow(clippy::print_stdout)]

use std::fs::File;
use std::io::Write;
use std::process::{Command, Stdio};

/// Reports why `test` did nothing, and writes that to the file named by FOREBAY_SKIPS.
pub(crate) fn skipped(test: &str, reason: &str) {
    println!("skipped: {test}: {reason}");
    let Some(skips) = std::env::var_os("FOREBAY_SKIPS") else { return };
    let mut file = File::options().append(true).create(true).open(skips).unwrap();
    // One write, so that tests that skip at the same time do not mix their lines.
    file.write_all(format!("lab: {test}: {reason}\n").as_bytes()).unwrap();
}

/// Whether the machine is otherwise idle, so that a test may judge times: set by the step `timing` of
/// `cargo xtask ci --full`.
pub(crate) fn is_quiet() -> bool {
    std::env::var_os("FOREBAY_TIMING").is_some()
}

/// The reason if no disk can be emulated here.
pub(crate) fn no_fuse() -> Option<String> {
    // The helper opens it with this user's rights.
    if let Err(error) = File::options().read(true).write(true).open("/dev/fuse") {
        return Some(format!("/dev/fuse: {error}"));
    }
    let helper = Command::new("fusermount3").arg("-V").stdout(Stdio::null()).status();
    let root = rustix::process::geteuid().is_root();
    (!root && helper.is_err()).then(|| "no fusermount3 on PATH".to_owned())
}

/// Whether disks can be emulated here; if not, `test` is skipped.
pub(crate) fn can_emulate(test: &str) -> bool {
    let reason = no_fuse();
    if let Some(reason) = &reason {
        skipped(test, reason);
    }
    reason.is_none()
}
