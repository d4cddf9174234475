//! Rig: drives a model with simulated time, and checks the invariants of every model.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay_emulate::model::{Command, Device, Ended, Op};
use forebay_emulate::profile::Profile;

pub(crate) const KIB: u64 = 1024;
pub(crate) const MIB: u64 = 1024 * KIB;
pub(crate) const GIB: u64 = 1024 * MIB;

/// A device, simulated time, and the commands in progress.
#[derive(Debug)]
pub(crate) struct Rig {
    device: Box<dyn Device>,
    now: Duration,
    next_id: u64,
    arrived: BTreeMap<u64, Duration>,
    last_end: Duration,
}

impl Rig {
    pub(crate) fn of(profile: &str) -> Self {
        Self::new(Profile::load(profile).unwrap().build(7))
    }

    pub(crate) fn new(device: Box<dyn Device>) -> Self {
        let zero = Duration::ZERO;
        Self { device, now: zero, next_id: 0, arrived: BTreeMap::new(), last_end: zero }
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        self.device.size_bytes()
    }

    pub(crate) fn now(&self) -> Duration {
        self.now
    }

    pub(crate) fn under_way(&self) -> usize {
        self.arrived.len()
    }

    pub(crate) fn submit(&mut self, command: Command) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.arrived.insert(id, self.now);
        self.device.submit(self.now, id, command);
        id
    }

    pub(crate) fn read(&mut self, offset: u64, len: u64) -> u64 {
        self.submit(Command { op: Op::Read, offset, len })
    }

    pub(crate) fn write(&mut self, offset: u64, len: u64) -> u64 {
        self.submit(Command { op: Op::Write, offset, len })
    }

    pub(crate) fn flush(&mut self) -> u64 {
        self.submit(Command { op: Op::Flush, offset: 0, len: 0 })
    }

    /// Lets time pass up to `until`; returns the commands that ended, with their durations.
    pub(crate) fn until(&mut self, until: Duration) -> Vec<(u64, Duration)> {
        let mut took = Vec::new();
        while let Some(next) = self.device.next_event() {
            assert!(next >= self.now, "[MOD-2] {next:?} is before {:?}", self.now);
            if next > until {
                break;
            }
            took.append(&mut self.step(next));
        }
        self.now = self.now.max(until);
        took
    }

    fn step(&mut self, to: Duration) -> Vec<(u64, Duration)> {
        self.now = to;
        let mut ended: Vec<Ended> = Vec::new();
        self.device.advance(to, &mut ended);
        let mut took = Vec::new();
        for Ended { id, at } in ended {
            let arrived = self.arrived.remove(&id).expect("[MOD-1] every command ends once");
            assert!(at >= arrived, "[MOD-1] command {id} ended before it arrived");
            assert!(at >= self.last_end && at <= self.now, "[MOD-2] ends are not in order");
            self.last_end = at;
            took.push((id, at - arrived));
        }
        took
    }

    /// Lets time pass until something ends.
    pub(crate) fn wait(&mut self) -> Vec<(u64, Duration)> {
        loop {
            let next = self.device.next_event().expect("[MOD-1] something is still to end");
            let took = self.step(next);
            if !took.is_empty() {
                return took;
            }
        }
    }

    /// Lets time pass until everything has ended.
    pub(crate) fn all(&mut self) -> Vec<(u64, Duration)> {
        let mut took = Vec::new();
        while !self.arrived.is_empty() {
            took.append(&mut self.wait());
        }
        took
    }

    /// Duration of a single read on an idle device.
    pub(crate) fn time_of_read(&mut self, offset: u64, len: u64) -> Duration {
        let id = self.read(offset, len);
        let took = self.all();
        took.iter().find(|(ended, _)| *ended == id).unwrap().1
    }

    /// Keeps `depth` commands in progress until all have ended; returns how long it took.
    pub(crate) fn keep(&mut self, depth: usize, commands: &[Command]) -> Duration {
        let began = self.now;
        for &command in commands {
            while self.arrived.len() >= depth {
                self.wait();
            }
            self.submit(command);
        }
        self.all();
        self.now - began
    }
}

/// Random reads of `len` bytes, aligned to it, within `from..to`.
pub(crate) fn random_reads(seed: u64, count: usize, len: u64, from: u64, to: u64) -> Vec<Command> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut read = || Command { op: Op::Read, offset: random.u64(from / len..to / len) * len, len };
    (0..count).map(|_| read()).collect()
}

/// Consecutive reads.
pub(crate) fn sequential_reads(from: u64, count: u64, len: u64) -> Vec<Command> {
    (0..count).map(|index| Command { op: Op::Read, offset: from + index * len, len }).collect()
}

/// The rate of `bytes` in `time`, in bytes a second.
pub(crate) fn rate(bytes: u64, time: Duration) -> f64 {
    bytes as f64 / time.as_secs_f64()
}
