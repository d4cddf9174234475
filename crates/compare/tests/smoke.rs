//! The program, run small: every peer returns the right pages, the records parse, nothing is left.
#![allow(clippy::unwrap_used)]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const PEERS: [&str; 9] = [
    "page-db",
    "lru-locked",
    "lru-unlocked",
    "quick-cache",
    "moka",
    "forebay-buffered",
    "forebay-direct",
    "pread-buffered",
    "pread-direct",
];

const SMALL: [&str; 10] = [
    "--file-size",
    "8MiB",
    "--memory",
    "1MiB",
    "--threads",
    "1,4",
    "--seconds",
    "0.04",
    "--seed",
    "7",
];

/// The program under test. Cargo sets the variable for a running test as well; while it compiles, a shell that stands
/// in front of rustc may drop it for the hyphen in its name.
fn program() -> PathBuf {
    std::env::var_os("CARGO_BIN_EXE_forebay-compare").expect("cargo names the program").into()
}

fn compare(directory: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.args(SMALL).args(args).current_dir(directory).stdin(Stdio::null());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn succeed(directory: &Path, args: &[&str]) -> Output {
    let output = compare(directory, args).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    output
}

/// A directory on a disk (where the build is), not on a tmpfs.
fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))
        .or_else(|_| tempfile::tempdir_in("."))
        .unwrap()
}

fn entries(directory: &Path) -> Vec<String> {
    let names = std::fs::read_dir(directory).unwrap();
    names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn every_peer_reads_right_pages_in_every_cell_and_nothing_is_left() {
    let scratch = scratch();
    let output = succeed(scratch.path(), &["--rounds", "2", "--json", "out.json"]);
    assert_eq!(entries(scratch.path()), ["out.json"]);
    let stdout = text(&output.stdout);

    let records = std::fs::read_to_string(scratch.path().join("out.json")).unwrap();
    let report: Value = serde_json::from_str(&records).unwrap();
    assert_eq!(report["schema"], "forebay-compare/1");
    assert_eq!(report["settings"]["seed"], 7);
    assert!(report["host"]["kernel"].as_str().unwrap().contains(' '));
    assert!(report["storage"]["directory"].is_string());
    assert!(report["storage"].get("filesystem").is_some());
    assert!(report["forebay"].as_str().unwrap().starts_with(env!("CARGO_PKG_VERSION")));

    let records = report["records"].as_array().unwrap();
    assert_eq!(records.len(), 2 * 2 * PEERS.len());
    for peer in PEERS {
        assert!(stdout.contains(peer), "{stdout}");
        assert!(report["peers"].as_array().unwrap().iter().any(|about| about["peer"] == peer));
        let of_peer = records.iter().filter(|record| record["cell"]["peer"] == peer);
        for record in of_peer.clone() {
            let metrics = &record["metrics"];
            // A wrong page would have ended the run.
            assert!(metrics["reads"].as_u64().unwrap() > 0, "{record}");
            assert!(metrics["reads_per_s"].as_f64().unwrap() > 0.0, "{record}");
            assert_eq!(metrics["reads_per_s_rounds"].as_array().unwrap().len(), 2);
            assert!(metrics["times_page_db"].as_f64().unwrap() > 0.0, "{record}");
            assert!(metrics["wait_us_p99"].as_f64() >= metrics["wait_us_p50"].as_f64());
        }
        // A peer without memory reads everything from the device; one that reads buffered may get more
        // than it requested.
        let resident = if peer == "pread-direct" { 0.9..1.1 } else { 0.0..0.1 };
        for (case, expected) in [("resident", resident), ("missing", 0.9..2.0)] {
            for record in of_peer.clone().filter(|record| record["cell"]["case"] == case) {
                let pages = record["metrics"]["process_pages_per_read"].as_f64();
                let remarked = !record["remarks"].as_array().unwrap().is_empty();
                // A device's counters show whether the pages were read from it; elsewhere a remark says so.
                let as_expected = pages.is_some_and(|pages| expected.contains(&pages));
                assert!(as_expected || remarked, "{record}");
            }
        }
    }
}

#[test]
fn bad_input_gets_a_plain_message_with_exit_code_2_and_leaves_nothing() {
    let scratch = scratch();
    std::fs::write(scratch.path().join("file"), "mine").unwrap();
    let cases: [(&[&str], &str); 8] = [
        (&["--dir", "nowhere"], "nowhere"),
        (&["--dir", "file"], "file"),
        (&["--file-size", "100PiB"], "--file-size"),
        (&["--memory", "8MiB"], "--memory"),
        (&["--page-size", "5000"], "--page-size"),
        (&["--peers", "postgres"], "postgres"),
        (&["--json", "no/such/file.json"], "there is no directory"),
        (&["--json", "."], "Is a directory"),
    ];
    for (args, expected) in cases {
        let last_wins: Vec<&str> =
            SMALL.chunks(2).filter(|pair| pair[0] != args[0]).flatten().copied().collect();
        let output = Command::new(program())
            .args(last_wins)
            .args(args)
            .current_dir(scratch.path())
            .output()
            .unwrap();
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
        assert!(stderr.contains(expected) && !stderr.contains("panicked"), "{args:?}: {stderr}");
    }
    assert_eq!(entries(scratch.path()), ["file"]);
}

/// The options of look-ups that take no more than a second each.
const LOOKUPS: [&str; 4] = ["--entries", "2000", "--threads", "1,4"];

fn compare_lookups(directory: &Path, peer: &str, args: &[&str]) -> Output {
    compare_with_vmcache(directory, peer, &[&LOOKUPS, args].concat())
}

fn compare_with_vmcache(directory: &Path, peer: &str, args: &[&str]) -> Output {
    let path = directory.join("peer");
    std::fs::write(&path, peer).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new(program());
    command.args(["--memory", "1GiB", "--vmcache", "./peer", "--seconds", "1"]).args(args);
    command.current_dir(directory).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn look_ups_are_compared_with_a_program_that_has_the_same_settings() {
    // Prints its settings: entries times threads, GiB, and whether it has an empty file.
    let peer = "#!/bin/sh\n\
        test -f \"$BLOCK\" -a ! -s \"$BLOCK\" -a \"$RNDREAD\" = 1 || exit 3\n\
        echo ts,tx,rmb,wmb,system\n\
        for second in $(seq \"$RUNFOR\")\n\
        do echo \"$second,$((DATASIZE * THREADS * second)),$PHYSGB,0,vmcache,rndread\"; done\n";
    let scratch = scratch();
    let output = compare_lookups(
        scratch.path(),
        peer,
        &["--rounds", "1", "--settle", "2", "--json", "out.json"],
    );
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("times vmcache"), "{}", text(&output.stdout));
    let report = std::fs::read_to_string(scratch.path().join("out.json")).unwrap();
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["schema"], "forebay-compare-vmcache/1");
    let measurements = report["measurements"].as_array().unwrap();
    assert_eq!(measurements.len(), 4);
    for (row, threads) in report["rows"].as_array().unwrap().iter().zip([1.0, 4.0]) {
        // Two seconds to settle, and the third is counted.
        assert_eq!(row["vmcache_per_s"].as_f64(), Some(3.0 * 2000.0 * threads), "{row}");
        let ours = row["forebay_per_s"].as_f64().unwrap();
        let times = row["times_vmcache"].as_f64().unwrap();
        assert!(ours > 0.0 && (times - ours / (6000.0 * threads)).abs() < 1e-6, "{row}");
    }
    let theirs = measurements.iter().find(|one| one["who"] == "vmcache").unwrap();
    assert_eq!(theirs["seconds"]["read_mib"], serde_json::json!([1.0, 1.0, 1.0]));
    let mut left = entries(scratch.path());
    left.sort();
    assert_eq!(left, ["out.json", "peer"]);
}

