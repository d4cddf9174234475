//! Pins and latched pages: kept in the frame, shared to read, exclusive to change.
//!
//! A pin says nothing about the contents. It is for going back to a page soon (the inner nodes on a tree's path)
//! without looking it up anew, and without keeping others from changing it.
//!
//! Invariants:  [GRD-1] a guard holds one pin and one latch of its frame from its making to its drop
//!              [GRD-2] a page that was changed is dirty when its guard is gone
//! Concurrency: a guard may be sent to another thread; its latch belongs to the guard, not the thread.
//!              A thread that latches a page it holds already may wait for itself.
#![expect(unsafe_code, reason = "a latch's right to the bytes of its frame")]

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use crate::cache::frame::word::Mode;
use crate::cache::frame::{FrameIndex, Hold};
use crate::core::Core;
use crate::observe::stats::PoolEvent;
use crate::store::file::FileCore;
use crate::tag::{Block, Lsn};

/// Keeps a page in its frame.
pub struct Pin<'p> {
    core: &'p Core,
    file: &'p FileCore,
    frame: FrameIndex,
    block: Block,
}

/// A page, pinned and latched shared: it derefs to its bytes, which do not change meanwhile. They begin at a
/// multiple of 4096 in memory, whatever the size of pages.
pub struct PageRef<'p> {
    core: &'p Core,
    file: &'p FileCore,
    bytes: NonNull<[u8]>,
    held: Hold<'p>,
    block: Block,
}

/// A page, pinned and latched exclusively: it derefs to its bytes, for changing them. They begin as a [`PageRef`]'s do.
///
/// [`PageMut::mark_dirty`] says with which log record. A page changed without it is dirty all the
/// same when the guard goes, but the pool then knows of no log record to wait for. That holds for a
/// panic with the guard in hand, too: the pool undoes nothing.
pub struct PageMut<'p> {
    core: &'p Core,
    file: &'p FileCore,
    bytes: NonNull<u8>,
    frame: FrameIndex,
    block: Block,
    /// The bytes may have been changed since the page was last marked dirty.
    touched: bool,
}

// SAFETY: `bytes` points to the page in `frame`, which the guard's pin keeps there and its latch
// keeps from changing ([GRD-1]); both may be let go on any thread. The rest is Send and Sync.
unsafe impl Send for PageRef<'_> {}
// SAFETY: as above; `&PageRef` only reads the bytes.
unsafe impl Sync for PageRef<'_> {}
// SAFETY: as for `PageRef`; the latch is exclusive, so this is the only access.
unsafe impl Send for PageMut<'_> {}
// SAFETY: `&PageMut` only reads the bytes.
unsafe impl Sync for PageMut<'_> {}

impl<'p> PageRef<'p> {
    /// Makes the guard for a pin and a shared latch that are held already.
    pub(crate) fn latched(
        core: &'p Core,
        file: &'p FileCore,
        frame: FrameIndex,
        block: Block,
    ) -> PageRef<'p> {
        PageRef::from_held(core, file, core.cache.frames.held(frame), block)
    }

    /// As [`PageRef::latched`].
    #[inline(always)]
    pub(crate) fn from_held(
        core: &'p Core,
        file: &'p FileCore,
        held: Hold<'p>,
        block: Block,
    ) -> PageRef<'p> {
        PageRef { core, file, bytes: core.memory.page_bytes_at(held.frame), held, block }
    }

    /// Returns the page's position in its file.
    pub fn block(&self) -> Block {
        self.block
    }

    /// Returns the newest LSN with which the page was [marked dirty](PageMut::mark_dirty) since it came into memory,
    /// whether it was written since or not; [`Lsn::NONE`] if it was not. What was marked before a page left memory
    /// is not known any more: the log was durable that far when it was written.
    pub fn lsn(&self) -> Lsn {
        self.core.cache.frames.get(self.held.frame).lsn()
    }

    /// Lets go of the latch and keeps the page in its frame.
    pub fn into_pin(self) -> Pin<'p> {
        let (core, file, frame, block) = (self.core, self.file, self.held.frame, self.block);
        std::mem::forget(self);
        core.cache.frames.unlatch_shared(frame);
        Pin::held(core, file, frame, block)
    }

    /// Returns the exclusive latch; never waits: the guard itself comes back while others have the page latched.
    ///
    /// # Errors
    /// As [`Pin::latch_exclusive`]: it would be refused later too, and the shared latch is gone.
    pub fn try_upgrade(self) -> crate::Result<Result<PageMut<'p>, PageRef<'p>>> {
        let (core, file, frame, block) = (self.core, self.file, self.held.frame, self.block);
        file.check_writable()?;
        core.cache.check_here(file, frame)?;
        if !core.cache.frames.try_upgrade(frame) {
            return Ok(Err(self));
        }
        std::mem::forget(self);
        Ok(Ok(PageMut::latched(core, file, frame, block)))
    }

    /// Returns the exclusive latch, waiting for the other readers if need be, and whether the page is
    /// unchanged since: others may come first while this waits, so if it is false, look again. (Two readers that both
    /// insisted on keeping their latch until they have the exclusive one would wait for each other for ever.)
    ///
    /// # Errors
    /// As [`Pin::latch_exclusive`].
    pub fn upgrade(self) -> crate::Result<(PageMut<'p>, bool)> {
        let version = self.core.cache.frames.get(self.held.frame).version();
        let pin = match self.try_upgrade()? {
            Ok(page) => return Ok((page, true)),
            Err(page) => page.into_pin(),
        };
        let page = pin.into_exclusive()?;
        // This guard's own hold counts one.
        let unchanged = page.core.cache.frames.get(page.frame).version() == version + 1;
        Ok((page, unchanged))
    }
}

