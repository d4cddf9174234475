//! Detector: sequences among the misses of plain reads, and how far to read ahead of each.
//!
//! An engine that reads block by block does not announce what it will read next, but its misses often show it. Only
//! misses are examined, so a hit costs nothing: a sequence remembers where the blocks read for it end, and its next
//! miss will be there. Worked example: misses 10 and 11 are a sequence, so 11..=14 are read; the next miss is 15, which
//! reads 15..=22; then 23 reads sixteen, and so on up to the caller's `most`. Backward and strided sequences work the
//! same way, in the other direction or in larger steps.
//!
//! A miss that belongs to no sequence is compared with the last 16 such misses. It begins a sequence
//! - forward or backward: when its neighbour on one side is among them, and the one on the other side is not;
//! - strided: when two of them lie at equal steps of 2 to 64 blocks, with no other in between (in a range that is read
//!   in shuffled order, some blocks always lie at equal steps);
//! - by context: when the three blocks on one side are in memory, and those on the other side are not.
//!
//! Do two misses make a sequence, or three? Two, while such guesses are right. A first batch on such *weak evidence*
//! costs credit, one unit for each block beyond the missed one, and gets it back when the reader passes the end of the
//! batch. Credit is earned at one block in 128 misses, so reads that only look like sequences cannot add 1 %. Three
//! neighbours in a row, each missed after the one before it, are *strong evidence* and cost nothing. On the patterns of
//! the tests, random reads of a file that is half in memory request 35 % more blocks without credit and 0.5 % more with
//! it, random reads in clusters 24 % and 0.6 %. Always waiting for the third miss would request none, but would cost
//! every reader one more wait.
//!
//! On ranges read in order or locally shuffled, with one block in `k` wanted, the useless blocks for each wanted one
//! are at most 0.02 when k is 1; 1.0 when 2; 1.4 when 3; 0.65 when 4; 0.1 when 8. A batch after a jump is as long as
//! the one before it. Half the length would waste less (0.7 when k is 3), but shuffled ranges would miss up to eight
//! times as often.
//!
//! Invariants:  [DET-1] the first block is the missed one, there are 1 to `most`, none past the end of the file or
//!              before its start
//!              [DET-2] at most 8 residency queries, and none for a block of a sequence
//!              [DET-3] blocks requested on weak evidence that proved wrong are at most 48, and one in 128 misses
//!              [DET-4] at most 16 sequences, in at most 480 bytes; the least recently used one is replaced
//!              [DET-5] a batch is at most twice as long as the one before it, or 4 blocks
//! Concurrency: none; the owner protects it with a lock, which it takes only on a miss.
//! Failure:     none. A sequence that is lost, or whose blocks were evicted, is detected again.
//! Source:      the kernel's on-demand readahead (mm/readahead.c): doubling, and the look at what is in memory
//!              (count_history_pages). Credit and strides are ours.

use crate::Block;

/// Maximum number of sequences, and of remembered misses without a sequence.
const TRACKED: usize = 16;

/// Blocks in a sequence's first batch.
const FIRST_BATCH: u32 = 4;

/// Maximum distance between two blocks of a strided sequence.
const STRIDE_MAX: i64 = 64;

/// Blocks that have to be in memory on one side of a miss, for context.
const CONTEXT: i64 = 3;

/// Maximum number of blocks that a reader may skip at the end of a batch and still be in its sequence.
const JUMP_MAX: u32 = 4;

/// A sequence that was not continued for this many misses has ended: by then a miss at its end is more likely a
/// coincidence.
const AGE_MAX: u64 = 1024;

/// Number of misses that earn the credit for one block.
const MISSES_PER_CREDIT: u32 = 128;

/// Maximum credit, in blocks: enough for the first batches of all sequences at once.
const CREDIT_MAX: u32 = TRACKED as u32 * (FIRST_BATCH - 1);

/// Finds sequences in the misses of one file. The owner protects it with a lock.
#[derive(Debug)]
pub struct Detector {
    /// In no order.
    tracked: [Sequence; TRACKED],
    tracked_count: usize,
    /// Misses that neither began nor continued a sequence, the newest first.
    recent: [Block; TRACKED],
    recent_count: usize,
    /// Total number of misses: the clock by which sequences age.
    misses: u64,
    /// In `MISSES_PER_CREDIT`-ths of a block.
    credit: u32,
}

/// What to read now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Detected {
    /// The missed block.
    pub first: Block,
    /// The step from each block to the next: 1 forward, -1 backward, otherwise 2 to 64 in either direction.
    pub stride: i64,
    /// How many blocks, the missed one included; at least 1.
    pub count: u32,
    /// Why they are worth reading.
    pub why: Why,
}

/// The pattern that a miss was classified as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// No pattern: the missed block alone.
    Random,
    /// Each block follows the one before.
    Sequential,
    /// Each block precedes the one before.
    Backward,
    /// Equal steps of more than one block.
    Strided,
    /// The blocks before it, or after it, are in memory.
    Context,
}

