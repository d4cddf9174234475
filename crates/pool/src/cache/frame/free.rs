//! Free frames: a stack, so that warm memory is used first.
//!
//! It is empty for nearly all of a pool's life, while every miss checks it first; the check is then one load.
//!
//! Invariants:  [FRM-3] a frame is freed once
//! Concurrency: any thread, without locks. The top and a count of its changes are one word, so that a frame which was
//!              taken and put back between load and exchange is detected.
//! Source:      the stack is Treiber's (IBM RJ 5118, 1986), with the counter of the same report.

use super::memory::Descriptors;
use super::word::{FrameIndex, NO_FRAME};
use crate::sync::{AtomicU64, Ordering};

/// Stored instead of the next frame in a frame that is not free.
pub(super) const TAKEN: u64 = 1 << 32;

/// Frames without an owner or a page. Each one's descriptor names the frame below it, or says [`TAKEN`].
pub(super) struct FreeList {
    /// The frame on top, or [`NO_FRAME`]; above it, in the upper half, the count of changes.
    top: AtomicU64,
    /// For callers that only need the number.
    count: std::sync::atomic::AtomicUsize,
}

impl FreeList {
    pub(super) fn empty() -> FreeList {
        FreeList { top: AtomicU64::new(u64::from(NO_FRAME)), count: 0.into() }
    }

    pub(super) fn len(&self) -> usize {
        self.count.load(std::sync::atomic::Ordering::Relaxed)
    }

    pub(super) fn push(&self, frames: &Descriptors, frame: FrameIndex) {
        let below = frames.below(frame).map(|it| it.load(Ordering::Relaxed));
        assert!(below == Some(TAKEN), "[FRM-3] frame {frame} is freed twice");
        self.push_run(frames, frame, frame + 1);
    }

    /// Frames from `first` to before `end`, which are unused: the first on top.
    pub(super) fn push_run(&self, frames: &Descriptors, first: FrameIndex, end: FrameIndex) {
        if first >= end {
            return;
        }
        let link = |frame, below: FrameIndex| {
            let it = frames.below(frame).expect("[FRM-3] a frame of this pool is freed");
            it.store(u64::from(below), Ordering::Relaxed);
        };
        self.count.fetch_add((end - first) as usize, std::sync::atomic::Ordering::Relaxed);
        (first + 1..end).for_each(|below| link(below - 1, below));
        self.change(|top| {
            link(end - 1, top);
            Some(first)
        });
    }

    pub(super) fn pop(&self, frames: &Descriptors) -> Option<FrameIndex> {
        // The frame may have been taken, and be changing, at this moment: then the top has changed too.
        let frame =
            self.change(|top| Some(frames.below(top)?.load(Ordering::Relaxed) as FrameIndex))?;
        frames.below(frame)?.store(TAKEN, Ordering::Relaxed);
        self.count.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
        Some(frame)
    }

    /// Replaces the top by the result of `next` until the exchange succeeds or `next` refuses; returns the old top.
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
            // Release: a thread that takes a frame sees the last owner's changes to it.
            match self.top.compare_exchange_weak(now, changed, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => return Some(top),
                Err(other) => now = other,
            }
        }
    }
}
