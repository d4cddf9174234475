//! A data object: sorted pages, then an index of their runs, then a footer.
//!
//! ```text
//! +--------+--------+ ... +--------+-------------------+----------------------+--------+
//! | slot 0 | slot 1 |     | slot n | index: one run 12 | ends, if compressed  | footer |
//! +--------+--------+ ... +--------+-------------------+----------------------+--------+
//! slot: page bytes | file 4 | block 4 | CRC32C 4 | zero 4
//! ```
//! Each page is compressed separately, so that one page is still one range; a page that would not become smaller is
//! stored uncompressed, which shows in the length of its slot.
//!
//! A slot names its page, under a checksum that also covers the object's name. So a reader detects a page that was
//! swapped, shifted or taken from another object, without an index in memory that
//! has a checksum for each page.
//!
//! Invariants:  [OBJ-1] runs ascend by file and block and do not overlap; slots follow them without gaps

use std::ops::Range;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use lz4_flex::block::{compress_into, decompress_into, get_maximum_output_size};

use super::{Broken, Input, VERSION};
use crate::{FileId, PageId};

const MAGIC: [u8; 8] = *b"FOREBAYO";
/// Bytes of a slot in addition to the page.
pub(crate) const SLOT_EXTRA: usize = 16;
/// Bytes of a run in the index.
pub(crate) const RUN_BYTES: usize = 12;
/// Bytes of the end of a slot.
const END_BYTES: usize = 4;
/// Bytes of the footer.
pub(crate) const FOOTER_BYTES: usize = 56;

/// How the pages of new objects are stored. A tablespace may have objects of both kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    /// Uncompressed.
    #[default]
    None,
    /// Each page separately, by LZ4. Takes 4 additional bytes a page in memory.
    Lz4,
}

impl Compression {
    pub(crate) fn code(self) -> u16 {
        match self {
            Compression::None => 0,
            Compression::Lz4 => 1,
        }
    }

    pub(crate) fn of_code(code: u16) -> Option<Compression> {
        [Compression::None, Compression::Lz4].into_iter().find(|it| it.code() == code)
    }
}

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

/// Adjacent blocks of one file, in adjacent slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IndexRun {
    pub(crate) file: FileId,
    pub(crate) first: u32,
    pub(crate) count: u32,
}

/// The decoded end of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Index {
    /// Drawn at random when the object was made: no other object has it, not even one of the same name in another
    /// bucket.
    pub(crate) stamp: u64,
    pub(crate) runs: Vec<IndexRun>,
    /// Where each slot ends, unless all have the same size.
    pub(crate) ends: Option<Arc<[u32]>>,
}

/// Bytes of an object after its slots.
pub(crate) fn tail_bytes(slots: u32, runs: u32, compression: Compression) -> u64 {
    let ends = if compression == Compression::None { 0 } else { slots as usize * END_BYTES };
    (runs as usize * RUN_BYTES + ends + FOOTER_BYTES) as u64
}

/// The range of an object that has `count` slots from `first` on.
pub(crate) fn span(ends: Option<&[u32]>, page_bytes: u32, first: u32, count: u32) -> Range<u64> {
    let end = |slots: u32| match ends {
        None => u64::from(slots) * slot_bytes(page_bytes),
        Some(ends) => slots.checked_sub(1).map_or(0, |last| u64::from(ends[last as usize])),
    };
    end(first)..end(first + count)
}

/// How many slots fit into an object of `object_bytes`, if each slot is its own run.
pub(crate) fn slots_max(object_bytes: u64, page_bytes: u32) -> u32 {
    let each = slot_bytes(page_bytes) + RUN_BYTES as u64;
    let slots = object_bytes.saturating_sub(FOOTER_BYTES as u64) / each;
    slots.min(u64::from(u32::MAX)) as u32
}

pub(crate) fn slot_bytes(page_bytes: u32) -> u64 {
    u64::from(page_bytes) + SLOT_EXTRA as u64
}

/// An object that is being built.
pub(crate) struct Builder {
    id: ObjectId,
    stamp: u64,
    page_bytes: u32,
    bytes: BytesMut,
    runs: Vec<IndexRun>,
    slots: u32,
    /// For a compressed object: the ends of its slots, and a buffer for an uncompressed page.
    compressed: Option<(Vec<u32>, Vec<u8>)>,
}

/// A complete object.
pub(crate) struct Built {
    pub(crate) id: ObjectId,
    pub(crate) bytes: Bytes,
    pub(crate) index: Index,
    pub(crate) slots: u32,
    pub(crate) compression: Compression,
}

