//! The ordinary steps: what each compiles, and what it runs.

use std::env;
use std::process::Command;

use anyhow::Result;

use super::Context;
use super::binaries::TestBinary;
use super::child::{self, SkipFile};
use super::report::Outcome;
use crate::no_uring::{self, Errno};
use crate::{bugs as planted, tidy as rules, workspace, wrapper};

/// Preemptions that the ordinary models allow: most bugs need two. The models' own bounds take a long step.
const LOOM_PREEMPTIONS: &str = "2";

pub(super) fn cargo(context: &Context, arguments: &[&str]) -> Command {
    let mut command = workspace::cargo(&context.root);
    command.args(arguments);
    command
}

/// Adds to a flags variable instead of hiding what the caller put there.
fn add_flags(command: &mut Command, variable: &str, flags: &str) {
    let set = env::var(variable).unwrap_or_default();
    command.env(variable, format!("{set} {flags}").trim_start());
}

/// Runs `command`, whose tests note what they skip.
pub(super) fn run_tests(context: &Context, step: &str, command: &mut Command) -> Result<Outcome> {
    let skips = SkipFile::create(context, step)?;
    skips.tell(command);
    let mut outcome = child::run(context, command)?;
    outcome.skips = skips.read()?;
    Ok(outcome)
}

pub(super) fn nothing(_: &Context) -> Result<Vec<Command>> {
    Ok(Vec::new())
}

/// The run of a step that does nothing but compile.
pub(super) fn built(_: &Context) -> Result<Outcome> {
    Ok(Outcome::default())
}

pub(super) fn fmt(context: &Context) -> Result<Outcome> {
    child::run(context, &mut cargo(context, &["fmt", "--all", "--check"]))
}

pub(super) fn tidy(context: &Context) -> Result<Outcome> {
    rules::run(&context.root)?;
    Ok(Outcome::default())
}

pub(super) fn build_clippy(context: &Context) -> Result<Vec<Command>> {
    let arguments = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
    Ok(vec![cargo(context, &arguments)])
}

pub(super) fn build_tests(context: &Context) -> Result<Vec<Command>> {
    Ok(vec![cargo(context, &["test", "--quiet", "--workspace", "--no-run"])])
}

pub(super) fn test(context: &Context) -> Result<Outcome> {
    run_tests(context, "test", &mut cargo(context, &["test", "--workspace"]))
}

pub(super) fn no_uring(context: &Context) -> Result<Outcome> {
    #[cfg(target_os = "linux")]
    {
        use super::{again, binaries::Built};
        let built = Built::get(context)?;
        again::again(&built, again::LAB_WITHOUT_URING, |_, command| {
            run_without_uring(context, "no-uring", command, Errno::Eperm)
        })
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = context;
        Ok(not_here("there is no io_uring to block"))
    }
}

/// Runs `command`, of which every io_uring call fails with `errno`.
pub(super) fn run_without_uring(
    context: &Context,
    step: &str,
    mut command: Command,
    errno: Errno,
) -> Result<Outcome> {
    let skips = SkipFile::create(context, step)?;
    skips.tell(&mut command);
    child::prepare(&mut command);
    let started = no_uring::spawn(&mut command, errno)?;
    let mut outcome = child::finish(context, &command, started)?;
    outcome.skips = skips.read()?;
    Ok(outcome)
}

pub(super) fn user(context: &Context) -> Result<Outcome> {
    #[cfg(target_os = "linux")]
    {
        use super::{again, binaries::Built, ordinary_user::OrdinaryUser};
        let user = match OrdinaryUser::new()? {
            Ok(user) => user,
            Err(outcome) => return Ok(outcome),
        };
        let built = Built::get(context)?;
        again::again(&built, again::LAB_AS_USER, |test: &TestBinary, command| {
            user.run(context, &built, test, &command)
        })
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = context;
        Ok(not_here("running as another user is written for Linux only"))
    }
}

/// What has code of its own for other systems. The rest of the workspace is selected with it, though it has no
/// test here, for dependencies to have the features that they have been built with.
const PORTABLE: &[&str] =
    &["--workspace", "--exclude", "forebay-lab", "--exclude", "forebay-emulate", "--lib"];

/// The integration tests that go through such code. Documentation and measurements do not differ.
const PORTABLE_TESTS: &[&str] = &["conformance", "pool", "engine", "kv", "kill", "stress", "power"];

pub(super) fn build_portable(context: &Context) -> Result<Vec<Command>> {
    // Clippy is itself a wrapper around rustc, and hands flags on.
    let mut clippy = cargo(context, &["clippy"]);
    clippy.args(PORTABLE).args(["--tests", "--", "--cfg", "forebay_portable", "-D", "warnings"]);
    let mut test = test_portable(context)?;
    test.args(["--quiet", "--no-run"]);
    Ok(vec![clippy, test])
}

fn test_portable(context: &Context) -> Result<Command> {
    let mut command = cargo(context, &["test"]);
    command.args(PORTABLE).args(PORTABLE_TESTS.iter().flat_map(|name| ["--test", name]));
    wrapper::with_cfg(&mut command, &context.target, "forebay_portable")?;
    Ok(command)
}

pub(super) fn portable(context: &Context) -> Result<Outcome> {
    run_tests(context, "portable", &mut test_portable(context)?)
}

pub(super) fn build_bugs(context: &Context) -> Result<Vec<Command>> {
    Ok(vec![planted::build(&context.root, &context.target)?])
}

pub(super) fn bugs(context: &Context) -> Result<Outcome> {
    planted::run(&context.root, &planted::Options::default())?;
    Ok(Outcome::default())
}

/// Optimised where models spend their time, and in a target directory of its own: loom is a dependency
/// for this cfg alone, which cargo has to know, and RUSTFLAGS build everything anew.
pub(super) fn test_loom(context: &Context) -> Command {
    let mut command = cargo(context, &["test", "-p", "forebay", "--profile", "loom", "--lib"]);
    add_flags(&mut command, "RUSTFLAGS", "--cfg loom");
    command.env("CARGO_TARGET_DIR", context.target.join("loom"));
    command
}

pub(super) fn build_loom(context: &Context) -> Result<Vec<Command>> {
    let mut command = test_loom(context);
    command.args(["--quiet", "--no-run"]);
    Ok(vec![command])
}

pub(super) fn loom(context: &Context) -> Result<Outcome> {
    let mut command = test_loom(context);
    command.arg("loom_").env("LOOM_MAX_PREEMPTIONS", LOOM_PREEMPTIONS);
    child::run(context, &mut command)
}

pub(super) fn build_doc(context: &Context) -> Result<Vec<Command>> {
    let mut command = cargo(context, &["doc", "--workspace", "--no-deps"]);
    add_flags(&mut command, "RUSTDOCFLAGS", "-D warnings");
    Ok(vec![command])
}

/// A step that cannot run on this machine is one skipped test, with its reason.
pub(super) fn not_here(reason: &str) -> Outcome {
    println!("skipped: {reason}");
    Outcome { counts: None, skips: vec![format!("xtask: the whole step: {reason}")] }
}
