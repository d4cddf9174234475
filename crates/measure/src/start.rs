//! What every program does first.

use crate::{interrupt, output, undo_log};

/// Handles Ctrl-C, and undoes what killed runs have left: it would affect a measurement.
///
/// # Errors
/// The signals cannot be handled.
pub fn start() -> anyhow::Result<()> {
    interrupt::install()?;
    for undone in undo_log::recover() {
        output::note(&undone);
    }
    Ok(())
}
