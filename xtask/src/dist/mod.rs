//! `cargo xtask dist`: the packages, in target/dist.
//!
//! A kind builds what it packages with the profile `packaged`, lays it out below target/dist/stage, and calls the
//! packager of each ecosystem: dpkg, tar, Python's `wheel`, npm, cargo. What is to run on other systems than this one is
//! built by cargo-zigbuild, which links against older C libraries and for other architectures; it comes from PyPI, as
//! `wheel` does, into target/dist-tools.
//!
//! Failure:     a tool that is missing is an error that names it and the package that has it.

mod book;
mod command;
mod crates;
mod postgres;
mod source;
mod sqlite;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use anyhow::{Context as _, Result, ensure};
use cargo_metadata::Metadata;
use clap::ValueEnum;

use crate::workspace;

/// What can be packaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// The forebay command: a Debian package and a tarball
    Command,
    /// The extension for each PostgreSQL that is installed with its development files: Debian packages and tarballs
    Postgres,
    /// The source of the extension for PostgreSQL, for PGXN
    Pgxn,
    /// The extension for SQLite: Python wheels
    Python,
    /// The extension for SQLite: an npm package
    Node,
    /// The extension for SQLite with its header and pkg-config file, for C, Go and PHP
    C,
    /// The crates, in the order in which they are published
    Crates,
    /// The documentation as a book
    Book,
}

/// From PyPI. cargo-zigbuild brings Zig, whose linker and C libraries it uses.
const TOOLS: [&str; 2] = ["cargo-zigbuild==0.24.1", "wheel==0.45.1"];

/// What all kinds need.
struct Dist {
    workspace: Metadata,
    /// target/dist, where the packages go.
    out: PathBuf,
    version: String,
}

/// Makes packages of `kinds`, or of all; lists them with their sizes and checksums.
///
/// # Errors
/// A build or a packager fails, or a tool is missing.
pub(crate) fn run(workspace: Metadata, kinds: &[Kind]) -> Result<()> {
    let out = workspace.target_directory.join("dist").into_std_path_buf();
    if out.exists() {
        fs::remove_dir_all(&out)?;
    }
    fs::create_dir_all(out.join("stage"))?;
    let package = workspace.packages.iter().find(|it| it.name.as_str() == "forebay-cli");
    let version = package.context("there is no crate forebay-cli")?.version.to_string();
    let dist = Dist { workspace, out, version };
    for kind in if kinds.is_empty() { Kind::value_variants() } else { kinds } {
        match kind {
            Kind::Command => command::make(&dist)?,
            Kind::Postgres => postgres::make(&dist)?,
            Kind::Pgxn => source::pgxn(&dist)?,
            Kind::Python => sqlite::wheels(&dist)?,
            Kind::Node => sqlite::npm(&dist)?,
            Kind::C => sqlite::for_c(&dist)?,
            Kind::Crates => crates::make(&dist)?,
            Kind::Book => book::make(&dist)?,
        }
    }
    dist.list()
}

impl Dist {
    fn root(&self) -> &Path {
        self.workspace.workspace_root.as_std_path()
    }

    /// An empty directory in which a package is laid out.
    fn stage(&self, name: &str) -> Result<PathBuf> {
        let stage = self.out.join("stage").join(name);
        fs::create_dir_all(&stage)?;
        Ok(stage)
    }

    /// Builds `package` for packaging, and returns the directory of what was built.
    fn build(&self, package: &str, features: &str) -> Result<PathBuf> {
        let mut cargo = workspace::cargo(&self.workspace);
        cargo.args(["build", "--profile", "packaged", "-p", package, "--features", features]);
        succeed(&mut cargo)?;
        Ok(self.workspace.target_directory.join("packaged").into_std_path_buf())
    }

