//! A mount: a tablespace of a store as a disk below the pool.
//!
//! [`Mount::volume`] and [`Mount::io`] replace the system below `forebay_io`, as a simulated disk does: an engine
//! gives them to a tablespace and changes nothing else. Files are real ones in a local directory, sparse. They hold
//! what was written there and not dropped since; the rest is fetched.
//!
//! ```text
//! pool --- Io ------> backend --- has it? ---> local file (a write buffer, and what fits of the rest)
//!    |                   +------- no --------> ranged GETs
//!    +---- Volume --> interpose: names and sizes --> Writer's snapshot
//!                          \---- sync of any file --> all dirty pages: data objects, then the manifest
//! ```
//!
//! **What is durable when.** A write is in the local file only. A sync of any file, or of the directory, makes durable
//! what was written, made, cut, renamed or removed in the whole tablespace before it, in one step: after a crash the
//! tablespace has the state of such a sync, never a part of one; operations that run during the sync may be in it in
//! part. A checkpoint of many files costs one commit, with its first sync; the others have nothing left to do. What was
//! not synced is lost after a crash of the process, as the local directory is not read again.
//! So pages are never torn and never older than others, and protection against torn pages
//! can be switched off. When the buffer is full of dirty pages, they are put into objects that no manifest names yet.
//!
//! Concurrency: reads of local pages and writes run on the thread that submits them; fetches on the runtime; a sync
//! on a thread that may block. A dedicated thread of the mount merges and deletes after commits.
//! Failure:     an error of the store ends a request with EIO; a full buffer that cannot be emptied ends a write with
//!              ENOSPC; [`Mount::failure`] has the store's own message. A failed sync fails the tablespace, as
//!              everywhere.

mod backend;
mod fetching;
mod interpose;
mod local;
mod shared;

use std::fmt;
use std::fs::{self, File};
use std::path::{Component, Path, PathBuf};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::{self, JoinHandle};

use forebay_io::backend::{Backend, Sink};
use forebay_io::{Interpose, Io, Volume};
use forebay_lookahead::DeviceCosts;
use tokio::runtime::RuntimeFlavor;

use crate::error::{Error, Result};
use crate::local::{local_error, lock};
use crate::mount::backend::ObjectBackend;
use crate::mount::local::Locals;
use crate::mount::shared::{Shared, Source, open_new};
use crate::probe::know_costs;
use crate::reader::Reader;
use crate::writer::Writer;

/// The directory of the files, within that of the mount.
const FILES: &str = "files";
/// The lock file of the directory, which marks it as a mount's.
const LOCK: &str = "forebay-object.lock";

/// A tablespace, mounted below a pool. Dropping it ends maintenance; its queues and its volume can still be used, and
/// data that was not synced stays where it is.
pub struct Mount {
    shared: Arc<Shared>,
    maintenance: Option<JoinHandle<()>>,
}

impl Mount {
    /// Mounts the tablespace of `writer` in `directory`, which is made if it does not exist and is the mount's alone:
    /// files that an earlier mount has left there are removed. At most `local_bytes` of pages are kept there; half of
    /// that may be dirty. Where no holes can be punched into files (outside Linux, and on a few of its filesystems)
    /// everything that was written or fetched stays there: only dirty pages are bounded.
    ///
    /// # Errors
    /// [`Error::Local`] when the directory cannot be used: it is in use, is not a mount's, or the disk fails;
    /// [`Error::Unreachable`], [`Error::Refused`] by the store; [`Error::Setting`] for too few local bytes, and for a
    /// runtime whose tasks run only while a thread waits in it.
    pub fn new(writer: Writer, directory: &Path, local_bytes: u64) -> Result<Mount> {
        let page_bytes = u64::from(writer.view().page_bytes());
        if local_bytes < 64 * page_bytes {
            return Err(Error::Setting {
                setting: "local bytes",
                value: local_bytes.to_string(),
                expected: "it should have room for at least 64 pages",
            });
        }
        Mount::of(Source::Writer(writer), directory, local_bytes / page_bytes)
    }

    /// Mounts the tablespace of `reader` at its current version, which does not change until the mount is dropped: a
    /// later version needs another mount. Writes, and changes of names and sizes, fail with EROFS.
    ///
    /// # Errors
    /// As [`Mount::new`].
    pub fn read_only(reader: Reader, directory: &Path) -> Result<Mount> {
        let view = reader.view();
        Mount::of(Source::Reader(reader, view), directory, 0)
    }

