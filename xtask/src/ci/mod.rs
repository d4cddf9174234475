//! `cargo xtask ci`: every check, in order, timed; the first failure ends the run.
//!
//! A step is a name, what it compiles and what it runs; the list below is the whole of what CI does. People
//! wait for the ordinary steps; `--full` adds the long ones, which count higher and look further, before an
//! issue is resolved. Tests that cannot run where they are started say so in the file named by FOREBAY_SKIPS,
//! one line each (`suite: test: reason`), and the closing table counts them: a skipped test is never a pass.
//!
//! One thing at a time: to compile for later steps while tests wait for their disks would save minutes, and
//! even in the scheduler's idle class it makes the lab's paced reads come late (1.5 s of them took 3 to 11).
//!
//! Failure: the table of the finished steps, then one line that names the failed step and command.

#[cfg(target_os = "linux")]
mod again;
mod binaries;
mod child;
mod long;
#[cfg(target_os = "linux")]
mod ordinary_user;
mod report;
mod steps;

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use clap::Args;

use crate::workspace;
use report::{Finished, Outcome};

/// The options of `cargo xtask ci`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Run the long steps too, as before an issue is resolved
    #[arg(long)]
    full: bool,
    /// Run only this step, a long one too (may be given several times); the order stays that of the list
    #[arg(long, value_name = "STEP")]
    only: Vec<String>,
    /// Name the steps and do nothing
    #[arg(long)]
    list: bool,
    /// Show a line for each test that passed, too
    #[arg(long, short)]
    verbose: bool,
}

/// One check.
struct Step {
    name: &'static str,
    what: &'static str,
    /// What it has to have compiled, which is timed apart.
    builds: fn(&Context) -> Result<Vec<Command>>,
    run: fn(&Context) -> Result<Outcome>,
    /// Only with `--full`, or by name.
    long: bool,
}

/// What each step is handed.
struct Context {
    root: PathBuf,
    /// Cargo's target directory, wherever the caller put it.
    target: PathBuf,
    verbose: bool,
}

const fn step(
    name: &'static str,
    what: &'static str,
    builds: fn(&Context) -> Result<Vec<Command>>,
    run: fn(&Context) -> Result<Outcome>,
) -> Step {
    Step { name, what, builds, run, long: false }
}

const fn long(
    name: &'static str,
    what: &'static str,
    builds: fn(&Context) -> Result<Vec<Command>>,
    run: fn(&Context) -> Result<Outcome>,
) -> Step {
    Step { long: true, ..step(name, what, builds, run) }
}

const STEPS: &[Step] = &[
    step("fmt", "rustfmt changes nothing", steps::nothing, steps::fmt),
    step("tidy", "our own style rules", steps::nothing, steps::tidy),
    step("clippy", "no warning in any target", steps::build_clippy, steps::built),
    step("test", "the README's test command", steps::build_tests, steps::test),
    step(
        "no-uring",
        "what can differ, with io_uring blocked (EPERM)",
        steps::build_tests,
        steps::no_uring,
    ),
    step("user", "what can differ, as an ordinary user", steps::build_tests, steps::user),
    step("portable", "without Linux's own calls", steps::build_portable, steps::portable),
    step("bugs", "power cuts find each planted bug", steps::build_bugs, steps::bugs),
    step("loom", "interleavings of the pool's frames", steps::build_loom, steps::loom),
    step("doc", "documentation without warnings", steps::build_doc, steps::built),
    long(
        "lab",
        "all of the lab without io_uring, and as an ordinary user",
        steps::build_tests,
        long::lab,
    ),
    long("enosys", "io and pool, io_uring unknown to the kernel", steps::build_tests, long::enosys),
    long("disks", "io and pool on each other filesystem", steps::build_tests, long::disks),
    long("kills", "a writer killed two hundred times", steps::build_tests, long::kills),
    long("soak", "everything at once for a minute", long::build_optimised, long::soak),
    long("cuts", "a hundred thousand power cuts", long::build_optimised, long::cuts),
    long("loom-full", "interleavings to the models' own bounds", steps::build_loom, long::loom),
];

