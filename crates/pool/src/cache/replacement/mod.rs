//! Replacement: which page has to go when another one needs its frame.
//!
//! Three sources, in order: the access strategy's own ring, the free list, and a sweep over all
//! frames by the pool's replacement policy. The policy is a trait of pure decisions (which frame to
//! look at next, whether its page may go); everything that touches frames is in `cache::victim`.

mod clock_sweep;
mod ring;

use std::fmt;

pub use clock_sweep::ClockSweep;
pub use ring::AccessStrategy;
pub(crate) use ring::Slot;

/// What to do with a page that nobody holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It goes.
    Take,
    /// It stays this time, and counts as used once less.
    Spare,
}

/// The rule by which a sweep chooses victims.
pub trait Replacement: fmt::Debug + Send + Sync {
    /// The frame to look at next, from 0 to the pool's frames. Called by many threads; going on
    /// from there must reach every frame.
    fn advance(&self) -> u32;

    /// Where the next call of [`advance`](Replacement::advance) will look, for the cleaner to
    /// work ahead of it.
    fn position(&self) -> u32;

    /// Whether a page goes that nobody holds and that was used `usage` times lately (0 to 5).
    fn judge(&self, usage: u8) -> Verdict;
}
