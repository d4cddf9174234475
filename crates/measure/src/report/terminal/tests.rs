//! The summary as text: no wider, longer or more colourful than it may be.

use super::super::{Conclusion, sample};
use super::*;

fn look(width: usize) -> Look {
    Look { width, colour: false, ascii: false }
}

#[test]
fn a_whole_run_fits_a_page_however_much_was_measured() {
    let sections = [sample::sections(), sample::sections(), sample::sections()].concat();
    for width in [30, 80, 100, 200] {
        for report in [sample::large(), sample::report()] {
            let text = summary(&report, &sections, look(width));
            let command = text.lines().last().unwrap().chars().count().div_ceil(width);
            let lines = text.lines().count() - 1 + command + LINES_OF_FILES;
            assert!(lines <= LINES_MAX, "[TER-3] {width}: {lines}\n{text}");
            for line in text.lines().filter(|line| !line.starts_with("to repeat: forebay")) {
                assert!(line.chars().count() <= width, "[TER-1] {width}: {line}");
            }
        }
    }
    let text = summary(&sample::large(), &sections, look(100));
    assert!(text.contains("more lines in the report"), "{text}");
}

#[test]
fn sentences_are_wrapped_and_never_cut_and_what_is_left_out_is_counted() {
    let sections = [sample::sections(), sample::sections()].concat();
    let report = sample::large();
    for width in [60, 80, 100] {
        let text = summary(&report, &sections, look(width));
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for line in text.lines().filter(|line| line.contains('…')) {
            assert!(line.starts_with("… ") && line.ends_with(" in the report"), "{line}");
        }
        let is_shown = |it: &&Conclusion| words.contains(it.sentence.trim_end());
        let shown = report.conclusions.iter().filter(is_shown).count();
        assert!(shown >= 2, "{text}");
        let left_out = format!("… {} more in the report", report.conclusions.len() - shown);
        assert!(text.contains(&left_out), "{left_out} in\n{text}");
    }
}

#[test]
fn the_summary_says_where_what_and_what_to_set() {
    let report = sample::report();
    let text = summary(&report, &sample::sections(), look(120));
    for expected in [
        "/var/lib/forebay on ext4, device nvme1n1p1 (Elastic Block Volume), readahead 128.0 KiB",
        "aio not measured: io_setup: Resource temporarily unavailable",
        "random reads, 64 at a time",
        "39,828 to 42,632",
        "\nPostgreSQL 18 io_method=worker\n",
        "34.6× (30.1 to 38.2)",
        "* Direct reads are 1.2 times as fast",
        "to repeat: forebay lab --dir /var/lib/forebay",
    ] {
        assert!(text.contains(expected), "{expected} in\n{text}");
    }
    assert!(
        !text.contains("knee") && !text.contains("Share of the best"),
        "no tables of experiments:\n{text}"
    );
    assert!(
        !text.contains("adaptive keeps") && !text.contains("keep the bound"),
        "for engines:\n{text}"
    );
    let none = summary(&sample::bare(Vec::new()), &[], look(80));
    assert!(
        none.contains("No setting is worth changing")
            && none.contains("/srv on an unknown filesystem"),
        "{none}"
    );
}

#[test]
fn an_experiment_alone_shows_its_first_table() {
    let report = sample::large();
    let text = summary(&report, &[sample::depth_section()], look(80));
    assert!(text.contains(report.command.trim()), "it may be the only place that has it: {text}");
    assert!(text.contains("* strategies: of ") && text.contains("keep the bound"), "{text}");
    let table = text.split("Blocks per second.\n").nth(1).unwrap();
    let lines: Vec<&str> = table.lines().take(5).collect();
    assert_eq!(lines[0], "depth   blocks/s  wait p99");
    assert_eq!(lines[1], "sync buffered");
    assert!(lines[2].starts_with("0 ") && lines[2].ends_with(" µs"), "{table}");
    assert!(
        table.contains(" [1]  ") && table.contains("\n [1] not cold: 61 % was cached\n"),
        "{table}"
    );
}

#[test]
fn a_table_wider_than_the_terminal_goes_on_below() {
    let Part::Table(table) = &sample::sections()[1].parts[0] else { panic!() };
    let wide = drawn(table, look(100));
    assert_eq!(wide.matches("pattern").count(), 1);
    for width in WIDTH_MIN..70 {
        let text = drawn(table, look(width));
        assert!(text.lines().all(|line| line.chars().count() <= width), "[TER-1] {width}:\n{text}");
        for figure in ["0.23", "0.66", "0.88", "0.62", "adaptive"] {
            assert!(text.contains(figure), "{width}: {figure} in\n{text}");
        }
    }
    let mut long = table.clone();
    long.columns[3] = "a column whose name is longer than the terminal is wide".repeat(2);
    long.rows[1].cells[0].text = "a pattern of that kind ".repeat(5);
    long.rows[2].cells[2].text = "9".repeat(80);
    let text = drawn(&long, look(WIDTH_MIN));
    assert!(text.lines().all(|line| line.chars().count() <= WIDTH_MIN), "[TER-1]\n{text}");
    assert!(!text.contains('…') && text.matches('9').count() >= 80, "nothing is cut\n{text}");
}

#[test]
fn without_colour_there_is_no_escape_and_ascii_is_ascii() {
    let (report, sections) = (sample::report(), [sample::depth_section()]);
    let plain = summary(&report, &sections, look(80));
    assert!(!plain.contains('\u{1b}'), "[TER-2]");
    let ascii = summary(&report, &sections, Look { ascii: true, ..look(80) });
    assert!(ascii.is_ascii() && ascii.contains("34.6x"), "[TER-2] {ascii}");
    let coloured = summary(&report, &sections, Look { colour: true, ..look(80) });
    assert!(coloured.contains('\u{1b}'));
    let stripped = anstyle_stripped(&coloured);
    assert_eq!(stripped.replace(' ', ""), plain.replace(' ', ""), "[TER-2] the same words");
}

/// `text` without its escapes, which end in `m`.
fn anstyle_stripped(text: &str) -> String {
    let mut parts = text.split('\u{1b}');
    let first = parts.next().unwrap_or("").to_owned();
    parts.fold(first, |all, part| all + part.split_once('m').map_or("", |(_, rest)| rest))
}
