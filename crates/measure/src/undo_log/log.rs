//! The undo log of one process: what it changed outside itself, as a file that the next start reads.
//!
//! An undo log is text. Each line lists all outstanding changes, as one JSON object, and the last
//! line is valid. Worked example, in which first a directory and the readahead are outstanding, and then
//! the readahead alone:
//!
//! ```text
//! {"schema":"forebay-ledger/2","pid":4711,"boot":"5d1…","outstanding":[{"number":0,…},{"number":1,…}]}
//! {"schema":"forebay-ledger/2","pid":4711,"boot":"5d1…","outstanding":[{"number":1,"at_us":23,
//!  "change":{"what":"readahead","file":"/sys/…","found_kib":8192,"set_kib":[0]}}]}
//! ```
//!
//! The owning process locks the file, and the kernel drops that lock however the process ends: a process that gets
//! the lock knows that the owner no longer runs.
//!
//! Invariants:  [CHG-1] a line that was not written to its end says nothing
//!              [CHG-2] a process writes only to an undo log that it has locked and that has its name
//! Failure:     a last line that cannot be parsed makes the undo log unreadable: a guess could
//!              leave something behind, or undo what is not ours.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::place::{self, Place};
use crate::facts::{Mount, mounts};

/// Something outside this process that a run changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum Change {
    /// A number of the kernel is set: how far it reads ahead on a device.
    Readahead {
        /// The file that holds it.
        file: PathBuf,
        /// The value found, in KiB.
        found_kib: u64,
        /// All values that the run has set, in KiB.
        set_kib: Vec<u64>,
        /// What the file belongs to, if its name may be reused later: a mount without a device.
        of: Option<String>,
    },
    /// A mount that the run made and that no other process needs.
    Mount {
        /// The mount point.
        point: PathBuf,
        /// The source or, where that is not specific, the type in the list of mounts.
        source: String,
    },
    /// A file is attached to a block device.
    Loop {
        /// The file.
        backing_file: PathBuf,
        /// The kernel's number of this use of the device, once it is known: a device that was detached and
        /// attached again has a different one. Kernels before 5.15 do not have it.
        sequence: Option<u64>,
    },
    /// A directory was made.
    Directory {
        /// Its path.
        path: PathBuf,
        /// Whether it is removed with its contents; a mount point is removed only when it is empty.
        contents: bool,
    },
    /// The kernel collects trace events in an instance that this run made.
    TraceInstance {
        /// Its name in the tracing directory's `instances`.
        name: String,
    },
}

impl Change {
    /// The readahead in `file`, found at `found_kib` and not set yet.
    pub fn readahead(file: &Path, found_kib: u64) -> Change {
        let of = stands_for(file);
        Change::Readahead { file: file.to_owned(), found_kib, set_kib: Vec::new(), of }
    }

    /// Records that a readahead will be `kib`; other changes have none.
    pub fn will_be_kib(&mut self, kib: u64) {
        if let Change::Readahead { set_kib, .. } = self
            && !set_kib.contains(&kib)
        {
            set_kib.push(kib);
        }
    }
}

/// An outstanding change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    /// Unique among the entries of the process.
    pub(super) number: u64,
    /// Wall clock, in microseconds since 1970: the order between undo logs.
    pub(super) at_us: u64,
    pub(super) change: Change,
    /// This process could not undo it, and does not try again.
    #[serde(skip)]
    pub(super) has_failed: bool,
}

/// The contents of an undo log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Contents {
    schema: Schema,
    pub(super) pid: u32,
    /// The boot of the machine.
    boot: Option<String>,
    /// Oldest first.
    pub(super) outstanding: Vec<Entry>,
}

/// The version of a line's form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Schema {
    #[serde(rename = "forebay-ledger/2")]
    Version2,
}

impl Contents {
    pub(super) fn of_this_process() -> Contents {
        let (pid, boot) = (std::process::id(), boot());
        Contents { schema: Schema::Version2, pid, boot, outstanding: Vec::new() }
    }

