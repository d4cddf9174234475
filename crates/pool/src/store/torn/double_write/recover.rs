//! Recovery: pages that a crash has torn are repaired before any file is opened.
//!
//! The newest good header of the double-write file lists the live slots. For each of their pages: if the page in its
//! file fails its checksum, or cannot be read, the newest good copy is written there; then the files are synced, the
//! repaired ones and the others. A good page is left unchanged, whatever version it is: if it is old, the log has the
//! missing changes.
//!
//! A page of zeroes is left unchanged too. It was never written, or no byte of its first write has reached the disk;
//! and a file that was dropped and created again may have pages of zeroes where the double write still has those of the
//! old one.
//!
//! If all this is interrupted, it may be repeated from the start: the slots stay as they are until the files are
//! synced.
//!
//! Invariants:  [DBR-1] a page that is good, absent or of zeroes is not changed
//!              [DBR-2] of the good copies of a page the newest is used
//!              [DBR-3] slots are released only when the files of their pages have been synced
//! Failure:     an error names the file; nothing was discarded, so the opening can be retried.

use std::collections::{BTreeMap, HashMap};
use std::path::{Component, Path, PathBuf};

use forebay_io::{Arena, Error as IoError, File, Io, Lease, OpenOptions, OsError, Request};

use super::NAME;
use super::format::{Entry, GroupHeader, HEADER_BYTES, Head, HeadFound};
use super::ring::{GROUPS, Table};
use crate::error::Error;
use crate::store::checksum::{Checksum, ZeroPages};
use crate::store::torn::opening::Opening;
use crate::tag::Block;

/// The result of a recovery.
#[derive(Debug, Default)]
pub(in crate::store::torn) struct Recovered {
    /// Pages that were torn and have been repaired.
    pub(in crate::store::torn) repaired: u64,
    /// Pages that are torn and have no good copy.
    pub(in crate::store::torn) lost: u64,
    /// New groups have this number or a larger one.
    pub(super) next_number: u64,
    /// The file and its head; its slots are no longer needed.
    file: Option<(File, Option<Head>)>,
}

impl Recovered {
    /// Returns the file, if its layout is that of `head`; `head` gets the header size that it was created with.
    pub(super) fn reused(&self, head: &mut Head) -> Option<File> {
        let (file, Some(found)) = self.file.as_ref()? else {
            return None;
        };
        let wanted =
            Head { header_bytes: found.header_bytes, first_number: found.first_number, ..*head };
        let aligned = found.header_bytes.is_multiple_of(file.alignment().offset);
        let whole = file.len().is_ok_and(|len| len >= found.file_bytes());
        if wanted != *found || !aligned || !whole {
            return None;
        }
        head.header_bytes = found.header_bytes;
        Some(file.clone())
    }

    /// Removes the file, if there is one.
    pub(in crate::store::torn) fn remove(&self, opening: &Opening<'_>) -> Result<(), Error> {
        if self.file.is_none() {
            return Ok(());
        }
        opening.volume.remove(&opening.directory.join(NAME))?;
        Ok(opening.volume.sync_directory(opening.directory)?)
    }
}

/// The identity of a page: its file's name, its block.
type Place = (String, Block);

/// A slot that may hold the newest copy of its page.
#[derive(Clone, Copy)]
struct SavedCopy {
    number: u64,
    group: usize,
    slot: usize,
    sum: u32,
    checksum: Checksum,
}

