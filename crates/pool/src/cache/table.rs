//! The page table of one file: which frame holds which block.
//!
//! An array from block to frame, split into chunks that are created when a block in them is first requested, with a
//! directory of the chunks. A lookup is three dependent loads, of which the first two are nearly always in the
//! processor's nearest cache; there is no hash, no lock and nothing to compare.
//!
//! A directory that has become too small is replaced by a larger one. Lookups may still use the old one, so it is kept
//! until the table is dropped; as directories at least double, all the old ones together are no larger than the current
//! one. A lookup in an old one can only miss a newer chunk, and a lookup that misses continues with `entry`, which
//! looks under the lock.
//!
//! An entry is a hint with two guarantees: a page that is resident or loading has its entry, and the frame that an
//! entry points to has not been given to another page. So an entry may point to a frame that has just lost its page,
//! but an entry that still points to a frame with a page in it points to this page.
//!
//! A scan of a huge file leaves chunks without any mapped page. Their entries stay at their addresses, because a lookup
//! may be using them at any moment, and read as "no frame" from then on; the memory behind them is returned to the
//! system. See docs/adr/0023-memory-given-back.md.
//!
//! Invariants:  [TAB-1] one block has one frame: an entry goes from empty to a frame and back, never
//!              from frame to frame   [TAB-2] directories and chunks live as long as the table
//!              [TAB-3] while a page is unsaved and not latched exclusively, its chunk counts it
//!              [TAB-4] a page's entry is empty before its frame is another page's
//!              [TAB-5] memory is returned only while no entry in it points anywhere, and no thread maps a page in it
//! Memory:      4 bytes per page, allocated and returned 1024 pages at a time; 48 to 80 bytes per chunk that stay, 150
//!              more where images are recorded.
//! Rejected:    a partitioned hash table: see docs/adr/0006-page-table.md for the figures.
#![expect(unsafe_code, reason = "chunks that are read without a lock")]

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::AtomicPtr;

use forebay_io::Mapping;

use crate::cache::frame::{FrameIndex, NO_FRAME};
use crate::sync::{AtomicU32, Mutex, MutexGuard, Ordering, lock, yield_now};
use crate::tag::Block;

/// The entries of a chunk take 4 KiB: a page of most systems. Where pages are larger, no memory is returned.
const CHUNK_BITS: u32 = if cfg!(loom) { 1 } else { 10 };
const CHUNK_ENTRIES: usize = 1 << CHUNK_BITS;
const CHUNK_BYTES: usize = size_of::<Entries>();
/// Chunks in the first directory: 16 MiB of pages of 8 KiB.
const CHUNKS_MIN: usize = 2;
/// Chunks whose entries share one mapping: at least, and at most.
const MAPPING_CHUNKS_MIN: usize = 16;
const MAPPING_CHUNKS_MAX: usize = 256;
/// The memory of this many chunks may be idle, or of one in [`IDLE_PART`] of the existing ones if that is more, which
/// is about the size of the rest of the table.
const IDLE_MIN: usize = if cfg!(any(loom, shuttle, miri)) { 1 } else { 64 };
const IDLE_PART: usize = 64;
/// Entries are the model's own there, and returned memory is overwritten.
const MODELLED: bool = cfg!(any(loom, shuttle, miri));

/// In a chunk's count of entries: there may be memory behind them.
const BACKED: u32 = 1 << 30;
/// Likewise: the memory is being returned. A thread that maps a page there waits.
const GOING: u32 = 1 << 31;

type Entries = [Entry; CHUNK_ENTRIES];

struct Chunk {
    /// The address of its entries.
    entries: *mut Entries,
    /// Their mapping; `None` if they are a `Box` of the chunk's own, which stays.
    mapping: Option<Arc<Mapping>>,
    /// Entries that point to a frame, or are about to, or did a moment ago; [`BACKED`] and [`GOING`].
    mapped: AtomicU32,
    /// Pages of this chunk that are unsaved: dirty, or being written. A flush skips the other chunks. Briefly too large
    /// after a page was saved ([TAB-3]).
    unsaved: AtomicU32,
    /// In a table created with images.
    images: Option<Box<Mutex<Images>>>,
}

