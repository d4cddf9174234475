//! `checkpoint` as its users meet it: the cells it promises, what it refuses, and what it leaves behind.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;
use std::process::Output;
use std::time::{Duration, Instant};

use forebay_io::Volume;
use forebay_measure::filesystem::Filesystem;
use serde_json::{Value, json};

use crate::command::{
    self, assert_ends_with, assert_refused, assert_repeats, entries, interrupt, mount_over,
    scratch, wait_until_it_listens,
};
use crate::environment::lacking;
use crate::skip::skipped;

/// The output of `forebay lab checkpoint ARGS`, run in `directory`.
fn output(directory: &Path, args: &[&str]) -> Output {
    command::output(directory, &[&["lab", "checkpoint"], args].concat())
}

/// The report of a small run that succeeds and leaves only its records.
fn report(args: &[&str]) -> Value {
    let scratch = scratch();
    std::fs::create_dir(scratch.path().join("second")).unwrap();
    let mut line = args.to_vec();
    line.extend(["--size", "8MiB", "--rounds", "1", "--interval", "600ms", "--seed", "7"]);
    line.extend(["--json", "out.json"]);
    let output = output(scratch.path(), &line);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(entries(scratch.path()), ["out.json", "second"]);
    assert_eq!(entries(&scratch.path().join("second")), [""; 0]);
    let text = std::fs::read_to_string(scratch.path().join("out.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn records(report: &Value) -> &Vec<Value> {
    report["records"].as_array().unwrap()
}

/// The better one of the two default backends of a run, which is not the same on every machine.
fn best_backend(report: &Value) -> String {
    let backends = report["backends"].as_array().unwrap();
    assert_eq!((backends.len(), &backends[0]["backend"]), (2, &json!("sync")));
    backends[1]["backend"].as_str().unwrap().to_owned()
}

fn is_plain(record: &Value) -> bool {
    record["cell"]["paced"] == false && record["cell"]["foreground"] == false
}

#[test]
fn every_order_is_measured_with_every_option_and_the_best_with_readers() {
    let report = report(&[]);
    let best = best_backend(&report);
    let mut expected = BTreeSet::new();
    let mut expect =
        |dirty: &str, elevator: &str, combine: bool, cache: &str, rest: (&str, bool, bool)| {
            let (backend, paced, foreground) = rest;
            let cell = json!({
                "dirty": dirty, "elevator": elevator, "combine": combine, "cache": cache,
                "backend": backend, "paced": paced, "foreground": foreground,
            });
            expected.insert(cell.to_string());
        };
    for cache in ["buffered", "direct"] {
        for dirty in ["uniform", "clustered", "zipfian"] {
            for elevator in ["arrival", "sorted", "balanced"] {
                for combine in [false, true] {
                    for backend in ["sync", &best] {
                        expect(dirty, elevator, combine, cache, (backend, false, false));
                    }
                }
            }
        }
        for paced in [false, true] {
            expect("uniform", "balanced", true, cache, (&best, paced, true));
        }
    }
    let found: Vec<String> =
        records(&report).iter().map(|record| record["cell"].to_string()).collect();
    assert_eq!(found.iter().cloned().collect::<BTreeSet<_>>(), expected);
    assert_eq!(found.len(), expected.len(), "each once");
}

#[test]
fn a_record_has_what_was_written_and_what_that_took() {
    let report = report(&["--patterns", "clustered", "--elevators", "arrival,balanced"]);
    for record in records(&report) {
        assert_eq!(record["experiment"], "checkpoint");
        let (cell, metrics) = (&record["cell"], &record["metrics"]);
        if metrics["seconds"].is_null() {
            let why = record["remarks"][0].as_str().unwrap();
            assert!(why.starts_with("not measured: "), "{why}");
            continue;
        }
        assert!(metrics["seconds"].as_f64().unwrap() > 0.0);
        assert_eq!(metrics["pages"], 128.0, "an eighth of the file: {record}");
        assert!(metrics["sync_seconds"].is_number());
        assert_eq!(metrics["tablespace_seconds"].as_array().unwrap().len(), 1);
        let requests = metrics["requests"].as_f64().unwrap();
        if cell["combine"] == false && cell["paced"] == false {
            assert_eq!(requests, 128.0, "{record}");
        } else if cell["combine"] == true && is_plain(record) {
            assert!(requests <= 16.0, "runs of eight: {record}");
        }
        for name in ["device_requests", "bytes_per_request", "slip"] {
            assert!(metrics.get(name).is_some(), "{name}");
        }
        assert_eq!(metrics["slip"].is_number(), cell["paced"] == true, "{record}");
        let is_baseline = cell["elevator"] == "arrival" && cell["combine"] == false;
        if is_baseline && cell["backend"] == "sync" {
            assert_eq!(metrics["ratio_to_arrival"], 1.0);
            // Where the device counts at all, direct writes are counted one by one.
            let counted = metrics["device_requests"].as_f64().filter(|_| cell["cache"] == "direct");
            assert!(counted.is_none_or(|writes| writes >= 128.0), "{record}");
        }
    }
}

#[test]
fn readers_are_there_before_and_during_and_over_time() {
    let report = report(&["--patterns", "uniform", "--elevators", "balanced", "--combine", "on"]);
    let with_readers: Vec<&Value> =
        records(&report).iter().filter(|record| record["cell"]["foreground"] == true).collect();
    assert_eq!(with_readers.len(), 4);
    let verdicts = report["verdicts"].as_array().unwrap();
    assert!(
        verdicts.iter().all(|verdict| verdict["verdict"] == "undecided"),
        "one round: {verdicts:?}"
    );
    let measured =
        with_readers.into_iter().filter(|record| record["metrics"]["seconds"].is_number());
    let measured: Vec<&Value> = measured.collect();
    assert!(measured.len() >= 2, "through the page cache at least");
    for record in measured {
        let metrics = &record["metrics"];
        assert!(metrics["foreground_before_us_p50"].as_f64().unwrap() > 0.0, "{record}");
        assert!(metrics["foreground_interval_us_p50"].as_f64().unwrap() > 0.0, "{record}");
        assert!(metrics["foreground_interval_us_p99"].is_null(), "of 600 reads: {record}");
        let slots = metrics["foreground_us_max_over_time"].as_array().unwrap();
        assert_eq!(slots.len(), 20, "0.6 s in slots of 0.03 s");
        if record["cell"]["paced"] == true {
            let seconds = metrics["seconds"].as_f64().unwrap();
            assert!(seconds >= 0.45, "nearly the whole interval: {seconds}");
            assert!(metrics["foreground_reads"].as_f64().unwrap() > 0.0, "{record}");
            assert!(metrics["foreground_us_p50"].as_f64().unwrap() > 0.0, "{record}");
        }
    }
}

#[test]
fn two_tablespaces_end_on_their_own_and_both_directories_are_left_empty() {
    let report =
        report(&["--patterns", "two-tablespaces", "--dir2", "second", "--cache", "buffered"]);
    for record in records(&report).iter().filter(|record| is_plain(record)) {
        let times = record["metrics"]["tablespace_seconds"].as_array().unwrap();
        assert_eq!(times.len(), 2, "{record}");
        assert!(times.iter().all(|time| time.as_f64().unwrap() > 0.0), "{record}");
    }
    assert!(report["command"].as_str().unwrap().contains("/second --cache buffered"));
}

#[test]
fn the_command_of_a_report_repeats_the_run_as_it_stands() {
    let report =
        report(&["--patterns", "clustered", "--elevators", "sorted", "--cache", "buffered"]);
    assert_repeats(scratch().path(), &report);
}

#[test]
fn bad_input_gets_a_plain_message_with_exit_code_2_and_leaves_nothing() {
    let scratch = scratch();
    let cases: [(&[&str], &str); 13] = [
        (&["--dir", "nowhere"], "nowhere"),
        (&["--dir2", "nowhere", "--size", "8MiB"], "nowhere"),
        (&["--patterns", "two-tablespaces"], "--dir2"),
        (&["--patterns", "zigzag"], "clustered"),
        (&["--elevators", "lift"], "balanced"),
        (&["--combine", "maybe"], "--combine"),
        (&["--backends", "quantum"], "uring"),
        (&["--backends", "aio", "--cache", "buffered"], "aio writes direct only"),
        (&["--size", "8KiB"], "--size"),
        (&["--size", "8MiB", "--dirty", "513"], "--dirty 513"),
        (&["--interval", "1ms"], "--interval"),
        (&["--reads", "0"], "--reads"),
        (&["--json", "no/such/file.json"], "no directory"),
    ];
    assert_refused(scratch.path(), &["lab", "checkpoint"], &cases);
    assert_eq!(entries(scratch.path()), [""; 0]);
}

#[test]
fn one_signal_and_two_end_the_run_with_130_and_leave_nothing() {
    let scratch = scratch();
    // Into writing the file, into plain cells, and into a spread checkpoint of a minute.
    let quick = ["--size", "64MiB"];
    let spread = [
        "--size",
        "8MiB",
        "--patterns",
        "uniform",
        "--elevators",
        "balanced",
        "--combine",
        "on",
        "--cache",
        "buffered",
        "--backends",
        "sync",
        "--rounds",
        "1",
        "--interval",
        "1h",
        "--all-cells",
    ];
    let cases: [(&[&str], u64, u32); 4] =
        [(&quick, 300, 1), (&quick, 1500, 1), (&spread, 3000, 1), (&spread, 3000, 2)];
    for (args, pause_ms, signals) in cases {
        let child = command::started(scratch.path(), &[&["lab", "checkpoint"], args].concat());
        wait_until_it_listens(&child);
        std::thread::sleep(Duration::from_millis(pause_ms));
        let started = Instant::now();
        for _ in 0..signals {
            interrupt(&child);
            std::thread::sleep(Duration::from_millis(2));
        }
        assert_ends_with(130, child, &format!("{args:?}"));
        assert!(started.elapsed() < Duration::from_secs(300), "{args:?}: {:?}", started.elapsed());
        assert_eq!(entries(scratch.path()), [""; 0], "{args:?}");
    }
}

#[test]
fn help_teaches() {
    let output = output(scratch().path(), &["--help"]);
    let help = String::from_utf8_lossy(&output.stdout);
    for word in ["--dir2", "--elevators", "Example:", "balanced", "one page after the other"] {
        assert!(help.contains(word), "{word}: {help}");
    }
}

/// btrfs with checksums has no direct writes in some kernels.
#[test]
fn direct_writes_through_the_page_cache_are_not_measured() {
    let test = "direct_writes_through_the_page_cache";
    if let Some(reason) = lacking(Filesystem::Btrfs) {
        return skipped(test, &reason);
    }
    let scratch = scratch();
    let disk = scratch.path().join("disk");
    File::create(&disk).unwrap().set_len(320 << 20).unwrap();
    let mounted = mount_over(&disk, Filesystem::Btrfs);
    if Volume::system().through_cache(mounted.directory()).unwrap().writes {
        let line = ["--dir", mounted.directory().to_str().unwrap(), "--size", "8MiB"];
        let line = [&line[..], &["--cache", "direct"]].concat();
        assert_refused(
            scratch.path(),
            &["lab", "checkpoint"],
            &[(&line, "through its page cache")],
        );
    } else {
        skipped(test, "this kernel writes past it");
    }
    mounted.remove().unwrap();
}
