//! Which pages a write-ahead log holds, from the wal-index that SQLite has mapped.
//!
//! SQLite keeps the list of the log's pages in shared memory, in regions of 32 KiB. Each region has a list of page
//! numbers and a hash table of positions in that list. SQLite maps the regions through its VFS, so through ours. They
//! are read here without a lock: a half-finished change may be seen, and then a request is wasted or missing. SQLite
//! does not read a log whose pages a checkpoint has copied completely.
//!
//! Concurrency: other processes write while this module reads, so each word is read as a separate atomic.
//! Failure:     if nothing is mapped (exclusive locking; a reader that may not write the shared memory, while there is
//!              no writer), no page counts as held.
//! Source:      sqlite.org/walformat.html.

#![expect(unsafe_code, reason = "the wal-index is memory that SQLite has mapped")]

use std::ffi::c_void;
use std::iter::repeat_n;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};

use crate::memory::{Grow, NoMemory};

/// Bytes of a region.
pub(crate) const REGION: usize = 32 << 10;
/// Offsets in the first region, in bytes: the header's count of frames, and its salts; the number of frames that a
/// checkpoint has copied; the list of page numbers, which in other regions begins at offset 0.
const FRAMES: usize = 16;
const SALTS: usize = 32;
const CARRIED_OVER: usize = 96;
const FIRST_LIST: usize = 136;
/// The offset of the hash table, and its number of slots.
const TABLE: usize = 16 << 10;
const SLOTS: usize = 8192;
const HASH: u32 = 383;

/// More than the frames of any log need: a frame number has 32 bits.
const REGIONS_MAX: usize = 1 << 20;

#[derive(Debug, Default)]
pub(crate) struct WalIndex {
    /// By number; `None` is not mapped yet. SQLite looks for a page from the last region down, and maps them in that
    /// order.
    regions: Vec<Option<*const c_void>>,
}

impl WalIndex {
    /// SQLite has mapped a region.
    ///
    /// # Safety
    /// `at` are `REGION` bytes, aligned to 4 and readable until `unmapped` is called.
    pub(crate) unsafe fn mapped(
        &mut self,
        region: usize,
        at: *const c_void,
    ) -> Result<(), NoMemory> {
        if region < REGIONS_MAX {
            let more = (region + 1).saturating_sub(self.regions.len());
            self.regions.grow_by(repeat_n(None, more))?;
            self.regions[region] = Some(at);
        }
        Ok(())
    }

    /// Maps an empty region permanently. Returns a function that sets its first salt.
    #[cfg(test)]
    pub(crate) fn mapped_for_test(&mut self) -> impl Fn(u32) + use<> {
        let region: &'static [AtomicU32] =
            Vec::leak((0..REGION / 4).map(|_| AtomicU32::new(0)).collect());
        // SAFETY: it has `REGION` bytes, aligned to 4, and is never freed.
        unsafe { self.mapped(0, region.as_ptr().cast()) }.unwrap();
        move |salt| region[SALTS / 4].store(salt, Ordering::Relaxed)
    }

    /// The regions are unmapped.
    pub(crate) fn unmapped(&mut self) {
        self.regions.clear();
    }

    /// Values that change when the log starts again.
    pub(crate) fn salts(&self) -> [u32; 2] {
        match self.regions.first().copied().flatten() {
            None => [0; 2],
            Some(first) => [word(first, SALTS), word(first, SALTS + 4)],
        }
    }

    /// Whether SQLite reads a page from the log.
    pub(crate) fn holds(&self, page: u32) -> bool {
        let Some(first) = self.regions.first().copied().flatten() else { return false };
        if word(first, CARRIED_OVER) >= word(first, FRAMES) {
            return false;
        }
        let list = |at: usize| if at == 0 { FIRST_LIST } else { 0 };
        let mut regions = self.regions.iter().enumerate();
        regions.any(|(at, region)| region.is_some_and(|region| listed(region, list(at), page)))
    }
}

fn listed(region: *const c_void, list: usize, page: u32) -> bool {
    let start = page.wrapping_mul(HASH) as usize;
    for slot in start..start + SLOTS {
        let place = usize::from(half_word(region, TABLE + slot % SLOTS * 2));
        let at = list + place.saturating_sub(1) * 4;
        if place == 0 || at >= TABLE {
            return false;
        }
        if word(region, at) == page {
            return true;
        }
    }
    false
}

