//! A segment's file: a header, a table of its slots, then the slots, as they are in their objects.
//!
//! ```text
//! header 32 | row 0 | row 1 | ... | rows not used yet: zeros | slot | slot | ...
//! row: stamp 8 | slot 4 | offset 4 | length 4 | CRC32C 4
//! ```
//! A row names the object (by the stamp of its footer) and its slot number; it is written after the slot, and
//! nothing is synced: a row whose slot did not reach the disk leads to bytes that are not accepted as that slot.

use forebay_io::File;

use crate::format::object::SLOT_EXTRA;

pub(super) const HEADER_BYTES: u64 = 32;
pub(super) const ROW_BYTES: u64 = 24;
/// Pages are at most 64 KiB.
pub(super) const SLOT_MOST: u32 = (64 << 10) + SLOT_EXTRA as u32;
const MAGIC: [u8; 8] = *b"FOREBAYT";
const VERSION: u16 = 1;

/// Identifies a slot of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SlotKey {
    pub(crate) stamp: u64,
    pub(crate) slot: u32,
}

/// The position of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Spot {
    pub(super) segment: u32,
    pub(super) offset: u32,
    pub(super) len: u32,
}

/// The contents of a row: a slot and its position.
pub(super) type Row = (SlotKey, Spot);

/// An open segment.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) number: u32,
    pub(super) file: File,
    /// Maximum number of slots.
    pub(super) rows: u32,
    /// Number of used rows.
    pub(super) taken: u32,
    /// The offset of the next slot.
    pub(super) end: u64,
    /// Whether there was a hit in it since room was last needed.
    pub(super) used: bool,
}

impl Segment {
    pub(super) fn name(number: u32) -> String {
        format!("{number:08x}.segment")
    }

    pub(super) fn number(name: &str) -> Option<u32> {
        let number = u32::from_str_radix(name.strip_suffix(".segment")?, 16).ok()?;
        (Segment::name(number) == name).then_some(number)
    }
}

/// Where the slots of a segment of `rows` rows begin.
pub(super) fn slots_at(rows: u32) -> u64 {
    HEADER_BYTES + u64::from(rows) * ROW_BYTES
}

pub(super) fn header(rows: u32) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.extend(VERSION.to_le_bytes());
    out.extend([0; 2]);
    out.extend(rows.to_le_bytes());
    out.resize(HEADER_BYTES as usize - 4, 0);
    out.extend(crc32c::crc32c(&out).to_le_bytes());
    out
}

/// The number of rows; `None` for a segment that is damaged or of another version.
pub(super) fn rows(header: &[u8]) -> Option<u32> {
    let (fields, sum) = header.split_at_checked(HEADER_BYTES as usize - 4)?;
    let ours = fields.starts_with(&MAGIC) && fields[8..10] == VERSION.to_le_bytes();
    (ours && crc32c::crc32c(fields).to_le_bytes() == sum).then(|| number(&fields[12..16]))
}

pub(super) fn row(key: SlotKey, spot: Spot) -> Vec<u8> {
    let mut out = key.stamp.to_le_bytes().to_vec();
    for number in [key.slot, spot.offset, spot.len] {
        out.extend(number.to_le_bytes());
    }
    out.extend(crc32c::crc32c(&out).to_le_bytes());
    out
}

/// Decodes a row of segment `segment`, whose file has `len` bytes; `None` if the row is damaged.
pub(super) fn decode_row(row: &[u8], segment: u32, len: u64) -> Option<Row> {
    let (fields, sum) = row.split_at_checked(ROW_BYTES as usize - 4)?;
    let (stamp, slot) = (number(&fields[..4]), number(&fields[8..12]));
    let stamp = u64::from(stamp) | u64::from(number(&fields[4..8])) << 32;
    let spot = Spot { segment, offset: number(&fields[12..16]), len: number(&fields[16..20]) };
    let inside = spot.len <= SLOT_MOST && u64::from(spot.offset) + u64::from(spot.len) <= len;
    let whole = inside && crc32c::crc32c(fields).to_le_bytes() == sum;
    whole.then_some((SlotKey { stamp, slot }, spot))
}

fn number(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_and_rows_come_back_and_a_flipped_bit_is_found() {
        let key = SlotKey { stamp: 0x0123_4567_89ab_cdef, slot: 77 };
        let spot = Spot { segment: 3, offset: 4096, len: 8208 };
        let (header, row) = (header(1000), row(key, spot));
        assert_eq!((rows(&header), header.len() as u64), (Some(1000), HEADER_BYTES));
        assert_eq!(decode_row(&row, 3, 12_304), Some((key, spot)));
        assert_eq!(row.len() as u64, ROW_BYTES);
        // Beyond the end of what reached the disk.
        assert_eq!(decode_row(&row, 3, 12_303), None);
        let flipped = |bytes: &[u8], bit: usize| {
            let mut bytes = bytes.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            bytes
        };
        assert!((0..32 * 8).all(|bit| rows(&flipped(&header, bit)).is_none()));
        assert!((0..24 * 8).all(|bit| decode_row(&flipped(&row, bit), 3, 12_304).is_none()));
        assert!(rows(&header[..31]).is_none() && decode_row(&row[..23], 3, 12_304).is_none());
    }

    #[test]
    fn names_are_numbers() {
        assert_eq!(Segment::number(&Segment::name(0x1f)), Some(0x1f));
        assert!(["1f.segment", "0000001f", "0000001F.segment"].map(Segment::number) == [None; 3]);
    }
}