/// Which pages of a chunk have had an image in the log since the redo point of this number.
struct Images {
    redo: u64,
    had: [u64; CHUNK_ENTRIES.div_ceil(64)],
}

/// The chunks, by chunk number.
struct Directory {
    /// Their entries, for lookups; where there is no chunk yet, the shared empty entries, which saves every lookup a
    /// check.
    entries: Box<[AtomicPtr<Entries>]>,
    /// Null where there is none. Stored after its entries.
    chunks: Box<[AtomicPtr<Chunk>]>,
}

/// The location of one block.
pub(crate) struct Entry {
    /// A frame number, or [`NO_FRAME`].
    frame: AtomicU32,
}

impl Entry {
    #[inline]
    pub(crate) fn frame(&self) -> FrameIndex {
        self.frame.load(Ordering::Acquire)
    }
}

/// The entry of one block, for changes.
#[derive(Clone, Copy)]
pub(crate) struct Place<'t> {
    table: &'t PageTable,
    chunk: &'t Chunk,
    entry: &'t Entry,
}

impl Place<'_> {
    pub(crate) fn frame(&self) -> FrameIndex {
        self.entry.frame()
    }

    /// Sets the entry to `frame`; false if it already points somewhere.
    #[must_use]
    pub(crate) fn map(&self, frame: FrameIndex) -> bool {
        self.chunk.count_mapped();
        // Release: a thread that follows the entry sees the frame's tag. One that then checks the file's length needs a
        // fence in between: see `file::resize`.
        let entry = &self.entry.frame;
        let old = entry.compare_exchange(NO_FRAME, frame, Ordering::AcqRel, Ordering::Relaxed);
        if old.is_err() {
            // The next thread to empty a chunk reports the result.
            self.count_unmapped();
        }
        old.is_ok()
    }

    /// Clears the entry, which pointed to `frame`. True when there is enough idle memory that some should be returned.
    pub(crate) fn unmap(&self, frame: FrameIndex) -> bool {
        let entry = &self.entry.frame;
        let old = entry.compare_exchange(frame, NO_FRAME, Ordering::AcqRel, Ordering::Relaxed);
        assert!(old.is_ok(), "[TAB-1] frame {frame} leaves an entry that leads to {old:?}");
        self.count_unmapped()
    }

    fn count_unmapped(&self) -> bool {
        // Release: a thread that returns the memory finds the entry empty ([TAB-5]).
        let before = self.chunk.mapped.fetch_sub(1, Ordering::AcqRel);
        before == BACKED | 1 && self.chunk.can_go() && self.table.count_emptied()
    }
}

/// Entries for every block that a file can have.
pub(crate) struct PageTable {
    /// The current directory; one of those in `owned`.
    directory: AtomicPtr<Directory>,
    /// Entries that point nowhere, and are never written.
    empty: AtomicPtr<Entries>,
    owned: Mutex<TableMemory>,
    images: bool,
    /// How often the last entry of a chunk was emptied since memory was returned: an upper bound of the chunks that
    /// could be returned. In a `Box`, as misses write it, and hits read the adjacent data.
    emptied: Box<AtomicU32>,
}

/// The targets of the pointers. Raw, because lookups read through them while this grows; created by `Box::into_raw` and
/// freed only when the table is dropped ([TAB-2]). The newest directory refers to all chunks.
struct TableMemory {
    /// Oldest first.
    directories: Vec<*mut Directory>,
    chunks: usize,
    /// The mapping for the entries of the next chunks, and how many bytes of it are taken.
    mapping: Option<(Arc<Mapping>, usize)>,
}

// SAFETY: `TableMemory` is the owner of its boxes, which hold only atomics; what it points to may be
// dropped by any thread.
unsafe impl Send for TableMemory {}

