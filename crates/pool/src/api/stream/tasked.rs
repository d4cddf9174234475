//! A read stream for tasks: the window, the look-ahead and the requests of a [`ReadStream`], with a different way to
//! wait.
//!
//! Where a thread would sleep, a task registers a waker: for the next page, or, in any order, for whichever read of the
//! stream ends first. A page that could not be read ahead is read by the task as [`PagedFile::read_async`] does.
//!
//! Nothing is left to the kernel's own readahead: getting its data requires a read, on the executor's thread. For the
//! same reason a full queue counts as a lack of frames.
//!
//! [`PagedFile::read_async`]: crate::PagedFile::read_async

use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use forebay_lookahead::ReadMode;
use futures_core::Stream;

use super::deliver::Given;
use super::window::{Item, State};
use super::{Policy, ReadStream, StreamError, Streamed, Wanted};
use crate::api::guard::PageRef;
use crate::api::options::Order;
use crate::api::paged_file::PagedFile;
use crate::cache::frame::word::{Mode, VALID};
use crate::cache::frame::{FrameIndex, TaskPlace};
use crate::error::Error;
use crate::observe::stats::Event;
use crate::readahead::trace::Why;
use crate::readahead::{Acquire, How};
use crate::tag::Block;
use crate::tasks::Attended;

type Data<I> = <<I as Iterator>::Item as Wanted>::Data;

struct Tasked<'f, I>
where
    I: Iterator<Item: Wanted>,
{
    stream: ReadStream<'f, I>,
    coming: Option<Coming<'f, Data<I>>>,
    /// While it waits for any of its reads.
    attended: Option<Attended<'f>>,
    /// Then it is registered on the list of one of their frames too: the page may be loaded by another reader's read,
    /// which does not notify this stream's watch.
    parked: Option<(FrameIndex, TaskPlace)>,
}

/// The next block.
struct Coming<'f, D> {
    block: Block,
    data: D,
    page: Acquire<'f>,
    how: Found,
    since: Duration,
}

/// How the next block was found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    /// Pinned: resident, or still being read.
    Pinned { frame: FrameIndex, asked: bool, late: bool },
    /// Not read ahead.
    Alone,
}

impl<'f, I> ReadStream<'f, I>
where
    I: Iterator<Item: Wanted>,
{
    /// Turns the stream into one for tasks, which blocks no thread. See [Futures](crate#futures).
    ///
    /// Its pages are read ahead by the tablespace's queue; with `Os`, `Hint` and `Max`, and for
    /// `Prefetch` with direct I/O, each is read when it is its turn. The iterator of blocks runs on the task's thread.
    /// Dropping the stream releases everything at once.
    pub fn into_async(
        mut self,
    ) -> impl Stream<Item = Result<Streamed<'f, Data<I>>, StreamError<Data<I>>>> + Unpin + use<'f, I>
    {
        if !matches!(self.policy, Policy::Fixed(ReadMode::Plain)) {
            self.policy = Policy::Fixed(ReadMode::Queue);
        }
        self.waits = false;
        Tasked { stream: self, coming: None, attended: None, parked: None }
    }
}

impl<I: Iterator<Item: Wanted>> Drop for Tasked<'_, I> {
    fn drop(&mut self) {
        self.unpark();
    }
}

/// None of its fields is structurally pinned.
impl<I: Iterator<Item: Wanted>> Unpin for Tasked<'_, I> {}

impl<'f, I> Stream for Tasked<'f, I>
where
    I: Iterator<Item: Wanted>,
{
    type Item = Given<'f, Data<I>, &'f PagedFile>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if this.coming.is_none() && !ready!(this.choose(context.waker())) {
            return Poll::Ready(None);
        }
        let Some(coming) = &mut this.coming else { return Poll::Ready(None) };
        let how = How { strategy: &this.stream.strategy, through: this.stream.private.as_ref() };
        let frame = ready!(coming.page.poll(how, context.waker()));
        let Some(coming) = this.coming.take() else { return Poll::Ready(None) };
        Poll::Ready(Some(this.give(coming, frame)))
    }
}

