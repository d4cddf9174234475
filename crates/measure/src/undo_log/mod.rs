//! The undo log: what a run changes outside itself, on disk before it is changed.
//!
//! Guards and cleanups restore the state on every exit that the process controls. A kill is not one
//! of them. So each such change is written to a file first and removed from it after it was undone; the next
//! start of the command finds the entries of processes that no longer run, and undoes them in reverse order.
//! Worked example: a run writes "readahead of vda, found at 8192 KiB, now 0", sets it, and is killed.
//! The next run sees 0, which the dead run set, writes 8192, reports it, and starts its own measurements.
//!
//! [`Undo::doing`] makes a change in three steps: it registers the cleanup, writes the entry, makes the change.
//! The run itself and the run after a kill use the same code to undo.
//!
//! Invariants:  [LED-1] nothing is changed before its entry is on disk
//!              [LED-2] what could not be undone stays in the log
//!              [LED-3] a change is undone once, and nothing is changed after that
//! Concurrency: one undo log per process, which locks it while anything is outstanding; a second
//!              Ctrl-C that undoes a change waits until it is made. Lock order: the cleanups, the undo log.
//! Failure:     a change whose entry cannot be written is not made.
//! Source:      the log that is written before the data, as in a database.

mod log;
mod place;
mod recovery;
mod undo;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use anyhow::Context;

pub use log::Change;
pub use place::STATE_DIRECTORY;
pub use recovery::{holder_of_readahead, recover};
pub use undo::loops_over;
use undo::{OWN_PREFIXES, Verdict};

use crate::bad_input;
use crate::interrupt::{self, Cleanup, Interrupted};
use crate::tracefs::Tracefs;
use log::{Entry, UndoLog};

/// This process's undo log, while anything is outstanding.
static OWN: Mutex<Option<UndoLog>> = Mutex::new(None);

static NEXT_NUMBER: AtomicU64 = AtomicU64::new(0);

/// A change outside this process, which is undone when this is dropped, by a second Ctrl-C, or by the
/// next start of the command.
#[derive(Debug)]
pub struct Undo {
    number: u64,
    _cleanup: Cleanup,
}

impl Undo {
    /// Logs `change`, makes it by `act`, and returns the result of `act`.
    ///
    /// # Errors
    /// The entry could not be written, or `act` failed; nothing was changed then.
    pub fn doing<T>(
        change: Change,
        act: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<(Undo, T)> {
        let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
        // Registered before the lock is taken: the thread that cleans up holds all cleanups during its work.
        let undo = Undo { number, _cleanup: Cleanup::new(move || drop(undo_entry(number))) };
        let mut own = own_before_the_end();
        let log = match &mut *own {
            Some(log) => log,
            None => own.insert(place::in_first(|place| Ok(UndoLog::begin(place)?))?),
        };
        let at_us = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_micros() as u64);
        log.contents.outstanding.push(Entry { number, at_us, change, has_failed: false });
        match write(log).and_then(|()| act()) {
            Ok(given) => Ok((undo, given)),
            Err(error) => {
                // Nothing was changed, and what is there may belong to another process.
                remove_entry(&mut own, number);
                Err(error)
            }
        }
    }

    /// Logs that the change is now as `becomes` makes it, and then runs `act`.
    ///
    /// # Errors
    /// The entry could not be written, or `act` failed. [`Interrupted`] when a second Ctrl-C has undone the
    /// change already.
    pub fn further<T>(
        &self,
        becomes: impl FnOnce(&mut Change),
        act: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let mut own = own();
        let log = own.as_mut().ok_or(Interrupted)?;
        let entry = log.entry(self.number).filter(|entry| !entry.has_failed);
        let entry = entry.ok_or(Interrupted)?; // [LED-3]
        let before = entry.change.clone();
        becomes(&mut entry.change);
        if entry.change != before {
            write(log)?;
        }
        act()
    }

