//! A frame's life: free, owned, loading, resident, written, claimed, discarded.
//!
//! This module has the steps that readers of a resident page never take. Each is one change of the word; the conditions
//! are in `word`, so that they can be read and tested without threads.
//!
//! The order matters with respect to the page table. A page is loaded by *prepare*, then the page table's entry, then
//! *finish*; it is removed by *claim* or *orphan* and then the entry. So an entry may point to a frame that has just
//! lost its page, and a thread that follows it detects that by checking the entry again, or by the tag.

use super::word::{
    AHEAD, CHECKPOINT, DIRTY, EXCLUSIVE, Mode, ORPHAN, OWNED, PIN, QUEUED, READING, SLEEPERS,
    Touch, VALID, WRITING, Word,
};
use super::{COLD, Frame, FrameIndex, Frames, NO_TAG, Owned, latch_held};
use crate::error::Error;
use crate::sync::{Ordering, fence, lock};
use crate::tag::{Lsn, PageTag};

/// The result of a load that another thread performed.
#[derive(Debug)]
pub(crate) enum Loaded {
    /// The page is resident.
    Here,
    /// It could not be read.
    Failed(Error),
    /// The load was cancelled because another one had begun: look up the page table again.
    LookAgain,
}

/// What a copy of a page that is being written covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Copied {
    /// The newest change in it: the log must be durable up to there first.
    pub(crate) lsn: Lsn,
    /// A checkpoint waits for its write.
    pub(crate) due: bool,
}

/// A page that was discarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Discarded {
    /// Other threads had it pinned, and keep it until they release it.
    pub(crate) pinned: bool,
    /// It was newer than on disk.
    pub(crate) dirty: bool,
}

/// A frame that the page table points to and whose page is being loaded. The thread that has this fills the frame, and
/// ends the load with `finish` or `fail`; until then no other thread touches the bytes.
#[must_use]
pub(crate) struct Loading<'a> {
    frames: &'a Frames,
    frame: FrameIndex,
    /// The bytes are lent to a transfer.
    pub(super) leased: bool,
    /// The queue carries the read, not the thread that has this.
    queued: bool,
}

/// A [`Loading`] that is passed through a queue, detached from its pool. Must be returned with [`Frames::resume`]: the
/// frame is lost to the pool otherwise.
#[derive(Debug)]
#[must_use]
pub(crate) struct Detached {
    frame: FrameIndex,
    leased: bool,
    queued: bool,
}

