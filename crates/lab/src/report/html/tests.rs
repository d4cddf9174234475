//! The page as text: nothing escapes, nothing is lost, nothing points outside.

use serde_json::json;

use super::super::sample::{absurd_checkpoints, beside, checkpoint, object, record, report};
use super::*;
use crate::report::Conclusion;

const HOSTILE: &str = "</script><script>alert(1)</script><!--\"'><img src=x onerror=alert(1)>";

/// What stands between `start` and the next `end`.
fn between<'p>(page: &'p str, start: &str, end: &str) -> &'p str {
    let rest = page.split_once(start).unwrap().1;
    rest.split_once(end).unwrap().0
}

#[test]
fn hostile_text_stays_text_wherever_it_stands() {
    let mut hostile = record("uring", "direct", 0, Some(1.0), &[HOSTILE]);
    hostile.cell.insert("pattern".into(), HOSTILE.into());
    let mut other = record(HOSTILE, HOSTILE, 0, Some(1.0), &[HOSTILE]);
    other.experiment = HOSTILE.to_owned();
    other.metrics.insert(HOSTILE.into(), HOSTILE.into());
    let written = checkpoint((HOSTILE, HOSTILE), (HOSTILE, true, HOSTILE), 1.0, 0.5);
    let mut read = beside(HOSTILE, true, 2.0);
    read.cell.insert("elevator".into(), HOSTILE.into());
    let mut report = report(vec![hostile, other, written, read]);
    for text in [
        &mut report.schema,
        &mut report.forebay,
        &mut report.command,
        &mut report.started,
        &mut report.host.name,
        &mut report.storage.directory,
        &mut report.storage.device_remark,
        &mut report.backends[0].backend,
    ] {
        *text = HOSTILE.to_owned();
    }
    report.backends[0].note = HOSTILE.to_owned();
    let [experiment, sentence, setting, value] = [(); 4].map(|()| HOSTILE.to_owned());
    report.conclusions.push(Conclusion { experiment, sentence, setting, value });
    let page = render(&report).unwrap();
    assert!(!page.contains("<script>alert"), "[HTM-1]");
    assert!(!page.contains("<img"), "[HTM-1]");
    assert!(!page.contains("<!--"), "[HTM-1]");
    // Two data elements, uPlot and our own script; no more than without hostile text.
    assert_eq!(page.matches("<script").count(), 4, "[HTM-1]");
    assert_eq!(page.matches("</script").count(), 4, "[HTM-1]");
}

#[test]
fn the_embedded_json_is_the_report() {
    let mut report = report(vec![record("aio", "direct", 4, Some(12.5), &[HOSTILE])]);
    report.host.name = HOSTILE.to_owned();
    let page = render(&report).unwrap();
    let text = between(&page, "id=\"report-data\">", "</script>");
    assert!(!text.contains('<'), "[HTM-1]");
    let read: Value = serde_json::from_str(text).unwrap();
    assert_eq!(read, serde_json::to_value(&report).unwrap());
}

#[test]
fn nothing_points_outside() {
    let page = render(&report(vec![record("uring", "direct", 0, Some(1.0), &[])])).unwrap();
    for start in ["src=", "href=\"http", "href=\"//", "url(", "@import", "fetch(", "XMLHttpRequest"]
    {
        assert!(!page.contains(start), "[HTM-4] {start}");
    }
    // The only address is the name uPlot gives its own source; SVG's namespace is no address.
    let addresses: Vec<&str> =
        page.match_indices("http").map(|(at, _)| &page[at..at + 26]).collect();
    for address in addresses {
        let known = ["http-equiv=", "https://github.com/leeoniy", "http://www.w3.org/2000/sv"];
        assert!(known.iter().any(|start| address.starts_with(start)), "[HTM-4] {address}");
    }
    assert!(page.contains("default-src 'none'"), "[HTM-4]");
}

#[test]
fn a_null_fact_is_unknown_and_never_zero() {
    let page = render(&report(Vec::new())).unwrap();
    let memory = between(&page, "<th scope=\"row\">Memory</th>", "</tr>");
    assert_eq!(memory, "<td class=\"unknown\">unknown</td>", "[HTM-3]");
    assert!(
        page.contains("<th scope=\"row\">Device</th><td class=\"unknown\">unknown</td>"),
        "[HTM-3]"
    );
    assert!(page.contains("the filesystem has no block device"));
    assert!(page.contains("not available: io_uring_setup: EPERM"));
}

#[test]
fn a_report_without_records_is_a_whole_page() {
    let page = render(&report(Vec::new())).unwrap();
    assert!(page.contains("No conclusion: the evidence of this run is too weak for one."));
    assert!(!page.contains("id=\"plot\"") && !page.contains("var uPlot"));
    assert!(page.trim_end().ends_with("</html>"));
    let mut silent = report(Vec::new());
    silent.backends.clear();
    assert!(render(&silent).unwrap().contains("The run named no backend."));
}

