//! The environment in which experiments measure: what a run sets up, and what it restores.
//!
//! A run may change things outside itself: a device's readahead, a directory on the disk under
//! test, a filesystem that is made and mounted for the run. Guards in the process undo all
//! of it on every exit that the process controls; a [`ledger`] on disk (an undo log) covers the other
//! exits, such as a kill.

pub mod filesystem;
pub mod ledger;
pub mod on;
mod program;
pub(crate) mod tracefs;

use std::time::{Duration, Instant};

/// How long and how often a busy operation is retried.
const PATIENCE: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(50);

/// Retries until it succeeds, the time limit is over, or an error is not temporary.
fn patiently<T, E>(
    mut attempt: impl FnMut() -> Result<T, E>,
    passes: impl Fn(&E) -> bool,
) -> Result<T, E> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match attempt() {
            Err(error) if passes(&error) && Instant::now() < deadline => std::thread::sleep(PAUSE),
            result => return result,
        }
    }
}
