//! The number of the redo point: it says to which checkpoint's log a write of a page belongs.
//!
//! Recovery starts at a redo point, so the image that repairs a torn page must be in the log after it. Whether a page's
//! image has been logged since the redo point is determined by number: each page's newest image is recorded with the
//! number that was current when the page's write began.
//!
//! A checkpoint reads the log's position *first* and increments the number *then*, so that an image logged under the
//! new number is after the new redo point. It increments *before* it scans the frames, and a writer sets WRITING in its
//! frame *before* it reads the number. So one of the two sees the other: a writer that used the old number is seen as
//! WRITING and waited for, and a writer that is not seen uses the new one.
//!
//! Invariants:  [RDO-1] a write that uses an old number has WRITING set when the checkpoint that incremented the number
//!              scans its frame
//! Concurrency: any thread reads; one checkpoint at a time increments.

use crate::sync::{AtomicU64, Ordering, fence};

/// The number of the newest redo point from which a checkpoint has started; 0 before the first.
#[derive(Debug)]
pub(crate) struct RedoPoint {
    number: AtomicU64,
}

impl RedoPoint {
    pub(crate) fn new() -> RedoPoint {
        RedoPoint { number: AtomicU64::new(0) }
    }

    /// A checkpoint starts: its redo point has already been read from the log, and it has not scanned any frame yet.
    /// Returns its number.
    pub(crate) fn begin(&self) -> u64 {
        let number = self.number.fetch_add(1, Ordering::SeqCst) + 1;
        // [RDO-1] Paired with the one in `now`: the store precedes the scan of the frames.
        fence(Ordering::SeqCst);
        number
    }

    /// The number for a write of a page whose frame already has WRITING set.
    pub(crate) fn now(&self) -> u64 {
        // [RDO-1] WRITING before the load.
        fence(Ordering::SeqCst);
        self.number.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(any(loom, shuttle), ignore = "outside a model")]
    fn rdo_1_each_checkpoint_has_a_separate_number() {
        let redo = RedoPoint::new();
        assert_eq!(redo.now(), 0, "[RDO-1]");
        assert_eq!((redo.begin(), redo.now()), (1, 1), "[RDO-1]");
        assert_eq!((redo.begin(), redo.now()), (2, 2), "[RDO-1]");
    }
}