impl TableMemory {
    /// Memory for the entries of a chunk, all of which point nowhere.
    fn entries(&mut self, number: usize) -> (*mut Entries, Option<Arc<Mapping>>) {
        // The first chunk, the only one of a small file, costs no mapping.
        if number == 0 {
            return (Box::into_raw(no_entries()), None);
        }
        if self.mapping.as_ref().is_none_or(|(mapping, taken)| *taken == mapping.len()) {
            let chunks = self.chunks.clamp(MAPPING_CHUNKS_MIN, MAPPING_CHUNKS_MAX);
            self.mapping = map_memory(chunks * CHUNK_BYTES).map(|it| (Arc::new(it), 0));
        }
        let Some((mapping, taken)) = &mut self.mapping else {
            return (Box::into_raw(no_entries()), None);
        };
        // SAFETY: a mapping consists of whole chunks, and this one has not been taken.
        let entries = unsafe { mapping.start().add(*taken) };
        *taken += CHUNK_BYTES;
        (entries.cast().as_ptr(), Some(Arc::clone(mapping)))
    }
}

fn no_entries() -> Box<Entries> {
    Box::new(std::array::from_fn(|_| Entry { frame: AtomicU32::new(NO_FRAME) }))
}

/// Entries that point nowhere: shared by all tables, and never freed.
#[cfg(not(any(loom, shuttle)))]
fn empty_entries() -> *mut Entries {
    static EMPTY: Entries = [const { Entry { frame: AtomicU32::new(NO_FRAME) } }; CHUNK_ENTRIES];
    (&raw const EMPTY).cast_mut()
}

/// A model has no state that outlives it.
#[cfg(any(loom, shuttle))]
fn empty_entries() -> *mut Entries {
    Box::into_raw(no_entries())
}

/// Memory that is all ones, each four bytes of which are [`NO_FRAME`], also after it has been returned. `None` where
/// that is not possible.
#[cfg(all(target_os = "linux", not(any(loom, shuttle, miri))))]
fn map_memory(bytes: usize) -> Option<Mapping> {
    use std::fs::File;
    use std::io::Write as _;
    use std::sync::OnceLock;

    use rustix::fs::{MemfdFlags, memfd_create};

    /// The source of all copies. Created by the first table that has a second chunk.
    static ONES: OnceLock<Option<File>> = OnceLock::new();
    let ones = ONES.get_or_init(|| {
        let file = memfd_create(c"forebay-no-frame", MemfdFlags::CLOEXEC)
            .map_err(std::io::Error::from)
            .and_then(|file| {
                let mut file = File::from(file);
                file.write_all(&vec![0xff; MAPPING_CHUNKS_MAX * CHUNK_BYTES])?;
                Ok(file)
            });
        file.inspect_err(|error| tracing::debug!(%error, "page tables keep their memory")).ok()
    });
    let mapping = Mapping::private(ones.as_ref()?, bytes);
    mapping.inspect_err(|error| tracing::debug!(%error, "a page table keeps its memory")).ok()
}

#[cfg(not(all(target_os = "linux", not(any(loom, shuttle, miri)))))]
fn map_memory(_bytes: usize) -> Option<Mapping> {
    None
}

impl PageTable {
    pub(crate) fn new() -> PageTable {
        let empty = empty_entries();
        let first = Box::into_raw(Directory::new(CHUNKS_MIN, empty));
        PageTable {
            directory: AtomicPtr::new(first),
            empty: AtomicPtr::new(empty),
            owned: Mutex::new(TableMemory { directories: vec![first], chunks: 0, mapping: None }),
            images: false,
            emptied: Box::new(AtomicU32::new(0)),
        }
    }

    /// As [`PageTable::new`]; with `images`, it records which pages have had one.
    pub(crate) fn with_images(images: bool) -> PageTable {
        let mut table = PageTable::new();
        table.images = images;
        table
    }

    #[inline]
    fn directory(&self) -> &Directory {
        // SAFETY: it points to a directory of `owned`, which lives as long as `self` ([TAB-2]), and which is never
        // borrowed mutably; Acquire makes what was stored in it before visible.
        unsafe { &*self.directory.load(Ordering::Acquire) }
    }

    #[inline]
    fn place(block: Block) -> (usize, usize) {
        ((block >> CHUNK_BITS) as usize, block as usize % CHUNK_ENTRIES)
    }

