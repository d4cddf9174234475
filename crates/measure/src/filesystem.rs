//! A filesystem for one run: made on a file, mounted to be measured, and removed afterwards.
//!
//! A loop device, which reads and writes past the page cache, presents the file (usually the disk of an
//! emulation) as a block device. The filesystem on it does no background work (no lazy initialisation, no
//! discards) and is mounted in a private directory. Worked
//! example: `/tmp/forebay-a/disk` becomes `/dev/loop0`, with ext4 on it, mounted at `/tmp/forebay-mount-b`.
//!
//! Invariants:  [FSY-1] a file that is already attached to a device is not formatted
//!              [FSY-2] the loop device bypasses the page cache of the file: readahead happens
//!              once, and the device below sees it
//! Concurrency: one owner; removed in the opposite order, which is the order of the fields.
//! Failure:     what this machine or user lacks is bad input and names what to install; the steps
//!              done until then are undone.

use std::ffi::{CStr, OsStr};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::ValueEnum;
use serde::Serialize;

use crate::bad_input;
use crate::program::run;
use crate::retry::retry_with_backoff;
use crate::undo_log::{self, Change, Undo, loops_over};

/// How far the kernel reads ahead on a disk that reports no preferred request size, as most do. A
/// loop device reports its maximum request size as preferred, which would make the readahead 2560 KiB.
const READAHEAD_KIB: u64 = 128;

/// Prefix of the names of mount points.
const PREFIX: &str = "forebay-mount-";

/// The filesystems that can be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Filesystem {
    /// The usual one
    Ext4,
    /// Large files and many writers
    Xfs,
    /// Copy on write, with checksums
    Btrfs,
}

impl Filesystem {
    /// All filesystems.
    pub const ALL: [Filesystem; 3] = [Filesystem::Ext4, Filesystem::Xfs, Filesystem::Btrfs];

    /// As the kernel calls it.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.facts().0
    }

    /// The program that makes it.
    #[must_use]
    pub fn maker(self) -> String {
        format!("mkfs.{self}")
    }

    /// Its name. The options to make it: quietly, overwriting any content, and without discarding a disk that is empty
    /// anyway. Unneeded tables are not written: they would fill the memory in which an emulated disk
    /// is kept. And the options to mount it: without background work, neither those tables nor discards.
    fn facts(self) -> (&'static str, &'static [&'static str], &'static CStr) {
        match self {
            Filesystem::Ext4 => (
                "ext4",
                &["-q", "-F", "-m", "0", "-E", "lazy_itable_init=1,lazy_journal_init=1,nodiscard"],
                c"noinit_itable",
            ),
            Filesystem::Xfs => ("xfs", &["-q", "-f", "-K", "-l", "size=64m"], c"nodiscard"),
            Filesystem::Btrfs => {
                ("btrfs", &["-q", "-f", "-K", "-m", "single", "-d", "single"], c"nodiscard")
            }
        }
    }
}

crate::shown_by_name!(Filesystem);

/// A filesystem on a file, mounted until this is dropped.
#[derive(Debug)]
pub struct Mounted {
    directory: PathBuf,
    /// Kernel name.
    device: String,
    // In the order in which they are undone.
    mount: Undo,
    attached: Undo,
    point: Undo,
}

impl Mounted {
    /// Makes `filesystem` on `file`, overwriting its content, and mounts it.
    ///
    /// # Errors
    /// [`BadInput`](crate::BadInput): the user is not root, a program is missing, or the kernel lacks
    /// the filesystem; or the file is in use ([FSY-1]). Otherwise what went wrong.
    pub fn over(file: &Path, filesystem: Filesystem) -> anyhow::Result<Mounted> {
        if !rustix::process::geteuid().is_root() {
            bad_input!(
                "--fs {filesystem}: making a loop device and mounting it needs root; run as root, or \
                 leave --fs out"
            );
        }
        let file = std::fs::canonicalize(file)
            .with_context(|| format!("cannot look at {}", file.display()))?;
        if let Some(device) = loops_over(&file, None).pop() {
            // [FSY-1]
            let device = format!("/dev/{}", device.name);
            bad_input!(
                "{} is shown as {device} already; detach that first (losetup --detach {device})",
                file.display()
            );
        }
        let (directory, point) = undo_log::make_mount_point(PREFIX)?;
        let (attached, device) = attach(&file)?;
        check_direct(&file, &device)?;
        // Not in the undo log: the kernel restores its own value when the device is detached.
        let readahead = format!("/sys/block/{device}/queue/read_ahead_kb");
        std::fs::write(&readahead, format!("{READAHEAD_KIB}\n"))
            .with_context(|| format!("cannot write {readahead}"))?;
        let source = format!("/dev/{device}");
        let (_, making, mounting) = filesystem.facts();
        let words = making.iter().copied().chain([source.as_str()]);
        run(&filesystem.maker(), &words.map(OsStr::new).collect::<Vec<_>>())
            .with_context(|| format!("--fs {filesystem}: cannot make {filesystem} on {source}"))?;
        let change = Change::Mount { point: directory.clone(), source: source.clone() };
        let (mount, ()) =
            Undo::doing(change, || mount_at(&source, &directory, filesystem, mounting))?;
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
        &self.device
    }

