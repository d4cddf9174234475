//! Counters: what this process and the device read, so that a miss is known to be one.
//!
//! A buffered peer misses in its own memory and may still be answered by the kernel's page cache.
//! `/proc/self/io` counts the bytes that this process made the block layer read, whatever other processes use
//! the machine; the device counts the requests of all processes.
//!
//! Source:      `proc_pid_io(5)`.

use std::time::Duration;

use forebay_measure::facts::{CounterSource, DeviceCounters};
use rustix::time::{ClockId, clock_gettime};

/// The counts at one moment, or their increase; `None` if they are not available here.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Bytes that this process has read from block devices.
    pub(crate) process_bytes: Option<u64>,
    pub(crate) device: Option<DeviceCounters>,
    /// Processor time of this process.
    pub(crate) processor: Duration,
}

impl Counts {
    /// Reads them. `device`: the counters of the device, if there are any.
    pub(crate) fn read(device: Option<&CounterSource>) -> Counts {
        let process = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
        Counts {
            process_bytes: process_read_bytes(&process),
            device: device.and_then(|device| device.read().ok()),
            // Fails only for clocks that do not exist; this one always exists.
            processor: Duration::try_from(clock_gettime(ClockId::ProcessCPUTime))
                .unwrap_or_default(),
        }
    }

    /// The increase from `earlier` to this moment.
    pub(crate) fn since(&self, earlier: &Counts) -> Counts {
        let process = self.process_bytes.zip(earlier.process_bytes);
        let device = self.device.zip(earlier.device);
        Counts {
            process_bytes: process.map(|(now, then)| now.saturating_sub(then)),
            device: device.map(|(now, then)| now.since(&then)),
            processor: self.processor.saturating_sub(earlier.processor),
        }
    }
}

fn process_read_bytes(io: &str) -> Option<u64> {
    io.lines().find_map(|line| line.strip_prefix("read_bytes:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_file_is_understood() {
        let io = "rchar: 6976\nwchar: 0\nread_bytes: 8192\nwrite_bytes: 4096\n";
        assert_eq!(process_read_bytes(io), Some(8192));
        assert_eq!(process_read_bytes("rchar: 1\n"), None);
    }

    #[test]
    fn what_is_not_counted_stays_unknown() {
        let counts = Counts { process_bytes: Some(10), ..Counts::default() };
        let device = Some(DeviceCounters::default());
        let later = Counts { process_bytes: Some(15), device, ..counts };
        let grown = later.since(&counts);
        assert_eq!((grown.process_bytes, grown.device), (Some(5), None));
    }
}
