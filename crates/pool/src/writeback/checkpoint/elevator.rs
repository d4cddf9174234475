//! The order in which the pages of a checkpoint are written: the implementation of [`Elevator`].
//!
//! `Sorted` writes the first tablespace completely before it reaches the second: with two disks, one of them is idle.
//! `Balanced` keeps every tablespace at the same share of its pages, so that all of them are busy from start to
//! end. A faster disk is held back for that: getting ahead of the others would not end the checkpoint earlier, only
//! disturb its readers more.
//!
//! Invariants:  [ELV-1] every page is named once   [ELV-2] `Balanced`: no tablespace is ahead of another
//!              by more than a slack of its pages
//! Source:      the concern about two tablespaces in the discussion of sorted checkpoints; PostgreSQL 9.6
//!              balances by a heap of tablespaces, without regard to which of them can take more.

use std::ops::Range;

use super::pages::Pages;
use crate::core::checkpoint::Elevator;

/// How far a range may be ahead of the hindmost one: this share of its pages, or this many if that is more. With less,
/// it would have no work between two requests of the other.
const SLACK_SHARE: f64 = 0.01;
const SLACK_PAGES: f64 = 32.0;

/// Decides which page a checkpoint writes next.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) elevator: Elevator,
    /// Pages that are written one after the other: the remaining ones, and their total number. One range for each
    /// tablespace, or one for all.
    ranges: Vec<(Range<usize>, usize)>,
}

impl Order {
    /// With room for `tablespaces` tablespaces, so that nothing is allocated later.
    pub(super) fn new(tablespaces: usize) -> Order {
        Order { elevator: Elevator::default(), ranges: Vec::with_capacity(tablespaces) }
    }

    /// A checkpoint starts, or retries pages that were latched at their turn.
    pub(super) fn begin(&mut self, pages: &mut Pages<'_>) {
        if self.elevator != Elevator::Arrival {
            pages.sort_by_place();
        }
        self.ranges.clear();
        let with_count = |range: Range<usize>| (range.clone(), range.len());
        match self.elevator {
            Elevator::Arrival | Elevator::Sorted => self.ranges.push(with_count(0..pages.len())),
            Elevator::Balanced => {
                let ranges = (0..pages.tablespaces()).map(|number| pages.range(number));
                self.ranges.extend(ranges.map(with_count));
            }
        }
    }

    /// The index of the page to write next, of a tablespace that `has_room`. `None` when there is none left, or none
    /// that should be written before a request in progress has ended.
    pub(super) fn next(
        &self,
        pages: &Pages<'_>,
        has_room: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let share = |left: &Range<usize>, all: usize| (all - left.len()) as f64 / all as f64;
        let unfinished = || self.ranges.iter().filter(|(left, _)| !left.is_empty());
        let hindmost =
            unfinished().map(|(left, all)| share(left, *all)).fold(f64::INFINITY, f64::min);
        // [ELV-2]
        let most = |all: usize| hindmost + SLACK_SHARE.max(SLACK_PAGES / all as f64);
        let ready = unfinished().filter(|(left, all)| {
            share(left, *all) <= most(*all) && has_room(pages.tablespace(left.start))
        });
        let next =
            ready.min_by(|(a, a_all), (b, b_all)| share(a, *a_all).total_cmp(&share(b, *b_all)));
        next.map(|(left, _)| left.start)
    }

    /// The `count` pages from `first` on have been taken, `first` being what [`Order::next`] returned.
    pub(super) fn took(&mut self, first: usize, count: usize) {
        let range =
            self.ranges.iter_mut().find(|(left, _)| !left.is_empty() && left.start == first);
        let (left, _) = range.expect("[ELV-1] what was taken was named");
        left.start = (first + count).min(left.end);
    }
}

#[cfg(test)]
mod tests {
    use super::super::pages::SortBuffer;
    use super::*;
    use crate::tag::{FileId, PageTag};
    use proptest::prelude::*;

