//! Counters: how many requests and bytes a device has really seen.
//!
//! The kernel counts what it sends to a device after merging, so two snapshots around a
//! measurement tell requests and bytes apart from what the program asked for. A stacked device is
//! the sum of its leaves. Everyone's requests are counted, not only this process's, and a request
//! counts when it completes (its number may trail its bytes by microseconds). An emulated disk that is
//! read without a block device between counts for itself.
//!
//! Invariants:  [CNT-1] a counter that is not kept is `None`, not zero
//!              [CNT-2] a difference survives the wrap of the kernel's 32-bit fields
//!              [CNT-3] a source has at least one leaf
//! Concurrency: a source may be shared between threads; a read holds no lock.
//! Failure:     a device that went away is an error at the next read.
//! Source:      the kernel's `Documentation/block/stat.rst` and `block/genhd.c`.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use forebay_emulate::Counters;
use serde::{Deserialize, Serialize};

use super::emulated::EmulatedDisk;
use super::sysfs::{BlockNode, SECTOR_BYTES, Sysfs};
use super::{Device, Storage};

/// Longest `stat` line: 17 numbers of up to 20 digits with a space each is 357 bytes.
const STAT_BYTES_MAX: usize = 512;

/// Counts of a device since it appeared, or between two snapshots ([`DeviceCounters::since`]).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceCounters {
    /// Read requests completed.
    pub reads: u64,
    /// Reads that were merged into another request; `None` where nobody merges.
    pub read_merges: Option<u64>,
    /// Bytes read.
    pub read_bytes: u64,
    /// Write requests completed.
    pub writes: u64,
    /// Writes that were merged into another request; `None` where nobody merges.
    pub write_merges: Option<u64>,
    /// Bytes written.
    pub write_bytes: u64,
    /// Cache flush requests completed; `None` for partitions and old kernels, which do not count them.
    pub flushes: Option<u64>,
    /// Time read requests waited and were served, in milliseconds, summed over requests; `None` for
    /// emulated disks.
    pub read_ms: Option<u64>,
    /// Time write requests waited and were served, in milliseconds, summed over requests; `None` for
    /// emulated disks.
    pub write_ms: Option<u64>,
    /// Time with any request in flight, in milliseconds, summed over leaves: two busy disks make
    /// two seconds in each second. Grows in steps of a kernel tick (1 to 10 ms).
    pub busy_ms: u64,
}

impl DeviceCounters {
    /// Reads one `stat` file: 11, 15 (discards, from Linux 4.18) or 17 (flushes, from 5.5) numbers.
    fn parse(stat: &str, counts_flushes: bool) -> Option<DeviceCounters> {
        let fields: Vec<u64> =
            stat.split_whitespace().map(|field| field.parse().ok()).collect::<Option<_>>()?;
        let [reads, read_merges, read_sectors, read_ms, ..] = fields[..] else {
            return None;
        };
        let [writes, write_merges, write_sectors, write_ms, ..] = fields[4..] else {
            return None;
        };
        let [_in_flight, busy_ms, _waited_ms, ..] = fields[8..] else {
            return None;
        };
        Some(DeviceCounters {
            reads,
            read_merges: Some(read_merges),
            read_bytes: read_sectors.checked_mul(SECTOR_BYTES)?,
            writes,
            write_merges: Some(write_merges),
            write_bytes: write_sectors.checked_mul(SECTOR_BYTES)?,
            flushes: fields.get(15).copied().filter(|_| counts_flushes),
            read_ms: Some(read_ms),
            write_ms: Some(write_ms),
            busy_ms,
        })
    }

    /// What an emulated disk says: one line of JSON.
    fn parse_emulated(line: &str) -> Option<DeviceCounters> {
        let told: Counters = serde_json::from_str(line).ok()?;
        Some(DeviceCounters {
            reads: told.reads,
            read_bytes: told.read_bytes,
            writes: told.writes,
            write_bytes: told.write_bytes,
            flushes: Some(told.flushes),
            busy_ms: told.busy_us / 1000,
            ..DeviceCounters::default()
        })
    }

