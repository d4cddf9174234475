//! Identifiers: files, blocks, page tags and log positions.
//!
//! A tag fits in 64 bits, so that a frame's tag is read and written in one atomic access.

use std::fmt;

/// A file that a pool has opened. Numbers are not reused while the pool lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub(crate) u32);

impl FileId {
    /// Returns the number itself.
    pub fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for FileId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

pub use forebay_lookahead::Block;

/// The identity of a page: its file and its block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct PageTag {
    pub(crate) file: FileId,
    /// The position in it, in pages.
    pub(crate) block: Block,
}

impl PageTag {
    #[inline]
    pub(crate) const fn to_bits(self) -> u64 {
        (self.file.0 as u64) << 32 | self.block as u64
    }

    #[inline]
    pub(crate) const fn from_bits(bits: u64) -> PageTag {
        PageTag { file: FileId((bits >> 32) as u32), block: bits as u32 }
    }
}

impl fmt::Display for PageTag {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "file {} block {}", self.file, self.block)
    }
}

/// A position in the write-ahead log. The pool compares positions, and uses the difference of two as bytes of log where
/// checkpoints depend on that; their other meaning is up to the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Lsn(pub u64);

impl Lsn {
    /// Before any record: a change that is not in the log.
    pub const NONE: Lsn = Lsn(0);
}

impl fmt::Display for Lsn {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_survives_its_bits() {
        for (file, block) in [(0, 0), (1, u32::MAX), (u32::MAX, 1)] {
            let tag = PageTag { file: FileId(file), block };
            assert_eq!(PageTag::from_bits(tag.to_bits()), tag);
        }
    }
}
