//! The forebay command, with its man pages and the completions of shells: a Debian package, whose program uses the
//! system's C library, and a tarball, whose program is linked statically with musl.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

use anyhow::Result;

use super::{Dist, linux_on, output, succeed};

const ABOUT: &str =
    "measures disks, finds settings for servers, and shows what a process waits for";

const PACKAGE: &str = "forebay-cli";
const FEATURES: &str = "packaging,tls,object";

pub(super) fn make(dist: &Dist) -> Result<()> {
    let stage = dist.stage("command")?;
    lay_out(&dist.build(PACKAGE, FEATURES)?.join("forebay"), &stage.join("usr"))?;
    debian(dist, &stage)?;
    let target = format!("{}-unknown-linux-musl", env::consts::ARCH);
    let stage = dist.stage("command-static")?;
    lay_out(&dist.build_for(&target, PACKAGE, FEATURES)?.join("forebay"), &stage)?;
    dist.tar("forebay", &linux_on(env::consts::ARCH), &stage)
}

fn lay_out(program: &Path, prefix: &Path) -> Result<()> {
    fs::create_dir_all(prefix.join("bin"))?;
    fs::copy(program, prefix.join("bin/forebay"))?;
    let share = prefix.join("share");
    succeed(Command::new(program).arg("generate").arg(&share))?;
    for page in fs::read_dir(share.join("man/man1"))? {
        succeed(Command::new("gzip").args(["-9", "--no-name"]).arg(page?.path()))?;
    }
    Ok(())
}

/// Makes the Debian package of what is below `stage`.
fn debian(dist: &Dist, stage: &Path) -> Result<()> {
    let depends = shared_libraries(stage, "usr/bin/forebay")?;
    let architecture = output(Command::new("dpkg").arg("--print-architecture"))?;
    let control = format!(
        "Package: forebay\nVersion: {}\nArchitecture: {architecture}\nMaintainer: The Forebay founders <forebay@localhost>\n\
         Depends: {depends}\nSection: database\nPriority: optional\nDescription: {ABOUT}\n",
        dist.version
    );
    let doc = stage.join("usr/share/doc/forebay");
    fs::create_dir_all(&doc)?;
    fs::copy(dist.root().join("LICENSE-MIT"), doc.join("copyright"))?;
    fs::create_dir_all(stage.join("DEBIAN"))?;
    fs::write(stage.join("DEBIAN/control"), control)?;
    let mut packager = Command::new("dpkg-deb");
    succeed(packager.args(["--root-owner-group", "--build"]).arg(stage).arg(&dist.out))
}

/// The packages of the libraries that `program` needs, with their oldest versions, as Debian's own packages have them.
fn shared_libraries(stage: &Path, program: &str) -> Result<String> {
    // The tool wants to stand in a source package.
    let debian = stage.join("debian");
    fs::create_dir_all(&debian)?;
    fs::write(debian.join("control"), "Source: forebay\n\nPackage: forebay\nArchitecture: any\n")?;
    let mut tool = Command::new("dpkg-shlibdeps");
    let printed = output(tool.current_dir(stage).args(["-O", "--ignore-missing-info", program]))?;
    fs::remove_dir_all(debian)?;
    let depends = printed.strip_prefix("shlibs:Depends=").unwrap_or("libc6");
    Ok(depends.to_owned())
}
