//! Patterns as people type them, and what they are told when they mistype them.

use super::*;

fn parse(text: &str) -> Result<Pattern, PatternError> {
    Pattern::parse(text, 7, |name| match name {
        "list" => Ok("4\n\n 10-12,  # a remark\n# another\n5, 6\n".to_owned()),
        "bad" => Ok("1\n2\n3-x\n".to_owned()),
        "outer" => Ok("@list".to_owned()),
        "empty" => Ok("# nothing\n".to_owned()),
        _ => Err(io::Error::from(io::ErrorKind::NotFound)),
    })
}

fn blocks(text: &str) -> Vec<u32> {
    parse(text).unwrap().blocks
}

#[test]
fn blocks_and_ranges_are_read_in_the_order_in_which_they_stand() {
    assert_eq!(blocks("1,3,2,6,4,9"), [1, 3, 2, 6, 4, 9]);
    assert_eq!(blocks(" 9 , 3 - 1 ,5-5"), [9, 3, 2, 1, 5]);
    assert_eq!(blocks("sequential:3,sequential:2@50"), [0, 1, 2, 50, 51]);
    assert_eq!(blocks("4294967295"), [u32::MAX]);
    assert_eq!(parse("7").unwrap().seed, None, "nothing random, no seed");
}

#[test]
fn random_blocks_are_different_ones_of_the_span_and_the_seed_repeats_them() {
    let pattern = parse("random:100/200@1000").unwrap();
    assert_eq!(pattern.seed, Some(7));
    assert_eq!(pattern.distinct().len(), 100);
    assert!(pattern.blocks.iter().all(|block| (1000..1200).contains(block)));
    assert!(!pattern.blocks.is_sorted());
    assert_eq!(parse("random:100/200@1000").unwrap(), pattern);
    let other = Pattern::parse("random:100/200@1000", 8, |_| unreachable!()).unwrap();
    assert_ne!(other.blocks, pattern.blocks);
    assert_eq!(blocks("random:5/5").len(), 5);
}

#[test]
fn shuffled_reads_ranges_in_turn_and_keeps_each_block_in_its_window() {
    let pattern = parse("shuffled:4x1000/24").unwrap();
    assert_eq!((pattern.blocks.len(), pattern.distinct().len()), (4000, 4000));
    for (at, &block) in pattern.blocks.iter().enumerate() {
        let (range, turn) = (at as u32 % 4, at as u32 / 4);
        let within = block - range * 2024;
        assert_eq!(within / 24, turn / 24, "{at}: {block}");
    }
    // Windows of one block: two scans in turn, and nothing random.
    let scans = parse("shuffled:2x3/1").unwrap();
    assert_eq!((scans.blocks, scans.seed), (vec![0, 1027, 1, 1028, 2, 1029], None));
}

#[test]
fn a_file_is_named_with_a_sign_or_without() {
    assert_eq!(blocks("@list"), [4, 10, 11, 12, 5, 6]);
    assert_eq!(blocks("list"), [4, 10, 11, 12, 5, 6]);
    assert_eq!(blocks("1,@list"), [1, 4, 10, 11, 12, 5, 6]);
}

#[test]
fn an_error_points_at_the_place() {
    for (text, shown) in [
        ("1,3,x,6", "expected a block (7), a range"),
        ("1,3,x,6", "  1,3,x,6\n      ^"),
        ("1,,2", "  1,,2\n    ^"),
        ("", "nothing stands here"),
        ("5-", "expected the last block, a number\n  5-\n    ^"),
        ("1,20-abc", "  1,20-abc\n       ^^^"),
        ("99999999999", "at most 4294967295\n  99999999999\n  ^^^^^^^^^^^"),
        ("zigzag:3", "there are sequential, random and shuffled\n  zigzag:3\n  ^^^^^^"),
        ("random:0", "at least 1\n  random:0\n         ^"),
        ("random:9/4", "only 4 blocks are there to choose from\n  random:9/4\n         ^"),
        ("shuffled:4x1000", "expected RANGESxBLOCKS/WINDOW"),
        (
            "shuffled:4/24",
            "expected RANGESxBLOCKS/WINDOW, such as 4x1000/24\n  shuffled:4/24\n           ^",
        ),
        ("sequential:10@4294967290", "go beyond 4294967295"),
        ("0-4000000000", "at most 1000000 blocks"),
        ("@nowhere", "cannot be read: "),
        ("1,@bad", "bad, line 3: expected the last block, a number\n  3-x\n    ^"),
        ("@outer", "outer, line 1: a file of blocks cannot name another"),
        ("@empty", "there is no block in it"),
        ("-5", "expected a block (7)"),
        ("ä,1", "expected a block (7)"),
        ("1,äöx", "  1,äöx\n    ^^^"),
        ("+5", "expected a block (7)"),
    ] {
        let told = parse(text).unwrap_err().to_string();
        assert!(told.contains(shown), "{text}: {told}");
    }
}

#[test]
fn a_long_line_is_shown_around_the_place() {
    let long = format!("{}q,{}1", "1,".repeat(500), "2,".repeat(500));
    let told = parse(&long).unwrap_err().to_string();
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines.len(), 3);
    assert!(lines[1].starts_with("  ...") && lines[1].ends_with("..."), "{told}");
    assert_eq!(lines[1].chars().nth(lines[2].len() - 1), Some('q'), "{told}");
}

#[test]
fn no_pattern_is_empty_or_too_long() {
    assert_eq!(blocks("0-999999").len(), BLOCKS_MAX, "[EXP-1]");
    assert!(parse("0-999999,1").is_err(), "[EXP-1]");
    assert!(parse("@empty").is_err(), "[EXP-1]");
}
