//! Traffic: a fixed number of requests in flight, each replaced as soon as it has ended.
//!
//! Completion order does not matter, unlike for a reader of blocks in order: the disk always has the full number.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use forebay_io::{Arena, CacheMode, Completed, File, Io, IoOptions, Lease, Prefer, Request, Then};
use hdrhistogram::Histogram;

use forebay_measure::coldness::wait_histogram;

/// Requests that a window has at least, unless it would last many times its time.
const COUNT_MIN: u64 = 64;
const TIMES_MAX: u32 = 8;

/// The result of a time of traffic.
#[derive(Debug)]
pub(super) struct Window {
    /// Requests a second.
    pub(super) per_s: f64,
    /// How long each took, in nanoseconds.
    pub(super) waits: Histogram<u64>,
}

/// [`Request::read`] or [`Request::write`].
pub(super) type Make = fn(&File, u64, Vec<Lease>) -> Request;

/// Requests of one size to one file.
pub(super) struct Traffic<'a> {
    make: Make,
    file: &'a File,
    io: Io,
    spare: Vec<Lease>,
    under_way: u32,
    end: Sender<Ended>,
    ended: Receiver<Ended>,
}

/// How long a request took, and its result.
type Ended = (Duration, Completed);

impl<'a> Traffic<'a> {
    /// With at most `depth` requests of `bytes`. Must be used on this thread.
    pub(super) fn open(
        make: Make,
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
        let (end, ended) = channel();
        Ok(Traffic { make, file, io, spare, under_way: 0, end, ended })
    }

    /// The rate of `depth` concurrent requests, for about `time` but at most `most` requests. They are in
    /// flight before the measurement begins, and none is when it returns.
    pub(super) fn window(
        &mut self,
        depth: u32,
        most: u64,
        time: Duration,
        place: &mut impl Iterator<Item = u64>,
    ) -> anyhow::Result<Window> {
        let (mut waits, mut before) = (wait_histogram(), 0);
        let mut begun = Instant::now();
        let mut left = most;
        loop {
            let ended = self.replace(depth, &mut left, place)?;
            // The first requests met an idle disk.
            if before < u64::from(depth) {
                before += ended.len() as u64;
                begun = Instant::now();
            } else {
                ended.iter().for_each(|wait| waits.saturating_record(wait.as_nanos() as u64));
            }
            let passed = begun.elapsed();
            let enough = passed >= time && (waits.len() >= COUNT_MIN || passed >= time * TIMES_MAX);
            if enough || (left == 0 && self.under_way == 0) {
                let per_s = waits.len() as f64 / passed.as_secs_f64();
                while self.under_way > 0 {
                    self.wait_for_some()?;
                }
                return Ok(Window { per_s, waits });
            }
        }
    }

    /// Keeps `depth` requests in flight, or fewer if `left` is less than the number missing, and waits for some.
    fn replace(
        &mut self,
        depth: u32,
        left: &mut u64,
        place: &mut impl Iterator<Item = u64>,
    ) -> anyhow::Result<Vec<Duration>> {
        let missing = u64::from(depth - self.under_way).min(*left);
        *left -= missing;
        let mut requests: Vec<(Request, Then)> = Vec::new();
        for offset in place.take(missing as usize) {
            let lease = self.spare.pop().expect("there is memory for as many as are under way");
            let (end, waiter, begun) = (self.end.clone(), thread::current(), Instant::now());
            let then: Then = Box::new(move |completed| {
                // The receiver no longer exists when this thread has given up.
                let _ = end.send((begun.elapsed(), completed));
                waiter.unpark();
            });
            requests.push(((self.make)(self.file, offset, vec![lease]), then));
            self.under_way += 1;
        }
        self.io.submit_all_then(requests);
        self.wait_for_some()
    }

    /// The times of the completed requests; at least one, if one is in flight.
    fn wait_for_some(&mut self) -> anyhow::Result<Vec<Duration>> {
        let all = RefCell::new(Vec::new());
        self.io.wait_until(&|| {
            all.borrow_mut().extend(self.ended.try_iter());
            !all.borrow().is_empty()
        });
        let mut waits = Vec::new();
        for (wait, completed) in all.into_inner() {
            self.under_way -= 1;
            self.spare.extend(completed.into_result()?);
            waits.push(wait);
        }
        Ok(waits)
    }
}