    /// The frame that holds `block`; [`NO_FRAME`] if it has none.
    #[inline]
    pub(crate) fn lookup(&self, block: Block) -> FrameIndex {
        self.find(block).frame()
    }

    /// The entry of `block`, for reading only; where there is none yet, an empty one.
    #[inline]
    pub(crate) fn find(&self, block: Block) -> &Entry {
        let (number, entry) = Self::place(block);
        let entries = match self.directory().get(number) {
            Some(entries) => entries,
            None => self.empty(),
        };
        &entries.get()[entry]
    }

    #[cold]
    fn empty(&self) -> EntriesAt<'_> {
        EntriesAt(self.empty.load(Ordering::Relaxed), PhantomData)
    }

    /// The chunk of that number, if it exists.
    fn chunk<'t>(&'t self, directory: &'t Directory, number: usize) -> Option<&'t Chunk> {
        let chunk = directory.chunks.get(number)?.load(Ordering::Acquire);
        // SAFETY: null, or a chunk of this table, which lives as long as the table ([TAB-2]) and is only ever shared.
        unsafe { chunk.as_ref() }
    }

    /// The entry of `block`, created if there is none yet.
    pub(crate) fn entry(&self, block: Block) -> Place<'_> {
        let (number, entry) = Self::place(block);
        let chunk = match self.chunk(self.directory(), number) {
            Some(chunk) => chunk,
            None => self.make(number),
        };
        Place { table: self, chunk, entry: &chunk.entries()[entry] }
    }

    #[cold]
    fn make(&self, number: usize) -> &Chunk {
        let mut owned = lock(&self.owned);
        if number >= self.directory().chunks.len() {
            self.grow(number, &mut owned);
        }
        let directory = self.directory();
        if self.chunk(directory, number).is_none() {
            let (entries, mapping) = owned.entries(number);
            owned.chunks += 1;
            let chunk = Box::into_raw(Chunk::new(entries, mapping, self.images));
            // In this order: lookups find what a thread maps in a chunk that it finds.
            directory.entries[number].store(entries, Ordering::Release);
            directory.chunks[number].store(chunk, Ordering::Release);
        }
        self.chunk(directory, number).expect("[TAB-2] a chunk that was made stays")
    }

    /// Replaces the directory by one that has room for chunk `number`.
    fn grow(&self, number: usize, owned: &mut MutexGuard<'_, TableMemory>) {
        let larger =
            Directory::new((number + 1).next_power_of_two(), self.empty.load(Ordering::Relaxed));
        let present = self.directory();
        for (to, from) in larger.entries.iter().zip(&present.entries) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        for (to, from) in larger.chunks.iter().zip(&present.chunks) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        let larger = Box::into_raw(larger);
        owned.directories.push(larger);
        self.directory.store(larger, Ordering::Release);
    }

    /// The last entry of a chunk was emptied. True when that happened often enough that memory should be returned.
    fn count_emptied(&self) -> bool {
        self.emptied.fetch_add(1, Ordering::Relaxed);
        self.is_idle()
    }

    /// True if there may be enough idle memory that some should be returned.
    pub(crate) fn is_idle(&self) -> bool {
        let most = IDLE_MIN.max(self.directory().chunks.len() / IDLE_PART);
        self.emptied.load(Ordering::Relaxed) as usize >= most
    }

    /// Returns the memory of up to `most` chunks in which no block is mapped. True if there may be more of them.
    /// Lookups are unaffected; a thread that maps a page in one of those chunks waits for one system call.
    pub(crate) fn give_back(&self, most: usize) -> bool {
        self.emptied.store(0, Ordering::Relaxed);
        let directory = self.newest();
        let chunks = (0..directory.chunks.len()).filter_map(|it| self.chunk(directory, it));
        let more = chunks.filter(|chunk| chunk.give_back()).take(most).count() == most;
        if more {
            self.emptied.store(u32::MAX / 2, Ordering::Relaxed);
        }
        more
    }

    /// The newest directory: it contains every chunk in which a page was mapped before this call.
    fn newest(&self) -> &Directory {
        let _newest = lock(&self.owned);
        self.directory()
    }

    /// Every mapped block from `first` on, with its frame, in order; blocks mapped meanwhile may
    /// be among them.
    pub(crate) fn mapped_from(
        &self,
        first: Block,
    ) -> impl Iterator<Item = (Block, FrameIndex)> + '_ {
        self.mapped_in(first, |_| true)
    }

    fn mapped_in<'t>(
        &'t self,
        first: Block,
        which: impl Fn(&Chunk) -> bool + 't,
    ) -> impl Iterator<Item = (Block, FrameIndex)> + 't {
        let (first_chunk, _) = Self::place(first);
        let directory = self.newest();
        (first_chunk..directory.chunks.len())
            .filter_map(move |number| Some((number, self.chunk(directory, number)?)))
            // Returned memory is not touched. The count is raised before its entry is written, and serves as well here.
            .filter(move |(_, chunk)| chunk.has_mapped() && which(chunk))
            .flat_map(|(number, chunk)| {
                // Chunk numbers come from block numbers, so this is a block number again.
                let base = (number << CHUNK_BITS) as Block;
                (base..=Block::MAX).zip(chunk.entries().iter())
            })
            .filter(move |(block, _)| *block >= first)
            .map(|(block, entry)| (block, entry.frame()))
            .filter(|(_, frame)| *frame != NO_FRAME)
    }

    /// A page that was saved is dirty now. Its entry exists.
    pub(crate) fn count_unsaved(&self, block: Block) {
        if let Some(chunk) = self.chunk(self.directory(), Self::place(block).0) {
            chunk.unsaved.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// A page that was unsaved is saved, or was discarded.
    pub(crate) fn count_saved(&self, block: Block) {
        if let Some(chunk) = self.chunk(self.directory(), Self::place(block).0) {
            let before = chunk.unsaved.fetch_sub(1, Ordering::AcqRel);
            assert!(before > 0, "[TAB-3] more pages were saved than were dirty");
        }
    }

    /// Every mapped block of the chunks that have unsaved pages, with its frame, in order.
    pub(crate) fn mapped_and_unsaved(&self) -> impl Iterator<Item = (Block, FrameIndex)> + '_ {
        self.mapped_in(0, |chunk| chunk.unsaved.load(Ordering::Acquire) > 0)
    }

    /// True if the page has had an image in the log since the redo point of that number.
    pub(crate) fn has_image(&self, block: Block, redo: u64) -> bool {
        self.images_of(block).is_some_and(|(images, entry)| {
            let images = lock(images);
            images.redo == redo && images.had[entry / 64] & 1 << (entry % 64) != 0
        })
    }

    /// Records that the page has had an image in the log since that redo point. An older redo point than the recorded
    /// one says nothing about the newer.
    pub(crate) fn note_image(&self, block: Block, redo: u64) {
        let Some((images, entry)) = self.images_of(block) else {
            return;
        };
        let mut images = lock(images);
        if images.redo < redo {
            *images = Images { redo, had: [0; CHUNK_ENTRIES.div_ceil(64)] };
        }
        if images.redo == redo {
            images.had[entry / 64] |= 1 << (entry % 64);
        }
    }

    /// The pages from `first` on are truncated: new pages in their place have had no image.
    pub(crate) fn forget_images_from(&self, first: Block) {
        let (first_chunk, first_entry) = Self::place(first);
        let directory = self.newest();
        for number in first_chunk..directory.chunks.len() {
            let Some(images) =
                self.chunk(directory, number).and_then(|chunk| chunk.images.as_deref())
            else {
                continue;
            };
            let keeps = if number == first_chunk { first_entry } else { 0 };
            let mut images = lock(images);
            (keeps..CHUNK_ENTRIES).for_each(|it| images.had[it / 64] &= !(1 << (it % 64)));
        }
    }

    fn images_of(&self, block: Block) -> Option<(&Mutex<Images>, usize)> {
        let (chunk, entry) = Self::place(block);
        Some((self.chunk(self.directory(), chunk)?.images.as_deref()?, entry))
    }

    /// Bytes in use now.
    pub(crate) fn memory_bytes(&self) -> usize {
        let owned = lock(&self.owned);
        let directory = self.directory();
        let images = if self.images { size_of::<Mutex<Images>>() } else { 0 };
        let backed = (0..directory.chunks.len())
            .filter_map(|number| self.chunk(directory, number))
            .filter(|chunk| chunk.mapping.is_none() || chunk.mapped.load(Ordering::Relaxed) != 0)
            .count();
        // Directories double from the first on, so the current one is as large as all before it together.
        let places = 4 * directory.chunks.len();
        size_of::<PageTable>()
            + places * size_of::<usize>()
            + owned.chunks * (size_of::<Chunk>() + images)
            + backed * CHUNK_BYTES
    }
}

