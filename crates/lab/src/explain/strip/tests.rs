//! The strips and the table, read as a user reads them.

use super::super::Strategy;
use super::super::sample::{explained, long, neighbours, reads};
use super::*;

const PLAIN: Look = Look { width: 80, colour: false, ascii: false };

/// Two windows of readahead with a gap larger than a line is wide.
fn distant() -> Explained {
    explained("1-4,4000-4003", vec![(Strategy::Max, reads(&[(0, 32), (4000, 32)]))])
}

fn random() -> Explained {
    let blocks = explained("random:100", Vec::new()).pattern.blocks;
    let pairs: Vec<(u64, u64)> = blocks.iter().map(|&at| (u64::from(at) / 2 * 2, 2)).collect();
    explained("random:100", vec![(Strategy::Os, reads(&pairs))])
}

fn samples() -> Vec<Explained> {
    let nothing = explained("7", vec![(Strategy::Adaptive, Vec::new())]);
    vec![neighbours(), long(), distant(), random(), nothing]
}

/// The lines of `text` under the heading of `strategy`.
fn rows<'t>(text: &'t str, strategy: &str) -> Vec<&'t str> {
    let heading = format!("{strategy}: ");
    let after = text.lines().skip_while(|line| !line.starts_with(&heading)).skip(1);
    after.take_while(|line| !line.is_empty()).collect()
}

#[test]
fn a_request_is_a_row_with_what_was_requested_and_what_was_not() {
    let text = drawn(&neighbours(), PLAIN);
    let line = |start: &str| text.lines().find(|line| line.starts_with(start)).unwrap();
    assert_eq!(line("block"), "block   0   2   4   6   8   10  12");
    assert_eq!(line("asked"), "asked     1 3 2 5   4     6");
    let os = rows(&text, "os");
    assert_eq!(os[0], "    1 R   ■");
    assert_eq!(os[3], "    4 R             ■ □ □ ■");
    assert_eq!(os[4], "    5 R         ■ □");
    assert_eq!(rows(&text, "max")[4], "    5 R         ■ □ ▣ ▣");
    assert_eq!(rows(&text, "willneed").len(), 6, "[STP-3]");
    assert_eq!(rows(&text, "adaptive"), ["    1 R   ■ ■ ■ ■", "    2 R             ■ □ □ ■"]);
    for explanation in ["□ read without", "▣ read again", "S: requests that go on"] {
        assert!(text.contains(explanation), "{explanation}: {text}");
    }
}

#[test]
fn requests_that_share_a_row_are_all_in_it() {
    let list: Vec<(u64, u64)> = (0..30).map(|block| (block, 1)).collect();
    let text = drawn(&explained("0-29", vec![(Strategy::Random, reads(&list))]), PLAIN);
    let rows = rows(&text, "random");
    assert_eq!(rows.len(), 15, "two in a row");
    assert_eq!(rows[1], "    3 S     ■ ■");
    // Each block once, whatever the row [STP-3].
    let blocks = rows.iter().flat_map(|row| row.chars()).filter(|&sign| sign == '■').count();
    assert_eq!(blocks, 30, "[STP-3]");
    assert!(text.contains("a row is"), "{text}");
}

#[test]
fn blocks_that_have_little_room_stand_side_by_side_and_gaps_are_cut() {
    let text = drawn(&distant(), PLAIN);
    let rows = rows(&text, "max");
    assert!(rows[0].ends_with("1 R □■■■■□□□□□□□□□□□□□□□□□□□□□□□□□□□┆"), "{text}");
    assert!(
        rows[1].ends_with("2 R                                 ┆■■■■□□□□□□□□□□□□□□□□□□□□□□□□□□□□")
    );
    assert!(text.contains("4,000     4,010"), "each segment says where it begins: {text}");
    assert!(text.contains("700 %"), "{text}");
}

#[test]
fn thousands_of_requests_are_a_few_rows_and_none_is_left_out() {
    let text = drawn(&long(), PLAIN);
    assert!(text.lines().count() < 60, "{text}");
    let rows = rows(&text, "willneed");
    assert_eq!(rows.len(), ROWS_FOLDED);
    assert!(rows[0].starts_with("     1 R █"), "{text}");
    assert!(rows[15].starts_with("30,001 R"), "{text}");
    // Down the diagonal: where a row ends, the next one continues.
    let column = |row: &str| row.chars().position(|sign| "░▒▓█".contains(sign)).unwrap();
    assert!(rows.windows(2).all(|pair| column(pair[0]) <= column(pair[1])), "{text}");
    assert!(column(rows[0]) < column(rows[15]));
    let flowing = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flowing.contains("a column is") && flowing.contains("several requests"), "{text}");
}

#[test]
fn the_table_has_a_line_for_each_strategy() {
    let text = drawn(&neighbours(), PLAIN);
    let line = |start: &str| text.lines().rfind(|line| line.starts_with(start)).unwrap();
    let cells = |start: &str| line(start).split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(cells("willneed "), "willneed 6 8.0 KiB 48.0 KiB 0 % 0 % 2 738 µs");
    assert_eq!(cells("adaptive "), "adaptive 2 32.0 KiB 64.0 KiB 33 % 0 % – 246 µs");
    assert!(text.starts_with(
        "1,3,2,6,4,9: 6 blocks of 8KiB\non nvme (an NVMe drive); readahead 128KiB, Linux 6.18\n"
    ));
}

#[test]
fn what_did_not_reach_the_disk_is_said() {
    let text = drawn(&explained("7", vec![(Strategy::Adaptive, Vec::new())]), PLAIN);
    assert!(text.contains("no request arrived at the disk"), "{text}");
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    for sample in samples() {
        for width in [10, WIDTH_MIN, 41, 60, 79, 80, 132, 250] {
            for line in drawn(&sample, Look { width, ..PLAIN }).lines() {
                let columns = line.chars().count();
                assert!(columns <= width.max(WIDTH_MIN), "[STP-1] {width}: {columns}: {line}");
            }
        }
    }
}

#[test]
fn colour_is_written_only_on_request_and_ascii_is_ascii() {
    for sample in samples() {
        let plain = drawn(&sample, PLAIN);
        assert!(!plain.contains('\u{1b}'), "[STP-2]");
        let ascii = drawn(&sample, Look { ascii: true, ..PLAIN });
        assert!(ascii.is_ascii(), "[STP-2] {ascii}");
        let coloured = drawn(&sample, Look { colour: true, ..PLAIN });
        assert!(coloured.contains("\u{1b}["), "{coloured}");
        // The same text under the colours.
        let mut bare = String::new();
        let mut rest = coloured.as_str();
        while let Some((before, after)) = rest.split_once('\u{1b}') {
            bare.push_str(before);
            rest = after.split_once('m').unwrap().1;
        }
        let trimmed = |text: &str| -> Vec<String> {
            text.lines().map(|line| line.trim_end().to_owned()).collect()
        };
        assert_eq!(trimmed(&(bare + rest)), trimmed(&plain), "[STP-2]");
    }
}
