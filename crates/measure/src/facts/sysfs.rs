//! Sysfs: block devices as the kernel describes them.
//!
//! A directory's device number leads through `dev/block/MAJ:MIN` to one directory per device.
//! Worked example: `dm-0` on `md0` on `sda1` and `sdb1` has the leaves `sda1` and `sdb1`; their
//! own `stat` files are what is counted, and the queues are those of `sda` and `sdb`.
//!
//! Every mount has a `bdi`, the kernel's record of its backing device, and the readahead is a number in
//! there. A block device's is `queue/read_ahead_kb`. A filesystem without a device (FUSE, NFS) has its own,
//! named by the number that `stat` gives for its files: `/sys/class/bdi/0:47`. Btrfs has its own
//! too but names it otherwise; its directory in `/sys/fs/btrfs` leads there, and the device that
//! it was mounted from identifies that directory.
//!
//! Invariants:  [SYS-1] a device has at least one leaf, and no leaf has devices below it
//! Failure:     an attribute that is absent or unreadable is `None`; a device that cannot be
//!              followed to all its leaves is an error, never a part of the truth.
//! Source:      the kernel's `Documentation/ABI`: `sysfs-block`, `sysfs-class-bdi` and `sysfs-fs-btrfs`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

use super::mountinfo::device_number;
use super::{Device, Storage};

/// `size` and `stat` count sectors of this many bytes whatever the device's block size is.
pub(super) const SECTOR_BYTES: u64 = 512;

/// Stacks deeper than this are a loop in the links, not a device.
const STACK_DEPTH_MAX: usize = 16;

/// The tree in which the kernel describes devices; tests build one in a directory.
#[derive(Debug, Clone)]
pub struct Sysfs {
    root: PathBuf,
}

impl Sysfs {
    /// The running system's, `/sys`.
    #[must_use]
    pub fn system() -> Sysfs {
        Sysfs::at("/sys")
    }

    /// The tree under `root`.
    #[must_use]
    pub fn at(root: impl Into<PathBuf>) -> Sysfs {
        Sysfs { root: root.into() }
    }

    /// The file that holds the kernel's readahead of `device`, in KiB: a partition's is its disk's,
    /// a stacked device has its own.
    ///
    /// # Errors
    /// The device was removed.
    pub fn readahead_file(&self, device: &Device) -> anyhow::Result<PathBuf> {
        Ok(self.by_name(&device.name)?.disk().path("queue/read_ahead_kb"))
    }

    /// The file that holds the kernel's readahead, in KiB, of files that are opened in the directory that
    /// `storage` describes.
    ///
    /// # Errors
    /// None is known, or what the system said.
    pub fn readahead_file_of(&self, storage: &Storage) -> anyhow::Result<PathBuf> {
        match &storage.device {
            Some(device) => self.readahead_file(device),
            None => self.bdi_file(&device_number(Path::new(&storage.directory))?, storage),
        }
    }

    fn bdi_file(&self, number: &str, storage: &Storage) -> anyhow::Result<PathBuf> {
        let filesystem = storage.filesystem.as_deref().unwrap_or("the filesystem");
        let source = storage.source.as_deref().filter(|_| filesystem == "btrfs");
        let bdi = match source.and_then(|source| self.btrfs(source)) {
            Some((btrfs, _)) => btrfs.join("bdi"),
            None => self.root.join(format!("class/bdi/{number}")),
        };
        let file = bdi.join("read_ahead_kb");
        ensure!(file.exists(), "{filesystem} at {} shows no readahead in /sys", storage.directory);
        Ok(file)
    }

    /// The directory of the btrfs that is mounted from `source`, with the names of its devices.
    fn btrfs(&self, source: &str) -> Option<(PathBuf, Vec<OsString>)> {
        // The source may be a link, as those of device mapper are.
        let source = fs::canonicalize(source).unwrap_or_else(|_| source.into());
        let filesystems = fs::read_dir(self.root.join("fs/btrfs")).ok()?.flatten();
        filesystems.map(|entry| entry.path()).find_map(|path| {
            let devices = fs::read_dir(path.join("devices")).ok()?.flatten();
            let names: Vec<OsString> = devices.map(|device| device.file_name()).collect();
            names.iter().any(|name| Some(&**name) == source.file_name()).then_some((path, names))
        })
    }

    /// The one device of the btrfs that is mounted from `source`; `None` when it has several, or
    /// `filesystem` is another one.
    pub(super) fn alone_below_btrfs(&self, filesystem: &str, source: &str) -> Option<BlockNode> {
        let (_, devices) = self.btrfs(source).filter(|_| filesystem == "btrfs")?;
        let [alone] = &devices[..] else { return None };
        self.by_name(alone.to_str()?).ok()
    }

