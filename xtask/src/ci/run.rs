//! A run of steps: starts their commands, forwards the output, gathers test counts and skips.
//!
//! Standard output goes through a pipe, so that the closing line of each test binary can be
//! counted and the thousand lines `test … ok` held back. Standard error is the terminal's own.

use std::env;
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use cargo_metadata::Metadata;
use cargo_metadata::camino::Utf8PathBuf;
use tempfile::TempDir;

use super::report::Found;
use crate::{workspace, wrapper};

/// The environment variable with the file to which tests append what they skip.
const SKIPS: &str = "FOREBAY_SKIPS";

/// Commands at a time: most tests wait for a disk, or for a process that they have started.
const AT_A_TIME: usize = 3;

/// What one command ran.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Ran {
    pub(super) tests: usize,
    /// Messages about tests that could not run.
    pub(super) skips: usize,
}

/// The context of each step.
pub(super) struct Run {
    pub(super) workspace: Metadata,
    /// The result of the current step so far.
    pub(super) found: Found,
    /// The path of this program: looked up at the start, since cargo may replace the file.
    pub(super) xtask: PathBuf,
    verbose: bool,
    scratch: TempDir,
    /// The wrapper around rustc that lints.
    lints: Utf8PathBuf,
}

impl Run {
    /// # Errors
    /// There can be no temporary directory, or this program has no path.
    pub(super) fn new(workspace: Metadata, verbose: bool) -> Result<Run> {
        let scratch = tempfile::Builder::new().prefix("forebay-ci-").tempdir()?;
        // An ordinary user notes skips, too.
        fs::set_permissions(scratch.path(), Permissions::from_mode(0o755))?;
        let xtask = env::current_exe()?;
        let lints = wrapper::for_lints(&workspace)?;
        Ok(Run { workspace, found: Found::default(), xtask, verbose, scratch, lints })
    }

    /// The variable with which cargo lints what it builds. Set in every step that uses the build of step `clippy`.
    pub(super) fn lints(&self) -> (&'static str, String) {
        (wrapper::VARIABLE, self.lints.to_string())
    }

    pub(super) fn cargo(&self, arguments: &[&str]) -> Command {
        let mut command = workspace::cargo(&self.workspace);
        command.args(arguments);
        command
    }

    /// Runs `command`, which compiles, to its end.
    ///
    /// # Errors
    /// Those of [`Run::command`].
    pub(super) fn build(&mut self, command: Command) -> Result<()> {
        let start = Instant::now();
        self.command(command)?;
        self.found.build_s += start.elapsed().as_secs_f64();
        Ok(())
    }

    /// Compiles the tests that cargo selects by `selected`, then runs those of them whose names contain `filter`.
    ///
    /// # Errors
    /// Those of [`Run::command`].
    pub(super) fn tests(
        &mut self,
        selected: &[&str],
        filter: Option<&str>,
        set: &[(&str, &str)],
    ) -> Result<()> {
        let mut build = self.cargo(&["test", "--quiet", "--no-run"]);
        build.args(selected).envs(set.iter().copied());
        self.build(build)?;
        let mut test = self.cargo(&["test"]);
        test.args(selected).args(filter).envs(set.iter().copied());
        self.command(test)
    }

    /// Runs `command`, whose tests record what they skip, to its end.
    ///
    /// # Errors
    /// It cannot be started, or ends with another status than 0.
    pub(super) fn command(&mut self, mut command: Command) -> Result<()> {
        let skips = self.skips("skips")?;
        let mut child = start(&mut command, &skips)?;
        let output = child.stdout.take().context("the child has no standard output")?;
        for line in BufReader::new(output).split(b'\n') {
            self.show(&line.context("cannot read the child's output")?);
        }
        let status = child.wait().context("cannot wait for the child")?;
        ensure!(status.success(), "{command:?}: {status}");
        self.count_skips(&skips)
    }

