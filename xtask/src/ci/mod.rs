//! `cargo xtask ci`: every check, in order, timed; the first failure ends the run.
//!
//! A step is a name and a function; the list below is the whole of what CI does. Tests that
//! cannot run where they are started say so in the file named by FOREBAY_SKIPS, one line each
//! (`suite: test: reason`), and the closing table counts them: a skipped test is never a pass.
//!
//! Failure: the table of the finished steps, then one line that names the failed step and command.

mod child;
#[cfg(target_os = "linux")]
mod ordinary_user;
mod report;
mod steps;

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use clap::Args;

use crate::workspace;
use report::{Finished, Outcome};

/// The options of `cargo xtask ci`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Run only this step (may be given several times); the order stays that of the list
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
    run: fn(&Context) -> Result<Outcome>,
}

/// What each step is handed.
struct Context {
    root: PathBuf,
    /// Cargo's target directory, wherever the caller put it.
    target: PathBuf,
    verbose: bool,
}

const STEPS: &[Step] = &[
    Step { name: "fmt", what: "rustfmt changes nothing", run: steps::fmt },
    Step { name: "clippy", what: "no warning in any target", run: steps::clippy },
    Step { name: "tidy", what: "our own style rules", run: steps::tidy },
    Step { name: "test", what: "the README's test command", run: steps::test },
    Step { name: "bugs", what: "power cuts find each planted bug", run: steps::bugs },
    Step {
        name: "no-uring",
        what: "io, pool and lab with io_uring blocked (EPERM)",
        run: steps::no_uring,
    },
    Step { name: "portable", what: "io and pool without Linux's own calls", run: steps::portable },
    Step { name: "loom", what: "every interleaving of the pool's frames", run: steps::loom },
    Step { name: "user", what: "io, pool and lab as an ordinary user", run: steps::user },
    Step { name: "doc", what: "documentation without warnings", run: steps::doc },
];

/// Runs the chosen steps.
///
/// # Errors
/// A step fails, or `--only` names none of the steps.
pub(crate) fn run(options: &Options) -> Result<()> {
    let chosen = choose(&options.only)?;
    if options.list {
        for step in chosen {
            println!("{:<10} {}", step.name, step.what);
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
        let done = (step.run)(&context);
        let seconds = start.elapsed().as_secs_f64();
        match done {
            Ok(outcome) => {
                println!("== {} passed in {seconds:.1} s", step.name);
                finished.push(Finished { name: step.name, seconds, outcome });
            }
            Err(error) => {
                println!("\n{}", report::table(&finished));
                bail!("ci FAILED in step `{}` after {seconds:.1} s: {error:#}", step.name);
            }
        }
    }
    println!("\n{}", report::table(&finished));
    println!("ci passed: {} of {} steps", chosen.len(), STEPS.len());
    Ok(())
}

fn choose(only: &[String]) -> Result<Vec<&'static Step>> {
    if let Some(unknown) = only.iter().find(|name| STEPS.iter().all(|step| step.name != **name)) {
        let names: Vec<&str> = STEPS.iter().map(|step| step.name).collect();
        bail!("no step `{unknown}`; the steps are {}", names.join(", "));
    }
    let wanted = |step: &&Step| only.is_empty() || only.iter().any(|name| name == step.name);
    Ok(STEPS.iter().filter(wanted).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(only: &[&str]) -> Vec<&'static str> {
        let only: Vec<String> = only.iter().copied().map(str::to_owned).collect();
        choose(&only).unwrap().into_iter().map(|step| step.name).collect()
    }

    #[test]
    fn steps_keep_the_lists_order() {
        assert_eq!(names(&["doc", "fmt"]), ["fmt", "doc"]);
        assert_eq!(names(&[]).len(), STEPS.len());
    }

    #[test]
    fn an_unknown_step_is_refused() {
        assert!(choose(&["tests".to_owned()]).is_err());
    }
}
