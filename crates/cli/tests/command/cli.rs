//! The command as its users meet it: exit codes, messages, written files and leftovers.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::command::{
    assert_ends_with, assert_refused, entries, forebay, interrupt, output, scratch, started,
    wait_until_it_listens,
};

/// Less than any measurement would take, and enough time for a busy machine to start a process.
const SOON: Duration = Duration::from_secs(120);

const SMALL: [&str; 8] =
    ["--size", "8MiB", "--blocks", "64", "--rounds", "2", "--depths", "0,1,16"];

#[test]
fn bad_input_gets_a_plain_message_with_exit_code_2_and_leaves_nothing() {
    let scratch = scratch();
    std::fs::write(scratch.path().join("file"), "mine").unwrap();
    let cases: [(&[&str], &str); 17] = [
        (&["--dir", "nowhere"], "nowhere"),
        (&["--dir", "file"], "is not a directory"),
        (&["--size", "0"], "zero"),
        (&["--size", "100PiB"], "--size"),
        (&["--size", "lots"], "a size looks like"),
        (&["--blocks", "0"], "--blocks"),
        (&["--size", "64KiB", "--blocks", "9"], "--blocks"),
        (&["--block-size", "5000"], "power of two"),
        (&["--block-size", "0"], "zero"),
        (&["--backends", "quantum"], "sync, threads, aio and uring"),
        (&["--cache", "warm"], "buffered and direct"),
        (&["--depths", "5000"], "4096"),
        (&["--backends", "aio", "--cache", "buffered"], "aio reads direct only"),
        (&["--json", "no/such/file.json"], "no directory"),
        (&["--json", "file/x.json"], "file is no directory"),
        (&["--sustained", "x"], "a time looks like"),
        (&["--html", "/sys/x.html"], "/sys/x.html: "),
    ];
    assert_refused(scratch.path(), &["lab", "depth"], &cases);
    assert_eq!(entries(scratch.path()), ["file"]);
    assert_eq!(std::fs::read(scratch.path().join("file")).unwrap(), b"mine");
}

#[test]
fn a_directory_one_may_not_write_to_is_bad_input() {
    // Root may write anywhere but here.
    let output = output(Path::new("/"), &["lab", "depth", "--dir", "/sys", "--size", "1MiB"]);
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_small_run_writes_records_of_the_promised_shape_and_cleans_up() {
    let scratch = scratch();
    let mut args = vec!["lab", "depth", "--seed", "7", "--json", "out.json", "--html", "out.html"];
    args.extend(SMALL);
    let output = output(scratch.path(), &args);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let mut left = entries(scratch.path());
    left.sort();
    assert_eq!(left, ["out.html", "out.json"]);

    let text = std::fs::read_to_string(scratch.path().join("out.json")).unwrap();
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["schema"], "forebay-lab/2");
    assert!(report["command"].as_str().unwrap().contains("--seed 7"));
    let records = report["records"].as_array().unwrap();
    let sync_buffered: Vec<_> = records
        .iter()
        .filter(|record| record["cell"]["backend"] == "sync")
        .filter(|record| record["cell"]["cache"] == "buffered")
        .collect();
    assert_eq!(sync_buffered.len(), 3);
    for record in sync_buffered {
        assert_eq!(record["experiment"], "depth");
        assert_eq!(record["metrics"]["blocks"].as_f64(), Some(64.0));
        assert_eq!(record["metrics"]["rounds"].as_u64(), Some(2));
        assert_eq!(record["rounds"].as_array().unwrap().len(), 2);
        assert!(record["metrics"]["blocks_per_s"].as_f64().unwrap() > 0.0);
        // Measured or null, but always there.
        for name in ["device_requests", "device_bytes", "over_read", "wait_us_p50", "wait_us_p99"] {
            assert!(record["metrics"].get(name).is_some(), "{name}");
        }
    }
    let page = std::fs::read_to_string(scratch.path().join("out.html")).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") || page.starts_with("<!doctype html>"));
}

#[test]
fn an_output_that_cannot_be_written_is_reported_before_measuring() {
    let scratch = scratch();
    let begun = Instant::now();
    for args in [
        ["lab", "depth", "--json", "/sys/x.json"].as_slice(),
        ["lab", "--report", "/sys/report"].as_slice(),
    ] {
        let output = output(scratch.path(), args);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
        assert!(stderr.contains("/sys"), "{args:?}: {stderr}");
    }
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    assert_eq!(entries(scratch.path()), [""; 0]);
}