impl<'f, I> Tasked<'f, I>
where
    I: Iterator<Item: Wanted>,
{
    /// Determines the next block. Ready with false when there is none.
    fn choose(&mut self, waker: &Waker) -> Poll<bool> {
        self.unpark();
        let stream = &mut self.stream;
        if stream.window.is_empty() {
            let Some((block, data)) = stream.pull() else { return Poll::Ready(false) };
            let file = stream.handle.file();
            let here = stream.handle.core().cache.frames.find(file.table.lookup(block));
            if here.is_some() || !stream.looks_ahead() {
                self.take(Item { block, data, state: State::Later });
                return Poll::Ready(true);
            }
            stream.window.push(block, data);
            stream.refill_behind_first();
        } else {
            stream.refill();
            if stream.window.has_named() {
                // The iterator panicked while the stream took more blocks from it.
                stream.ask();
            }
        }
        let place = match self.stream.order {
            Order::InOrder => 0,
            Order::Any => ready!(self.any_place(waker)),
        };
        if let Some(item) = self.stream.window.take(place) {
            self.take(item);
        }
        Poll::Ready(true)
    }

    /// As `ReadStream::any_place`.
    fn any_place(&mut self, waker: &Waker) -> Poll<usize> {
        let stream = &self.stream;
        stream.watch.wake_by_next(waker);
        // After the waker is registered.
        if let Some(place) = stream.place_ready() {
            self.attended = None;
            return Poll::Ready(place);
        }
        let space = &stream.handle.file().space;
        let attend = || space.driver.attend(&space.queue);
        if self.attended.is_none() && stream.place_queued().is_some() {
            self.attended = attend().ok();
        }
        // Without a read in the queue, or without a driver, it waits for the oldest: the error shows there.
        let queued = stream.place_queued().and_then(|place| stream.window.state(place));
        let (Some(State::Pinned { frame, .. }), true) = (queued, self.attended.is_some()) else {
            self.attended = None;
            return Poll::Ready(0);
        };
        let mut list_place = TaskPlace::default();
        let frames = &stream.handle.core().cache.frames;
        if frames.poll_loaded(frame, &mut list_place, waker).is_ready() {
            waker.wake_by_ref();
        } else {
            self.parked = Some((frame, list_place));
        }
        Poll::Pending
    }

    fn unpark(&mut self) {
        if let Some((frame, mut place)) = self.parked.take() {
            self.stream.handle.core().cache.frames.forget_task(frame, &mut place);
        }
    }

    fn take(&mut self, item: Item<Data<I>>) {
        let Item { block, data, state } = item;
        let (core, file) = (self.stream.handle.core(), self.stream.handle.file());
        let since = core.clock.now();
        let (page, how) = match state {
            State::Pinned { frame, asked } => {
                self.stream.share.give_back();
                let late = !core.cache.frames.get(frame).word().has(VALID);
                if late {
                    self.stream.count_late();
                }
                (Acquire::pinned(core, file, block, frame), Found::Pinned { frame, asked, late })
            }
            State::Named | State::Later => {
                (Acquire::new(core, file, block, Mode::Shared, false), Found::Alone)
            }
        };
        self.coming = Some(Coming { block, data, page, how, since });
    }

    /// The page is resident, or its load has failed: records that, and returns the page.
    fn give(
        &mut self,
        coming: Coming<'f, Data<I>>,
        frame: Result<FrameIndex, Error>,
    ) -> Given<'f, Data<I>, &'f PagedFile> {
        let Coming { block, data, page, how, since } = coming;
        let stream = &mut self.stream;
        let handle: &'f PagedFile = stream.handle;
        let (core, file) = (handle.core(), handle.file());
        let guard = frame.map(|frame| PageRef::latched(handle, frame, block));
        let kind = stream.strategy.kind();
        let waited = || core.clock.now().saturating_sub(since);
        let why = match how {
            // Its read failed, or it was truncated.
            _ if page.has_loaded() => {
                stream.stats.read_alone += 1;
                stream.pace.read += 1;
                stream.pace.waited += waited();
                stream.distance.waited(waited());
                Why::Single
            }
            Found::Pinned { frame, asked, late } => {
                match asked {
                    true => file.counts.count(&core.counters, kind, Event::Miss),
                    false => core.counters.hit(kind),
                }
                stream.pace.read += u32::from(asked);
                if guard.is_ok() {
                    core.cache.frames.touch(frame);
                }
                match late {
                    true => stream.book_wait(waited()),
                    false => stream.distance.ready(),
                }
                if late { Why::Late } else { Why::Hit }
            }
            Found::Alone => {
                stream.stats.hits += 1;
                Why::Hit
            }
        };
        stream.trace_delivery(block, why);
        stream.given(block, data, guard)
    }
}
