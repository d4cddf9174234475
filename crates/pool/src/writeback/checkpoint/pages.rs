//! The pages of a checkpoint: recorded once, in reserved memory, and sorted there.
//!
//! A page is recorded as its tag, 8 bytes; the page table gives its frame when its turn comes, because it may have been
//! evicted until then. Deferred pages, and the pages of several tablespaces, need the same amount again, so a
//! checkpoint has 16 bytes for each possible frame of the pool, reserved when the pool is built: a checkpoint must not
//! fail for want of memory.
//!
//! Worked example: frames hold, in their order, pages 1/7, 0/3, 1/2, 0/4 (file/block), file 0 is in
//! tablespace `b` and file 1 in `a`, which was configured first. By place that is 1/2, 1/7, 0/3, 0/4: the range
//! of `a` is 0..2 and that of `b` 2..4.
//!
//! Invariants:  [CKP-2] nothing is allocated here once the pool is built
//!              [CPG-2] ranges follow one another and hold every page once
//!              [CPG-3] a page is taken once
//! Source:      the concerns in the discussion on sorted checkpoints (memory allocated at the wrong moment).

use std::ops::Range;

use crate::tag::{FileId, PageTag};

/// Set in the tag of a page that was taken. No file number is that high.
const TAKEN: u64 = 1 << 63;

/// Memory for the pages of a checkpoint.
#[derive(Debug)]
pub(super) struct SortBuffer {
    tags: Box<[u64]>,
    scratch: Box<[u64]>,
    ranges: Box<[Range<usize>]>,
    len: usize,
    /// Pages deferred in `scratch`, which is free once the pages are sorted.
    deferred: usize,
}

impl SortBuffer {
    pub(super) fn new(frames: usize, tablespaces: usize) -> SortBuffer {
        SortBuffer {
            tags: vec![0; frames].into(),
            scratch: vec![0; frames].into(),
            ranges: vec![0..0; tablespaces].into(),
            len: 0,
            deferred: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn clear(&mut self) {
        (self.len, self.deferred) = (0, 0);
    }

    /// Records a page; there is room for one per frame.
    pub(super) fn push(&mut self, tag: PageTag) {
        self.tags[self.len] = tag.to_bits() & !TAKEN;
        self.len += 1;
    }

    /// Replaces the pages by the deferred ones, for another round. Returns how many there are.
    pub(super) fn turn_to_deferred(&mut self) -> usize {
        std::mem::swap(&mut self.tags, &mut self.scratch);
        self.len = std::mem::take(&mut self.deferred);
        self.len
    }

    pub(super) fn pages<'a>(&'a mut self, tablespace_of: &'a dyn Fn(FileId) -> usize) -> Pages<'a> {
        Pages {
            tags: &mut self.tags[..self.len],
            scratch: &mut self.scratch,
            deferred: &mut self.deferred,
            ranges: &mut self.ranges,
            tablespace_of,
        }
    }
}

/// Bytes reserved for the checkpoints of a pool with `frames` frames: the pages, and the same amount again to group
/// them by tablespace and to defer some.
pub(crate) const fn checkpoint_bytes(frames: usize) -> usize {
    2 * size_of::<u64>() * frames
}

/// The pages that a checkpoint must write, in the order of their frames until they are sorted.
pub(super) struct Pages<'a> {
    tags: &'a mut [u64],
    scratch: &'a mut [u64],
    deferred: &'a mut usize,
    ranges: &'a mut [Range<usize>],
    tablespace_of: &'a dyn Fn(FileId) -> usize,
}

impl Pages<'_> {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.tags.len()
    }

    /// The page at `index`, which is less than [`Pages::len`].
    pub(super) fn get(&self, index: usize) -> PageTag {
        PageTag::from_bits(self.tags[index] & !TAKEN)
    }

    /// True for a page that exists and was not taken yet.
    pub(super) fn is_left(&self, index: usize) -> bool {
        self.tags.get(index).is_some_and(|tag| tag & TAKEN == 0)
    }

    /// Takes `count` pages from `first` on.
    pub(super) fn take(&mut self, first: usize, count: usize) {
        for tag in &mut self.tags[first..first + count] {
            assert!(*tag & TAKEN == 0, "[CPG-3] a page was taken twice");
            *tag |= TAKEN;
        }
    }

    /// The number of the tablespace of the page at `index`, in the order in which tablespaces were configured.
    pub(super) fn tablespace(&self, index: usize) -> usize {
        (self.tablespace_of)(self.get(index).file)
    }

    /// Tablespaces of the pool.
    pub(super) fn tablespaces(&self) -> usize {
        self.ranges.len()
    }

    /// Sorts by tablespace, then file, then block. Files are in the order in which they were opened.
    pub(super) fn sort_by_place(&mut self) {
        self.tags.sort_unstable();
        let mut counts_end = 0;
        if self.ranges.len() > 1 {
            self.gather_tablespaces();
            counts_end = self.ranges.last().map_or(0, |range| range.end);
        } else if let Some(range) = self.ranges.first_mut() {
            *range = 0..self.tags.len();
            counts_end = range.end;
        }
        assert_eq!(counts_end, self.tags.len(), "[CPG-2] a page is in no range");
    }

    /// Defers a page to a later round. Not before they are sorted: sorting uses the same memory.
    pub(super) fn defer(&mut self, tag: PageTag) {
        self.scratch[*self.deferred] = tag.to_bits();
        *self.deferred += 1;
    }

    /// Groups the pages by tablespace, keeping their order.
    fn gather_tablespaces(&mut self) {
        let of = self.tablespace_of;
        self.ranges.fill(0..0);
        for run in self.tags.chunk_by(|a, b| file(*a) == file(*b)) {
            self.ranges[of(file(run[0]))].end += run.len();
        }
        let mut start = 0;
        for range in self.ranges.iter_mut() {
            // Empty at first, to be filled.
            start += std::mem::replace(range, start..start).end;
        }
        for run in self.tags.chunk_by(|a, b| file(*a) == file(*b)) {
            let range = &mut self.ranges[of(file(run[0]))];
            self.scratch[range.end..range.end + run.len()].copy_from_slice(run);
            range.end += run.len();
        }
        self.tags.copy_from_slice(&self.scratch[..self.tags.len()]);
    }

    /// Where the pages of a tablespace are, once they are sorted by place.
    pub(super) fn range(&self, tablespace: usize) -> Range<usize> {
        self.ranges[tablespace].clone()
    }
}

