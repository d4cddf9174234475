//! `strategies` as its users meet it: the cells it promises, what it refuses, and what it leaves behind.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Output;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::command::{
    self, assert_ends_with, assert_refused, assert_repeats, entries, interrupt, scratch, wait_until,
};
use crate::skip::is_quiet;

/// The output of `forebay lab ARGS`, run in `directory`.
fn output(directory: &Path, args: &[&str]) -> Output {
    command::output(directory, &[&["lab"], args].concat())
}

/// The report of a short run of `strategies` that succeeds and leaves only its records.
fn report(args: &[&str]) -> Value {
    let scratch = scratch();
    let mut line = vec!["strategies", "--size", "8MiB", "--cell-time", "5ms", "--seed", "7"];
    line.extend(["--json", "out.json"]);
    line.extend(args);
    if !args.contains(&"--rounds") {
        line.extend(["--rounds", "1"]);
    }
    if !args.contains(&"--blocks") {
        line.extend(["--blocks", "128"]);
    }
    let output = output(scratch.path(), &line);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(entries(scratch.path()), ["out.json"]);
    let text = std::fs::read_to_string(scratch.path().join("out.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// The cells of `report`, except for the device's readahead, which must be in each of them.
fn cells(report: &Value) -> Vec<Value> {
    let mut cells = Vec::new();
    for record in report["records"].as_array().unwrap() {
        assert_eq!(record["experiment"], "strategies");
        let mut cell = record["cell"].as_object().unwrap().clone();
        let readahead = cell.remove("device_readahead_bytes").unwrap();
        assert!(readahead.is_u64() || readahead.is_null(), "{readahead}");
        cells.push(Value::Object(cell));
    }
    cells
}

/// The metrics of every measured record, or null instead.
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
        assert_eq!(record["rounds"].as_array().unwrap().len(), 1);
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
fn the_kernel_its_advice_and_streams_read_document_004s_patterns() {
    let asked = "plain,random,willneed-1,willneed-32,prefetch,adaptive";
    let report = report(&[
        "--patterns",
        "shuffled,neighbours,two-streams",
        "--states",
        "cold,pool",
        "--strategies",
        asked,
    ]);
    let mut expected = BTreeSet::new();
    for pattern in ["shuffled", "neighbours", "two-streams"] {
        for strategy in asked.split(',') {
            for (state, cache) in
                [("cold", "buffered"), ("cold", "direct"), ("pool", "buffered"), ("pool", "direct")]
            {
                let cell = json!({
                    "pattern": pattern, "strategy": strategy, "cache_state": state, "cache": cache,
                });
                let is_stream = strategy == "prefetch" || strategy == "adaptive";
                if is_stream || (state, cache) == ("cold", "buffered") {
                    expected.insert(cell.to_string());
                }
            }
        }
    }
    let cells = cells(&report);
    let found: BTreeSet<String> = cells.iter().map(Value::to_string).collect();
    assert_eq!(found, expected);
    check_metrics(&report);
}

#[test]
fn os_against_itself_and_adaptive_against_the_best_other_have_a_verdict_in_each_row() {
    let report = report(&[
        "--quick",
        "--patterns",
        "sequential,bitmap-10",
        "--noise-check",
        "--rounds",
        "7",
        "--inject-slowdown",
        "adaptive=90%",
    ]);
    let rows = ["sequential cold buffered", "bitmap-10 cold buffered"];
    let verdicts = report["verdicts"].as_array().unwrap();
    assert_eq!(verdicts.len(), 4);
    for row in rows {
        let of = |variant: &str| {
            let found = verdicts.iter().find(|it| it["row"] == row && it["entrant"] == variant);
            found.unwrap_or_else(|| panic!("{row} {variant}: {verdicts:?}"))
        };
        let (adaptive, again) = (of("adaptive"), of("os-again"));
        assert_eq!((&again["rival"], &again["experiment"]), (&json!("os"), &json!("strategies")));
        assert!(!is_quiet() || adaptive["ratio"].as_f64().unwrap() < 0.5, "{adaptive}");
        let ends = ["low", "ratio", "high"].map(|end| again[end].as_f64().unwrap());
        assert!(ends.is_sorted(), "{again}");
    }
    let sentences = report["conclusions"].to_string();
    assert!(sentences.contains("Noise floor ") && sentences.contains(" of 2 rows"), "{sentences}");
    for record in report["records"].as_array().unwrap() {
        assert_eq!(record["rounds"].as_array().unwrap().len(), 7);
    }
}

#[test]
fn strategies_measures_the_requested_matrix() {
    let patterns = ["sequential", "interleaved-8", "index-0.5", "mixed", "limit-10"];
    let listed = patterns.join(",");
    let report = report(&["--patterns", &listed]);
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
    let cells = cells(&report);
    let found: BTreeSet<String> = cells.iter().map(Value::to_string).collect();
    assert_eq!(found, expected);
    assert_eq!(cells.len(), expected.len(), "each once");
    check_metrics(&report);
}

#[test]
fn the_command_of_a_report_repeats_the_run_as_it_stands() {
    let report = report(&[
        "--blocks",
        "64",
        "--patterns",
        "backward,shuffled-2x8",
        "--strategies",
        "os,plain,adaptive",
        "--states",
        "cold,pool",
        "--noise-check",
        "--inject-slowdown",
        "os=15%",
    ]);
    let command = report["command"].as_str().unwrap();
    for words in [
        " --patterns backward,shuffled-2x8 ",
        " --strategies os,plain,adaptive ",
        " --cell-time 5ms ",
        " --rounds 1",
        " --noise-check",
        " --inject-slowdown 'os=15%' ",
    ] {
        assert!(command.contains(words), "{words} in {command}");
    }
    assert_repeats(scratch().path(), &report);
}

#[test]
fn bad_input_gets_a_plain_message_with_exit_code_2_and_leaves_nothing() {
    let scratch = scratch();
    let cases: [(&[&str], &str); 14] = [
        (&["--dir", "nowhere"], "nowhere"),
        (&["--size", "8KiB"], "--size"),
        (&["--patterns", "zigzag"], "index-0.9"),
        (&["--strategies", "quantum"], "willneed-N"),
        (&["--strategies", "plain", "--cache", "direct"], "--strategies"),
        (&["--strategies", "async", "--noise-check"], "--noise-check"),
        (&["--states", "tepid"], "page-cache"),
        (&["--states", "page-cache", "--cache", "direct"], "--states"),
        (&["--blocks", "9"], "--blocks"),
        (&["--rounds", "3", "--time", "1m"], "--time"),
        (&["--cell-time", "0s"], "--cell-time"),
        (&["--inject-slowdown", "adaptive=99%"], "90%"),
        (&["--device-readahead", "1000"], "KiB"),
        (&["--json", "no/such/file.json"], "no directory"),
    ];
    assert_refused(scratch.path(), &["lab", "strategies"], &cases);
    assert_eq!(entries(scratch.path()), [""; 0]);
}

#[cfg(target_os = "linux")]
#[test]
fn a_readahead_that_cannot_be_set_is_reported_before_anything_is_measured() {
    if !Path::new("/dev/shm").is_dir() {
        return;
    }
    let started = Instant::now();
    // A filesystem without a device; for an ordinary user any other would suffice.
    let args = ["strategies", "--dir", "/dev/shm", "--size", "1MiB", "--device-readahead", "0"];
    let output = output(scratch().path(), &args);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("--device-readahead"), "{stderr}");
    assert!(started.elapsed() < Duration::from_secs(120), "{:?}", started.elapsed());
}

#[test]
fn one_signal_and_two_end_the_run_with_130_and_leave_nothing() {
    let scratch = scratch();
    for signals in [1, 2] {
        let child = command::started(scratch.path(), &["lab", "strategies", "--size", "32MiB"]);
        wait_until("a working file", || !entries(scratch.path()).is_empty());
        // In progress: writing the file, or measuring already.
        std::thread::sleep(Duration::from_millis(500));
        for _ in 0..signals {
            interrupt(&child);
            std::thread::sleep(Duration::from_millis(2));
        }
        assert_ends_with(130, child, "strategies");
        assert_eq!(entries(scratch.path()), [""; 0], "after {signals} signals");
    }
}

#[test]
fn help_teaches_and_hides_what_is_only_for_proofs() {
    let output = output(scratch().path(), &["strategies", "--help"]);
    let help = String::from_utf8_lossy(&output.stdout);
    for word in [
        "--patterns",
        "Example:",
        "quarter",
        "--device-readahead",
        "FADV_WILLNEED",
        "--noise-check",
    ] {
        assert!(help.contains(word), "{word}: {help}");
    }
    assert!(!help.contains("slowdown"), "{help}");
}
