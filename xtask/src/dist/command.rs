//! The forebay command, with its man pages and the completions of shells.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::{Dist, output, succeed};

const ABOUT: &str =
    "measures disks, finds settings for servers, and shows what a process waits for";

pub(super) fn make(dist: &Dist) -> Result<()> {
    let program = dist.build("forebay-cli", "packaging,tls,object")?.join("forebay");
    let stage = dist.stage("command")?;
    let bin = stage.join("usr/bin");
    fs::create_dir_all(&bin)?;
    fs::copy(&program, bin.join("forebay"))?;
    let share = stage.join("usr/share");
    succeed(Command::new(&program).arg("generate").arg(&share))?;
    for page in fs::read_dir(share.join("man/man1"))? {
        succeed(Command::new("gzip").args(["-9", "--no-name"]).arg(page?.path()))?;
    }
    dist.deb("forebay", &stage, &shared_libraries(&stage, "usr/bin/forebay")?, ABOUT)?;
    dist.tar("forebay", &stage.join("usr"))
}

/// The packages of the libraries that `program` needs, with their oldest versions, as Debian's own packages have them.
pub(super) fn shared_libraries(stage: &Path, program: &str) -> Result<String> {
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
