//! Which steps of a consumer should be timed.
//!
//! The time that a read takes shows whether it waited. Measuring it takes two clock reads of 25 ns each: as much as a
//! tenth of an index scan's row that is in memory. So where reads do not wait, fewer and fewer steps are timed, in the
//! end one in `PART_MOST`; after one read that waits, all steps are timed again. Where no step reads anything, no step
//! is timed until one does; the consumer notices that without a clock.
//!
//! Worked example: everything is in the kernel's page cache. Of the first 504 reads 48 are timed, then one in 64. When
//! the pages are evicted, at the latest the 64th read is seen to wait.
//!
//! Invariants:  [SMP-1] of `PART_MOST` steps in a row at least one is timed, unless the sampler rests  [SMP-2] after a
//!              read that waited the next step is timed  [SMP-3] the sampler rests after `RESTS_AFTER` steps without a
//!              read, or `RESTS_AFTER_UNREAD` before the first one, and not before
//! Concurrency: one owner.
//! Failure:     none; no clock is read.

use std::time::Duration;

use crate::read_waited;

/// After this many steps in a row without a read, no step is timed.
const RESTS_AFTER: u32 = 64;
/// The same before the first read: most consumers in memory never read.
const RESTS_AFTER_UNREAD: u32 = 4;
/// After this many timed reads in a row that did not wait, half as many steps are timed.
const FAST_READS_MAX: u32 = 8;
/// At least one step in this many is timed.
const PART_MOST: u32 = 64;

/// Chooses the steps of one consumer that are timed.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Sampler {
    /// Steps until the sampler rests.
    left: u32,
    /// Steps to skip before the next timed one, and the number to skip after that.
    skip: u32,
    skips: u32,
    /// Timed reads in a row that did not wait, since the timing rate was last reduced.
    fast_reads: u32,
}

impl Default for Sampler {
    fn default() -> Sampler {
        Sampler { left: RESTS_AFTER_UNREAD, skip: 0, skips: 0, fast_reads: 0 }
    }
}

impl Sampler {
    /// Begins a step; returns whether to time it.
    #[inline]
    pub fn begin(&mut self) -> bool {
        if self.rests() {
            return false; // [SMP-3]
        }
        self.left -= 1;
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        self.skip = self.skips;
        true
    }

    /// Records that the current step has read something and how long that took; `None` if it was not timed.
    pub fn read(&mut self, read: Option<Duration>) {
        self.left = RESTS_AFTER;
        let Some(read) = read else { return };
        if read_waited(read) {
            (self.skip, self.skips, self.fast_reads) = (0, 0, 0); // [SMP-2]
            return;
        }
        self.fast_reads += 1;
        if self.fast_reads == FAST_READS_MAX {
            self.fast_reads = 0;
            self.skips = (self.skips * 2 + 1).min(PART_MOST - 1);
        }
    }

    /// Whether no step has read for a while, so that none is timed until one does.
    #[inline]
    pub fn rests(&self) -> bool {
        self.left == 0
    }
}

#[cfg(test)]
mod tests;
