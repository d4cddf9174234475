//! Queue: a device whose commands end at times that are known when they start.
//!
//! A limited number of commands is in progress at a time; the others wait in order of arrival. A [`Service`] decides
//! when a command ends; it is called once for each command, when the command starts. Commands may
//! end in another order than they started in.
//!
//! A flush does not wait here: the service knows which writes have ended, and may
//! delay the end of the flush until they are safe.
//!
//! Invariants:  [QUE-1] at most `limit` commands are in progress
//!              [QUE-2] the service is called in order of time

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fmt::Debug;
use std::time::Duration;

use super::outbox::Outbox;
use super::{Command, Device, Ended, nanos};

/// Decides how long commands take.
pub(crate) trait Service: Debug + Send {
    /// When a command ends that starts at `start_ns`. Starts never go back.
    fn end_ns(&mut self, start_ns: u64, command: Command) -> u64;
}

/// A device that consists of a [`Service`] and a queue in front of it.
#[derive(Debug)]
pub(crate) struct Queue<S> {
    service: S,
    size_bytes: u64,
    limit: usize,
    now_ns: u64,
    /// By end, then by order of start.
    under_way: BinaryHeap<Reverse<(u64, u64, u64)>>,
    started: u64,
    last_start_ns: u64,
    waiting: VecDeque<(u64, Command)>,
    outbox: Outbox,
}

impl<S: Service> Queue<S> {
    /// A device of `size_bytes` with at most `limit` commands in progress.
    pub(crate) fn new(service: S, size_bytes: u64, limit: usize) -> Self {
        Self {
            service,
            size_bytes,
            limit: limit.max(1),
            now_ns: 0,
            under_way: BinaryHeap::new(),
            started: 0,
            last_start_ns: 0,
            waiting: VecDeque::new(),
            outbox: Outbox::default(),
        }
    }

    fn start(&mut self, at_ns: u64, id: u64, command: Command) {
        assert!(at_ns >= self.last_start_ns, "[QUE-2] a start at {at_ns} ns comes too late");
        assert!(self.under_way.len() < self.limit, "[QUE-1] {} are under way", self.limit);
        self.last_start_ns = at_ns;
        let end_ns = self.service.end_ns(at_ns, command).max(at_ns);
        self.under_way.push(Reverse((end_ns, self.started, id)));
        self.started += 1;
    }

    fn run(&mut self, until_ns: u64) {
        while let Some(&Reverse((end_ns, _, id))) = self.under_way.peek() {
            if end_ns > until_ns {
                break;
            }
            self.under_way.pop();
            self.outbox.push(id, end_ns);
            if let Some((id, command)) = self.waiting.pop_front() {
                self.start(end_ns, id, command);
            }
        }
        self.now_ns = self.now_ns.max(until_ns);
    }
}

impl<S: Service> Device for Queue<S> {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn submit(&mut self, now: Duration, id: u64, command: Command) {
        self.run(nanos(now));
        let command = command.within(self.size_bytes);
        if self.under_way.len() < self.limit {
            self.start(self.now_ns, id, command);
        } else {
            self.waiting.push_back((id, command));
        }
    }

    fn next_event(&self) -> Option<Duration> {
        if !self.outbox.is_empty() {
            return Some(Duration::from_nanos(self.now_ns));
        }
        self.under_way.peek().map(|&Reverse((end_ns, _, _))| Duration::from_nanos(end_ns))
    }

    fn advance(&mut self, now: Duration, ended: &mut Vec<Ended>) {
        self.run(nanos(now));
        self.outbox.hand_out(ended);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Op;

    #[derive(Debug)]
    struct Each(u64);

    impl Service for Each {
        fn end_ns(&mut self, start_ns: u64, command: Command) -> u64 {
            start_ns + self.0 + command.len - 512
        }
    }

    fn read(len: u64) -> Command {
        Command { op: Op::Read, offset: 0, len }
    }

    fn all(device: &mut dyn Device) -> Vec<(u64, u64)> {
        let mut ended = Vec::new();
        while let Some(next) = device.next_event() {
            device.advance(next, &mut ended);
        }
        ended.iter().map(|ended| (ended.id, nanos(ended.at))).collect()
    }

    #[test]
    fn what_exceeds_the_limit_starts_when_something_ends() {
        let mut queue = Queue::new(Each(100), 1 << 20, 2);
        for id in 0..5 {
            queue.submit(Duration::from_nanos(7), id, read(512));
        }
        assert_eq!(all(&mut queue), [(0, 107), (1, 107), (2, 207), (3, 207), (4, 307)]);
    }

    #[test]
    fn a_short_one_overtakes_a_long_one() {
        let mut queue = Queue::new(Each(100), 1 << 20, 2);
        queue.submit(Duration::ZERO, 0, read(5120));
        queue.submit(Duration::ZERO, 1, read(512));
        assert_eq!(all(&mut queue), [(1, 100), (0, 4708)]);
    }

    #[test]
    fn what_ended_before_a_late_submission_is_handed_out_with_its_own_time() {
        let mut queue = Queue::new(Each(100), 1 << 20, 1);
        queue.submit(Duration::ZERO, 0, read(512));
        queue.submit(Duration::from_nanos(5000), 1, read(512));
        assert_eq!(queue.next_event(), Some(Duration::from_nanos(5000)));
        assert_eq!(all(&mut queue), [(0, 100), (1, 5100)]);
    }
}
