//! Tickets: what a submitter holds while its request is in flight.
//!
//! A ticket can be waited for, polled or dropped. It keeps its queue alive, so a queue is drained only when the last
//! ticket has been dropped as well.
//!
//! Concurrency: owned by one thread at a time; may be sent to another.

use std::fmt;
use std::sync::Arc;

use crate::answer::{Completed, TicketState};
use crate::error::Error;
use crate::shared::Shared;

/// A request in flight. Dropping it gives up the answer, not the transfer.
#[must_use = "a dropped ticket never reports whether its request succeeded"]
pub struct Ticket {
    io: Arc<Shared>,
    id: u64,
    state: Arc<TicketState>,
}

impl Ticket {
    pub(crate) fn new(io: Arc<Shared>, id: u64, state: Arc<TicketState>) -> Ticket {
        Ticket { io, id, state }
    }

    /// Waits for the request to end. In a child of the process that submitted it, returns [`Error::Forked`] without
    /// waiting, and the leases are not returned.
    pub fn wait(self) -> Completed {
        if !self.is_done() {
            if self.io.is_inherited() {
                return Completed { leases: Vec::new(), result: Err(Error::Forked) };
            }
            self.state.expect_answer();
            self.io.wait_until(Some(self.id), &|| self.state.is_done());
        }
        self.state.take()
    }

    /// True once the request has ended. Does not drive the queue; see [`Ticket::try_wait`] for that.
    pub fn is_done(&self) -> bool {
        self.state.is_done()
    }

    /// Collects finished requests and returns the answer if this request is among them.
    ///
    /// On the `sync` backend this executes the transfer.
    ///
    /// # Errors
    /// The ticket itself, when the request has not ended yet.
    pub fn try_wait(self) -> Result<Completed, Ticket> {
        if !self.is_done() {
            self.io.poll(Some(self.id));
        }
        if self.is_done() { Ok(self.wait()) } else { Err(self) }
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Ticket").field("id", &self.id).field("done", &self.is_done()).finish()
    }
}
