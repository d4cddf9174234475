//! Outbox: commands that have ended inside a model and were not returned yet.
//!
//! A command may end while another one is passed to the model, and that call cannot return it. The ended command
//! waits here until the next [`advance`](super::Device::advance).
//!
//! Invariants:  [OUT-1] commands are returned in order of time, over the model's whole life

use std::time::Duration;

use super::Ended;

/// Commands that have ended, in order of time.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    ended: Vec<Ended>,
    last_ns: u64,
}

impl Outbox {
    /// Adds an ended command.
    pub(crate) fn push(&mut self, id: u64, at_ns: u64) {
        assert!(at_ns >= self.last_ns, "[OUT-1] {at_ns} ns comes after {} ns", self.last_ns);
        self.last_ns = at_ns;
        self.ended.push(Ended { id, at: Duration::from_nanos(at_ns) });
    }

    /// Whether no command waits to be returned.
    pub(crate) fn is_empty(&self) -> bool {
        self.ended.is_empty()
    }

    /// Moves all of them to `ended`.
    pub(crate) fn hand_out(&mut self, ended: &mut Vec<Ended>) {
        ended.append(&mut self.ended);
    }
}
