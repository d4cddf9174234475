//! A root of Debian's without anything that is not needed, and the packages of the command in it.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::Place;
use crate::dist::{output, succeed};

/// Debian 12, for which the packages are made.
const SUITE: &str = "bookworm";

/// With the security updates: a package for a server demands the minor version that it was built for.
const SOURCES: &str = "deb http://deb.debian.org/debian bookworm main\n\
deb http://deb.debian.org/debian bookworm-updates main\n\
deb http://deb.debian.org/debian-security bookworm-security main\n";

/// A root into which commands change. What is mounted in it is unmounted when it is dropped.
pub(super) struct Root<'a> {
    path: &'a Path,
}

impl<'a> Root<'a> {
    pub(super) fn new(path: &'a Path) -> Result<Root<'a>> {
        output(Command::new("debootstrap").args(["--variant=minbase", SUITE]).arg(path))?;
        // No service is started by an installation.
        fs::write(path.join("usr/sbin/policy-rc.d"), "#!/bin/sh\nexit 101\n")?;
        succeed(Command::new("chmod").arg("+x").arg(path.join("usr/sbin/policy-rc.d")))?;
        fs::write(path.join("etc/apt/sources.list"), SOURCES)?;
        let root = Root { path };
        succeed(Command::new("mount").args(["-t", "proc", "proc"]).arg(path.join("proc")))?;
        output(root.command("apt-get").args(["--quiet", "update"]))?;
        Ok(root)
    }

    /// `program` in the root.
    pub(super) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("chroot");
        command.arg(self.path).arg(program).env("DEBIAN_FRONTEND", "noninteractive");
        command.env("LC_ALL", "C.UTF-8").current_dir("/");
        command
    }

    /// Installs a package as a user does, with what it depends on; calls `using`; removes it.
    pub(super) fn with(&self, package: &Path, using: impl FnOnce() -> Result<()>) -> Result<()> {
        let name = output(Command::new("dpkg-deb").arg("--field").arg(package).arg("Package"))?;
        let file = package.file_name().context("the package has no name")?;
        fs::copy(package, self.path.join("tmp").join(file))?;
        let apt = || {
            let mut apt = self.command("apt-get");
            apt.args(["--quiet", "--yes", "--no-install-recommends"]);
            apt
        };
        output(apt().arg("install").arg(Path::new("/tmp").join(file)))?;
        let listed = output(self.command("dpkg").arg("--listfiles").arg(&name))?;
        let used = using();
        output(apt().arg("purge").arg(&name))?;
        used?;
        let is_left = |it: &&str| self.path.join(it.trim_start_matches('/')).exists();
        let left = listed.lines().filter(|it| it.contains("forebay")).find(is_left);
        ensure!(left.is_none(), "left after the removal: {left:?}");
        Ok(())
    }
}

impl Drop for Root<'_> {
    fn drop(&mut self) {
        // If this fails, the directory cannot be removed either, and the caller reports that.
        let _ = Command::new("umount").arg(self.path.join("proc")).status();
    }
}

/// Unpacks Debian's base system and `packages` of another architecture below `path`. Nothing is configured: no program
/// of it has to run for that.
pub(super) fn unpacked(path: &Path, architecture: &str, packages: &[&str]) -> Result<()> {
    let mut debootstrap = Command::new("debootstrap");
    debootstrap.args(["--foreign", "--variant=minbase", &format!("--arch={architecture}")]);
    debootstrap.arg(format!("--include={}", packages.join(","))).arg(SUITE).arg(path);
    output(&mut debootstrap)?;
    for archive in super::files(&path.join("var/cache/apt/archives"))? {
        if archive.extension().is_some_and(|it| it == "deb") {
            output(Command::new("dpkg-deb").arg("--extract").arg(archive).arg(path))?;
        }
    }
    Ok(())
}

/// The package in a fresh root; and the program of the tarball in a root with nothing but itself.
pub(super) fn command(place: &Place<'_>) -> Result<()> {
    let lists = |mut forebay: Command| {
        let says = output(forebay.args(["emulate", "--list"]))?;
        ensure!(says.contains("raid10-12"), "{says}");
        Ok(())
    };
    let path = place.scratch.join("root");
    let root = Root::new(&path)?;
    root.with(place.package(".deb")?, || {
        lists(root.command("/usr/bin/forebay"))?;
        // Measures a disk, if only for a moment.
        let depth =
            ["lab", "depth", "--quick", "--size", "16MiB", "--rounds", "1", "--depths", "0,16"];
        let says = output(root.command("/usr/bin/forebay").args(depth).args(["--dir", "/tmp"]))?;
        ensure!(says.contains("uring direct") || says.contains("sync direct"), "{says}");
        Ok(())
    })?;
    let unpacked = place.unpacked(".tar.gz")?;
    let mut alone = Command::new("chroot");
    alone.arg(&unpacked).arg("/bin/forebay");
    lists(alone)
}
