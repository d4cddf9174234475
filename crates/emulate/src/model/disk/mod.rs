//! Disk: platters that turn, an arm that moves, a cache and a queue.
//!
//! The arm does one thing at a time: a command, a piece of the write cache, or reading on past the last
//! command into the cache. Its time follows from the position of the head, the distance to move, and the
//! angle of the platter, which turns all the time and has the same angle at the same moment. Commands that
//! the cache answers cost the arm nothing.
//!
//! Worked example: the head has finished sector 1000 and no command waits, so it reads on. A read of sectors
//! 1001 to 1016 arrives 0.3 ms later: most of it is in the cache already, and it ends when the head has
//! passed sector 1016. If another read had waited, the head would have left for that at once, and sector 1001
//! would cost a seek and on average half a revolution.
//!
//! From the queue the arm takes the command that it can begin soonest (shortest positioning
//! time first). No command is overtaken more than a given number of times.
//!
//! Not modelled: defects and their spares, retries, thermal recalibration, spinning down, reading a track from
//! the angle at which the head arrives, and the errors in a drive's own estimate of positioning times.
//!
//! Invariants:  [DSK-1] the arm does one thing at a time, and finishes what it began
//!              [DSK-2] no more commands are in the disk than its queue holds
//!              [DSK-3] no command in the queue is overtaken more often than allowed
//!              [DSK-4] a flush ends after everything that the cache held when the flush arrived
//! Source:      Ruemmler and Wilkes, "An introduction to disk drive modeling" (1994), for what matters in a
//!              model of a disk; Jacobson and Wilkes, "Disk scheduling algorithms based on rotational
//!              position" (1991), for positioning time and for a bound on its unfairness; the
//!              caching mode page of SCSI (minimum and maximum prefetch) for reading ahead.

mod arm;
mod elevator;
mod geometry;
mod parameters;
mod seek;
mod segments;

use std::collections::VecDeque;
use std::time::Duration;

use arm::{Arm, Work};
use elevator::Elevator;
pub use parameters::Parameters;
use segments::Segments;

use super::dirty::Dirty;
use super::outbox::Outbox;
use super::{Command, Device, Ended, Op, SECTOR_BYTES, nanos, transfer_ns};

/// Largest piece of the write cache that is written at once.
const DESTAGE_SECTORS_MAX: u64 = 2048;

/// A disk.
#[derive(Debug)]
pub(crate) struct Disk {
    settings: Settings,
    now_ns: u64,
    /// Commands that wait in front of the disk's own queue.
    elevator: Elevator,
    /// Commands in the disk that wait for the arm or for space in the write cache.
    queue: Vec<Queued>,
    arm: Arm,
    segments: Segments,
    dirty: Dirty,
    /// The part of the cache that the arm is writing.
    destaging: Option<u64>,
    destaged_last: bool,
    epoch: u64,
    flushes: Vec<(u64, u64)>,
    interface_free_ns: u64,
    /// Answers on the cable, in order of time.
    replies: VecDeque<(u64, u64)>,
    /// Answers to flushes that did not have to wait; they occupy no place in the queue.
    flushed: VecDeque<(u64, u64)>,
    outbox: Outbox,
}

/// Parameters, converted to the units of the calculations.
#[derive(Debug)]
struct Settings {
    size_bytes: u64,
    queue: usize,
    overtaken_max: u32,
    command_ns: u64,
    write_settle_ns: u64,
    interface_rate: u64,
    read_ahead: u64,
    read_ahead_min: u64,
    write_cache: u64,
}

impl Settings {
    /// Whether a command in the queue waits for the arm, rather than for space in the write cache.
    fn needs_arm(&self, queued: &Queued) -> bool {
        !queued.write || self.write_cache == 0
    }
}

/// A command in the disk's queue.
#[derive(Debug, Clone, Copy)]
struct Queued {
    id: u64,
    write: bool,
    start: u64,
    end: u64,
    ready_ns: u64,
    overtaken: u32,
}

