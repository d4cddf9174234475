//! Ctrl-C: noticed between two measurements and within one, so that the run unwinds in the ordinary way.
//!
//! The working files have names, because peers open them by path. Their directory is removed
//! when the run ends in order; a second Ctrl-C, which does not wait for that, removes it too.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};

/// The run was interrupted by the user.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("interrupted")]
pub(crate) struct Interrupted;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// The directory that a second Ctrl-C removes.
static DOOMED: Mutex<Option<PathBuf>> = Mutex::new(None);

/// From now on SIGINT, SIGTERM and SIGHUP (unless it was ignored) ask the run to stop; a second one ends it at once.
///
/// # Errors
/// The system refuses the handler.
pub(crate) fn install() -> anyhow::Result<()> {
    forebay_measure::interrupt::on_signals(|| {
        if INTERRUPTED.swap(true, Ordering::SeqCst) {
            if let Some(path) = &*DOOMED.lock().unwrap_or_else(PoisonError::into_inner) {
                let _ = std::fs::remove_dir_all(path);
            }
            std::process::exit(130);
        }
    })
}

/// A second Ctrl-C removes the directory `path`.
pub(crate) fn removes(path: &Path) {
    *DOOMED.lock().unwrap_or_else(PoisonError::into_inner) = Some(path.to_path_buf());
}

/// `Err(Interrupted)` once the user has asked to stop.
///
/// # Errors
/// [`Interrupted`].
pub(crate) fn check() -> Result<(), Interrupted> {
    if INTERRUPTED.load(Ordering::Relaxed) { Err(Interrupted) } else { Ok(()) }
}
