//! Timing models through the public interface: profiles are built, commands are submitted, ends are checked.

#![allow(clippy::unwrap_used)]

mod disk;
mod every;
#[path = "../../examples/curves/kernel.rs"]
mod kernel;
mod rig;
mod shapes;
mod speed;
