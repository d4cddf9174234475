//! The step that makes each package, installs it, uses it as its users do, and removes it.
//!
//! A use is a query whose reads wait, after which the counter of prefetched pages must have counted: a package that
//! can only be loaded proves little. Debian packages are installed in a fresh root of Debian's, those of Python and node
//! in empty directories, those for another architecture under qemu-user. What a check needs comes from the
//! network.

mod crates;
mod root;
mod servers;
mod sqlite;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use cargo_metadata::Metadata;
use tempfile::TempDir;

use super::run::Run;
use crate::dist::{self, Kind, output, succeed};

/// A directory that all users may enter, on a disk, whose reads wait.
const SCRATCH: &str = "/var/tmp";

/// Prefetched pages that were useful, at least, if a query has waited.
const USEFUL_MIN: u64 = 1000;

/// What a check works with.
struct Place<'a> {
    workspace: &'a Metadata,
    /// Empty at first, and removed afterwards.
    scratch: &'a Path,
    /// What was made.
    packages: &'a [PathBuf],
}

/// One way to use the packages of a kind.
struct Check {
    name: &'static str,
    kind: Kind,
    /// Programs without which it is skipped, and the Debian package that has each.
    needs: &'static [(&'static str, &'static str)],
    needs_root: bool,
    run: fn(&Place<'_>) -> Result<()>,
}

const CHECKS: &[Check] = &[
    Check { name: "wheel", kind: Kind::Python, needs: &[], needs_root: false, run: sqlite::wheel },
    Check {
        name: "wheel for aarch64",
        kind: Kind::Python,
        needs: &[("qemu-aarch64-static", "qemu-user-static"), ("debootstrap", "debootstrap")],
        needs_root: true,
        run: sqlite::wheel_of_aarch64,
    },
    Check {
        name: "npm",
        kind: Kind::Node,
        needs: &[("npm", "npm")],
        needs_root: false,
        run: sqlite::npm,
    },
    Check {
        name: "C",
        kind: Kind::C,
        needs: &[("cc", "gcc"), ("pkg-config", "pkg-config libsqlite3-dev")],
        needs_root: false,
        run: sqlite::in_c,
    },
    Check {
        name: "PGXN",
        kind: Kind::Pgxn,
        needs: &[("pg_config", "postgresql-server-dev-15")],
        needs_root: false,
        run: servers::pgxn,
    },
    Check {
        name: "postgresql-NN-forebay",
        kind: Kind::Postgres,
        needs: &[("pg_buildext", "postgresql-server-dev-all"), ("debootstrap", "debootstrap")],
        needs_root: true,
        run: servers::debian,
    },
    Check {
        name: "forebay",
        kind: Kind::Command,
        needs: &[("dpkg-shlibdeps", "dpkg-dev"), ("debootstrap", "debootstrap")],
        needs_root: true,
        run: root::command,
    },
    Check {
        name: "crates",
        kind: Kind::Crates,
        needs: &[],
        needs_root: false,
        run: crates::use_them,
    },
];

pub(super) fn run(run: &mut Run) -> Result<()> {
    let is_root = output(Command::new("id").arg("--user"))? == "0";
    let out = run.workspace.target_directory.join("dist").into_std_path_buf();
    let mut made = None;
    for check in CHECKS {
        if let Some((program, package)) = check.needs.iter().find(|(it, _)| !is_there(it)) {
            run.skip(check.name, &format!("no {program}: apt-get install {package}"));
            continue;
        }
        if check.needs_root && !is_root {
            run.skip(check.name, "needs root");
            continue;
        }
        if made != Some(check.kind) {
            dist::run(run.workspace.clone(), &[check.kind])?;
            made = Some(check.kind);
        }
        let packages = files(&out)?;
        let scratch = TempDir::with_prefix_in("forebay-package-", SCRATCH)?;
        // The server runs as another user.
        fs::set_permissions(scratch.path(), Permissions::from_mode(0o755))?;
        let place =
            Place { workspace: &run.workspace, scratch: scratch.path(), packages: &packages };
        let start = Instant::now();
        (check.run)(&place).with_context(|| check.name)?;
        println!(
            "{}: installed, used, removed in {:.0} s",
            check.name,
            start.elapsed().as_secs_f64()
        );
    }
    Ok(())
}

pub(super) fn is_there(program: &str) -> bool {
    let mut look = Command::new("sh");
    look.args(["-c", &format!("command -v {program} >/dev/null")])
        .status()
        .is_ok_and(|it| it.success())
}

fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(directory)?.map(|it| Ok(it?.path())).collect::<Result<_>>()?;
    files.sort();
    Ok(files)
}

impl Place<'_> {
    /// The package whose name ends so.
    fn package(&self, suffix: &str) -> Result<&Path> {
        let found = self.packages.iter().find(|it| it.to_string_lossy().ends_with(suffix));
        Ok(found.with_context(|| format!("there is no package *{suffix}"))?)
    }

    /// Unpacks a tarball or a zip, and returns the directory.
    fn unpacked(&self, suffix: &str) -> Result<PathBuf> {
        let (package, to) = (self.package(suffix)?, self.scratch.join("unpacked"));
        fs::create_dir_all(&to)?;
        let mut unpack = match suffix.ends_with("gz") {
            true => Command::new("tar"),
            false => Command::new("python3"),
        };
        match suffix.ends_with("gz") {
            true => unpack.args(["--extract", "--file"]).arg(package).arg("--directory").arg(&to),
            false => unpack.args(["-m", "zipfile", "-e"]).arg(package).arg(&to),
        };
        succeed(&mut unpack)?;
        Ok(to)
    }
}

fn was_useful(says: &str) -> Result<()> {
    let useful = says.lines().next_back().and_then(|line| line.parse::<u64>().ok());
    ensure!(useful >= Some(USEFUL_MIN), "useful prefetches: {says}");
    Ok(())
}

/// Fails if a file below `place` has forebay in its name.
fn nothing_is_left(place: &Path) -> Result<()> {
    let left = output(Command::new("find").arg(place).args(["-name", "*forebay*"]))?;
    ensure!(left.is_empty(), "left after the removal: {left}");
    Ok(())
}
