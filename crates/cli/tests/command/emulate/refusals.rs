//! What cannot be mounted, reported in a sentence, with nothing changed.

use super::Called;
use crate::command::{assert_refused, output, scratch};
use crate::skip::can_emulate;

#[test]
fn what_cannot_be_mounted_gets_a_plain_message_with_exit_code_2() {
    if !can_emulate("what_cannot_be_mounted_gets_a_plain_message_with_exit_code_2") {
        return;
    }
    let scratch = scratch();
    let here = |name: &str| scratch.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(here("file"), "mine").unwrap();
    for directory in ["empty", "full"] {
        std::fs::create_dir(here(directory)).unwrap();
    }
    std::fs::write(here("full/thing"), "mine").unwrap();
    std::fs::write(here("bad.toml"), "about = \"x\"\n[fixed]\nspeed = 3\n").unwrap();
    let cases: [(&[&str], &str); 17] = [
        (&["instant", "nowhere"], "name an existing, empty directory"),
        (&["instant", "file"], "is not a directory"),
        (&["instant", "full"], "is not empty"),
        (&["instant"], "MOUNTPOINT"),
        (&["floppy", "empty"], "raid10-12"),
        (&["bad.toml", "empty"], "speed"),
        (&["none.toml", "empty"], "none.toml"),
        (&["instant", "empty", "--size", "100PiB"], "does not fit"),
        (&["instant", "empty", "--size", "1000"], "the minimum is 4096"),
        (&["instant", "empty", "--speed-up", "0"], "speed-up"),
        (&["instant", "empty", "--speed-up", "10001"], "from 0.001 to 10000"),
        (&["instant", "empty", "--data", "/dev/null"], "not an ordinary file"),
        (&["instant", "empty", "--data", "full"], "cannot write full: Is a directory"),
        (&["instant", "empty", "--log", "full"], "cannot write full: Is a directory"),
        (&["instant", "empty", "--log", "file/log"], "file is no directory"),
        (&["instant", "empty", "--place", "top"], "begin, middle, end"),
        (&["instant", "empty", "--memory", "much"], "a size looks like"),
    ];
    assert_refused(scratch.path(), &["emulate"], &cases);
    assert!(!std::fs::read_to_string("/proc/self/mounts").unwrap().contains(&here("")));
    assert_eq!(std::fs::read_to_string(here("full/thing")).unwrap(), "mine");
}

#[test]
fn a_mount_point_is_for_one_mount() {
    if !can_emulate("a_mount_point_is_for_one_mount") {
        return;
    }
    let called = Called::start("instant", &[]);
    let mount_point = called.mount_point.to_str().unwrap();
    let output = output(called.mount_point.parent().unwrap(), &["emulate", "instant", mount_point]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("is mounted on"), "{stderr}");
    assert!(called.mount_point.join("disk").exists());
}

#[test]
fn a_file_keeps_the_data_of_one_mount() {
    if !can_emulate("a_file_keeps_the_data_of_one_mount") {
        return;
    }
    let scratch = scratch();
    let data = scratch.path().join("data");
    std::fs::write(&data, "mine").unwrap();
    std::fs::create_dir(scratch.path().join("empty")).unwrap();
    let data = data.to_str().unwrap();
    let called = Called::start("instant", &["--size", "1MiB", "--data", data]);
    let line = ["emulate", "instant", "empty", "--size", "1MiB", "--data", data];
    let output = output(scratch.path(), &line);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("another emulated disk has its data in"), "{stderr}");
    drop(called);
}

#[test]
fn unknown_words_to_the_control_file_are_invalid() {
    if !can_emulate("unknown_words_to_the_control_file_are_invalid") {
        return;
    }
    let called = Called::start("instant", &[]);
    let control = called.mount_point.join(".forebay/control");
    let of_tests = (!cfg!(debug_assertions)).then_some("panic");
    for words in ["timing", "timing maybe", "log", "faster"].into_iter().chain(of_tests) {
        let error = std::fs::write(&control, words).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{words}");
    }
    std::fs::write(&control, "timing off\n").unwrap();
}

#[test]
fn the_profiles_are_listed() {
    let output = output(scratch().path(), &["emulate", "--list"]);
    let stderr = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success());
    assert!(stderr.lines().any(|line| line.starts_with("raid10-12 ")), "{stderr}");
    assert!(stderr.lines().count() >= 12, "{stderr}");
}
