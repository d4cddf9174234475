//! Pins and latched pages: kept in the frame, shared to read, exclusive to change.
//!
//! A pin does not protect the contents. It is for returning to a page soon (the inner nodes on a tree's path) without
//! another lookup, and without keeping others from changing the page.
//!
//! Invariants:  [GRD-1] a guard holds one pin and one latch of its frame from its creation to its drop
//!              [GRD-2] a page that was changed is dirty once its guard is dropped, with a change up to the end of the
//!              log if it was not marked
//!              [GRD-3] a guard keeps its file, and thus the pool, alive while it exists: through a borrowed handle or
//!              an owned one, which is dropped last
//! Concurrency: a guard may be sent to another thread; its latch belongs to the guard, not the thread.
//!              A thread that latches a page it already holds may deadlock.
#![expect(unsafe_code, reason = "a latch's right to the bytes of its frame")]

use std::borrow::Borrow;
use std::fmt;
use std::marker::PhantomData;
use std::mem::{self, ManuallyDrop};
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};

use crate::api::paged_file::PagedFile;
use crate::cache::frame::word::Mode;
use crate::cache::frame::{FrameIndex, Hold};
use crate::tag::{Block, Lsn};

/// Keeps a page in its frame. `H` as in a [`PageRef`].
pub struct Pin<'p, H: Borrow<PagedFile> = &'p PagedFile> {
    frame: FrameIndex,
    block: Block,
    holder: H,
    file: PhantomData<&'p PagedFile>,
}

/// A page, pinned and latched shared: it derefs to its bytes, which do not change meanwhile. Their address is a
/// multiple of 4096, whatever the page size.
///
/// `H` is how the guard refers to its file: by reference, unless [`PageRef::into_owned`] has given it an owned handle.
/// There are no other types; a function that takes both has the parameter `H: Borrow<PagedFile>`.
pub struct PageRef<'p, H: Borrow<PagedFile> = &'p PagedFile> {
    bytes: NonNull<[u8]>,
    held: Hold<'p>,
    block: Block,
    /// Dropped after what it keeps alive.
    holder: H,
}

/// A page, pinned and latched exclusively: it derefs to its bytes, for changing them. Their alignment and `H` are as
/// for [`PageRef`].
///
/// [`PageMut::mark_dirty`] names the log record of the change. A page changed without it is still dirty when the guard
/// is dropped, and is not written before the whole log up to then. That also holds if a panic drops the guard: the pool
/// undoes nothing.
pub struct PageMut<'p, H: Borrow<PagedFile> = &'p PagedFile> {
    bytes: NonNull<u8>,
    frame: FrameIndex,
    block: Block,
    /// The bytes may have been changed since the page was last marked dirty.
    touched: bool,
    holder: H,
    file: PhantomData<&'p PagedFile>,
}

// SAFETY: `bytes` points to the page in `frame`, which the guard's pin keeps there and its latch
// keeps from changing ([GRD-1]); both may be released on any thread. The rest is Send and Sync as `holder` is.
unsafe impl<H: Borrow<PagedFile> + Send> Send for PageRef<'_, H> {}
// SAFETY: as above; `&PageRef` only reads the bytes.
unsafe impl<H: Borrow<PagedFile> + Sync> Sync for PageRef<'_, H> {}
// SAFETY: as for `PageRef`; the latch is exclusive, so this is the only access.
unsafe impl<H: Borrow<PagedFile> + Send> Send for PageMut<'_, H> {}
// SAFETY: `&PageMut` only reads the bytes.
unsafe impl<H: Borrow<PagedFile> + Sync> Sync for PageMut<'_, H> {}

impl<'p> PageRef<'p> {
    /// Gives the guard an owned handle to the file, so that it borrows nothing and may be kept for as long as a latch
    /// should be: in a cursor, next to the [`PagedFile`]. See [Guards to keep](crate#guards-to-keep).
    pub fn into_owned(self) -> PageRef<'static, PagedFile> {
        let (handle, frame, block) = self.into_parts();
        PageRef::latched(handle.clone(), frame, block)
    }
}

