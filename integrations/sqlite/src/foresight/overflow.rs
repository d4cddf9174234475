//! Rows that go on in overflow pages, as far as SQLite reads those.
//!
//! A leaf's cell names the first overflow page of its row and tells how many there are; each names the next. Whether
//! SQLite reads them depends on the query: all of a row's, the first few, or none. So two rows in turn tell, and of the
//! rows to come as many pages are asked for. Which page is the next is known once the one before is there. Until then
//! it may be guessed, where pages were found to follow each other in the file: the longer that went on, the more of
//! them. Worked example: rows of 40 pages that follow each other; after the first three, 117 links, four pages of
//! the fourth are guessed beyond the last that is known, after 25 rows all of a row's.
//!
//! The pointer map of files with auto-vacuum would tell instead of a guess. It was left out: a page of it is one
//! more to be there first, and guesses are right in such files for 800 pages in a row as well.
//!
//! Invariants:  [OVF-1] rows are looked into while SQLite has fewer than the given number of their pages before it
//!              [OVF-2] at most `ROWS_MAX` rows are known  [OVF-3] where more than one page in `CAME_FOR_EACH` was not
//!              wanted, except for the first few, none is asked for
//! Concurrency: one owner.
//! Failure:     a link that leads nowhere ends its row.
//! Source:      sqlite.org/fileformat2.html, 1.6.

use std::collections::VecDeque;

use super::cursor::Asker;
use crate::memory::{Grow, NoMemory};
use crate::page::{Overflow, link_of};
use crate::trees::Pages;

const ROWS_MAX: usize = 256;
/// Rows in a row that tell how far SQLite reads.
const ROWS_TELL: u32 = 2;
const NO_ROWS: (u32, u32) = (0, u32::MAX);
/// Links in a row that were to the page after, for each page that is guessed: one that is not costs no more than
/// one page in 50, as it comes half through a row.
const LINKS_FOR_EACH: u32 = 25;
const CAME_FOR_EACH: u64 = 50;
/// So many that are not wanted are nothing yet; once some were not, so many may be ahead for each that may be unwanted.
const UNWANTED_FIRST: u64 = 1;
const AHEAD_FOR_EACH: u64 = 4;
/// More pages of a row make no difference.
const STEP_MAX: u32 = 1 << 16;
/// Leaves, or rows that are looked up, that are read ahead of those whose overflow pages are.
const LEAD_MAX: u32 = 64;
/// Rows that begin so near after the end of the one before are in the order of the file; after so many of them, the
/// kernel's readahead is left to it.
const IN_ORDER_GAP: u32 = 2;
const IN_ORDER: u32 = 4;
/// So many rows in turn whose next page is not known end a look: those after them were asked for later.
const MISSING_MAX: u32 = 4;

/// The overflow pages of one tree's rows.
#[derive(Debug)]
pub(super) struct Chains {
    pub(super) root: u32,
    /// So many pages of each row are read, or all.
    reach: u32,
    /// Rows that were read further, and how far all of them were.
    longer: (u32, u32),
    /// Rows that were not read so far, and how far the last of them was.
    shorter: (u32, u32),
    came: u64,
    unwanted: u64,
    /// Links in a row to the page after.
    straight: u32,
    /// Where the row looked into last ends, if it is straight; how many in a row follow each other so.
    end: u32,
    in_order: u32,
    /// Pages of a leaf's rows, or of one that is looked up: four times a running mean.
    step: u32,
    /// The row that SQLite reads, and those to come, in order.
    current: Option<Chain>,
    ahead: VecDeque<Chain>,
    /// Leaves that were looked into, in order of their turns; that of the one that SQLite came to last, while no overflow
    /// page of its rows has come.
    steps: VecDeque<(u32, u32)>,
    turn: Option<u32>,
    /// Of a scan: leaves that are still to be looked into.
    pub(super) leaves: VecDeque<u32>,
}

#[derive(Debug)]
struct Chain {
    turn: u32,
    pages: u32,
    first: u32,
    /// How many of them, from the first on: SQLite has come to, and now comes to, were asked for, are known.
    came: u32,
    at: u32,
    asked: u32,
    known: u32,
    /// The last that is known.
    last_known: u32,
    /// The page that SQLite comes to next; none is 0.
    next: u32,
    /// The kernel reads ahead of it.
    in_order: bool,
}

impl Chain {
    fn new(turn: u32, overflow: Overflow, in_order: bool) -> Chain {
        let Overflow { first, pages } = overflow;
        let (came, at, asked, known) = (0, 0, 0, 1);
        let (last_known, next) = (first, first);
        Chain { turn, pages, first, came, at, asked, known, last_known, next, in_order }
    }

    /// The last page that was known names this one. Returns how many pages were guessed otherwise.
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
            came: 0,
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

    /// Whether rows' overflow pages are worth asking for.
    pub(super) fn are_read(&self) -> bool {
        self.reach > 0 && self.may_be_unwanted().is_some()
    }

    /// How many more pages may turn out not to be wanted.
    fn may_be_unwanted(&self) -> Option<u64> {
        (self.came / CAME_FOR_EACH + UNWANTED_FIRST).checked_sub(self.unwanted) // [OVF-3]
    }

    /// Most pages that may be ahead, of those that the cursor may be.
    fn most(&self, most: u32) -> u32 {
        let left = self.may_be_unwanted().unwrap_or(0);
        if self.unwanted == 0 { most } else { most.min((AHEAD_FOR_EACH * left) as u32) }
    }

