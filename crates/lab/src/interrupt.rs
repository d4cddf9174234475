//! Ctrl-C: noticed between two requests, so that everything on the way out is ordinary.
//!
//! The working file has no name from the moment it is made (where the system allows that), so
//! even a kill leaves nothing; stopping in order also drains the requests in flight.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;

/// The run was interrupted by the user.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("interrupted")]
pub struct Interrupted;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// From now on SIGINT, SIGTERM and SIGHUP ask the run to stop; a second one ends it at once.
///
/// # Errors
/// When the system refuses the handler.
pub fn install() -> anyhow::Result<()> {
    static INSTALLED: OnceLock<()> = OnceLock::new();
    if INSTALLED.set(()).is_err() {
        return Ok(());
    }
    ctrlc::set_handler(|| {
        if INTERRUPTED.swap(true, Ordering::SeqCst) {
            std::process::exit(130);
        }
    })
    .context("cannot listen for Ctrl-C")
}

/// `Err(Interrupted)` once the user has asked to stop.
///
/// # Errors
/// [`Interrupted`].
pub fn check() -> Result<(), Interrupted> {
    if INTERRUPTED.load(Ordering::Relaxed) { Err(Interrupted) } else { Ok(()) }
}
