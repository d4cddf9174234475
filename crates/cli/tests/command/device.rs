//! Measurements of the disk itself: its summary, prefetching, and commits; and the contents of their reports.

use std::path::Path;

use serde_json::Value;

use crate::command::{output, scratch};
use crate::skip::{is_quiet, no_fuse, skipped};

/// The report of `lab ARGS`, run in `directory`.
#[track_caller]
fn report(directory: &Path, args: &str) -> Value {
    let args: Vec<&str> = ["lab"].into_iter().chain(args.split_whitespace()).collect();
    let output = output(directory, &[&args[..], &["--json", "out.json"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(&std::fs::read_to_string(directory.join("out.json")).unwrap()).unwrap()
}

#[track_caller]
fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or_else(|| panic!("{key} of {value}"))
}

/// Every record has its rounds, and the median of every metric that all of them have.
#[track_caller]
fn assert_rounds(report: &Value, rate: &str, rounds: usize) {
    for record in report["records"].as_array().unwrap() {
        let measured = record["rounds"].as_array().unwrap();
        if record["metrics"][rate].is_null() {
            let why = record["remarks"][0].as_str().unwrap();
            assert!(why.starts_with("not measured"), "{record}");
            continue;
        }
        assert!(measured.len() >= rounds, "{record}");
        let mut rates: Vec<f64> = measured.iter().map(|round| number(round, rate)).collect();
        rates.sort_by(f64::total_cmp);
        let median = number(&record["metrics"], rate);
        assert!(rates[0] <= median && median <= rates[rates.len() - 1], "{record}");
    }
}

#[track_caller]
fn assert_advice(report: &Value, settings: &[&str]) {
    for advice in report["advice"].as_array().unwrap() {
        assert!(settings.contains(&advice["setting"].as_str().unwrap()), "{advice}");
        assert!(advice["current"] != advice["advised"], "{advice}");
        assert!(number(advice, "gain_low") > 1.05, "{advice}");
        for key in ["experiment", "applies_to", "advised", "confidence", "evidence"] {
            assert!(!advice[key].as_str().unwrap().is_empty(), "{key} of {advice}");
        }
    }
}

#[test]
fn a_quick_depth_has_rounds_of_120_ms_or_the_whole_file() {
    let scratch = scratch();
    let line = "depth --quick --size 16MiB --backends sync,threads --depths 1,16,64 --rounds 3";
    let report = report(scratch.path(), line);
    assert_rounds(&report, "blocks_per_s", 3);
    let advised =
        ["effective_io_concurrency", "maintenance_io_concurrency", "io_workers", "backend"];
    assert_advice(&report, &advised);
    let records = report["records"].as_array().unwrap();
    // Less the blocks that warm up the threads.
    let whole = 16.0 * 128.0 - 256.0;
    for round in records.iter().flat_map(|record| record["rounds"].as_array().unwrap()) {
        let enough = number(round, "seconds") >= 0.12 || number(round, "blocks") >= whole;
        assert!(enough, "{round}");
    }
    let workers = records.iter().filter_map(|record| record["cell"]["workers"].as_u64());
    let processors = report["host"]["cpus"].as_u64().unwrap();
    let counts: Vec<u64> = workers.collect();
    assert!(counts.contains(&3), "PostgreSQL's default: {counts:?}");
    assert!(counts.iter().all(|&count| count <= 4 * processors.max(1)), "{counts:?}");
}

#[test]
fn a_quick_sync_reports_what_a_commit_costs_by_every_method_there_is() {
    let scratch = scratch();
    let report = report(scratch.path(), "sync --quick --size 32MiB");
    assert_eq!(report["command"].as_str().unwrap().matches(" lab sync --quick ").count(), 1);
    assert_rounds(&report, "syncs_per_s", 3);
    assert_advice(&report, &["wal_sync_method"]);
    let records = report["records"].as_array().unwrap();
    let commit = |method: &str| {
        let is = |record: &&Value| {
            let cell = &record["cell"];
            cell["bytes"] == 8192 && cell["place"] == "overwritten" && cell["method"] == method
        };
        records.iter().find(is).unwrap_or_else(|| panic!("{method}"))
    };
    for method in ["fdatasync", "fsync", "o_dsync", "o_sync", "o_direct_o_dsync"] {
        let metrics = &commit(method)["metrics"];
        if let Some(rate) = metrics["syncs_per_s"].as_f64() {
            assert!(rate > 0.0 && number(metrics, "latency_us_p50") > 0.0, "{metrics}");
        }
    }
    assert!(number(&commit("fdatasync")["metrics"], "syncs") > 0.0);
    // Before that the disk may be faster.
    let conclusions = report["conclusions"].as_array().unwrap();
    let is_priced = |it: &Value| it["sentence"].as_str().is_some_and(|it| it.contains("ommit"));
    let is_free =
        |it: &Value| it["sentence"].as_str().is_some_and(|it| it.contains("costs nothing"));
    assert!(conclusions.iter().any(|it| is_priced(it) || is_free(it)), "{conclusions:?}");
}

#[test]
fn the_disk_itself_is_measured_first_and_what_could_not_be_is_said() {
    let scratch = scratch();
    let line =
        "depth --size 16MiB --blocks 16 --depths 0 --rounds 1 --backends sync --sustained 500ms";
    let report = report(scratch.path(), line);
    assert!(report["command"].as_str().unwrap().contains(" --sustained 500ms "));
    let device = &report["device"];
    let remarks = device["remarks"].as_array().unwrap();
    let figures = [
        "random_read_depth_1",
        "random_read_saturated",
        "sequential_read",
        "sequential_write",
        "sync",
    ];
    for key in figures {
        let figure = &device[key];
        if figure.is_null() {
            assert!(!remarks.is_empty(), "{key} of {device}");
            continue;
        }
        assert!(number(figure, "low") <= number(figure, "per_s"), "{figure}");
        assert!(number(figure, "per_s") <= number(figure, "high"), "{figure}");
        assert!(number(figure, "rounds") >= 3.0, "{figure}");
    }
}

#[test]
fn a_volumes_credits_are_spent_before_its_rate_is_reported() {
    const TEST: &str = "a_volumes_credits_are_spent_before_its_rate_is_reported";
    if let Some(reason) = no_fuse() {
        return skipped(TEST, &reason);
    }
    if !is_quiet() {
        // While a busy machine does not run the emulation, the volume earns credits.
        return skipped(
            TEST,
            "it compares rates, for which the machine must be idle (FOREBAY_TIMING=1)",
        );
    }
    let scratch = scratch();
    let volume =
        "about = \"a small volume\"\n[cloud]\nlike = \"cloud-burst\"\nburst_credits = 20000\n";
    std::fs::write(scratch.path().join("volume.toml"), volume).unwrap();
    let line = "depth --emulate volume.toml --size 16MiB --blocks 16 --depths 0 --rounds 1 --backends sync";
    let report = report(scratch.path(), line);
    let device = &report["device"];
    let stated = number(&device["random_read_saturated"], "per_s");
    let burst = &device["burst"];
    let [start, end] = ["start_per_s", "end_per_s"].map(|moment| number(burst, moment));
    let expected = 270.0..=330.0;
    assert!(expected.contains(&stated) && expected.contains(&end) && start > 1500.0, "{device}");
    let conclusions = report["conclusions"].as_array().unwrap();
    assert!(
        conclusions.iter().any(|one| one["sentence"].as_str().unwrap().contains("faster at first"))
    );
}