    /// What two leaves have counted together.
    #[must_use]
    pub(crate) fn plus(self, other: DeviceCounters) -> DeviceCounters {
        DeviceCounters {
            reads: self.reads.wrapping_add(other.reads),
            read_merges: both(self.read_merges, other.read_merges, u64::wrapping_add),
            read_bytes: self.read_bytes.wrapping_add(other.read_bytes),
            writes: self.writes.wrapping_add(other.writes),
            write_merges: both(self.write_merges, other.write_merges, u64::wrapping_add),
            write_bytes: self.write_bytes.wrapping_add(other.write_bytes),
            flushes: both(self.flushes, other.flushes, u64::wrapping_add),
            read_ms: both(self.read_ms, other.read_ms, u64::wrapping_add),
            write_ms: both(self.write_ms, other.write_ms, u64::wrapping_add),
            busy_ms: self.busy_ms.wrapping_add(other.busy_ms),
        }
    }

    /// What happened between the snapshot `earlier` and this one of the same source.
    ///
    /// The kernel's times wrap after 2^32 ms everywhere and its counts after 2^32 on 32-bit
    /// machines; differences stay right as long as they are smaller than that.
    #[must_use]
    pub fn since(&self, earlier: &DeviceCounters) -> DeviceCounters {
        DeviceCounters {
            reads: count_since(self.reads, earlier.reads),
            read_merges: both(self.read_merges, earlier.read_merges, count_since),
            read_bytes: bytes_since(self.read_bytes, earlier.read_bytes),
            writes: count_since(self.writes, earlier.writes),
            write_merges: both(self.write_merges, earlier.write_merges, count_since),
            write_bytes: bytes_since(self.write_bytes, earlier.write_bytes),
            flushes: both(self.flushes, earlier.flushes, count_since),
            read_ms: both(self.read_ms, earlier.read_ms, ms_since),
            write_ms: both(self.write_ms, earlier.write_ms, ms_since),
            busy_ms: ms_since(self.busy_ms, earlier.busy_ms),
        }
    }
}

fn both(a: Option<u64>, b: Option<u64>, join: fn(u64, u64) -> u64) -> Option<u64> {
    Some(join(a?, b?))
}

/// A count that went down can only be a 32-bit one that wrapped.
fn count_since(now: u64, earlier: u64) -> u64 {
    let difference = now.wrapping_sub(earlier);
    if now >= earlier { difference } else { difference & u64::from(u32::MAX) }
}

fn bytes_since(now: u64, earlier: u64) -> u64 {
    // What wraps is the count of sectors.
    count_since(now / SECTOR_BYTES, earlier / SECTOR_BYTES) * SECTOR_BYTES
}

/// Times are 32 bits wide on every machine, so the sum over leaves is right modulo 2^32.
fn ms_since(now: u64, earlier: u64) -> u64 {
    now.wrapping_sub(earlier) & u64::from(u32::MAX)
}

/// Where a device's counters are read: its leaves' `stat` files, kept open, or what an emulated disk says.
#[derive(Debug)]
pub struct CounterSource {
    leaves: Vec<Leaf>,
}

#[derive(Debug)]
struct Leaf {
    name: String,
    stat: File,
    form: Form,
}

/// Who writes the counters.
#[derive(Debug, Clone, Copy)]
enum Form {
    Kernel { counts_flushes: bool },
    Emulated,
}

impl Leaf {
    fn open(node: &BlockNode) -> io::Result<Leaf> {
        let name = node.name();
        if !node.counts_requests() {
            let message = format!(
                "{name} does not count its requests; write 1 to its queue/iostats in /sys to change that"
            );
            return Err(io::Error::new(io::ErrorKind::Unsupported, message));
        }
        let stat = File::open(node.path("stat")).map_err(|source| named(&name, &source))?;
        let form = Form::Kernel { counts_flushes: node.counts_flushes() };
        Ok(Leaf { stat, form, name })
    }

