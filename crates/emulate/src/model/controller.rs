//! Controller: a processor, a cable and a cache in front of a device.
//!
//! Each command occupies the processor for a while, one after another; bytes occupy the cable, separately in each
//! direction. With a write cache, which a battery protects, a write ends when its bytes are in the cache,
//! and a flush does not wait. The cache is written back in order of position, adjacent ranges
//! together, a few pieces at a time; while it is full, writers wait for space in order of arrival.
//!
//! Reads of cached bytes are answered from the cache; all others go to the device. A read cache
//! is not modelled: the disks behind the controller have their own.
//!
//! Invariants:  [CTR-1] the cache holds no more than its size, except for one command that is larger
//!              [CTR-2] the number of pieces being written at a time is limited

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use serde::Deserialize;

use super::dirty::Dirty;
use super::outbox::Outbox;
use super::{Command, Device, Ended, Op, nanos, transfer_ns};
use crate::profile::amount;

/// Marks the id of a command that the controller sends itself; the rest of the id is the length.
const OWN: u64 = 1 << 63;

/// The parameters of a controller.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    /// Processor time of each command.
    #[serde(deserialize_with = "amount::time")]
    pub command_time: Duration,
    /// Rate of the cable to the host, each way, in bytes a second.
    #[serde(deserialize_with = "amount::rate")]
    pub rate: u64,
    /// Size of the write cache, in bytes; 0 passes writes and flushes to the device.
    #[serde(deserialize_with = "amount::bytes")]
    pub write_cache: u64,
    /// Maximum number of pieces of the cache being written at a time.
    pub destage_depth: u32,
    /// Largest piece, in bytes.
    #[serde(deserialize_with = "amount::bytes")]
    pub destage_max: u64,
}

/// An internal event of the controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// The processor has finished a command; its place among the commands.
    Processed(usize),
    /// A write's bytes have arrived.
    Received(usize),
    /// The host has received the answer.
    Answered(usize),
}

/// The controller.
#[derive(Debug)]
pub(crate) struct Controller {
    parameters: Parameters,
    device: Box<dyn Device>,
    device_next_ns: Option<u64>,
    now_ns: u64,
    /// Steps in order of time, then of insertion.
    steps: BinaryHeap<Reverse<(u64, u64, Step)>>,
    steps_made: u64,
    processor_free_ns: u64,
    out_free_ns: u64,
    in_free_ns: u64,
    /// Number, command, and when the processor had finished it.
    commands: Vec<(u64, Command, u64)>,
    free: Vec<usize>,
    dirty: Dirty,
    /// Writes that wait for space.
    waiting: VecDeque<usize>,
    destaging: u32,
    destaging_bytes: u64,
    destage_from: u64,
    ended: Vec<Ended>,
    outbox: Outbox,
}

/// A controller before a device.
///
/// # Errors
/// A sentence, if the parameters are invalid.
pub(crate) fn build(
    parameters: &Parameters,
    device: Box<dyn Device>,
) -> Result<Box<dyn Device>, String> {
    if parameters.rate == 0 || parameters.destage_depth == 0 || parameters.destage_max == 0 {
        return Err("`rate`, `destage_depth` and `destage_max` are more than 0".into());
    }
    Ok(Box::new(Controller {
        parameters: parameters.clone(),
        device,
        device_next_ns: None,
        now_ns: 0,
        steps: BinaryHeap::new(),
        steps_made: 0,
        processor_free_ns: 0,
        out_free_ns: 0,
        in_free_ns: 0,
        commands: Vec::new(),
        free: Vec::new(),
        dirty: Dirty::default(),
        waiting: VecDeque::new(),
        destaging: 0,
        destaging_bytes: 0,
        destage_from: 0,
        ended: Vec::new(),
        outbox: Outbox::default(),
    }))
}

impl Controller {
    fn step(&mut self, at_ns: u64, step: Step) {
        self.steps.push(Reverse((at_ns, self.steps_made, step)));
        self.steps_made += 1;
    }

    /// Sends a command to the device now.
    fn send(&mut self, id: u64, command: Command) {
        self.device.submit(Duration::from_nanos(self.now_ns), id, command);
        self.device_next_ns = self.device.next_event().map(nanos);
    }

    fn processed(&mut self, place: usize) {
        let command = self.commands[place].1;
        self.commands[place].2 = self.now_ns;
        let cached = self.parameters.write_cache > 0;
        match command.op {
            Op::Write if cached => {
                self.in_free_ns = self.in_free_ns.max(self.now_ns) + self.cable_ns(command.len);
                self.step(self.in_free_ns, Step::Received(place));
            }
            Op::Flush if cached => self.step(self.now_ns, Step::Answered(place)),
            Op::Read if !self.dirty.is_empty() && self.missing(command) == 0 => self.answer(place),
            _ => self.send(place as u64, command),
        }
    }

    fn cable_ns(&self, bytes: u64) -> u64 {
        transfer_ns(bytes, self.parameters.rate)
    }

    fn missing(&self, command: Command) -> u64 {
        self.dirty.missing(command.offset, command.offset + command.len)
    }

