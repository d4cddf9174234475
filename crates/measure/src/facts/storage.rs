//! Storage: what lies under a directory.
//!
//! The kernel reports the directory's mount (mountinfo), and its device number leads to its block device
//! (sysfs). An anonymous number (major 0) means that a filesystem is between the two; guessing the
//! device from the mount source is rejected there, since btrfs and zfs spread over several.
//!
//! Invariants:  [STO-1] without a device there is a remark that says why
//! Failure:     only the directory itself can fail; whatever else is missing is `None`.
//! Source:      `stat(2)`, `/proc/self/mountinfo`, `/sys/dev/block`.

use std::fs;
use std::io;
use std::path::Path;

use super::emulated::{self, EmulatedDisk};
use super::mountinfo::{self, Mount, device_number};
use super::sysfs::{BlockNode, Sysfs};
use super::{Device, Storage};

/// Why filesystems whose number is anonymous have no device.
const ANONYMOUS: [(&[&str], &str); 6] = [
    (
        &["btrfs", "zfs", "bcachefs"],
        "pools its devices behind an anonymous number; their counters cannot be separated",
    ),
    (
        &["overlay", "aufs", "ecryptfs"],
        "lies over other filesystems; choose a directory of the one below to see its device",
    ),
    (&["tmpfs", "ramfs", "rootfs"], "keeps its files in memory; there is no device"),
    (
        &["virtiofs", "9p", "vboxsf", "prl_fs", "drvfs"],
        "is served by the host; the host's device cannot be seen from here",
    ),
    (
        &["nfs", "nfs4", "cifs", "smb3", "ceph", "afs", "lustre", "fuse.sshfs", "fuse.ceph"],
        "is served over the network; its device belongs to another machine",
    ),
    (&[emulated::TYPE], "counts its requests itself; there is no block device"),
];

impl Storage {
    /// Reads the facts about the storage of `directory`.
    ///
    /// # Errors
    /// `directory` does not exist, cannot be entered or is no directory.
    pub fn read(directory: &Path) -> io::Result<Storage> {
        let directory = fs::canonicalize(directory)?;
        if !directory.is_dir() {
            return Err(io::Error::from(io::ErrorKind::NotADirectory));
        }
        let number = device_number(&directory)?;
        let mounts = mountinfo::mounts().unwrap_or_default();
        let mount = mountinfo::find(&mounts, &directory);
        let emulated = mount
            .and_then(|mount| emulated::below(mount, &mounts, &Sysfs::system()))
            .and_then(EmulatedDisk::ask);
        Ok(describe(&directory, &number, mount, emulated, &Sysfs::system()))
    }
}

/// Bytes that this user may still write under `directory`.
///
/// # Errors
/// `directory` does not exist or its filesystem does not answer.
pub fn free_bytes(directory: &Path) -> io::Result<u64> {
    let filesystem = rustix::fs::statvfs(directory)?;
    Ok(filesystem.f_bavail.saturating_mul(filesystem.f_frsize))
}

/// Writes out all changes on the filesystem of `directory`.
///
/// # Errors
/// The system's error.
pub fn sync_filesystem(directory: &fs::File) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    return Ok(rustix::fs::syncfs(directory)?);
    #[cfg(not(target_os = "linux"))]
    directory.sync_all()
}

