//! The page table of one file: which frame holds which block.
//!
//! An array from block to frame, cut into chunks that are made when a block in them is first asked
//! for, with a directory of the chunks. A lookup is three dependent loads, of which the first two are
//! nearly always in the processor's nearest cache; there is no hash, no lock and nothing to compare.
//!
//! A directory that has become too small is replaced by a larger one. Lookups may still be in the old
//! one, so it is kept until the table goes; as directories at least double, all the old ones together
//! are no larger than the present one. A lookup in an old one can only miss a newer chunk, and
//! whoever misses goes on to `entry`, which looks under the lock.
//!
//! An entry is a hint with two promises: a page that is resident or on its way in has its entry, and the frame
//! that an entry leads to has been given to no other page. So an entry may lead to a frame that has lost the
//! page a moment ago, but one that still leads to a frame with a page in it leads to this page.
//!
//! Invariants:  [TAB-1] one block has one frame: an entry goes from empty to a frame and back, never
//!              from frame to frame   [TAB-2] directories and chunks live as long as the table
//!              [TAB-3] while a page is unsaved and not latched exclusively, its chunk counts it
//!              [TAB-4] a page's entry is empty before its frame is another page's
//! Memory:      4 bytes a page, taken 512 pages at a time, and 20 to 44 bytes a chunk; 80 more where
//!              images are remembered. A chunk more for each table, which stands for those that are not there.
//! Rejected:    a partitioned hash table: see docs/adr/0006-page-table.md for the figures.
#![expect(unsafe_code, reason = "chunks that are read without a lock")]

use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::AtomicPtr;

use crate::cache::frame::{FrameIndex, NO_FRAME};
use crate::sync::{AtomicU32, Mutex, MutexGuard, Ordering, lock};
use crate::tag::Block;

const CHUNK_BITS: u32 = if cfg!(loom) { 1 } else { 9 };
const CHUNK_ENTRIES: usize = 1 << CHUNK_BITS;
/// Chunks in the first directory: 16 MiB of pages of 8 KiB.
const CHUNKS_MIN: usize = 4;

struct Chunk {
    entries: [Entry; CHUNK_ENTRIES],
    /// Pages of this chunk that are unsaved: dirty, or on their way out. A flush passes the others by.
    /// Too large for a moment after a page was saved ([TAB-3]).
    unsaved: AtomicU32,
    /// In a table made with images.
    images: Option<Box<Mutex<Images>>>,
}

/// Which pages of a chunk have had an image in the log since the redo point of that number.
struct Images {
    redo: u64,
    had: [u64; CHUNK_ENTRIES.div_ceil(64)],
}

/// Pointers to chunks, by chunk number; to the table's empty one where there is none yet, which spares every
/// lookup a look for it.
struct Directory {
    chunks: Box<[AtomicPtr<Chunk>]>,
}

/// Where one block is.
pub(crate) struct Entry {
    /// A frame number, or [`NO_FRAME`].
    frame: AtomicU32,
}

impl Entry {
    #[inline]
    pub(crate) fn frame(&self) -> FrameIndex {
        self.frame.load(Ordering::Acquire)
    }

