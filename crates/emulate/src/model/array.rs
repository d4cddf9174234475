//! Array: many devices as one, striped; each slice is on one device or on two.
//!
//! The address space is cut into chunks of the stripe size, which are assigned to the slices in turn. The part of any
//! command on one slice is one contiguous range of that slice, so a command becomes at most one
//! command for each slice, however many chunks it has. It ends when the last of them ends.
//!
//! Worked example, four slices, 64 KiB: bytes 0 to 320 KiB are chunks 0 to 4, of which 0 and 4 are
//! adjacent on slice 0. The array reads 128 KiB there, and 64 KiB on each of the other slices.
//!
//! With two copies (RAID 10) a write goes to both. A read goes to the copy that recently read up to the start
//! of the read, because that copy has the rest in its cache or under its head; otherwise to the copy with
//! fewer commands, or whose last position is nearer. A flush goes to every device.
//!
//! Invariants:  [ARY-1] the parts of a command have its length together, without overlap
//!              [ARY-2] a command ends when its last part does
//! Source:      the choice of a copy follows raid1's read_balance in the kernel (drivers/md/raid1.c), but
//!              remembers more than one stream.

use std::time::Duration;

use serde::Deserialize;

use super::outbox::Outbox;
use super::{Command, Device, Ended, Op, nanos};
use crate::profile::amount;

/// Maximum number of streams that each pair of copies remembers.
const TRAILS_MAX: usize = 32;
/// A stream leaves its copy when that copy has this many commands more than the other.
const IMBALANCE_MAX: usize = 8;

/// The parameters of an array, without those of its members.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    /// Whether each slice exists once or twice.
    pub level: Level,
    /// Number of devices.
    pub count: u32,
    /// Bytes on one slice before the next slice follows.
    #[serde(deserialize_with = "amount::bytes")]
    pub stripe: u64,
}

/// Number of copies of the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// One copy.
    Raid0,
    /// Two copies: pairs of devices.
    Raid10,
}

/// The array.
#[derive(Debug)]
pub(crate) struct Array {
    members: Vec<Member>,
    /// For each slice, the streams that its copies have read recently, the newest last.
    trails: Vec<Vec<Trail>>,
    copies: usize,
    stripe: u64,
    size_bytes: u64,
    now_ns: u64,
    commands: Vec<Split>,
    free: Vec<usize>,
    ended: Vec<Ended>,
    outbox: Outbox,
}

#[derive(Debug)]
struct Member {
    device: Box<dyn Device>,
    under_way: usize,
    last_end: u64,
    /// The member's next event, cached until the member changes.
    next_ns: Option<u64>,
}

/// A command that was split into parts.
#[derive(Debug, Clone, Copy)]
struct Split {
    id: u64,
    parts: usize,
}

/// A stream of reads on one of two copies.
#[derive(Debug, Clone, Copy)]
struct Trail {
    end: u64,
    copy: usize,
}

/// A range of one slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    slice: usize,
    start: u64,
    end: u64,
}

/// The array of members that `member` makes, each with its own seed.
///
/// # Errors
/// A sentence, if the parameters are invalid, or if `member` fails.
pub(crate) fn build(
    parameters: &Parameters,
    mut member: impl FnMut(u64) -> Result<Box<dyn Device>, String>,
) -> Result<Box<dyn Device>, String> {
    let copies = match parameters.level {
        Level::Raid0 => 1,
        Level::Raid10 => 2,
    };
    let count = parameters.count as usize;
    if count == 0 || !count.is_multiple_of(copies) || count > 1024 {
        return Err("`count` is 1 to 1024, and even for raid10".into());
    }
    if parameters.stripe == 0 || !parameters.stripe.is_multiple_of(super::SECTOR_BYTES) {
        return Err("`stripe` is a multiple of 512 bytes".into());
    }
    let devices = (0..parameters.count).map(|number| member(u64::from(number)));
    let devices = devices.collect::<Result<Vec<_>, String>>()?;
    Ok(Box::new(Array::new(devices, copies, parameters.stripe)))
}

impl Array {
    fn new(devices: Vec<Box<dyn Device>>, copies: usize, stripe: u64) -> Self {
        let slices = devices.len() / copies;
        let smallest = devices.iter().map(|device| device.size_bytes()).min().unwrap_or(0);
        let member = |device| Member { device, under_way: 0, last_end: 0, next_ns: None };
        Self {
            members: devices.into_iter().map(member).collect(),
            trails: vec![Vec::with_capacity(TRAILS_MAX); slices],
            copies,
            stripe,
            size_bytes: smallest / stripe * stripe * slices as u64,
            now_ns: 0,
            commands: Vec::new(),
            free: Vec::new(),
            ended: Vec::new(),
            outbox: Outbox::default(),
        }
    }

    fn slices(&self) -> u64 {
        (self.members.len() / self.copies) as u64
    }

