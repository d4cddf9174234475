//! The page table of one file: which frame holds which block.
//!
//! An array from block to frame, cut into chunks that are made when a block in them is first asked
//! for. A lookup computes two positions and loads; there is no hash, no lock and nothing to compare.
//! Directories of chunks double in size, so that a small file has a small table and the largest
//! block number still has a place: directory 0 is chunk 0, directory k is chunks 2^(k-1)..2^k.
//!
//! An entry is a hint with one promise: a page that is resident or on its way in has its entry. An
//! entry may lead to a frame that has lost the page a moment ago; the frame's tag tells.
//!
//! Invariants:  [TAB-1] one block has one frame: an entry goes from empty to a frame and back, never
//!              from frame to frame
//! Memory:      4 bytes a page, taken 512 pages at a time.
//! Rejected:    a partitioned hash table: see docs/adr/0006-page-table.md for the figures.

use std::sync::OnceLock;

use crate::frame::FrameIndex;
use crate::sync::{AtomicU32, Ordering};
use crate::tag::Block;

const CHUNK_BITS: u32 = if cfg!(loom) { 1 } else { 9 };
const CHUNK_ENTRIES: usize = 1 << CHUNK_BITS;
/// Directories for 32 - `CHUNK_BITS` bits of chunk number.
const DIRECTORIES: usize = (Block::BITS - CHUNK_BITS + 1) as usize;

const EMPTY: u32 = 0;

type Directory = Box<[OnceLock<Box<Chunk>>]>;

struct Chunk {
    entries: [Entry; CHUNK_ENTRIES],
}

/// Where one block is.
pub(crate) struct Entry {
    /// Frame number plus one, or `EMPTY`.
    frame: AtomicU32,
}

impl Entry {
    #[inline]
    pub(crate) fn frame(&self) -> Option<FrameIndex> {
        self.frame.load(Ordering::Acquire).checked_sub(1)
    }

    /// Leads to `frame` from now on; false if it leads somewhere already.
    #[must_use]
    pub(crate) fn list(&self, frame: FrameIndex) -> bool {
        // SeqCst: whoever truncates a file sets its new length and then looks here; whoever loads
        // a page lists it here and then looks at the length. One of them has to see the other.
        self.frame.compare_exchange(EMPTY, frame + 1, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// No longer leads to `frame`.
    pub(crate) fn unlist(&self, frame: FrameIndex) {
        let old =
            self.frame.compare_exchange(frame + 1, EMPTY, Ordering::SeqCst, Ordering::Relaxed);
        assert!(old.is_ok(), "[TAB-1] frame {frame} leaves an entry that leads to {old:?}");
    }
}

/// Entries for every block that a file can have.
pub(crate) struct PageTable {
    directories: [OnceLock<Directory>; DIRECTORIES],
}

impl PageTable {
    pub(crate) fn new() -> PageTable {
        PageTable { directories: [const { OnceLock::new() }; DIRECTORIES] }
    }

    /// Directory, place in it, and place in the chunk.
    #[inline]
    fn place(block: Block) -> (usize, usize, usize) {
        let chunk = block >> CHUNK_BITS;
        let directory = (Block::BITS - chunk.leading_zeros()) as usize;
        let first = if directory == 0 { 0 } else { 1 << (directory - 1) };
        (directory, (chunk - first) as usize, block as usize % CHUNK_ENTRIES)
    }

    /// The frame that holds `block`, if it was ever asked for and has one.
    #[inline]
    pub(crate) fn lookup(&self, block: Block) -> Option<FrameIndex> {
        let (directory, chunk, entry) = Self::place(block);
        self.directories[directory].get()?[chunk].get()?.entries[entry].frame()
    }

    /// The entry of `block`, made if there is none yet.
    pub(crate) fn entry(&self, block: Block) -> &Entry {
        let (directory, chunk, entry) = Self::place(block);
        let chunks = self.directories[directory].get_or_init(|| {
            let count = if directory == 0 { 1 } else { 1 << (directory - 1) };
            (0..count).map(|_| OnceLock::new()).collect()
        });
        let chunk = chunks[chunk].get_or_init(Chunk::new);
        &chunk.entries[entry]
    }

    /// Every listed block from `first` on, with its frame, in order; blocks listed meanwhile may
    /// be among them.
    pub(crate) fn listed_from(
        &self,
        first: Block,
    ) -> impl Iterator<Item = (Block, FrameIndex)> + '_ {
        let (first_directory, _, _) = Self::place(first);
        let directories = self.directories.iter().enumerate().skip(first_directory);
        directories
            .filter_map(|(number, directory)| Some((number, directory.get()?)))
            .flat_map(|(number, directory)| {
                let base = if number == 0 { 0 } else { 1_usize << (number - 1) };
                (base..).zip(directory.iter())
            })
            .filter_map(|(number, chunk)| Some((number, chunk.get()?)))
            .flat_map(|(number, chunk)| {
                // Every chunk number has a place, so this fits in a block number.
                let base = (number << CHUNK_BITS) as Block;
                (base..=Block::MAX).zip(chunk.entries.iter())
            })
            .filter(move |(block, _)| *block >= first)
            .filter_map(|(block, entry)| Some((block, entry.frame()?)))
    }

    /// Bytes taken so far.
    pub(crate) fn memory_bytes(&self) -> usize {
        let directories = self.directories.iter().filter_map(OnceLock::get);
        let chunks = |directory: &Directory| directory.iter().filter(|c| c.get().is_some()).count();
        size_of::<PageTable>()
            + directories
                .map(|one| size_of_val(&**one) + chunks(one) * size_of::<Chunk>())
                .sum::<usize>()
    }
}

impl Chunk {
    fn new() -> Box<Chunk> {
        let entries = std::array::from_fn(|_| Entry { frame: AtomicU32::new(EMPTY) });
        Box::new(Chunk { entries })
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
    fn every_block_number_has_a_place_of_its_own() {
        let edges = [0, 1, 511, 512, 1023, 1024, 2047, 2048, 1 << 20, u32::MAX - 1, u32::MAX];
        let places: std::collections::BTreeSet<_> = edges.map(PageTable::place).into();
        assert_eq!(places.len(), edges.len());
        for block in edges {
            let (directory, chunk, entry) = PageTable::place(block);
            let size = if directory == 0 { 1 } else { 1 << (directory - 1) };
            assert!(directory < DIRECTORIES && chunk < size && entry < CHUNK_ENTRIES);
        }
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
        assert_eq!(table.lookup(1_000_000), None);
        assert_eq!(table.memory_bytes(), empty);
        (0..100_000).for_each(|block| assert!(table.entry(block).list(block)));
        let bytes = table.memory_bytes() - empty;
        assert!(bytes <= 8 * 100_000, "{bytes} bytes for 100,000 pages");
    }

    proptest! {
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
                prop_assert_eq!(table.lookup(block), model.get(&block).copied());
            }
            let listed: Vec<_> = table.listed_from(from).collect();
            let expected: Vec<_> = model.range(from..).map(|(b, f)| (*b, *f)).collect();
            prop_assert_eq!(listed, expected);
        }
    }
}
