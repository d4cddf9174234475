//! The journal: everything that happened on a disk, in the order in which it took effect.
//!
//! A power cut is a position in the journal: so many entries had happened, the others had not. Each
//! change took effect at one moment, that of its entry. A sync has two: it covers what came before it
//! *began*, and promises that once it has *ended*; its entry stands at the end and names the beginning.
//!
//! Files and directories are nodes with numbers of their own. The inode of a file that is gone is
//! used again by the system; a node's number never is.
//!
//! Invariants:  [JRN-1] a node's number stands for one file or directory forever
//! Concurrency: none here; a disk appends under its lock.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::Arc;

use crate::image::{Entries, Image, Tree};
use crate::replay::Replay;

/// So many entries of a journal: those before a power cut, or before some event.
pub type Position = u64;

/// A file or directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Node(pub(crate) u32);

/// The directory that a disk is.
pub(crate) const ROOT: Node = Node(0);

/// What happened to the bytes or the size of a file.
#[derive(Debug, Clone)]
pub(crate) enum ContentEvent {
    Write {
        offset: u64,
        bytes: Arc<[u8]>,
        /// It survives whole or not at all.
        atomic: bool,
    },
    Resize {
        len: u64,
    },
    /// The file got at least this long.
    Grow {
        len: u64,
    },
}

/// What happened to the names in a directory.
#[derive(Debug, Clone)]
pub(crate) enum NameEvent {
    /// `node` is new, and got a name.
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
    /// A sync ended well: what happened to the node before `since` is durable.
    Synced {
        node: Node,
        since: Position,
    },
    /// A sync failed: what was written before `since` and not durable yet will never be.
    Dropped {
        node: Node,
        since: Position,
    },
}

/// What a node was when the disk was switched on.
#[derive(Debug, Clone)]
pub(crate) enum Origin {
    Directory(BTreeMap<OsString, Node>),
    File(Arc<Vec<u8>>),
}

/// What happened on a disk, from the moment it was switched on. Cheap to clone: bytes are shared.
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

    /// How many entries there are: the position of a power cut after everything.
    pub fn len(&self) -> Position {
        self.entries.len() as Position
    }

    /// True when nothing has happened yet.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// What happened, from the beginning: for many power cuts in the order of their positions.
    pub fn replay(&self) -> Replay<'_> {
        Replay::new(self)
    }

    /// What a power cut after `at` entries may leave. Which of all the legal states is `seed`'s choice.
    ///
    /// # Panics
    /// If there are fewer entries.
    pub fn crash(&self, at: Position, seed: u64) -> Image {
        let mut replay = self.replay();
        replay.advance_to(at);
        replay.crash(seed)
    }
}

/// Gives numbers to a directory and all it holds, parents first.
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