impl Directory {
    fn new(chunks: usize, empty: *mut Entries) -> Box<Directory> {
        let entries = (0..chunks).map(|_| AtomicPtr::new(empty)).collect();
        let chunks = (0..chunks).map(|_| AtomicPtr::default()).collect();
        Box::new(Directory { entries, chunks })
    }

    #[inline]
    fn get(&self, number: usize) -> Option<EntriesAt<'_>> {
        let entries = self.entries.get(number)?.load(Ordering::Acquire);
        Some(EntriesAt(entries, PhantomData))
    }
}

/// A pointer to entries. No reference yet: an `Option` of one would be checked for null in every lookup.
struct EntriesAt<'t>(*const Entries, PhantomData<&'t Entries>);

impl<'t> EntriesAt<'t> {
    #[inline]
    fn get(self) -> &'t Entries {
        // SAFETY: entries of a chunk of the table that also owns the directory, which live as long as the table
        // ([TAB-2]), or the empty ones, which do as well; they are only ever shared.
        unsafe { &*self.0 }
    }
}

impl Drop for PageTable {
    fn drop(&mut self) {
        let mut owned = lock(&self.owned);
        for chunk in &self.directory().chunks {
            let chunk = chunk.load(Ordering::Relaxed);
            if !chunk.is_null() {
                // SAFETY: created by `Box::into_raw`, once in the newest directory, and lookups have ended.
                drop(unsafe { Box::from_raw(chunk) });
            }
        }
        for directory in owned.directories.drain(..) {
            // SAFETY: as above.
            drop(unsafe { Box::from_raw(directory) });
        }
        #[cfg(any(loom, shuttle))]
        // SAFETY: created by `empty_entries` for this table.
        drop(unsafe { Box::from_raw(self.empty.load(Ordering::Relaxed)) });
    }
}

