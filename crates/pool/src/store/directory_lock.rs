//! Directory lock: one pool at a time writes in a directory.
//!
//! Two pools over the same files would each keep pages that the other has changed. So a pool holds an exclusive flock
//! on `forebay.lock` in each of its directories that it may write in. The kernel releases it when the process ends, for
//! any reason, so a lock is never stale and no process number is looked up. The file's text names the holder, only for
//! the other pool's error message: when it cannot be written (a full disk), the lock is taken anyway.
//!
//! The file stays when the lock is released. Unlinking it would be a race: one process may have opened the file just
//! before and then locks an inode that no longer has a name, while the next one creates and locks a new one of the same
//! name, and both hold "the" lock.
//!
//! An fcntl lock was the alternative. It belongs to the process, not to the open file: a second pool in the same
//! process would get it, and closing any other descriptor of the file releases it.
//!
//! Invariants:  [DIR-1] one holder at a time, also within a process
//!              [DIR-2] only the holder changes the text
//! Failure:     [`Error::InUse`] at once: nothing waits for a lock.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;

use forebay_io::OsError;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::Error;

/// The name of the lock file in its directory.
pub(crate) const NAME: &str = "forebay.lock";

/// Most bytes of the holder's text that are reported.
const HOLDER_BYTES_MAX: u64 = 1024;

/// The right to use a directory. Dropping it releases it.
#[derive(Debug)]
pub(crate) struct DirectoryLock {
    file: File,
}

impl DirectoryLock {
    /// Takes the lock of `directory`, which exists.
    ///
    /// # Errors
    /// [`Error::InUse`] when another pool has it, here or in another process; [`Error::Io`] when
    /// the lock file cannot be opened or the filesystem has no locks.
    pub(crate) fn take(directory: &Path) -> Result<DirectoryLock, Error> {
        let path = directory.join(NAME);
        // Without truncating: the text belongs to the holder until the lock is ours ([DIR-2]).
        let opened =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let file = opened.map_err(|error| forebay_io::Error::Open {
            file: path.as_path().into(),
            source: OsError::from(error),
        })?;
        let tried =
            rustix::io::retry_on_intr(|| flock(&file, FlockOperation::NonBlockingLockExclusive));
        match tried {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                return Err(Error::InUse { directory: directory.into(), holder: holder(&file) });
            }
            Err(error) => {
                return Err(Error::Io(forebay_io::Error::Unsupported {
                    what: "a lock (flock)",
                    file: path.as_path().into(),
                    source: OsError::from(error),
                    instead: "put the directory on a filesystem that has locks",
                }));
            }
        }
        let lock = DirectoryLock { file };
        lock.sign(&path);
        Ok(lock)
    }

    /// Writes this process's name to the file.
    fn sign(&self, path: &Path) {
        forebay_io::survive_file_size_limit();
        // Read from /proc: a library does not read its environment. Elsewhere the process number must suffice.
        let program = std::fs::read_link("/proc/self/exe").ok();
        let program = program.map(|program| format!(", {}", program.display()));
        let text = format!("pid {}{}\n", std::process::id(), program.unwrap_or_default());
        let mut file = &self.file;
        let written = file.set_len(0).and_then(|()| file.write_all(text.as_bytes()));
        if let Err(error) = written {
            tracing::warn!(file = %path.display(), %error, "the lock is held, but not signed");
        }
    }
}

impl Drop for DirectoryLock {
    fn drop(&mut self) {
        // The lock lives as long as any copy of the descriptor, and a child that another thread is just starting has
        // one until it executes its program. So it is unlocked, not just closed. If that fails, closing is all that is
        // left.
        let cleared = self.file.set_len(0);
        let unlocked = flock(&self.file, FlockOperation::Unlock);
        tracing::debug!(?cleared, ?unlocked, "directory lock released");
    }
}

/// The text that the holder of `file` has written there, on one line.
fn holder(file: &File) -> String {
    let mut text = Vec::new();
    let read = file.take(HOLDER_BYTES_MAX).read_to_end(&mut text);
    let text = String::from_utf8_lossy(&text);
    let line: String = text.trim().chars().filter(|c| !c.is_control()).collect();
    match read {
        Ok(_) if !line.is_empty() => line,
        // The holder has the lock but has not signed yet, or could not.
        _ => "it left no name".to_owned(),
    }
}

#[cfg(test)]
mod tests;
