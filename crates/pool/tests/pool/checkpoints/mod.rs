//! Checkpoints: what they write and in which order; that they lose nothing, whatever goes on beside them and
//! whatever fails.

mod basics;
mod faults;
mod images;
mod log;
mod races;
mod rig;
