//! The double-write file, byte by byte.
//!
//! | place | bytes | |
//! |---|---|---|
//! | 0 | `header_bytes` | the head: sizes, and the smallest valid group number |
//! | then 64 times | `header_bytes` | a group's header: its number, file, blocks, and the table of live slots |
//! | | `group_pages * page_bytes` | its slots |
//!
//! All numbers are little-endian. `header_bytes` is 4096, or more where direct I/O requires it. The head's fields are
//! in its first 512 bytes, which a disk writes completely or not at all; a group's header has a checksum because it may
//! be torn.
//!
//! A slot is valid only if the page in it carries the checksum that the header names and verifies with it: the header
//! may have reached the disk while the slot still holds its previous contents, perhaps a good page of the same block.
//!
//! Invariants:  [DWF-1] decoding returns what was encoded, or nothing

use super::ring::{GROUP_PAGES_MAX, GROUPS, Table};
use crate::tag::Block;

/// Size of a header, unless direct I/O requires more.
pub(super) const HEADER_BYTES: usize = 4096;

/// The number in it is the version of the format.
const HEAD_MAGIC: &[u8; 8] = b"FbDblWr1";
const GROUP_MAGIC: &[u8; 8] = b"FbDbGrp1";

/// Bytes of a header before the name.
const GROUP_FIXED_BYTES: usize = 8 + 4 + 4 * 5 + 8 * 2 + GROUPS * 16 + GROUP_PAGES_MAX * 8;

/// Longest name of a file, in bytes.
pub(in crate::store::torn) const NAME_BYTES_MAX: usize = HEADER_BYTES - GROUP_FIXED_BYTES;

/// The head: the layout of the file, and its valid groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) page_bytes: u32,
    pub(super) header_bytes: u32,
    pub(super) group_pages: u32,
    /// Groups with smaller numbers hold nothing.
    pub(super) first_number: u64,
}

/// What is in place of the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeadFound {
    Head(Head),
    /// The creation of the file was never completed: nothing was ever stored in it.
    Nothing,
    /// Neither: damage, or a later version.
    Other,
}

impl Head {
    pub(super) fn encode(&self, bytes: &mut [u8]) {
        bytes.fill(0);
        let mut to = Writer { bytes, at: 12 };
        to.u32(self.page_bytes);
        to.u32(self.header_bytes);
        to.u32(self.group_pages);
        to.u32(GROUPS as u32);
        to.u64(self.first_number);
        stamp(bytes, HEAD_MAGIC);
    }

    pub(super) fn decode(bytes: &[u8]) -> HeadFound {
        if bytes.iter().all(|byte| *byte == 0) {
            return HeadFound::Nothing;
        }
        let Some(mut from) = unseal(bytes, HEAD_MAGIC) else {
            return HeadFound::Other;
        };
        let mut read = || {
            let (page_bytes, header_bytes) = (from.u32()?, from.u32()?);
            let (group_pages, groups) = (from.u32()?, from.u32()?);
            let first_number = from.u64()?;
            let sane = page_bytes > 0
                && header_bytes as usize >= HEADER_BYTES
                && (1..=GROUP_PAGES_MAX as u32).contains(&group_pages)
                && groups == GROUPS as u32;
            sane.then_some(Head { page_bytes, header_bytes, group_pages, first_number })
        };
        read().map_or(HeadFound::Other, HeadFound::Head)
    }

    pub(super) fn group_bytes(&self) -> u64 {
        let pages = u64::from(self.group_pages) * u64::from(self.page_bytes);
        u64::from(self.header_bytes) + pages
    }

    /// The offset of a group's header; its slots follow.
    pub(super) fn group_offset(&self, group: usize) -> u64 {
        u64::from(self.header_bytes) + group as u64 * self.group_bytes()
    }

    pub(super) fn slot_offset(&self, group: usize, slot: usize) -> u64 {
        let header = u64::from(self.header_bytes);
        self.group_offset(group) + header + slot as u64 * u64::from(self.page_bytes)
    }

    pub(super) fn file_bytes(&self) -> u64 {
        self.group_offset(GROUPS)
    }
}

/// The contents of a slot: the block, and the checksum that the page carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) block: Block,
    pub(super) sum: u32,
}

/// A group's header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GroupHeader<N> {
    pub(super) group: u32,
    pub(super) number: u64,
    /// Byte offset of the checksum in the file's pages.
    pub(super) checksum_offset: u32,
    /// 0, unless an earlier version has written it for a file in segments: its blocks are those of the whole file.
    pub(super) segment_bytes: u64,
    pub(super) table: Table,
    pub(super) name: N,
}

impl GroupHeader<&str> {
    /// The header of a group with `entries` in its slots.
    pub(super) fn encode(&self, entries: impl ExactSizeIterator<Item = Entry>, bytes: &mut [u8]) {
        bytes.fill(0);
        let mut to = Writer { bytes, at: 12 };
        to.u32(self.group);
        to.u32(entries.len() as u32);
        to.u32(self.checksum_offset);
        to.u32(self.name.len() as u32);
        to.u32(0);
        to.u64(self.number);
        to.u64(self.segment_bytes);
        for (number, live) in self.table.0 {
            to.u64(number);
            to.u64(live);
        }
        let names_at = to.at + GROUP_PAGES_MAX * 8;
        for Entry { block, sum } in entries {
            to.u32(block);
            to.u32(sum);
        }
        to.at = names_at;
        to.put(self.name.as_bytes());
        stamp(bytes, GROUP_MAGIC);
    }
}

