//! Counters: how many requests and bytes a device has really seen.
//!
//! The kernel counts what it sends to a device after merging, so two snapshots around a
//! measurement give the device's requests and bytes, as opposed to the program's. A stacked device is
//! the sum of its leaves. Requests of all processes are counted, not only this one's, and a request
//! counts when it completes (its number may trail its bytes by microseconds). An emulated disk that is
//! read without a block device in between has its own counters.
//!
//! Concurrency: a source may be shared between threads; a read holds no lock.
//! Failure:     a device that was removed is an error at the next read.
//! Source:      the kernel's `Documentation/block/stat.rst`.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, ensure};
use serde::Deserialize;

use super::sysfs::{BlockNode, SECTOR_BYTES, Sysfs};
use super::{Device, Storage};

/// Longest `stat` line: 17 numbers of up to 20 digits with a space each is 357 bytes.
const STAT_BYTES_MAX: usize = 512;

/// Counts of a device since it appeared, or between two snapshots ([`DeviceCounters::since`]).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub struct DeviceCounters {
    /// Read requests completed.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Write requests completed.
    pub writes: u64,
    /// Bytes written.
    pub write_bytes: u64,
}

impl DeviceCounters {
    /// Parses the kernel's line of numbers, or an emulated disk's line of JSON.
    fn parse(stat: &str) -> Option<DeviceCounters> {
        if stat.starts_with('{') {
            return serde_json::from_str(stat).ok();
        }
        let fields: Vec<u64> =
            stat.split_whitespace().map(|field| field.parse().ok()).collect::<Option<_>>()?;
        let [reads, _, read_sectors, _, writes, _, write_sectors, ..] = fields[..] else {
            return None;
        };
        Some(DeviceCounters {
            reads,
            read_bytes: read_sectors.checked_mul(SECTOR_BYTES)?,
            writes,
            write_bytes: write_sectors.checked_mul(SECTOR_BYTES)?,
        })
    }

    /// The sum of two leaves' counts.
    #[must_use]
    pub fn plus(self, other: DeviceCounters) -> DeviceCounters {
        self.joined(other, u64::wrapping_add)
    }

    /// The difference between the snapshot `earlier` and this one of the same source.
    #[must_use]
    pub fn since(&self, earlier: &DeviceCounters) -> DeviceCounters {
        self.joined(*earlier, u64::saturating_sub)
    }

    fn joined(self, other: DeviceCounters, join: fn(u64, u64) -> u64) -> DeviceCounters {
        DeviceCounters {
            reads: join(self.reads, other.reads),
            read_bytes: join(self.read_bytes, other.read_bytes),
            writes: join(self.writes, other.writes),
            write_bytes: join(self.write_bytes, other.write_bytes),
        }
    }
}

/// Where a device's counters are read: its leaves' `stat` files, kept open, or the file of an emulated disk.
#[derive(Debug)]
pub struct CounterSource {
    leaves: Vec<Leaf>,
}

#[derive(Debug)]
struct Leaf {
    name: String,
    stat: File,
}

impl Leaf {
    fn of(node: &BlockNode) -> anyhow::Result<Leaf> {
        let name = node.name();
        ensure!(
            node.counts_requests(),
            "{name} does not count its requests; write 1 to its queue/iostats in /sys to change that"
        );
        Leaf::open(name, &node.path("stat"))
    }

    fn open(name: String, stat: &Path) -> anyhow::Result<Leaf> {
        let stat =
            File::open(stat).with_context(|| format!("the counters of {name} cannot be read"))?;
        Ok(Leaf { name, stat })
    }

    fn read(&self) -> anyhow::Result<DeviceCounters> {
        let mut buffer = [0; STAT_BYTES_MAX];
        let counters = || format!("the counters of {}", self.name);
        // A read at offset 0 returns fresh numbers, always complete.
        let length = self.stat.read_at(&mut buffer, 0).with_context(counters)?;
        let parsed = DeviceCounters::parse(&String::from_utf8_lossy(&buffer[..length]));
        parsed.context("an unknown form").with_context(counters)
    }
}

impl CounterSource {
    /// Opens the counters of the devices below a directory; `None` when none of them counts.
    ///
    /// # Errors
    /// A leaf was removed, or does not count its requests (`queue/iostats` is 0). The message says which; show it
    /// and leave the device's metrics out.
    pub fn of(sysfs: &Sysfs, storage: &Storage) -> anyhow::Result<Option<CounterSource>> {
        if let Some(device) = &storage.device {
            return CounterSource::open(sysfs, device).map(Some);
        }
        let filesystem = storage.filesystem.as_deref().unwrap_or_default();
        let source = storage.source.as_deref().unwrap_or_default();
        let leaves = match (&storage.emulated, sysfs.alone_below_btrfs(filesystem, source)) {
            (_, Some(node)) => node.leaves()?.iter().map(Leaf::of).collect::<Result<_, _>>()?,
            (Some(disk), None) => {
                let name = format!("the emulated disk {}", disk.profile);
                vec![Leaf::open(name, &disk.counters())?]
            }
            (None, None) => return Ok(None),
        };
        Ok(Some(CounterSource { leaves }))
    }

