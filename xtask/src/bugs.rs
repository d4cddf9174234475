//! `cargo xtask bugs`: tests of the tests. Each known bug is planted, and the power cuts have to find it.
//!
//! A bug is one place in the code that asks, under `#[cfg(forebay_bug)]`, whether it is planted. The suite is
//! built once with that cfg and run once for each bug, whose name it takes from its environment; a run that
//! passes is a failure. Only our own crates are built anew: the cfg is given by a wrapper around rustc
//! (see [`crate::wrapper`]).
//!
//! Failure: the first bug that is not found ends the run.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use clap::Args;

use crate::{workspace, wrapper};

/// Power cuts for each bug: several times what it takes to find the shyest.
const CUTS: u32 = 1600;

/// The options of `cargo xtask bugs`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Plant only this bug (may be given several times)
    #[arg(long, value_name = "BUG")]
    only: Vec<String>,
    /// Cut the power so many times at most before a bug counts as not found
    #[arg(long, default_value_t = CUTS)]
    cuts: u32,
    /// With these choices instead of the suite's own
    #[arg(long)]
    seed: Option<u64>,
}

impl Default for Options {
    fn default() -> Options {
        Options { only: Vec::new(), cuts: CUTS, seed: None }
    }
}

/// The bugs, by the names at their places in the code.
pub(crate) const BUGS: &[&str] = &[
    "skip_log_flush",
    "skip_sync",
    "skip_directory_sync",
    "ignore_torn_page",
    "retry_failed_sync",
];

/// Plants the chosen bugs, one after the other.
///
/// # Errors
/// A bug is not found, the suite does not compile, or `--only` names none.
pub(crate) fn run(root: &Path, options: &Options) -> Result<()> {
    if let Some(unknown) = options.only.iter().find(|name| !BUGS.contains(&name.as_str())) {
        bail!("no bug `{unknown}`; the bugs are {}", BUGS.join(", "));
    }
    let target = workspace::metadata(root)?.target_directory.into_std_path_buf();
    let status = build(root, &target)?.status().context("cannot run cargo")?;
    if !status.success() {
        bail!("the power cuts do not compile with bugs");
    }
    let chosen = |bug: &&&str| options.only.is_empty() || options.only.iter().any(|it| it == **bug);
    for bug in BUGS.iter().filter(chosen) {
        let start = Instant::now();
        let Some(said) = find(bug, root, &target, options)? else {
            bail!("{bug} was planted, and {} power cuts did not find it", options.cuts);
        };
        println!("{bug}: found in {:.1} s: {said}", start.elapsed().as_secs_f64());
    }
    Ok(())
}

/// Builds the suite with all bugs in it.
///
/// # Errors
/// The wrapper cannot be written.
pub(crate) fn build(root: &Path, target: &Path) -> Result<Command> {
    let mut command = power(root, target)?;
    command.arg("--no-run");
    Ok(command)
}

fn power(root: &Path, target: &Path) -> Result<Command> {
    let mut command = workspace::cargo(root);
    // Of the whole workspace, so that dependencies have the features that they have been built with.
    command.args(["test", "--quiet", "--workspace", "--test", "power"]);
    wrapper::with_cfg(&mut command, target, "forebay_bug")?;
    command.stdin(Stdio::null());
    Ok(command)
}

/// Runs the suite. Gives the first promise that was broken, if one was.
fn find(bug: &str, root: &Path, target: &Path, options: &Options) -> Result<Option<String>> {
    // Whoever finds a bug goes without clearing up.
    let scratch = tempfile::Builder::new().prefix("forebay-bugs-").tempdir()?;
    let mut command = power(root, target)?;
    command.env("FOREBAY_BUG", bug).env("FOREBAY_POWER_CUTS", options.cuts.to_string());
    command.env("TMPDIR", scratch.path());
    if let Some(seed) = options.seed {
        command.env("FOREBAY_POWER_SEED", seed.to_string());
    }
    let output = command.output().context("cannot run cargo")?;
    if output.status.success() {
        return Ok(None);
    }
    let text = String::from_utf8_lossy(&output.stdout);
    // In the middle of a line when a thread of the suite was writing one.
    if let Some(at) = text.find("found by ") {
        return Ok(text[at..].lines().next().map(str::to_owned));
    }
    // It failed otherwise: a panic of the code with its bug, say, or nothing that has to do with it.
    bail!(
        "with {bug} planted the suite ended without a broken promise:\n{text}{}",
        String::from_utf8_lossy(&output.stderr)
    )
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn every_bug_is_planted_at_one_place_that_other_builds_leave_out() {
        let root = workspace::root().unwrap();
        let sources = ["crates/io/src", "crates/pool/src"].map(|it| root.join(it));
        let mut text = String::new();
        for directory in &sources {
            read_all(directory, &mut text);
        }
        // Comments aside, such as the example in the module of bugs.
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
