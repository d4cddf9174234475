//! Facts: what machine and what storage a measurement was taken on.
//!
//! A number without its kernel, filesystem and device is worth little, so every report carries
//! these. A fact that cannot be found is `None`; nothing is guessed.
//!
//! Source:      `/proc`, `/sys` and a few system calls; without them (macOS) most facts are `None`.

mod counters;
mod emulated;
mod host;
mod mountinfo;
mod storage;
mod sysfs;

pub use counters::{CounterSource, DeviceCounters};
pub use emulated::EmulatedDisk;
pub use host::available_bytes;
pub use mountinfo::{Mount, mounts};
pub use storage::free_bytes;
pub use storage::sync_filesystem;
pub use sysfs::Sysfs;
#[cfg(any(test, feature = "fixture"))]
pub use sysfs::fixture::FakeSys;

use serde::{Deserialize, Serialize};

/// The machine a report was made on.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Host {
    /// Host name.
    pub name: String,
    /// Operating system and kernel release, such as `Linux 6.18.44`.
    pub kernel: String,
    /// Processor model.
    pub cpu: Option<String>,
    /// Processors this process may run on.
    pub cpus: usize,
    /// Main memory, in bytes.
    pub memory_bytes: Option<u64>,
    /// Hypervisor, such as `kvm` or `firecracker`; `None` on bare metal or when it is unknown.
    pub virtualisation: Option<String>,
    /// Container runtime, when inside one.
    pub container: Option<String>,
    /// True when the run had root's rights.
    pub root: bool,
}

/// The directory measured, its filesystem and its device.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Storage {
    /// The directory, absolute.
    pub directory: String,
    /// Filesystem type, such as `ext4`.
    pub filesystem: Option<String>,
    /// Where that filesystem is mounted.
    pub mount_point: Option<String>,
    /// Its mount options, as the kernel shows them.
    pub mount_options: Option<String>,
    /// Its mount source, such as `/dev/vda`.
    pub source: Option<String>,
    /// The block device below, where it is certain.
    pub device: Option<Device>,
    /// Why there is no device, why its counters cannot be used or what they leave out; empty when
    /// there is nothing to say. [`CounterSource::of`] reports whether they can be used.
    pub device_remark: String,
    /// The modelled device, where there is no real one below.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emulated: Option<EmulatedDisk>,
}

impl Storage {
    /// Name of the modelled device's profile; `None` on a real one.
    #[must_use]
    pub fn profile(&self) -> Option<&str> {
        self.emulated.as_ref().map(|disk| disk.profile.as_str())
    }
}

/// A block device as sysfs describes it.
///
/// A partition shows its disk's queue. A stacked device (device mapper, md) shows its own size,
/// limits and readahead; its model, scheduler, queue lengths and depth are those of its leaves where
/// all of them agree, since requests are queued there.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Device {
    /// Kernel name, such as `vda` or `nvme0n1p2`.
    pub name: String,
    /// Names of the devices that execute its requests (itself for a plain disk or partition).
    pub leaves: Vec<String>,
    /// Vendor's model name.
    pub model: Option<String>,
    /// Size, in bytes.
    pub size_bytes: Option<u64>,
    /// True for disks that say they rotate.
    pub rotational: Option<bool>,
    /// The active I/O scheduler.
    pub scheduler: Option<String>,
    /// Kernel readahead, in bytes.
    pub readahead_bytes: Option<u64>,
    /// Requests the block layer queues (`nr_requests`).
    pub queue_requests: Option<u64>,
    /// Commands the device itself queues, where it says so (SCSI; NVMe, per queue); otherwise `None`.
    pub queue_depth: Option<u64>,
    /// `write back` or `write through`.
    pub write_cache: Option<String>,
    /// Smallest addressable unit, in bytes.
    pub logical_block_bytes: Option<u64>,
    /// Unit the device writes without read-modify-write, in bytes.
    pub physical_block_bytes: Option<u64>,
    /// Largest request the block layer sends, in bytes.
    pub request_bytes_max: Option<u64>,
}
