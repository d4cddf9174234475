//! A frame's life: free, owned, loading, resident, written, claimed, discarded.
//!
//! The steps that readers of a resident page never take. Each is one change of the word; the
//! conditions are in `word`, so that they can be read and tested without threads.
//!
//! The order matters where the page table is concerned. A page comes in by *prepare*, then the page
//! table's entry, then *finish*; it goes by *claim* or *orphan* and then the entry. So an entry may
//! lead to a frame that has just lost its page, and a thread that follows it finds out by the entry, looked at once
//! more, or by the tag.

use super::word::{
    AHEAD, CHECKPOINT, DIRTY, EXCLUSIVE, Mode, ORPHAN, OWNED, PIN, READING, SLEEPERS, Touch, VALID,
    WRITING, Word,
};
use super::{COLD, Frame, FrameIndex, Frames, NO_TAG, Owned, latch_held};
use crate::error::Error;
use crate::sync::{Ordering, fence, lock};
use crate::tag::{Lsn, PageTag};

/// What came of a load that another thread carried out.
#[derive(Debug)]
pub(crate) enum Loaded {
    /// The page is here.
    Here,
    /// It could not be read.
    Failed(Error),
    /// The load was called off because another one had begun: look in the page table again.
    LookAgain,
}

/// What a copy of a page, on its way out, stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Copied {
    /// The newest change in it: how far the log has to be durable first.
    pub(crate) lsn: Lsn,
    /// A checkpoint waits for its write.
    pub(crate) due: bool,
}

/// A page that was thrown away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Discarded {
    /// Others had it pinned, and keep it to the end.
    pub(crate) pinned: bool,
    /// It was newer than on disk.
    pub(crate) dirty: bool,
}

/// A frame that the page table leads to and whose page is on its way in. The thread that has this fills
/// the frame, and ends it by `finish` or `fail`; until then nobody else touches the bytes.
#[must_use]
pub(crate) struct Loading<'a> {
    frames: &'a Frames,
    frame: FrameIndex,
    /// The bytes are lent to a transfer.
    pub(super) leased: bool,
    /// The queue that carries the read; 0 when the thread that has this does.
    queue: u8,
}

/// A [`Loading`] on its way through a queue, apart from its pool. Goes back by [`Frames::resume`]: the
/// frame is lost to the pool otherwise.
#[derive(Debug)]
#[must_use]
pub(crate) struct Detached {
    frame: FrameIndex,
    leased: bool,
    queue: u8,
}

