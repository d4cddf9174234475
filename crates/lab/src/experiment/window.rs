//! A window of requests: reads in the order of a list, a fixed number of them in flight.
//!
//! While the caller uses one block, `depth` of the next ones are in flight; at depth 0 a block is requested
//! only when it is needed.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_io::{Arena, Error, File, Io, IoOptions, Lease, Request, Ticket};

/// A queue, a file, and memory for the requests in flight and the caller's block.
#[derive(Debug)]
pub(super) struct Window {
    pub(super) io: Io,
    file: File,
    depth: usize,
    /// The end of the bytes to read: the last request may be shorter than the others.
    end: u64,
    spare: Vec<Vec<Lease>>,
    ahead: VecDeque<(u64, Ticket)>,
}

/// A queue with `options`, and memory for a window of its depth, of requests of this many bytes.
///
/// # Errors
/// No such queue can be opened.
pub(super) fn queue(
    options: &IoOptions,
    depth: usize,
    request_bytes: u64,
) -> Result<(Io, Arc<Arena>), Error> {
    let memory = Arena::new(depth.max(1) + 1, request_bytes as usize)?;
    let register = Some(Arc::clone(memory.mapping()));
    Ok((Io::open(&IoOptions { queue_depth: depth.max(1), register, ..options.clone() })?, memory))
}

impl Window {
    /// Reads `file` up to its byte `end` through `io` into all of `memory`.
    pub(super) fn new(io: Io, file: File, end: u64, depth: usize, memory: &Arc<Arena>) -> Window {
        let mut spare: Vec<Vec<Lease>> =
            std::iter::from_fn(|| memory.take()).map(|lease| vec![lease]).collect();
        // First use of memory costs a page fault, which would distort the measurement.
        spare.iter_mut().flatten().for_each(|lease| lease.fill(0));
        Window { io, file, depth, end, spare, ahead: VecDeque::with_capacity(depth) }
    }

    /// Reads at `offsets` until there are no more. `each` receives each offset, its bytes, and how long the caller
    /// waited for it. At the end it waits for the requests in flight, so that the device does no uncounted work.
    ///
    /// # Errors
    /// A failed read, or the error of `each`.
    pub(super) fn read(
        &mut self,
        mut offsets: impl Iterator<Item = u64>,
        mut each: impl FnMut(u64, &[u8], Duration) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        for offset in offsets.by_ref().take(self.depth) {
            self.ask(offset);
        }
        loop {
            let moment = Instant::now();
            if self.depth == 0
                && let Some(offset) = offsets.next()
            {
                self.ask(offset);
            }
            let Some((offset, ticket)) = self.ahead.pop_front() else { break };
            let leases = ticket.wait().into_result()?;
            let waited = moment.elapsed();
            // Submitted before `each` looks at the block: meanwhile `depth` others are in flight.
            if self.depth > 0
                && let Some(next) = offsets.next()
            {
                self.ask(next);
            }
            each(offset, &leases[0], waited)?;
            self.spare.push(leases);
        }
        // The queue is idle, as the caller has waited for every ticket; a stray request would be noise in the next
        // measurement.
        self.io.drain();
        Ok(())
    }

    /// Submits one more request. One by one, never as a batch: a backend may sort and merge requests of a
    /// batch, and the window would start with other requests than it goes on with.
    fn ask(&mut self, offset: u64) {
        let mut leases = self.spare.pop().expect("there is memory for the window and one more");
        let most = leases[0].len() as u64;
        leases[0].truncate((self.end - offset).min(most) as usize);
        let ticket = self.io.submit(Request::read(&self.file, offset, leases));
        self.ahead.push_back((offset, ticket));
    }
}
