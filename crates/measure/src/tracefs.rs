//! The kernel's tracing directory, and instances in it: private event buffers.
//!
//! Where no tracefs is mounted, one is mounted without a place in the tree: it ends with its descriptor, and so
//! however the process ends. An instance does not, so it is recorded in the undo log.
//!
//! Failure: a user who may not trace gets an error; what keeps an instance busy is reported, and it stays logged.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use anyhow::Context;
use rustix::fs::Access;
use rustix::io::Errno;

use crate::BadInput;

/// Where distributions mount it.
const MOUNTED: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// The tracing directory.
#[derive(Debug)]
pub struct Tracefs {
    /// Its path.
    pub path: PathBuf,
    /// Keeps the private mount alive.
    _mount: Option<OwnedFd>,
}

impl Tracefs {
    /// Finds it, or mounts one that is invisible to other processes.
    ///
    /// # Errors
    /// [`BadInput`]: this user may not, or this kernel has none.
    pub fn open() -> anyhow::Result<Tracefs> {
        if let Some(path) =
            MOUNTED.map(Path::new).into_iter().find(|it| it.join("instances").exists())
        {
            let instances = path.join("instances");
            return match rustix::fs::access(&instances, Access::WRITE_OK | Access::EXEC_OK) {
                Ok(()) => Ok(Tracefs { path: path.to_owned(), _mount: None }),
                Err(error) => Err(refused(error).into()),
            };
        }
        let mount = mounted().map_err(refused)?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", mount.as_raw_fd()));
        Ok(Tracefs { path, _mount: Some(mount) })
    }

    /// Removes the instance `name`, with its contents. False if there is none.
    ///
    /// # Errors
    /// The system's error: mostly that a process still reads from it.
    pub fn remove(&self, name: &str) -> anyhow::Result<bool> {
        match fs::remove_dir(self.path.join("instances").join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            removed => {
                removed.with_context(|| format!("the trace instance {name} cannot be removed"))?;
                Ok(true)
            }
        }
    }
}

/// A tracefs without a place in the tree.
#[cfg(target_os = "linux")]
fn mounted() -> Result<OwnedFd, Errno> {
    use rustix::mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen,
    };
    let context = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())
}

#[cfg(not(target_os = "linux"))]
fn mounted() -> Result<OwnedFd, Errno> {
    Err(Errno::NODEV)
}

fn refused(error: Errno) -> BadInput {
    BadInput(match error {
        Errno::PERM | Errno::ACCESS => {
            "watching takes the kernel's trace events, which only root may read: start it with sudo"
                .to_owned()
        }
        Errno::NODEV => {
            "this kernel has no tracefs, from which watching takes its events".to_owned()
        }
        error => format!("the kernel's trace events cannot be reached: {error}"),
    })
}