fn describe(
    directory: &Path,
    number: &str,
    mount: Option<&Mount>,
    emulated: Option<EmulatedDisk>,
    sysfs: &Sysfs,
) -> Storage {
    let (device, remark) = if number.starts_with("0:") {
        (None, Some(why_anonymous(mount, sysfs)))
    } else {
        match block_device(number, sysfs, emulated.is_some()) {
            Ok((device, remark)) => (Some(device), remark),
            Err(failed) => {
                let remark =
                    format!("the block device cannot be followed to its disks: {failed:#}");
                (None, Some(remark))
            }
        }
    };
    let said = emulated.as_ref().map(|disk| {
        let faster = match disk.speed_up {
            1.0 => String::new(),
            factor => format!(", {factor} times as fast; times and rates are real ones"),
        };
        format!("the disk is emulated: {} ({}){faster}", disk.profile, disk.about)
    });
    let device_remark = said.into_iter().chain(remark).collect::<Vec<_>>().join("; ");
    assert!(device.is_some() || !device_remark.is_empty(), "[STO-1]");
    Storage {
        directory: directory.to_string_lossy().into_owned(),
        filesystem: mount.map(|mount| mount.filesystem.clone()),
        mount_point: mount.map(|mount| mount.mount_point.to_string_lossy().into_owned()),
        mount_options: mount.map(|mount| mount.options.clone()),
        source: mount.map(|mount| mount.source.clone()).filter(|source| !source.is_empty()),
        device,
        device_remark,
        emulated,
    }
}

/// The device of a real number, with what its counters leave out. `emulated`: the storage below a loop device
/// is known.
fn block_device(
    number: &str,
    sysfs: &Sysfs,
    emulated: bool,
) -> anyhow::Result<(Device, Option<String>)> {
    let node = sysfs.by_number(number)?;
    let leaves = node.leaves()?;
    let remark = leaves.iter().find_map(|leaf| leaf_remark(leaf, emulated));
    Ok((node.describe(&leaves), remark))
}

fn leaf_remark(leaf: &BlockNode, emulated: bool) -> Option<String> {
    let name = leaf.name();
    if !leaf.counts_requests() {
        let remark = format!("{name} does not count its requests (its queue/iostats is 0)");
        return Some(remark);
    }
    let file = leaf.backing_file().filter(|_| !emulated)?;
    Some(format!("{name} is a loop device over {file}; the device below that file is not counted"))
}

