//! Delivery: from a block of the window to a page that the caller holds.

use std::borrow::Borrow;
use std::cell::Cell;
use std::time::Duration;

use forebay_lookahead::{ReadMode, cached_read_max};

use super::window::{Item, State};
use super::{Policy, ReadStream, StreamError, Streamed, Wanted};
use crate::api::guard::PageRef;
use crate::api::options::Order;
use crate::api::paged_file::PagedFile;
use crate::cache::frame::FrameIndex;
use crate::cache::frame::Loaded;
use crate::cache::frame::word::{AHEAD, Mode, QUEUED, READING, VALID};
use crate::cache::{Absent, Asked, touch};
use crate::core::disk::Reader;
use crate::error::Error;
use crate::observe::stats::{Event, Wait};
use crate::readahead::trace::{self, Action, Why};
use crate::tag::Block;

pub(super) type Given<'f, D, H> = Result<Streamed<'f, D, H>, StreamError<D>>;

/// A pin outside the window: released even if a foreign log or clock panics.
pub(super) struct Held<H: Borrow<PagedFile>> {
    handle: H,
    frame: FrameIndex,
    /// Another owner has the pin.
    kept: bool,
}

impl<H: Borrow<PagedFile>> Held<H> {
    pub(super) fn new(handle: H, frame: FrameIndex) -> Held<H> {
        Held { handle, frame, kept: false }
    }

    /// Another owner has the pin now.
    fn keep(mut self) {
        self.kept = true;
    }
}

impl<H: Borrow<PagedFile>> Drop for Held<H> {
    fn drop(&mut self) {
        if !self.kept {
            self.handle.borrow().core().cache.frames.unpin(self.frame);
        }
    }
}

