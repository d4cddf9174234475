//! What a run leaves: the records, and the tables on standard output.

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::Serialize;

use forebay_measure::bad_input;

/// Checks the file before an hour of measuring and not only after it.
///
/// # Errors
/// [`BadInput`](forebay_measure::BadInput) if `json` cannot be written.
pub(crate) fn check(json: &Path) -> anyhow::Result<()> {
    if json.is_dir() {
        bad_input!("{} is a directory; name a file with --json", json.display());
    }
    if json.is_file() {
        if let Err(error) = std::fs::OpenOptions::new().append(true).open(json) {
            bad_input!("cannot write {}: {error}; name another file with --json", json.display());
        }
        return Ok(());
    }
    let parent = json.parent().filter(|path| !path.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    if let Err(error) = tempfile::tempfile_in(parent) {
        bad_input!(
            "cannot write {}: {}; name another file with --json",
            json.display(),
            error.kind()
        );
    }
    Ok(())
}

/// Writes `report` to `json`, if requested, and prints its `tables`; it prints them even if `json` cannot be written.
///
/// # Errors
/// The system's error.
pub(crate) fn write(
    report: &impl Serialize,
    tables: &str,
    json: Option<&PathBuf>,
) -> anyhow::Result<()> {
    let written = json.map_or(Ok(()), |path| {
        let text = serde_json::to_string_pretty(report)? + "\n";
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    });
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(tables.as_bytes()).and_then(|()| stdout.flush()) {
        // A reader that has exited, such as `head`, is no error.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(error).context("cannot print the tables")
        }
        _ => written,
    }
}
