//! Mountinfo: which mount a directory lies on.
//!
//! `/proc/self/mountinfo` has one line a mount, in the order they were made:
//! `36 35 98:0 /sub /mnt/a\040b rw,noatime shared:1 - ext4 /dev/sda1 rw,errors=continue` reads as
//! mount 36, filesystem 98:0, its directory /sub shown at "/mnt/a b". The longest mount point that
//! contains a directory is not enough: mounting over `/a` hides an older mount at `/a/b` that stays
//! listed. So the kernel's mount id decides where it is known, then the device number, then the path.
//!
//! Invariants:  [MNT-1] the mount found contains the directory
//!              [MNT-2] a directory on a real device is never given a mount of another device
//! Source:      `proc_pid_mountinfo(5)`; the order of evidence is ours.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// A block device's or a filesystem's number. Major 0 is anonymous: no block device behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DeviceNumber {
    pub(super) major: u32,
    pub(super) minor: u32,
}

impl DeviceNumber {
    /// True when the number names a filesystem instance only, and no block device.
    pub(super) fn is_anonymous(self) -> bool {
        self.major == 0
    }

    fn parse(text: &[u8]) -> Option<DeviceNumber> {
        let (major, minor) = std::str::from_utf8(text).ok()?.split_once(':')?;
        Some(DeviceNumber { major: major.parse().ok()?, minor: minor.parse().ok()? })
    }
}

/// One line of mountinfo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mount {
    pub(super) id: u64,
    pub(super) device: DeviceNumber,
    pub(super) mount_point: PathBuf,
    pub(super) filesystem: String,
    pub(super) source: String,
    /// Options of the mount and of its superblock, merged.
    pub(super) options: String,
}

impl Mount {
    /// Reads one line, or `None` when it has not the form of one.
    fn parse(line: &[u8]) -> Option<Mount> {
        // Fields are kept even when empty: a mount may have an empty source.
        let mut fields = line.split(|&byte| byte == b' ');
        let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
        let _parent = fields.next()?;
        let device = DeviceNumber::parse(fields.next()?)?;
        let _root = fields.next()?;
        let mount_point = PathBuf::from(OsString::from_vec(unescape(fields.next()?)));
        let own_options = text(fields.next()?);
        // Any number of optional fields (`shared:1`, `master:2`) ends with a lone dash.
        fields.find(|field| *field == b"-")?;
        let filesystem = text(fields.next()?);
        let source = text(fields.next()?);
        let super_options = text(fields.next()?);
        Some(Mount {
            id,
            device,
            mount_point,
            filesystem,
            source,
            options: merge_options(&own_options, &super_options),
        })
    }
}

/// What is known of a directory whose mount is sought.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sought<'a> {
    /// The directory, absolute and without symbolic links.
    pub(super) directory: &'a Path,
    /// Its `st_dev`.
    pub(super) device: DeviceNumber,
    /// The kernel's id of its mount, where that could be read.
    pub(super) mount_id: Option<u64>,
}

/// Reads all mounts, in the order listed; lines of another form are passed over.
pub(super) fn parse(mountinfo: &[u8]) -> Vec<Mount> {
    mountinfo.split(|&byte| byte == b'\n').filter_map(Mount::parse).collect()
}

/// Finds the mount a directory lies on, or `None` where that is not certain.
///
/// The path alone decides only between anonymous devices: a btrfs subvolume and an overlay
/// may report a number of their own, a real block device never does.
pub(super) fn find<'a>(mounts: &'a [Mount], sought: &Sought<'_>) -> Option<&'a Mount> {
    let contains = |mount: &&Mount| sought.directory.starts_with(&mount.mount_point);
    // max_by_key keeps the last of equals: the newest of the mounts stacked on one mount point.
    let depth = |mount: &&Mount| mount.mount_point.components().count();
    let same_kind = |mount: &&Mount| {
        mount.device == sought.device
            || (sought.device.is_anonymous() && mount.device.is_anonymous())
    };
    let by_id = || {
        let id = sought.mount_id?;
        mounts.iter().find(|mount| mount.id == id)
    };
    let by_device = || {
        let candidates =
            mounts.iter().filter(|mount| mount.device == sought.device && contains(mount));
        candidates.max_by_key(depth)
    };
    let by_path = || mounts.iter().filter(contains).max_by_key(depth);
    let found = by_id()
        .filter(|mount| contains(mount) && same_kind(mount))
        .or_else(by_device)
        .or_else(|| by_path().filter(same_kind))?;
    assert!(contains(&found), "[MNT-1]");
    assert!(same_kind(&found), "[MNT-2]");
    Some(found)
}

/// Joins a mount's options with its superblock's: one `ro` or `rw` in front (`ro` when either
/// side says so, as writes then fail), and no option twice.
fn merge_options(own: &str, superblock: &str) -> String {
    let all = || own.split(',').chain(superblock.split(','));
    let access = if all().any(|option| option == "ro") { "ro" } else { "rw" };
    let mut merged = vec![access];
    for option in all() {
        if !matches!(option, "" | "ro" | "rw") && !merged.contains(&option) {
            merged.push(option);
        }
    }
    merged.join(",")
}

