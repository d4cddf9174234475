//! Where the pages of a file are: runs of blocks in runs of slots.
//!
//! A row of 1,024 blocks is one sorted list of runs, shared between snapshots until one of them changes it. So a
//! snapshot costs 8 bytes for each 1,024 blocks and copies what a commit touches, and a run costs 16 bytes in
//! memory, however long it is. In the worst case each page is its own run: 16 bytes a page, 0.2 % of 8 KiB, and as much
//! again for spare capacity of the lists.
//!
//! Invariants:  [MAP-1] the runs of a row ascend, do not overlap and are not empty
//! Rejected:    an array of 8 bytes for each block: half as much memory in the worst case, and 500 times as much for a
//!              file that was written in order.

use std::sync::Arc;

/// Blocks of one row.
const ROW_BLOCKS: u32 = 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    /// Within the row.
    first: u16,
    count: u16,
    slot: u32,
    object: u64,
}

impl Run {
    fn end(self) -> u16 {
        self.first + self.count
    }

    /// The part of it that is in `first..end`, which is not empty.
    fn part(self, first: u16, end: u16) -> Run {
        let first = first.max(self.first);
        let slot = self.slot + u32::from(first - self.first);
        Run { first, count: end.min(self.end()) - first, slot, ..self }
    }
}

/// Consecutive blocks that are in consecutive slots of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) first: u32,
    pub(crate) count: u32,
    pub(crate) object: u64,
    /// Of the first block.
    pub(crate) slot: u32,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct FileMap {
    rows: Vec<Arc<Vec<Run>>>,
}

impl FileMap {
    /// Maps the blocks of `place`. Calls `freed` with each object whose pages they replace, and how many.
    pub(crate) fn set(&mut self, place: Place, mut freed: impl FnMut(u64, u32)) {
        for (row, first, end, skipped) in rows(place.first, place.count) {
            if self.rows.len() <= row {
                self.rows.resize_with(row + 1, Arc::default);
            }
            let run =
                Run { first, count: end - first, slot: place.slot + skipped, object: place.object };
            replace(Arc::make_mut(&mut self.rows[row]), first, end, Some(run), &mut freed);
        }
    }

    /// Removes the mapping of the blocks from `blocks` on.
    pub(crate) fn cut(&mut self, blocks: u32, mut freed: impl FnMut(u64, u32)) {
        let row = (blocks / ROW_BLOCKS) as usize;
        let first = (blocks % ROW_BLOCKS) as u16;
        for (at, runs) in self.rows.iter_mut().enumerate().skip(row) {
            let first = if at == row { first } else { 0 };
            if runs.last().is_some_and(|last| last.end() > first) {
                replace(Arc::make_mut(runs), first, ROW_BLOCKS as u16, None, &mut freed);
            }
        }
        self.rows.truncate(row + usize::from(first > 0));
    }

    /// Removes the mapping of blocks in objects that are not `kept`.
    pub(crate) fn retain(&mut self, kept: impl Fn(u64) -> bool) {
        for runs in &mut self.rows {
            if !runs.iter().all(|run| kept(run.object)) {
                Arc::make_mut(runs).retain(|run| kept(run.object));
            }
        }
    }

    /// The mapped ones of `count` blocks from `first` on, in order.
    pub(crate) fn places(&self, first: u32, count: u32) -> impl Iterator<Item = Place> + '_ {
        let blocks = self.rows.len() as u64 * u64::from(ROW_BLOCKS);
        let count = blocks.saturating_sub(first.into()).min(count.into()) as u32;
        rows(first, count).filter_map(|it| Some((self.rows.get(it.0)?, it))).flat_map(
            |(runs, (row, first, end, _))| {
                let from = runs.partition_point(|run| run.end() <= first);
                let within = runs[from..].iter().take_while(move |run| run.first < end);
                within.map(move |run| {
                    let run = run.part(first, end);
                    Place {
                        first: row as u32 * ROW_BLOCKS + u32::from(run.first),
                        count: u32::from(run.count),
                        object: run.object,
                        slot: run.slot,
                    }
                })
            },
        )
    }

    /// Number of runs.
    pub(crate) fn runs(&self) -> usize {
        self.rows.iter().map(|runs| runs.len()).sum()
    }
}

/// The parts of a range of blocks in each row: row, first and end within it, and the number of blocks before.
fn rows(first: u32, count: u32) -> impl Iterator<Item = (usize, u16, u16, u32)> {
    let end = u64::from(first) + u64::from(count);
    let mut next = u64::from(first);
    std::iter::from_fn(move || {
        if next >= end {
            return None;
        }
        let row = next / u64::from(ROW_BLOCKS);
        let start = row * u64::from(ROW_BLOCKS);
        let stop = end.min(start + u64::from(ROW_BLOCKS));
        let part = (
            row as usize,
            (next - start) as u16,
            (stop - start) as u16,
            (next - u64::from(first)) as u32,
        );
        next = stop;
        Some(part)
    })
}

