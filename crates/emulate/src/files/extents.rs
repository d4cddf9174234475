//! Where a file's bytes are on the device: extents, in the file's order.
//!
//! A file grows by its current size, but by at least 1 MiB and at most 256 MiB, so that it has few extents even
//! if several files grow together. Space beyond its end is freed when no process has the file open any more.
//!
//! Invariants:  [EXT-1] extents do not overlap, in the file and on the device, and are whole blocks

use std::collections::BTreeMap;
use std::ops::Range;

use super::space::{BLOCK_BYTES, Full, Space};

/// A stretch of a file, and its position on the device: none if it was never placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stretch {
    pub(crate) len: u64,
    pub(crate) device_offset: Option<u64>,
}

/// Minimum and maximum bytes by which a file grows.
const GROWTH_BYTES: Range<u64> = 1 << 20..256 << 20;

/// If the first write is not at the start of the file but at most this far into it, it leaves space for the bytes
/// before it.
const LEAD_BYTES_MAX: u64 = 256 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Extent {
    len: u64,
    device_offset: u64,
}

/// A file's extents by their start in the file.
#[derive(Debug, Default)]
pub(super) struct Extents {
    by_start: BTreeMap<u64, Extent>,
    bytes: u64,
}

impl Extents {
    /// Bytes on the device.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// `range` of the file, as stretches.
    pub(super) fn stretches(&self, range: Range<u64>) -> Vec<Stretch> {
        let mut stretches = Vec::new();
        let mut at = range.start;
        let first = self.by_start.range(..=at).next_back().map(|(start, _)| *start);
        for (start, extent) in self.by_start.range(first.unwrap_or(at)..range.end) {
            let end = start + extent.len;
            if end <= at {
                continue;
            }
            if at < *start {
                stretches.push(Stretch { len: start - at, device_offset: None });
                at = *start;
            }
            let len = end.min(range.end) - at;
            stretches.push(Stretch { len, device_offset: Some(extent.device_offset + at - start) });
            at += len;
        }
        if at < range.end {
            stretches.push(Stretch { len: range.end - at, device_offset: None });
        }
        stretches
    }

    /// Places all of `range`, and adds the newly placed ranges of the device to `placed`.
    ///
    /// # Errors
    /// [`Full`]; ranges that could be placed stay placed.
    pub(super) fn place(
        &mut self,
        range: Range<u64>,
        exact: bool,
        space: &mut Space,
        placed: &mut Vec<Range<u64>>,
    ) -> Result<(), Full> {
        let start = range.start - range.start % BLOCK_BYTES;
        let end = range.end.next_multiple_of(BLOCK_BYTES);
        let mut at = start;
        while at < end {
            let stretch = self.stretches(at..end)[0];
            if stretch.device_offset.is_some() {
                at += stretch.len;
                continue;
            }
            let grown =
                if exact { 0 } else { self.bytes.clamp(GROWTH_BYTES.start, GROWTH_BYTES.end) };
            let next = self.by_start.range(at..).next().map_or(u64::MAX, |(start, _)| *start);
            let want = stretch.len.max(grown.next_multiple_of(BLOCK_BYTES)).min(next - at);
            let got = self.take(at, want, space).ok_or(Full)?;
            self.insert(at, got.clone());
            at += got.end - got.start;
            placed.push(got);
        }
        Ok(())
    }

    /// Takes space for the file's bytes from `at` on, preferably where it continues the file's order.
    fn take(&self, at: u64, want: u64, space: &mut Space) -> Option<Range<u64>> {
        let before = self.by_start.range(..at).next_back();
        let after = self.by_start.range(at..).next();
        let goals = [
            before.and_then(|(start, extent)| extent.device_offset.checked_add(at - start)),
            after.and_then(|(start, extent)| extent.device_offset.checked_sub(start - at)),
        ];
        if let Some(got) = goals.into_iter().flatten().find_map(|goal| space.take_at(goal, want)) {
            return Some(got);
        }
        if self.by_start.is_empty() && at > 0 && at <= LEAD_BYTES_MAX {
            let with_lead = space.take_somewhere(at + want)?;
            if with_lead.end - with_lead.start > at {
                space.give_back(with_lead.start..with_lead.start + at);
                return Some(with_lead.start + at..with_lead.end);
            }
            space.give_back(with_lead);
        }
        space.take_somewhere(want)
    }

    fn insert(&mut self, start: u64, place: Range<u64>) {
        let len = place.end - place.start;
        self.bytes += len;
        if let Some((before, extent)) = self.by_start.range_mut(..start).next_back() {
            assert!(before + extent.len <= start, "[EXT-1] extents overlap in the file");
            if before + extent.len == start && extent.device_offset + extent.len == place.start {
                extent.len += len;
                return;
            }
        }
        self.by_start.insert(start, Extent { len, device_offset: place.start });
    }