fn text(field: &[u8]) -> String {
    String::from_utf8_lossy(&unescape(field)).into_owned()
}

/// Undoes the kernel's escapes, such as `\040` for a space; anything else is kept as it stands.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, after)) = rest.split_first() {
        match after {
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..] if first == b'\\' => {
                plain.push(((a - b'0') << 6) | ((b - b'0') << 3) | (c - b'0'));
                rest = &after[3..];
            }
            _ => {
                plain.push(first);
                rest = after;
            }
        }
    }
    plain
}

/// The mount id that `/proc/self/fdinfo` shows for an open file.
pub(super) fn mount_id(fdinfo: &str) -> Option<u64> {
    let line = fdinfo.lines().find_map(|line| line.strip_prefix("mnt_id:"))?;
    line.trim().parse().ok()
}

/// One of the mounts at a mount point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MountedHere {
    pub(crate) source: String,
    pub(crate) filesystem: String,
}

/// What is mounted at `point` itself, the one that is seen last.
///
/// # Errors
/// This system does not list its mounts.
pub(crate) fn mounted_at(point: &Path) -> io::Result<Vec<MountedHere>> {
    let mounts = parse(&std::fs::read("/proc/self/mountinfo")?);
    let here = mounts.into_iter().filter(|mount| mount.mount_point == point);
    let told = here.map(|mount| MountedHere { source: mount.source, filesystem: mount.filesystem });
    Ok(told.collect())
}

/// The mount points inside `directory`, itself left out.
///
/// # Errors
/// This system does not list its mounts.
pub(crate) fn mounted_inside(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mounts = parse(&std::fs::read("/proc/self/mountinfo")?);
    let points = mounts.into_iter().map(|mount| mount.mount_point);
    Ok(points.filter(|point| point != directory && point.starts_with(directory)).collect())
}

/// What a device number without a device behind it, such as the `0:51` of a FUSE mount, stands for now. The
/// kernel gives the lowest free one, so that the next mount gets that of one that has gone.
pub(crate) fn user_of_anonymous(number: &str) -> Option<String> {
    let number = DeviceNumber::parse(number.as_bytes()).filter(|number| number.is_anonymous())?;
    let mounts = parse(&std::fs::read("/proc/self/mountinfo").ok()?);
    let mount = mounts.into_iter().find(|mount| mount.device == number)?;
    let (point, filesystem) = (mount.mount_point.display().to_string(), mount.filesystem);
    Some(format!("{filesystem} {} on {point}, mount {}", mount.source, mount.id))
}