/// The result of [`PageRef::upgrade`]. `H` as in a [`PageRef`].
#[derive(Debug)]
#[must_use]
pub enum Upgrade<'p, H: Borrow<PagedFile> = &'p PagedFile> {
    /// No other thread has changed the page since the shared latch was taken.
    Unchanged(PageMut<'p, H>),
    /// Another thread may have: check the page again.
    Changed(PageMut<'p, H>),
}

/// The result of [`PageRef::try_upgrade`]. `H` as in a [`PageRef`].
#[derive(Debug)]
#[must_use]
pub enum TryUpgrade<'p, H: Borrow<PagedFile> = &'p PagedFile> {
    /// The page is latched exclusively, and unchanged.
    Exclusive(PageMut<'p, H>),
    /// Others have the page latched: the guard itself.
    Shared(PageRef<'p, H>),
}

impl<'p, H: Borrow<PagedFile>> PageRef<'p, H> {
    /// Makes the guard for a pin and a shared latch that are held already.
    pub(crate) fn latched(holder: H, frame: FrameIndex, block: Block) -> PageRef<'p, H> {
        let core = holder.borrow().core();
        let bytes = core.memory.page_bytes_at(frame);
        // SAFETY: it is a reference into the pool, which `holder` keeps alive while the guard exists ([GRD-3]); the
        // guard does not hand it out.
        let held = unsafe { mem::transmute::<Hold<'_>, Hold<'p>>(core.cache.frames.held(frame)) };
        PageRef { bytes, held, block, holder }
    }

    /// As [`PageRef::latched`], for the result of a hit in the file of `holder`.
    #[inline(always)]
    pub(crate) fn from_held(holder: &H, held: Hold<'_>, block: Block) -> PageRef<'p, H>
    where
        H: Clone,
    {
        let bytes = holder.borrow().core().memory.page_bytes_at(held.frame);
        // SAFETY: as in `latched`: the guard has a clone of `holder`.
        let held = unsafe { mem::transmute::<Hold<'_>, Hold<'p>>(held) };
        PageRef { bytes, held, block, holder: holder.clone() }
    }

    /// Splits the guard into its parts; the pin and the latch are the caller's.
    fn into_parts(self) -> (H, FrameIndex, Block) {
        let guard = ManuallyDrop::new(self);
        // SAFETY: taken once, as what it is taken from is not dropped.
        (unsafe { ptr::read(&raw const guard.holder) }, guard.held.frame, guard.block)
    }

    /// Returns the page's position in its file.
    pub fn block(&self) -> Block {
        self.block
    }

    /// Returns the newest LSN with which the page was [marked dirty](PageMut::mark_dirty) since it was read into
    /// memory, whether it was written since or not; [`Lsn::NONE`] if it was not marked. Marks from before an eviction
    /// are forgotten: the log was durable that far when the page was written.
    pub fn lsn(&self) -> Lsn {
        self.holder.borrow().core().cache.frames.get(self.held.frame).lsn()
    }

    /// Releases the latch and keeps the page in its frame.
    pub fn into_pin(self) -> Pin<'p, H> {
        let (holder, frame, block) = self.into_parts();
        holder.borrow().core().cache.frames.unlatch_shared(frame);
        Pin::held(holder, frame, block)
    }

    /// Latches the page exclusively, without ever waiting.
    ///
    /// # Errors
    /// As [`Pin::latch_exclusive`]: the latch would be refused later too, and the shared latch is released.
    pub fn try_upgrade(self) -> crate::Result<TryUpgrade<'p, H>> {
        let file = self.holder.borrow();
        file.file().check_writable()?;
        check_here(file, self.held.frame)?;
        if !file.core().cache.frames.try_upgrade(self.held.frame) {
            return Ok(TryUpgrade::Shared(self));
        }
        let (holder, frame, block) = self.into_parts();
        Ok(TryUpgrade::Exclusive(PageMut::latched(holder, frame, block)))
    }

    /// Latches the page exclusively, and waits for other readers if needed. Other threads may get the latch first and
    /// change the page. (Two readers that both kept their shared latch until they got the exclusive one would
    /// deadlock.)
    ///
    /// # Errors
    /// As [`Pin::latch_exclusive`].
    pub fn upgrade(self) -> crate::Result<Upgrade<'p, H>> {
        let version = self.holder.borrow().core().cache.frames.get(self.held.frame).version();
        let pin = match self.try_upgrade()? {
            TryUpgrade::Exclusive(page) => return Ok(Upgrade::Unchanged(page)),
            TryUpgrade::Shared(page) => page.into_pin(),
        };
        let page = pin.into_exclusive()?;
        // This guard's own hold counts as one.
        let frame = page.holder.borrow().core().cache.frames.get(page.frame);
        let unchanged = frame.version() == version + 1;
        Ok(if unchanged { Upgrade::Unchanged(page) } else { Upgrade::Changed(page) })
    }
}

impl<H: Borrow<PagedFile>> Deref for PageRef<'_, H> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: `bytes` is a page of the pool's memory, initialised (it was mapped
        // as zeroes). The pin keeps it this page's, the shared latch keeps writers away ([GRD-1]).
        unsafe { self.bytes.as_ref() }
    }
}

impl<H: Borrow<PagedFile>> Drop for PageRef<'_, H> {
    #[inline]
    fn drop(&mut self) {
        let holder = &self.holder;
        self.held.release_shared(|| &holder.borrow().core().cache.frames);
    }
}