/// Repairs the torn pages in `directory`.
///
/// # Errors
/// [`Error::DoubleWrite`] for an invalid file, and for copies of a file in segments, which cannot be repaired; [`Error::Io`] from reading and writing.
pub(in crate::store::torn) fn recover(opening: &Opening<'_>) -> Result<Recovered, Error> {
    let path = opening.directory.join(NAME);
    let io = opening.sync_io;
    let file = match opening.volume.open(&path, &OpenOptions::new().cache(opening.cache)) {
        Ok(file) => file,
        Err(IoError::Open { source, .. }) if source.raw() == ENOENT && !is_there(&path) => {
            return Ok(Recovered { next_number: 1, ..Recovered::default() });
        }
        Err(error) => return Err(error.into()),
    };
    let Some(head) = read_head(&file, io)? else {
        return Ok(Recovered { next_number: 1, file: Some((file, None)), ..Recovered::default() });
    };
    let page_bytes = head.page_bytes as usize;
    let slot_bytes = page_bytes.max(head.header_bytes as usize).next_power_of_two();
    let arena = Arena::new(2, slot_bytes)?;
    let leases = arena.take_many(2).and_then(|two| <[Lease; 2]>::try_from(two).ok());
    let [one, mut copy] = leases.expect("all slots of a new arena are free");
    let mut recovery = Recovery { opening, file, head, files: HashMap::new(), buffer: Some(one) };
    let (live, next_number) = recovery.live()?;
    copy.truncate(page_bytes);
    let mut page = recovery.buffer.take().expect("put back by every read");
    page.truncate(page_bytes);
    recovery.buffer = Some(page);
    let mut spare = Some(copy);
    let (mut repaired, mut lost) = (0, 0);
    for (place, copies) in &live {
        match recovery.mend(place, copies, &mut spare)? {
            Mended::Fine => {}
            Mended::Repaired => repaired += 1,
            Mended::Lost => lost += 1,
        }
    }
    // [DBR-3] Also files with nothing to repair: if only the process has crashed, its writes are complete in the
    // kernel's page cache and may still be torn on their way to the disk.
    for file in recovery.files.values().flatten() {
        io.submit(Request::sync_data(file)).wait().result?;
    }
    Ok(Recovered { repaired, lost, next_number, file: Some((recovery.file, Some(head))) })
}

const ENOENT: i32 = 2;

/// A name that refers to nothing (a broken link) exists nevertheless.
fn is_there(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

fn read_head(file: &File, io: &Io) -> Result<Option<Head>, Error> {
    let bytes = HEADER_BYTES.max(file.alignment().offset as usize);
    let arena = Arena::new(1, bytes)?;
    let lease = arena.take().expect("a new arena has a free slot");
    let done = io.submit(Request::read(file, 0, vec![lease])).wait();
    match done.result {
        Err(IoError::PastEnd { .. }) => return Ok(None),
        result => result?,
    }
    match Head::decode(&done.leases[0][..HEADER_BYTES]) {
        HeadFound::Head(head) => Ok(Some(head)),
        HeadFound::Nothing => Ok(None),
        HeadFound::Other => Err(Error::DoubleWrite { file: file.path().into() }),
    }
}

enum Mended {
    Fine,
    Repaired,
    Lost,
}

struct Recovery<'a> {
    opening: &'a Opening<'a>,
    /// The double-write file.
    file: File,
    head: Head,
    /// Files examined so far, by path; `None` for those that do not exist.
    files: HashMap<PathBuf, Option<File>>,
    /// The read buffer; put back by each read.
    buffer: Option<Lease>,
}

