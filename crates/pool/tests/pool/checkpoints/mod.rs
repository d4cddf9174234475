//! Checkpoints: what they write and in which order; they lose nothing, whatever runs concurrently and whatever fails.

mod basics;
mod faults;
mod images;
mod log;
mod races;
mod rig;
