//! A FUSE filesystem over an emulated disk: the real kernel uses a device that does not exist.
//!
//! The root of the mount has one large sparse file, `disk`: the device's whole address space, for a
//! loop device or for reads for which the position matters. There may also be ordinary files and directories, whose
//! bytes have places in the same address space. The files of a hidden directory, `.forebay`, report and control:
//!
//! | file | what |
//! |---|---|
//! | `counters` | one line of JSON: [`Counters`](crate::Counters) |
//! | `control` | takes `timing off`, `timing on`, `log clear`, and `load SECONDS BYTES`: so much of the device's time passes at once, in which it is read at random; anything else is EINVAL |
//! | `profile` | JSON: [`MountInfo`], what is mounted |
//! | `log` | the newest million requests as JSON lines: [`LoggedRequest`](crate::log::LoggedRequest) |
//!
//! The kernel side is configured not to be the limit: asynchronous reads, 512 requests in the background,
//! requests as large as the kernel makes them (1 MiB), a write-back page cache. Two differences from a disk remain:
//! closing a written file writes its dirty pages back, which FUSE requires; and while a file is open for
//! direct reads, all writes to it bypass the page cache, even those of processes that did not open it for direct I/O.
//!
//! However the server ends, the mount is removed: by [`Emulation::unmount`], by its drop, and after a kill by a
//! guardian, a small process that waits for the server's end. A mount that is in use is detached: it has no name
//! any more, and processes that use it get errors. What was written to `disk` by then is in its data file.
//!
//! Linux only; elsewhere [`Emulation::mount`] returns an error that says so.

#[cfg(not(all(target_os = "linux", not(forebay_portable))))]
mod absent;
#[cfg(all(target_os = "linux", not(forebay_portable)))]
mod buffers;
#[cfg(all(target_os = "linux", not(forebay_portable)))]
mod contents;
#[cfg(all(target_os = "linux", not(forebay_portable)))]
mod control;
#[cfg(all(target_os = "linux", not(forebay_portable)))]
mod emulation;
#[cfg(all(target_os = "linux", not(forebay_portable)))]
mod filesystem;
#[cfg(all(target_os = "linux", not(forebay_portable)))]
mod guardian;
#[cfg(all(target_os = "linux", not(forebay_portable)))]
mod log_file;
#[cfg(all(target_os = "linux", not(forebay_portable)))]
mod mounting;
#[cfg(all(target_os = "linux", not(forebay_portable)))]
mod nodes;
#[cfg(all(target_os = "linux", not(forebay_portable)))]
mod opening;
#[cfg(all(target_os = "linux", not(forebay_portable)))]
mod transfers;

use std::io;
use std::path::PathBuf;
use std::sync::mpsc::Sender;

use serde::{Deserialize, Serialize};

use crate::files::Place;
use crate::model::Device;
use crate::store::StoreError;

#[cfg(not(all(target_os = "linux", not(forebay_portable))))]
pub use absent::Emulation;
#[cfg(all(target_os = "linux", not(forebay_portable)))]
pub use emulation::{Emulation, Ending};

/// Default number of requests that the log keeps.
pub const LOG_ENTRIES: usize = 1_000_000;

/// Allowed emulated seconds per real second: with more, 64 bits of nanoseconds would overflow within days.
pub const SPEED_UPS: std::ops::RangeInclusive<f64> = 1e-3..=1e4;

/// Where the emulated disk's bytes are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Data {
    /// In this process's memory, up to a limit.
    Memory {
        /// The limit, in bytes.
        limit_bytes: u64,
    },
    /// In a sparse file.
    File(PathBuf),
}

/// What to mount.
#[derive(Debug)]
pub struct Options {
    /// Name of the profile; also the source that the mount table shows.
    pub name: String,
    /// Description of the profile, in a sentence.
    pub about: String,
    /// The model.
    pub device: Box<dyn Device>,
    /// Size of `disk`; at most the model's size.
    pub size_bytes: u64,
    /// Where files are placed first.
    pub place: Place,
    /// Emulated seconds per real second.
    pub speed_up: f64,
    /// Seed that the model was built with; reported, not used.
    pub seed: u64,
    /// Where the bytes are kept.
    pub data: Data,
    /// The kernel's readahead for the mount, if not its default.
    pub readahead_bytes: Option<u64>,
    /// Requests that the log keeps.
    pub log_entries: usize,
    /// A file that gets every request as a line of JSON.
    pub log_file: Option<PathBuf>,
    /// A directory that is removed, with the mount point in it, after the mount has ended.
    pub remove: Option<PathBuf>,
    /// Receives a message when the mount has ended, for any reason.
    pub ended: Option<Sender<()>>,
}