    /// The device of a number, such as `8:1`.
    pub(super) fn by_number(&self, number: &str) -> anyhow::Result<BlockNode> {
        BlockNode::open(&self.root.join(format!("dev/block/{number}")))
    }

    /// The device of a kernel name.
    pub(super) fn by_name(&self, name: &str) -> anyhow::Result<BlockNode> {
        BlockNode::open(&self.root.join("class/block").join(name.replace('/', "!")))
    }
}

/// One block device's directory: a disk, a partition or a stacked device.
#[derive(Debug, Clone)]
pub(super) struct BlockNode {
    /// Without symbolic links, so that a partition's parent is its disk.
    directory: PathBuf,
}

impl BlockNode {
    fn open(link: &Path) -> anyhow::Result<BlockNode> {
        let directory = fs::canonicalize(link).with_context(|| link.display().to_string())?;
        Ok(BlockNode { directory })
    }

    /// Kernel name, such as `vda`; sysfs writes `!` where the name has a slash.
    pub(super) fn name(&self) -> String {
        let name = self.directory.file_name().unwrap_or_default();
        name.to_string_lossy().replace('!', "/")
    }

    /// Path of a file of this device.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// A file's text, trimmed; `None` when it is absent, unreadable or empty.
    pub(super) fn attribute(&self, name: &str) -> Option<String> {
        let text = fs::read_to_string(self.path(name)).ok()?;
        let text = text.trim();
        (!text.is_empty()).then(|| text.to_owned())
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.attribute(name)?.parse().ok()
    }

    fn size_bytes(&self) -> Option<u64> {
        self.number("size")?.checked_mul(SECTOR_BYTES)
    }

    /// The disk a partition is part of, or the device itself.
    pub(super) fn disk(&self) -> BlockNode {
        let parent = self.directory.parent().filter(|_| self.path("partition").exists());
        BlockNode { directory: parent.unwrap_or(&self.directory).to_path_buf() }
    }

    /// The devices that execute the requests: this one, or those at the bottom of its stack, by name.
    ///
    /// # Errors
    /// A link that leads nowhere (the device is being removed) or in a circle.
    pub(super) fn leaves(&self) -> anyhow::Result<Vec<BlockNode>> {
        let mut leaves = BTreeMap::new();
        self.collect_leaves(0, &mut leaves)?;
        assert!(!leaves.is_empty(), "[SYS-1]");
        Ok(leaves.into_values().collect())
    }

    fn collect_leaves(
        &self,
        depth: usize,
        leaves: &mut BTreeMap<PathBuf, BlockNode>,
    ) -> anyhow::Result<()> {
        ensure!(depth <= STACK_DEPTH_MAX, "the devices below {} form a circle", self.name());
        // Only whole devices list the devices below them: the partition md0p1 is served by md0's disks.
        let below = match fs::read_dir(self.disk().path("slaves")) {
            Ok(entries) => entries.collect::<io::Result<Vec<_>>>()?,
            Err(absent) if absent.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(failed) => return Err(failed.into()),
        };
        if below.is_empty() {
            leaves.insert(self.directory.clone(), self.clone());
        }
        for entry in below {
            BlockNode::open(&entry.path())?.collect_leaves(depth + 1, leaves)?;
        }
        Ok(())
    }

    /// True when the block layer keeps `stat` up to date; a device without the switch always does.
    pub(super) fn counts_requests(&self) -> bool {
        self.disk().attribute("queue/iostats").as_deref() != Some("0")
    }

    /// For a loop device or a partition of one: the file behind it.
    pub(super) fn backing_file(&self) -> Option<String> {
        self.disk().attribute("loop/backing_file")
    }

    /// All facts about this device and its `leaves`.
    pub(super) fn describe(&self, leaves: &[BlockNode]) -> Device {
        let disk = self.disk();
        let disks: Vec<BlockNode> = leaves.iter().map(BlockNode::disk).collect();
        let kib = |name: &str| disk.number(name)?.checked_mul(1024);
        // MMC and SD cards have a name instead of a model; SCSI reports its queue's depth, NVMe its size.
        let either = |disk: &BlockNode, one: &str, other: &str| {
            disk.attribute(one).or_else(|| disk.attribute(other))
        };
        Device {
            name: self.name(),
            leaves: leaves.iter().map(BlockNode::name).collect(),
            model: agreed(&disks, |disk| either(disk, "device/model", "device/name")),
            size_bytes: self.size_bytes(),
            rotational: disk.number("queue/rotational").map(|rotates| rotates == 1),
            scheduler: agreed(&disks, |disk| active_scheduler(&disk.attribute("queue/scheduler")?)),
            readahead_bytes: kib("queue/read_ahead_kb"),
            queue_requests: agreed(&disks, |disk| disk.number("queue/nr_requests")),
            queue_depth: agreed(&disks, |disk| {
                either(disk, "device/queue_depth", "device/sqsize")?.parse().ok()
            }),
            write_cache: disk.attribute("queue/write_cache"),
            logical_block_bytes: disk.number("queue/logical_block_size"),
            physical_block_bytes: disk.number("queue/physical_block_size"),
            request_bytes_max: kib("queue/max_sectors_kb"),
        }
    }
}