fn word(region: *const c_void, at: usize) -> u32 {
    debug_assert!(at + 4 <= REGION && at.is_multiple_of(4), "within a region");
    // SAFETY: it lies in a mapped region (contract of `mapped`), aligned; all processes write whole words.
    unsafe { (*region.byte_add(at).cast::<AtomicU32>()).load(Ordering::Relaxed) }
}

fn half_word(region: *const c_void, at: usize) -> u16 {
    debug_assert!(at + 2 <= REGION && at.is_multiple_of(2), "within a region");
    // SAFETY: as above.
    unsafe { (*region.byte_add(at).cast::<AtomicU16>()).load(Ordering::Relaxed) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regions that list these pages as SQLite does: 4,062 in the first, 4,096 in each other.
    fn regions(pages: &[u32]) -> Vec<Vec<u32>> {
        let mut regions = vec![vec![0_u32; REGION / 4]];
        let mut list = FIRST_LIST;
        for (frame, &page) in pages.iter().enumerate() {
            if list == TABLE {
                regions.push(vec![0; REGION / 4]);
                list = 0;
            }
            let first = if regions.len() == 1 { FIRST_LIST } else { 0 };
            let region = regions.last_mut().unwrap();
            region[list / 4] = page;
            list += 4;
            let place = ((list - first) / 4) as u16;
            let mut slot = page.wrapping_mul(HASH) as usize % SLOTS;
            let half = |slot: usize| (TABLE / 4 + slot / 2, slot % 2 * 16);
            while region[half(slot).0] >> half(slot).1 & 0xffff != 0 {
                slot = (slot + 1) % SLOTS;
            }
            let (word, shift) = half(slot);
            region[word] |= u32::from(place) << shift;
            regions[0][FRAMES / 4] = frame as u32 + 1;
        }
        regions
    }

    fn index(regions: &[Vec<u32>]) -> WalIndex {
        let mut index = WalIndex::default();
        for (at, region) in regions.iter().enumerate() {
            // SAFETY: the vectors have `REGION` bytes, and outlive their use in the tests.
            unsafe { index.mapped(at, region.as_ptr().cast()) }.unwrap();
        }
        index
    }

    #[test]
    fn pages_of_the_log_are_found_and_no_others() {
        let pages: Vec<u32> = (0..9_000).map(|at| at * 7 + 1).collect();
        let mut regions = regions(&pages);
        assert_eq!(regions.len(), 3);
        let index = index(&regions);
        for page in 0..63_100 {
            assert_eq!(index.holds(page), page % 7 == 1 && page < 63_000, "{page}");
        }
        drop(index);
        regions[0][CARRIED_OVER / 4] = 9_000;
        assert!(!self::index(&regions).holds(8), "a checkpoint carried all over");
    }

    #[test]
    fn regions_are_looked_into_in_whatever_order_they_are_mapped() {
        let pages: Vec<u32> = (1..16_000).collect();
        let regions = regions(&pages);
        assert_eq!(regions.len(), 4);
        let (mut index, mut held) = (WalIndex::default(), Vec::new());
        for at in [0, 3, 2, 1] {
            // SAFETY: as above.
            unsafe { index.mapped(at, regions[at].as_ptr().cast()) }.unwrap();
            held.push(pages.iter().filter(|page| index.holds(**page)).count());
        }
        assert_eq!(held, [4_062, 7_807, 11_903, 15_999]);
    }

    #[test]
    fn any_bytes_are_answered() {
        for bits in [1, 0x0101_0101, 0x7fff_7fff, u32::MAX, 0x1001_1001] {
            let mut region = vec![bits; REGION / 4];
            region[CARRIED_OVER / 4] = 0;
            let regions = [region.clone(), region];
            let index = index(&regions);
            (0..20_000).for_each(|page| _ = index.holds(page));
        }
    }

    #[test]
    fn what_is_not_mapped_holds_nothing() {
        let regions = regions(&[1, 2, 3]);
        let mut index = index(&regions);
        assert!(index.holds(2) && !index.holds(4));
        index.unmapped();
        assert!(!index.holds(2) && index.salts() == [0; 2]);
    }
}
