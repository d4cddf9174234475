//! The state of one node of a disk: what is durable, and the changes since then.

use std::collections::BTreeMap;
use std::ffi::OsString;

use crate::journal::{ContentEvent, NameEvent, Node, Position};

/// A directory.
#[derive(Debug, Default)]
pub(crate) struct Names {
    pub(crate) durable: BTreeMap<OsString, Node>,
    pub(crate) pending: Vec<(Position, NameEvent)>,
}

/// A file.
#[derive(Debug, Default)]
pub(crate) struct Content {
    pub(crate) durable: Vec<u8>,
    pub(crate) pending: Vec<(Position, ContentEvent)>,
}

impl Names {
    pub(crate) fn synced(&mut self, since: Position) {
        let covered = self.pending.partition_point(|(position, _)| *position < since);
        for (_, event) in self.pending.drain(..covered) {
            apply_name(&mut self.durable, &event);
        }
    }
}

/// Applies a change of names. A node has one name, so a node that is linked or renamed loses its previous name, if it
/// has one in this state.
pub(crate) fn apply_name(names: &mut BTreeMap<OsString, Node>, event: &NameEvent) {
    match event {
        NameEvent::Link { name, node, .. } => {
            names.insert(name.clone(), *node);
        }
        NameEvent::Unlink { name } => {
            names.remove(name);
        }
        NameEvent::Rename { to, node, .. } => {
            names.retain(|_, named| named != node);
            names.insert(to.clone(), *node);
        }
    }
}

impl Content {
    pub(crate) fn synced(&mut self, since: Position) {
        let covered = self.pending.partition_point(|(position, _)| *position < since);
        for (_, event) in self.pending.drain(..covered) {
            apply_content(&mut self.durable, &event);
        }
    }

    /// Discards writes before `since`. The sizes that they gave the file stay: sizes are in the inode, not in the pages
    /// that the kernel has dropped.
    pub(crate) fn dropped(&mut self, since: Position) {
        for (position, event) in &mut self.pending {
            if let ContentEvent::Write { offset, bytes, .. } = event
                && *position < since
            {
                *event = ContentEvent::Grow { len: *offset + bytes.len() as u64 };
            }
        }
    }
}

/// Applies a change of a file. Bytes that it gains without a write are zero.
pub(crate) fn apply_content(content: &mut Vec<u8>, event: &ContentEvent) {
    match event {
        ContentEvent::Write { offset, bytes, .. } => {
            grow(content, offset + bytes.len() as u64);
            content[*offset as usize..][..bytes.len()].copy_from_slice(bytes);
        }
        ContentEvent::Resize { len } => content.resize(*len as usize, 0),
        ContentEvent::Grow { len } => grow(content, *len),
    }
}

/// Makes `content` at least `len` bytes long.
pub(crate) fn grow(content: &mut Vec<u8>, len: u64) {
    if content.len() < len as usize {
        content.resize(len as usize, 0);
    }
}
