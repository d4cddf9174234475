//! `interplay` and `strategies` as their users meet them: the cells they promise, what they refuse, and
//! what they leave behind.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Output;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::command::{
    self, assert_ends_with, assert_refused, assert_repeats, entries, interrupt, scratch, wait_until,
};

/// What comes of `forebay lab ARGS`, run in `directory`.
fn output(directory: &Path, args: &[&str]) -> Output {
    command::output(directory, &[&["lab"], args].concat())
}

/// The report of a run that succeeds and leaves its records alone.
fn report(args: &[&str]) -> Value {
    let scratch = scratch();
    let mut line = args.to_vec();
    line.extend(["--size", "8MiB", "--rounds", "1", "--seed", "7", "--json", "out.json"]);
    let output = output(scratch.path(), &line);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(entries(scratch.path()), ["out.json"]);
    let text = std::fs::read_to_string(scratch.path().join("out.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// The cells of `report`, the device's readahead aside, which has to be in each of them.
fn cells(report: &Value, experiment: &str) -> Vec<Value> {
    let mut cells = Vec::new();
    for record in report["records"].as_array().unwrap() {
        assert_eq!(record["experiment"], experiment);
        let mut cell = record["cell"].as_object().unwrap().clone();
        let readahead = cell.remove("device_readahead_bytes").unwrap();
        assert!(readahead.is_u64() || readahead.is_null(), "{readahead}");
        cells.push(Value::Object(cell));
    }
    cells
}

/// What every measured record has, or null in place of it.
fn check_metrics(report: &Value) {
    let names = ["device_requests", "device_bytes", "over_read", "wait_us_p50", "wait_us_p99"];
    for record in report["records"].as_array().unwrap() {
        let metrics = &record["metrics"];
        if metrics["blocks_per_s"].is_null() {
            let why = record["remarks"][0].as_str().unwrap();
            assert!(why.starts_with("not measured: "), "{why}");
            continue;
        }
        assert!(metrics["blocks_per_s"].as_f64().unwrap() > 0.0);
        assert_eq!(metrics["rounds"], 1);
        assert!(metrics["cpu_us_per_block"].is_number());
        for name in names {
            assert!(metrics.get(name).is_some(), "{name}");
        }
        let ratio = &metrics["ratio_to_best"];
        let in_range = ratio.as_f64().is_some_and(|ratio| ratio > 0.0 && ratio <= 1.0);
        assert!(in_range || ratio.is_null(), "{ratio}");
    }
}

#[test]
fn interplay_measures_the_kernel_its_advice_and_streams_in_three_patterns() {
    let report = report(&["interplay", "--range-blocks", "32", "--distances", "1,32"]);
    let mut expected = BTreeSet::new();
    for pattern in ["shuffled", "neighbours", "two-streams"] {
        for strategy in ["os", "random", "willneed-1", "willneed-32"] {
            let cell = json!({ "pattern": pattern, "strategy": strategy, "cache": "buffered" });
            expected.insert(cell.to_string());
        }
        for strategy in ["hint", "max", "prefetch", "async", "adaptive"] {
            for cache in ["buffered", "direct"] {
                let cell = json!({ "pattern": pattern, "strategy": strategy, "cache": cache });
                expected.insert(cell.to_string());
            }
        }
    }
    let cells = cells(&report, "interplay");
    let found: BTreeSet<String> = cells.iter().map(Value::to_string).collect();
    assert_eq!(found, expected);
    assert_eq!(cells.len(), expected.len(), "each once");
    check_metrics(&report);
    let command = report["command"].as_str().unwrap();
    assert!(command.contains(" --range-blocks 32 --window 24 --distances 1,32 "), "{command}");
}

#[test]
fn strategies_measures_the_matrix_that_is_asked_for() {
    let patterns = ["sequential", "interleaved-8", "index-0.5", "mixed", "limit-10"];
    let listed = patterns.join(",");
    let report = report(&["strategies", "--blocks", "128", "--patterns", &listed]);
    let mut expected = BTreeSet::new();
    for pattern in patterns {
        for strategy in ["os", "hint", "max", "prefetch", "async", "adaptive"] {
            for (state, cache) in [
                ("cold", "buffered"),
                ("page-cache", "buffered"),
                ("pool", "buffered"),
                ("quarter", "buffered"),
                ("cold", "direct"),
                ("pool", "direct"),
                ("quarter", "direct"),
            ] {
                let cell = json!({
                    "pattern": pattern, "strategy": strategy, "cache_state": state, "cache": cache,
                });
                expected.insert(cell.to_string());
            }
        }
    }
    let cells = cells(&report, "strategies");
    let found: BTreeSet<String> = cells.iter().map(Value::to_string).collect();
    assert_eq!(found, expected);
    assert_eq!(cells.len(), expected.len(), "each once");
    check_metrics(&report);
}

#[test]
fn the_command_of_a_report_repeats_the_run_as_it_stands() {
    for args in [
        ["interplay", "--range-blocks", "32", "--strategies", "os,adaptive"],
        ["strategies", "--blocks", "64", "--patterns", "backward,bitmap-10"],
    ] {
        assert_repeats(scratch().path(), &report(&args));
    }
}

#[test]
fn bad_input_is_told_plainly_with_exit_code_2_and_leaves_nothing() {
    let scratch = scratch();
    let cases: [(&[&str], &str); 14] = [
        (&["interplay", "--dir", "nowhere"], "nowhere"),
        (&["interplay", "--size", "8KiB"], "--size"),
        (&["interplay", "--size", "1MiB", "--range-blocks", "999"], "--range-blocks 999"),
        (&["interplay", "--range-blocks", "1"], "at least 64"),
        (&["interplay", "--strategies", "quantum"], "willneed"),
        (&["interplay", "--strategies", "os", "--cache", "direct"], "--strategies"),
        (&["interplay", "--distances", "0"], "--distances"),
        (&["strategies", "--patterns", "zigzag"], "index-0.9"),
        (&["strategies", "--strategies", "quantum"], "prefetch"),
        (&["strategies", "--states", "tepid"], "page-cache"),
        (&["strategies", "--states", "page-cache", "--cache", "direct"], "--states"),
        (&["strategies", "--blocks", "9"], "--blocks 9"),
        (&["strategies", "--device-readahead", "1000"], "KiB"),
        (&["strategies", "--json", "no/such/file.json"], "no directory"),
    ];
    assert_refused(scratch.path(), &["lab"], &cases);
    assert_eq!(entries(scratch.path()), [""; 0]);
}

#[cfg(target_os = "linux")]
#[test]
fn a_readahead_that_cannot_be_set_is_told_before_anything_is_measured() {
    if !Path::new("/dev/shm").is_dir() {
        return;
    }
    let started = Instant::now();
    // A filesystem without a device; as an ordinary user any other would do.
    let args = ["strategies", "--dir", "/dev/shm", "--size", "1MiB", "--device-readahead", "0"];
    let output = output(scratch().path(), &args);
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("--device-readahead"), "{told}");
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
}

#[test]
fn one_signal_and_two_end_the_run_with_130_and_leave_nothing() {
    let scratch = scratch();
    for (experiment, signals) in [("strategies", 1), ("interplay", 1), ("strategies", 2)] {
        let child = command::started(scratch.path(), &["lab", experiment, "--size", "32MiB"]);
        wait_until("a working file", || !entries(scratch.path()).is_empty());
        // On its way: writing the file, or measuring already.
        std::thread::sleep(Duration::from_millis(500));
        for _ in 0..signals {
            interrupt(&child);
            std::thread::sleep(Duration::from_millis(2));
        }
        assert_ends_with(130, child, experiment);
        assert_eq!(entries(scratch.path()), [""; 0], "{experiment} after {signals} signals");
    }
}

#[test]
fn help_teaches() {
    let scratch = scratch();
    for (experiment, words) in [
        ("interplay", ["--distances", "Example:", "FADV_WILLNEED", "--device-readahead"]),
        ("strategies", ["--patterns", "Example:", "quarter", "--device-readahead"]),
    ] {
        let output = output(scratch.path(), &[experiment, "--help"]);
        let help = String::from_utf8_lossy(&output.stdout);
        for word in words {
            assert!(help.contains(word), "{word}: {help}");
        }
    }
}
