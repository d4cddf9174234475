//! The simulated disk held to its own rules, through the same calls that engines make.

#![allow(clippy::unwrap_used)]

mod bytes;
mod faults;
mod model;
mod names;
mod order;
mod rig;
