//! Mounting and unmounting: directly as root, by fusermount3 as any other user.
//!
//! fuser could do this, too. It is here so that the cleanup of an ordinary user's mount needs no allow_other, so
//! that errors are sentences, and so that unmounting distinguishes "in use" from "already unmounted".
//!
//! Invariants:  [MNT-1] only the mount that was made here is unmounted: its entry in the mount table is compared with
//!              the entry after the mount
//!
//! Source: fuse(4) for the mount options; libfuse's mount.c for how fusermount3 passes the descriptor.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, ErrorKind, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, Statx, StatxAttributes, StatxFlags, statx};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::{getgid, getuid};

use super::Error;

const HELPER: &str = "fusermount3";

/// The type shown in the mount table; distinguishes our mounts from others.
const TYPE: &str = "fuse.forebay";

/// Attempts to unmount a mount that is in use before it is detached instead, and the pause after each attempt.
const ATTEMPTS: u32 = 10;
const PAUSE: Duration = Duration::from_millis(50);

/// How an unmount ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unmounted {
    /// Completely unmounted.
    Completely,
    /// It was in use: it has no name any more, and ends with its last user.
    Detached,
}

/// The canonical path of the mount point, if something can be mounted there.
pub(super) fn check(mount_point: &Path) -> Result<PathBuf, Error> {
    let path = || mount_point.to_owned();
    let facts = match look_at(mount_point) {
        Ok(facts) => facts,
        Err(Errno::NOTCONN) => return Err(Error::Dead { path: path() }),
        Err(error) => return Err(Error::NoMountPoint { path: path(), source: error.into() }),
    };
    if facts.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT)
        && facts.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)
    {
        // The kernel caches the attributes of a mount that has lost its server, but not its listings.
        let listed = std::fs::read_dir(mount_point).err();
        let dead =
            listed.and_then(|error| error.raw_os_error()) == Some(Errno::NOTCONN.raw_os_error());
        return Err(if dead { Error::Dead { path: path() } } else { Error::Busy { path: path() } });
    }
    let failed = |source| Error::NoMountPoint { path: path(), source };
    if !std::fs::metadata(mount_point).map_err(failed)?.is_dir() {
        return Err(Error::NotADirectory { path: path() });
    }
    if std::fs::read_dir(mount_point).map_err(failed)?.next().is_some() {
        return Err(Error::NotEmpty { path: path() });
    }
    mount_point.canonicalize().map_err(failed)
}

fn look_at(path: &Path) -> rustix::io::Result<Statx> {
    statx(CWD, path, AtFlags::empty(), StatxFlags::TYPE)
}

/// Mounts on `mount_point`; the returned descriptor talks to the kernel.
pub(super) fn mount(mount_point: &Path, name: &str) -> Result<OwnedFd, Error> {
    match File::options().read(true).write(true).open("/dev/fuse") {
        Ok(device) => match mount_by_ourselves(mount_point, name, &device) {
            Ok(()) => return Ok(device.into()),
            Err(Errno::PERM) => {}
            Err(error) => {
                let doing = format!("mount on {}", mount_point.display());
                return Err(Error::Io { doing, source: error.into() });
            }
        },
        Err(error) if matches!(error.kind(), ErrorKind::NotFound) => return Err(Error::NoFuse),
        Err(error) if matches!(error.raw_os_error(), Some(19 | 6)) => return Err(Error::NoFuse),
        Err(error) => return Err(Error::FuseRefused(error)),
    }
    mount_by_helper(mount_point, name)
}

fn mount_by_ourselves(mount_point: &Path, name: &str, device: &File) -> rustix::io::Result<()> {
    let (user, group) = (getuid().as_raw(), getgid().as_raw());
    let mut options = format!(
        "fd={},rootmode=40000,user_id={user},group_id={group},default_permissions",
        device.as_raw_fd()
    );
    if getuid().is_root() {
        options.push_str(",allow_other");
    }
    let options = CString::new(options).map_err(|_| Errno::INVAL)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOATIME;
    rustix::mount::mount(name, mount_point, TYPE, flags, options.as_c_str())
}

fn mount_by_helper(mount_point: &Path, name: &str) -> Result<OwnedFd, Error> {
    let failed = |source| Error::Io { doing: "talk to fusermount3".to_owned(), source };
    let (ours, theirs) = UnixStream::pair().map_err(failed)?;
    // A comma would end the name; no other character is special there.
    let name = name.replace([',', '\\'], "_");
    let mut command = Command::new(HELPER);
    command.arg("-o").arg(format!("fsname={name},subtype=forebay,default_permissions,noatime"));
    command.arg("--").arg(mount_point);
    // The descriptor on which it answers: its standard input, which is inherited without a fork in our code.
    command.env("_FUSE_COMMFD", "0").stdin(OwnedFd::from(theirs));
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let child = command.spawn().map_err(|error| match error.kind() {
        ErrorKind::NotFound => Error::NoHelper,
        _ => failed(error),
    })?;
    drop(command); // and with it the other end, so that a helper that dies is noticed
    let received = receive(&ours);
    let output = child.wait_with_output().map_err(failed)?;
    match received {
        Ok(Some(device)) if output.status.success() => Ok(device),
        Ok(_) => {
            let message = String::from_utf8_lossy(&output.stderr);
            let message = message.trim().trim_start_matches("fusermount3: ").to_owned();
            Err(Error::HelperRefused { path: mount_point.to_owned(), message })
        }
        Err(error) => Err(failed(error)),
    }
}

