//! The cleaner: a thread that keeps clean victims ahead of the clock hand.
//!
//! A thread that misses a page should find a clean page to evict. The cleaner examines the frames that the hand will
//! reach next and writes those that are dirty and no longer used, so many of them that the hand does not catch up
//! before the next round.
//!
//! How many is enough? What matters is how many frames are allocated during one round of cleaning; if that many are
//! clean, no thread waits. That can be counted without a clock: allocations since the last round, kept as a decaying
//! peak. The target is twice that.
//!
//! When nothing is allocated, or no dirty page was in the way, the cleaner sleeps without a timeout.
//!
//! It also returns idle memory of page tables to the system, when it is notified of it.
//!
//! Where most pages are in use there are few victims ahead, and it could search the whole pool for them at each wakeup.
//! It examines at most 16 frames for each that it wants clean: if the hand goes further for a frame, it meets the dirty
//! one that wakes the cleaner again.
//!
//! Invariants:  [CLN-1] it never waits for a latch, and skips what is held
//!              [CLN-2] a round examines no more frames than a fixed multiple of those it wants clean
//! Source:      the look-ahead of the clock hand is PostgreSQL's BgBufferSync; waking by allocations
//!              rather than every 200 ms is ours.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};

use super::write::Copying;
use crate::cache::frame::word::{DIRTY, ORPHAN, READING, Touch, VALID, WRITING};
use crate::cache::frame::{FrameIndex, Frames};
use crate::core::Core;
use crate::error::Error;
use crate::observe::stats::PoolEvent;
use crate::store::PageCopy;
use crate::strategy_kind::StrategyKind;
use crate::tag::{FileId, PageTag};

/// The minimum number of clean frames ahead of the hand.
const TARGET_MIN: u64 = 32;

/// Most frames examined for each that must be clean.
const LOOKS_MAX: usize = 16;

/// Most chunks of a page table that are returned in a row: a system call each.
const CHUNKS_MAX: usize = 1024;

/// The decay of the peak of allocations in each round: one part in this many.
const FADE: u64 = 8;

/// The cleaner's thread, stopped when dropped.
#[derive(Debug)]
pub(crate) struct Cleaner {
    core: Arc<Core>,
    thread: Option<JoinHandle<()>>,
}

impl Cleaner {
    pub(crate) fn start(core: &Arc<Core>) -> Result<Cleaner, Error> {
        let shared = Arc::clone(core);
        let run = move || {
            let _ = shared.wakeup.thread.set(thread::current());
            Round::default().run(&shared);
        };
        let thread = thread::Builder::new().name("forebay-cleaner".to_owned()).spawn(run);
        let thread = thread.map_err(|error| Error::Setting {
            setting: "the cleaner's thread",
            value: "not started".to_owned(),
            expected: format!("the system refused it ({error}); raise the limit on threads"),
        })?;
        Ok(Cleaner { core: Arc::clone(core), thread: Some(thread) })
    }
}

impl Drop for Cleaner {
    fn drop(&mut self) {
        self.core.wakeup.stop.store(true, Ordering::Release);
        // Woken again even if it was already woken: the thread may have consumed that wakeup.
        self.core.wakeup.pending.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            if thread.join().is_err() {
                tracing::error!("the cleaner panicked");
            }
        }
    }
}

/// The state that one round of cleaning passes to the next.
#[derive(Debug, Default)]
struct Round {
    /// Allocations at the start of the last round.
    seen: u64,
    /// Allocations within a round: the decaying peak.
    peak: u64,
}

impl Round {
    fn run(mut self, core: &Core) {
        while core.wakeup.wait() {
            core.counters.count_pool(PoolEvent::CleanerWakes);
            let target = self.target(core.wakeup.allocations.load(Ordering::Relaxed));
            let target = target.min(core.cache.frames.usable() as u64 / 4).max(1);
            let cleaning = AssertUnwindSafe(|| clean_ahead(core, target as usize));
            if core.wakeup.tables.swap(false, Ordering::AcqRel) {
                give_back_tables(core);
            }
            // A user's log or policy that panics must not end the cleaning.
            let dirty = std::panic::catch_unwind(cleaning).unwrap_or_else(|_| {
                tracing::error!("a panic in the cleaner; it goes on");
                0
            });
            // Where nothing was dirty there is nothing to keep ahead of, until a clock sweep reports a dirty victim.
            let wake_at = if dirty == 0 { u64::MAX } else { self.seen + target / 2 };
            core.wakeup.wake_at.store(wake_at, Ordering::Relaxed);
        }
    }

    /// The number of frames ahead that should be clean, given the allocations so far.
    fn target(&mut self, allocations: u64) -> u64 {
        let recent = allocations - self.seen;
        self.seen = allocations;
        self.peak = recent.max(self.peak - self.peak / FADE);
        (2 * self.peak).max(TARGET_MIN)
    }
}

