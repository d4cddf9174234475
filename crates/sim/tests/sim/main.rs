//! Tests of the simulated disk against its own rules, through the calls that engines make.

#![allow(clippy::unwrap_used)]

mod bytes;
mod faults;
mod model;
mod names;
mod order;
mod rig;
