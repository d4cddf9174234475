//! Segments: the ranges of the disk that its read cache holds.
//!
//! The cache has a fixed number of segments, each one range of the disk. The least recently used one is
//! replaced first. A segment grows at its end while the disk reads, and drops bytes at its start that
//! exceed its share.
//!
//! Invariants:  [SEG-1] no segment is longer than its share, and there are no more than the configured number

/// A range of sectors in the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) start: u64,
    pub(crate) end: u64,
    used: u64,
}

/// The segments of the cache.
#[derive(Debug)]
pub(crate) struct Segments {
    held: Vec<Segment>,
    count_max: usize,
    sectors_max: u64,
    uses: u64,
}

impl Segments {
    /// A cache of at most `count_max` segments of at most `sectors_max` sectors.
    pub(crate) fn new(count_max: usize, sectors_max: u64) -> Self {
        let count_max = count_max.max(1);
        Self { held: Vec::with_capacity(count_max), count_max, sectors_max, uses: 0 }
    }

    pub(crate) fn get(&self, index: usize) -> Segment {
        self.held[index]
    }

    /// The segment that contains all of a range.
    pub(crate) fn holding(&self, start: u64, end: u64) -> Option<usize> {
        self.held.iter().position(|held| held.start <= start && end <= held.end)
    }

    /// The segment that a read at `start` continues: the start is inside, or at most `gap` past its end.
    pub(crate) fn followed_by(&self, start: u64, gap: u64) -> Option<usize> {
        self.held.iter().position(|held| held.start < start && start <= held.end + gap)
    }

    /// Marks a segment as most recently used.
    pub(crate) fn touch(&mut self, index: usize) {
        self.uses += 1;
        self.held[index].used = self.uses;
    }

    /// Makes a segment for a range: a new one, the given one, or the least recently used one.
    pub(crate) fn open(&mut self, over: Option<usize>, start: u64, end: u64) -> usize {
        let index = over.unwrap_or_else(|| {
            if self.held.len() < self.count_max {
                self.held.push(Segment { start, end: start, used: 0 });
                return self.held.len() - 1;
            }
            let oldest = self.held.iter().enumerate().min_by_key(|(_, held)| held.used);
            oldest.map_or(0, |(index, _)| index)
        });
        assert!(self.held.len() <= self.count_max, "[SEG-1] too many segments");
        self.held[index].start = start;
        self.held[index].end = start;
        self.touch(index);
        self.grow(index, end);
        index
    }

    /// Extends a segment to `end`, if that is further than its end.
    pub(crate) fn grow(&mut self, index: usize, end: u64) {
        let held = &mut self.held[index];
        held.end = held.end.max(end);
        held.start = held.start.max(held.end.saturating_sub(self.sectors_max));
        assert!(held.end - held.start <= self.sectors_max, "[SEG-1] a segment is too long");
    }

    /// Invalidates the cached sectors that overlap a range.
    pub(crate) fn forget(&mut self, start: u64, end: u64) {
        for held in &mut self.held {
            if held.start < end && start < held.end {
                held.end = held.start;
                held.used = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_segment_that_was_used_longest_ago_goes_first() {
        let mut segments = Segments::new(2, 100);
        let first = segments.open(None, 0, 10);
        segments.open(None, 1000, 1010);
        segments.touch(first);
        segments.open(None, 2000, 2010);
        assert!(segments.holding(0, 10).is_some());
        assert!(segments.holding(1000, 1010).is_none());
    }

    #[test]
    fn a_growing_segment_loses_its_begin() {
        let mut segments = Segments::new(2, 100);
        let index = segments.open(None, 0, 60);
        segments.grow(index, 150);
        assert!(segments.holding(40, 60).is_none());
        assert!(segments.holding(50, 150).is_some(), "[SEG-1]");
    }

    #[test]
    fn what_was_written_over_is_not_found() {
        let mut segments = Segments::new(2, 100);
        segments.open(None, 0, 60);
        segments.forget(59, 61);
        assert!(segments.holding(0, 10).is_none());
    }
}
