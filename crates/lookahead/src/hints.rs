//! Look-ahead for a reader that can only be given hints: a consumer reads one block after another on its own, and the
//! owner of a [`Hints`] may prefetch blocks that the consumer will need.
//!
//! Examples are an index scan inside a database, and SQLite reading its file. The caller passes the predicted blocks
//! one by one, in the order of use, and receives the requests that are worth making. It then reports how long the
//! consumer's read of each block took. Nothing else is known: no completion, no cache state.
//!
//! A hint for a block that the kernel has cached costs as much as a third of the read that it should help, so hints
//! must stop where no read waits. While idle, hints make no requests. One read that waits makes them active; once hints
//! were found useless, it takes two such reads close to each other, as on a busy machine any read may wait now and
//! then. While active, a few blocks are left out, more and more rarely: their reads show whether hints are still
//! useful. Worked example: if all reads wait, nine of the first 8,000 blocks are left out; if all blocks are resident,
//! hints become idle after three blocks left out, about 32 blocks in all. Asking the kernel what is resident (mincore,
//! cachestat) was rejected: it costs as much as the hint.
//!
//! A long sequence is left to the kernel. The kernel reads ahead of a sequence on its own, unless it finds blocks there
//! that hints have brought in: with hints one block ahead a block took 31 us, without them 6 to 18 us
//! (integrations/postgres/bench/advice.py).
//! Source:      PostgreSQL's read streams give no advice for sequences either.
//!
//! A consumer that may stop at any row (LIMIT, a cursor) gets a look-ahead of a tenth of the blocks it has taken, so
//! that at most a tenth too much is read. After 2,560 blocks the distance reaches 256, at the cost of 10 ln(256) = 55
//! waits; for a consumer that takes everything, the distance doubles with each wait.
//!
//! Invariants:  [HNT-1] no block is requested twice within the last `REMEMBERED` predicted blocks, unless more than
//!              `WAYS` of them share a set  [HNT-2] never more than `most` blocks ahead, nor, if the consumer may stop,
//!              than a tenth of the blocks it took  [HNT-3] while idle, no request is made
//! Concurrency: one owner.
//! Failure:     none; no clock is read, all times are arguments. No memory is allocated.

use std::time::Duration;

use crate::{Block, Distance, Limits, Run, coalesce::coalesce_in_place};

/// A read that takes at least this long is a read from a device: copying a page from the kernel takes a few
/// microseconds, a read from the fastest flash ten times as long.
const DEVICE_READ_MIN: Duration = Duration::from_micros(20);
/// Once hints were found useless, two reads that wait within this many reads make them active; a single one is noise.
const WAKE_WITHIN: u32 = 16;
/// Maximum number of blocks in one batch of requests.
const BATCH_MAX: usize = 256;
/// The next batch is made when one part in this many of the distance is free.
const BATCH_PART: u32 = 4;
/// The first block left out, counted in requested blocks, and the largest interval between two such blocks.
const LEAVE_OUT_FIRST: u32 = 16;
const LEAVE_OUT_RARE: u32 = 4096;
/// The interval while a block left out was found resident.
const LEAVE_OUT_DOUBT: u32 = 8;
/// After this many blocks left out in a row were resident, hints are useless.
const RESIDENT_LEFT_OUT: u32 = 3;
/// After this many predicted blocks in a row were in the consumer's own cache, looking ahead is useless.
const RESIDENT_PREDICTED: u32 = 256;
/// This many blocks of a sequence are requested; the rest is left to the kernel's own readahead, which is good at
/// sequences and which hints disturb.
const SEQUENCE_ASKED: u32 = 16;
/// After this many blocks of a sequence, looking ahead is useless until the consumer has left the sequence.
const SEQUENCE_WATCHED: u32 = 256;
/// Number of predicted blocks that are remembered.
const REMEMBERED: usize = 2 * HINTS_MOST as usize;
const SETS: usize = REMEMBERED / WAYS;
const WAYS: usize = 4;

/// For a consumer that may stop, the look-ahead grows by one block for each this many blocks that it took.
pub const TAKEN_FOR_EACH: u64 = 10;

/// Maximum look-ahead in blocks, whatever the consumer specifies: half of the blocks that are remembered.
pub const HINTS_MOST: u32 = 1024;

/// How much of the predicted blocks the consumer takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    /// All of them, certainly.
    All,
    /// It may stop at any block.
    MayStop,
}

/// Whether a read that took this long was a read from a device.
pub fn read_waited(read: Duration) -> bool {
    read >= DEVICE_READ_MIN
}

