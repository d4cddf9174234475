//! Fixed: every command takes the same time, plus some for each byte.
//!
//! No real device behaves like this. It is for tests of the layers above a device, and for examining requests
//! themselves, where nothing should depend on the order in which they arrive.
//!
//! With a `concurrency` of 1 and 100 µs a command, ten commands at once end after 100, 200, ... 1000 µs.

use std::time::Duration;

use serde::Deserialize;

use super::queue::{Queue, Service};
use super::{Command, Device, Op, nanos, transfer_ns};
use crate::profile::amount;

/// The parameters of a fixed device.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    /// Size in bytes.
    #[serde(deserialize_with = "amount::bytes")]
    pub size: u64,
    /// Time of each read or write.
    #[serde(deserialize_with = "amount::time")]
    pub command_time: Duration,
    /// Transfer rate of its bytes, which adds to that time, in bytes a second; 0 means that bytes take no time.
    #[serde(default, deserialize_with = "amount::rate")]
    pub rate: u64,
    /// Time of a flush.
    #[serde(default, deserialize_with = "amount::time")]
    pub flush_time: Duration,
    /// Maximum number of commands in progress.
    pub concurrency: u32,
}

/// The device.
///
/// # Errors
/// A sentence, if the parameters are invalid.
pub(crate) fn build(parameters: &Parameters) -> Result<Box<dyn Device>, String> {
    if parameters.size < 1 << 20 || parameters.concurrency == 0 {
        return Err("`size` is 1 MiB and `concurrency` 1 at least".into());
    }
    let service = Fixed {
        command_ns: nanos(parameters.command_time),
        flush_ns: nanos(parameters.flush_time),
        rate: parameters.rate,
    };
    Ok(Box::new(Queue::new(service, parameters.size, parameters.concurrency as usize)))
}

#[derive(Debug)]
struct Fixed {
    command_ns: u64,
    flush_ns: u64,
    rate: u64,
}

impl Service for Fixed {
    fn end_ns(&mut self, start_ns: u64, command: Command) -> u64 {
        if command.op == Op::Flush {
            return start_ns + self.flush_ns;
        }
        let bytes_ns = if self.rate == 0 { 0 } else { transfer_ns(command.len, self.rate) };
        start_ns + self.command_ns + bytes_ns
    }
}