/// A run of blocks that is being read, and the last batch of it.
#[derive(Debug, Clone, Copy, Default)]
struct Sequence {
    first: Block,
    count: u32,
    stride: i8,
    /// Credit spent on its first batch and not yet returned, in blocks.
    owed: u8,
    /// The miss at which it was last continued.
    used: u64,
}

/// Where a miss lies in a sequence, the most likely place first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    /// At the end of the batch: all of the batch was in memory when the reader needed it.
    End,
    /// A little further: the reader skipped blocks.
    Beyond,
    /// In the batch: the block was not read after all, or was evicted before the reader reached it.
    Inside,
    /// At the start of the batch: two threads missed the same block, and this is the second.
    Again,
}

/// How sure a new sequence is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Evidence {
    Weak,
    Strong,
}

impl Default for Detector {
    /// Has no history yet.
    fn default() -> Detector {
        Detector {
            tracked: [Sequence::default(); TRACKED],
            tracked_count: 0,
            recent: [0; TRACKED],
            recent_count: 0,
            misses: 0,
            credit: CREDIT_MAX * MISSES_PER_CREDIT,
        }
    }
}

impl Detector {
    /// Handles a miss of `block`: returns what to read.
    ///
    /// `blocks` is the file's length, `most` the maximum number of blocks to read now, both in blocks; `resident`
    /// returns whether a block is in memory and is called at most 8 times. For a block past the end (the file may just
    /// have become shorter) it returns that block alone, and does not remember it.
    pub fn missed(
        &mut self,
        block: Block,
        blocks: Block,
        most: u32,
        resident: impl Fn(Block) -> bool,
    ) -> Detected {
        let alone = Detected { first: block, stride: 1, count: 1, why: Why::Random };
        if block >= blocks {
            return alone;
        }
        self.misses += 1;
        self.earn(1);
        match self.find(block) {
            Some((_, Place::Again)) => return alone,
            Some((index, place)) => return self.go_on(index, place, block, blocks, most),
            None => {}
        }
        let found = self.neighbours(block).or_else(|| self.strided(block)).or_else(|| {
            let stride = context(block, blocks, resident)?;
            Some((stride, Why::Context, Evidence::Weak))
        });
        let ahead = found.and_then(|(stride, why, evidence)| {
            let count = FIRST_BATCH.min(room(block, stride, blocks)).min(most).max(1);
            self.begin(Detected { first: block, stride, count, why }, evidence)
        });
        ahead.unwrap_or_else(|| {
            self.remember(block);
            alone
        })
    }

    #[cfg(test)]
    /// Number of known sequences, including finished ones that have not been removed yet.
    pub(crate) fn sequences(&self) -> usize {
        self.tracked_count
    }

    /// The sequence that `block` continues. Removes sequences that have ended along the way.
    fn find(&mut self, block: Block) -> Option<(usize, Place)> {
        let mut best: Option<(usize, Place)> = None;
        let mut index = 0;
        while index < self.tracked_count {
            let sequence = self.tracked[index];
            if self.misses - sequence.used > AGE_MAX {
                self.tracked_count -= 1;
                self.tracked[index] = self.tracked[self.tracked_count];
                continue;
            }
            let nearer = |place: &Place| best.is_none_or(|(_, other)| *place < other);
            if let Some(place) = sequence.place(block).filter(nearer) {
                best = Some((index, place));
            }
            index += 1;
        }
        best
    }

    /// The next batch of a known sequence.
    fn go_on(
        &mut self,
        index: usize,
        place: Place,
        block: Block,
        blocks: Block,
        most: u32,
    ) -> Detected {
        let Sequence { count: last, stride, owed, .. } = self.tracked[index];
        let want = match place {
            Place::End => last.saturating_mul(2),
            Place::Beyond => last,
            Place::Inside | Place::Again => last / 2,
        };
        let stride = i64::from(stride);
        let count = want.max(FIRST_BATCH).min(room(block, stride, blocks)).min(most).max(1);
        debug_assert!(count <= FIRST_BATCH.max(last.saturating_mul(2)), "[DET-5]");
        // The reader reached the end of the batch that was read on weak evidence: the guess was right.
        let owed = if place == Place::Inside {
            owed
        } else {
            self.earn(u32::from(owed) * MISSES_PER_CREDIT);
            0
        };
        let sequence = &mut self.tracked[index];
        (sequence.first, sequence.count) = (block, count);
        (sequence.owed, sequence.used) = (owed, self.misses);
        let why = match stride {
            1 => Why::Sequential,
            -1 => Why::Backward,
            _ => Why::Strided,
        };
        Detected { first: block, stride, count, why }
    }

