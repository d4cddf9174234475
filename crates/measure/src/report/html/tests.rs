//! The page as text: no text escapes, no record is lost, no link points outside.

use serde_json::{Value, json};

use super::super::sample::{self, bare, record};
use super::*;

/// The text between `start` and the next `end`.
fn between<'p>(page: &'p str, start: &str, end: &str) -> &'p str {
    let rest = page.split_once(start).unwrap_or_else(|| panic!("no {start} in {page}")).1;
    rest.split_once(end).unwrap().0
}

fn render(report: &Report, sections: &[Section]) -> anyhow::Result<String> {
    super::render(&Kind::lab(report), report, sections)
}

fn page() -> String {
    render(&sample::report(), &sample::sections()).unwrap()
}

#[test]
fn hostile_text_stays_text_wherever_it_stands() {
    let (report, sections) = sample::hostile();
    let page = render(&report, &sections).unwrap();
    assert!(page.contains("document.title=&#x27;taken"), "it is there");
    for markup in ["<script>document", "<img", "<!--"] {
        assert!(!page.contains(markup), "[HTM-1] {markup}");
    }
    for tag in ["<script", "</script"] {
        assert_eq!(page.matches(tag).count(), 2, "[HTM-1] the data and our own script");
    }
}

#[test]
fn the_embedded_json_is_the_report() {
    let (report, sections) = sample::hostile();
    let page = render(&report, &sections).unwrap();
    let text = between(&page, "id=\"report-data\">", "</script>");
    assert!(!text.contains('<'), "[HTM-1]");
    let read = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    assert!(read(text) == read(&serde_json::to_string(&report).unwrap()), "{text}");
}

#[test]
fn nothing_points_outside() {
    let page = page();
    for start in ["src=", "href=\"http", "href=\"//", "url(", "@import", "fetch(", "XMLHttpRequest"]
    {
        assert!(!page.contains(start), "[HTM-4] {start}");
    }
    assert_eq!(page.matches("http").count(), page.matches("http-equiv=").count(), "[HTM-4]");
    assert!(page.contains("default-src 'none'"), "[HTM-4]");
}

#[test]
fn a_null_fact_is_unknown_and_never_zero() {
    let page = render(&bare(Vec::new()), &[]).unwrap();
    for fact in ["Memory", "Device", "Filesystem"] {
        let value = between(&page, &format!("<th scope=\"row\">{fact}</th>"), "</tr>");
        assert_eq!(value, "<td class=\"unknown\">unknown</td>", "[HTM-3]");
    }
    assert!(page.contains("the filesystem has no block device"));
    assert!(page.contains("not available: io_uring_setup: EPERM"));
}

#[test]
fn a_report_without_records_is_a_whole_page() {
    let mut report = bare(Vec::new());
    report.backends.clear();
    let page = render(&report, &[Section::default()]).unwrap();
    for text in [
        "No conclusion: the evidence of this run is too weak",
        "Nothing was recorded.",
        "named no backend",
        "None: no other setting",
    ] {
        assert!(page.contains(text), "{text}");
    }
    assert!(
        !page.contains("<svg")
            && !page.contains("id=\"device\"")
            && page.trim_end().ends_with("</html>")
    );
}

#[test]
fn every_record_is_in_a_table_with_its_remarks() {
    let mut report = sample::report();
    let shapes = [
        json!({}),
        json!({"depth": -1, "pattern": null, "more": {"a": [1]}}),
        json!({"cache": true}),
    ];
    for (index, cell) in shapes.into_iter().enumerate() {
        let mut odd = record("", "", 0, None, &["two\nlines"]);
        odd.experiment = format!("odd {}", index % 2);
        odd.cell = cell.as_object().cloned().unwrap();
        odd.metrics =
            json!({"blocks_per_s": f64::MAX, "many": "words"}).as_object().cloned().unwrap();
        report.records.push(odd);
    }
    let page = render(&report, &sample::sections()).unwrap();
    let records = between(&page, "<details id=\"records\">", "</details>");
    let rows = records.matches("<tr><th scope=\"row\"").count();
    assert_eq!(rows, report.records.len(), "[HTM-2]");
    assert_eq!(records.matches("<table").count(), 4, "one for each experiment");
    let tide = between(records, "Every record of tides", "</ol>");
    assert!(
        tide.contains(">level m</th>") && tide.contains("<td class=\"plain words\">full</td>"),
        "{tide}"
    );
    assert!(
        tide.contains("<td class=\"plain\">–</td>") && tide.contains("<li>the gauge was frozen"),
        "{tide}"
    );
    assert!(records.contains("<td class=\"weak\">184,300</td>"), "not cold");
}