/// What `.forebay/profile` reports.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MountInfo {
    /// Name of the profile.
    pub name: String,
    /// Its description, in a sentence.
    pub about: String,
    /// Size of `disk`.
    pub size_bytes: u64,
    /// Where files are placed first.
    pub place: Place,
    /// Emulated seconds per real second.
    pub speed_up: f64,
    /// Seed of the model.
    pub seed: u64,
}

/// An emulated disk could not be mounted or served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// This system has no supported FUSE.
    #[error("emulated disks need Linux with FUSE, which this build does not have")]
    NotHere,
    /// The kernel has no FUSE, or the container has no access to it.
    #[error(
        "there is no /dev/fuse here: load the kernel's fuse module, or give the container that device"
    )]
    NoFuse,
    /// The device exists but must not be opened.
    #[error("/dev/fuse cannot be opened: {0}; get permission to use that device")]
    FuseRefused(io::Error),
    /// The program with which ordinary users mount is missing.
    #[error(
        "mounting takes root or the program fusermount3, which is not on the PATH: install fuse3"
    )]
    NoHelper,
    /// That program refused to mount.
    #[error("fusermount3 does not mount on {}: {message}", path.display())]
    HelperRefused {
        /// The mount point.
        path: PathBuf,
        /// Its message.
        message: String,
    },
    /// The mount point cannot be examined.
    #[error("{}: {source}; name an existing, empty directory", path.display())]
    NoMountPoint {
        /// The mount point.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The mount point is not a directory.
    #[error("{} is not a directory; name an existing, empty one", path.display())]
    NotADirectory {
        /// The mount point.
        path: PathBuf,
    },
    /// The mount point is not empty, and the mount would hide its contents.
    #[error("{} is not empty; name an empty directory", path.display())]
    NotEmpty {
        /// The mount point.
        path: PathBuf,
    },
    /// Something is mounted there.
    #[error("something is mounted on {} already; unmount it or name another directory", path.display())]
    Busy {
        /// The mount point.
        path: PathBuf,
    },
    /// A FUSE filesystem without a server is mounted there.
    #[error(
        "the filesystem mounted on {0} has lost its server; remove it with: fusermount3 -u -z {0}",
        path.display()
    )]
    Dead {
        /// The mount point.
        path: PathBuf,
    },
    /// Another mount covers the mount that must be unmounted.
    #[error("something else is mounted over {0}; unmount that, and the emulated disk goes, too", path.display())]
    Covered {
        /// The mount point.
        path: PathBuf,
    },
    /// A disk has at least one block.
    #[error("a disk of {size_bytes} bytes is too small; the minimum is 4096")]
    TooSmall {
        /// The requested size.
        size_bytes: u64,
    },
    /// The requested speed-up is not possible.
    #[error("a speed-up is a number from 0.001 to 10000, not {speed_up}")]
    SpeedUp {
        /// The requested speed-up.
        speed_up: f64,
    },
    /// The requested disk is larger than the device that the profile models.
    #[error(
        "the profile {name} models a device of {device_bytes} bytes, so that a disk of {size_bytes} bytes \
         does not fit; choose a smaller one"
    )]
    TooLarge {
        /// Name of the profile.
        name: String,
        /// The requested size.
        size_bytes: u64,
        /// The size of the modelled device.
        device_bytes: u64,
    },
    /// The requested readahead cannot be set.
    #[error(
        "the readahead of the mount cannot be set to {readahead_bytes} bytes: {source}; only root may set \
         more than the kernel's default"
    )]
    Readahead {
        /// The requested readahead.
        readahead_bytes: u64,
        /// The system's error.
        source: io::Error,
    },
    /// The data cannot be stored.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Something else failed.
    #[error("cannot {doing}: {source}")]
    Io {
        /// The failed operation.
        doing: String,
        /// The system's error.
        source: io::Error,
    },
}
