//! Counters: the requests that really reached the device, so that a miss is known to be one.
//!
//! A buffered peer misses in its own memory and may still be answered by the kernel's page cache.
//! `/proc/self/io` counts the bytes that this process made the block layer read, whatever other processes use
//! the machine; the device's `stat` counts the requests of all processes.
//!
//! Source:      `proc_pid_io(5)`, the kernel's `Documentation/block/stat.rst`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Sectors in `stat` are of this size whatever the device's are.
const SECTOR_BYTES: u64 = 512;

/// Where the counts are read.
#[derive(Debug, Clone)]
pub(crate) struct Counters {
    /// The `stat` file of the device, if there is one.
    pub(crate) stat: Option<PathBuf>,
}

/// The counts at one moment, or their increase; `None` if they are not available here.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Bytes that this process has read from block devices.
    pub(crate) process_bytes: Option<u64>,
    /// Bytes read from the device, by anyone.
    pub(crate) device_bytes: Option<u64>,
    /// Read requests that the device completed, for all processes.
    pub(crate) device_requests: Option<u64>,
    /// Processor time of this process.
    pub(crate) processor: Duration,
}

impl Counters {
    /// Reads them.
    pub(crate) fn read(&self) -> Counts {
        let process = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
        let (requests, bytes) = self.stat.as_deref().and_then(device_counts).unzip();
        Counts {
            process_bytes: process_read_bytes(&process),
            device_bytes: bytes,
            device_requests: requests,
            // Fails only for clocks that do not exist; this one always exists.
            processor: Duration::try_from(clock_gettime(ClockId::ProcessCPUTime))
                .unwrap_or_default(),
        }
    }
}

impl Counts {
    /// The increase from `earlier` to this moment.
    pub(crate) fn since(&self, earlier: &Counts) -> Counts {
        let grown = |now: Option<u64>, then: Option<u64>| Some(now?.saturating_sub(then?));
        Counts {
            process_bytes: grown(self.process_bytes, earlier.process_bytes),
            device_bytes: grown(self.device_bytes, earlier.device_bytes),
            device_requests: grown(self.device_requests, earlier.device_requests),
            processor: self.processor.saturating_sub(earlier.processor),
        }
    }
}

fn process_read_bytes(io: &str) -> Option<u64> {
    io.lines().find_map(|line| line.strip_prefix("read_bytes:"))?.trim().parse().ok()
}

/// Read requests and bytes read.
fn device_counts(stat: &Path) -> Option<(u64, u64)> {
    parse_stat(&std::fs::read_to_string(stat).ok()?)
}

fn parse_stat(stat: &str) -> Option<(u64, u64)> {
    let mut fields = stat.split_whitespace();
    let requests = fields.next()?.parse().ok()?;
    let sectors: u64 = fields.nth(1)?.parse().ok()?;
    Some((requests, sectors * SECTOR_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_s_files_are_understood() {
        let io = "rchar: 6976\nwchar: 0\nread_bytes: 8192\nwrite_bytes: 4096\n";
        assert_eq!(process_read_bytes(io), Some(8192));
        assert_eq!(process_read_bytes("rchar: 1\n"), None);
        let stat = "   53229     1021  8310010    32133  9 9 9 9 0 9 9\n";
        assert_eq!(parse_stat(stat), Some((53_229, 8_310_010 * 512)));
        assert_eq!(parse_stat("1 2"), None);
    }

    #[test]
    fn what_is_not_counted_stays_unknown() {
        let counts = Counts { process_bytes: Some(10), ..Counts::default() };
        let later = Counts { process_bytes: Some(15), device_bytes: Some(3), ..counts };
        let grown = later.since(&counts);
        assert_eq!((grown.process_bytes, grown.device_bytes), (Some(5), None));
    }
}