    fn open(sysfs: &Sysfs, device: &Device) -> anyhow::Result<CounterSource> {
        let leaves = device.leaves.iter().map(|name| Leaf::of(&sysfs.by_name(name)?));
        Ok(CounterSource { leaves: leaves.collect::<Result<_, _>>()? })
    }

    /// Takes a snapshot: one small read for each leaf, microseconds each.
    ///
    /// # Errors
    /// The device was removed, or its counters have an unknown form.
    pub fn read(&self) -> anyhow::Result<DeviceCounters> {
        let none = DeviceCounters::default();
        self.leaves.iter().try_fold(none, |sum, leaf| Ok(sum.plus(leaf.read()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::EmulatedDisk;
    use super::super::sysfs::fixture::{FakeSys, STAT_17};
    use super::*;

    #[test]
    fn a_stat_of_any_age_is_read() {
        let counters = DeviceCounters::parse(STAT_17).unwrap();
        let expected = DeviceCounters {
            reads: 53_229,
            read_bytes: 3_943_874 * 512,
            writes: 27_528,
            write_bytes: 2_776_424 * 512,
        };
        assert_eq!(counters, expected);
        for old in ["1 2 3 4 5 6 7 8 0 9 10", "1 2 3 4 5 6 7 8 0 9 10 0 0 0 0"] {
            let counters = DeviceCounters::parse(old).unwrap();
            assert_eq!((counters.writes, counters.write_bytes), (5, 7 * 512));
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
        let leaf = Leaf::open("a disk".to_owned(), &disk.counters()).unwrap();
        let source = CounterSource { leaves: vec![leaf] };
        let earlier = source.read().unwrap();
        assert_eq!((earlier.reads, earlier.writes, earlier.write_bytes), (1, 2, 3));
        std::fs::write(&counters, line(8) + "\n").unwrap();
        let difference = source.read().unwrap().since(&earlier);
        assert_eq!((difference.reads, difference.read_bytes), (7, 7 * 4096));
        std::fs::write(&counters, "removed").unwrap();
        let strange = format!("{:#}", source.read().unwrap_err());
        assert_eq!(strange, "the counters of a disk: an unknown form");
    }

    #[test]
    fn what_is_no_stat_is_refused() {
        for text in ["", "1 2 3 4", "1 2 3 x 5 6 7 8 9 10 11", "{}"] {
            assert_eq!(DeviceCounters::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_stacked_device_counts_the_sum_of_its_leaves() {
        let sys = FakeSys::server();
        let source = CounterSource::open(&sys.sysfs(), &sys.device(253, 0)).unwrap();
        let (reads, read_bytes, writes, write_bytes) = (2, 6 * 512, 10, 14 * 512);
        let expected = DeviceCounters { reads, read_bytes, writes, write_bytes };
        assert_eq!(source.read().unwrap(), expected);
    }

    #[test]
    fn a_second_read_is_fresh() {
        let sys = FakeSys::empty();
        let disk = sys.disk("vda", 254, 0);
        sys.write(&disk, "stat", STAT_17);
        let source = CounterSource::open(&sys.sysfs(), &sys.device(254, 0)).unwrap();
        let earlier = source.read().unwrap();
        sys.write(&disk, "stat", &STAT_17.replace("53229", "53230"));
        let difference = source.read().unwrap().since(&earlier);
        assert_eq!(difference, DeviceCounters { reads: 1, ..DeviceCounters::default() });
    }

    #[test]
    fn counters_that_stand_still_are_refused() {
        let sys = FakeSys::empty();
        let disk = sys.disk("vda", 254, 0);
        sys.write(&disk, "stat", STAT_17);
        sys.write(&disk, "queue/iostats", "0");
        let refused = CounterSource::open(&sys.sysfs(), &sys.device(254, 0)).unwrap_err();
        assert!(refused.to_string().contains("does not count"), "{refused}");
    }

    #[test]
    fn a_removed_device_is_an_error() {
        let sys = FakeSys::server();
        let mut device = sys.device(8, 0);
        device.leaves = vec!["sdz".to_owned()];
        let removed = CounterSource::open(&sys.sysfs(), &device).unwrap_err();
        assert!(removed.to_string().contains("sdz"), "{removed}");
    }
}
