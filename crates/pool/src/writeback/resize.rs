//! More or less memory for pages, while the pool serves.
//!
//! Frames are the first of those that addresses were set aside for when the pool was built, so one that exists never
//! moves. See `cache::shrink` for how the last ones are emptied, and docs/adr/0023-memory-given-back.md.

use super::cleaner::clean;
use crate::cache::frame::word::DIRTY;
use crate::core::Core;
use crate::error::Error;
use crate::sync::lock;

/// Frames whose dirty pages are written together, in the disk's order.
const CLEANED_TOGETHER: usize = 1 << 16;

impl Core {
    /// Makes do with `frames` frames, or has as many. Gives the bytes of memory that went back to the system.
    pub(crate) fn resize(&self, frames: usize) -> Result<u64, Error> {
        let _right = lock(&self.resize);
        let present = self.cache.frames.len();
        if frames > present {
            self.memory.grow(frames)?;
            self.cache.frames.grow(frames);
            self.budget.set_frames(frames);
        }
        if frames >= present {
            return Ok(0);
        }
        // In large writes what would else go page by page; what cannot be written, the other way will tell.
        for first in (frames..present).step_by(CLEANED_TOGETHER) {
            let together = self.cache.frames.iter().skip(first).take(CLEANED_TOGETHER);
            let dirty = together.filter(|(_, frame)| frame.word().has(DIRTY));
            clean(self, dirty.filter_map(|(number, frame)| Some((frame.tag()?, number))).collect());
        }
        self.cache.shrink(self, frames)?;
        self.budget.set_frames(frames);
        Ok(self.memory.give_back(frames..present))
    }
}
