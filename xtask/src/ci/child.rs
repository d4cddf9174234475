//! Running a step's command: output forwarded, test counts and skips gathered.
//!
//! Standard output goes through a pipe, so that the closing line of each test binary can be
//! counted and the thousand lines `test … ok` held back. Standard error is the terminal's own.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail};

use super::Context;
use super::report::{Counts, Outcome};

/// The environment variable with the file to which tests append what they skip.
pub(crate) const SKIPS: &str = "FOREBAY_SKIPS";

/// Runs `command` to its end.
///
/// # Errors
/// It cannot be started, or ends with another status than 0.
pub(crate) fn run(context: &Context, command: &mut Command) -> Result<Outcome> {
    prepare(command);
    let child = command.spawn().with_context(|| format!("cannot run `{}`", describe(command)))?;
    finish(context, command, child)
}

/// Standard input empty, standard output ours, no progress bars.
pub(crate) fn prepare(command: &mut Command) {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).env("CARGO_TERM_PROGRESS_WHEN", "never");
    println!("$ {}", describe(command));
}

/// Forwards the output of the started `child` and waits for it.
pub(crate) fn finish(context: &Context, command: &Command, mut child: Child) -> Result<Outcome> {
    let mut counts = Counts::default();
    let output = child.stdout.take().context("the child has no standard output")?;
    for line in BufReader::new(output).split(b'\n') {
        let line = line.context("cannot read the child's output")?;
        let line = String::from_utf8_lossy(&line);
        counts.add_line(&line);
        if context.verbose || worth_showing(&line) {
            println!("{line}");
        }
    }
    let status = child.wait().context("cannot wait for the child")?;
    if !status.success() {
        bail!("`{}`: {status}", describe(command));
    }
    Ok(Outcome {
        counts: Some(counts).filter(|counts| *counts != Counts::default()),
        skips: Vec::new(),
    })
}

/// A fresh skip file for one step's tests.
pub(crate) struct SkipFile {
    path: PathBuf,
}

impl SkipFile {
    /// Creates the empty file `<target>/ci/skips-<step>.txt`.
    pub(crate) fn create(context: &Context, step: &str) -> Result<Self> {
        Self::create_at(context.target.join("ci").join(format!("skips-{step}.txt")))
    }

    /// Creates the empty file at `path`.
    pub(crate) fn create_at(path: PathBuf) -> Result<Self> {
        fs::write(&path, "").with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self { path })
    }

    /// Tells `command`'s tests where the file is.
    pub(crate) fn tell(&self, command: &mut Command) {
        command.env(SKIPS, &self.path);
    }

    /// The lines that the tests appended.
    pub(crate) fn read(&self) -> Result<Vec<String>> {
        let text = fs::read_to_string(&self.path)
            .with_context(|| format!("cannot read {}", self.path.display()))?;
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        Ok(lines.map(str::to_owned).collect())
    }
}

/// The command as one would type it, with the variables that matter.
fn describe(command: &Command) -> String {
    let shown = [
        "RUSTFLAGS",
        "RUSTDOCFLAGS",
        "RUSTC_WORKSPACE_WRAPPER",
        "CARGO_TARGET_DIR",
        "TMPDIR",
        "LOOM_MAX_PREEMPTIONS",
        "FOREBAY_KILL_ROUNDS",
        "FOREBAY_POWER_CUTS",
        "FOREBAY_SOAK_SECONDS",
    ];
    let mut words = Vec::new();
    for (name, value) in command.get_envs() {
        if let (Some(name), Some(value)) = (name.to_str(), value)
            && shown.contains(&name)
        {
            words.push(format!("{name}=\"{}\"", value.to_string_lossy()));
        }
    }
    let program = command.get_program().to_string_lossy();
    let is_cargo = program.rsplit('/').next() == Some("cargo");
    words.push(if is_cargo { "cargo".to_owned() } else { program.into_owned() });
    words.extend(command.get_args().map(|word| word.to_string_lossy().into_owned()));
    words.join(" ")
}

fn worth_showing(line: &str) -> bool {
    let passed = line.starts_with("test ") && line.ends_with(" ... ok");
    let opening = line.starts_with("running ") && line.trim_end().ends_with(['t', 's']);
    !(line.is_empty() || passed || opening)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_passed_tests_and_opening_lines_are_held_back() {
        for line in ["test a::b ... ok", "running 1 test", "running 12 tests", ""] {
            assert!(!worth_showing(line), "{line}");
        }
        for line in
            ["test a ... FAILED", "test a ... ignored", "test result: ok. 1 passed", "failures:"]
        {
            assert!(worth_showing(line), "{line}");
        }
    }

    #[test]
    fn a_described_command_can_be_typed() {
        let mut command = Command::new("/opt/bin/cargo");
        command.args(["test", "-p", "forebay-io"]).env("RUSTFLAGS", "--cfg a").env("X", "1");
        assert_eq!(describe(&command), "RUSTFLAGS=\"--cfg a\" cargo test -p forebay-io");
    }

    #[test]
    fn the_skip_file_gives_back_its_lines() {
        let dir = tempfile::tempdir().unwrap();
        let file = SkipFile::create_at(dir.path().join("skips")).unwrap();
        assert_eq!(file.read().unwrap(), Vec::<String>::new());
        fs::write(dir.path().join("skips"), "io: direct: tmpfs\n\nlab: page: no chromium\n")
            .unwrap();
        assert_eq!(file.read().unwrap(), ["io: direct: tmpfs", "lab: page: no chromium"]);
    }
}