/// Counts of the predicted blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct HintCounts {
    /// Blocks prefetched, before their reads.
    pub asked: u64,
    /// Prefetched blocks that the consumer then read.
    pub useful: u64,
    /// Predicted blocks that were in the consumer's own cache.
    pub resident: u64,
    /// Time that reads waited for a device, prefetched or not, in nanoseconds.
    pub waited_ns: u64,
    /// Maximum look-ahead in blocks when requests were made.
    pub ahead_most: u64,
}

impl HintCounts {
    /// The sum of these counts and `others`.
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
    /// Requested, and not yet reached by the consumer.
    Asked,
    /// Left out, to observe how long its read takes.
    LeftOut,
    /// No read of it is expected any more.
    Done,
}

#[derive(Debug, Clone, Copy)]
struct Predicted {
    block: Block,
    /// Its number in the order of use; wraps around.
    number: u32,
    state: State,
}

/// The hints for one consumer of one file.
#[derive(Debug)]
pub struct Hints {
    distance: Distance,
    takes: Takes,
    limits: Limits,
    idle: bool,
    /// Hints were found useless earlier.
    doubted: bool,
    /// Reads since the last one that waited, while idle.
    since_wait: u32,
    /// The number of the next block to predict, and the number after the last predicted block that the consumer
    /// reached.
    next: u32,
    taken: u32,
    /// Blocks that the consumer reached, predicted or not.
    took: u64,
    /// Blocks in a row that were not predicted although others are ahead.
    strays: u32,
    resident_predicted: u32,
    /// The last predicted block, and the length of the sequence that ends with it.
    last: Block,
    sequence: u32,
    /// The same for the blocks that the consumer reached.
    read_last: Block,
    read_sequence: u32,
    resident_left_out: u32,
    leave_out_every: u32,
    until_left_out: u32,
    counts: HintCounts,
    predicted: [[Predicted; WAYS]; SETS],
    batch: [Run; BATCH_MAX],
    batched: usize,
}

impl Hints {
    /// Creates idle hints for a consumer, which look ahead by at most `most` blocks (and at most [`HINTS_MOST`]).
    pub fn new(most: u32, takes: Takes, limits: Limits) -> Hints {
        let nothing = Predicted { block: 0, number: 0, state: State::Empty };
        Hints {
            distance: Distance::new(1, most.clamp(1, HINTS_MOST)),
            takes,
            limits,
            idle: true,
            doubted: false,
            since_wait: WAKE_WITHIN,
            next: 0,
            taken: 0,
            took: 0,
            strays: 0,
            resident_predicted: 0,
            last: 0,
            sequence: 0,
            read_last: 0,
            read_sequence: 0,
            resident_left_out: 0,
            leave_out_every: LEAVE_OUT_FIRST,
            until_left_out: LEAVE_OUT_FIRST,
            counts: HintCounts::default(),
            predicted: [[nothing; WAYS]; SETS],
            batch: [Run { first: 0, blocks: 0, wanted: 0 }; BATCH_MAX],
            batched: 0,
        }
    }

    /// Whether hints are idle because no read waits: the caller need not predict anything.
    pub fn is_idle(&self) -> bool {
        self.idle
    }

    /// The counts of the blocks predicted so far.
    pub fn counts(&self) -> HintCounts {
        self.counts
    }

