//! Peers: the measured caches, each behind the same narrow interface.
//!
//! A peer reads a block through its cache and folds the page's content into one number. It may
//! hold its own lock, pin or latch while it does so, and copies nothing out. Its handling of a
//! miss, and whether it checks checksums, is up to the peer and is stated in the records.
//!
//! Invariants:  [CMP-2] peers of one format read the same file, and all files hold the same payloads
//! Concurrency: a peer is shared by all threads of a measurement.
//! Failure:     a peer that cannot be opened ends the run; there is no cell without a reason.

mod forebay;
mod kind;
mod lru;
mod page_db;
mod pread;
mod values;

use std::path::Path;

use serde::Serialize;

pub(crate) use kind::Kind;

use crate::cli::Settings;
use crate::content::Content;

/// A page cache over one file, or plain reads without one.
pub(crate) trait Peer: Send + Sync {
    /// The name on the command line and in the records.
    fn name(&self) -> &'static str;

    /// Reads `block` through the cache and folds its payload ([`Content::fold`]).
    ///
    /// # Errors
    /// The peer's error, unchanged.
    fn read(&self, block: u32) -> anyhow::Result<u64>;
}

/// Remarks on a peer for the reader of the figures.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct About {
    pub(crate) peer: &'static str,
    pub(crate) version: &'static str,
    /// `direct`, or `buffered` by the kernel's page cache, which is used in addition to the memory.
    pub(crate) cache: &'static str,
    /// The locks held while a missing page is read.
    pub(crate) miss: &'static str,
    /// Whether a page's bytes are checked when they are read from the device.
    pub(crate) checksum: &'static str,
    /// Pages that it may hold.
    pub(crate) frames: u32,
}

/// The location of a peer's file and the resources that the peer may use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Site<'a> {
    /// The directory of its format's file.
    pub(crate) directory: &'a Path,
    pub(crate) settings: &'a Settings,
    pub(crate) content: Content,
}

impl Kind {
    /// The name on the command line and in the records.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::PageDb => page_db::NAME,
            Kind::LruLocked => lru::LOCKED,
            Kind::LruUnlocked => lru::UNLOCKED,
            Kind::QuickCache => values::QUICK_CACHE,
            Kind::Moka => values::MOKA,
            Kind::ForebayBuffered => forebay::BUFFERED,
            Kind::ForebayDirect => forebay::DIRECT,
            Kind::PreadBuffered => pread::BUFFERED,
            Kind::PreadDirect => pread::DIRECT,
        }
    }

    /// The format of its file.
    pub(crate) fn format(self) -> Format {
        match self {
            Kind::PageDb => Format::PageDb,
            Kind::LruLocked | Kind::LruUnlocked | Kind::QuickCache | Kind::Moka => Format::Raw,
            Kind::ForebayBuffered
            | Kind::ForebayDirect
            | Kind::PreadBuffered
            | Kind::PreadDirect => Format::Forebay,
        }
    }

    /// Opens the file with an empty cache.
    ///
    /// # Errors
    /// The peer's error.
    pub(crate) fn open(self, site: &Site<'_>) -> anyhow::Result<(Box<dyn Peer>, About)> {
        match self {
            Kind::PageDb => page_db::open(site),
            Kind::LruLocked => lru::open_locked(site),
            Kind::LruUnlocked => lru::open_unlocked(site),
            Kind::QuickCache => values::open_quick_cache(site),
            Kind::Moka => values::open_moka(site),
            Kind::ForebayBuffered => forebay::open_buffered(site),
            Kind::ForebayDirect => forebay::open_direct(site),
            Kind::PreadBuffered => pread::open_buffered(site),
            Kind::PreadDirect => pread::open_direct(site),
        }
    }
}

/// The layout of pages in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// page-db's: its header, then the payload.
    PageDb,
    /// Only the payload.
    Raw,
    /// The payload, and Forebay's checksum in the last bytes of the page.
    Forebay,
}

impl Format {
    /// The name of its directory.
    pub(crate) fn directory(self) -> &'static str {
        match self {
            Format::PageDb => "page-db",
            Format::Raw => "raw",
            Format::Forebay => "forebay",
        }
    }

    /// Writes all blocks of the file and syncs it; `progress` receives the number of written blocks.
    ///
    /// # Errors
    /// [`Interrupted`](forebay_measure::interrupt::Interrupted), or an error of the peer or the system.
    pub(crate) fn write(
        self,
        site: &Site<'_>,
        progress: &mut dyn FnMut(u32),
    ) -> anyhow::Result<()> {
        match self {
            Format::PageDb => page_db::write(site, progress),
            Format::Raw => lru::write(site, progress),
            Format::Forebay => forebay::write(site, progress),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;
    use crate::cli::Args;
    use clap::Parser;

    #[test]
    fn cmp_2_every_peer_finds_the_same_payload_in_every_block() {
        let line = ["forebay-compare", "--file-size", "4MiB", "--memory", "1MiB", "--threads", "1"];
        let settings = Settings::new(&Args::parse_from(line)).unwrap();
        let content = Content::new(7, settings.page_bytes);
        for kind in Kind::value_variants() {
            let directory = tempfile::tempdir_in(".").unwrap();
            let site = Site { directory: directory.path(), settings: &settings, content };
            kind.format().write(&site, &mut |_| ()).unwrap();
            let (peer, about) = kind.open(&site).unwrap();
            assert_eq!((peer.name(), about.peer), (kind.name(), kind.name()));
            // Twice the memory, forwards and backwards: hits, misses and evictions.
            let blocks = (0..settings.frames * 2).chain((0..settings.frames * 2).rev());
            for block in blocks {
                let found = peer.read(block).unwrap();
                assert_eq!(found, content.expected(block), "[CMP-2] {} {block}", peer.name());
            }
            assert!(peer.read(settings.blocks).is_err(), "{} reads past the end", peer.name());
        }
    }
}