    /// Runs `commands` like [`command`](Self::command), several at a time, and shows the output of each when it ends.
    /// Returns what each of them ran, in the order of `commands`.
    ///
    /// # Errors
    /// Those of [`Run::command`]. No further command is started then.
    pub(super) fn commands(&mut self, commands: Vec<Command>) -> Result<Vec<Ran>> {
        let mut all = vec![Ran::default(); commands.len()];
        let skips = |index| self.skips(&format!("skips-{index}"));
        let skips: Vec<PathBuf> = (0..commands.len()).map(skips).collect::<Result<_>>()?;
        let waiting = Mutex::new(commands.into_iter().enumerate());
        let (sender, ended) = mpsc::channel();
        let failed = thread::scope(|scope| {
            for _ in 0..AT_A_TIME {
                let (sender, waiting, skips) = (sender.clone(), &waiting, &skips);
                scope.spawn(move || {
                    let next = || waiting.lock().ok()?.next();
                    while let Some((index, mut command)) = next() {
                        let output = start(&mut command, &skips[index]).and_then(|child| {
                            child.wait_with_output().context("cannot wait for the child")
                        });
                        if sender.send((index, command, output)).is_err() {
                            return;
                        }
                    }
                });
            }
            drop(sender);
            ended.into_iter().find_map(|(index, command, output)| {
                let ended = output.and_then(|output| {
                    let before = (self.found.tests_run(), self.found.skips.len());
                    output.stdout.split(|&byte| byte == b'\n').for_each(|line| self.show(line));
                    ensure!(output.status.success(), "{command:?}: {}", output.status);
                    self.count_skips(&skips[index])?;
                    let after = (self.found.tests_run(), self.found.skips.len());
                    all[index] = Ran { tests: after.0 - before.0, skips: after.1 - before.1 };
                    Ok(())
                });
                ended.err()
            })
        });
        failed.map_or(Ok(all), Err)
    }

    /// An empty file for skips, to which an ordinary user may write.
    fn skips(&self, name: &str) -> Result<PathBuf> {
        let skips = self.scratch.path().join(name);
        fs::write(&skips, "")?;
        fs::set_permissions(&skips, Permissions::from_mode(0o666))?;
        Ok(skips)
    }

    fn count_skips(&mut self, skips: &Path) -> Result<()> {
        let lines = fs::read_to_string(skips)?;
        self.found.skips.extend(lines.lines().filter(|line| !line.is_empty()).map(str::to_owned));
        Ok(())
    }

    /// Counts a line of output, and prints it if it is worth showing.
    fn show(&mut self, line: &[u8]) {
        let line = String::from_utf8_lossy(line);
        self.found.add_line(&line);
        if self.verbose || worth_showing(&line) {
            println!("{line}");
        }
    }

    /// Counts `what`, which cannot run on this machine, as one skipped test.
    pub(super) fn skip(&mut self, what: &str, reason: &str) {
        println!("skipped: {what}: {reason}");
        self.found.skips.push(format!("xtask: {what}: {reason}"));
    }
}

/// Starts `command`, whose tests append what they skip to the file `skips`.
fn start(command: &mut Command, skips: &Path) -> Result<Child> {
    command.env(SKIPS, skips).env("CARGO_TERM_PROGRESS_WHEN", "never");
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    println!("$ {command:?}");
    command.spawn().with_context(|| format!("cannot run {command:?}"))
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
    fn counts_and_skips_of_a_command_are_gathered() {
        let mut run = Run::new(workspace::find().unwrap(), false).unwrap();
        let script = "echo 'test result: ok. 2 passed; 0 failed; 1 ignored'; \
                      echo 'io: direct: tmpfs' >>$FOREBAY_SKIPS";
        for _ in 0..2 {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            run.command(command).unwrap();
        }
        assert_eq!(run.found.tests.map(|tests| (tests.passed, tests.ignored)), Some((4, 2)));
        assert_eq!(run.found.skips, ["io: direct: tmpfs", "io: direct: tmpfs"]);
        assert!(run.command(Command::new("false")).is_err());
    }

    #[test]
    fn commands_run_several_at_a_time_and_none_after_a_failure() {
        let mut run = Run::new(workspace::find().unwrap(), false).unwrap();
        let scratch = tempfile::tempdir().unwrap();
        let shell = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]).current_dir(scratch.path());
            command
        };
        // Each waits for the other.
        let meet = |own: &str, other: &str| {
            let counts = "echo 'test result: ok. 1 passed'; echo 'io: a: b' >>$FOREBAY_SKIPS";
            shell(&format!("touch {own}; while [ ! -e {other} ]; do sleep 0.01; done; {counts}"))
        };
        let ran = run.commands(vec![meet("a", "b"), shell("true"), meet("b", "a")]).unwrap();
        let one = Ran { tests: 1, skips: 1 };
        assert_eq!(ran, [one, Ran::default(), one]);
        assert_eq!((run.found.tests_run(), run.found.skips.len()), (2, 2));
        // More than can start before the failure is noticed.
        let late = (0..1000).map(|_| shell("sleep 0.02; echo >>ran"));
        let error = run.commands([shell("exit 3")].into_iter().chain(late).collect()).unwrap_err();
        assert!(error.to_string().contains("exit status: 3"), "{error}");
        let ran = fs::read(scratch.path().join("ran")).map_or(0, |lines| lines.len());
        assert!(ran < 1000, "the failure did not end the run");
    }
}
