//! Which steps of a consumer are worth a look at the clock.
//!
//! Whether reads wait is told by how long they take, and to know that costs two looks at the clock, 25 ns each: as much as
//! a tenth of an index scan's row that is in memory. So where reads do not wait, fewer and fewer of the steps are
//! timed, one in `PART_MOST` in the end; one that waits has all of them timed again. And where none reads at all,
//! nothing is timed until one does, which is for the consumer to notice: it knows without a clock.
//!
//! Worked example: everything is in the kernel's page cache. Of the first 504 reads 48 are timed, then one in 64.
//! When the pages go, the 64th read at most is seen to wait.
//!
//! Invariants:  [SMP-1] of `PART_MOST` steps in a row at least one is timed, unless it rests  [SMP-2] after a read that waited
//!              the next step is timed  [SMP-3] it rests after `RESTS_AFTER` steps without a read, and not before
//! Concurrency: one owner.
//! Failure:     none; no clock is read.

use std::time::Duration;

use crate::read_waited;

/// Steps in a row without a read after which none is timed.
const RESTS_AFTER: u32 = 64;
/// Timed reads in a row that did not wait after which half as many are timed.
const CALM_READS: u32 = 8;
/// At least one step in so many is timed.
const PART_MOST: u32 = 64;

/// Chooses the steps of one consumer that are timed.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Sampler {
    /// Steps until it rests.
    left: u32,
    /// Steps to be passed over before the next that is timed, and from then to the one after.
    skip: u32,
    skips: u32,
    /// Timed reads in a row that did not wait, since fewer were timed.
    calm: u32,
}

impl Default for Sampler {
    fn default() -> Sampler {
        Sampler { left: RESTS_AFTER, skip: 0, skips: 0, calm: 0 }
    }
}

impl Sampler {
    /// A step begins: whether to time it.
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

    /// That step has read something, which took so long; `None` if it was not timed.
    pub fn read(&mut self, read: Option<Duration>) {
        self.left = RESTS_AFTER;
        let Some(read) = read else { return };
        if read_waited(read) {
            (self.skip, self.skips, self.calm) = (0, 0, 0); // [SMP-2]
            return;
        }
        self.calm += 1;
        if self.calm == CALM_READS {
            self.calm = 0;
            self.skips = (self.skips * 2 + 1).min(PART_MOST - 1);
        }
    }

    /// Whether none has read for a while, and none is timed until one does.
    #[inline]
    pub fn rests(&self) -> bool {
        self.left == 0
    }
}

#[cfg(test)]
mod tests;
