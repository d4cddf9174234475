//! One measurement: read a list of blocks in order, with so many asked for ahead.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use forebay_io::{Arena, File, Io, Lease, Request, Ticket};
use hdrhistogram::Histogram;

use crate::interrupt;
use crate::measure::Stopwatch;
use crate::workfile::Workfile;

/// What one measurement gave.
#[derive(Debug)]
pub(super) struct Round {
    pub(super) blocks: u64,
    pub(super) seconds: f64,
    /// Processor time of the whole process.
    pub(super) processor_seconds: f64,
    /// How long the reader waited for each block, in nanoseconds; `None` from a foreign program.
    pub(super) wait_ns: Option<Histogram<u64>>,
}

/// Reads blocks through one queue with a window of `depth` requests.
pub(super) struct Reader<'a> {
    io: &'a Io,
    file: &'a File,
    workfile: &'a Workfile,
    depth: usize,
    /// Memory for `depth` requests in flight and the block in hand.
    spare: Vec<Vec<Lease>>,
    ahead: VecDeque<(u64, Ticket)>,
}

impl<'a> Reader<'a> {
    /// Memory for the window and the block in hand.
    pub(super) fn memory(workfile: &Workfile, depth: usize) -> anyhow::Result<Arc<Arena>> {
        Ok(Arena::new(depth.max(1) + 1, workfile.block_bytes() as usize)?)
    }

    pub(super) fn new(
        io: &'a Io,
        file: &'a File,
        workfile: &'a Workfile,
        depth: usize,
        memory: &Arc<Arena>,
    ) -> Reader<'a> {
        let spare = std::iter::from_fn(|| memory.take()).map(|lease| vec![lease]).collect();
        let mut reader =
            Reader { io, file, workfile, depth, spare, ahead: VecDeque::with_capacity(depth) };
        reader.touch_memory();
        reader
    }

    /// Reads `numbers` in order, or as many as fit in `time_max`.
    ///
    /// # Errors
    /// A failed read, a block that is not the one asked for, or Ctrl-C.
    pub(super) fn read(&mut self, numbers: &[u64], time_max: Duration) -> anyhow::Result<Round> {
        let mut waits = wait_histogram()?;
        let mut rest = numbers.iter().copied();
        let mut blocks = 0;
        let watch = Stopwatch::start();
        let first: Vec<u64> = rest.by_ref().take(self.depth).collect();
        self.ask_all(&first);
        let mut moment = Instant::now();
        for &number in numbers {
            let (asked, ticket) = match self.ahead.pop_front() {
                Some(asked) => asked,
                None => (number, self.ask(number)),
            };
            let leases = ticket.wait().into_result()?;
            let now = Instant::now();
            waits.saturating_record((now - moment).as_nanos() as u64);
            moment = now;
            self.check(asked, &leases)?;
            self.spare.push(leases);
            blocks += 1;
            if self.depth > 0
                && let Some(next) = rest.next()
            {
                let ticket = self.ask(next);
                self.ahead.push_back((next, ticket));
            }
            interrupt::check()?;
            if watch.elapsed() > time_max {
                break;
            }
        }
        let round = Round {
            blocks,
            seconds: watch.elapsed().as_secs_f64(),
            processor_seconds: watch.processor_elapsed().as_secs_f64(),
            wait_ns: Some(waits),
        };
        self.ahead.clear();
        self.io.drain();
        Ok(round)
    }

    fn ask(&mut self, number: u64) -> Ticket {
        let request = self.request(number);
        self.io.submit(request)
    }

    /// The first window goes out as one batch, as a read stream would send it.
    fn ask_all(&mut self, numbers: &[u64]) {
        let requests: Vec<Request> = numbers.iter().map(|&number| self.request(number)).collect();
        let tickets = self.io.submit_all(requests);
        self.ahead.extend(numbers.iter().copied().zip(tickets));
    }

    fn request(&mut self, number: u64) -> Request {
        let leases = self.spare.pop().expect("there is memory for the window and one more");
        Request::read(self.file, number * self.workfile.block_bytes(), leases)
    }

    fn check(&self, number: u64, leases: &[Lease]) -> anyhow::Result<()> {
        if leases[0][..8] != self.workfile.stamp(number) {
            bail!("block {number} of the working file came back with other contents");
        }
        Ok(())
    }

    /// First use of memory costs a page fault, which is not what is measured.
    fn touch_memory(&mut self) {
        for lease in self.spare.iter_mut().flatten() {
            lease.fill(0);
        }
    }

    /// Starts the threads, if the backend has any, by reading `numbers`: as random as those to be
    /// measured, or the kernel would take them for a sequence and read ahead.
    pub(super) fn warm_up(&mut self, numbers: &[u64]) -> anyhow::Result<()> {
        self.ask_all(numbers);
        while let Some((_, ticket)) = self.ahead.pop_front() {
            self.spare.push(ticket.wait().into_result()?);
        }
        Ok(())
    }
}

/// From a nanosecond to an hour in steps of 0.1 %.
fn wait_histogram() -> anyhow::Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, 3_600_000_000_000, 3).context("the histogram's bounds are valid")
}
