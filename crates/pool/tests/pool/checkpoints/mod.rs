//! Checkpoints: what they write, in which order, and what they promise.

mod basics;