    /// Unmounts the filesystem and detaches the device. No process may still use it.
    ///
    /// # Errors
    /// The first thing that could not be undone; the rest is undone anyway.
    pub fn remove(self) -> anyhow::Result<()> {
        let Mounted { mount, attached, point, .. } = self;
        let results = [mount.undo(), attached.undo(), point.undo()];
        results.into_iter().collect()
    }
}

/// Attaches `file` to a loop device, and returns the device's kernel name.
fn attach(file: &Path) -> anyhow::Result<(Undo, String)> {
    let change = Change::Loop { backing_file: file.to_owned(), sequence: None };
    let (undo, said) = Undo::doing(change, || {
        let words = ["--find", "--show", "--direct-io=on", "--"].map(OsStr::new);
        run("losetup", &[&words[..], &[file.as_os_str()]].concat())
            .with_context(|| format!("--fs: cannot show {} as a device", file.display()))
    })?;
    let name = said.trim().trim_start_matches("/dev/").to_owned();
    let device = loops_over(file, None).into_iter().find(|device| device.name == name);
    let device = device.with_context(|| format!("losetup named a strange device: {name}"))?;
    let becomes = |change: &mut Change| {
        *change = Change::Loop { backing_file: file.to_owned(), sequence: device.sequence };
    };
    undo.further(becomes, || Ok(()))?;
    Ok((undo, name))
}

/// [FSY-2]: losetup falls back to the page cache silently.
fn check_direct(file: &Path, device: &str) -> anyhow::Result<()> {
    let switch = format!("/sys/block/{device}/loop/dio");
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

#[cfg(target_os = "linux")]
fn mount_at(
    device: &str,
    point: &Path,
    filesystem: Filesystem,
    options: &CStr,
) -> anyhow::Result<()> {
    use rustix::io::Errno;
    use rustix::mount::{MountFlags, mount};
    let flags = MountFlags::NOATIME | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::NOSUID;
    let mount = || mount(device, point, filesystem.name(), flags, options);
    // A service that examines every new disk (udev) keeps it open for a moment.
    match retry_with_backoff(mount, |error| *error == Errno::BUSY) {
        Err(Errno::NODEV) => {
            bad_input!(
                "--fs {filesystem}: this kernel has no {filesystem} (modprobe {filesystem}?)"
            )
        }
        Err(Errno::PERM | Errno::ACCESS) => bad_input!(
            "--fs {filesystem}: this root may not mount; run on the machine itself, not in a container"
        ),
        result => result.with_context(|| format!("cannot mount {device} on {}", point.display())),
    }
}

#[cfg(not(target_os = "linux"))]
fn mount_at(_: &str, _: &Path, filesystem: Filesystem, _: &CStr) -> anyhow::Result<()> {
    bad_input!("--fs {filesystem}: this system has no loop devices; leave --fs out")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filesystems_are_named_as_the_kernel_names_them() {
        for filesystem in Filesystem::ALL {
            assert_eq!(Filesystem::from_str(filesystem.name(), false), Ok(filesystem));
            assert!(filesystem.maker().ends_with(filesystem.name()));
        }
    }

    #[test]
    fn fsy_1_fsy_2_a_file_has_one_filesystem_at_a_time_past_its_page_cache() {
        let scratch = tempfile::tempdir_in(".").unwrap();
        let disk = scratch.path().canonicalize().unwrap().join("disk");
        std::fs::File::create(&disk).unwrap().set_len(320 << 20).unwrap();
        let mounted = match Mounted::over(&disk, Filesystem::Ext4) {
            Err(error) if error.is::<crate::BadInput>() => {
                let line = format!("measure: a filesystem over a file: {error}\n");
                eprint!("skipped: {line}");
                if let Some(skips) = std::env::var_os("FOREBAY_SKIPS") {
                    let mut options = std::fs::File::options();
                    let mut file = options.append(true).create(true).open(skips).unwrap();
                    std::io::Write::write_all(&mut file, line.as_bytes()).unwrap();
                }
                return;
            }
            mounted => mounted.unwrap(),
        };
        let dio = format!("/sys/block/{}/loop/dio", mounted.device());
        assert_eq!(std::fs::read_to_string(dio).unwrap().trim(), "1", "[FSY-2]");
        let again = Mounted::over(&disk, Filesystem::Ext4).unwrap_err();
        assert!(again.is::<crate::BadInput>(), "[FSY-1] {again}");
        mounted.remove().unwrap();
    }

    #[test]
    fn a_user_who_is_not_root_gets_a_sentence() {
        if rustix::process::geteuid().is_root() {
            return;
        }
        let error = Mounted::over(Path::new("/dev/null"), Filesystem::Xfs).unwrap_err();
        assert!(error.is::<crate::BadInput>());
        assert!(error.to_string().contains("needs root"), "{error}");
    }
}
