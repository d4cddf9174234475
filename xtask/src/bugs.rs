//! `cargo xtask bugs`: tests of the tests. Each known bug is planted, and the power cuts have to find it.
//!
//! A bug is one place in the code that checks, under `#[cfg(forebay_bug)]`, whether it is planted. The suite is
//! built once with that cfg and run once for each bug, whose name it takes from its environment; a run that
//! passes is a failure. Only the workspace's crates are built again: a wrapper around rustc adds the cfg
//! (see [`crate::wrapper`]).
//!
//! Failure: the first bug that is not found ends the run.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use cargo_metadata::Metadata;

use crate::{workspace, wrapper};

/// Power cuts for each bug: several times the number that finds the rarest; and for one that those have missed, as the
/// order of threads may hide one on a busy machine.
const CUTS: [&str; 2] = ["1600", "16000"];

/// The bugs, by the names at their places in the code.
pub(crate) const BUGS: [&str; 6] = [
    "skip_log_flush",
    "ignore_end_of_log",
    "skip_sync",
    "skip_directory_sync",
    "ignore_torn_page",
    "retry_failed_sync",
];

/// Plants the bugs that `only` names, or all, one after the other.
///
/// # Errors
/// A bug is not found, or the suite does not compile.
pub(crate) fn run(workspace: &Metadata, only: &[String]) -> Result<()> {
    let status = suite(workspace)?.arg("--no-run").status().context("cannot run cargo")?;
    ensure!(status.success(), "the power cuts do not compile with bugs");
    let chosen = |bug: &&str| only.is_empty() || only.iter().any(|name| name == bug);
    for bug in BUGS.into_iter().filter(chosen) {
        let start = Instant::now();
        let found = CUTS.iter().find_map(|cuts| find(bug, cuts, workspace).transpose());
        let Some(said) = found.transpose()? else {
            bail!("{bug} was planted, and {} power cuts did not find it", CUTS.join(" and "))
        };
        println!("{bug}: found in {:.1} s: {said}", start.elapsed().as_secs_f64());
    }
    Ok(())
}

/// The suite, with all bugs in it.
///
/// # Errors
/// The wrapper cannot be written.
pub(crate) fn suite(workspace: &Metadata) -> Result<Command> {
    let mut command = workspace::cargo(workspace);
    // Of the whole workspace, so that dependencies have the features that they have been built with.
    command.args(["test", "--quiet", "--workspace", "--test", "power"]);
    command.env(wrapper::VARIABLE, wrapper::for_cfg(workspace, "forebay_bug")?);
    Ok(command)
}

/// Runs the suite with `bug` planted. Returns the first promise that was broken, if one was.
fn find(bug: &str, cuts: &str, workspace: &Metadata) -> Result<Option<String>> {
    // A process that finds a bug exits without cleaning up.
    let scratch = tempfile::Builder::new().prefix("forebay-bugs-").tempdir()?;
    let mut command = suite(workspace)?;
    command.env("FOREBAY_BUG", bug).env("FOREBAY_POWER_CUTS", cuts).env("TMPDIR", scratch.path());
    let output = command.output().context("cannot run cargo")?;
    if output.status.success() {
        return Ok(None);
    }
    let text = String::from_utf8_lossy(&output.stdout);
    // In the middle of a line when a thread of the suite was writing one.
    if let Some(said) = text.find("found by ").and_then(|at| text[at..].lines().next()) {
        return Ok(Some(said.to_owned()));
    }
    // It failed otherwise: a panic of the code with its bug, for example, or an unrelated failure.
    let errors = String::from_utf8_lossy(&output.stderr);
    bail!("with {bug} planted the suite ended without a broken promise:\n{text}{errors}")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn every_bug_is_planted_at_one_place_that_other_builds_leave_out() {
        let root = workspace::find().unwrap().workspace_root;
        let mut text = String::new();
        for directory in ["crates/io/src", "crates/pool/src"] {
            read_all(root.join(directory).as_std_path(), &mut text);
        }
        // Comments are skipped, such as the example in the module of bugs.
        let code: Vec<&str> =
            text.lines().map(str::trim).filter(|line| !line.starts_with("//")).collect();
        for bug in BUGS {
            let here = |line: &&&str| line.contains(&format!("is_planted(\"{bug}\")"));
            assert_eq!(code.iter().filter(here).count(), 1, "{bug}");
        }
        let asked = code.iter().filter(|line| line.contains("is_planted(\"")).count();
        assert_eq!(asked, BUGS.len(), "a bug that is not in the list");
        for (index, line) in code.iter().enumerate() {
            let ours = line.contains("bug::is_planted");
            let marked = code[index.saturating_sub(2)..index].contains(&"#[cfg(forebay_bug)]");
            assert!(!ours || marked, "not only under the cfg: {line}");
        }
    }

    fn read_all(directory: &Path, text: &mut String) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                read_all(&path, text);
            } else {
                text.push_str(&fs::read_to_string(path).unwrap());
            }
        }
    }
}