impl Frames {
    /// A frame from the free list.
    pub(crate) fn take_free(&self) -> Option<Owned<'_>> {
        loop {
            let frame = self.free.pop(&self.frames)?;
            let owned = Owned { frames: self, frame };
            // Between recording that it is taken and checking the bound: see `begin_shrink`.
            fence(Ordering::SeqCst);
            if (frame as usize) < self.usable() {
                return Some(owned);
            }
            if let Some(owned) = self.retire(owned) {
                return Some(owned);
            }
        }
    }

    /// Frames on the free list, including those that are not handed out any more.
    pub(crate) fn free_at_most(&self) -> usize {
        self.free.len()
    }

    /// Takes `frame` from its page, if that is clean, not pinned and not used more often than `usage_most`. The page
    /// table still points here: the caller removes the entry, using the returned tag.
    pub(crate) fn claim(&self, frame: FrameIndex, usage_most: u64) -> Option<(Owned<'_>, PageTag)> {
        let it = self.get(frame);
        let old = it.change(|word| word.claimed(usage_most)).ok()?;
        Some(self.emptied(frame, it, old))
    }

    /// Takes `frame` from the page `tag`, if that is clean, not pinned and not used more often than `usage_most`. As
    /// with [`Frames::claim`], the caller removes the entry.
    pub(crate) fn claim_page(
        &self,
        frame: FrameIndex,
        tag: PageTag,
        usage_most: u64,
    ) -> Option<Owned<'_>> {
        // A pin first, so that the frame cannot get another page between the check and the claim.
        if !self.pin(frame, tag, Touch::Not) {
            return None;
        }
        let it = self.get(frame);
        let alone = |word: Word| (word.pins() == 1).then(|| Word(word.0 - PIN));
        match it.change(|word| alone(word)?.claimed(usage_most)) {
            Ok(old) => Some(self.emptied(frame, it, old).0),
            Err(_) => {
                self.unpin(frame);
                None
            }
        }
    }

    fn emptied(&self, frame: FrameIndex, it: Frame<'_>, old: Word) -> (Owned<'_>, PageTag) {
        self.left(old);
        // Anything that an optimistic reader read since it loaded the version may be stale.
        it.begin_change();
        let tag = it.tag().expect("[FRM-1] a resident frame has a tag");
        it.tag.store(NO_TAG, Ordering::Relaxed);
        it.lsn.store(0, Ordering::Relaxed);
        (Owned { frames: self, frame }, tag)
    }

    /// Discards the page `tag` in `frame`, dirty or not, after waiting for its I/O. Threads that have it pinned keep it
    /// until they release it. `unmap` removes the entry from the page table. `drive` is called while a queue reads the
    /// page, because some thread has to drive that queue.
    ///
    /// Returns whether other threads had it pinned, and whether it was dirty; `None` when the page was not here any
    /// more.
    pub(crate) fn discard(
        &self,
        frame: FrameIndex,
        tag: PageTag,
        unmap: impl FnOnce(),
        drive: impl Fn(FrameIndex),
    ) -> Option<Discarded> {
        if !self.pin(frame, tag, Touch::Not) {
            return None;
        }
        let it = self.get(frame);
        let discarded = loop {
            if it.word().has(QUEUED) {
                drive(frame);
            }
            self.wait(frame, 0, |word| word.has(READING | WRITING));
            let orphaned = it.change(Word::orphaned);
            match orphaned {
                Ok(old) => {
                    unmap();
                    break Some(Discarded { pinned: old.pins() > 1, dirty: old.has(DIRTY) });
                }
                // The load failed, and removed its entry.
                Err(word) if word.has(ORPHAN) => break None,
                Err(_) => {}
            }
        };
        self.unpin(frame);
        discarded
    }

    /// The result of the load for which the caller waited on the pinned frame.
    pub(crate) fn loaded(&self, frame: FrameIndex) -> Loaded {
        if self.get(frame).word().has(VALID) {
            return Loaded::Here;
        }
        lock(&self.failures).get(&frame).cloned().map_or(Loaded::LookAgain, Loaded::Failed)
    }

    /// Ends a load without a page, and releases the loader's pin.
    fn orphan_load(&self, frame: FrameIndex) {
        let it = self.get(frame);
        it.tag.store(NO_TAG, Ordering::Relaxed);
        // The entry is empty by now: an optimistic reader with an old entry, which sees that the version is even again,
        // must not take the bytes that the failed load left in the frame for the page ([OPT-1]).
        it.end_change();
        let old = it.change(|word| {
            assert!(word.has(READING), "[FRM-1] no load fails: {word:?}");
            Some(Word(word.loaded().0 | ORPHAN))
        });
        self.wake_if_sleeping(frame, old);
        self.unpin(frame);
    }

    fn wake_if_sleeping(&self, frame: FrameIndex, changed: Result<Word, Word>) {
        if changed.is_ok_and(|old| old.has(SLEEPERS)) {
            self.parking.wake(frame, self.get(frame).word);
        }
    }

    /// Called after the last holder of an orphan has released it.
    pub(super) fn free_orphan(&self, frame: FrameIndex) {
        let it = self.get(frame);
        lock(&self.failures).remove(&frame);
        // No thread can pin an orphan, so the word is this thread's alone, except for SLEEPERS, which a waiting thread
        // has a pin for. The version moves before the frame can be another page's ([OPT-1]).
        it.begin_change();
        it.tag.store(NO_TAG, Ordering::Relaxed);
        it.lsn.store(0, Ordering::Relaxed);
        let old = Word(it.word.swap(OWNED.0, Ordering::AcqRel));
        assert!(old.pins() == 0 && old.has(ORPHAN), "[FRM-3] freed while in use: {old:?}");
        self.left(old);
        drop(Owned { frames: self, frame });
    }

    /// Records a change of the page, up to `lsn`. The caller has it latched exclusively. Returns true when the page was
    /// saved before: neither dirty nor being written.
    pub(crate) fn mark_dirty(&self, frame: FrameIndex, lsn: Lsn) -> bool {
        let it = self.get(frame);
        it.lsn.fetch_max(lsn.0, Ordering::AcqRel);
        if it.word().has(DIRTY) {
            return false;
        }
        let marked = it.change(|word| (!word.has(ORPHAN)).then_some(Word(word.0 | DIRTY)));
        marked.is_ok_and(|old| !old.is_unsaved())
    }

    /// Records that a copy of the pinned page is about to be written. False when the page is clean, is already being
    /// written, or has been discarded.
    #[must_use]
    pub(crate) fn begin_write(&self, frame: FrameIndex) -> bool {
        let begun = self.get(frame).change(|word| {
            let ready = word.has(DIRTY) && word.has(VALID) && !word.has(WRITING | ORPHAN);
            ready.then_some(Word(word.0 | WRITING))
        });
        begun.is_ok()
    }

    /// The copy has been made: later changes make the page dirty again. The caller has it latched shared. The write of
    /// the copy saves the changes in it, or makes the page dirty again.
    pub(crate) fn copied(&self, frame: FrameIndex) -> Copied {
        let it = self.get(frame);
        let lsn = it.lsn();
        // A checkpoint accepts this copy, but not one made before it scanned this frame: that one lacks the changes
        // made in between.
        let old = Word(it.word.fetch_and(!(DIRTY | CHECKPOINT), Ordering::AcqRel));
        Copied { lsn, due: old.has(CHECKPOINT) }
    }

    /// The write has ended. If it failed, the page is as dirty as before. Returns true when the page is saved: it has
    /// not been changed meanwhile.
    pub(crate) fn end_write(&self, frame: FrameIndex, failed: Option<Copied>) -> bool {
        let it = self.get(frame);
        let old = it.change(|word| {
            assert!(word.has(WRITING), "[FRM-4] the end of a write that never began: {word:?}");
            let back = match failed {
                Some(Copied { due: true, .. }) => DIRTY | CHECKPOINT,
                Some(_) => DIRTY,
                None => 0,
            };
            Some(Word((word.0 & !WRITING) | back))
        });
        let saved = failed.is_none() && old.is_ok_and(|old| !old.has(DIRTY));
        self.wake_if_sleeping(frame, old);
        saved
    }

    /// Marks the page in `frame` as needing a write by the checkpoint that begins now. Returns the page; `None` if it
    /// is clean, or there is none.
    pub(crate) fn mark_due(&self, frame: FrameIndex) -> Option<PageTag> {
        let it = self.get(frame);
        it.change(Word::due).ok()?;
        // If the page is evicted at this moment, it is clean: then another page's tag does no harm.
        it.tag()
    }

    /// The checkpoint no longer waits for the pinned page: it is clean.
    pub(crate) fn unmark_due(&self, frame: FrameIndex) {
        self.get(frame).word.fetch_and(!CHECKPOINT, Ordering::AcqRel);
    }

    /// Counts one more use, for an optimistic reader, which has no pin to count.
    #[cold]
    pub(crate) fn touch(&self, frame: FrameIndex) {
        let it = self.get(frame);
        // Before the word is changed: see `Frame::cool`.
        it.version.fetch_and(!COLD, Ordering::AcqRel);
        let touched = it.change(|word| {
            let used = || Word(word.with_usage(word.usage().max(1)).0 & !AHEAD);
            word.is_cold().then(used)
        });
        if touched.is_ok_and(|old| old.has(AHEAD)) {
            self.ahead.used();
        }
    }

    /// Records that a page has left its frame, whose word was `old`.
    fn left(&self, old: Word) {
        if old.has(AHEAD) {
            self.ahead.wasted();
        }
    }

    /// Resumes a load that was passed through a queue.
    #[expect(clippy::needless_pass_by_value, reason = "a load is continued once")]
    pub(crate) fn resume(&self, load: Detached) -> Loading<'_> {
        let Detached { frame, leased, queued } = load;
        Loading { frames: self, frame, leased, queued }
    }

    /// Decrements the usage, as the clock hand passes.
    pub(crate) fn age(&self, frame: FrameIndex) {
        let it = self.get(frame);
        let _ = it.change(|word| {
            let counts = word.has(VALID) && word.usage() > 0;
            counts.then(|| word.aged())
        });
    }
}

