//! What the pool did, is doing, and decided.

pub(crate) mod stats;
