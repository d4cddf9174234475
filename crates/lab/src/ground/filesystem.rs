//! A filesystem of the run's own: made on a file, mounted to be measured, and gone afterwards.
//!
//! The file, mostly the disk of an emulation, is shown as a block device by a loop device that reads
//! and writes it past the page cache; on that goes a filesystem without anything that works in the
//! background (no lazy initialisation, no discards), and it is mounted in a private directory. Worked
//! example: `/tmp/forebay-a/disk` becomes `/dev/loop0`, ext4 on it, seen in `/tmp/forebay-mount-b`.
//!
//! Invariants:  [FSY-1] a file that is shown as a device already is not formatted
//!              [FSY-2] the loop device passes the page cache of the file: what is read ahead is read
//!              ahead once, and the device below sees it
//! Concurrency: one owner; gone in the opposite order, which the order of the fields says.
//! Failure:     what this machine or user lacks is bad input and names what to install; whatever was
//!              done until then is undone.

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::Context;

use super::ledger::{self, Attached, Change, Undo, loops_over};
use super::program::run;
use crate::bad_input;

/// How far the kernel reads ahead on a disk that does not say which requests it likes best, as most do. A
/// loop device says that it likes the largest it takes, and would be read 2560 KiB ahead.
const READAHEAD_KIB: u64 = 128;

/// How the names of mount points begin.
const PREFIX: &str = "forebay-mount-";

/// The filesystems that can be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filesystem {
    /// The usual one.
    Ext4,
    /// Large files and many writers.
    Xfs,
    /// Copy on write, with checksums.
    Btrfs,
}

impl Filesystem {
    /// All of them.
    pub const ALL: [Filesystem; 3] = [Filesystem::Ext4, Filesystem::Xfs, Filesystem::Btrfs];

    /// As the kernel calls it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Filesystem::Ext4 => "ext4",
            Filesystem::Xfs => "xfs",
            Filesystem::Btrfs => "btrfs",
        }
    }

    /// The program that makes it.
    #[must_use]
    pub fn maker(self) -> &'static str {
        match self {
            Filesystem::Ext4 => "mkfs.ext4",
            Filesystem::Xfs => "mkfs.xfs",
            Filesystem::Btrfs => "mkfs.btrfs",
        }
    }

    /// # Errors
    /// [`BadInput`](crate::BadInput): this user cannot mount it.
    pub(super) fn check_rights(self) -> anyhow::Result<()> {
        if !rustix::process::geteuid().is_root() {
            bad_input!(
                "--fs {self}: making a loop device and mounting it needs root; run as root, or leave \
                 --fs out"
            );
        }
        Ok(())
    }

    /// Quietly, over whatever is there, and without discarding a disk that is empty anyway. Tables that
    /// need not be written are not: they would fill the memory in which an emulated disk is kept.
    fn making(self) -> &'static [&'static str] {
        match self {
            Filesystem::Ext4 => {
                &["-q", "-F", "-m", "0", "-E", "lazy_itable_init=1,lazy_journal_init=1,nodiscard"]
            }
            Filesystem::Xfs => &["-q", "-f", "-K", "-l", "size=64m"],
            Filesystem::Btrfs => &["-q", "-f", "-K", "-m", "single", "-d", "single"],
        }
    }

    /// Nothing in the background: neither tables that were left out, nor discards.
    fn mounting(self) -> &'static std::ffi::CStr {
        match self {
            Filesystem::Ext4 => c"noinit_itable",
            Filesystem::Xfs => c"nodiscard",
            Filesystem::Btrfs => c"nodiscard",
        }
    }
}

impl fmt::Display for Filesystem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

impl FromStr for Filesystem {
    type Err = String;

    fn from_str(name: &str) -> Result<Filesystem, String> {
        let found = Filesystem::ALL.into_iter().find(|one| one.name() == name.trim());
        found.ok_or_else(|| "there are ext4, xfs and btrfs".to_owned())
    }
}

/// A filesystem on a file, mounted until this is dropped.
#[derive(Debug)]
pub struct Mounted {
    directory: PathBuf,
    device: Attached,
    // In the order in which they are undone.
    mount: Undo,
    attached: Undo,
    point: Undo,
}

impl Mounted {
    /// Makes `filesystem` on `file`, whatever is in it, and mounts it.
    ///
    /// # Errors
    /// [`BadInput`](crate::BadInput): the user is not root, a program is missing, or the kernel lacks
    /// the filesystem; or the file is in use ([FSY-1]). Otherwise what went wrong.
    pub fn over(file: &Path, filesystem: Filesystem) -> anyhow::Result<Mounted> {
        filesystem.check_rights()?;
        let file = std::fs::canonicalize(file)
            .with_context(|| format!("cannot look at {}", file.display()))?;
        if let Some(device) = loops_over(&file).first() {
            // [FSY-1]
            bad_input!(
                "{} is shown as /dev/{} already; detach that first (losetup --detach /dev/{})",
                file.display(),
                device.name,
                device.name
            );
        }
        let directory = std::fs::canonicalize(std::env::temp_dir())
            .context("cannot look at the directory for temporary files")?
            .join(ledger::fresh_name(PREFIX));
        let point = ledger::make_directory(&directory, false)
            .with_context(|| format!("cannot make the directory {}", directory.display()))?;
        let (attached, device) = attach(&file)?;
        check_direct(&file, &device)?;
        set_readahead(&device)?;
        let path = format!("/dev/{}", device.name);
        make(filesystem, &path)?;
        let change = Change::Mount { point: directory.clone(), source: path.clone() };
        let (mount, ()) = Undo::doing(change, |_| mount_at(&path, &directory, filesystem))?;
        Ok(Mounted { directory, device, mount, attached, point })
    }

