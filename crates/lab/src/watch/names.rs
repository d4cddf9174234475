//! Whose descriptor is which file, and what files and devices are called.
//!
//! The kernel's events have numbers; /proc has the rest, as long as a process is there. A descriptor is looked up
//! when it is first used, and again after it was closed. Files that are only mapped, or read by io_uring, are looked
//! for among what the tree has open and mapped.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use foldhash::HashMap;
use rustix::fs::{major, minor};

use super::event::FileKey;

/// Bits of the minor number in the kernel's own device numbers.
const MINOR_BITS: u32 = 20;

/// See the module's description.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// Processes by their tasks.
    processes: HashMap<u32, u32>,
    descriptors: HashMap<(u32, i32), Option<FileKey>>,
    paths: HashMap<FileKey, PathBuf>,
    /// Block devices opened as files: their pages are in an inode of the kernel's own with this number.
    raw: HashMap<u64, PathBuf>,
    /// Whole disks by their partitions, and by themselves.
    disks: HashMap<u32, u32>,
    /// Looked for in vain.
    unknown: HashSet<FileKey>,
}

fn kernel_device(device: u64) -> u32 {
    major(device) << MINOR_BITS | minor(device)
}

/// Where sysfs shows the device.
fn shown(device: u32) -> PathBuf {
    let (major, minor) = (device >> MINOR_BITS, device & ((1 << MINOR_BITS) - 1));
    PathBuf::from(format!("/sys/dev/block/{major}:{minor}"))
}

impl Names {
    /// The file behind `descriptor` of the process of `task`; `None` if it is no file on a disk, or has gone.
    pub(super) fn file(&mut self, task: u32, descriptor: i32) -> Option<FileKey> {
        let process = *self.processes.entry(task).or_insert_with(|| process_of(task));
        if let Some(file) = self.descriptors.get(&(process, descriptor)) {
            return *file;
        }
        let path = PathBuf::from(format!("/proc/{task}/fd/{descriptor}"));
        let file = self.look(&path);
        self.descriptors.insert((process, descriptor), file);
        file
    }

    /// The file at `path`, perhaps a link of /proc, and keeps what it is called.
    pub(super) fn look(&mut self, path: &Path) -> Option<FileKey> {
        let facts = fs::metadata(path).ok()?;
        let called = match fs::read_link(path) {
            Ok(called) => Some(called),
            // The process has ended since: the file is known, and not by what leads to it.
            Err(_) if path.starts_with("/proc") => None,
            Err(_) => Some(path.to_owned()),
        };
        if facts.file_type().is_block_device() {
            self.raw.extend(called.map(|called| (kernel_device(facts.rdev()).into(), called)));
            return None;
        }
        if !facts.is_file() {
            return None;
        }
        let key = FileKey { device: kernel_device(facts.dev()), inode: facts.ino() };
        self.paths.extend(called.map(|called| (key, called)));
        Some(key)
    }

    /// `descriptor` may be another file's from now on.
    pub(super) fn closed(&mut self, task: u32, descriptor: i32) {
        let process = *self.processes.entry(task).or_insert_with(|| process_of(task));
        self.descriptors.remove(&(process, descriptor));
    }

    /// The process of `task` runs another program: descriptors were closed, or it is another one of the same number.
    pub(super) fn executed(&mut self, task: u32) {
        let process = process_of(task);
        self.processes.insert(task, process);
        self.descriptors.retain(|(of, _), _| *of != process);
    }

    /// The path of `key`, which descriptors may know by other numbers, `called`.
    pub(super) fn path(
        &self,
        key: FileKey,
        called: impl Iterator<Item = FileKey>,
    ) -> Option<PathBuf> {
        let path = [key].into_iter().chain(called).find_map(|key| self.paths.get(&key));
        path.or_else(|| self.raw.get(&key.inode).filter(|_| key.device >> MINOR_BITS == 0)).cloned()
    }

    /// Looks for files without a name among what the processes of the tree have open and mapped.
    pub(super) fn search(&mut self, wanted: impl Iterator<Item = FileKey>) {
        let wanted: Vec<FileKey> = wanted
            .filter(|key| !self.paths.contains_key(key) && self.unknown.insert(*key))
            .collect();
        if wanted.is_empty() {
            return;
        }
        let processes: HashSet<u32> = self.processes.values().copied().collect();
        for process in processes {
            for directory in ["fd", "map_files"] {
                let entries = fs::read_dir(format!("/proc/{process}/{directory}"));
                for entry in entries.into_iter().flatten().flatten() {
                    self.look(&entry.path());
                }
            }
        }
    }

    /// What to call a file without a path.
    pub(super) fn nameless(&mut self, key: FileKey) -> String {
        // Of block devices' own pages, in which filesystems keep their tables.
        if key.device >> MINOR_BITS == 0 && shown(key.inode as u32).exists() {
            return format!("({}, the filesystem's own)", self.disk_name(key.inode as u32));
        }
        match key.inode {
            0 => "(all other files)".to_owned(),
            inode => format!("inode {inode} of {}", self.disk_name(key.device)),
        }
    }

    /// A task of the tree was met.
    pub(super) fn met(&mut self, task: u32) {
        self.processes.entry(task).or_insert_with(|| process_of(task));
    }

    /// The disk that `device` is, or is a part of.
    pub(super) fn disk(&mut self, device: u32) -> u32 {
        *self.disks.entry(device).or_insert_with(|| {
            let path = shown(device);
            if !path.join("partition").exists() {
                return device;
            }
            let whole = fs::canonicalize(path)
                .ok()
                .and_then(|path| fs::read_to_string(path.parent()?.join("dev")).ok());
            let numbers = whole.as_deref().and_then(|text| text.trim().split_once(':'));
            let parsed = numbers.and_then(|(major, minor)| {
                Some((major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?))
            });
            parsed.map_or(device, |(major, minor)| major << MINOR_BITS | minor)
        })
    }

    /// The kernel's name of a device, such as `vda`.
    pub(super) fn disk_name(&self, device: u32) -> String {
        let path = fs::canonicalize(shown(device)).unwrap_or_default();
        path.file_name().map_or_else(
            || format!("{}:{}", device >> MINOR_BITS, device & ((1 << MINOR_BITS) - 1)),
            |name| name.to_string_lossy().into_owned(),
        )
    }

    /// How many processes were met.
    pub(super) fn processes(&self) -> usize {
        self.processes.values().collect::<HashSet<_>>().len()
    }
}

/// The process that `task` is a thread of.
fn process_of(task: u32) -> u32 {
    let status = fs::read_to_string(format!("/proc/{task}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
    line.and_then(|line| line.trim().parse().ok()).unwrap_or(task)
}