    fn emulated(disk: &EmulatedDisk) -> io::Result<Leaf> {
        let name = format!("the emulated disk {}", disk.profile);
        let stat = File::open(disk.counters()).map_err(|source| named(&name, &source))?;
        Ok(Leaf { stat, form: Form::Emulated, name })
    }

    fn read(&self) -> io::Result<DeviceCounters> {
        let mut buffer = [0; STAT_BYTES_MAX];
        // Both answer a read at offset 0 with fresh numbers, always whole.
        let length =
            self.stat.read_at(&mut buffer, 0).map_err(|source| named(&self.name, &source))?;
        std::str::from_utf8(&buffer[..length])
            .ok()
            .and_then(|stat| match self.form {
                Form::Kernel { counts_flushes } => DeviceCounters::parse(stat, counts_flushes),
                Form::Emulated => DeviceCounters::parse_emulated(stat),
            })
            .ok_or_else(|| {
                let message = format!("the counters of {} have an unknown form", self.name);
                io::Error::new(io::ErrorKind::InvalidData, message)
            })
    }
}

fn named(name: &str, source: &io::Error) -> io::Error {
    let message = format!("the counters of {name} cannot be read: {source}");
    io::Error::new(source.kind(), message)
}

impl CounterSource {
    /// Opens the counters of whatever lies below a directory; `None` when nothing there counts.
    ///
    /// # Errors
    /// As for [`CounterSource::open`].
    pub fn of(storage: &Storage) -> io::Result<Option<CounterSource>> {
        CounterSource::of_in(&Sysfs::system(), storage)
    }

    pub(super) fn of_in(sysfs: &Sysfs, storage: &Storage) -> io::Result<Option<CounterSource>> {
        if let Some(device) = &storage.device {
            return CounterSource::open_in(sysfs, device).map(Some);
        }
        let filesystem = storage.filesystem.as_deref().unwrap_or_default();
        let source = storage.source.as_deref().unwrap_or_default();
        let leaves = match (&storage.emulated, sysfs.alone_below_btrfs(filesystem, source)) {
            (_, Some(node)) => {
                node.leaves()?.iter().map(Leaf::open).collect::<io::Result<Vec<_>>>()?
            }
            (Some(disk), None) => vec![Leaf::emulated(disk)?],
            (None, None) => return Ok(None),
        };
        Ok(Some(CounterSource { leaves }))
    }

    /// Opens the counters of a device of this machine.
    ///
    /// # Errors
    /// `NotFound`: a leaf has gone. `Unsupported`: a leaf does not count its requests
    /// (`queue/iostats` is 0). `InvalidInput`: `device` names no leaf. The message says which; show
    /// it and leave the device's metrics out. Others: as the system reports them.
    pub fn open(device: &Device) -> io::Result<CounterSource> {
        CounterSource::open_in(&Sysfs::system(), device)
    }