    /// Removes the whole blocks of `range` from the file. Returns where they were.
    pub(super) fn remove(&mut self, range: Range<u64>, space: &mut Space) -> Vec<Range<u64>> {
        let start = range.start.next_multiple_of(BLOCK_BYTES);
        let end = range.end - range.end % BLOCK_BYTES;
        let first = self.by_start.range(..=start).next_back().map_or(start, |(first, _)| *first);
        if start >= end {
            return Vec::new();
        }
        let touched: Vec<_> = self.by_start.range(first..end).map(|(a, b)| (*a, *b)).collect();
        let mut removed = Vec::new();
        for (at, extent) in touched {
            let cut = at.max(start)..(at + extent.len).min(end);
            if cut.is_empty() {
                continue;
            }
            self.by_start.remove(&at);
            if at < cut.start {
                self.by_start.insert(at, Extent { len: cut.start - at, ..extent });
            }
            let rest = at + extent.len - cut.end;
            if rest > 0 {
                let device_offset = extent.device_offset + cut.end - at;
                self.by_start.insert(cut.end, Extent { len: rest, device_offset });
            }
            let device_start = extent.device_offset + cut.start - at;
            let on_device = device_start..device_start + (cut.end - cut.start);
            self.bytes -= on_device.end - on_device.start;
            space.give_back(on_device.clone());
            removed.push(on_device);
        }
        removed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const B: u64 = BLOCK_BYTES;
    const MB: u64 = 1 << 20;

    #[test]
    fn a_file_that_grows_alone_is_one_extent_in_the_order_of_the_device() {
        let (mut space, mut file) = (Space::new(1 << 40, 1 << 39), Extents::default());
        for at in (0..300 * MB).step_by(1 << 20) {
            file.place(at..at + MB, false, &mut space, &mut Vec::new()).unwrap();
        }
        let whole = Stretch { len: 300 * MB, device_offset: Some(1 << 39) };
        assert_eq!(file.stretches(0..300 * MB), [whole]);
    }

    #[test]
    fn writes_that_come_out_of_order_still_find_their_place() {
        let (mut space, mut file) = (Space::new(1 << 40, 0), Extents::default());
        for at in [3, 1, 0, 2, 5, 4] {
            file.place(at * MB..(at + 1) * MB, false, &mut space, &mut Vec::new()).unwrap();
        }
        assert_eq!(file.stretches(0..6 * MB).iter().map(|one| one.len).sum::<u64>(), 6 * MB);
        let mut next = 0;
        for stretch in file.stretches(0..6 * MB) {
            assert_eq!(stretch.device_offset, Some(next));
            next += stretch.len;
        }
    }

    #[test]
    fn files_that_grow_together_have_few_extents() {
        let mut space = Space::new(1 << 40, 0);
        let mut files: Vec<Extents> = (0..8).map(|_| Extents::default()).collect();
        for at in (0..256 * MB).step_by(1 << 20) {
            for file in &mut files {
                file.place(at..at + MB, false, &mut space, &mut Vec::new()).unwrap();
            }
        }
        for file in &files {
            assert!(file.by_start.len() <= 9, "{} extents", file.by_start.len());
        }
    }

    #[test]
    fn extents_are_what_a_map_of_blocks_says_after_any_placing_and_removing() {
        let mut random = fastrand::Rng::with_seed(11);
        let mut space = Space::new(512 * B, 100 * B);
        let mut files = [Extents::default(), Extents::default()];
        let mut models = [[None::<u64>; 256], [None; 256]];
        for _ in 0..2000 {
            let which = random.usize(..2);
            let (file, model) = (&mut files[which], &mut models[which]);
            let (start, len) = (random.u64(..256), random.u64(1..20));
            let end = (start + len).min(256);
            if random.u8(..3) == 0 {
                file.remove(start * B..end * B, &mut space);
                model[start as usize..end as usize].fill(None);
            } else if file.place(start * B..end * B, true, &mut space, &mut Vec::new()).is_ok() {
                for block in start..end {
                    let stretch = file.stretches(block * B..(block + 1) * B)[0];
                    let known = model[block as usize];
                    assert!(known.is_none() || known == stretch.device_offset, "[EXT-1] it moved");
                    model[block as usize] = stretch.device_offset;
                }
            }
            let mut used: Vec<u64> = models.iter().flatten().flatten().copied().collect();
            let count = used.len() as u64;
            used.sort_unstable();
            used.dedup();
            assert_eq!(used.len() as u64, count, "[EXT-1] two blocks in one place");
            let bytes: u64 = files.iter().map(Extents::bytes).sum();
            assert_eq!(bytes, count * B, "[EXT-1]");
            assert_eq!(space.free_bytes(), 512 * B - bytes);
            for (file, model) in files.iter().zip(&models) {
                let listed = file.stretches(0..256 * B);
                let blocks = listed.iter().flat_map(|stretch| {
                    (0..stretch.len / B).map(move |n| stretch.device_offset.map(|at| at + n * B))
                });
                assert!(blocks.eq(model.iter().copied()), "[EXT-1]");
            }
        }
    }

    #[test]
    fn a_full_device_is_reported_and_what_was_placed_stays() {
        let (mut space, mut file) = (Space::new(4 * B, 0), Extents::default());
        assert!(file.place(0..5 * B, false, &mut space, &mut Vec::new()).is_err());
        assert_eq!(file.bytes(), 4 * B);
        assert!(file.remove(0..5 * B, &mut space).iter().eq([&(0..4 * B)]));
        file.place(B..B + 1, false, &mut space, &mut Vec::new()).unwrap();
        assert_eq!(file.stretches(B..B + 1)[0].len, 1);
    }
}