    /// Builds `package` for `target`, and returns the directory of what was built. The target may end in the oldest
    /// version of the C library that is to have all that is called, as in `x86_64-unknown-linux-gnu.2.17`.
    fn build_for(&self, target: &str, package: &str, features: &str) -> Result<PathBuf> {
        let (triple, _) = target.split_once('.').unwrap_or((target, ""));
        let mut rustup = Command::new("rustup");
        succeed(rustup.args(["--quiet", "target", "add", triple]))?;
        let mut cargo = workspace::cargo(&self.workspace);
        let path = env::var_os("PATH").unwrap_or_default();
        let tools = [self.python()?.parent().context("Python is nowhere")?.to_owned()];
        cargo.env("PATH", env::join_paths(tools.into_iter().chain(env::split_paths(&path)))?);
        cargo.args(["zigbuild", "--profile", "packaged", "-p", package, "--features", features]);
        succeed(cargo.args(["--target", target]))?;
        Ok(self.workspace.target_directory.join(triple).join("packaged").into_std_path_buf())
    }

    /// Where programs of others are installed that packages are made with.
    fn tools(&self) -> PathBuf {
        self.workspace.target_directory.join("dist-tools").into_std_path_buf()
    }

    /// A Python with the packages that this needs, in target/dist-tools.
    fn python(&self) -> Result<PathBuf> {
        let tools = self.tools();
        let python = tools.join("bin/python");
        let complete = tools.join("complete");
        if !complete.exists() {
            succeed(Command::new("python3").args(["-m", "venv"]).arg(&tools))?;
            let pip = ["-m", "pip", "--quiet", "--disable-pip-version-check", "install"];
            succeed(Command::new(&python).args(pip).args(TOOLS))?;
            fs::write(complete, "")?;
        }
        Ok(python)
    }

    /// Makes a tarball of the contents of `stage`. `name` has no version yet; `system` is what it is for.
    fn tar(&self, name: &str, system: &str, stage: &Path) -> Result<()> {
        let path = self.out.join(format!("{name}-{}{system}.tar.gz", self.version));
        let mut tar = Command::new("tar");
        tar.args(["--create", "--gzip", "--owner=0", "--group=0", "--sort=name", "--file"]);
        succeed(tar.arg(path).arg("--directory").arg(stage).arg("."))
    }

    /// Prints each package with its size and checksum.
    fn list(&self) -> Result<()> {
        fs::remove_dir_all(self.out.join("stage"))?;
        let mut packages: Vec<PathBuf> =
            fs::read_dir(&self.out)?.map(|it| Ok(it?.path())).collect::<Result<_>>()?;
        packages.sort();
        for path in packages {
            let sum = output(Command::new("sha256sum").arg(&path))?;
            let sum = sum.split_whitespace().next().unwrap_or_default();
            let kib = fs::metadata(&path)?.len().div_ceil(1024);
            println!("{kib:>7} KiB  {sum}  {}", path.display());
        }
        Ok(())
    }
}

/// What a package's name says of Linux on `architecture`.
fn linux_on(architecture: &str) -> String {
    format!("-linux-{architecture}")
}

/// Copies a file, or a directory with all below it, into a directory or to a new name.
fn copy(from: &Path, to: &Path) -> Result<()> {
    succeed(Command::new("cp").arg("--recursive").arg(from).arg(to))
}

/// Runs `command` to its end.
pub(crate) fn succeed(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| missing(command))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}

/// What `command` prints, without the line's end.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| missing(command))?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?.trim_end().to_owned())
}

fn missing(command: &Command) -> String {
    let program = command.get_program().to_string_lossy();
    let package = match &*program {
        "dpkg-shlibdeps" | "dpkg-buildpackage" => "dpkg-dev debhelper",
        "pg_buildext" => "postgresql-server-dev-all",
        "npm" => "npm",
        "rustup" => return "rustup cannot be started: install it from https://rustup.rs, for the other targets".to_owned(),
        "python3" => "python3",
        _ => "its package",
    };
    format!("{program} cannot be started: apt-get install {package}")
}
