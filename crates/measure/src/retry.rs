//! Retries of operations that fail while something is busy for a moment.

use std::time::{Duration, Instant};

/// How long and how often a busy operation is retried.
const PATIENCE: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(50);

/// Retries until it succeeds, the time limit is over, or an error is not temporary.
pub(crate) fn retry_with_backoff<T, E>(
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