/// Why a filesystem with an anonymous number has no device, in one sentence.
fn why_anonymous(mount: Option<&Mount>, sysfs: &Sysfs) -> String {
    let Some(Mount { filesystem, source, .. }) = mount else {
        return "the filesystem is unknown and has an anonymous number; its device is unknown"
            .to_owned();
    };
    if let Some(device) = sysfs.alone_below_btrfs(filesystem, source) {
        return format!(
            "btrfs is on {} alone, which is counted; how far it reads ahead is a separate setting",
            device.name()
        );
    }
    let known = ANONYMOUS.iter().find(|(names, _)| names.contains(&filesystem.as_str()));
    let why = match known {
        Some((_, why)) => why,
        None if filesystem.starts_with("fuse") => {
            "is served by a program; the device it uses is unknown"
        }
        None => "has an anonymous number; its device is unknown",
    };
    format!("{filesystem} {why}")
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::super::CounterSource;
    use super::super::sysfs::fixture::FakeSys;
    use super::*;

    const MOUNTS: &str = r"27 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 27 0:40 /@ /btrfs rw - btrfs /dev/sda2 rw
31 27 0:41 / /overlay rw - overlay overlay rw,lowerdir=/l
32 27 0:42 / /tmp rw - tmpfs tmpfs rw
33 27 0:43 / /nfs rw - nfs4 filer:/a rw
34 27 0:44 / /zfs rw - zfs tank/a rw
35 27 0:45 / /sshfs rw - fuse.sshfs ada@filer: rw
36 27 7:3 / /loop rw - ext4 /dev/loop3 rw
37 27 8:16 / /xfs rw - xfs /dev/sdb rw,attr2,logdev=/dev/sdc1
38 27 253:0 / /lvm rw - xfs /dev/mapper/vg-lv rw
39 27 8:200 / /hidden rw - ext4 /dev/sdm8 rw
40 27 0:50 / /emulated rw - fuse.forebay raid10-12 rw
41 27 7:4 / /over rw - ext4 /dev/loop4 rw
42 27 0:51 / /one rw - btrfs /dev/sdb rw
";

    /// The emulated disk's own description.
    fn parsed() -> EmulatedDisk {
        EmulatedDisk {
            profile: "raid10-12".to_owned(),
            about: "twelve disks".to_owned(),
            size_bytes: 1 << 40,
            speed_up: 10.0,
            seed: 7,
            mount_point: "/emulated".to_owned(),
        }
    }

    /// The facts about a mount point of [`MOUNTS`] with that number.
    fn storage(sys: &FakeSys, mount_point: &str, major: u32, minor: u32) -> Storage {
        let mounts = mountinfo::parse(MOUNTS);
        let directory = Path::new(mount_point);
        let mount = mounts.iter().find(|mount| mount.mount_point == directory);
        let below = mount.and_then(|mount| emulated::below(mount, &mounts, &sys.sysfs()));
        let emulated = below.map(|point| {
            assert_eq!(point, Path::new("/emulated"));
            parsed()
        });
        describe(directory, &format!("{major}:{minor}"), mount, emulated, &sys.sysfs())
    }

    #[test]
    fn a_partition_is_found_and_needs_no_remark() {
        let storage = storage(&FakeSys::server(), "/", 8, 1);
        assert_eq!(storage.directory, "/");
        assert_eq!(storage.filesystem.as_deref(), Some("ext4"));
        assert_eq!(storage.mount_point.as_deref(), Some("/"));
        assert_eq!(storage.mount_options.as_deref(), Some("rw,relatime"));
        assert_eq!(storage.source.as_deref(), Some("/dev/sda1"));
        assert_eq!(storage.device.unwrap().name, "sda1");
        assert_eq!(storage.device_remark, "");
    }

    #[test]
    fn a_stacked_device_is_found_with_its_leaves() {
        let device = storage(&FakeSys::server(), "/lvm", 253, 0).device.unwrap();
        assert_eq!(device.leaves, ["sda1", "sdb1"]);
    }

    #[test]
    fn anonymous_filesystems_have_no_device_and_say_why() {
        // [STO-1]
        let sys = FakeSys::server();
        for (directory, minor, word) in [
            ("/btrfs", 99, "btrfs pools its devices"),
            ("/overlay", 41, "other filesystems"),
            ("/tmp", 42, "in memory"),
            ("/nfs", 43, "another machine"),
            ("/zfs", 44, "pools"),
            ("/sshfs", 45, "another machine"),
            ("/nowhere", 46, "unknown"),
        ] {
            let storage = storage(&sys, directory, 0, minor);
            assert!(storage.device.is_none(), "{directory}");
            assert!(storage.device_remark.contains(word), "{}", storage.device_remark);
        }
    }

    #[test]
    fn a_loop_device_is_a_device_and_says_what_is_not_counted() {
        let sys = FakeSys::empty();
        let disk = sys.disk("loop3", 7, 3);
        sys.write(&disk, "loop/backing_file", "/srv/disk.img");
        let storage = storage(&sys, "/loop", 7, 3);
        assert_eq!(storage.device.unwrap().name, "loop3");
        assert!(storage.device_remark.contains("/srv/disk.img"));
    }

    #[test]
    fn an_emulated_disk_is_reported_and_no_number_is_taken_for_a_real_one() {
        let sys = FakeSys::empty();
        let disk = sys.disk("loop4", 7, 4);
        sys.write(&disk, "loop/backing_file", "/emulated/disk");
        let plain = storage(&sys, "/emulated", 0, 50);
        assert_eq!(plain.profile(), Some("raid10-12"));
        assert!(plain.device.is_none());
        let remark = &plain.device_remark;
        assert!(remark.contains("raid10-12 (twelve disks), 10 times as fast"), "{remark}");
        let over = storage(&sys, "/over", 7, 4);
        assert_eq!(over.profile(), Some("raid10-12"));
        assert_eq!(over.filesystem.as_deref(), Some("ext4"));
        assert_eq!(over.device.unwrap().name, "loop4");
        assert!(over.device_remark.contains("emulated"), "{}", over.device_remark);
        assert!(!over.device_remark.contains("not counted"), "{}", over.device_remark);
        assert_eq!(storage(&sys, "/loop", 7, 3).profile(), None);
    }

    #[test]
    fn btrfs_on_one_device_says_which_and_is_counted_there() {
        let sys = FakeSys::server();
        sys.btrfs("5d1", &["sdb"]);
        let storage = storage(&sys, "/one", 0, 51);
        assert!(storage.device.is_none(), "its readahead is not the device's");
        assert!(storage.device_remark.contains("sdb alone"), "{}", storage.device_remark);
        assert!(CounterSource::of(&sys.sysfs(), &storage).unwrap().is_some());
        sys.btrfs("5d1", &["sda"]);
        assert!(CounterSource::of(&sys.sysfs(), &storage).unwrap().is_none(), "on two");
    }

    #[test]
    fn counters_that_stand_still_are_remarked() {
        let sys = FakeSys::server();
        let disk = sys.disk("vda", 254, 0);
        sys.write(&disk, "queue/iostats", "0");
        assert!(storage(&sys, "/x", 254, 0).device_remark.contains("iostats"));
    }

    #[test]
    fn a_device_that_sysfs_does_not_show_is_none() {
        let storage = storage(&FakeSys::server(), "/hidden", 8, 200);
        assert!(storage.device.is_none());
        assert!(storage.device_remark.contains("8:200"), "{}", storage.device_remark);
        assert_eq!(storage.filesystem.as_deref(), Some("ext4"));
    }

    #[test]
    fn a_system_without_sysfs_still_has_a_directory() {
        let sysfs = Sysfs::at("/nonexistent");
        let storage = describe(Path::new("/Users/ada"), "1:13", None, None, &sysfs);
        assert!(storage.device.is_none() && storage.filesystem.is_none());
        assert!(storage.device_remark.contains("cannot be followed"), "[STO-1]");
    }

    #[test]
    fn a_file_and_a_missing_path_are_errors() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        fs::write(&file, "x").unwrap();
        let kind = |path: &Path| Storage::read(path).unwrap_err().kind();
        assert_eq!(kind(&file), io::ErrorKind::NotADirectory);
        assert_eq!(kind(&directory.path().join("removed")), io::ErrorKind::NotFound);
        assert!(free_bytes(&directory.path().join("removed")).is_err());
        assert!(free_bytes(directory.path()).unwrap() > 0);
    }

    /// Holds on any machine: a device or a reason; and a device's counters see a synced write.
    #[test]
    fn on_this_machine_a_synced_write_moves_the_counters() {
        let directory = tempfile::tempdir().unwrap();
        let storage = Storage::read(directory.path()).unwrap();
        assert!(Path::new(&storage.directory).is_absolute());
        let Some(device) = &storage.device else {
            assert!(!storage.device_remark.is_empty(), "[STO-1]");
            return;
        };
        assert!(!device.leaves.is_empty(), "[SYS-1]");
        // The one permitted refusal: the counters are switched off, and the remark says so.
        let source = match CounterSource::of(&Sysfs::system(), &storage) {
            Ok(source) => source.unwrap(),
            Err(refused) => {
                assert!(refused.to_string().contains("iostats"), "{refused}");
                assert!(storage.device_remark.contains("iostats"));
                return;
            }
        };
        let earlier = source.read().unwrap();
        let mut file = fs::File::create(directory.path().join("synced")).unwrap();
        file.write_all(&vec![0xa5; 1 << 20]).unwrap();
        file.sync_all().unwrap();
        let difference = source.read().unwrap().since(&earlier);
        assert!(difference.writes > 0, "{difference:?}");
        assert!(difference.write_bytes > 0, "{difference:?}");
    }
}
