//! The table of panels, read as a user reads it.

use super::super::super::sample::{absurd, interplay};
use super::*;

const PLAIN: Look = Look { width: 100, colour: false, ascii: false };

/// Two readaheads of one pattern, with a cell that was not cold and one never measured.
fn realistic() -> Vec<Record> {
    let rows = [
        ("os", "buffered", 35_010.0, 111_000.0),
        ("random", "buffered", 17_500.0, 17_010.0),
        ("willneed-32", "buffered", 66_200.0, 71_400.0),
        ("async", "direct", 147_200.0, 129_300.0),
        ("adaptive", "direct", 161_800.0, 138_000.0),
    ];
    let mut records = Vec::new();
    for (strategy, cache, small, large) in rows {
        for (readahead, rate) in [(131_072, small), (8 << 20, large)] {
            records.push(interplay("shuffled", strategy, cache, Some(readahead), Some(rate)));
        }
    }
    records[5].remarks.push("not cold: half was cached".into());
    records[7] = interplay("shuffled", "async", "direct", Some(8 << 20), None);
    records[7].remarks.push("not measured: no direct reads here".into());
    records
}

fn rows<'t>(text: &'t str, strategy: &str) -> Vec<&'t str> {
    text.lines().filter(|line| line.trim_start().starts_with(strategy)).collect()
}

#[test]
fn each_row_is_measured_against_the_kernel_alone() {
    let text = interplay_table(&realistic(), PLAIN);
    let adaptive: Vec<Vec<&str>> =
        rows(&text, "adaptive").iter().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(adaptive[0][..5], ["adaptive", "direct", "161,800", "4.62", "4,012"]);
    assert_eq!(adaptive[1][..4], ["adaptive", "direct", "138,000", "1.24"]);
    assert!(text.contains("\n shuffled, kernel readahead 8 MiB\n"), "{text}");
    let headers = text.lines().take(2).collect::<String>();
    for name in ["cache", "blocks/s", "times", "requests", "bytes", "over-", "time", "alone"] {
        assert!(headers.contains(name), "{name} in {headers}");
    }
}

#[test]
fn bars_of_one_pattern_share_a_scale() {
    let text = interplay_table(&realistic(), PLAIN);
    let length = |line: &str| line.chars().filter(|sign| *sign == '█').count();
    let adaptive: Vec<usize> = rows(&text, "adaptive").iter().map(|line| length(line)).collect();
    let alone: Vec<usize> = rows(&text, "os").iter().map(|line| length(line)).collect();
    assert!(adaptive[0] > adaptive[1] && adaptive[1] > alone[1] && alone[1] > alone[0], "{text}");
}

#[test]
fn a_figure_that_was_not_cold_is_set_apart() {
    let text = interplay_table(&realistic(), PLAIN);
    let row = rows(&text, "willneed-32")[1];
    assert!(
        row.contains("(71,400)[1]") && row.contains('░') && !row.contains('█'),
        "[TIN-1] {row}"
    );
    assert!(text.contains(" [1] not cold: half was cached\n"), "{text}");
    let row = rows(&text, "async")[1];
    assert!(row.contains("–[2]") && !row.contains('▏'), "{row}");
    assert!(text.contains(" [2] not measured: no direct reads here\n"), "{text}");
}

#[test]
fn no_line_is_wider_than_the_terminal_whatever_the_records() {
    let all = [realistic(), absurd()].concat();
    for records in [realistic(), absurd(), all] {
        for width in [10, WIDTH_MIN, 40, 60, 79, 80, 100, 250] {
            let text = interplay_table(&records, Look { width, ..PLAIN });
            for line in text.lines() {
                let columns = line.chars().count();
                assert!(columns <= width.max(WIDTH_MIN), "[TER-1] {width}: {columns}: {line}");
            }
        }
    }
}

#[test]
fn colour_and_signs_are_written_only_when_asked_for() {
    assert!(!interplay_table(&realistic(), PLAIN).contains('\u{1b}'), "[TER-2]");
    assert!(interplay_table(&realistic(), Look { colour: true, ..PLAIN }).contains("\u{1b}["));
    for records in [realistic(), absurd()] {
        let text = interplay_table(&records, Look { ascii: true, ..PLAIN });
        assert!(text.is_ascii(), "[TER-2] {text}");
    }
}

#[test]
fn a_narrow_terminal_keeps_the_rates() {
    let text = interplay_table(&realistic(), Look { width: WIDTH_MIN, ..PLAIN });
    assert!(text.contains("161,800") && text.contains("No room here for:"), "{text}");
}

#[test]
fn nothing_measured_is_said() {
    let expected = "No interplay with the kernel's readahead was measured.\n";
    assert_eq!(interplay_table(&[], PLAIN), expected);
}