impl Frames {
    /// A frame from the free list.
    pub(crate) fn take_free(&self) -> Option<Owned<'_>> {
        loop {
            let frame = self.free.pop(&self.frames)?;
            let owned = Owned { frames: self, frame };
            // Between the note that it is taken and the look at the bound: see `begin_shrink`.
            fence(Ordering::SeqCst);
            if (frame as usize) < self.usable() {
                return Some(owned);
            }
            if let Some(owned) = self.retire(owned) {
                return Some(owned);
            }
        }
    }

    /// Frames on the free list, with those that are not handed out any more.
    pub(crate) fn free_at_most(&self) -> usize {
        self.free.len()
    }

    /// Takes `frame` away from its page, if that is clean, unheld and not used more often than
    /// `usage_most`. The page table still leads here: the caller takes the entry out, by the tag
    /// that comes with the frame.
    pub(crate) fn claim(&self, frame: FrameIndex, usage_most: u64) -> Option<(Owned<'_>, PageTag)> {
        let it = self.get(frame);
        let old = it.change(|word| word.claimed(usage_most)).ok()?;
        Some(self.emptied(frame, it, old))
    }

    /// Takes `frame` away from the page `tag`, if that is clean, unheld and not used more often
    /// than `usage_most`. As with [`Frames::claim`], the entry is the caller's to take out.
    pub(crate) fn claim_page(
        &self,
        frame: FrameIndex,
        tag: PageTag,
        usage_most: u64,
    ) -> Option<Owned<'_>> {
        // A pin first, so that the frame cannot come to hold another page between look and claim.
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
        // Anything that an optimistic reader read since it looked at the version may be stale.
        it.begin_change();
        let tag = it.tag().expect("[FRM-1] a resident frame has a tag");
        it.tag.store(NO_TAG, Ordering::Relaxed);
        it.lsn.store(0, Ordering::Relaxed);
        (Owned { frames: self, frame }, tag)
    }

    /// Throws the page `tag` in `frame` away, dirty or not, after waiting for its I/O. Those who
    /// have it pinned keep it to the end. `unmap` takes the entry out of the page table. `drive` is
    /// called while the page is on its way in by a queue, which somebody has to drive.
    ///
    /// Gives whether others had it pinned, and whether it was dirty; `None` when the page was not here
    /// any more.
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
            if it.word().queue() > 0 {
                drive(frame);
            }
            self.wait(frame, 0, |word| word.has(READING | WRITING));
            let orphaned = it.change(Word::orphaned);
            match orphaned {
                Ok(old) => {
                    unmap();
                    break Some(Discarded { pinned: old.pins() > 1, dirty: old.has(DIRTY) });
                }
                // The load failed, and took its entry with it.
                Err(word) if word.has(ORPHAN) => break None,
                Err(_) => {}
            }
        };
        self.unpin(frame);
        discarded
    }

    /// What came of the load that the pinned frame was waited for.
    pub(crate) fn loaded(&self, frame: FrameIndex) -> Loaded {
        if self.get(frame).word().has(VALID) {
            return Loaded::Here;
        }
        lock(&self.failures).get(&frame).cloned().map_or(Loaded::LookAgain, Loaded::Failed)
    }

    /// Ends a load without a page, and lets go of the loader's pin.
    fn orphan_load(&self, frame: FrameIndex) {
        let it = self.get(frame);
        it.tag.store(NO_TAG, Ordering::Relaxed);
        // The entry is empty by now: an optimistic reader with an old one, who sees that the version is even
        // again, must not take what the failed load left in the frame for the page ([OPT-1]).
        it.end_change();
        let old = it.change(|word| {
            assert!(word.has(READING), "[FRM-1] no load fails: {word:?}");
            Some(Word(word.loaded().0 | ORPHAN))
        });
        self.wake_if_asleep(frame, old);
        self.unpin(frame);
    }

    fn wake_if_asleep(&self, frame: FrameIndex, changed: Result<Word, Word>) {
        if changed.is_ok_and(|old| old.has(SLEEPERS)) {
            self.parking.wake(frame, self.get(frame).word);
        }
    }

    /// The last holder of an orphan is gone.
    pub(super) fn free_orphan(&self, frame: FrameIndex) {
        let it = self.get(frame);
        lock(&self.failures).remove(&frame);
        // Nobody can pin an orphan, so the word is this thread's alone, except for SLEEPERS, which a
        // thread that waits has a pin for. The version moves before the frame can be
        // another page's ([OPT-1]).
        it.begin_change();
        it.tag.store(NO_TAG, Ordering::Relaxed);
        it.lsn.store(0, Ordering::Relaxed);
        let old = Word(it.word.swap(OWNED.0, Ordering::AcqRel));
        assert!(old.pins() == 0 && old.has(ORPHAN), "[FRM-3] freed while in use: {old:?}");
        self.left(old);
        drop(Owned { frames: self, frame });
    }

    /// The page has been changed, up to `lsn`. The caller has it latched exclusively. True when it
    /// was saved before: neither dirty nor on its way out.
    pub(crate) fn mark_dirty(&self, frame: FrameIndex, lsn: Lsn) -> bool {
        let it = self.get(frame);
        it.lsn.fetch_max(lsn.0, Ordering::AcqRel);
        if it.word().has(DIRTY) {
            return false;
        }
        let marked = it.change(|word| (!word.has(ORPHAN)).then_some(Word(word.0 | DIRTY)));
        marked.is_ok_and(|old| !old.is_unsaved())
    }

    /// Notes that a copy of the pinned page is about to be written. False when it is clean, is
    /// being written already, or is gone.
    #[must_use]
    pub(crate) fn begin_write(&self, frame: FrameIndex) -> bool {
        let begun = self.get(frame).change(|word| {
            let ready = word.has(DIRTY) && word.has(VALID) && !word.has(WRITING | ORPHAN);
            ready.then_some(Word(word.0 | WRITING))
        });
        begun.is_ok()
    }

    /// The copy has been made: what changes from here on makes the page dirty again. The caller
    /// has it latched shared. What the copy has is for its write to save, or to give back.
    pub(crate) fn copied(&self, frame: FrameIndex) -> Copied {
        let it = self.get(frame);
        let lsn = it.lsn();
        // A checkpoint is content with this copy, but not with one made before it looked here: what was
        // changed in between is not in that.
        let old = Word(it.word.fetch_and(!(DIRTY | CHECKPOINT), Ordering::AcqRel));
        Copied { lsn, due: old.has(CHECKPOINT) }
    }

    /// The write has ended. If it failed, the page is as dirty as before. True when the page is saved:
    /// it has not been changed meanwhile.
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
        self.wake_if_asleep(frame, old);
        saved
    }

    /// Notes that the checkpoint that begins now has to see a write of the page in `frame`. Gives the
    /// page; `None` if it is clean, or there is none.
    pub(crate) fn mark_due(&self, frame: FrameIndex) -> Option<PageTag> {
        let it = self.get(frame);
        it.change(Word::due).ok()?;
        // If the page goes at this moment, it is clean: then another one's name does no harm.
        it.tag()
    }

    /// The checkpoint no longer waits for the pinned page: it is clean.
    pub(crate) fn unmark_due(&self, frame: FrameIndex) {
        self.get(frame).word.fetch_and(!CHECKPOINT, Ordering::AcqRel);
    }

    /// One use more, for an optimistic reader, who has no pin to count.
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

    /// A page has left its frame, whose word was `old`.
    fn left(&self, old: Word) {
        if old.has(AHEAD) {
            self.ahead.wasted();
        }
    }

    /// Goes on with a load that was on its way through a queue.
    #[expect(clippy::needless_pass_by_value, reason = "a load is gone on with once")]
    pub(crate) fn resume(&self, load: Detached) -> Loading<'_> {
        let Detached { frame, leased, queue } = load;
        Loading { frames: self, frame, leased, queue }
    }

    /// One use less, as the clock hand passes.
    pub(crate) fn age(&self, frame: FrameIndex) {
        let it = self.get(frame);
        let _ = it.change(|word| {
            let counts = word.has(VALID) && word.usage() > 0;
            counts.then(|| word.aged())
        });
    }
}

