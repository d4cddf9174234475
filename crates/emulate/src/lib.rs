//! Emulated disks: timing models of devices, and a filesystem that takes as long as they would.
//!
//! A [`model`] is pure logic: given a command and the time, it says when that command ends. It
//! has no data, no clock and no thread, so that it can be tested by property, and an hour of a disk can
//! be computed in a second. A [`profile`] is a few lines of text that name a model and its parameters.
//!
//! Around a model there are a [`store`] for the bytes, a scheduler that runs it by a real clock, a [`log`]
//! of requests, and, on Linux, [`serve`]: a FUSE filesystem through which the real kernel uses it.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]
#![forbid(unsafe_code)]

mod files;
pub mod log;
pub mod model;
pub mod profile;
mod scheduler;
pub mod serve;
pub mod store;

pub use files::Place;
pub use scheduler::{Counters, Summary};
