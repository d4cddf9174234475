//! The steps that are one or two cargo commands each.

use std::env;
use std::process::Command;

use anyhow::Result;

use super::Context;
use super::child::{self, SkipFile};
use super::report::Outcome;
use crate::no_uring::{self, Errno};
use crate::{bugs as planted, tidy as rules, workspace};

fn cargo(context: &Context, arguments: &[&str]) -> Command {
    let mut command = workspace::cargo(&context.root);
    command.args(arguments);
    command
}

/// Adds to a flags variable instead of hiding what the caller put there.
fn add_flags(command: &mut Command, variable: &str, flags: &str) {
    let set = env::var(variable).unwrap_or_default();
    command.env(variable, format!("{set} {flags}").trim_start());
}

pub(super) fn fmt(context: &Context) -> Result<Outcome> {
    child::run(context, &mut cargo(context, &["fmt", "--all", "--check"]))
}

pub(super) fn clippy(context: &Context) -> Result<Outcome> {
    let arguments = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
    child::run(context, &mut cargo(context, &arguments))
}

pub(super) fn tidy(context: &Context) -> Result<Outcome> {
    rules::run(&context.root)?;
    Ok(Outcome::default())
}

pub(super) fn test(context: &Context) -> Result<Outcome> {
    let skips = SkipFile::create(context, "test")?;
    let mut command = cargo(context, &["test", "--workspace"]);
    skips.tell(&mut command);
    let mut outcome = child::run(context, &mut command)?;
    outcome.skips = skips.read()?;
    Ok(outcome)
}

pub(super) fn bugs(context: &Context) -> Result<Outcome> {
    planted::run(&context.root, &planted::Options::default())?;
    Ok(Outcome::default())
}

pub(super) fn no_uring(context: &Context) -> Result<Outcome> {
    if !cfg!(target_os = "linux") {
        return Ok(not_here("there is no io_uring to block"));
    }
    let skips = SkipFile::create(context, "no-uring")?;
    let mut command =
        cargo(context, &["test", "-p", "forebay-io", "-p", "forebay", "-p", "forebay-lab"]);
    skips.tell(&mut command);
    child::prepare(&mut command);
    let started = no_uring::spawn(&mut command, Errno::Eperm)?;
    let mut outcome = child::finish(context, &command, started)?;
    outcome.skips = skips.read()?;
    Ok(outcome)
}

pub(super) fn portable(context: &Context) -> Result<Outcome> {
    // A target directory of its own: other flags would rebuild everything, twice a run.
    let target = context.target.join("portable");
    let skips = SkipFile::create(context, "portable")?;
    let clippy =
        ["clippy", "-p", "forebay-io", "-p", "forebay", "--all-targets", "--", "-D", "warnings"];
    let test = ["test", "-p", "forebay-io", "-p", "forebay"];
    let mut outcome = Outcome::default();
    for arguments in [clippy.as_slice(), test.as_slice()] {
        let mut command = cargo(context, arguments);
        add_flags(&mut command, "RUSTFLAGS", "--cfg forebay_portable");
        add_flags(&mut command, "RUSTDOCFLAGS", "--cfg forebay_portable");
        command.env("CARGO_TARGET_DIR", &target);
        skips.tell(&mut command);
        outcome.add(child::run(context, &mut command)?);
    }
    outcome.skips = skips.read()?;
    Ok(outcome)
}

pub(super) fn loom(context: &Context) -> Result<Outcome> {
    // Optimised, and in a target directory of its own: the models are long, and the flag rebuilds
    // everything.
    let mut command = cargo(context, &["test", "-p", "forebay", "--release", "--lib", "loom_"]);
    add_flags(&mut command, "RUSTFLAGS", "--cfg loom");
    command.env("CARGO_TARGET_DIR", context.target.join("loom"));
    child::run(context, &mut command)
}

pub(super) fn user(context: &Context) -> Result<Outcome> {
    #[cfg(target_os = "linux")]
    return super::ordinary_user::run(context);
    #[cfg(not(target_os = "linux"))]
    {
        let _ = context;
        Ok(not_here("running as another user is written for Linux only"))
    }
}

pub(super) fn doc(context: &Context) -> Result<Outcome> {
    let mut command = cargo(context, &["doc", "--workspace", "--no-deps"]);
    add_flags(&mut command, "RUSTDOCFLAGS", "-D warnings");
    child::run(context, &mut command)
}

/// A step that cannot run on this machine is one skipped test, with its reason.
pub(super) fn not_here(reason: &str) -> Outcome {
    println!("skipped: {reason}");
    Outcome { counts: None, skips: vec![format!("xtask: the whole step: {reason}")] }
}
