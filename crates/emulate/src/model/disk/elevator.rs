//! Elevator: commands that wait because the disk's own queue is full.
//!
//! On a real machine the kernel's scheduler is in front of the disk and passes it commands in order of
//! position; an emulated disk gets its commands without a scheduler. So the model includes one: upwards from the
//! last position, then from the start again. A command that has waited for long only sets where the next round begins:
//! if all commands have waited for long, as they do behind a slow disk, serving them in order of arrival
//! would be the slowest way.
//!
//! Invariants:  [ELE-1] a round of [`BATCH`] commands begins with the oldest command that has waited for longer than
//!              its limit, if there is one
//! Source:      the kernel's deadline scheduler (block/mq-deadline.c): sorted, in batches of 16, with limits of 500 ms
//!              for reads and 5 s for writes.

use std::collections::BTreeMap;

use crate::model::{Command, Op};

/// Commands that leave in order of position before the elevator looks for one that has waited for too long.
const BATCH: u32 = 16;

/// How many times as long as a read a write may wait.
const WRITE_PATIENCE: u64 = 10;

/// A command that waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waiting {
    pub(crate) id: u64,
    pub(crate) command: Command,
    arrived_ns: u64,
}

/// Waiting commands, in order of position and of arrival.
#[derive(Debug)]
pub(crate) struct Elevator {
    by_place: BTreeMap<(u64, u64), Waiting>,
    /// Positions of reads and of writes, by number of arrival.
    by_arrival: [BTreeMap<u64, u64>; 2],
    /// Commands in a round, and those left in the current round.
    batch: u32,
    batch_left: u32,
    arrivals: u64,
    last: (u64, u64),
    wait_ns_max: u64,
}

impl Elevator {
    /// An empty elevator. With a limit of 0 commands leave in order of arrival.
    pub(crate) fn new(wait_ns_max: u64) -> Self {
        Self {
            by_place: BTreeMap::new(),
            by_arrival: [BTreeMap::new(), BTreeMap::new()],
            batch: if wait_ns_max == 0 { 1 } else { BATCH },
            batch_left: 0,
            arrivals: 0,
            last: (0, 0),
            wait_ns_max,
        }
    }

    pub(crate) fn push(&mut self, arrived_ns: u64, id: u64, command: Command) {
        let number = self.arrivals;
        self.arrivals += 1;
        self.by_place.insert((command.offset, number), Waiting { id, command, arrived_ns });
        self.by_arrival[kind(command.op)].insert(number, command.offset);
    }

    /// The next command to leave.
    pub(crate) fn pop(&mut self, now_ns: u64) -> Option<Waiting> {
        let round_ended = self.batch_left == 0;
        let key = match self.expired(now_ns).filter(|_| round_ended) {
            Some(expired) => expired,
            None => {
                let next = self.by_place.range(self.last..).next();
                *next.or_else(|| self.by_place.first_key_value())?.0
            }
        };
        self.batch_left = if round_ended { self.batch } else { self.batch_left } - 1;
        self.last = key;
        let waiting = self.by_place.remove(&key)?;
        self.by_arrival[kind(waiting.command.op)].remove(&key.1);
        Some(waiting)
    }

    /// The oldest command that has waited for longer than its limit.
    fn expired(&self, now_ns: u64) -> Option<(u64, u64)> {
        let limits = [self.wait_ns_max, self.wait_ns_max.saturating_mul(WRITE_PATIENCE)];
        let oldest = self.by_arrival.iter().zip(limits).filter_map(|(arrivals, limit_ns)| {
            let (&number, &offset) = arrivals.first_key_value()?;
            let arrived_ns = self.by_place.get(&(offset, number))?.arrived_ns;
            (now_ns >= arrived_ns.saturating_add(limit_ns)).then_some((offset, number))
        });
        oldest.min_by_key(|(_, number)| *number)
    }
}

/// Index of the operation's kind: reads, and everything else.
fn kind(op: Op) -> usize {
    usize::from(op != Op::Read)
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
    fn what_has_waited_for_long_begins_a_round_and_the_round_goes_on_in_order_of_place() {
        let mut elevator = elevator(&[5120, 1024, 9216]);
        assert_eq!(elevator.pop(1_000).unwrap().id, 0, "[ELE-1]");
        // Both have waited for as long by now, and 9216 is the next position.
        assert_eq!(elevator.pop(2_000).unwrap().id, 2, "[ELE-1]");
        assert_eq!(elevator.pop(2_000).unwrap().id, 1);
    }

    #[test]
    fn after_a_round_the_oldest_is_looked_for_again() {
        let places: Vec<u64> = (0..40).rev().map(|place| place * 512).collect();
        let mut elevator = elevator(&places);
        let order: Vec<u64> =
            std::iter::from_fn(|| elevator.pop(5_000)).map(|waiting| waiting.id).collect();
        // The oldest is the furthest: a round upwards begins there; then at the oldest one of that time.
        assert_eq!(order[..3], [0, 39, 38]);
        assert_eq!(order[BATCH as usize], 1, "[ELE-1]");
        assert_eq!(order.len(), 40);
    }

    #[test]
    fn a_write_may_wait_longer_than_a_read() {
        let mut elevator = Elevator::new(1_000);
        let command = |op, offset| Command { op, offset, len: 512 };
        elevator.push(0, 0, command(Op::Write, 9216));
        elevator.push(1, 1, command(Op::Read, 5120));
        elevator.push(2, 2, command(Op::Read, 512));
        assert_eq!(elevator.pop(1_001).unwrap().id, 1, "[ELE-1] the read's limit is over");
        assert_eq!(elevator.pop(1_001).unwrap().id, 0, "on the way");
        assert_eq!(elevator.pop(1_001).unwrap().id, 2);
    }
}
