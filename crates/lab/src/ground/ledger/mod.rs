//! The ledger: what a run changes outside itself, on disk before it is changed.
//!
//! Guards and cleanups put things back on every way out that a process has a say in. A kill is none
//! of them. So each such change is noted in a file first and struck out after it was undone; the next
//! start of the command finds the notes of processes that are gone, and carries them out backwards.
//! Worked example: a run notes "readahead of vda, found at 8192 KiB, now 0", sets it, and is killed.
//! The next one sees 0, which the dead run set, writes 8192, says so, and measures what it was asked to.
//!
//! A change is made in three steps, which [`Undo::doing`] takes: noted, registered as a cleanup, done.
//! Undoing is one piece of code, for the run itself and for the one that comes after a kill.
//!
//! Invariants:  [LED-1] nothing is changed before the note of it is on disk
//!              [LED-2] what could not be undone stays noted
//!              [LED-3] a change is undone once, and nothing is changed after that
//! Concurrency: one ledger a process, locked by it as long as anything is outstanding; a second
//!              Ctrl-C that undoes a change waits until it is made. Lock order: the cleanups, one
//!              change, the ledger.
//! Failure:     what cannot be noted is not changed.
//! Source:      the log that is written before the data, as in a database.

mod change;
mod place;
mod process;
mod sweep;
mod undo;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use anyhow::Context;

pub use change::{Attached, Change, Unreadable};
pub use place::STATE_DIRECTORY;
pub use sweep::{holder_of_readahead, sweep};
pub(crate) use undo::loops_over;
use undo::{OWN_PREFIXES, Verdict};

use crate::interrupt::{Cleanup, Interrupted};
use change::{Line, SCHEMA};
use place::Place;

/// This process's ledger, as long as anything is outstanding.
static OWN: Mutex<Option<Ledger>> = Mutex::new(None);

/// A change outside this process, which is undone when this is dropped, by a second Ctrl-C, or by the
/// next start of the command.
#[derive(Debug)]
pub struct Undo {
    state: Arc<Mutex<State>>,
    cleanup: Option<Cleanup>,
}

#[derive(Debug, Default)]
struct State {
    /// The note and what it says; `None` before it is made and after it was struck out.
    noted: Option<(u64, Change)>,
    /// What came of undoing it, once that was tried.
    verdict: Option<Verdict>,
}

/// A change that could not be undone, or was changed again by somebody else.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct NotUndone(String);

impl Undo {
    /// Notes `change`, makes it by `act`, and gives what `act` gave. `act` may say more exactly what
    /// the change is, once that is known.
    ///
    /// # Errors
    /// The note could not be written, or `act`'s; nothing was changed then. [`Interrupted`] when a
    /// second Ctrl-C is ending the process.
    pub fn doing<T>(
        change: Change,
        act: impl FnOnce(&mut Change) -> anyhow::Result<T>,
    ) -> anyhow::Result<(Undo, T)> {
        let state = Arc::new(Mutex::new(State::default()));
        let theirs = Arc::clone(&state);
        // Registered before the lock is taken: whoever cleans up holds all cleanups meanwhile.
        let cleanup = Some(Cleanup::new(move || undo_noted(&mut locked(&theirs))));
        let undo = Undo { state, cleanup };
        let mut state = locked(&undo.state);
        if state.verdict.is_some() {
            return Err(Interrupted.into());
        }
        let number = note(None, &change)?;
        let mut exact = change.clone();
        match act(&mut exact) {
            Ok(given) => {
                state.noted = Some((number, change));
                if state.noted.as_ref().is_some_and(|(_, noted)| *noted != exact) {
                    amend(&mut state, exact)?;
                }
                drop(state);
                Ok((undo, given))
            }
            Err(error) => {
                // Nothing was changed, and what is there may be somebody else's.
                strike(number);
                Err(error)
            }
        }
    }

    /// Notes that the change is now as `becomes` makes it, and then carries `act` out.
    ///
    /// # Errors
    /// The note could not be written; or `act`'s. [`Interrupted`] when a second Ctrl-C has undone the
    /// change already.
    pub fn further<T>(
        &self,
        becomes: impl FnOnce(&mut Change),
        act: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let mut state = locked(&self.state);
        let Some((_, noted)) = state.noted.as_ref().filter(|_| state.verdict.is_none()) else {
            // [LED-3]
            return Err(Interrupted.into());
        };
        let mut change = noted.clone();
        becomes(&mut change);
        if change != *noted {
            amend(&mut state, change)?;
        }
        act()
    }

    /// Undoes the change now.
    ///
    /// # Errors
    /// That could not be done: what to do by hand. Or somebody else has changed the same.
    pub fn undo(mut self) -> Result<(), NotUndone> {
        drop(self.cleanup.take());
        match &locked(&self.state).verdict {
            Some(Verdict::Failed { why, by_hand }) => {
                Err(NotUndone(format!("{why}; by hand: {by_hand}")))
            }
            Some(Verdict::NotOurs(what)) => Err(NotUndone(format!("{what}; it is left alone"))),
            Some(Verdict::Undone(_) | Verdict::Nothing) | None => Ok(()),
        }
    }
}

