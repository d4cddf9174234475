//! The test binaries of the workspace, and how cargo would start them.
//!
//! Cargo has built them for step `test` and names them again in no time, so that other steps can run some of
//! them under other circumstances, without a build whose features would be others.

use std::io::BufReader;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use cargo_metadata::{Message, TargetKind};

use super::{Context, child};
use crate::workspace;

/// A program that runs tests.
pub(super) struct TestBinary {
    pub(super) path: PathBuf,
    pub(super) package_dir: PathBuf,
    /// As in Cargo.toml; that of the crate where it is the unit tests of a library or a program.
    pub(super) target: String,
    /// An integration test: knows the paths of its package's programs.
    pub(super) integration: bool,
}

/// A program of a package.
pub(super) struct Program {
    pub(super) name: String,
    pub(super) path: PathBuf,
    package_dir: PathBuf,
}

pub(super) struct Built {
    pub(super) tests: Vec<TestBinary>,
    programs: Vec<Program>,
}

impl Built {
    /// Builds what is not there yet.
    ///
    /// # Errors
    /// A test does not compile.
    pub(super) fn get(context: &Context) -> Result<Self> {
        let mut command = workspace::cargo(&context.root);
        command.args(["test", "--workspace", "--no-run"]);
        command.arg("--message-format=json-render-diagnostics");
        child::prepare(&mut command);
        let mut cargo = command.stdout(Stdio::piped()).spawn().context("cannot run cargo")?;
        let output = cargo.stdout.take().context("cargo has no standard output")?;
        let mut built = Built { tests: Vec::new(), programs: Vec::new() };
        for message in Message::parse_stream(BufReader::new(output)) {
            let Message::CompilerArtifact(made) = message.context("cannot read cargo's output")?
            else {
                continue;
            };
            let Some(path) = made.executable else {
                continue;
            };
            let path = path.into_std_path_buf();
            let directory = made.manifest_path.parent().context("a package without a directory")?;
            let (package_dir, target) = (directory.as_std_path().to_path_buf(), made.target.name);
            if made.profile.test {
                let integration = made.target.kind.contains(&TargetKind::Test);
                built.tests.push(TestBinary { path, package_dir, target, integration });
            } else if made.target.kind.contains(&TargetKind::Bin) {
                built.programs.push(Program { name: target, path, package_dir });
            }
        }
        let status = cargo.wait().context("cannot wait for cargo")?;
        if !status.success() || built.tests.is_empty() {
            bail!("cargo test --no-run: {status}, {} test binaries", built.tests.len());
        }
        Ok(built)
    }

    /// The test binary of `target` in the package at `crates/<directory>`.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn find(&self, directory: &str, target: &str) -> Result<&TestBinary> {
        let is = |test: &&TestBinary| {
            test.target == target && test.package_dir.ends_with(format!("crates/{directory}"))
        };
        self.tests.iter().find(is).with_context(|| format!("no test `{target}` in {directory}"))
    }

    /// The programs that `test` may start.
    pub(super) fn programs<'a>(
        &'a self,
        test: &'a TestBinary,
    ) -> impl Iterator<Item = &'a Program> {
        self.programs.iter().filter(|program| program.package_dir == test.package_dir)
    }

    /// `test` as cargo would start it.
    pub(super) fn command(&self, test: &TestBinary) -> Command {
        let mut command = Command::new(&test.path);
        command.current_dir(&test.package_dir).env("CARGO_MANIFEST_DIR", &test.package_dir);
        for program in self.programs(test) {
            command.env(format!("CARGO_BIN_EXE_{}", program.name), &program.path);
        }
        command
    }
}
