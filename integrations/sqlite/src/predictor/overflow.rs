//! Rows that continue in overflow pages, as far as SQLite reads those pages.
//!
//! A leaf's cell names the first overflow page of its row and gives their number; each overflow page names the next.
//! Whether SQLite reads them depends on the query: all of a row's, the first few, or none. So two consecutive rows set
//! the reach, and as many pages of each further row are requested. The number of the next page is known only once the
//! previous page is in memory. Until then it may be guessed, if pages were found to be adjacent in the file: the longer
//! the run of adjacent pages, the more are guessed. Worked example: rows of 40 adjacent pages. After the first three
//! rows, that is 117 links, four pages of the fourth row are guessed beyond the last known one; after 25 rows, all
//! pages of a row are.
//!
//! The pointer map of auto-vacuum files would replace the guess. It was rejected: its pages must be in memory first,
//! too, and in such files guesses are right for 800 pages in a row as well.
//!
//! Invariants:  [OVF-1] rows are examined while fewer than the given number of their pages are still to be read by
//!              SQLite [OVF-2] at most `ROWS_MAX` rows are known  [OVF-3] if more than one page in `READ_FOR_EACH` was
//!              unneeded, the first few excepted, no page is requested
//! Concurrency: one owner.
//! Failure:     an invalid link ends its row.
//! Source:      sqlite.org/fileformat2.html, 1.6.

use std::collections::VecDeque;

use super::recipient::Recipient;
use crate::memory::{Grow, NoMemory};
use crate::page::{Overflow, link_of};
use crate::trees::Pages;

const ROWS_MAX: usize = 256;
/// Consecutive rows that determine how far SQLite reads.
const ROWS_DECIDE: u32 = 2;
const NO_ROWS: (u32, u32) = (0, u32::MAX);
/// Consecutive links to the adjacent page that are required for each guessed page. A wrong guess then costs at most one
/// page in 50, as on average the run ends halfway through a row.
const LINKS_FOR_EACH: u32 = 25;
const READ_FOR_EACH: u64 = 50;
/// This many unneeded pages are always allowed. Once there were any, the limit of pages ahead is this multiple of those
/// still allowed.
const UNWANTED_FIRST: u64 = 1;
const AHEAD_FOR_EACH: u64 = 4;
/// Beyond this, more pages of a row make no difference.
const STEP_MAX: u32 = 1 << 16;
/// The number of leaves, or of looked-up rows, that are read ahead of those whose overflow pages are read.
const LEAD_MAX: u32 = 64;
/// If rows begin at most this far after the end of the previous one, they are in file order. After so many of them, the
/// kernel's readahead takes over.
const IN_ORDER_GAP: u32 = 2;
const IN_ORDER: u32 = 4;
/// A pass ends after this many consecutive rows whose next page is unknown: the rows after them were requested later.
const MISSING_MAX: u32 = 4;

/// The overflow pages of one tree's rows.
#[derive(Debug)]
pub(super) struct Chains {
    pub(super) root: u32,
    /// The number of pages of each row that SQLite reads; the maximum stands for all.
    reach: u32,
    /// Consecutive rows that were read further than `reach`, and the least reach among them.
    longer: (u32, u32),
    /// Consecutive rows that were read less far than `reach`, and how far the last of them was read.
    shorter: (u32, u32),
    pages_read: u64,
    unwanted: u64,
    /// Consecutive links to the adjacent page.
    straight: u32,
    /// The end of the row examined last, if its pages are adjacent; and how many consecutive rows follow each other in
    /// this way.
    end: u32,
    in_order: u32,
    /// Pages of one leaf's rows, or of one looked-up row: four times a running mean.
    step: u32,
    /// The row that SQLite is reading, and the next ones, in order.
    current: Option<Chain>,
    ahead: VecDeque<Chain>,
    /// The examined leaves, in the order of their turns; and the turn of the leaf that SQLite reached last, until it
    /// reads an overflow page of that leaf's rows.
    steps: VecDeque<(u32, u32)>,
    turn: Option<u32>,
    /// For a scan: leaves that are not examined yet.
    pub(super) leaves: VecDeque<u32>,
}