    /// Undoes the change now.
    ///
    /// # Errors
    /// The change could not be undone (the error says what to do by hand), or another process has changed the same.
    pub fn undo(self) -> anyhow::Result<()> {
        match undo_entry(self.number) {
            Verdict::Failed(why) => anyhow::bail!(why),
            Verdict::NotOurs(what) => anyhow::bail!("{what}; it is left alone"),
            Verdict::Undone(_) | Verdict::Nothing => Ok(()),
        }
    }
}

/// Undoes the change logged under `number`; a second call finds nothing to do ([LED-3]).
fn undo_entry(number: u64) -> Verdict {
    let mut own = own();
    let entry = own.as_mut().and_then(|log| log.entry(number));
    let Some(entry) = entry.filter(|entry| !entry.has_failed) else { return Verdict::Nothing };
    let verdict = undo::undo(&entry.change);
    if let Verdict::Failed(_) = verdict {
        entry.has_failed = true; // [LED-2]
    } else {
        remove_entry(&mut own, number);
    }
    verdict
}

fn own() -> MutexGuard<'static, Option<UndoLog>> {
    OWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Like [`own`]; but after a second Ctrl-C, when the cleanup may have been done already, this waits for the
/// end of the process ([LED-3]).
fn own_before_the_end() -> MutexGuard<'static, Option<UndoLog>> {
    loop {
        interrupt::wait_if_ending();
        let own = own();
        if !interrupt::is_ending() {
            return own;
        }
    }
}

/// [LED-1]: when this returns, the entry is on disk.
fn write(log: &mut UndoLog) -> anyhow::Result<()> {
    log.write().with_context(|| {
        let path = log.path();
        format!("cannot log in {} what to restore; nothing was changed", path.display())
    })
}

fn remove_entry(own: &mut Option<UndoLog>, number: u64) {
    let Some(log) = own else { return };
    log.remove_entry(number);
    if log.contents.outstanding.is_empty() {
        *own = None;
    }
}

/// A new instance in `tracefs`, removed when the [`Undo`] is dropped. Its open files must be closed before.
///
/// # Errors
/// The system's error.
pub fn make_trace_instance(tracefs: &Tracefs, purpose: &str) -> anyhow::Result<(Undo, PathBuf)> {
    let name = fresh_name(&format!("forebay-{}-{purpose}-", std::process::id()));
    let path = tracefs.path.join("instances").join(&name);
    Undo::doing(Change::TraceInstance { name }, || match std::fs::create_dir(&path) {
        Ok(()) => Ok(path),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            bad_input!("this kernel is locked down: no user may trace it, not even root")
        }
        Err(error) => Err(error).with_context(|| format!("cannot make {}", path.display())),
    })
}

/// Makes the directory `path`, which is removed later: with its contents if `contents`, otherwise only
/// when it is empty.
///
/// # Errors
/// It exists already, or the system's error.
pub fn make_directory(path: &Path, contents: bool) -> anyhow::Result<Undo> {
    // The process that undoes it may be in another directory.
    let change = Change::Directory { path: std::path::absolute(path)?, contents };
    let (undo, ()) = Undo::doing(change, || {
        use std::os::unix::fs::DirBuilderExt;
        Ok(std::fs::DirBuilder::new().mode(0o700).create(path)?)
    })?;
    Ok(undo)
}

/// Makes a mount point next to the undo log: others may be allowed to use the mount, only this user can reach it.
///
/// # Errors
/// It cannot be made.
pub fn make_mount_point(prefix: &str) -> anyhow::Result<(PathBuf, Undo)> {
    place::in_first(|place| {
        let path = std::fs::canonicalize(&place.path)?.join(fresh_name(prefix));
        let undo = make_directory(&path, false)?;
        Ok((path, undo))
    })
}

/// An unused name that begins with `prefix` and is recognised as a run's own.
pub fn fresh_name(prefix: &str) -> String {
    assert!(OWN_PREFIXES.iter().any(|own| prefix.starts_with(own)), "recovery knows {prefix}");
    place::random_name(prefix)
}

