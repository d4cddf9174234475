//! A page that a task waits for: pinned, then its load, then its latch, with a waker where a thread would sleep.
//!
//! Meanwhile a task holds the pin and a place on the list of waiters for the frame: the caller that drops a [`Held`]
//! must return both ([`Cache::let_go`]). The load itself has no owner: it goes on, and the page is in memory for the
//! next caller.
//!
//! Concurrency: one task at a time polls; the thread that completes the read or releases the latch wakes it.

use std::task::{Poll, Waker, ready};

use super::Cache;
use super::file::CachedFile;
use super::frame::word::Mode;
use super::frame::{FrameIndex, Loaded, TaskPlace};
use crate::error::Error;

/// A pinned frame that a task waits for.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) frame: FrameIndex,
    place: TaskPlace,
    /// The page is resident, and its latch has been waited for.
    waited: bool,
    here: bool,
}

/// The outcome for a page that a task waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitResult {
    /// It is resident, and latched.
    Latched,
    /// The load failed to deliver it: look up the page table again.
    LookAgain,
}

impl Held {
    /// For a frame that the task has pinned.
    pub(crate) fn pinned(frame: FrameIndex) -> Held {
        Held { frame, place: TaskPlace::default(), waited: false, here: false }
    }

    /// True if the task waits for the latch.
    pub(crate) fn is_here(&self) -> bool {
        self.here
    }
}

impl Cache {
    /// Ready when the page in the frame is resident and latched in `mode`, or not available. The pin is the caller's
    /// until then, and is released with any result but [`WaitResult::Latched`].
    pub(crate) fn poll_held(
        &self,
        file: &CachedFile,
        held: &mut Held,
        mode: Mode,
        waker: &Waker,
    ) -> Poll<Result<WaitResult, Error>> {
        let Held { frame, place, waited, here } = held;
        let frame = *frame;
        if !*here {
            ready!(self.frames.poll_loaded(frame, place, waker));
            let loaded = self.frames.loaded(frame);
            if !matches!(loaded, Loaded::Here) {
                self.frames.unpin(frame);
            }
            match loaded {
                Loaded::Here => *here = true,
                Loaded::Failed(error) => return Poll::Ready(Err(error)),
                Loaded::LookAgain => return Poll::Ready(Ok(WaitResult::LookAgain)),
            }
        }
        *waited |= place.is_taken();
        ready!(self.frames.poll_latch(frame, mode, *waited, place, waker));
        Poll::Ready(match self.check_here(file, frame) {
            Ok(()) => Ok(WaitResult::Latched),
            Err(error) => {
                self.frames.release(frame, mode);
                if error.is_refreshed() { Ok(WaitResult::LookAgain) } else { Err(error) }
            }
        })
    }

    /// Unregisters the task.
    pub(crate) fn let_go(&self, mut held: Held) {
        self.frames.forget_task(held.frame, &mut held.place);
        self.frames.unpin(held.frame);
    }
}