    /// Begins a sequence, if its evidence is strong or there is credit for it.
    fn begin(&mut self, ahead: Detected, evidence: Evidence) -> Option<Detected> {
        let extra = ahead.count - 1;
        let owed = if evidence == Evidence::Strong { 0 } else { extra };
        self.credit = self.credit.checked_sub(owed * MISSES_PER_CREDIT)?;
        let sequence = Sequence {
            first: ahead.first,
            count: ahead.count,
            stride: i8::try_from(ahead.stride).expect("[DET-1] a stride is at most 64"),
            owed: u8::try_from(owed).expect("[DET-3] a first batch is at most 4 blocks"),
            used: self.misses,
        };
        if self.tracked_count < TRACKED {
            self.tracked[self.tracked_count] = sequence;
            self.tracked_count += 1;
        } else if let Some(oldest) = self.tracked.iter_mut().min_by_key(|one| one.used) {
            *oldest = sequence;
        }
        Some(ahead)
    }

    /// Whether `block` is next to a recent miss.
    fn neighbours(&self, block: Block) -> Option<(i64, Why, Evidence)> {
        let before = self.age(i64::from(block) - 1);
        let behind = self.age(i64::from(block) + 1);
        let (stride, why, age) = match (before, behind) {
            (Some(age), None) => (1, Why::Sequential, age),
            (None, Some(age)) => (-1, Why::Backward, age),
            // On both sides: a hole in a range that is read in shuffled order.
            _ => return None,
        };
        let third = self.age(i64::from(block) - 2 * stride);
        let in_order = third.is_some_and(|third| third > age);
        Some((stride, why, if in_order { Evidence::Strong } else { Evidence::Weak }))
    }

    /// Whether `block` and two recent misses lie at equal steps, and were missed in that order.
    fn strided(&self, block: Block) -> Option<(i64, Why, Evidence)> {
        let at = i64::from(block);
        for (age, recent) in self.recent().iter().enumerate() {
            let stride = at - i64::from(*recent);
            if !(2..=STRIDE_MAX).contains(&stride.abs()) {
                continue;
            }
            let start = at - 2 * stride;
            if self.age(start).is_none_or(|older| older <= age) {
                continue;
            }
            let inside = start.min(at) + 1..start.max(at);
            let among = |other: &&Block| **other != *recent && inside.contains(&i64::from(**other));
            if self.recent().iter().filter(among).count() == 0 {
                return Some((stride, Why::Strided, Evidence::Weak));
            }
        }
        None
    }

    fn recent(&self) -> &[Block] {
        &self.recent[..self.recent_count]
    }

    /// How many recent misses are newer than that of `block`, if it is among them.
    fn age(&self, block: i64) -> Option<usize> {
        let block = Block::try_from(block).ok()?;
        self.recent().iter().position(|recent| *recent == block)
    }

    fn remember(&mut self, block: Block) {
        if self.recent().contains(&block) {
            return;
        }
        self.recent.copy_within(..TRACKED - 1, 1);
        self.recent[0] = block;
        self.recent_count = (self.recent_count + 1).min(TRACKED);
    }

    /// Adds credit, in `MISSES_PER_CREDIT`-ths of a block.
    fn earn(&mut self, parts: u32) {
        self.credit = (self.credit + parts).min(CREDIT_MAX * MISSES_PER_CREDIT);
    }
}

impl Sequence {
    fn place(&self, block: Block) -> Option<Place> {
        let stride = i64::from(self.stride);
        let distance = i64::from(block) - i64::from(self.first);
        if distance % stride != 0 {
            return None;
        }
        let (steps, count) = (distance / stride, i64::from(self.count));
        // A short batch is no evidence for a reader that jumps.
        let jump = i64::from((self.count / 4).min(JUMP_MAX));
        match steps {
            _ if steps == count => Some(Place::End),
            _ if steps > count && steps <= count + jump => Some(Place::Beyond),
            _ if steps > 0 && steps < count => Some(Place::Inside),
            0 => Some(Place::Again),
            _ => None,
        }
    }
}

/// How many blocks of the file there are from `block` on, itself included, in steps of `stride`.
fn room(block: Block, stride: i64, blocks: Block) -> u32 {
    let distance = if stride > 0 { blocks - 1 - block } else { block };
    let steps = i64::from(distance) / stride.abs();
    // At most one less than u32::MAX: a file has no more blocks than that.
    u32::try_from(steps + 1).unwrap_or(u32::MAX)
}

/// The direction of a reader that reached `block` through blocks in memory, if it looks like one.
fn context(block: Block, blocks: Block, resident: impl Fn(Block) -> bool) -> Option<i64> {
    // Nearest first: for a random read, one query on each side is enough.
    let there = |direction: i64| {
        (1..=CONTEXT).all(|steps| {
            let other = Block::try_from(i64::from(block) + direction * steps);
            other.is_ok_and(|other| other < blocks && resident(other))
        })
    };
    match (there(-1), there(1)) {
        (true, false) => Some(1),
        (false, true) => Some(-1),
        // On both sides: a hole, with nothing to read behind it.
        _ => None,
    }
}

#[cfg(test)]
mod tests;
