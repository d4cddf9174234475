//! Where the kernel's readahead of a directory is set: at its block device, or at its filesystem.
//!
//! Every mount has a `bdi`, the kernel's record of what lies behind it, and the readahead is a number in
//! there. A block device's is `queue/read_ahead_kb`. A filesystem without a device (FUSE, NFS) has one of
//! its own, named by the number that `stat` gives for its files: `/sys/class/bdi/0:47`. Btrfs has one of
//! its own too but names it otherwise; its directory in `/sys/fs/btrfs` leads there, and which
//! directory that is can be told by the device that it was mounted from.
//!
//! Failure:     a filesystem whose readahead cannot be found is an error that says so; none is guessed.
//! Source:      the kernel's `Documentation/ABI/testing/sysfs-class-bdi` and `sysfs-fs-btrfs`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::mountinfo::DeviceNumber;
use super::{Storage, Sysfs};

impl Sysfs {
    /// The file that holds the kernel's readahead, in KiB, of files that are opened in the directory that
    /// `storage` describes.
    ///
    /// # Errors
    /// `NotFound`: none is known. Others: as the system reports them.
    pub fn readahead_file_of(&self, storage: &Storage) -> io::Result<PathBuf> {
        if let Some(device) = &storage.device {
            return self.readahead_file(device);
        }
        let number = rustix::fs::stat(Path::new(&storage.directory))?.st_dev;
        let number =
            DeviceNumber { major: rustix::fs::major(number), minor: rustix::fs::minor(number) };
        self.filesystem_readahead_file(number, storage)
    }

    fn filesystem_readahead_file(
        &self,
        number: DeviceNumber,
        storage: &Storage,
    ) -> io::Result<PathBuf> {
        let DeviceNumber { major, minor } = number;
        let named = self.path(&format!("class/bdi/{major}:{minor}/read_ahead_kb"));
        if named.exists() {
            return Ok(named);
        }
        let filesystem = storage.filesystem.as_deref().unwrap_or("the filesystem");
        let of_btrfs = (filesystem == "btrfs")
            .then(|| storage.source.as_deref().and_then(|source| self.btrfs_bdi(Path::new(source))))
            .flatten();
        of_btrfs.ok_or_else(|| {
            let message =
                format!("{filesystem} at {} shows no readahead in /sys", storage.directory);
            io::Error::new(io::ErrorKind::NotFound, message)
        })
    }

    /// The readahead of the btrfs that has `device` among its devices.
    fn btrfs_bdi(&self, device: &Path) -> Option<PathBuf> {
        let device = fs::canonicalize(device).unwrap_or_else(|_| device.to_owned());
        let name = device.file_name()?;
        let filesystems = fs::read_dir(self.path("fs/btrfs")).ok()?;
        filesystems.filter_map(Result::ok).map(|entry| entry.path()).find_map(|filesystem| {
            let file = filesystem.join("bdi/read_ahead_kb");
            (filesystem.join("devices").join(name).exists() && file.exists()).then_some(file)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::FakeSys;
    use super::*;

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
        let path = sysfs.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "128\n").unwrap();
        path
    }

    #[test]
    fn a_mount_without_a_device_is_found_by_its_number() {
        let sys = FakeSys::empty();
        let sysfs = sys.sysfs();
        let file = make(&sysfs, "class/bdi/0:47/read_ahead_kb");
        let fuse = storage("fuse.forebay", "emulated");
        let found =
            |minor| sysfs.filesystem_readahead_file(DeviceNumber { major: 0, minor }, &fuse);
        assert_eq!(found(47).unwrap(), file);
        let error = found(48).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(error.to_string().contains("fuse.forebay at /srv"), "{error}");
    }

    #[test]
    fn btrfs_is_found_by_a_device_of_its_own_and_by_no_other() {
        let sys = FakeSys::empty();
        let sysfs = sys.sysfs();
        for (uuid, device) in [("aa", "sda"), ("bb", "nosuch7")] {
            make(&sysfs, &format!("fs/btrfs/{uuid}/bdi/read_ahead_kb"));
            make(&sysfs, &format!("fs/btrfs/{uuid}/devices/{device}"));
        }
        make(&sysfs, "fs/btrfs/features/raid56");
        let number = DeviceNumber { major: 0, minor: 30 };
        let found = |source| sysfs.filesystem_readahead_file(number, &storage("btrfs", source));
        assert!(found("/dev/nosuch7").unwrap().ends_with("bb/bdi/read_ahead_kb"));
        assert!(found("/dev/nosuch8").is_err());
    }

    #[test]
    fn a_device_has_it_in_its_queue() {
        let sys = FakeSys::server();
        let ext4 = Storage { device: Some(sys.device(8, 1)), ..storage("ext4", "/dev/sda1") };
        let file = sys.sysfs().readahead_file_of(&ext4).unwrap();
        assert!(file.ends_with("sda/queue/read_ahead_kb"), "{file:?}");
    }
}