/// Returns idle memory of page tables to the system, in steps so that victims do not wait.
fn give_back_tables(core: &Core) {
    let idle = core.files.all().into_iter().filter(|file| file.table.is_idle());
    if idle.filter(|file| file.table.give_back(CHUNKS_MAX)).count() > 0 {
        core.wakeup.wake_for_tables();
    }
}

/// Writes dirty victims ahead of the hand until `target` frames there are clean. Returns how many were dirty.
fn clean_ahead(core: &Core, target: usize) -> usize {
    let hand = core.cache.replacement.position(core.cache.frames.usable());
    let (dirty, _) = dirty_ahead(&core.cache.frames, hand, target);
    let found = dirty.len();
    if found > 0 {
        core.counters.count_pool(PoolEvent::CleanerRounds);
    }
    // The pages stay dirty; threads that need their frames get the error.
    let _ = clean(core, dirty, |error| {
        tracing::warn!(%error, "the cleaner cannot write");
        Ok(())
    });
    found
}

/// Writes these pages, in the order of their blocks, as far as that is possible without waiting for other threads.
/// `failed` decides whether to go on after an error.
pub(super) fn clean(
    core: &Core,
    mut dirty: Vec<(PageTag, FrameIndex)>,
    failed: impl Fn(Error) -> Result<(), Error>,
) -> Result<(), Error> {
    dirty.sort_unstable();
    let mut files = dirty.chunk_by(|a, b| a.0.file == b.0.file);
    files.try_for_each(|of_one| write(core, of_one[0].0.file, of_one, &failed))
}

/// The dirty ones among the next `target` victims from `hand` on, and the number of frames examined.
fn dirty_ahead(
    frames: &Frames,
    hand: FrameIndex,
    target: usize,
) -> (Vec<(PageTag, FrameIndex)>, usize) {
    let count = frames.usable() as FrameIndex;
    let looks_max = frames.usable().min(target.saturating_mul(LOOKS_MAX)); // [CLN-2]
    let (mut good, mut dirty, mut looks) = (0, Vec::new(), 0);
    while looks < looks_max && good < target {
        let frame = (hand + looks as FrameIndex) % count;
        looks += 1;
        let it = frames.get(frame);
        let word = it.word();
        let used = word.pins() > 0 || word.has(READING | WRITING | ORPHAN) || !word.has(VALID);
        if used || word.usage() > 0 {
            continue;
        }
        good += 1;
        if word.has(DIRTY)
            && let Some(tag) = it.tag()
        {
            dirty.push((tag, frame));
        }
    }
    (dirty, looks)
}

/// Writes pages of one file, as many at a time as there are free buffers.
fn write(
    core: &Core,
    file: FileId,
    pages: &[(PageTag, FrameIndex)],
    failed: impl Fn(Error) -> Result<(), Error>,
) -> Result<(), Error> {
    let Some(file) = core.files.get(file) else { return Ok(()) };
    let at_once = (core.buffers.count() / 2).max(1);
    for pages in pages.chunks(at_once) {
        let mut copies: Vec<PageCopy<'_>> = Vec::new();
        for &(tag, frame) in pages {
            if !core.cache.frames.pin(frame, tag, Touch::Not) {
                continue;
            }
            match core.try_copy(&file, tag, frame) {
                Copying::Copied(copy) => copies.push(copy),
                // [CLN-1] The thread that has it will release it dirty again, or keeps it in use.
                Copying::Clean | Copying::NotNow => core.cache.frames.unpin(frame),
            }
        }
        let count = copies.len() as u64;
        if count > 0 {
            match core.write_copies(&file, copies, StrategyKind::Normal) {
                Ok(()) => core.counters.add_pool(PoolEvent::CleanerPages, count),
                Err(error) => failed(error)?,
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_target_follows_a_burst_at_once_and_forgets_it_slowly() {
        let mut round = Round::default();
        assert_eq!(round.target(0), TARGET_MIN);
        assert_eq!(round.target(1000), 2000);
        let next = round.target(1000);
        assert!((1700..2000).contains(&next), "{next}");
        let later = (0..100).map(|_| round.target(1000)).last();
        assert_eq!(later, Some(TARGET_MIN));
    }

    #[test]
    #[cfg_attr(any(loom, shuttle), ignore = "outside a model")]
    fn cln_2_where_there_are_no_victims_a_round_ends_after_some_looks() {
        let frames = Frames::new(100_000).unwrap();
        let (dirty, looks) = dirty_ahead(&frames, 99_990, 32);
        assert!(dirty.is_empty() && looks <= 32 * LOOKS_MAX, "[CLN-2] {looks}");
        let (_, looks) = dirty_ahead(&frames, 99_990, 50_000);
        assert_eq!(looks, 100_000, "[CLN-2]");
    }
}