/// A mount point as text, for a report.
pub(super) fn display(path: &Path) -> String {
    String::from_utf8_lossy(path.as_os_str().as_bytes()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A laptop with some of everything; 90 is mounted over 80 and hides it.
    const FIXTURE: &[u8] = br"22 27 0:21 / /proc rw,nosuid,nodev,noexec,relatime shared:12 - proc proc rw
27 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw,errors=remount-ro,stripe=32
31 27 0:28 / /tmp rw,nosuid,nodev shared:14 - tmpfs tmpfs rw,size=8123456k,nr_inodes=1048576,inode64
40 27 0:35 /@home /home rw,noatime shared:20 master:3 - btrfs /dev/sdb1 rw,compress=zstd:3,ssd,space_cache=v2,subvolid=257,subvol=/@home
41 40 0:35 /@snap /home/.snapshots ro,noatime shared:21 - btrfs /dev/sdb1 rw,compress=zstd:3,ssd,space_cache=v2,subvolid=258,subvol=/@snap
50 27 0:61 / /var/lib/docker/overlay2/ab/merged rw,relatime - overlay overlay rw,lowerdir=/l/A:/l/B,upperdir=/u,workdir=/w
60 27 0:70 / /mnt/share rw,relatime shared:40 - nfs4 filer:/export/a rw,vers=4.2,rsize=1048576,wsize=1048576,hard,addr=10.0.0.7
70 27 259:2 /srv/data /mnt/bound rw,noatime shared:1 - ext4 /dev/nvme0n1p2 rw,errors=remount-ro,stripe=32
71 27 8:17 / /mnt/My\040Disk\011x rw,relatime shared:50 - xfs /dev/sdb1 rw,attr2,inode64,noquota
80 27 8:33 / /mnt/deep/old rw,relatime - ext4 /dev/sdc1 rw
90 27 8:49 / /mnt/deep rw,relatime - ext4 /dev/sdd1 rw
91 27 8:65 / /mnt/stack rw - ext4 /dev/sde1 rw
92 91 8:81 / /mnt/stack rw - ext4 /dev/sdf1 rw
93 27 0:80 / /mnt/odd rw,relatime - tmpfs  rw
this line is not one of mountinfo's
";

    fn seek(directory: &str, major: u32, minor: u32, mount_id: Option<u64>) -> Option<Mount> {
        let sought = Sought {
            directory: Path::new(directory),
            device: DeviceNumber { major, minor },
            mount_id,
        };
        find(&parse(FIXTURE), &sought).cloned()
    }

    #[track_caller]
    fn found(directory: &str, major: u32, minor: u32) -> Mount {
        seek(directory, major, minor, None).unwrap()
    }

    #[test]
    fn every_well_formed_line_is_read_and_others_are_passed_over() {
        assert_eq!(parse(FIXTURE).len(), 14);
        assert_eq!(parse(b""), []);
        assert_eq!(parse(b"27 1 259:2 / / rw,relatime - ext4"), []);
    }

    #[test]
    fn a_plain_directory_lies_on_the_root_filesystem() {
        let mount = found("/srv/data", 259, 2);
        assert_eq!(mount.mount_point, Path::new("/"));
        assert_eq!(mount.filesystem, "ext4");
        assert_eq!(mount.source, "/dev/nvme0n1p2");
        assert_eq!(mount.options, "rw,relatime,errors=remount-ro,stripe=32");
    }

    #[test]
    fn a_bind_mount_shows_its_own_options() {
        let mount = found("/mnt/bound/base", 259, 2);
        assert_eq!(mount.id, 70);
        assert_eq!(mount.options, "rw,noatime,errors=remount-ro,stripe=32");
    }

    #[test]
    fn a_mount_point_is_matched_by_whole_names() {
        assert_eq!(found("/mnt/boundless", 259, 2).mount_point, Path::new("/"));
    }

    #[test]
    fn btrfs_subvolumes_are_found_by_path_as_their_number_is_listed_nowhere() {
        let mount = found("/home/ada", 0, 37);
        assert_eq!(
            (mount.id, mount.filesystem.as_str(), mount.source.as_str()),
            (40, "btrfs", "/dev/sdb1")
        );
    }

    #[test]
    fn a_mount_read_only_on_a_writable_superblock_is_read_only() {
        let mount = found("/home/.snapshots/7", 0, 36);
        assert!(mount.options.starts_with("ro,noatime,compress=zstd:3"), "{}", mount.options);
        assert!(!mount.options.contains("rw"));
    }

    #[test]
    fn anonymous_filesystems_are_found_by_number() {
        assert_eq!(found("/tmp/x", 0, 28).filesystem, "tmpfs");
        assert_eq!(found("/mnt/share/a", 0, 70).source, "filer:/export/a");
        let overlay = found("/var/lib/docker/overlay2/ab/merged/data", 0, 61);
        assert_eq!(overlay.filesystem, "overlay");
    }

    #[test]
    fn escapes_in_mount_points_are_undone() {
        let mount = found("/mnt/My Disk\tx/db", 8, 17);
        assert_eq!(mount.mount_point, Path::new("/mnt/My Disk\tx"));
        assert_eq!(unescape(br"\134040\"), br"\040\");
        assert_eq!(unescape(br"\377\400\08"), b"\xff\\400\\08");
    }

    #[test]
    fn a_mount_hidden_under_a_newer_one_is_not_taken() {
        // By path alone the hidden /mnt/deep/old would win.
        assert_eq!(found("/mnt/deep/old/base", 8, 49).id, 90);
    }

    #[test]
    fn of_mounts_stacked_on_one_point_the_device_decides_and_then_the_last() {
        assert_eq!(found("/mnt/stack", 8, 81).id, 92);
        assert_eq!(found("/mnt/stack", 8, 65).id, 91);
        let twice = b"1 0 8:1 / /m rw - ext4 /dev/a rw\n2 1 8:1 / /m ro - ext4 /dev/a rw\n";
        let sought = Sought {
            directory: Path::new("/m"),
            device: DeviceNumber { major: 8, minor: 1 },
            mount_id: None,
        };
        assert_eq!(find(&parse(twice), &sought).unwrap().id, 2);
    }

    #[test]
    fn the_kernels_mount_id_goes_before_everything_else() {
        assert_eq!(seek("/mnt/bound/base", 259, 2, Some(27)).unwrap().id, 27);
        // An id that contradicts the path or the device number is stale and counts for nothing.
        assert_eq!(seek("/mnt/bound/base", 259, 2, Some(31)).unwrap().id, 70);
        assert_eq!(seek("/mnt/bound/base", 259, 2, Some(4000)).unwrap().id, 70);
    }

    #[test]
    fn a_real_device_that_is_not_listed_has_no_mount() {
        // [MNT-2]: in a chroot the filesystem of `/` may be missing from the list.
        assert_eq!(seek("/mnt/elsewhere", 8, 1, None), None);
        assert_eq!(seek("/nowhere", 0, 999, None), None, "the root is ext4");
    }

    #[test]
    fn an_empty_source_shifts_no_field() {
        let mount = found("/mnt/odd", 0, 80);
        assert_eq!((mount.source.as_str(), mount.options.as_str()), ("", "rw,relatime"));
    }

    #[test]
    fn fdinfo_gives_the_mount_id() {
        let fdinfo = "pos:\t0\nflags:\t02100000\nmnt_id:\t27\nino:\t1234\n";
        assert_eq!(mount_id(fdinfo), Some(27));
        assert_eq!(mount_id("pos:\t0\n"), None);
    }
}