impl PageMut<'_> {
    /// As [`PageRef::into_owned`].
    pub fn into_owned(self) -> PageMut<'static, PagedFile> {
        let touched = self.touched;
        let (handle, frame, block) = self.into_parts();
        let mut page = PageMut::latched(handle.clone(), frame, block);
        page.touched = touched;
        page
    }
}

impl<'p, H: Borrow<PagedFile>> PageMut<'p, H> {
    /// Makes the guard for a pin and an exclusive latch that are held already.
    pub(crate) fn latched(holder: H, frame: FrameIndex, block: Block) -> PageMut<'p, H> {
        let bytes = holder.borrow().core().memory.page(frame);
        PageMut { bytes, frame, block, touched: false, holder, file: PhantomData }
    }

    /// As [`PageRef::into_parts`]; marking the page dirty is left to the caller as well.
    fn into_parts(self) -> (H, FrameIndex, Block) {
        let guard = ManuallyDrop::new(self);
        // SAFETY: taken once, as what it is taken from is not dropped.
        (unsafe { ptr::read(&raw const guard.holder) }, guard.frame, guard.block)
    }

    /// Marks the bytes as changed: for a page that was initialised without being read.
    pub(crate) fn touched(mut self) -> PageMut<'p, H> {
        self.touched = true;
        self
    }

    /// Returns the page's position in its file.
    pub fn block(&self) -> Block {
        self.block
    }

    /// As [`PageRef::lsn`].
    pub fn lsn(&self) -> Lsn {
        self.holder.borrow().core().cache.frames.get(self.frame).lsn()
    }

    /// Marks the page as changed by the log record at `lsn`: it is not written before the log is durable up to there.
    /// Pass [`Lsn::NONE`] where there is no log, or no record of the change. Call it after the last change and before
    /// dropping the guard; as often as there are records.
    pub fn mark_dirty(&mut self, lsn: Lsn) {
        self.touched = false;
        self.mark(lsn);
        self.holder.borrow().core().checkpoints.log_reached(lsn);
    }

    /// Turns the latch into a shared one; no other thread changes the page in between.
    pub fn downgrade(mut self) -> PageRef<'p, H> {
        self.settle();
        let (holder, frame, block) = self.into_parts();
        holder.borrow().core().cache.frames.downgrade(frame);
        PageRef::latched(holder, frame, block)
    }

    /// Releases the latch and keeps the page in its frame.
    pub fn into_pin(self) -> Pin<'p, H> {
        self.downgrade().into_pin()
    }

    fn mark(&self, lsn: Lsn) {
        let file = self.holder.borrow();
        file.core().cache.mark_dirty(file.file(), self.block, self.frame, lsn);
    }

    /// [GRD-2]
    fn settle(&mut self) {
        if std::mem::take(&mut self.touched) {
            self.mark(self.holder.borrow().core().end_of_log());
        }
    }
}

impl<H: Borrow<PagedFile>> Deref for PageMut<'_, H> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: as for `PageRef`; the latch is exclusive, so no other thread writes.
        unsafe {
            std::slice::from_raw_parts(
                self.bytes.as_ptr(),
                self.holder.borrow().core().page_bytes(),
            )
        }
    }
}

impl<H: Borrow<PagedFile>> DerefMut for PageMut<'_, H> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        self.touched = true;
        // SAFETY: as for `deref`, and the exclusive latch and `&mut self` make this the only
        // reference; optimistic readers make none ([MEM-4] in `frame::memory`).
        unsafe {
            std::slice::from_raw_parts_mut(
                self.bytes.as_ptr(),
                self.holder.borrow().core().page_bytes(),
            )
        }
    }
}

impl<H: Borrow<PagedFile>> Drop for PageMut<'_, H> {
    fn drop(&mut self) {
        self.settle();
        self.holder.borrow().core().cache.frames.release_exclusive(self.frame);
    }
}

impl<H: Borrow<PagedFile>> fmt::Debug for PageRef<'_, H> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "PageRef(block {} of {})", self.block, self.holder.borrow().path().display())
    }
}

impl<H: Borrow<PagedFile>> fmt::Debug for PageMut<'_, H> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "PageMut(block {} of {})", self.block, self.holder.borrow().path().display())
    }
}

impl Pin<'_> {
    /// As [`PageRef::into_owned`]; a pin may be kept for any time.
    pub fn into_owned(self) -> Pin<'static, PagedFile> {
        let (handle, frame, block) = self.into_parts();
        Pin::held(handle.clone(), frame, block)
    }
}

