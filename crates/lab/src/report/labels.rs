//! Labels: what a group of records has in common, in words, and the order of known names.
//!
//! Tables and headings of several experiments name the same settings; they are worded here once. A
//! setting that a later version adds is named too, so that no two different cells are ever taken
//! for one.
//!
//! Worked example: to a heading that has all but filesystem `xfs` and an unheard-of `stride` of 4,
//! `, xfs, stride 4` is added.
//!
//! Invariants:  [LAB-1] cells that differ in any setting but the axes of their table differ in label

use serde_json::Value;

use super::{Record, numbers};

/// What to add to a heading that has the settings `known`: every other one, such as `, xfs, 8 GiB apart`
/// [LAB-1].
pub(crate) fn others(record: &Record, known: &[&str]) -> String {
    let others = record
        .cell
        .iter()
        .filter(|(key, value)| !known.contains(&key.as_str()) && !matches!(value, Value::Null));
    others
        .map(|(key, value)| match key.as_str() {
            "filesystem" | "profile" => format!(", {}", numbers::value(value)),
            "apart_bytes" => {
                let bytes = value.as_u64().map_or(numbers::value(value), numbers::bytes);
                format!(", {} apart", bytes.replace(".0 ", " "))
            }
            _ => format!(", {key} {}", numbers::value(value)),
        })
        .collect()
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
    fn every_setting_that_a_heading_does_not_know_is_added() {
        let mut of = record("uring", "direct", 0, None, &[]);
        of.cell.insert("stride".into(), json!(4));
        of.cell.insert("apart_bytes".into(), json!(8 << 20));
        let label = others(&of, &["depth", "backend", "cache"]);
        assert_eq!(label, ", stride 4, 8 MiB apart", "[LAB-1]");
    }

    #[test]
    fn unheard_of_names_come_last() {
        assert_eq!(["b", "a", "z"].map(|name| rank(&["a", "b"], name)), [1, 0, 2]);
    }
}
