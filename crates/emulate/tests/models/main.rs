//! Timing models as a user of the crate sees them: profiles are built, commands go in, ends come out.

#![allow(clippy::unwrap_used)]

mod disk;
mod every;
#[path = "../../examples/curves/kernel.rs"]
mod kernel;
mod rig;
mod shapes;
mod speed;