#[test]
fn tpcc_is_compared_with_and_without_a_log() {
    let peer = "#!/bin/sh\n\
        test \"$RNDREAD\" = 0 -a \"$DATASIZE\" = 1 || exit 3\n\
        for second in $(seq \"$RUNFOR\"); do echo \"$second,100,0,0,vmcache,tpcc\"; done\n";
    let scratch = scratch();
    let args = ["--tpcc", "1", "--rounds", "1", "--threads", "2", "--json", "out.json"];
    let output = compare_with_vmcache(scratch.path(), peer, &args);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("+ log"), "{}", text(&output.stdout));
    let report = std::fs::read_to_string(scratch.path().join("out.json")).unwrap();
    let report: Value = serde_json::from_str(&report).unwrap();
    let row = &report["rows"][0];
    assert_eq!(row["vmcache_per_s"].as_f64(), Some(100.0), "{row}");
    for name in ["forebay_per_s", "log_per_s", "log_times_vmcache"] {
        assert!(row[name].as_f64().unwrap() > 0.0, "{row}");
    }
}

#[test]
fn a_peer_that_fails_ends_the_run_with_what_it_said() {
    let scratch = scratch();
    let output = compare_lookups(scratch.path(), "#!/bin/sh\necho no room >&2\nexit 7\n", &[]);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("no room") && stderr.contains("0 of 1 seconds"), "{stderr}");
    for (args, expected) in [
        (["--vmcache", "nowhere"], "needs libaio-dev"),
        (["--vmcache", "."], "is no program"),
        (["--memory", "1536MiB"], "whole GiB"),
        (["--entries", "9000000000"], "--entries"),
    ] {
        let last_wins: Vec<&str> =
            LOOKUPS.chunks(2).filter(|pair| pair[0] != args[0]).flatten().copied().collect();
        let output = Command::new(program())
            .args(last_wins)
            .args(args)
            .current_dir(scratch.path())
            .output()
            .unwrap();
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
        assert!(stderr.contains(expected), "{args:?}: {stderr}");
    }
    assert_eq!(entries(scratch.path()), ["peer"]);
}

#[test]
fn ctrl_c_ends_the_run_in_order_and_leaves_nothing() {
    let scratch = scratch();
    let started = Instant::now();
    let mut child = compare(scratch.path(), &["--rounds", "1000"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while entries(scratch.path()).is_empty() && started.elapsed() < Duration::from_secs(120) {
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(Duration::from_millis(100));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(started.elapsed() < Duration::from_secs(240));
    assert!(entries(scratch.path()).is_empty());
}