    /// The part of a range on the slice of its `nth` chunk, if the range has that many chunks in the first round.
    fn part(&self, start: u64, end: u64, nth: u64) -> Option<Part> {
        let slices = self.slices();
        let (first, last) = (start / self.stripe, (end - 1) / self.stripe);
        let chunk = first + nth;
        if nth >= slices || chunk > last {
            return None;
        }
        let last_here = chunk + (last - chunk) / slices * slices;
        let within = if nth == 0 { start % self.stripe } else { 0 };
        let up_to = if last_here == last { (end - 1) % self.stripe + 1 } else { self.stripe };
        Some(Part {
            slice: (chunk % slices) as usize,
            start: chunk / slices * self.stripe + within,
            end: last_here / slices * self.stripe + up_to,
        })
    }

    /// Chooses the copy of a slice that reads a part.
    fn choose(&mut self, part: Part) -> usize {
        if self.copies == 1 {
            return 0;
        }
        let members = &self.members[part.slice * 2..part.slice * 2 + 2];
        let trails = &mut self.trails[part.slice];
        let follows = trails.iter().position(|trail| trail.end == part.start);
        let follows = follows
            .map(|index| trails.remove(index).copy)
            .filter(|&copy| members[copy].under_way < members[1 - copy].under_way + IMBALANCE_MAX);
        let copy = follows.unwrap_or_else(|| {
            let cost = |copy: usize| {
                let member: &Member = &members[copy];
                (member.under_way, member.last_end.abs_diff(part.start))
            };
            usize::from(cost(1) < cost(0))
        });
        if trails.len() == TRAILS_MAX {
            trails.remove(0);
        }
        trails.push(Trail { end: part.end, copy });
        copy
    }

    fn send(&mut self, member: usize, split: usize, command: Command) {
        let now = Duration::from_nanos(self.now_ns);
        let member = &mut self.members[member];
        member.under_way += 1;
        if command.op != Op::Flush {
            member.last_end = command.offset + command.len;
        }
        member.device.submit(now, split as u64, command);
        member.next_ns = member.device.next_event().map(nanos);
        self.commands[split].parts += 1;
    }

    fn begin(&mut self, id: u64) -> usize {
        let split = Split { id, parts: 0 };
        if let Some(index) = self.free.pop() {
            self.commands[index] = split;
            return index;
        }
        self.commands.push(split);
        self.commands.len() - 1
    }

    fn send_parts(&mut self, split: usize, command: Command) {
        let command = command.within(self.size_bytes);
        let (start, end) = (command.offset, command.offset + command.len);
        let (mut nth, mut total) = (0, 0);
        while let Some(part) = self.part(start, end, nth) {
            nth += 1;
            total += part.end - part.start;
            let (offset, len) = (part.start, part.end - part.start);
            let command = Command { op: command.op, offset, len };
            let first = part.slice * self.copies;
            if command.op == Op::Read {
                let copy = self.choose(part);
                self.send(first + copy, split, command);
            } else {
                (0..self.copies).for_each(|copy| self.send(first + copy, split, command));
            }
        }
        assert_eq!(total, end - start, "[ARY-1] the parts are not the whole");
    }

    /// The member whose next event is first, and its time.
    fn next(&self) -> Option<(u64, usize)> {
        let next = |(index, member): (usize, &Member)| member.next_ns.map(|at_ns| (at_ns, index));
        self.members.iter().enumerate().filter_map(next).min()
    }

    fn run(&mut self, until_ns: u64) {
        while let Some((at_ns, index)) = self.next()
            && at_ns <= until_ns
        {
            let member = &mut self.members[index];
            member.device.advance(Duration::from_nanos(at_ns), &mut self.ended);
            member.next_ns = member.device.next_event().map(nanos);
            member.under_way -= self.ended.len();
            for ended in self.ended.drain(..) {
                let split = &mut self.commands[ended.id as usize];
                split.parts = split.parts.checked_sub(1).expect("[ARY-2] a part ended twice");
                if split.parts == 0 {
                    self.outbox.push(split.id, nanos(ended.at));
                    self.free.push(ended.id as usize);
                }
            }
        }
        self.now_ns = self.now_ns.max(until_ns);
    }
}

impl Device for Array {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn submit(&mut self, now: Duration, id: u64, command: Command) {
        self.run(nanos(now));
        let split = self.begin(id);
        if command.op == Op::Flush {
            (0..self.members.len()).for_each(|member| self.send(member, split, command));
        } else {
            self.send_parts(split, command);
        }
    }

    fn next_event(&self) -> Option<Duration> {
        if !self.outbox.is_empty() {
            return Some(Duration::from_nanos(self.now_ns));
        }
        self.next().map(|(at_ns, _)| Duration::from_nanos(at_ns))
    }

