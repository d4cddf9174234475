//! Batch: in-flight requests that one thread manages, in memory that is reused.
//!
//! A ticket is allocated for each request and waited for separately. A caller that keeps many requests in flight for
//! a long time, such as a checkpoint, needs neither: it continues when *any* of them has ended, and it must not
//! allocate memory in between. So the slots are allocated once, and a slot is free again when its answer has been
//! taken.
//!
//! Invariants:  [BAT-1] dropping a batch waits for its in-flight requests: afterwards all lent memory is back with
//!              its lender
//! Concurrency: owned by one thread at a time; may be sent to another.
//! Memory:      the buffers for submission grow to the needed size and stay; so do the lists of leases that come back
//!              with the answers, if the caller reuses them.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use crate::answer::{Completed, Recipient, TicketState};
use crate::io::Io;
use crate::request::{Request, Transfer};
use crate::shared::Shared;

/// In-flight requests of one queue. See [`Io::batch`].
pub struct Batch {
    io: Arc<Shared>,
    /// The in-flight request of each slot.
    places: Box<[Option<Arc<TicketState>>]>,
    free: Vec<usize>,
    /// States that have been answered. The answering thread may still hold one, so they are reused in turn, and there
    /// are twice as many as slots.
    spare: VecDeque<Arc<TicketState>>,
    staged: Vec<(usize, Request)>,
    transfers: Vec<Transfer>,
}

impl Io {
    /// Creates a batch of at most `places` in-flight requests on this queue.
    pub fn batch(&self, places: usize) -> Batch {
        Batch {
            io: Arc::clone(&self.shared),
            places: (0..places).map(|_| None).collect(),
            free: (0..places).rev().collect(),
            spare: (0..places * 2).map(|_| Arc::default()).collect(),
            staged: Vec::with_capacity(places),
            transfers: Vec::with_capacity(places),
        }
    }
}

impl Batch {
    /// Number of further requests that fit.
    pub fn room(&self) -> usize {
        self.free.len()
    }

    /// Number of requests that are staged or started and whose answers have not been taken.
    pub fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.free.len() == self.places.len()
    }

    /// Adds a request, which [`Batch::start`] starts. Returns the index of its slot, less than the number of slots;
    /// the answer carries the same index.
    ///
    /// # Panics
    /// If there is no [room](Batch::room).
    pub fn stage(&mut self, request: Request) -> usize {
        let place = self.free.pop().expect("the caller checks for room before it stages");
        self.staged.push((place, request));
        place
    }

    /// Starts the staged requests with as few system calls as the backend can. While the queue is full, blocks and
    /// drives it. Errors are returned with the answers.
    pub fn start(&mut self) {
        for (place, request) in self.staged.drain(..) {
            let state = fresh(&mut self.spare);
            self.places[place] = Some(Arc::clone(&state));
            self.io.accept(request, Recipient::Ticket(state), &mut self.transfers, &mut 0);
        }
        self.io.start(&mut self.transfers);
    }

    /// Returns the answer to one request that has ended, with the index of its slot, which is free from now on. Does
    /// not wait and does not drive the queue.
    pub fn take_ended(&mut self) -> Option<(usize, Completed)> {
        let ended =
            |place: &Option<Arc<TicketState>>| place.as_ref().is_some_and(|it| it.is_done());
        let place = self.places.iter().position(ended)?;
        let state = self.places[place].take()?;
        let completed = state.take();
        self.spare.push_back(state);
        self.free.push(place);
        Some((place, completed))
    }

    /// True when [`Batch::take_ended`] would return an answer.
    pub fn has_ended(&self) -> bool {
        self.places.iter().flatten().any(|state| state.is_done())
    }

    /// Collects finished requests without sleeping. On `sync` this executes one request.
    pub fn poll(&self) {
        self.io.poll(None);
    }

    /// Waits, driving the queue, until one request has ended; returns at once if none is in flight.
    pub fn wait(&self) {
        if self.places.iter().flatten().next().is_none() {
            return;
        }
        self.places.iter().flatten().for_each(|state| state.expect_answer());
        self.io.wait_until(None, &|| self.has_ended());
    }
}

/// Returns a state that no other thread holds, a reused one if possible.
fn fresh(spare: &mut VecDeque<Arc<TicketState>>) -> Arc<TicketState> {
    for _ in 0..spare.len() {
        let Some(mut state) = spare.pop_front() else { break };
        if let Some(again) = Arc::get_mut(&mut state) {
            *again = TicketState::default();
            return state;
        }
        spare.push_back(state);
    }
    Arc::default()
}

impl Drop for Batch {
    fn drop(&mut self) {
        let under_way =
            |place: &Option<Arc<TicketState>>| place.as_ref().is_some_and(|state| !state.is_done());
        self.places.iter().flatten().for_each(|state| state.expect_answer());
        // [BAT-1]
        self.io.wait_until(None, &|| !self.places.iter().any(under_way));
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Batch").field("len", &self.len()).field("room", &self.room()).finish()
    }
}