#[test]
fn a_closed_output_is_no_failure_and_the_records_are_written() {
    let scratch = scratch();
    let mut args = vec!["lab", "depth", "--json", "out.json"];
    args.extend(SMALL);
    let mut child = forebay(scratch.path(), &args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(!stderr.contains("panicked"), "{stderr}");
    let text = std::fs::read_to_string(scratch.path().join("out.json")).unwrap();
    assert!(serde_json::from_str::<Value>(&text).unwrap()["records"].is_array());
}

#[test]
fn a_report_directory_that_was_there_stays_whatever_happens() {
    let scratch = scratch();
    let report = scratch.path().join("mine");
    std::fs::create_dir(&report).unwrap();
    let bad = output(scratch.path(), &["lab", "--dir", "nowhere", "--report", "mine"]);
    assert_eq!(bad.status.code(), Some(2));
    assert!(report.is_dir());

    let child = started(scratch.path(), &["lab", "--report", "mine"]);
    wait_until_it_listens(&child);
    std::thread::sleep(Duration::from_millis(500));
    interrupt(&child);
    assert_ends_with(130, child, "a run with --report");
    assert_eq!(entries(scratch.path()), ["mine"]);
    assert_eq!(entries(&report), [""; 0]);
}

#[test]
fn the_command_of_a_report_repeats_the_run_as_it_stands() {
    let scratch = scratch();
    let mut args = vec!["lab", "depth", "--backends", "sync", "--json", "out.json"];
    args.extend(SMALL);
    assert!(output(scratch.path(), &args).status.success());
    let text = std::fs::read_to_string(scratch.path().join("out.json")).unwrap();
    let report: Value = serde_json::from_str(&text).unwrap();
    let command = report["command"].as_str().unwrap();
    let again = Command::new("sh").args(["-c", command]).current_dir("/").output().unwrap();
    assert!(again.status.success(), "{command}: {}", String::from_utf8_lossy(&again.stderr));
}

#[test]
fn ctrl_c_ends_the_run_soon_with_130_and_leaves_nothing() {
    let scratch = scratch();
    for pause_ms in [0, 30, 700] {
        let child = started(scratch.path(), &["lab", "--dir", "."]);
        wait_until_it_listens(&child);
        std::thread::sleep(Duration::from_millis(pause_ms));
        let begun = Instant::now();
        interrupt(&child);
        assert_ends_with(130, child, &format!("interrupted after {pause_ms} ms"));
        assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
        assert_eq!(entries(scratch.path()), [""; 0]);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn even_a_kill_leaves_no_working_file() {
    let scratch = scratch();
    let mut child = started(scratch.path(), &["lab", "depth", "--size", "64MiB"]);
    wait_until_it_listens(&child);
    std::thread::sleep(Duration::from_millis(500));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(entries(scratch.path()), [""; 0]);
}

#[test]
fn help_teaches() {
    let scratch = scratch();
    let output = output(scratch.path(), &["lab", "depth", "--help"]);
    let help = String::from_utf8_lossy(&output.stdout);
    for word in ["--dir", "--depths", "Example:", "in flight"] {
        assert!(help.contains(word), "{word}: {help}");
    }
    let output = crate::command::forebay(scratch.path(), &["watch", "--help"]).output().unwrap();
    let help = String::from_utf8_lossy(&output.stdout);
    // As written, and not broken by the width of a terminal: continuation lines stay aligned.
    assert!(help.contains("\n                  since\n"), "{help}");
    assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_hangup_that_was_ignored_at_the_start_stays_ignored() {
    use rustix::process::{Pid, Signal, kill_process};
    let scratch = scratch();
    // As nohup starts it.
    let line = "trap '' HUP; exec \"$0\" lab sync --quick --rounds 1 --size 32MiB --json out.json";
    let mut command = Command::new("sh");
    command.args(["-c", line, env!("CARGO_BIN_EXE_forebay")]).current_dir(scratch.path());
    let mut child = crate::command::spawned(command.stdin(Stdio::null()));
    wait_until_it_listens(&child);
    while child.try_wait().unwrap().is_none() {
        let _ = kill_process(Pid::from_child(&child), Signal::HUP);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_ends_with(0, child, "sync under nohup");
    assert_eq!(entries(scratch.path()), ["out.json"]);
}