impl<'a> Owned<'a> {
    /// Sets the tag of the page to load and, if `map` can make the page table point here, leaves the frame pinned and
    /// loading. `None` when another thread's load was mapped first.
    ///
    /// `queued`: the queue will carry the read, not this thread; threads that wait for it drive the queue.
    pub(crate) fn load(
        self,
        tag: PageTag,
        queued: bool,
        map: impl FnOnce(FrameIndex) -> bool,
    ) -> Option<Loading<'a>> {
        let it = self.frames.get(self.frame);
        // The version moved in the thread that emptied the frame. An optimistic reader that sees the tag or the bytes
        // that this thread stores must also see that change ([OPT-1]).
        fence(Ordering::Release);
        // Usually still set for the previous page.
        it.version.fetch_and(!COLD, Ordering::Relaxed);
        it.tag.store(tag.to_bits(), Ordering::Relaxed);
        let old = Word(it.word.swap(Word::loading(queued).0, Ordering::AcqRel));
        assert!(old == OWNED, "[FRM-1] a load into a frame that is in use: {old:?}");
        if map(self.frame) {
            let Owned { frames, frame } = self;
            std::mem::forget(self);
            return Some(Loading { frames, frame, leased: false, queued });
        }
        self.call_off(queued);
        None
    }

    /// Another thread was first. A thread with an old entry for the same page may nevertheless have pinned this frame
    /// and wait; it is woken to look again.
    fn call_off(self, queued: bool) {
        let it = self.frames.get(self.frame);
        it.tag.store(NO_TAG, Ordering::Relaxed);
        let loading = Word::loading(queued).0;
        let undone =
            it.word.compare_exchange(loading, OWNED.0, Ordering::AcqRel, Ordering::Relaxed);
        if undone.is_err() {
            let Owned { frames, frame } = self;
            std::mem::forget(self);
            frames.orphan_load(frame);
        }
    }
}