#[derive(Debug)]
struct Chain {
    turn: u32,
    pages: u32,
    first: u32,
    /// Pages counted from the first one: read by SQLite, its current position, requested, known.
    pages_read: u32,
    at: u32,
    asked: u32,
    known: u32,
    /// The last known page.
    last_known: u32,
    /// The page that SQLite reads next; 0 for none.
    next: u32,
    /// The kernel reads ahead of it.
    in_order: bool,
}

impl Chain {
    fn new(turn: u32, overflow: Overflow, in_order: bool) -> Chain {
        let Overflow { first, pages } = overflow;
        let (pages_read, at, asked, known) = (0, 0, 0, 1);
        let (last_known, next) = (first, first);
        Chain { turn, pages, first, pages_read, at, asked, known, last_known, next, in_order }
    }

    /// The last known page names this one. Returns how many pages were guessed wrongly.
    fn is_next(&mut self, page: u32) -> u32 {
        let mut wrong = 0;
        if page != self.last_known.wrapping_add(1) && self.asked > self.known {
            wrong = self.asked - self.known;
            self.asked = self.known;
        }
        self.known += 1;
        self.last_known = page;
        wrong
    }
}

impl Chains {
    pub(super) fn new(root: u32) -> Chains {
        Chains {
            root,
            reach: 0,
            longer: NO_ROWS,
            shorter: NO_ROWS,
            pages_read: 0,
            unwanted: 0,
            straight: 0,
            end: 0,
            in_order: 0,
            step: 0,
            current: None,
            ahead: VecDeque::new(),
            steps: VecDeque::new(),
            turn: None,
            leaves: VecDeque::new(),
        }
    }

    /// Whether rows' overflow pages are worth requesting.
    pub(super) fn are_read(&self) -> bool {
        self.reach > 0 && self.may_be_unwanted().is_some()
    }

    /// The number of further pages that may turn out to be unneeded.
    fn may_be_unwanted(&self) -> Option<u64> {
        (self.pages_read / READ_FOR_EACH + UNWANTED_FIRST).checked_sub(self.unwanted) // [OVF-3]
    }

    /// The maximum number of pages ahead, at most the cursor's maximum.
    fn most(&self, most: u32) -> u32 {
        let left = self.may_be_unwanted().unwrap_or(0);
        if self.unwanted == 0 { most } else { most.min((AHEAD_FOR_EACH * left) as u32) }
    }

    /// SQLite has read a page, which names `link` as the next. Returns whether the page belongs to a known row.
    pub(super) fn on_page(&mut self, page: u32, link: u32) -> bool {
        if let Some(chain) = self.current.as_mut().filter(|chain| chain.first == page) {
            (chain.at, chain.next) = (0, page); // the row is read again
        }
        let goes_on = self.current.as_ref().is_some_and(|chain| chain.next == page);
        if !goes_on {
            let Some(at) = self.ahead.iter().position(|chain| chain.next == page) else {
                return false;
            };
            let found = self.ahead.remove(at);
            self.pass_over(at);
            if let Some(chain) = &found {
                self.steps.retain(|(_, turn)| *turn >= chain.turn);
            }
            self.turn = None;
            self.current = found;
        }
        self.goes_on(link);
        true
    }

    /// SQLite has read the first overflow page of an unknown row.
    pub(super) fn row_begins(&mut self, overflow: Overflow, link: u32) {
        self.pass_over(0);
        self.turn = None;
        let in_order = self.in_order(overflow);
        self.current = Some(Chain::new(0, overflow, in_order));
        self.goes_on(link);
    }