impl GroupHeader<String> {
    /// The header and its entries; `None` for one that is torn, damaged or missing.
    pub(super) fn decode(bytes: &[u8]) -> Option<(GroupHeader<String>, Vec<Entry>)> {
        let mut from = unseal(bytes, GROUP_MAGIC)?;
        let (group, count) = (from.u32()?, from.u32()? as usize);
        let (checksum_offset, name_bytes) = (from.u32()?, from.u32()? as usize);
        from.u32()?;
        let (number, segment_bytes) = (from.u64()?, from.u64()?);
        let mut table = Table([(0, 0); GROUPS]);
        for it in &mut table.0 {
            *it = (from.u64()?, from.u64()?);
        }
        let mut entries = Vec::with_capacity(GROUP_PAGES_MAX);
        for _ in 0..GROUP_PAGES_MAX {
            entries.push(Entry { block: from.u32()?, sum: from.u32()? });
        }
        if count > GROUP_PAGES_MAX {
            return None;
        }
        entries.truncate(count);
        let name = std::str::from_utf8(from.take(name_bytes)?).ok()?.to_owned();
        let it = GroupHeader { group, number, checksum_offset, segment_bytes, table, name };
        Some((it, entries))
    }
}

/// Magic, checksum of what follows, what follows.
fn stamp(bytes: &mut [u8], magic: &[u8; 8]) {
    let sum = crc32c::crc32c(&bytes[12..]);
    bytes[..8].copy_from_slice(magic);
    bytes[8..12].copy_from_slice(&sum.to_le_bytes());
}

fn unseal<'a>(bytes: &'a [u8], magic: &[u8; 8]) -> Option<Reader<'a>> {
    let (found, rest) = bytes.split_first_chunk::<8>()?;
    let (sum, rest) = rest.split_first_chunk::<4>()?;
    let good = found == magic && u32::from_le_bytes(*sum) == crc32c::crc32c(rest);
    good.then_some(Reader(rest))
}

struct Writer<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }

    fn u32(&mut self, number: u32) {
        self.put(&number.to_le_bytes());
    }

    fn u64(&mut self, number: u64) {
        self.put(&number.to_le_bytes());
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(*self.take(4)?.first_chunk()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(*self.take(8)?.first_chunk()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head() -> Head {
        Head { page_bytes: 8192, header_bytes: 4096, group_pages: 32, first_number: 77 }
    }

    fn group() -> (Vec<u8>, GroupHeader<String>, Vec<Entry>) {
        let table = Table(std::array::from_fn(|at| (at as u64 * 3, u64::MAX >> at)));
        let entries: Vec<Entry> = (0..64).map(|at| Entry { block: at * 7, sum: !at }).collect();
        let name = "\u{e9}".repeat(NAME_BYTES_MAX / 2);
        let it = GroupHeader {
            group: 63,
            number: 1 << 40,
            checksum_offset: 8188,
            segment_bytes: 1 << 30,
            table,
            name: &*name,
        };
        let mut bytes = vec![0xaa; HEADER_BYTES];
        it.encode(entries.iter().copied(), &mut bytes);
        let GroupHeader { group, number, checksum_offset, segment_bytes, .. } = it;
        let name = name.clone();
        let owned = GroupHeader { group, number, checksum_offset, segment_bytes, table, name };
        (bytes, owned, entries)
    }

    #[test]
    fn dwf_1_what_was_encoded_is_decoded() {
        let mut bytes = vec![0xaa; HEADER_BYTES];
        head().encode(&mut bytes);
        assert_eq!(Head::decode(&bytes), HeadFound::Head(head()), "[DWF-1]");
        assert!(bytes[512..].iter().all(|byte| *byte == 0), "it fits one sector");
        let (bytes, header, entries) = group();
        assert_eq!(GroupHeader::decode(&bytes), Some((header, entries)), "[DWF-1]");
    }

    #[test]
    fn dwf_1_a_torn_or_flipped_header_is_none() {
        let (bytes, ..) = group();
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 0x20;
            assert_eq!(GroupHeader::decode(&flipped), None, "[DWF-1] byte {at}");
        }
        for sector in 1..8 {
            let mut torn = bytes.clone();
            torn[sector * 512..].fill(0);
            assert_eq!(GroupHeader::decode(&torn), None, "[DWF-1] sector {sector}");
        }
        let mut bytes = vec![0; HEADER_BYTES];
        assert_eq!(Head::decode(&bytes), HeadFound::Nothing);
        head().encode(&mut bytes);
        bytes[7] = b'2';
        assert_eq!(Head::decode(&bytes), HeadFound::Other, "[DWF-1] a later version");
    }

    #[test]
    fn places_do_not_overlap() {
        let head = head();
        assert_eq!(head.group_offset(0), 4096);
        assert_eq!(head.slot_offset(0, 0), 8192);
        assert_eq!(head.slot_offset(0, 31) + 8192, head.group_offset(1));
        assert_eq!(head.slot_offset(63, 31) + 8192, head.file_bytes());
    }
}