/// Replaces `first..end` by `run`, or by nothing.
fn replace(
    runs: &mut Vec<Run>,
    first: u16,
    end: u16,
    run: Option<Run>,
    freed: &mut impl FnMut(u64, u32),
) {
    let from = runs.partition_point(|it| it.end() <= first);
    let to = runs.partition_point(|it| it.first < end);
    let overlapped = &runs[from..to];
    for it in overlapped {
        freed(it.object, u32::from(it.part(first, end).count));
    }
    let head = overlapped.first().filter(|it| it.first < first).map(|it| it.part(0, first));
    let tail = overlapped.last().filter(|it| it.end() > end).map(|it| it.part(end, it.end()));
    runs.splice(from..to, [head, run, tail].into_iter().flatten());
    let around = &runs[from.saturating_sub(1)..runs.len().min(from + 4)];
    let ordered = around.is_sorted_by(|left, right| left.end() <= right.first);
    assert!(ordered && around.iter().all(|it| it.count > 0), "[MAP-1] {around:?}");
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn place(first: u32, count: u32, object: u64, slot: u32) -> Place {
        Place { first, count, object, slot }
    }

    #[test]
    fn what_is_written_in_order_is_a_run_for_each_row() {
        let mut map = FileMap::default();
        map.set(place(0, 10 * ROW_BLOCKS, 1, 0), |_, _| unreachable!());
        assert_eq!(map.runs(), 10);
        assert_eq!(map.places(5, 3).collect::<Vec<_>>(), [place(5, 3, 1, 5)]);
    }

    #[test]
    fn a_run_in_the_middle_leaves_both_ends() {
        let mut map = FileMap::default();
        map.set(place(10, 10, 1, 0), |_, _| unreachable!());
        let mut freed = Vec::new();
        map.set(place(13, 2, 2, 7), |object, count| freed.push((object, count)));
        assert_eq!(freed, [(1, 2)]);
        let places: Vec<Place> = map.places(0, 100).collect();
        assert_eq!(places, [place(10, 3, 1, 0), place(13, 2, 2, 7), place(15, 5, 1, 5)]);
    }

    /// The memory bound in docs/format-object.md: each page is its own run, put in any order.
    #[test]
    fn scattered_pages_take_at_most_32_bytes_each() {
        let mut map = FileMap::default();
        let mut blocks: Vec<u32> = (0..100_000).map(|at| at * 2).collect();
        fastrand::Rng::with_seed(1).shuffle(&mut blocks);
        for block in &blocks {
            map.set(place(*block, 1, u64::from(*block), 0), |_, _| unreachable!());
        }
        assert_eq!(map.runs(), blocks.len());
        let runs: usize = map.rows.iter().map(|row| row.capacity() * size_of::<Run>()).sum();
        assert!(runs <= 32 * blocks.len(), "{runs} bytes");
    }

    #[test]
    fn map_1_a_run_takes_16_bytes() {
        assert_eq!(size_of::<Run>(), 16, "[MAP-1]");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn it_is_a_map_of_blocks(
            steps in proptest::collection::vec((any::<bool>(), 0_u32..5000, 1_u32..2500), 1..20),
        ) {
            let mut map = FileMap::default();
            let mut model = BTreeMap::new();
            for (object, (set, first, count)) in (0..).zip(steps) {
                let (mut freed, mut replaced) = (BTreeMap::new(), BTreeMap::new());
                let count_freed = |object, count| *freed.entry(object).or_insert(0) += count;
                if set {
                    map.set(place(first, count, object, 3), count_freed);
                    for at in 0..count {
                        if let Some((old, _)) = model.insert(first + at, (object, 3 + at)) {
                            *replaced.entry(old).or_insert(0) += 1;
                        }
                    }
                } else {
                    map.cut(first, count_freed);
                    for (old, _) in model.split_off(&first).into_values() {
                        *replaced.entry(old).or_insert(0) += 1;
                    }
                }
                prop_assert_eq!(freed, replaced);
            }
            let pages = |first, count| {
                map.places(first, count).flat_map(|it| {
                    (0..it.count).map(move |at| (it.first + at, (it.object, it.slot + at)))
                }).collect::<BTreeMap<_, _>>()
            };
            prop_assert_eq!(&pages(1000, 2000), &model.range(1000..3000).map(|(k, v)| (*k, *v)).collect());
            prop_assert_eq!(pages(0, u32::MAX), model);
        }
    }
}