/// A disk with its platter at an angle that follows from `seed`.
///
/// # Errors
/// A sentence, if the parameters are invalid.
pub(crate) fn build(parameters: &Parameters, seed: u64) -> Result<Box<dyn Device>, String> {
    Ok(Box::new(Disk::new(parameters, seed)?))
}

impl Disk {
    pub(crate) fn new(parameters: &Parameters, seed: u64) -> Result<Self, String> {
        let arm = Arm::new(parameters, seed)?;
        let sectors = |bytes: u64| bytes / SECTOR_BYTES;
        let share = sectors(parameters.read_cache) / u64::from(parameters.segments.max(1));
        Ok(Self {
            settings: Settings {
                size_bytes: parameters.size / SECTOR_BYTES * SECTOR_BYTES,
                queue: parameters.queue.max(1) as usize,
                overtaken_max: parameters.overtaken_max,
                command_ns: nanos(parameters.command_time),
                write_settle_ns: nanos(parameters.write_settle),
                interface_rate: parameters.interface_rate,
                read_ahead: sectors(parameters.read_ahead).min(share),
                read_ahead_min: sectors(parameters.read_ahead_min).min(share),
                write_cache: sectors(parameters.write_cache),
            },
            now_ns: 0,
            elevator: Elevator::new(nanos(parameters.elevator_limit)),
            queue: Vec::new(),
            arm,
            segments: Segments::new(parameters.segments as usize, share),
            dirty: Dirty::default(),
            destaging: None,
            destaged_last: false,
            epoch: 0,
            flushes: Vec::new(),
            interface_free_ns: 0,
            replies: VecDeque::new(),
            flushed: VecDeque::new(),
            outbox: Outbox::default(),
        })
    }

    /// Number of commands that occupy a place in the queue: waiting, at the arm, or being returned.
    fn in_disk(&self) -> usize {
        let at_the_arm = usize::from(matches!(self.arm.work, Work::Command { id: Some(_), .. }));
        self.queue.len() + at_the_arm + self.replies.len()
    }

    /// Sends an answer over the cable, not before `ready_ns`.
    fn reply(&mut self, id: u64, ready_ns: u64, sectors: u64) {
        let begin_ns = ready_ns.max(self.interface_free_ns);
        self.interface_free_ns = begin_ns + self.cable_ns(sectors);
        self.replies.push_back((self.interface_free_ns, id));
    }

    fn cable_ns(&self, sectors: u64) -> u64 {
        transfer_ns(sectors * SECTOR_BYTES, self.settings.interface_rate)
    }

    /// Admits commands to the disk while there is space.
    fn admit(&mut self) {
        while self.in_disk() < self.settings.queue
            && let Some(waiting) = self.elevator.pop(self.now_ns)
        {
            self.accept(waiting.id, waiting.command);
            assert!(self.in_disk() <= self.settings.queue, "[DSK-2] the queue is too long");
        }
    }

    fn accept(&mut self, id: u64, command: Command) {
        let start = command.offset / SECTOR_BYTES;
        let end = (command.offset + command.len).div_ceil(SECTOR_BYTES);
        let ready_ns = self.now_ns + self.settings.command_ns;
        let write = command.op == Op::Write;
        self.arm.fill(&mut self.segments, self.now_ns);
        let queued = Queued { id, write, start, end, ready_ns, overtaken: 0 };
        if !self.serve_from_cache(&queued) {
            self.queue.push(queued);
            self.schedule();
        } else if write {
            self.schedule();
        }
    }

    /// Answers the commands that no longer need the arm.
    fn serve_queue_from_cache(&mut self) {
        self.arm.fill(&mut self.segments, self.now_ns);
        let mut index = 0;
        while index < self.queue.len() {
            let queued = self.queue[index];
            if self.serve_from_cache(&queued) {
                self.queue.remove(index);
            } else {
                index += 1;
            }
        }
    }