    fn goes_on(&mut self, link: u32) {
        let Some(chain) = &mut self.current else { return };
        chain.at += 1;
        chain.next = if chain.at < chain.pages { link } else { 0 };
        if chain.at <= chain.pages_read {
            return;
        }
        self.pages_read += 1;
        chain.pages_read += 1;
        chain.asked = chain.asked.max(chain.pages_read);
        if chain.next > 0 && chain.known == chain.pages_read {
            self.straight = straight(self.straight, chain.last_known, link);
            self.unwanted += u64::from(chain.is_next(link));
        }
    }

    /// SQLite has reached a leaf, so the rows of the leaves before it are complete. One leaf may be looked up for
    /// several rows; so if no overflow page is read either, it takes two leaves to decide.
    pub(super) fn on_leaf(&mut self, leaf: u32) {
        let before = if let Some(&(_, turn)) = self.steps.iter().find(|(it, _)| *it == leaf) {
            let Some(before) = self.turn.replace(turn).filter(|before| *before < turn) else {
                return;
            };
            self.steps.retain(|(_, turn)| *turn >= before);
            self.ahead.partition_point(|chain| chain.turn < before)
        } else if let Some(at) = self.leaves.iter().position(|it| *it == leaf) {
            self.leaves.drain(..at);
            self.ahead.len()
        } else {
            return;
        };
        self.pass_over(before);
    }

    /// SQLite has moved past everything that was examined.
    pub(super) fn overtaken(&mut self) {
        self.pass_over(self.ahead.len());
    }

    /// The current row is complete, and so are the next `count` rows.
    fn pass_over(&mut self, count: usize) {
        let current = self.current.take();
        current.iter().for_each(|chain| self.learn(chain));
        for _ in 0..count {
            let chain = self.ahead.pop_front();
            chain.iter().for_each(|chain| self.learn(chain));
        }
        if !self.are_read() {
            self.clear();
        }
    }

    /// A row is complete: the next rows may be read as far as it was.
    fn learn(&mut self, chain: &Chain) {
        let Chain { pages_read, pages, asked, .. } = *chain;
        self.unwanted += u64::from(asked - pages_read);
        if pages_read < self.reach.min(pages) {
            self.longer = NO_ROWS;
            self.shorter = (self.shorter.0 + 1, pages_read);
        } else if pages_read > self.reach {
            let reach = if pages_read == pages { u32::MAX } else { pages_read };
            self.longer = (self.longer.0 + 1, self.longer.1.min(reach));
            self.shorter = NO_ROWS;
        } else if pages_read > self.shorter.1 {
            self.shorter = NO_ROWS; // a shorter row gives no information
        }
        let decided = [self.longer, self.shorter].into_iter().find(|rows| rows.0 == ROWS_DECIDE);
        if let Some((_, reach)) = decided {
            (self.reach, self.longer, self.shorter) = (reach, NO_ROWS, NO_ROWS);
        }
    }

    /// The examined rows are not the next ones.
    pub(super) fn clear(&mut self) {
        let asked = self.ahead.iter().map(|chain| u64::from(chain.asked - chain.pages_read));
        self.unwanted += asked.sum::<u64>();
        self.look_again();
    }

    /// The examined rows will be examined again.
    pub(super) fn look_again(&mut self) {
        self.ahead.clear();
        self.steps.clear();
        self.leaves.clear();
        self.turn = None;
    }

    /// A leaf was examined: adds its rows with overflow pages, in this turn.
    pub(super) fn looked_into(
        &mut self,
        leaf: u32,
        turn: u32,
        rows: impl Iterator<Item = Overflow>,
    ) -> Result<(), NoMemory> {
        let mut step = 0;
        let first = self.ahead.partition_point(|chain| chain.turn <= turn);
        for (at, row) in (first..).zip(rows) {
            if self.ahead.len() >= ROWS_MAX {
                break; // [OVF-2]
            }
            let chain = Chain::new(turn, row, self.in_order(row));
            self.ahead.grow_at(at, chain)?;
            step += row.pages.min(self.reach).min(STEP_MAX);
        }
        self.step = self.step - self.step / 4 + step;
        if self.steps.len() >= ROWS_MAX {
            self.steps.pop_front();
        }
        let at = self.steps.partition_point(|(_, it)| *it <= turn);
        self.steps.grow_at(at, (leaf, turn))
    }

