//! The command in a process of its own, and what it finds and leaves where it is run.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// `forebay ARGS`, to be run in `directory`.
pub(crate) fn forebay(directory: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.args(args).current_dir(directory).stdin(Stdio::null());
    command
}

/// What comes of `forebay ARGS`, run in `directory`.
pub(crate) fn output(directory: &Path, args: &[&str]) -> Output {
    forebay(directory, args).output().unwrap()
}

/// `forebay ARGS`, on its way in `directory` and not heard.
pub(crate) fn started(directory: &Path, args: &[&str]) -> Child {
    forebay(directory, args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// A directory on a disk (where the build is), not on a tmpfs.
pub(crate) fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))
        // Whole, since a list of mounts has whole names.
        .or_else(|_| tempfile::tempdir_in(std::env::current_dir()?))
        .unwrap()
}

/// The names in `directory`, in order.
pub(crate) fn entries(directory: &Path) -> Vec<String> {
    let names = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<String> =
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Looks until `condition` holds.
pub(crate) fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < Duration::from_secs(60), "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until `child` handles Ctrl-C, which on a crowded machine takes as long as it takes.
pub(crate) fn wait_until_it_listens(child: &Child) {
    let status = format!("/proc/{}/status", child.id());
    if !Path::new(&status).exists() {
        return std::thread::sleep(Duration::from_secs(1));
    }
    wait_until("a handler of Ctrl-C", || {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let caught = text.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        caught.is_some_and(|mask| mask >> (Signal::INT.as_raw() - 1) & 1 == 1)
    });
}

/// Sends `child` Ctrl-C.
pub(crate) fn interrupt(child: &Child) {
    kill_process(Pid::from_child(child), Signal::INT).unwrap();
}
