//! A made-up `/sys`, with the links and folders the real one has.
//!
//! Devices live under `devices/`; `dev/block` and `class/block` link to them, as do `slaves/`.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::Sysfs;
use crate::facts::Device;

/// Numbers in the form of a kernel's `stat`, 17 fields.
pub(crate) const STAT_17: &str = "   53229     8991  3943874    11040    27528    15659  2776424     5818        0     7332    17516     9474       44   755808      536     3747      119\n";

/// A made-up `/sys` in a temporary directory.
#[derive(Debug)]
pub struct FakeSys {
    root: TempDir,
}

impl FakeSys {
    /// Without any device.
    pub fn empty() -> FakeSys {
        let root = tempfile::tempdir().unwrap();
        for folder in ["dev/block", "class/block", "devices"] {
            fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        FakeSys { root }
    }

    /// Two disks with a partition each, md0 (with a partition) over those, dm-0 over md0.
    pub fn server() -> FakeSys {
        let sys = FakeSys::empty();
        let md = sys.disk("md0", 9, 0);
        for (name, major, minor, scheduler) in
            [("sda", 8, 0, "none [mq-deadline]"), ("sdb", 8, 16, "[none] mq-deadline")]
        {
            let disk = sys.disk(name, major, minor);
            for (file, text) in [
                ("size", "7814037168"),
                ("device/model", "ST4000NM0035    "),
                ("device/queue_depth", "32"),
                ("queue/iostats", "1"),
                ("queue/rotational", "1"),
                ("queue/scheduler", scheduler),
                ("queue/read_ahead_kb", "128"),
                ("queue/nr_requests", "64"),
                ("queue/write_cache", "write back"),
                ("queue/logical_block_size", "512"),
                ("queue/physical_block_size", "4096"),
                ("queue/max_sectors_kb", "1280"),
                ("stat", STAT_17),
            ] {
                sys.write(&disk, file, text);
            }
            fs::create_dir(disk.join("mq")).unwrap();
            let partition = sys.partition(&disk, 1, major, minor + 1);
            sys.write(&partition, "size", "2048");
            sys.write(&partition, "stat", "1 2 3 4 5 6 7 8 0 9 10 0 0 0 0 0 0");
            sys.stack(&md, &partition);
        }
        sys.partition(&md, 1, 259, 0);
        let dm = sys.disk("dm-0", 253, 0);
        sys.write(&dm, "queue/read_ahead_kb", "4096");
        sys.stack(&dm, &md);
        sys
    }

    /// As the programs see it.
    pub fn sysfs(&self) -> Sysfs {
        Sysfs::at(self.root.path())
    }

    /// The device of a number, as a report describes it.
    pub fn device(&self, major: u32, minor: u32) -> Device {
        let node = self.sysfs().by_number(&format!("{major}:{minor}")).unwrap();
        node.describe(&node.leaves().unwrap())
    }

    /// Makes a whole device without attributes and returns its folder.
    pub fn disk(&self, name: &str, major: u32, minor: u32) -> PathBuf {
        let disk = self.root.path().join("devices").join(name);
        fs::create_dir_all(disk.join("slaves")).unwrap();
        self.link(&disk, major, minor);
        disk
    }

    /// Makes partition `index` of `disk` and returns its folder.
    pub fn partition(&self, disk: &Path, index: u32, major: u32, minor: u32) -> PathBuf {
        let disk_name = disk.file_name().unwrap().to_str().unwrap();
        let infix = if disk_name.ends_with(|last: char| last.is_ascii_digit()) { "p" } else { "" };
        let partition = disk.join(format!("{disk_name}{infix}{index}"));
        self.write(&partition, "partition", &index.to_string());
        self.link(&partition, major, minor);
        partition
    }

    /// Puts `upper` on top of `lower`.
    pub fn stack(&self, upper: &Path, lower: &Path) {
        symlink(lower, upper.join("slaves").join(lower.file_name().unwrap())).unwrap();
    }

    /// Adds `devices` to the btrfs of that id.
    pub fn btrfs(&self, id: &str, devices: &[&str]) {
        let folder = self.root.path().join("fs/btrfs").join(id).join("devices");
        fs::create_dir_all(&folder).unwrap();
        for device in devices {
            symlink(self.root.path().join("class/block").join(device), folder.join(device))
                .unwrap();
        }
    }

    /// Writes the file of a device.
    pub fn write(&self, device: &Path, file: &str, text: &str) {
        let path = device.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn link(&self, device: &Path, major: u32, minor: u32) {
        let root = self.root.path();
        symlink(device, root.join(format!("dev/block/{major}:{minor}"))).unwrap();
        symlink(device, root.join("class/block").join(device.file_name().unwrap())).unwrap();
    }
}
