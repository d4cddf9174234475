//! How a file is opened, what the kernel is told of it, and what it says of a file.

use std::fmt;

/// Through the kernel's page cache, or past it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum CacheMode {
    /// Through the page cache.
    #[default]
    Buffered,
    /// O_DIRECT (macOS: F_NOCACHE): between device and caller's memory. Needs alignment.
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

/// What to tell the kernel about all reads through one descriptor.
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

/// What to tell the kernel about a range of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Advice {
    /// Take back `Random` or `Sequential`. For the whole descriptor, whatever the range.
    Normal,
    /// No readahead. For the whole descriptor, whatever the range.
    Random,
    /// Twice the readahead. For the whole descriptor, whatever the range.
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

/// What direct requests on a file have to be multiples of, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alignment {
    /// For the address of each lease.
    pub memory: u32,
    /// For the offset of a request and the length of each lease.
    pub offset: u32,
    /// Where the numbers come from.
    pub source: AlignmentSource,
}

/// Where an [`Alignment`] comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlignmentSource {
    /// A buffered file: anything goes.
    Buffered,
    /// The filesystem said so (statx, STATX_DIOALIGN; Linux 6.1).
    Filesystem,
    /// It did not say, so 4096 is assumed, which suits every common disk.
    Assumed,
}

/// Writes of a direct file that survive a power cut whole or not at all, as far as the filesystem and the
/// device prove them (statx, STATX_WRITE_ATOMIC; Linux 6.11). See [`Request::atomic`](crate::Request::atomic).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AtomicWrite {
    /// Smallest such write, in bytes.
    pub bytes_min: u32,
    /// Largest such write, in bytes.
    pub bytes_max: u32,
    /// Most pieces of memory that it may come from.
    pub pieces_max: u32,
}

impl AtomicWrite {
    /// Whether a write of `len` bytes can be one: a power of two within the limits.
    pub fn takes(&self, len: u64) -> bool {
        let within = u64::from(self.bytes_min)..=u64::from(self.bytes_max);
        len.is_power_of_two() && within.contains(&len)
    }
}

/// What of direct I/O goes through the kernel's page cache all the same, as found by
/// [`Volume::through_cache`](crate::Volume::through_cache).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ThroughCache {
    /// Reads do.
    pub reads: bool,
    /// Writes do.
    pub writes: bool,
}

impl ThroughCache {
    /// True when nothing does, as far as is known.
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
    /// Those of them in the page cache.
    pub pages_resident: u64,
    /// Those of them not written back; `None` where the system does not tell.
    pub pages_dirty: Option<u64>,
}
