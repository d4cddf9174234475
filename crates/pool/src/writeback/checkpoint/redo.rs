//! The number of the redo point: which checkpoint's log a write of a page belongs to.
//!
//! Recovery begins at a redo point, so what a torn page is repaired from has to be in the log after
//! it. "Has this page's image been logged since the redo point?" is answered by number: each page's
//! newest image is remembered with the number that was current when the page's write began.
//!
//! A checkpoint takes the log's position *first* and counts up *then*, so that an image logged under
//! the new number is after the new redo point. It counts up *before* it looks at the frames, and a
//! writer sets WRITING in its frame *before* it reads the number. So one of the two sees the other:
//! a writer that used the old number is seen as WRITING and waited for, and a writer that is not seen
//! uses the new one.
//!
//! Invariants:  [RDO-1] a write that goes by an old number has WRITING set when the checkpoint that
//!              counted up looks at its frame
//! Concurrency: any thread reads; one checkpoint at a time counts up.

use crate::sync::{AtomicU64, Ordering, fence};

/// The number of the newest redo point that a checkpoint has begun from; 0 before the first.
#[derive(Debug)]
pub(crate) struct RedoPoint {
    number: AtomicU64,
}

impl RedoPoint {
    pub(crate) fn new() -> RedoPoint {
        RedoPoint { number: AtomicU64::new(0) }
    }

    /// A checkpoint begins whose redo point has been taken from the log already, and which has not
    /// looked at any frame yet. Gives its number.
    pub(crate) fn begin(&self) -> u64 {
        let number = self.number.fetch_add(1, Ordering::SeqCst) + 1;
        // [RDO-1] With its counterpart in `now`: the store before the looks at the frames.
        fence(Ordering::SeqCst);
        number
    }

    /// The number to write a page by whose frame says WRITING already.
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
    fn rdo_1_each_checkpoint_has_a_number_of_its_own() {
        let redo = RedoPoint::new();
        assert_eq!(redo.now(), 0, "[RDO-1]");
        assert_eq!((redo.begin(), redo.now()), (1, 1), "[RDO-1]");
        assert_eq!((redo.begin(), redo.now()), (2, 2), "[RDO-1]");
    }
}