    /// SQLite has read a page, which names this one as the next. Returns whether it is one of a row that is known.
    pub(super) fn page_came(&mut self, page: u32, link: u32) -> bool {
        if let Some(chain) = self.current.as_mut().filter(|chain| chain.first == page) {
            (chain.at, chain.next) = (0, page); // it is read once more
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

    /// SQLite has read the first overflow page of a row that was not known.
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
        if chain.at <= chain.came {
            return;
        }
        self.came += 1;
        chain.came += 1;
        chain.asked = chain.asked.max(chain.came);
        if chain.next > 0 && chain.known == chain.came {
            self.straight = straight(self.straight, chain.last_known, link);
            self.unwanted += u64::from(chain.is_next(link));
        }
    }

    /// SQLite has come to a leaf: the rows of those before it are over. One leaf may be looked up for several rows, so
    /// where no overflow page comes either it takes two leaves to tell.
    pub(super) fn leaf_came(&mut self, leaf: u32) {
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

    /// SQLite has come to what is after all that was looked into.
    pub(super) fn overtaken(&mut self) {
        self.pass_over(self.ahead.len());
    }

    /// The current row is over, and so are the next so many.
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

    /// A row is over: how far it was read may be how far the next ones are.
    fn learn(&mut self, chain: &Chain) {
        let Chain { came, pages, asked, .. } = *chain;
        self.unwanted += u64::from(asked - came);
        if came < self.reach.min(pages) {
            self.longer = NO_ROWS;
            self.shorter = (self.shorter.0 + 1, came);
        } else if came > self.reach {
            let reach = if came == pages { u32::MAX } else { came };
            self.longer = (self.longer.0 + 1, self.longer.1.min(reach));
            self.shorter = NO_ROWS;
        } else if came > self.shorter.1 {
            self.shorter = NO_ROWS; // a row that ends before says nothing
        }
        let told = [self.longer, self.shorter].into_iter().find(|rows| rows.0 == ROWS_TELL);
        if let Some((_, reach)) = told {
            (self.reach, self.longer, self.shorter) = (reach, NO_ROWS, NO_ROWS);
        }
    }

    /// What was looked into is not what comes next.
    pub(super) fn clear(&mut self) {
        let asked = self.ahead.iter().map(|chain| u64::from(chain.asked - chain.came));
        self.unwanted += asked.sum::<u64>();
        self.look_again();
    }

    /// What was looked into will be once more.
    pub(super) fn look_again(&mut self) {
        self.ahead.clear();
        self.steps.clear();
        self.leaves.clear();
        self.turn = None;
    }

    /// A leaf was looked into: its rows that have overflow pages come in this turn.
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

    /// Whether a row is one of many that lie in the order in which they are looked into.
    fn in_order(&mut self, row: Overflow) -> bool {
        let follows = row.first.wrapping_sub(self.end) <= IN_ORDER_GAP;
        self.in_order = if follows { self.in_order.saturating_add(1) } else { 0 };
        let whole = row.pages <= self.reach;
        self.end = if whole { row.first.saturating_add(row.pages) } else { 0 };
        self.in_order >= IN_ORDER
    }

    /// Pages of the rows that are known, up to `most`, that SQLite has not come to.
    fn before_it(&self, most: u32) -> u32 {
        let pages = self
            .current
            .iter()
            .chain(&self.ahead)
            .map(|chain| u64::from(chain.pages.min(self.reach).saturating_sub(chain.came)));
        pages.sum::<u64>().min(most.into()) as u32
    }

    /// Whether more rows are to be looked into.
    pub(super) fn have_room(&self, most: u32) -> bool {
        let most = self.most(most);
        self.before_it(most) < most // [OVF-1]
    }

    /// How many leaves, or rows that are looked up, to be ahead of the one that is looked into.
    pub(super) fn lead(&self, most: u32) -> usize {
        (4 * most / self.step.saturating_add(4)).clamp(1, LEAD_MAX) as usize
    }

    pub(super) fn rows_ahead(&self) -> usize {
        self.ahead.len()
    }

    /// Asks for the rows' pages, in order, as far as they are known or worth a guess.
    pub(super) fn ask(
        &mut self,
        most: u32,
        asker: &mut Asker<'_>,
        pages: &mut impl Pages,
    ) -> Result<(), NoMemory> {
        if !self.are_read() {
            return Ok(());
        }
        let (mut left, mut missing) = (self.most(most), 0);
        for chain in self.current.iter_mut().chain(&mut self.ahead) {
            let end = chain.pages.min(self.reach).min(chain.came.saturating_add(left));
            while chain.asked < end && asker.look() {
                // To look costs a call for each page, so it is left where all of a row may be guessed.
                let guess = self.straight / LINKS_FOR_EACH;
                if chain.asked >= chain.known && guess < chain.pages.min(self.reach) - chain.known {
                    let mut link = [0; 4];
                    let known = pages.at_hand(chain.last_known, &mut link).then(|| link_of(&link));
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
                    chain.pages = chain.asked; // the log has what comes after it
                    break;
                }
                asker.foresee_part(page, self.root, chain.asked > 0, chain.in_order)?;
                chain.asked += 1;
            }
            left -= end.saturating_sub(chain.came).min(left);
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
