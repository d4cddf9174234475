//! Sweep: what runs left behind that were killed, put back at the next start.
//!
//! The ledgers of all dead processes are taken together and carried out newest change first, since one
//! may stand on another: a filesystem on a loop device on a file of a mount that a second process made.
//! Each is undone only while it still looks as it was left, and struck out then.
//!
//! Invariants:  [SWP-1] the ledger of a process that runs is not touched
//!              [SWP-3] what a restart of the machine has undone is not undone to somebody else
//!              [SWP-2] what could not be undone is told again at the next start, until it is gone
//! Concurrency: a ledger is locked while it is carried out, so that two starts do not do it twice.
//! Failure:     becomes a sentence; a sweep never keeps a run from starting.

use std::fs::{File, TryLockError};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::append;
use super::change::{Change, Contents, Line, Outstanding, Process, undoing_order};
use super::place::{Place, candidates_here, named_process};
use super::process;
use super::undo::{Verdict, undo};

/// Carries out what the ledgers of dead processes say, and tells what was done, a sentence each.
#[must_use]
pub fn sweep() -> Vec<String> {
    let mut told = Vec::new();
    for candidate in candidates_here() {
        match Place::open(&candidate) {
            Ok(place) => told.extend(sweep_place(&place, undo)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => told.push(format!(
                "what earlier runs left cannot be looked for in {}: {error}",
                candidate.display()
            )),
        }
    }
    told
}

/// The process that has set the readahead in `file` and runs, if there is one; it will put back what
/// it found, so that a second one must not begin in between.
#[must_use]
pub fn holder_of_readahead(file: &Path) -> Option<u32> {
    let places = candidates_here().into_iter().filter_map(|path| Place::open(&path).ok());
    places.into_iter().find_map(|place| {
        let names = place.names().ok()?;
        names.into_iter().find_map(|name| {
            let mut ledger = place.existing(&name).ok()?;
            let locked = matches!(ledger.try_lock(), Err(TryLockError::WouldBlock));
            let contents = read(&mut ledger).ok().filter(|_| locked)?.ok()?;
            let held = contents.outstanding.iter().any(
                |one| matches!(&one.change, Change::Readahead { file: other, .. } if other == file),
            );
            held.then_some(contents.process?.pid)
        })
    })
}

/// A ledger whose process is gone.
#[derive(Debug)]
struct Dead {
    name: PathBuf,
    /// Locked.
    file: File,
    process: Process,
    outstanding: Vec<Outstanding>,
    length_bytes: u64,
    done: Vec<String>,
    left_alone: Vec<String>,
    failed: Vec<String>,
}

fn sweep_place(place: &Place, undo: impl Fn(&Change) -> Verdict) -> Vec<String> {
    let mut told = Vec::new();
    let mut dead = Vec::new();
    for name in place.names().unwrap_or_default() {
        match take(place, &name) {
            Ok(taken) => dead.extend(taken),
            Err(why) => told.push(format!(
                "what an earlier run left cannot be told: {}: {why}; put it back by hand, and remove \
                 that file",
                place.path.join(&name).display()
            )),
        }
    }
    let outstanding: Vec<&[Outstanding]> =
        dead.iter().map(|ledger| ledger.outstanding.as_slice()).collect();
    let (order, gone) = undoing_order(&outstanding);
    for (at, one) in order {
        // The numbers by which a loop device is known begin anew at each boot.
        let gone = process::ran_before_boot(&dead[at].process) && !one.change.survives_boot();
        let verdict = if gone { Verdict::Nothing } else { undo(&one.change) };
        dead[at].carry_out(&one, verdict);
    }
    for (at, one) in gone {
        dead[at].carry_out(&one, Verdict::Nothing);
    }
    for mut ledger in dead {
        ledger.end(place);
        told.extend(ledger.told());
    }
    told
}

/// Opens the ledger `name` if its process is gone; `None` when it runs, or somebody else was faster.
fn take(place: &Place, name: &Path) -> Result<Option<Dead>, String> {
    let mut file = match place.existing(name) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    match file.try_lock() {
        Ok(()) => {}
        // [SWP-1]
        Err(TryLockError::WouldBlock) => return Ok(None),
        Err(TryLockError::Error(error)) => return Err(error.to_string()),
    }
    let unnamed = || {
        let (pid, started) = named_process(name)?;
        Some(Process { pid, started, boot: None, command: String::new() })
    };
    let contents = match read(&mut file).map_err(|error| error.to_string())? {
        Ok(contents) => contents,
        // Of a later version that runs, perhaps.
        Err(_) if unnamed().is_some_and(|process| !process::has_ended(&process)) => {
            return Ok(None);
        }
        Err(unreadable) => return Err(unreadable.to_string()),
    };
    let Contents { process, outstanding, whole_bytes } = contents;
    let Some(process) = process.or_else(unnamed) else {
        return Err("it does not say which process it is of".to_owned());
    };
    if !process::has_ended(&process) {
        return Ok(None);
    }
    Ok(Some(Dead {
        name: name.to_owned(),
        file,
        process,
        outstanding,
        length_bytes: whole_bytes as u64,
        done: Vec::new(),
        left_alone: Vec::new(),
        failed: Vec::new(),
    }))
}

fn read(file: &mut File) -> io::Result<Result<Contents, super::Unreadable>> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(Contents::parse(&bytes))
}