#[test]
fn the_best_of_a_row_is_cold_and_a_remark_is_marked() {
    let records = vec![
        record("uring", "direct", 0, Some(1000.0), &[]),
        record("uring", "direct", 1, Some(2000.0), &["slow neighbour"]),
        record("uring", "direct", 2, Some(90_000.0), &["not cold: half was cached"]),
        record("uring", "direct", 4, None, &["read: EIO"]),
    ];
    let page = render(&report(records)).unwrap();
    assert!(page.contains("<td class=\"cold best\" style=\"--share:100%\">2,000<sup>1</sup></td>"));
    assert!(page.contains("<td class=\"not-cold\">90,000<sup>2</sup></td>"), "no bar, not best");
    assert!(page.contains("<td class=\"unmeasured\">–<sup>3</sup></td>"));
    assert!(page.contains(
        "<ol><li>slow neighbour</li><li>not cold: half was cached</li><li>read: EIO</li></ol>"
    ));
    let plot: Value =
        serde_json::from_str(between(&page, "id=\"plot-data\">", "</script>")).unwrap();
    assert_eq!(plot["depths"], json!([0, 1, 2, 4]));
    let points = &plot["lines"][0]["points"];
    assert_eq!(points[2]["standing"], "not-cold");
    assert_eq!(points[3]["rate"], Value::Null);
    assert_eq!(points[3]["standing"], "unmeasured");
    assert!(page.contains("uring direct: 1,000 at depth 0, at best 2,000 at depth 1."));
}

#[test]
fn an_experiment_unheard_of_is_a_plain_table() {
    let mut tide = record("", "", 0, None, &["the gauge was frozen"]);
    tide.experiment = "tides".to_owned();
    tide.cell = object(json!({"moon": "full"}));
    tide.metrics = object(json!({"level_m": null, "seconds": 1.25}));
    let mut nameless = record("uring", "direct", 0, Some(77.7), &[]);
    nameless.cell.remove("depth");
    let page = render(&report(vec![tide, nameless])).unwrap();
    assert!(page.contains("<h2>tides</h2>"), "[HTM-2]");
    assert!(page.contains("<th scope=\"col\">level m</th>"));
    assert!(page.contains(
        "<td class=\"text\">full</td><td class=\"unmeasured\">–</td><td class=\"cold\">1.25</td>"
    ));
    assert!(page.contains("<li>the gauge was frozen</li>"));
    assert!(page.contains("depth, records that fit no line") && page.contains("77.7"), "[HTM-2]");
}

#[test]
fn checkpoints_have_a_table_for_each_pattern_and_a_plot_of_what_readers_felt() {
    let mut lost = checkpoint(("uniform", "direct"), ("sorted", true, "aio"), 1.0, 0.1);
    lost.metrics = object(json!({"seconds": null}));
    lost.remarks.push("not measured: no aio here".into());
    let page = render(&report(vec![
        checkpoint(("clustered", "direct"), ("arrival", false, "sync"), 9.2, 1.0),
        checkpoint(("clustered", "direct"), ("balanced", true, "uring"), 2.3, 0.25),
        lost,
        beside("direct", false, 9.0),
        beside("direct", true, 1.25),
    ]))
    .unwrap();
    let section = between(&page, "<section id=\"checkpoint\">", "</section>");
    assert_eq!(section.matches("<tbody>").count(), 3);
    let bars = ["--share:25%\">7,123", "cold best\" style=\"--share:100%\">28,494"];
    assert!(bars.iter().all(|bar| section.contains(bar)), "[HCK-1] {section}");
    let lost = between(section, "sorted, combined</th>", "</tr>");
    assert!(!lost.contains("best") && lost.contains("–<sup>1</sup>"), "[HCK-1] {lost}");
    assert!(section.contains("<li>not measured: no aio here</li>"), "{section}");
    assert_eq!(section.matches("<svg").count(), 1, "{section}");
    assert!(section.contains("aria-label=\"Line plot of the longest read"), "{section}");
    assert!(!page.contains("id=\"plot\""), "nobody asked for depths");
}

#[test]
fn records_of_any_shape_are_shown_somewhere() {
    let records = absurd_checkpoints();
    let page = render(&report(records.clone())).unwrap();
    let shown = page.matches("<td class=").count();
    assert!(shown > records.len(), "[HTM-2] {shown}");
    assert!(page.contains("checkpoint, records that fit no table"), "[HTM-2]");
    for record in records {
        let page = render(&report(vec![record.clone()])).unwrap();
        let table = page.contains("id=\"checkpoint\"") || page.contains("records that fit no");
        assert!(table, "[HTM-2] {record:?}");
    }
}
