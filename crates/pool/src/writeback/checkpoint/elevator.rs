//! Elevators: in which order the pages of a checkpoint go to disk.
//!
//! | elevator | order | suits |
//! |---|---|---|
//! | [`Arrival`] | that of the frames | nothing; what the others are compared with |
//! | [`Sorted`] | tablespace, file, block | one disk |
//! | [`Balanced`] | each tablespace by file and block, all of them in proportion | several disks |
//!
//! `Sorted` alone writes the first tablespace to its end before it comes to the second: of two disks one
//! stands still. `Balanced` has every tablespace at the same share of its own pages, so that all of them
//! are at work from the beginning to the end. A faster disk is held back for that: whatever it had ahead
//! of the others would not end the checkpoint earlier, only disturb its readers more.
//!
//! Invariants:  [ELV-1] every page is named once   [ELV-2] `Balanced`: no tablespace is ahead of another
//!              by more than a slack of its pages
//! Source:      the doubt about two tablespaces in the discussion of sorted checkpoints; PostgreSQL 9.6
//!              balances by a heap of tablespaces, without regard to which of them can take more.

use std::fmt;
use std::ops::Range;

use super::pages::Pages;

/// Says which page a checkpoint writes next. Neighbours that follow one another leave in one request.
///
/// Called by one thread. To allocate between [`Elevator::begin`] and the end of a checkpoint is allowed
/// and a pity.
pub trait Elevator: fmt::Debug + Send {
    /// What reports call it.
    fn name(&self) -> &'static str;

    /// A checkpoint begins, or comes back to pages that were latched when their turn was.
    fn begin(&mut self, pages: &mut Pages<'_>);

    /// The index of the page to write next, of a tablespace that `has_room`; none that was taken before.
    /// `None` when there is none left, or none that should go before something under way has ended.
    ///
    /// To give `None` while nothing is under way and pages are left ends the checkpoint in an error.
    fn next(&mut self, pages: &Pages<'_>, has_room: &dyn Fn(usize) -> bool) -> Option<usize>;

    /// The `count` pages from `first` on have been taken, `first` being what [`Elevator::next`] gave.
    fn took(&mut self, first: usize, count: usize);
}

/// In the order of frames, as a clock hand comes by.
#[derive(Debug, Clone, Copy, Default)]
pub struct Arrival {
    at: usize,
}

/// By tablespace, file and block, one after the other.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sorted {
    at: usize,
}

/// Each tablespace by file and block, and all of them in proportion. The default.
#[derive(Debug, Clone, Default)]
pub struct Balanced {
    /// What is left of each tablespace's pages, and how many it had.
    lanes: Vec<(Range<usize>, usize)>,
}

/// How far ahead of the hindmost a tablespace may be: so much of its pages, and so many pages. Less would
/// leave it without work between two requests of the other.
const SLACK_SHARE: f64 = 0.01;
const SLACK_PAGES: f64 = 32.0;

impl Elevator for Arrival {
    fn name(&self) -> &'static str {
        "arrival"
    }

    fn begin(&mut self, _pages: &mut Pages<'_>) {
        self.at = 0;
    }

    fn next(&mut self, pages: &Pages<'_>, has_room: &dyn Fn(usize) -> bool) -> Option<usize> {
        (self.at < pages.len() && has_room(pages.tablespace(self.at))).then_some(self.at)
    }

    fn took(&mut self, first: usize, count: usize) {
        self.at = first + count;
    }
}

impl Elevator for Sorted {
    fn name(&self) -> &'static str {
        "sorted"
    }

    fn begin(&mut self, pages: &mut Pages<'_>) {
        pages.sort_by_place();
        self.at = 0;
    }

    fn next(&mut self, pages: &Pages<'_>, has_room: &dyn Fn(usize) -> bool) -> Option<usize> {
        (self.at < pages.len() && has_room(pages.tablespace(self.at))).then_some(self.at)
    }

    fn took(&mut self, first: usize, count: usize) {
        self.at = first + count;
    }
}

impl Balanced {
    /// With room for so many tablespaces, so that none is taken later.
    pub fn new(tablespaces: usize) -> Balanced {
        Balanced { lanes: Vec::with_capacity(tablespaces) }
    }
}

