//! A data object: sorted pages, then an index of their runs, then a footer.
//!
//! ```text
//! +--------+--------+ ... +--------+-------------------+--------+
//! | slot 0 | slot 1 |     | slot n | index: one run 12 | footer |
//! +--------+--------+ ... +--------+-------------------+--------+
//! slot: page bytes | file 4 | block 4 | CRC32C 4 | zero 4
//! ```
//! A slot says itself whose page it is, under a checksum that also covers the object's name. So a page that was
//! swapped, shifted or taken from another object is found by whoever reads it, without an index in memory that
//! has a checksum for each page.
//!
//! Invariants:  [OBJ-1] runs ascend by file and block and do not overlap; slots follow them without gaps

use bytes::{BufMut, Bytes, BytesMut};

use super::{Broken, Input, VERSION};
use crate::{FileId, PageId};

const MAGIC: [u8; 8] = *b"FOREBAYO";
/// Bytes of a slot beside the page.
pub(crate) const SLOT_EXTRA: usize = 16;
/// Bytes of a run in the index.
pub(crate) const RUN_BYTES: usize = 12;
/// Bytes of the footer.
pub(crate) const FOOTER_BYTES: usize = 56;

/// The name of an object: which writer made it, and its place in the order of all objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ObjectId {
    pub(crate) epoch: u32,
    pub(crate) number: u64,
}

impl ObjectId {
    pub(crate) fn name(self) -> String {
        format!("{:08x}-{:016x}", self.epoch, self.number)
    }

    pub(crate) fn parse(name: &str) -> Option<ObjectId> {
        let (epoch, number) = name.split_once('-')?;
        let id = ObjectId {
            epoch: u32::from_str_radix(epoch, 16).ok()?,
            number: u64::from_str_radix(number, 16).ok()?,
        };
        (id.name() == name).then_some(id)
    }
}

/// Neighbouring blocks of one file, in neighbouring slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IndexRun {
    pub(crate) file: FileId,
    pub(crate) first: u32,
    pub(crate) count: u32,
}

/// How many slots fit into an object of `object_bytes`, if each is a run by itself.
pub(crate) fn slots_max(object_bytes: u64, page_bytes: u32) -> u32 {
    let each = slot_bytes(page_bytes) + RUN_BYTES as u64;
    let slots = object_bytes.saturating_sub(FOOTER_BYTES as u64) / each;
    slots.min(u64::from(u32::MAX)) as u32
}

pub(crate) fn slot_bytes(page_bytes: u32) -> u64 {
    u64::from(page_bytes) + SLOT_EXTRA as u64
}

/// An object in the making.
pub(crate) struct Builder {
    id: ObjectId,
    page_bytes: u32,
    bytes: BytesMut,
    runs: Vec<IndexRun>,
    slots: u32,
}

/// A finished one.
pub(crate) struct Built {
    pub(crate) id: ObjectId,
    pub(crate) bytes: Bytes,
    pub(crate) runs: Vec<IndexRun>,
    pub(crate) slots: u32,
}

impl Builder {
    /// An object with room for `slots` pages.
    pub(crate) fn new(id: ObjectId, page_bytes: u32, slots: usize) -> Builder {
        let room = slots * (slot_bytes(page_bytes) as usize + RUN_BYTES) + FOOTER_BYTES;
        let bytes = BytesMut::with_capacity(room);
        Builder { id, page_bytes, bytes, runs: Vec::new(), slots: 0 }
    }

    /// Adds a page, which comes after those before; `fill` writes its bytes.
    pub(crate) fn push<E>(
        &mut self,
        page: PageId,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let start = self.bytes.len();
        self.bytes.resize(start + self.page_bytes as usize, 0);
        fill(&mut self.bytes[start..])?;
        let sum = checksum(self.id, page, &self.bytes[start..]);
        self.bytes.put_u32_le(page.file.0);
        self.bytes.put_u32_le(page.block);
        self.bytes.put_u32_le(sum);
        self.bytes.put_u32_le(0);
        self.slots += 1;
        match self.runs.last_mut() {
            Some(run) if run.file == page.file && run.first + run.count == page.block => {
                run.count += 1;
            }
            last => {
                let after = last.is_none_or(|it| {
                    (it.file, u64::from(it.first) + u64::from(it.count))
                        < (page.file, u64::from(page.block))
                });
                assert!(after, "[OBJ-1] {page:?} comes after what is before it");
                self.runs.push(IndexRun { file: page.file, first: page.block, count: 1 });
            }
        }
        Ok(())
    }