fn file(tag: u64) -> FileId {
    PageTag::from_bits(tag).file
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tag(file: u32, block: u32) -> PageTag {
        PageTag { file: FileId(file), block }
    }

    #[test]
    fn the_worked_example_is_sorted_by_tablespace_first() {
        let mut buffer = SortBuffer::new(4, 2);
        [tag(1, 7), tag(0, 3), tag(1, 2), tag(0, 4)].into_iter().for_each(|it| buffer.push(it));
        let of = |file: FileId| usize::from(file == FileId(0));
        let mut pages = buffer.pages(&of);
        pages.sort_by_place();
        let sorted: Vec<PageTag> = (0..4).map(|index| pages.get(index)).collect();
        assert_eq!(sorted, [tag(1, 2), tag(1, 7), tag(0, 3), tag(0, 4)]);
        assert_eq!((pages.range(0), pages.range(1)), (0..2, 2..4));
        assert_eq!((pages.tablespace(1), pages.tablespace(2)), (0, 1));
    }

    #[test]
    fn deferred_pages_are_those_of_the_next_round() {
        let mut buffer = SortBuffer::new(3, 1);
        buffer.push(tag(0, 1));
        buffer.pages(&|_| 0).defer(tag(0, 9));
        assert_eq!(buffer.turn_to_deferred(), 1);
        assert_eq!(buffer.pages(&|_| 0).get(0), tag(0, 9));
        assert_eq!(buffer.turn_to_deferred(), 0);
    }

    proptest! {
        #[test]
        fn cpg_2_ranges_hold_every_page_once_in_order(
            given in prop::collection::vec((0_u32..6, 0_u32..1000), 0..200),
            tablespaces in 1_usize..4,
        ) {
            let mut buffer = SortBuffer::new(200, tablespaces);
            given.iter().for_each(|&(file, block)| buffer.push(tag(file, block)));
            let of = |file: FileId| file.get() as usize % tablespaces;
            let mut pages = buffer.pages(&of);
            pages.sort_by_place();
            let mut expected: Vec<_> = given
                .iter()
                .map(|&(file, block)| (of(FileId(file)), tag(file, block)))
                .collect();
            expected.sort_unstable();
            let found: Vec<_> =
                (0..pages.len()).map(|index| (pages.tablespace(index), pages.get(index))).collect();
            prop_assert_eq!(&found, &expected);
            let mut at = 0;
            for number in 0..tablespaces {
                let range = pages.range(number);
                prop_assert_eq!(range.start, at, "[CPG-2]");
                at = range.end;
                prop_assert!(found[range].iter().all(|(of, _)| *of == number), "[CPG-2]");
            }
            prop_assert_eq!(at, pages.len(), "[CPG-2]");
        }
    }
}
