//! Emulated disks: a mount of `forebay emulate` below a directory, and its own description.
//!
//! It is below when the directory is in the mount, or on a filesystem whose loop device is backed by a file
//! of the mount. Worked example: `/tmp/forebay-mount-a` is ext4 on `/dev/loop0`, which is backed by
//! `/tmp/forebay-disk-b/disk`, which is in a mount of type `fuse.forebay`; so its
//! `.forebay/profile` is read.
//!
//! Failure:     a mount that does not answer in the form expected is no emulated disk.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::mountinfo::Mount;
use super::sysfs::Sysfs;

/// The type of our mounts.
pub(super) const TYPE: &str = "fuse.forebay";

/// The modelled device below a directory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EmulatedDisk {
    /// Name of the profile.
    #[serde(alias = "name")]
    pub profile: String,
    /// A description, in a sentence.
    pub about: String,
    /// Size of the disk, in bytes.
    pub size_bytes: u64,
    /// Emulated seconds in a real one: times are measured in real ones.
    pub speed_up: f64,
    /// Seed of the model's random numbers.
    pub seed: u64,
    /// Where its file `disk` is.
    #[serde(default)]
    pub mount_point: String,
}

impl EmulatedDisk {
    /// Queries the emulated disk that is mounted at `mount_point`.
    pub(super) fn ask(mount_point: &Path) -> Option<EmulatedDisk> {
        let text = std::fs::read_to_string(mount_point.join(".forebay/profile")).ok()?;
        let disk: EmulatedDisk = serde_json::from_str(&text).ok()?;
        Some(EmulatedDisk { mount_point: mount_point.to_str()?.to_owned(), ..disk })
    }

    /// Where it counts its requests.
    pub(super) fn counters(&self) -> PathBuf {
        Path::new(&self.mount_point).join(".forebay/counters")
    }
}

/// The mount point of the emulated disk below `mount`, if there is one.
pub(super) fn below<'a>(mount: &'a Mount, mounts: &'a [Mount], sysfs: &Sysfs) -> Option<&'a Path> {
    if mount.filesystem == TYPE {
        return Some(&mount.mount_point);
    }
    let device = sysfs.by_name(mount.source.strip_prefix("/dev/")?).ok()?;
    let file = PathBuf::from(device.backing_file()?);
    let holds = |mount: &&Mount| file.starts_with(&mount.mount_point);
    let depth = |mount: &&Mount| mount.mount_point.components().count();
    let holder = mounts.iter().filter(holds).max_by_key(depth)?;
    (holder.filesystem == TYPE).then_some(&*holder.mount_point)
}

#[cfg(test)]
mod tests {
    use super::super::mountinfo;
    use super::super::sysfs::fixture::FakeSys;
    use super::*;

    const MOUNTS: &str = r"27 1 8:1 / / rw - ext4 /dev/sda1 rw
30 27 0:50 / /tmp/disk/mnt rw - fuse.forebay raid10-12 rw
31 27 7:0 / /tmp/fs rw - ext4 /dev/loop0 rw
32 27 0:51 / /tmp/bt rw - btrfs /dev/loop0 rw
33 27 7:1 / /tmp/other rw - ext4 /dev/loop1 rw
34 27 0:52 / /tmp/ssh rw - fuse.sshfs ada@filer: rw
";

    #[test]
    fn an_emulated_disk_is_found_in_its_mount_and_below_a_loop_device_on_it() {
        let sys = FakeSys::empty();
        let disk = sys.disk("loop0", 7, 0);
        sys.write(&disk, "loop/backing_file", "/tmp/disk/mnt/disk");
        let other = sys.disk("loop1", 7, 1);
        sys.write(&other, "loop/backing_file", "/srv/image");
        let mounts = mountinfo::parse(MOUNTS);
        let below = |index: usize| below(&mounts[index], &mounts, &sys.sysfs());
        let emulated = Some(Path::new("/tmp/disk/mnt"));
        assert_eq!(below(1), emulated);
        assert_eq!(below(2), emulated);
        assert_eq!(below(3), emulated, "btrfs, whose own number is anonymous");
        for other in [0, 4, 5] {
            assert_eq!(below(other), None, "{}", mounts[other].mount_point.display());
        }
    }

    #[test]
    fn what_does_not_answer_as_an_emulated_disk_does_is_none() {
        let scratch = tempfile::tempdir().unwrap();
        assert_eq!(EmulatedDisk::ask(scratch.path()), None);
        std::fs::create_dir(scratch.path().join(".forebay")).unwrap();
        let profile = scratch.path().join(".forebay/profile");
        std::fs::write(&profile, "{}").unwrap();
        assert_eq!(EmulatedDisk::ask(scratch.path()), None);
        let text = r#"{"name":"nvme","about":"fast","size_bytes":9,"speed_up":2.0,"seed":7}"#;
        std::fs::write(&profile, text).unwrap();
        let asked = EmulatedDisk::ask(scratch.path()).unwrap();
        assert_eq!((asked.profile.as_str(), asked.speed_up, asked.seed), ("nvme", 2.0, 7));
        assert_eq!(asked.counters(), scratch.path().join(".forebay/counters"));
    }
}