    /// Leads to `frame` from now on; false if it leads somewhere already.
    #[must_use]
    pub(crate) fn list(&self, frame: FrameIndex) -> bool {
        // Release: whoever follows the entry finds the frame's tag. Who then looks at the file's
        // length needs a fence in between: see `file::resize`.
        self.frame.compare_exchange(NO_FRAME, frame, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// No longer leads to `frame`.
    pub(crate) fn unlist(&self, frame: FrameIndex) {
        let old = self.frame.compare_exchange(frame, NO_FRAME, Ordering::AcqRel, Ordering::Relaxed);
        assert!(old.is_ok(), "[TAB-1] frame {frame} leaves an entry that leads to {old:?}");
    }
}

/// Entries for every block that a file can have.
pub(crate) struct PageTable {
    /// The present directory; one of those in `owned`.
    directory: AtomicPtr<Directory>,
    /// A chunk in which no block has a frame; one of those in `owned`.
    empty: AtomicPtr<Chunk>,
    owned: Mutex<Owned>,
    images: bool,
}

/// What the pointers point to. Raw, because lookups read through them while this grows; made by
/// `Box::into_raw` and freed by the table's drop alone ([TAB-2]).
struct Owned {
    /// Oldest first.
    directories: Vec<*mut Directory>,
    chunks: Vec<*mut Chunk>,
}

// SAFETY: `Owned` is the owner of its boxes, which hold only atomics; what it points to may be
// dropped by any thread.
unsafe impl Send for Owned {}

impl PageTable {
    pub(crate) fn new() -> PageTable {
        let empty = Box::into_raw(Chunk::new(false));
        let first = Box::into_raw(Directory::new(CHUNKS_MIN, empty));
        PageTable {
            directory: AtomicPtr::new(first),
            empty: AtomicPtr::new(empty),
            owned: Mutex::new(Owned { directories: vec![first], chunks: vec![empty] }),
            images: false,
        }
    }

    /// As [`PageTable::new`]; with `images`, it remembers which pages have had one.
    pub(crate) fn with_images(images: bool) -> PageTable {
        let mut table = PageTable::new();
        table.images = images;
        table
    }

    #[inline]
    fn directory(&self) -> &Directory {
        // SAFETY: it points to a directory of `owned`, which lives as long as `self` ([TAB-2]), and
        // which nobody borrows mutably; Acquire makes what was stored in it before visible.
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

    /// The entry of `block`, to be read only; where there is none yet, one that is empty.
    #[inline]
    pub(crate) fn find(&self, block: Block) -> &Entry {
        let (number, entry) = Self::place(block);
        let chunk = match self.directory().get(number) {
            Some(chunk) => chunk,
            None => self.empty(),
        };
        &chunk.get().entries[entry]
    }

    #[cold]
    fn empty(&self) -> ChunkAt<'_> {
        ChunkAt(self.empty.load(Ordering::Relaxed), PhantomData)
    }

    /// The chunk of that number, if it has been made.
    fn chunk<'t>(&'t self, directory: &'t Directory, number: usize) -> Option<&'t Chunk> {
        let chunk = directory.get(number)?.get();
        (!ptr::eq(chunk, self.empty.load(Ordering::Relaxed))).then_some(chunk)
    }

    /// The entry of `block`, made if there is none yet.
    pub(crate) fn entry(&self, block: Block) -> &Entry {
        let (number, entry) = Self::place(block);
        let chunk = match self.chunk(self.directory(), number) {
            Some(chunk) => chunk,
            None => self.make(number),
        };
        &chunk.entries[entry]
    }

    #[cold]
    fn make(&self, number: usize) -> &Chunk {
        let mut owned = lock(&self.owned);
        if number >= self.directory().chunks.len() {
            self.grow(number, &mut owned);
        }
        let directory = self.directory();
        if self.chunk(directory, number).is_none() {
            let chunk = Box::into_raw(Chunk::new(self.images));
            owned.chunks.push(chunk);
            directory.chunks[number].store(chunk, Ordering::Release);
        }
        self.chunk(directory, number).expect("[TAB-2] a chunk that was made stays")
    }

    /// Replaces the directory by one that has a place for chunk `number`.
    fn grow(&self, number: usize, owned: &mut MutexGuard<'_, Owned>) {
        let larger =
            Directory::new((number + 1).next_power_of_two(), self.empty.load(Ordering::Relaxed));
        for (to, from) in larger.chunks.iter().zip(&self.directory().chunks) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        let larger = Box::into_raw(larger);
        owned.directories.push(larger);
        self.directory.store(larger, Ordering::Release);
    }

    /// Every listed block from `first` on, with its frame, in order; blocks listed meanwhile may
    /// be among them.
    pub(crate) fn listed_from(
        &self,
        first: Block,
    ) -> impl Iterator<Item = (Block, FrameIndex)> + '_ {
        self.listed_in(first, |_| true)
    }

    fn listed_in<'t>(
        &'t self,
        first: Block,
        which: impl Fn(&Chunk) -> bool + 't,
    ) -> impl Iterator<Item = (Block, FrameIndex)> + 't {
        let (first_chunk, _) = Self::place(first);
        // Under the lock, so that it is the newest directory: a chunk that is listed in before
        // this is not overlooked.
        let directory = {
            let _newest = lock(&self.owned);
            self.directory()
        };
        (first_chunk..directory.chunks.len())
            .filter_map(move |number| Some((number, self.chunk(directory, number)?)))
            .filter(move |(_, chunk)| which(chunk))
            .flat_map(|(number, chunk)| {
                // Chunk numbers come from block numbers, so this is one again.
                let base = (number << CHUNK_BITS) as Block;
                (base..=Block::MAX).zip(chunk.entries.iter())
            })
            .filter(move |(block, _)| *block >= first)
            .map(|(block, entry)| (block, entry.frame()))
            .filter(|(_, frame)| *frame != NO_FRAME)
    }

    /// A page that was saved is dirty now. Its entry is there.
    pub(crate) fn count_unsaved(&self, block: Block) {
        if let Some(chunk) = self.chunk(self.directory(), Self::place(block).0) {
            chunk.unsaved.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// A page that was unsaved is saved, or was thrown away.
    pub(crate) fn count_saved(&self, block: Block) {
        if let Some(chunk) = self.chunk(self.directory(), Self::place(block).0) {
            let before = chunk.unsaved.fetch_sub(1, Ordering::AcqRel);
            assert!(before > 0, "[TAB-3] more pages were saved than were dirty");
        }
    }

    /// Every listed block of the chunks that have unsaved pages, with its frame, in order.
    pub(crate) fn listed_beside_unsaved(&self) -> impl Iterator<Item = (Block, FrameIndex)> + '_ {
        self.listed_in(0, |chunk| chunk.unsaved.load(Ordering::Acquire) > 0)
    }

    /// Whether the page has had an image in the log since the redo point of that number.
    pub(crate) fn has_image(&self, block: Block, redo: u64) -> bool {
        self.images_of(block).is_some_and(|(images, entry)| {
            let images = lock(images);
            images.redo == redo && images.had[entry / 64] & 1 << (entry % 64) != 0
        })
    }

    /// The page has had an image in the log since that redo point. An older one than is known of says
    /// nothing about the newer.
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

    /// The pages from `first` on are cut off: what comes in their place has had no image.
    pub(crate) fn forget_images_from(&self, first: Block) {
        let (first_chunk, first_entry) = Self::place(first);
        let directory = {
            let _newest = lock(&self.owned);
            self.directory()
        };
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

    /// Bytes taken so far.
    pub(crate) fn memory_bytes(&self) -> usize {
        let owned = lock(&self.owned);
        let images = if self.images { size_of::<Mutex<Images>>() } else { 0 };
        // Directories double from the first on, so the present one counts for all before it.
        let places = 2 * self.directory().chunks.len() + 2 * owned.chunks.capacity();
        size_of::<PageTable>()
            + places * size_of::<usize>()
            + owned.chunks.len() * (size_of::<Chunk>() + images)
    }
}

impl Directory {
    fn new(chunks: usize, empty: *mut Chunk) -> Box<Directory> {
        let chunks = (0..chunks).map(|_| AtomicPtr::new(empty)).collect();
        Box::new(Directory { chunks })
    }

    #[inline]
    fn get(&self, number: usize) -> Option<ChunkAt<'_>> {
        let chunk = self.chunks.get(number)?.load(Ordering::Acquire);
        Some(ChunkAt(chunk, PhantomData))
    }
}

