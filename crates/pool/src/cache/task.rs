//! A page that a task waits for: pinned, then its load, then its latch, with a waker wherever a thread would sleep.
//!
//! What a task holds meanwhile is the pin and a place on the list of those who wait for the frame: the caller that
//! drops a [`Held`] gives both back ([`Cache::let_go`]). The load itself is nobody's: it goes on, and the page is
//! there for the next who asks.
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
    /// The page is here, and its latch has been waited for.
    waited: bool,
    here: bool,
}

/// What has become of a page that a task waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Came {
    /// It is here, and latched.
    Latched,
    /// It is not coming: look in the page table again.
    LookAgain,
}

impl Held {
    /// For a frame that the task has pinned.
    pub(crate) fn pinned(frame: FrameIndex) -> Held {
        Held { frame, place: TaskPlace::default(), waited: false, here: false }
    }

    /// Whether it is the latch that is waited for.
    pub(crate) fn is_here(&self) -> bool {
        self.here
    }
}

impl Cache {
    /// Ready when the page in the frame is here and latched in `mode`, or not to be had. The pin is the caller's
    /// until then, and is let go of with anything but [`Came::Latched`].
    pub(crate) fn poll_held(
        &self,
        file: &CachedFile,
        held: &mut Held,
        mode: Mode,
        waker: &Waker,
    ) -> Poll<Result<Came, Error>> {
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
                Loaded::LookAgain => return Poll::Ready(Ok(Came::LookAgain)),
            }
        }
        *waited |= place.is_taken();
        ready!(self.frames.poll_latch(frame, mode, *waited, place, waker));
        Poll::Ready(match self.check_here(file, frame) {
            Ok(()) => Ok(Came::Latched),
            Err(error) => {
                self.frames.release(frame, mode);
                if error.is_refreshed() { Ok(Came::LookAgain) } else { Err(error) }
            }
        })
    }

    /// The task waits no more.
    pub(crate) fn let_go(&self, mut held: Held) {
        self.frames.forget_task(held.frame, &mut held.place);
        self.frames.unpin(held.frame);
    }
}
