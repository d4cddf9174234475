//! Recovery: the next start undoes what killed runs left behind.
//!
//! The undo logs of all dead processes are merged and undone newest change first, since one
//! change may depend on another: a filesystem on a loop device on a file of a mount that a second process made.
//! Each change is undone only while the state is still as the run left it, and then removed from the log.
//!
//! Invariants:  [SWP-1] the undo log of a process that runs is not touched
//!              [SWP-2] what could not be undone is reported again at each start until it is undone
//!              [SWP-3] what a restart of the machine has undone is not undone again, where it could hit another owner
//! Concurrency: an undo log is locked during recovery, so that two starts do not undo it twice.
//! Failure:     becomes a sentence; a failed recovery never prevents a run from starting.

use std::cmp::Reverse;
use std::fs::TryLockError;
use std::io;
use std::path::{Path, PathBuf};

use super::log::{Change, Contents, Entry, UndoLog};
use super::place::{Place, candidates_here};
use super::undo::{Verdict, undo};

/// Undoes what the logs of dead processes list, and reports what was done, a sentence each.
#[must_use]
pub fn recover() -> Vec<String> {
    let mut messages = Vec::new();
    for candidate in candidates_here() {
        match Place::open(&candidate) {
            Ok(place) => messages.extend(recover_place(&place, undo)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => messages.push(format!(
                "what earlier runs left cannot be looked for in {}: {error}",
                candidate.display()
            )),
        }
    }
    messages
}

/// The running process that has set the readahead in `file`, if there is one; it will restore the value that
/// it found, so a second one must not begin before.
#[must_use]
pub fn holder_of_readahead(file: &Path) -> Option<u32> {
    let is_it =
        |entry: &Entry| matches!(&entry.change, Change::Readahead { file: it, .. } if it == file);
    let holder = |place: &Place, name: String| {
        let mut log = place.existing(&name).ok()?;
        let Err(TryLockError::WouldBlock) = log.try_lock() else { return None };
        let (contents, _) = Contents::read(&mut log).ok()??;
        contents.outstanding.iter().any(is_it).then_some(contents.pid)
    };
    candidates_here().into_iter().find_map(|path| {
        let place = Place::open(&path).ok()?;
        place.names().ok()?.into_iter().find_map(|name| holder(&place, name))
    })
}

fn recover_place(place: &Place, undo: impl Fn(&Change) -> Verdict) -> Vec<String> {
    let mut messages = Vec::new();
    let mut dead = Vec::new();
    for name in place.names().unwrap_or_default() {
        match UndoLog::of_dead(place, &name) {
            Ok(log) => dead.extend(log), // [SWP-1]
            Err(why) => messages.push(format!(
                "an undo log of an earlier run is unreadable: {}: {why:#}; restore by hand what it lists, and \
                 remove that file",
                place.path.join(&name).display()
            )),
        }
    }
    // The newest first, across all undo logs.
    let mut order: Vec<(usize, Entry)> = Vec::new();
    for (at, log) in dead.iter().enumerate() {
        order.extend(log.contents.outstanding.iter().map(|entry| (at, entry.clone())));
    }
    order.sort_by_key(|(_, entry)| Reverse((entry.at_us, entry.number)));
    let points = order.iter().filter_map(|(_, entry)| match &entry.change {
        Change::Mount { point, .. } => Some(point.clone()),
        _ => None,
    });
    let points: Vec<PathBuf> = points.collect();
    for (at, Entry { number, change, .. }) in order {
        let ends_with_another = match &change {
            // Together with the filesystem that contains it.
            Change::Directory { path, .. } => {
                points.iter().any(|point| path != point && path.starts_with(point))
            }
            // [SWP-3]: the numbers that identify a loop device begin again at each boot.
            _ => dead[at].contents.are_of_another_boot(),
        };
        let verdict = if ends_with_another { Verdict::Nothing } else { undo(&change) };
        if !matches!(verdict, Verdict::Failed(_)) {
            dead[at].remove_entry(number); // [SWP-2]
        }
        let what = match verdict {
            Verdict::Nothing => continue,
            Verdict::Undone(what) => format!("put back: {what}"),
            Verdict::NotOurs(what) => format!("left alone: {what}"),
            Verdict::Failed(why) => format!("still to be put back: {why}"),
        };
        let pid = dead[at].contents.pid;
        messages.push(format!("an earlier run (process {pid}) was killed; {what}"));
    }
    messages
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::fs;

    /// A process that cannot exist: numbers end at 2^22.
    const DEAD: u32 = 1 << 30;

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

        /// An undo log as a killed process leaves it.
        fn killed(&self, pid: u32, changes: &[(u64, Change)]) -> PathBuf {
            let outstanding = changes.iter().zip(0..).map(|((at_us, change), number)| Entry {
                number,
                at_us: *at_us,
                change: change.clone(),
                has_failed: false,
            });
            let mut contents = Contents::of_this_process();
            (contents.pid, contents.outstanding) = (pid, outstanding.collect());
            let path = self.place.path.join(format!("{pid}-x.ledger"));
            fs::write(&path, serde_json::to_string(&contents).unwrap() + "\n").unwrap();
            path
        }

        fn recover(&self, verdict: impl Fn(&Change) -> Verdict) -> Vec<String> {
            recover_place(&self.place, |change| {
                self.undone.borrow_mut().push(change.clone());
                verdict(change)
            })
        }
    }

    fn directory(path: &str) -> Change {
        Change::Directory { path: path.into(), contents: true }
    }

    fn failed() -> Verdict {
        Verdict::Failed("/b is busy; by hand: rm -r /b".to_owned())
    }

    #[test]
    fn the_changes_of_dead_processes_are_undone_newest_first_reported_and_forgotten() {
        let scene = Scene::new();
        let (a, b, c) = (directory("/a"), directory("/b"), directory("/c"));
        let first = scene.killed(DEAD, &[(10, a.clone()), (30, c.clone())]);
        let second = scene.killed(DEAD + 1, &[(20, b.clone())]);
        let messages = scene.recover(|change| match change {
            Change::Directory { path, .. } => Verdict::Undone(format!("removed {path:?}")),
            other => panic!("{other:?}"),
        });
        assert_eq!(*scene.undone.borrow(), [c, b, a]);
        let expected = [(DEAD, "/c"), (DEAD + 1, "/b"), (DEAD, "/a")].map(|(pid, path)| {
            format!("an earlier run (process {pid}) was killed; put back: removed {path:?}")
        });
        assert_eq!(messages, expected);
        assert!(!first.exists() && !second.exists());
        assert_eq!(scene.recover(|_| panic!("it is done")), [""; 0]);
    }

    #[test]
    fn the_newest_of_all_is_undone_first_and_what_is_in_a_mount_goes_with_it() {
        let scene = Scene::new();
        let mount = |point: &str| {
            let source = "/dev/loop3".to_owned();
            Change::Mount { point: point.into(), source }
        };
        let server = mount("/emulated");
        let lab = [
            (10, directory("/emulated")),
            (30, directory("/other/.forebay-lab-y")),
            (30, mount("/fs")),
            (40, directory("/fs/.forebay-lab-z")),
        ];
        scene.killed(DEAD, &[(20, server.clone())]);
        let log = scene.killed(DEAD + 1, &lab);
        scene.recover(|_| Verdict::Nothing);
        let [point, other, mount, _] = lab.map(|(_, change)| change);
        assert_eq!(*scene.undone.borrow(), [mount, other, server, point]);
        assert!(!log.exists());
    }

    #[test]
    fn of_another_boot_only_directories_are_left_to_be_undone() {
        let scene = Scene::new();
        let shown = Change::Loop { backing_file: "/x".into(), sequence: Some(9) };
        let mounted = Change::Mount { point: "/m".into(), source: "/dev/loop1".to_owned() };
        let made = directory("/a");
        let log = scene.killed(DEAD, &[(10, made.clone()), (20, shown), (30, mounted)]);
        let Ok(boot) = fs::read_to_string("/proc/sys/kernel/random/boot_id") else { return };
        let text = fs::read_to_string(&log).unwrap();
        fs::write(&log, text.replace(boot.trim(), "another-boot")).unwrap();
        let messages = scene.recover(|_| Verdict::Undone("removed /a".to_owned()));
        assert_eq!(*scene.undone.borrow(), [made], "[SWP-3]");
        assert_eq!(messages.len(), 1, "{messages:?}");
        assert!(!log.exists());
    }

    #[test]
    fn what_cannot_be_undone_stays_and_is_reported_again_with_the_command() {
        let scene = Scene::new();
        let log = scene.killed(DEAD, &[(10, directory("/a")), (20, directory("/b"))]);
        let undo = |change: &Change| {
            if *change == directory("/b") { failed() } else { Verdict::Nothing }
        };
        for round in 0..2 {
            let messages = scene.recover(undo);
            assert_eq!(messages.len(), 1);
            assert!(messages[0].ends_with("still to be put back: /b is busy; by hand: rm -r /b"));
            assert!(log.exists(), "[SWP-2]");
            let expected = if round == 0 { 2 } else { 3 };
            assert_eq!(scene.undone.borrow().len(), expected, "/a is removed from the log");
        }
        let foreign =
            scene.recover(|_| Verdict::NotOurs("/b belongs to another process".to_owned()));
        assert!(foreign[0].ends_with("left alone: /b belongs to another process"), "{foreign:?}");
        assert!(!log.exists());
    }

    #[test]
    fn a_run_that_is_under_way_is_left_in_peace() {
        let scene = Scene::new();
        let live = scene.killed(DEAD, &[(10, directory("/live"))]);
        let lock = fs::File::open(&live).unwrap();
        lock.lock().unwrap();
        assert_eq!(scene.recover(|_| panic!("[SWP-1]")), [""; 0]);
        assert!(live.exists(), "[SWP-1]");
        lock.unlock().unwrap();
        scene.recover(|_| Verdict::Nothing);
        assert!(!live.exists());
    }

    #[test]
    fn a_torn_log_is_recovered_as_it_was_before() {
        let scene = Scene::new();
        let log = scene.killed(DEAD, &[(10, directory("/a")), (20, directory("/b"))]);
        let mut bytes = fs::read(&log).unwrap();
        bytes.extend(b"{\"schema\":\"forebay-led");
        fs::write(&log, &bytes).unwrap();
        let messages = scene
            .recover(|change| if *change == directory("/a") { failed() } else { Verdict::Nothing });
        assert_eq!(messages.len(), 1);
        let (left, _) = Contents::read(&mut fs::File::open(&log).unwrap()).unwrap().unwrap();
        assert_eq!(left.outstanding.len(), 1);
        assert_eq!(left.outstanding[0].change, directory("/a"));
        // The empty ones.
        let torn = scene.place.path.join("7-x.ledger");
        fs::write(&torn, "{\"schema\":\"for").unwrap();
        let empty = scene.killed(DEAD + 1, &[]);
        scene.recover(|_| Verdict::Nothing);
        assert!(!empty.exists() && !torn.exists() && !log.exists());
    }

    #[test]
    fn an_unreadable_log_is_reported_and_kept() {
        let scene = Scene::new();
        let log = scene.killed(DEAD, &[(10, directory("/a"))]);
        fs::write(&log, "nonsense\n").unwrap();
        let messages = scene.recover(|_| panic!("it is not known what"));
        assert!(
            messages[0].contains("is unreadable") && messages[0].contains("expected"),
            "{messages:?}"
        );
        assert!(log.exists());
    }
}