impl Builder {
    /// An object with memory for `slots` pages.
    pub(crate) fn new(
        id: ObjectId,
        stamp: u64,
        page_bytes: u32,
        slots: usize,
        compression: Compression,
    ) -> Builder {
        let room = slots * (slot_bytes(page_bytes) as usize + RUN_BYTES) + FOOTER_BYTES;
        let bytes = BytesMut::with_capacity(room);
        let compressed = (compression == Compression::Lz4)
            .then(|| (Vec::with_capacity(slots), vec![0; page_bytes as usize]));
        Builder { id, stamp, page_bytes, bytes, runs: Vec::new(), slots: 0, compressed }
    }

    /// Whether the object stays within `object_bytes` after one more page, whatever its contents.
    pub(crate) fn has_room(&self, object_bytes: u64) -> bool {
        if self.compressed.is_none() {
            return self.slots < slots_max(object_bytes, self.page_bytes);
        }
        let runs = self.runs.len() as u32 + 1;
        let tail = tail_bytes(self.slots + 1, runs, Compression::Lz4);
        self.bytes.len() as u64 + slot_bytes(self.page_bytes) + tail <= object_bytes
    }

    /// Adds a page, which must be after the pages before; `fill` writes its bytes.
    pub(crate) fn push<E>(
        &mut self,
        page: PageId,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let start = self.bytes.len();
        let len = self.page_bytes as usize;
        match &mut self.compressed {
            None => {
                self.bytes.resize(start + len, 0);
                fill(&mut self.bytes[start..])?;
            }
            Some((_, plain)) => {
                fill(plain)?;
                self.bytes.resize(start + get_maximum_output_size(len), 0);
                let made = compress_into(plain, &mut self.bytes[start..]);
                let smaller = made.ok().filter(|made| *made < len);
                self.bytes.truncate(start + smaller.unwrap_or(len));
                if smaller.is_none() {
                    self.bytes[start..].copy_from_slice(plain);
                }
            }
        }
        let sum = checksum(self.id, page, &self.bytes[start..]);
        self.bytes.put_u32_le(page.file.0);
        self.bytes.put_u32_le(page.block);
        self.bytes.put_u32_le(sum);
        self.bytes.put_u32_le(0);
        self.slots += 1;
        if let Some((ends, _)) = &mut self.compressed {
            ends.push(self.bytes.len() as u32);
        }
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
        let ends = self.compressed.map(|(ends, _)| ends);
        ends.iter().flatten().for_each(|end| self.bytes.put_u32_le(*end));
        let compression = if ends.is_some() { Compression::Lz4 } else { Compression::None };
        let index_sum = crc32c::crc32c(&self.bytes[start..]);
        let footer = self.bytes.len();
        self.bytes.put_slice(&MAGIC);
        self.bytes.put_u16_le(VERSION);
        self.bytes.put_u16_le(compression.code());
        self.bytes.put_u32_le(self.page_bytes);
        self.bytes.put_u64_le(self.id.number);
        self.bytes.put_u32_le(self.id.epoch);
        self.bytes.put_u32_le(self.slots);
        self.bytes.put_u32_le(self.runs.len() as u32);
        self.bytes.put_u32_le(index_sum);
        self.bytes.put_u64_le(self.stamp);
        self.bytes.put_bytes(0, 4); // reserved for later versions
        let sum = crc32c::crc32c(&self.bytes[footer..]);
        self.bytes.put_u32_le(sum);
        let index = Index { stamp: self.stamp, runs: self.runs, ends: ends.map(Arc::from) };
        Built { id: self.id, bytes: self.bytes.freeze(), index, slots: self.slots, compression }
    }
}

/// Decodes the end of an object; `tail` begins with the index, `before` bytes into the object.
pub(crate) fn decode_tail(
    id: ObjectId,
    page_bytes: u32,
    slots: u32,
    before: u64,
    tail: &[u8],
) -> Result<Index, Broken> {
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
    if version != VERSION {
        return Err(Broken::Version(version));
    }
    let compression = Compression::of_code(input.u16()?).ok_or(Broken::Version(VERSION + 1))?;
    let own = (input.u32()?, ObjectId { number: input.u64()?, epoch: input.u32()? }, input.u32()?);
    if own != (page_bytes, id, slots) {
        return Err(Broken::new("it is another object than the manifest says"));
    }
    let count = input.u32()?;
    let own = tail_bytes(slots, count, compression);
    if tail.len() as u64 != own || crc32c::crc32c(index) != input.u32()? {
        return Err(Broken::new("the checksum of its index does not match"));
    }
    let stamp = input.u64()?;
    let mut input = Input(index);
    let mut runs = Vec::with_capacity(count as usize);
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
    let ends = match compression {
        Compression::None => None,
        Compression::Lz4 => {
            let ends = (0..slots).map(|_| input.u32()).collect::<Result<Arc<[u32]>, _>>()?;
            let starts = std::iter::once(0).chain(ends.iter().copied());
            let room = SLOT_EXTRA as u64..=slot_bytes(page_bytes);
            let slot = |(start, end): (u32, &u32)| end.checked_sub(start).map(u64::from);
            if !starts.zip(&*ends).map(slot).all(|it| it.is_some_and(|it| room.contains(&it))) {
                return Err(Broken::new("the ends of its slots are not in order"));
            }
            Some(ends)
        }
    };
    // Otherwise reads beyond the end of the object would look like a store that truncates its answers.
    if span(ends.as_deref(), page_bytes, 0, slots).end != before {
        return Err(Broken::new("its slots do not end where its index begins"));
    }
    Ok(Index { stamp, runs, ends })
}

