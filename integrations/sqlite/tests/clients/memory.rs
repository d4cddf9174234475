//! A process that can allocate no more memory.

use crate::client::{OPEN, python};

#[test]
fn where_memory_ends_queries_are_answered_as_without_it() {
    let test = "where_memory_ends";
    let directory = tempfile::tempdir().unwrap();
    let Some(python) = python(test) else { return };
    let Some(python) = python.with_slow_reads(test, directory.path()) else { return };
    let script = format!("{OPEN}{}{}", crate::COLD, include_str!("memory.py"));
    let says = python.python(&script, &directory.path().join("data.db"));
    let (looked_ahead, gave_up) = says.trim().split_once(' ').unwrap();
    assert!(looked_ahead.parse::<u32>().unwrap() > 0, "some have enough: {says}");
    assert!(gave_up.parse::<u32>().unwrap() > 0, "some have not: {says}");
}
