//! However an emulation ends, nothing is left.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::process::{Pid, Signal, kill_process};

use super::{Called, TakenAway, direct, emulated, fixed, guardians, guardians_of, is_mounted};
use crate::command::{output, scratch, wait_until};
use crate::skip::{can_emulate, skipped};

/// A read that takes an hour unless it is interrupted.
fn long_read(path: &Path) -> JoinHandle<std::io::Result<()>> {
    let file = direct(path);
    std::thread::spawn(move || file.read_exact_at(&mut [0; 4096], 0))
}

fn in_flight(called: &Called) -> u64 {
    let text = std::fs::read_to_string(called.mount_point.join(".forebay/counters")).unwrap();
    let counters: serde_json::Value = serde_json::from_str(&text).unwrap();
    counters["in_flight"].as_u64().unwrap()
}

/// `forebay emulate` on a disk that takes an hour, with a read in flight.
fn with_a_read() -> (Called, JoinHandle<std::io::Result<()>>, tempfile::TempDir) {
    let scratch = scratch();
    let called = Called::start(&fixed(scratch.path(), "slow", "3600s"), &[]);
    let read = long_read(&called.mount_point.join("disk"));
    wait_until("the read to arrive", || in_flight(&called) == 1);
    (called, read, scratch)
}

/// Whether this process, and so the programs that it starts, ignore SIGHUP.
fn is_hangup_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    let mask = u64::from_str_radix(ignored.trim(), 16).unwrap();
    mask >> (Signal::HUP.as_raw() - 1) & 1 == 1
}

#[test]
fn a_signal_unmounts_and_answers_what_was_under_way() {
    if !can_emulate("a_signal_unmounts_and_answers_what_was_under_way") {
        return;
    }
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        // Under nohup it stays ignored, which is tested with the command line.
        if signal == Signal::HUP && is_hangup_ignored() {
            continue;
        }
        let (mut called, read, _scratch) = with_a_read();
        called.signal(signal);
        read.join().unwrap().expect("it is answered at once");
        let said = called.rest();
        assert!(said.contains("unmounted "), "{said}");
        assert!(called.child.wait().unwrap().success(), "{signal:?}");
        called.assert_removed();
    }
}

#[test]
fn a_killed_server_leaves_no_mount_and_no_reader_waiting() {
    if !can_emulate("a_killed_server_leaves_no_mount_and_no_reader_waiting") {
        return;
    }
    let (mut called, read, _scratch) = with_a_read();
    called.signal(Signal::KILL);
    assert!(read.join().unwrap().is_err(), "the reader gets an error");
    assert_eq!(called.child.wait().unwrap().signal(), Some(Signal::KILL.as_raw()));
    called.assert_removed();
}

#[test]
fn a_panic_in_the_server_ends_it_and_leaves_no_mount_and_no_reader_waiting() {
    // A release build does not know the word.
    if !can_emulate("a_panic_in_the_server_ends_it_and_leaves_no_mount_and_no_reader_waiting")
        || !cfg!(debug_assertions)
    {
        return;
    }
    let (mut called, read, _scratch) = with_a_read();
    let stderr = std::fs::write(called.mount_point.join(".forebay/control"), "panic");
    assert!(stderr.is_err(), "the caller gets an error, too");
    assert!(read.join().unwrap().is_err(), "the reader gets an error");
    assert_eq!(called.child.wait().unwrap().signal(), Some(Signal::ABORT.as_raw()));
    called.assert_removed();
}

#[test]
fn the_death_of_the_parent_unmounts() {
    if !can_emulate("the_death_of_the_parent_unmounts") {
        return;
    }
    let around = tempfile::tempdir().unwrap();
    let mount_point = around.path().canonicalize().unwrap();
    let _mounted = TakenAway(mount_point.clone());
    let script = "\"$0\" emulate instant \"$1\" & wait";
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", script, env!("CARGO_BIN_EXE_forebay")]).arg(&mount_point);
    let mut shell = shell.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    wait_until("the mount", || is_mounted(&mount_point) && mount_point.join("disk").exists());
    shell.kill().unwrap();
    shell.wait().unwrap();
    wait_until("the mount to go", || !is_mounted(&mount_point));
    wait_until("the guardian to go", || guardians(&mount_point) == 0);
}

