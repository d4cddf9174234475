//! The extension for PostgreSQL: for each server below /usr/lib/postgresql that has its development files, a Debian
//! package, made by Debian's own tools from the source that goes to PGXN, and a tarball of the same files.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use anyhow::{Context as _, Result};

use super::{Dist, copy, linux_on, output, source};

pub(super) fn make(dist: &Dist) -> Result<()> {
    let tree = source::lay_out(dist, "debian")?;
    let debian = tree.join("debian");
    copy(&dist.root().join("integrations/postgres/debian"), &tree)?;
    copy(&dist.root().join("LICENSE-MIT"), &debian.join("copyright"))?;
    let date = output(Command::new("date").args(["--rfc-email", "--utc"]))?;
    let changelog = format!(
        "postgresql-forebay ({}) unstable; urgency=medium\n\n  * See CHANGELOG.md.\n\n -- The Forebay founders <forebay@localhost>  {date}\n",
        dist.version
    );
    fs::write(debian.join("changelog"), changelog)?;
    let here = |program: &str| {
        let mut command = Command::new(program);
        command.current_dir(&tree).env("PG_SUPPORTED_VERSIONS", "installed");
        command.env("CARGO_TARGET_DIR", dist.workspace.target_directory.join("dist-postgres"));
        command
    };
    output(here("pg_buildext").arg("updatecontrol"))?;
    // cargo is not always Debian's.
    let flags = ["--build=binary", "--no-sign", "--no-check-builddeps"];
    let mut build = here("dpkg-buildpackage");
    // Without the packages of debugging symbols; the build's messages are of interest only if it fails.
    output(build.args(flags).env("DEB_BUILD_OPTIONS", "noautodbgsym nocheck"))?;
    let parent = tree.parent().context("no directory around the source")?;
    for package in files(parent, "deb")? {
        copy(&package, &dist.out)?;
    }
    for built in fs::read_dir(&debian)? {
        let built = built?.path();
        let name = built.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if let Some(major) =
            name.strip_prefix("postgresql-").and_then(|it| it.strip_suffix("-forebay"))
        {
            tarball(dist, &name, major, &built.join("usr"))?;
        }
    }
    Ok(())
}

/// The library in `lib`, all else in `share/extension`: as in an image that is mounted as an extension, and to be
/// copied to where `pg_config` names its directories.
fn tarball(dist: &Dist, name: &str, major: &str, installed: &Path) -> Result<()> {
    let stage = dist.stage(&format!("{name}-tarball"))?;
    let (lib, share) = (stage.join("lib"), stage.join("share"));
    fs::create_dir_all(&lib)?;
    fs::create_dir_all(&share)?;
    copy(&installed.join("lib/postgresql").join(major).join("lib/forebay.so"), &lib)?;
    copy(&installed.join("share/postgresql").join(major).join("extension"), &share)?;
    dist.tar(name, &linux_on(env::consts::ARCH), &stage)
}

fn files(directory: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(directory)?.map(|it| Ok(it?.path())).collect::<Result<_>>()?;
    files.retain(|it| it.extension().is_some_and(|it| it == extension));
    files.sort();
    Ok(files)
}