impl Chunk {
    fn new(entries: *mut Entries, mapping: Option<Arc<Mapping>>, images: bool) -> Box<Chunk> {
        let none = || Images { redo: 0, had: [0; CHUNK_ENTRIES.div_ceil(64)] };
        let images = images.then(|| Box::new(Mutex::new(none())));
        let [mapped, unsaved] = [AtomicU32::new(0), AtomicU32::new(0)];
        Box::new(Chunk { entries, mapping, mapped, unsaved, images })
    }

    fn entries(&self) -> &Entries {
        // SAFETY: they live as long as the chunk, in its mapping or in its box, and are only ever shared.
        unsafe { &*self.entries }
    }

    fn has_mapped(&self) -> bool {
        self.mapped.load(Ordering::Acquire) & !(BACKED | GOING) > 0
    }

    /// A page is about to be mapped: makes sure that there is memory for it.
    fn count_mapped(&self) {
        let mut old = self.mapped.load(Ordering::Relaxed);
        loop {
            if old & GOING != 0 {
                // Lasts as long as a system call.
                yield_now();
                old = self.mapped.load(Ordering::Relaxed);
                continue;
            }
            // Acquire: after the memory was returned ([TAB-5]).
            let more = (old | BACKED) + 1;
            match self.mapped.compare_exchange(old, more, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => old = now,
            }
        }
    }

    /// True if its memory can be returned.
    fn can_go(&self) -> bool {
        self.mapping.is_some() || MODELLED
    }