    pub(crate) fn finish(mut self) -> Built {
        let start = self.bytes.len();
        for run in &self.runs {
            self.bytes.put_u32_le(run.file.0);
            self.bytes.put_u32_le(run.first);
            self.bytes.put_u32_le(run.count);
        }
        let index_sum = crc32c::crc32c(&self.bytes[start..]);
        let footer = self.bytes.len();
        self.bytes.put_slice(&MAGIC);
        self.bytes.put_u16_le(VERSION);
        self.bytes.put_u16_le(0); // compression: none
        self.bytes.put_u32_le(self.page_bytes);
        self.bytes.put_u64_le(self.id.number);
        self.bytes.put_u32_le(self.id.epoch);
        self.bytes.put_u32_le(self.slots);
        self.bytes.put_u32_le(self.runs.len() as u32);
        self.bytes.put_u32_le(index_sum);
        self.bytes.put_bytes(0, 12); // room for what a later version says
        let sum = crc32c::crc32c(&self.bytes[footer..]);
        self.bytes.put_u32_le(sum);
        let Builder { id, bytes, runs, slots, .. } = self;
        Built { id, bytes: bytes.freeze(), runs, slots }
    }
}

/// The runs that the end of an object tells of; `tail` begins with the index.
pub(crate) fn decode_tail(
    id: ObjectId,
    page_bytes: u32,
    slots: u32,
    tail: &[u8],
) -> Result<Vec<IndexRun>, Broken> {
    let at = tail.len().checked_sub(FOOTER_BYTES).ok_or_else(|| Broken::new("it has no footer"))?;
    let (index, footer) = tail.split_at(at);
    let (counted, sum) = footer.split_at(FOOTER_BYTES - 4);
    let mut input = Input(footer);
    if input.array()? != MAGIC {
        return Err(Broken::new("it is no data object of a tablespace"));
    }
    if crc32c::crc32c(counted).to_le_bytes() != sum {
        return Err(Broken::new("the checksum of its footer does not match"));
    }
    let version = input.u16()?;
    let compression = input.u16()?;
    if version != VERSION || compression != 0 {
        return Err(Broken::Version(version.max(VERSION + 1)));
    }
    let own = (input.u32()?, ObjectId { number: input.u64()?, epoch: input.u32()? }, input.u32()?);
    if own != (page_bytes, id, slots) {
        return Err(Broken::new("it is another object than the manifest says"));
    }
    let count = input.u32()? as usize;
    if index.len() != count * RUN_BYTES || crc32c::crc32c(index) != input.u32()? {
        return Err(Broken::new("the checksum of its index does not match"));
    }
    let mut input = Input(index);
    let mut runs = Vec::with_capacity(count);
    let (mut next, mut total) = ((FileId(0), 0), 0);
    for _ in 0..count {
        let run = IndexRun { file: FileId(input.u32()?), first: input.u32()?, count: input.u32()? };
        let end = run.first.checked_add(run.count);
        let (Some(end), true) = (end, (run.file, run.first) >= next && run.count > 0) else {
            return Err(Broken::new("the runs of its index are not in order"));
        };
        next = (run.file, end);
        total += u64::from(run.count);
        runs.push(run);
    }
    if total != u64::from(slots) {
        return Err(Broken::new("its index does not count its pages"));
    }
    Ok(runs)
}

/// The page in `slot`, if it is `page` of the object `id` and whole.
pub(crate) fn verify(id: ObjectId, page: PageId, slot: &[u8]) -> Result<&[u8], Broken> {
    let at =
        slot.len().checked_sub(SLOT_EXTRA).ok_or_else(|| Broken::new("a slot is cut short"))?;
    let (bytes, mut own) = (&slot[..at], Input(&slot[at..]));
    let found = PageId { file: FileId(own.u32()?), block: own.u32()? };
    if own.u32()? != checksum(id, found, bytes) {
        return Err(Broken::new(format!("the checksum of {page} does not match")));
    }
    if found != page {
        return Err(Broken::new(format!("{found} is where {page} should be")));
    }
    Ok(bytes)
}