/// [LED-3]: the note goes with the change, so that the second to come finds nothing to do.
fn undo_noted(state: &mut State) {
    let Some((number, change)) = state.noted.take() else {
        state.verdict.get_or_insert(Verdict::Nothing);
        return;
    };
    let verdict = undo::undo(&change);
    if !matches!(verdict, Verdict::Failed { .. }) {
        strike(number);
    }
    state.verdict = Some(verdict);
}

/// Notes `change` in the place of what `state` holds.
fn amend(state: &mut State, change: Change) -> anyhow::Result<()> {
    if let Some((number, noted)) = &mut state.noted {
        note(Some(*number), &change)?;
        *noted = change;
    }
    Ok(())
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn own() -> MutexGuard<'static, Option<Ledger>> {
    OWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notes `change` under `number`, or under one of its own.
fn note(number: Option<u64>, change: &Change) -> anyhow::Result<u64> {
    let mut own = own();
    let ledger = match &mut *own {
        Some(ledger) => ledger,
        None => own.insert(Ledger::here()?),
    };
    let noted = ledger.note(number, change);
    noted.with_context(|| {
        format!("cannot note in {} what is to be put back; nothing was changed", ledger.shown())
    })
}

/// Strikes out note `number`; the last one takes the ledger with it.
fn strike(number: u64) {
    let mut own = own();
    let Some(ledger) = &mut *own else { return };
    // A strike that cannot be written means that the next start looks once more, and finds nothing.
    let _ = ledger.strike(number);
    if ledger.outstanding.is_empty() {
        let _ = ledger.place.remove(&ledger.name);
        *own = None;
    }
}

/// What is noted about `path`, for tests.
#[cfg(test)]
fn noted_about(path: &Path) -> Vec<change::Outstanding> {
    let text = own().as_ref().map(|ledger| std::fs::read(ledger.shown()).unwrap_or_default());
    let contents = change::Contents::parse(&text.unwrap_or_default()).unwrap_or_default();
    contents.outstanding.into_iter().filter(|one| one.change.is_about(path)).collect()
}

/// The same as text.
#[cfg(test)]
pub(crate) fn notes_of(path: &Path) -> String {
    noted_about(path).iter().map(|one| format!("{:?}\n", one.change)).collect()
}

/// Strikes out what a test has left noted about `path` on purpose.
#[cfg(test)]
pub(crate) fn forget_notes_of(path: &Path) {
    noted_about(path).iter().for_each(|one| strike(one.number));
}

/// A file with the notes of one process.
#[derive(Debug)]
struct Ledger {
    place: Place,
    name: PathBuf,
    /// Locked, until it is closed.
    file: File,
    length_bytes: u64,
    next: u64,
    outstanding: BTreeSet<u64>,
}

impl Ledger {
    /// This process's own, in the first place that will do.
    fn here() -> anyhow::Result<Ledger> {
        let mut refusals = Vec::new();
        for candidate in place::candidates_here() {
            match Place::make(&candidate).and_then(Ledger::begin) {
                Ok(ledger) => return Ok(ledger),
                Err(error) => refusals.push(format!("{}: {error}", candidate.display())),
            }
        }
        anyhow::bail!(
            "there is no place to note what is to be put back ({}); name a directory of your own \
             in {STATE_DIRECTORY}",
            refusals.join("; ")
        )
    }

    fn begin(place: Place) -> io::Result<Ledger> {
        let process = process::this();
        let name = place::ledger_name(process.pid, process.started);
        let file = place.create(&name)?;
        file.lock()?;
        let (next, outstanding) = (0, BTreeSet::new());
        let mut ledger = Ledger { place, name, file, length_bytes: 0, next, outstanding };
        ledger.append(&Line::Process { schema: SCHEMA.to_owned(), process })?;
        Ok(ledger)
    }

    fn note(&mut self, number: Option<u64>, change: &Change) -> io::Result<u64> {
        let number = number.unwrap_or(self.next);
        let at_us = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_micros() as u64);
        self.append(&Line::Note { number, at_us, change: change.clone() })?;
        self.next = self.next.max(number + 1);
        self.outstanding.insert(number);
        Ok(number)
    }

    fn strike(&mut self, number: u64) -> io::Result<()> {
        self.append(&Line::Struck { number })?;
        self.outstanding.remove(&number);
        Ok(())
    }

    /// [LED-1]: on disk when this returns, whole or not at all.
    fn append(&mut self, line: &Line) -> io::Result<()> {
        append(&mut self.file, &mut self.length_bytes, line)
    }

    fn shown(&self) -> String {
        self.place.path.join(&self.name).display().to_string()
    }
}

