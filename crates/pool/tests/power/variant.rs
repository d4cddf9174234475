//! Variants: the disks and pools for which the power is cut.

use std::sync::Arc;
use std::time::Duration;

use forebay::{PageCodec, TornPages};
use forebay_io::{AtomicWrite, CacheMode, DirectFiles};
use forebay_sim::{Disk, DiskOptions, Fault, Faults};

use crate::engine::cipher::Cipher;
use crate::engine::{Error, Settings};

/// Requests in flight on a disk.
const QUEUE_DEPTH: usize = 64;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Variant {
    pub(crate) name: &'static str,
    /// Number of bytes that a power cut never tears.
    sector_bytes: u32,
    /// The disk also fails, fills up and delays operations.
    pub(crate) faults: Option<Faults>,
    /// Number of worker threads. With one, a run is nearly reproducible from its seed (except for the pool's clock and
    /// its checkpoint thread); with more it is not.
    pub(crate) threads: u8,
    torn_pages: TornPages,
    /// Pages on disk are masked and tagged.
    encoded: bool,
}

/// Pages that may be torn need protection; on a disk whose sectors are pages, none are torn.
const WHOLE_PAGES: u32 = 4096;

const PLAIN: Variant = Variant {
    name: "whole-pages",
    sector_bytes: WHOLE_PAGES,
    faults: None,
    threads: 1,
    torn_pages: TornPages::Unprotected,
    encoded: false,
};

/// Sectors of the usual size, so pages may be torn.
const IMAGES: Variant = Variant {
    name: "images",
    sector_bytes: 512,
    faults: None,
    threads: 1,
    torn_pages: TornPages::Images,
    encoded: false,
};

const DOUBLE: Variant =
    Variant { name: "double-write", torn_pages: TornPages::DoubleWrite, ..IMAGES };

/// The disk supports direct files and atomic writes of pages.
const ATOMIC: Variant = Variant { name: "atomic", torn_pages: TornPages::Atomic, ..IMAGES };

/// Single errors, now and then.
const FAULTS: Faults = Faults {
    read_errors: 0,
    write_errors: 2,
    full: 2,
    sync_errors: 6,
    short: 50,
    interrupted: 20,
    stale: 0,
    misdirected: 0,
    lost: 0,
    delayed: 0,
    delay: Duration::ZERO,
};

/// How many of a thousand operations are delayed, and the maximum delay.
const DELAYED: u32 = 200;
const DELAY: Duration = Duration::from_micros(500);

pub(crate) const VARIANTS: &[Variant] = &[
    PLAIN,
    Variant { name: "faults", faults: Some(FAULTS), ..PLAIN },
    Variant { name: "threads", threads: 6, ..PLAIN },
    IMAGES,
    Variant { name: "images-faults", faults: Some(FAULTS), ..IMAGES },
    Variant { name: "images-threads", threads: 6, ..IMAGES },
    Variant { name: "images-encoded", encoded: true, ..IMAGES },
    DOUBLE,
    Variant { name: "double-write-faults", faults: Some(FAULTS), ..DOUBLE },
    Variant { name: "double-write-threads", threads: 6, ..DOUBLE },
    Variant { name: "double-write-encoded", encoded: true, ..DOUBLE },
    ATOMIC,
    Variant { name: "atomic-faults", faults: Some(FAULTS), ..ATOMIC },
    Variant { name: "atomic-threads", threads: 6, ..ATOMIC },
    Variant { name: "atomic-encoded", encoded: true, ..ATOMIC },
];

impl Variant {
    pub(crate) fn disk(&self, seed: u64) -> DiskOptions {
        let atomic = AtomicWrite { bytes_min: 512, bytes_max: 65_536, pieces_max: 1 };
        let direct = DirectFiles { alignment: 512, atomic_write: Some(atomic) };
        let direct = (self.torn_pages == TornPages::Atomic).then_some(direct);
        DiskOptions { seed, sector_bytes: self.sector_bytes, direct, ..DiskOptions::default() }
    }

    /// The settings of an engine on `disk`, with a pool that is too small.
    pub(crate) fn settings(&self, disk: &Arc<Disk>) -> Result<Settings, Error> {
        Ok(Settings {
            io: Some(disk.io(QUEUE_DEPTH)?),
            volume: disk.volume(),
            cleaner: self.threads > 1,
            frames: 40,
            torn: self.torn_pages,
            codec: self.encoded.then(|| Arc::new(Cipher(7)) as Arc<dyn PageCodec>),
            cache: match self.torn_pages {
                TornPages::Atomic => CacheMode::Direct,
                _ => CacheMode::Buffered,
            },
            ..Settings::new(disk.directory())
        })
    }

    /// Enables the disk's faults. With several threads, the disk also delays operations now and then, so that the
    /// threads interleave.
    pub(crate) fn spoil(&self, disk: &Disk, seed: u64) {
        let mut faults = self.faults.unwrap_or_default();
        if self.threads > 1 {
            (faults.delayed, faults.delay) = (DELAYED, DELAY);
        }
        let (mut toss, whole) = (faults.rule(seed), u64::from(self.sector_bytes));
        disk.rule(move |operation| match toss(operation) {
            // A short write leaves a torn page in the page cache, whatever the sector size.
            Fault::Short(bytes) => Fault::Short(bytes.next_multiple_of(whole)),
            fault => fault,
        });
    }
}