impl Recovery<'_> {
    /// Every live slot, by page, the newest first; and the number for the next group.
    fn live(&mut self) -> Result<(BTreeMap<Place, Vec<SavedCopy>>, u64), Error> {
        let mut headers = Vec::new();
        for group in 0..GROUPS {
            let mut buffer = self.buffer.take().expect("put back by every read");
            buffer.truncate(self.head.header_bytes as usize);
            let (buffer, result) = self.read(&self.file, self.head.group_offset(group), buffer);
            let found = match result {
                Ok(()) => GroupHeader::decode(&buffer[..HEADER_BYTES]),
                // It was truncated, or this part of the disk is unreadable: no group.
                Err(IoError::PastEnd { .. } | IoError::Io { source: OsError::EIO, .. }) => None,
                Err(error) => return Err(error.into()),
            };
            self.buffer = Some(buffer);
            headers.extend(
                found.filter(|(it, _)| {
                    it.group == group as u32 && it.number >= self.head.first_number
                }),
            );
        }
        let newest = headers.iter().max_by_key(|(it, _)| it.number);
        let next_number = newest.map_or(self.head.first_number, |(it, _)| it.number + 1);
        let Some(Table(table)) = newest.map(|(it, _)| it.table) else {
            return Ok((BTreeMap::new(), next_number));
        };
        let mut live: BTreeMap<Place, Vec<SavedCopy>> = BTreeMap::new();
        for (header, entries) in headers {
            let group = header.group as usize;
            let (number, mask) = table[group];
            // [DWR-2] A slot that is not in the newest header holds nothing.
            if number != header.number {
                continue;
            }
            if mask != 0 && header.segment_bytes != 0 {
                return Err(Error::DoubleWrite { file: self.file.path().into() });
            }
            let checksum = Checksum::Crc32c { offset: header.checksum_offset as usize };
            if checksum.check_setting(self.head.page_bytes as usize).is_err() {
                continue;
            }
            for (slot, Entry { block, sum }) in entries.into_iter().enumerate() {
                if mask & 1 << slot != 0 {
                    let place = (header.name.clone(), block);
                    let copy = SavedCopy { number, group, slot, sum, checksum };
                    live.entry(place).or_default().push(copy);
                }
            }
        }
        for copies in live.values_mut() {
            copies.sort_unstable_by_key(|copy| std::cmp::Reverse(copy.number));
        }
        Ok((live, next_number))
    }

    /// Checks one page in its file, and repairs it if needed from one of `copies`.
    fn mend(
        &mut self,
        place: &Place,
        copies: &[SavedCopy],
        spare: &mut Option<Lease>,
    ) -> Result<Mended, Error> {
        let (name, block) = place;
        let Some((path, offset)) = self.locate(name, *block) else {
            return Ok(Mended::Fine);
        };
        let Some(file) = self.open(&path)? else {
            return Ok(Mended::Fine);
        };
        let buffer = self.buffer.take().expect("put back by every read");
        let (buffer, result) = self.read(&file, offset, buffer);
        let good = match result {
            // [DBR-1] A page of zeroes verifies.
            Ok(()) => copies[0].checksum.verify(&buffer, *block, ZeroPages::Accept).is_ok(),
            Err(IoError::PastEnd { .. }) => true,
            // A sector that was being written during the power cut may be unreadable.
            Err(IoError::Io { source: OsError::EIO, .. }) => false,
            Err(error) => return Err(error.into()),
        };
        self.buffer = Some(buffer);
        if good {
            return Ok(Mended::Fine);
        }
        // [DBR-2]
        for copy in copies {
            let lease = spare.take().expect("put back below");
            let at = self.head.slot_offset(copy.group, copy.slot);
            let (lease, result) = self.read(&self.file, at, lease);
            if result.is_ok() && is_good(copy, &lease, *block) {
                let mut done =
                    self.opening.sync_io.execute(Request::write(&file, offset, vec![lease]));
                *spare = done.leases.pop();
                done.result?;
                tracing::warn!(file = %path.display(), block, "a torn page was repaired");
                return Ok(Mended::Repaired);
            }
            *spare = Some(lease);
        }
        tracing::error!(file = %path.display(), block, "a damaged page has no good copy");
        Ok(Mended::Lost)
    }

    /// The file of a block, and the offset there. `None` for a name that points outside the directory.
    fn locate(&self, name: &str, block: Block) -> Option<(PathBuf, u64)> {
        let plain = |part| matches!(part, Component::Normal(_));
        let is_inside = !name.is_empty() && Path::new(name).components().all(plain);
        let offset = u64::from(block) * u64::from(self.head.page_bytes);
        is_inside.then(|| (self.opening.directory.join(name), offset))
    }

    /// The file at `path`, opened once; `None` if it no longer exists.
    fn open(&mut self, path: &Path) -> Result<Option<File>, Error> {
        if let Some(known) = self.files.get(path) {
            return Ok(known.clone());
        }
        let options = OpenOptions::new().cache(self.opening.cache);
        let opened = match self.opening.volume.open(path, &options) {
            Ok(file) => Some(file),
            Err(IoError::Open { source, .. }) if source.raw() == ENOENT => None,
            Err(error) => return Err(error.into()),
        };
        self.files.insert(path.to_owned(), opened.clone());
        Ok(opened)
    }

    /// Fills `lease` from `offset` of `file`.
    fn read(&self, file: &File, offset: u64, lease: Lease) -> (Lease, Result<(), IoError>) {
        let mut done = self.opening.sync_io.execute(Request::read(file, offset, vec![lease]));
        (done.leases.pop().expect("a request gives its leases back"), done.result)
    }
}

/// True if the slot holds exactly what its header says.
fn is_good(copy: &SavedCopy, page: &[u8], block: Block) -> bool {
    let Checksum::Crc32c { offset } = copy.checksum else {
        return false;
    };
    let sum = page[offset..].first_chunk().map(|sum| u32::from_le_bytes(*sum));
    sum == Some(copy.sum) && copy.checksum.verify(page, block, ZeroPages::Refuse).is_ok()
}