/// What the undo log on disk says of `path`, for tests; other tests write to it as well.
#[cfg(test)]
pub fn entries_about(path: &Path) -> String {
    let Some(log) = own().as_ref().map(UndoLog::path) else { return String::new() };
    let mut file = std::fs::File::open(log).unwrap();
    let (contents, _) = log::Contents::read(&mut file).unwrap().unwrap();
    let changes = contents.outstanding.iter().map(|entry| format!("{:?}\n", entry.change));
    changes.filter(|one| one.contains(&format!("{path:?}"))).collect()
}

/// Removes the entries about `path` that a test has left on purpose.
#[cfg(test)]
pub fn forget_entries_about(path: &Path) {
    let mut own = own();
    let entries = own.as_ref().map_or(&[][..], |log| &log.contents.outstanding);
    let about =
        entries.iter().find(|one| format!("{:?}", one.change).contains(&format!("{path:?}")));
    if let Some(number) = about.map(|entry| entry.number) {
        remove_entry(&mut own, number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_logged_before_it_is_made_until_it_is_removed() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join(fresh_name(".forebay-lab-"));
        // The undo log exists, since a change is outstanding.
        let other = make_directory(&scratch.path().join(fresh_name("forebay-")), false).unwrap();
        let log = own().as_ref().map(UndoLog::path).unwrap();
        let change = Change::Directory { path: path.clone(), contents: true };
        let (undo, seen) = Undo::doing(change, || {
            std::fs::create_dir(&path)?;
            Ok(std::fs::read_to_string(&log)?)
        })
        .unwrap();
        let last = seen.lines().last().unwrap();
        assert!(last.contains(&path.display().to_string()), "[LED-1] {seen}");
        std::fs::write(path.join("blocks"), "data").unwrap();
        undo.undo().unwrap();
        assert!(!path.exists());
        assert_eq!(entries_about(&path), "");
        drop(other);
    }

    #[test]
    fn what_could_not_be_done_is_not_undone() {
        let scratch = tempfile::tempdir().unwrap();
        let theirs = scratch.path().join(".forebay-lab-theirs");
        std::fs::create_dir(&theirs).unwrap();
        let error = make_directory(&theirs, true).unwrap_err();
        assert!(error.to_string().contains("exists"), "{error}");
        assert!(theirs.is_dir(), "another process's directory stays");
        assert_eq!(entries_about(&theirs), "");
    }

    #[test]
    fn a_change_that_cannot_be_undone_stays_in_the_log_and_says_what_to_do() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join(fresh_name("forebay-"));
        let undo = make_directory(&path, false).unwrap();
        std::fs::write(path.join("in-the-way"), "x").unwrap();
        let error = undo.undo().unwrap_err().to_string();
        assert!(error.contains("by hand: rmdir"), "{error}");
        assert_ne!(entries_about(&path), "", "[LED-2]");
        std::fs::remove_dir_all(&path).unwrap();
        forget_entries_about(&path);
    }

    #[test]
    fn after_it_was_undone_nothing_is_changed_any_more() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join(fresh_name("forebay-"));
        let undo = make_directory(&path, true).unwrap();
        // Like a second Ctrl-C.
        assert!(matches!(undo_entry(undo.number), Verdict::Undone(_)));
        assert!(!path.exists());
        let mut acted = false;
        let further = undo.further(
            |_| (),
            || {
                acted = true;
                Ok(())
            },
        );
        assert!(further.unwrap_err().is::<Interrupted>(), "[LED-3]");
        assert!(!acted, "[LED-3]");
        std::fs::create_dir(&path).unwrap();
        undo.undo().unwrap();
        assert!(path.is_dir(), "[LED-3]: it is undone once");
    }

    #[test]
    fn a_mount_point_can_be_entered_by_this_user_alone() {
        use std::os::unix::fs::PermissionsExt;
        let (path, undo) = make_mount_point("forebay-mount-").unwrap();
        for directory in [path.as_path(), path.parent().unwrap()] {
            let mode = std::fs::metadata(directory).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o700, "{}", directory.display());
        }
        undo.undo().unwrap();
        assert!(!path.exists());
    }
}