    /// Returns the bytes of a command to the host. They were sent as they arrived from the device, and the last of
    /// them arrive now; only where the cable was busy, or is slower, are some left to send.
    fn answer(&mut self, place: usize) {
        let (_, command, sent_ns) = self.commands[place];
        let bytes = if command.op == Op::Read { command.len } else { 0 };
        let cable_ns = self.cable_ns(bytes);
        let begin_ns = sent_ns.max(self.now_ns.saturating_sub(cable_ns));
        self.out_free_ns = self.out_free_ns.max(begin_ns) + cable_ns;
        self.step(self.out_free_ns.max(self.now_ns), Step::Answered(place));
    }

    /// Accepts writes into the cache, in order, while there is space.
    fn take_in(&mut self) {
        while let Some(&place) = self.waiting.front() {
            let command = self.commands[place].1;
            let held = self.dirty.total() + self.destaging_bytes;
            if held > 0 && held + self.missing(command) > self.parameters.write_cache {
                break;
            }
            self.waiting.pop_front();
            self.dirty.insert(command.offset, command.offset + command.len, 0);
            let held = self.dirty.total() + self.destaging_bytes;
            let most = self.parameters.write_cache.max(command.len);
            assert!(held <= most, "[CTR-1] the cache holds {held} bytes");
            self.step(self.now_ns, Step::Answered(place));
        }
    }

    /// Begins to write pieces of the cache, in order of place.
    fn destage(&mut self) {
        while self.destaging < self.parameters.destage_depth
            && let Some(piece) = self.dirty.next(self.destage_from, self.parameters.destage_max)
        {
            self.dirty.take(piece);
            self.destaging += 1;
            self.destaging_bytes += piece.len();
            self.destage_from = piece.end;
            let command = Command { op: Op::Write, offset: piece.start, len: piece.len() };
            self.send(OWN | piece.len(), command);
        }
        assert!(self.destaging <= self.parameters.destage_depth, "[CTR-2] too many pieces");
    }

    fn device_event(&mut self, at_ns: u64) {
        self.device.advance(Duration::from_nanos(at_ns), &mut self.ended);
        self.device_next_ns = self.device.next_event().map(nanos);
        let mut ended = std::mem::take(&mut self.ended);
        for ended in ended.drain(..) {
            if ended.id & OWN == 0 {
                self.answer(ended.id as usize);
            } else {
                self.destaging -= 1;
                self.destaging_bytes -= ended.id & !OWN;
            }
        }
        self.ended = ended;
    }

    fn next_ns(&self) -> Option<u64> {
        let step = self.steps.peek().map(|&Reverse((at_ns, ..))| at_ns);
        step.into_iter().chain(self.device_next_ns).min()
    }

    fn run(&mut self, until_ns: u64) {
        while let Some(at_ns) = self.next_ns()
            && at_ns <= until_ns
        {
            self.now_ns = self.now_ns.max(at_ns);
            match self.steps.peek() {
                Some(&Reverse((step_ns, _, step))) if step_ns == at_ns => {
                    self.steps.pop();
                    match step {
                        Step::Processed(place) => self.processed(place),
                        Step::Received(place) => self.waiting.push_back(place),
                        Step::Answered(place) => {
                            self.outbox.push(self.commands[place].0, at_ns);
                            self.free.push(place);
                        }
                    }
                }
                _ => self.device_event(at_ns),
            }
            self.take_in();
            self.destage();
        }
        self.now_ns = self.now_ns.max(until_ns);
    }
}

impl Device for Controller {
    fn size_bytes(&self) -> u64 {
        self.device.size_bytes()
    }

    fn submit(&mut self, now: Duration, id: u64, command: Command) {
        self.run(nanos(now));
        let command = command.within(self.size_bytes());
        let place = self.free.pop().unwrap_or(self.commands.len());
        if place == self.commands.len() {
            self.commands.push((id, command, 0));
        } else {
            self.commands[place] = (id, command, 0);
        }
        let from_ns = self.processor_free_ns.max(self.now_ns);
        self.processor_free_ns = from_ns + nanos(self.parameters.command_time);
        self.step(self.processor_free_ns, Step::Processed(place));
    }

    fn next_event(&self) -> Option<Duration> {
        if !self.outbox.is_empty() {
            return Some(Duration::from_nanos(self.now_ns));
        }
        self.next_ns().map(Duration::from_nanos)
    }