    /// Where it is mounted.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The loop device that it is on, such as `loop0`.
    #[must_use]
    pub fn device(&self) -> &str {
        &self.device.name
    }

    /// Unmounts it, and detaches the device. Nobody may use it any more.
    ///
    /// # Errors
    /// The first thing that could not be undone; the rest is undone all the same.
    pub fn remove(self) -> anyhow::Result<()> {
        let Mounted { mount, attached, point, .. } = self;
        let results = [mount.undo(), attached.undo(), point.undo()];
        results.into_iter().collect::<Result<(), _>>()?;
        Ok(())
    }
}

/// Shows `file` as a block device.
fn attach(file: &Path) -> anyhow::Result<(Undo, Attached)> {
    let change = Change::Loop { backing_file: file.to_owned(), attached: None };
    Undo::doing(change, |exact| {
        let words = ["--find", "--show", "--direct-io=on", "--"];
        let words: Vec<&OsStr> =
            words.map(OsStr::new).into_iter().chain([file.as_os_str()]).collect();
        let said = run("losetup", &words).map_err(|error| {
            lacking("a loop device", &error).unwrap_or_else(|| {
                anyhow::anyhow!("cannot show {} as a device: {error}", file.display())
            })
        })?;
        let device = Attached::of(said.trim())
            .with_context(|| format!("losetup named a strange device: {}", said.trim()))?;
        *exact = Change::Loop { backing_file: file.to_owned(), attached: Some(device.clone()) };
        Ok(device)
    })
}

/// [FSY-2]: losetup falls back to the page cache without a word.
fn check_direct(file: &Path, device: &Attached) -> anyhow::Result<()> {
    let switch = format!("/sys/block/{}/loop/dio", device.name);
    let text = std::fs::read_to_string(&switch).with_context(|| format!("cannot read {switch}"))?;
    if text.trim() != "1" {
        bad_input!(
            "--fs: {} cannot be read past the page cache, so that a loop device over it would be \
             cached twice; put it on another filesystem",
            file.display()
        );
    }
    Ok(())
}

/// Not in the ledger: the kernel sets its own again when the device is detached.
fn set_readahead(device: &Attached) -> anyhow::Result<()> {
    let file = format!("/sys/block/{}/queue/read_ahead_kb", device.name);
    std::fs::write(&file, format!("{READAHEAD_KIB}\n"))
        .with_context(|| format!("cannot write {file}"))
}

fn make(filesystem: Filesystem, device: &str) -> anyhow::Result<()> {
    let words = filesystem.making().iter().copied().chain([device]);
    let words: Vec<&OsStr> = words.map(OsStr::new).collect();
    run(filesystem.maker(), &words).map(drop).map_err(|error| {
        lacking(&format!("--fs {filesystem}"), &error)
            .unwrap_or_else(|| anyhow::anyhow!("cannot make {filesystem} on {device}: {error}"))
    })
}

#[cfg(target_os = "linux")]
fn mount_at(device: &str, point: &Path, filesystem: Filesystem) -> anyhow::Result<()> {
    use rustix::io::Errno;
    use rustix::mount::MountFlags;
    let flags = MountFlags::NOATIME | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::NOSUID;
    let mount =
        || rustix::mount::mount(device, point, filesystem.name(), flags, filesystem.mounting());
    let mut result = mount();
    for _ in 0..40 {
        // Whoever looks at every new disk (udev) holds it for a moment.
        if result != Err(Errno::BUSY) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
        result = mount();
    }
    match result {
        Ok(()) => Ok(()),
        Err(Errno::NODEV) => {
            bad_input!(
                "--fs {filesystem}: this kernel has no {filesystem} (modprobe {filesystem}?)"
            )
        }
        Err(Errno::PERM | Errno::ACCESS) => bad_input!(
            "--fs {filesystem}: this root may not mount; run on the machine itself, not in a container"
        ),
        Err(error) => Err(io::Error::from(error))
            .with_context(|| format!("cannot mount {device} on {}", point.display())),
    }
}

#[cfg(not(target_os = "linux"))]
fn mount_at(_device: &str, _point: &Path, filesystem: Filesystem) -> anyhow::Result<()> {
    bad_input!("--fs {filesystem}: this system has no loop devices; leave --fs out")
}

/// `error` as bad input, if it says that a program is missing.
fn lacking(what: &str, error: &io::Error) -> Option<anyhow::Error> {
    let missing = error.kind() == io::ErrorKind::NotFound;
    missing.then(|| crate::BadInput(format!("{what}: {error}")).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filesystems_are_named_as_the_kernel_names_them() {
        for filesystem in Filesystem::ALL {
            assert_eq!(filesystem.to_string().parse(), Ok(filesystem));
            assert!(filesystem.maker().ends_with(filesystem.name()));
        }
        assert!("zfs".parse::<Filesystem>().unwrap_err().contains("ext4, xfs and btrfs"));
    }

    #[test]
    fn whoever_is_not_root_is_told_so_in_a_sentence() {
        if rustix::process::geteuid().is_root() {
            return;
        }
        let error = Mounted::over(Path::new("/dev/null"), Filesystem::Xfs).unwrap_err();
        assert!(error.is::<crate::BadInput>());
        assert!(error.to_string().contains("needs root"), "{error}");
    }
}
