//! A mounted emulation, from its mount to its end.
//!
//! Invariants:  [EMU-1] when an emulation has ended, its mount is no longer in the mount table and the guardian no
//!              longer in the process table
//!              [EMU-2] no request is left without an answer: at the end all requests are answered at once
//! Concurrency: dedicated threads serve the mount. The holder of an [`Emulation`] may inspect it, and
//!              ends it by dropping it.
//! Failure:     a mount that cannot be unmounted is left to the guardian; a failure while mounting undoes the steps
//!              before it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use fuser::{Config, Session, SessionACL};
use rustix::process::getuid;
use rustix::time::{ClockId, clock_gettime};

use super::control::ControlFiles;
use super::filesystem::{Filesystem, Limits};
use super::guardian::Guardian;
use super::log_file::LogFile;
use super::mounting::{self, Mounted, Unmounted};
use super::transfers::Transfers;
use super::{Data, Error, MountInfo, Options, SPEED_UPS};
use crate::log::RequestLog;
use crate::scheduler::{Counters, Scheduler, Summary};
use crate::store::Store;

/// Threads that take requests from the kernel. With one, requests reach the model in the order in which the kernel
/// issued them; with two, up to a fifth of those issued together arrived in the opposite order, and a disk model that
/// has begun with the later of two adjacent requests pays for a whole revolution. One accepts 200,000 requests a
/// second.
const THREADS: usize = 1;

/// How long the kernel may take to close the connection after it has unmounted.
const HANG_UP_MAX: Duration = Duration::from_secs(5);

/// A mounted emulation. Dropping it unmounts.
#[derive(Debug)]
pub struct Emulation {
    mounted: Mounted,
    transfers: Arc<Transfers>,
    session: Option<JoinHandle<()>>,
    hung_up: Receiver<()>,
    guardian: Guardian,
    log_file: Option<LogFile>,
    remove: Option<PathBuf>,
    cpu_seconds_before: f64,
    unmounted: bool,
    keeps_data: bool,
}

/// How an emulation ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ending {
    /// True if the mount was in use, and is only detached.
    pub detached: bool,
    /// True if it was detached, and what had been written to `disk` is in its data file.
    pub kept: bool,
    /// Requests, and how late their answers were.
    pub summary: Summary,
    /// Processor time of the whole process since the mount, in seconds.
    pub cpu_seconds: f64,
}

impl Emulation {
    /// Mounts on `mount_point`, an empty directory, and serves until the end.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn mount(mount_point: &Path, options: Options) -> Result<Emulation, Error> {
        let mount_point = mounting::check(mount_point)?;
        let device_bytes = options.device.size_bytes();
        let size_bytes = options.size_bytes - options.size_bytes % 4096;
        if size_bytes == 0 {
            return Err(Error::TooSmall { size_bytes: options.size_bytes });
        }
        if !SPEED_UPS.contains(&options.speed_up) {
            return Err(Error::SpeedUp { speed_up: options.speed_up });
        }
        if size_bytes > device_bytes {
            return Err(Error::TooLarge { name: options.name, size_bytes, device_bytes });
        }
        let store = match &options.data {
            Data::Memory { limit_bytes } => Store::memory(*limit_bytes),
            Data::File(path) => Store::file(path, size_bytes)?,
        };
        let log = RequestLog::new(options.log_entries);
        let started = Scheduler::start(options.device, options.speed_up, log);
        let scheduler = started.map_err(|source| io_error("start the scheduler", source))?;
        let (store, buffers) = (Arc::new(store), Arc::default());
        let transfers = Arc::new(Transfers { scheduler, store, buffers });
        let info = MountInfo {
            name: options.name,
            about: options.about,
            size_bytes,
            place: options.place,
            speed_up: options.speed_up,
            seed: options.seed,
        };
        let log_file = match &options.log_file {
            Some(path) => Some(LogFile::start(path, &transfers)?),
            None => None,
        };
        let name = info.name.clone();
        let (place, readahead_bytes) = (options.place, options.readahead_bytes);
        let limits = Limits { size_bytes, place, readahead_bytes };
        let filesystem = Filesystem::new(Arc::clone(&transfers), ControlFiles::new(info), limits);

