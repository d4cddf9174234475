//! The debug view: what is in each frame, and who has it.

use std::fmt;

use crate::cache::frame::word::{DIRTY, EXCLUSIVE, ORPHAN, READING, VALID, WRITING};
use crate::core::Core;
use crate::tag::{Block, FileId, Lsn};

/// How a page is latched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LatchView {
    /// Not at all.
    Free,
    /// By this many readers.
    Shared(u64),
    /// By one writer.
    Exclusive,
}

/// What a page's frame is doing with the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IoView {
    /// Nothing.
    None,
    /// The page is on its way in.
    Reading,
    /// A copy of the page is on its way out.
    Writing,
}

/// One frame at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FrameView {
    /// The frame's number.
    pub frame: u32,
    /// The file whose page it holds.
    pub file: FileId,
    /// The file's name in its tablespace; empty when the file is gone.
    pub name: String,
    /// The block.
    pub block: Block,
    /// Pins, but for that of a queue that is reading the page.
    pub pins: u64,
    /// Latch.
    pub latch: LatchView,
    /// Newer than on disk.
    pub dirty: bool,
    /// I/O under way.
    pub io: IoView,
    /// Recent uses, 0 to 5.
    pub usage: u64,
    /// The newest logged change since it was clean.
    pub lsn: Lsn,
    /// Dropped or truncated away, and kept only by its pins.
    pub orphan: bool,
}

pub(crate) fn of(core: &Core) -> Vec<FrameView> {
    let frames = core.cache.frames.iter().filter_map(|(number, frame)| {
        let (word, tag) = (frame.word(), frame.tag()?);
        let here = word.has(VALID | READING | ORPHAN);
        let latch = match word.shared() {
            0 if word.has(EXCLUSIVE) && !word.has(READING) => LatchView::Exclusive,
            0 => LatchView::Free,
            readers => LatchView::Shared(readers),
        };
        let io = if word.has(READING) {
            IoView::Reading
        } else if word.has(WRITING) {
            IoView::Writing
        } else {
            IoView::None
        };
        here.then(|| FrameView {
            frame: number,
            file: tag.file,
            name: core.files.get(tag.file).map_or_else(String::new, |file| file.name.clone()),
            block: tag.block,
            pins: word.holders(),
            latch,
            dirty: word.has(DIRTY),
            io,
            usage: word.usage(),
            lsn: frame.lsn(),
            orphan: word.has(ORPHAN),
        })
    });
    frames.collect()
}

impl fmt::Display for FrameView {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.name.is_empty() { "(gone)" } else { &self.name };
        write!(out, "frame {}: {name} block {}, {} pins", self.frame, self.block, self.pins)?;
        match self.latch {
            LatchView::Free => {}
            LatchView::Shared(readers) => write!(out, ", latched shared by {readers}")?,
            LatchView::Exclusive => out.write_str(", latched exclusively")?,
        }
        write!(out, ", used {} times lately", self.usage)?;
        let marks = [
            (self.dirty, "dirty"),
            (self.io == IoView::Reading, "being read"),
            (self.io == IoView::Writing, "being written"),
            (self.orphan, "no longer in its file"),
        ];
        marks.iter().filter(|(on, _)| *on).try_for_each(|(_, mark)| write!(out, ", {mark}"))
    }
}