    fn serve_from_cache(&mut self, queued: &Queued) -> bool {
        let served =
            if queued.write { self.write_to_cache(queued) } else { self.read_from_cache(queued) };
        if served {
            let ready_ns = queued.ready_ns.max(self.now_ns);
            self.reply(queued.id, ready_ns, queued.end - queued.start);
        }
        served
    }

    fn read_from_cache(&mut self, read: &Queued) -> bool {
        let (start, end) = (read.start, read.end);
        if !self.dirty.is_empty() && self.dirty.missing(start, end) == 0 {
            return true;
        }
        let Some(index) = self.segments.holding(start, end) else { return false };
        self.segments.touch(index);
        let until = end + self.settings.read_ahead;
        self.arm.read_on(&self.segments, index, end, until, self.now_ns);
        true
    }

    fn write_to_cache(&mut self, write: &Queued) -> bool {
        let cache = self.settings.write_cache;
        let (start, end) = (write.start, write.end);
        let fits = self.dirty.total() + self.dirty.missing(start, end) <= cache;
        // A write that is larger than the cache passes through it when it is empty.
        if cache == 0 || !fits && !self.dirty.is_empty() {
            return false;
        }
        self.arm.interrupt(&self.segments, (start, end), self.now_ns);
        self.segments.forget(start, end);
        self.dirty.insert(start, end, self.epoch);
        true
    }

    /// Gives the arm work, if it is free to accept it.
    fn schedule(&mut self) {
        let limit = self.settings.overtaken_max;
        let held = match &self.arm.work {
            Work::Command { .. } => return,
            Work::Stream(stream) => {
                self.now_ns < stream.held_until_ns
                    && self.queue.iter().all(|queued| queued.overtaken < limit)
            }
            Work::Idle => false,
        };
        let reading_on = matches!(self.arm.work, Work::Stream(_));
        let needs_arm = |queued: &Queued| self.settings.needs_arm(queued);
        let commands_wait = self.queue.iter().any(needs_arm);
        let writes_wait = !self.queue.iter().all(needs_arm);
        let nearly_full = self.dirty.total() * 4 > self.settings.write_cache * 3;
        let pressed = nearly_full || writes_wait || !self.flushes.is_empty();
        let destage = match commands_wait {
            true => pressed && !self.destaged_last,
            false => pressed || !reading_on,
        };
        if destage && !held && !self.dirty.is_empty() {
            self.begin_destage();
        } else if commands_wait {
            self.begin_command(held);
        }
    }

    fn begin_destage(&mut self) {
        let next = self.dirty.next(self.arm.last_sector, DESTAGE_SECTORS_MAX);
        let Some(extent) = next else { return };
        self.dirty.take(extent);
        self.destaging = Some(extent.epoch);
        self.destaged_last = true;
        let settle_ns = self.settings.write_settle_ns;
        self.arm.begin_write(None, (extent.start, extent.end), self.now_ns, settle_ns);
    }

    /// Begins the command that can begin soonest; while a stream holds the arm, only one
    /// of that stream.
    fn begin_command(&mut self, held: bool) {
        let Some(chosen) = self.soonest(held) else { return };
        let command = self.queue.remove(chosen);
        let limit = self.settings.overtaken_max;
        let settings = &self.settings;
        for passed in self.queue[..chosen].iter_mut().filter(|queued| settings.needs_arm(queued)) {
            passed.overtaken += 1;
            assert!(passed.overtaken <= limit, "[DSK-3] a command was overtaken {limit} times");
        }
        self.destaged_last = false;
        let from_ns = self.now_ns.max(command.ready_ns);
        let range = (command.start, command.end);
        if command.write {
            self.arm.interrupt(&self.segments, range, self.now_ns);
            self.segments.forget(command.start, command.end);
            let settle_ns = self.settings.write_settle_ns;
            self.arm.begin_write(Some(command.id), range, from_ns, settle_ns);
        } else {
            let least_ns = self.cable_ns(command.end - command.start);
            self.arm.begin_read(&self.segments, command.id, range, from_ns, least_ns);
        }
    }