    fn advance(&mut self, now: Duration, ended: &mut Vec<Ended>) {
        self.run(nanos(now));
        self.outbox.hand_out(ended);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::fixed;

    fn array(count: u32, copies: usize, stripe: u64) -> Array {
        let parameters = fixed::Parameters {
            size: 1 << 20,
            command_time: Duration::from_micros(100),
            rate: 0,
            flush_time: Duration::from_micros(7),
            concurrency: 1,
        };
        let devices = (0..count).map(|_| fixed::build(&parameters).unwrap()).collect();
        Array::new(devices, copies, stripe)
    }

    fn parts(array: &Array, start: u64, end: u64) -> Vec<Part> {
        (0..).map_while(|nth| array.part(start, end, nth)).collect()
    }

    proptest! {
        #[test]
        fn parts_are_the_bytes_of_the_range(
            count in 1_u32..8, stripe in 1_u64..5, start in 0_u64..200, len in 1_u64..100,
        ) {
            let array = array(count, 1, stripe);
            let expected = |byte: u64| {
                let chunk = byte / stripe;
                let slices = u64::from(count);
                ((chunk % slices) as usize, chunk / slices * stripe + byte % stripe)
            };
            let mut bytes: Vec<_> = (start..start + len).map(expected).collect();
            let mut found: Vec<_> = parts(&array, start, start + len)
                .iter()
                .flat_map(|part| (part.start..part.end).map(|at| (part.slice, at)))
                .collect();
            bytes.sort_unstable();
            found.sort_unstable();
            prop_assert_eq!(bytes, found, "[ARY-1]");
        }
    }

    #[test]
    fn neighbouring_chunks_of_a_slice_are_one_part() {
        let array = array(4, 1, 65_536);
        let slice = |slice, start, end| Part { slice, start, end };
        let expected =
            [slice(0, 0, 131_072), slice(1, 0, 65_536), slice(2, 0, 65_536), slice(3, 0, 65_536)];
        assert_eq!(parts(&array, 0, 5 * 65_536), expected);
    }

    fn ends(array: &mut Array) -> Vec<(u64, u64)> {
        let mut ended = Vec::new();
        while let Some(next) = array.next_event() {
            array.advance(next, &mut ended);
        }
        ended.iter().map(|ended| (ended.id, nanos(ended.at) / 1000)).collect()
    }

    fn submit(array: &mut Array, id: u64, op: Op, offset: u64, len: u64) {
        array.submit(Duration::ZERO, id, Command { op, offset, len });
    }

    #[test]
    fn two_reads_of_a_mirrored_slice_go_on_side_by_side_and_two_writes_do_not() {
        let mut mirrored = array(2, 2, 4096);
        submit(&mut mirrored, 0, Op::Read, 0, 4096);
        submit(&mut mirrored, 1, Op::Read, 0, 4096);
        submit(&mut mirrored, 2, Op::Read, 0, 4096);
        assert_eq!(ends(&mut mirrored), [(0, 100), (1, 100), (2, 200)]);
        let mut mirrored = array(2, 2, 4096);
        submit(&mut mirrored, 0, Op::Write, 0, 4096);
        submit(&mut mirrored, 1, Op::Write, 0, 4096);
        assert_eq!(ends(&mut mirrored), [(0, 100), (1, 200)]);
    }

    #[test]
    fn a_write_keeps_both_copies_busy() {
        let mut mirrored = array(2, 2, 4096);
        submit(&mut mirrored, 0, Op::Write, 0, 4096);
        submit(&mut mirrored, 1, Op::Read, 0, 4096);
        assert_eq!(ends(&mut mirrored), [(0, 100), (1, 200)]);
    }

    #[test]
    fn a_command_ends_with_its_last_part() {
        let mut striped = array(2, 1, 4096);
        submit(&mut striped, 0, Op::Read, 0, 4096);
        submit(&mut striped, 1, Op::Read, 0, 8192);
        // [ARY-2]: the second one's part on the second device ended at 100 already.
        assert_eq!(ends(&mut striped), [(0, 100), (1, 200)]);
    }

    #[test]
    fn a_flush_reaches_every_device() {
        let mut striped = array(3, 1, 4096);
        submit(&mut striped, 0, Op::Read, 8192, 4096);
        submit(&mut striped, 1, Op::Flush, 0, 0);
        // The third device executes one command at a time, the read first.
        assert_eq!(ends(&mut striped), [(0, 100), (1, 107)]);
    }

    #[test]
    fn of_two_idle_copies_the_nearer_one_reads() {
        let mut mirrored = array(2, 2, 4096);
        mirrored.members[0].last_end = 100_000;
        mirrored.members[1].last_end = 900_000;
        assert_eq!(mirrored.choose(Part { slice: 0, start: 700_416, end: 704_512 }), 1);
        assert_eq!(mirrored.choose(Part { slice: 0, start: 200_704, end: 204_800 }), 0);
    }

    #[test]
    fn a_stream_stays_on_its_copy() {
        let mut mirrored = array(2, 2, 4096);
        let first = mirrored.choose(Part { slice: 0, start: 0, end: 4096 });
        mirrored.members[first].under_way = IMBALANCE_MAX - 1;
        assert_eq!(mirrored.choose(Part { slice: 0, start: 4096, end: 8192 }), first);
        mirrored.members[first].under_way = IMBALANCE_MAX;
        assert_eq!(mirrored.choose(Part { slice: 0, start: 8192, end: 12_288 }), 1 - first);
    }
}
