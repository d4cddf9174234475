//! Patterns as users type them, and the errors when they mistype them.

use super::*;

fn parse(text: &str) -> Result<Pattern, String> {
    Pattern::parse(text, 7).map_err(|error| format!("{error:#}"))
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
    assert_eq!(pattern.wanted.len(), 100);
    assert!(pattern.blocks.iter().all(|block| (1000..1200).contains(block)));
    assert!(!pattern.blocks.is_sorted());
    assert_eq!(parse("random:100/200@1000").unwrap(), pattern);
    let other = Pattern::parse("random:100/200@1000", 8).unwrap();
    assert_ne!(other.blocks, pattern.blocks);
    assert_eq!(blocks("random:5/5").len(), 5);
}

#[test]
fn shuffled_reads_ranges_in_turn_and_keeps_each_block_in_its_window() {
    let pattern = parse("shuffled:4x1000/24").unwrap();
    assert_eq!((pattern.blocks.len(), pattern.wanted.len()), (4000, 4000));
    for (at, &block) in pattern.blocks.iter().enumerate() {
        let (range, turn) = (at as u32 % 4, at as u32 / 4);
        let within = block - range * 2024;
        assert_eq!(within / 24, turn / 24, "{at}: {block}");
    }
    // Windows of one block: two scans in turn, without randomness.
    let scans = parse("shuffled:2x3/1").unwrap();
    assert_eq!((scans.blocks, scans.seed), (vec![0, 1027, 1, 1028, 2, 1029], None));
}

#[test]
fn a_file_has_items_on_its_lines() {
    let scratch = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = scratch.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let list = file("list", "4\n\n 10-12,  # a remark\n# another\n5, 6\n");
    assert_eq!(blocks(&format!("@{list}")), [4, 10, 11, 12, 5, 6]);
    assert_eq!(blocks(&format!("1, @{list}")), [1, 4, 10, 11, 12, 5, 6]);
    let message = |path: String| parse(&format!("1,@{path}")).unwrap_err();
    let bad = message(file("bad", "1\n2\n3-x\n"));
    assert!(bad.contains("bad, line 3: \"3-x\": expected the last block"), "{bad}");
    let outer = message(file("outer", "@list"));
    assert!(outer.contains("line 1: \"@list\": a file of blocks cannot name another"), "{outer}");
    let empty = parse(&format!("@{}", file("empty", "# nothing\n"))).unwrap_err();
    assert!(empty.contains("there is no block in"), "[EXP-1] {empty}");
    assert!(message("/no/where".to_owned()).contains("/no/where cannot be read: "));
}

#[test]
fn an_error_names_the_item() {
    for (text, shown) in [
        ("1,3,x,6", "PATTERN: \"x\": expected a block (7), a range"),
        ("1,,2", "PATTERN: \"\": expected a block"),
        ("", "expected a block"),
        ("5-", "\"5-\": expected the last block"),
        ("99999999999", "at most 4294967295"),
        ("zigzag:3", "\"zigzag:3\": there are sequential, random and shuffled"),
        ("random:0", "at least 1"),
        ("random:9/4", "\"random:9/4\": only 4 blocks are there to choose from"),
        ("shuffled:4x1000", "expected RANGESxBLOCKS/WINDOW, such as 4x1000/24"),
        ("shuffled:4/24", "expected RANGESxBLOCKS/WINDOW, such as 4x1000/24"),
        ("sequential:10@4294967290", "go beyond 4294967295"),
        ("0-4000000000", "at most 1000000 blocks"),
        ("-5", "expected the first block"),
        ("ä,1", "expected a block (7)"),
    ] {
        let message = parse(text).unwrap_err();
        assert!(message.contains(shown), "{text}: {message}");
    }
}

#[test]
fn no_pattern_is_too_long() {
    assert_eq!(blocks("0-999999").len(), BLOCKS_MAX, "[EXP-1]");
    assert!(parse("0-999999,1").is_err(), "[EXP-1]");
}
