//! Inodes of the mount: the server's own, and those of the files that are placed on the device.

use std::ffi::OsStr;

use fuser::{FileAttr, FileType, INodeNo};

use super::control::ControlFile;
use crate::files::{self, Attributes, Owner, Times};
use crate::scheduler::Date;

const DISK: u64 = 2;
const CONTROL_DIRECTORY: u64 = 3;
/// The first of the control files, in the order of [`ControlFile::ALL`].
const CONTROL_FILES: u64 = 4;

/// Block size that `stat` reports.
pub(super) const BLOCK_BYTES: u32 = 4096;

/// Names in the root that belong to the server.
pub(super) const RESERVED: &[&str] = &["disk", ".forebay"];

/// The meaning of an inode number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Node {
    Disk,
    ControlDirectory,
    Control(ControlFile),
    /// The root directory, or an inode made below it.
    Placed(u64),
}

impl Node {
    pub(super) fn of(number: INodeNo) -> Node {
        let control = number.0.checked_sub(CONTROL_FILES);
        let control = control.and_then(|index| ControlFile::ALL.get(index as usize));
        match (number.0, control) {
            (DISK, _) => Node::Disk,
            (CONTROL_DIRECTORY, _) => Node::ControlDirectory,
            (_, Some(file)) => Node::Control(*file),
            (number, None) => Node::Placed(number),
        }
    }

    pub(super) fn number(self) -> u64 {
        match self {
            Node::Disk => DISK,
            Node::ControlDirectory => CONTROL_DIRECTORY,
            Node::Control(file) => {
                let index = ControlFile::ALL.iter().position(|one| *one == file);
                CONTROL_FILES + index.unwrap_or_default() as u64
            }
            Node::Placed(number) => number,
        }
    }

    /// The server's own inode with that name in `directory`.
    pub(super) fn named(directory: Node, name: &OsStr) -> Option<Node> {
        match directory {
            Node::Placed(files::ROOT) if name == "disk" => Some(Node::Disk),
            Node::Placed(files::ROOT) if name == ".forebay" => Some(Node::ControlDirectory),
            Node::ControlDirectory => {
                let found = ControlFile::ALL.into_iter().find(|file| name == file.name());
                found.map(Node::Control)
            }
            _ => None,
        }
    }
}

/// Attributes of the server's own inodes.
pub(super) fn own_attributes(
    node: Node,
    size_bytes: u64,
    owner: Owner,
    mounted: Date,
) -> Attributes {
    let directory = node == Node::ControlDirectory;
    let held_bytes = if node == Node::Disk { size_bytes } else { 0 };
    Attributes {
        inode: node.number(),
        directory,
        size_bytes: held_bytes,
        held_bytes,
        links: 1 + u32::from(directory),
        mode: if directory { 0o700 } else { 0o600 },
        owner,
        times: Times { accessed: mounted, modified: mounted, changed: mounted },
    }
}

pub(super) fn kind(directory: bool) -> FileType {
    if directory { FileType::Directory } else { FileType::RegularFile }
}

/// Converts attributes to the kernel's form.
pub(super) fn to_fuse(attributes: &Attributes) -> FileAttr {
    FileAttr {
        ino: INodeNo(attributes.inode),
        size: attributes.size_bytes,
        blocks: attributes.held_bytes / 512,
        atime: attributes.times.accessed,
        mtime: attributes.times.modified,
        ctime: attributes.times.changed,
        crtime: attributes.times.changed,
        kind: kind(attributes.directory),
        perm: attributes.mode,
        nlink: attributes.links,
        uid: attributes.owner.user,
        gid: attributes.owner.group,
        rdev: 0,
        blksize: BLOCK_BYTES,
        flags: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_inode_has_a_unique_number() {
        let mut nodes = vec![Node::Disk, Node::ControlDirectory, Node::Placed(1), Node::Placed(64)];
        nodes.extend(ControlFile::ALL.map(Node::Control));
        for node in nodes {
            assert_eq!(Node::of(INodeNo(node.number())), node);
        }
    }
}
