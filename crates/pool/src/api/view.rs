//! The debug view: the page in each frame, and how it is pinned.

use std::fmt;

use crate::cache::frame::word::{DIRTY, EXCLUSIVE, ORPHAN, READING, VALID, WRITING};
use crate::core::Core;
use crate::tag::{Block, FileId, Lsn};

/// One frame at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FrameView {
    /// The frame's number.
    pub frame: u32,
    /// The file whose page it holds.
    pub file: FileId,
    /// The file's name in its tablespace; empty when the file is dropped or closed.
    pub name: String,
    /// The block.
    pub block: Block,
    /// Pins, except for that of a queue that is reading the page.
    pub pins: u64,
    /// Threads that have it latched shared.
    pub shared: u64,
    /// Latched exclusively.
    pub exclusive: bool,
    /// Newer than on disk.
    pub dirty: bool,
    /// Being read.
    pub reading: bool,
    /// A copy of it is being written.
    pub writing: bool,
    /// Recent uses, 0 to 5.
    pub usage: u64,
    /// The newest logged change since it was clean.
    pub lsn: Lsn,
    /// Dropped or truncated, and kept only by its pins.
    pub orphan: bool,
}

pub(crate) fn of(core: &Core) -> Vec<FrameView> {
    let frames = core.cache.frames.iter().filter_map(|(number, frame)| {
        let (word, tag) = (frame.word(), frame.tag()?);
        let here = word.has(VALID | READING | ORPHAN);
        here.then(|| FrameView {
            frame: number,
            file: tag.file,
            name: core.files.get(tag.file).map_or_else(String::new, |file| file.name.clone()),
            block: tag.block,
            pins: word.holders(),
            shared: word.shared(),
            exclusive: word.has(EXCLUSIVE) && !word.has(READING),
            dirty: word.has(DIRTY),
            reading: word.has(READING),
            writing: word.has(WRITING) && !word.has(READING),
            usage: word.usage(),
            lsn: if word.has(DIRTY) { frame.lsn() } else { Lsn::NONE },
            orphan: word.has(ORPHAN),
        })
    });
    frames.collect()
}

impl fmt::Display for FrameView {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.name.is_empty() { "(removed)" } else { &self.name };
        write!(out, "frame {}: {name} block {}, {} pins", self.frame, self.block, self.pins)?;
        if self.shared > 0 {
            write!(out, ", latched shared by {}", self.shared)?;
        }
        write!(out, ", used {} times recently", self.usage)?;
        let marks = [
            (self.exclusive, "latched exclusively"),
            (self.dirty, "dirty"),
            (self.reading, "being read"),
            (self.writing, "being written"),
            (self.orphan, "no longer in its file"),
        ];
        marks.iter().filter(|(on, _)| *on).try_for_each(|(_, mark)| write!(out, ", {mark}"))
    }
}
