//! Traffic: a fixed number of requests under way, each replaced as soon as it has ended.
//!
//! In whatever order they end, unlike a reader of blocks in order: the disk always has as many as it should.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant};

use forebay_io::{Arena, CacheMode, Completed, File, Io, IoOptions, Lease, Prefer, Request, Then};
use hdrhistogram::Histogram;

/// Requests that a window has at least, unless it would last many times its time.
const COUNT_MIN: u64 = 64;
const TIMES_MAX: u32 = 8;

/// What requests do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
}

/// What a time of traffic gave.
#[derive(Debug)]
pub(super) struct Window {
    /// Requests a second.
    pub(super) per_s: f64,
    /// How long each took, in nanoseconds.
    pub(super) waits: Histogram<u64>,
}

/// Requests of one size to one file.
pub(super) struct Traffic<'a> {
    kind: Kind,
    file: &'a File,
    io: Io,
    spare: Vec<Lease>,
    ended: Arc<Ended>,
    under_way: u32,
}

/// What has ended and was not looked at yet.
struct Ended {
    list: Mutex<Vec<(Duration, Completed)>>,
    count: AtomicUsize,
    waiter: Thread,
}

/// From a nanosecond to an hour in steps of 0.1 %.
pub(super) fn wait_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 3_600_000_000_000, 3).expect("the histogram's bounds are valid")
}

impl<'a> Traffic<'a> {
    /// With at most `depth` requests of `bytes`. To be used on this thread.
    pub(super) fn open(
        kind: Kind,
        file: &'a File,
        depth: u32,
        bytes: u64,
    ) -> anyhow::Result<Traffic<'a>> {
        let memory = Arena::new(depth as usize, bytes as usize)?;
        let io = Io::open(&IoOptions {
            prefer: Prefer::Auto,
            cache: file.cache_mode(),
            queue_depth: depth as usize,
            workers: depth as usize,
            register: (file.cache_mode() == CacheMode::Direct)
                .then(|| Arc::clone(memory.mapping())),
            advise: false,
        })?;
        let mut spare: Vec<Lease> = std::iter::from_fn(|| memory.take()).collect();
        spare.iter_mut().for_each(|lease| fastrand::fill(lease));
        let ended = Arc::new(Ended {
            list: Mutex::default(),
            count: AtomicUsize::new(0),
            waiter: std::thread::current(),
        });
        Ok(Traffic { kind, file, io, spare, ended, under_way: 0 })
    }

    /// What `depth` requests under way come to, for about `time` but at most `most` requests. They are under
    /// way before it begins, and none is when it returns.
    pub(super) fn window(
        &mut self,
        depth: u32,
        most: u64,
        time: Duration,
        place: &mut impl Iterator<Item = u64>,
    ) -> anyhow::Result<Window> {
        let (mut waits, mut before) = (wait_histogram(), 0);
        let mut begun = Instant::now();
        let mut asked = 0;
        loop {
            let missing = u64::from(depth - self.under_way).min(most - asked);
            asked += missing;
            self.submit(missing, place);
            let ended = self.wait_for_some()?;
            // The first ones met a disk that had nothing to do.
            if before < u64::from(depth) {
                before += ended.len() as u64;
                begun = Instant::now();
            } else {
                ended.iter().for_each(|wait| waits.saturating_record(wait.as_nanos() as u64));
            }
            let passed = begun.elapsed();
            let enough = passed >= time && (waits.len() >= COUNT_MIN || passed >= time * TIMES_MAX);
            if enough || (asked == most && self.under_way == 0) {
                let per_s = waits.len() as f64 / passed.as_secs_f64();
                while self.under_way > 0 {
                    self.wait_for_some()?;
                }
                return Ok(Window { per_s, waits });
            }
        }
    }

    /// Sends `count` requests, `depth` at a time, to their end.
    pub(super) fn through(
        &mut self,
        depth: u32,
        count: u64,
        place: &mut impl Iterator<Item = u64>,
    ) -> anyhow::Result<Histogram<u64>> {
        let mut waits = wait_histogram();
        let mut asked = 0;
        while waits.len() < count {
            let missing = u64::from(depth - self.under_way).min(count - asked);
            asked += missing;
            self.submit(missing, place);
            let ended = self.wait_for_some()?;
            ended.iter().for_each(|wait| waits.saturating_record(wait.as_nanos() as u64));
        }
        Ok(waits)
    }

    fn submit(&mut self, count: u64, place: &mut impl Iterator<Item = u64>) {
        let mut requests: Vec<(Request, Then)> = Vec::new();
        for offset in place.take(count as usize) {
            let lease = self.spare.pop().expect("there is memory for as many as are under way");
            let request = match self.kind {
                Kind::Read => Request::read(self.file, offset, vec![lease]),
                Kind::Write => Request::write(self.file, offset, vec![lease]),
            };
            let (ended, begun) = (Arc::clone(&self.ended), Instant::now());
            let then: Then = Box::new(move |completed| ended.push(begun.elapsed(), completed));
            requests.push((request, then));
            self.under_way += 1;
        }
        self.io.submit_all_then(requests);
    }

    /// How long those took that have ended; at least one, if one is under way.
    fn wait_for_some(&mut self) -> anyhow::Result<Vec<Duration>> {
        let count = &self.ended.count;
        self.io.wait_until(&|| count.load(Ordering::Acquire) > 0);
        let mut waits = Vec::new();
        for (wait, completed) in self.ended.take() {
            self.under_way -= 1;
            self.spare.extend(completed.into_result()?);
            waits.push(wait);
        }
        Ok(waits)
    }
}

impl Ended {
    fn push(&self, wait: Duration, completed: Completed) {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        list.push((wait, completed));
        self.count.store(list.len(), Ordering::Release);
        drop(list);
        self.waiter.unpark();
    }

    fn take(&self) -> Vec<(Duration, Completed)> {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        self.count.store(0, Ordering::Release);
        std::mem::take(&mut list)
    }
}
