//! The list of peers.

use clap::ValueEnum;

/// The peers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// page-db 1.0 from crates.io
    PageDb,
    /// `Mutex<LruCache>` over pread, locked while it reads
    LruLocked,
    /// The same, but it releases the lock while it reads (and may read a page twice)
    LruUnlocked,
    /// quick_cache over pread: pages as values
    QuickCache,
    /// moka over pread: pages as values
    Moka,
    /// Forebay through the kernel's page cache, its default
    ForebayBuffered,
    /// Forebay past the kernel's page cache, as page-db reads
    ForebayDirect,
    /// Bare pread through the kernel's page cache: no cache in the program
    PreadBuffered,
    /// Bare pread past the kernel's page cache: no cache at all
    PreadDirect,
}