/// Appends `line` at `length_bytes`, and syncs. What was written of a line that failed is overwritten.
fn append(file: &mut File, length_bytes: &mut u64, line: &Line) -> io::Result<()> {
    let text = line.text()?;
    file.set_len(*length_bytes)?;
    file.seek(SeekFrom::Start(*length_bytes))?;
    file.write_all(text.as_bytes())?;
    file.sync_data()?;
    *length_bytes += text.len() as u64;
    Ok(())
}

/// Makes the directory `path`, which is removed later: with all that is in it if `contents`, else only
/// when it is empty.
///
/// # Errors
/// It is there already, or what the system said.
pub fn make_directory(path: &Path, contents: bool) -> anyhow::Result<Undo> {
    // Whoever undoes it may be in another directory.
    let change = Change::Directory { path: std::path::absolute(path)?, contents };
    let (undo, ()) = Undo::doing(change, |_| {
        use std::os::unix::fs::DirBuilderExt;
        Ok(std::fs::DirBuilder::new().mode(0o700).create(path)?)
    })?;
    Ok(undo)
}

/// A name that begins with `prefix` and is in no other use.
pub(crate) fn fresh_name(prefix: &str) -> String {
    assert!(OWN_PREFIXES.iter().any(|own| prefix.starts_with(own)), "a sweep knows {prefix}");
    let random: String = std::iter::repeat_with(fastrand::alphanumeric).take(10).collect();
    format!("{prefix}{random}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted_of(undo: &Undo) -> Option<u64> {
        locked(&undo.state).noted.as_ref().map(|(number, _)| *number)
    }

    /// The whole text of this process's ledger; other tests note in it as well.
    fn text() -> String {
        let own = own();
        let Some(ledger) = &*own else { return String::new() };
        std::fs::read_to_string(ledger.shown()).unwrap()
    }

    #[test]
    fn a_directory_is_noted_before_it_is_made_and_struck_out_after_it_is_removed() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join(fresh_name(".forebay-lab-"));
        let shown = path.display().to_string();
        let change = Change::Directory { path: path.clone(), contents: true };
        let (undo, seen) = Undo::doing(change, |_| {
            let own = text_while_locked();
            std::fs::create_dir(&path)?;
            Ok(own)
        })
        .unwrap();
        assert!(seen.contains(&shown), "[LED-1] {seen}");
        std::fs::write(path.join("blocks"), "data").unwrap();
        let number = noted_of(&undo).unwrap();
        undo.undo().unwrap();
        assert!(!path.exists());
        let struck = Line::Struck { number }.text().unwrap();
        // Gone with the ledger, or struck out while another test has something outstanding.
        let left = text();
        assert!(!left.contains(&shown) || left.contains(&struck), "{left}");
    }

    /// As [`text`]; the lock on the one change is held by the caller, that on the ledger is not.
    fn text_while_locked() -> String {
        text()
    }

    #[test]
    fn what_could_not_be_done_is_not_undone() {
        let scratch = tempfile::tempdir().unwrap();
        let theirs = scratch.path().join(".forebay-lab-theirs");
        std::fs::create_dir(&theirs).unwrap();
        let error = make_directory(&theirs, true).unwrap_err();
        assert!(error.to_string().contains("exists"), "{error}");
        assert!(theirs.is_dir(), "somebody else's directory stays");
    }

    #[test]
    fn a_change_that_cannot_be_undone_stays_noted_and_says_what_to_do() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join(fresh_name("forebay-"));
        let undo = make_directory(&path, false).unwrap();
        std::fs::write(path.join("in-the-way"), "x").unwrap();
        let number = noted_of(&undo).unwrap();
        let error = undo.undo().unwrap_err().to_string();
        assert!(error.contains("by hand: rmdir"), "{error}");
        let left = text();
        assert!(left.contains(&path.display().to_string()), "[LED-2] {left}");
        assert!(!left.contains(&Line::Struck { number }.text().unwrap()), "[LED-2]");
        std::fs::remove_dir_all(&path).unwrap();
        forget_notes_of(&path);
    }

    #[test]
    fn after_it_was_undone_nothing_is_changed_any_more() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join(fresh_name("forebay-"));
        let undo = make_directory(&path, true).unwrap();
        // As a second Ctrl-C does it.
        undo_noted(&mut locked(&undo.state));
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
    fn a_line_that_could_not_be_written_whole_is_overwritten_by_the_next() {
        let scratch = tempfile::tempdir().unwrap();
        let place = Place::make(&scratch.path().join("state")).unwrap();
        let mut ledger = Ledger::begin(place).unwrap();
        ledger.file.write_all(b"{\"line\":\"no").unwrap();
        let change = Change::Directory { path: "/a".into(), contents: true };
        let number = ledger.note(None, &change).unwrap();
        let read = change::Contents::parse(&std::fs::read(ledger.shown()).unwrap()).unwrap();
        assert_eq!(read.outstanding.len(), 1, "[LED-1]");
        assert_eq!((read.outstanding[0].number, &read.outstanding[0].change), (number, &change));
        assert_eq!(read.process.unwrap().pid, std::process::id());
    }
}
