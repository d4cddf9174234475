//! The end of a read-ahead: its pages become resident, on whichever thread sees the completion.
//!
//! The exception is a single page that a task waits for: every waiter receives its error.
//!
//! A combined read that fails says little about the pages in it: fifteen of sixteen may be intact. So no error is kept.
//! The pages of a failed read are abandoned as if no read had been tried; a thread that needs one reads it on its own
//! and gets that page's own error, if there is one. The same holds for pages with a wrong checksum.
//!
//! Invariants:  [CPL-1] a page becomes resident only if every byte of it was read, its checksum is right and its codec
//!              accepts it   [CPL-2] every page of a read that has ended is resident or not mapped
//! Concurrency: runs during another thread's wait: it neither submits nor waits.
//! Source:      the subdivision around latent sector errors is TigerBeetle's.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
#[cfg(feature = "futures")]
use std::task::Waker;
use std::thread::{self, Thread};
use std::time::Duration;

use forebay_io::{Completed, Error as IoError, Io};

use crate::cache::frame::Detached;
use crate::core::Core;
use crate::error::Error;
use crate::observe::stats::Event;
use crate::store::file::FileCore;
use crate::strategy_kind::StrategyKind;
#[cfg(feature = "futures")]
use crate::sync::wake_task;
use crate::tag::Block;

/// The purpose of one lease of a read.
#[derive(Debug)]
pub(crate) enum Piece {
    /// A page that is being read into a frame.
    Page(Block, Detached),
    /// A page that is read through and discarded.
    Gap,
}

/// A read in progress, with everything that its completion needs.
pub(crate) struct PendingRead {
    pub(super) core: Arc<Core>,
    pub(super) file: Arc<FileCore>,
    pub(super) pieces: Vec<Piece>,
    pub(super) kind: StrategyKind,
    pub(super) submitted_at: Duration,
    pub(super) watch: Option<Arc<Watch>>,
    /// Who receives the errors of its pages.
    pub(super) notify: Notify,
    /// Its pages count as prefetched until they are resident.
    pub(super) prefetched: bool,
}

/// Who receives the error of a page that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Notify {
    /// No waiter: a thread that needs the page reads it on its own, and receives the error then.
    None,
    /// Every waiter: the page is the only one of its read, and one of them requested it.
    All,
    /// As `All`, except for a damaged page, which must be read again.
    UnlessDamaged,
}

/// What a stream needs to know about its completed reads.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// The task that waits for any of them to end.
    waiting: Mutex<Option<Waiting>>,
    requests: AtomicU64,
    bytes: AtomicU64,
    latency_ns: AtomicU64,
}

#[derive(Debug)]
enum Waiting {
    Thread(Thread),
    /// Removed when it is woken.
    #[cfg(feature = "futures")]
    Task(Waker),
}

/// Reads that have ended since the last call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct EndedReads {
    pub(crate) requests: u64,
    pub(crate) bytes: u64,
    /// Total of all of them, from submission to completion.
    pub(crate) latency: Duration,
}

impl Watch {
    fn note(&self, bytes: u64, latency: Duration) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let latency = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.latency_ns.fetch_add(latency, Ordering::Relaxed);
        let waiting = self.waiting();
        match &*waiting {
            None => {}
            Some(Waiting::Thread(thread)) => thread.unpark(),
            #[cfg(feature = "futures")]
            Some(Waiting::Task(_)) => {
                let mut waiting = waiting;
                let task = waiting.take();
                drop(waiting);
                if let Some(Waiting::Task(waker)) = task {
                    wake_task(waker);
                }
            }
        }
    }

    /// Registers a task to be woken once, by the next read that ends.
    #[cfg(feature = "futures")]
    pub(crate) fn wake_by_next(&self, waker: &Waker) {
        let waker = waker.clone();
        let before = self.waiting().replace(Waiting::Task(waker));
        drop(before);
    }

    fn waiting(&self) -> MutexGuard<'_, Option<Waiting>> {
        // Each change is one assignment, so a poisoned value is still consistent.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drives `io` until `ready`, which becomes true when a read with this watch ends.
    pub(crate) fn wait_until(&self, io: &Io, ready: &dyn Fn() -> bool) {
        *self.waiting() = Some(Waiting::Thread(thread::current()));
        io.wait_until(ready);
        *self.waiting() = None;
    }

    /// Returns the reads that have ended since the last call.
    pub(crate) fn take(&self) -> EndedReads {
        EndedReads {
            requests: self.requests.swap(0, Ordering::Relaxed),
            bytes: self.bytes.swap(0, Ordering::Relaxed),
            latency: Duration::from_nanos(self.latency_ns.swap(0, Ordering::Relaxed)),
        }
    }
}

