//! `forebay compare`, as its users meet it.

use serde_json::Value;

use crate::command::{assert_refused, output, scratch};
use forebay_measure::report::sample;

#[test]
fn two_reports_are_compared_and_the_comparison_is_written() {
    let scratch = scratch();
    let mut report = sample::report();
    let save = |name: &str, report: &forebay_measure::report::Report| {
        std::fs::write(scratch.path().join(name), serde_json::to_string(report).unwrap()).unwrap();
    };
    save("a.json", &report);
    for record in report
        .records
        .iter_mut()
        .filter(|record| record.cell.get("backend").is_some_and(|it| it == "uring"))
    {
        for round in &mut record.rounds {
            let rate = round["blocks_per_s"].as_f64().unwrap();
            round.insert("blocks_per_s".to_owned(), (rate * 0.5).into());
        }
    }
    report.host.kernel = "Linux 7.0".to_owned();
    save("b.json", &report);
    let compared = output(scratch.path(), &["compare", "a.json", "b.json", "--json", "out.json"]);
    let stderr = String::from_utf8_lossy(&compared.stdout);
    assert!(compared.status.success(), "{}", String::from_utf8_lossy(&compared.stderr));
    assert!(
        stderr.contains("Not the same kernel: Linux 6.18.44 in A, Linux 7.0 in B."),
        "{stderr}"
    );
    assert!(stderr.contains("22 changed (0 better, 22 worse)"), "{stderr}");
    let text = std::fs::read_to_string(scratch.path().join("out.json")).unwrap();
    let written: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(written["schema"], "forebay-compare/1");
    let figures = written["figures"].as_array().unwrap();
    let worse: Vec<&Value> = figures.iter().filter(|figure| figure["change"] == "worse").collect();
    assert_eq!(worse.len(), 22);
    assert!(
        worse.iter().all(|it| it["cell"]["backend"] == "uring" && it["metric"] == "blocks_per_s")
    );
}

#[test]
fn what_is_no_report_of_this_schema_is_refused() {
    let scratch = scratch();
    let report = serde_json::to_string(&sample::report()).unwrap();
    std::fs::write(scratch.path().join("a.json"), &report).unwrap();
    for (name, schema) in [("older.json", "forebay-lab/1"), ("newer.json", "forebay-lab/10")] {
        let other = report.replace("forebay-lab/2", schema);
        std::fs::write(scratch.path().join(name), other).unwrap();
    }
    std::fs::hard_link(scratch.path().join("a.json"), scratch.path().join("again.json")).unwrap();
    std::fs::write(scratch.path().join("words.json"), "words").unwrap();
    assert_refused(
        scratch.path(),
        &["compare"],
        &[
            (&["a.json", "older.json"], "compares forebay-lab/2; measure it again"),
            (&["a.json", "newer.json"], "forebay-lab/10, of a newer forebay"),
            (&["a.json", "a.json"], "the same file"),
            (&["a.json", "again.json"], "the same file"),
            (&["a.json", "/dev/zero"], "/dev/zero has more than 256.0 MiB"),
            (&["a.json", "."], "cannot read .: Is a directory"),
            (&["words.json", "a.json"], "words.json is no JSON"),
            (&["a.json", "none.json"], "cannot read none.json"),
            (&["a.json", "older.json", "--json", "/sys/x.json"], "/sys/x.json"),
            (&["a.json"], "B.json"),
        ],
    );
}