    /// The last whole line of `file`, if there is one, and the offset of the next one.
    ///
    /// # Errors
    /// It cannot be read, or has another form, such as that of a later version.
    pub(super) fn read(file: &mut File) -> io::Result<Option<(Contents, u64)>> {
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let Some(end) = bytes.iter().rposition(|&byte| byte == b'\n') else { return Ok(None) };
        let start = bytes[..end].iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        let contents = serde_json::from_slice(&bytes[start..end])?;
        Ok(Some((contents, end as u64 + 1)))
    }

    /// True when the machine was restarted since: only changes to files are left.
    pub(super) fn are_of_another_boot(&self) -> bool {
        let now = boot();
        self.boot.is_some() && now.is_some() && self.boot != now
    }
}

fn boot() -> Option<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(boot.trim().to_owned())
}

/// A file with the entries of one process, locked by this one.
#[derive(Debug)]
pub(super) struct UndoLog {
    place: Place,
    name: String,
    file: File,
    /// Bytes of whole lines: the offset of the next one.
    length_bytes: u64,
    pub(super) contents: Contents,
}

impl UndoLog {
    /// Begins the undo log of this process.
    pub(super) fn begin(place: &Place) -> io::Result<UndoLog> {
        let contents = Contents::of_this_process();
        loop {
            let name = place::random_name(&contents.pid.to_string()) + place::SUFFIX;
            let file = place.create(&name)?;
            file.lock()?;
            // [CHG-2]: a start that found it before it was locked has treated it as a dead process's.
            if file.metadata()?.nlink() > 0 {
                return Ok(UndoLog { place: place.clone(), name, file, length_bytes: 0, contents });
            }
        }
    }

    /// The undo log `name` of a process that no longer runs; `None` when it runs, or has logged nothing.
    ///
    /// # Errors
    /// The log is unreadable, so what a killed run has left is unknown.
    pub(super) fn of_dead(place: &Place, name: &str) -> anyhow::Result<Option<UndoLog>> {
        let mut file = match place.existing(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => return Ok(None),
            locked => locked?,
        }
        let read =
            Contents::read(&mut file)?.filter(|(contents, _)| !contents.outstanding.is_empty());
        let Some((contents, length_bytes)) = read else {
            // Another start may have been faster.
            let _ = place.remove(name);
            return Ok(None);
        };
        let (place, name) = (place.clone(), name.to_owned());
        Ok(Some(UndoLog { place, name, file, length_bytes, contents }))
    }

    pub(super) fn path(&self) -> PathBuf {
        self.place.path.join(&self.name)
    }

    pub(super) fn entry(&mut self, number: u64) -> Option<&mut Entry> {
        self.contents.outstanding.iter_mut().find(|entry| entry.number == number)
    }

    /// When this returns, the entries are on disk as they are now, or as they were before.
    pub(super) fn write(&mut self) -> io::Result<()> {
        let line = serde_json::to_string(&self.contents)? + "\n";
        // The next line overwrites the written part of a line that failed.
        self.file.set_len(self.length_bytes)?;
        self.file.write_all_at(line.as_bytes(), self.length_bytes)?;
        self.file.sync_data()?;
        self.length_bytes += line.len() as u64;
        Ok(())
    }

    /// Removes entry `number`; removing the last one removes the file.
    pub(super) fn remove_entry(&mut self, number: u64) {
        self.contents.outstanding.retain(|entry| entry.number != number);
        // If this write fails, the next start checks again and finds nothing to do. It is
        // written even when the file is removed: another start may have opened it.
        let _ = self.write();
        if self.contents.outstanding.is_empty() {
            let _ = self.place.remove(&self.name);
        }
    }
}

