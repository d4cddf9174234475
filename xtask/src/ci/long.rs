//! The long steps: the ordinary ones with higher counts, everywhere, and all of it.

use std::process::Command;

use anyhow::Result;

use super::Context;
use super::binaries::Built;
use super::child;
use super::report::Outcome;
use super::steps::{self, run_tests};

/// Killed writers, in all.
const KILL_ROUNDS: &str = "200";
/// Power cuts that the documentation promises.
const POWER_CUTS: &str = "100000";
const SOAK_SECONDS: &str = "60";

/// One test of the pool, with a count from its environment.
fn counted(context: &Context, step: &str, target: &str, set: [&str; 2]) -> Result<Outcome> {
    let built = Built::get(context)?;
    let mut command = built.command(built.find("pool", target)?);
    run_tests(context, step, command.env(set[0], set[1]))
}

pub(super) fn kills(context: &Context) -> Result<Outcome> {
    counted(context, "kills", "kill", ["FOREBAY_KILL_ROUNDS", KILL_ROUNDS])
}

fn optimised(context: &Context) -> Command {
    steps::cargo(context, &["test", "--release", "-p", "forebay"])
}

pub(super) fn build_optimised(context: &Context) -> Result<Vec<Command>> {
    let mut command = optimised(context);
    command.args(["--test", "pool", "--test", "power", "--quiet", "--no-run"]);
    Ok(vec![command])
}

pub(super) fn soak(context: &Context) -> Result<Outcome> {
    let mut command = optimised(context);
    command.args(["--test", "pool", "soak"]).env("FOREBAY_SOAK_SECONDS", SOAK_SECONDS);
    run_tests(context, "soak", &mut command)
}

pub(super) fn cuts(context: &Context) -> Result<Outcome> {
    let mut command = optimised(context);
    command.args(["--test", "power"]).env("FOREBAY_POWER_CUTS", POWER_CUTS);
    run_tests(context, "cuts", &mut command)
}

/// Each model goes to the bound that it says itself.
pub(super) fn loom(context: &Context) -> Result<Outcome> {
    let mut command = steps::test_loom(context);
    child::run(context, command.arg("loom_"))
}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs::File;
    use std::path::Path;

    use anyhow::{Context as _, bail};

    use super::*;
    use crate::ci::again::WHOLE;
    use crate::ci::ordinary_user::OrdinaryUser;
    use crate::no_uring::Errno;

    pub(crate) fn lab(context: &Context) -> Result<Outcome> {
        let built = Built::get(context)?;
        let test = built.find("lab", "lab")?;
        let command = built.command(test);
        let mut outcome = steps::run_without_uring(context, "lab", command, Errno::Eperm)?;
        outcome.add(match OrdinaryUser::new()? {
            Ok(user) => user.run(context, &built, test, &built.command(test))?,
            Err(skipped) => skipped,
        });
        Ok(outcome)
    }

    pub(crate) fn enosys(context: &Context) -> Result<Outcome> {
        let built = Built::get(context)?;
        let mut outcome = Outcome::default();
        for (directory, target) in WHOLE {
            let command = built.command(built.find(directory, target)?);
            outcome.add(steps::run_without_uring(context, "enosys", command, Errno::Enosys)?);
        }
        Ok(outcome)
    }

    /// The filesystem, and the command that makes one on a file.
    const DISKS: [(&str, &[&str]); 3] = [
        ("ext4", &["mkfs.ext4", "-q", "-F"]),
        ("xfs", &["mkfs.xfs", "-q", "-f"]),
        ("btrfs", &["mkfs.btrfs", "-q", "-f"]),
    ];

    /// Bytes of a filesystem: what the largest test takes, several times.
    const DISK_BYTES: u64 = 4 << 30;

    pub(crate) fn disks(context: &Context) -> Result<Outcome> {
        let built = Built::get(context)?;
        let mut outcome = Outcome::default();
        for (kind, maker) in DISKS {
            let scratch = tempfile::Builder::new().prefix("forebay-disk-").tempdir()?;
            let mounted = match Mounted::new(scratch.path(), maker) {
                Ok(mounted) => mounted,
                Err(error) => {
                    outcome.add(steps::not_here(&format!("no {kind} here: {error:#}")));
                    continue;
                }
            };
            for (directory, target) in WHOLE {
                let mut command = built.command(built.find(directory, target)?);
                command.env("TMPDIR", &mounted.directory);
                let step = format!("disks-{kind}");
                outcome.add(run_tests(context, &step, &mut command)?);
            }
        }
        Ok(outcome)
    }

    /// A filesystem of our own, which goes with this.
    struct Mounted {
        directory: std::path::PathBuf,
    }

    impl Mounted {
        fn new(scratch: &Path, maker: &[&str]) -> Result<Self> {
            let directory = scratch.join("mounted");
            std::fs::create_dir(&directory).context("cannot make a mount point")?;
            let disk = scratch.join("disk");
            let file = File::create(&disk).context("cannot make a disk")?;
            file.set_len(DISK_BYTES).context("cannot make a disk")?;
            succeed(Command::new(maker[0]).args(&maker[1..]).arg(&disk))?;
            succeed(Command::new("mount").args(["-o", "loop"]).arg(&disk).arg(&directory))?;
            Ok(Self { directory })
        }
    }

    impl Drop for Mounted {
        fn drop(&mut self) {
            if let Err(error) = succeed(Command::new("umount").arg(&self.directory)) {
                println!("{error:#}");
            }
        }
    }

    fn succeed(command: &mut Command) -> Result<()> {
        let program = command.get_program().to_string_lossy().into_owned();
        let path = std::env::var("PATH").unwrap_or_default();
        // The system's own tools are not in every user's path.
        command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
        let output = command.output().with_context(|| format!("cannot run {program}"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("{program}: {}: {}", output.status, said.trim());
        }
        Ok(())
    }
}

#[cfg(target_os = "linux")]
pub(super) use linux::{disks, enosys, lab};

#[cfg(not(target_os = "linux"))]
mod elsewhere {
    use super::*;

    fn not_here() -> Result<Outcome> {
        Ok(steps::not_here("written for Linux only"))
    }

    pub(crate) fn lab(_: &Context) -> Result<Outcome> {
        not_here()
    }

    pub(crate) fn enosys(_: &Context) -> Result<Outcome> {
        not_here()
    }

    pub(crate) fn disks(_: &Context) -> Result<Outcome> {
        not_here()
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) use elsewhere::{disks, enosys, lab};