impl Elevator for Balanced {
    fn name(&self) -> &'static str {
        "balanced"
    }

    fn begin(&mut self, pages: &mut Pages<'_>) {
        pages.sort_by_place();
        self.lanes.clear();
        self.lanes.extend((0..pages.tablespaces()).map(|number| {
            let lane = pages.lane(number);
            let count = lane.len();
            (lane, count)
        }));
    }

    fn next(&mut self, _pages: &Pages<'_>, has_room: &dyn Fn(usize) -> bool) -> Option<usize> {
        let share = |left: usize, all: usize| (all - left) as f64 / all as f64;
        let unfinished = || self.lanes.iter().enumerate().filter(|(_, (left, _))| !left.is_empty());
        let hindmost = unfinished()
            .map(|(_, (left, all))| share(left.len(), *all))
            .fold(f64::INFINITY, f64::min);
        // [ELV-2]
        let most = |all: usize| hindmost + SLACK_SHARE.max(SLACK_PAGES / all as f64);
        let ready = unfinished().filter(|(number, (left, all))| {
            share(left.len(), *all) <= most(*all) && has_room(*number)
        });
        let next = ready.min_by(|(_, (a, a_all)), (_, (b, b_all))| {
            share(a.len(), *a_all).total_cmp(&share(b.len(), *b_all))
        });
        next.map(|(_, (left, _))| left.start)
    }

    fn took(&mut self, first: usize, count: usize) {
        let lane = self.lanes.iter_mut().find(|(left, _)| !left.is_empty() && left.start == first);
        if let Some((left, _)) = lane {
            left.start = (first + count).min(left.end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::pages::Room;
    use super::*;
    use crate::tag::{FileId, PageTag};
    use proptest::prelude::*;

    fn room(lens: &[u32]) -> Room {
        let mut room = Room::new(lens.iter().sum::<u32>() as usize, lens.len());
        // Backwards, so that sorting has something to do.
        for (file, &len) in lens.iter().enumerate().rev() {
            for block in (0..len).rev() {
                room.push(PageTag { file: FileId(file as u32), block });
            }
        }
        room
    }

    /// Everything an elevator names while every tablespace has room, `at_most` pages at a time.
    fn all(elevator: &mut dyn Elevator, lens: &[u32], at_most: usize) -> Vec<PageTag> {
        let (mut room, of) = (room(lens), |file: FileId| file.get() as usize);
        let mut pages = room.pages(&of);
        elevator.begin(&mut pages);
        let mut named = Vec::new();
        while let Some(at) = elevator.next(&pages, &|_| true) {
            let of_one_file = |it: &usize| pages.get(*it).file == pages.get(at).file;
            let taken = (at..pages.len()).take_while(of_one_file).take(at_most);
            let before = named.len();
            named.extend(taken.map(|it| pages.get(it)));
            elevator.took(at, named.len() - before);
        }
        named
    }

    proptest! {
        #[test]
        fn elv_1_every_page_is_named_once(
            lens in prop::collection::vec(0_u32..300, 1..4), at_most in 1_usize..20,
        ) {
            let total: u32 = lens.iter().sum();
            let count = lens.len();
            let elevators: [Box<dyn Elevator>; 3] = [
                Box::new(Arrival::default()), Box::new(Sorted::default()), Box::new(Balanced::new(count)),
            ];
            for mut elevator in elevators {
                let mut named = all(&mut *elevator, &lens, at_most);
                prop_assert_eq!(named.len(), total as usize, "[ELV-1] {}", elevator.name());
                named.sort_unstable();
                named.dedup();
                prop_assert_eq!(named.len(), total as usize, "[ELV-1] {}", elevator.name());
            }
        }
    }

    #[test]
    fn arrival_keeps_the_order_and_sorted_goes_by_place() {
        let block = |tags: Vec<PageTag>| tags.iter().map(|tag| tag.block).collect::<Vec<_>>();
        assert_eq!(block(all(&mut Arrival::default(), &[3], 1)), [2, 1, 0]);
        assert_eq!(block(all(&mut Sorted::default(), &[3, 2], 2)), [0, 1, 2, 0, 1]);
    }

    #[test]
    fn elv_2_balanced_keeps_tablespaces_in_proportion_whatever_their_speed() {
        let (lens, of) = ([1000_u32, 4000], |file: FileId| file.get() as usize);
        let mut room = room(&lens);
        let mut pages = room.pages(&of);
        let mut elevator = Balanced::new(2);
        elevator.begin(&mut pages);
        let mut taken = [0_u32; 2];
        for step in 0.. {
            // The second takes four times as long for each request.
            let busy = step % 4 != 0;
            let Some(at) = elevator.next(&pages, &|number| number == 0 || !busy) else {
                if taken == lens {
                    break;
                }
                assert!(busy, "[ELV-1] pages are left, and there is room for them");
                continue;
            };
            elevator.took(at, 8);
            taken[pages.tablespace(at)] += 8;
            let [a, b] = [0, 1].map(|lane| f64::from(taken[lane]) / f64::from(lens[lane]));
            assert!((a - b).abs() < 0.05, "[ELV-2] {a} and {b}");
        }
    }

    #[test]
    fn sorted_stands_still_where_the_tablespace_at_hand_has_no_room() {
        let (mut room, of) = (room(&[10, 10]), |file: FileId| file.get() as usize);
        let mut pages = room.pages(&of);
        let mut elevator = Sorted::default();
        elevator.begin(&mut pages);
        assert_eq!(elevator.next(&pages, &|number| number == 1), None);
        let mut balanced = Balanced::new(2);
        balanced.begin(&mut pages);
        assert_eq!(balanced.next(&pages, &|number| number == 1), Some(10));
    }
}
