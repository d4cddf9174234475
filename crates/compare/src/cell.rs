//! Cell: one peer, read by some threads for some time.
//!
//! Threads start together behind a gate; time runs from the first start to the last end, so
//! that both the starting of 64 threads and the last reads of a long queue are included.
//! (The gate is a lock that all threads wait to share: one wake makes all of them runnable. A `Barrier` wakes
//! them one after the other, and the first ones, which never sleep, keep the others from the
//! processors for longer than a measurement.)
//! In the missing case the threads share one order of blocks and take it in short runs; in the
//! resident case each draws its own, because a shared counter would dominate the measurement.
//!
//! Invariants:  [CMP-3] a block is read at most once in an order that is shared
//!              [CMP-4] every page is checked, and a wrong one ends the run
//! Failure:     the first error of any thread stops all of them and is returned.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use hdrhistogram::Histogram;

use crate::content::Content;
use crate::peer::Peer;
use forebay_measure::interrupt;

/// Blocks that a thread takes from the shared order at a time.
const RUN_BLOCKS: usize = 8;

/// Of reads that take less than a microsecond, one in this many is timed.
const TIMED_OF_SHORT: u64 = 64;

/// The interval of checks for an interruption.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// The blocks to read.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Blocks<'a> {
    /// The blocks once each, in this order, shared by all threads.
    Once(&'a [u32]),
    /// Blocks below `below`, drawn by each thread, with repetitions.
    Drawn {
        /// The first block that is not drawn.
        below: u32,
        /// Seed of all threads' generators.
        seed: u64,
    },
}

/// Its result.
#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    /// Pages read.
    pub(crate) reads: u64,
    /// From the first thread's start to the last one's end.
    pub(crate) elapsed: Duration,
    /// How long a read took, in nanoseconds.
    pub(crate) wait_ns: Histogram<u64>,
}

/// Lets `threads` threads read `blocks` through `peer` until `duration` is over or all are read.
///
/// # Errors
/// [`Interrupted`](interrupt::Interrupted), an error of the peer, or a page other than the requested
/// one.
pub(crate) fn measure(
    peer: &dyn Peer,
    content: &Content,
    blocks: Blocks<'_>,
    threads: u32,
    duration: Duration,
) -> anyhow::Result<Outcome> {
    let (stop, cursor) = (AtomicBool::new(false), AtomicUsize::new(0));
    let gate = RwLock::new(());
    let (alive, ended) = mpsc::channel::<Arrived>();
    let shares = thread::scope(|scope| {
        let closed = gate.write().unwrap_or_else(PoisonError::into_inner);
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let mut next = Next::new(blocks, &cursor, thread);
                let (alive, stop, gate) = (alive.clone(), &stop, &gate);
                scope.spawn(move || {
                    let _ = alive.send(Arrived);
                    drop(gate.read().unwrap_or_else(PoisonError::into_inner));
                    let share = read_until(stop, peer, content, &mut next);
                    if share.is_err() {
                        stop.store(true, Ordering::Relaxed);
                    }
                    drop(alive);
                    share
                })
            })
            .collect();
        drop(alive);
        for Arrived in ended.iter().take(threads as usize) {}
        drop(closed);
        let interrupted = wait(&ended, duration);
        stop.store(true, Ordering::Relaxed);
        let shares: Vec<_> = workers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        interrupted?;
        let finished = shares
            .into_iter()
            .map(|share| share.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        finished.collect::<anyhow::Result<Vec<Share>>>()
    })?;
    let start = shares.iter().map(|share| share.start).min().context("no thread")?;
    let end = shares.iter().map(|share| share.end).max().context("no thread")?;
    let mut wait_ns = waits();
    for share in &shares {
        wait_ns.add(&share.wait_ns).context("histograms are alike")?;
    }
    let reads = shares.iter().map(|share| share.reads).sum();
    if let Blocks::Once(order) = blocks {
        assert!(reads <= order.len() as u64, "[CMP-3] {reads} of {}", order.len());
    }
    Ok(Outcome { reads, elapsed: end - start, wait_ns })
}

/// A thread is about to wait at the gate.
struct Arrived;

/// Sleeps until `duration` is over or no thread reads any more.
fn wait(ended: &Receiver<Arrived>, duration: Duration) -> Result<(), interrupt::Interrupted> {
    let start = Instant::now();
    loop {
        interrupt::check()?;
        let left = duration.saturating_sub(start.elapsed());
        if left.is_zero() {
            return Ok(());
        }
        match ended.recv_timeout(left.min(CHECK_INTERVAL)) {
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Err(RecvTimeoutError::Timeout) | Ok(Arrived) => {}
        }
    }
}

/// The result of one thread.
struct Share {
    reads: u64,
    start: Instant,
    end: Instant,
    wait_ns: Histogram<u64>,
}

