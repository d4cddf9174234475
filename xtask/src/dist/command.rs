//! The forebay command, with its man pages and the completions of shells: a Debian package, whose program uses the
//! system's C library, and a tarball, whose program is linked statically with musl.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

use anyhow::Result;

use super::{Dist, output, succeed};

const ABOUT: &str =
    "measures disks, finds settings for servers, and shows what a process waits for";

const PACKAGE: &str = "forebay-cli";
const FEATURES: &str = "packaging,tls,object";

pub(super) fn make(dist: &Dist) -> Result<()> {
    let stage = dist.stage("command")?;
    lay_out(&dist.build(PACKAGE, FEATURES)?.join("forebay"), &stage.join("usr"))?;
    dist.deb("forebay", &stage, &shared_libraries(&stage, "usr/bin/forebay")?, ABOUT)?;
    let target = format!("{}-unknown-linux-musl", env::consts::ARCH);
    let stage = dist.stage("command-static")?;
    lay_out(&dist.build_for(&target, PACKAGE, FEATURES)?.join("forebay"), &stage)?;
    dist.tar("forebay", &stage)
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
