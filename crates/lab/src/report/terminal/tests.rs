//! The terminal table, read as a user reads it.

use super::super::sample::record;
use super::*;

const PLAIN: Look = Look { width: 80, colour: false, ascii: false };

/// Two backends over eleven depths, with a cell that was not cold and one never measured.
fn realistic() -> Vec<Record> {
    let mut records = Vec::new();
    for (backend, cache, alone, most) in
        [("sync", "buffered", 1_190.0, 2_100.0), ("uring", "direct", 1_204.0, 41_230.0)]
    {
        for depth in [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 1024] {
            let rate = f64::min(alone * (depth as f64 + 1.0), most);
            records.push(record(backend, cache, depth, Some(rate), &[]));
        }
    }
    records[3].remarks.push("not cold: the page cache could not be emptied".into());
    records[3].metrics.insert("blocks_per_s".into(), 390_000.0.into());
    records[7] = record("sync", "buffered", 64, None, &["read: EIO in round 2 of 3"]);
    records
}

fn line_of<'t>(text: &'t str, start: &str) -> &'t str {
    text.lines().find(|line| line.trim_start().starts_with(start)).unwrap_or("")
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    for width in [10, WIDTH_MIN, 40, 60, 79, 80, 100, 132, 250] {
        let text = depth_table(&realistic(), Look { width, ..PLAIN });
        for line in text.lines() {
            let columns = line.chars().count();
            assert!(columns <= width.max(WIDTH_MIN), "[TER-1] {width}: {columns}: {line}");
        }
    }
}

#[test]
fn at_80_columns_every_column_has_its_unit_and_every_row_its_bar() {
    let text = depth_table(&realistic(), PLAIN);
    let header: Vec<&str> = text.lines().take(2).collect();
    for name in ["depth", "blocks/s", "times", "spread", "requests", "wait µs"] {
        assert!(header[0].contains(name), "{name} in {text}");
    }
    for unit in ["depth 0", "±%", "/block", "p99"] {
        assert!(header[1].contains(unit), "{unit} in {text}");
    }
    let best = text.lines().find(|line| line.contains("41,230")).unwrap();
    assert!(best.contains("34.2"), "the ratio to depth 0: {best}");
    assert!(best.ends_with("█████"), "{best}");
    assert!(line_of(&text, "uring direct").chars().all(|letter| !letter.is_numeric()));
}

#[test]
fn a_figure_that_was_not_cold_is_set_apart() {
    let text = depth_table(&realistic(), PLAIN);
    let row = text.lines().find(|line| line.contains("(390,000)")).unwrap();
    assert!(row.contains('░') && !row.contains('█'), "[TER-3] {row}");
    assert!(row.contains("[1]"), "{row}");
    assert!(text.contains(" [1] not cold: the page cache could not be emptied\n"), "{text}");
    assert!(text.contains("In parentheses"), "{text}");
    assert!(!text.contains("390,000 blocks/s"), "never the best: {text}");
}

#[test]
fn an_unmeasured_cell_is_dashes_and_a_remark() {
    let text = depth_table(&realistic(), PLAIN);
    let row = text.lines().find(|line| line.contains("[2]")).unwrap();
    assert!(row.contains('–') && !row.contains('▏') && !row.contains(" 0 "), "{row}");
    assert!(text.contains(" [2] read: EIO in round 2 of 3\n"), "{text}");
}

#[test]
fn the_shapes_end_the_table() {
    let text = depth_table(&realistic(), PLAIN);
    let shape = text.lines().find(|line| line.contains("at depth 64, 34.2 times")).unwrap();
    assert!(shape.starts_with(" uring direct"), "{shape}");
    assert!(shape.contains("▁▁▁▂▃▄█████"), "{shape}");
}

#[test]
fn colour_is_written_only_when_asked_for() {
    let plain = depth_table(&realistic(), PLAIN);
    assert!(!plain.contains('\u{1b}'), "[TER-2]");
    let coloured = depth_table(&realistic(), Look { colour: true, ..PLAIN });
    assert!(coloured.contains("\u{1b}["));
}

#[test]
fn ascii_is_ascii() {
    let text = depth_table(&realistic(), Look { ascii: true, ..PLAIN });
    assert!(text.is_ascii(), "[TER-2] {text}");
    assert!(text.contains("####") && text.contains("wait us"), "{text}");
}

#[test]
fn nothing_measured_is_said() {
    assert_eq!(depth_table(&[], PLAIN), "Nothing was measured at any depth.\n");
    let empty = [record("aio", "direct", 4, None, &[])];
    let text = depth_table(&empty, PLAIN);
    assert!(text.contains("aio direct") && text.contains("no cold figure"), "{text}");
}