impl Deref for PageRef<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: `bytes` is a page of the pool's memory, initialised (it was mapped
        // as zeroes). The pin keeps it this page's, the shared latch keeps writers away ([GRD-1]).
        unsafe { self.bytes.as_ref() }
    }
}

impl Drop for PageRef<'_> {
    #[inline]
    fn drop(&mut self) {
        self.core.cache.frames.leave_shared_held(self.held);
    }
}

impl<'p> PageMut<'p> {
    /// Makes the guard for a pin and an exclusive latch that are held already.
    pub(crate) fn latched(
        core: &'p Core,
        file: &'p FileCore,
        frame: FrameIndex,
        block: Block,
    ) -> PageMut<'p> {
        let bytes = core.memory.page(frame);
        PageMut { core, file, bytes, frame, block, touched: false }
    }

    /// As if the bytes had been changed: for a page that was made without being read.
    pub(crate) fn touched(mut self) -> PageMut<'p> {
        self.touched = true;
        self
    }

    /// Returns the page's position in its file.
    pub fn block(&self) -> Block {
        self.block
    }

    /// As [`PageRef::lsn`].
    pub fn lsn(&self) -> Lsn {
        self.core.cache.frames.get(self.frame).lsn()
    }

    /// Says that the page has been changed, by the log record at `lsn`: it is not written before
    /// the log is durable up to there. [`Lsn::NONE`] where there is no log. Say it before letting
    /// go, after the last change; as often as there are records.
    pub fn mark_dirty(&mut self, lsn: Lsn) {
        self.touched = false;
        self.mark(lsn);
        self.core.checkpoints.log_reached(lsn);
    }

    /// Lets others read the page; nobody else changes it in between.
    pub fn downgrade(mut self) -> PageRef<'p> {
        self.settle();
        let (core, file, frame, block) = (self.core, self.file, self.frame, self.block);
        std::mem::forget(self);
        core.cache.frames.downgrade(frame);
        PageRef::latched(core, file, frame, block)
    }

    /// Lets go of the latch and keeps the page in its frame.
    pub fn into_pin(self) -> Pin<'p> {
        self.downgrade().into_pin()
    }

    fn mark(&self, lsn: Lsn) {
        self.core.cache.mark_dirty(self.file, self.block, self.frame, lsn);
    }

    /// [GRD-2]
    fn settle(&mut self) {
        if std::mem::take(&mut self.touched) {
            if self.core.wal.is_some() {
                self.core.counters.count_pool(PoolEvent::UnloggedChanges);
            }
            self.mark(Lsn::NONE);
        }
    }
}

impl Deref for PageMut<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: as for `PageRef`; the latch is exclusive, so nobody else writes.
        unsafe { std::slice::from_raw_parts(self.bytes.as_ptr(), self.core.page_bytes()) }
    }
}

impl DerefMut for PageMut<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        self.touched = true;
        // SAFETY: as for `deref`, and the exclusive latch and `&mut self` make this the only
        // reference; optimistic readers make none ([MEM-4] in `frame::memory`).
        unsafe { std::slice::from_raw_parts_mut(self.bytes.as_ptr(), self.core.page_bytes()) }
    }
}

