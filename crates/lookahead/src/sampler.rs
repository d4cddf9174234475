//! Which steps of a consumer should be timed.
//!
//! The time that a read takes shows whether it waited. Measuring it takes two clock reads of 25 ns each: as much as a
//! tenth of an index scan's row that is in memory. So where reads do not wait, fewer and fewer of them are timed, in the
//! end one in `PART_MOST`; after one read that waits, all steps are timed again. Where no step reads anything, no step
//! is timed until one does. In both cases the consumer need not observe its steps meanwhile: it only counts reads, which
//! takes no clock.
//!
//! Worked example: everything is in the kernel's page cache. Of the first 168 reads 24 are timed, then one in 64. When
//! the pages are evicted, at the latest the 64th read is seen to wait.
//!
//! The consumer's count of reads may contain those of others. If such reads end a pause, and its own steps then read
//! nothing until the sampler rests again, the next pause is longer. A consumer that knows that no read of a pause has waited,
//! because its thread has not blocked meanwhile, may pause again at once.
//!
//! Invariants:  [SMP-1] of `PART_MOST` reads in a row at least one is timed  [SMP-2] after a read that waited the next
//!              step is timed  [SMP-3] the sampler rests after `RESTS_AFTER` steps without a read, or
//!              `RESTS_AFTER_UNREAD` before the first one, and not before  [SMP-4] a pause ends after at
//!              most `PART_MOST` reads
//! Concurrency: one owner.
//! Failure:     none; no clock is read.

use std::time::Duration;

use crate::read_waited;

/// After this many steps in a row without a read, no step is timed.
const RESTS_AFTER: u32 = 64;
/// The same before the first read: most consumers in memory never read.
const RESTS_AFTER_UNREAD: u32 = 4;
/// After this many timed reads in a row that did not wait, a quarter as many reads are timed.
const FAST_READS_MAX: u32 = 8;
/// At least one read in this many is timed.
const PART_MOST: u32 = 64;
/// So many reads that are not timed are worth a pause.
const PAUSE_MIN: u32 = 16;

/// Chooses the steps of one consumer that are timed.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Sampler {
    /// Steps until the sampler rests.
    left: u32,
    /// Reads that are not timed before the next timed step, and their number after a timed read.
    skip: u32,
    skips: u32,
    /// Timed reads in a row that did not wait, since the timing rate was last reduced.
    fast_reads: u32,
    /// Whether a step has read something since the last pause.
    has_read: bool,
}

impl Default for Sampler {
    fn default() -> Sampler {
        Sampler { left: RESTS_AFTER_UNREAD, skip: 0, skips: 0, fast_reads: 0, has_read: true }
    }
}

impl Sampler {
    /// Begins a step; returns whether to time it.
    #[inline]
    pub fn begin(&mut self) -> bool {
        if self.left == 0 {
            return false; // [SMP-3]
        }
        self.left -= 1;
        self.skip == 0
    }

    /// Records that the current step has read something and how long that took; `None` if it was not timed.
    pub fn read(&mut self, read: Option<Duration>) {
        (self.left, self.has_read) = (RESTS_AFTER, true);
        let Some(read) = read else {
            self.skip = self.skip.saturating_sub(1);
            return;
        };
        if read_waited(read) {
            (self.skip, self.skips, self.fast_reads) = (0, 0, 0); // [SMP-2]
            return;
        }
        self.fast_reads += 1;
        if self.fast_reads == FAST_READS_MAX {
            self.fast_reads = 0;
            self.skips = longer(self.skips);
        }
        self.skip = self.skips;
    }

    /// Returns how many reads end a pause that begins now, in which no step need be observed; 0 if there is none.
    #[inline]
    pub fn pause(&self) -> u32 {
        if self.left == 0 {
            self.skips + 1
        } else if self.skip >= PAUSE_MIN {
            self.skip // [SMP-4]
        } else {
            0
        }
    }

    /// A pause has ended: times all steps until one reads something, or the sampler rests.
    pub fn resume(&mut self) {
        if !self.has_read {
            self.skips = longer(self.skips);
        }
        (self.left, self.skip, self.has_read) = (RESTS_AFTER, 0, false);
    }
}

fn longer(skips: u32) -> u32 {
    (skips * 4 + 3).min(PART_MOST - 1)
}

#[cfg(test)]
mod tests;