/// Runs the chosen steps.
///
/// # Errors
/// A step fails, or `--only` names none of the steps.
pub(crate) fn run(options: &Options) -> Result<()> {
    let chosen = choose(options)?;
    if options.list {
        for step in STEPS
            .iter()
            .filter(|step| options.only.is_empty() || chosen.iter().any(|it| it.name == step.name))
        {
            let when = if step.long { " (--full)" } else { "" };
            println!("{:<10} {}{when}", step.name, step.what);
        }
        return Ok(());
    }
    let root = workspace::root()?;
    let target = workspace::metadata(&root)?.target_directory.into_std_path_buf();
    fs::create_dir_all(target.join("ci")).context("cannot create the ci directory in target")?;
    let context = Context { root, target, verbose: options.verbose };

    let mut finished = Vec::new();
    for (index, step) in chosen.iter().enumerate() {
        println!("\n== {}/{} {}: {}", index + 1, chosen.len(), step.name, step.what);
        let start = Instant::now();
        match carry_out(&context, step) {
            Ok((outcome, build_s)) => {
                let seconds = start.elapsed().as_secs_f64();
                println!(
                    "== {} passed in {seconds:.1} s, {build_s:.1} s of them compiling",
                    step.name
                );
                finished.push(Finished { name: step.name, seconds, build_s, outcome });
            }
            Err(error) => {
                let seconds = start.elapsed().as_secs_f64();
                println!("\n{}", report::table(&finished));
                bail!("ci FAILED in step `{}` after {seconds:.1} s: {error:#}", step.name);
            }
        }
    }
    println!("\n{}", report::table(&finished));
    println!("ci passed: {} of {} steps", chosen.len(), STEPS.len());
    Ok(())
}

/// Compiles what `step` needs, then runs it; gives the seconds that compiling took, too.
fn carry_out(context: &Context, step: &Step) -> Result<(Outcome, f64)> {
    let start = Instant::now();
    for mut command in (step.builds)(context)? {
        child::run(context, &mut command)?;
    }
    let build_s = start.elapsed().as_secs_f64();
    Ok(((step.run)(context)?, build_s))
}

fn choose(options: &Options) -> Result<Vec<&'static Step>> {
    let only = &options.only;
    if let Some(unknown) = only.iter().find(|name| STEPS.iter().all(|step| step.name != **name)) {
        let names: Vec<&str> = STEPS.iter().map(|step| step.name).collect();
        bail!("no step `{unknown}`; the steps are {}", names.join(", "));
    }
    let wanted = |step: &&Step| {
        let named = only.iter().any(|name| name == step.name);
        named || (only.is_empty() && (options.full || !step.long))
    };
    Ok(STEPS.iter().filter(wanted).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(full: bool, only: &[&str]) -> Vec<&'static str> {
        let only = only.iter().copied().map(str::to_owned).collect();
        let options = Options { full, only, list: false, verbose: false };
        choose(&options).unwrap().into_iter().map(|step| step.name).collect()
    }

    #[test]
    fn steps_keep_the_lists_order() {
        assert_eq!(names(false, &["doc", "fmt"]), ["fmt", "doc"]);
        assert_eq!(names(true, &[]).len(), STEPS.len());
    }

    #[test]
    fn long_steps_run_in_full_or_by_name() {
        assert!(!names(false, &[]).contains(&"cuts"));
        assert!(names(true, &[]).contains(&"cuts"));
        assert_eq!(names(false, &["cuts"]), ["cuts"]);
    }

    #[test]
    fn an_unknown_step_is_refused() {
        let only = vec!["tests".to_owned()];
        assert!(choose(&Options { full: false, only, list: false, verbose: false }).is_err());
    }
}
