//! The page as text: nothing escapes, nothing is lost, nothing points outside.

use serde_json::json;

use super::super::sample::{
    absurd, absurd_checkpoints, beside, checkpoint, interplay, object, record, report, strategy,
};
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
    let mut matrix = strategy(HOSTILE, HOSTILE, (HOSTILE, HOSTILE), Some(1.0), &[HOSTILE]);
    matrix.cell.insert(HOSTILE.into(), HOSTILE.into());
    let panel = interplay(HOSTILE, HOSTILE, HOSTILE, None, Some(1.0));
    let written = checkpoint((HOSTILE, HOSTILE), (HOSTILE, true, HOSTILE), 1.0, 0.5);
    let mut read = beside(HOSTILE, true, 2.0);
    read.cell.insert("elevator".into(), HOSTILE.into());
    let mut report = report(vec![hostile, other, matrix, panel, written, read]);
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
    // The data and our own script; no more than without hostile text.
    assert_eq!(page.matches("<script").count(), 2, "[HTM-1]");
    assert_eq!(page.matches("</script").count(), 2, "[HTM-1]");
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
    assert!(page.trim_end().ends_with("</html>"));
    let mut silent = report(Vec::new());
    silent.backends.clear();
    assert!(render(&silent).unwrap().contains("The run named no backend."));
}

#[test]
fn an_experiment_unheard_of_is_a_plain_table() {
    let mut tide = record("", "", 0, None, &["the gauge was frozen"]);
    tide.experiment = "tides".to_owned();
    tide.cell = object(json!({"moon": "full"}));
    tide.metrics = object(json!({"level_m": null, "seconds": 1.25}));
    let page = render(&report(vec![tide])).unwrap();
    assert!(page.contains("<h2>tides</h2>"), "[HTM-2]");
    assert!(page.contains("<th scope=\"col\">level m</th>"));
    assert!(page.contains(
        "<td class=\"text\">full</td><td class=\"unmeasured\">–</td><td class=\"cold\">1.25</td>"
    ));
    assert!(page.contains("<li>the gauge was frozen</li>"));
}

const COLD: (&str, &str) = ("cold", "direct");

/// One row that `adaptive` loses, with a cell that was not cold and one never measured.
fn lost_row() -> Vec<Record> {
    let adaptive = "adaptive reaches 0.90 of the best other";
    vec![
        strategy("uniform", "os", COLD, Some(200.0), &[]),
        strategy("uniform", "hint", COLD, None, &["not measured: no fadvise"]),
        strategy("uniform", "max", COLD, Some(9000.0), &["not cold: half was cached"]),
        strategy("uniform", "async", COLD, Some(1000.0), &[]),
        strategy("uniform", "adaptive", COLD, Some(900.0), &[adaptive]),
    ]
}

/// The class and the first figure of every cell of the first heat map's body.
fn heat_cells(page: &str) -> Vec<(&str, &str)> {
    let map = between(page, "<table class=\"heat\"", "</tbody>");
    let cells = map.split("<td class=\"").skip(1);
    cells
        .map(|cell| {
            let class = cell.split('"').next().unwrap_or("");
            let figure = cell.split_once("class=\"figure-1\">").map_or("", |(_, rest)| rest);
            (class, figure.split('<').next().unwrap_or(""))
        })
        .collect()
}

#[test]
fn a_cell_has_the_colour_of_its_share_and_only_if_it_was_cold() {
    let page = render(&report(lost_row())).unwrap();
    let expected = [
        ("step-1", "0.20"),
        ("unmeasured", "–"),
        ("not-cold", "9.00"),
        ("step-6 best", "1.00"),
        ("step-5 lost", "0.90"),
    ];
    assert_eq!(heat_cells(&page), expected, "[MAT-2]");
    let tooltip = between(&page, "<td class=\"step-5 lost\" title=\"", "\"").replace("&#x2f;", "/");
    for line in ["uniform, adaptive", "Blocks/s: 900", "Rounds: 873 to 927 blocks/s"] {
        assert!(tooltip.lines().any(|found| found == line), "[MAT-1] {line} in {tooltip}");
    }
    assert!(tooltip.ends_with("adaptive reaches 0.90 of the best other"), "[MAT-1] {tooltip}");
    assert!(
        page.contains(
            "<ol><li>not measured: no fadvise</li><li>not cold: half was cached</li></ol>"
        ),
        "[MAT-1] remarks are footnotes, but for what the list of losses says"
    );
}