impl Loading<'_> {
    pub(crate) fn frame(&self) -> FrameIndex {
        self.frame
    }

    /// The page has been loaded and becomes resident. The loader keeps its pin, with the latch in `mode`; the page
    /// counts as used `usage` times.
    pub(crate) fn finish(self, mode: Mode, usage: u64) {
        assert!(!self.leased, "[FRM-1] a load ends while its bytes are lent");
        let it = self.frames.get(self.frame);
        if mode != Mode::Exclusive {
            it.end_change();
        }
        let old = it.change(|word| {
            assert!(word.has(READING) && word.has(EXCLUSIVE), "[FRM-1] no load ends: {word:?}");
            let here = Word(word.loaded().0 + VALID + latch_held(mode));
            Some(here.with_usage(usage.max(word.usage())))
        });
        self.frames.wake_if_sleeping(self.frame, old);
    }

    /// The page has been loaded through a queue: it becomes resident, and the queue releases it. `demanded`: a thread
    /// waits for it, or did; otherwise a later request or its eviction shows whether the read was useful.
    pub(crate) fn complete(self, demanded: bool) {
        assert!(!self.leased, "[FRM-1] a load ends while its bytes are lent");
        let it = self.frames.get(self.frame);
        it.end_change();
        let old = it.change(|word| {
            assert!(word.has(READING) && word.has(EXCLUSIVE), "[FRM-1] no load ends: {word:?}");
            let here = Word(word.loaded().0 - PIN + VALID);
            if demanded {
                return Some(here.with_usage(word.usage().max(1)));
            }
            // A use that is already counted is that of a waiting thread.
            if word.usage() > 0 {
                return Some(here);
            }
            // Unless a stream has it pinned, it must stay for as long as a page that was used once: it is about to be
            // used.
            let usage = u64::from(word.pins() == 1);
            Some(Word(here.with_usage(usage).0 + AHEAD))
        });
        if !demanded && old.is_ok_and(|old| old.usage() > 0) {
            self.frames.ahead.used();
        }
        self.frames.wake_if_sleeping(self.frame, old);
    }

    /// The load ends without a result for the waiting threads, and the page table no longer points here: they are woken
    /// to look again, and read on their own. A frame whose bytes are still lent while the loading thread panics is lost
    /// to the pool: a transfer may still write to them.
    pub(crate) fn abandon(self) {
        if self.leased {
            self.frames.pin_again(self.frame);
        }
        self.frames.orphan_load(self.frame);
    }

    /// Detaches the load from its pool, to pass through a queue.
    pub(crate) fn detach(self) -> Detached {
        Detached { frame: self.frame, leased: self.leased, queued: self.queued }
    }

    /// The page could not be loaded, and the page table no longer points here. The waiting threads receive `error`, and
    /// the last of them frees the frame.
    pub(crate) fn fail(self, error: Error) {
        assert!(!self.leased, "[FRM-1] a load ends while its bytes are lent");
        lock(&self.frames.failures).insert(self.frame, error);
        self.frames.orphan_load(self.frame);
    }
}

impl Drop for Owned<'_> {
    fn drop(&mut self) {
        self.frames.free.push(&self.frames.frames, self.frame);
    }
}

impl std::fmt::Debug for Owned<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Owned({})", self.frame)
    }
}
