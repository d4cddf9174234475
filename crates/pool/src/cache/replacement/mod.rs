//! Replacement: which page has to go when another one needs its frame.
//!
//! Three sources, in order: the access strategy's own ring, the free list, and a sweep over all
//! frames. What is here decides (which frame to look at next, whether its page may go); everything that touches
//! frames is in `cache::victim`.

mod clock_sweep;
mod ring;

pub(crate) use clock_sweep::{ClockSweep, Verdict};
pub use ring::AccessStrategy;
pub(crate) use ring::RingSlot;
