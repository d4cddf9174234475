//! Free frames: a stack, so that warm memory is used first.
//!
//! It is empty for nearly all of a pool's life, while every miss asks it first; asking is then one load.
//!
//! Invariants:  [FRM-3] a frame is freed once
//! Concurrency: any thread, without locks. The top and a count of its changes are one word, so that a frame which
//!              went and came back between look and change is not taken for one that stayed.
//! Source:      the stack is Treiber's (IBM RJ 5118, 1986), with the counter of the same report.

use super::word::{FrameIndex, NO_FRAME};
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Stands for the frame below one that is not free.
const TAKEN: FrameIndex = NO_FRAME - 1;

/// Frames that nobody owns and no page uses.
pub(super) struct FreeList {
    /// The frame on top, or [`NO_FRAME`]; above it, in the upper half, the count of changes.
    top: AtomicU64,
    /// By frame: the one below it, or [`TAKEN`].
    below: Box<[AtomicU32]>,
    /// For whoever only wants to know.
    count: std::sync::atomic::AtomicUsize,
}

impl FreeList {
    /// All of `count` frames, the first on top.
    pub(super) fn all(count: FrameIndex) -> FreeList {
        let below = (1..count).chain([NO_FRAME]).map(AtomicU32::new).collect();
        FreeList { top: AtomicU64::new(0), below, count: (count as usize).into() }
    }

    pub(super) fn len(&self) -> usize {
        self.count.load(std::sync::atomic::Ordering::Relaxed)
    }

    pub(super) fn push(&self, frame: FrameIndex) {
        let below = self.below[frame as usize].load(Ordering::Relaxed);
        assert!(below == TAKEN, "[FRM-3] frame {frame} is freed twice");
        self.count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.change(|top| {
            self.below[frame as usize].store(top, Ordering::Relaxed);
            Some(frame)
        });
    }

    pub(super) fn pop(&self) -> Option<FrameIndex> {
        // It may have been taken, and be changed, at this moment: then the top has changed too.
        let frame =
            self.change(|top| Some(self.below.get(top as usize)?.load(Ordering::Relaxed)))?;
        self.below[frame as usize].store(TAKEN, Ordering::Relaxed);
        self.count.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
        Some(frame)
    }

    /// Puts what `next` makes of the top in its place until that sticks or says no; gives the old top.
    fn change(&self, next: impl Fn(FrameIndex) -> Option<FrameIndex>) -> Option<FrameIndex> {
        let mut now = if cfg!(loom) {
            // See `Frame::guess`.
            self.top.fetch_or(0, Ordering::Acquire)
        } else {
            self.top.load(Ordering::Acquire)
        };
        loop {
            let top = now as FrameIndex;
            let changed = ((now >> 32) + 1) << 32 | u64::from(next(top)?);
            // Release: whoever takes a frame sees what the last owner did to it.
            match self.top.compare_exchange_weak(now, changed, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => return Some(top),
                Err(other) => now = other,
            }
        }
    }
}