impl<'p, H: Borrow<PagedFile>> Pin<'p, H> {
    /// Makes the guard for a pin that is held already.
    pub(crate) fn held(holder: H, frame: FrameIndex, block: Block) -> Pin<'p, H> {
        Pin { frame, block, holder, file: PhantomData }
    }

    /// Returns the page's position in its file.
    pub fn block(&self) -> Block {
        self.block
    }

    /// As [`PageRef::lsn`], at this moment: others may mark the page meanwhile.
    pub fn lsn(&self) -> Lsn {
        self.holder.borrow().core().cache.frames.get(self.frame).lsn()
    }

    /// Returns the page to read, waiting while another thread changes it. The pin remains.
    ///
    /// # Errors
    /// [`Error::Invalidated`](crate::Error::Invalidated) when the page was dropped or truncated meanwhile.
    pub fn latch_shared(&self) -> crate::Result<PageRef<'p, H>>
    where
        H: Clone,
    {
        self.clone().into_shared()
    }

    /// Returns the page to change, waiting while another thread has it latched. The pin remains.
    ///
    /// # Errors
    /// [`Error::Invalidated`](crate::Error::Invalidated) when the page was dropped or truncated meanwhile,
    /// [`Error::ReadOnly`](crate::Error::ReadOnly).
    pub fn latch_exclusive(&self) -> crate::Result<PageMut<'p, H>>
    where
        H: Clone,
    {
        self.clone().into_exclusive()
    }

    /// Returns the page to read, if that is possible without waiting.
    ///
    /// # Errors
    /// As [`Pin::latch_shared`].
    pub fn try_latch_shared(&self) -> crate::Result<Option<PageRef<'p, H>>>
    where
        H: Clone,
    {
        let is_latched =
            self.holder.borrow().core().cache.frames.try_latch(self.frame, Mode::Shared);
        is_latched.then(|| self.clone().latched_shared()).transpose()
    }

    /// Returns the page to change, if that is possible without waiting.
    ///
    /// # Errors
    /// As [`Pin::latch_exclusive`].
    pub fn try_latch_exclusive(&self) -> crate::Result<Option<PageMut<'p, H>>>
    where
        H: Clone,
    {
        self.holder.borrow().file().check_writable()?;
        let is_latched =
            self.holder.borrow().core().cache.frames.try_latch(self.frame, Mode::Exclusive);
        is_latched.then(|| self.clone().latched_exclusive()).transpose()
    }

    /// Turns the pin into the page to read.
    ///
    /// # Errors
    /// As [`Pin::latch_shared`].
    pub fn into_shared(self) -> crate::Result<PageRef<'p, H>> {
        self.latch(Mode::Shared);
        self.latched_shared()
    }

    /// Turns the pin into the page to change.
    ///
    /// # Errors
    /// As [`Pin::latch_exclusive`].
    pub fn into_exclusive(self) -> crate::Result<PageMut<'p, H>> {
        self.holder.borrow().file().check_writable()?;
        self.latch(Mode::Exclusive);
        self.latched_exclusive()
    }

    fn latch(&self, mode: Mode) {
        let core = self.holder.borrow().core();
        core.cache.latch_pinned(&**core, self.frame, mode);
    }

    /// The guard for the pin together with a shared latch that is held already.
    fn latched_shared(self) -> crate::Result<PageRef<'p, H>> {
        let (holder, frame, block) = self.into_parts();
        let page = PageRef::latched(holder, frame, block);
        check_here(page.holder.borrow(), frame)?;
        Ok(page)
    }

    /// The guard for the pin together with an exclusive latch that is held already.
    fn latched_exclusive(self) -> crate::Result<PageMut<'p, H>> {
        let (holder, frame, block) = self.into_parts();
        let page = PageMut::latched(holder, frame, block);
        check_here(page.holder.borrow(), frame)?;
        Ok(page)
    }

    /// As [`PageRef::into_parts`].
    fn into_parts(self) -> (H, FrameIndex, Block) {
        let guard = ManuallyDrop::new(self);
        // SAFETY: taken once, as what it is taken from is not dropped.
        (unsafe { ptr::read(&raw const guard.holder) }, guard.frame, guard.block)
    }
}

fn check_here(file: &PagedFile, frame: FrameIndex) -> crate::Result<()> {
    file.core().cache.check_here(file.file(), frame)
}

impl<H: Borrow<PagedFile> + Clone> Clone for Pin<'_, H> {
    fn clone(&self) -> Self {
        self.holder.borrow().core().cache.frames.pin_again(self.frame);
        Pin::held(self.holder.clone(), self.frame, self.block)
    }
}

impl<H: Borrow<PagedFile>> Drop for Pin<'_, H> {
    fn drop(&mut self) {
        self.holder.borrow().core().cache.frames.unpin(self.frame);
    }
}

impl<H: Borrow<PagedFile>> fmt::Debug for Pin<'_, H> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Pin(block {} of {})", self.block, self.holder.borrow().path().display())
    }
}
