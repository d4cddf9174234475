//! Labels: what a group of records has in common, in words, and the order of known names.
//!
//! Tables and headings of several experiments name the same settings; they are worded here once. A
//! setting that a later version adds is named too, so that no two different cells are ever taken
//! for one.
//!
//! Worked example: cache `direct`, state `cold`, readahead 131072 and an unheard-of `stride` of 4
//! are `cold, direct, kernel readahead 128 KiB, stride 4`.
//!
//! Invariants:  [LAB-1] cells that differ in any setting but the axes of their table differ in label

use serde_json::Value;

use super::{Record, numbers};

/// Key of the block device's readahead in a cell.
const READAHEAD: &str = "device_readahead_bytes";

/// The kernel's readahead in which a cell was measured: `kernel readahead 128 KiB`.
fn readahead(record: &Record) -> String {
    let size = match record.cell.get(READAHEAD) {
        None | Some(Value::Null) => "unknown".to_owned(),
        Some(Value::Number(count)) => match count.as_u64() {
            Some(0) => "0".to_owned(),
            Some(bytes) => numbers::bytes(bytes).replace(".0 ", " "),
            None => count.to_string(),
        },
        Some(other) => numbers::value(other),
    };
    format!("kernel readahead {size}")
}

/// The settings `first` of a cell without their names, the readahead, then every other setting
/// with its name, except the `axes` of the table [LAB-1].
pub(crate) fn place(record: &Record, first: &[&str], axes: &[&str]) -> String {
    let mut words = Vec::new();
    for key in first {
        match record.cell.get(*key) {
            None | Some(Value::Null) => {}
            Some(value) => words.push(numbers::value(value)),
        }
    }
    words.push(readahead(record));
    for (key, value) in &record.cell {
        let key = key.as_str();
        if key != READAHEAD && !first.contains(&key) && !axes.contains(&key) {
            words.push(format!("{key} {}", numbers::value(value)));
        }
    }
    words.join(", ")
}

/// The readahead as a key for sorting: unknown ones first.
pub(crate) fn readahead_bytes(record: &Record) -> Option<u64> {
    record.cell_number(READAHEAD)
}

/// Where `name` stands in `order`; names that it lacks come after all others.
pub(crate) fn rank(order: &[&str], name: &str) -> usize {
    order.iter().position(|known| *known == name).unwrap_or(order.len())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::sample::record;
    use super::*;

    #[test]
    fn a_place_names_every_setting_but_the_axes() {
        let mut of = record("uring", "direct", 0, None, &[]);
        of.cell.insert("cache_state".into(), json!("cold"));
        of.cell.insert("device_readahead_bytes".into(), json!(131_072));
        let label = |of: &Record| place(of, &["cache_state", "cache"], &["depth", "backend"]);
        assert_eq!(label(&of), "cold, direct, kernel readahead 128 KiB");
        of.cell.insert("stride".into(), json!(4));
        assert_eq!(label(&of), "cold, direct, kernel readahead 128 KiB, stride 4", "[LAB-1]");
    }

    #[test]
    fn a_readahead_nobody_knows_is_unknown_and_none_is_zero() {
        let mut of = record("", "", 0, None, &[]);
        for (value, expected) in [
            (json!(null), "unknown"),
            (json!(0), "0"),
            (json!(8 << 20), "8 MiB"),
            (json!(-1), "-1"),
            (json!(1.5), "1.5"),
            (json!({"a": []}), "{\"a\":[]}"),
        ] {
            of.cell.insert(READAHEAD.into(), value);
            assert_eq!(readahead(&of), format!("kernel readahead {expected}"));
        }
        of.cell.remove(READAHEAD);
        assert_eq!(readahead(&of), "kernel readahead unknown");
    }

    #[test]
    fn unheard_of_names_come_last() {
        assert_eq!(["b", "a", "z"].map(|name| rank(&["a", "b"], name)), [1, 0, 2]);
    }
}