fn checksum(id: ObjectId, page: PageId, bytes: &[u8]) -> u32 {
    let mut name = [0; 20];
    name[..8].copy_from_slice(&id.number.to_le_bytes());
    name[8..12].copy_from_slice(&id.epoch.to_le_bytes());
    name[12..16].copy_from_slice(&page.file.0.to_le_bytes());
    name[16..].copy_from_slice(&page.block.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c(bytes), &name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ID: ObjectId = ObjectId { epoch: 3, number: 77 };
    const PAGE: u32 = 64;

    fn page(file: u32, block: u32) -> PageId {
        PageId { file: FileId(file), block }
    }

    fn built(pages: &[PageId]) -> Built {
        let mut builder = Builder::new(ID, PAGE, pages.len());
        for page in pages {
            let fill = |bytes: &mut [u8]| {
                bytes.fill((page.file.0 * 31 + page.block) as u8);
                Ok::<(), ()>(())
            };
            builder.push(*page, fill).unwrap();
        }
        builder.finish()
    }

    fn tail(built: &Built) -> &[u8] {
        &built.bytes[built.slots as usize * slot_bytes(PAGE) as usize..]
    }

    #[test]
    fn pages_come_back_by_slot_and_the_index_is_runs() {
        let pages = [page(1, 4), page(1, 5), page(1, 9), page(2, 0)];
        let built = built(&pages);
        let run = |file, first, count| IndexRun { file: FileId(file), first, count };
        let runs = decode_tail(ID, PAGE, 4, tail(&built)).unwrap();
        assert_eq!(runs, [run(1, 4, 2), run(1, 9, 1), run(2, 0, 1)]);
        for (slot, wanted) in built.bytes.chunks(slot_bytes(PAGE) as usize).zip(pages) {
            let bytes = verify(ID, wanted, slot).unwrap();
            assert!(bytes.iter().all(|&it| u32::from(it) == wanted.file.0 * 31 + wanted.block));
        }
        assert!(verify(ID, page(1, 5), &built.bytes[..slot_bytes(PAGE) as usize]).is_err());
        let other = ObjectId { epoch: 4, ..ID };
        assert!(verify(other, pages[0], &built.bytes[..slot_bytes(PAGE) as usize]).is_err());
    }

    #[test]
    #[should_panic(expected = "[OBJ-1]")]
    fn pages_out_of_order_are_a_bug() {
        built(&[page(1, 4), page(1, 4)]);
    }

    /// With the manifest fewer than the 80 PUTs that a checkpoint of 512 MiB may take.
    #[test]
    fn a_checkpoint_of_65536_scattered_pages_is_65_objects() {
        assert_eq!(65_536_u32.div_ceil(slots_max(8 << 20, 8192)), 65);
    }

    #[test]
    fn an_object_of_as_many_slots_as_fit_is_not_larger() {
        let slots = slots_max(4096, PAGE);
        let pages: Vec<PageId> = (0..slots).map(|at| page(1, at * 2)).collect();
        let len = built(&pages).bytes.len() as u64;
        assert!(len <= 4096 && len + slot_bytes(PAGE) + RUN_BYTES as u64 > 4096, "{len}");
    }

    proptest! {
        #[test]
        fn a_flipped_bit_is_found(bit in 0_usize..64 * 8 * 8) {
            let built = built(&[page(1, 4), page(1, 5), page(7, 9)]);
            let mut bytes = built.bytes.to_vec();
            let bit = bit % (bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            let slots = 3 * slot_bytes(PAGE) as usize;
            let whole = [page(1, 4), page(1, 5), page(7, 9)]
                .iter()
                .zip(bytes[..slots].chunks(slot_bytes(PAGE) as usize))
                .all(|(page, slot)| verify(ID, *page, slot).is_ok());
            // The last four bytes of a slot say nothing.
            let spare = bit / 8 < slots && bit / 8 % slot_bytes(PAGE) as usize >= 76;
            prop_assert!(spare || !whole || decode_tail(ID, PAGE, 3, &bytes[slots..]).is_err());
        }

        #[test]
        fn any_bytes_are_taken_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(decode_tail(ID, PAGE, 3, &bytes).is_err());
            prop_assert!(verify(ID, page(1, 1), &bytes).is_err());
        }
    }
}