#[test]
fn the_first_screen_has_the_disk_the_settings_and_the_plot_with_its_knee() {
    let page = page();
    let device = between(&page, "<section id=\"device\"", "</section>");
    for text in [
        "random reads, 64 at a time",
        "41,230<small>/s</small>",
        "rounds 39,828 to 42,632<",
        "wait p50 1.48 ms, p99 4.90 ms",
        "318 MB",
    ] {
        assert!(device.contains(text), "{text} in {device}");
    }
    let settings = between(&page, "<section id=\"settings\"", "</section>");
    let row = between(
        settings,
        "<tr><th scope=\"row\" class=\"plain words\">read_ahead_kb</th>",
        "</tr>",
    );
    assert_eq!(
        row,
        "<td class=\"best words\">4096</td><td class=\"plain\">3.71× (3.42 to 3.98)<sup>2 </sup></td>\
         <td class=\"plain words\">128</td><td class=\"plain words\">Linux block device</td>\
         <td class=\"plain words\">high</td>"
    );
    assert!(settings.contains("<li>eight sequential readers"));
    for snippet in paste::snippets(&sample::advice(), &sample::storage()) {
        assert!(settings.contains(&format!("<code>{}</code>, to paste", snippet.file)));
    }
    let plot = between(&page, "<section id=\"headline\"", "</section>");
    assert_eq!(plot.matches("<polyline").count(), 5);
    assert!(
        plot.contains(">knee at 64</text>")
            && plot.contains("<title>uring direct, prefetch depth 64: ")
    );
}

#[test]
fn a_section_is_collapsed_and_has_its_marks_bars_groups_and_notes() {
    let page = page();
    let matrix = between(&page, "<details id=\"strategies\">", "</details>");
    assert_eq!(matrix.matches("<tr class=\"group\">").count(), 2, "{matrix}");
    assert!(matrix.contains("<td class=\"bad\" style=\"--share:88.0%\">0.88</td>"), "{matrix}");
    assert!(matrix.contains("<td class=\"best\" style=\"--share:100.0%\">1.00</td>"), "{matrix}");
    let depth = between(&page, "<details id=\"depth\">", "</details>");
    assert!(
        depth.contains("<sup>1 </sup></td>") && depth.contains("<ol class=\"notes\"><li>not cold"),
        "{depth}"
    );
    assert!(!page.contains("<details open"));
    let sentence = "<li>adaptive keeps its bound in 41 of 44 rows.</li>";
    assert!(matrix.contains(sentence) && page.matches(sentence).count() == 1, "for engine authors");
    let verdicts = between(&page, "<details id=\"verdicts\">", "</details>");
    assert!(verdicts.contains("<li>strategies: of 3 comparisons"), "{verdicts}");
    assert!(verdicts.contains("<td class=\"bad words\">misses</td>"), "{verdicts}");
}

#[test]
fn a_share_that_is_no_number_does_not_cost_the_page() {
    let mut sections = sample::sections();
    let Part::Table(table) = &mut sections[1].parts[0] else { panic!() };
    table.rows[0].cells[1].share = Some(f64::NAN);
    table.rows[0].cells.truncate(3);
    assert!(render(&sample::report(), &sections).unwrap().contains("bitmap-10"));
}