/// The page in `slot`, if it is `page` of the object `id` and undamaged.
pub(crate) fn verify(
    id: ObjectId,
    page: PageId,
    page_bytes: u32,
    slot: &Bytes,
) -> Result<Bytes, Broken> {
    let at =
        slot.len().checked_sub(SLOT_EXTRA).ok_or_else(|| Broken::new("a slot is cut short"))?;
    let (bytes, mut own) = (slot.slice(..at), Input(&slot[at..]));
    let found = PageId { file: FileId(own.u32()?), block: own.u32()? };
    if own.u32()? != checksum(id, found, &bytes) {
        return Err(Broken::new(format!("the checksum of {page} does not match")));
    }
    if found != page {
        return Err(Broken::new(format!("{found} is where {page} should be")));
    }
    if bytes.len() == page_bytes as usize {
        return Ok(bytes);
    }
    let mut plain = vec![0; page_bytes as usize];
    match decompress_into(&bytes, &mut plain) {
        Ok(len) if len == plain.len() => Ok(plain.into()),
        _ => Err(Broken::new(format!("{page} is not compressed as it should be"))),
    }
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
    const STAMP: u64 = 99;
    const PAGE: u32 = 64;

    fn page(file: u32, block: u32) -> PageId {
        PageId { file: FileId(file), block }
    }

    fn built(pages: &[PageId]) -> Built {
        built_as(pages, Compression::None)
    }

    fn built_as(pages: &[PageId], compression: Compression) -> Built {
        let mut builder = Builder::new(ID, STAMP, PAGE, pages.len(), compression);
        for page in pages {
            let fill = |bytes: &mut [u8]| {
                bytes.fill((page.file.0 * 31 + page.block) as u8);
                Ok::<(), ()>(())
            };
            builder.push(*page, fill).unwrap();
        }
        builder.finish()
    }

    fn slots(built: &Built) -> Vec<Bytes> {
        let ends = built.index.ends.as_deref();
        let span = |slot| span(ends, PAGE, slot, 1);
        let bytes = |it: Range<u64>| built.bytes.slice(it.start as usize..it.end as usize);
        (0..built.slots).map(span).map(bytes).collect()
    }

    fn tail(built: &Built) -> Bytes {
        let len = tail_bytes(built.slots, built.index.runs.len() as u32, built.compression);
        built.bytes.slice(built.bytes.len() - len as usize..)
    }

    fn index_of(built: &Built) -> Result<Index, Broken> {
        let tail = tail(built);
        decode_tail(ID, PAGE, built.slots, (built.bytes.len() - tail.len()) as u64, &tail)
    }

    /// The object with bytes of its tail changed, under checksums that match.
    fn changed(built: &Built, at: usize, to: &[u8]) -> Built {
        let mut bytes = built.bytes.to_vec();
        let tail = bytes.len() - tail(built).len();
        let footer = bytes.len() - FOOTER_BYTES;
        bytes[tail + at..tail + at + to.len()].copy_from_slice(to);
        let index = crc32c::crc32c(&bytes[tail..footer]);
        bytes[footer + 36..footer + 40].copy_from_slice(&index.to_le_bytes());
        let end = bytes.len() - 4;
        let sum = crc32c::crc32c(&bytes[footer..end]);
        bytes[end..].copy_from_slice(&sum.to_le_bytes());
        Built { bytes: bytes.into(), index: built.index.clone(), ..*built }
    }

    /// Reads with such ends would go beyond the end of the object, or into a slot, and look like a failing store.
    #[test]
    fn ends_that_are_not_those_of_the_slots_are_damage() {
        let built = built_as(&[page(1, 4), page(1, 5)], Compression::Lz4);
        let ends = built.index.ends.clone().unwrap();
        assert!(index_of(&changed(&built, 12, &ends[0].to_le_bytes())).is_ok());
        for (at, end) in [(12, 5), (12, ends[1]), (16, ends[1] + 1), (16, 1 << 30), (16, ends[0])] {
            let found = index_of(&changed(&built, at, &end.to_le_bytes()));
            assert!(matches!(found, Err(Broken::Damaged(_))), "{at} {end}: {found:?}");
        }
    }

    #[test]
    fn an_object_of_an_earlier_build_needs_that_and_one_of_a_later_build_a_later_one() {
        let built = built(&[page(1, 4)]);
        for (version, build) in [(VERSION - 1, "an earlier build"), (VERSION + 1, "a later build")]
        {
            let footer = built.index.runs.len() * RUN_BYTES;
            let broken = index_of(&changed(&built, footer + 8, &version.to_le_bytes()));
            let error = crate::fetch::corrupt("a".into(), broken.unwrap_err()).to_string();
            assert!(error.contains(build) && error.contains(&version.to_string()), "{error}");
        }
    }

    #[test]
    fn a_compressed_page_is_one_range_and_one_that_would_grow_is_kept_as_it_is() {
        let pages = [page(1, 4), page(1, 5), page(1, 9)];
        let mut builder = Builder::new(ID, STAMP, PAGE, 3, Compression::Lz4);
        let mut noise = [0; PAGE as usize];
        fastrand::Rng::with_seed(1).fill(&mut noise);
        for (page, bytes) in pages.iter().zip([[7; PAGE as usize], noise, [9; PAGE as usize]]) {
            let fill = |into: &mut [u8]| {
                into.copy_from_slice(&bytes);
                Ok::<(), ()>(())
            };
            builder.push(*page, fill).unwrap();
        }
        let built = builder.finish();
        assert_eq!(index_of(&built), Ok(built.index.clone()));
        let slots = slots(&built);
        assert!(slots[0].len() < 40 && slots[1].len() == slot_bytes(PAGE) as usize);
        let read = |at: usize| verify(ID, pages[at], PAGE, &slots[at]).unwrap();
        assert_eq!((&read(0)[..], &read(1)[..]), (&[7; PAGE as usize][..], &noise[..]));
        assert_eq!(&read(2)[..], [9; PAGE as usize]);
        // Undamaged, but of another length.
        assert!(verify(ID, pages[0], PAGE * 2, &slots[0]).is_err());
    }

    #[test]
    fn pages_come_back_by_slot_and_the_index_is_runs() {
        let pages = [page(1, 4), page(1, 5), page(1, 9), page(2, 0)];
        let built = built(&pages);
        let run = |file, first, count| IndexRun { file: FileId(file), first, count };
        let index = index_of(&built).unwrap();
        assert_eq!(index.runs, [run(1, 4, 2), run(1, 9, 1), run(2, 0, 1)]);
        let slots = slots(&built);
        for (slot, wanted) in slots.iter().zip(pages) {
            let bytes = verify(ID, wanted, PAGE, slot).unwrap();
            assert!(bytes.iter().all(|&it| u32::from(it) == wanted.file.0 * 31 + wanted.block));
        }
        assert!(verify(ID, page(1, 5), PAGE, &slots[0]).is_err());
        let other = ObjectId { epoch: 4, ..ID };
        assert!(verify(other, pages[0], PAGE, &slots[0]).is_err());
    }

    #[test]
    #[should_panic(expected = "[OBJ-1]")]
    fn pages_out_of_order_are_a_bug() {
        built(&[page(1, 4), page(1, 4)]);
    }

    /// Together with the manifest, fewer than the 80 PUTs that a checkpoint of 512 MiB may take.
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
        fn a_flipped_bit_is_found(bit in 0_usize..64 * 8 * 8, compressed in any::<bool>()) {
            let pages = [page(1, 4), page(1, 5), page(7, 9)];
            let compression = if compressed { Compression::Lz4 } else { Compression::None };
            let mut built = built_as(&pages, compression);
            let mut bytes = built.bytes.to_vec();
            let bit = bit % (bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            built.bytes = bytes.into();
            let slots = slots(&built);
            let whole = pages.iter().zip(&slots).all(|it| verify(ID, *it.0, PAGE, it.1).is_ok());
            // The last four bytes of a slot are unused.
            let ends = slots.iter().scan(0, |end, it| {
                *end += it.len();
                Some(*end)
            });
            let spare = ends.into_iter().any(|end| (end - 4..end).contains(&(bit / 8)));
            prop_assert!(spare || !whole || index_of(&built).is_err());
        }

        #[test]
        fn any_bytes_are_taken_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(decode_tail(ID, PAGE, 3, 0, &bytes).is_err());
            prop_assert!(verify(ID, page(1, 1), PAGE, &bytes.into()).is_err());
        }
    }
}