        let mut guardian = Guardian::post(&mount_point, options.remove.as_deref())?;
        let device = mounting::mount(&mount_point, &name).inspect_err(|_| guardian.dismiss())?;
        let (ended, (hang_up, hung_up)) = (options.ended, channel());
        let mounted = Mounted::now(mount_point);
        guardian.knows(&mounted);
        let keeps_data = matches!(options.data, Data::File(_));
        // From here on, dropping it unmounts.
        let mut emulation = Emulation {
            mounted,
            transfers,
            session: None,
            hung_up,
            guardian,
            log_file,
            remove: options.remove,
            cpu_seconds_before: cpu_seconds(),
            unmounted: false,
            keeps_data,
        };
        let mut config = Config::default();
        config.n_threads = Some(THREADS);
        // The kernel checks permissions: default_permissions.
        let session =
            Session::from_fd(filesystem, device, SessionACL::All, config).map_err(|source| {
                match options.readahead_bytes {
                    Some(readahead_bytes) => Error::Readahead { readahead_bytes, source },
                    None => io_error("agree with the kernel's FUSE", source),
                }
            })?;
        let served = std::thread::Builder::new().name("emulate-session".to_owned());
        let served = served.spawn(move || {
            // It ends when the kernel closes the connection; an error then has no meaning.
            drop(session.run());
            let _ = hang_up.send(());
            let _ = ended.map(|ended| ended.send(()));
        });
        emulation.session = Some(served.map_err(|source| io_error("start to serve", source))?);
        emulation.widen(options.readahead_bytes)?;
        Ok(emulation)
    }

    /// The canonical path of the mount point.
    pub fn mount_point(&self) -> &Path {
        &self.mounted.point
    }

    /// The counters since the mount.
    pub fn counters(&self) -> Counters {
        self.transfers.scheduler.counters()
    }

    /// Waits up to `limit` for another process to end the mount. True if it has ended.
    pub fn wait_for_end(&self, limit: Duration) -> bool {
        self.hung_up.recv_timeout(limit) != Err(RecvTimeoutError::Timeout)
    }

    /// Ends the process when any of its threads panics, with the panic's message, after detaching the mount: a
    /// reader then gets an error instead of waiting forever. For a process that does nothing but emulate.
    pub fn end_process_on_panic(&self) {
        let mounted = self.mounted.clone();
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            before(panic);
            drop(mounting::detach(&mounted));
            std::process::abort();
        }));
    }

    /// Unmounts, and returns how it went.
    ///
    /// # Errors
    /// [`Error::Io`] when the mount cannot even be detached.
    pub fn unmount(mut self) -> Result<Ending, Error> {
        self.end()
    }

    fn end(&mut self) -> Result<Ending, Error> {
        self.unmounted = true;
        // Unmounting writes dirty pages back; that need not take the model's time.
        self.transfers.scheduler.set_timing(false);
        let over = self.session.is_some() && self.wait_for_end(Duration::ZERO);
        let mut kept = false;
        // Unmounted by another process, or cut off by the kernel: then our mount is still there, dead.
        let unmounted = if over && !self.mounted.is_dead() {
            Unmounted::Completely
        } else {
            let sync = || kept = self.keeps_data && self.sync_disk();
            mounting::unmount(&self.mounted, sync).inspect_err(|_| self.guardian.take_over())?
        };
        self.guardian.dismiss();
        let serves = self.session.is_some();
        if unmounted == Unmounted::Completely && serves && self.wait_for_end(HANG_UP_MAX) {
            self.session.take().map(JoinHandle::join);
        }
        self.log_file.take();
        if let Some(around) = self.remove.take() {
            // Not empty, or already removed: then another process removes it.
            let _ = std::fs::remove_dir(&self.mounted.point).and(std::fs::remove_dir(around));
        }
        Ok(Ending {
            detached: unmounted == Unmounted::Detached,
            kept,
            summary: self.transfers.scheduler.summary(),
            cpu_seconds: cpu_seconds() - self.cpu_seconds_before,
        })
    }

    /// Makes the kernel write back its dirty pages of `disk`. True on success.
    fn sync_disk(&self) -> bool {
        // The server answers this like any other request. If the server has ended, this fails.
        let disk = std::fs::File::open(self.mounted.point.join("disk"));
        disk.and_then(|disk| disk.sync_all()).is_ok()
    }

    /// Settings of the mount in sysfs, for root: the readahead, and no strict limit on dirty pages, which
    /// FUSE mounts have and disks do not.
    fn widen(&self, readahead_bytes: Option<u64>) -> Result<(), Error> {
        if !getuid().is_root() {
            return Ok(()); // the readahead was negotiated with the kernel, up to its default
        }
        let facts = std::fs::metadata(&self.mounted.point);
        let facts = facts.map_err(|source| io_error("look at the mount", source))?;
        let number = std::os::unix::fs::MetadataExt::dev(&facts);
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        let settings = PathBuf::from(format!("/sys/class/bdi/{major}:{minor}"));
        // Older kernels do not have it; writers are throttled sooner there.
        drop(std::fs::write(settings.join("strict_limit"), "0"));
        drop(std::fs::write(settings.join("max_ratio"), "100"));
        if let Some(readahead_bytes) = readahead_bytes {
            let kib = (readahead_bytes / 1024).to_string();
            std::fs::write(settings.join("read_ahead_kb"), kib)
                .map_err(|source| Error::Readahead { readahead_bytes, source })?;
        }
        Ok(())
    }
}

impl Drop for Emulation {
    fn drop(&mut self) {
        if !self.unmounted {
            drop(self.end());
        }
    }
}

fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn io_error(doing: &str, source: std::io::Error) -> Error {
    Error::Io { doing: doing.to_owned(), source }
}