    /// Whether a row is one of several that lie in the file in the order in which they are examined.
    fn in_order(&mut self, row: Overflow) -> bool {
        let follows = row.first.wrapping_sub(self.end) <= IN_ORDER_GAP;
        self.in_order = if follows { self.in_order.saturating_add(1) } else { 0 };
        let whole = row.pages <= self.reach;
        self.end = if whole { row.first.saturating_add(row.pages) } else { 0 };
        self.in_order >= IN_ORDER
    }

    /// The number of pages of the known rows, up to `most`, that SQLite has not read yet.
    fn before_it(&self, most: u32) -> u32 {
        let pages =
            self.current.iter().chain(&self.ahead).map(|chain| {
                u64::from(chain.pages.min(self.reach).saturating_sub(chain.pages_read))
            });
        pages.sum::<u64>().min(most.into()) as u32
    }

    /// Whether more rows should be examined.
    pub(super) fn have_room(&self, most: u32) -> bool {
        let most = self.most(most);
        self.before_it(most) < most // [OVF-1]
    }

    /// The number of leaves, or of looked-up rows, to read ahead of the one that is examined.
    pub(super) fn lead(&self, most: u32) -> usize {
        (4 * most / self.step.saturating_add(4)).clamp(1, LEAD_MAX) as usize
    }

    pub(super) fn rows_ahead(&self) -> usize {
        self.ahead.len()
    }

    /// Requests the rows' pages, in order, as far as they are known or worth a guess.
    pub(super) fn ask(
        &mut self,
        most: u32,
        recipient: &mut Recipient<'_>,
        pages: &mut impl Pages,
    ) -> Result<(), NoMemory> {
        if !self.are_read() {
            return Ok(());
        }
        let (mut left, mut missing) = (self.most(most), 0);
        for chain in self.current.iter_mut().chain(&mut self.ahead) {
            let end = chain.pages.min(self.reach).min(chain.pages_read.saturating_add(left));
            while chain.asked < end && recipient.look() {
                // A residency check costs one call for each page, so it is skipped where all pages of a row may be
                // guessed.
                let guess = self.straight / LINKS_FOR_EACH;
                if chain.asked >= chain.known && guess < chain.pages.min(self.reach) - chain.known {
                    let mut link = [0; 4];
                    let known =
                        pages.read_cached(chain.last_known, &mut link).then(|| link_of(&link));
                    match known.flatten() {
                        Some(0) => {
                            chain.pages = chain.known;
                            self.unwanted += u64::from(chain.asked - chain.known);
                            chain.asked = chain.known;
                            break;
                        }
                        Some(link) => {
                            self.straight = straight(self.straight, chain.last_known, link);
                            self.unwanted += u64::from(chain.is_next(link));
                            continue;
                        }
                        None if chain.asked - chain.known >= guess => {
                            missing += 1;
                            break;
                        }
                        None => {}
                    }
                }
                let page = chain.last_known.saturating_add(chain.asked + 1 - chain.known);
                if pages.elsewhere(page) {
                    chain.pages = chain.asked; // the log has the rest
                    break;
                }
                recipient.predict_part(page, self.root, chain.asked > 0, chain.in_order)?;
                chain.asked += 1;
            }
            left -= end.saturating_sub(chain.pages_read).min(left);
            if left == 0 || missing == MISSING_MAX {
                break;
            }
        }
        Ok(())
    }
}

fn straight(so_far: u32, page: u32, link: u32) -> u32 {
    if link == page.wrapping_add(1) { so_far.saturating_add(1) } else { 0 }
}
