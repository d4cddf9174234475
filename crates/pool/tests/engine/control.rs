//! The control file: where recovery begins.
//!
//! Two slots of one sector each, written alternately, each with a sequence number and a checksum: whatever happens to a
//! write, the other slot contains the previous redo point.
//!
//! Invariants:  the newest completely written redo point is the one that is read

use std::path::Path;

use forebay::Lsn;
use forebay_io::{File, Result};

use super::disk::Disk;
use super::op::Reader;

/// A distance greater than any sector size.
const PLACE_BYTES: u64 = 4096;
const MAGIC: u64 = 0x7a6e_6f63_7961_6265;

#[derive(Debug)]
pub(crate) struct Control {
    disk: Disk,
    file: File,
    /// Sequence number of the newest redo point; 0 before the first.
    sequence: u64,
    redo: Lsn,
}

impl Control {
    pub(crate) fn open(disk: &Disk, path: &Path) -> Result<Control> {
        let file = disk.file(path)?;
        let bytes = disk.read(&file, 0)?;
        let places = bytes.chunks(PLACE_BYTES as usize).filter_map(decode);
        let (sequence, redo) = places.max().unwrap_or_default();
        Ok(Control { disk: disk.clone(), file, sequence, redo })
    }

    /// Where recovery begins; `None` until a first redo point is set.
    pub(crate) fn redo(&self) -> Option<Lsn> {
        (self.sequence > 0).then_some(self.redo)
    }

    /// Sets the redo point durably.
    pub(crate) fn set(&mut self, redo: Lsn) -> Result<()> {
        let sequence = self.sequence + 1;
        let mut bytes = Vec::new();
        bytes.extend(MAGIC.to_le_bytes());
        bytes.extend(sequence.to_le_bytes());
        bytes.extend(redo.0.to_le_bytes());
        bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
        self.disk.write(&self.file, sequence % 2 * PLACE_BYTES, &bytes)?;
        self.disk.sync(&self.file)?;
        (self.sequence, self.redo) = (sequence, redo);
        Ok(())
    }
}

/// Sequence number and redo point of a slot, if it is valid.
fn decode(place: &[u8]) -> Option<(u64, Lsn)> {
    let mut from = Reader(place);
    let magic = from.long()?;
    let (sequence, redo) = (from.long()?, from.lsn()?);
    let sum = crc32c::crc32c(&place[..24]);
    (magic == MAGIC && from.number()? == sum).then_some((sequence, redo))
}
