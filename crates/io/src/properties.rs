//! File properties: open modes, advice to the kernel, and facts about a file that the system reports.

use std::fmt;

/// Whether I/O uses the kernel's page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum CacheMode {
    /// Through the page cache.
    #[default]
    Buffered,
    /// O_DIRECT (macOS: F_NOCACHE): between the device and the caller's memory. Needs alignment.
    Direct,
}

impl fmt::Display for CacheMode {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            CacheMode::Buffered => "buffered",
            CacheMode::Direct => "direct",
        })
    }
}

/// Advice to the kernel about all reads through one descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Hint {
    /// The kernel's own readahead.
    #[default]
    Normal,
    /// No readahead (POSIX_FADV_RANDOM).
    Random,
    /// Twice the readahead (POSIX_FADV_SEQUENTIAL).
    Sequential,
}

/// Advice to the kernel about a range of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Advice {
    /// Undoes `Random` or `Sequential`. Applies to the whole descriptor, regardless of the range.
    Normal,
    /// No readahead. Applies to the whole descriptor, regardless of the range.
    Random,
    /// Twice the readahead. Applies to the whole descriptor, regardless of the range.
    Sequential,
    /// Start reading the range into the page cache.
    WillNeed,
    /// Drop the clean, unmapped pages of the range from the page cache.
    DontNeed,
}

impl From<Hint> for Advice {
    fn from(hint: Hint) -> Advice {
        match hint {
            Hint::Normal => Advice::Normal,
            Hint::Random => Advice::Random,
            Hint::Sequential => Advice::Sequential,
        }
    }
}

/// Required alignment of direct requests on a file, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alignment {
    /// For the address of each lease.
    pub memory: u32,
    /// For the offset of a request and the length of each lease.
    pub offset: u32,
    /// Origin of the numbers.
    pub source: AlignmentSource,
}

/// Origin of an [`Alignment`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlignmentSource {
    /// A buffered file: no requirement.
    Buffered,
    /// The filesystem reported it (statx, STATX_DIOALIGN; Linux 6.1).
    Filesystem,
    /// The filesystem did not report it, so 4096 is assumed, which suits every common disk.
    Assumed,
}

/// Limits of atomic writes of a direct file: writes that survive a power cut entirely or not at all. The filesystem
/// and the device guarantee them (statx, STATX_WRITE_ATOMIC; Linux 6.11). See
/// [`Request::atomic`](crate::Request::atomic).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AtomicWrite {
    /// Smallest such write, in bytes.
    pub bytes_min: u32,
    /// Largest such write, in bytes.
    pub bytes_max: u32,
    /// Maximum number of memory segments of such a write.
    pub pieces_max: u32,
}

impl AtomicWrite {
    /// Whether a write of `len` bytes can be atomic: a power of two within the limits.
    pub fn takes(&self, len: u64) -> bool {
        let within = u64::from(self.bytes_min)..=u64::from(self.bytes_max);
        len.is_power_of_two() && within.contains(&len)
    }
}

/// Which direct I/O still goes through the kernel's page cache, as found by
/// [`Volume::through_cache`](crate::Volume::through_cache).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ThroughCache {
    /// Whether reads do.
    pub reads: bool,
    /// Whether writes do.
    pub writes: bool,
}

impl ThroughCache {
    /// True when neither does, as far as is known.
    pub fn is_nothing(self) -> bool {
        self == ThroughCache::default()
    }
}

impl fmt::Display for ThroughCache {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match (self.reads, self.writes) {
            (false, false) => "nothing",
            (true, false) => "reads",
            (false, true) => "writes",
            (true, true) => "reads and writes",
        })
    }
}

/// How to reserve space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preallocate {
    /// Leave the size of the file as it is.
    KeepSize,
    /// Grow the file to the end of the range; the new bytes read as zero.
    Extend,
}

/// How much of a range is in the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Residency {
    /// Size of a page, in bytes.
    pub page_bytes: u64,
    /// Pages that the range touches, up to the end of the file.
    pub pages: u64,
    /// Number of those pages in the page cache.
    pub pages_resident: u64,
    /// Number of those pages that are not written back; `None` where the system does not report it.
    pub pages_dirty: Option<u64>,
}