    fn of(source: Source, directory: &Path, pages: u64) -> Result<Mount> {
        let view = source.view();
        // No thread waits in the runtime for the tasks that fetch: in a current-thread runtime they would never run.
        if view.runtime.handle().runtime_flavor() == RuntimeFlavor::CurrentThread {
            return Err(Error::Setting {
                setting: "the runtime",
                value: "one of the current thread".to_owned(),
                expected: "it should have separate threads below a mount",
            });
        }
        let (lock, root) = prepare(directory)?;
        view.runtime.block_on(view.client.in_one_deadline(know_costs(&view.client)))?;
        let locals = Locals::new(u64::from(view.page_bytes()), pages);
        for info in view.files() {
            let path = root.join(&info.name);
            // A name in the store must not create files outside the directory.
            if !Path::new(&info.name).components().all(|it| matches!(it, Component::Normal(_))) {
                let what = "its name leads out of the mount's directory".to_owned();
                return Err(Error::Local { path: info.name, what });
            }
            let made = (|| {
                fs::create_dir_all(path.parent().unwrap_or(&root))?;
                let file = open_new(&path)?;
                file.set_len(info.bytes)?;
                locals.add(info.id, file, info.bytes)
            })();
            made.map_err(|error| local_error(&path, &error))?;
        }
        let (wake, woken) = channel();
        let shared = Arc::new(Shared {
            source,
            root,
            locals,
            committing: Mutex::default(),
            names: Mutex::default(),
            failure: Mutex::default(),
            wake: Mutex::new(Some(wake)),
            _lock: lock,
        });
        if let Source::Reader(..) = &shared.source {
            return Ok(Mount { shared, maintenance: None });
        }
        let weak = Arc::downgrade(&shared);
        let maintain = move || {
            while woken.recv().is_ok() {
                // This round also serves commits that arrived meanwhile.
                while woken.try_recv().is_ok() {}
                maintain(&weak);
            }
        };
        let named = thread::Builder::new().name("forebay-object-merge".to_owned());
        let thread = named.spawn(maintain).map_err(|error| local_error(directory, &error))?;
        Ok(Mount { shared, maintenance: Some(thread) })
    }

    /// The directory of the tablespace's files.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.shared.root
    }

    /// For names, sizes and syncs.
    #[must_use]
    pub fn volume(&self) -> Volume {
        Volume::over(Arc::clone(&self.shared) as Arc<dyn Interpose>)
    }

    /// For bytes: a queue of `queue_depth` requests. There may be several.
    ///
    /// # Errors
    /// [`forebay_io::Error::Setting`] for a depth of 0.
    pub fn io(&self, queue_depth: usize) -> Result<Io, forebay_io::Error> {
        Io::over(queue_depth, |sink| Ok(self.backend(queue_depth, sink)))
    }

    /// Like [`Mount::io`], but without a queue, to be wrapped by another backend.
    #[must_use]
    pub fn backend(&self, capacity: usize, sink: Arc<dyn Sink>) -> Box<dyn Backend> {
        Box::new(ObjectBackend::new(Arc::clone(&self.shared), capacity, sink))
    }

    /// Costs of a request and of a byte, as set or measured, for the look-ahead of the tablespace.
    #[must_use]
    pub fn costs(&self) -> DeviceCosts {
        self.shared.view().client.costs()
    }

    /// The writer below, unless a reader is mounted. Pages that are staged directly through it are not visible in files
    /// that have those pages locally.
    #[must_use]
    pub fn writer(&self) -> Option<&Writer> {
        self.shared.writer().ok()
    }

    /// The newest error of the store, which requests could report only as EIO.
    #[must_use]
    pub fn failure(&self) -> Option<Error> {
        self.shared.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Commits the remaining changes, ends maintenance, and releases the tablespace. Close the pool first.
    ///
    /// # Errors
    /// Those of [`Writer::publish`].
    pub fn close(mut self) -> Result<()> {
        self.shared.commit()?;
        self.stop();
        let shared = Arc::clone(&self.shared);
        drop(self);
        match &shared.source {
            Source::Writer(writer) => writer.release(),
            Source::Reader(..) => match Arc::into_inner(shared).map(|it| it.source) {
                Some(Source::Reader(reader, view)) => {
                    drop(view);
                    reader.close()
                }
                // A remaining queue still has the reader; then the lease expires.
                _ => Ok(()),
            },
        }
    }

    fn stop(&mut self) {
        drop(self.shared.wake.lock().unwrap_or_else(PoisonError::into_inner).take());
        if let Some(thread) = self.maintenance.take() {
            // It has reported its errors, and its panic must not be propagated in a drop.
            let _ = thread.join();
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        self.stop();
    }
}

fn maintain(shared: &Weak<Shared>) {
    if let Some(shared) = shared.upgrade()
        && let Ok(writer) = shared.writer()
        && let Err(error) = writer.maintain()
    {
        tracing::warn!(%error, "maintenance of a tablespace failed; it is tried again after the next commit");
        shared.note(&error);
    }
}

/// Locks `directory` and empties the directory of its files.
fn prepare(directory: &Path) -> Result<(File, PathBuf)> {
    let refuse = |what: &str| {
        let path = directory.display().to_string();
        Err(Error::Local { path, what: what.to_owned() })
    };
    let lock_path = directory.join(LOCK);
    let files = directory.join(FILES);
    if files.exists() && !lock_path.exists() {
        return refuse("it has files that are no mount's; choose another directory");
    }
    let Some(lock) = lock(directory, LOCK)? else {
        return refuse("another mount uses it");
    };
    let emptied = (|| {
        if files.exists() {
            fs::remove_dir_all(&files)?;
        }
        fs::create_dir(&files)?;
        files.canonicalize()
    })();
    let root = emptied.map_err(|error| local_error(&files, &error))?;
    Ok((lock, root))
}

impl fmt::Debug for Mount {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shared.fmt(out)
    }
}
