//! The programs of the workspace, and how cargo would start its tests.
//!
//! Cargo has built them for step `clippy` and lists them again immediately, so that other steps can run some of
//! them in other environments, without a build with different features.

use std::io::BufReader;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use cargo_metadata::{Message, TargetKind};

use super::run::Run;

/// A program: one that runs tests, or one that the package builds.
struct Program {
    tests: bool,
    /// As in Cargo.toml; the name of the crate for the unit tests of a library.
    target: String,
    directory: PathBuf,
    path: PathBuf,
}

pub(super) struct Binaries(Vec<Program>);

/// A program that runs tests, and the programs of its package, which it may start.
pub(super) struct Test<'a> {
    pub(super) path: &'a PathBuf,
    pub(super) target: &'a str,
    directory: &'a PathBuf,
    programs: Vec<&'a Program>,
}

impl Binaries {
    /// Those of the workspace. Builds the missing ones.
    ///
    /// # Errors
    /// A test does not compile.
    pub(super) fn get(run: &mut Run) -> Result<Self> {
        let (variable, lints) = run.lints();
        Self::selected(run, &["--workspace"], &[(variable, &lints)])
    }

    /// Those that `selected` names to cargo, built in an environment with `set`.
    ///
    /// # Errors
    /// A test does not compile.
    pub(super) fn selected(run: &mut Run, selected: &[&str], set: &[(&str, &str)]) -> Result<Self> {
        let start = Instant::now();
        let mut command = run.cargo(&["test", "--no-run"]);
        command
            .args(selected)
            .envs(set.iter().copied())
            .arg("--message-format=json-render-diagnostics")
            .stdout(Stdio::piped());
        let mut cargo = command.spawn().context("cannot run cargo")?;
        let output = cargo.stdout.take().context("cargo has no standard output")?;
        let mut programs = Vec::new();
        for message in Message::parse_stream(BufReader::new(output)) {
            let Message::CompilerArtifact(made) = message.context("cannot read cargo's output")?
            else {
                continue;
            };
            let (tests, kind) = (made.profile.test, made.target.kind);
            if let Some(path) = made.executable
                && let Some(directory) = made.manifest_path.parent()
                && (tests || kind.contains(&TargetKind::Bin))
            {
                programs.push(Program {
                    tests,
                    target: made.target.name,
                    directory: directory.into(),
                    path: path.into(),
                });
            }
        }
        let status = cargo.wait().context("cannot wait for cargo")?;
        ensure!(status.success(), "cargo test --no-run: {status}");
        run.found.build_s += start.elapsed().as_secs_f64();
        Ok(Binaries(programs))
    }

    /// The test binary of `target` in the package whose directory has that name.
    ///
    /// # Errors
    /// There is none, or there are several: the unit tests of a program have its name.
    pub(super) fn test(&self, directory: &str, target: &str) -> Result<Test<'_>> {
        let is = |program: &&Program| {
            program.tests && program.target == target && program.directory.ends_with(directory)
        };
        let mut found = self.0.iter().filter(is);
        let Some(program) = found.next() else {
            bail!("no test `{target}` in {directory}");
        };
        ensure!(found.next().is_none(), "several tests `{target}` in {directory}");
        Ok(self.started(program))
    }

    /// All test binaries.
    pub(super) fn tests(&self) -> impl Iterator<Item = Test<'_>> {
        let tests = self.0.iter().filter(|program| program.tests);
        tests.map(|test| self.started(test))
    }

    fn started<'a>(&'a self, Program { target, path, directory, .. }: &'a Program) -> Test<'a> {
        let programs = self.0.iter().filter(|it| !it.tests && it.directory == *directory);
        Test { path, target, directory, programs: programs.collect() }
    }
}

impl Test<'_> {
    /// Whether its package's directory has that name.
    pub(super) fn is_in(&self, directory: &str) -> bool {
        self.directory.ends_with(directory)
    }

    /// The paths of the programs that it may start.
    pub(super) fn programs(&self) -> impl Iterator<Item = &PathBuf> {
        self.programs.iter().map(|program| &program.path)
    }

    /// The command that starts this program as cargo would.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(self.path);
        self.prepare(&mut command);
        command
    }

    /// Sets up `command`, which starts this program, as cargo would.
    pub(super) fn prepare(&self, command: &mut Command) {
        command.current_dir(self.directory).env("CARGO_MANIFEST_DIR", self.directory);
        for program in &self.programs {
            command.env(format!("CARGO_BIN_EXE_{}", program.target), &program.path);
        }
    }
}
