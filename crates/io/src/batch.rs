//! Batch: requests under way that one thread looks after, in memory that is used again and again.
//!
//! A ticket is made for each request and waited for by itself. A caller that keeps many requests under way for
//! a long time, such as a checkpoint, wants neither: it goes on when *any* of them has ended, and it must
//! not ask for memory in between. So the places are made once, and a place is free again when its answer
//! has been taken.
//!
//! Invariants:  [BAT-1] a batch that goes waits for what is under way: the memory that was lent is then
//!              back with its lender
//! Concurrency: owned by one thread at a time; may be sent to another.
//! Memory:      what submitting takes grows to what is needed and stays; so do the lists of memory that
//!              come back with the answers, if the caller uses them again.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use crate::answer::{Completed, Recipient, TicketState};
use crate::io::Io;
use crate::request::{Request, Transfer};
use crate::shared::Shared;

/// Requests under way on one queue. See [`Io::batch`].
pub struct Batch {
    io: Arc<Shared>,
    /// What each place has under way.
    places: Box<[Option<Arc<TicketState>>]>,
    free: Vec<usize>,
    /// States that have been answered. One may still be in the hands of the thread that answered it, so
    /// they are used again in turn, and there are twice as many as places.
    spare: VecDeque<Arc<TicketState>>,
    staged: Vec<(usize, Request)>,
    transfers: Vec<Transfer>,
}

impl Io {
    /// A batch of at most `places` requests at a time on this queue.
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
    /// Places for further requests.
    pub fn room(&self) -> usize {
        self.free.len()
    }

    /// Requests that were staged, started and not taken yet.
    pub fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.free.len() == self.places.len()
    }

    /// Adds a request, which [`Batch::start`] starts. Gives the number of its place, less than the
    /// number of places, by which its answer is told from others.
    ///
    /// # Panics
    /// When there is no [room](Batch::room).
    pub fn stage(&mut self, request: Request) -> usize {
        let place = self.free.pop().expect("the caller checks for room before it stages");
        self.staged.push((place, request));
        place
    }

    /// Starts what was staged, with as few system calls as the backend can. Blocks, driving the queue,
    /// while that is full. Errors come with the answers.
    pub fn start(&mut self) {
        for (place, request) in self.staged.drain(..) {
            let state = fresh(&mut self.spare);
            self.places[place] = Some(Arc::clone(&state));
            self.io.accept(request, Recipient::Ticket(state), &mut self.transfers, &mut 0);
        }
        self.io.start(&mut self.transfers);
    }

    /// The answer to one that has ended, with the number of its place, which is free from now on. Does
    /// not wait, and does not drive the queue.
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

    /// True when [`Batch::take_ended`] would give an answer.
    pub fn has_ended(&self) -> bool {
        self.places.iter().flatten().any(|state| state.is_done())
    }

    /// Takes in what has finished already, without sleeping. On `sync` that carries one request out.
    pub fn poll(&self) {
        self.io.poll(None);
    }

    /// Waits, driving the queue, until one has ended; returns at once if none is under way.
    pub fn wait(&self) {
        if self.places.iter().flatten().next().is_none() {
            return;
        }
        self.places.iter().flatten().for_each(|state| state.expect_answer());
        self.io.wait_until(None, &|| self.has_ended());
    }
}

/// A state that nobody else has, used before if possible.
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