impl PendingRead {
    /// Processes the result of the read, and notifies its watcher.
    pub(crate) fn complete(mut self, done: Completed) {
        let bytes = self.take_in(done);
        self.note(bytes);
    }

    /// Processes the result of the read; catches panics of foreign code. Returns the number of bytes read.
    pub(super) fn take_in(&mut self, done: Completed) -> u64 {
        let core = &*self.core;
        let page_bytes = core.page_bytes() as u64;
        let bytes = match &done.result {
            Ok(()) => self.pieces.len() as u64 * page_bytes,
            // The pages before the end are complete.
            Err(IoError::PastEnd { got, .. }) => *got,
            Err(_) => 0,
        };
        self.file.counts.add(&core.counters, self.kind, Event::BytesRead, bytes);
        if let Err(error) = &done.result {
            self.file.counts.count(&core.counters, self.kind, Event::ReadErrors);
            tracing::debug!(%error, "a read ahead failed; its pages are read one by one");
        }
        let whole = (bytes / page_bytes) as usize;
        let mut one = (self.notify != Notify::None).then_some(done.result);
        let pieces = std::mem::take(&mut self.pieces).into_iter();
        let mut pages = 0;
        for (place, (piece, lease)) in pieces.zip(done.leases).enumerate() {
            let Piece::Page(block, load) = piece else {
                continue;
            };
            pages += 1;
            let mut mapped = core.cache.resume(&self.file, block, load);
            core.memory.take_back(mapped.loading(), lease);
            let page = core.memory.bytes_mut(mapped.loading());
            // A panic in a codec would end the thread that executes the queue's requests ([CPL-2]).
            let decode = AssertUnwindSafe(|| self.file.decode_page(page, block));
            if let Some(read) = one.take() {
                let read = read.map_err(|error| self.file.read_failure(block, error));
                let read = read.and_then(|()| {
                    catch_unwind(decode).unwrap_or_else(|_| Err(self.file.codec_panicked(block)))
                });
                let damaged = read.as_ref().is_err_and(Error::is_damage);
                if damaged && self.notify == Notify::UnlessDamaged {
                    continue; // Dropped, as below.
                }
                if damaged {
                    self.file.counts.count(&core.counters, self.kind, Event::CorruptPages);
                }
                mapped.complete_demanded(read);
                continue;
            }
            // Otherwise it is dropped, which removes it from the page table again.
            if place < whole && catch_unwind(decode).is_ok_and(|decoded| decoded.is_ok()) {
                mapped.complete();
            }
        }
        if self.prefetched {
            core.budget.end_prefetch(pages);
        }
        bytes
    }

    pub(super) fn note(&self, bytes: u64) {
        let Some(watch) = &self.watch else { return };
        // A panic would end the thread that executes the queue's requests.
        let now = catch_unwind(AssertUnwindSafe(|| self.core.clock.now())).unwrap_or_else(|_| {
            tracing::error!("the clock panicked; a read ahead counts as one that took no time");
            self.submitted_at
        });
        watch.note(bytes, now.saturating_sub(self.submitted_at));
    }
}
