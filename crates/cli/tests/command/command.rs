//! The command in a separate process, and what it finds and leaves in its directory.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use forebay_measure::filesystem::{Filesystem, Mounted};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// `forebay ARGS`, to be run in `directory`.
pub(crate) fn forebay(directory: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.args(args).current_dir(directory).stdin(Stdio::null());
    command
}

/// The output of `forebay ARGS`, run in `directory`.
pub(crate) fn output(directory: &Path, args: &[&str]) -> Output {
    forebay(directory, args).output().unwrap()
}

/// `forebay ARGS`, started in `directory`.
pub(crate) fn started(directory: &Path, args: &[&str]) -> Child {
    spawned(&mut forebay(directory, args))
}

/// `command`, started. Its standard error is kept for `assert_ends_with`.
pub(crate) fn spawned(command: &mut Command) -> Child {
    command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

/// `child`, which has not ended yet.
#[track_caller]
pub(crate) fn under_way(mut child: Child) -> Child {
    if let Some(status) = child.try_wait().unwrap() {
        let output = child.wait_with_output().unwrap();
        panic!("the run ended early with {status}: {}", String::from_utf8_lossy(&output.stderr));
    }
    child
}

/// Waits for the end of `child`; if the exit code is not `code`, its standard error is shown.
#[track_caller]
pub(crate) fn assert_ends_with(code: i32, child: Child, what: &str) {
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{what}: {:?}: {stderr}", output.status);
}

/// A directory on a disk (where the build is), not on a tmpfs.
pub(crate) fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))
        // Absolute, since a list of mounts has absolute names.
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

/// A filesystem over `disk`.
pub(crate) fn mount_over(disk: &Path, filesystem: Filesystem) -> Mounted {
    make_filesystem(|| Mounted::over(disk, filesystem).map_err(|error| format!("{error:#}")))
        .unwrap()
}

/// The result of `make`, which makes a filesystem. Its program examines all loop devices and mounts, also those of an
/// emulated disk that another test has just ended: `make` is called again then.
pub(crate) fn make_filesystem<T>(make: impl Fn() -> Result<T, String>) -> Result<T, String> {
    const DEAD: [&str; 2] =
        ["Software caused connection abort", "Transport endpoint is not connected"];
    for _ in 0..100 {
        match make() {
            Err(error) if DEAD.iter().any(|dead| error.contains(dead)) => {
                std::thread::sleep(Duration::from_millis(100));
            }
            made => return made,
        }
    }
    Err("other emulated disks remain dead".to_owned())
}

/// Looks until `condition` holds, which may take a minute on a busy machine.
pub(crate) fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < Duration::from_secs(300), "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until `child` handles Ctrl-C, which may take long on a busy machine, or has
/// ended.
pub(crate) fn wait_until_it_listens(child: &Child) {
    let status = format!("/proc/{}/status", child.id());
    if !Path::new(&status).exists() {
        return std::thread::sleep(Duration::from_secs(1));
    }
    wait_until("a handler of Ctrl-C", || {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let caught = text.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        has_ended(child.id())
            || caught.is_some_and(|mask| mask >> (Signal::INT.as_raw() - 1) & 1 == 1)
    });
}

/// True once the process `pid` has ended, or is a zombie; never on a system without /proc.
pub(crate) fn has_ended(pid: u32) -> bool {
    if !Path::new("/proc/self").exists() {
        return false;
    }
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with('Z'))
}

/// Sends `child` Ctrl-C.
pub(crate) fn interrupt(child: &Child) {
    kill_process(Pid::from_child(child), Signal::INT).unwrap();
}

/// Asserts that the report's command repeats its run when given in `directory`. The measured directory
/// no longer exists; the rest of the line is as in the report.
#[track_caller]
pub(crate) fn assert_repeats(directory: &Path, report: &Value) {
    let command = report["command"].as_str().unwrap();
    let (before, after) = command.split_once(" --dir ").unwrap();
    let after = after.split_once(' ').map_or("", |(_, after)| after);
    let command = format!("{before} {after}");
    let again = Command::new("sh").args(["-c", &command]).current_dir(directory).output().unwrap();
    assert!(again.status.success(), "{command}: {}", String::from_utf8_lossy(&again.stderr));
}

/// Each of the command lines is refused with exit code 2 and a word that says what is wrong with it.
#[track_caller]
pub(crate) fn assert_refused(directory: &Path, command: &[&str], cases: &[(&[&str], &str)]) {
    for (args, expected) in cases {
        let output = output(directory, &[command, args].concat());
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
        assert!(stderr.contains(expected), "{args:?}: {stderr}");
        assert!(!stderr.contains("panicked"), "{args:?}: {stderr}");
    }
}
