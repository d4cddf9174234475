//! Facts: what machine and what storage the measurements were taken on.
//!
//! A fact that cannot be found is `None`; nothing is guessed. `crates/measure` looks much
//! closer; nothing may depend on it, and here the kernel, the filesystem and the device are enough.
//!
//! Source:      `uname(2)`, `/proc/{cpuinfo,meminfo}`, `/proc/self/mountinfo`, `/sys/dev/block`.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

/// The machine.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Host {
    pub(crate) name: String,
    /// Operating system and kernel release, such as `Linux 6.18.44`.
    pub(crate) kernel: String,
    pub(crate) cpu: Option<String>,
    /// Processors that this process may run on.
    pub(crate) cpus: usize,
    pub(crate) memory_bytes: Option<u64>,
}

impl Host {
    /// Reads the facts about the machine of this process.
    pub(crate) fn read() -> Host {
        let names = rustix::system::uname();
        let text = |name: &std::ffi::CStr| name.to_string_lossy().into_owned();
        let kib = |line: &str| line.split_whitespace().next()?.parse::<u64>().ok();
        Host {
            name: text(names.nodename()),
            kernel: format!("{} {}", text(names.sysname()), text(names.release())),
            cpu: value_in("/proc/cpuinfo", "model name"),
            cpus: std::thread::available_parallelism().map_or(1, Into::into),
            memory_bytes: value_in("/proc/meminfo", "MemTotal")
                .and_then(|line| kib(&line)?.checked_mul(1024)),
        }
    }
}

/// The value of the first `key : value` line.
fn value_in(path: &str, key: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then(|| value.trim().to_owned())
    })
}

/// The directory, its filesystem and the device below.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Storage {
    /// The directory, absolute.
    pub(crate) directory: String,
    /// Filesystem type, such as `ext4`.
    pub(crate) filesystem: Option<String>,
    pub(crate) mount_point: Option<String>,
    pub(crate) mount_options: Option<String>,
    /// The block device, if the filesystem is on one.
    pub(crate) device: Option<Device>,
}

/// A block device as sysfs describes it.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Device {
    /// Kernel name, such as `vda` or `nvme0n1p2`.
    pub(crate) name: String,
    pub(crate) model: Option<String>,
    pub(crate) size_bytes: Option<u64>,
    pub(crate) rotational: Option<bool>,
    /// The available schedulers, the active one in brackets.
    pub(crate) scheduler: Option<String>,
    pub(crate) readahead_bytes: Option<u64>,
    /// Its directory in sysfs.
    #[serde(skip)]
    node: PathBuf,
}

impl Storage {
    /// Reads the facts about the storage of `directory`.
    ///
    /// # Errors
    /// `directory` does not exist or cannot be looked at.
    pub(crate) fn read(directory: &Path) -> std::io::Result<Storage> {
        let directory = fs::canonicalize(directory)?;
        let number = rustix::fs::stat(&directory)?.st_dev;
        let number = format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number));
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let mount = find_mount(&mounts, &number, &directory);
        Ok(Storage {
            directory: directory.display().to_string(),
            filesystem: mount.map(|mount| mount.filesystem.to_owned()),
            mount_point: mount.map(|mount| mount.point.to_owned()),
            mount_options: mount.map(|mount| mount.options.to_owned()),
            device: Device::read(&number),
        })
    }
}

impl Device {
    fn read(number: &str) -> Option<Device> {
        let node = fs::canonicalize(format!("/sys/dev/block/{number}")).ok()?;
        // A partition's queue is its disk's.
        let disk = if node.join("partition").exists() { node.parent()? } else { node.as_path() };
        let attribute = |at: &Path, name: &str| {
            let text = fs::read_to_string(at.join(name)).ok()?;
            Some(text.trim().to_owned()).filter(|text| !text.is_empty())
        };
        let count =
            |at, name, unit: u64| attribute(at, name)?.parse::<u64>().ok()?.checked_mul(unit);
        Some(Device {
            name: node.file_name()?.to_string_lossy().replace('!', "/"),
            model: attribute(disk, "device/model"),
            size_bytes: count(&node, "size", 512),
            rotational: attribute(disk, "queue/rotational").map(|text| text == "1"),
            scheduler: attribute(disk, "queue/scheduler"),
            readahead_bytes: count(disk, "queue/read_ahead_kb", 1024),
            node,
        })
    }

    /// The file of its counters.
    pub(crate) fn stat(&self) -> PathBuf {
        self.node.join("stat")
    }
}

/// One line of mountinfo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mount<'a> {
    point: &'a str,
    options: &'a str,
    filesystem: &'a str,
}

/// The deepest mount of this device `number` that contains `directory`; of equals, the newest.
fn find_mount<'a>(mountinfo: &'a str, number: &str, directory: &Path) -> Option<Mount<'a>> {
    let mounts = mountinfo.lines().filter_map(|line| {
        let (own, shared) = line.split_once(" - ")?;
        let mut own = own.split(' ').skip(2);
        let (its_number, _root) = (own.next()?, own.next()?);
        let (point, options) = (own.next()?, own.next()?);
        let filesystem = shared.split(' ').next()?;
        (its_number == number).then_some(Mount { point, options, filesystem })
    });
    mounts
        .filter(|mount| directory.starts_with(mount.point))
        .max_by_key(|mount| Path::new(mount.point).components().count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deepest_mount_of_the_device_is_found() {
        let mounts = "27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
                      31 27 0:28 / /tmp rw,nosuid - tmpfs tmpfs rw\n\
                      33 27 254:0 /a /mnt/a ro,noatime - ext4 /dev/vda rw\n";
        let find = |number, path| find_mount(mounts, number, Path::new(path));
        assert_eq!(find("254:0", "/mnt/a/b").unwrap().options, "ro,noatime");
        assert_eq!(find("254:0", "/mnt/ab").unwrap().point, "/");
        assert_eq!(find("0:28", "/tmp/x").unwrap().filesystem, "tmpfs");
        assert_eq!(find("8:1", "/tmp/x"), None);
    }

    #[test]
    fn this_machine_can_be_looked_at() {
        assert!(!Host::read().kernel.is_empty());
        let storage = Storage::read(Path::new(".")).unwrap();
        assert!(Path::new(&storage.directory).is_absolute());
        assert!(Storage::read(Path::new("nowhere")).is_err());
    }
}