    fn advance(&mut self, now: Duration, ended: &mut Vec<Ended>) {
        self.run(nanos(now));
        self.outbox.hand_out(ended);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::fixed;

    const MIB: u64 = 1 << 20;

    /// A controller of 1 MiB before a device that takes 1 ms for a command, one at a time.
    fn controller(write_cache: u64) -> Box<dyn Device> {
        with_cable(write_cache, 1_000_000_000)
    }

    fn with_cable(write_cache: u64, rate: u64) -> Box<dyn Device> {
        let device = fixed::Parameters {
            size: 1 << 30,
            command_time: Duration::from_millis(1),
            rate: 0,
            flush_time: Duration::from_millis(3),
            concurrency: 1,
        };
        let parameters = Parameters {
            command_time: Duration::from_micros(10),
            rate,
            write_cache,
            destage_depth: 2,
            destage_max: MIB / 4,
        };
        build(&parameters, fixed::build(&device).unwrap()).unwrap()
    }

    fn submit(device: &mut dyn Device, at_us: u64, id: u64, op: Op, offset: u64, len: u64) {
        device.submit(Duration::from_micros(at_us), id, Command { op, offset, len });
    }

    fn ends(device: &mut dyn Device) -> Vec<(u64, u64)> {
        let mut ended = Vec::new();
        while let Some(next) = device.next_event() {
            device.advance(next, &mut ended);
        }
        ended.iter().map(|ended| (ended.id, nanos(ended.at) / 1000)).collect()
    }

    #[test]
    fn a_write_ends_in_the_cache_and_a_flush_has_nothing_to_wait_for() {
        let mut device = controller(MIB);
        submit(&mut *device, 0, 0, Op::Write, 0, 100_000);
        submit(&mut *device, 0, 1, Op::Flush, 0, 0);
        // Ten microseconds for the processor, a hundred for the cable.
        assert_eq!(ends(&mut *device), [(1, 20), (0, 110)]);
    }

    #[test]
    fn without_a_cache_writes_and_flushes_go_on_to_the_device() {
        let mut device = controller(0);
        submit(&mut *device, 0, 0, Op::Write, 0, 100_000);
        submit(&mut *device, 0, 1, Op::Flush, 0, 0);
        assert_eq!(ends(&mut *device), [(0, 1010), (1, 4010)]);
    }

    #[test]
    fn a_read_waits_for_processor_and_device_and_its_bytes_go_as_they_come() {
        let mut device = controller(MIB);
        submit(&mut *device, 0, 0, Op::Read, 0, 100_000);
        submit(&mut *device, 0, 1, Op::Read, 0, 100_000);
        assert_eq!(ends(&mut *device), [(0, 1010), (1, 2010)]);
    }

    #[test]
    fn a_slow_cable_is_what_reads_wait_for() {
        let mut device = with_cable(MIB, 50_000_000);
        submit(&mut *device, 0, 0, Op::Read, 0, 100_000);
        submit(&mut *device, 0, 1, Op::Read, 0, 100_000);
        // Two milliseconds for each, one after the other; the device was done at 1.01 and 2.01 ms.
        assert_eq!(ends(&mut *device), [(0, 2010), (1, 4010)]);
    }

    #[test]
    fn what_is_in_the_cache_is_read_from_there() {
        let mut device = controller(MIB);
        // Three pieces, of which two are being written when the read arrives.
        for id in 0..3 {
            submit(&mut *device, 0, id, Op::Write, id * 10 * MIB, 1000);
        }
        submit(&mut *device, 50, 3, Op::Read, 20 * MIB, 1000);
        let took = ends(&mut *device);
        assert_eq!(took.last(), Some(&(3, 61)), "{took:?}");
    }

    #[test]
    fn a_full_cache_makes_writers_wait_in_order() {
        let mut device = with_cable(MIB, 100_000_000_000);
        for id in 0..6 {
            submit(&mut *device, 0, id, Op::Write, id * 10 * MIB, MIB / 4);
        }
        let took = ends(&mut *device);
        let ids: Vec<u64> = took.iter().map(|(id, _)| *id).collect();
        assert_eq!(ids, [0, 1, 2, 3, 4, 5]);
        // [CTR-1]: four fit; the fifth is accepted when the first has been written, 1 ms after it arrived.
        assert!(took[3].1 < 100 && (1010..1020).contains(&took[4].1), "{took:?}");
        assert!((2010..2020).contains(&took[5].1), "[CTR-2] {took:?}");
    }

    #[test]
    fn what_lies_above_the_last_piece_is_written_before_what_lies_below() {
        let mut device = controller(MIB);
        // The first two are written at once, the third after the first has been written, at 1 ms.
        for (id, chunk) in [(0, 40), (1, 50), (2, 3), (3, 60)] {
            submit(&mut *device, 0, id, Op::Write, chunk * 4096, 4096);
        }
        let mut ended = Vec::new();
        device.advance(Duration::from_micros(1500), &mut ended);
        submit(&mut *device, 1500, 4, Op::Read, 3 * 4096, 4096);
        // It is still in the cache: 10 us for the processor, 4 for the cable.
        assert_eq!(ends(&mut *device), [(4, 1514)]);
    }

    #[test]
    fn neighbours_are_written_together_in_order_of_place() {
        let mut device = controller(MIB);
        // The first two are written at once; the others wait, and are joined.
        for (id, chunk) in [(0, 40), (1, 50), (2, 3), (3, 1), (4, 2)] {
            submit(&mut *device, 0, id, Op::Write, chunk * 4096, 4096);
        }
        let mut ended = Vec::new();
        device.advance(Duration::from_micros(500), &mut ended);
        assert_eq!(ended.len(), 5);
        submit(&mut *device, 2500, 5, Op::Read, 900 * MIB, 4096);
        // Three writes of a millisecond each, not five, precede the read, which takes another.
        assert!((4000..4100).contains(&ends(&mut *device)[0].1));
    }
}