    /// Opens the counters of a device that `sysfs` describes.
    ///
    /// # Errors
    /// As for [`CounterSource::open`].
    pub fn open_in(sysfs: &Sysfs, device: &Device) -> io::Result<CounterSource> {
        if device.leaves.is_empty() {
            let message = format!("{} names no device to count at", device.name);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let leaves = device
            .leaves
            .iter()
            .map(|name| Leaf::open(&sysfs.by_name(name)?))
            .collect::<io::Result<_>>()?;
        Ok(CounterSource { leaves })
    }

    /// Takes a snapshot: one small read for each leaf, microseconds each.
    ///
    /// # Errors
    /// The device went away (`NotFound` or `ENODEV`), or its counters have an unknown form
    /// (`InvalidData`).
    pub fn read(&self) -> io::Result<DeviceCounters> {
        let (first, others) = self.leaves.split_first().expect("[CNT-3]");
        others.iter().try_fold(first.read()?, |sum, leaf| Ok(sum.plus(leaf.read()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::mountinfo::DeviceNumber;
    use super::super::sysfs::fixture::{FakeSys, STAT_17};
    use super::*;

    fn device(sys: &FakeSys, major: u32, minor: u32) -> Device {
        let node = sys.sysfs().by_number(DeviceNumber { major, minor }).unwrap();
        node.describe(&node.leaves().unwrap())
    }

    #[test]
    fn stat_of_17_numbers_is_read_in_full() {
        let counters = DeviceCounters::parse(STAT_17, true).unwrap();
        let expected = DeviceCounters {
            reads: 53_229,
            read_merges: Some(8_991),
            read_bytes: 3_943_874 * 512,
            writes: 27_528,
            write_merges: Some(15_659),
            write_bytes: 2_776_424 * 512,
            flushes: Some(3_747),
            read_ms: Some(11_040),
            write_ms: Some(5_818),
            busy_ms: 7_332,
        };
        assert_eq!(counters, expected);
    }

    #[test]
    fn flushes_that_are_not_counted_are_none() {
        // [CNT-1]: partitions show a zero there that means nothing.
        assert_eq!(DeviceCounters::parse(STAT_17, false).unwrap().flushes, None);
        for old in ["1 2 3 4 5 6 7 8 0 9 10", "1 2 3 4 5 6 7 8 0 9 10 0 0 0 0"] {
            let counters = DeviceCounters::parse(old, true).unwrap();
            assert_eq!((counters.flushes, counters.busy_ms), (None, 9));
        }
    }

    #[test]
    fn an_emulated_disk_is_read_in_its_own_form_and_afresh_each_time() {
        let scratch = tempfile::tempdir().unwrap();
        std::fs::create_dir(scratch.path().join(".forebay")).unwrap();
        let line = |reads: u64| {
            format!(
                r#"{{"reads":{reads},"read_bytes":{},"writes":2,"write_bytes":3,"flushes":4,"in_flight":0,"busy_us":5000}}"#,
                reads * 4096
            )
        };
        let counters = scratch.path().join(".forebay/counters");
        std::fs::write(&counters, line(1) + "\n").unwrap();
        let disk = EmulatedDisk {
            profile: "nvme".to_owned(),
            about: String::new(),
            size_bytes: 1,
            speed_up: 1.0,
            seed: 0,
            mount_point: scratch.path().to_str().unwrap().to_owned(),
        };
        let source = CounterSource { leaves: vec![Leaf::emulated(&disk).unwrap()] };
        let earlier = source.read().unwrap();
        assert_eq!((earlier.reads, earlier.flushes, earlier.busy_ms), (1, Some(4), 5));
        assert_eq!((earlier.read_ms, earlier.read_merges), (None, None), "[CNT-1]");
        std::fs::write(&counters, line(8) + "\n").unwrap();
        let difference = source.read().unwrap().since(&earlier);
        assert_eq!((difference.reads, difference.read_bytes), (7, 7 * 4096));
        std::fs::write(&counters, "gone").unwrap();
        assert_eq!(source.read().unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn what_is_no_stat_is_refused() {
        for text in ["", "1 2 3 4", "1 2 3 4 5 6 7 8 9 10", "1 2 3 x 5 6 7 8 9 10 11"] {
            assert_eq!(DeviceCounters::parse(text, true), None, "{text}");
        }
    }

    #[test]
    fn a_difference_survives_wrapped_counters() {
        // [CNT-2]
        let wrap = 1u64 << 32;
        let earlier = DeviceCounters {
            reads: wrap - 10,
            read_bytes: (wrap - 8) * 512,
            write_bytes: (wrap + 5) * 512,
            read_ms: Some(wrap - 1),
            busy_ms: 40,
            flushes: Some(wrap - 1),
            ..DeviceCounters::default()
        };
        let now = DeviceCounters {
            reads: 5,
            read_bytes: 8 * 512,
            write_bytes: (wrap + 6) * 512,
            read_ms: Some(99),
            busy_ms: 45,
            flushes: Some(1),
            ..DeviceCounters::default()
        };
        let expected = DeviceCounters {
            reads: 15,
            read_bytes: 16 * 512,
            write_bytes: 512,
            read_ms: Some(100),
            busy_ms: 5,
            flushes: Some(2),
            ..DeviceCounters::default()
        };
        assert_eq!(now.since(&earlier), expected);
        let unknown = DeviceCounters { flushes: None, ..now };
        assert_eq!(now.since(&unknown).flushes, None);
    }

    #[test]
    fn one_leaf_of_two_may_wrap() {
        // Leaf times 2^32 - 10 and 1000 become 20 and 1100: 30 and 100 ms have passed.
        let wrap = 1u64 << 32;
        assert_eq!(ms_since(20 + 1100, wrap - 10 + 1000), 130);
        assert_eq!(count_since(20 + 1100, wrap - 10 + 1000), 130);
    }

    #[test]
    fn a_stacked_device_counts_the_sum_of_its_leaves() {
        let sys = FakeSys::server();
        let source = CounterSource::open_in(&sys.sysfs(), &device(&sys, 253, 0)).unwrap();
        let expected = DeviceCounters {
            reads: 2,
            read_merges: Some(4),
            read_bytes: 6 * 512,
            writes: 10,
            write_merges: Some(12),
            write_bytes: 14 * 512,
            flushes: None,
            read_ms: Some(8),
            write_ms: Some(16),
            busy_ms: 18,
        };
        assert_eq!(source.read().unwrap(), expected);
    }

    #[test]
    fn a_disk_counts_flushes_and_a_second_read_is_fresh() {
        let sys = FakeSys::empty();
        let disk = sys.disk("vda", 254, 0);
        sys.write(&disk, "mq/0/nr_tags", "256");
        sys.write(&disk, "stat", STAT_17);
        let source = CounterSource::open_in(&sys.sysfs(), &device(&sys, 254, 0)).unwrap();
        let earlier = source.read().unwrap();
        assert_eq!(earlier.flushes, Some(3_747));
        sys.write(&disk, "stat", &STAT_17.replace("53229", "53230"));
        let difference = source.read().unwrap().since(&earlier);
        let expected = DeviceCounters {
            reads: 1,
            read_merges: Some(0),
            write_merges: Some(0),
            read_ms: Some(0),
            write_ms: Some(0),
            flushes: Some(0),
            ..DeviceCounters::default()
        };
        assert_eq!(difference, expected);
    }

    #[test]
    fn a_driver_that_takes_bios_counts_no_flushes() {
        let sys = FakeSys::empty();
        let disk = sys.disk("pmem0", 259, 0);
        sys.write(&disk, "stat", STAT_17);
        let source = CounterSource::open_in(&sys.sysfs(), &device(&sys, 259, 0)).unwrap();
        assert_eq!(source.read().unwrap().flushes, None);
    }

    #[test]
    fn counters_that_stand_still_are_refused() {
        let sys = FakeSys::empty();
        let disk = sys.disk("vda", 254, 0);
        sys.write(&disk, "stat", STAT_17);
        sys.write(&disk, "queue/iostats", "0");
        let refused = CounterSource::open_in(&sys.sysfs(), &device(&sys, 254, 0)).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::Unsupported);
    }

    #[test]
    fn a_device_without_leaves_or_gone_is_an_error() {
        let sys = FakeSys::server();
        let mut device = device(&sys, 8, 0);
        device.leaves = vec!["sdz".to_owned()];
        let gone = CounterSource::open_in(&sys.sysfs(), &device).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::NotFound);
        device.leaves.clear();
        let none = CounterSource::open_in(&sys.sysfs(), &device).unwrap_err();
        assert_eq!(none.kind(), io::ErrorKind::InvalidInput);
    }
}
