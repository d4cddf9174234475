//! The number of frames, which can grow and shrink while the pool is in use.
//!
//! The frames of a pool are numbered up to the maximum that it may ever have; those in use are the first ones. Added
//! frames go on the free list. To remove the last ones, they are no longer handed out; each is *retired* when its page
//! has left it (`cache::shrink` does that), and when all of them are, the pool has that many fewer. Until then the
//! shrink may be cancelled, and the retired frames are handed out again.
//!
//! A thread that takes a frame off the free list records that in its descriptor, checks whether the frame is still
//! handed out, and retires it if not. So a frame that is found on the list after the bound was lowered is as good as
//! retired, and the list stays as it is: no miss finds it empty because the pool shrinks. A thread that checked a
//! moment too early uses the frame for a page, and the shrinking thread finds that page on its next pass.
//!
//! Invariants:  [EXT-1] `usable <= len <= most`; every page is in a frame below `len`; a thread that scans all frames
//!              for dirty pages scans those
//!              [EXT-2] from `len` on, a frame is retired, or on the free list, or held by a thread that is about to
//!              retire it; it holds no page until it is handed out again
//! Concurrency: one thread at a time grows or shrinks; all others allocate, free and read meanwhile. Frames are
//!              retired, and the bounds moved, under one lock, which a thread that gets a frame never takes.
//! Rejected:    emptying the list and putting back the frames that stay: misses would evict pages meanwhile, with
//! memory free.

use std::ops::Range;

use super::free::TAKEN;
use super::memory::DESCRIPTOR_BYTES;
use super::word::{FrameIndex, OWNED};
use super::{CHANGING, Frames, NO_TAG, Owned};
use crate::sync::{AtomicU64, Mutex, Ordering, fence, lock};

/// Stored instead of the next frame: this one is not handed out.
const RETIRED: u64 = 2 << 32;

pub(super) struct Extent {
    /// Frames that may hold pages.
    len: AtomicU64,
    /// Frames that are handed out: fewer than `len` while the pool shrinks.
    usable: AtomicU64,
    /// Frames that have ever been in use; the descriptors of the others are zeroes, and use no memory.
    begun: Mutex<usize>,
}

impl Extent {
    /// No frames.
    pub(super) fn none() -> Extent {
        let none = || AtomicU64::new(0);
        Extent { len: none(), usable: none(), begun: Mutex::new(0) }
    }
}

impl Frames {
    /// Frames that may hold pages.
    pub(crate) fn len(&self) -> usize {
        self.extent.len.load(Ordering::Acquire) as usize
    }

    /// Frames that are handed out to pages.
    #[inline]
    pub(crate) fn usable(&self) -> usize {
        self.extent.usable.load(Ordering::Acquire) as usize
    }

    /// The maximum number of frames.
    pub(crate) fn most(&self) -> usize {
        self.frames.len()
    }

    /// Bytes of bookkeeping used by all frames that have ever been in use.
    pub(crate) fn memory_bytes(&self) -> usize {
        *lock(&self.extent.begun) * DESCRIPTOR_BYTES
    }

    /// Frames that can be taken from the free list now.
    pub(crate) fn free_count(&self) -> usize {
        (0..self.usable() as FrameIndex).filter(|frame| self.place(*frame) < TAKEN).count()
    }

    /// Sets the number of frames to `count`, which is more than the current number and at most [`Frames::most`].
    pub(crate) fn grow(&self, count: usize) {
        let mut begun = lock(&self.extent.begun);
        let present = self.len();
        assert!(present < count && count <= self.most(), "[EXT-1] from {present} to {count}");
        for frame in *begun as FrameIndex..count as FrameIndex {
            let it = self.get(frame);
            it.word.store(OWNED.0, Ordering::Relaxed);
            it.tag.store(NO_TAG, Ordering::Relaxed);
            it.version.store(CHANGING, Ordering::Relaxed);
            self.below(frame).store(RETIRED, Ordering::Relaxed);
        }
        *begun = count.max(*begun);
        // Before any of them can hold a page ([EXT-1]).
        self.extent.len.store(count as u64, Ordering::Release);
        self.hand_out(present, count);
    }

    /// Hands out frames up to `count`; of those from `first` on, the ones that are not retired are on the free list, or
    /// in use.
    fn hand_out(&self, first: usize, count: usize) {
        self.extent.usable.store(count as u64, Ordering::Release);
        let mut end = count as FrameIndex;
        for frame in (first as FrameIndex..end).rev() {
            if self.place(frame) != RETIRED {
                self.free.push_run(&self.frames, frame + 1, end);
                end = frame;
            }
        }
        self.free.push_run(&self.frames, first as FrameIndex, end);
    }

    /// Stops handing out frames from `count` on, which is fewer than there are, while the result lives, or until it has
    /// [finished](Shrinking::finish).
    pub(crate) fn begin_shrink(&self, count: usize) -> Shrinking<'_> {
        let _begun = lock(&self.extent.begun);
        let (len, usable) = (self.len(), self.usable());
        assert!(count < len && usable == len, "[EXT-1] to {count} of {usable} of {len}");
        self.extent.usable.store(count as u64, Ordering::Release);
        // Paired with the one in `take_free`: a thread that does not see this bound has been seen with the frame.
        fence(Ordering::SeqCst);
        Shrinking { frames: self }
    }

    /// Retires a frame that is not handed out any more; returns it if it is handed out again.
    #[cold]
    pub(crate) fn retire<'a>(&'a self, owned: Owned<'a>) -> Option<Owned<'a>> {
        let _begun = lock(&self.extent.begun);
        // Changed under the lock only, so the value read here is stable.
        if (owned.frame as usize) < self.usable() {
            return Some(owned);
        }
        let before = self.below(owned.frame).swap(RETIRED, Ordering::Relaxed);
        assert!(before == TAKEN, "[EXT-2] frame {} is retired twice", owned.frame);
        std::mem::forget(owned);
        None
    }

    fn below(&self, frame: FrameIndex) -> &AtomicU64 {
        self.frames.below(frame).expect("[EXT-1] a frame of this pool")
    }

    /// The next frame in the free list, [`TAKEN`] or [`RETIRED`].
    fn place(&self, frame: FrameIndex) -> u64 {
        self.below(frame).load(Ordering::Relaxed)
    }
}

/// A pool that is shrinking. If this is dropped before it has finished, the size is unchanged.
#[must_use]
pub(crate) struct Shrinking<'a> {
    frames: &'a Frames,
}

impl Shrinking<'_> {
    /// The frames to be retired.
    pub(crate) fn frames(&self) -> Range<FrameIndex> {
        self.frames.usable() as FrameIndex..self.frames.len() as FrameIndex
    }

    /// Those of them that are in use or hold a page. A frame only enters this state in order to be retired.
    pub(crate) fn left(&self) -> impl Iterator<Item = FrameIndex> + '_ {
        self.frames().filter(|frame| self.frames.place(*frame) == TAKEN)
    }

    /// True if none are left: then the pool has that many fewer.
    pub(crate) fn finish(&self) -> bool {
        let none = self.left().next().is_none();
        if none {
            let usable = self.frames.extent.usable.load(Ordering::Relaxed);
            self.frames.extent.len.store(usable, Ordering::Release);
        }
        none
    }
}

impl Drop for Shrinking<'_> {
    fn drop(&mut self) {
        let _begun = lock(&self.frames.extent.begun);
        self.frames.hand_out(self.frames.usable(), self.frames.len());
    }
}
