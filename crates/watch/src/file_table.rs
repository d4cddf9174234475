//! The file table: names of files and devices, and what else is shown with the counts.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::access::FILES_MAX;

/// More devices than any machine has: a record that names more was not written by a watch.
pub(super) const DEVICES_MAX: usize = 1 << 14;

/// Name, path and state of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileName {
    /// The PostgreSQL relation, the path, or the inode number.
    pub(super) name: String,
    pub(super) path: Option<String>,
    /// State of the file at that path when it was last checked.
    pub(super) state: Option<State>,
}

/// Identifies a file later, and shows whether it was written since.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct State {
    pub(super) inode: u64,
    pub(super) bytes: u64,
    /// Modification time: seconds, and nanoseconds within the second.
    pub(super) modified: (i64, i64),
}

impl State {
    /// State of the file at `path`; `None` if there is no regular file.
    pub(super) fn of(path: &Path) -> Option<State> {
        let facts = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
        let modified = (facts.mtime(), facts.mtime_nsec());
        Some(State { inode: facts.ino(), bytes: facts.len(), modified })
    }

    /// Whether the file was replaced or truncated since `then`: its blocks may have moved, or no longer exist.
    pub(super) fn is_another(self, then: State) -> bool {
        self.inode != then.inode || self.bytes < then.bytes
    }
}

impl FileName {
    /// Reads the state of the file at `path`, if there is one.
    pub(super) fn new(name: String, path: Option<String>) -> FileName {
        let state = path.as_deref().and_then(|path| State::of(Path::new(path)));
        FileName { name, path, state }
    }

    /// Updates the state, unless another file is at the path now.
    pub(super) fn look_again(&mut self) {
        let now = self.path.as_deref().and_then(|path| State::of(Path::new(path)));
        if let (Some(then), Some(now)) = (self.state, now)
            && then.inode == now.inode
        {
            self.state = Some(now);
        }
    }
}

/// See the module's description. In a record: what is new since the previous piece.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileTable {
    /// The process, service or command that is watched.
    pub(super) subject: String,
    /// Where the events come from, and which are missing.
    pub(super) source: String,
    pub(super) processes: usize,
    pub(super) remarks: Vec<String>,
    pub(super) files: BTreeMap<u32, FileName>,
    pub(super) devices: BTreeMap<u32, String>,
}

impl FileTable {
    pub(super) fn file(&self, number: u32) -> FileName {
        let unknown = || FileName { name: format!("file {number}"), ..FileName::default() };
        self.files.get(&number).cloned().unwrap_or_else(unknown)
    }

    pub(super) fn device(&self, number: u32) -> String {
        self.devices.get(&number).cloned().unwrap_or_else(|| format!("device {number}"))
    }

    /// Whether a watch can have produced this many names.
    pub(super) fn is_possible(&self) -> bool {
        self.files.keys().all(|&number| number <= FILES_MAX) && self.devices.len() <= DEVICES_MAX
    }

    /// This file table without the names of files and devices that `before` has.
    pub(super) fn since(&self, before: &FileTable) -> FileTable {
        let mut new = self.clone();
        new.files.retain(|number, called| before.files.get(number) != Some(called));
        new.devices.retain(|number, name| before.devices.get(number) != Some(name));
        new
    }

    /// Merges the file table of the next piece: adds its names, and replaces everything else.
    pub(super) fn add(&mut self, new: FileTable) {
        self.files.extend(new.files);
        self.devices.extend(new.devices);
        let (files, devices) = (std::mem::take(&mut self.files), std::mem::take(&mut self.devices));
        *self = FileTable { files, devices, ..new };
    }
}