impl<'f, I, H> ReadStream<'f, I, H>
where
    I: Iterator<Item: Wanted>,
    H: Borrow<PagedFile> + Clone,
{
    /// The first block that is not in memory, or any block while decisions are traced: begins a window with it. `hit`:
    /// the frame, if it was in memory after all, pinned and latched.
    #[cold]
    pub(super) fn first_of_window(
        &mut self,
        block: Block,
        data: <I::Item as Wanted>::Data,
        hit: Option<FrameIndex>,
    ) -> Given<'f, <I::Item as Wanted>::Data, H> {
        let handle = self.handle.clone();
        self.found += u64::from(hit.is_some());
        self.book_found();
        if let Some(frame) = hit {
            let page = PageRef::latched(handle, frame, block);
            self.trace_delivery(block, Why::Hit);
            return Ok(Streamed { page, data });
        }
        if !self.looks_ahead() {
            let page = self.read_alone(block);
            return self.given(block, data, page);
        }
        self.window.push(block, data);
        self.refill_behind_first();
        let place = self.place();
        let item = self.window.take(place).expect("[WIN-1] a block was decided on just now");
        self.deliver(item)
    }

    /// The position of the next block.
    fn place(&mut self) -> usize {
        match self.order {
            Order::InOrder => 0,
            Order::Any => self.any_place(),
        }
    }

    /// The next known block.
    pub(super) fn next_known(&mut self) -> Option<Given<'f, <I::Item as Wanted>::Data, H>> {
        self.refill();
        if self.window.has_named() {
            // The iterator panicked while the stream took more blocks from it.
            self.ask();
        }
        let place = self.place();
        let item = self.window.take(place)?;
        Some(self.deliver(item))
    }

    /// The position of a page that is resident, if there is one, or that must be read separately: the oldest, if it is
    /// not being read.
    pub(super) fn place_ready(&self) -> Option<usize> {
        let ready = self.window.position(|item| match item.state {
            State::Pinned { frame, .. } => {
                !self.handle.borrow().core().cache.frames.get(frame).word().has(READING)
            }
            State::Named | State::Later => false,
        });
        let oldest_comes = || matches!(self.window.state(0), Some(State::Pinned { .. }));
        ready.or_else(|| (!oldest_comes()).then_some(0))
    }

    /// The position of a page that the queue carries.
    pub(super) fn place_queued(&self) -> Option<usize> {
        self.window.position(|item| match item.state {
            State::Pinned { frame, .. } => {
                self.handle.borrow().core().cache.frames.get(frame).word().has(QUEUED)
            }
            State::Named | State::Later => false,
        })
    }

    /// The position of a page that is resident; waits for one if needed.
    fn any_place(&mut self) -> usize {
        let core = self.handle.borrow().core();
        let ready = || self.place_ready();
        if let Some(place) = ready() {
            return place;
        }
        if self.handle.borrow().file().check_owner().is_err() {
            return 0;
        }
        // Reads in the queue end as it is driven, by whichever thread, and wake this thread. A read by another thread is
        // waited for only if there are none.
        let queued = self.place_queued();
        let Some(State::Pinned { frame, .. }) = self.window.state(queued.unwrap_or(0)) else {
            return 0;
        };
        let space = &self.handle.borrow().file().space;
        self.count_late();
        let start = core.clock.now();
        match queued {
            Some(_) => core.cache.frames.rest_while_reading(frame, || {
                self.watch.wait_until(&space.queue, &|| ready().is_some());
            }),
            None => core.cache.wait_read(&**core, self.handle.borrow().file(), frame),
        }
        let (waited, found) = (core.clock.now().saturating_sub(start), ready());
        self.book_wait(waited);
        found.unwrap_or(0)
    }

    fn deliver(
        &mut self,
        item: Item<<I::Item as Wanted>::Data>,
    ) -> Given<'f, <I::Item as Wanted>::Data, H> {
        let Item { block, data, state } = item;
        let page = match state {
            State::Pinned { frame, asked } => {
                self.share.give_back();
                self.hand_over(block, Held::new(self.handle.clone(), frame), asked)
            }
            State::Named | State::Later => self.reach(block),
        };
        self.given(block, data, page)
    }

    pub(super) fn given(
        &mut self,
        block: Block,
        data: <I::Item as Wanted>::Data,
        page: Result<PageRef<'f, H>, Error>,
    ) -> Given<'f, <I::Item as Wanted>::Data, H> {
        self.stats.delivered += 1;
        self.pace.delivered += 1;
        match page {
            Ok(page) => Ok(Streamed { page, data }),
            Err(error) => {
                self.stats.errors += 1;
                Err(StreamError { block, data, error })
            }
        }
    }

    /// Converts the stream's pin into the caller's page.
    fn hand_over(
        &mut self,
        block: Block,
        held: Held<H>,
        asked: bool,
    ) -> Result<PageRef<'f, H>, Error> {
        let handle = self.handle.clone();
        let (core, file) = (handle.borrow().core(), handle.borrow().file());
        let frame = held.frame;
        let late = !core.cache.frames.get(frame).word().has(VALID);
        if late {
            self.wait_for(frame);
        }
        if !matches!(core.cache.frames.loaded(frame), Loaded::Here) {
            // A combined read that failed, or another stream's: this page is read separately.
            drop(held);
            return self.read_alone(block);
        }
        if !late {
            self.distance.ready();
        }
        let kind = self.strategy.kind();
        if asked {
            self.pace.read += 1;
            file.counts.count(&core.counters, kind, Event::Miss);
        } else {
            core.counters.hit(kind);
        }
        self.trace_delivery(block, if late { Why::Late } else { Why::Hit });
        if core.cache.frames.deliver(frame, touch(&self.strategy)) {
            held.keep();
        } else {
            core.cache.latch_pinned(&**core, frame, Mode::Shared);
            held.keep();
            if core.cache.check_here(file, frame).is_err() {
                // Truncated meanwhile; there may be a new page of that number.
                core.cache.frames.release(frame, Mode::Shared);
                return self.read_alone(block);
            }
            core.cache.frames.touch(frame);
        }
        Ok(PageRef::latched(handle, frame, block))
    }

    fn wait_for(&mut self, frame: FrameIndex) {
        let handle = self.handle.clone();
        let core = handle.borrow().core();
        if core.check_owner().is_err() {
            // Reads in progress complete in the parent only.
            return;
        }
        self.count_late();
        let start = core.clock.now();
        while self.known.is_some() && self.waits_with_pins(frame) {}
        core.cache.wait_read(&**core, self.handle.borrow().file(), frame);
        let waited = core.clock.now().saturating_sub(start);
        self.book_wait(waited);
    }

    /// Waits a while for the page that is being read into `frame`, and requests more when the device is about to run
    /// out of work: pages complete in the disk's order, and this may be the last of its batch. False once the page is
    /// resident, or if another thread reads it.
    fn waits_with_pins(&mut self, frame: FrameIndex) -> bool {
        let core = self.handle.borrow().core();
        let under_way = || {
            let word = core.cache.frames.get(frame).word();
            word.has(READING) && word.has(QUEUED)
        };
        if !under_way() {
            return false;
        }
        core.cache.frames.rest_while_reading(frame, || {
            let io = &self.handle.borrow().file().space.queue;
            self.watch.wait_until(io, &|| !under_way() || self.is_due());
        });
        self.refill();
        true
    }

    /// Counts a page that is wanted before its read has completed, before the wait for it begins.
    pub(super) fn count_late(&self) {
        let core = self.handle.borrow().core();
        self.handle.borrow().file().counts.count(
            &core.counters,
            self.strategy.kind(),
            Event::PrefetchLate,
        );
    }

    pub(super) fn book_wait(&mut self, waited: Duration) {
        self.handle.borrow().core().counters.waited(Wait::InFlightRead, waited);
        self.distance.waited(waited);
        self.stats.waits += 1;
        self.stats.waited += waited;
        self.pace.waited += waited;
        self.pace.waited_for_reads += waited;
    }

    /// Gets a block that was not read ahead into a frame: it may be in memory by now, or in the page cache together
    /// with its neighbours; otherwise it is read separately.
    fn reach(&mut self, block: Block) -> Result<PageRef<'f, H>, Error> {
        let handle = self.handle.clone();
        let (core, file) = (handle.borrow().core(), handle.borrow().file());
        let (frame, tag) = (file.table.lookup(block), file.tag(block));
        let ahead = core.cache.frames.find(frame).is_some_and(|it| it.word().has(AHEAD));
        let use_once = touch(&self.strategy);
        if let Some(held) = core.cache.frames.acquire(frame, tag, Mode::Shared, use_once) {
            // A page read together with a neighbour was read from disk anyway.
            match ahead {
                true => {
                    self.pace.read += 1;
                    file.counts.count(&core.counters, self.strategy.kind(), Event::Miss);
                }
                false => core.counters.hit(self.strategy.kind()),
            }
            let page = PageRef::from_held(&handle, held, block);
            self.trace_delivery(block, Why::Hit);
            return Ok(page);
        }
        match self.take_deferred(block) {
            Some(deferred) if deferred.run.blocks > 1 => {
                match self.read_deferred(deferred, block) {
                    Some(held) => self.hand_over(block, held, true),
                    None => self.read_alone(block),
                }
            }
            _ => self.read_alone(block),
        }
    }

    /// Reads a single block, as a plain read does, through the stream's descriptor.
    fn read_alone(&mut self, block: Block) -> Result<PageRef<'f, H>, Error> {
        let handle = self.handle.clone();
        let took = Cell::new(Duration::ZERO);
        let reader = Reader { through: self.private.as_ref(), took: Some(&took), detect: None };
        let (mode, strategy, absent) = (Mode::Shared, &self.strategy, Absent::Read);
        let asked = Asked { mode, strategy, absent, reader };
        let core = handle.borrow().core();
        let frame = core.cache.acquire(&**core, handle.borrow().file(), block, asked)?;
        let page = PageRef::latched(handle.clone(), frame, block);
        if !took.get().is_zero() {
            self.stats.read_alone += 1;
            self.pace.read += 1;
            self.pace.waited += took.get();
            match &mut self.policy {
                Policy::Adaptive(adaptive) => adaptive.read_plain(took.get()),
                Policy::Fixed(ReadMode::Plain) => {}
                // Data that was prefetched in time was in the page cache.
                Policy::Fixed(ReadMode::Hint)
                    if took.get() <= cached_read_max(handle.borrow().core().page_bytes()) =>
                {
                    self.distance.ready();
                }
                Policy::Fixed(_) => self.distance.waited(took.get()),
            }
        }
        self.trace_delivery(block, Why::Single);
        Ok(page)
    }

    pub(super) fn trace_delivery(&self, first: Block, why: Why) {
        trace::record(
            self.traced,
            self.handle.borrow().file().id,
            (first, 1),
            Action::Deliver,
            why,
        );
    }
}
