//! The journal: all changes on a disk, in the order in which they took effect.
//!
//! A power cut is a position in the journal: the entries before it have happened, the others have not. Each change
//! takes effect at one moment, that of its entry. A sync has two: it covers the changes before it *began*, and
//! guarantees their durability once it has *ended*; its entry is at the end and names the beginning.
//!
//! Files and directories are nodes with their own numbers. The system reuses the inode of a removed file; a node's
//! number is never reused.
//!
//! Invariants:  [JRN-1] a node's number always identifies the same file or directory
//! Concurrency: none here; a disk appends under its lock.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::Arc;

use crate::image::{Entries, Image, Tree};

/// A number of journal entries: those before a power cut, or before some event.
pub type Position = u64;

/// A file or directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Node(pub(crate) u32);

/// The root directory of a disk.
pub(crate) const ROOT: Node = Node(0);

/// A change of the bytes or the size of a file.
#[derive(Debug, Clone)]
pub(crate) enum ContentEvent {
    Write {
        offset: u64,
        bytes: Arc<[u8]>,
        /// It survives entirely or not at all.
        atomic: bool,
    },
    Resize {
        len: u64,
    },
    /// The file grows to at least this length.
    Grow {
        len: u64,
    },
}

/// A change of the names in a directory.
#[derive(Debug, Clone)]
pub(crate) enum NameEvent {
    /// `node` is new and receives a name.
    Link {
        name: OsString,
        node: Node,
        is_directory: bool,
    },
    Unlink {
        name: OsString,
    },
    Rename {
        to: OsString,
        node: Node,
    },
}

#[derive(Debug, Clone)]
pub(crate) enum Entry {
    Content {
        node: Node,
        event: ContentEvent,
    },
    Names {
        directory: Node,
        event: NameEvent,
    },
    /// A sync succeeded: changes of the node before `since` are durable.
    Synced {
        node: Node,
        since: Position,
    },
    /// A sync failed: writes before `since` that are not durable yet will never be.
    Dropped {
        node: Node,
        since: Position,
    },
}

/// The state of a node when the disk was booted.
#[derive(Debug, Clone)]
pub(crate) enum Origin {
    Directory(BTreeMap<OsString, Node>),
    File(Arc<Vec<u8>>),
}

/// The changes on a disk since it was booted. Cheap to clone: bytes are shared.
#[derive(Debug, Clone)]
pub struct Journal {
    pub(crate) origins: Vec<Origin>,
    pub(crate) entries: Vec<Entry>,
    pub(crate) sector_bytes: u64,
}

impl Journal {
    pub(crate) fn new(image: &Image, sector_bytes: u64) -> Journal {
        let mut origins = Vec::new();
        number(&image.root, &mut origins);
        Journal { origins, entries: Vec::new(), sector_bytes }
    }

    /// Number of entries: the position of a power cut after all of them.
    pub fn len(&self) -> Position {
        self.entries.len() as Position
    }

    /// True when nothing has happened yet.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// Numbers a directory and its contents, parents first.
fn number(entries: &Entries, origins: &mut Vec<Origin>) -> Node {
    let node = Node(origins.len() as u32);
    origins.push(Origin::Directory(BTreeMap::new()));
    let mut names = BTreeMap::new();
    for (name, tree) in entries {
        let inner = match tree {
            Tree::Directory(entries) => number(entries, origins),
            Tree::File(bytes) => {
                origins.push(Origin::File(Arc::clone(bytes)));
                Node(origins.len() as u32 - 1)
            }
        };
        names.insert(name.clone(), inner);
    }
    origins[node.0 as usize] = Origin::Directory(names);
    node
}
