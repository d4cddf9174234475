//! Sysfs: block devices as the kernel describes them.
//!
//! A directory's device number leads through `dev/block/MAJ:MIN` to one directory per device.
//! Worked example: `dm-0` on `md0` on `sda1` and `sdb1` has the leaves `sda1` and `sdb1`; their
//! own `stat` files are what is counted, and the queues are those of `sda` and `sdb`.
//!
//! Invariants:  [SYS-1] a device has at least one leaf, and no leaf has devices below it
//! Failure:     an attribute that is absent or unreadable is `None`; a device that cannot be
//!              followed to all its leaves is an error, never a part of the truth.
//! Source:      the kernel's `Documentation/ABI/stable/sysfs-block`.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::Device;
use super::mountinfo::DeviceNumber;

/// `size` and `stat` count sectors of this many bytes whatever the device's block size is.
pub(super) const SECTOR_BYTES: u64 = 512;

/// Stacks deeper than this are a loop in the links, not a device.
const STACK_DEPTH_MAX: usize = 16;

/// The tree in which the kernel describes devices; tests stand one up in a directory.
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

    /// A path below the root.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// True when block devices can be looked up at all; false on macOS or where `/sys` is hidden.
    pub(super) fn has_block_devices(&self) -> bool {
        self.root.join("dev/block").is_dir()
    }

    /// The file that holds the kernel's readahead of `device`, in KiB: a partition's is its disk's,
    /// a stacked device has its own.
    ///
    /// # Errors
    /// The device has gone.
    pub fn readahead_file(&self, device: &Device) -> io::Result<PathBuf> {
        Ok(self.by_name(&device.name)?.disk().path("queue/read_ahead_kb"))
    }

    /// The device of a number.
    pub(super) fn by_number(&self, number: DeviceNumber) -> io::Result<BlockNode> {
        let DeviceNumber { major, minor } = number;
        BlockNode::open(&self.root.join(format!("dev/block/{major}:{minor}")))
    }

    /// The one device of the btrfs that is mounted from `source`; `None` when it has several, or
    /// `filesystem` is another one.
    pub(super) fn alone_below_btrfs(&self, filesystem: &str, source: &str) -> Option<BlockNode> {
        // The source may be a link, as those of device mapper are.
        let source = fs::canonicalize(source).unwrap_or_else(|_| source.into());
        let name = source.file_name().filter(|_| filesystem == "btrfs")?;
        for mounted in fs::read_dir(self.root.join("fs/btrfs")).ok()?.flatten() {
            let Ok(devices) = fs::read_dir(mounted.path().join("devices")) else { continue };
            let names: Vec<_> = devices.flatten().map(|device| device.file_name()).collect();
            if names.iter().any(|one| one == name) {
                let [alone] = &names[..] else { return None };
                return self.by_name(alone.to_str()?).ok();
            }
        }
        None
    }

    /// The device of a kernel name.
    pub(super) fn by_name(&self, name: &str) -> io::Result<BlockNode> {
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
    fn open(link: &Path) -> io::Result<BlockNode> {
        let directory = fs::canonicalize(link).map_err(|source| {
            io::Error::new(source.kind(), format!("{}: {source}", link.display()))
        })?;
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

    fn number<N: FromStr>(&self, name: &str) -> Option<N> {
        self.attribute(name)?.parse().ok()
    }

    /// True for a partition, whose directory lies inside its disk's.
    pub(super) fn is_partition(&self) -> bool {
        self.path("partition").exists()
    }

    /// The disk a partition is part of, or the device itself.
    pub(super) fn disk(&self) -> BlockNode {
        let parent = self.directory.parent().filter(|_| self.is_partition());
        BlockNode { directory: parent.unwrap_or(&self.directory).to_path_buf() }
    }

    /// The devices that do the work: this one, or those at the bottom of its stack, by name.
    ///
    /// # Errors
    /// A link that leads nowhere (the device is being removed) or in a circle.
    pub(super) fn leaves(&self) -> io::Result<Vec<BlockNode>> {
        let mut leaves = BTreeMap::new();
        self.collect_leaves(0, &mut leaves)?;
        assert!(!leaves.is_empty(), "[SYS-1]");
        Ok(leaves.into_values().collect())
    }

    fn collect_leaves(
        &self,
        depth: usize,
        leaves: &mut BTreeMap<PathBuf, BlockNode>,
    ) -> io::Result<()> {
        if depth > STACK_DEPTH_MAX {
            let message = format!("the devices below {} form a circle", self.name());
            return Err(io::Error::other(message));
        }
        // Only whole devices list what is below them: the partition md0p1 is served by md0's disks.
        let below = match fs::read_dir(self.disk().path("slaves")) {
            Ok(entries) => entries.collect::<io::Result<Vec<_>>>()?,
            Err(absent) if absent.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(failed) => return Err(failed),
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

    /// True when `stat` counts flushes: the block layer does so for whole disks that have request
    /// queues, not for partitions and not for drivers that take bios.
    pub(super) fn counts_flushes(&self) -> bool {
        !self.is_partition() && self.path("mq").is_dir()
    }

    /// For a loop device or a partition of one: the file it shows as a disk.
    pub(super) fn backing_file(&self) -> Option<String> {
        self.disk().attribute("loop/backing_file")
    }

    /// What this device's own driver and disk say (`self` is a disk).
    fn model(&self) -> Option<String> {
        self.attribute("device/model").or_else(|| {
            // MMC and SD cards have a name in place of a model.
            let kind = self.attribute("device/type")?;
            let card = matches!(kind.as_str(), "MMC" | "SD");
            card.then(|| self.attribute("device/name"))?
        })
    }

    fn queue_depth(&self) -> Option<u64> {
        let scsi = || self.number("device/queue_depth");
        let nvme = || self.number("device/sqsize");
        scsi().or_else(nvme)
    }

    /// Everything there is to know about this device and its `leaves`.
    pub(super) fn describe(&self, leaves: &[BlockNode]) -> Device {
        let disk = self.disk();
        let disks: Vec<BlockNode> = leaves.iter().map(BlockNode::disk).collect();
        let kib = |name: &str| disk.number::<u64>(name)?.checked_mul(1024);
        Device {
            name: self.name(),
            leaves: leaves.iter().map(BlockNode::name).collect(),
            model: agreed(&disks, BlockNode::model),
            size_bytes: self
                .number::<u64>("size")
                .and_then(|sectors| sectors.checked_mul(SECTOR_BYTES)),
            rotational: match disk.attribute("queue/rotational").as_deref() {
                Some("1") => Some(true),
                Some("0") => Some(false),
                _ => None,
            },
            scheduler: agreed(&disks, |disk| active_scheduler(&disk.attribute("queue/scheduler")?)),
            readahead_bytes: kib("queue/read_ahead_kb"),
            queue_requests: agreed(&disks, |disk| disk.number("queue/nr_requests")),
            queue_depth: agreed(&disks, BlockNode::queue_depth),
            write_cache: disk.attribute("queue/write_cache"),
            logical_block_bytes: disk.number("queue/logical_block_size"),
            physical_block_bytes: disk.number("queue/physical_block_size"),
            request_bytes_max: kib("queue/max_sectors_kb"),
        }
    }
}

/// What all `disks` say alike; `None` when one of them differs or is silent.
fn agreed<T: PartialEq>(disks: &[BlockNode], fact: impl Fn(&BlockNode) -> Option<T>) -> Option<T> {
    let (first, others) = disks.split_first()?;
    let first = fact(first)?;
    let same = others.iter().all(|disk| fact(disk).as_ref() == Some(&first));
    same.then_some(first)
}

/// The bracketed word of `none [mq-deadline] kyber`, or the only word of a file with one.
fn active_scheduler(text: &str) -> Option<String> {
    let mut words = text.split_whitespace();
    let bracketed =
        text.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
    let active = bracketed.or_else(|| words.next().filter(|_| words.next().is_none()))?;
    Some(active.to_owned())
}

/// A made-up `/sys` for tests of this module and its neighbours.
#[cfg(test)]
pub(crate) mod fixture;

#[cfg(test)]
mod tests {
    use super::fixture::FakeSys;
    use super::*;

    fn describe(sys: &FakeSys, major: u32, minor: u32) -> Device {
        let node = sys.sysfs().by_number(DeviceNumber { major, minor }).unwrap();
        node.describe(&node.leaves().unwrap())
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
        // dm-0 lies on md0, md0 on sda1 and sdb1.
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
        let number = DeviceNumber { major: 253, minor: 1 };
        let node = sys.sysfs().by_number(number).unwrap();
        assert!(node.leaves().unwrap_err().to_string().contains("circle"));
        fs::remove_dir_all(&lower).unwrap();
        assert_eq!(node.leaves().unwrap_err().kind(), io::ErrorKind::NotFound);
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