    /// How many more blocks to predict now; 0 until a whole batch of them is worthwhile.
    pub fn available(&self) -> u32 {
        if self.idle {
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

    /// Whether this block was predicted recently: there is nothing to do for it.
    pub fn contains(&self, block: Block) -> bool {
        let set = &self.predicted[set_of(block)];
        set.iter().any(|one| one.state != State::Empty && one.block == block)
    }

    /// Predicts a block that is not yet known: the next one in the order of use. `resident` if the consumer has it in
    /// its own cache.
    pub fn predict(&mut self, block: Block, resident: bool) {
        let state = self.fate(block, resident);
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        let set = &mut self.predicted[set_of(block)];
        let age = |one: &Predicted| match one.state {
            State::Empty => u32::MAX,
            _ => number.wrapping_sub(one.number),
        };
        if let Some(oldest) = set.iter_mut().max_by_key(|one| age(one)) {
            if oldest.state == State::Asked {
                self.distance.wasted(1);
            }
            *oldest = Predicted { block, number, state };
        }
    }

    /// Like [`Hints::predict`], for a block that belongs to the previous one, as a part of a larger object that the
    /// consumer takes as a whole. Such consecutive blocks are not counted as a sequence: the kernel would detect it
    /// only half way through.
    pub fn predict_part(&mut self, block: Block) {
        let sequence = self.sequence;
        self.predict(block, false);
        if sequence < SEQUENCE_ASKED {
            self.sequence = sequence;
        }
    }

    /// Decides what to do for a block that is predicted now.
    fn fate(&mut self, block: Block, resident: bool) -> State {
        self.sequence = sequence(self.sequence, self.last, block);
        self.last = block;
        if resident {
            self.counts.resident += 1;
            self.resident_predicted += 1;
            if self.resident_predicted >= RESIDENT_PREDICTED {
                self.sleep();
            }
            return State::Done;
        }
        self.resident_predicted = 0;
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
        if self.idle || self.batched == BATCH_MAX {
            return State::Done; // predicting more blocks than fit into the batch has no effect
        }
        self.until_left_out -= 1;
        self.batch[self.batched] = Run { first: block, blocks: 1, wanted: 1 };
        self.batched += 1;
        State::Asked
    }

    /// The requests to make now for the blocks predicted since the last call: ascending, with adjacent blocks merged.
    pub fn take_runs(&mut self) -> &[Run] {
        let ahead = u64::from(self.ahead());
        let batch = &mut self.batch[..self.batched];
        self.batched = 0;
        self.counts.asked += batch.len() as u64;
        self.counts.ahead_most = self.counts.ahead_most.max(ahead);
        batch.sort_unstable_by_key(|run| run.first);
        let runs = coalesce_in_place(batch, self.limits);
        &self.batch[..runs]
    }

    /// Records that the consumer reached a block, and how long reading it took; `None` if the consumer had it in its
    /// own cache.
    pub fn on_read(&mut self, block: Block, read: Option<Duration>) {
        self.took += 1;
        self.read_sequence = sequence(self.read_sequence, self.read_last, block);
        self.read_last = block;
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
            (_, Some(_)) if self.idle && self.read_sequence >= SEQUENCE_ASKED => {}
            (_, Some(_)) if self.idle && self.doubted && self.since_wait >= WAKE_WITHIN => {
                self.since_wait = 0;
            }
            (_, Some(wait)) => {
                self.idle = false;
                self.distance.waited(wait);
            }
            (Some(_), None) => {}
            (None, None) => self.distance.hits(1),
        }
    }

    /// Records that the consumer read a block outside its predicted order: a part of a larger object that begins in one
    /// of the predicted blocks.
    pub fn on_other_read(&mut self, read: Duration) {
        self.took += 1;
        if read_waited(read) {
            self.counts.waited_ns += read.as_nanos() as u64;
            self.distance.waited(read);
        }
    }

    /// Records that the consumer jumped elsewhere: the predicted blocks are not the ones it will take next.
    pub fn jump(&mut self) {
        self.taken = self.next;
        self.strays = 0;
    }

    /// Sets another maximum for the distance, at most [`HINTS_MOST`].
    pub fn set_most(&mut self, most: u32) {
        self.distance.set_most(most.clamp(1, HINTS_MOST));
    }

    /// Predicted blocks that the consumer has not reached.
    pub fn ahead(&self) -> u32 {
        self.next.wrapping_sub(self.taken)
    }

    /// Finds a block that the consumer reached; no further read of it is expected.
    fn find(&mut self, block: Block) -> Option<State> {
        let set = &mut self.predicted[set_of(block)];
        let Some(one) = set.iter_mut().find(|one| one.state != State::Empty && one.block == block)
        else {
            self.stray();
            return None;
        };
        let state = std::mem::replace(&mut one.state, State::Done);
        let number = one.number;
        // Blocks that the consumer skipped count as taken.
        if self.next.wrapping_sub(number) <= self.ahead() {
            self.taken = number.wrapping_add(1);
            self.strays = 0;
        }
        Some(state)
    }

    /// Records that the consumer reached a block that was not predicted. After as many of these as we are ahead, it has
    /// moved elsewhere.
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

    /// Makes no further requests until a read waits.
    fn sleep(&mut self) {
        self.idle = true;
        self.jump();
        self.resident_predicted = 0;
        self.resident_left_out = 0;
        self.leave_out_every = LEAVE_OUT_FIRST;
        self.until_left_out = LEAVE_OUT_FIRST;
        self.distance.hits(u32::MAX);
    }
}

/// The length of the sequence that ends with `block`, if it was `so_far` at the block `before`.
fn sequence(so_far: u32, before: Block, block: Block) -> u32 {
    match block.checked_sub(before) {
        Some(0) => so_far,
        Some(1) => so_far.saturating_add(1),
        _ => 0,
    }
}

/// Adjacent blocks map to different sets, and blocks at any stride are spread.
fn set_of(block: Block) -> usize {
    const GOLDEN: u32 = 0x9E37_79B1; // 2^32 divided by the golden ratio
    (block.wrapping_mul(GOLDEN) >> (32 - SETS.ilog2())) as usize
}

#[cfg(test)]
mod tests;
