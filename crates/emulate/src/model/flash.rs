//! Flash: many units that read and program, a link, a processor, and a cache for writing.
//!
//! A command is cut into pages of 4 KiB, which are assigned to the units in turn. Each unit reads one page after
//! another; the bytes then go over the link. A write ends when the cache has it; the cache is emptied at
//! the rate at which all units program together.
//!
//! Garbage collection is simple: a given number of bytes can be written before the drive has to clean up,
//! and from then on programming takes a given number of times as long. While the cache is empty, spare space
//! is recovered at a given rate. Reads that arrive while the cache is being emptied find units busy, and take half
//! a program time more. Not modelled: where pages really are after they were rewritten, wear, and errors.
//!
//! Worked example: 16 units, 90 us to read. One 4 KiB read takes 90 us plus the times of processor and link;
//! 32 simultaneous reads on different units take hardly longer than two.
//!
//! Invariants:  [FLS-1] the cache holds no more than its size, except for one command that is larger

use std::collections::VecDeque;
use std::time::Duration;

use serde::Deserialize;

use super::queue::{Queue, Service};
use super::{Command, Device, Op, nanos, transfer_ns};
use crate::profile::amount;

/// Unit of reading and programming.
const PAGE_BYTES: u64 = 4096;

/// The parameters of a flash drive.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    /// Size in bytes.
    #[serde(deserialize_with = "amount::bytes")]
    pub size: u64,
    /// Units that work in parallel: the number of channels times the units that each channel keeps busy.
    pub units: u32,
    /// Time of a unit to read 4 KiB.
    #[serde(deserialize_with = "amount::time")]
    pub read_time: Duration,
    /// Time of a unit to program 4 KiB, on average over a long write.
    #[serde(deserialize_with = "amount::time")]
    pub program_time: Duration,
    /// Processor time of each command, one after another; it limits commands a second.
    #[serde(deserialize_with = "amount::time")]
    pub command_time: Duration,
    /// Additional time of each command that delays no other command.
    #[serde(deserialize_with = "amount::time")]
    pub latency: Duration,
    /// Rate of the link, each way, in bytes a second.
    #[serde(deserialize_with = "amount::rate")]
    pub link_rate: u64,
    /// Maximum number of commands in the drive.
    pub queue: u32,
    /// Size of the write cache, in bytes.
    #[serde(deserialize_with = "amount::bytes")]
    pub write_cache: u64,
    /// Whether the cache survives a power cut, so that a flush does not wait.
    pub power_protected: bool,
    /// Bytes that can be written before the drive cleans up while it writes.
    #[serde(deserialize_with = "amount::bytes")]
    pub spare: u64,
    /// How many times as long programming takes after that.
    pub cleaning_factor: u32,
    /// How fast spare room is recovered while there is nothing to write, in bytes a second.
    #[serde(deserialize_with = "amount::rate")]
    pub cleaning_rate: u64,
}

/// A drive.
///
/// # Errors
/// A sentence, if the parameters are invalid.
pub(crate) fn build(parameters: &Parameters) -> Result<Box<dyn Device>, String> {
    if parameters.units == 0 || parameters.cleaning_factor == 0 || parameters.link_rate == 0 {
        return Err("`units`, `cleaning_factor` and `link_rate` are at least 1".into());
    }
    if parameters.units > 4096 || parameters.size < 1 << 20 {
        return Err("`units` are at most 4096, `size` is 1 MiB at least".into());
    }
    let service = Flash {
        unit_free_ns: vec![0; parameters.units as usize],
        read_ns: nanos(parameters.read_time),
        program_ns: nanos(parameters.program_time),
        command_ns: nanos(parameters.command_time),
        latency_ns: nanos(parameters.latency),
        link_rate: parameters.link_rate,
        processor_free_ns: 0,
        out_free_ns: 0,
        in_free_ns: 0,
        cache: Cache::new(parameters),
    };
    Ok(Box::new(Queue::new(service, parameters.size, parameters.queue as usize)))
}

#[derive(Debug)]
struct Flash {
    unit_free_ns: Vec<u64>,
    read_ns: u64,
    program_ns: u64,
    command_ns: u64,
    latency_ns: u64,
    link_rate: u64,
    processor_free_ns: u64,
    out_free_ns: u64,
    in_free_ns: u64,
    cache: Cache,
}

