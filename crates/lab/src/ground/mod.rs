//! The ground on which experiments measure: what is put under them, and what is put back.
//!
//! A run may change things outside itself: a device's readahead, a directory on the disk to be
//! measured, a filesystem that is made and mounted for the occasion. Guards in the process undo all
//! of it on every way out that a process has a say in; a [`ledger`] on disk knows of it also when
//! the process had none.

pub mod filesystem;
pub mod ledger;
pub mod on;
mod program;
pub(crate) mod tracefs;

use std::time::{Duration, Instant};

/// How long what is busy is tried again, and how often.
const PATIENCE: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(50);

/// Tries until it succeeds, patience ends, or an error is not one that passes.
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