impl<'a> Owned<'a> {
    /// Names the page that is to come in and, if `map` can make the page table lead here, leaves
    /// the frame pinned and loading. `None` when another thread's load was mapped first.
    ///
    /// `queue`: the queue that will carry the read, for threads that want to wait; 0 for this thread.
    pub(crate) fn load(
        self,
        tag: PageTag,
        queue: u8,
        map: impl FnOnce(FrameIndex) -> bool,
    ) -> Option<Loading<'a>> {
        let it = self.frames.get(self.frame);
        // The version moved in whichever thread emptied the frame. An optimistic reader who meets
        // the tag or the bytes that this thread stores has to see that it did ([OPT-1]).
        fence(Ordering::Release);
        // As the page before was, mostly.
        it.version.fetch_and(!COLD, Ordering::Relaxed);
        it.tag.store(tag.to_bits(), Ordering::Relaxed);
        let old = Word(it.word.swap(Word::loading(queue).0, Ordering::AcqRel));
        assert!(old == OWNED, "[FRM-1] a load into a frame that is in use: {old:?}");
        if map(self.frame) {
            let Owned { frames, frame } = self;
            std::mem::forget(self);
            return Some(Loading { frames, frame, leased: false, queue });
        }
        self.call_off(queue);
        None
    }

    /// Another thread was first. One with an old entry for the same page may have come here
    /// nevertheless and wait; it is sent to look again.
    fn call_off(self, queue: u8) {
        let it = self.frames.get(self.frame);
        it.tag.store(NO_TAG, Ordering::Relaxed);
        let loading = Word::loading(queue).0;
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

    /// The page has come in and becomes resident. The loader keeps its pin, with the latch in
    /// `mode`; the page counts as used `usage` times.
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
        self.frames.wake_if_asleep(self.frame, old);
    }

    /// The page has come in through a queue: it becomes resident, and the queue lets go of it. `demanded`: somebody waits for
    /// it, or did; else whether it was read in vain shows when it is asked for, or goes.
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
            // A use counted already is somebody's who waits for it.
            if word.usage() > 0 {
                return Some(here);
            }
            // Unless a stream has it pinned, it has to stay for as long as a page that was used once:
            // it is about to be.
            let usage = u64::from(word.pins() == 1);
            Some(Word(here.with_usage(usage).0 + AHEAD))
        });
        if !demanded && old.is_ok_and(|old| old.usage() > 0) {
            self.frames.ahead.used();
        }
        self.frames.wake_if_asleep(self.frame, old);
    }

    /// The load comes to nothing that concerns those who wait, and the page table no longer leads here: they
    /// are sent to look again, and read for themselves. A frame whose bytes are still lent, as the loading
    /// thread panics, is lost to the pool: a transfer may yet write to them.
    pub(crate) fn abandon(self) {
        if self.leased {
            self.frames.pin_again(self.frame);
        }
        self.frames.orphan_load(self.frame);
    }

    /// Takes the load apart from its pool, to go through a queue.
    pub(crate) fn detach(self) -> Detached {
        Detached { frame: self.frame, leased: self.leased, queue: self.queue }
    }

    /// The page did not come in, and the page table no longer leads here. Those who wait are given
    /// `error`, and the last of them frees the frame.
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