#[test]
fn where_adaptive_loses_is_listed_or_said_to_be_nowhere() {
    let page = render(&report(lost_row())).unwrap();
    let list = between(&page, "<table class=\"losses\">", "</table>");
    assert!(list.contains("0.900 of async: 900 against 1,000 blocks"), "{list}");
    let mut records = lost_row();
    records[4] = strategy("uniform", "adaptive", COLD, Some(950.0), &[]);
    let page = render(&report(records)).unwrap();
    assert!(page.contains("adaptive loses in none of 1 rows."));
    assert!(!page.contains("class=\"losses\"") && !page.contains("class=\"step-6 lost"));
}

#[test]
fn every_row_of_a_map_has_every_column_and_the_mean_says_of_what() {
    let mut records = lost_row();
    records.retain(|record| !["hint", "max"].contains(&record.cell_text("strategy")));
    for name in ["os", "async", "adaptive"] {
        records.push(strategy("zipfian", name, COLD, Some(400.0), &[]));
    }
    records.push(strategy("zipfian", "os", ("pool", "direct"), Some(400.0), &[]));
    records.push(strategy("uniform", "async", ("pool", "direct"), Some(400.0), &[]));
    let page = render(&report(records)).unwrap();
    let maps: Vec<&str> = page.split("<table class=\"heat\"").skip(1).collect();
    assert_eq!(maps.len(), 2);
    let pool = maps[1].split("</table>").next().unwrap();
    assert_eq!(pool.matches("<th scope=\"col\"").count(), 3, "pattern and what it has: {pool}");
    assert_eq!(pool.matches("<td class=").count(), 4, "[MAT-3] {pool}");
    assert_eq!(pool.matches("<td class=\"absent\"></td>").count(), 2, "[MAT-3] {pool}");
    let means = between(maps[0], "<tfoot>", "</tfoot>");
    assert!(means.contains("Of the 2 patterns") && means.contains(">0.44<"), "{means}");
    assert!(!pool.contains("<tfoot>"), "no pattern has both strategies");
}

#[test]
fn interplay_has_a_table_for_each_readahead_and_bars_on_one_scale() {
    let mut warm = interplay("shuffled", "random", "buffered", Some(0), Some(9000.0));
    warm.remarks.push("not cold: half was cached".into());
    let page = render(&report(vec![
        interplay("shuffled", "os", "buffered", Some(0), Some(100.0)),
        warm,
        interplay("shuffled", "adaptive", "direct", Some(0), Some(400.0)),
        interplay("shuffled", "os", "buffered", Some(1 << 20), Some(200.0)),
    ]))
    .unwrap();
    let section = between(&page, "<section id=\"interplay\">", "</section>");
    assert_eq!(section.matches("<tbody>").count(), 2);
    assert!(section.contains("<p class=\"caption\">kernel readahead 1 MiB</p>"), "{section}");
    for bar in ["\"--share:25%\">100", "\"--share:100%\">400", "\"--share:50%\">200"] {
        assert!(section.contains(bar), "{bar} in {section}");
    }
    assert!(section.contains("<td class=\"not-cold\">9,000<sup>1</sup></td>"), "[PAN-1] {section}");
    let adaptive = between(section, "<tr class=\"apart\">", "</tr>");
    assert!(adaptive.contains(">adaptive<") && adaptive.contains("class=\"cold best\""), "[PAN-1]");
    assert!(adaptive.contains("<td class=\"cold\">4.00</td>"), "{adaptive}");
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
}

#[test]
fn records_of_any_shape_are_shown_somewhere() {
    let records = [absurd(), absurd_checkpoints()].concat();
    let page = render(&report(records.clone())).unwrap();
    let shown = page.matches("<td class=").count();
    assert!(shown > records.len(), "[HTM-2] {shown}");
    assert!(page.contains("strategies, records that fit no map"), "[HTM-2]");
    assert!(page.contains("interplay, records that fit no table"), "[HTM-2]");
    assert!(page.contains("checkpoint, records that fit no table"), "[HTM-2]");
    for record in records {
        let page = render(&report(vec![record.clone()])).unwrap();
        let table = page.contains("<table class=\"heat\"")
            || page.contains("id=\"interplay\"")
            || page.contains("id=\"checkpoint\"")
            || page.contains("records that fit no");
        assert!(table, "[HTM-2] {record:?}");
    }
}