/// The value on which all `disks` agree; `None` when one of them differs or has none.
fn agreed<T: PartialEq>(disks: &[BlockNode], fact: impl Fn(&BlockNode) -> Option<T>) -> Option<T> {
    let (first, others) = disks.split_first()?;
    let first = fact(first)?;
    let same = others.iter().all(|disk| fact(disk).as_ref() == Some(&first));
    same.then_some(first)
}

/// The bracketed word of `none [mq-deadline] kyber`, or the only word of a file with one.
fn active_scheduler(text: &str) -> Option<String> {
    let mut words = text.split_whitespace();
    let bracketed = words.clone().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
    let active = bracketed.or_else(|| words.next().filter(|_| words.next().is_none()))?;
    Some(active.to_owned())
}

/// A fake `/sys` for tests of this module and its neighbours.
#[cfg(any(test, feature = "fixture"))]
pub(super) mod fixture;

#[cfg(test)]
mod tests {
    use super::fixture::FakeSys;
    use super::*;

    fn describe(sys: &FakeSys, major: u32, minor: u32) -> Device {
        sys.device(major, minor)
    }

    fn storage(filesystem: &str, source: &str) -> Storage {
        Storage {
            directory: "/srv".to_owned(),
            filesystem: Some(filesystem.to_owned()),
            emulated: None,
            mount_point: None,
            mount_options: None,
            source: Some(source.to_owned()),
            device: None,
            device_remark: "anonymous".to_owned(),
        }
    }