impl Flash {
    fn read(&mut self, from_ns: u64, command: Command) -> u64 {
        let units = self.unit_free_ns.len() as u64;
        let first = command.offset / PAGE_BYTES;
        let pages = (command.offset + command.len).div_ceil(PAGE_BYTES) - first;
        let disturbed_ns = if self.cache.is_busy(from_ns) { self.program_ns / 2 } else { 0 };
        let mut read_ns = 0;
        for nth in 0..pages.min(units) {
            // Pages nth, nth + units, nth + 2 * units and so on are on one unit.
            let here = (pages - nth).div_ceil(units);
            let free_ns = &mut self.unit_free_ns[((first + nth) % units) as usize];
            *free_ns = (*free_ns).max(from_ns) + here * self.read_ns + disturbed_ns;
            read_ns = read_ns.max(*free_ns);
        }
        // The link is used while units still read; the last page is sent after it was read.
        let whole_ns = transfer_ns(command.len, self.link_rate);
        self.out_free_ns = self.out_free_ns.max(from_ns) + whole_ns;
        let last_ns = transfer_ns(command.len.min(PAGE_BYTES), self.link_rate);
        self.out_free_ns.max(read_ns + last_ns)
    }

    fn write(&mut self, from_ns: u64, command: Command) -> u64 {
        let whole_ns = transfer_ns(command.len, self.link_rate);
        self.in_free_ns = self.in_free_ns.max(from_ns) + whole_ns;
        self.cache.take_in(self.in_free_ns, command.len)
    }
}

impl Service for Flash {
    fn end_ns(&mut self, start_ns: u64, command: Command) -> u64 {
        self.processor_free_ns = self.processor_free_ns.max(start_ns) + self.command_ns;
        let from_ns = self.processor_free_ns;
        let end_ns = match command.op {
            Op::Read => self.read(from_ns, command),
            Op::Write => self.write(from_ns, command),
            Op::Flush => self.cache.flushed_ns(from_ns),
        };
        end_ns + self.latency_ns
    }
}

/// Bytes that are written and not programmed yet.
#[derive(Debug)]
struct Cache {
    size: u64,
    power_protected: bool,
    /// When the last byte of each write is programmed, and its length.
    held: VecDeque<(u64, u64)>,
    held_bytes: u64,
    programmed_ns: u64,
    program_rate: u64,
    spare: u64,
    spare_max: u64,
    cleaning_factor: u64,
    cleaning_rate: u64,
}

impl Cache {
    fn new(parameters: &Parameters) -> Self {
        let page_ns = nanos(parameters.program_time).max(1);
        let pages_per_s = u64::from(parameters.units) * 1_000_000_000 / page_ns;
        Self {
            size: parameters.write_cache,
            power_protected: parameters.power_protected,
            held: VecDeque::new(),
            held_bytes: 0,
            programmed_ns: 0,
            program_rate: (pages_per_s * PAGE_BYTES).max(1),
            spare: parameters.spare,
            spare_max: parameters.spare,
            cleaning_factor: u64::from(parameters.cleaning_factor),
            cleaning_rate: parameters.cleaning_rate,
        }
    }

    fn is_busy(&self, at_ns: u64) -> bool {
        self.programmed_ns > at_ns
    }

    /// Accepts a write at `at_ns` or when there is space; returns when.
    fn take_in(&mut self, at_ns: u64, len: u64) -> u64 {
        let mut at_ns = at_ns;
        while let Some(&(programmed_ns, bytes)) = self.held.front() {
            let room = self.held_bytes + len <= self.size;
            if programmed_ns > at_ns && room {
                break;
            }
            at_ns = at_ns.max(programmed_ns);
            self.held.pop_front();
            self.held_bytes -= bytes;
        }
        let idle_ns = at_ns.saturating_sub(self.programmed_ns);
        let cleaned = u128::from(idle_ns) * u128::from(self.cleaning_rate) / 1_000_000_000;
        let cleaned = u64::try_from(cleaned).unwrap_or(u64::MAX);
        self.spare = self.spare.saturating_add(cleaned).min(self.spare_max);
        let times = if self.spare == 0 { self.cleaning_factor } else { 1 };
        self.spare = self.spare.saturating_sub(len);
        let program_ns = transfer_ns(len, self.program_rate) * times;
        self.programmed_ns = self.programmed_ns.max(at_ns) + program_ns;
        self.held.push_back((self.programmed_ns, len));
        self.held_bytes += len;
        assert!(self.held_bytes <= self.size.max(len), "[FLS-1] the cache holds too much");
        at_ns
    }

    fn flushed_ns(&self, at_ns: u64) -> u64 {
        if self.power_protected { at_ns } else { at_ns.max(self.programmed_ns) }
    }
}