/// The descriptor that arrives together with a byte, or none if the other side closes without sending.
fn receive(from: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut slices = [IoSliceMut::new(&mut byte)];
    rustix::io::retry_on_intr(|| {
        recvmsg(from, &mut slices, &mut ancillary, RecvFlags::CMSG_CLOEXEC)
    })?;
    let descriptors = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    Ok(descriptors.flatten().next())
}

/// A mount made here, as the mount table shows it.
#[derive(Debug, Clone)]
pub(super) struct Mounted {
    /// The canonical path of the mount point.
    pub(super) point: PathBuf,
    /// Numbers of the mount and its device, and the type, if a mount table could be read.
    pub(super) facts: Option<String>,
}

/// The state of a mount point in the mount table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MountState {
    /// Ours, with nothing mounted over it; or unknown.
    Ours,
    /// Ours, with something mounted over it.
    Covered,
    /// No longer mounted, whatever is there instead.
    Removed,
}

impl Mounted {
    /// What was mounted on `point` just now.
    pub(super) fn now(point: PathBuf) -> Mounted {
        let table = mount_table(&point);
        Mounted { facts: table.and_then(|lines| lines.last().cloned()), point }
    }

    fn state(&self) -> MountState {
        let (Some(facts), Some(lines)) = (&self.facts, mount_table(&self.point)) else {
            return MountState::Ours;
        };
        match lines.iter().rposition(|line| line == facts) {
            Some(at) if at + 1 == lines.len() => MountState::Ours,
            Some(_) => MountState::Covered,
            None => MountState::Removed,
        }
    }

    /// True if it is mounted but has lost its server, which means that it was not unmounted.
    pub(super) fn is_dead(&self) -> bool {
        let listed = std::fs::read_dir(&self.point).err();
        listed.and_then(|error| error.raw_os_error()) == Some(Errno::NOTCONN.raw_os_error())
    }
}

/// The entries of the mount table for `point`, the topmost last: numbers, mount point and type.
fn mount_table(point: &Path) -> Option<Vec<String>> {
    let name = escaped(point);
    let table = std::fs::read("/proc/self/mountinfo").ok()?;
    let table = String::from_utf8_lossy(&table);
    let lines = table.lines().filter_map(|line| {
        let (numbers, kind) = line.split_once(" - ")?;
        let numbers: Vec<&str> = numbers.splitn(6, ' ').collect();
        let (of_mount, device) = (numbers.first()?, numbers.get(2)?);
        let here = numbers.get(4) == Some(&name.as_str());
        here.then(|| format!("{of_mount} {device} {}", kind.split(' ').next().unwrap_or_default()))
    });
    Some(lines.collect())
}

/// A path as the mount table shows it.
pub(super) fn escaped(path: &Path) -> String {
    let mut bytes = Vec::new();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b' ' | b'\t' | b'\n' | b'\\' => bytes.extend(format!("\\{byte:03o}").bytes()),
            other => bytes.push(*other),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Unmounts: tries for half a second, then calls `before_detach` and detaches. A missing mount counts as unmounted.
pub(super) fn unmount(mounted: &Mounted, before_detach: impl FnOnce()) -> Result<Unmounted, Error> {
    let mount_point = &mounted.point;
    for attempt in 0..ATTEMPTS {
        if attempt > 0 {
            std::thread::sleep(PAUSE);
        }
        match mounted.state() {
            MountState::Ours => {}
            MountState::Covered => return Err(Error::Covered { path: mount_point.clone() }),
            MountState::Removed => return Ok(Unmounted::Completely),
        }
        match try_unmount(mount_point, false) {
            Ok(()) => return Ok(Unmounted::Completely),
            Err(error) if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => {}
            Err(error) => {
                let doing = format!("unmount {}", mount_point.display());
                return Err(Error::Io { doing, source: error });
            }
        }
    }
    before_detach();
    detach(mounted)?;
    Ok(Unmounted::Detached)
}

/// Detaches the mount, in use or not.
pub(super) fn detach(mounted: &Mounted) -> Result<(), Error> {
    let mount_point = &mounted.point;
    match mounted.state() {
        MountState::Ours => {}
        MountState::Covered => return Err(Error::Covered { path: mount_point.clone() }),
        MountState::Removed => return Ok(()),
    }
    try_unmount(mount_point, true).map_err(|source| {
        let doing = format!("detach the filesystem on {}", mount_point.display());
        Error::Io { doing, source }
    })
}

/// A mount that is missing counts as unmounted.
fn try_unmount(mount_point: &Path, detach: bool) -> io::Result<()> {
    let flags = if detach { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    match rustix::mount::unmount(mount_point, flags | UnmountFlags::NOFOLLOW) {
        Ok(()) | Err(Errno::INVAL | Errno::NOENT) => Ok(()),
        Err(Errno::PERM) => unmount_by_helper(mount_point, detach),
        Err(error) => Err(error.into()),
    }
}

fn unmount_by_helper(mount_point: &Path, detach: bool) -> io::Result<()> {
    let mut command = Command::new(HELPER);
    command.arg("-u").args(detach.then_some("-z")).arg("--").arg(mount_point);
    let output = command.stdin(Stdio::null()).output()?;
    let message = String::from_utf8_lossy(&output.stderr);
    if output.status.success() || message.contains("not found") || message.contains("not mounted") {
        return Ok(());
    }
    if message.contains("busy") {
        return Err(Errno::BUSY.into());
    }
    Err(io::Error::other(message.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_as_the_mount_table_does() {
        assert_eq!(escaped(Path::new("/a b\\c\td\ne#f")), r"/a\040b\134c\011d\012e#f");
    }
}
