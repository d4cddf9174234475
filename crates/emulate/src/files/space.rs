//! Space on the device: which bytes are free, and which of them a file gets.
//!
//! A file should continue where its last extent ends, so that its order is the device's. If it cannot, it gets the
//! first free stretch that is long enough, from the place where files begin to the end of the device, then from the
//! device's beginning; if no stretch is long enough, it gets the longest one.
//!
//! Invariants:  [SPC-1] free stretches do not touch each other, and contain no allocated bytes

use std::collections::BTreeMap;
use std::ops::Range;

/// There is no room left on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Full;

/// Alignment of all places.
pub(super) const BLOCK_BYTES: u64 = 4096;

#[derive(Debug)]
pub(super) struct Space {
    /// Start and end of each free stretch.
    free: BTreeMap<u64, u64>,
    free_bytes: u64,
    /// Where files begin.
    from: u64,
}

impl Space {
    /// Everything on a device of `size_bytes` is free; files begin at `from`.
    pub(super) fn new(size_bytes: u64, from: u64) -> Space {
        let end = size_bytes - size_bytes % BLOCK_BYTES;
        let free = if end > 0 { BTreeMap::from([(0, end)]) } else { BTreeMap::new() };
        Space { free, free_bytes: end, from: from - from % BLOCK_BYTES }
    }

    pub(super) fn free_bytes(&self) -> u64 {
        self.free_bytes
    }

    /// Takes up to `want` bytes at `goal`, if that is free.
    pub(super) fn take_at(&mut self, goal: u64, want: u64) -> Option<Range<u64>> {
        let (_, end) = self.free.range(..=goal).next_back()?;
        let end = (*end).min(goal.saturating_add(want));
        (goal < end).then(|| self.take(goal..end))
    }

    /// Takes `want` bytes, or fewer if no free stretch is that long. None if nothing is free.
    pub(super) fn take_somewhere(&mut self, want: u64) -> Option<Range<u64>> {
        let fits = |start: u64, end: u64| end - start >= want;
        // The stretch that contains the start of the files counts from there on.
        let around = self.free.range(..self.from).next_back();
        let around = around.map(|(_, end)| (self.from, *end)).filter(|(start, end)| start < end);
        let after = self.free.range(self.from..).map(|(start, end)| (*start, *end));
        let all = || self.free.iter().map(|(start, end)| (*start, *end));
        let mut candidates = around.into_iter().chain(after).chain(all());
        let found = candidates.find(|(start, end)| fits(*start, *end));
        let (start, end) = found.or_else(|| all().max_by_key(|(start, end)| end - start))?;
        Some(self.take(start..end.min(start.saturating_add(want))))
    }

    /// Takes `range`, which is free.
    fn take(&mut self, range: Range<u64>) -> Range<u64> {
        let around = self.free.range(..=range.start).next_back().map(|(start, end)| (*start, *end));
        let Some((start, end)) = around.filter(|(_, end)| range.end <= *end) else {
            unreachable!("[SPC-1] {range:?} is not free");
        };
        self.free.remove(&start);
        if start < range.start {
            self.free.insert(start, range.start);
        }
        if range.end < end {
            self.free.insert(range.end, end);
        }
        self.free_bytes -= range.end - range.start;
        range
    }

    /// Makes `range` free again.
    pub(super) fn give_back(&mut self, range: Range<u64>) {
        let Range { mut start, mut end } = range;
        self.free_bytes += end - start;
        if let Some((before, its_end)) = self.free.range(..end).next_back() {
            assert!(*its_end <= start, "[SPC-1] {start}..{end} was free already");
            if *its_end == start {
                start = *before;
            }
        }
        if let Some(after) = self.free.remove(&end) {
            end = after;
        }
        self.free.insert(start, end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const B: u64 = BLOCK_BYTES;

    #[test]
    fn files_begin_at_the_given_place_and_wrap_around_at_the_end() {
        let mut space = Space::new(100 * B, 50 * B);
        assert_eq!(space.take_somewhere(30 * B), Some(50 * B..80 * B));
        assert_eq!(space.take_somewhere(30 * B), Some(0..30 * B), "20 are left behind 80");
        assert_eq!(space.take_somewhere(20 * B), Some(80 * B..100 * B));
        assert_eq!(space.take_somewhere(30 * B), Some(30 * B..50 * B), "fewer than requested");
        assert_eq!((space.take_somewhere(B), space.free_bytes()), (None, 0));
    }

    #[test]
    fn a_goal_gives_what_is_free_there_and_nothing_else() {
        let mut space = Space::new(10 * B, 0);
        assert_eq!(space.take_at(4 * B, 2 * B), Some(4 * B..6 * B));
        assert_eq!(space.take_at(5 * B, B), None);
        assert_eq!(space.take_at(2 * B, 9 * B), Some(2 * B..4 * B));
        assert_eq!(space.take_at(10 * B, B), None);
        assert_eq!(space.free_bytes(), 6 * B);
    }

    #[test]
    fn what_is_free_is_what_a_map_of_blocks_says() {
        let mut random = fastrand::Rng::with_seed(3);
        let mut space = Space::new(64 * B, 20 * B);
        let mut taken: Vec<Range<u64>> = Vec::new();
        for _ in 0..3000 {
            if random.bool() && !taken.is_empty() {
                let one = taken.swap_remove(random.usize(..taken.len()));
                space.give_back(one);
            } else {
                let want = random.u64(1..9) * B;
                let goal = random.u64(..64) * B;
                let got = match random.bool() {
                    true => space.take_at(goal, want),
                    false => space.take_somewhere(want),
                };
                taken.extend(got);
            }
            let mut map = [true; 64];
            for block in taken.iter().flat_map(|range| range.start / B..range.end / B) {
                assert!(std::mem::take(&mut map[block as usize]), "[SPC-1] {block} is taken twice");
            }
            let mut reported = [false; 64];
            let mut last = None;
            for (start, end) in &space.free {
                assert!(last.is_none_or(|last| last < *start), "[SPC-1] stretches touch");
                last = Some(*end);
                reported[(start / B) as usize..(end / B) as usize].fill(true);
            }
            assert_eq!(reported, map, "[SPC-1]");
            assert_eq!(space.free_bytes() / B, map.iter().filter(|free| **free).count() as u64);
        }
    }
}
