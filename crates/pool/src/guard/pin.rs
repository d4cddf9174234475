//! Pins: holds that keep a page in its frame and say nothing about its contents.
//!
//! For going back to a page soon (the inner nodes on a tree's path) without looking it up anew, and
//! without keeping others from changing it.

use std::fmt;

use super::page::{self, PageMut, PageRef};
use crate::cache::frame::FrameIndex;
use crate::cache::frame::word::Mode;
use crate::core::Core;
use crate::file::FileCore;
use crate::tag::Block;

/// Keeps a page in its frame.
pub struct Pin<'p> {
    core: &'p Core,
    file: &'p FileCore,
    frame: FrameIndex,
    block: Block,
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

    /// The page's position in its file.
    pub fn block(&self) -> Block {
        self.block
    }

    /// The page to read, waiting while somebody changes it. The pin remains.
    ///
    /// # Errors
    /// [`Error::Gone`](crate::Error::Gone) when the page was dropped or truncated away meanwhile.
    pub fn latch_shared(&self) -> crate::Result<PageRef<'p>> {
        self.clone().into_shared()
    }

    /// The page to change, waiting while somebody else has it. The pin remains.
    ///
    /// # Errors
    /// [`Error::Gone`](crate::Error::Gone) when the page was dropped or truncated away meanwhile,
    /// [`Error::ReadOnly`](crate::Error::ReadOnly).
    pub fn latch_exclusive(&self) -> crate::Result<PageMut<'p>> {
        self.clone().into_exclusive()
    }

    /// The page to read, if that can be had without waiting.
    ///
    /// # Errors
    /// As [`Pin::latch_shared`].
    pub fn try_latch_shared(&self) -> crate::Result<Option<PageRef<'p>>> {
        if !self.core.cache.frames.try_latch(self.frame, Mode::Shared) {
            return Ok(None);
        }
        let pin = self.clone();
        std::mem::forget(pin);
        let page = PageRef::latched(self.core, self.file, self.frame, self.block);
        self.core.cache.check_here(self.file, self.frame)?;
        Ok(Some(page))
    }

    /// The page to change, if that can be had without waiting.
    ///
    /// # Errors
    /// As [`Pin::latch_exclusive`].
    pub fn try_latch_exclusive(&self) -> crate::Result<Option<PageMut<'p>>> {
        self.file.check_writable()?;
        if !self.core.cache.frames.try_latch(self.frame, Mode::Exclusive) {
            return Ok(None);
        }
        let pin = self.clone();
        std::mem::forget(pin);
        let page = PageMut::latched(self.core, self.file, self.frame, self.block);
        self.core.cache.check_here(self.file, self.frame)?;
        Ok(Some(page))
    }

    /// Turns the pin into the page to read.
    ///
    /// # Errors
    /// As [`Pin::latch_shared`].
    pub fn into_shared(self) -> crate::Result<PageRef<'p>> {
        let (core, file, frame, block) = self.into_parts();
        page::latch_shared(core, file, frame, block)
    }

    /// Turns the pin into the page to change.
    ///
    /// # Errors
    /// As [`Pin::latch_exclusive`].
    pub fn into_exclusive(self) -> crate::Result<PageMut<'p>> {
        self.file.check_writable()?;
        let (core, file, frame, block) = self.into_parts();
        page::latch_exclusive(core, file, frame, block)
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