    /// The place in the queue of the command to execute next, if one may start.
    fn soonest(&self, held: bool) -> Option<usize> {
        let limit = self.settings.overtaken_max;
        let mut best: Option<(u64, usize)> = None;
        let queue = self.queue.iter().enumerate();
        for (index, queued) in queue.filter(|(_, queued)| self.settings.needs_arm(queued)) {
            if queued.overtaken >= limit {
                return Some(index);
            }
            let from_ns = self.now_ns.max(queued.ready_ns);
            let streamed = match queued.write {
                true => None,
                false => self.arm.streamed(&self.segments, queued.start, from_ns),
            };
            if held && streamed.is_none() {
                continue;
            }
            let settle_ns = if queued.write { self.settings.write_settle_ns } else { 0 };
            let begins_ns =
                streamed.unwrap_or_else(|| self.arm.position_ns(queued.start, from_ns + settle_ns));
            if best.is_none_or(|(soonest, _)| begins_ns < soonest) {
                best = Some((begins_ns, index));
            }
        }
        best.map(|(_, index)| index)
    }

    /// The arm has finished its work, or has reached a point where it may begin other work.
    fn arm_event(&mut self, at_ns: u64) {
        if let Work::Command { id, write, start, end, line, follows, .. } = self.arm.work {
            self.arm.work = Work::Idle;
            self.arm.last_sector = end;
            if write {
                self.destaging = None;
            } else {
                let min = if follows.is_some() { self.settings.read_ahead_min } else { 0 };
                let until = end + self.settings.read_ahead.max(min);
                let segment = self.arm.keep(&mut self.segments, (start, end), follows);
                self.arm.stream_on(segment, line, until, (min > 0).then_some(end + min));
            }
            if let Some(id) = id {
                self.outbox.push(id, at_ns);
            }
            self.end_flushes();
        }
        self.serve_queue_from_cache();
        self.admit();
        self.schedule();
    }

    fn end_flushes(&mut self) {
        let mut index = 0;
        while index < self.flushes.len() {
            let (id, epoch) = self.flushes[index];
            if self.dirty.older_than(epoch) {
                index += 1;
            } else {
                self.flushes.remove(index);
                self.outbox.push(id, self.now_ns);
            }
        }
    }

    fn next_ns(&self) -> Option<u64> {
        let wanted = !self.queue.is_empty() || !self.dirty.is_empty() || !self.flushes.is_empty();
        let arm = self.arm.next_ns(self.now_ns, wanted);
        let reply = self.replies.front().map(|&(at_ns, _)| at_ns);
        let flushed = self.flushed.front().map(|&(at_ns, _)| at_ns);
        arm.into_iter().chain(reply).chain(flushed).min()
    }

    fn run(&mut self, until_ns: u64) {
        while let Some(at_ns) = self.next_ns()
            && at_ns <= until_ns
        {
            assert!(at_ns >= self.now_ns, "[MOD-2] the disk goes back in time");
            self.now_ns = at_ns;
            if let Some(&(_, id)) = self.replies.front().filter(|reply| reply.0 == at_ns) {
                self.replies.pop_front();
                self.outbox.push(id, at_ns);
                self.admit();
            } else if let Some(&(_, id)) = self.flushed.front().filter(|flush| flush.0 == at_ns) {
                self.flushed.pop_front();
                self.outbox.push(id, at_ns);
            } else {
                self.arm_event(at_ns);
            }
        }
        self.now_ns = self.now_ns.max(until_ns);
    }
}

impl Device for Disk {
    fn size_bytes(&self) -> u64 {
        self.settings.size_bytes
    }

    fn submit(&mut self, now: Duration, id: u64, command: Command) {
        self.run(nanos(now));
        if command.op != Op::Flush {
            self.elevator.push(self.now_ns, id, command.within(self.settings.size_bytes));
            self.admit();
            return;
        }
        self.epoch += 1;
        if self.dirty.is_empty() && self.destaging.is_none() {
            self.flushed.push_back((self.now_ns + self.settings.command_ns, id));
        } else {
            self.flushes.push((id, self.epoch));
            self.schedule();
        }
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
