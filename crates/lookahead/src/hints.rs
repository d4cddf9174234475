//! Look-ahead for a reader that can only be hinted for: a consumer reads block after block by itself, and we may ask the
//! kernel for blocks that it will want.
//!
//! An index scan inside a database is such a consumer, SQLite above its file another. What is foreseen is
//! told block by block, in the order of use; out come the requests that are worth making. What each block
//! cost its reader is told back, and nothing else is known: no completion, no cache state.
//!
//! A hint for a block that the kernel has costs as much as a third of the read that it is to help, so hints
//! must stop where nothing waits. Asleep, nothing is asked for; one read that waits wakes, or two close to each other
//! once hints were found useless, as a busy machine makes any read wait now and then. Awake, a few blocks are left
//! out, more and more rarely: their reads tell whether hints are still of use. Worked example: all waits, and of the
//! first 8,000 blocks nine are left out; all is resident, and after three blocks left out, about 32 blocks in all, it
//! sleeps. To ask the kernel what is resident (mincore, cachestat) was rejected: it
//! costs as much as the hint.
//!
//! A long sequence is left to the kernel. It reads ahead of one by itself, unless it finds blocks there that hints
//! have brought: hints one block ahead made 31 us a block of 6 to 18 (integrations/postgres/bench/advice.py).
//! Source: PostgreSQL's read streams give no advice for sequences either.
//!
//! A consumer that may stop at any row (LIMIT, a cursor) gets a look-ahead of a tenth of what it has taken, so
//! that it reads a tenth too much at most. 2,560 blocks then reach a distance of 256, at the cost of
//! 10 ln(256) = 55 waits; one that takes all doubles its distance with each wait that it had not.
//!
//! Invariants:  [HNT-1] no block is asked for twice within the last `REMEMBERED` blocks foreseen, unless more than
//!              `WAYS` of them share a set  [HNT-2] never more than `most` blocks ahead, nor, if the consumer may stop,
//!              than a tenth of what it took  [HNT-3] asleep, nothing is asked for
//! Concurrency: one owner.
//! Failure:     none; no clock is read, all times come with the events. No memory is allocated.

use std::time::Duration;

use crate::{Block, Distance, Limits, Run, coalesce::coalesce_in_place};

/// A read at least this long came from a device: copying a page from the kernel takes a few microseconds, the
/// fastest flash ten times as many.
const DEVICE_READ_MIN: Duration = Duration::from_micros(20);
/// Once hints were found useless, so many reads may lie between two that wait and wake: one alone is noise.
const WAKE_WITHIN: u32 = 16;
/// Most blocks that one batch of requests may hold.
const BATCH_MAX: usize = 256;
/// The next batch is made when one part in so many of the distance is free.
const BATCH_PART: u32 = 4;
/// The first block to be left out, counted in blocks asked for, and how rare they become.
const LEAVE_OUT_FIRST: u32 = 16;
const LEAVE_OUT_RARE: u32 = 4096;
/// So often where one was found resident.
const LEAVE_OUT_DOUBT: u32 = 8;
/// Blocks left out, in a row, that were resident: hints are of no use.
const RESIDENT_LEFT_OUT: u32 = 3;
/// Foreseen blocks in a row that the consumer has in its own cache: looking ahead is of no use.
const RESIDENT_FORESEEN: u32 = 256;
/// A sequence is asked for so far, and then left to the kernel's own readahead, which is good at that and is kept
/// from it by hints.
const SEQUENCE_ASKED: u32 = 16;
/// After so many blocks of one, looking ahead is of no use before the consumer has left it.
const SEQUENCE_WATCHED: u32 = 256;
/// Foreseen blocks that are remembered.
const REMEMBERED: usize = SETS * WAYS;
const SETS: usize = 512;
const WAYS: usize = 4;

/// A consumer that may stop is looked ahead of by one block, or whatever it takes, for so many that it took.
pub const TAKEN_FOR_EACH: u64 = 10;

/// Most blocks to be ahead of a consumer, whatever it says: half of what is remembered.
pub const HINTS_MOST: u32 = 1024;
const _: () = assert!(HINTS_MOST as usize * 2 == REMEMBERED);

