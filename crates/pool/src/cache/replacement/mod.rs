//! Replacement: which page is evicted when another one needs its frame.
//!
//! Three sources, in order: the access strategy's own ring, the free list, and the clock sweep over all frames. This
//! module decides (which frame to examine next, whether its page may be evicted); everything that touches frames is in
//! `cache::victim`.

mod clock_sweep;
mod ring;

pub(crate) use clock_sweep::{ClockSweep, Verdict};
pub use ring::AccessStrategy;
pub(crate) use ring::RingSlot;
