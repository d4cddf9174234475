//! `cargo xtask ci`: every check, in order, timed; the first failure ends the run.
//!
//! The two lists below are the whole of what CI does. People wait for the ordinary steps; `--full` adds the
//! long ones, which use larger counts and check more, before an issue is resolved. Tests that cannot run in an
//! environment say so in the file named by FOREBAY_SKIPS, one line each (`suite: test: reason`), and the
//! closing table counts them: a skipped test is never a pass.
//!
//! One step at a time: to compile for later steps while tests wait for their disks would save minutes, and
//! even in the scheduler's idle class it delays the lab's paced reads (1.5 s of them took 3 to 11).
//!
//! The table is also written to target/ci-steps.txt after each step.
//!
//! Failure: the table of the finished steps, then one line that names the failed step and command.

mod again;
mod binaries;
mod disks;
mod ordinary_user;
mod packages;
mod report;
mod run;
pub(crate) mod snippets;
mod steps;

use std::fs;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use cargo_metadata::Metadata;
use clap::Args;
use clap::builder::PossibleValuesParser;

use report::Found;
use run::Run;

/// The options of `cargo xtask ci`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Run the long steps too, as before an issue is resolved
    #[arg(long)]
    full: bool,
    /// Run only this step, a long one too (may be given several times); the order stays that of the list
    #[arg(long, value_name = "STEP", value_parser = PossibleValuesParser::new(all().map(|it| it.name)))]
    only: Vec<String>,
    /// List the steps and do nothing
    #[arg(long)]
    list: bool,
    /// Show a line for each test that passed, too
    #[arg(long, short)]
    verbose: bool,
}

/// The file below the target directory with the table of the last run.
const TABLE: &str = "ci-steps.txt";

/// One check.
struct Step {
    name: &'static str,
    what: &'static str,
    run: fn(&mut Run) -> Result<()>,
}

const ORDINARY: &[Step] = &[
    Step { name: "fmt", what: "rustfmt changes nothing", run: steps::fmt },
    Step { name: "tidy", what: "our own style rules", run: steps::tidy },
    Step { name: "clippy", what: "every target compiles, without a warning", run: steps::clippy },
    Step { name: "test", what: "every test, three binaries at a time", run: steps::test },
    Step { name: "no-uring", what: "what can differ, io_uring blocked", run: again::no_uring },
    Step { name: "user", what: "what can differ, as an ordinary user", run: again::user },
    Step { name: "portable", what: "without Linux's own calls", run: steps::portable },
    Step { name: "bugs", what: "power cuts find each planted bug", run: steps::bugs },
    Step { name: "loom", what: "interleavings of the pool's frames", run: steps::loom },
    Step { name: "hits", what: "instructions of a hit", run: steps::hits },
    Step { name: "doc", what: "documentation without warnings", run: steps::doc },
];

/// Only with `--full`, or by name.
const LONG: &[Step] = &[
    Step {
        name: "features",
        what: "every feature: object stores by address, TLS, peers",
        run: steps::features,
    },
    Step {
        name: "timing",
        what: "how late emulated disks are, where scans cross",
        run: steps::timing,
    },
    Step { name: "dist", what: "each package installed and used", run: packages::run },
    Step { name: "snippets", what: "what the pages show, as written", run: snippets::run },
    Step { name: "lean", what: "the pool without its features", run: steps::lean },
    Step {
        name: "portable-pool",
        what: "the pool without Linux's own calls",
        run: steps::portable_pool,
    },
    Step { name: "lab", what: "all of the lab, io_uring blocked and as a user", run: again::lab },
    Step {
        name: "lesser",
        what: "io and pool, io_uring unknown and as a user",
        run: again::lesser,
    },
    Step { name: "disks", what: "io and pool on each other filesystem", run: disks::run },
    Step {
        name: "object",
        what: "10,000 crashes over object stores, 1,000 fights, 100 kills",
        run: steps::object,
    },
    Step { name: "kills", what: "a writer killed two hundred times", run: steps::kills },
    Step { name: "soak", what: "everything at once for a minute", run: steps::soak },
    Step { name: "cuts", what: "a hundred thousand power cuts", run: steps::cuts },
    Step {
        name: "pg-queries",
        what: "two thousand queries on each server",
        run: steps::pg_queries,
    },
    Step {
        name: "pg-interrupts",
        what: "advice interrupted fifty times on each server",
        run: steps::pg_interrupts,
    },
    Step { name: "sqlite", what: "statements, kills and damaged pages, many", run: steps::sqlite },
    Step { name: "loom-full", what: "interleavings to the models' bounds", run: steps::loom_full },
];

fn all() -> impl Iterator<Item = &'static Step> {
    ORDINARY.iter().chain(LONG)
}

/// Runs the chosen steps.
///
/// # Errors
/// A step fails.
pub(crate) fn run(workspace: Metadata, options: &Options) -> Result<()> {
    if options.list {
        for (steps, when) in [(ORDINARY, ""), (LONG, " (--full)")] {
            steps.iter().for_each(|step| println!("{:<10} {}{when}", step.name, step.what));
        }
        return Ok(());
    }
    let chosen = choose(options);
    let written = workspace.target_directory.join(TABLE);
    let mut run = Run::new(workspace, options.verbose)?;
    let mut finished = Vec::new();
    for (index, step) in chosen.iter().enumerate() {
        println!("\n== {}/{} {}: {}", index + 1, chosen.len(), step.name, step.what);
        run.found = Found { name: step.name, ..Found::default() };
        let start = Instant::now();
        let passed = (step.run)(&mut run);
        let seconds = start.elapsed().as_secs_f64();
        let found = Found { seconds, ..std::mem::take(&mut run.found) };
        if let Err(error) = passed {
            println!("\n{}", report::table(&finished));
            bail!("ci FAILED in step `{}` after {seconds:.1} s: {error:#}", step.name);
        }
        println!(
            "== {} passed in {seconds:.1} s, {:.1} s of them compiling",
            step.name, found.build_s
        );
        finished.push(found);
        // After each step, for a run that is cut short.
        fs::write(&written, report::table(&finished))
            .with_context(|| format!("cannot write {written}"))?;
    }
    println!("\n{}", report::table(&finished));
    println!("ci passed: {} of {} steps; the table is in {written}", chosen.len(), all().count());
    Ok(())
}

fn choose(options: &Options) -> Vec<&'static Step> {
    let Options { full, only, .. } = options;
    if only.is_empty() {
        return if *full { all().collect() } else { ORDINARY.iter().collect() };
    }
    all().filter(|step| only.iter().any(|name| name == step.name)).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        options: Options,
    }

    fn names(arguments: &[&str]) -> Option<Vec<&'static str>> {
        let cli = Cli::try_parse_from([&["ci"], arguments].concat()).ok()?;
        Some(choose(&cli.options).into_iter().map(|step| step.name).collect())
    }

    #[test]
    fn steps_keep_the_lists_order() {
        assert_eq!(names(&["--only", "doc", "--only", "fmt"]).unwrap(), ["fmt", "doc"]);
        assert_eq!(names(&["--full"]).unwrap().len(), all().count());
    }

    #[test]
    fn long_steps_run_in_full_or_by_name() {
        assert!(!names(&[]).unwrap().contains(&"cuts"));
        assert!(names(&["--full"]).unwrap().contains(&"cuts"));
        assert_eq!(names(&["--only", "cuts"]).unwrap(), ["cuts"]);
    }

    #[test]
    fn an_unknown_step_is_refused() {
        assert_eq!(names(&["--only", "tests"]), None);
    }
}
