//! More or less memory for pages, while the pool is in use.
//!
//! Frames are the first of those for which addresses were reserved when the pool was built, so an existing frame never
//! moves. See `cache::shrink` for how the last ones are emptied, and docs/adr/0023-memory-given-back.md.

use std::ops::Range;

use super::cleaner::clean;
use crate::cache::frame::FrameIndex;
use crate::cache::frame::word::DIRTY;
use crate::core::Core;
use crate::error::Error;
use crate::sync::lock;

/// Frames whose dirty pages are written together, in the disk's order.
const CLEANED_TOGETHER: usize = 1 << 16;

impl Core {
    /// Shrinks or grows the pool to `frames` frames. Returns the bytes of memory that were returned to the system.
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
        // Look-ahead requests no more than the smaller pool allows, or it would hold frames that must be removed.
        self.budget.set_frames(frames);
        let shrinking = self.cache.frames.begin_shrink(frames);
        let shrunk = self.clean_all(shrinking.frames());
        let shrunk = shrunk.and_then(|()| self.cache.shrink(self, &shrinking));
        if let Err(error) = shrunk {
            self.budget.set_frames(present);
            return Err(error);
        }
        Ok(self.memory.give_back(frames..present))
    }

    /// Writes pages in large requests that would otherwise be written one by one.
    fn clean_all(&self, frames: Range<FrameIndex>) -> Result<(), Error> {
        for first in frames.clone().step_by(CLEANED_TOGETHER) {
            let together =
                first..frames.end.min(first.saturating_add(CLEANED_TOGETHER as FrameIndex));
            let all = together.map(|number| (number, self.cache.frames.get(number)));
            let dirty = all.filter(|(_, frame)| frame.word().has(DIRTY));
            let dirty = dirty.filter_map(|(number, frame)| Some((frame.tag()?, number)));
            clean(self, dirty.collect(), Err)?;
        }
        Ok(())
    }
}
