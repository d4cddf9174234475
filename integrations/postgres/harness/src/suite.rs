//! From the servers of this machine to trials, and how one that cannot run is reported.
//!
//! Environment: `FOREBAY_PG_CONFIGS`, paths of pg_config, colon-separated, instead of Debian's;
//! `FOREBAY_PG_QUERIES`, how many scripts the differential test runs on each version, of which 0 leaves out every
//! test that starts a server; `FOREBAY_PG_SEED`, the first random choice; `FOREBAY_SKIPS`, a file to which skipped
//! tests are appended.

use std::env;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use libtest_mimic::{Arguments, Completion, Failed, Trial};

use crate::{Extension, Found, Installation, Session, find};

/// Scripts for each version by default: some seconds.
const QUERIES: usize = 150;

/// What a test is handed.
#[derive(Debug)]
pub struct Case {
    /// The version to test.
    pub installation: Installation,
    /// The extension; none while it has no Makefile.
    pub extension: Option<Extension>,
    /// How many scripts a differential test runs.
    pub queries: usize,
    /// Where random choices start.
    pub seed: u64,
}

/// A test: its name, and what it does for one version.
pub type Test = (&'static str, fn(&Case) -> Result<(), String>);

/// What went wrong, as a test says it.
#[expect(clippy::needless_pass_by_value, reason = "so that map_err takes it")]
pub fn text(error: impl ToString) -> String {
    error.to_string()
}

/// # Errors
/// They differ; `what` says in what.
#[expect(clippy::needless_pass_by_value, reason = "what is compared is made for it")]
pub fn equal<T: PartialEq + std::fmt::Debug>(what: &str, left: T, right: T) -> Result<(), String> {
    if left == right { Ok(()) } else { Err(format!("{what}: {left:?}, not {right:?}")) }
}

/// Runs statements, split at each `;`; returns the rows of the last.
///
/// # Errors
/// The server refuses one of them, which the text begins with.
pub fn must(session: &mut Session, sql: &str) -> Result<Vec<String>, String> {
    let mut rows = Vec::new();
    for statement in sql.split(';').filter(|it| !it.trim().is_empty()) {
        rows = session.rows(statement).map_err(|error| format!("{statement}: {error}"))?;
    }
    Ok(rows)
}

/// Runs `tests`, each on every version that this machine has, as the arguments of the program say.
///
/// # Panics
/// A variable of the environment is not a number.
pub fn run(suite: &'static str, scratch: &Path, tests: &'static [Test]) -> ExitCode {
    let number = |name: &str| {
        let number =
            |text: String| text.parse().unwrap_or_else(|_| panic!("{name}={text}: no number"));
        env::var(name).ok().map(number)
    };
    let queries = number("FOREBAY_PG_QUERIES").map_or(QUERIES, |it: u64| it as usize);
    let seed = number("FOREBAY_PG_SEED").unwrap_or_else(|| fastrand::u64(..1 << 32));
    let mut trials = Vec::new();
    if queries > 0 {
        let Found { installations, unusable } = find(env::var_os("FOREBAY_PG_CONFIGS").as_deref());
        let missing = if installations.is_empty() { unusable.join("; ") } else { String::new() };
        // Standard error, for the list of tests is read from standard output.
        say(&installations, &unusable);
        for &(name, test) in tests {
            for installation in &installations {
                let major = installation.major;
                let extension = extension(scratch);
                let installation = installation.clone();
                let case = Case { installation, extension, queries, seed };
                let replay = format!(
                    "FOREBAY_PG_CONFIGS={} FOREBAY_PG_SEED={seed} FOREBAY_PG_QUERIES={queries} \
                     cargo test --workspace --test {suite} {name}",
                    case.installation.pg_config.display()
                );
                trials.push(Trial::test(format!("{major}/{name}"), move || {
                    let again = |why| Failed::from(format!("{why}\nreplay with:\n  {replay}"));
                    test(&case).map_err(again)
                }));
            }
            if installations.is_empty() {
                let reason = missing.clone();
                trials.push(Trial::ignorable_test(name, move || {
                    note_skip(suite, name, &reason);
                    Ok(Completion::ignored_with(reason))
                }));
            }
        }
    } else {
        note_skip(suite, "every test", "FOREBAY_PG_QUERIES is 0");
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

#[expect(clippy::print_stderr, reason = "which servers a run has been on belongs into its output")]
fn say(installations: &[Installation], unusable: &[String]) {
    for it in installations {
        eprintln!("{}: {}", it.pg_config.display(), it.version);
    }
    for why in unusable {
        eprintln!("not used: {why}");
    }
}

/// The extension of this checkout, built in `scratch`, or, for as long as its Makefile is missing, none.
fn extension(scratch: &Path) -> Option<Extension> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?.to_owned();
    let build = scratch.join("forebay");
    sources.join("Makefile").exists().then(|| Extension { sources, build, variables: Vec::new() })
}

/// Records a test that cannot run on this machine.
///
/// # Panics
/// The file for skips cannot be written.
pub fn note_skip(suite: &str, name: &str, reason: &str) {
    let Some(path) = env::var_os("FOREBAY_SKIPS") else {
        return;
    };
    let line = format!("{suite}: {name}: {}\n", reason.replace('\n', " "));
    let opened = OpenOptions::new().create(true).append(true).open(path);
    let written = opened.and_then(|mut file| file.write_all(line.as_bytes()));
    written.expect("FOREBAY_SKIPS should name a file that can be written");
}
