//! One bug that the tests have to find, planted at run time: only in builds with the cfg `forebay_bug`.
//!
//! A suite that never fails proves little; `cargo xtask bugs` builds it once with this module in it and runs it
//! once for each bug. A place that has a bug says, under that cfg, what goes wrong while the bug is planted:
//! ```text
//! #[cfg(forebay_bug)]
//! if forebay_io::bug::is_planted("skip_log_flush") {
//!     return Ok(());
//! }
//! ```
//! No other build has a trace of it. What plants is the suite's program, which may read its environment; a bug
//! stays planted until the process ends.
//!
//! Concurrency: anyone asks at any time; planting comes before the work that is to go wrong.

use std::sync::OnceLock;

static PLANTED: OnceLock<String> = OnceLock::new();

/// From now on the place called `name` goes wrong.
///
/// # Panics
/// When a bug is planted already.
pub fn plant(name: &str) {
    assert_eq!(PLANTED.set(name.to_owned()), Ok(()), "one bug at a time");
}

/// Whether the place called `name` is to go wrong.
#[must_use]
pub fn is_planted(name: &str) -> bool {
    PLANTED.get().is_some_and(|planted| planted == name)
}
