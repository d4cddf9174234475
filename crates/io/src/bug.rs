//! A bug for the tests to find, planted at run time: only in builds with the cfg `forebay_bug`.
//!
//! A suite that never fails proves little. `cargo xtask bugs` builds the suite once with this module and runs it once
//! for each bug. Under that cfg, the place that has a bug contains the wrong behaviour:
//! ```text
//! #[cfg(forebay_bug)]
//! if forebay_io::bug::is_planted("skip_log_flush") {
//!     return Ok(());
//! }
//! ```
//! Other builds contain no trace of it. The suite's program plants the bug and may read its environment to do so; the
//! bug stays planted until the process ends.
//!
//! Concurrency: any thread may query at any time; a bug is planted before the work that it breaks.

use std::sync::OnceLock;

static PLANTED: OnceLock<String> = OnceLock::new();

/// Activates the bug called `name`.
///
/// # Panics
/// If a bug is already planted.
pub fn plant(name: &str) {
    assert_eq!(PLANTED.set(name.to_owned()), Ok(()), "one bug at a time");
}

/// Whether the bug called `name` is active.
#[must_use]
pub fn is_planted(name: &str) -> bool {
    PLANTED.get().is_some_and(|planted| planted == name)
}
