//! Two reports side by side: what changed, what did not, and what is undecided.

use super::*;
use forebay_measure::report::sample;

/// The sample's report, with the rates of every record in `is_changed` multiplied by this factor.
fn changed(times: f64, is_changed: impl Fn(&Record) -> bool) -> Report {
    let mut report = sample::report();
    for record in report.records.iter_mut().filter(|record| is_changed(record)) {
        for round in &mut record.rounds {
            for (key, value) in round.iter_mut() {
                let factor = match key.as_str() {
                    "blocks_per_s" | "bytes_per_s" => times,
                    "seconds" | "wait_us_p50" | "wait_us_p99" => 1.0 / times,
                    _ => 1.0,
                };
                *value = value.as_f64().map_or(Value::Null, |value| Value::from(value * factor));
            }
        }
    }
    report
}

fn comparison(b: &Report) -> Comparison {
    compare(("a.json", &sample::report()), ("b.json", b))
}

fn count(comparison: &Comparison, change: Change) -> usize {
    comparison.figures.iter().filter(|figure| figure.change == change).count()
}

#[test]
fn the_same_report_has_not_changed() {
    let same = comparison(&sample::report());
    assert!(same.figures.len() > 100, "{}", same.figures.len());
    assert_eq!(count(&same, Change::Better) + count(&same, Change::Worse), 0, "[CMP-1]");
    assert!(same.differences.is_empty() && same.advice.is_empty());
    // One was not cold and one was not measured; the experiment tide has one round.
    assert_eq!((same.uncompared, count(&same, Change::Undecided)), (2, 1));
    let look = Look { width: 100, colour: false, ascii: false };
    let text = shown(&same, &sample::report(), &sample::report(), look);
    assert!(
        text.contains("Host, kernel and device are the same.")
            && text.contains("Of 160 figures 0 changed"),
        "{text}"
    );
    assert!(
        text.contains("Both advise the same settings.") && !text.contains("By chance"),
        "{text}"
    );
}

#[test]
fn what_really_changed_is_found_and_in_its_direction() {
    let is_uring = |record: &Record| record.cell_text("backend") == "uring";
    for (times, change) in [(1.3, Change::Better), (0.7, Change::Worse)] {
        let found = comparison(&changed(times, is_uring));
        let changes: Vec<&Figure> = found
            .figures
            .iter()
            .filter(|figure| matches!(figure.change, Change::Better | Change::Worse))
            .collect();
        // Blocks per second and two waits, of 11 depths through and past the page cache [CMP-3].
        assert_eq!(changes.len(), 3 * 22);
        assert!(changes.iter().all(|it| it.change == change && it.cell["backend"] == "uring"));
        let rate = changes.iter().find(|figure| figure.metric == "blocks_per_s").unwrap();
        let Estimate { value, low, high, .. } = rate.ratio;
        assert!((value - times).abs() < 1e-9 && low < times && high > times);
        assert_eq!(rate.ratio.rounds, 3);
    }
}

#[test]
fn few_rounds_and_warm_caches_decide_nothing() {
    let mut few = changed(2.0, |_| true);
    for record in &mut few.records {
        record.rounds.truncate(2);
    }
    let found = comparison(&few);
    assert_eq!(count(&found, Change::Undecided), found.figures.len(), "[CMP-1]");
    let mut warm = changed(2.0, |_| true);
    for record in &mut warm.records {
        record.remarks.push("not cold: memory".to_owned());
    }
    let cold = sample::report();
    for (a, b) in [(&cold, &warm), (&warm, &cold)] {
        let found = compare(("a", a), ("b", b));
        assert!(found.figures.is_empty(), "[CMP-2]");
        assert_eq!(found.uncompared, sample::records().len());
    }
}

#[test]
fn records_pair_by_their_settings_in_any_order() {
    let mut other = sample::report();
    for record in &mut other.records {
        record.cell = record.cell.clone().into_iter().rev().collect();
    }
    other.records.reverse();
    assert_eq!(comparison(&other).uncompared, 2);
    other.records[5].cell.insert("depth".into(), 7.into());
    assert_eq!(comparison(&other).uncompared, 4, "one of each is alone");
}

#[test]
fn one_of_the_metrics_that_say_the_same_counts() {
    let all = |names: &[&str]| -> Map<String, Value> {
        names.iter().map(|&name| (name.to_owned(), Value::Null)).collect()
    };
    let rates = all(&["blocks_per_s", "bytes_per_s", "seconds", "wait_us_p99", "blocks"]);
    let counted = rates.keys().map(|metric| more_is_better(metric, &rates)).collect::<Vec<_>>();
    assert_eq!(counted, [Some(true), None, None, Some(false), None], "[CMP-3]");
    assert_eq!(more_is_better("seconds", &all(&["seconds", "slip"])), Some(false));
    assert_eq!(more_is_better("bytes_per_s", &all(&["bytes_per_s"])), Some(true));
}

#[test]
fn another_machine_and_other_advice_are_reported() {
    let mut other = changed(1.5, |record| record.cell_text("backend") == "uring");
    other.host.kernel = "Linux 6.1.0".to_owned();
    other.storage.device.as_mut().unwrap().readahead_bytes = Some(4 << 20);
    other.advice.remove(0);
    other.advice[0].advised = "128".to_owned();
    let found = comparison(&other);
    let names: Vec<&str> = found.differences.iter().map(|difference| difference.what).collect();
    assert_eq!(names, ["kernel", "readahead"]);
    for width in [30, 80] {
        let look = Look { width, colour: false, ascii: false };
        let text = shown(&found, &sample::report(), &other, look);
        assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
    }
    let text =
        shown(&found, &sample::report(), &other, Look { width: 80, colour: false, ascii: true });
    assert!(text.is_ascii());
    let order = [
        "Not the same kernel: Linux 6.18.44 in A, Linux 6.1.0 in B.",
        "random reads, one at a time",
        "depth: blocks_per_s",
        "uring, direct, depth 64",
        "Of 160 figures 66 changed (66 better",
        "The 30 most changed",
        "PostgreSQL 14-17\neffective_io_concurrency  64  no advice\n",
    ];
    let places: Vec<usize> = order
        .iter()
        .map(|part| text.find(part).unwrap_or_else(|| panic!("{part} in\n{text}")))
        .collect();
    assert!(places.is_sorted(), "{text}");
}

#[test]
fn another_schema_is_refused_with_a_sentence() {
    let scratch = tempfile::tempdir().unwrap();
    let refused = |text: &str| {
        let path = scratch.path().join("report.json");
        std::fs::write(&path, text).unwrap();
        let error = read(&path).unwrap_err();
        assert!(error.is::<forebay_measure::BadInput>());
        error.to_string()
    };
    assert!(
        refused(r#"{"schema": "forebay-lab/1"}"#)
            .contains("has the schema forebay-lab/1, and this version compares forebay-lab/2")
    );
    assert!(
        refused(r#"{"schema": "forebay-lab/2"}"#).contains("but not its fields: missing field")
    );
    assert!(refused("{}").contains("has no schema"));
    assert!(refused("words").contains("is no JSON"));
    assert!(read(&scratch.path().join("none")).unwrap_err().is::<forebay_measure::BadInput>());
    let path = scratch.path().join("report.json");
    std::fs::write(&path, serde_json::to_string(&sample::report()).unwrap()).unwrap();
    assert_eq!(read(&path).unwrap().records.len(), sample::records().len());
}
