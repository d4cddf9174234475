//! Access strategies: what a scan is about to do, and the ring of frames that it uses.
//!
//! A scan of a large table uses each page once. If its pages competed for the whole pool, they would evict all other
//! pages. So it gets a few private frames and reuses them in turn: the first turn takes them from the pool, and no scan
//! takes more than its ring holds.
//!
//! A frame of the ring that another thread uses as well (it is pinned, or used more than once) is left to the pool, and
//! another frame replaces it in the ring.
//!
//! Invariants:  [RNG-1] a ring reuses a frame only for the page that it put there
//! Concurrency: one scan may run on several threads; they share the ring.
//! Source:      PostgreSQL's buffer/freelist.c: the kinds, and a ring at most an eighth of the
//!              pool. Sizes: 256 KiB for reading and maintenance (fits the processor's cache), 16 MiB
//!              for writing (so that the log is flushed less often).

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::cache::frame::FrameIndex;
use crate::strategy_kind::StrategyKind;
use crate::tag::PageTag;

/// A ring may take one frame in this many.
const POOL_SHARE: usize = 8;

/// The use of pages by one scan, and the frames it reuses. Created by
/// [`BufferPool::strategy`](crate::BufferPool::strategy), a new one for each scan: its ring belongs to that scan, on
/// however many threads it runs.
#[derive(Debug)]
pub struct AccessStrategy {
    kind: StrategyKind,
    ring: Option<Mutex<Ring>>,
}

#[derive(Debug)]
struct Ring {
    slots: Vec<Option<(FrameIndex, PageTag)>>,
    next: usize,
}

/// A place in a ring, for the page that is about to be loaded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RingSlot {
    place: usize,
    /// The previous frame and page in this place.
    pub(crate) last: Option<(FrameIndex, PageTag)>,
}

impl AccessStrategy {
    /// No ring: pages compete for the whole pool.
    pub(crate) const NORMAL: AccessStrategy =
        AccessStrategy { kind: StrategyKind::Normal, ring: None };

    pub(crate) fn new(
        kind: StrategyKind,
        ring_bytes: Option<u64>,
        page_bytes: usize,
        frames: usize,
    ) -> AccessStrategy {
        if kind == StrategyKind::Normal {
            return AccessStrategy::NORMAL;
        }
        let pages = ring_bytes.unwrap_or(usual_ring_bytes(kind)) / page_bytes as u64;
        let most = (frames / POOL_SHARE).max(1);
        let slots = usize::try_from(pages).unwrap_or(most).clamp(1, most);
        let ring = Ring { slots: vec![None; slots], next: 0 };
        AccessStrategy { kind, ring: Some(Mutex::new(ring)) }
    }

    /// As [`AccessStrategy::new`], with a ring of the usual size or, if that is more, of `ring_bytes`.
    pub(crate) fn covering(
        kind: StrategyKind,
        ring_bytes: u64,
        page_bytes: usize,
        frames: usize,
    ) -> AccessStrategy {
        let bytes = ring_bytes.max(usual_ring_bytes(kind));
        AccessStrategy::new(kind, Some(bytes), page_bytes, frames)
    }

    /// The kind of scan.
    #[inline]
    pub fn kind(&self) -> StrategyKind {
        self.kind
    }

    /// Frames in the ring; `None` without one.
    pub fn ring_frames(&self) -> Option<usize> {
        self.ring.as_ref().map(|ring| locked(ring).slots.len())
    }

    /// The next place of the ring.
    pub(crate) fn next_slot(&self) -> Option<RingSlot> {
        let mut ring = locked(self.ring.as_ref()?);
        let place = ring.next;
        ring.next = (place + 1) % ring.slots.len();
        // Taken, so that two threads of one scan never reuse the same frame.
        let last = ring.slots[place].take();
        Some(RingSlot { place, last })
    }

    /// Records that the ring's place now has this page.
    pub(crate) fn fill_slot(&self, slot: RingSlot, frame: FrameIndex, tag: PageTag) {
        if let Some(ring) = &self.ring {
            locked(ring).slots[slot.place] = Some((frame, tag));
        }
    }
}

fn usual_ring_bytes(kind: StrategyKind) -> u64 {
    match kind {
        StrategyKind::Normal => 0,
        StrategyKind::BulkRead | StrategyKind::Maintenance => 256 << 10,
        StrategyKind::BulkWrite => 16 << 20,
    }
}

fn locked(ring: &Mutex<Ring>) -> MutexGuard<'_, Ring> {
    // Each change is one assignment, so a poisoned ring is still consistent.
    ring.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tag::FileId;

    const TAG: PageTag = PageTag { file: FileId(1), block: 9 };

    #[test]
    fn a_ring_is_at_most_an_eighth_of_the_pool_and_at_least_one_frame() {
        let frames = |kind, pool| AccessStrategy::new(kind, None, 8192, pool).ring_frames();
        assert_eq!(frames(StrategyKind::Normal, 1000), None);
        assert_eq!(frames(StrategyKind::BulkRead, 100_000), Some(32));
        assert_eq!(frames(StrategyKind::BulkWrite, 100_000), Some(2048));
        assert_eq!(frames(StrategyKind::Maintenance, 80), Some(10));
        assert_eq!(frames(StrategyKind::BulkRead, 4), Some(1));
    }

    #[test]
    fn rng_1_a_place_gives_back_what_was_put_there_a_turn_ago() {
        let strategy = AccessStrategy::new(StrategyKind::BulkRead, Some(2 * 4096), 4096, 100);
        let first = strategy.next_slot().unwrap();
        assert_eq!(first.last, None);
        strategy.fill_slot(first, 7, TAG);
        assert_eq!(strategy.next_slot().unwrap().last, None);
        assert_eq!(strategy.next_slot().unwrap().last, Some((7, TAG)));
        // Until it is filled again, no other thread is offered the same frame.
        strategy.next_slot();
        assert_eq!(strategy.next_slot().unwrap().last, None);
    }
}
