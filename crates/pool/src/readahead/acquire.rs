//! Page requests of tasks: the counterpart of [`Cache::acquire`](crate::cache::Cache::acquire) for threads.
//!
//! The first attempt is a plain hit. After that the task waits with a waker for each obstacle: the load of the page,
//! begun here if no other caller has, which goes through the tablespace's queue; a latch; a frame; a place in the
//! queue; the end of a close. A task never reads, writes or sleeps on its own.
//!
//! Invariants:  [ACQ-1] dropped at any point, it leaves no pin, no latch and no place on a list behind; a load that it
//!              began goes on, and the page becomes resident for any caller
//! Concurrency: one task at a time polls. Between polls it holds at most a pin, and never a latch or a lock.
//! Failure:     an error of the load goes to every waiter, threads included.

use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use forebay_io::Io;

use super::{Ahead, Notify};
use crate::cache::frame::word::{Mode, QUEUED, VALID};
use crate::cache::frame::{FrameIndex, NO_FRAME};
use crate::cache::replacement::AccessStrategy;
use crate::cache::{Disk as _, Held, WaitResult, touch};
use crate::core::Core;
use crate::core::disk::TORN_PAUSES;
use crate::error::Error;
use crate::observe::stats::{Event, Wait};
use crate::store::Private;
use crate::store::file::FileCore;
use crate::tag::Block;
use crate::tasks::{Attended, Helper, Needs};

/// Consecutive lookups of an entry that points nowhere, before other tasks may run.
const LOOKS_MAX: u32 = 32;

/// Most frames that are freed at once for tasks. Source: the minimum target of a cleaner's round.
const FREED_MAX: usize = 32;

/// Pauses between attempts to get frames: as for a thread that waits for one.
const PAUSE_MIN: Duration = Duration::from_micros(50);
const PAUSE_MAX: Duration = Duration::from_millis(5);

/// The parameters of a page request.
#[derive(Clone, Copy)]
pub(crate) struct How<'a> {
    pub(crate) strategy: &'a AccessStrategy,
    /// The reader's private descriptors.
    pub(crate) through: Option<&'a Private>,
}

/// A page request of a task.
pub(crate) struct Acquire<'f> {
    core: &'f Arc<Core>,
    file: &'f Arc<FileCore>,
    block: Block,
    mode: Mode,
    /// A miss may be part of a sequence, and the following pages are then read ahead.
    detects: bool,
    /// The frame that the request has pinned.
    held: Option<Held>,
    /// How often it has begun the load of the page.
    loads: u32,
    attended: Option<Attended<'f>>,
    /// Its place on the list of tasks that retry.
    retry: Option<u64>,
    /// The current wait, and its start time.
    stalled: Option<(Wait, Duration)>,
}

