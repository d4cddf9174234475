//! The step that runs tests of io and pool on other filesystems: made on files, and mounted.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::again;
use super::binaries::Binaries;
use super::run::Run;

/// The filesystem, and the command that makes one on a file.
const DISKS: [(&str, [&str; 3]); 3] = [
    ("ext4", ["mkfs.ext4", "-q", "-F"]),
    ("xfs", ["mkfs.xfs", "-q", "-f"]),
    ("btrfs", ["mkfs.btrfs", "-q", "-f"]),
];

/// Bytes of a filesystem: several times the need of the largest test.
const DISK_BYTES: u64 = 4 << 30;

pub(super) fn run(run: &mut Run) -> Result<()> {
    let binaries = Binaries::get(run)?;
    for (kind, maker) in DISKS {
        let scratch = tempfile::Builder::new().prefix("forebay-disk-").tempdir()?;
        let mounted = match Mounted::new(scratch.path(), maker) {
            Ok(mounted) => mounted,
            Err(error) => {
                run.skip(kind, &format!("{error:#}"));
                continue;
            }
        };
        println!("on {kind}");
        again::parts(run, &binaries, again::WHOLE, |_, test, names| {
            let mut command = test.command();
            command.args(names).env("TMPDIR", &mounted.directory);
            Ok(Some(command))
        })?;
    }
    Ok(())
}

/// A private filesystem, removed when this is dropped.
struct Mounted {
    directory: PathBuf,
}

impl Mounted {
    fn new(scratch: &Path, [program, quietly, anyway]: [&str; 3]) -> Result<Self> {
        let (disk, directory) = (scratch.join("disk"), scratch.join("mounted"));
        fs::create_dir(&directory).context("cannot make a mount point")?;
        File::create(&disk)
            .and_then(|file| file.set_len(DISK_BYTES))
            .context("cannot make a disk")?;
        succeed(Command::new(program).args([quietly, anyway]).arg(&disk))?;
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
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}: {}", output.status, said.trim());
    Ok(())
}
