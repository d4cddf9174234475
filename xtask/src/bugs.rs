//! `cargo xtask bugs`: tests of the tests. Each known bug is planted, and the power cuts have to find it.
//!
//! A bug is one place in the code that looks at `cfg!(forebay_bug = "name")`. It is built with that cfg, and
//! then a suite that passes is a failure. Only our own crates are built anew for each bug: the cfg is given by a
//! wrapper around rustc that cargo uses for the workspace's members alone, each bug with a wrapper of its own
//! path, by which cargo tells their artifacts apart. (RUSTFLAGS would build every dependency for every bug.)
//!
//! Failure: the first bug that is not found ends the run; so does one that does not compile.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use clap::Args;

use crate::workspace;

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

/// The bugs; Cargo.toml has the same names.
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
/// A bug is not found, or `--only` names none.
pub(crate) fn run(root: &Path, options: &Options) -> Result<()> {
    if let Some(unknown) = options.only.iter().find(|name| !BUGS.contains(&name.as_str())) {
        bail!("no bug `{unknown}`; the bugs are {}", BUGS.join(", "));
    }
    let target = workspace::metadata(root)?.target_directory.into_std_path_buf();
    let chosen = |bug: &&&str| options.only.is_empty() || options.only.iter().any(|it| it == **bug);
    for bug in BUGS.iter().filter(chosen) {
        let start = Instant::now();
        let wrapper = wrapper(&target, bug)?;
        build(root, &wrapper).with_context(|| format!("with {bug} planted"))?;
        let said = find(root, &wrapper, options)?;
        let Some(said) = said else {
            bail!("{bug} was planted, and {} power cuts did not find it", options.cuts);
        };
        println!("{bug}: found in {:.1} s: {said}", start.elapsed().as_secs_f64());
    }
    Ok(())
}

/// A program that runs rustc with the bug's cfg.
fn wrapper(target: &Path, bug: &str) -> Result<PathBuf> {
    let directory = target.join("bugs");
    fs::create_dir_all(&directory).context("cannot create the bugs directory in target")?;
    let path = directory.join(bug);
    let script = format!("#!/bin/sh\nexec \"$@\" --cfg 'forebay_bug=\"{bug}\"'\n");
    fs::write(&path, script).with_context(|| format!("cannot write {}", path.display()))?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))
        .with_context(|| format!("cannot make {} a program", path.display()))?;
    Ok(path)
}

fn power(root: &Path, wrapper: &Path) -> Command {
    let mut command = workspace::cargo(root);
    command.args(["test", "--quiet", "-p", "forebay", "--test", "power"]);
    command.env("RUSTC_WORKSPACE_WRAPPER", wrapper).stdin(Stdio::null());
    command
}

fn build(root: &Path, wrapper: &Path) -> Result<()> {
    let status = power(root, wrapper).arg("--no-run").status().context("cannot run cargo")?;
    if status.success() { Ok(()) } else { bail!("the power cuts do not compile") }
}

/// Runs the suite. Gives the first promise that was broken, if one was.
fn find(root: &Path, wrapper: &Path, options: &Options) -> Result<Option<String>> {
    let mut command = power(root, wrapper);
    command.env("FOREBAY_POWER_CUTS", options.cuts.to_string());
    if let Some(seed) = options.seed {
        command.env("FOREBAY_POWER_SEED", seed.to_string());
    }
    let output = command.output().context("cannot run cargo")?;
    if output.status.success() {
        return Ok(None);
    }
    let text = String::from_utf8_lossy(&output.stdout);
    if let Some(line) = text.lines().find(|line| line.starts_with("life ")) {
        return Ok(Some(line.to_owned()));
    }
    // It failed otherwise: a panic of the code with its bug, say, or nothing that has to do with it.
    bail!(
        "the suite ended without a broken promise:\n{text}{}",
        String::from_utf8_lossy(&output.stderr)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bug_is_declared_and_planted_at_one_place() {
        let root = workspace::root().unwrap();
        let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap();
        let sources = ["crates/io/src", "crates/pool/src"].map(|it| root.join(it));
        let mut text = String::new();
        for directory in &sources {
            read_all(directory, &mut text);
        }
        for bug in BUGS {
            assert!(manifest.contains(&format!("\"{bug}\"")), "{bug} is not declared");
            let planted = text.matches(&format!("cfg!(forebay_bug = \"{bug}\")")).count();
            assert_eq!(planted, 1, "{bug}");
        }
        assert_eq!(
            text.matches("forebay_bug").count(),
            BUGS.len(),
            "a bug that is not in the list"
        );
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
