//! Elevator: commands that wait because the disk's own queue is full.
//!
//! On a real machine a scheduler of the kernel's stands before the disk and hands it commands in order of
//! place; an emulated disk gets its commands without one. So the model has it: upwards from the
//! last place, then round again. A command that has waited for long goes first.
//!
//! Invariants:  [ELE-1] what has waited for longer than the limit is the next to leave, oldest first
//! Source:      the kernel's deadline scheduler (block/mq-deadline.c): sorted, with a limit of 500 ms for reads.

use std::collections::BTreeMap;

use crate::model::Command;

/// A command that waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waiting {
    pub(crate) id: u64,
    pub(crate) command: Command,
    came_ns: u64,
}

/// Commands in order of place and of arrival.
#[derive(Debug)]
pub(crate) struct Elevator {
    by_place: BTreeMap<(u64, u64), Waiting>,
    /// Place by number of arrival.
    by_arrival: BTreeMap<u64, u64>,
    arrivals: u64,
    last: (u64, u64),
    wait_ns_max: u64,
}

impl Elevator {
    /// An empty one. With a limit of 0 commands leave in order of arrival.
    pub(crate) fn new(wait_ns_max: u64) -> Self {
        Self {
            by_place: BTreeMap::new(),
            by_arrival: BTreeMap::new(),
            arrivals: 0,
            last: (0, 0),
            wait_ns_max,
        }
    }

    pub(crate) fn push(&mut self, came_ns: u64, id: u64, command: Command) {
        let number = self.arrivals;
        self.arrivals += 1;
        self.by_place.insert((command.offset, number), Waiting { id, command, came_ns });
        self.by_arrival.insert(number, command.offset);
    }

    /// The next one to leave.
    pub(crate) fn pop(&mut self, now_ns: u64) -> Option<Waiting> {
        let (&number, &offset) = self.by_arrival.first_key_value()?;
        let oldest = (offset, number);
        let came_ns = self.by_place.get(&oldest)?.came_ns;
        let key = if now_ns >= came_ns + self.wait_ns_max {
            oldest
        } else {
            let next = self.by_place.range(self.last..).next();
            *next.or_else(|| self.by_place.first_key_value())?.0
        };
        self.last = key;
        self.by_arrival.remove(&key.1);
        self.by_place.remove(&key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Op;

    fn elevator(places: &[u64]) -> Elevator {
        let mut elevator = Elevator::new(1_000);
        for (id, &offset) in places.iter().enumerate() {
            elevator.push(id as u64, id as u64, Command { op: Op::Read, offset, len: 512 });
        }
        elevator
    }

    #[test]
    fn commands_leave_upwards_and_round_again() {
        let mut elevator = elevator(&[5120, 1024, 9216]);
        assert_eq!(elevator.pop(10).unwrap().command.offset, 1024);
        elevator.push(11, 7, Command { op: Op::Read, offset: 512, len: 512 });
        let order: Vec<u64> =
            std::iter::from_fn(|| elevator.pop(12)).map(|waiting| waiting.command.offset).collect();
        assert_eq!(order, [5120, 9216, 512]);
    }

    #[test]
    fn what_has_waited_for_long_goes_first() {
        let mut elevator = elevator(&[5120, 1024, 9216]);
        assert_eq!(elevator.pop(1_000).unwrap().id, 0, "[ELE-1]");
        assert_eq!(elevator.pop(1_000).unwrap().id, 2);
        assert_eq!(elevator.pop(1_001).unwrap().id, 1, "[ELE-1]");
    }
}