    /// Returns the memory of its entries, if there is any and none of them points anywhere.
    fn give_back(&self) -> bool {
        let (from, to) = (BACKED, GOING);
        if !self.can_go()
            || self.mapped.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_err()
        {
            return false;
        }
        let unmapped = self.wipe();
        // As before if the system refused.
        self.mapped.store(if unmapped { 0 } else { BACKED }, Ordering::Release);
        unmapped
    }

    /// [TAB-5] is ensured by the caller, which has set [`GOING`].
    fn wipe(&self) -> bool {
        let Some(mapping) = &self.mapping else {
            // What the system does to all of them.
            self.entries().iter().for_each(|it| it.frame.store(NO_FRAME, Ordering::Relaxed));
            return true;
        };
        let first = self.entries.addr() - mapping.addresses().start;
        // SAFETY: atomics, all of which are `NO_FRAME` and not being written ([TAB-5]): so is their source.
        match unsafe { mapping.give_back(first..first + CHUNK_BYTES) } {
            Ok(bytes) => bytes > 0,
            Err(error) => {
                tracing::debug!(%error, "memory of a page table stays");
                false
            }
        }
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        if self.mapping.is_none() {
            // SAFETY: created by `Box::into_raw`, and owned by the chunk.
            drop(unsafe { Box::from_raw(self.entries) });
        }
    }
}

