//! The table of shares, read as a user reads it.

use super::super::super::sample::{absurd, strategy};
use super::*;

const PLAIN: Look = Look { width: 100, colour: false, ascii: false };
const COLD: (&str, &str) = ("cold", "direct");
const POOL: (&str, &str) = ("pool", "direct");

/// Two maps, with a loss in each, a cell that was not cold and one never measured.
fn realistic() -> Vec<Record> {
    let names = ["os", "hint", "max", "prefetch", "async", "adaptive"];
    let rows = [
        ("sequential", COLD, [71_000.0, 70_000.0, 72_000.0, 70_500.0, 69_000.0, 71_500.0]),
        ("uniform", COLD, [15_000.0, 15_100.0, 15_000.0, 47_000.0, 67_120.0, 66_000.0]),
        ("bitmap-10", COLD, [18_000.0, 17_000.0, 18_100.0, 50_000.0, 58_003.0, 52_800.0]),
        ("uniform", POOL, [1_900_000.0, 1.9e6, 1.9e6, 1.9e6, 1.8e6, 1.8e6]),
    ];
    let mut records = Vec::new();
    for (pattern, place, rates) in rows {
        for (name, rate) in names.into_iter().zip(rates) {
            records.push(strategy(pattern, name, place, Some(rate), &[]));
        }
    }
    records[6].remarks.push("not cold: the page cache could not be emptied".into());
    records[6].metrics.insert("blocks_per_s".into(), 390_000.0.into());
    records[13] = strategy("bitmap-10", "hint", COLD, None, &["not measured: no fadvise here"]);
    records[17].remarks.push("adaptive is 0.91 of the best".into());
    records
}

fn row<'t>(text: &'t str, pattern: &str) -> Vec<&'t str> {
    let line = text.lines().find(|line| line.trim_start().starts_with(pattern)).unwrap_or("");
    line.split_whitespace().collect()
}

#[test]
fn each_figure_is_a_share_of_the_best_of_its_row() {
    let text = strategies_table(&realistic(), PLAIN);
    let header = text.lines().next().unwrap();
    let names: Vec<&str> = header.split_whitespace().collect();
    assert_eq!(names, ["os", "hint", "max", "prefetch", "async", "adaptive", "best"]);
    assert_eq!(
        row(&text, "sequential"),
        ["sequential", "0.98", "0.97", "1.00", "0.97", "0.95", "0.99", "72,000"]
    );
    assert!(text.contains("\n cold, direct, kernel readahead 128 KiB\n"), "{text}");
    assert!(text.contains("\n pool, direct, kernel readahead 128 KiB\n"), "{text}");
}

#[test]
fn what_adaptive_loses_is_marked_and_listed_worst_first() {
    let text = strategies_table(&realistic(), PLAIN);
    assert_eq!(row(&text, "bitmap-10")[6], "0.91!", "[TST-1] {text}");
    assert_eq!(row(&text, "uniform")[6], "0.98", "[TST-1] {text}");
    let list = text.split_once("Where adaptive loses:\n").unwrap().1;
    let listed: Vec<&str> = list.lines().take_while(|line| !line.is_empty()).collect();
    assert!(listed[0].starts_with("   bitmap-10 (cold, direct, kernel readahead 128 KiB): 0.910"));
    assert!(list.contains("\n   uniform (pool, direct"), "[TST-1] {list}");
    assert!(!text.contains("adaptive is 0.91 of the best"), "said once is enough: {text}");
}

#[test]
fn what_adaptive_remarks_on_a_row_it_does_not_lose_is_a_footnote() {
    let mut records = realistic();
    records[5].remarks.push("adaptive changed its mind twice".into());
    let text = strategies_table(&records, PLAIN);
    assert_eq!(row(&text, "sequential")[6], "0.99[1]", "{text}");
    assert!(text.contains(" [1] adaptive changed its mind twice\n"), "{text}");
}

#[test]
fn a_run_without_losses_has_no_list_of_them() {
    let text = strategies_table(&realistic()[..6], PLAIN);
    assert!(
        text.contains("\n adaptive loses in none of 1 rows.\n")
            && !text.contains("Where adaptive loses"),
        "{text}"
    );
}

#[test]
fn a_figure_that_was_not_cold_is_set_apart() {
    let text = strategies_table(&realistic(), PLAIN);
    let row = row(&text, "uniform");
    assert_eq!(row[1], "(5.81)[1]", "[TST-2] {text}");
    assert_eq!((row[5], row[7]), ("1.00", "67,120"), "[TST-2] never the best: {text}");
    assert!(text.contains(" [1] not cold: the page cache could not be emptied\n"), "{text}");
    assert!(text.contains("In parentheses"), "{text}");
}

#[test]
fn an_unmeasured_cell_is_a_dash_and_its_reason() {
    let text = strategies_table(&realistic(), PLAIN);
    assert_eq!(row(&text, "bitmap-10")[2], "–[2]", "{text}");
    assert!(text.contains(" [2] not measured: no fadvise here\n"), "{text}");
}

#[test]
fn the_mean_is_over_patterns_measured_throughout() {
    let text = strategies_table(&realistic(), PLAIN);
    assert!(!text.contains("geometric mean"), "one pattern is no mean: {text}");
    let mut records = realistic();
    records.drain(12..18);
    records[6] = strategy("uniform", "os", COLD, Some(16_780.0), &[]);
    let text = strategies_table(&records, PLAIN);
    assert_eq!(row(&text, "geometric mean")[2], "0.49", "√(0.986 · 0.25): {text}");
}

#[test]
fn no_line_is_wider_than_the_terminal_whatever_the_records() {
    let all = [realistic(), absurd()].concat();
    for records in [realistic(), absurd(), all] {
        for width in [10, WIDTH_MIN, 40, 60, 79, 80, 100, 250] {
            for colour in [false, true] {
                let text = strategies_table(&records, Look { width, colour, ..PLAIN });
                for line in text.lines().filter(|_| !colour) {
                    let columns = line.chars().count();
                    assert!(columns <= width.max(WIDTH_MIN), "[TER-1] {width}: {columns}: {line}");
                }
            }
        }
    }
}

#[test]
fn at_80_columns_every_strategy_is_there_and_at_40_what_is_not_is_told() {
    let text = strategies_table(&realistic(), Look { width: 80, ..PLAIN });
    assert!(text.contains("prefetch") && !text.contains("No room"), "{text}");
    let text = strategies_table(&realistic(), Look { width: 40, ..PLAIN });
    assert!(text.lines().next().unwrap().contains("adaptive"), "{text}");
    assert!(text.contains("No room here for: best blocks/s, async,"), "{text}");
}

#[test]
fn colour_and_signs_are_written_only_when_asked_for() {
    assert!(!strategies_table(&realistic(), PLAIN).contains('\u{1b}'), "[TER-2]");
    assert!(strategies_table(&realistic(), Look { colour: true, ..PLAIN }).contains("\u{1b}["));
    for records in [realistic(), absurd()] {
        let text = strategies_table(&records, Look { ascii: true, ..PLAIN });
        assert!(text.is_ascii(), "[TER-2] {text}");
    }
}

#[test]
fn nothing_measured_is_said() {
    assert_eq!(strategies_table(&[], PLAIN), "No strategy was measured.\n");
    let lost = [strategy("uniform", "os", COLD, None, &["not measured: no disk"])];
    let text = strategies_table(&lost, PLAIN);
    assert!(text.contains("[1] not measured: no disk") && text.contains("nowhere"), "{text}");
}