impl Dead {
    fn carry_out(&mut self, one: &Outstanding, verdict: Verdict) {
        match verdict {
            Verdict::Failed { why, by_hand } => {
                // [SWP-2]
                self.failed.push(format!("{why}; by hand: {by_hand}"));
                return;
            }
            Verdict::Undone(what) => self.done.push(what),
            Verdict::NotOurs(what) => self.left_alone.push(what),
            Verdict::Nothing => {}
        }
        self.outstanding.retain(|other| other.number != one.number);
        // Should this fail, the next start looks once more and finds nothing to do.
        let line = Line::Struck { number: one.number };
        let _ = append(&mut self.file, &mut self.length_bytes, &line);
    }

    /// A ledger in which all is struck out goes; somebody else who waits for it finds nothing in it.
    fn end(&mut self, place: &Place) {
        if self.outstanding.is_empty() {
            let _ = place.remove(&self.name);
        }
    }

    fn told(&self) -> Option<String> {
        let parts = [
            ("put back: ", &self.done),
            ("left alone: ", &self.left_alone),
            ("still to be put back: ", &self.failed),
        ];
        let parts: Vec<String> = parts
            .iter()
            .filter(|(_, what)| !what.is_empty())
            .map(|(title, what)| format!("{title}{}", what.join(", ")))
            .collect();
        let pid = self.process.pid;
        let run = format!("an earlier run (process {pid}) was killed; {}", parts.join("; "));
        (!parts.is_empty()).then_some(run)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Ledger;
    use super::super::place::ledger_name;
    use super::*;
    use std::cell::RefCell;
    use std::fs;

    /// A process that cannot be: numbers end at 2^22.
    const GONE: u32 = 1 << 30;

    struct Scene {
        _scratch: tempfile::TempDir,
        place: Place,
        undone: RefCell<Vec<Change>>,
    }

    impl Scene {
        fn new() -> Scene {
            let scratch = tempfile::tempdir().unwrap();
            let place = Place::make(&scratch.path().join("state")).unwrap();
            Scene { _scratch: scratch, place, undone: RefCell::default() }
        }

        /// A ledger as a killed process leaves it.
        fn killed(&self, pid: u32, changes: &[(u64, Change)]) -> PathBuf {
            self.killed_in(None, pid, changes)
        }

        fn killed_in(&self, boot: Option<&str>, pid: u32, changes: &[(u64, Change)]) -> PathBuf {
            let (boot, command) = (boot.map(str::to_owned), "forebay lab".to_owned());
            let process = Process { pid, started: Some(9), boot, command };
            let schema = super::super::SCHEMA.to_owned();
            let mut text = Line::Process { schema, process }.text().unwrap();
            for (number, (at_us, change)) in (0..).zip(changes) {
                let note = Line::Note { number, at_us: *at_us, change: change.clone() };
                text += &note.text().unwrap();
            }
            let path = self.place.path.join(ledger_name(pid, Some(9)));
            fs::write(&path, text).unwrap();
            path
        }

        fn sweep(&self, verdict: impl Fn(&Change) -> Verdict) -> Vec<String> {
            sweep_place(&self.place, |change| {
                self.undone.borrow_mut().push(change.clone());
                verdict(change)
            })
        }
    }

    fn directory(path: &str) -> Change {
        Change::Directory { path: path.into(), contents: true }
    }

    fn failed() -> Verdict {
        Verdict::Failed { why: "/b is busy".to_owned(), by_hand: "rm -r /b".to_owned() }
    }

    #[test]
    fn the_changes_of_dead_processes_are_undone_newest_first_told_and_forgotten() {
        let scene = Scene::new();
        let (a, b, c) = (directory("/a"), directory("/b"), directory("/c"));
        let first = scene.killed(GONE, &[(10, a.clone()), (30, c.clone())]);
        let second = scene.killed(GONE + 1, &[(20, b.clone())]);
        let told = scene.sweep(|change| match change {
            Change::Directory { path, .. } => Verdict::Undone(format!("removed {path:?}")),
            other => panic!("{other:?}"),
        });
        assert_eq!(*scene.undone.borrow(), [c, b, a]);
        assert_eq!(
            told,
            [
                format!(
                    "an earlier run (process {GONE}) was killed; put back: removed \"/c\", removed \
                     \"/a\""
                ),
                format!(
                    "an earlier run (process {}) was killed; put back: removed \"/b\"",
                    GONE + 1
                ),
            ]
        );
        assert!(!first.exists() && !second.exists());
        assert_eq!(scene.sweep(|_| panic!("it is done")), [""; 0]);
    }

    #[test]
    fn of_another_boot_only_directories_are_left_to_be_undone() {
        let scene = Scene::new();
        let attached = super::super::Attached { name: "loop1".to_owned(), sequence: Some(9) };
        let shown = Change::Loop { backing_file: "/x".into(), attached: Some(attached) };
        let mounted = Change::Mount { point: "/m".into(), source: "/dev/loop1".to_owned() };
        let made = directory("/a");
        let changes = [(10, made.clone()), (20, shown), (30, mounted)];
        let ledger = scene.killed_in(Some("another-boot"), GONE, &changes);
        let told = scene.sweep(|_| Verdict::Undone("removed /a".to_owned()));
        if std::path::Path::new("/proc/sys/kernel/random/boot_id").exists() {
            assert_eq!(*scene.undone.borrow(), [made], "[SWP-3]");
        }
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(!ledger.exists());
    }

    #[test]
    fn what_cannot_be_undone_stays_and_is_told_again_with_the_command() {
        let scene = Scene::new();
        let ledger = scene.killed(GONE, &[(10, directory("/a")), (20, directory("/b"))]);
        let undo = |change: &Change| {
            if *change == directory("/b") { failed() } else { Verdict::Nothing }
        };
        for round in 0..2 {
            let told = scene.sweep(undo);
            assert_eq!(told.len(), 1);
            assert!(told[0].ends_with("still to be put back: /b is busy; by hand: rm -r /b"));
            assert!(ledger.exists(), "[SWP-2]");
            let expected = if round == 0 { 2 } else { 3 };
            assert_eq!(scene.undone.borrow().len(), expected, "/a is struck out");
        }
        let foreign = scene.sweep(|_| Verdict::NotOurs("/b belongs to somebody".to_owned()));
        assert!(foreign[0].ends_with("left alone: /b belongs to somebody"), "{foreign:?}");
        assert!(!ledger.exists());
    }

    #[test]
    fn a_run_that_is_under_way_is_left_in_peace() {
        let scene = Scene::new();
        let place = Place::make(&scene.place.path).unwrap();
        let mut ledger = Ledger::begin(place).unwrap();
        ledger.note(None, &directory("/live")).unwrap();
        assert_eq!(scene.sweep(|_| panic!("[SWP-1]")), [""; 0]);
        // Between making the file and locking it.
        ledger.file.unlock().unwrap();
        assert_eq!(scene.sweep(|_| panic!("[SWP-1]")), [""; 0]);
        assert!(Path::new(&ledger.shown()).exists(), "[SWP-1]");
        // Locked by a process that cannot be seen from here.
        let hidden = scene.killed(GONE, &[(10, directory("/hidden"))]);
        let lock = File::open(&hidden).unwrap();
        lock.lock().unwrap();
        assert_eq!(scene.sweep(|_| panic!("[SWP-1]")), [""; 0]);
    }

    #[test]
    fn a_torn_ledger_is_carried_out_up_to_the_tear_and_struck_out_behind_it() {
        let scene = Scene::new();
        let ledger = scene.killed(GONE, &[(10, directory("/a")), (20, directory("/b"))]);
        let mut bytes = fs::read(&ledger).unwrap();
        bytes.extend(b"{\"line\":\"note\",\"num");
        fs::write(&ledger, &bytes).unwrap();
        let told = scene
            .sweep(|change| if *change == directory("/a") { failed() } else { Verdict::Nothing });
        assert_eq!(told.len(), 1);
        let left = Contents::parse(&fs::read(&ledger).unwrap()).unwrap();
        assert_eq!(left.outstanding.len(), 1);
        assert_eq!(left.outstanding[0].change, directory("/a"));
        // One that was torn before it said whose it is.
        let empty = scene.place.path.join(ledger_name(GONE + 1, Some(9)));
        fs::write(&empty, "").unwrap();
        scene.sweep(|_| Verdict::Nothing);
        assert!(!empty.exists() && !ledger.exists());
    }

    #[test]
    fn a_ledger_that_cannot_be_understood_is_told_and_kept() {
        let scene = Scene::new();
        let ledger = scene.killed(GONE, &[(10, directory("/a"))]);
        fs::write(&ledger, "nonsense\n").unwrap();
        let told = scene.sweep(|_| panic!("it is not known what"));
        assert!(told[0].contains("line 1 cannot be understood"), "{told:?}");
        assert!(ledger.exists());
    }
}