/// What `file` belongs to, where its name holds only a number that is reused: a mount without a device, as in
/// `/sys/class/bdi/0:51/read_ahead_kb`. The kernel assigns the lowest free number, so the next mount
/// gets the number of one that has ended.
pub(super) fn stands_for(file: &Path) -> Option<String> {
    let number = file.parent()?.file_name()?.to_str()?;
    let Mount { id, mount_point, filesystem, source, .. } =
        mounts().ok()?.into_iter().find(|mount| mount.device == number)?;
    Some(format!("{filesystem} {source} on {}, mount {id}", mount_point.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(point: &str) -> Change {
        Change::Mount { point: point.into(), source: "/dev/loop3".to_owned() }
    }

    fn entry(number: u64, change: Change) -> Entry {
        Entry { number, at_us: number, change, has_failed: false }
    }

    fn state() -> (tempfile::TempDir, Place) {
        let scratch = tempfile::tempdir().unwrap();
        let place = Place::make(&scratch.path().join("state")).unwrap();
        (scratch, place)
    }

    fn read(path: &Path) -> io::Result<Option<(Contents, u64)>> {
        Contents::read(&mut File::open(path).unwrap())
    }

    #[test]
    fn every_kind_of_change_is_read_as_it_was_written() {
        let changes = [
            Change::Readahead {
                file: "/sys/ \n\"x".into(),
                found_kib: 8192,
                set_kib: vec![0, 128],
                of: Some("fuse nvme on /x, mount 7".to_owned()),
            },
            mount("/mnt/a b"),
            Change::Loop { backing_file: "/y".into(), sequence: None },
            Change::Loop { backing_file: "/x".into(), sequence: Some(9) },
            Change::Directory { path: "/ä".into(), contents: false },
        ];
        let (_scratch, place) = state();
        let mut log = UndoLog::begin(&place).unwrap();
        log.contents.outstanding = (0..).zip(changes).map(|(n, one)| entry(n, one)).collect();
        log.write().unwrap();
        let (contents, _) = read(&log.path()).unwrap().unwrap();
        assert_eq!(contents, log.contents);
        assert_eq!(contents.pid, std::process::id());
    }

    #[test]
    fn a_torn_last_line_says_nothing_wherever_it_is_torn_and_is_overwritten() {
        let (_scratch, place) = state();
        let mut log = UndoLog::begin(&place).unwrap();
        let path = log.path();
        assert!(read(&path).unwrap().is_none(), "[CHG-1]");
        log.contents.outstanding.push(entry(0, mount("/a")));
        log.write().unwrap();
        let (kept, length) = (log.contents.clone(), log.length_bytes);
        log.contents.outstanding.push(entry(1, mount("/b")));
        log.write().unwrap();
        let bytes = fs::read(&path).unwrap();
        for end in length as usize..bytes.len() {
            fs::write(&path, &bytes[..end]).unwrap();
            assert_eq!(read(&path).unwrap().unwrap(), (kept.clone(), length), "[CHG-1]");
        }
        log.length_bytes = length;
        log.remove_entry(0);
        let (contents, end) = read(&path).unwrap().unwrap();
        assert_eq!((contents, end), (log.contents.clone(), log.length_bytes), "[CHG-1]");
        log.remove_entry(1);
        assert!(!path.exists());
    }

    #[test]
    fn a_line_of_another_form_is_an_error() {
        let (_scratch, place) = state();
        let mut log = UndoLog::begin(&place).unwrap();
        log.contents.outstanding.push(entry(0, mount("/a")));
        log.write().unwrap();
        let text = fs::read_to_string(log.path()).unwrap();
        for (word, other) in [("\"mount\"", "\"swap\""), ("ledger/2", "ledger/3")] {
            fs::write(log.path(), text.replace(word, other)).unwrap();
            let message = read(&log.path()).unwrap_err().to_string();
            assert!(message.contains(other.trim_matches('"')), "{message}");
        }
    }

    #[test]
    fn a_log_that_lost_its_name_before_it_was_locked_is_not_written_to() {
        let (_scratch, place) = state();
        // The state that a start finds if it runs between the creation of the file and its lock.
        drop(place.create("7-x.ledger").unwrap());
        assert!(UndoLog::of_dead(&place, "7-x.ledger").unwrap().is_none());
        assert_eq!(place.names().unwrap(), [""; 0], "[CHG-2]");
        let log = UndoLog::begin(&place).unwrap();
        assert!(log.path().exists());
        let name = log.name.clone();
        assert!(UndoLog::of_dead(&place, &name).unwrap().is_none(), "it is locked");
    }
}
