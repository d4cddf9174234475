//! `cargo xtask dist`: the packages, in target/dist.
//!
//! Each kind builds what it packages with the profile `packaged`, lays it out below target/dist/stage, and calls the
//! packager of its own world: dpkg-deb, tar, Python's `wheel`, npm. Libraries and programs are those of this machine's
//! architecture and of its C library or a newer one.
//!
//! Failure:     a tool that is missing is an error that names it and the package that has it.

mod command;
mod postgres;
mod sqlite;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use cargo_metadata::Metadata;

use crate::workspace;

/// What can be packaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    /// The forebay command: a Debian package and a tarball
    Command,
    /// The extension for each PostgreSQL that is installed with its development files: Debian packages and tarballs
    Postgres,
    /// The extension for SQLite: a Python wheel
    Python,
    /// The extension for SQLite: an npm package
    Node,
}

const ALL: [Kind; 4] = [Kind::Command, Kind::Postgres, Kind::Python, Kind::Node];

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
    fs::create_dir_all(&out)?;
    let package = workspace.packages.iter().find(|it| it.name.as_str() == "forebay-cli");
    let version = package.context("there is no crate forebay-cli")?.version.to_string();
    let dist = Dist { workspace, out, version };
    for kind in if kinds.is_empty() { &ALL } else { kinds } {
        match kind {
            Kind::Command => command::make(&dist)?,
            Kind::Postgres => postgres::make(&dist)?,
            Kind::Python => sqlite::wheel(&dist)?,
            Kind::Node => sqlite::npm(&dist)?,
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

    /// Makes a Debian package of `stage`. `depends` is its dependencies, `about` one line.
    fn deb(&self, name: &str, stage: &Path, depends: &str, about: &str) -> Result<()> {
        let architecture = output(Command::new("dpkg").arg("--print-architecture"))?;
        let control = format!(
            "Package: {name}\nVersion: {}\nArchitecture: {architecture}\nMaintainer: The Forebay founders <forebay@localhost>\n\
             Depends: {depends}\nSection: database\nPriority: optional\nDescription: {about}\n",
            self.version
        );
        let doc = stage.join("usr/share/doc").join(name);
        fs::create_dir_all(&doc)?;
        fs::copy(self.root().join("LICENSE-MIT"), doc.join("copyright"))?;
        fs::create_dir_all(stage.join("DEBIAN"))?;
        fs::write(stage.join("DEBIAN/control"), control)?;
        let mut packager = Command::new("dpkg-deb");
        succeed(packager.args(["--root-owner-group", "--build"]).arg(stage).arg(&self.out))?;
        fs::remove_dir_all(stage.join("DEBIAN"))?;
        Ok(())
    }

    /// Makes a tarball of the contents of `stage`.
    fn tar(&self, name: &str, stage: &Path) -> Result<()> {
        let path = self.out.join(format!("{name}-{}-linux-{}.tar.gz", self.version, machine()));
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

/// This machine's architecture, as its kernel names it.
fn machine() -> &'static str {
    std::env::consts::ARCH
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
        "dpkg-shlibdeps" => "dpkg-dev",
        "npm" => "npm",
        "strip" => "binutils",
        "python3" => "python3",
        _ => "its package",
    };
    format!("{program} cannot be started: apt-get install {package}")
}