/// Mounts another filesystem at `path`. `None`, with a message, if this process may not.
fn something_else(test: &str, path: &Path) -> Option<TakenAway> {
    match mount("something-else", path, "tmpfs", MountFlags::empty(), None) {
        Ok(()) => Some(TakenAway(path.to_owned())),
        Err(error) => {
            skipped(test, &format!("a tmpfs cannot be mounted: {error}"));
            None
        }
    }
}

fn mounts_on(path: &Path) -> Vec<String> {
    let table = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let lines = table.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let here = lines.filter(|line| Path::new(line[1]) == path);
    here.map(|line| line[2].to_owned()).collect()
}

#[test]
fn what_another_process_has_mounted_there_since_is_left_alone() {
    let test = "what_another_process_has_mounted_there_since_is_left_alone";
    if !can_emulate(test) || !rustix::process::geteuid().is_root() {
        return;
    }
    // Of the server, which continues afterwards, and of the guardian, when it does not.
    for end in [Signal::CONT, Signal::KILL] {
        let mut called = Called::start("instant", &[]);
        let path = called.mount_point.clone();
        called.signal(Signal::STOP);
        unmount(&path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW).unwrap();
        let theirs = something_else(test, &path);
        called.signal(end);
        called.rest();
        called.child.wait().unwrap();
        wait_until("the guardian to go", || guardians(&path) == 0);
        if theirs.is_some() {
            assert_eq!(mounts_on(&path), ["tmpfs"], "{end:?}");
            unmount(&path, UnmountFlags::DETACH).unwrap();
        }
    }
}

#[test]
fn a_mount_below_another_is_removed_after_that_one() {
    let test = "a_mount_below_another_is_removed_after_that_one";
    if !can_emulate(test) || !rustix::process::geteuid().is_root() {
        return;
    }
    let mut called = Called::start("instant", &[]);
    let path = called.mount_point.clone();
    let Some(_theirs) = something_else(test, &path) else { return };
    called.signal(Signal::INT);
    assert!(!called.child.wait().unwrap().success(), "it says that it could not");
    assert_eq!(mounts_on(&path), ["fuse.forebay", "tmpfs"]);
    assert_eq!(guardians(&path), 1, "the guardian is on duty");
    unmount(&path, UnmountFlags::DETACH).unwrap();
    called.assert_removed();
}

#[test]
fn what_was_written_to_disk_before_a_detach_is_in_its_file() {
    if !can_emulate("what_was_written_to_disk_before_a_detach_is_in_its_file") {
        return;
    }
    let scratch = scratch();
    let data = scratch.path().join("data");
    std::fs::write(&data, "").unwrap();
    let args = ["--size", "64MiB", "--data", data.to_str().unwrap()];
    let mut called = Called::start("instant", &args);
    let user = File::options().write(true).open(called.mount_point.join("disk")).unwrap();
    let written = vec![7_u8; 8 << 20];
    user.write_all_at(&written, 1 << 20).unwrap();
    called.signal(Signal::INT);
    let said = called.rest();
    assert!(said.contains("what was written to disk until then is in"), "{said}");
    assert!(called.child.wait().unwrap().success());
    let mut found = vec![0; written.len()];
    File::open(&data).unwrap().read_exact_at(&mut found, 1 << 20).unwrap();
    assert!(found == written, "lost");
    drop(user);
    called.assert_removed();
}

#[test]
fn a_mount_that_the_kernel_does_not_agree_with_ends_at_once() {
    let test = "a_mount_that_the_kernel_does_not_agree_with_ends_at_once";
    if !can_emulate(test) {
        return;
    }
    let scratch = scratch();
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.args(["emulate", "instant"]).arg(scratch.path()).args(["--readahead", "64MiB"]);
    if rustix::process::geteuid().is_root() {
        // Root may do everything, so there is nothing to refuse.
        std::os::unix::fs::chown(scratch.path(), Some(65534), Some(65534)).unwrap();
        std::os::unix::process::CommandExt::uid(&mut command, 65534);
        std::os::unix::process::CommandExt::gid(&mut command, 65534);
    }
    // A busy machine may sometimes take longer; a wait for the readahead takes five seconds each time.
    let mut took = Duration::MAX;
    for _ in 0..20 {
        let begun = Instant::now();
        let Ok(output) = command.current_dir("/").output() else {
            return skipped(test, "uid 65534 may not run the program");
        };
        let stderr = String::from_utf8_lossy(&output.stderr);
        if !stderr.contains("the readahead of the mount") {
            return skipped(test, &format!("nothing is refused: {stderr}"));
        }
        took = begun.elapsed();
        if took < Duration::from_secs(4) {
            return;
        }
    }
    panic!("{took:?}");
}