impl Drop for PageMut<'_> {
    fn drop(&mut self) {
        self.settle();
        self.core.cache.frames.leave_exclusive(self.frame);
    }
}

impl fmt::Debug for PageRef<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "PageRef(block {} of {})", self.block, self.file.path.display())
    }
}

impl fmt::Debug for PageMut<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "PageMut(block {} of {})", self.block, self.file.path.display())
    }
}

impl<'p> Pin<'p> {
    /// Makes the guard for a pin that is held already.
    pub(crate) fn held(
        core: &'p Core,
        file: &'p FileCore,
        frame: FrameIndex,
        block: Block,
    ) -> Pin<'p> {
        Pin { core, file, frame, block }
    }

    /// Returns the page's position in its file.
    pub fn block(&self) -> Block {
        self.block
    }

    /// As [`PageRef::lsn`], at this moment: others may mark the page meanwhile.
    pub fn lsn(&self) -> Lsn {
        self.core.cache.frames.get(self.frame).lsn()
    }

    /// Returns the page to read, waiting while somebody changes it. The pin remains.
    ///
    /// # Errors
    /// [`Error::Gone`](crate::Error::Gone) when the page was dropped or truncated away meanwhile.
    pub fn latch_shared(&self) -> crate::Result<PageRef<'p>> {
        self.clone().into_shared()
    }

    /// Returns the page to change, waiting while somebody else has it. The pin remains.
    ///
    /// # Errors
    /// [`Error::Gone`](crate::Error::Gone) when the page was dropped or truncated away meanwhile,
    /// [`Error::ReadOnly`](crate::Error::ReadOnly).
    pub fn latch_exclusive(&self) -> crate::Result<PageMut<'p>> {
        self.clone().into_exclusive()
    }

    /// Returns the page to read, if that can be had without waiting.
    ///
    /// # Errors
    /// As [`Pin::latch_shared`].
    pub fn try_latch_shared(&self) -> crate::Result<Option<PageRef<'p>>> {
        let is_latched = self.core.cache.frames.try_latch(self.frame, Mode::Shared);
        is_latched.then(|| self.clone().latched_shared()).transpose()
    }

    /// Returns the page to change, if that can be had without waiting.
    ///
    /// # Errors
    /// As [`Pin::latch_exclusive`].
    pub fn try_latch_exclusive(&self) -> crate::Result<Option<PageMut<'p>>> {
        self.file.check_writable()?;
        let is_latched = self.core.cache.frames.try_latch(self.frame, Mode::Exclusive);
        is_latched.then(|| self.clone().latched_exclusive()).transpose()
    }

    /// Turns the pin into the page to read.
    ///
    /// # Errors
    /// As [`Pin::latch_shared`].
    pub fn into_shared(self) -> crate::Result<PageRef<'p>> {
        self.core.cache.latch_pinned(self.core, self.frame, Mode::Shared);
        self.latched_shared()
    }

    /// Turns the pin into the page to change.
    ///
    /// # Errors
    /// As [`Pin::latch_exclusive`].
    pub fn into_exclusive(self) -> crate::Result<PageMut<'p>> {
        self.file.check_writable()?;
        self.core.cache.latch_pinned(self.core, self.frame, Mode::Exclusive);
        self.latched_exclusive()
    }

    /// The guard for the pin together with a shared latch that is held already.
    fn latched_shared(self) -> crate::Result<PageRef<'p>> {
        let (core, file, frame, block) = self.into_parts();
        let page = PageRef::latched(core, file, frame, block);
        core.cache.check_here(file, frame)?;
        Ok(page)
    }

    /// The guard for the pin together with an exclusive latch that is held already.
    fn latched_exclusive(self) -> crate::Result<PageMut<'p>> {
        let (core, file, frame, block) = self.into_parts();
        let page = PageMut::latched(core, file, frame, block);
        core.cache.check_here(file, frame)?;
        Ok(page)
    }

    fn into_parts(self) -> (&'p Core, &'p FileCore, FrameIndex, Block) {
        let parts = (self.core, self.file, self.frame, self.block);
        std::mem::forget(self);
        parts
    }
}

impl Clone for Pin<'_> {
    fn clone(&self) -> Self {
        self.core.cache.frames.pin_again(self.frame);
        Pin { ..*self }
    }
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        self.core.cache.frames.unpin(self.frame);
    }
}

impl fmt::Debug for Pin<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Pin(block {} of {})", self.block, self.file.path.display())
    }
}