impl<'f> Acquire<'f> {
    pub(crate) fn new(
        core: &'f Arc<Core>,
        file: &'f Arc<FileCore>,
        block: Block,
        mode: Mode,
        detects: bool,
    ) -> Acquire<'f> {
        Acquire {
            core,
            file,
            block,
            mode,
            detects,
            held: None,
            loads: 0,
            attended: None,
            retry: None,
            stalled: None,
        }
    }

    /// For a page that is already being loaded, or resident: in `frame`, which the caller hands over pinned.
    #[cfg(feature = "futures")]
    pub(crate) fn pinned(
        core: &'f Arc<Core>,
        file: &'f Arc<FileCore>,
        block: Block,
        frame: FrameIndex,
    ) -> Acquire<'f> {
        let mut page = Acquire::new(core, file, block, Mode::Shared, false);
        page.held = Some(Held::pinned(frame));
        page
    }

    /// True if it has begun a load.
    #[cfg(feature = "futures")]
    pub(crate) fn has_loaded(&self) -> bool {
        self.loads > 0
    }

    /// Ready with the page's frame, pinned and latched as requested.
    pub(crate) fn poll(&mut self, how: How<'_>, waker: &Waker) -> Poll<Result<FrameIndex, Error>> {
        let core = self.core;
        // The complete request, if nothing is in the way.
        if self.held.is_none()
            && let Some(hold) = core.hit(self.file, self.block, self.mode, how.strategy)
        {
            self.rest();
            return Poll::Ready(Ok(hold.frame));
        }
        let found = self.try_acquire(how, waker);
        match found {
            Ok(None) => Poll::Pending,
            Ok(Some(frame)) => {
                self.rest();
                Poll::Ready(Ok(frame))
            }
            Err(error) => {
                self.rest();
                Poll::Ready(Err(error))
            }
        }
    }

    /// As [`Acquire::poll`]; `None` when the task must wait for its waker.
    fn try_acquire(&mut self, how: How<'_>, waker: &Waker) -> Result<Option<FrameIndex>, Error> {
        let (core, file, block) = (self.core, self.file, self.block);
        let strategy = how.strategy;
        file.check_owner()?;
        for _ in 0..LOOKS_MAX {
            if self.held.is_some() {
                match self.poll_held(waker)? {
                    Poll::Pending => return Ok(None),
                    Poll::Ready(Some(frame)) => return Ok(Some(frame)),
                    Poll::Ready(None) if file.space.read_only && self.loads > 0 => {
                        // Possibly half written.
                        self.come_back(Needs::Time, waker)?;
                        return Ok(None);
                    }
                    Poll::Ready(None) => continue,
                }
            }
            match file.check_now(block) {
                Some(checked) => checked?,
                // Being closed: the outcome shows later.
                None => {
                    self.come_back(Needs::Time, waker)?;
                    return Ok(None);
                }
            }
            let frame = file.table.lookup(block);
            if frame == NO_FRAME {
                match self.begin(how, waker)? {
                    Poll::Pending => return Ok(None),
                    Poll::Ready(frame) => self.hold(frame, frame.is_some()),
                }
            } else if core.cache.frames.pin(frame, file.tag(block), touch(strategy)) {
                // The obstacle has changed meanwhile: see `acquire_slowly`.
                if core.cache.frames.get(frame).word().has(VALID) {
                    core.counters.hit(strategy.kind());
                } else {
                    file.counts.count(&core.counters, strategy.kind(), Event::HitInFlight);
                }
                self.hold(Some(frame), false);
            } else {
                // The entry points to a frame that has just lost the page, and is about to be removed.
                std::hint::spin_loop();
            }
        }
        waker.wake_by_ref();
        Ok(None)
    }

    fn hold(&mut self, frame: Option<FrameIndex>, loads: bool) {
        self.held = frame.map(Held::pinned);
        self.loads += u32::from(loads);
        self.core.retries.forget(&mut self.retry);
    }

    /// Waits for the page in the frame that is held. `None` when it must be looked up again.
    fn poll_held(&mut self, waker: &Waker) -> Result<Poll<Option<FrameIndex>>, Error> {
        let core = self.core;
        let Some(held) = &mut self.held else { return Ok(Poll::Ready(None)) };
        let frame = held.frame;
        let Poll::Ready(result) = core.cache.poll_held(self.file, held, self.mode, waker) else {
            let wait = match (held.is_here(), self.loads) {
                (true, _) => Wait::Latch,
                (false, 1..) => Wait::Read,
                (false, 0) => Wait::InFlightRead,
            };
            // After the waker is registered: completions from here on wake it.
            self.attend(core.cache.frames.get(frame).word().has(QUEUED))?;
            self.stall(wait);
            return Ok(Poll::Pending);
        };
        // The pin has been released, or the frame has lost the page.
        self.held = None;
        match result? {
            WaitResult::Latched => Ok(Poll::Ready(Some(frame))),
            WaitResult::LookAgain => Ok(Poll::Ready(None)),
        }
    }

    /// Makes sure that a thread drives the queue, if the task waits for it.
    fn attend(&mut self, queued: bool) -> Result<(), Error> {
        if !queued {
            self.attended = None;
        } else if self.attended.is_none() {
            let space = &self.file.space;
            self.attended = Some(space.driver.attend(&space.queue)?);
        }
        Ok(())
    }

    /// Begins the load of a page that is not mapped: returns its frame, pinned, or nothing if another caller was first.
    fn begin(&mut self, how: How<'_>, waker: &Waker) -> Result<Poll<Option<FrameIndex>>, Error> {
        let (core, file, block) = (self.core, self.file, self.block);
        if std::mem::take(&mut self.detects) {
            // Before the page itself is mapped, as for threads.
            core.follow(file, block, how.strategy);
        }
        let io = &file.space.queue;
        if io.in_flight() >= io.queue_depth() {
            return self.wait_for_room(io, waker);
        }
        let waited = match self.stalled {
            // The helper thread looks for frames, on behalf of all waiting tasks.
            Some((Wait::Frame, since)) => Some(core.clock.now().saturating_sub(since)),
            _ => None,
        };
        let frame = match waited {
            Some(_) => core.cache.frames.take_free().map(|owned| (owned, None)),
            None => core.cache.allocate_clean(&**core, how.strategy),
        };
        let Some(frame) = frame else {
            if let Some(waited) = waited {
                if let Some(error) = core.retries.failed() {
                    return Err(error);
                }
                if waited >= core.cache.frame_wait {
                    return Err(core.cache.no_free_frame(waited));
                }
            }
            self.stall(Wait::Frame);
            let since = self.stalled.map_or(Duration::ZERO, |(_, since)| since);
            self.come_back(Needs::Frame { until: since + core.cache.frame_wait }, waker)?;
            return Ok(Poll::Pending);
        };
        // Only now: a ring's page may have needed a write, by the same queue.
        let place = io.book(1);
        if place.is_empty() {
            return self.wait_for_room(io, waker);
        }
        let ahead = Ahead {
            core,
            file,
            strategy: how.strategy,
            through: how.through,
            queued: true,
            watch: None,
            traced: None,
            why: None,
            waits: false,
            prefetched: false,
        };
        // While another pool writes the file, the page may be read half written; threads handle that the same way.
        let again = file.space.read_only && self.loads < TORN_PAUSES;
        let notify = if again { Notify::UnlessDamaged } else { Notify::All };
        Ok(Poll::Ready(ahead.fetch(block, frame, place, notify)?))
    }

    fn wait_for_room(&mut self, io: &Io, waker: &Waker) -> Result<Poll<Option<FrameIndex>>, Error> {
        self.stall(Wait::Read);
        self.come_back(Needs::Room(io.clone()), waker)?;
        Ok(Poll::Pending)
    }

    /// Registers for a retry of a condition that is not signalled.
    fn come_back(&mut self, needs: Needs, waker: &Waker) -> Result<(), Error> {
        let core = self.core;
        core.retries.wait(&mut self.retry, needs, waker, || {
            let core = Arc::downgrade(core);
            move |helper: &Helper| {
                let mut pause = PAUSE_MIN;
                while let Some(core) = core.upgrade()
                    && !helper.is_stopped()
                    && !core.retries.is_empty()
                {
                    pause = if core.help_tasks() { PAUSE_MIN } else { (2 * pause).min(PAUSE_MAX) };
                    core.pause(pause);
                }
            }
        })
    }

    /// Records that the task waits for `wait` from now on, if it does not already.
    fn stall(&mut self, wait: Wait) {
        if self.stalled.is_none_or(|(known, _)| known != wait) {
            self.book();
            self.stalled = Some((wait, self.core.clock.now()));
        }
    }

    fn book(&mut self) {
        if let Some((wait, since)) = self.stalled.take() {
            let waited = self.core.clock.now().saturating_sub(since);
            self.core.counters.waited(wait, waited);
        }
    }

    /// The wait is over.
    fn rest(&mut self) {
        self.book();
        self.attended = None;
        self.core.retries.forget(&mut self.retry);
    }
}

impl Drop for Acquire<'_> {
    fn drop(&mut self) {
        // [ACQ-1]
        if let Some(held) = self.held.take() {
            self.core.cache.let_go(held);
        }
        self.core.retries.forget(&mut self.retry);
    }
}

impl Core {
    /// One attempt for tasks that wait for an unsignalled condition. True if there was a frame or room for any.
    pub(crate) fn help_tasks(&self) -> bool {
        let wanted = self.retries.frames_wanted();
        let free = self.cache.frames.free_at_most();
        let missing = wanted.saturating_sub(free).min(FREED_MAX);
        let (found, failed) = match self.cache.free_frames(self, missing) {
            Ok(freed) => (free + freed, None),
            Err(error) => (free, Some(error).filter(|_| free == 0)),
        };
        self.retries.wake(found, self.clock.now(), failed)
    }
}
