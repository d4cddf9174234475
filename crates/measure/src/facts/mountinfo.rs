//! Mountinfo: which mount a directory lies on.
//!
//! `/proc/self/mountinfo` has one line a mount, in the order they were made:
//! `36 35 98:0 /sub /mnt/a\040b rw,noatime shared:1 - ext4 /dev/sda1 rw,errors=continue` reads as
//! mount 36, filesystem 98:0, its directory /sub shown at "/mnt/a b". The longest mount point that
//! contains a directory is not enough: mounting over `/a` hides an older mount at `/a/b` that stays
//! listed. So the kernel's mount id decides, and no mount is guessed without it.
//!
//! Source:      `proc_pid_mountinfo(5)`.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// The number of the filesystem of `path` as the kernel writes it, such as `8:1`: that of its block device, or
/// an anonymous one with a major of 0.
pub(super) fn device_number(path: &Path) -> io::Result<String> {
    let number = rustix::fs::stat(path)?.st_dev;
    Ok(format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number)))
}

/// One line of mountinfo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Its number.
    pub id: u64,
    /// The number of its device, such as `8:1`.
    pub device: String,
    /// The directory on which it is mounted.
    pub mount_point: PathBuf,
    /// The type of the filesystem, such as `ext4`.
    pub filesystem: String,
    /// The device, or what the filesystem calls its source.
    pub source: String,
    /// Options of the mount, and the differing ones of its superblock.
    pub options: String,
}

impl Mount {
    /// Parses one line; `None` when it has another form.
    fn parse(line: &str) -> Option<Mount> {
        // Any number of optional fields (`shared:1`, `master:2`) ends with a lone dash.
        let (before, after) = line.split_once(" - ")?;
        let before: Vec<&str> = before.split(' ').collect();
        let [id, _parent, device, _root, mount_point, own, ..] = before[..] else { return None };
        // Fields are kept even when empty: a mount may have an empty source.
        let after: Vec<&str> = after.split(' ').collect();
        let [filesystem, source, superblock, ..] = after[..] else { return None };
        let mut options: Vec<&str> = own.split(',').collect();
        for option in superblock.split(',') {
            if !["rw", "ro"].contains(&option) && !options.contains(&option) {
                options.push(option);
            }
        }
        Some(Mount {
            id: id.parse().ok()?,
            device: device.to_owned(),
            mount_point: PathBuf::from(unescape(mount_point)),
            filesystem: unescape(filesystem),
            source: unescape(source),
            options: unescape(&options.join(",")),
        })
    }
}

/// The kernel writes some characters of names as octal numbers. The backslash is last: it begins the others.
fn unescape(field: &str) -> String {
    let escapes =
        [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\043", "#"), ("\\134", "\\")];
    escapes.iter().fold(field.to_owned(), |text, (escape, sign)| text.replace(escape, sign))
}

/// The mounts of this system, in the order listed.
///
/// # Errors
/// This system does not list its mounts.
pub fn mounts() -> io::Result<Vec<Mount>> {
    Ok(parse(&String::from_utf8_lossy(&fs::read("/proc/self/mountinfo")?)))
}

/// The mounts in `mountinfo`; lines of another form are skipped.
pub(super) fn parse(mountinfo: &str) -> Vec<Mount> {
    mountinfo.lines().filter_map(Mount::parse).collect()
}

/// The mount that contains `directory`, or `None` where the kernel does not report it.
pub(super) fn find<'a>(mounts: &'a [Mount], directory: &Path) -> Option<&'a Mount> {
    let open = File::open(directory).ok()?;
    let fdinfo = fs::read_to_string(format!("/proc/self/fdinfo/{}", open.as_raw_fd())).ok()?;
    let id = fdinfo.lines().find_map(|line| line.strip_prefix("mnt_id:"))?;
    let id = id.trim().parse::<u64>().ok()?;
    mounts.iter().find(|mount| mount.id == id)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A laptop with some of everything.
    const FIXTURE: &str = r"22 27 0:21 / /proc rw,nosuid,nodev,noexec,relatime shared:12 - proc proc rw
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

    fn mount(id: u64) -> Mount {
        parse(FIXTURE).into_iter().find(|mount| mount.id == id).unwrap()
    }

    #[test]
    fn every_well_formed_line_is_read_and_others_are_passed_over() {
        assert_eq!(parse(FIXTURE).len(), 14);
        assert_eq!(parse(""), []);
        assert_eq!(parse("27 1 259:2 / / rw,relatime - ext4"), []);
    }

    #[test]
    fn a_line_is_read_in_full() {
        let root = mount(27);
        assert_eq!(root.device, "259:2");
        assert_eq!(root.mount_point, Path::new("/"));
        assert_eq!((root.filesystem.as_str(), root.source.as_str()), ("ext4", "/dev/nvme0n1p2"));
        assert_eq!(root.options, "rw,relatime,errors=remount-ro,stripe=32");
        assert_eq!(mount(70).options, "rw,noatime,errors=remount-ro,stripe=32", "a bind mount");
    }

    #[test]
    fn a_mount_read_only_on_a_writable_superblock_is_read_only() {
        let options = mount(41).options;
        assert!(options.starts_with("ro,noatime,compress=zstd:3"), "{options}");
        assert!(!options.contains("rw"));
    }

    #[test]
    fn escapes_in_mount_points_are_undone() {
        assert_eq!(mount(71).mount_point, Path::new("/mnt/My Disk\tx"));
        assert_eq!(unescape(r"\134040\"), r"\040\");
    }

    #[test]
    fn an_empty_source_shifts_no_field() {
        let odd = mount(93);
        assert_eq!((odd.source.as_str(), odd.options.as_str()), ("", "rw,relatime"));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_kernel_reports_which_mount_a_directory_is_on() {
        let mounts = mounts().unwrap();
        let proc = find(&mounts, Path::new("/proc/self")).unwrap();
        assert_eq!((proc.filesystem.as_str(), proc.mount_point.to_str()), ("proc", Some("/proc")));
        assert_eq!(find(&mounts[..0], Path::new("/proc")), None);
        assert_eq!(find(&mounts, Path::new("/no/where")), None);
    }
}
