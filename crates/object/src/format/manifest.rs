//! The manifest: the objects and files of a tablespace, and the epoch that may replace it.
//!
//! It names objects, not pages. A page is in the newest object whose index names it, unless a cut of its file
//! hides it; so a commit's manifest has 30 bytes for each object, not some for each page.
//!
//! Invariants:  [MAN-1] objects ascend by number, and each number is below `next_object`

use super::{Broken, Input, VERSION};
use crate::FileId;
use crate::format::object::{Compression, ObjectId};

const MAGIC: [u8; 8] = *b"FOREBAYM";

/// The manifest, as it is in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Manifest {
    /// Incremented by each replacement.
    pub(crate) version: u64,
    /// A random number of this manifest, by which its writer recognizes it.
    pub(crate) stamp: u64,
    /// Incremented by each writer.
    pub(crate) epoch: u32,
    /// Whether the writer of that epoch has not closed it.
    pub(crate) held: bool,
    pub(crate) page_bytes: u32,
    pub(crate) next_object: u64,
    pub(crate) next_file: u32,
    pub(crate) files: Vec<FileEntry>,
    pub(crate) objects: Vec<ObjectEntry>,
    pub(crate) obsolete: Vec<Obsolete>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileEntry {
    pub(crate) id: FileId,
    pub(crate) name: String,
    pub(crate) bytes: u64,
    pub(crate) cuts: Vec<Cut>,
}

/// A cut of a file: entries of older objects for blocks from `blocks` on are void.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cut {
    /// Objects below this number are older.
    pub(crate) before: u64,
    pub(crate) blocks: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ObjectEntry {
    pub(crate) id: ObjectId,
    /// Size of the whole object.
    pub(crate) bytes: u64,
    pub(crate) slots: u32,
    pub(crate) runs: u32,
    pub(crate) compression: Compression,
}

impl ObjectEntry {
    /// Stored bytes of `live` of its pages.
    pub(crate) fn bytes_of(&self, live: u32) -> u64 {
        // At most the whole object, whatever size a manifest states.
        let share = u128::from(self.bytes) * u128::from(live.min(self.slots));
        (share / u128::from(self.slots.max(1))) as u64
    }
}

/// An object that this manifest does not need, to be deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Obsolete {
    pub(crate) id: ObjectId,
    pub(crate) bytes: u64,
    /// The first version that does not need it.
    pub(crate) since: u64,
}

impl Manifest {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(96 + 30 * (self.objects.len() + self.obsolete.len()));
        let count = |len: usize| (len as u32).to_le_bytes();
        out.extend(MAGIC);
        out.extend(VERSION.to_le_bytes());
        out.extend(u16::from(self.held).to_le_bytes());
        out.extend(self.page_bytes.to_le_bytes());
        out.extend(self.version.to_le_bytes());
        out.extend(self.stamp.to_le_bytes());
        out.extend(self.epoch.to_le_bytes());
        out.extend(self.next_file.to_le_bytes());
        out.extend(self.next_object.to_le_bytes());
        out.extend(count(self.files.len()));
        for file in &self.files {
            out.extend(file.id.0.to_le_bytes());
            out.extend(file.bytes.to_le_bytes());
            out.extend(count(file.name.len()));
            out.extend(file.name.as_bytes());
            out.extend(count(file.cuts.len()));
            for cut in &file.cuts {
                out.extend(cut.before.to_le_bytes());
                out.extend(cut.blocks.to_le_bytes());
            }
        }
        out.extend(count(self.objects.len()));
        for object in &self.objects {
            out.extend(object.id.epoch.to_le_bytes());
            out.extend(object.id.number.to_le_bytes());
            out.extend(object.bytes.to_le_bytes());
            out.extend(object.slots.to_le_bytes());
            out.extend(object.runs.to_le_bytes());
            out.extend(object.compression.code().to_le_bytes());
        }
        out.extend(count(self.obsolete.len()));
        for it in &self.obsolete {
            out.extend(it.id.epoch.to_le_bytes());
            out.extend(it.id.number.to_le_bytes());
            out.extend(it.bytes.to_le_bytes());
            out.extend(it.since.to_le_bytes());
        }
        out.extend(crc32c::crc32c(&out).to_le_bytes());
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Manifest, Broken> {
        let at = bytes.len().checked_sub(4).ok_or_else(|| Broken::new("it is empty"))?;
        let (counted, sum) = bytes.split_at(at);
        let mut input = Input(counted);
        if input.array()? != MAGIC {
            return Err(Broken::new("it is no manifest of a tablespace"));
        }
        if crc32c::crc32c(counted).to_le_bytes() != sum {
            return Err(Broken::new("the checksum of the manifest does not match"));
        }
        let version = input.u16()?;
        if version != VERSION {
            return Err(Broken::Version(version));
        }
        let held = input.u16()? != 0;
        let page_bytes = input.u32()?;
        let version = input.u64()?;
        let stamp = input.u64()?;
        let epoch = input.u32()?;
        let next_file = input.u32()?;
        let next_object = input.u64()?;
        let files = (0..input.count(20)?).map(|_| file(&mut input)).collect::<Result<_, _>>()?;
        let objects: Vec<ObjectEntry> =
            (0..input.count(30)?).map(|_| object(&mut input)).collect::<Result<_, _>>()?;
        let obsolete =
            (0..input.count(28)?).map(|_| obsolete(&mut input)).collect::<Result<_, _>>()?;
        if !input.0.is_empty() {
            return Err(Broken::new("it is longer than it says"));
        }
        let ascend = objects.is_sorted_by(|left, right| left.id.number < right.id.number);
        if !ascend || objects.last().is_some_and(|it| it.id.number >= next_object) {
            return Err(Broken::new("its objects are not in order"));
        }
        Ok(Manifest {
            version,
            stamp,
            epoch,
            held,
            page_bytes,
            next_object,
            next_file,
            files,
            objects,
            obsolete,
        })
    }
}