/// How the consumer takes what is foreseen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    /// All of it, surely.
    All,
    /// It may stop at any block.
    MayStop,
}

/// Whether a read that took so long came from a device.
pub fn read_waited(read: Duration) -> bool {
    read >= DEVICE_READ_MIN
}

/// What became of the blocks foreseen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct HintCounts {
    /// Blocks prefetched, before their reads.
    pub asked: u64,
    /// Those of them that the consumer came to.
    pub useful: u64,
    /// Foreseen blocks that were in the consumer's own cache.
    pub resident: u64,
    /// Time that reads waited for a device, whether asked for or not, in nanoseconds.
    pub waited_ns: u64,
    /// Most blocks that it was ahead when it asked.
    pub ahead_most: u64,
}

impl HintCounts {
    /// Of these hints and of others, together.
    pub fn and(self, others: HintCounts) -> HintCounts {
        HintCounts {
            asked: self.asked + others.asked,
            useful: self.useful + others.useful,
            resident: self.resident + others.resident,
            waited_ns: self.waited_ns + others.waited_ns,
            ahead_most: self.ahead_most.max(others.ahead_most),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Empty,
    /// Asked for, and not come to yet.
    Asked,
    /// Left out, to see how its read fares.
    LeftOut,
    /// Nothing is expected of it any more.
    Done,
}

#[derive(Debug, Clone, Copy)]
struct Foreseen {
    block: Block,
    /// Its number in the order of use; it wraps.
    number: u32,
    state: State,
}

/// The hints for one consumer of one file.
#[derive(Debug)]
pub struct Hints {
    distance: Distance,
    takes: Takes,
    limits: Limits,
    asleep: bool,
    /// Hints were found useless before.
    doubted: bool,
    /// Reads since the last that waited, while asleep.
    since_wait: u32,
    /// The number of the next block foreseen, and the one after the last that the consumer came to.
    next: u32,
    taken: u32,
    /// Blocks that the consumer came to, foreseen or not.
    took: u64,
    /// In a row that were not foreseen though others are ahead.
    strays: u32,
    resident_foreseen: u32,
    /// The block foreseen last, and how many up to it follow each other.
    last: Block,
    sequence: u32,
    /// The same of the blocks that the consumer came to.
    came_last: Block,
    came_sequence: u32,
    resident_left_out: u32,
    leave_out_every: u32,
    until_left_out: u32,
    counts: HintCounts,
    foreseen: [[Foreseen; WAYS]; SETS],
    batch: [Run; BATCH_MAX],
    batched: usize,
}

impl Hints {
    /// For a consumer that is never looked ahead of by more than `most` blocks, [`HINTS_MOST`] at most; asleep.
    pub fn new(most: u32, takes: Takes, limits: Limits) -> Hints {
        let nothing = Foreseen { block: 0, number: 0, state: State::Empty };
        Hints {
            distance: Distance::new(1, most.clamp(1, HINTS_MOST)),
            takes,
            limits,
            asleep: true,
            doubted: false,
            since_wait: WAKE_WITHIN,
            next: 0,
            taken: 0,
            took: 0,
            strays: 0,
            resident_foreseen: 0,
            last: 0,
            sequence: 0,
            came_last: 0,
            came_sequence: 0,
            resident_left_out: 0,
            leave_out_every: LEAVE_OUT_FIRST,
            until_left_out: LEAVE_OUT_FIRST,
            counts: HintCounts::default(),
            foreseen: [[nothing; WAYS]; SETS],
            batch: [Run { first: 0, blocks: 0, wanted: 0 }; BATCH_MAX],
            batched: 0,
        }
    }

    /// Whether nothing is to be foreseen, as no read waits.
    pub fn asleep(&self) -> bool {
        self.asleep
    }

    /// What became of the blocks foreseen so far.
    pub fn counts(&self) -> HintCounts {
        self.counts
    }

    /// How many more blocks to foresee now; 0 until a whole batch of them is worth it.
    pub fn room(&self) -> u32 {
        if self.asleep {
            return 0; // [HNT-3]
        }
        let most = self.most();
        let free = most.saturating_sub(self.ahead());
        if free < (most / BATCH_PART).max(1) {
            return 0;
        }
        free.min((BATCH_MAX - self.batched) as u32)
    }

    /// How many blocks it may be ahead of the consumer now.
    pub fn most(&self) -> u32 {
        match self.takes {
            Takes::All => self.distance.blocks(),
            // [HNT-2]
            Takes::MayStop => {
                (self.took / TAKEN_FOR_EACH).min(u64::from(self.distance.blocks())) as u32
            }
        }
    }

    /// Whether this block was foreseen recently: there is nothing to do for it.
    pub fn knows(&self, block: Block) -> bool {
        let set = &self.foreseen[set_of(block)];
        set.iter().any(|one| one.state != State::Empty && one.block == block)
    }

    /// Foresees a block that is not known: the next one in the order of use. `resident` if the consumer has it
    /// in its own cache.
    pub fn foresee(&mut self, block: Block, resident: bool) {
        let state = self.fate(block, resident);
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        let set = &mut self.foreseen[set_of(block)];
        let age = |one: &Foreseen| match one.state {
            State::Empty => u32::MAX,
            _ => number.wrapping_sub(one.number),
        };
        if let Some(oldest) = set.iter_mut().max_by_key(|one| age(one)) {
            if oldest.state == State::Asked {
                self.distance.wasted(1);
            }
            *oldest = Foreseen { block, number, state };
        }
    }

    /// The same of one that belongs to the block before, as a part of something that the consumer takes as a whole. That
    /// they follow each other makes no sequence: the kernel would notice half through it.
    pub fn foresee_part(&mut self, block: Block) {
        let sequence = self.sequence;
        self.foresee(block, false);
        if sequence < SEQUENCE_ASKED {
            self.sequence = sequence;
        }
    }

    /// What to do for a block that is foreseen now.
    fn fate(&mut self, block: Block, resident: bool) -> State {
        self.sequence = sequence(self.sequence, self.last, block);
        self.last = block;
        if resident {
            self.counts.resident += 1;
            self.resident_foreseen += 1;
            if self.resident_foreseen >= RESIDENT_FORESEEN {
                self.sleep();
            }
            return State::Done;
        }
        self.resident_foreseen = 0;
        if self.sequence >= SEQUENCE_ASKED {
            if self.sequence >= SEQUENCE_WATCHED {
                self.sleep();
            }
            return State::Done;
        }
        if self.until_left_out == 0 {
            self.until_left_out = self.leave_out_every;
            return State::LeftOut;
        }
        if self.asleep || self.batched == BATCH_MAX {
            return State::Done; // foreseeing more than there is room for brings nothing
        }
        self.until_left_out -= 1;
        self.batch[self.batched] = Run { first: block, blocks: 1, wanted: 1 };
        self.batched += 1;
        State::Asked
    }

    /// The requests to make now for what was foreseen since the last call: ascending, neighbours merged.
    pub fn due(&mut self) -> &[Run] {
        let ahead = u64::from(self.ahead());
        let batch = &mut self.batch[..self.batched];
        self.batched = 0;
        self.counts.asked += batch.len() as u64;
        self.counts.ahead_most = self.counts.ahead_most.max(ahead);
        batch.sort_unstable_by_key(|run| run.first);
        let runs = coalesce_in_place(batch, self.limits, |_| u32::MAX);
        &self.batch[..runs]
    }

    /// The consumer came to a block, and reading it took so long; `None` if it had it in its own cache.
    pub fn came(&mut self, block: Block, read: Option<Duration>) {
        self.took += 1;
        self.came_sequence = sequence(self.came_sequence, self.came_last, block);
        self.came_last = block;
        let waited = read.filter(|read| read_waited(*read));
        self.since_wait = self.since_wait.saturating_add(u32::from(read.is_some()));
        if let Some(wait) = waited {
            self.counts.waited_ns += wait.as_nanos() as u64;
        }
        match (self.find(block), waited) {
            (Some(State::Asked), Some(wait)) => {
                self.counts.useful += 1;
                self.distance.waited(wait);
            }
            (Some(State::Asked), None) => {
                self.counts.useful += 1;
                self.distance.ready();
            }
            (Some(State::LeftOut), Some(_)) => {
                self.resident_left_out = 0;
                self.leave_out_every = (self.leave_out_every * 2).min(LEAVE_OUT_RARE);
            }
            (Some(State::LeftOut), None) => self.found_resident(),
            (_, Some(_)) if self.asleep && self.came_sequence >= SEQUENCE_ASKED => {}
            (_, Some(_)) if self.asleep && self.doubted && self.since_wait >= WAKE_WITHIN => {
                self.since_wait = 0;
            }
            (_, Some(wait)) => {
                self.asleep = false;
                self.distance.waited(wait);
            }
            (Some(_), None) => {}
            (None, None) => self.distance.hits(1),
        }
    }

    /// The consumer came to a block that is none of its sequence of blocks, and that nobody foresees: a part of something
    /// that begins in one of those.
    pub fn came_besides(&mut self, read: Duration) {
        self.took += 1;
        if read_waited(read) {
            self.counts.waited_ns += read.as_nanos() as u64;
            self.distance.waited(read);
        }
    }

    /// The consumer went elsewhere: what was foreseen is not what it will take next.
    pub fn jump(&mut self) {
        self.taken = self.next;
        self.strays = 0;
    }

    /// Sets another bound on the distance, [`HINTS_MOST`] at most.
    pub fn set_most(&mut self, most: u32) {
        self.distance.set_most(most.clamp(1, HINTS_MOST));
    }

    /// Blocks foreseen that the consumer has not come to.
    fn ahead(&self) -> u32 {
        self.next.wrapping_sub(self.taken)
    }

    /// Finds a block that the consumer came to, and expects nothing of it any more.
    fn find(&mut self, block: Block) -> Option<State> {
        let set = &mut self.foreseen[set_of(block)];
        let Some(one) = set.iter_mut().find(|one| one.state != State::Empty && one.block == block)
        else {
            self.stray();
            return None;
        };
        let state = std::mem::replace(&mut one.state, State::Done);
        let number = one.number;
        // What the consumer has passed over counts as taken.
        if self.next.wrapping_sub(number) <= self.ahead() {
            self.taken = number.wrapping_add(1);
            self.strays = 0;
        }
        Some(state)
    }

    /// The consumer came to a block that was not foreseen. When it does so for as long as we are ahead, it is
    /// somewhere else.
    fn stray(&mut self) {
        self.strays += 1;
        if self.strays > self.ahead() {
            self.jump();
        }
    }

    fn found_resident(&mut self) {
        self.resident_left_out += 1;
        self.leave_out_every = LEAVE_OUT_DOUBT;
        self.until_left_out = self.until_left_out.min(LEAVE_OUT_DOUBT);
        if self.resident_left_out >= RESIDENT_LEFT_OUT {
            self.doubted = true;
            self.since_wait = WAKE_WITHIN;
            self.sleep();
        }
    }

    /// Asks for nothing more until a read waits.
    fn sleep(&mut self) {
        self.asleep = true;
        self.jump();
        self.resident_foreseen = 0;
        self.resident_left_out = 0;
        self.leave_out_every = LEAVE_OUT_FIRST;
        self.until_left_out = LEAVE_OUT_FIRST;
        self.distance.hits(u32::MAX);
    }
}

/// How many blocks up to `block` follow each other, if it were `so_far` up to the one before.
fn sequence(so_far: u32, before: Block, block: Block) -> u32 {
    match block.checked_sub(before) {
        Some(0) => so_far,
        Some(1) => so_far.saturating_add(1),
        _ => 0,
    }
}

/// Neighbours lie in different sets, and blocks at any stride are spread.
fn set_of(block: Block) -> usize {
    const GOLDEN: u32 = 0x9E37_79B1; // 2^32 divided by the golden ratio
    (block.wrapping_mul(GOLDEN) >> (32 - SETS.ilog2())) as usize
}

#[cfg(test)]
mod tests;
