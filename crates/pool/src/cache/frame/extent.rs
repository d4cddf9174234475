//! How many frames there are: more or fewer while the pool serves.
//!
//! The frames of a pool are numbered up to the most that it may ever have; those in use are the first so many.
//! Those added go on the free list. To do without the last ones, they are no longer handed out; each is *retired* when
//! its page has left it (`cache::shrink` sees to that), and when all of them are, the pool has that many fewer.
//! Until then it may turn back, and hands the retired ones out again.
//!
//! Whoever takes a frame off the free list looks whether it is still handed out, and retires it if not. So no
//! frame has to be searched for in that list, and no thread stands in another's way: one that looked a moment
//! too early uses the frame for a page, which the one that shrinks finds there when it comes round again.
//!
//! Invariants:  [EXT-1] `usable <= len <= most`; every page is in a frame below `len`, whoever goes through all
//!              frames for dirty pages goes through those
//!              [EXT-2] a retired frame is on no list, owned by nobody and holds no page, until it is handed out again
//! Concurrency: one thread at a time grows or shrinks; everybody else allocates, frees and reads meanwhile. Frames are
//!              retired, and the bounds moved, under one lock, which nobody takes who gets a frame that is handed out.

use std::ops::Range;

use super::free::TAKEN;
use super::word::{FrameIndex, OWNED};
use super::{CHANGING, Frames, NO_TAG, Owned};
use crate::sync::{AtomicU64, Mutex, Ordering, lock};

/// In place of the frame below: this one is not handed out.
const RETIRED: u64 = 2 << 32;

pub(super) struct Extent {
    /// Frames that may hold pages.
    len: AtomicU64,
    /// Frames that are handed out: fewer than `len` while the pool shrinks.
    usable: AtomicU64,
    retired: Mutex<Retired>,
}

#[derive(Default)]
struct Retired {
    /// Frames from `usable` to `len` that are retired.
    count: usize,
    /// Frames that have ever been in use; the descriptors of the others are zeroes, and take no memory.
    begun: usize,
}

impl Extent {
    /// No frames.
    pub(super) fn none() -> Extent {
        let none = || AtomicU64::new(0);
        Extent { len: none(), usable: none(), retired: Mutex::new(Retired::default()) }
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

    /// Frames that there can be.
    pub(crate) fn most(&self) -> usize {
        self.frames.len()
    }

    /// There are `count` frames from now on, which is more than there are and at most [`Frames::most`].
    pub(crate) fn grow(&self, count: usize) {
        let mut retired = lock(&self.extent.retired);
        let present = self.len();
        assert!(present < count && count <= self.most(), "[EXT-1] from {present} to {count}");
        for frame in retired.begun..count {
            let it = self.get(frame as FrameIndex);
            it.word.store(OWNED.0, Ordering::Relaxed);
            it.tag.store(NO_TAG, Ordering::Relaxed);
            it.version.store(CHANGING, Ordering::Relaxed);
        }
        retired.begun = retired.begun.max(count);
        // Before any of them can hold a page ([EXT-1]).
        self.extent.len.store(count as u64, Ordering::Release);
        self.extent.usable.store(count as u64, Ordering::Release);
        self.free.push_run(&self.frames, present as FrameIndex, count as FrameIndex);
    }

    /// Frames from `count` on, which is fewer than there are, are not handed out as long as the result lives, or until
    /// it has [finished](Shrinking::finish).
    pub(crate) fn begin_shrink(&self, count: usize) -> Shrinking<'_> {
        let _retired = lock(&self.extent.retired);
        let (len, usable) = (self.len(), self.usable());
        assert!(count < len && usable == len, "[EXT-1] to {count} of {usable} of {len}");
        self.extent.usable.store(count as u64, Ordering::Release);
        Shrinking { frames: self }
    }

    /// Retires a frame that is not handed out any more; gives it back if it is, again.
    #[cold]
    pub(crate) fn retire<'a>(&'a self, owned: Owned<'a>) -> Option<Owned<'a>> {
        let mut retired = lock(&self.extent.retired);
        // Changed under the lock only, so what is read here holds.
        if (owned.frame as usize) < self.usable() {
            return Some(owned);
        }
        let below = self.frames.below(owned.frame).map(|it| it.swap(RETIRED, Ordering::Relaxed));
        assert!(below == Some(TAKEN), "[EXT-2] frame {} is retired twice", owned.frame);
        retired.count += 1;
        std::mem::forget(owned);
        None
    }

    fn is_retired(&self, frame: FrameIndex) -> bool {
        self.frames.below(frame).is_some_and(|it| it.load(Ordering::Relaxed) == RETIRED)
    }
}

/// A pool that is getting smaller. Dropped before that is so, it is as large as before.
#[must_use]
pub(crate) struct Shrinking<'a> {
    frames: &'a Frames,
}

impl Shrinking<'_> {
    /// The frames to be retired.
    pub(crate) fn frames(&self) -> Range<FrameIndex> {
        self.frames.usable() as FrameIndex..self.frames.len() as FrameIndex
    }

    /// Those of them that are not retired.
    pub(crate) fn left(&self) -> impl Iterator<Item = FrameIndex> + '_ {
        self.frames().filter(|frame| !self.frames.is_retired(*frame))
    }

    /// True if all are retired: then the pool has that many fewer.
    pub(crate) fn finish(&self) -> bool {
        let mut retired = lock(&self.frames.extent.retired);
        let (len, usable) = (self.frames.len(), self.frames.usable());
        let all = retired.count == len - usable;
        if all {
            retired.count = 0;
            self.frames.extent.len.store(usable as u64, Ordering::Release);
        }
        all
    }
}

impl Drop for Shrinking<'_> {
    fn drop(&mut self) {
        let mut retired = lock(&self.frames.extent.retired);
        let all = self.frames();
        self.frames.extent.usable.store(u64::from(all.end), Ordering::Release);
        for frame in all.filter(|frame| self.frames.is_retired(*frame)) {
            self.frames.free.push_run(&self.frames.frames, frame, frame + 1);
        }
        retired.count = 0;
    }
}