    fn filled(lens: &[u32]) -> SortBuffer {
        let mut buffer = SortBuffer::new(lens.iter().sum::<u32>() as usize, lens.len());
        // Backwards, so that there is something to sort.
        for (file, &len) in lens.iter().enumerate().rev() {
            for block in (0..len).rev() {
                buffer.push(PageTag { file: FileId(file as u32), block });
            }
        }
        buffer
    }

    /// All pages in order while every tablespace has room, `at_most` pages at a time.
    fn all(elevator: Elevator, lens: &[u32], at_most: usize) -> Vec<PageTag> {
        let (mut buffer, of) = (filled(lens), |file: FileId| file.get() as usize);
        let mut pages = buffer.pages(&of);
        let mut order = Order { elevator, ..Order::new(lens.len()) };
        order.begin(&mut pages);
        let mut named = Vec::new();
        while let Some(at) = order.next(&pages, |_| true) {
            let of_one_file = |it: &usize| pages.get(*it).file == pages.get(at).file;
            let taken = (at..pages.len()).take_while(of_one_file).take(at_most);
            let before = named.len();
            named.extend(taken.map(|it| pages.get(it)));
            order.took(at, named.len() - before);
        }
        named
    }

    proptest! {
        #[test]
        fn elv_1_every_page_is_named_once(
            lens in prop::collection::vec(0_u32..300, 1..4), at_most in 1_usize..20,
        ) {
            let total: u32 = lens.iter().sum();
            for elevator in Elevator::ALL {
                let mut named = all(elevator, &lens, at_most);
                prop_assert_eq!(named.len(), total as usize, "[ELV-1] {}", elevator);
                named.sort_unstable();
                named.dedup();
                prop_assert_eq!(named.len(), total as usize, "[ELV-1] {}", elevator);
            }
        }
    }

    #[test]
    fn arrival_keeps_the_order_and_sorted_goes_by_place() {
        let block = |tags: Vec<PageTag>| tags.iter().map(|tag| tag.block).collect::<Vec<_>>();
        assert_eq!(block(all(Elevator::Arrival, &[3], 1)), [2, 1, 0]);
        assert_eq!(block(all(Elevator::Sorted, &[3, 2], 2)), [0, 1, 2, 0, 1]);
    }

    #[test]
    fn elv_2_balanced_keeps_tablespaces_in_proportion_whatever_their_speed() {
        let (lens, of) = ([1000_u32, 4000], |file: FileId| file.get() as usize);
        let mut buffer = filled(&lens);
        let mut pages = buffer.pages(&of);
        let mut order = Order::new(2);
        order.begin(&mut pages);
        let mut taken = [0_u32; 2];
        for step in 0.. {
            // The second takes four times as long for each request.
            let busy = step % 4 != 0;
            let Some(at) = order.next(&pages, |number| number == 0 || !busy) else {
                if taken == lens {
                    break;
                }
                assert!(busy, "[ELV-1] pages are left, and there is room for them");
                continue;
            };
            order.took(at, 8);
            taken[pages.tablespace(at)] += 8;
            let [a, b] = [0, 1].map(|range| f64::from(taken[range]) / f64::from(lens[range]));
            assert!((a - b).abs() < 0.05, "[ELV-2] {a} and {b}");
        }
    }

    #[test]
    fn sorted_stands_still_where_the_current_tablespace_has_no_room() {
        let (mut buffer, of) = (filled(&[10, 10]), |file: FileId| file.get() as usize);
        let mut pages = buffer.pages(&of);
        let mut order = Order { elevator: Elevator::Sorted, ..Order::new(2) };
        order.begin(&mut pages);
        assert_eq!(order.next(&pages, |number| number == 1), None);
        order.elevator = Elevator::Balanced;
        order.begin(&mut pages);
        assert_eq!(order.next(&pages, |number| number == 1), Some(10));
    }
}