    fn make(sysfs: &Sysfs, path: &str) -> PathBuf {
        let path = sysfs.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "128\n").unwrap();
        path
    }

    #[test]
    fn the_readahead_of_a_mount_without_a_device_is_found_by_its_number() {
        let sys = FakeSys::empty();
        let sysfs = sys.sysfs();
        let file = make(&sysfs, "class/bdi/0:47/read_ahead_kb");
        let fuse = storage("fuse.forebay", "emulated");
        assert_eq!(sysfs.bdi_file("0:47", &fuse).unwrap(), file);
        let error = sysfs.bdi_file("0:48", &fuse).unwrap_err();
        assert!(error.to_string().contains("fuse.forebay at /srv"), "{error}");
    }

    #[test]
    fn the_readahead_of_btrfs_is_found_by_its_device_and_by_no_other() {
        let sys = FakeSys::empty();
        let sysfs = sys.sysfs();
        for (uuid, device) in [("aa", "sda"), ("bb", "nosuch7")] {
            make(&sysfs, &format!("fs/btrfs/{uuid}/bdi/read_ahead_kb"));
            make(&sysfs, &format!("fs/btrfs/{uuid}/devices/{device}"));
        }
        make(&sysfs, "fs/btrfs/features/raid56");
        let found = |source| sysfs.bdi_file("0:30", &storage("btrfs", source));
        assert!(found("/dev/nosuch7").unwrap().ends_with("bb/bdi/read_ahead_kb"));
        assert!(found("/dev/nosuch8").is_err());
    }

    #[test]
    fn the_readahead_of_a_device_is_in_its_queue() {
        let sys = FakeSys::server();
        let ext4 = Storage { device: Some(sys.device(8, 1)), ..storage("ext4", "/dev/sda1") };
        let file = sys.sysfs().readahead_file_of(&ext4).unwrap();
        assert!(file.ends_with("sda/queue/read_ahead_kb"), "{file:?}");
    }

    #[test]
    fn a_disk_is_its_own_leaf_and_shows_its_queue() {
        let device = describe(&FakeSys::server(), 8, 0);
        assert_eq!(device.name, "sda");
        assert_eq!(device.leaves, ["sda"]);
        assert_eq!(device.model.as_deref(), Some("ST4000NM0035"));
        assert_eq!(device.size_bytes, Some(7_814_037_168 * 512));
        assert_eq!(device.rotational, Some(true));
        assert_eq!(device.scheduler.as_deref(), Some("mq-deadline"));
        assert_eq!(device.readahead_bytes, Some(131_072));
        assert_eq!(device.queue_requests, Some(64));
        assert_eq!(device.queue_depth, Some(32));
        assert_eq!(device.write_cache.as_deref(), Some("write back"));
        assert_eq!(device.logical_block_bytes, Some(512));
        assert_eq!(device.physical_block_bytes, Some(4096));
        assert_eq!(device.request_bytes_max, Some(1_310_720));
    }

    #[test]
    fn readahead_is_set_at_the_disk_of_a_partition_and_at_the_stacked_device_itself() {
        let sys = FakeSys::server();
        for (number, holder) in [((8, 1), "sda"), ((8, 16), "sdb"), ((253, 0), "dm-0")] {
            let file = sys.sysfs().readahead_file(&describe(&sys, number.0, number.1)).unwrap();
            assert!(file.ends_with(format!("{holder}/queue/read_ahead_kb")), "{file:?}");
        }
    }

    #[test]
    fn a_partition_has_its_own_size_and_its_disks_queue() {
        let device = describe(&FakeSys::server(), 8, 1);
        assert_eq!(device.name, "sda1");
        assert_eq!(device.leaves, ["sda1"]);
        assert_eq!(device.size_bytes, Some(2048 * 512));
        assert_eq!(device.model.as_deref(), Some("ST4000NM0035"));
        assert_eq!(device.scheduler.as_deref(), Some("mq-deadline"));
        assert_eq!(device.queue_depth, Some(32));
    }

    #[test]
    fn a_stack_resolves_to_the_partitions_at_its_bottom() {
        // dm-0 is on md0, md0 on sda1 and sdb1.
        let device = describe(&FakeSys::server(), 253, 0);
        assert_eq!(device.name, "dm-0");
        assert_eq!(device.leaves, ["sda1", "sdb1"], "[SYS-1]");
        assert_eq!(device.readahead_bytes, Some(4096 * 1024), "its own");
        assert_eq!(device.scheduler, None, "sda and sdb differ");
        assert_eq!(device.queue_requests, Some(64), "sda and sdb agree");
        assert_eq!(device.model.as_deref(), Some("ST4000NM0035"));
    }

    #[test]
    fn a_partition_of_a_stacked_device_has_that_devices_leaves() {
        let device = describe(&FakeSys::server(), 259, 0);
        assert_eq!(device.name, "md0p1");
        assert_eq!(device.leaves, ["sda1", "sdb1"]);
    }

    #[test]
    fn what_sysfs_does_not_say_is_none() {
        let sys = FakeSys::empty();
        sys.disk("vda", 254, 0);
        let device = describe(&sys, 254, 0);
        assert_eq!(device.leaves, ["vda"]);
        assert_eq!(device.model, None);
        assert_eq!(device.size_bytes, None);
        assert_eq!(device.rotational, None);
        assert_eq!(device.queue_depth, None);
        assert_eq!(device.request_bytes_max, None);
    }

    #[test]
    fn an_nvme_namespace_takes_its_controllers_queue_size() {
        let sys = FakeSys::empty();
        let disk = sys.disk("nvme0n1", 259, 0);
        sys.write(&disk, "device/sqsize", "1023");
        sys.write(&disk, "device/model", "SAMSUNG MZQL2960HCJR-00A07              ");
        let device = describe(&sys, 259, 0);
        assert_eq!(device.queue_depth, Some(1023));
        assert_eq!(device.model.as_deref(), Some("SAMSUNG MZQL2960HCJR-00A07"));
    }

    #[test]
    fn a_name_with_a_slash_is_found_again() {
        let sys = FakeSys::empty();
        sys.disk("cciss!c0d0", 104, 0);
        let device = describe(&sys, 104, 0);
        assert_eq!(device.name, "cciss/c0d0");
        assert_eq!(sys.sysfs().by_name(&device.name).unwrap().name(), device.name);
    }

    #[test]
    fn links_that_lead_nowhere_or_in_a_circle_are_errors() {
        let sys = FakeSys::empty();
        let upper = sys.disk("dm-1", 253, 1);
        let lower = sys.disk("dm-2", 253, 2);
        sys.stack(&upper, &lower);
        sys.stack(&lower, &upper);
        let node = sys.sysfs().by_number("253:1").unwrap();
        assert!(node.leaves().unwrap_err().to_string().contains("circle"));
        fs::remove_dir_all(&lower).unwrap();
        assert!(node.leaves().unwrap_err().to_string().contains("dm-2"));
    }

    #[test]
    fn the_active_scheduler_is_the_bracketed_one_or_the_only_one() {
        let active = |text| active_scheduler(text);
        assert_eq!(active("none [mq-deadline] kyber").as_deref(), Some("mq-deadline"));
        assert_eq!(active("[none] mq-deadline").as_deref(), Some("none"));
        assert_eq!(active("none").as_deref(), Some("none"));
        assert_eq!(active("one two"), None);
        assert_eq!(active(""), None);
    }
}
