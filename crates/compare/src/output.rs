//! What a run leaves: the tables on standard output, and the records.

use std::path::Path;

use forebay_measure::output;
use serde::Serialize;

/// Prints `tables`, and saves `report` in the file `json`, if requested; it prints them even if that fails.
///
/// # Errors
/// The system's error.
pub(crate) fn finish(
    report: &impl Serialize,
    tables: &str,
    json: Option<&Path>,
) -> anyhow::Result<()> {
    let saved = json
        .map_or(Ok(()), |path| output::save(path, &(serde_json::to_string_pretty(report)? + "\n")));
    output::print(tables).and(saved)
}

pub(crate) fn version() -> String {
    match option_env!("FOREBAY_COMMIT") {
        Some(commit) => format!("{} ({commit})", env!("CARGO_PKG_VERSION")),
        None => env!("CARGO_PKG_VERSION").to_owned(),
    }
}
