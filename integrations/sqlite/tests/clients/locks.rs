//! A process keeps its locks until it releases them, whatever else it opens, reads and closes.

use crate::client::{OPEN, python};

/// A process that closes any descriptor of a file loses its POSIX locks on it. So a VFS that opened and closed its own
/// descriptor would let another process in here.
#[test]
fn locks_are_kept_whatever_is_locked_and_closed() {
    let test = "locks_are_kept";
    let directory = tempfile::tempdir().unwrap();
    let Some(python) = python(test) else { return };
    let Some(python) = python.with_slow_reads(test, directory.path()) else { return };
    let script = format!("{OPEN}{}{}", crate::COLD, include_str!("locks.py"));
    let says = python.python(&script, &directory.path().join("data.db"));
    assert!(says.trim().parse::<u32>().unwrap() > 0, "nothing was looked at");
}