/// A pointer to a chunk. No reference yet: an `Option` of one would be looked at for null in every lookup.
struct ChunkAt<'t>(*const Chunk, PhantomData<&'t Chunk>);

impl<'t> ChunkAt<'t> {
    #[inline]
    fn get(self) -> &'t Chunk {
        // SAFETY: a chunk of the table that owns the directory too; both live as long as the table
        // ([TAB-2]), and a chunk is only ever shared.
        unsafe { &*self.0 }
    }
}

impl Drop for PageTable {
    fn drop(&mut self) {
        let mut owned = lock(&self.owned);
        let Owned { directories, chunks } = &mut *owned;
        for directory in directories.drain(..) {
            // SAFETY: made by `Box::into_raw`, once in the list, and nobody looks up any more.
            drop(unsafe { Box::from_raw(directory) });
        }
        for chunk in chunks.drain(..) {
            // SAFETY: as above.
            drop(unsafe { Box::from_raw(chunk) });
        }
    }
}

impl Chunk {
    fn new(images: bool) -> Box<Chunk> {
        let entries = std::array::from_fn(|_| Entry { frame: AtomicU32::new(NO_FRAME) });
        let none = || Images { redo: 0, had: [0; CHUNK_ENTRIES.div_ceil(64)] };
        let images = images.then(|| Box::new(Mutex::new(none())));
        Box::new(Chunk { entries, unsaved: AtomicU32::new(0), images })
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
    use std::collections::BTreeMap;

    #[test]
    fn tab_2_what_a_lookup_found_stays_while_the_directory_grows() {
        let table = PageTable::new();
        let early = table.entry(5);
        assert!(early.list(9));
        let far = if cfg!(miri) { 20_000 } else { 3_000_000 };
        for block in [2_000, 10_000, far] {
            assert!(table.entry(block).list(block));
        }
        assert_eq!(early.frame(), 9, "[TAB-2]");
        assert!(std::ptr::eq(early, table.entry(5)), "[TAB-2]");
        let listed: Vec<_> = table.listed_from(0).map(|(block, _)| block).collect();
        assert_eq!(listed, [5, 2_000, 10_000, far]);
    }

    #[test]
    #[should_panic(expected = "[TAB-1]")]
    fn tab_1_a_frame_leaves_only_its_own_entry() {
        let table = PageTable::new();
        assert!(table.entry(3).list(8));
        table.entry(3).unlist(9);
    }

    #[test]
    fn a_lookup_makes_nothing_and_a_touched_page_costs_little() {
        let table = PageTable::new();
        let empty = table.memory_bytes();
        assert_eq!(table.lookup(1_000_000), NO_FRAME);
        assert_eq!(table.memory_bytes(), empty);
        let pages = if cfg!(miri) { 1_500 } else { 100_000 };
        (0..pages).for_each(|block| assert!(table.entry(block).list(block)));
        let bytes = table.memory_bytes() - empty;
        assert!(bytes <= 8 * pages as usize, "{bytes} bytes for {pages} pages");
    }

    #[test]
    fn an_image_counts_for_its_redo_point_and_until_its_page_is_cut_off() {
        let table = PageTable::with_images(true);
        let blocks = [0, 63, 64, 511, 512, 1300];
        blocks.iter().for_each(|block| assert!(table.entry(*block).list(1)));
        assert!(!table.has_image(64, 3) && !table.has_image(9999, 3));
        blocks.iter().for_each(|block| table.note_image(*block, 3));
        assert!(blocks.iter().all(|block| table.has_image(*block, 3)));
        assert!(!table.has_image(65, 3) && !table.has_image(64, 2) && !table.has_image(64, 4));
        // Of another chunk only.
        table.note_image(1301, 4);
        assert!(table.has_image(1301, 4) && !table.has_image(1300, 4) && table.has_image(64, 3));
        // A writer that was slow: what it knows is of an older redo point.
        table.note_image(1302, 3);
        assert!(!table.has_image(1302, 3) && !table.has_image(1302, 4));
        table.forget_images_from(64);
        let had: Vec<bool> = blocks.iter().map(|block| table.has_image(*block, 3)).collect();
        assert_eq!(had, [true, true, false, false, false, false]);
        assert!(!table.has_image(1301, 4));
        let plain = PageTable::new();
        assert!(plain.entry(5).list(1));
        plain.note_image(5, 1);
        assert!(!plain.has_image(5, 1) && plain.memory_bytes() < table.memory_bytes());
    }

    proptest! {
        // Miri looks at each step of a few; the others run many.
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 256 }))]
        #[test]
        fn agrees_with_a_map(
            steps in prop::collection::vec((0_u32..3000, any::<bool>()), 1..200),
            from in 0_u32..3000,
        ) {
            let table = PageTable::new();
            let mut model = BTreeMap::new();
            for (step, (block, list)) in (0..).zip(steps) {
                if list {
                    let listed = table.entry(block).list(step);
                    prop_assert_eq!(listed, !model.contains_key(&block));
                    model.entry(block).or_insert(step);
                } else if let Some(frame) = model.remove(&block) {
                    table.entry(block).unlist(frame);
                }
                prop_assert_eq!(table.lookup(block), model.get(&block).copied().unwrap_or(NO_FRAME));
            }
            let listed: Vec<_> = table.listed_from(from).collect();
            let expected: Vec<_> = model.range(from..).map(|(b, f)| (*b, *f)).collect();
            prop_assert_eq!(listed, expected);
        }
    }
}