impl std::fmt::Debug for PageTable {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("PageTable").field("memory_bytes", &self.memory_bytes()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    #[test]
    fn tab_2_what_a_lookup_found_stays_while_the_directory_grows() {
        let table = PageTable::new();
        let early = table.entry(5);
        assert!(early.map(9));
        let far = if cfg!(miri) { 20_000 } else { 3_000_000 };
        for block in [2_000, 10_000, far] {
            assert!(table.entry(block).map(block));
        }
        assert_eq!(early.frame(), 9, "[TAB-2]");
        assert!(std::ptr::eq(early.entry, table.find(5)), "[TAB-2]");
        let mapped: Vec<_> = table.mapped_from(0).map(|(block, _)| block).collect();
        assert_eq!(mapped, [5, 2_000, 10_000, far]);
    }

    #[test]
    #[should_panic(expected = "[TAB-1]")]
    fn tab_1_a_frame_leaves_only_its_own_entry() {
        let table = PageTable::new();
        assert!(table.entry(3).map(8));
        table.entry(3).unmap(9);
    }

    #[test]
    fn a_lookup_makes_nothing_and_a_touched_page_costs_little() {
        let table = PageTable::new();
        let empty = table.memory_bytes();
        assert_eq!(table.lookup(1_000_000), NO_FRAME);
        assert_eq!(table.memory_bytes(), empty);
        let pages = if cfg!(miri) { 1_500 } else { 100_000 };
        (0..pages).for_each(|block| assert!(table.entry(block).map(block)));
        let bytes = table.memory_bytes() - empty;
        assert!(bytes <= 8 * pages as usize, "{bytes} bytes for {pages} pages");
    }

    #[test]
    fn an_image_counts_for_its_redo_point_and_until_its_page_is_cut_off() {
        let table = PageTable::with_images(true);
        let blocks = [0, 63, 64, 511, 512, 1300];
        blocks.iter().for_each(|block| assert!(table.entry(*block).map(1)));
        assert!(!table.has_image(64, 3) && !table.has_image(9999, 3));
        blocks.iter().for_each(|block| table.note_image(*block, 3));
        assert!(blocks.iter().all(|block| table.has_image(*block, 3)));
        assert!(!table.has_image(65, 3) && !table.has_image(64, 2) && !table.has_image(64, 4));
        // Of another chunk only.
        table.note_image(1301, 4);
        assert!(table.has_image(1301, 4) && !table.has_image(1300, 4) && table.has_image(64, 3));
        // A slow writer: what it knows belongs to an older redo point.
        table.note_image(1302, 3);
        assert!(!table.has_image(1302, 3) && !table.has_image(1302, 4));
        table.forget_images_from(64);
        let had: Vec<bool> = blocks.iter().map(|block| table.has_image(*block, 3)).collect();
        assert_eq!(had, [true, true, false, false, false, false]);
        assert!(!table.has_image(1301, 4));
        let plain = PageTable::new();
        assert!(plain.entry(5).map(1));
        plain.note_image(5, 1);
        assert!(!plain.has_image(5, 1) && plain.memory_bytes() < table.memory_bytes());
    }

    /// Chunks with memory that can be returned.
    fn backed_chunks(table: &PageTable) -> usize {
        let chunks =
            (0..).map_while(|it| Some(table.directory().chunks.get(it)?.load(Ordering::Acquire)));
        // SAFETY: as in `PageTable::chunk`.
        let chunks = chunks.filter_map(|it| unsafe { it.as_ref() });
        chunks.filter(|it| it.can_go() && it.mapped.load(Ordering::Acquire) != 0).count()
    }

    #[test]
    #[cfg_attr(not(target_os = "linux"), ignore = "no memory is given back")]
    fn tab_5_what_a_scan_leaves_is_given_back_a_part_at_a_time() {
        let (table, chunks) = (PageTable::new(), if cfg!(miri) { 40 } else { 10_000 });
        let blocks = || (1..=chunks).map(|chunk| chunk << CHUNK_BITS | 7);
        blocks().for_each(|block| assert!(table.entry(block).map(block)));
        assert!(!table.is_idle() && !table.give_back(usize::MAX), "all are in use");
        let full = table.memory_bytes();
        let kept = 3 << CHUNK_BITS | 7;
        let said = blocks().filter(|block| *block != kept && table.entry(*block).unmap(*block));
        assert!(said.count() as u32 >= chunks / 2 && table.is_idle());
        assert!(table.give_back(10) && table.is_idle(), "ten of them, and there are more");
        assert_eq!(full - table.memory_bytes(), 10 * CHUNK_BYTES);
        assert!(!table.give_back(usize::MAX) && !table.is_idle());
        let left = table.memory_bytes();
        assert_eq!(full - left, (chunks as usize - 1) * CHUNK_BYTES, "[TAB-5]");
        assert!(left <= 128 * chunks as usize + 4 * CHUNK_BYTES, "{left}");
        assert_eq!(table.mapped_from(0).collect::<Vec<_>>(), [(kept, kept)], "[TAB-5]");
        // And again.
        assert!(blocks().all(|block| block == kept || table.lookup(block) == NO_FRAME));
        assert!(blocks().filter(|it| *it != kept).all(|block| table.entry(block).map(block)));
        assert!(blocks().all(|block| table.lookup(block) == block));
        assert_eq!(table.memory_bytes(), full);
    }

    proptest! {
        // Miri runs only a few cases; the others run many.
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 256 }))]
        #[test]
        fn agrees_with_a_map(
            steps in prop::collection::vec((0_u32..6000, 0..3), 1..200),
            from in 0_u32..6000,
        ) {
            let table = PageTable::new();
            let mut model = BTreeMap::new();
            for (step, (block, what)) in (0..).zip(steps) {
                if what == 0 && step % 8 == 0 {
                    let most = block as usize % 3 + 1;
                    while table.give_back(most) {}
                    let chunks: BTreeSet<_> = model.keys().map(|it| PageTable::place(*it).0).collect();
                    let backed = chunks.into_iter().filter(|it| *it > 0 || MODELLED).count();
                    prop_assert_eq!(backed_chunks(&table), backed, "[TAB-5]");
                } else if what < 2 {
                    let mapped = table.entry(block).map(step);
                    prop_assert_eq!(mapped, !model.contains_key(&block));
                    model.entry(block).or_insert(step);
                } else if let Some(frame) = model.remove(&block) {
                    table.entry(block).unmap(frame);
                }
                prop_assert!(model.iter().all(|(block, frame)| table.lookup(*block) == *frame));
                prop_assert_eq!(table.lookup(block), model.get(&block).copied().unwrap_or(NO_FRAME));
            }
            let mapped: Vec<_> = table.mapped_from(from).collect();
            let expected: Vec<_> = model.range(from..).map(|(b, f)| (*b, *f)).collect();
            prop_assert_eq!(mapped, expected);
        }
    }
}