fn read_until(
    stop: &AtomicBool,
    peer: &dyn Peer,
    content: &Content,
    next: &mut Next<'_>,
) -> anyhow::Result<Share> {
    let timed_of = match next {
        Next::Once { .. } => 1,
        Next::Drawn { .. } => TIMED_OF_SHORT,
    };
    let (mut reads, mut wait_ns) = (0u64, waits());
    let start = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        let Some(block) = next.block() else { break };
        let begun = reads.is_multiple_of(timed_of).then(Instant::now);
        let found = peer
            .read(block)
            .with_context(|| format!("{} could not read block {block}", peer.name()))?;
        if let Some(begun) = begun {
            wait_ns.saturating_record(begun.elapsed().as_nanos() as u64);
        }
        if found != content.expected(block) {
            bail!("{} gave a wrong page for block {block}", peer.name());
        }
        reads += 1;
    }
    Ok(Share { reads, start, end: Instant::now(), wait_ns })
}

/// A histogram of waits: from 1 ns to a minute, to two digits.
pub(crate) fn waits() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 2).expect("these bounds are valid")
}

/// The source of a thread's next block.
enum Next<'a> {
    Once { order: &'a [u32], cursor: &'a AtomicUsize, run: Range<usize> },
    Drawn { random: fastrand::Rng, below: u32 },
}

impl<'a> Next<'a> {
    fn new(blocks: Blocks<'a>, cursor: &'a AtomicUsize, thread: u32) -> Next<'a> {
        match blocks {
            Blocks::Once(order) => Next::Once { order, cursor, run: 0..0 },
            Blocks::Drawn { below, seed } => {
                let seed = seed ^ (u64::from(thread) + 1) << 32;
                Next::Drawn { random: fastrand::Rng::with_seed(seed), below }
            }
        }
    }

    fn block(&mut self) -> Option<u32> {
        match self {
            Next::Drawn { random, below } => Some(random.u32(..*below)),
            Next::Once { order, cursor, run } => {
                if run.start >= run.end {
                    let start = cursor.fetch_add(RUN_BLOCKS, Ordering::Relaxed);
                    *run = start.min(order.len())..(start + RUN_BLOCKS).min(order.len());
                }
                run.next().map(|index| order[index])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Mutex;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    /// Counts the reads of it and returns a wrong page for one block.
    struct Fake {
        content: Content,
        wrong: Option<u32>,
        read: Mutex<HashMap<u32, u32>>,
    }

    impl Fake {
        fn new(wrong: Option<u32>) -> Fake {
            Fake { content: Content::new(7, 4096), wrong, read: Mutex::default() }
        }
    }

    impl Peer for Fake {
        fn name(&self) -> &'static str {
            "fake"
        }

        fn read(&self, block: u32) -> anyhow::Result<u64> {
            *self.read.lock().unwrap().entry(block).or_default() += 1;
            Ok(self.content.expected(block) ^ u64::from(self.wrong == Some(block)))
        }
    }

    #[test]
    fn cmp_3_a_shared_order_is_read_once_by_any_number_of_threads() {
        let order: Vec<u32> = (0..1003).collect();
        for threads in [1, 2, 7, 200] {
            let fake = Fake::new(None);
            let blocks = Blocks::Once(&order);
            let outcome = measure(&fake, &fake.content, blocks, threads, LONG).unwrap();
            assert_eq!(outcome.reads, 1003);
            assert_eq!(outcome.wait_ns.len(), 1003);
            assert!(outcome.elapsed < LONG / 2);
            let read = fake.read.into_inner().unwrap();
            assert_eq!(read.len(), 1003, "[CMP-3]");
            assert!(read.values().all(|times| *times == 1), "[CMP-3]");
        }
    }

    #[test]
    fn drawn_blocks_end_with_the_time_and_stay_below_the_bound() {
        let fake = Fake::new(None);
        let blocks = Blocks::Drawn { below: 10, seed: 1 };
        // On a busy machine no thread may begin in a short time.
        let times = (0..12).map(|double| Duration::from_millis(30) * 2_u32.pow(double));
        let has_read = times.map(|time| {
            let outcome = measure(&fake, &fake.content, blocks, 3, time).unwrap();
            assert!(outcome.elapsed >= time);
            outcome.reads > 0
        });
        assert!({ has_read }.any(|it| it));
        assert!(fake.read.into_inner().unwrap().keys().all(|block| *block < 10));
    }

    #[test]
    fn cmp_4_a_wrong_page_ends_the_measurement_with_its_block() {
        let fake = Fake::new(Some(4));
        let blocks = Blocks::Drawn { below: 10, seed: 1 };
        let error = measure(&fake, &fake.content, blocks, 3, LONG).unwrap_err();
        assert!(error.to_string().contains("fake gave a wrong page for block 4"), "[CMP-4]");
    }
}