#[test]
fn a_mount_in_use_is_detached_and_that_is_said() {
    if !can_emulate("a_mount_in_use_is_detached_and_that_is_said") {
        return;
    }
    let mut called = Called::start("instant", &[]);
    let user = File::open(called.mount_point.join("disk")).unwrap();
    called.signal(Signal::INT);
    let said = called.rest();
    assert!(said.contains("was in use"), "{said}");
    assert!(called.child.wait().unwrap().success());
    assert!(user.read_exact_at(&mut [0; 4096], 1 << 20).is_err());
    called.assert_removed();
}

#[test]
fn an_unmount_by_another_process_ends_it() {
    if !can_emulate("an_unmount_by_another_process_ends_it") {
        return;
    }
    let mut called = Called::start("instant", &[]);
    let by_helper = Command::new("fusermount3").arg("-u").arg(&called.mount_point).status();
    if by_helper.is_err() {
        rustix_unmount(&called);
    }
    called.rest();
    assert!(called.child.wait().unwrap().success());
    called.assert_removed();
}

/// Root without fusermount3.
fn rustix_unmount(called: &Called) {
    assert!(Command::new("umount").arg(&called.mount_point).status().unwrap().success());
}

#[test]
fn a_disk_of_an_experiment_leaves_no_process_mount_or_directory() {
    if !can_emulate("a_disk_of_an_experiment_leaves_no_process_mount_or_directory") {
        return;
    }
    let disk = emulated("instant");
    let mount_point = disk.directory().to_owned();
    assert!(is_mounted(&mount_point));
    drop(disk);
    assert!(!is_mounted(&mount_point), "[EML-1]");
    assert_eq!(guardians(&mount_point), 0, "[EML-1]");
    assert!(!mount_point.exists(), "[EML-1]");

    // In use, too.
    let disk = emulated("instant");
    let mount_point = disk.directory().to_owned();
    let user = File::open(disk.disk()).unwrap();
    drop(disk);
    assert!(!is_mounted(&mount_point) && !mount_point.exists(), "[EML-1]");
    drop(user);
}

#[test]
fn a_mount_that_has_lost_its_server_and_its_guardian_is_reported_with_the_remedy() {
    if !can_emulate("a_mount_that_has_lost_its_server_and_its_guardian_is_reported_with_the_remedy")
    {
        return;
    }
    let mut called = Called::start("instant", &[]);
    assert!(called.mount_point.join("disk").exists());
    for guardian in guardians_of(&called.mount_point) {
        kill_process(guardian, Signal::KILL).unwrap();
    }
    called.signal(Signal::KILL);
    called.child.wait().unwrap();
    let mount_point = called.mount_point.to_str().unwrap();
    let output = output(Path::new("/"), &["emulate", "instant", mount_point]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains(&format!("fusermount3 -u -z {mount_point}")), "{stderr}");
}

#[test]
fn a_killed_server_of_an_experiment_leaves_not_even_its_directory() {
    if !can_emulate("a_killed_server_of_an_experiment_leaves_not_even_its_directory") {
        return;
    }
    // As `Emulated` calls it, killed together with its caller: only the guardian is left to clean up.
    let around = tempfile::tempdir().unwrap();
    // The mount table writes such a name differently.
    let mount_point = around.path().canonicalize().unwrap().join(r"mnt 1\2");
    let _mounted = TakenAway(mount_point.clone());
    std::fs::create_dir(&mount_point).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.args(["emulate", "--until-stdin-ends", "instant"]).arg(&mount_point);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    wait_until("the mount", || is_mounted(&mount_point) && mount_point.join("disk").exists());
    kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
    child.wait().unwrap();
    wait_until("the directory to go", || !is_mounted(&mount_point) && !mount_point.exists());
}

#[test]
fn the_end_of_standard_input_unmounts_a_disk_of_an_experiment() {
    if !can_emulate("the_end_of_standard_input_unmounts_a_disk_of_an_experiment") {
        return;
    }
    let mut called = Called::start("instant", &["--until-stdin-ends"]);
    drop(called.child.stdin.take());
    called.rest();
    assert!(called.child.wait().unwrap().success());
    assert!(!called.mount_point.exists());
}