fn id(input: &mut Input<'_>) -> Result<ObjectId, Broken> {
    Ok(ObjectId { epoch: input.u32()?, number: input.u64()? })
}

fn file(input: &mut Input<'_>) -> Result<FileEntry, Broken> {
    let (id, bytes) = (FileId(input.u32()?), input.u64()?);
    let len = input.count(1)?;
    let name = std::str::from_utf8(input.bytes(len)?);
    let name = name.map_err(|_| Broken::new("the name of a file is no text"))?.to_owned();
    let cut = |input: &mut Input<'_>| Ok(Cut { before: input.u64()?, blocks: input.u32()? });
    let cuts = (0..input.count(12)?).map(|_| cut(input)).collect::<Result<_, _>>()?;
    Ok(FileEntry { id, name, bytes, cuts })
}

fn object(input: &mut Input<'_>) -> Result<ObjectEntry, Broken> {
    let entry = ObjectEntry {
        id: id(input)?,
        bytes: input.u64()?,
        slots: input.u32()?,
        runs: input.u32()?,
        compression: Compression::of_code(input.u16()?)
            .ok_or_else(|| Broken::new("an object is compressed in an unknown way"))?,
    };
    Ok(entry)
}

fn obsolete(input: &mut Input<'_>) -> Result<Obsolete, Broken> {
    Ok(Obsolete { id: id(input)?, bytes: input.u64()?, since: input.u64()? })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn manifest(objects: u64) -> Manifest {
        let id = |number| ObjectId { epoch: 2, number };
        Manifest {
            version: 9,
            stamp: 0xfeed,
            epoch: 2,
            held: true,
            page_bytes: 8192,
            next_object: objects + 5,
            next_file: 4,
            files: vec![FileEntry {
                id: FileId(3),
                name: "base/table".to_owned(),
                bytes: 81_920,
                cuts: vec![Cut { before: 2, blocks: 7 }],
            }],
            objects: (0..objects)
                .map(|at| ObjectEntry {
                    id: id(at + 3),
                    bytes: 8 << 20,
                    slots: 1000,
                    runs: 9,
                    compression: Compression::Lz4,
                })
                .collect(),
            obsolete: vec![Obsolete { id: id(1), bytes: 77, since: 8 }],
        }
    }

    #[test]
    fn what_is_encoded_is_decoded_again() {
        let whole = manifest(2);
        assert_eq!(Manifest::decode(&whole.encode()), Ok(whole));
    }

    /// 4 GiB in objects of 8 MiB, twice as much space as data: the size stated in docs/format-object.md.
    #[test]
    fn a_manifest_of_a_thousand_objects_is_small() {
        assert!(manifest(1024).encode().len() < 32 << 10);
    }

    #[test]
    fn man_1_objects_out_of_order_are_refused() {
        let mut odd = manifest(2);
        odd.objects.swap(0, 1);
        assert!(Manifest::decode(&odd.encode()).is_err(), "[MAN-1]");
        let mut odd = manifest(2);
        odd.next_object = 4;
        assert!(Manifest::decode(&odd.encode()).is_err(), "[MAN-1]");
    }

    #[test]
    fn a_later_format_says_so() {
        let mut bytes = manifest(1).encode();
        bytes[8] = VERSION as u8 + 1;
        let at = bytes.len() - 4;
        let sum = crc32c::crc32c(&bytes[..at]).to_le_bytes();
        bytes[at..].copy_from_slice(&sum);
        assert_eq!(Manifest::decode(&bytes), Err(Broken::Version(VERSION + 1)));
    }

    proptest! {
        #[test]
        fn a_flipped_bit_and_a_cut_are_found(bit in 0_usize..4000, len in 0_usize..400) {
            let whole = manifest(3).encode();
            let mut bytes = whole.clone();
            let bit = bit % (bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(Manifest::decode(&bytes).is_err());
            prop_assert!(len >= whole.len() || Manifest::decode(&whole[..len]).is_err());
        }

        /// The checksum matches, too: only then the rest is decoded.
        #[test]
        fn any_bytes_are_taken_or_refused(
            mut bytes in proptest::collection::vec(any::<u8>(), 48..300),
        ) {
            bytes[..8].copy_from_slice(&MAGIC);
            bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
            let at = bytes.len() - 4;
            let sum = crc32c::crc32c(&bytes[..at]).to_le_bytes();
            bytes[at..].copy_from_slice(&sum);
            if let Ok(manifest) = Manifest::decode(&bytes) {
                prop_assert_eq!(Manifest::decode(&manifest.encode()), Ok(manifest));
            }
        }
    }
}
