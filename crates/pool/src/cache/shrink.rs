//! Fewer frames: the pages in the last ones are written and evicted, however often they are used, while other threads
//! hit, miss and read ahead. See `frame::extent` for why no thread uses those frames again.
//!
//! Invariants:  [SHR-1] no page is lost: each leaves its frame clean, through a claim
//!              [SHR-2] it ends: with fewer frames, or with an error and as many as before
//! Rejected:    moving pages to other frames: other pages would have to be evicted for that, and a smaller pool holds
//!              fewer pages in any case.

use std::time::Duration;

use super::frame::word::{DIRTY, ORPHAN, READING, USAGE_MAX, VALID, WRITING};
use super::frame::{FrameIndex, Shrinking};
use super::{Cache, Disk};
use crate::error::Error;
use crate::observe::stats::Event;
use crate::strategy_kind::StrategyKind;

/// Pauses before pinned pages are checked again.
const PAUSE_MIN: Duration = Duration::from_micros(50);
const PAUSE_MAX: Duration = Duration::from_millis(5);

impl Cache {
    /// Empties the frames to be removed. One thread at a time.
    ///
    /// # Errors
    /// [`Error::MemoryInUse`] when none of the pages pinned there became free within the configured wait for a frame;
    /// the reason why a dirty page could not be written. The number of frames is then unchanged.
    pub(crate) fn shrink<D: Disk>(&self, disk: &D, shrinking: &Shrinking<'_>) -> Result<(), Error> {
        let (mut least, mut since, mut pause) = (usize::MAX, disk.now(), PAUSE_MIN);
        loop {
            let mut left = 0;
            for frame in shrinking.left() {
                left += usize::from(!self.vacate(disk, frame)?);
            }
            if shrinking.finish() {
                return Ok(());
            }
            if left < least {
                (least, since, pause) = (left, disk.now(), PAUSE_MIN);
            }
            let waited = disk.now().saturating_sub(since);
            if waited >= self.frame_wait {
                return Err(Error::MemoryInUse { pages: least, waited });
            }
            disk.pause(pause);
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Takes `frame` from its page, if it has one that is not pinned, and retires it.
    fn vacate<D: Disk>(&self, disk: &D, frame: FrameIndex) -> Result<bool, Error> {
        let it = self.frames.get(frame);
        let word = it.word();
        if word.pins() > 0 || word.has(READING | WRITING | ORPHAN) || !word.has(VALID) {
            return Ok(false);
        }
        if word.has(DIRTY)
            && let Some(tag) = it.tag()
            && disk.write_page(tag, frame, StrategyKind::Normal)?
        {
            disk.counters().count(StrategyKind::Normal, Event::VictimWrite);
        }
        let Some(owned) = self.claim(disk, frame, USAGE_MAX) else { return Ok(false) };
        disk.counters().count(StrategyKind::Normal, Event::Eviction);
        Ok(self.frames.retire(owned).is_none())
    }
}
